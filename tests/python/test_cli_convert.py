"""forebay convert: decode gives the same pixels before and after, nothing a file holds is lost, and a second run goes on."""

import fcntl
import io
import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import zlib

import numpy
import pytest
import test_codec_png
from codec_library import EXIF, Decoder, noise_picture
from PIL import Image, ImageCms
from processes import FOREBAY

from forebay import fbl

pytestmark = pytest.mark.usefixtures("surroundings")
decoder = Decoder()


def convert(source, made, *arguments, code=0):
    done = subprocess.run([FOREBAY, "convert", source, made, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done
    return done


def convert_json(source, made, *arguments, code=0):
    return json.loads(convert(source, made, "--json", "--quiet", *arguments, code=code).stdout)


def rgb(path, options=0):
    return decoder.decode(path.read_bytes(), options=options)


def one(tmp_path, data, *arguments):
    """One file's way: the FBL file's bytes."""
    source, made = tmp_path / "source", tmp_path / "made"
    for folder in (source, made):
        shutil.rmtree(folder, ignore_errors=True)
    source.mkdir()
    (source / "a.png").write_bytes(data)
    summary = convert_json(source, made, *arguments)
    assert summary["converted"] == 1, summary
    data = (made / "a.fbl").read_bytes()
    assert summary["bytes_after"] == len(data)
    return data


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """Every format and kind there is, in two classes and deeper."""
    folder, rng = tmp_path_factory.mktemp("zoo"), random.Random(1)
    (folder / "a" / "deep").mkdir(parents=True)
    (folder / "b").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()

    def write(name, image, kind, **options):
        (folder / name).write_bytes(saved(image, kind, **options))

    for mode in ("L", "RGB", "CMYK"):
        write(f"a/{mode}.jpg", noise_picture(rng, 90, 70, mode), "JPEG", quality=90, exif=exif, icc_profile=profile)
    for mode in ("L", "LA", "RGB", "RGBA"):
        write(f"a/deep/{mode}.png", noise_picture(rng, 150, 131, mode), "PNG", exif=exif, icc_profile=profile)
    for number, (bits, color) in enumerate(test_codec_png.KINDS):
        for interlaced in (0, 1):
            data = test_codec_png.png(rng, 33, 31, bits, color, interlaced)
            (folder / f"b/{number}-{bits}-{color}-{interlaced}.png").write_bytes(data)
    write("b/lossy.webp", noise_picture(rng, 60, 40), "WEBP", quality=80, exif=exif, icc_profile=profile, xmp=b"<x/>")
    write("b/alpha.webp", noise_picture(rng, 60, 40, "RGBA"), "WEBP", lossless=True, exact=True)
    write("b/rgb.tif", noise_picture(rng, 60, 40), "TIFF", compression="tiff_lzw", icc_profile=profile)
    write("b/rgba.tif", noise_picture(rng, 60, 40, "RGBA"), "TIFF")
    write("b/gray.tif", noise_picture(rng, 60, 40, "L"), "TIFF", tiffinfo={274: 8})
    write("b/deep.tif", Image.fromarray(numpy.arange(2400, dtype=numpy.uint16).reshape(40, 60) * 27), "TIFF")
    write("b/still.gif", noise_picture(rng, 60, 40).quantize(90), "GIF")
    frames = [noise_picture(rng, 30, 20) for _ in range(3)]
    write("b/moving.gif", frames[0].quantize(90), "GIF", save_all=True, append_images=[f.quantize(90) for f in frames[1:]])
    return folder


@pytest.mark.parametrize("level", ["small", "fast"])
def test_decode_gives_the_same(zoo, tmp_path, level):
    summary = convert_json(zoo, tmp_path / "made", "--level", level)
    sources = sorted(path for path in zoo.rglob("*") if path.is_file())
    assert (summary["files"], summary["converted"]) == (len(sources), len(sources))
    assert (summary["copied"], summary["failed"], summary["first_frame_only"]) == ([], [], 1)
    assert summary["bytes_before"] == sum(path.stat().st_size for path in sources)
    for path in sources:
        made = (tmp_path / "made" / path.relative_to(zoo)).with_suffix(".fbl")
        for options in (0, EXIF):
            assert numpy.array_equal(rgb(path, options), rgb(made, options)), path
    assert len(list((tmp_path / "made").rglob("*.fbl"))) == len(sources)
    assert not list((tmp_path / "made").rglob("*.part"))


def test_the_form_is_kept(zoo, tmp_path):
    """Compared with Pillow's reading of the source, alpha, 16 bits and palettes included."""
    fbl.register()
    convert(zoo, tmp_path / "made")
    modes = set()
    for path in sorted((zoo / "a").rglob("*.png")) + sorted((zoo / "b").rglob("*")):
        made = (tmp_path / "made" / path.relative_to(zoo)).with_suffix(".fbl")
        # From memory: Pillow 13 doesn't turn TIFFs that it maps.
        with Image.open(io.BytesIO(path.read_bytes())) as before, Image.open(made) as after:
            modes.add(before.mode)
            if before.mode == "I;16" or (before.mode == "P" and after.mode == "P"):
                assert numpy.array_equal(numpy.asarray(before), numpy.asarray(after)), path
            assert before.convert("RGBA").tobytes() == after.convert("RGBA").tobytes() or before.mode == "I;16", path
            assert before.info.get("icc_profile") == after.info.get("icc_profile"), path
    assert modes >= {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}


@pytest.mark.parametrize("color", [0, 2, 4, 6])
def test_all_16_bits_are_kept(tmp_path, color):
    rng = random.Random(color)
    channels = test_codec_png.SAMPLES[color]
    want = numpy.array([rng.randrange(1 << 16) for _ in range(31 * 17 * channels)], ">u2").reshape(17, 31, channels)
    rows = b"".join(b"\0" + row.tobytes() for row in want)
    data = test_codec_png.png(rng, 31, 17, 16, color, data=zlib.compress(rows))
    got = fbl.decode(one(tmp_path, data))
    assert got.dtype == numpy.uint16 and numpy.array_equal(got.reshape(want.shape), want)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_palette(tmp_path, bits):
    rng = random.Random(bits)
    fbl.register()
    palette = bytes(rng.sample(range(256), 1 << bits)) if bits < 8 else bytes(range(256))
    palette = b"".join(bytes([value, value ^ 77, 3]) for value in palette)
    for transparency in (b"", test_codec_png.chunk(b"tRNS", bytes([0, 128]))):
        extra = test_codec_png.chunk(b"PLTE", palette) + transparency
        data = test_codec_png.png(rng, 40, 30, bits, 3, extra=extra, palette=palette)
        with Image.open(io.BytesIO(data)) as before, Image.open(io.BytesIO(one(tmp_path, data))) as after:
            assert after.mode == "P"
            assert numpy.array_equal(numpy.asarray(before), numpy.asarray(after))
            assert before.convert("RGBA").tobytes() == after.convert("RGBA").tobytes()


@pytest.mark.parametrize(("bits", "color", "key"), [(1, 0, [1]), (4, 0, [9]), (8, 0, [200]), (8, 2, [1, 2, 3]), (16, 0, [700]), (16, 2, [500, 600, 700])])
def test_a_transparent_colour_becomes_alpha(tmp_path, bits, color, key):
    rng = random.Random(bits + color)
    most = min(1 << bits, 1000)
    w, h, channels = 24, 10, len(key)
    samples = numpy.array([rng.randrange(most) for _ in range(w * h * channels)], numpy.uint16).reshape(h, w, channels)
    samples[rng.randrange(h), 3:9] = key
    if bits < 8:
        packed = numpy.packbits(numpy.unpackbits(samples.astype(numpy.uint8)[..., 0][..., None], axis=-1)[..., 8 - bits :].reshape(h, -1), axis=-1)
    else:
        packed = samples.astype(">u2" if bits == 16 else numpy.uint8).reshape(h, -1)
    rows = b"".join(b"\0" + row.tobytes() for row in packed)
    extra = test_codec_png.chunk(b"tRNS", numpy.array(key, ">u2").tobytes())
    got = fbl.decode(one(tmp_path, test_codec_png.png(rng, w, h, bits, color, extra=extra, data=zlib.compress(rows))))
    full = 65535 if bits == 16 else 255
    assert got.shape == (h, w, channels + 1)
    assert numpy.array_equal(got[:, :, -1], numpy.where((samples == key).all(axis=-1), 0, full))
    assert numpy.array_equal(got[:, :, :-1], samples * (255 // ((1 << bits) - 1) if bits < 8 else 1))


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
@pytest.mark.parametrize("size", [(200, 90), (90, 200), (300, 7), (101, 100)])
def test_max_side(tmp_path, mode, size):
    image = noise_picture(random.Random(str(size)), *size, mode)
    got = fbl.decode(one(tmp_path, saved(image, "PNG"), "--max-side", 64))
    w, h = size
    out = (64, max(1, 64 * h // w)) if w > h else (max(1, 64 * w // h), 64)
    # Channel by channel: alpha doesn't weigh on the colours, as in a pipeline that drops it.
    want = [numpy.asarray(band.resize(out, Image.Resampling.BILINEAR)) for band in image.split()]
    if mode in ("L", "RGB"):
        want = [numpy.asarray(band) for band in image.resize(out, Image.Resampling.BILINEAR).split()]
    assert numpy.array_equal(got.reshape(out[1], out[0], -1), numpy.stack(want, -1))


@pytest.mark.parametrize("size", [(200, 90), (90, 200), (300, 7), (65, 64)])
def test_max_side_of_16_bits(tmp_path, size):
    array = numpy.random.default_rng(size[0]).integers(0, 1 << 16, size[::-1]).astype(numpy.uint16)
    image = Image.fromarray(array)
    got = fbl.decode(one(tmp_path, saved(image, "PNG"), "--max-side", 64))
    assert numpy.array_equal(got, numpy.asarray(image.resize(got.shape[::-1], Image.Resampling.BILINEAR)))


def test_max_side_leaves_smaller_ones(tmp_path):
    image = noise_picture(random.Random(1), 64, 30)
    assert numpy.array_equal(fbl.decode(one(tmp_path, saved(image, "PNG"), "--max-side", 64)), numpy.asarray(image))


@pytest.fixture
def folder(tmp_path):
    """Pictures, one damaged, one of a format without a decoder, and files that are none."""
    source = tmp_path / "source"
    (source / "a").mkdir(parents=True)
    for name in ("a/1.png", "a/2.png", "top.png"):
        noise_picture(random.Random(name), 50, 40).save(source / name)
    data = (source / "a/2.png").read_bytes()
    (source / "a/cut.png").write_bytes(data[: len(data) // 2])
    noise_picture(random.Random(3), 5, 4).save(source / "a/bitmap.bmp")
    (source / "labels.txt").write_text("1 ash\n")
    (source / "empty").touch()
    return source


REFUSED = {"a/cut.png": "truncated", "a/bitmap.bmp": "format", "labels.txt": "format", "empty": "empty"}


def test_what_cant_be_taken_is_copied(folder, tmp_path):
    summary = convert_json(folder, tmp_path / "made")
    assert {entry["path"]: entry["reason"] for entry in summary["copied"]} == REFUSED
    for name in REFUSED:
        assert (tmp_path / "made" / name).read_bytes() == (folder / name).read_bytes()
    assert summary["converted"] == 3 and summary["failed"] == []
    text = convert(folder, tmp_path / "other").stdout
    assert "Done: 3 of 7 files are FBL now" in text
    assert "a/bitmap.bmp: format: BMP has no decoder here" in text


def test_a_second_run_goes_on(folder, tmp_path):
    made = tmp_path / "made"
    convert(folder, made)
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*")}
    summary = convert_json(folder, made)
    assert (summary["converted"], summary["there_already"], len(summary["copied"])) == (0, 3, 4)
    assert before == {path: path.stat().st_mtime_ns for path in made.rglob("*")}
    text = convert(folder, made).stdout
    assert re.search(r"^Done: 3 of 7 files are FBL now, 3 of them were already; \d+\.\d\d s\n  .* became .*: [\d.]+ times as much\n", text), text

    whole = (made / "a/1.fbl").read_bytes()
    (made / "a/1.fbl").write_bytes(whole[:-5])  # cut off
    (made / "a/.2.fbl.part").write_bytes(b"left by a run that was killed")
    (made / "a/2.fbl").unlink()
    noise_picture(random.Random(9), 50, 40).save(folder / "top.png")  # newer than what was made of it
    summary = convert_json(folder, made)
    assert (summary["converted"], summary["there_already"]) == (3, 0)
    assert (made / "a/1.fbl").read_bytes() == whole
    assert numpy.array_equal(rgb(made / "top.fbl"), rgb(folder / "top.png"))
    assert not list(made.rglob(".*"))


def test_names_that_two_would_get(folder, tmp_path):
    noise_picture(random.Random(4), 20, 20).save(folder / "a/1.jpg")
    (folder / "a/3.fbl").write_bytes(fbl.encode(numpy.zeros((4, 4), numpy.uint8), metadata={"EXIF": b"kept"}))
    summary = convert_json(folder, tmp_path / "made", "--level", "fast")
    names = {str(path.relative_to(tmp_path / "made")) for path in (tmp_path / "made").rglob("*.fbl")}
    assert names == {"a/1.jpg.fbl", "a/1.png.fbl", "a/2.fbl", "a/3.fbl", "top.fbl"}
    assert summary["converted"] == 5
    assert fbl.info((tmp_path / "made/a/3.fbl").read_bytes()).metadata == {"EXIF": b"kept"}


def test_stopped_by_a_signal(tmp_path):
    source, made = tmp_path / "source", tmp_path / "made"
    source.mkdir()
    data = saved(noise_picture(random.Random(1), 400, 300), "PNG", compress_level=1)
    for number in range(100):
        (source / f"{number}.png").write_bytes(data)
    running = subprocess.Popen([FOREBAY, "convert", source, made, "--json", "--threads", "2"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    while not list(made.glob("*.fbl")):
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    summary = json.loads(running.communicate(timeout=30)[0])
    assert running.returncode == 128 + signal.SIGINT
    assert summary["interrupted"] and 0 < summary["converted"] < 100
    assert not list(made.glob(".*"))
    again = convert_json(source, made)
    assert again["there_already"] == summary["converted"] and again["converted"] == 100 - summary["converted"]


def test_progress_in_lines(folder, tmp_path):
    assert convert(folder, tmp_path / "made").stderr == ""  # too short for a line
    assert "Done" in convert(folder, tmp_path / "made", "--quiet").stdout


def test_progress_on_a_terminal(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    data = saved(noise_picture(random.Random(1), 400, 300), "PNG", compress_level=1)
    for number in range(40):
        (source / f"{number}.png").write_bytes(data)
    ours, theirs = pty.openpty()
    running = subprocess.Popen([FOREBAY, "convert", source, tmp_path / "made", "--threads", "1"], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
    os.close(ours)
    assert running.wait(30) == 0
    last = shown.decode().rstrip().split("\r")[-1]
    assert re.match(r"\[=+\] 100%  40 of 40 files  [\d.]+ MB/s  0 s left", last), shown


def test_failures(folder, tmp_path):
    assert "lies within" in convert(folder, folder / "a" / "made", code=1).stderr
    assert "lies within" in convert(folder, folder, code=1).stderr
    assert "can't open" in convert(tmp_path / "none", tmp_path / "made", code=1).stderr
    assert "can't make" in convert(folder, tmp_path / "none" / "made", code=1).stderr
    assert "--level best: expected small or fast" in convert(folder, tmp_path / "made", "--level", "best", code=64).stderr
    assert "--max-side 0" in convert(folder, tmp_path / "made", "--max-side", "0", code=64).stderr
    (tmp_path / "made").mkdir()
    held = os.open(tmp_path / "made", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert "another forebay convert" in convert(folder, tmp_path / "made", code=1).stderr
    os.close(held)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_what_cant_be_read_or_written(folder, tmp_path):
    (folder / "a/1.png").chmod(0)
    summary = convert_json(folder, tmp_path / "made", code=1)
    assert [entry["path"] for entry in summary["failed"]] == ["a/1.png"]
    assert summary["converted"] == 2


def test_a_folder_where_a_file_should_be(folder, tmp_path):
    (tmp_path / "made/top.fbl").mkdir(parents=True)
    summary = convert_json(folder, tmp_path / "made", code=1)
    assert [entry["path"] for entry in summary["failed"]] == ["top.png"]
    assert "can't be written" in summary["failed"][0]["text"]
    assert not list((tmp_path / "made").glob(".*"))
