"""Fashion-MNIST (Debian's dataset-fashion-mnist), written out as a folder of class folders of PNGs; and its test part as arrays."""

import gzip
import os
import pathlib
import shutil

import numpy
from PIL import Image

PACKAGE = pathlib.Path("/usr/share/datasets/fashion-mnist")
TRAINING = 60000  # pictures


def arrays(part):
    """(pictures, labels) of "train" or "t10k", as they lie in the package's IDX files."""
    if not PACKAGE.is_dir():
        raise FileNotFoundError(f"{PACKAGE}: there is none; apt-get install dataset-fashion-mnist")
    labels = numpy.frombuffer(gzip.decompress((PACKAGE / f"{part}-labels-idx1-ubyte.gz").read_bytes()), numpy.uint8, offset=8)
    pictures = numpy.frombuffer(gzip.decompress((PACKAGE / f"{part}-images-idx3-ubyte.gz").read_bytes()), numpy.uint8, offset=16)
    return pictures.reshape(-1, 28, 28), labels


def folder_write(folder):
    """The training part. What is there whole is left as it is."""
    folder = pathlib.Path(folder)
    if folder.is_dir():
        return folder
    half = folder.with_name(folder.name + ".part")
    shutil.rmtree(half, ignore_errors=True)
    pictures, labels = arrays("train")
    for label in range(10):
        os.makedirs(half / str(label))
    for number, (picture, label) in enumerate(zip(pictures, labels)):
        Image.fromarray(picture).save(half / str(label) / f"{number:05}.png")
    half.rename(folder)
    return folder
