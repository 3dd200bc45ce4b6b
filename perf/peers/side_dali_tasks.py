"""Several tasks, each with a CPU pipeline of NVIDIA DALI of its own.

usage: side_dali_tasks.py FOLDER TASKS THREADS BATCHES     THREADS: of each pipeline"""

import sys

import tasks
from side_dali import BATCH, training


def open_pipeline(index, folder, threads):
    pipeline = training(folder, num_threads=threads)
    pipeline.build()

    def take():
        images, _ = pipeline.run()
        images.as_array()[:, 0, 0, 0].tolist()
        return BATCH

    return take, 0


def main():
    folder, count, threads, batches = sys.argv[1], *map(int, sys.argv[2:])
    tasks.serve(open_pipeline, count, batches, (folder, threads))


if __name__ == "__main__":
    main()
