"""Compares the samples of random folders with torchvision's rule, restated here in its own terms.

    folder_order.py DATASET_PRINT [SEED]

The rule (torchvision.datasets.folder, find_classes and make_dataset): classes are the sorted names of the folders in the
root; within each, sorted(os.walk(..., followlinks=True)), and in each of those the sorted file names whose lower-cased
end is a picture's.
"""
import os
import random
import subprocess
import sys
import tempfile
import time

ENDINGS = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".gif", ".fbl")
PARTS = ["a", "b", "A", "z", "1", "10", "9", "-", ".", "_", " ", "~", "é", "ß", "日", "\U0001f600", "\n", "!", "0"]


def expected(root):
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    samples = []
    for label, name in enumerate(classes):
        for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            for file in sorted(files):
                path = os.path.join(folder, file)
                if path.lower().endswith(ENDINGS):
                    samples.append((label, os.path.getsize(path), os.path.relpath(path, root)))
    return samples, classes


def found(program, root):
    out = subprocess.run([program, root], check=True, stdout=subprocess.PIPE).stdout
    samples, classes = (part.split(b"\0") for part in out.split(b"\0\0"))
    rows = []
    for sample in samples:
        label, size, path = sample.split(b" ", 2)
        rows.append((int(label), int(size), os.fsdecode(path)))
    return rows, [os.fsdecode(name) for name in classes[:-1]]


def name_make(rng):
    name = "".join(rng.choice(PARTS) for _ in range(rng.randint(1, 4)))
    return "x" + name if name in (".", "..") else name


def folder_fill(rng, folder, elsewhere, depth):
    for _ in range(rng.randint(1, 6)):
        ending = rng.choice(ENDINGS + (".txt", "", ".JPG", ".Tiff"))
        with open(os.path.join(folder, name_make(rng) + ending), "wb") as file:
            file.write(b"x" * rng.randint(0, 99))
    with open(os.path.join(folder, name_make(rng) + ".jpg"), "wb") as file:
        file.write(b"y")
    if rng.random() < 0.3:
        os.symlink(elsewhere, os.path.join(folder, "link" + name_make(rng)))
    for _ in range(rng.randint(0, 3) if depth else 0):
        below = os.path.join(folder, name_make(rng) + "d")
        if not os.path.exists(below):
            os.mkdir(below)
            folder_fill(rng, below, elsewhere, depth - 1)


def main(program, seed):
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(12):
        with tempfile.TemporaryDirectory() as top:
            root, elsewhere = os.path.join(top, "root"), os.path.join(top, "elsewhere")
            os.mkdir(root)
            os.mkdir(elsewhere)
            folder_fill(rng, elsewhere, ".", 0)
            for link in os.scandir(elsewhere):
                if link.is_symlink():
                    os.unlink(link.path)
            for _ in range(rng.randint(1, 6)):
                name = os.path.join(root, name_make(rng))
                if not os.path.exists(name):
                    os.mkdir(name)
                    folder_fill(rng, name, elsewhere, 3)
            want, got = expected(root), found(program, root)
            assert want[1] == got[1], ("classes", want[1], got[1])
            for number, (one, other) in enumerate(zip(want[0], got[0])):
                assert one == other, ("sample", number, one, other)
            assert len(want[0]) == len(got[0]), (len(want[0]), len(got[0]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time()))
