"""The C sampler and the model's port draw the same, line by line, for random schedules."""

import os
import pathlib
import random
import subprocess

import pytest

from conftest import BUILD
from need_pools_port import NeedPools

REPLAY = pathlib.Path(os.environ.get("FOREBAY_SAMPLER_REPLAY", BUILD / "tests" / "sampler" / "sampler_replay"))
SCHEDULES = 1000 * int(os.environ.get("FOREBAY_TEST_SCALE", "1"))
PARTS = 20


class Schedule:
    """What happens, written down twice: as the commands for the C program, and as the answers of the port."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.n = self.random.choice([1, 2, 5, 17, 33, 100, 100, 180, 250])
        self.model = NeedPools(self.n, seed)
        self.commands, self.answers = [f"new {self.n} {seed}"], []
        self.rates, self.owed = {}, {}
        self.kind = self.random.choice(["plain", "plain", "ranks", "subsets", "all"])
        self.batches = self.random.choice([[1], [4], [16], [64], [8, 16], [3, 7, 64]])

    def join(self):
        r = self.random
        what = {"batch": r.choice(self.batches), "window": r.randint(1, 4)}
        subset = None
        if self.kind in ("ranks", "all") and r.random() < 0.5:
            what["ranks"] = r.randint(2, 5)
        if self.kind in ("subsets", "all") and r.random() < 0.5:
            part = r.choice([0.2, 0.5, 0.8])
            subset = [i for i in range(self.n) if r.random() < part] or [0]
            if r.random() < 0.3:
                subset = [i for i in range(self.n) if i % 2 == 0]
        if r.random() < 0.2:
            what["drop_last"] = True
        if r.random() < 0.2:
            what["first_epoch"] = r.randint(0, 3)
            what["epochs"] = what["first_epoch"] + r.randint(1, 3)
        digits = "-"
        if subset is not None:
            has = set(subset)
            digits = "".join("%x" % sum(1 << b for b in range(4) if i + b in has) for i in range(0, self.n, 4))
        task = self.model.join(**what, subset=subset)
        numbers = [0, 0, what.get("first_epoch", 0), what.get("epochs", 0), what["batch"], int(what.get("drop_last", False)),
                   what.get("ranks", 1), what["window"]]
        self.commands.append("join " + " ".join(map(str, numbers)) + " " + digits)
        self.answers.append("refused -1" if task is None else f"task {task}")
        if task is not None:
            self.rates[task], self.owed[task] = r.choice([1, 1, 0.7, 0.33, 0.1, 0]), 0.0

    def leave(self, task):
        self.model.leave(task)
        self.commands.append(f"leave {task}")
        del self.rates[task], self.owed[task]

    def abandon(self, task):
        self.commands.append(f"abandon {task}")
        self.answers.append(f"epoch {self.model.abandon(task)}")

    def draw(self):
        blocked = self.random.getrandbits(64) & self.random.getrandbits(64) if self.random.random() < 0.1 else 0
        drawn = self.model.draw(blocked)
        self.commands.append(f"draw {blocked}")
        if drawn is None:
            self.answers.append("none")
            return 0
        ids, targets, turns, flags = drawn
        words = ["draw", *ids, "for", *("%d:%d:%d:%d" % t for t in targets), "turns", *turns, "flags", *flags]
        self.answers.append(" ".join(map(str, words)))
        return len(ids)

    def consume(self, samples):
        for task, rate in self.rates.items():
            self.owed[task] += samples * rate
            queued = self.model.tasks[task].queued
            rank = max(range(len(queued)), key=lambda r: queued[r])
            count = min(int(self.owed[task]), queued[rank])
            if count:
                self.owed[task] -= count
                self.model.back(task, rank, count)
                self.commands.append(f"back {task} {rank} {count}")

    def play(self, steps):
        self.join()
        for _ in range(steps):
            dice, tasks = self.random.random(), list(self.rates)
            if dice < 0.04 and len(tasks) < 12:
                self.join()
            elif dice < 0.05 and len(tasks) > 1:
                self.leave(self.random.choice(tasks))
            elif dice < 0.06 and tasks:
                self.abandon(self.random.choice(tasks))
            else:
                self.consume(self.draw() or 8)
        return self


@pytest.mark.parametrize("part", range(PARTS))
def test_same_draws(part):
    seeds = range(part, SCHEDULES, PARTS)
    schedules = [Schedule(seed).play(90) for seed in seeds]
    commands = "".join("\n".join(s.commands) + "\n" for s in schedules)
    answers = [(seed, line) for seed, s in zip(seeds, schedules) for line in s.answers]
    result = subprocess.run([REPLAY], input=commands, capture_output=True, text=True, timeout=3600)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    for place, ((seed, expected), line) in enumerate(zip(answers, lines)):
        assert line == expected, f"seed {seed}, answer {place}"
    assert len(lines) == len(answers)
    assert sum(line.startswith("draw") for line in lines) > len(schedules) * 30
