"""A second decoder of FBL, in plain Python: written from docs/fbl.md alone, a function or class for each of its sections.

It shares nothing with codec/fbl but that text, so that where both agree the text is complete. Names are the text's.

    pixels = decode(data)              # (height, width, channels), uint8 where B is 8, else uint16
    chunks = metadata(data)            # [(type, bytes), ...]

What the text calls invalid raises Invalid. Lanes are the last two axes of arrays: (R, 8), so lane l is [l // 8, l % 8].
"""

import struct
from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy

MAGIC = bytes.fromhex("89 46 42 4C 0D 0A 1A 0A")
RAW, CONST, PALETTE, PACK, RANS = range(5)


class Invalid(ValueError):
    """The bytes are no valid FBL file."""


def require(true: bool, what: str) -> None:
    if not true:
        raise Invalid(what)


# ---- Conventions


def _crc_table() -> List[int]:
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)  # 0x1EDC6F41 reflected
        table.append(crc)
    return table


_CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def ceil4(n: int) -> int:
    return ceil_div(n, 4) * 4


def read_samples(data: bytes, count: int, bits: int) -> numpy.ndarray:
    """Samples that stand as such: 1 byte for B = 8, else 2."""
    kind = numpy.dtype("u1" if bits == 8 else "<u2")
    require(len(data) >= count * kind.itemsize, f"{count} samples don't fit into {len(data)} bytes")
    return numpy.frombuffer(data, kind, count).astype(numpy.int64)


def sample_bytes(bits: int) -> int:
    return 1 if bits == 8 else 2


def check_padding(rest: bytes, where: str) -> None:
    require(len(rest) <= 3, f"{where} has {len(rest)} bytes too many")


# ---- File


class Header(NamedTuple):
    channels: int
    bits: int
    width: int
    height: int
    tile_width: int
    tile_height: int
    tiles: int
    tables_bytes: int
    tiles_bytes: int
    metadata_bytes: int
    metadata_crc: int
    tables_crc: int

    @property
    def tables_at(self) -> int:
        return 64

    @property
    def index_at(self) -> int:
        return self.tables_at + self.tables_bytes

    @property
    def tiles_at(self) -> int:
        return self.index_at + 8 * self.tiles

    @property
    def metadata_at(self) -> int:
        return self.tiles_at + self.tiles_bytes

    @property
    def end(self) -> int:
        return self.metadata_at + self.metadata_bytes + 64


def read_header(data: bytes) -> Header:
    require(len(data) >= 64, f"{len(data)} bytes: shorter than a header")
    require(data[:8] == MAGIC, "no FBL file")
    require(data[8] == 1, f"version {data[8]}")
    require(crc32c(data[:60]) == struct.unpack_from("<I", data, 60)[0], "the header's checksum is wrong")
    channels, bits, zero = data[9:12]
    fields = struct.unpack_from("<IIHHIIQQIII", data, 12)
    head = Header(channels, bits, *fields[:-1])
    require(zero == 0 and fields[-1] == 0, "reserved bytes of the header aren't 0")
    require(1 <= channels <= 4 and 8 <= bits <= 16, f"{channels} channels of {bits} bits")
    require(0 < head.width < 1 << 31 and 0 < head.height < 1 << 31, f"{head.width} x {head.height} pixels")
    for side in (head.tile_width, head.tile_height):
        require(16 <= side <= 128 and side % 16 == 0, f"tiles of {head.tile_width} x {head.tile_height}")
    across, down = ceil_div(head.width, head.tile_width), ceil_div(head.height, head.tile_height)
    require(head.tiles == across * down, f"{head.tiles} tiles instead of {across} x {down}")
    require(head.tables_bytes % 4 == 0 and head.tables_bytes >= 4, f"{head.tables_bytes} bytes of tables")
    require(head.tiles_bytes % 4 == 0 and head.tiles_bytes < 1 << 31, f"{head.tiles_bytes} bytes of tiles")
    require(head.metadata_bytes % 4 == 0 and head.metadata_bytes < 1 << 32, f"{head.metadata_bytes} bytes of metadata")
    require(len(data) >= head.end, f"cut off: {len(data)} bytes of {head.end}")
    checked = data[head.tables_at : head.tiles_at]
    require(crc32c(checked) == head.tables_crc, "the checksum of tables and tile index is wrong")
    return head


class Tile(NamedTuple):
    mode: int
    data: bytes


def read_index(data: bytes, head: Header) -> List[Tile]:
    """The tiles, row by row."""
    entries = list(struct.iter_unpack("<II", data[head.index_at : head.tiles_at]))
    offsets = [(first >> 3) * 4 for first, _ in entries] + [head.tiles_bytes]
    require(offsets[0] == 0, "the first tile's offset isn't 0")
    require(all(a < b for a, b in zip(offsets, offsets[1:])), "the tiles' offsets don't grow")
    found = []
    for number, (first, crc) in enumerate(entries):
        part = data[head.tiles_at + offsets[number] : head.tiles_at + offsets[number + 1]]
        require(first & 7 <= RANS, f"tile {number} has mode {first & 7}")
        require(crc32c(part) == crc, f"the checksum of tile {number} is wrong")
        found.append(Tile(first & 7, part))
    return found


def read_metadata(data: bytes, head: Header) -> List[Tuple[bytes, bytes]]:
    """(type, bytes) of each chunk."""
    rest = data[head.metadata_at : head.metadata_at + head.metadata_bytes]
    require(crc32c(rest) == head.metadata_crc, "the metadata's checksum is wrong")
    chunks = []
    while rest:
        require(len(rest) >= 8, "a chunk of metadata is cut off")
        length = struct.unpack_from("<I", rest, 4)[0]
        require(8 + ceil4(length) <= len(rest), "a chunk of metadata is longer than the metadata")
        chunks.append((rest[:4], rest[8 : 8 + length]))
        rest = rest[8 + ceil4(length) :]
    return chunks


# ---- Tables


class Bits:
    """Numbers bit after bit, each byte's from bit 0 up, a number's lowest bit first."""

    def __init__(self, data: bytes) -> None:
        self.rest = int.from_bytes(data, "little")
        self.left = 8 * len(data)

    def read(self, count: int) -> int:
        require(count <= self.left, "the tables end within a set")
        number = self.rest & ((1 << count) - 1)
        self.rest >>= count
        self.left -= count
        return number


class Set:
    """Contexts with their tokens, as arrays by context and token; token_of is by context and slot."""

    def __init__(self, source: Bits, number: int, bits: int) -> None:
        deep = number < 4 and bits > 8
        self.modulus = 1 << bits if number < 4 else 256
        self.shift = source.read(4)
        require(deep or self.shift == 0, f"set {number} has a shift")
        contexts = source.read(4) + 1
        listed = source.read(1)
        self.context = numpy.zeros(64, numpy.int64)
        c = 0
        for s in range(64):
            if listed:
                c = source.read(4)
            elif s > 0:
                c += source.read(1)
            require(c < contexts, f"set {number} has no context {c}")
            self.context[s] = c
        self.raw, self.frequency, self.start, self.base = numpy.zeros((4, contexts, 8), numpy.int64)
        self.token_of = numpy.zeros((contexts, 512), numpy.int64)
        for c in range(contexts):
            self._read_tokens(source, c, 4 if deep else 3)

    def _read_tokens(self, source: Bits, c: int, raw_bits: int) -> None:
        tokens = source.read(3) + 1
        base = start = 0
        for t in range(tokens):
            self.raw[c, t] = source.read(raw_bits)
            self.frequency[c, t] = source.read(9) if t < tokens - 1 else 512 - start
            self.start[c, t] = start
            self.base[c, t] = base
            self.token_of[c, start : start + self.frequency[c, t]] = t
            start += int(self.frequency[c, t])
            require(start <= 512, "a context's frequencies exceed 512")
            base += 1 << int(self.raw[c, t])


class Tables(NamedTuple):
    palette: numpy.ndarray  # (n, channels)
    sets: Dict[int, Set]

    def set(self, number: int) -> Set:
        require(number in self.sets, f"a tile needs set {number}, which isn't there")
        return self.sets[number]


def read_tables(data: bytes, channels: int, bits: int) -> Tables:
    which, zero, n = struct.unpack_from("<BBH", data)
    require(which < 64 and zero == 0 and n <= 8192, "the tables' first bytes are invalid")
    palette = read_samples(data[4:], n * channels, bits).reshape(n, channels)
    source = Bits(data[4 + n * channels * sample_bytes(bits) :])
    return Tables(palette, {s: Set(source, s, bits) for s in range(6) if which >> s & 1})


# ---- Symbols


class Stream:
    """States, and the 16-bit words that they share."""

    def __init__(self, data: bytes, states: int) -> None:
        require(len(data) >= 4 * states, "states don't fit into their tile")
        self.x = numpy.frombuffer(data, "<u4", states).astype(numpy.int64)
        require(bool((self.x >= 65536).all()), "a state is below 65536")
        self.rest = data[4 * states :]
        self.words = numpy.frombuffer(self.rest[: len(self.rest) // 2 * 2], "<u2").astype(numpy.int64)
        self.used = 0

    def step(self, set_: Set, c: numpy.ndarray, who: Optional[numpy.ndarray] = None) -> numpy.ndarray:
        """One symbol of each state, or of those in `who`, in contexts c."""
        who = numpy.arange(len(self.x)) if who is None else who
        x = self.x[who]
        slot = x % 512
        t = set_.token_of[c, slot]
        x = set_.frequency[c, t] * (x >> 9) + slot - set_.start[c, t]
        raw = set_.raw[c, t]
        k = numpy.minimum(raw, 7)
        value = set_.base[c, t] + x % (1 << k)
        self.x[who] = x >> k
        self._take_words(who)
        m = raw - k
        if m.any():  # the second phase
            value += self.x[who] % (1 << m) * 128
            self.x[who] >>= m
            self._take_words(who)
        return value % set_.modulus

    def _take_words(self, who: numpy.ndarray) -> None:
        low = who[self.x[who] < 65536]
        end = self.used + len(low)
        require(end <= len(self.words), "a tile has too few words")
        self.x[low] = self.x[low] * 65536 + self.words[self.used : end]
        self.used = end

    def finish(self) -> None:
        require(bool((self.x == 65536).all()), "a tile's states don't end as they should")
        check_padding(self.rest[2 * self.used :], "a tile")


# ---- Lanes


class Lanes:
    """How a tile of w x h is cut into 8 x R micro-tiles of mw x mh."""

    def __init__(self, w: int, h: int, mode: int) -> None:
        self.w, self.h = w, h
        if mode == PACK:
            self.R, self.mw, self.mh = 8, ceil4(ceil_div(w, 8)), ceil_div(ceil_div(h, 8), 2) * 2
        else:
            self.R, self.mw, self.mh = 4, max(2, ceil_div(w, 8)), max(2, ceil_div(h, 4))

    def empty(self, *axes: int) -> numpy.ndarray:
        """Room for v[r][x], of further axes and the lanes'."""
        return numpy.zeros((self.mh, self.mw, *axes, self.R, 8), numpy.int64)

    def place(self, v: numpy.ndarray) -> numpy.ndarray:
        """The tile's pixels (h, w) of v[r][x][lane]."""
        r, x, g, j = numpy.indices(v.shape)
        tile = numpy.zeros((self.R * self.mh, 8 * self.mw), numpy.int64)
        tile[(g * self.mh + r - j) % (self.R * self.mh), j * self.mw + x] = v
        return tile[: self.h, : self.w]


class Neighbours:
    """N, W, NW and NE of v[r][x] in row steps r >= 1, of all lanes."""

    def __init__(self, v: numpy.ndarray, r: int, x: int) -> None:
        self.N = v[r - 1, x]
        self.W = self._west(v, r, x)
        self.NW = self._north_west(v, r, x)
        self.NE = self._north_east(v, r, x)

    @staticmethod
    def _west(v: numpy.ndarray, r: int, x: int) -> numpy.ndarray:
        if x > 0:
            return v[r, x - 1]
        west = v[r - 1, 0].copy()
        west[..., 1:] = v[r - 1, -1][..., :-1]
        return west

    def _north_west(self, v: numpy.ndarray, r: int, x: int) -> numpy.ndarray:
        if x > 0:
            return v[r - 1, x - 1]
        return self.N if r == 1 else self._west(v, r - 1, 0)

    @staticmethod
    def _north_east(v: numpy.ndarray, r: int, x: int) -> numpy.ndarray:
        if x < v.shape[1] - 1:
            return v[r - 1, x + 1]
        east = v[r - 1, -1].copy()
        east[..., :-1] = v[r, 0][..., 1:]
        return east


# ---- Residuals


def mean(a: numpy.ndarray, b: numpy.ndarray) -> numpy.ndarray:
    return (a + b + 1) >> 1


def predict(v: numpy.ndarray, r: int, x: int, predictors: numpy.ndarray, bits: int) -> numpy.ndarray:
    if r == 0:
        return v[0, x - 1] if x > 0 else numpy.full_like(v[0, 0], 1 << (bits - 1))
    at = Neighbours(v, r, x)
    low, high = numpy.minimum(at.W, at.N), numpy.maximum(at.W, at.N)
    median = at.W + at.N - numpy.minimum(numpy.maximum(at.NW, low), high)
    west_north = mean(at.W, at.N)
    return numpy.choose(
        predictors, [median, mean(west_north, median), west_north, mean(median, mean(at.W, at.NE))]
    )


def residual(z: numpy.ndarray) -> numpy.ndarray:
    return numpy.where(z % 2 == 0, z // 2, -((z + 1) // 2))


def read_predictors(data: bytes, planes: int, lanes: Lanes) -> numpy.ndarray:
    """(planes, R, 8) of two bits each."""
    count = 8 * lanes.R
    planes_bits = numpy.unpackbits(numpy.frombuffer(data, numpy.uint8, planes * count // 4), bitorder="little")
    low, high = planes_bits.reshape(planes, 2, lanes.R, 8).transpose(1, 0, 2, 3).astype(numpy.int64)
    return low + 2 * high


def check_minus_green(minus_green: int, channels: int) -> None:
    require(minus_green & ~(6 if channels >= 3 else 0) == 0, f"minus_green is {minus_green}")


def join_planes(planes: List[numpy.ndarray], minus_green: int, bits: int) -> numpy.ndarray:
    """Pixels (h, w, channels) of planes of values."""
    samples = [
        (v + planes[0] - (1 << (bits - 1))) % (1 << bits) if minus_green >> p & 1 else v for p, v in enumerate(planes)
    ]
    if len(samples) >= 3:
        green, red, blue = samples[:3]
        samples[:3] = red, green, blue
    return numpy.stack(samples, -1)


# ---- Mode 4, rans


def decode_rans(data: bytes, w: int, h: int, channels: int, bits: int, tables: Tables) -> numpy.ndarray:
    lanes = Lanes(w, h, RANS)
    require(len(data) >= 4 + 8 * channels, "a rans tile's head is cut off")
    minus_green = struct.unpack_from("<I", data)[0]
    check_minus_green(minus_green, channels)
    predictors = read_predictors(data[4:], channels, lanes)
    stream = Stream(data[4 + 8 * channels :], 32)
    sets = [tables.set(p) for p in range(channels)]
    values = [lanes.empty() for _ in range(channels)]
    sizes = [lanes.empty() for _ in range(channels)]
    for r in range(lanes.mh):
        for p in range(channels):
            for x in range(lanes.mw):
                s = sum_of_sizes(sizes[p], r, x, sets[p].shift)
                z = stream.step(sets[p], sets[p].context[s].ravel()).reshape(lanes.R, 8)
                sizes[p][r, x] = (z + 1) >> 1
                values[p][r, x] = (predict(values[p], r, x, predictors[p], bits) + residual(z)) % (1 << bits)
    stream.finish()
    return join_planes([lanes.place(v) for v in values], minus_green, bits)


def sum_of_sizes(sizes: numpy.ndarray, r: int, x: int, shift: int) -> numpy.ndarray:
    if r > 0:
        at = Neighbours(sizes, r, x)
        return numpy.minimum(63, (at.N + at.W + mean(at.NW, at.NE)) >> shift)
    if x > 0:
        return numpy.minimum(63, (3 * sizes[0, x - 1]) >> shift)
    return numpy.full_like(sizes[0, 0], 8)


# ---- Mode 3, pack


def decode_pack(data: bytes, w: int, h: int, channels: int, bits: int) -> numpy.ndarray:
    lanes = Lanes(w, h, PACK)
    head = 8 + 16 * channels
    require(len(data) >= head, "a pack tile's head is cut off")
    minus_green = struct.unpack_from("<I", data)[0]
    check_minus_green(minus_green, channels)
    left_out = numpy.array(list(data[4:8]))
    require(left_out.max() <= (8 if bits == 8 else 16), "a pack tile leaves out a width that can't be")
    predictors = read_predictors(data[8:], channels, lanes)
    shape = (lanes.mh // 2, channels, lanes.mw // 4, 64)
    widths, codes_bytes = read_widths(data[head:], shape, left_out[:channels], bits)
    groups = unpack_groups(data[head + codes_bytes :], widths)
    # i, plane, q, R, 8, then the group's row step and position
    groups = groups.reshape(*shape[:3], lanes.R, 8, 2, 4)
    z = groups.transpose(0, 5, 2, 6, 1, 3, 4).reshape(lanes.mh, lanes.mw, channels, lanes.R, 8)
    v = lanes.empty(channels)
    for r in range(lanes.mh):
        for x in range(lanes.mw):
            v[r, x] = (predict(v, r, x, predictors, bits) + residual(z[r, x])) % (1 << bits)
    return join_planes([lanes.place(v[:, :, p]) for p in range(channels)], minus_green, bits)


def read_widths(
    data: bytes, shape: Tuple[int, ...], left_out: numpy.ndarray, bits: int
) -> Tuple[numpy.ndarray, int]:
    """The groups' widths, and how many bytes their codes take."""
    code_bits = 3 if bits == 8 else 4
    count = int(numpy.prod(shape))
    size = count * code_bits // 8
    require(len(data) >= size, "width codes don't fit into their tile")
    stream = numpy.unpackbits(numpy.frombuffer(data, numpy.uint8, size), bitorder="little")
    codes = stream.reshape(count, code_bits) @ (1 << numpy.arange(code_bits))
    codes = codes.reshape(shape)
    return codes + (codes >= left_out[:, None, None]), size


def unpack_groups(data: bytes, widths: numpy.ndarray) -> numpy.ndarray:
    """The groups' 8 values each: (groups, 8)."""
    widths = widths.ravel()
    ends = numpy.cumsum(widths)
    require(len(data) >= ends[-1], "groups don't fit into their tile")
    check_padding(data[ends[-1] :], "a pack tile")
    stream = numpy.unpackbits(numpy.frombuffer(data, numpy.uint8, ends[-1]), bitorder="little").astype(numpy.int64)
    values = numpy.zeros((len(widths), 8), numpy.int64)
    for u in range(1, 17):
        mine = numpy.flatnonzero(widths == u)
        first = 8 * (ends[mine] - u)
        found = stream[first[:, None] + numpy.arange(8 * u)].reshape(len(mine), 8, u)
        values[mine] = found @ (1 << numpy.arange(u))
    return values


# ---- Mode 2, palette


def decode_palette(data: bytes, w: int, h: int, channels: int, bits: int, tables: Tables) -> numpy.ndarray:
    lanes = Lanes(w, h, PALETTE)
    colours, head, wide = read_colours(data, channels, bits, tables.palette)
    stream = Stream(data[head:], 8)
    first_set = tables.set(4)
    second_set = tables.set(5) if wide else None
    v = lanes.empty()
    for r in range(lanes.mh):
        for x in range(lanes.mw):
            s, candidates = look_around(v, r, x)
            for g in range(lanes.R):
                v[r, x, g] = read_indices(stream, first_set, second_set, s[g], candidates[:, g])
                require(bool((v[r, x, g] < len(colours)).all()), "an index has no colour")
    stream.finish()
    return colours[lanes.place(v)]


def read_colours(
    data: bytes, channels: int, bits: int, palette: numpy.ndarray
) -> Tuple[numpy.ndarray, int, bool]:
    """The tile's colours, where the states begin, and whether the tile is wide."""
    require(len(data) >= 4, "a palette tile's head is cut off")
    n, origin, zero = struct.unpack_from("<BBH", data)
    require(n <= 252 and origin <= 2 and zero == 0, "a palette tile's head is invalid")
    if n == 0:
        require(origin == 0, "a wide tile has colours of its own")
        return palette, 4, True
    at = 4
    placed = [origin == 1] * n
    if origin == 2:
        flags = data[at : at + ceil_div(n, 8)]
        require(len(flags) == ceil_div(n, 8), "a palette tile's flags are cut off")
        placed = [bool(flags[i // 8] >> i % 8 & 1) for i in range(n)]
        at += len(flags)
    colours = numpy.zeros((n, channels), numpy.int64)
    place_bytes = 1 if len(palette) <= 256 else 2
    for i in range(n):
        size = place_bytes if placed[i] else channels * sample_bytes(bits)
        require(at + size <= len(data), "a palette tile's colours are cut off")
        if placed[i]:
            place = int.from_bytes(data[at : at + size], "little")
            require(place < len(palette), f"the picture's palette has no place {place}")
            colours[i] = palette[place]
        else:
            colours[i] = read_samples(data[at : at + size], channels, bits)
        at += size
    return colours, ceil4(at), False


def look_around(v: numpy.ndarray, r: int, x: int) -> Tuple[numpy.ndarray, numpy.ndarray]:
    """Of each lane the sum that gives set 4's context, and the four candidates."""
    if r == 0:
        W = v[0, x - 1] if x > 0 else numpy.zeros_like(v[0, 0])
        N = NW = NE = NN = W
        WW = v[0, x - 2] if x > 1 else W
    else:
        at = Neighbours(v, r, x)
        N, W, NW, NE = at.N, at.W, at.NW, at.NE
        WW = v[r, x - 2] if x > 1 else W
        NN = v[r - 2, x] if r > 1 else N
    pairs = ((W, N), (W, NW), (N, NE), (N, NW), (W, WW), (N, NN))
    s = sum((a == b).astype(numpy.int64) << bit for bit, (a, b) in enumerate(pairs))
    first = numpy.where(W == NW, N, W)
    second = numpy.where(W == NW, W, N)
    return s, numpy.stack([first, second, NE, NW])


def read_indices(
    stream: Stream, first_set: Set, second_set: Optional[Set], s: numpy.ndarray, candidates: numpy.ndarray
) -> numpy.ndarray:
    """The indices of 8 lanes side by side; second_set is a wide tile's."""
    symbol = stream.step(first_set, first_set.context[s])
    index = symbol - 4
    new = numpy.flatnonzero(symbol >= 4)
    if second_set is not None and len(new):
        c = second_set.context[numpy.minimum(63, index[new])]
        index[new] = index[new] * 256 + stream.step(second_set, c, new)
    for k in range(4):
        index = numpy.where(symbol == k, candidates[k], index)
    return index


# ---- Modes 0 and 1, and the whole picture


def decode_plain(data: bytes, w: int, h: int, channels: int, bits: int) -> numpy.ndarray:
    """Samples as such, of all pixels or of one."""
    return read_samples(data, w * h * channels, bits).reshape(h, w, channels)


def decode_tile(tile: Tile, w: int, h: int, head: Header, tables: Tables) -> numpy.ndarray:
    kind = (head.channels, head.bits)
    if tile.mode == RAW:
        return decode_plain(tile.data, w, h, *kind)
    if tile.mode == CONST:
        return decode_plain(tile.data, 1, 1, *kind)
    if tile.mode == PALETTE:
        return decode_palette(tile.data, w, h, *kind, tables)
    if tile.mode == PACK:
        return decode_pack(tile.data, w, h, *kind)
    return decode_rans(tile.data, w, h, *kind, tables)


def metadata(data: bytes) -> List[Tuple[bytes, bytes]]:
    """(type, bytes) of each chunk of metadata."""
    return read_metadata(data, read_header(data))


def decode(data: bytes) -> numpy.ndarray:
    """The picture, (height, width, channels) of uint8 or uint16."""
    data = bytes(data)
    head = read_header(data)
    read_metadata(data, head)
    tables = read_tables(data[head.tables_at : head.index_at], head.channels, head.bits)
    tiles = iter(read_index(data, head))
    pixels = numpy.zeros((head.height, head.width, head.channels), numpy.uint8 if head.bits == 8 else numpy.uint16)
    for y in range(0, head.height, head.tile_height):
        for x in range(0, head.width, head.tile_width):
            room = pixels[y : y + head.tile_height, x : x + head.tile_width]
            room[:] = decode_tile(next(tiles), room.shape[1], room.shape[0], head, tables)
    return pixels
