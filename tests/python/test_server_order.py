"""What comes, in which order, and that it depends on nothing but the spec."""

import collections
import hashlib
import json

import pytest
from processes import EEND, Company, Probe, Server, hundred, write_spec  # noqa: F401

pytestmark = pytest.mark.usefixtures("surroundings")
READERS = ["uring", "pread"]
# Tasks beside the one that is tested: it must make no difference.
BESIDE = pytest.mark.parametrize("beside", [0, 2], ids=["alone", "of three"])


def epoch_digest(batches):
    """sha256 of an epoch: ids, labels and the hash of every batch's bytes, in order."""
    digest = hashlib.sha256()
    for batch in batches:
        digest.update(json.dumps([batch["ids"], batch["labels"], batch["flags"], batch["hash"]]).encode())
    return digest.hexdigest()


@BESIDE
def test_strict_order_is_the_same_for_all_workers_readers_and_runs(photographs, tmp_path, beside):
    spec = write_spec(tmp_path / "strict.yaml", photographs, epochs=2, batch={"size": 32},
                      pipeline=["decode", {"random_resized_crop": {"size": 96}}, "random_horizontal_flip", {"normalize": "imagenet"}])
    digests = collections.Counter()
    for reader in READERS:
        for workers in (1, 2, 8):
            for run in range(1 if beside else 2):
                with Server(tmp_path / f"{reader}{workers}{run}", "--workers", workers, "--reader", reader) as server, \
                        Company(server, spec, beside), Probe(spec, server) as probe:
                    batches = probe.batches()
                    assert batches.pop()["error"] == EEND
                    digests[epoch_digest(b for b in batches if b["epoch"] == 0), epoch_digest(b for b in batches if b["epoch"] == 1)] += 1
    assert list(digests.values()) == [6 if beside else 12]
    first, second = next(iter(digests))
    assert first != second, "epochs have orders and augmentations of their own"


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("order", ["shared", "strict", "sequential"])
@pytest.mark.parametrize("size, drop_last", [(8, False), (32, True), (100, False), (7, True)])
@BESIDE
def test_each_id_comes_once_an_epoch(hundred, tmp_path, reader, order, size, drop_last, beside):
    spec = write_spec(tmp_path / "once.yaml", hundred, order=order, epochs=3, batch={"size": size, "drop_last": drop_last})
    with Server(tmp_path / "server", "--reader", reader) as server, Company(server, spec, beside), Probe(spec, server) as probe:
        batches = probe.batches()
    assert batches.pop()["error"] == EEND
    expected = 100 // size if drop_last else -(-100 // size)
    assert probe.opened["opened"]["batches"] == expected
    for epoch in range(3):
        of_epoch = [b for b in batches if b["epoch"] == epoch]
        assert [b["index"] for b in of_epoch] == list(range(expected))
        assert [b["last"] for b in of_epoch] == [False] * (expected - 1) + [True]
        assert [len(b["ids"]) for b in of_epoch[:-1]] == [size] * (expected - 1)
        ids = [i for b in of_epoch for i in b["ids"]]
        assert len(ids) == len(set(ids)) == (100 - 100 % size if drop_last else 100)
        labels = [label for b in of_epoch for label in b["labels"]]
        assert labels == [i * 3 // 100 for i in ids]
        if order == "sequential":
            assert ids == list(range(len(ids)))
    assert [b["epoch"] for b in batches] == sorted(b["epoch"] for b in batches)


def test_orders_of_epochs_and_seeds_differ(hundred, tmp_path):
    orders = []
    with Server(tmp_path / "server") as server:
        for seed in (0, 1):
            spec = write_spec(tmp_path / f"{seed}.yaml", hundred, seed=seed, epochs=2, batch={"size": 100})
            with Probe(spec, server) as probe:
                orders += [b["ids"] for b in probe.batches(2)]
    assert len({tuple(order) for order in orders}) == 4


@BESIDE
def test_augmentations_differ_between_epochs_and_not_between_workers(hundred, tmp_path, beside):
    """CASES: the same augmentation on each worker or each epoch."""
    spec = write_spec(tmp_path / "s.yaml", hundred, order="sequential", epochs=3, batch={"size": 100},
                      pipeline=["decode", {"random_resized_crop": {"size": 16}}])
    runs = []
    for workers in (1, 4):
        with Server(tmp_path / str(workers), "--workers", workers) as server, Company(server, spec, beside), Probe(spec, server) as probe:
            runs.append([b["hash"] for b in probe.batches(3)])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 3


@pytest.mark.parametrize("order", ["shared", "strict"])
@BESIDE
def test_an_abandoned_epoch_is_over_and_the_next_is_whole(hundred, tmp_path, order, beside):
    spec = write_spec(tmp_path / "s.yaml", hundred, order=order, epochs=4, batch={"size": 8})
    with Server(tmp_path / "server") as server, Company(server, spec, beside), Probe(spec, server) as probe:
        assert probe.ask("abandon") == {"abandoned": True}  # nothing came: nothing to give up
        assert [b["epoch"] for b in probe.batches(2)] == [0, 0]
        assert probe.ask("abandon") == {"abandoned": True}
        assert probe.ask("abandon") == {"abandoned": True}
        whole = probe.batches(13)
        assert {b["epoch"] for b in whole} == {1}
        assert sorted(i for b in whole for i in b["ids"]) == list(range(100))
        assert probe.ask("abandon") == {"abandoned": True}  # its last batch was taken: nothing is left of it
        assert [b["epoch"] for b in probe.batches(12)] == [2] * 12
        assert probe.ask("abandon") == {"abandoned": True}
        assert [(b["epoch"], b["index"]) for b in probe.batches(1)] == [(3, 0)]
        assert probe.ask("abandon")["error"] == EEND
        assert probe.ask("next")["error"] == EEND


@pytest.mark.parametrize("window", [1, 2, 3, 5])
@BESIDE
def test_all_of_the_window_can_be_held(hundred, tmp_path, window, beside):
    """Every batch of the window comes while the others are held; the one beyond is refused by name."""
    spec = write_spec(tmp_path / "s.yaml", hundred, window=window, epochs=None, batch={"size": 128}, order="shared",
                      pipeline=["decode", {"resize": [8, 8]}])
    with Server(tmp_path / "server") as server, Company(server, spec, beside), Probe(spec, server) as probe:
        most = probe.opened["opened"]["window"]
        taken = [probe.ask("next") for _ in range(most)]
        assert all("batch" in answer for answer in taken), taken
        refused = probe.ask("next")
        assert refused["error"] == -8 and f"all {most} batches of the window" in refused["text"]
        for batch in taken:
            assert probe.ask(f"hash {batch['batch']}")["hash"] == batch["hash"]
            assert probe.ask(f"copy {batch['batch']}")["hash"] == batch["hash"]
        probe.ask("release 0")
        assert "batch" in probe.ask("next")
