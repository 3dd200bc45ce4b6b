"""Makes FBL files that the text allows but no encoder writes: tables at random, and tiles of symbols drawn from them.

A rans or palette tile is invented by decoding one: an Inventor stands in for the Stream, draws each symbol that is asked for, and when
the tile is complete codes what it drew, from the last step to the first.
"""

import struct
from unittest import mock

import numpy

import fbl_decoder


class Inventor:
    """A Stream whose symbols are drawn; bytes() are then the states and words that say them."""

    def __init__(self, rng, states):
        self.rng = rng
        self.states = states
        self.drawn = []

    def step(self, set_, c, who=None):
        who = numpy.arange(self.states) if who is None else who
        t = set_.token_of[c, self.rng.integers(0, 512, len(who))]
        extra = self.rng.integers(0, 1 << set_.raw[c, t])
        self.drawn.append((who, set_.frequency[c, t], set_.start[c, t], set_.raw[c, t], extra))
        return (set_.base[c, t] + extra) % set_.modulus

    def finish(self):
        pass

    def bytes(self):
        x = [65536] * self.states
        words = []

        def put(state, before):
            """The state before `before` was undone; a word goes out where it would have too many bits."""
            if before(x[state]) >= 1 << 32:
                words.append(x[state] % 65536)
                x[state] //= 65536
            x[state] = before(x[state])

        for step in reversed(self.drawn):
            one_by_one = [tuple(map(int, state)) for state in zip(*step)][::-1]
            for state, _, _, raw, extra in one_by_one:
                if raw > 7:
                    put(state, lambda x: x << (raw - 7) | extra >> 7)
            for state, frequency, start, raw, extra in one_by_one:
                k = min(raw, 7)

                def before(x):
                    y = x << k | extra % (1 << k)
                    return y // frequency * 512 + y % frequency + start

                put(state, before)
        return struct.pack(f"<{self.states}I{len(words)}H", *x, *reversed(words))


class BitWriter:
    def __init__(self):
        self.number = self.count = 0

    def write(self, value, count):
        self.number |= int(value) << self.count
        self.count += count

    def bytes(self):
        return self.number.to_bytes((self.count + 7) // 8, "little")


def write_set(out, rng, deep, values):
    """A set of any shape; its tokens have at most so many `values` together."""
    out.write(rng.integers(0, 16) if deep else 0, 4)
    contexts = int(rng.integers(1, 17))
    out.write(contexts - 1, 4)
    listed = int(rng.integers(0, 2))
    out.write(listed, 1)
    rises = set(rng.choice(63, int(rng.integers(0, contexts)), replace=False).tolist())
    for s in range(64):
        if listed:
            out.write(rng.integers(0, contexts), 4)
        elif s > 0:
            out.write(s - 1 in rises, 1)
    for _ in range(contexts):
        write_tokens(out, rng, deep, values)


def write_tokens(out, rng, deep, values):
    tokens = int(rng.integers(1, 9))
    out.write(tokens - 1, 3)
    cuts = sorted(rng.integers(0, 512, tokens - 1).tolist()) + [512]  # two of the same: a token of frequency 0
    for t in range(tokens):
        raw = int(rng.integers(0, 16 if deep else 8))
        while 1 << raw > max(1, values // tokens):
            raw -= 1
        out.write(raw, 4 if deep else 3)
        if t < tokens - 1:
            out.write(cuts[t] - (cuts[t - 1] if t else 0), 9)


def samples(rng, count, bits):
    return rng.integers(0, 1 << bits, count).astype("<u2" if bits > 8 else "u1").tobytes()


def tables(rng, bits, sets, palette, values):
    """Bytes of tables with those sets and a palette, padded."""
    out = BitWriter()
    for number in sets:
        write_set(out, rng, number < 4 and bits > 8, values)
    data = struct.pack("<BBH", sum(1 << number for number in sets), 0, palette[0]) + palette[1] + out.bytes()
    return data + bytes(-len(data) % 4)


def invent(rng, decode, head, states):
    """The whole tile that begins with `head`, and the pixels that it stands for."""
    inventor = Inventor(rng, states)
    with mock.patch.object(fbl_decoder, "Stream", lambda *_: inventor):
        pixels = decode(head)
    data = head + inventor.bytes()
    return data + bytes(-len(data) % 4), pixels


def rans(rng, width, height, channels, bits):
    """(file, pixels) of one rans tile."""
    table_bytes = tables(rng, bits, range(channels), (0, b""), 1 << 20)
    parsed = fbl_decoder.read_tables(table_bytes, channels, bits)
    minus_green = int(rng.integers(0, 4)) * 2 if channels >= 3 else 0
    head = struct.pack("<I", minus_green) + rng.bytes(8 * channels)
    tile, pixels = invent(
        rng, lambda data: fbl_decoder.decode_rans(data, width, height, channels, bits, parsed), head, 32
    )
    return file(pixels, bits, fbl_decoder.RANS, table_bytes, tile), pixels


def palette(rng, width, height, channels, bits, wide):
    """(file, pixels) of one palette tile; any symbol that can be drawn has a colour."""
    count = 8192 if wide else 252
    colours = samples(rng, count * channels, bits)
    common = (count, colours) if wide else (0, b"")
    table_bytes = tables(rng, bits, (4, 5) if wide else (4,), common, 36 if wide else 1 << 20)
    parsed = fbl_decoder.read_tables(table_bytes, channels, bits)
    head = struct.pack("<BBH", 0, 0, 0) if wide else struct.pack("<BBH", count, 0, 0) + colours
    head += bytes(-len(head) % 4)
    tile, pixels = invent(
        rng, lambda data: fbl_decoder.decode_palette(data, width, height, channels, bits, parsed), head, 8
    )
    return file(pixels, bits, fbl_decoder.PALETTE, table_bytes, tile), pixels


def pack(rng, width, height, channels, bits):
    """(file, pixels) of one pack tile: widths and values at random, those beyond 2^B too."""
    lanes = fbl_decoder.Lanes(width, height, fbl_decoder.PACK)
    shape = (lanes.mh // 2, channels, lanes.mw // 4, 64)
    left_out = rng.integers(0, 9 if bits == 8 else 17, 4) * (numpy.arange(4) < channels)
    codes = rng.bytes(int(numpy.prod(shape)) * (3 if bits == 8 else 4) // 8)
    widths, _ = fbl_decoder.read_widths(codes, shape, left_out[:channels], bits)
    minus_green = int(rng.integers(0, 4)) * 2 if channels >= 3 else 0
    head = struct.pack("<I", minus_green) + bytes(left_out.tolist()) + rng.bytes(16 * channels)
    tile = head + codes + rng.bytes(int(widths.sum()))
    tile += bytes(-len(tile) % 4)
    pixels = fbl_decoder.decode_pack(tile, width, height, channels, bits)
    return file(pixels, bits, fbl_decoder.PACK, bytes(4), tile), pixels


def file(pixels, bits, mode, table_bytes, tile):
    """A file of one tile, and no metadata."""
    height, width, channels = pixels.shape
    index = struct.pack("<II", mode, fbl_decoder.crc32c(tile))
    checked = table_bytes + index
    head = fbl_decoder.MAGIC + struct.pack(
        "<BBBBIIHHIIQQIII", 1, channels, bits, 0, width, height, 128, 128, 1, len(table_bytes), len(tile), 0,
        fbl_decoder.crc32c(b""), fbl_decoder.crc32c(checked), 0,
    )  # fmt: skip
    return head + struct.pack("<I", fbl_decoder.crc32c(head)) + checked + tile + bytes(64)
