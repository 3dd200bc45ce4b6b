#!/usr/bin/python3
"""The study's training from a disk that is slow by the clock: as it comes, with an echo, with a cache. Needs root and blkio cgroups (v1).

usage: perf/echo/disk.py [--seeds N]    goes on where runs.jsonl ends"""

import argparse
import dataclasses
import sys

import grid
import numpy
import train
from grid import BATCH, BUFFER, FOLDER, SEEDS, SLOWNESS, STEP_S, WINDOW, Server, baseline, result_add, results, tuned

sys.path.append(str(grid.ROOT / "perf"))
from measure import Unavailable, ahead_of_others  # noqa: E402: through the path set above
from slow_disk import pages_drop, throttled  # noqa: E402

PAGE = 4096  # bytes: what a picture of some 500 takes to read
BYTES_PER_S = round(PAGE * BATCH / (SLOWNESS * STEP_S))
CACHED = "300MiB"  # room for all pictures, decoded
AUTO_MOST = 5
ECHO = {"echo": {"factor": "auto", "max": AUTO_MOST, "buffer": BUFFER}}
WAYS = {"as it comes": [], "echo auto": [ECHO], "cache": [{"cache": {"memory": CACHED}}], "cache and echo auto": [{"cache": {"memory": CACHED}}, ECHO]}


def spec_of(configuration, way):
    """In shared order: `auto` has no other."""
    return dict(configuration.spec(FOLDER, WAYS[way]), order="shared", window=WINDOW)


class Dropping:
    """A loader whose pictures leave the page cache as they are delivered: they are read anew in every epoch."""

    def __init__(self, loader, paths):
        self.loader, self.paths = loader, paths

    def __iter__(self):
        for batch in self.loader:
            pages_drop(self.paths[number] for number in numpy.unique(numpy.asarray(batch.ids)))
            yield batch


def disk_results():
    """{(way, seed): row}."""
    return {(row["disk"]["way"], row["configuration"]["seed"]): row for row in grid.rows() if "disk" in row}


def run(configuration, way, paths):
    with ahead_of_others():  # steps mustn't last longer because others compute
        server = Server("--memory", "1GiB")
        with server, throttled(server.process.pid, FOLDER, BYTES_PER_S):
            pages_drop(paths)
            with grid.forebay.Loader(spec=spec_of(configuration, way), socket=server.socket, mode="running") as loader:
                curve = train.train_timed(configuration, Dropping(loader, paths), grid.LENGTH, STEP_S)
    return {"disk": {"way": way, "bytes_per_s": BYTES_PER_S, "step_s": STEP_S, "slowness": SLOWNESS},
            "configuration": dataclasses.asdict(configuration), "curve": curve}


def main():
    parser = argparse.ArgumentParser(description="The study's training from a slow disk.")
    parser.add_argument("--seeds", type=int, default=1, choices=range(1, len(SEEDS) + 1), help="of each way (default 1)")
    options = parser.parse_args()
    grid.fashion.folder_write(FOLDER)
    paths = sorted(FOLDER.glob("*/*"))  # in the order of ids
    rate = tuned(results())
    for seed in SEEDS[: options.seeds]:
        for way in WAYS:
            if (way, seed) in disk_results():
                continue
            row = run(baseline(rate=rate, seed=seed), way, paths)
            result_add(row)
            emitted, fresh, accuracy, seconds = row["curve"][-1]
            print(f"{way}, seed {seed}: {emitted} samples, {fresh} fresh, in {seconds:.0f} s; accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Unavailable as error:
        sys.exit(f"perf/echo/disk.py: {error}")
