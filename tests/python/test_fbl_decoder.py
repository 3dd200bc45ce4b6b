"""docs/fbl.md is the whole format: a decoder written from it alone gives the vectors' pixels, those of what forebay.fbl encodes, and refuses what forebay.fbl refuses."""

import os
import pathlib
import random
import struct

import numpy
import pytest
from hypothesis import HealthCheck, given, settings, strategies

import fbl_decoder
import fbl_inventor
from forebay import fbl

SCALE = float(os.environ.get("FOREBAY_TEST_SCALE", "1"))
VECTORS = pathlib.Path(__file__).resolve().parents[1] / "codec" / "fbl_vectors"


def few(examples):
    return settings(max_examples=int(examples * SCALE), deadline=None, suppress_health_check=list(HealthCheck))


def listed():
    for line in (VECTORS / "vectors.txt").read_text().splitlines():
        name, *numbers = line.split()
        yield (name, *map(int, numbers))


NAMES = [name for name, *_ in listed()]


def vector(name):
    return (VECTORS / f"{name}.fbl").read_bytes()


def refused(data):
    with pytest.raises(fbl_decoder.Invalid):
        fbl_decoder.decode(data)


def test_crc32c():
    assert fbl_decoder.crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize(("name", "width", "height", "channels", "bits"), list(listed()))
def test_vectors(name, width, height, channels, bits):
    kind = "u1" if bits == 8 else "<u2"
    want = numpy.frombuffer((VECTORS / f"{name}.raw").read_bytes(), kind).reshape(height, width, channels)
    got = fbl_decoder.decode(vector(name))
    assert got.dtype == (numpy.uint8 if bits == 8 else numpy.uint16)
    assert numpy.array_equal(got, want)


def test_vectors_have_every_mode():
    modes = {mode for name in NAMES for mode in fbl.info(vector(name)).modes}
    assert modes == set(range(len(fbl.MODES)))


# ---- What the product encodes


@strategies.composite
def pictures(draw):
    """(pixels, bits): noise, gradients with a little of it, one colour, few colours, or a patch of each."""
    height = draw(strategies.one_of(strategies.integers(1, 40), strategies.sampled_from([127, 128, 129, 140])))
    width = draw(strategies.one_of(strategies.integers(1, 40), strategies.sampled_from([127, 128, 129, 150])))
    channels = draw(strategies.integers(1, 4))
    bits = draw(strategies.sampled_from([8, 9, 12, 16]))
    rng = numpy.random.default_rng(draw(strategies.integers(0, 1 << 30)))
    y, x, c = numpy.indices((height, width, channels))
    colours = rng.integers(0, 1 << bits, (draw(strategies.sampled_from([2, 7, 100, 400])), channels))
    kinds = {
        "noise": rng.integers(0, 1 << bits, y.shape),
        "gradient": (y * rng.integers(1, 9) + x * (c + 1) + rng.integers(0, draw(strategies.sampled_from([1, 4, 30])), y.shape)) % (1 << bits),
        "flat": numpy.broadcast_to(colours[0], y.shape),
        "few colours": colours[rng.integers(0, len(colours), (height // 3 + 1, width // 3 + 1))[y[..., 0] // 3, x[..., 0] // 3]],
    }
    first, second = draw(strategies.sampled_from(sorted(kinds))), draw(strategies.sampled_from(sorted(kinds)))
    pixels = numpy.where(x < draw(strategies.integers(0, width)), kinds[first], kinds[second])
    return pixels.astype(numpy.uint8 if bits == 8 else numpy.uint16), bits


@few(20)
@given(pictures(), strategies.sampled_from(["small", "fast"]))
def test_what_the_product_encodes(picture, level):
    pixels, bits = picture
    got = fbl_decoder.decode(fbl.encode(pixels, bits=bits, level=level))
    assert got.dtype == pixels.dtype and numpy.array_equal(got, pixels)


@few(20)
@given(strategies.dictionaries(strategies.sampled_from(["EXIF", "ICCP", "XMP ", "test"]), strategies.binary(max_size=20)))
def test_metadata(chunks):
    data = fbl.encode(numpy.zeros((2, 3), numpy.uint8), metadata=chunks)
    assert fbl_decoder.metadata(data) == [(name.encode(), chunk) for name, chunk in chunks.items()]


# ---- What the text allows, but no encoder writes

INVENTED = {
    "pack": fbl_inventor.pack,
    "palette": lambda *of: fbl_inventor.palette(*of, wide=False),
    "wide palette": lambda *of: fbl_inventor.palette(*of, wide=True),
    "rans": fbl_inventor.rans,
}


@pytest.mark.parametrize("mode", INVENTED)
@few(10)
@given(strategies.integers(0, 1 << 30), strategies.integers(1, 40), strategies.integers(1, 40),
       strategies.integers(1, 4), strategies.integers(8, 16))
def test_invented(mode, seed, width, height, channels, bits):
    """Tables, widths and symbols at random: both decoders find the same pixels."""
    file, pixels = INVENTED[mode](numpy.random.default_rng(seed), width, height, channels, bits)
    assert numpy.array_equal(fbl_decoder.decode(file), pixels)
    assert numpy.array_equal(fbl.decode(file).reshape(pixels.shape), pixels)


# ---- What is refused


@pytest.mark.parametrize("name", NAMES)
def test_cut_off(name):
    data = vector(name)
    rng = random.Random(name)
    for length in [0, 1, 63, 64, 65, len(data) - 64, len(data) - 1] + [rng.randrange(len(data)) for _ in range(int(8 * SCALE))]:
        refused(data[:length])


@pytest.mark.parametrize("name", NAMES)
def test_flipped_bits(name):
    """In the header, up to the tiles, and up to the zeros at the end: checksums find each."""
    data = vector(name)
    rng = random.Random(name)
    index_ends = 64 + struct.unpack_from("<I", data, 28)[0] + 8 * len(fbl.info(data).modes)
    for end in (64, index_ends, len(data) - 64):
        for _ in range(int(8 * SCALE)):
            damaged = bytearray(data)
            damaged[rng.randrange(end)] ^= 1 << rng.randrange(8)
            refused(bytes(damaged))


def put_u32(file, at, value):
    file[at : at + 4] = struct.pack("<I", value)


def seal(file):
    """Makes all checksums right again, so that a decoder meets the damage itself. The header says what is where."""
    tables_bytes, tiles_bytes, metadata_bytes = struct.unpack_from("<IQQ", file, 28)
    tiles = struct.unpack_from("<I", file, 24)[0]
    index_at = 64 + tables_bytes
    tiles_at = index_at + 8 * tiles
    metadata_at = tiles_at + tiles_bytes
    entries = [index_at + 8 * i for i in range(tiles)]
    offsets = [(struct.unpack_from("<I", file, at)[0] >> 3) * 4 for at in entries] + [tiles_bytes]
    for at, begin, end in zip(entries, offsets, offsets[1:]):
        put_u32(file, at + 4, fbl_decoder.crc32c(file[tiles_at + begin : tiles_at + max(begin, end)]))
    put_u32(file, 48, fbl_decoder.crc32c(file[metadata_at : metadata_at + metadata_bytes]))
    put_u32(file, 52, fbl_decoder.crc32c(file[64:tiles_at]))
    put_u32(file, 60, fbl_decoder.crc32c(file[:60]))
    return bytes(file)


def decoded(decode, data, error):
    """The pixels, or None where they are refused."""
    try:
        return decode(data)
    except error:
        return None


@pytest.mark.parametrize("name", NAMES)
def test_damage_under_right_checksums(name):
    """Both decoders refuse it, or both find the same pixels."""
    data = vector(name)
    assert seal(bytearray(data)) == data
    tables_bytes, tiles_bytes = struct.unpack_from("<IQ", data, 28)
    tiles_at = 64 + tables_bytes + 8 * len(fbl.info(data).modes)
    rng = random.Random(name)
    for begin, end in [(64, tiles_at), (tiles_at, tiles_at + min(32, tiles_bytes)), (tiles_at, tiles_at + tiles_bytes)]:
        for _ in range(max(1, int(SCALE))):
            damaged = bytearray(data)
            damaged[rng.randrange(begin, end)] ^= 1 << rng.randrange(8)
            file = seal(damaged)
            ours = decoded(fbl_decoder.decode, file, fbl_decoder.Invalid)
            theirs = decoded(fbl.decode, file, fbl.FblError)
            assert (ours is None) == (theirs is None), file.hex()
            assert ours is None or numpy.array_equal(ours, theirs.reshape(ours.shape)), file.hex()
