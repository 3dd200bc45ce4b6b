"""Ranks that must not meet, ranks that never meet, and ranks that leave before the others: real processes."""

import multiprocessing
import os
import subprocess
import time

import numpy
import pytest
from processes import ECLOSED, EEND, EINVAL, ETIMEDOUT, FOREBAY, Probe, Server, eventually, hundred, write_spec  # noqa: F401

import forebay
from forebay import launch

pytestmark = pytest.mark.usefixtures("surroundings")

PIPELINE = ["decode", {"resize": {"size": [24, 24]}}, {"to": {"dtype": "u8"}}]
FIXED = ["decode", {"center_crop": 32}, {"to": {"dtype": "u8"}}]


class Rank:
    """A process with a Loader of its own, which does what it is told: (ids of its batches, what ended them)."""

    def __init__(self, folder, socket, environment=None, leave_open=False, **keys):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])  # or each would import numpy anew
        self.pipe, other = context.Pipe()
        keys = {"batch_size": 8, "socket": str(socket), "mode": "running", **keys}
        self.process = context.Process(
            target=_rank_main, args=(other, str(folder), keys, environment or {}, leave_open), daemon=True)
        self.process.start()
        other.close()
        self.opened = self.read()

    def read(self):
        assert self.pipe.poll(60), "a rank doesn't answer"
        return self.pipe.recv()

    def send(self, *command):
        self.pipe.send(command)

    def ask(self, *command):
        self.send(*command)
        return self.read()

    def end(self):
        self.send("end")
        self.process.join(30)
        assert self.process.exitcode == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.join(30)


def _rank_main(pipe, folder, keys, environment, leave_open):
    os.environ.update(environment)
    loaders = []
    try:
        loaders.append(forebay.Loader(folder, PIPELINE, **keys))
        pipe.send("open")
    except Exception as error:
        pipe.send((type(error).__name__, str(error)))
        return
    iterator = None
    while True:
        what, *rest = pipe.recv()
        if what == "end":
            break
        if what == "again":  # the next trial of a search
            loaders.append(forebay.Loader(folder, PIPELINE, **keys))
            iterator = None
            pipe.send("open")
        if what == "state":
            pipe.send(loaders[-1].state_dict())
        if what == "load":
            loaders[-1].load_state_dict(rest[0])
            iterator = None
            pipe.send("loaded")
        if what == "take":  # so many batches, or the rest of the epoch
            count, ids, why = rest[0] if rest else None, [], None
            iterator = iter(loaders[-1]) if iterator is None else iterator
            try:
                while count is None or len(ids) < count:
                    ids.append([int(i) for i in numpy.asarray(next(iterator).ids)])
            except StopIteration:
                iterator, why = None, "epoch"
            except Exception as error:
                why = (type(error).__name__, str(error))
            pipe.send((ids, why))
    if leave_open:
        os._exit(0)


def all_of(*takers):
    return sorted(i for ids, _ in takers for batch in ids for i in batch)


# --- two jobs of one spec ------------------------------------------------------------------------------------------------


def torchrun(rank, port, **more):
    return {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **more}


@pytest.mark.parametrize("by_launcher", [True, False])
def test_two_jobs_of_one_spec_at_a_time(hundred, tmp_path, by_launcher):
    """Opened in the order A0 B0 B1 A1: each job's ranks have an epoch between them."""
    with Server(tmp_path / "server") as server:
        def opened(job, rank):
            if by_launcher:
                return Rank(hundred, server.socket, torchrun(rank, 29500 + "AB".index(job)), ranks="auto")
            return Rank(hundred, server.socket, ranks=2, rank=rank, job=job)

        with opened("A", 0) as a0, opened("B", 0) as b0, opened("B", 1) as b1, opened("A", 1) as a1:
            assert [rank.opened for rank in (a0, b0, b1, a1)] == ["open"] * 4
            for rank in (a0, b0, b1, a1):
                rank.send("take")
            taken = [rank.read() for rank in (a0, b0, b1, a1)]
            assert all_of(taken[0], taken[3]) == all_of(taken[1], taken[2]) == list(range(100))
            jobs = [task["job"] for task in server.status()["tasks"]]
            assert len(set(jobs)) == 2 and all(jobs), jobs


def test_without_a_job_id_nothing_is_mixed_silently(hundred, tmp_path):
    with Server(tmp_path / "server") as server:
        def opened(rank, **keys):
            return Rank(hundred, server.socket, ranks=2, rank=rank, **keys)

        with opened(0) as a0, opened(0) as b0, opened(1) as b1, opened(1) as a1:
            assert (a0.opened, b1.opened) == ("open", "open")
            for refused, there in ((b0, a0), (a1, b1)):
                kind, text = refused.opened
                assert kind == "SpecError" and f"is here already, process {there.process.pid}" in text and "job=" in text, text
        eventually(lambda: not server.status()["tasks"])
        with opened(0, job="mine") as first, opened(0, job="mine") as second:  # one job has each rank once
            assert first.opened == "open" and "rank 0 of 2 of job mine is here already" in second.opened[1]


def test_a_process_may_open_a_rank_again(hundred, tmp_path):
    """Trial after trial, the Loader of before not closed: the ranks meet in the order of opening, whoever is faster."""
    with Server(tmp_path / "server") as server, Rank(hundred, server.socket, ranks=2, rank=0) as one, \
            Rank(hundred, server.socket, ranks=2, rank=1) as two:
        assert one.ask("again") == one.ask("again") == "open"
        assert two.ask("again") == two.ask("again") == "open"
        one.send("take")
        two.send("take")
        assert all_of(one.read(), two.read()) == list(range(100))


def test_one_process_with_all_ranks_says_which_belong_together(hundred, tmp_path):
    with Server(tmp_path / "server") as server:
        keys = {"batch_size": 8, "ranks": 2, "socket": server.socket, "mode": "running"}
        with forebay.Loader(str(hundred), PIPELINE, rank=0, **keys), forebay.Loader(str(hundred), PIPELINE, rank=0, **keys):
            with pytest.raises(forebay.SpecError, match="more than once|job="):
                forebay.Loader(str(hundred), PIPELINE, rank=1, **keys)
        with forebay.Loader(str(hundred), PIPELINE, rank=0, job="a", **keys) as a0, forebay.Loader(str(hundred), PIPELINE, rank=0, job="b", **keys) as b0, \
                forebay.Loader(str(hundred), PIPELINE, rank=1, job="b", **keys) as b1, forebay.Loader(str(hundred), PIPELINE, rank=1, job="a", **keys) as a1:
            for one, other in ((a0, a1), (b0, b1)):
                assert sorted(int(i) for loader in (one, other) for batch in loader for i in numpy.asarray(batch.ids)) == list(range(100))


@pytest.mark.parametrize("order", ["shared", "strict"])
def test_a_job_goes_on_under_another_id(hundred, tmp_path, order):
    with Server(tmp_path / "server") as server:
        states, before = [], []
        with Rank(hundred, server.socket, ranks=2, rank=0, order=order, job="1.0") as one, \
                Rank(hundred, server.socket, ranks=2, rank=1, order=order, job="1.0") as two:
            for rank in (one, two):
                before.append(rank.ask("take", 3))
            states = [rank.ask("state") for rank in (one, two)]
        with Rank(hundred, server.socket, ranks=2, rank=0, order=order, job="2.0") as one, \
                Rank(hundred, server.socket, ranks=2, rank=1, order=order, job="2.0") as two:
            for twice in range(2):  # rolled back to it once more: the Loader's own rank of before is no other job's
                assert [rank.ask("load", state) for rank, state in zip((one, two), states)] == ["loaded"] * 2
                one.send("take")
                two.send("take")
                assert all_of(*before, one.read(), two.read()) == list(range(100))


def test_job_ids_of_launchers():
    def job(**environment):
        return launch.detect(environment).job

    elastic = torchrun(0, 29400, TORCHELASTIC_RUN_ID="search", TORCHELASTIC_RESTART_COUNT="0")
    jobs = [job(**elastic), job(**{**elastic, "TORCHELASTIC_RESTART_COUNT": "1"}), job(**{**elastic, "TORCHELASTIC_RUN_ID": "other"}),
            job(**{**elastic, "MASTER_PORT": "29401"}), job(**torchrun(0, 29400)), job(**torchrun(0, 29401))]
    jobs += [job(SLURM_PROCID="0", SLURM_NTASKS="2", SLURM_JOB_ID="7", SLURM_STEP_ID=step) for step in "01"]
    jobs += [job(OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2", PMIX_NAMESPACE=name) for name in ("prterun-1@1", "prterun-2@1")]
    jobs += [job(OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2", OMPI_MCA_ess_base_jobid=name) for name in ("15", "16")]
    jobs += [job(PMI_RANK="0", PMI_SIZE="2", PMI_JOBID=name) for name in ("15", "16")]
    assert len(set(jobs)) == len(jobs) and all(jobs), jobs
    for rank in range(2):
        assert job(**{**elastic, "RANK": str(rank)}) == jobs[0], "all ranks of a job have its id"
    assert job(PMI_RANK="0", PMI_SIZE="2") == job(RANK="0", WORLD_SIZE="2") == ""
    mixed = {"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    assert job(**mixed) == jobs[6], "by the first launcher that has one"
    assert len(job(**{**elastic, "TORCHELASTIC_RUN_ID": "x" * 9999})) <= launch.JOB_MOST


@pytest.mark.parametrize("job", ["", "x" * 257, 7])
def test_wrong_job_ids(hundred, job):
    with pytest.raises(forebay.SpecError, match="job: .* 1 to 256 bytes"):
        forebay.Loader(str(hundred), PIPELINE, ranks=2, rank=0, job=job)


def test_run_twice_at_a_time(hundred, tmp_path):
    """`forebay run` gives the ranks that it starts an id: two runs of a spec, and a spec that is given twice, are four jobs."""
    spec = write_spec(tmp_path / "s.yaml", hundred, order="shared", pipeline=FIXED, epochs=2, ranks=2)
    with Server(tmp_path / "server") as server:
        runs = [subprocess.Popen([FOREBAY, "run", "--quiet", "--json", "--socket", server.socket, spec, spec], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True) for _ in range(2)]
        for run in runs:
            out, errors = run.communicate(timeout=60)
            assert run.returncode == 0, errors


# --- ranks that never meet -----------------------------------------------------------------------------------------------


def shown(server):
    return subprocess.run([FOREBAY, "status", "--socket", server.socket], capture_output=True, check=True, text=True, timeout=30).stdout


def test_one_that_waits_says_for_whom(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, pipeline=FIXED, ranks=12)
    with Server(tmp_path / "server") as server, Probe(spec, server, rank=2) as probe, Probe(spec, server, rank=4):
        answer = probe.ask("next 300")
        assert answer["error"] == ETIMEDOUT and answer["text"].endswith("0.300 s: ranks 0-1, 3, 5-11 of 12 haven't come"), answer
        assert "WAITS      ranks 0-1, 3, 5-11 of 12 haven't come" in shown(server)
        assert [task["missing_ranks"] for task in server.status()["tasks"]] == [[0, 1, 3, *range(5, 12)]] * 2
        assert probe.ask("next 0")["error"] == ETIMEDOUT


@pytest.mark.parametrize("keys, words", [
    ({"batch": {"size": 17}}, "its batch size is 17, this one's 16"), ({"seed": 3}, "its `seed` is 3, this one's 0"),
    ({"order": "strict"}, "its `order` is strict, this one's shared"), ({"ranks": 3}, "its `ranks` is 3, this one's 2"),
    ({"pipeline": ["decode", {"resize": {"size": [20, 20]}}]}, "its pipeline differs"), ({"on_error": "skip"}, "its spec's text differs")])
def test_one_that_waits_says_what_waits_as_well(hundred, tmp_path, keys, words):
    base = {"order": "shared", "pipeline": FIXED, "ranks": 2, "batch": {"size": 16}}
    spec = write_spec(tmp_path / "s.yaml", hundred, **base)
    with Server(tmp_path / "server") as server, Probe(spec, server, rank=0) as one:
        write_spec(spec, hundred, **{**base, **keys})
        with Probe(spec, server, rank=1) as two:
            text = one.ask("next 300")["text"]
            assert f"rank 1 of 2 hasn't come; rank 1 of another task waits here too, process {two.pid}: {words}" in text, text
            assert "rank 0 of another task waits here too" in two.ask("next 300")["text"]


def test_one_that_waits_knows_other_jobs_and_names(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, pipeline=FIXED, ranks=2)
    other = write_spec(tmp_path / "o.yaml", hundred, pipeline=FIXED, ranks=2)
    with Server(tmp_path / "server") as server, Probe(spec, server, rank=0, job="a") as one:
        with Probe(spec, server, rank=0, job="b"):
            assert "rank 0 of another task waits here too" in (text := one.ask("next 300")["text"]) and "its job id is b, this one's a" in text
        with Probe(other, server, rank=1, job="a") as two:
            assert f"its name is {other}, this one's {spec}" in one.ask("next 1300")["text"]
            assert two.ask("next 300")["error"] == ETIMEDOUT
        with Probe(spec, server, rank=1, job="a") as two:  # and then it comes
            assert len(one.ask("next")["ids"]) == len(two.ask("next")["ids"]) == 8
            assert server.status()["tasks"][0]["awaits"] is None and "WAITS" not in shown(server)


def test_a_notice_of_the_library_comes_once(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, pipeline=FIXED, ranks=2)
    with Server(tmp_path / "server") as server, Probe(spec, server, rank=0, notice_ms=300, stderr=subprocess.PIPE) as probe:
        assert probe.ask("next 200")["error"] == probe.ask("next 1500")["error"] == probe.ask("next 1000")["error"] == ETIMEDOUT
        probe.send("quit")
        said = probe.process.stderr.read().splitlines()
        assert len(said) == 1 and "rank 1 of 2 hasn't come" in said[0] and said[0].startswith(f"notice: {spec}: no batch for "), said


def test_a_waiting_loader_warns_once(hundred, tmp_path):
    """By default after half a minute: as a warning of the line that waits, whether there is a timeout or not."""
    script = tmp_path / "script.py"
    script.write_text("""
import sys, warnings
import forebay.loader
forebay.loader._NOTICE_S = 0.3
loader = forebay.Loader(sys.argv[1], ["decode", {"resize": {"size": [24, 24]}}], ranks=2, rank=1, socket=sys.argv[2], mode="running")
for images, labels in loader:  # waits here
    break
print("came", len(labels))
""")
    with Server(tmp_path / "server") as server:
        waits = subprocess.Popen([os.sys.executable, "-u", script, hundred, server.socket], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = waits.stderr.readline()
        assert f"{script}:6: RuntimeWarning: Loader: no batch for " in line and "rank 0 of 2 hasn't come" in line, line
        time.sleep(1.5)
        with forebay.Loader(str(hundred), ["decode", {"resize": {"size": [24, 24]}}], ranks=2, rank=0, socket=server.socket, mode="running") as loader:
            next(iter(loader))
            out, errors = waits.communicate(timeout=30)
        assert out == "came 50\n" and errors.count("Warning") == 0, errors
        with forebay.Loader(str(hundred), ["decode", {"resize": {"size": [24, 24]}}], ranks=2, rank=0, socket=server.socket, mode="running",
                            timeout=0.4) as loader, pytest.raises(forebay.TimeoutError, match="no batch within 0.4 s: rank 1 of 2 hasn't come"):
            next(iter(loader))


# --- ranks that leave ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [{"order": "shared"}, {"order": "strict"}, {"order": "shared", "drop_last": True}, {"batch_echo": 2},
                                  {"order": "strict", "batch_echo": 1.5}])
@pytest.mark.parametrize("leave_open", [False, True])
def test_a_rank_that_is_through_leaves_the_others_their_epoch(pictures, tmp_path, keys, leave_open):
    """One `for` over one epoch, no `epochs`: the slower rank's part is larger than its window, and all of it comes."""
    with Server(tmp_path / "server") as server, Rank(pictures, server.socket, ranks=2, rank=0, **keys) as slow, \
            Rank(pictures, server.socket, ranks=2, rank=1, leave_open=leave_open, **keys) as fast:
        before = slow.ask("take", 2)
        whole = fast.ask("take")
        assert whole[1] == "epoch"
        fast.end()
        eventually(lambda: len(server.status()["tasks"]) == 1)
        rest = slow.ask("take")
        assert rest[1] == "epoch" and len(before[0]) + len(rest[0]) == len(whole[0]), rest[1]
        seen = set(all_of(before, rest, whole))
        assert len(seen) == (304 if "drop_last" in keys else 310)
        ids, why = slow.ask("take")
        assert not ids and why[0] == "ClosedError", why
        assert f"rank 1 of this task is gone: its client, process {fast.process.pid}" in why[1] and "after epoch 0; epoch 1 needs it" in why[1]
        assert "`epochs`" in why[1]
        assert server.status()["audit"]["sound"]


def test_what_was_drawn_beyond_the_last_whole_epoch_does_not_come(hundred, tmp_path):
    """Epochs smaller than the window: the next ones lie in the slower rank's ring already when the other leaves."""
    with Server(tmp_path / "server") as server, Rank(hundred, server.socket, ranks=3, rank=0) as slow, Rank(hundred, server.socket, ranks=3, rank=1) as fast, \
            Rank(hundred, server.socket, ranks=3, rank=2) as third:
        before = slow.ask("take", 1)
        whole = [fast.ask("take"), third.ask("take")]
        ahead = third.ask("take", 2)
        eventually(lambda: all(task["epoch"] >= 1 for task in server.status()["tasks"]))
        fast.end()
        eventually(lambda: len(server.status()["tasks"]) == 2)
        ids, why = third.ask("take")
        assert len(ids) < 5 - 2 and why[0] == "ClosedError" and "rank 1" in why[1] and "epoch 1 needs it" in why[1], why
        third.end()
        eventually(lambda: len(server.status()["tasks"]) == 1)
        rest = slow.ask("take")
        assert rest[1] == "epoch" and len(ahead[0]) == 2
        assert set(all_of(before, rest, *whole)) == set(range(100))
        ids, why = slow.ask("take")
        assert len(ids) < 5 and why[0] == "ClosedError" and "rank 1" in why[1], why
        assert server.status()["audit"]["sound"]


@pytest.mark.parametrize("epochs", [None, 1, 3])
@pytest.mark.parametrize("large", [False, True])
def test_a_rank_that_dies_within_its_part_ends_the_epoch(hundred, pictures, tmp_path, epochs, large):
    """Also where all of the others' parts had been delivered: what it lost is said before their epoch is over."""
    folder = pictures if large else hundred
    with Server(tmp_path / "server") as server, Rank(folder, server.socket, ranks=2, rank=0, epochs=epochs) as slow, \
            Rank(folder, server.socket, ranks=2, rank=1, epochs=epochs) as fast:
        slow.ask("take", 2)
        fast.ask("take", 3)
        eventually(lambda: all(task["pending_draws"] == 0 and task["delivered_batches"] >= 7 for task in server.status()["tasks"]))
        fast.process.kill()
        eventually(lambda: len(server.status()["tasks"]) == 1)
        ids, why = slow.ask("take")
        assert len(ids) < (20 if large else 7) - 2 and why[0] == "ClosedError", (ids, why)
        assert "rank 1" in why[1] and f"in epoch 0, after 3 of its {20 if large else 7} batches" in why[1], why
        assert server.status()["audit"]["sound"]


def test_ranks_that_all_have_their_last_epoch_end_as_they_like(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, pipeline=FIXED, ranks=2, epochs=2)
    with Server(tmp_path / "server") as server, Probe(spec, server, rank=0) as slow:
        with Probe(spec, server, rank=1) as fast:
            assert [b.get("error") for b in fast.batches()] == [None] * 14 + [EEND]
        eventually(lambda: len(server.status()["tasks"]) == 1)
        assert [b.get("error") for b in slow.batches()] == [None] * 14 + [EEND]
        with Probe(spec, server, rank=1) as late:  # it is another run's
            assert "rank 0 of 2 hasn't come" in late.ask("next 300")["text"]
        assert slow.ask("next")["error"] == EEND


def test_a_rank_that_leaves_before_all_have_come_ends_the_wait(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, pipeline=FIXED, ranks=3)
    with Server(tmp_path / "server") as server, Probe(spec, server, rank=0) as one:
        with Probe(spec, server, rank=1) as two:
            assert two.ask("next 100")["error"] == ETIMEDOUT
        answer = one.ask("next")
        assert answer["error"] == ECLOSED and "rank 1" in answer["text"] and "before all ranks were there" in answer["text"], answer
        with Probe(spec, server, rank=0) as refused:
            assert refused.opened.get("error") != EINVAL, "the failed one is in nobody's way"
