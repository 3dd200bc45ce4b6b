"""Ranks as launchers say them, and Loaders of one task in several processes."""

import multiprocessing
import os

import numpy
import pytest
from processes import Server, hundred, write_spec  # noqa: F401

import forebay
from forebay import launch

pytestmark = pytest.mark.usefixtures("surroundings")

TORCHRUN = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}
SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}


@pytest.mark.parametrize("environment, expected", [
    ({}, None), (TORCHRUN, (2, 4, "torchrun")), (OPEN_MPI, (1, 3, "Open MPI")), (SLURM, None), ({**SLURM, "SLURM_STEP_ID": "0"}, (5, 8, "Slurm")),
    ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2, "PMI")), ({"PMIX_RANK": "1", "PMIX_SIZE": "2"}, (1, 2, "PMIx")), ({"RANK": "3"}, None), ({**TORCHRUN, "LOCAL_WORLD_SIZE": "4"}, (2, 4, "torchrun")),
    ({**TORCHRUN, "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0"}, (2, 4, "torchrun")),  # one Slurm task started torchrun
    ({**TORCHRUN, "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 4, "torchrun"))])
def test_launchers_by_trust(environment, expected):
    found = launch.detect(environment)
    assert (found and found[:3]) == expected


@pytest.mark.parametrize("environment, words", [
    ({**TORCHRUN, **OPEN_MPI}, ["torchrun", "2 of 4", "Open MPI", "1 of 3"]), ({**TORCHRUN, "RANK": "x"}, ["RANK", "'x'"]),
    ({**TORCHRUN, "RANK": "4"}, ["RANK=4", "WORLD_SIZE=4"]), ({"RANK": "-1", "WORLD_SIZE": "2"}, ["RANK"]),
    ({**TORCHRUN, "LOCAL_WORLD_SIZE": "2"}, ["torchrun says 4 ranks on several machines, 2 of them here (LOCAL_WORLD_SIZE)", "split="]),
    ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, ["3 ranks on several machines", "OMPI_COMM_WORLD_LOCAL_SIZE"]),
    ({**SLURM, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2"}, ["8 ranks on 2 machines"])])
def test_contradictions_name_both(environment, words):
    with pytest.raises(forebay.SpecError) as caught:
        launch.detect(environment)
    assert all(word in str(caught.value) for word in words)


def _train(rank, environment, folder, socket, keys, results):
    os.environ.update(environment)
    with forebay.Loader(str(folder), ["decode", {"resize": {"size": [24, 24]}}, {"to": {"dtype": "u8"}}], batch_size=8, epochs=1, socket=socket,
                        mode="running", **keys) as loader:
        results.put((rank, len(loader), [int(i) for batch in loader for i in numpy.asarray(batch.ids)]))


@pytest.mark.parametrize("by_launcher", [True, False])
def test_a_loader_of_three_ranks(hundred, tmp_path, by_launcher):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with Server(tmp_path / "server") as server:
        children = []
        for rank in range(3):
            environment = {"RANK": str(rank), "WORLD_SIZE": "3"} if by_launcher else {}
            keys = {"ranks": "auto"} if by_launcher else {"ranks": 3, "rank": rank}
            children.append(context.Process(target=_train, args=(rank, environment, hundred, server.socket, keys, results)))
            children[-1].start()
        got = [results.get(timeout=60) for _ in children]
        for child in children:
            child.join(30)
            assert child.exitcode == 0
    assert sorted(rank for rank, _, _ in got) == [0, 1, 2]
    assert all(length == 5 and len(ids) == 34 for _, length, ids in got)
    assert set(i for _, _, ids in got for i in ids) == set(range(100))


def _train_in_step(rank, folder, socket, results):
    """A trainer whose ranks go step by step; the barrier stands for its all-reduce."""
    with forebay.Loader(str(folder), ["decode", {"echo": {"factor": "auto", "max": 4}}, {"random_resized_crop": {"size": 16}}], batch_size=8, epochs=3,
                        ranks=2, rank=rank, steps_per_epoch=15, socket=socket, mode="running") as loader:
        counts = []
        for _ in range(3):
            count = 0
            for batch in loader:
                count += 1
                results["barrier"].wait(30)
            counts.append(count)
        results["queue"].put((rank, len(loader), counts, repr(loader)))


def test_a_loader_of_two_ranks_in_step(hundred, tmp_path):
    context = multiprocessing.get_context("spawn")
    results = {"queue": context.Queue(), "barrier": context.Barrier(2)}
    with Server(tmp_path / "server") as server:
        children = [context.Process(target=_train_in_step, args=(rank, hundred, server.socket, results)) for rank in range(2)]
        for child in children:
            child.start()
        got = sorted(results["queue"].get(timeout=60) for _ in children)
        for child in children:
            child.join(30)
            assert child.exitcode == 0
    assert [(rank, length, counts) for rank, length, counts, _ in got] == [(rank, 15, [15] * 3) for rank in range(2)]
    assert all("15 batches" in text for *_, text in got)


def test_one_rank_is_whichever_process_asks(hundred, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with Server(tmp_path / "server") as server, forebay.Loader(str(hundred), ["decode", {"resize": {"size": [24, 24]}}], epochs=1,
                                                               socket=server.socket, mode="running") as loader:
        assert sum(len(batch.ids) for batch in loader) == 100


@pytest.mark.parametrize("keys, words", [({"ranks": 3}, "torchrun says 4"), ({"ranks": "all"}, "auto"), ({"rank": -1}, "from 0")])
def test_wrong_places(hundred, monkeypatch, keys, words):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ValueError, match=words):
        forebay.Loader(str(hundred), ["decode", {"resize": {"size": [24, 24]}}], **keys)
