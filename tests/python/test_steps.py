"""steps_per_epoch: an echo that is auto, and an epoch of as many batches for each of several ranks, whatever their sources' and trainers' rates."""

import collections
import json
import multiprocessing
import os
import random
import signal
import subprocess
import threading
import time

import pytest
from processes import EEND, EINVAL, FOREBAY, Probe, Server, eventually, hundred, write_spec  # noqa: F401
from test_echo import AUGMENTED, REPEAT, echoed, thousand  # noqa: F401
from test_server_many import everything, turns

import forebay

pytestmark = pytest.mark.usefixtures("surroundings")

PADDED = 1
SCALE = float(os.environ.get("FOREBAY_TEST_SCALE", "1"))


def span(samples, ranks, batch, most, drop_last=False):
    """(fresh samples of a rank's epoch, the least batches that it can have, the most)."""
    part = samples // ranks // batch * batch if drop_last else -(-samples // ranks)
    return part, -(-part // batch), int(part * most) // batch if drop_last else -(-int(part * most) // batch)


def check_job(taken, samples, epochs, steps, batch, most, drop_last=False, kept=None):
    """What holds for the batches of all ranks of a job: lists, a rank each."""
    ranks = len(taken)
    part, least, largest = span(samples, ranks, batch, most, drop_last)
    assert least <= steps <= largest
    for batches in taken:
        assert [(b["epoch"], b["index"]) for b in batches] == [(epoch, index) for epoch in range(epochs) for index in range(steps)]
        sizes = [len(b["ids"]) for b in batches]
        last = min(steps * batch, int(part * most)) - (steps - 1) * batch
        assert sizes == ([batch] * (steps - 1) + [last]) * epochs
        assert all(b["last"] == (b["index"] == steps - 1) for b in batches)
    for epoch in range(epochs):
        fresh, padded = collections.Counter(), 0
        for batches in taken:
            own, padding = collections.Counter(), collections.Counter()
            for b in (b for b in batches if b["epoch"] == epoch):
                for i, flags in zip(b["ids"], b["flags"]):
                    if flags & PADDED and not flags & REPEAT:
                        padding[i] += 1
                    elif not flags & REPEAT:
                        fresh[i] += 1
                    own[i] += 1
            padded += sum(padding.values())
            assert all(times <= -(-most // 1) * (1 + padding[i]) for i, times in own.items()), (own, most)
        if drop_last:
            assert set(fresh.values()) == {1} and len(fresh) == part * ranks
        else:
            assert fresh == collections.Counter(range(samples)), "each once, over all ranks"
        assert padded == part * ranks - len(fresh)


def take_in_step(probes, pause, count=None, chance=random):
    """As trainers that wait for each other: lists of batches. `pause`: seconds that a step takes, up to."""
    taken = [[] for _ in probes]
    while count is None or len(taken[0]) < count:
        answers = []
        for probe in chance.sample(probes, len(probes)):
            probe.send("next")
        for number, probe in enumerate(probes):
            answers.append(probe.read())
        if any("error" in answer for answer in answers):
            assert {answer.get("error") for answer in answers} == {EEND}, answers
            break
        for number, answer in enumerate(answers):
            taken[number].append(answer)
        time.sleep(chance.random() * pause)
        for probe, answer in zip(probes, answers):
            probe.ask(f"release {answer['batch']}")
    return taken


def steps_spec(path, dataset, steps, *, ranks, batch, most=4, buffer=64, epochs=2, drop_last=False, place=1, **keys):
    return write_spec(path, dataset, order="shared", ranks=ranks, steps_per_epoch=steps, epochs=epochs, batch={"size": batch, "drop_last": drop_last},
                      pipeline=echoed(place, factor="auto", max=most, buffer=buffer), **keys)


@pytest.mark.parametrize("pause", [0, 0.004])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_rank_has_as_many_steps_from_the_least_to_the_most(hundred, tmp_path, ranks, drop_last, pause):
    batch, most = 8, 2.5
    _, least, largest = span(100, ranks, batch, most, drop_last)
    for steps in sorted({least, (least + largest) // 2, largest}):
        spec = steps_spec(tmp_path / "a.yaml", hundred, steps, ranks=ranks, batch=batch, most=most, buffer=16, drop_last=drop_last)
        with Server(tmp_path / f"s{steps}") as server:
            probes = [Probe(spec, server, rank=rank) for rank in range(ranks)]
            assert all(probe.opened["opened"]["batches"] == steps for probe in probes)
            check_job(take_in_step(probes, pause), 100, 2, steps, batch, most, drop_last)
            assert server.status()["audit"]["sound"]
            for probe in probes:
                probe.close()
