"""FFCV on the CPU, from its own file: what a sample takes is decoded quickly and not exactly, resized, flipped and normalised.

usage: side_ffcv.py FILE THREADS"""

import sys

import numpy
from ffcv.fields.decoders import IntDecoder
from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
from side import serve

BATCH = 64
MEAN = 255 * numpy.array((0.485, 0.456, 0.406))
DEVIATION = 255 * numpy.array((0.229, 0.224, 0.225))


def main():
    loader = Loader(
        sys.argv[1],
        batch_size=BATCH,
        num_workers=int(sys.argv[2]),
        os_cache=True,
        order=OrderOption.RANDOM,
        drop_last=True,
        pipelines={
            "image": [
                RandomResizedCropRGBImageDecoder((224, 224)),
                RandomHorizontalFlip(),
                NormalizeImage(MEAN, DEVIATION, numpy.float32),  # on the CPU it comes before ToTensor
                ToTensor(),
                ToTorchImage(),
            ],
            "label": [IntDecoder(), ToTensor(), Squeeze()],
        },
    )

    def stream():
        while True:
            yield from loader

    batches = stream()

    def take():
        images, _ = next(batches)
        images[:, 0, 0, 0].tolist()
        return len(images)

    serve(take, 2 * len(loader))


if __name__ == "__main__":
    main()
