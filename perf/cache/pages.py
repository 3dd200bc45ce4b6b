"""What the page cache finds again: reads all files of a data set in a new order each epoch, in a memory cgroup with room for a part of them.

usage: pages.py FOLDER SHARE EPOCHS     as root, where memory cgroups (v1) are mounted

Prints a line of JSON: for each epoch but the first, the files of which every byte was in memory when they were read. What
pages the files had before is dropped first, so that the cgroup pays for those that it reads."""

import ctypes
import json
import mmap
import os
import pathlib
import random
import sys
import time

GROUPS = pathlib.Path("/sys/fs/cgroup/memory")
TRIES = 20
PAGE = os.sysconf("SC_PAGE_SIZE")
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_ubyte))
MAP_FAILED = ctypes.c_void_p(-1).value


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


def pages_in_memory(descriptor, size):
    """How many of a file's pages lie in the page cache. A read with RWF_NOWAIT doesn't tell: it begins to read ahead."""
    address = LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == MAP_FAILED:
        raise OSError(ctypes.get_errno(), "mmap")
    found = (ctypes.c_ubyte * (in_pages(size) // PAGE))()
    failed = LIBC.mincore(address, size, found)
    LIBC.munmap(address, size)
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(page & 1 for page in found)


def pages_drop(path, size):
    """Whether nothing of the file is in memory any more: a page that the kernel has in hand stays."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return pages_in_memory(descriptor, size) == 0
    finally:
        os.close(descriptor)


def all_drop(files):
    left = files
    for _ in range(TRIES):
        left = [(path, size) for path, size in left if not pages_drop(path, size)]
        if not left:
            return
        time.sleep(0.2)
    sys.exit(f"{len(left)} files stay in memory: {left[0][0]}")


def read_whole(path, size, buffer):
    """Reads a file; whether all of it was in memory."""
    view = memoryview(buffer)[:size]
    descriptor = os.open(path, os.O_RDONLY)
    hit = pages_in_memory(descriptor, size) == in_pages(size) // PAGE
    done = 0
    while done < size:
        done += os.preadv(descriptor, [view[done:]], done)
    os.close(descriptor)
    return hit


def main():
    folder, share, epochs = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    files = [(path, path.stat().st_size) for path in sorted(pathlib.Path(folder).glob("*/*"))]
    buffer = bytearray(max(size for _, size in files))
    all_drop(files)
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
