#!/usr/bin/env python3
"""Makes the pictures of the marks of FBL, as PNM files in a folder a kind.

usage: pictures.py IMAGENET FOLDER

photo   18 of the pictures like ImageNet's in IMAGENET, and the middles, as they are, of 9 of the photographs they were cut from
gray    3 of the large ones, gray
deep    3 of the large ones, a quarter as wide, gray of 16 bits: what averaging leaves
mask    3 of the large ones, cut into areas: 12 colours of a blurred picture, each pixel given to what is most around it
screen  the 3 largest screenshots that the manuals of GIMP and Qt Creator come with

Needs Pillow and numpy: run it with build/venv/bin/python."""

import pathlib
import sys

import numpy
from PIL import Image, ImageFilter

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import photographs  # noqa: E402: found through the path set above

SMALL, LARGE, FEW = 18, 9, 3
WIDE, HIGH = 1536, 1024  # of a large one, at most
MANUALS = ["gimp-help-en", "qtcreator-doc"]
AREAS, BLUR, AROUND = 12, 6, 11


def stop(message):
    sys.exit(f"pictures.py: {message}")


def middle(picture):
    wide, high = min(picture.width, WIDE), min(picture.height, HIGH)
    left, top = (picture.width - wide) // 2, (picture.height - high) // 2
    return picture.crop((left, top, left + wide, top + high))


def save_deep(picture, path):
    gray = picture.convert("L").convert("F")
    gray = gray.resize((gray.width // 4, gray.height // 4), Image.Resampling.BOX)
    values = numpy.clip(numpy.rint(numpy.asarray(gray) * 257), 0, 65535).astype(">u2")
    path.write_bytes(b"P5 %d %d 65535\n" % (gray.width, gray.height) + values.tobytes())


def mask(picture):
    areas = picture.filter(ImageFilter.GaussianBlur(BLUR)).quantize(AREAS, kmeans=1, dither=Image.Dither.NONE)
    return Image.fromarray(numpy.array(areas)).filter(ImageFilter.ModeFilter(AROUND))


def screenshots(folder):
    photographs.fetch(MANUALS, folder)
    found = []
    for package in MANUALS:
        for path in sorted((folder / package).rglob("*.png")):
            with Image.open(path) as picture:
                found.append((picture.width * picture.height, path.name, path))
    return [path for _, _, path in sorted(found, reverse=True)[:FEW]]


def main():
    if len(sys.argv) != 3:
        stop("usage: pictures.py IMAGENET FOLDER")
    imagenet, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    complete = out.parent / f"{out.name}.complete"
    if complete.exists():
        return
    for kind in ("photo", "gray", "deep", "mask", "screen"):
        (out / kind).mkdir(parents=True, exist_ok=True)

    small = sorted(imagenet.glob("*/*.jpg"))
    for number, path in enumerate(small[:: len(small) // SMALL][:SMALL]):
        Image.open(path).convert("RGB").save(out / "photo" / f"small_{number:02d}.ppm")
    kind = photographs.KINDS["imagenet"]
    sources = photographs.find_sources(kind.packages, ROOT / "build/packages")
    for number, path in enumerate(sources[:: len(sources) // LARGE][:LARGE]):
        picture = middle(Image.open(path).convert("RGB"))
        picture.save(out / "photo" / f"large_{number:02d}.ppm")
        if number < FEW:
            picture.convert("L").save(out / "gray" / f"{number}.pgm")
            save_deep(picture, out / "deep" / f"{number}.pgm")
            mask(picture).save(out / "mask" / f"{number}.pgm")
    for number, path in enumerate(screenshots(ROOT / "build/packages")):
        Image.open(path).convert("RGB").save(out / "screen" / f"{number}_{path.stem}.ppm")
    complete.write_text("")


if __name__ == "__main__":
    main()
