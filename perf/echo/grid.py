#!/usr/bin/python3
"""The study of echoing: real training runs, most telling first, each appended to a file once it is over.

usage: perf/echo/grid.py [--minutes M] [--first]    goes on where the file ends; --first: factor 1's rates, and each kind of echo once
       perf/echo/grid.py --throttled                factor 1 and the best configuration with a slow pipeline and the clock

Debian's python3-torch, python3-pil and dataset-fashion-mnist are needed. Runs use one CPU."""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "perf" / "echo" / "runs.jsonl"  # in the tree: the page in docs is made of it
FOLDER = ROOT / "build" / "perf-data" / "fashion"
sys.path.append(str(ROOT / "build" / "perf" / "python"))
sys.dont_write_bytecode = True

import fashion  # noqa: E402: through the path set above
import forebay  # noqa: E402
import train  # noqa: E402
from train import Configuration  # noqa: E402

RATES = (0.004, 0.002, 0.008)
SEEDS = (0, 1, 2)
BATCH = 128
BUFFER = 4096  # samples
LENGTH = 32 * train.EVALUATE_EVERY  # of the factor-1 run that sets the target: 4.1 epochs
LONGEST = LENGTH * 3 // 2  # of any other
TARGET = 0.995  # of the final accuracy of the tuned factor-1 run
BEYOND = 1.002  # a run goes on beyond its target, which moves while factor 1's seeds come in
SLOWNESS = 4  # steps that the pipeline takes for a fresh batch
STEP_S = 0.06  # of the throttled runs: long beside what a step computes
WINDOW = 16  # of these: a fresh batch takes four steps
CACHE = {"cache": {"memory": "300MiB"}}  # changes no pixel: spares decoding


# --- what was found ----------------------------------------------------------------------------------------------------


def rows():
    """All runs so far, of every kind."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def results():
    """{configuration: curve} of the grid's runs; a curve is rows of [emitted, fresh, accuracy]."""
    return {Configuration(**row["configuration"]): row["curve"] for row in rows() if "timed" not in row and "disk" not in row}


def timed_results():
    """{configuration: row} of the runs by the clock."""
    return {Configuration(**row["configuration"]): row for row in rows() if "timed" in row}


def result_add(row):
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")


def baseline(batch=BATCH, rate=RATES[0], seed=SEEDS[0]):
    return Configuration(1, "before", BUFFER, batch, rate, seed)


def final(curve):
    """The mean of the last three evaluations: one alone is noisy."""
    return statistics.mean(row[2] for row in curve[-3:])


def tuned(done):
    """The rate at which factor 1 ends best, of those that ran with the first seed."""
    return max((rate for rate in RATES if baseline(rate=rate) in done), key=lambda rate: final(done[baseline(rate=rate)]))


def target(done):
    """The accuracy to be reached: of the tuned factor-1 runs, all seeds that have run."""
    ends = [final(done[baseline(rate=tuned(done), seed=seed)]) for seed in SEEDS if baseline(rate=tuned(done), seed=seed) in done]
    return TARGET * statistics.mean(ends)


def reached(curve, wanted):
    """(emitted, fresh, and the seconds of a run by the clock) where the accuracy first is `wanted`, between two evaluations by
    proportion; None: never."""
    for before, row in zip([[0, 0, 0.1, 0], *curve], curve):
        if row[2] >= wanted:
            part = (wanted - before[2]) / (row[2] - before[2])
            return tuple(low + part * (high - low) for low, high in zip([*before[:2], *before[3:]], [*row[:2], *row[3:]]))
    return None


def steps(configuration, emitted, slowness=SLOWNESS):
    """The wall time of so many emitted samples, in steps of the trainer: what `echo_time` measures."""
    return emitted / configuration.batch * max(slowness / configuration.factor, 1)


# --- the order of the runs ------------------------------------------------------------------------------------------------


def stages(rate):
    """Lists of configurations, most telling first; `rate`: the tuned one."""
    standard = [(factor, place) for place in ("before", "after", "batch") for factor in (4, 2)]

    def echoed(factor, place, buffer=BUFFER, batch=BATCH, rate=rate, seed=SEEDS[0]):
        return Configuration(factor, place, max(1, buffer // batch) if place == "batch" else buffer, batch, rate, seed)

    yield [echoed(factor, place) for factor, place in standard]
    yield [one for seed in SEEDS[1:] for one in (baseline(rate=rate, seed=seed), echoed(4, "before", seed=seed), echoed(4, "after", seed=seed))]
    yield [echoed(4, place, buffer=BATCH) for place in ("before", "after")] + [echoed(4, "before", buffer=4 * BUFFER)]
    yield [one for batch in (512, 32) for one in (baseline(batch, rate), echoed(4, "before", batch=batch))]
    yield [echoed(factor, place, rate=other) for factor, place in sorted(standard, key=lambda one: -one[0]) for other in RATES]
    yield [echoed(factor, place, seed=seed) for seed in SEEDS[1:] for factor, place in standard]
    yield [one for other in RATES for batch in (512, 32) for one in (baseline(batch, other), echoed(4, "before", batch=batch, rate=other))]
    yield [baseline(rate=other, seed=seed) for other in RATES for seed in SEEDS]
    yield [echoed(factor, place, rate=other, seed=seed) for other in RATES for seed in SEEDS for factor, place in standard]


def next_one(done, refused, first_only=False):
    """The next configuration to run; None: all have run."""
    for rate in RATES:
        if baseline(rate=rate) not in done:
            return baseline(rate=rate)
    for stage in itertools.islice(stages(tuned(done)), 1 if first_only else None):
        for configuration in stage:
            if configuration not in done and configuration not in refused:
                return configuration
    return None


# --- running ----------------------------------------------------------------------------------------------------------


class Server:
    """A standing server with memory for the pictures."""

    def __init__(self, *options):
        self.folder = tempfile.TemporaryDirectory(prefix="forebay-perf-")
        self.socket = os.path.join(self.folder.name, "socket")
        program = pathlib.Path(forebay.__file__).parent / "bin" / "forebay"
        self.process = subprocess.Popen([program, "serve", "--socket", self.socket, *options], stderr=subprocess.DEVNULL)
        while not os.path.exists(self.socket):
            if self.process.poll() is not None:
                sys.exit("forebay serve didn't start")
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.terminate()
        self.process.wait(30)
        self.folder.cleanup()


def run_one(configuration, done, server):
    """Runs and returns a row of the file; None where this version of Forebay doesn't echo so."""
    is_baseline = configuration.factor == 1 and configuration.batch == BATCH
    spec = configuration.spec(FOLDER, [CACHE])
    with forebay.Loader(spec=spec, socket=server.socket, mode="running") as loader:
        if len(loader) < 0.99 * configuration.factor * fashion.TRAINING / configuration.batch:
            return None
        curve = train.train(configuration, loader, LENGTH if is_baseline else LONGEST, None if is_baseline else BEYOND * target(done))
    return {"configuration": dataclasses.asdict(configuration), "curve": curve}


def grid_run(minutes, first_only):
    end, refused = time.monotonic() + 60 * minutes, set()
    with Server("--memory", "1GiB") as server:
        while time.monotonic() < end:
            done = results()
            configuration = next_one(done, refused, first_only)
            if configuration is None:
                print("all have run")
                return
            began = time.monotonic()
            row = run_one(configuration, done, server)
            if row is None:
                refused.add(configuration)
                print(f"{configuration.key}: not served", flush=True)
                continue
            result_add(row)
            done = results()
            at = reached(row["curve"], target(done))
            print(f"{configuration.key}: {time.monotonic() - began:.0f} s, accuracy {final(row['curve']):.4f}, target {target(done):.4f} "
                  + (f"after {at[0]:.0f} samples, {at[1]:.0f} fresh" if at else "not reached"), flush=True)


def throttled_run():
    """With a pipeline that lets a batch through every four steps, by the clock, to where the target was reached without one."""
    done = results()
    wanted = target(done)
    rate = tuned(done)
    seed = SEEDS[0]
    candidates = {one: reached(curve, wanted) for one, curve in done.items() if (one.batch, one.seed) == (BATCH, seed) and one.factor > 1}
    best = min((one for one in candidates if candidates[one]), key=lambda one: steps(one, candidates[one][0]))
    for configuration in (best, baseline(rate=rate, seed=seed)):
        if configuration in timed_results():
            continue
        emitted = reached(done[configuration], wanted)[0]
        most = (int(emitted) // train.EVALUATE_EVERY + 2) * train.EVALUATE_EVERY
        spec = configuration.spec(FOLDER, [CACHE, {"pace": round(1e6 * SLOWNESS * STEP_S / BATCH)}])
        with Server("--memory", "1GiB") as server, forebay.Loader(spec=dict(spec, window=WINDOW), socket=server.socket, mode="running") as loader:
            curve = train.train_timed(configuration, loader, most, STEP_S)
        result_add({"timed": {"step_s": STEP_S, "slowness": SLOWNESS}, "configuration": dataclasses.asdict(configuration), "curve": curve})
        print(f"{configuration.key}: {curve[-1][3]:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description="The study of echoing.")
    parser.add_argument("--minutes", type=float, default=120, help="no run begins later (default 120)")
    parser.add_argument("--first", action="store_true", help="factor 1's rates, and each kind of echo once")
    parser.add_argument("--throttled", action="store_true", help="factor 1 and the best configuration, by the clock")
    options = parser.parse_args()
    fashion.folder_write(FOLDER)
    if options.throttled:
        throttled_run()
    else:
        grid_run(options.minutes, options.first)


if __name__ == "__main__":
    main()
