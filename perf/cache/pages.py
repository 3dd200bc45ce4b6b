"""What the page cache finds again: reads all files of a data set in a new order each epoch, in a memory cgroup with room for a part of them.

usage: pages.py FOLDER SHARE EPOCHS     as root, where memory cgroups (v1) are mounted

Prints a line of JSON: for each epoch but the first, the files of which every byte was in memory when they were read. What
pages the files had before is dropped first, so that the cgroup pays for those that it reads."""

import json
import os
import pathlib
import random
import sys

GROUPS = pathlib.Path("/sys/fs/cgroup/memory")
PAGE = os.sysconf("SC_PAGE_SIZE")


def in_pages(size):
    return -(-size // PAGE) * PAGE


class Group:
    """A memory cgroup of this process, which leaves it at the end."""

    def __init__(self):
        self.before = next(line.split(":")[2] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()
                           if "memory" in line.split(":")[1].split(","))
        self.path = GROUPS / f"forebay-perf-{os.getpid()}"
        self.path.mkdir()
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def limit(self, size):
        (self.path / "memory.limit_in_bytes").write_text(str(size))

    def used(self):
        return int((self.path / "memory.usage_in_bytes").read_text())

    def close(self):
        (GROUPS / self.before.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))
        (self.path / "memory.force_empty").write_text("0")
        self.path.rmdir()


def pages_drop(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def read_whole(path, size, buffer):
    """Reads a file; whether all of it was in memory."""
    view = memoryview(buffer)[:size]
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = os.preadv(descriptor, [view], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        found = 0
    done = found
    while done < size:
        done += os.preadv(descriptor, [view[done:]], done)
    os.close(descriptor)
    return found == size


def main():
    folder, share, epochs = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    files = [(path, path.stat().st_size) for path in sorted(pathlib.Path(folder).glob("*/*"))]
    buffer = bytearray(max(size for _, size in files))
    for path, _ in files:
        pages_drop(path)
    group = Group()
    try:
        group.limit(group.used() + int(share * sum(in_pages(size) for _, size in files)))
        hits = []
        for epoch in range(epochs):
            random.Random(epoch).shuffle(files)
            hits.append(sum(read_whole(path, size, buffer) for path, size in files))
        print(json.dumps({"hits": hits[1:], "files": len(files)}))
    finally:
        group.close()


if __name__ == "__main__":
    main()
