"""Writes a folder of classes as FFCV's own file, the way that is quickest to train from at a JPEG's size: every picture coded again,
at quality 90 and with no side over 500, as FFCV's own scripts for ImageNet have it.

usage: ffcv_write.py FOLDER FILE THREADS"""

import os
import sys

from ffcv.fields import IntField, RGBImageField
from ffcv.writer import DatasetWriter
from torchvision.datasets import ImageFolder


def main():
    folder, file, threads = sys.argv[1:]
    image = RGBImageField(write_mode="jpg", max_resolution=500, jpeg_quality=90)
    writer = DatasetWriter(file + ".new", {"image": image, "label": IntField()}, num_workers=int(threads))
    writer.from_indexed_dataset(ImageFolder(folder))
    os.rename(file + ".new", file)


if __name__ == "__main__":
    main()
