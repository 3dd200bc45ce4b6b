"""forebay.fbl.register(): Pillow's pictures come back as they were.

It runs in the tests' environment, and from there in the system's Python, whose Pillow is older (Debian 12: 9.4), where that has Pillow.
"""

import io
import os
import pathlib
import subprocess
import sys

import conftest
import numpy
import pytest
from PIL import Image

from forebay import fbl


def saved(image, **options):
    fbl.register()
    out = io.BytesIO()
    image.save(out, "FBL", **options)
    out.seek(0)
    return out


def picture(mode):
    rng = numpy.random.default_rng(len(mode))
    y, x = numpy.mgrid[0:60, 0:150]
    planes = numpy.stack([(x * k + y * 2 + rng.integers(0, 9, x.shape)) % 256 for k in (1, 2, 3, 4)], -1).astype(numpy.uint8)
    if mode == "I;16":
        return Image.fromarray(planes[:, :, 0].astype(numpy.uint16) * 250)
    if mode == "P":
        return Image.fromarray(planes[:, :, :3]).quantize(77)
    if mode == "1":
        return Image.fromarray(planes[:, :, 0]).convert("1")
    channels = len(Image.new(mode, (1, 1)).getbands())
    return Image.fromarray(planes[:, :, 0] if channels == 1 else numpy.ascontiguousarray(planes[:, :, :channels]), mode)


@pytest.mark.parametrize("level", ["small", "fast"])
@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_pillow_keeps_modes(mode, level):
    image = picture(mode)
    with Image.open(saved(image, level=level)) as again:
        assert (again.format, again.mode, again.size) == ("FBL", mode, image.size)
        assert again.tobytes() == image.tobytes()
        if mode == "P":
            assert again.convert("RGB").tobytes() == image.convert("RGB").tobytes()


def test_pillow_black_and_white_becomes_gray():
    image = picture("1")
    with Image.open(saved(image)) as again:
        assert again.mode == "L" and again.tobytes() == image.convert("L").tobytes()


@pytest.mark.parametrize("transparency", [5, bytes(range(0, 154, 2))])
def test_pillow_palette_with_transparency(transparency):
    image = picture("P")
    image.info["transparency"] = transparency
    with Image.open(saved(image)) as again:
        assert again.mode == "P" and again.tobytes() == image.tobytes()
        assert again.convert("RGBA").tobytes() == image.convert("RGBA").tobytes()


def test_pillow_palette_with_one_colour_twice_becomes_rgb():
    image = Image.new("P", (4, 1))
    image.putpalette([9, 9, 9, 1, 2, 3, 1, 2, 3])
    image.putdata([0, 1, 2, 1])
    with Image.open(saved(image)) as again:
        assert again.mode == "RGB" and again.tobytes() == image.convert("RGB").tobytes()


def test_pillow_keeps_metadata():
    image = picture("RGB")
    exif = Image.Exif()
    exif[0x0112] = 6
    with Image.open(saved(image, exif=exif, icc_profile=b"profile", xmp=b"<xmp/>")) as again:
        assert again.getexif()[0x0112] == 6
        assert (again.info["icc_profile"], again.info["xmp"]) == (b"profile", b"<xmp/>")
        with Image.open(saved(again)) as third:
            assert third.getexif()[0x0112] == 6


def test_pillow_of_many_bits():
    fbl.register()
    array = (numpy.arange(300).reshape(10, 10, 3) * 13).astype(numpy.uint16)
    with Image.open(io.BytesIO(fbl.encode(array, bits=12))) as image:
        assert image.mode == "RGB"
        assert numpy.array_equal(numpy.asarray(image), array >> 4)


def test_pillow_by_name(tmp_path):
    fbl.register()
    picture("RGB").save(tmp_path / "a.fbl")
    with Image.open(tmp_path / "a.fbl") as image:
        assert image.tobytes() == picture("RGB").tobytes()


def test_pillow_refuses():
    with pytest.raises(OSError, match="cannot write mode CMYK"):
        saved(Image.new("CMYK", (2, 2)))
    data = bytearray(saved(picture("RGB")).getvalue())
    data[-200] ^= 1
    with Image.open(io.BytesIO(data)) as image, pytest.raises(OSError, match="damaged"):
        image.load()
    with pytest.raises(OSError):
        Image.open(io.BytesIO(data[:100]))


def find_older_pillow():
    """The system's Python where it has Pillow and numpy, and isn't the one that runs these tests; else None: they aren't required."""
    python = "/usr/bin/python3"
    if sys.prefix == sys.base_prefix or not os.path.exists(python):
        return None
    return python if subprocess.run([python, "-c", "import PIL, numpy"], check=False, capture_output=True).returncode == 0 else None


OLDER_PILLOW = find_older_pillow()

if OLDER_PILLOW:

    def test_all_of_this_with_the_systems_pillow(tmp_path):
        # pytest is Python alone, so it runs there as well; Pillow and numpy of the environment must not.
        for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py"):
            (tmp_path / name).symlink_to(pathlib.Path(pytest.__file__).parents[1] / name)
        done = subprocess.run([OLDER_PILLOW, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PYTHONPATH": str(tmp_path), "FOREBAY_BUILD": str(conftest.BUILD)})
        assert done.returncode == 0, done.stdout + done.stderr
