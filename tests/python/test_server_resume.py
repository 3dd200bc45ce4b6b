"""A task goes on where it was: by its state, in another process and on another server; and by itself, where its server is killed under it."""

import os
import random
import signal
import subprocess
import time

import pytest
from processes import EEND, EINVAL, ELOST, ETIMEDOUT, EVERSION, EWINDOW, Probe, Server, hundred, write_spec  # noqa: F401

pytestmark = pytest.mark.usefixtures("surroundings")

ORDERS = ["shared", "strict", "sequential"]
REPEAT, SUBSTITUTE = 2, 4


def whole(spec, server):
    """Every batch of an uninterrupted run."""
    with Probe(spec, server) as probe:
        batches = probe.batches()
        assert batches.pop()["error"] == EEND
        return batches


def places(batches):
    return [(b["epoch"], b["index"], b["last"]) for b in batches]


def content(batches):
    return [(b["epoch"], b["index"], b["hash"], b["ids"], b["labels"], b["flags"]) for b in batches]


def epochs_are_whole(batches, epochs, ids=range(100)):
    for epoch in range(epochs):
        assert sorted(i for b in batches if b["epoch"] == epoch for i in b["ids"]) == list(ids), epoch


@pytest.mark.parametrize("order", ORDERS)
def test_a_task_goes_on_from_any_batch_on_another_server(hundred, tmp_path, order):
    spec = write_spec(tmp_path / "s.yaml", hundred, order=order, epochs=2, batch={"size": 16})
    with Server(tmp_path / "one", "--workers", 1) as one, Server(tmp_path / "two", "--workers", 2) as two:
        expected = whole(spec, one)
        with Probe(spec, one) as probe:
            before = []
            for stop in range(len(expected) + 1):
                assert probe.ask(f"state {tmp_path / 'state'}")["state"] < 200
                with Probe(spec, two, state=tmp_path / "state") as resumed:
                    after = resumed.batches()
                    assert after.pop()["error"] == EEND
                    assert places(before + after) == places(expected), stop
                    epochs_are_whole(before + after, 2)
                    if order != "shared":
                        assert content(after) == content(expected[stop:])
                    # What it is after its end, too.
                    assert resumed.ask(f"state {tmp_path / 'end'}")["state"] > 0
                with Probe(spec, two, state=tmp_path / "end") as ended:
                    assert ended.ask("next")["error"] == EEND
                before += probe.batches(1)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("keys", [{"batch": {"size": 16, "drop_last": True}}, {"split": {"part": 0.7, "seed": 3}}])
def test_parts_of_a_data_set_go_on(hundred, tmp_path, order, keys):
    spec = write_spec(tmp_path / "s.yaml", hundred, order=order, epochs=3, **keys)
    with Server(tmp_path / "server") as server:
        expected = whole(spec, server)
        per_epoch = len(expected) // 3
        for stop in (1, per_epoch - 1, per_epoch, per_epoch + 2):
            with Probe(spec, server) as probe:
                before = probe.batches(stop)
                probe.ask(f"state {tmp_path / 'state'}")
            with Probe(spec, server, state=tmp_path / "state") as probe:
                after = probe.batches()
                assert after.pop()["error"] == EEND
            assert places(before + after) == places(expected)
            for epoch in range(3):
                ids = [i for b in before + after if b["epoch"] == epoch for i in b["ids"]]
                assert len(set(ids)) == len(ids) == sum(len(b["ids"]) for b in expected if b["epoch"] == epoch)
            if order != "shared":
                assert content(after) == content(expected[stop:])


def test_resumed_tasks_share_with_others_and_resume_again(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, order="shared", epochs=4)
    random.seed(7)
    with Server(tmp_path / "server") as server, Probe(write_spec(tmp_path / "t.yaml", hundred, order="shared", epochs=None), server) as other:
        taken, state = [], None
        while True:
            with Probe(spec, server, state=state) as probe:
                state = tmp_path / "state"
                more = probe.batches(random.randrange(1, 9))
                other.batches(random.randrange(1, 5))
                probe.ask(f"state {state}")
                if "error" in more[-1]:
                    assert more.pop()["error"] == EEND
                    taken += more
                    break
                taken += more
        epochs_are_whole(taken, 4)
        assert places(taken) == [(e, i, i == 12) for e in range(4) for i in range(13)]


def test_random_ops_draw_afresh_after_a_resume(hundred, tmp_path):
    """One picture, cropped at random: no crop of the former life comes again."""
    (tmp_path / "data" / "ash").mkdir(parents=True)
    (tmp_path / "data" / "ash" / "000.jpg").write_bytes((hundred / "ash" / "000.jpg").read_bytes())
    spec = write_spec(tmp_path / "s.yaml", tmp_path / "data", order="shared", epochs=None, batch={"size": 1})
    with Server(tmp_path / "one") as one, Server(tmp_path / "two") as two:
        with Probe(spec, one) as probe:
            before = {b["hash"] for b in probe.batches(20)}
            probe.ask(f"state {tmp_path / 'state'}")
        with Probe(spec, two, state=tmp_path / "state") as probe:
            after = {b["hash"] for b in probe.batches(20)}
        assert len(before) == len(after) == 20 and not before & after


def test_an_epoch_that_was_given_up_stays_so(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, order="strict", epochs=2)
    with Server(tmp_path / "server") as server:
        expected = whole(spec, server)
        with Probe(spec, server) as probe:
            probe.batches(3)
            assert probe.ask("abandon") == {"abandoned": True}
            probe.ask(f"state {tmp_path / 'state'}")
        with Probe(spec, server, state=tmp_path / "state") as probe:
            assert content(probe.batches()[:-1]) == content(expected[13:])
        # One that goes on may be given up as well: its first batch came in another life.
        with Probe(spec, server) as probe:
            probe.batches(3)
            probe.ask(f"state {tmp_path / 'state'}")
        with Probe(spec, server, state=tmp_path / "state") as probe:
            assert probe.ask("abandon") == {"abandoned": True}
            assert content(probe.batches()[:-1]) == content(expected[13:])


@pytest.mark.parametrize("order", ["shared", "strict"])
def test_bad_samples_are_replaced_after_a_resume_too(hundred, tmp_path, order):
    folder = tmp_path / "data"
    for picture in sorted(hundred.glob("*/*.jpg")):
        (folder / picture.parent.name).mkdir(parents=True, exist_ok=True)
        number = int(picture.stem)
        (folder / picture.parent.name / picture.name).write_bytes(b"no picture" if number % 9 == 4 else picture.read_bytes())
    bad = {n for n in range(100) if n % 9 == 4}
    spec = write_spec(tmp_path / "s.yaml", folder, order=order, epochs=1, on_error="skip", max_errors=50)
    with Server(tmp_path / "server") as server:
        expected = whole(spec, server)
        for stop in range(1, 13):
            with Probe(spec, server) as probe:
                before = probe.batches(stop)
                probe.ask(f"state {tmp_path / 'state'}")
            with Probe(spec, server, state=tmp_path / "state") as probe:
                after = probe.batches()
                assert after.pop()["error"] == EEND
            assert places(before + after) == places(expected)
            once = [i for b in before + after for i, flag in zip(b["ids"], b["flags"]) if not flag & REPEAT]
            # What stood in as a repeat may have been drawn by then, but not delivered: the state counts it as had.
            assert len(set(once)) == len(once) and {i for b in before + after for i in b["ids"]} == set(range(100)) - bad
            if order == "strict":
                assert [b["hash"] for b in after] == [b["hash"] for b in expected[stop:]]


# --- ranks -----------------------------------------------------------------------------------------------------------


class Ranks:
    """The ranks of one task, who take their batches in step."""

    def __init__(self, spec, server, count=3, states=None, **options):
        self.probes = [Probe(spec, server, rank=rank, state=states and states / str(rank), **options) for rank in range(count)]

    def ask(self, lines):
        for probe, line in zip(self.probes, lines if isinstance(lines, list) else [lines] * len(self.probes)):
            probe.send(line)
        return [probe.read() for probe in self.probes]

    def step(self):
        """The next batch of each, or what ended it."""
        answers = self.ask("next 60000")
        if all("batch" in answer for answer in answers):
            self.ask([f"release {answer['batch']}" for answer in answers])
        return answers

    def steps(self, count=None):
        taken = []
        while count is None or len(taken) < count:
            answers = self.step()
            if any("error" in answer for answer in answers):
                assert count is None and {answer.get("error") for answer in answers} == {EEND}, answers
                break
            taken.append(answers)
        return taken

    def save(self, folder):
        folder.mkdir(exist_ok=True)
        self.ask([f"state {folder / str(rank)}" for rank in range(len(self.probes))])
        return folder

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for probe in self.probes:
            probe.close()


def by_rank(steps):
    return [content(answers) for answers in zip(*steps)]


def parts_are_right(steps, epochs, order, drop_last=False):
    """Each id of an epoch once over all ranks, but for flagged padding."""
    for epoch in range(epochs):
        ids = [i for answers in steps for b in answers if b["epoch"] == epoch for i, flag in zip(b["ids"], b["flags"]) if not flag]
        assert len(set(ids)) == len(ids) == (96 if drop_last else 100), (epoch, order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_go_on(hundred, tmp_path, order, drop_last):
    spec = write_spec(tmp_path / "s.yaml", hundred, order=order, epochs=2, ranks=3, batch={"size": 8, "drop_last": drop_last})
    with Server(tmp_path / "one", "--workers", 1) as one, Server(tmp_path / "two") as two:
        with Ranks(spec, one) as ranks:
            expected = ranks.steps()
        half = len(expected) // 2
        for stop in (0, 1, half - 1, half, half + 1, 2 * half):
            with Ranks(spec, one) as ranks:
                before = ranks.steps(stop)
                states = ranks.save(tmp_path / "states")
            with Ranks(spec, two, states=states) as ranks:
                after = ranks.steps()
            assert [places(answers) for answers in before + after] == [places(answers) for answers in expected], stop
            parts_are_right(before + after, 2, order, drop_last)
            if order != "shared":
                assert by_rank(after) == by_rank(expected[stop:])


@pytest.mark.parametrize("order", ORDERS)
def test_ranks_between_two_batches_go_on(hundred, tmp_path, order):
    """One rank has had a batch more than another: also the last of an epoch, or all of a part that it gave up."""
    spec = write_spec(tmp_path / "s.yaml", hundred, order=order, epochs=2, ranks=2, batch={"size": 8})
    with Server(tmp_path / "server") as server:
        for stop in range(7):
            with Ranks(spec, server, 2) as ranks:
                before = [b for answers in ranks.steps(stop) for b in answers]
                before += ranks.probes[1].batches(1)
                states = ranks.save(tmp_path / "states")
            with Ranks(spec, server, 2, states=states) as ranks:
                before += ranks.probes[0].batches(1)
                after = ranks.steps()
            parts_are_right([before, *after], 2, order)
        with Ranks(spec, server, 2) as ranks:
            before = [b for answers in ranks.steps(3) for b in answers]
            assert ranks.probes[1].ask("abandon") == {"abandoned": True}
            states = ranks.save(tmp_path / "states")
        with Ranks(spec, server, 2, states=states) as ranks:
            before += ranks.probes[0].batches(4)
            after = ranks.steps()
        ids = [i for b in before for i, flag in zip(b["ids"], b["flags"]) if not flag]
        assert len(set(ids)) == len(ids) and all(b["epoch"] == 0 for b in before)
        assert {b["epoch"] for answers in after for b in answers} == {1}


def test_ranks_out_of_step_are_refused(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, ranks=2, epochs=3)
    with Server(tmp_path / "server") as server:
        with Ranks(spec, server, 2) as ranks:
            ranks.steps(3)
            early = ranks.save(tmp_path / "early")
            ranks.steps(8)
            late = ranks.save(tmp_path / "late")
        with Probe(spec, server, state=early / "0", rank=0) as first, Probe(spec, server, state=late / "1", rank=1) as second:
            for text in (first.ask("next")["text"], second.opened["text"]):
                assert "rank 1 goes on at sample 32 of epoch 1, but rank 0 at sample 24 of epoch 0" in text
        answer = refusal(spec, server, early / "1")
        assert answer["error"] == EINVAL and "rank 1, this one has 0" in answer["text"], answer


@pytest.mark.parametrize("order", ORDERS)
def test_ranks_whose_server_dies_go_on_from_their_states(hundred, tmp_path, order):
    """Told not to wait for another: two jobs of one spec at a time, whose ranks find each other again and not the other job's."""
    spec = write_spec(tmp_path / "s.yaml", hundred, order=order, epochs=3, ranks=2)
    with Standing(tmp_path / "server") as standing:
        with Ranks(spec, standing, 2) as ranks:
            expected = ranks.steps()
        taken = {}
        with Ranks(spec, standing, 2, reconnect=0, job="one") as one, Ranks(spec, standing, 2, reconnect=0, job="two") as two:
            for name, ranks, ahead in (("one", one, 11), ("two", two, 4)):
                taken[name] = ranks.steps(ahead)
            standing.kill()
            for name, ranks in (("one", one), ("two", two)):
                answers = ranks.step()
                while all("batch" in answer for answer in answers):
                    taken[name].append(answers)
                    answers = ranks.step()
                for rank, answer in enumerate(answers):  # one may have had a batch more
                    if "batch" in answer:
                        taken[name].append([answer])
                    else:
                        assert answer["error"] == ELOST, answer
                ranks.save(tmp_path / name)
        standing.start()
        with Probe(spec, standing, rank=0, state=tmp_path / "one" / "0") as one, Probe(spec, standing, rank=1, state=tmp_path / "two" / "1") as other:
            assert one.ask("next 200")["error"] == other.ask("next 200")["error"] == ETIMEDOUT, "they aren't of one job"
        with Ranks(spec, standing, 2, states=tmp_path / "one") as one, Ranks(spec, standing, 2, states=tmp_path / "two") as two:
            for name, ranks in (("one", one), ("two", two)):
                going = list(ranks.probes)
                while going:  # by turns: one alone would wait for the other's part once its window is full
                    for probe in list(going):
                        answer = probe.ask("next")
                        if "batch" in answer:
                            probe.ask(f"release {answer['batch']}")
                            taken[name].append([answer])
                        else:
                            assert answer["error"] == EEND, answer
                            going.remove(probe)
                parts_are_right(taken[name], 3, order)
                if order != "shared":
                    assert sorted(content(b for answers in taken[name] for b in answers)) == sorted(content(b for answers in expected for b in answers))


# --- what is refused -------------------------------------------------------------------------------------------------


def refusal(spec, server, state):
    probe = Probe(spec, server, state=state)
    probe.close()  # a SIGCONT, as the end of a `with` sends it, would hold up a leak checker in a process that ends by itself
    return probe.opened


def test_a_state_of_another_task_is_refused_by_name(hundred, pictures, tmp_path):
    keys = {"order": "strict", "epochs": 3}
    spec = write_spec(tmp_path / "s.yaml", hundred, **keys)
    crop = ["decode", {"center_crop": 32}, {"to": {"dtype": "f32", "layout": "chw"}}]
    state = tmp_path / "state"
    with Server(tmp_path / "server") as server:
        with Probe(spec, server) as probe:
            probe.batches(15)
            probe.ask(f"state {state}")
        for words, dataset, other in [("data set of samples: 100, this one has 310", pictures, {}), ("order: strict, this one has order: shared", hundred, {"order": "shared"}),
                                      ("seed 0, this one has 1", hundred, {"seed": 1}), ("batches of 8, this one has 9", hundred, {"batch": {"size": 9}}),
                                      ("drop_last: 0, this one has 1", hundred, {"batch": {"size": 8, "drop_last": True}}),
                                      ("another `split`", hundred, {"split": {"part": 0.5}}), ("another pipeline", hundred, {"pipeline": crop}),
                                      ("another pipeline, echo, steps_per_epoch or augment_seed", hundred, {"augment_seed": 5}),
                                      ("in epoch 1, but the task ends after 1 epochs", hundred, {"epochs": 1})]:
            answer = refusal(write_spec(tmp_path / "other.yaml", dataset, **{**keys, **other}), server, state)
            assert answer.get("error") == EINVAL and words in answer["text"] and "other.yaml" in answer["text"], answer
        # What may differ.
        with Probe(write_spec(tmp_path / "t.yaml", hundred, **{**keys, "epochs": 2, "window": 5, "on_error": "skip"}), server, state=state) as probe:
            assert places(probe.batches()[:-1]) == [(1, i, i == 12) for i in range(2, 13)]

        # The same names, another size of a file.
        copy = tmp_path / "copy"
        subprocess.run(["cp", "-r", hundred, copy], check=True)
        assert "opened" in refusal(write_spec(tmp_path / "other.yaml", copy, **keys), server, state), "the same data elsewhere"
        with open(copy / "ash" / "000.jpg", "ab") as file:
            file.write(b"x")
        answer = refusal(write_spec(tmp_path / "other.yaml", copy, **keys), server, state)
        assert answer.get("error") == EINVAL and "another data set, of fingerprint" in answer["text"], answer


def test_damaged_states_are_refused(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, order="shared")
    state, wrong = tmp_path / "state", tmp_path / "wrong"
    with Server(tmp_path / "server") as server:
        with Probe(spec, server) as probe:
            probe.batches(5)
            probe.ask(f"state {state}")
        good = state.read_bytes()
        assert "opened" in refusal(spec, server, state)
        for length in (0, 1, 15, 16, 100, len(good) - 1):
            wrong.write_bytes(good[:length])
            answer = refusal(spec, server, wrong)
            assert answer["error"] == EINVAL and ("no state" in answer["text"] or "cut" in answer["text"]), answer
        wrong.write_bytes(good + b"12345678")
        assert refusal(spec, server, wrong)["error"] == EINVAL
        for at in range(len(good)):
            wrong.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1:])
            assert refusal(spec, server, wrong)["error"] == (EVERSION if 8 <= at < 12 else EINVAL), at


# --- lost servers ----------------------------------------------------------------------------------------------------


class Standing:
    """A server that is killed and started again at the same place."""

    def __init__(self, folder):
        self.folder = folder
        self.server = Server(folder)
        self.socket = self.server.socket

    def kill(self):
        self.server.process.kill()
        self.server.process.wait()

    def start(self):
        self.server = Server(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop()


@pytest.mark.parametrize("order", ORDERS)
def test_a_running_client_does_not_notice_that_servers_die(hundred, tmp_path, order):
    """Killed at random moments; the client holds batches meanwhile, and gives them back after."""
    spec = write_spec(tmp_path / "s.yaml", hundred, order=order, epochs=4)
    random.seed(order)
    with Standing(tmp_path / "server") as standing:
        expected = whole(spec, standing.server)
        with Probe(spec, standing, reconnect=30) as probe:
            taken, held, kills = [], [], 0
            while True:
                if kills < 5 and random.random() < 0.12:
                    time.sleep(random.random() * 0.02)
                    standing.kill()
                    standing.start()
                    kills += 1
                answer = probe.ask("next 60000")
                if "error" in answer:
                    assert answer["error"] == EEND, answer
                    break
                taken.append(answer)
                held.append(answer)
                while len(held) > random.randrange(3):
                    back = held.pop(random.randrange(len(held)))
                    assert probe.ask(f"hash {back['batch']}")["hash"] == back["hash"]
                    probe.ask(f"release {back['batch']}")
        assert kills == 5
        assert places(taken) == places(expected)
        epochs_are_whole(taken, 4)
        if order != "shared":
            assert content(taken) == content(expected)


@pytest.mark.parametrize("life", range(int(os.environ.get("FOREBAY_TEST_SCALE", "1"))))
@pytest.mark.parametrize("order", ORDERS)
def test_ranks_do_not_notice_that_servers_die(hundred, tmp_path, order, life):
    """Killed at random moments of a step: before it, or when some ranks have their batch and won't ask for another until all do."""
    spec = write_spec(tmp_path / "s.yaml", hundred, order=order, epochs=4, ranks=3)
    random.seed(f"{order}, {life}")
    with Standing(tmp_path / "server") as standing:
        with Ranks(spec, standing) as ranks:
            expected = ranks.steps()
        with Ranks(spec, standing, reconnect=30) as ranks:
            taken, deaths = [], random.sample(range(len(expected)), 5)
            while len(taken) < len(expected):
                answers = {}
                if len(taken) in deaths:
                    first = random.sample(range(3), random.randrange(4))
                    for rank in first:
                        answers[rank] = ranks.probes[rank].ask("next 60000")
                    waiting = [rank for rank in range(3) if rank not in first and random.random() < 0.5]
                    for rank in waiting:  # these may wait already when it dies, or have got theirs just before
                        ranks.probes[rank].send("next 60000")
                    time.sleep(random.random() * 0.01)
                    standing.kill()
                    standing.start()
                    answers.update((rank, ranks.probes[rank].read()) for rank in waiting)
                rest = [rank for rank in range(3) if rank not in answers]
                for rank in rest:
                    ranks.probes[rank].send("next 60000")
                answers.update((rank, ranks.probes[rank].read()) for rank in rest)
                assert all("batch" in answer for answer in answers.values()), answers
                taken.append([answers[rank] for rank in range(3)])
                for rank, answer in answers.items():
                    assert ranks.probes[rank].ask(f"hash {answer['batch']}")["hash"] == answer["hash"]
                    ranks.probes[rank].ask(f"release {answer['batch']}")
            assert {answer["error"] for answer in ranks.step()} == {EEND}
        assert [places(answers) for answers in taken] == [places(answers) for answers in expected]
        parts_are_right(taken, 4, order)
        if order != "shared":
            assert by_rank(taken) == by_rank(expected)
        assert standing.server.status()["audit"]["sound"]


def test_ranks_of_two_jobs_find_their_own(hundred, tmp_path):
    """Of one spec, at different places of it; the server that comes in between dies as soon as some have asked it."""
    spec = write_spec(tmp_path / "s.yaml", hundred, order="strict", epochs=3, ranks=2)
    with Standing(tmp_path / "server") as standing:
        with Ranks(spec, standing, 2) as ranks:
            expected = ranks.steps()
        with Ranks(spec, standing, 2, reconnect=30, job="one") as one, Ranks(spec, standing, 2, reconnect=30, job="two") as two:
            taken = [one.steps(9), two.steps(2)]
            standing.kill()
            one.probes[1].process.send_signal(signal.SIGSTOP)
            standing.start()
            time.sleep(0.3)
            standing.kill()
            standing.start()
            one.probes[1].process.send_signal(signal.SIGCONT)
            for ranks, before in zip((one, two), taken):
                assert by_rank(before + ranks.steps()) == by_rank(expected)


def test_ranks_wait_for_each_other_and_not_for_ever(hundred, tmp_path):
    """One dies with the server: the others are told so, and who doesn't wait that long is told the time."""
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None, ranks=3)
    with Standing(tmp_path / "server") as standing, Ranks(spec, standing, reconnect=2) as ranks:
        ranks.steps(3)
        pid = standing.server.pid
        standing.kill()
        ranks.probes[2].kill()
        standing.start()
        answers = [probe.batches()[-1] for probe in ranks.probes[:2]]
        for answer in answers:
            assert (answer["error"], answer["pid"]) == (ELOST, pid), answer
        assert any("of its 3 ranks not all came to the next server within 2 s" in answer["text"] for answer in answers), answers
        states = ranks.probes[0].ask(f"state {tmp_path / 'state'}")
        assert states["state"] > 0, "it can still be had"


@pytest.mark.parametrize("order", ["shared", "strict"])
def test_ranks_start_an_embedded_server_again(hundred, tmp_path, order):
    spec = write_spec(tmp_path / "s.yaml", hundred, order=order, epochs=3, ranks=2)
    with Ranks(spec, None, 2, reconnect=30) as ranks:
        taken = []
        for _ in range(3):
            taken += ranks.steps(5)
            taken.append([ranks.probes[0].ask("next 60000")])
            os.kill(ranks.probes[0].ask("status")["pid"], signal.SIGKILL)
            taken[-1].append(ranks.probes[1].ask("next 60000"))
        taken += ranks.steps()
        parts_are_right(taken, 3, order)
        assert all(len({(b["epoch"], b["index"]) for b in answers}) == 1 for answers in taken)


def test_a_wait_goes_on_when_the_server_comes_back(hundred, tmp_path):
    """The client waits within one call while there is no server, and says so to who waits less."""
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    with Standing(tmp_path / "server") as standing, Probe(spec, standing, reconnect=30) as probe:
        before = probe.batches(5)
        standing.kill()
        answer = probe.ask("next 300")
        while "batch" in answer:  # what was delivered before it died
            before.append(answer)
            probe.ask(f"release {answer['batch']}")
            answer = probe.ask("next 300")
        assert answer["error"] == ETIMEDOUT and "successor isn't ready" in answer["text"], answer
        probe.send("next 30000")
        time.sleep(0.5)
        standing.start()
        answer = probe.read()
        assert (answer["epoch"], answer["index"]) == divmod(len(before), 13)
        # The status comes from where the batches come from.
        assert probe.ask("status")["pid"] == standing.server.pid


def test_an_epoch_is_given_up_without_a_server(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=2)
    with Standing(tmp_path / "server") as standing:
        expected = whole(spec, standing.server)
        with Probe(spec, standing, reconnect=30) as probe:
            probe.batches(3)
            standing.kill()
            assert probe.ask("abandon") == {"abandoned": True}
            standing.start()
            assert content(probe.batches()[:-1]) == content(expected[13:])


def test_who_waits_in_vain_is_told(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    with Standing(tmp_path / "server") as standing, Probe(spec, standing, reconnect=1) as probe:
        pid = standing.server.pid
        probe.batches(3)
        standing.kill()
        started = time.monotonic()
        answer = probe.batches()[-1]
        assert (answer["error"], answer["pid"]) == (ELOST, pid) and "no server" in answer["text"], answer
        assert 0.8 < time.monotonic() - started < 4
        assert probe.ask("next")["error"] == ELOST, "for good"
        assert probe.ask(f"state {tmp_path / 'state'}")["state"] > 0
        standing.start()
        with Probe(spec, standing, state=tmp_path / "state") as resumed:
            assert "batch" in resumed.ask("next")


def test_a_successor_with_other_data_is_refused(hundred, tmp_path):
    data = tmp_path / "data"
    subprocess.run(["cp", "-r", hundred, data], check=True)
    spec = write_spec(tmp_path / "s.yaml", data, epochs=None)
    with Standing(tmp_path / "server") as standing, Probe(spec, standing, reconnect=30) as probe:
        probe.batches(3)
        standing.kill()
        (data / "ash" / "000.jpg").unlink()
        standing.start()
        answer = probe.batches()[-1]
        assert answer["error"] == ELOST and "data set of samples: 100, this one has 99" in answer["text"], answer


def test_batches_held_when_the_server_died_still_fill_the_window(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None, batch={"size": 64}, window=3)
    with Standing(tmp_path / "server") as standing, Probe(spec, standing, reconnect=30) as probe:
        held = [probe.ask("next"), probe.ask("next")]
        standing.kill()
        standing.start()
        held.append(probe.ask("next"))
        assert probe.ask("next")["error"] == EWINDOW
        for batch in held:
            assert probe.ask(f"hash {batch['batch']}")["hash"] == batch["hash"]
            assert probe.ask(f"release {batch['batch']}") == {"released": batch["batch"]}
        assert all("batch" in answer for answer in probe.batches(20))


@pytest.mark.parametrize("order", ORDERS)
def test_embedded_servers_are_started_again(hundred, tmp_path, order):
    spec = write_spec(tmp_path / "s.yaml", hundred, order=order, epochs=3)
    random.seed(order)
    with Probe(spec, reconnect=30) as one, Probe(spec, reconnect=30) as two:
        server = one.opened["opened"]["server"]
        taken = {one: [], two: []}
        for _ in range(3):
            for probe in random.sample([one, two], 2):
                taken[probe] += probe.batches(random.randrange(8))
            os.kill(server, signal.SIGKILL)
            for probe in random.sample([one, two], 2):
                taken[probe] += probe.batches(4)
            server = one.ask("status")["pid"]
            assert two.ask("status")["pid"] == server, "one server serves all"
        for probe in taken:
            taken[probe] += probe.batches()
            assert taken[probe].pop()["error"] == EEND
            assert places(taken[probe]) == [(e, i, i == 12) for e in range(3) for i in range(13)]
            epochs_are_whole(taken[probe], 3)
        if order != "shared":
            assert content(taken[one]) == content(taken[two])


def test_a_server_that_dies_again_and_again_is_given_up(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None, order="strict")
    with Probe(spec, reconnect=30) as probe:
        taken = 0
        for kill in range(6):
            server = probe.ask("status")["pid"]
            os.kill(server, signal.SIGKILL)
            answers = probe.batches(20)
            if kill < 5:
                assert all("batch" in answer for answer in answers), answers[-1]
                taken += 20
                assert (answers[-1]["epoch"], answers[-1]["index"]) == divmod(taken - 1, 13)
        assert answers[-1]["error"] == ELOST and "6 times within a minute" in answers[-1]["text"], answers[-1]
