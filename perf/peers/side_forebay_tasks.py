"""Several tasks of Python programs on one server of ours.

usage: side_forebay_tasks.py PACKAGE SOCKET SPEC TASKS BATCHES     PACKAGE: the folder that holds forebay/"""

import sys

import tasks


def open_loader(index, package, socket, spec):
    sys.path.insert(0, package)
    import forebay
    import numpy

    loader = forebay.Loader.from_spec(spec, socket=socket, mode="running")

    def endless():
        while True:
            yield from loader

    batches = endless()

    def take():
        images, _ = next(batches)
        numpy.asarray(images)[:, 0, 0, 0].tolist()
        return len(images)

    return take, loader.server_pid


def main():
    package, socket, spec, count, batches = *sys.argv[1:4], *map(int, sys.argv[4:])
    tasks.serve(open_loader, count, batches, (package, socket, spec))


if __name__ == "__main__":
    main()
