"""NVIDIA DALI's CPU pipeline: the crop decoded alone, resized with antialiasing, flipped and normalised in one operator.

usage: side_dali.py FOLDER THREADS"""

import sys

from nvidia.dali import fn, pipeline_def, types
from side import serve

BATCH = 64
MEAN = [255 * value for value in (0.485, 0.456, 0.406)]
DEVIATION = [255 * value for value in (0.229, 0.224, 0.225)]


@pipeline_def(batch_size=BATCH, device_id=None, prefetch_queue_depth=2)
def training(folder):
    files, labels = fn.readers.file(file_root=folder, random_shuffle=True, name="reader", initial_fill=512)
    images = fn.decoders.image_random_crop(
        files,
        device="cpu",
        output_type=types.RGB,
        random_aspect_ratio=[3 / 4, 4 / 3],
        random_area=[0.08, 1.0],
        num_attempts=10,
    )
    images = fn.resize(images, size=(224, 224), interp_type=types.INTERP_LINEAR, antialias=True)
    images = fn.crop_mirror_normalize(
        images,
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=MEAN,
        std=DEVIATION,
        mirror=fn.random.coin_flip(probability=0.5),
    )
    return images, labels


def main():
    pipeline = training(sys.argv[1], num_threads=int(sys.argv[2]))
    pipeline.build()

    def take():
        images, _ = pipeline.run()
        images.as_array()[:, 0, 0, 0].tolist()
        return BATCH

    serve(take, 2 * (pipeline.epoch_size("reader") // BATCH))


if __name__ == "__main__":
    main()
