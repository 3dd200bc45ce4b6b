#!/usr/bin/env python3
"""Makes a folder of real photographs, a class a folder, by cutting up the large ones that Debian packages ship.

usage: photographs.py demo|imagenet|large FOLDER

demo      400 pictures, a class for each photograph that they were cut from: what `make demo` runs on
imagenet  2,000 in 100 classes with the sizes and the bytes of ImageNet's: what the benchmarks run on
large     64 of 2048 x 1024 as PNG -9, as pictures of streets are: what lossless formats are measured on

A picture depends on its number alone (a fixed seed, given the same Pillow), not on what was made before: a run that was
stopped goes on where it was. The packages are downloaded by apt and unpacked below build/packages, not installed.
Needs Pillow: run it with build/venv/bin/python."""

import dataclasses
import io
import multiprocessing
import os
import pathlib
import random
import subprocess
import sys

from PIL import Image

LOMIRI = ["lomiri-wallpapers-16.04", "lomiri-wallpapers-20.04"]
MORE = ["mate-backgrounds", "plasma-workspace-wallpapers"]
# What is not a photograph, or is out of focus all over.
LEFT_OUT = ["analogpattern", "Painting", "Fossa", "umang"]
PLASMA = ["Autumn", "BytheWater", "ColdRipple", "ColorfulCups", "EveningGlow", "FallenLeaf", "Kite", "OneStandsOut", "Path"]


@dataclasses.dataclass
class Kind:
    packages: list
    count: int
    classes: int  # 0: one for each photograph
    sizes: list
    qualities: list
    busy: float  # bytes per pixel that a cut should reach: less is sky, or blur
    seed: int
    ending: str = "jpg"  # or png


KINDS = {
    "demo": Kind(LOMIRI, 400, 0, [(500, 375)] * 6 + [(375, 500)] * 2 + [(500, 333)] * 2, [90], 0.15, 1604),
    "imagenet": Kind(
        LOMIRI + MORE,
        2000,
        100,
        # One in a hundred each: ImageNet's usual sizes.
        [(500, 375)] * 50 + [(375, 500)] * 15 + [(500, 333)] * 14 + [(333, 500)] * 4 + [(640, 480)] * 4
        + [(400, 300)] * 3 + [(500, 500)] * 3 + [(300, 225)] * 2 + [(800, 600)] * 2 + [(1024, 768)] + [(500, 281)] * 2,
        [93, 94, 95, 96, 96],
        0.42,
        20120,
    ),
    "large": Kind(LOMIRI + MORE, 64, 4, [(2048, 1024)], [90], 0.12, 2048, "png"),
}


def stop(message):
    sys.exit(f"photographs.py: {message}")


def fetch(packages, folder):
    """Downloads the packages that are not unpacked yet into folder/NAME."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        target = folder / package
        if target.exists():
            continue
        print(f"downloading {package}", flush=True)
        for old in folder.glob("*.deb"):
            old.unlink()
        download = ["apt-get", "-q", "download", package]
        done = subprocess.run(download, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0 and os.geteuid() == 0:  # a new machine has no package lists yet
            subprocess.run(["apt-get", "-q", "update"], capture_output=True)
            done = subprocess.run(download, cwd=folder, capture_output=True, text=True)
        archives = list(folder.glob("*.deb"))
        if done.returncode != 0 or not archives:
            stop(f"apt-get download {package} failed: {done.stderr.strip()}\nAs root, run: apt-get update")
        unpacking = folder / (package + ".part")
        subprocess.run(["dpkg-deb", "-x", archives[0], unpacking], check=True)
        archives[0].unlink()
        unpacking.rename(target)


def find_sources(packages, folder):
    found = []
    for package in packages:
        share = folder / package / "usr/share"
        if package.startswith("lomiri"):
            found += share.glob("backgrounds/*.jpg")
        elif package.startswith("mate"):
            found += share.glob("backgrounds/mate/nature/*.jpg")
        else:
            for name in PLASMA:
                found += share.glob(f"wallpapers/{name}/contents/images/*.jpg")
    found = [f for f in found if not f.is_symlink() and not any(word in f.name for word in LEFT_OUT)]
    if not found:
        stop(f"no photographs under {folder}: remove it and try again")
    return sorted(found)


def class_of(source):
    """Bridge_by_Sander_Klootwijk.jpg: bridge."""
    return source.stem.split("_by_")[0].strip("_").lower()


def cut(photographs, kind, number):
    """The bytes of picture `number`: a JPEG, or the PNG of what it would have been made of."""
    draw = random.Random(kind.seed * 1_000_003 + number)
    for _ in range(40):
        photograph = photographs[number % len(photographs) if kind.classes == 0 else draw.randrange(len(photographs))]
        width, height = draw.choice(kind.sizes)
        # Scaled down by up to 3, so that the photograph's own JPEG artefacts shrink.
        most = min(photograph.width / width, photograph.height / height, 3.0)
        scale = draw.uniform(min(1.0, most), most)
        x = draw.randint(0, photograph.width - int(width * scale))
        y = draw.randint(0, photograph.height - int(height * scale))
        box = (x, y, x + int(width * scale), y + int(height * scale))
        picture = photograph.resize((width, height), Image.Resampling.LANCZOS, box=box)
        if draw.random() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        encoded = io.BytesIO()
        picture.save(encoded, "JPEG", quality=draw.choice(kind.qualities), subsampling="4:2:0")
        # Cuts without detail are rare in real sets: one in twelve is kept.
        if len(encoded.getvalue()) > kind.busy * width * height or draw.random() < 0.08:
            break
    if kind.ending == "png":
        encoded = io.BytesIO()
        picture.save(encoded, "PNG", compress_level=9)
    return encoded.getvalue()


def make_part(kind, sources, photographs, out, part, parts, made):
    for number in range(part, kind.count, parts):
        name = class_of(sources[number % len(sources)]) if kind.classes == 0 else f"n{number % kind.classes:08d}"
        target = out / name / f"{number:05d}.{kind.ending}"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = out.parent / f"{out.name}.{part}.part"
            unfinished.write_bytes(cut(photographs, kind, number))
            unfinished.rename(target)
        with made.get_lock():
            made.value += 1
    os._exit(0)


def show(done, total):
    if sys.stdout.isatty():
        filled = 40 * done // total
        print(f"\rcutting  [{'#' * filled}{'.' * (40 - filled)}] {done}/{total}", end="", flush=True)
        if done == total:
            print()
    elif done == total:
        print(f"cutting: {done}/{total}", flush=True)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in KINDS:
        stop(f"usage: photographs.py {'|'.join(KINDS)} FOLDER")
    kind, out = KINDS[sys.argv[1]], pathlib.Path(sys.argv[2]).resolve()
    complete = out.parent / f"{out.name}.complete"
    if complete.exists():
        return
    packages = pathlib.Path(__file__).resolve().parent.parent / "build/packages"
    fetch(kind.packages, packages)
    sources = find_sources(kind.packages, packages)

    Image.MAX_IMAGE_PIXELS = None  # these are known, and large
    photographs = [Image.open(source).convert("RGB") for source in sources]
    print(f"{len(sources)} photographs, {sum(p.width * p.height for p in photographs) / 1e6:.0f} megapixels", flush=True)

    context = multiprocessing.get_context("fork")  # the children share what was decoded
    made = context.Value("i", 0)
    parts = len(os.sched_getaffinity(0))
    arguments = (kind, sources, photographs, out)
    children = [context.Process(target=make_part, args=(*arguments, part, parts, made)) for part in range(parts)]
    for child in children:
        child.start()
    for child in children:
        while child.is_alive():
            child.join(0.2)
            show(made.value, kind.count)
        if child.exitcode != 0:
            stop(f"a process ended with {child.exitcode}")

    files = [f.stat().st_size for f in out.glob(f"*/*.{kind.ending}")]
    complete.write_text("")
    print(f"{len(files)} pictures, {sum(files) / len(files) / 1000:.0f} KB on average, in {out}")


if __name__ == "__main__":
    main()
