"""FBL in the data plane: pixels equal Pillow's of the PNG that a picture came from, whole and by region; damage has reasons."""

import io
import random

import numpy
import pytest
from PIL import Image, ImageOps

from codec_library import EXIF, Decoder, Refused, noise_picture, pillow_rgb, random_region
from forebay import fbl

decoder = Decoder()

# Tiles are 128 x 128: sides below, at and above them, and pictures of many bands.
SIZES = [(1, 1), (2, 3), (70, 53), (128, 128), (129, 257), (400, 260)]


def png(image, **options):
    out = io.BytesIO()
    image.save(out, "PNG", **options)
    return out.getvalue()


def sources(rng, w, h):
    """(name, PNG, array as the PNG has it, Pillow's RGB)."""
    for mode in ("L", "LA", "RGB", "RGBA"):
        image = noise_picture(rng, w, h, mode)
        data = png(image)
        yield mode, numpy.asarray(image), pillow_rgb(data)
    palette = noise_picture(rng, w, h).quantize(min(256, w * h))
    yield "P", numpy.asarray(palette.convert("RGB")), pillow_rgb(png(palette))
    deep = numpy.random.default_rng(rng.getrandbits(32)).integers(0, 1 << 16, (h, w)).astype(numpy.uint16)
    # Pillow clips 16-bit gray: the documented rule is the high byte.
    high = (numpy.asarray(Image.open(io.BytesIO(png(Image.fromarray(deep))))) >> 8).astype(numpy.uint8)
    yield "I;16", deep, numpy.stack([high] * 3, -1)


def check(data, rng, want, regions=4):
    h, w = want.shape[:2]
    assert numpy.array_equal(decoder.decode(data), want)
    assert (decoder.info.w, decoder.info.h) == (w, h)
    for _ in range(regions):
        x, y, width, height = region = random_region(rng, w, h)
        got = decoder.decode(data, region, rows=rng.choice([None, 1, 16, 1000]))
        assert numpy.array_equal(got, want[y : y + height, x : x + width]), region


@pytest.mark.parametrize("level", ["small", "fast"])
@pytest.mark.parametrize("size", SIZES)
def test_equal_to_pillow(size, level):
    rng = random.Random(f"{size}{level}")
    for name, array, want in sources(rng, *size):
        check(fbl.encode(array, level=level), rng, want)
        channels = 1 if array.ndim == 2 else array.shape[2]
        assert (decoder.info.channels, decoder.info.bits) == (channels, 16 if name == "I;16" else 8)


@pytest.mark.parametrize("bits", [9, 12, 15, 16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_more_than_8_bits(bits, channels):
    rng = random.Random(bits * channels)
    shape = (75, 140, channels)
    array = numpy.random.default_rng(bits).integers(0, 1 << bits, shape).astype(numpy.uint16)
    upper = (array >> (bits - 8)).astype(numpy.uint8)
    want = upper[:, :, :3] if channels >= 3 else numpy.repeat(upper[:, :, :1], 3, axis=2)
    check(fbl.encode(array, bits=bits), rng, want)


@pytest.mark.parametrize("chunk", ["EXIF", "XMP "])
def test_orientation(chunk):
    rng = random.Random(14)
    image = noise_picture(rng, 141, 203)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        with Image.open(io.BytesIO(png(image, exif=exif))) as source:
            want = numpy.asarray(ImageOps.exif_transpose(source))
        metadata = exif.tobytes()[6:] if chunk == "EXIF" else b'<x tiff:Orientation="%d"/>' % orientation
        data = fbl.encode(numpy.asarray(image), metadata={"ICCP": b"\0" * 9, chunk: metadata})
        assert numpy.array_equal(decoder.decode(data), numpy.asarray(image))
        assert decoder.info.orientation == orientation
        h, w = want.shape[:2]
        assert numpy.array_equal(decoder.decode(data, options=EXIF), want)
        x, y, width, height = region = random_region(rng, w, h)
        assert numpy.array_equal(decoder.decode(data, region, options=EXIF), want[y : y + height, x : x + width])


def refused(data, **options):
    with pytest.raises(Refused) as caught:
        decoder.decode(data, **options)
    return caught.value


def test_max_pixels_before_memory():
    data = fbl.encode(numpy.zeros((300, 400, 3), numpy.uint8))
    assert decoder.decode(data, max_pixels=120_000).shape == (300, 400, 3)
    assert refused(data, max_pixels=119_999).reason == "too large"


def test_damage_has_reasons():
    rng = random.Random(3)
    image = numpy.asarray(noise_picture(rng, 300, 280))
    data = fbl.encode(image, metadata={"EXIF": b"MM\0*\0\0\0\x08\0\0"})
    assert refused(data[:-1]).reason == "truncated"
    assert refused(data[:40]).reason == "truncated"
    assert "cut off" in refused(data[: len(data) // 2]).text
    for at in (12, 60, 70, len(data) // 2, len(data) - 70):  # header, its sum, tables, a tile, metadata
        damaged = bytearray(data)
        damaged[at] ^= 4
        assert refused(bytes(damaged)).reason == "corrupt", at
    newer = bytearray(data)
    newer[8] = 200
    assert refused(bytes(newer)).reason in ("corrupt", "unsupported")
    assert numpy.array_equal(decoder.decode(data), image)  # the decoder goes on


def test_a_region_is_judged_by_its_tiles():
    rng = random.Random(4)
    image = numpy.asarray(noise_picture(rng, 256, 256))
    data = bytearray(fbl.encode(image))
    data[-70] ^= 1  # in the last tile
    data = bytes(data)
    assert numpy.array_equal(decoder.decode(data, (0, 0, 128, 256)), image[:, :128])
    with pytest.raises(Refused) as caught:
        decoder.decode(data, (128, 128, 1, 1))
    assert caught.value.reason == "corrupt" and "tile 3" in caught.value.text


@pytest.mark.parametrize("seed", range(20))
def test_damage_anywhere(seed):
    """Either a reason, or the very pixels."""
    rng = random.Random(seed)
    image = numpy.asarray(noise_picture(rng, rng.randint(1, 200), rng.randint(1, 200)))
    data = bytearray(fbl.encode(image, level=rng.choice(["small", "fast"])))
    for _ in range(20):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        if rng.random() < 0.3:
            damaged = damaged[: rng.randrange(1, len(damaged))]
        try:
            got = decoder.decode(bytes(damaged))
        except Refused as error:
            assert error.reason in ("format", "truncated", "corrupt", "unsupported", "too large")
        else:
            assert numpy.array_equal(got, image)
