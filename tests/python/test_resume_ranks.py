"""A job goes on with another number of ranks, from the states of all that it had."""

import json
import os
import pickle
import subprocess
import sys

import numpy
import pytest
from hypothesis import HealthCheck, given, settings, strategies
from processes import EEND, EINVAL, PROBE, Probe, Server, hundred, write_spec  # noqa: F401

import forebay

pytestmark = pytest.mark.usefixtures("surroundings")

PADDED, REPEAT, SUBSTITUTE = 1, 2, 4
EXAMPLES = int(12 * float(os.environ.get("FOREBAY_TEST_SCALE", "1")))
ORDERS = ["shared", "strict", "sequential"]


@pytest.fixture(scope="module")
def server(surroundings, tmp_path_factory):
    with Server(tmp_path_factory.mktemp("resume_ranks") / "server") as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("resume_ranks_specs")


class Job:
    """All ranks of a task, who take their batches in step."""

    def __init__(self, server, spec, ranks, states=(), job=None):
        self.probes = [Probe(spec, server, rank=rank, states=states, job=job) for rank in range(ranks)]
        self.batches = self.probes[0].opened["opened"]["batches"]

    def steps(self, most=10**6):
        """Each a list of the ranks' batches; fewer where the last epoch is over."""
        taken = []
        while len(taken) < most:
            for probe in self.probes:
                probe.send("next 60000")
            answers = [probe.read() for probe in self.probes]
            if any("error" in answer for answer in answers):
                assert {answer.get("error") for answer in answers} == {EEND}, answers
                break
            for probe, answer in zip(self.probes, answers):
                probe.ask(f"release {answer['batch']}")
            taken.append(answers)
        return taken

    def save(self, folder, name="state"):
        paths = [folder / f"{name}.{rank}" for rank in range(len(self.probes))]
        for probe, path in zip(self.probes, paths):
            assert probe.ask(f"state {path}")["state"] > 0
        return paths

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for probe in self.probes:
            probe.close()


def ids_of(steps, epoch):
    """Those that aren't padding."""
    return [i for answers in steps for b in answers if b["epoch"] == epoch for i, flag in zip(b["ids"], b["flags"]) if not flag & PADDED]


class Shards:
    """What DistributedSampler's rule gives the ranks of a job: the places of an epoch's order that are left, dealt in turn, padded from its
    beginning."""

    def __init__(self, orders):
        self.orders, self.epoch, self.left = [*orders, []], 0, orders[0]

    def _next_epoch(self):
        self.epoch += 1
        self.left = self.orders[self.epoch]

    def _dealt(self, ranks, batch, drop_last):
        part = len(self.left) // ranks // batch * batch if drop_last else -(-len(self.left) // ranks)
        padded = self.left + self.orders[self.epoch] * ranks
        return [padded[rank:part * ranks:ranks] for rank in range(ranks)]

    def check(self, steps, ranks, batch, drop_last):
        if self.left and not self._dealt(ranks, batch, drop_last)[0]:
            self._next_epoch()
        shards = self._dealt(ranks, batch, drop_last)
        for answers in steps:
            for shard, b in zip(shards, answers):
                assert (b["epoch"], b["ids"]) == (self.epoch, shard[:batch])
                del shard[:batch]
            self.left = self.left[batch * ranks:]
            if not shards[0]:
                self._next_epoch()
                shards = self._dealt(ranks, batch, drop_last)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(order=strategies.sampled_from(ORDERS), drop_last=strategies.booleans(), split=strategies.booleans(),
       lives=strategies.lists(strategies.tuples(strategies.integers(1, 5), strategies.integers(1, 14), strategies.floats(0, 1.3)), min_size=2, max_size=4))
def test_each_id_comes_once_over_jobs_of_any_size(server, folder, hundred, order, drop_last, split, lives):
    """Lives of one job, each with its ranks, its batch size and its length, as a part of an epoch: over all of them each id comes once an
    epoch, padding aside."""
    keys = {"order": order, "epochs": 2, **({"split": {"part": 0.7, "seed": 3}} if split else {})}
    with Job(server, write_spec(folder / "whole.yaml", hundred, **keys), 1) as job:
        orders = job.steps()
    shards = Shards([ids_of(orders, epoch) for epoch in range(2)])
    count = len(shards.left)
    taken, states = [], []
    for number, (ranks, batch, length) in enumerate(lives):
        spec = write_spec(folder / "job.yaml", hundred, ranks=ranks, batch={"size": batch, "drop_last": drop_last}, **keys)
        with Job(server, spec, ranks, states) as job:
            steps = job.steps() if number == len(lives) - 1 else job.steps(int(length * job.batches))
            states = job.save(folder, f"life{number}")
        for answers in steps:
            places = {(b["epoch"], b["index"], b["last"], len(b["ids"])) for b in answers}
            assert len(places) == 1, "ranks are in step, and their parts equal"
            assert answers[0]["last"] == (answers[0]["index"] == job.batches - 1), "the last batch has the number that it always has"
        if order != "shared":
            shards.check(steps, ranks, batch, drop_last)
        taken += steps
    for epoch in range(2):
        ids = ids_of(taken, epoch)
        assert len(set(ids)) == len(ids), "none twice"
        assert drop_last or len(ids) == count, "none is missing"


@pytest.mark.parametrize("order", ORDERS)
def test_one_rank_becomes_four_and_two_and_one(server, hundred, tmp_path, order):
    taken, states = [], []
    for ranks, stop in ((1, 3), (4, 2), (2, 1), (1, 10**6)):
        spec = write_spec(tmp_path / "s.yaml", hundred, order=order, epochs=2, ranks=ranks)
        with Job(server, spec, ranks, states) as job:
            taken += job.steps(stop)
            states = job.save(tmp_path)
    assert sorted(ids_of(taken, 0)) == sorted(ids_of(taken, 1)) == list(range(100))
    assert ids_of(taken, 0)[:24] == list(range(24)) or order != "sequential"


def test_the_same_number_of_ranks_goes_on_by_either_form(server, hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, order="strict", epochs=2, ranks=3)
    with Job(server, spec, 3) as job:
        job.steps(2)
        states = job.save(tmp_path)
        expected = job.steps()
    with Job(server, spec, 3, states) as job:
        after = job.steps()
    assert [[(b["epoch"], b["index"], b["last"], b["hash"], b["ids"]) for b in step] for step in after] == \
        [[(b["epoch"], b["index"], b["last"], b["hash"], b["ids"]) for b in step] for step in expected]


def test_an_epoch_that_goes_on_can_be_given_up(server, hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, order="strict", epochs=2, ranks=2)
    with Job(server, spec, 2) as job:
        job.steps(2)
        states = job.save(tmp_path)
    alone = write_spec(tmp_path / "t.yaml", hundred, order="strict", epochs=2)
    with Job(server, alone, 1, states) as job:
        assert job.probes[0].ask("abandon") == {"abandoned": True}
        steps = job.steps()
    assert [b["epoch"] for (b,) in steps] == [1] * 13 and sorted(ids_of(steps, 1)) == list(range(100))


@pytest.mark.parametrize("order", ["shared", "strict"])
def test_bad_samples_stay_replaced(server, hundred, tmp_path, order):
    data = tmp_path / "data"
    subprocess.run(["cp", "-r", hundred, data], check=True)
    bad = set(range(4, 100, 9))
    for picture in data.glob("*/*.jpg"):
        if int(picture.stem) in bad:
            picture.write_bytes(b"no picture")
    taken, states = [], []
    for ranks, stop in ((3, 3), (2, 10**6)):
        spec = write_spec(tmp_path / "s.yaml", data, order=order, ranks=ranks, on_error="skip", max_errors=90)
        with Job(server, spec, ranks, states) as job:
            taken += job.steps(stop)
            states = job.save(tmp_path)
    again = PADDED | REPEAT | SUBSTITUTE if order == "strict" else PADDED | REPEAT
    once = [i for answers in taken for b in answers for i, flag in zip(b["ids"], b["flags"]) if not flag & again]
    assert len(set(once)) == len(once)
    assert {i for answers in taken for b in answers for i in b["ids"]} == set(range(100)) - bad


def merge_refused(server, spec, states):
    done = subprocess.run([PROBE, "--socket", server.socket, *(f for state in states for f in ("--merge", state)), spec], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=60)
    assert f'"error":{EINVAL}' in done.stdout, done.stdout
    return done.stdout


def test_what_does_not_belong_together_is_refused_by_name(server, hundred, tmp_path):
    keys = {"order": "strict", "epochs": 3}
    spec = write_spec(tmp_path / "s.yaml", hundred, ranks=3, **keys)
    other = write_spec(tmp_path / "t.yaml", hundred, ranks=3, **{**keys, "seed": 5})
    with Job(server, spec, 3, job="a") as job, Job(server, spec, 3, job="b") as second, Job(server, other, 3) as third:
        for each in (job, second, third):
            each.steps(1)
        early, twin, strange = job.save(tmp_path, "early"), second.save(tmp_path, "twin"), third.save(tmp_path, "strange")
        job.steps(5)
        late = job.save(tmp_path, "late")
    alone = write_spec(tmp_path / "alone.yaml", hundred, **keys)
    for words, states in [("2 states of a task of 3 ranks, that of rank 1 is missing", [early[2], early[0]]),
                          ("states 0 and 2 of the list are both of rank 1", [early[1], early[0], early[1]]),
                          ("rank 0 was saved at sample 8 of epoch 0, rank 2 at sample 8 of epoch 1: expected states that all ranks saved after the same batch",
                           [early[0], early[1], late[2]]),
                          ("states 0 and 1 of the list were saved by ranks that didn't run together", [early[0], twin[1], early[2]]),
                          ("state 2 of the list is of another task than state 0", [early[0], early[1], strange[2]])]:
        assert words in merge_refused(server, alone, states)
    with Probe(alone, server, state=early[0]) as probe:
        text = probe.opened["text"]
    assert "alone.yaml: the state is of one rank of 3, this task has ranks: 1" in text and "merged into one" in text
    damaged = tmp_path / "damaged"
    damaged.write_bytes(early[1].read_bytes()[:-1])
    assert "state 1 of the list: the state has" in merge_refused(server, alone, [early[0], damaged, early[2]])
    assert "another `split`" in merge_refused(server, write_spec(tmp_path / "u.yaml", hundred, **keys, split={"part": 0.5}), early)


TRAIN = """
import json, pickle, sys, numpy, forebay
socket, folder, rank, ranks, stop, states = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6:]
loader = forebay.Loader(folder, ["decode", {"resize": {"size": [24, 24]}}], 8, epochs=1, ranks=ranks, rank=rank, socket=socket, mode="running", timeout=60)
if states:
    loader.load_state_dict([pickle.load(open(state, "rb")) for state in states])
ids, epoch = [], iter(loader)  # held: an epoch that is dropped is given up
for batch in epoch:
    ids += [int(i) for i, flag in zip(numpy.asarray(batch.ids), numpy.asarray(batch.flags)) if not flag]
    if batch.index + 1 == stop:
        break
print(json.dumps([ids, list(loader.state_dict()["task"])]))
"""


def test_loaders_of_two_ranks_become_three(server, hundred, tmp_path):
    def run(ranks, stop, states=()):
        children = [subprocess.Popen([sys.executable, "-c", TRAIN, server.socket, hundred, str(rank), str(ranks), str(stop), *states], stdout=subprocess.PIPE)
                    for rank in range(ranks)]
        return [json.loads(child.communicate(timeout=60)[0]) for child in children]

    first = run(2, 3)
    for rank, (_, task) in enumerate(first):
        (tmp_path / str(rank)).write_bytes(pickle.dumps({"version": 1, "epoch": 0, "task": bytes(task)}))
    second = run(3, 10**6, [tmp_path / "0", tmp_path / "1"])
    assert len([i for ids, _ in first for i in ids]) == 48
    assert sorted(i for ids, _ in first + second for i in ids) == list(range(100))


def test_loaders_name_what_is_wrong(server, hundred):
    with forebay.Loader(str(hundred), ["decode", {"resize": {"size": [24, 24]}}], 8, epochs=1, socket=server.socket, mode="running") as loader:
        epoch = iter(loader)
        next(epoch)
        state = loader.state_dict()
        with pytest.raises(forebay.SpecError, match="on each rank"):
            loader.load_state_dict([])
        with pytest.raises(forebay.SpecError, match="on each rank"):
            loader.load_state_dict([state, 1])
        with pytest.raises(forebay.SpecError, match="states 0 and 1 of the list are both of rank 0"):
            loader.load_state_dict([state, state])
        loader.load_state_dict([state])
        assert [batch.index for batch in loader] == list(range(1, 13))
