"""JPEG: pixels and verdicts equal Pillow's, whole and by region."""

import io
import os
import random
import shutil
import subprocess

import numpy
import pytest
from PIL import Image, ImageFile, ImageOps

from codec_library import (
    EXIF,
    FAST,
    LIBJPEG_ENTROPY,
    TOLERATE,
    Decoder,
    Refused,
    noise_picture,
    pillow_rgb,
    pillow_verdict,
    random_region,
    verdict,
)

decoder = Decoder()

SIZES = [(1, 1), (2, 3), (7, 5), (8, 8), (9, 17), (16, 16), (17, 16), (33, 31), (61, 47), (131, 103)]
SCALE = float(os.environ.get("FOREBAY_TEST_SCALE", "1"))
CJPEG = shutil.which("cjpeg")
needs_cjpeg = pytest.mark.skipif(not CJPEG, reason="needs libjpeg-turbo's cjpeg")


def encode(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def cjpeg(image, *arguments):
    ppm = io.BytesIO()
    image.save(ppm, "PPM")
    return subprocess.run([CJPEG, *arguments], input=ppm.getvalue(), stdout=subprocess.PIPE, check=True).stdout


def check(data, rng, regions=4):
    """Pillow's pixels, whole by both entropy decoders and by region; returns how many decodes could choose ours."""
    free = 1
    want = pillow_rgb(data)
    h, w = want.shape[:2]
    for options in (0, LIBJPEG_ENTROPY):
        assert numpy.array_equal(decoder.decode(data, options=options), want), options
        assert (decoder.info.w, decoder.info.h) == (w, h)
    for _ in range(regions):
        x, y, width, height = region = random_region(rng, w, h)
        options = rng.choice([0, 0, LIBJPEG_ENTROPY])
        got = decoder.decode(data, region, options=options, rows=rng.choice([1, 3, 16, 1000]))
        assert numpy.array_equal(got, want[y : y + height, x : x + width]), (region, w, h, options)
        free += options == 0
    return free


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("quality", [30, 75, 96])
def test_colour(subsampling, progressive, quality):
    rng = random.Random(f"{subsampling}{progressive}{quality}")
    for w, h in SIZES:
        image = noise_picture(rng, w, h)
        check(encode(image, quality=quality, subsampling=subsampling, progressive=progressive), rng)


@needs_cjpeg
@pytest.mark.parametrize("sample", ["1x1", "2x1", "1x2", "2x2", "4x1", "1x4", "4x2", "3x1", "2x2,2x1,1x1", "1x1,2x2,2x2"])
@pytest.mark.parametrize("coding", [[], ["-progressive"], ["-arithmetic"], ["-restart", "1"], ["-restart", "3B"]])
def test_sampling_and_coding(sample, coding):
    rng = random.Random(f"{sample}{coding}")
    for w, h in [(1, 1), (9, 17), (33, 31), (131, 103)]:
        check(cjpeg(noise_picture(rng, w, h), "-quality", "85", "-sample", sample, *coding), rng)


@pytest.mark.parametrize("quality", [30, 50, 90, 100])
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("restart", [0, 1, 7])
def test_what_our_entropy_decoder_is_for(quality, optimize, restart):
    """Baseline in one scan, of any quality, tables and restart interval: ours to the end, and Pillow's pixels."""
    rng = random.Random(f"{quality}{optimize}{restart}")
    before = decoder.jpeg_counts()
    count = 0
    for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
        for mode in ("RGB", "L", "CMYK"):
            w, h = rng.randint(1, 150), rng.randint(1, 120)
            options = {"optimize": optimize, "quality": quality, "restart_marker_blocks": restart}
            count += check(encode(noise_picture(rng, w, h, mode), subsampling=subsampling, **options), rng, regions=3)
    own, declined = (after - earlier for after, earlier in zip(decoder.jpeg_counts(), before))
    assert (own, declined) == (count if decoder.own_entropy() else 0, 0)


def check_photographs(folder, number):
    rng = random.Random(23)
    before = decoder.jpeg_counts()
    files = sorted(folder.glob("*/*.jpg"))
    assert len(files) == number
    count = sum(check(path.read_bytes(), rng, regions=2) for path in files)
    own, declined = (after - earlier for after, earlier in zip(decoder.jpeg_counts(), before))
    assert (own, declined) == (count if decoder.own_entropy() else 0, 0)


def test_photographs(photographs):
    check_photographs(photographs, 400)


@pytest.mark.skipif(SCALE <= 1, reason="one of the long forms: FOREBAY_TEST_SCALE over 1")
def test_photographs_of_the_benchmarks(benchmark_photographs):
    check_photographs(benchmark_photographs, 2000)


def test_what_is_found_late_spoils_no_row():
    """A picture is left to libjpeg when most of its rows have gone out: the pixels are still Pillow's."""
    rng = random.Random(24)
    data = encode(noise_picture(rng, 200, 300), quality=85)
    start = data.index(b"\xff\xda") + 14
    before = decoder.jpeg_counts()
    tries = 0
    for _ in range(60):
        broken = bytearray(data)
        at = rng.randrange(start + (len(data) - start) * 3 // 4, len(data) - 2)
        if broken[at] == 0xFF or broken[at - 1] == 0xFF:
            continue
        broken[at] = rng.randrange(255)
        want, _ = pillow_verdict(bytes(broken))
        for region in (None, (50, 0, 60, 300), (0, 280, 200, 20)):
            got, _ = verdict(decoder, bytes(broken), region=region, rows=16)
            assert (got is None) == (want is None)
            if want is not None:
                x, y, width, height = region or (0, 0, 200, 300)
                assert numpy.array_equal(got, want[y : y + height, x : x + width])
        tries += 1
    assert tries > 40
    if decoder.own_entropy():
        assert decoder.jpeg_counts()[1] - before[1] > 40


@needs_cjpeg
def test_rgb_without_colour_transform():
    rng = random.Random(5)
    for w, h in SIZES:
        check(cjpeg(noise_picture(rng, w, h), "-rgb", "-quality", "90"), rng)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 2}])
@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_gray_and_cmyk(mode, options):
    rng = random.Random(f"{mode}{options}")
    for w, h in SIZES:
        check(encode(noise_picture(rng, w, h, mode), quality=88, **options), rng)


def adobe_transform(data, value):
    """The same data with another colour transform in its Adobe segment: 2 makes CMYK into YCCK."""
    at = data.index(b"Adobe")
    return data[: at + 11] + bytes([value]) + data[at + 12 :]


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_ycck(subsampling):
    rng = random.Random(subsampling)
    for w, h in SIZES:
        data = encode(noise_picture(rng, w, h, "CMYK"), quality=88, subsampling=subsampling)
        check(adobe_transform(data, 2), rng)


def test_sides():
    rng = random.Random(8)
    for size in [(1, 30000), (30000, 1), (65500, 3), (3, 65500)]:
        check(encode(noise_picture(rng, *size), quality=80), rng, regions=3)


@pytest.mark.parametrize("progressive", [False, True])
def test_orientation(progressive):
    rng = random.Random(9)
    for orientation in range(0, 10):
        exif = Image.Exif()
        exif[0x0112] = orientation
        data = encode(noise_picture(rng, 45, 33), exif=exif, progressive=progressive)
        with Image.open(io.BytesIO(data)) as image:
            want = numpy.asarray(ImageOps.exif_transpose(image).convert("RGB"))
        h, w = want.shape[:2]
        assert numpy.array_equal(decoder.decode(data, options=EXIF), want)
        assert (decoder.info.w, decoder.info.h) == (w, h)
        assert decoder.info.orientation == (orientation if 1 <= orientation <= 8 else 1)
        for _ in range(8):
            x, y, width, height = region = random_region(rng, w, h)
            got = decoder.decode(data, region, options=EXIF, rows=7)
            assert numpy.array_equal(got, want[y : y + height, x : x + width])
        assert numpy.array_equal(decoder.decode(data), pillow_rgb(data))


def test_orientation_in_xmp():
    image = noise_picture(random.Random(3), 20, 10)
    packet = b'<rdf:Description tiff:Orientation="6"/>'
    data = encode(image, xmp=packet)
    with Image.open(io.BytesIO(data)) as opened:
        want = numpy.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
    assert numpy.array_equal(decoder.decode(data, options=EXIF), want)


def sources(rng):
    """Files of every kind to be damaged."""
    small = noise_picture(rng, 61, 47)
    yield "420", encode(small, quality=85)
    yield "444", encode(small, quality=60, subsampling="4:4:4")
    yield "422 optimised", encode(small, quality=90, subsampling="4:2:2", optimize=True)
    yield "progressive", encode(small, quality=85, progressive=True)
    yield "restart", encode(small, quality=85, restart_marker_blocks=2)
    yield "gray", encode(noise_picture(rng, 40, 50, "L"), quality=85)
    yield "cmyk", encode(noise_picture(rng, 30, 20, "CMYK"), quality=85)
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "segments", encode(small, quality=75, exif=exif, comment=b"hello", icc_profile=b"x" * 300, dpi=(72, 72))
    if CJPEG:
        yield "arithmetic", cjpeg(small, "-arithmetic", "-quality", "80")
        yield "440", cjpeg(small, "-sample", "1x2")
        yield "411 restart", cjpeg(small, "-sample", "4x1", "-restart", "1")


def damaged(rng, data):
    kind = rng.randrange(6)
    if kind == 0:
        return data[: rng.randint(1, len(data) - 1)]
    if kind == 1:
        return data[: len(data) - rng.randint(1, 12)]
    changed = bytearray(data)
    if kind == 2:
        changed[rng.randrange(len(changed))] = rng.choice([0, 0xFF, 0xD8, 0xD9, 0xDA, 0xC4, 0xD0, rng.randrange(256)])
    elif kind == 3:
        for _ in range(rng.randint(1, 8)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif kind == 4:
        at = rng.randrange(len(changed))
        del changed[at : at + rng.randint(1, 40)]
    else:
        at = rng.randrange(len(changed) - 1)
        changed[at : at + 2] = bytes([0xFF, rng.choice([0xD9, 0xD8, 0xD3, 0xDA, 0xC4, 0xDB, 0x01, 0xFE, 0xFF])])
    return bytes(changed)


@pytest.mark.parametrize("seed", range(4))
def test_damage_has_pillows_verdict(seed):
    """Whole and by region: the same verdict, and where it is good the same pixels.

    One exception: where scans of a progressive file are missing but its end is there, libjpeg-turbo smooths over block
    borders, and its versions (ours, and that in Pillow's wheel) do so differently. A region still equals our whole.
    """
    rng = random.Random(seed)
    accepted = refused = smoothed = 0
    for name, data in sources(rng):
        for number in range(40):
            broken = damaged(rng, data)
            want, error = pillow_verdict(broken)
            got, refusal = verdict(decoder, broken)
            assert (got is None) == (want is None), (name, seed, number, error, refusal)
            if want is None:
                refused += 1
            else:
                accepted += 1
                if not numpy.array_equal(got, want):
                    assert name == "progressive", (name, seed, number)
                    smoothed += 1
                want = got
            x, y, width, height = region = (0, 0, 1, 1) if want is None else random_region(rng, *want.shape[1::-1])
            got, refusal = verdict(decoder, broken, region=region, rows=16)
            assert (got is None) == (want is None), ("region", name, seed, number, region, error, refusal)
            if want is not None:
                assert numpy.array_equal(got, want[y : y + height, x : x + width]), ("region", name, seed, number)
    assert accepted > 80 and refused > 80 and smoothed <= 4


def test_every_truncation():
    rng = random.Random(12)
    for name, data in sources(rng):
        step = max(1, len(data) // 60)
        for length in sorted({*range(1, len(data), step), *range(len(data) - 12, len(data))}):
            want, _ = pillow_verdict(data[:length])
            for region in (None, (3, 2, 10, 4)):
                got, refusal = verdict(decoder, data[:length], region=region)
                assert (got is None) == (want is None), (name, length, len(data), region, refusal)
                if refusal and length > 3:
                    assert refusal.reason == "truncated", (name, length, refusal)


def test_missing_end():
    rng = random.Random(13)
    for name, data in sources(rng):
        if name == "arithmetic":
            continue
        assert data.endswith(b"\xff\xd9")
        want = pillow_rgb(data)
        h, w = want.shape[:2]
        assert numpy.array_equal(decoder.decode(data[:-2], options=TOLERATE), want), name
        assert numpy.array_equal(decoder.decode(data[:-1], options=TOLERATE), want), name
        assert numpy.array_equal(decoder.decode(data[:-2], (1, 2, 9, 3), options=TOLERATE), want[2:5, 1:10]), name
        for cut in (12, 40, len(data) // 3):
            for region in (None, (1, 2, 9, 3)):
                with pytest.raises(Refused) as caught:
                    decoder.decode(data[:-cut], region, options=TOLERATE)
                assert caught.value.reason == "truncated", (name, cut, region)


def test_missing_last_scans_are_not_a_missing_end():
    data = encode(noise_picture(random.Random(14), 61, 47), quality=85, progressive=True)
    starts = [at for at in range(len(data) - 1) if data[at : at + 2] == b"\xff\xda"]
    assert len(starts) > 4
    for start in starts[1:]:
        # Up to the tables before the scan, or a little into them: never whole.
        with pytest.raises(Refused) as caught:
            decoder.decode(data[:start], options=TOLERATE)
        assert caught.value.reason == "truncated"


def test_other_markers_in_place_of_the_end():
    data = encode(noise_picture(random.Random(22), 61, 47))
    for marker in range(256):
        broken = data[:-1] + bytes([marker])
        want, error = pillow_verdict(broken)
        for region in (None, (3, 3, 10, 10)):
            got, refusal = verdict(decoder, broken, region=region)
            assert (got is None) == (want is None), (hex(marker), region, error, refusal)


def test_trailing_bytes():
    data = encode(noise_picture(random.Random(15), 61, 47))
    want = pillow_rgb(data)
    for tail in (b"\0", b"\xff", b"\xff\xd8\xff", bytes(range(256)) * 100, data):
        assert numpy.array_equal(decoder.decode(data + tail), want)
        assert numpy.array_equal(decoder.decode(data + tail, (5, 5, 20, 20)), want[5:25, 5:25])


def test_claimed_size_is_checked_first():
    data = bytearray(encode(noise_picture(random.Random(16), 16, 16), subsampling="4:4:4"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = (65500).to_bytes(2, "big") * 2
    before = decoder.bytes()
    with pytest.raises(Refused) as caught:
        decoder.decode(bytes(data))
    assert caught.value.reason == "too large"
    assert "65500" in caught.value.text
    assert decoder.bytes() == before


def test_max_pixels():
    data = encode(noise_picture(random.Random(17), 20, 10))
    assert decoder.decode(data, max_pixels=200).shape == (10, 20, 3)
    with pytest.raises(Refused) as caught:
        decoder.decode(data, max_pixels=199)
    assert caught.value.reason == "too large"


def test_twelve_bits_are_refused_by_name():
    data = bytearray(encode(noise_picture(random.Random(18), 16, 16)))
    data[data.index(b"\xff\xc0") + 4] = 12
    with pytest.raises(Refused) as caught:
        decoder.decode(bytes(data))
    assert caught.value.reason == "unsupported"
    assert "12 bits" in caught.value.text


@needs_cjpeg
def test_arithmetic_over_64_kib(monkeypatch):
    """Pillow hands libjpeg 64 KiB at a time, which an arithmetic decoder can't take: it refuses such files. We don't."""
    monkeypatch.setattr(ImageFile, "MAXBLOCK", 65536)  # its default, which tests that write large files raise
    image = noise_picture(random.Random(19), 500, 400)
    arithmetic = cjpeg(image, "-arithmetic", "-quality", "95")
    huffman = cjpeg(image, "-quality", "95")
    assert len(arithmetic) > 65536
    assert pillow_verdict(arithmetic)[0] is None
    assert numpy.array_equal(decoder.decode(arithmetic), pillow_rgb(huffman))


def test_many_scans_are_refused():
    data = encode(noise_picture(random.Random(20), 32, 32), progressive=True)
    start = data.index(b"\xff\xda")
    end = start + 2
    while data[end] != 0xFF or data[end + 1] == 0:
        end += 1
    want = pillow_rgb(data)
    for times in (2, 90):
        again = data[:end] + data[start:end] * times + data[end:]
        assert numpy.array_equal(decoder.decode(again), want)
    with pytest.raises(Refused) as caught:
        decoder.decode(data[:end] + data[start:end] * 100 + data[end:])
    assert caught.value.reason == "unsupported"
    assert "scans" in caught.value.text


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_fast_differs_little(subsampling):
    """What `fast` costs, on noise at quality 90: the documented bound."""
    rng = random.Random(21)
    data = encode(noise_picture(rng, 300, 200), quality=90, subsampling=subsampling)
    want = pillow_rgb(data).astype(int)
    got = decoder.decode(data, options=FAST)
    difference = numpy.abs(got - want)
    print(f"fast {subsampling}: max {difference.max()}, mean {difference.mean():.3f}")
    assert 0 < difference.max() <= 60 and difference.mean() < 6
    for _ in range(10):
        x, y, w, h = region = random_region(rng, 300, 200)
        assert numpy.array_equal(decoder.decode(data, region, options=FAST, rows=16), got[y : y + h, x : x + w])
