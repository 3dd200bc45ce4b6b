"""A peer as one side of a comparison: perf/measure.py has the protocol. Standard library only: every peer imports it."""

import json
import sys
import time

WARM_BATCHES = 8


def cpu_clock(process):
    """The kernel's CPU clock of another process: user + system of all its threads."""
    return time.clock_gettime((~process << 3) | 2)


def cpu_seconds(children):
    return time.process_time() + sum(cpu_clock(child) for child in children)


def serve(take, batches, children=lambda: ()):
    """take(): the next batch of an endless stream, used as a trainer would (one byte of each sample); returns its number of
    samples. A turn is `batches` of them, in the middle of the stream. children(): processes that work for this one."""
    for line in sys.stdin:
        if line != "go\n":
            break
        for _ in range(WARM_BATCHES):
            take()
        wall, cpu = time.monotonic(), cpu_seconds(children())
        samples = sum(take() for _ in range(batches))
        answer = {"samples": samples, "wall": time.monotonic() - wall, "cpu": cpu_seconds(children()) - cpu}
        print(json.dumps(answer), flush=True)
