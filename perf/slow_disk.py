"""A disk that is slow by the clock: reads of one process, throttled, and a page cache that stays empty."""

import contextlib
import os
import pathlib

from measure import Unavailable

GROUPS = pathlib.Path("/sys/fs/cgroup/blkio")


def pages_drop(paths):
    """Whoever reads these files next finds nothing in the page cache, as with a data set much larger than memory."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


@contextlib.contextmanager
def throttled(pid, folder, bytes_per_s):
    """A process whose reads from the disk of `folder` are slow, in a blkio cgroup (v1)."""
    device = os.stat(folder).st_dev
    # A partition is throttled as its whole disk.
    node = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    disk = (node.parent if (node / "partition").exists() else node) / "dev"
    group = GROUPS / f"forebay-perf-{pid}"
    try:
        number = disk.read_text().strip()
        group.mkdir()
        (group / "blkio.throttle.read_bps_device").write_text(f"{number} {bytes_per_s}")
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        raise Unavailable(f"a throttled disk needs root, blkio cgroups (v1) and a data set on a disk of its own number: {error}") from None
    try:
        yield
    finally:
        for task in (group / "cgroup.procs").read_text().split():
            (GROUPS / "cgroup.procs").write_text(task)
        group.rmdir()
