"""Echoes: each fresh sample once an epoch, and again as often as the factor says; whatever stands after the echo runs afresh."""

import collections
import json

import pytest
from processes import EEND, Probe, Server, hundred, write_spec  # noqa: F401

pytestmark = pytest.mark.usefixtures("surroundings")

REPEAT = 2
AUGMENTED = ["decode", {"random_resized_crop": {"size": 24}}, "random_horizontal_flip", {"normalize": "imagenet"}]


def echoed(place, **echo):
    """The pipeline with an echo before its op number `place`."""
    return [*AUGMENTED[:place], {"echo": echo}, *AUGMENTED[place:]]


def everything(probe):
    batches = probe.batches()
    assert batches.pop()["error"] == EEND
    return batches


def emissions(batches, epoch):
    """(id, flags) of an epoch, in order."""
    return [(i, f) for b in batches if b["epoch"] == epoch for i, f in zip(b["ids"], b["flags"])]


def check_epoch(batches, epoch, ids, factor):
    """Each of `ids` once fresh, all in all floor(n f) emissions, none before its fresh one."""
    came = emissions(batches, epoch)
    assert sorted(i for i, flags in came if not flags & REPEAT) == sorted(ids)
    assert len(came) == int(len(ids) * factor)
    counts = collections.Counter(i for i, _ in came)
    assert set(counts.values()) <= {int(factor), int(factor) + (factor != int(factor))}


@pytest.mark.parametrize("order", ["shared", "strict", "sequential"])
@pytest.mark.parametrize("factor", [1, 1.5, 2, 3.25])
@pytest.mark.parametrize("place", [0, 1, 4])
def test_each_fresh_once_and_again_as_often_as_the_factor_says(hundred, tmp_path, order, factor, place):
    spec = write_spec(tmp_path / "a.yaml", hundred, order=order, pipeline=echoed(place, factor=factor, buffer=20), batch={"size": 8}, epochs=3)
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        batches = everything(probe)
        for epoch in range(3):
            check_epoch(batches, epoch, range(100), factor)
            own = [b for b in batches if b["epoch"] == epoch]
            assert len(own) == probe.opened["opened"]["batches"] == -(-int(100 * factor) // 8)
            assert [b["index"] for b in own] == list(range(len(own)))
