"""PNG: pixels equal Pillow's (16-bit gray aside), whole and by region; verdicts too."""

import io
import random
import struct
import zlib

import numpy
import pytest
from PIL import Image, ImageOps, PngImagePlugin

from codec_library import (
    EXIF,
    Decoder,
    Refused,
    noise_picture,
    pillow_rgb,
    pillow_verdict,
    random_region,
    verdict,
)

decoder = Decoder()

SIZES = [(1, 1), (2, 3), (5, 1), (1, 9), (8, 8), (9, 17), (33, 31), (70, 53)]
KINDS = [
    (bits, color)
    for color, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}.items()
    for bits in depths
]
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(name, data=b"", crc=None):
    if crc is None:
        crc = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", crc)


def header(w, h, bits, color, interlaced=0):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, bits, color, 0, 0, interlaced))


def raw_rows(rng, w, h, bits, color, interlaced):
    """Random rows under random filters: every filter meets every value."""
    rows = bytearray()
    passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
    for x, y, dx, dy in passes:
        width, height = -(-max(0, w - x) // dx), -(-max(0, h - y) // dy)
        if width:
            for _ in range(height):
                rows.append(rng.randrange(5))
                rows += rng.randbytes((width * SAMPLES[color] * bits + 7) // 8)
    return bytes(rows)


def png(rng, w, h, bits, color, interlaced=0, extra=b"", pieces=1, palette=None, data=None):
    if data is None:
        data = zlib.compress(raw_rows(rng, w, h, bits, color, interlaced), rng.choice([0, 1, 6, 9]))
    out = b"\x89PNG\r\n\x1a\n" + header(w, h, bits, color, interlaced) + extra
    if color == 3:
        out += chunk(b"PLTE", rng.randbytes(3 * (1 << bits)) if palette is None else palette)
    size = -(-len(data) // pieces)
    for at in range(0, len(data), size):
        out += chunk(b"IDAT", data[at : at + size])
    return out + chunk(b"IEND")


def expected(data):
    """Pillow's pixels; of 16-bit gray those with the documented high byte."""
    with Image.open(io.BytesIO(data)) as image:
        if image.mode == "I;16":
            gray = (numpy.asarray(image).astype(numpy.uint16) >> 8).astype(numpy.uint8)
            return numpy.stack([gray] * 3, -1)
    return pillow_rgb(data)


def check(data, rng, regions=4):
    want = expected(data)
    h, w = want.shape[:2]
    assert numpy.array_equal(decoder.decode(data), want)
    for _ in range(regions):
        x, y, width, height = region = random_region(rng, w, h)
        got = decoder.decode(data, region, rows=rng.choice([None, 1, 16]))
        assert numpy.array_equal(got, want[y : y + height, x : x + width]), region


@pytest.mark.parametrize("interlaced", [0, 1])
@pytest.mark.parametrize("bits,color", KINDS)
def test_every_kind(bits, color, interlaced):
    rng = random.Random(f"{bits} {color} {interlaced}")
    for w, h in SIZES:
        data = png(rng, w, h, bits, color, interlaced, pieces=rng.choice([1, 2, 5]))
        check(data, rng)
        assert decoder.info.bits == bits
        assert decoder.info.channels == {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}[color]


def test_sixteen_bit_gray_is_the_one_wilful_difference():
    rng = random.Random(1)
    data = png(rng, 16, 16, 16, 0)
    assert not numpy.array_equal(decoder.decode(data), pillow_rgb(data))


@pytest.mark.parametrize("entries", [0, 1, 2, 100, 256, 257, 300])
def test_palettes_of_other_lengths(entries):
    rng = random.Random(entries)
    data = png(rng, 20, 10, 8, 3, palette=rng.randbytes(3 * entries))
    want, _ = pillow_verdict(data)
    got, _ = verdict(decoder, data)
    assert (got is None) == (want is None)
    assert want is None or numpy.array_equal(got, want)


@pytest.mark.parametrize("bits,color,transparency", [(8, 3, b"\xff\x00\xff"), (8, 3, bytes(range(256))), (4, 3, b"\x10\x00"),
                                                     (8, 0, b"\0\x80"), (8, 2, b"\0\1\0\2\0\3"), (1, 0, b"\0\1")])
def test_transparency_is_dropped(bits, color, transparency):
    rng = random.Random(4)
    data = png(rng, 31, 9, bits, color)
    at = data.index(b"IDAT") - 4
    check(data[:at] + chunk(b"tRNS", transparency) + data[at:], rng)


def test_alpha_is_dropped_not_blended():
    image = noise_picture(random.Random(2), 40, 30, "RGBA")
    out = io.BytesIO()
    image.save(out, "PNG")
    assert numpy.array_equal(decoder.decode(out.getvalue()), numpy.asarray(image)[:, :, :3])


def test_orientation():
    rng = random.Random(6)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        out = io.BytesIO()
        noise_picture(rng, 21, 13).save(out, "PNG", exif=exif)
        data = out.getvalue()
        with Image.open(io.BytesIO(data)) as image:
            want = numpy.asarray(ImageOps.exif_transpose(image).convert("RGB"))
        assert numpy.array_equal(decoder.decode(data, options=EXIF), want)
        x, y, w, h = region = random_region(rng, *want.shape[1::-1])
        assert numpy.array_equal(decoder.decode(data, region, options=EXIF), want[y : y + h, x : x + w])


def test_orientation_in_xmp():
    text = PngImagePlugin.PngInfo()
    text.add_itxt("XML:com.adobe.xmp", "<tiff:Orientation>8</tiff:Orientation>")
    out = io.BytesIO()
    noise_picture(random.Random(3), 21, 13).save(out, "PNG", pnginfo=text)
    with Image.open(io.BytesIO(out.getvalue())) as image:
        want = numpy.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    assert numpy.array_equal(decoder.decode(out.getvalue(), options=EXIF), want)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P"])
@pytest.mark.parametrize("default_image", [False, True])
def test_animation_gives_its_first_frame(mode, default_image):
    rng = random.Random(7)
    frames = [noise_picture(rng, 30, 20).convert(mode) for _ in range(3)]
    out = io.BytesIO()
    frames[0].save(out, "PNG", save_all=True, append_images=frames[1:], default_image=default_image)
    check(out.getvalue(), rng)
    with Image.open(io.BytesIO(out.getvalue())) as image:
        assert decoder.info.frames == image.n_frames == 3


@pytest.mark.parametrize("color", [0, 2, 3])
def test_first_frame_smaller_than_the_canvas(color):
    rng = random.Random(8)
    control = struct.pack(">IIIIIHHBB", 0, 11, 7, 5, 3, 1, 10, 0, 0)
    extra = chunk(b"acTL", struct.pack(">II", 2, 0)) + chunk(b"fcTL", control)
    inner = zlib.compress(raw_rows(rng, 11, 7, 8, color, 0))
    check(png(rng, 30, 20, 8, color, extra=extra, data=inner), rng, regions=12)


def test_checksums():
    rng = random.Random(9)
    good = png(rng, 20, 10, 8, 3, extra=chunk(b"gAMA", b"\0\1\2\3"))
    for name, fatal in [(b"IHDR", True), (b"PLTE", True), (b"gAMA", True), (b"IDAT", False), (b"IEND", False)]:
        at = good.index(name)
        length = struct.unpack(">I", good[at - 4 : at])[0]
        broken = bytearray(good)
        broken[at + 4 + length] ^= 1
        want, _ = pillow_verdict(bytes(broken))
        got, refusal = verdict(decoder, bytes(broken))
        assert (want is None) == (got is None) == fatal, name
        if fatal:
            assert refusal.reason == "corrupt" and name.decode() in refusal.text
        else:
            assert numpy.array_equal(got, want)


@pytest.mark.parametrize("interlaced", [0, 1])
def test_data_that_ends_early(interlaced):
    """A stream that ends with a row leaves the rest black; one that ends within a row is refused."""
    rng = random.Random(10)
    rows = raw_rows(rng, 16, 16, 8, 2, interlaced)
    accepted = 0
    for length in sorted({*range(0, len(rows), 7), *range(0, len(rows), 49), len(rows)}):
        data = png(rng, 16, 16, 8, 2, interlaced, data=zlib.compress(rows[:length]), pieces=2)
        want, _ = pillow_verdict(data)
        got, refusal = verdict(decoder, data)
        assert (got is None) == (want is None), length
        if want is None:
            assert refusal.reason == "truncated"
        else:
            accepted += 1
            assert numpy.array_equal(got, want)
    assert accepted > 5


def test_more_data_than_rows():
    rng = random.Random(11)
    rows = raw_rows(rng, 16, 16, 8, 2, 0)
    check(png(rng, 16, 16, 8, 2, data=zlib.compress(rows + b"more" * 50)), rng)
    wrong_sum = png(rng, 16, 16, 8, 2, data=zlib.compress(rows)[:-4] + b"\0\0\0\0")
    assert verdict(decoder, wrong_sum)[1].reason == "corrupt"
    assert pillow_verdict(wrong_sum)[0] is None


def sources(rng):
    text = chunk(b"tEXt", b"Comment\0hello") + chunk(b"zTXt", b"Title\0\0" + zlib.compress(b"hello" * 9))
    other = chunk(b"iCCP", b"name\0\0" + zlib.compress(b"profile" * 30)) + chunk(b"pHYs", bytes(8) + b"\1")
    yield "rgb", png(rng, 30, 20, 8, 2, extra=text + other)
    yield "rgb pieces", png(rng, 30, 20, 8, 2, pieces=7)
    yield "interlaced", png(rng, 30, 20, 8, 6, 1, pieces=2)
    yield "palette", png(rng, 30, 20, 4, 3, extra=chunk(b"sBIT", b"\4\4\4"))
    yield "gray 1", png(rng, 61, 20, 1, 0)
    yield "gray alpha 16", png(rng, 20, 10, 16, 4, extra=chunk(b"iTXt", b"a\0\0\0en\0b\0text"))
    yield "after", png(rng, 20, 10, 8, 0)[:-12] + text + chunk(b"IEND")
    frames = [noise_picture(rng, 20, 10) for _ in range(2)]
    out = io.BytesIO()
    frames[0].save(out, "PNG", save_all=True, append_images=frames[1:])
    yield "animated", out.getvalue()


def damaged(rng, data):
    kind = rng.randrange(5)
    if kind == 0:
        return data[: rng.randint(1, len(data) - 1)]
    changed = bytearray(data)
    if kind == 1:
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    elif kind == 2:
        at = rng.randrange(len(changed))
        del changed[at : at + rng.randint(1, 30)]
    else:
        # Within a chunk, its checksum made right: what the chunk says is reached.
        at, starts = 8, []
        while at + 8 <= len(data):
            starts.append(at)
            at += 12 + struct.unpack(">I", data[at : at + 4])[0]
        start = rng.choice(starts)
        length = struct.unpack(">I", data[start : start + 4])[0]
        if length:
            changed[start + 8 + rng.randrange(length)] = rng.choice([0, 1, 255, rng.randrange(256)])
        if kind == 4:
            changed[start + 4 + rng.randrange(4)] ^= 0x20
        changed[start + 8 + length : start + 12 + length] = struct.pack(
            ">I", zlib.crc32(bytes(changed[start + 4 : start + 8 + length]))
        )
    return bytes(changed)


@pytest.mark.parametrize("seed", range(3))
def test_damage_has_pillows_verdict(seed):
    rng = random.Random(seed)
    accepted = refused = 0
    for name, data in sources(rng):
        for number in range(60):
            broken = damaged(rng, data)
            w, h = struct.unpack(">II", broken[16:24]) if len(broken) >= 24 else (0, 0)
            if w * h > 1_000_000:
                continue  # only slow
            want, error = pillow_verdict(broken)
            if want is not None:
                want = expected(broken)
            got, refusal = verdict(decoder, broken)
            assert (got is None) == (want is None), (name, seed, number, error, refusal)
            if want is None:
                refused += 1
                continue
            accepted += 1
            assert numpy.array_equal(got, want), (name, seed, number)
            x, y, w, h = region = random_region(rng, *want.shape[1::-1])
            assert numpy.array_equal(decoder.decode(broken, region), want[y : y + h, x : x + w]), (name, seed, number)
    assert accepted > 60 and refused > 60


def test_every_truncation():
    rng = random.Random(12)
    for name, data in sources(rng):
        for length in range(8, len(data), 3 if len(data) < 500 else 11):
            want, _ = pillow_verdict(data[:length])
            got, refusal = verdict(decoder, data[:length])
            assert (got is None) == (want is None), (name, length, len(data), refusal)
            if refusal:
                assert refusal.reason == "truncated", (name, length, refusal)


def test_claimed_size_is_checked_first():
    rng = random.Random(13)
    data = b"\x89PNG\r\n\x1a\n" + header(65500, 65500, 8, 2) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND")
    with pytest.raises(Refused) as caught:
        decoder.decode(data)
    assert caught.value.reason == "too large"
    data = b"\x89PNG\r\n\x1a\n" + header(0, 5, 8, 2) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND")
    with pytest.raises(Refused) as caught:
        decoder.decode(data)
    assert caught.value.reason == "corrupt"


def test_an_outsized_picture_leaves_nothing_behind():
    fresh = Decoder()
    small = png(random.Random(14), 20, 10, 8, 2)
    fresh.decode(small)
    before = fresh.bytes()
    rows = b"\0" * ((3000 * 3 + 1) * 2500)
    big = png(random.Random(14), 3000, 2500, 8, 2, data=zlib.compress(rows))
    assert not fresh.decode(big).any()
    fresh.decode(small)
    assert fresh.bytes() <= before + 3 * (16 << 20)
    assert fresh.bytes() < 17 << 20
