"""The sampler's scenarios with a real node and trainers that sleep: other rates, joins, parts of the data, ranks.

Speeds are relative to what this machine can do: the node's capacity is measured first, with one worker, and every trainer's
rate is its part of it that the scenario says. All that is checked is counted: ids drawn against samples taken, each id of an
epoch once, where in the epoch they come.
"""

import json
import os
import subprocess
import time

import conftest
import pytest
from PIL import Image
from processes import Server, write_spec

pytestmark = [pytest.mark.usefixtures("surroundings"), pytest.mark.slow]

TRAINER = conftest.BUILD / "tests" / "server" / "fby_trainer"
SCALE = float(os.environ.get("FOREBAY_TEST_SCALE", "1"))
BATCH, WINDOW = 16, 8  # the least window is 128 samples
PIPELINE = ["decode", {"resize": {"size": [160, 160]}}, {"normalize": "imagenet"}]
# A run of ten epochs is the model's; three show the same, but that what a task draws alone when it joins weighs more.
EPOCHS = 10 if SCALE > 1 else 3
WARM = EPOCHS / 10


class Task:
    """Its trainer's rate; when it joins and leaves, in tenths of the run; its part of the data; its ranks."""

    def __init__(self, rate, join=0.0, leave=None, split=None, ranks=1):
        self.rate, self.join, self.leave, self.split, self.ranks = rate, join, leave, split, ranks


def part(seed, share):
    return {"part": share, "seed": seed}


THREE_APART = [Task(100), Task(100, 0.36), Task(100, 0.55)]
# name: (samples, tasks, capacity, ids a second that the node has to draw at least, slack, in every run)
SCENARIOS = {
    "3 equal tasks, together": (2003, [Task(100), Task(100), Task(100)], 300, 100, 1.04, True),
    "3 equal tasks, joined mid-epoch": (2003, THREE_APART, 300, 100, 1.04, True),
    "the same, node saturated": (2003, THREE_APART, 50, 100, 1.04, False),
    "rates 100, 70, 33": (2003, [Task(100), Task(70, 0.15), Task(33, 0.25)], 300, 100, 1.04, False),
    "rates 100, 70, 33, node saturated": (2003, [Task(100), Task(70, 0.15), Task(33, 0.25)], 80, 100, 1.04, False),
    "rates 400, 300, 200, 100, saturated": (2003, [Task(400), Task(300, 0.2), Task(200, 0.3), Task(100, 0.5)], 150, 400, 1.04, False),
    "5 tasks that come and go": (2003, [Task(100), Task(70, 0.15), Task(33, 0.25, 4.5), Task(80, 2.5, 7.5), Task(100, 3)], 400, 100, 1.04, True),
    "4 random 3/4 subsets": (8000, [Task(100, split=part(seed, 0.75)) for seed in range(4)], 400, 100 * 7969 / 6000, 1.12, False),
    "all, and a filter on half": (2003, [Task(100), Task(100, split=part(1, 0.5))], 400, 150, 1.04, False),
    "all, and an 80% split": (2003, [Task(100), Task(100, split=part(1, 0.8))], 400, 120, 1.04, False),
    "4 jobs of 4 ranks, apart": (4000, [Task(200, join, ranks=4) for join in (0, 0.15, 0.25, 0.4)], 600, 200, 1.04, False),
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """count -> a folder of so many tiny JPEGs."""
    made = {}

    def make(count):
        if count not in made:
            folder = tmp_path_factory.mktemp(f"tiny{count}")
            (folder / "a").mkdir()
            for number in range(count):
                Image.new("RGB", (16, 16), (number % 256, number // 256, 60)).save(folder / "a" / f"{number:05}.jpg")
            made[count] = folder
        return made[count]

    return make


def trainer(server, spec, rate, seconds, rank=None):
    rank = [] if rank is None else [str(rank)]
    return subprocess.Popen([TRAINER, server.socket, spec, str(rate), str(seconds), *rank], stdout=subprocess.PIPE, text=True)


def answer(process):
    out, _ = process.communicate(timeout=300)
    said = json.loads(out)
    assert "error" not in said, said
    return said


def drawn(server):
    tasks = server.status()["tasks"]
    return tasks[0]["drawn"] if tasks else 0


@pytest.fixture(scope="module")
def capacity(tiny, tmp_path_factory, surroundings):
    """Samples a second that one worker makes."""
    folder = tmp_path_factory.mktemp("capacity")
    spec = write_spec(folder / "s.yaml", tiny(2003), order="shared", pipeline=PIPELINE, epochs=None, batch={"size": BATCH}, window=WINDOW)
    with Server(folder / "server", "--workers", 1) as server:
        said = answer(trainer(server, spec, 1e9, 1.5))
    return said["taken"] / said["seconds"]


def once_each(epochs, ids):
    """Whole epochs hold each id once."""
    for epoch in epochs[:-1]:
        assert len(epoch) == len(set(epoch)) == ids, (len(epoch), len(set(epoch)), ids)


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario[5] or SCALE > 1])
def test_scenario(name, tiny, capacity, tmp_path):
    samples, tasks, node, bound, slack, _ = SCENARIOS[name]
    speed = min(capacity, 4000) / node if node >= 100 * len(tasks) else capacity / node
    fastest = max(task.rate for task in tasks)
    unit = samples / (min(fastest, node) * speed)  # seconds of an epoch of the fastest
    seconds, tenth = EPOCHS * unit, EPOCHS * unit / 10
    specs = [write_spec(tmp_path / f"{n}.yaml", tiny(samples), order="shared", pipeline=PIPELINE, epochs=None, batch={"size": BATCH},
                        window=WINDOW, split=task.split, ranks=task.ranks) for n, task in enumerate(tasks)]
    with Server(tmp_path / "server", "--workers", 1) as server:
        start = time.monotonic()
        running, events = {}, [(task.join * tenth, n) for n, task in enumerate(tasks)] + [(WARM * unit, None)]
        warm = 0
        for when, number in sorted(events, key=lambda event: event[0]):
            time.sleep(max(0, start + when - time.monotonic()))
            if number is None:
                warm, warm_at = drawn(server), time.monotonic() - start
                continue
            task = tasks[number]
            until = (task.leave * tenth if task.leave else seconds) - when
            running[number] = [trainer(server, specs[number], task.rate * speed / task.ranks, until, rank)
                               for rank in (range(task.ranks) if task.ranks > 1 else [None])]
        time.sleep(max(0, start + seconds * 0.97 - time.monotonic()))
        total, end = drawn(server), time.monotonic() - start
        said = {number: [answer(process) for process in processes] for number, processes in running.items()}
    rate = (total - warm) / (end - warm_at)
    got = {number: sum(one["taken"] for one in answers) / max(one["seconds"] for one in answers) for number, answers in said.items()}
    print(f"{name}: drawn {rate:.0f}/s of {bound * speed:.0f} at the least and {node * speed:.0f} at most; tasks get "
          + " ".join(f"{got[n]:.0f}/{task.rate * speed:.0f}" for n, task in enumerate(tasks)))
    # A machine that was busy with other things slows all trainers alike.
    real = min(1.0, max(got[n] / (task.rate * speed) for n, task in enumerate(tasks)))
    # Saturated, the node draws what it can; else little more than the trainers make it.
    if bound < node:
        joins = sum(task.join > 0 for task in tasks) if EPOCHS < 10 else 0
        assert rate <= slack * bound * speed * real + joins * BATCH * WINDOW / (end - warm_at)
    for number, task in enumerate(tasks):
        assert got[number] >= 0.93 * min(task.rate * speed * real, rate, capacity), (number, got[number], rate)
    for number, answers in said.items():
        if tasks[number].ranks == 1:
            expected = samples if not tasks[number].split else round(samples * tasks[number].split["part"])
            once_each(answers[0]["epochs"], expected)
        else:
            for k in range(min(len(one["epochs"]) for one in answers) - 1):
                ids = [i for one in answers for i in one["epochs"][k]]
                assert len(ids) == len(set(ids)) == samples
    if len(tasks) > 1 and tasks[1].split:
        others = set(said[1][0]["epochs"][0])
        for epoch in said[0][0]["epochs"][:-1]:
            size = len(epoch) // 10
            share = len(others & set(epoch)) / len(epoch)
            for decile in range(10):
                here = len(others & set(epoch[decile * size : (decile + 1) * size])) / size
                assert abs(here - share) <= 0.12, (decile, here, share)
