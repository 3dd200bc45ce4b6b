"""steps_per_epoch: an echo that is auto, and an epoch of as many batches for each of several ranks, whatever their sources' and trainers' rates."""

import collections
import json
import os
import random
import subprocess
import threading
import time

import pytest
from processes import EEND, EINVAL, FOREBAY, Probe, Server, eventually, hundred, write_spec  # noqa: F401
from test_echo import AUGMENTED, REPEAT, echoed, thousand  # noqa: F401
from test_server_many import everything, turns

pytestmark = pytest.mark.usefixtures("surroundings")

PADDED = 1
SCALE = float(os.environ.get("FOREBAY_TEST_SCALE", "1"))


def span(samples, ranks, batch, most, drop_last=False):
    """(fresh samples of a rank's epoch, the least batches that it can have, the most)."""
    part = samples // ranks // batch * batch if drop_last else -(-samples // ranks)
    return part, -(-part // batch), int(part * most) // batch if drop_last else -(-int(part * most) // batch)


def check_job(taken, samples, epochs, steps, batch, most, drop_last=False, resumed=False):
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
            assert set(fresh.values()) == {1} and len(fresh) == samples, "each once, over all ranks"
        # A state says which ids came, not that one came as padding: more may come where one is gone on with.
        assert padded == part * ranks - len(fresh) or (resumed and padded > part * ranks - len(fresh))


def take_in_step(probes, pause, count=None, chance=random, holds=False):
    """As trainers that wait for each other: lists of batches. `pause`: seconds that a step takes, up to; `holds`: the last batch while they ask for the next."""
    taken, held = [[] for _ in probes], []
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
        held.append(answers)
        if len(held) > holds:
            for probe, answer in zip(probes, held.pop(0)):
                probe.ask(f"release {answer['batch']}")
    for answers in held:
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


def test_any_rates_ranks_steps_batches_and_buffers(thousand, tmp_path):
    chance = random.Random()
    seed = chance.randrange(1 << 32)
    print("seed", seed)
    chance.seed(seed)
    for number in range(int(10 * SCALE)):
        ranks, batch, most = chance.choice([1, 2, 3, 5]), chance.choice([3, 16, 64, 150]), chance.choice([1, 1.3, 2, 5])
        samples = chance.choice([1000, 1000, 200, 30, 3])
        drop_last, buffer, window = chance.random() < 0.3, chance.choice([1, 40, 5000]), chance.choice([None, 1, 2, 5])
        part, least, largest = span(samples, ranks, batch, most, drop_last)
        if not part:
            continue
        steps = chance.choice([least, chance.randint(least, largest), largest])
        pipeline = echoed(chance.choice([0, 1, 4]), factor="auto", max=most, buffer=buffer)
        keys = dict(split={"part": samples / 1000}, order="shared", ranks=ranks, steps_per_epoch=steps, epochs=2, window=window, batch={"size": batch, "drop_last": drop_last}, pipeline=pipeline)
        print(keys)
        spec = write_spec(tmp_path / "a.yaml", thousand, **keys)
        # Another task at the same echo, and one without, take what they can of the same draws.
        others = [write_spec(tmp_path / "b.yaml", thousand, order="shared", epochs=None, batch={"size": 20}, pipeline=echoed(1, factor=2, buffer=50)),
                  write_spec(tmp_path / "c.yaml", thousand, order="shared", epochs=None, batch={"size": 7}, pipeline=AUGMENTED)]
        with Server(tmp_path / f"s{number}", "--workers", chance.choice([1, 3])) as server:
            beside = [Probe(other, server) for other in others if chance.random() < 0.4]
            over = threading.Event()
            company = [threading.Thread(target=lambda probe=probe: [probe.batches(1) for _ in iter(over.is_set, True)]) for probe in beside]
            probes = [Probe(spec, server, rank=rank) for rank in range(ranks)]
            for thread in company:
                thread.start()
            holds = window != 1 and chance.random() < 0.5
            check_job(take_in_step(probes, chance.choice([0, 0, 0.003]), chance=chance, holds=holds), samples, 2, steps, batch, most, drop_last)
            over.set()
            for thread in company:
                thread.join()
            assert server.status()["audit"]["sound"]
            for probe in (*probes, *beside):
                probe.close()


def repeats_of(batches):
    return [sum(flags & REPEAT > 0 for flags in b["flags"]) for b in batches]


def test_a_slow_source_is_bridged(hundred, tmp_path):
    """A resize before the echo takes longer than the trainers' steps."""
    slow = ["decode", {"resize": {"size": [800, 800], "interpolation": "lanczos"}}, {"echo": {"factor": "auto", "max": 4}}, *AUGMENTED[1:]]
    spec = write_spec(tmp_path / "a.yaml", hundred, order="shared", ranks=2, steps_per_epoch=20, epochs=1, batch={"size": 10}, pipeline=slow)
    with Server(tmp_path / "server", "--workers", 1) as server:
        probes = [Probe(spec, server, rank=rank) for rank in range(2)]
        taken = take_in_step(probes, 0)
        check_job(taken, 100, 1, 20, 10, 4)
        assert server.status()["engine"]["files_read"] == 100
        for batches in taken:
            came = repeats_of(batches)
            assert sum(came[:10]) > 0 and set(came) == {0, 10}, came
        for probe in probes:
            probe.close()


def test_who_never_waits_gets_the_fresh_ones_first(hundred, tmp_path):
    spec = steps_spec(tmp_path / "a.yaml", hundred, 20, ranks=2, batch=10, buffer=1024, epochs=1)
    with Server(tmp_path / "server") as server:
        probes, taken = [Probe(spec, server, rank=rank) for rank in range(2)], [[], []]
        for _ in range(20):
            eventually(lambda: all(task["held_batches"] > 2 or task["batch_of_epoch"] > 17 for task in server.status()["tasks"]))
            for batches, one in zip(taken, take_in_step(probes, 0, count=1)):
                batches += one
        check_job(taken, 100, 1, 20, 10, 4)
        assert [repeats_of(batches) for batches in taken] == [[0] * 5 + [10] * 15] * 2
        for probe in probes:
            probe.close()


def test_repeats_are_spread_where_the_buffer_is_small(thousand, tmp_path):
    """Of 1000 fresh samples 3000 come again: with room for 20 to wait, not at the end."""
    spec = steps_spec(tmp_path / "a.yaml", thousand, 200, ranks=1, batch=20, most=4, buffer=20, epochs=1)
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        batches = everything(probe)
        assert server.status()["tasks"][0]["echo"]["dropped"] == 0
    check_job([batches], 1000, 1, 200, 20, 4)
    came = repeats_of(batches)
    for quarter in range(4):
        assert 600 <= sum(came[50 * quarter:50 * quarter + 50]) <= 900, came


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_states_go_on_at_any_batch(hundred, tmp_path, ranks):
    chance = random.Random()
    part, least, largest = span(100, ranks, 6, 3)
    for steps in (least, least + 3, largest):
        spec = steps_spec(tmp_path / "a.yaml", hundred, steps, ranks=ranks, batch=6, most=3, buffer=10)
        for cut in sorted(chance.sample(range(1, 2 * steps), 2)) + [chance.choice([steps - 1, steps])]:
            print(steps, cut)
            with Server(tmp_path / f"first{steps}-{cut}") as server:
                probes = [Probe(spec, server, rank=rank) for rank in range(ranks)]
                taken = take_in_step(probes, 0, count=cut)
                for rank, probe in enumerate(probes):
                    probe.ask(f"state {tmp_path}/state{rank}")
                    probe.close()
            with Server(tmp_path / f"second{steps}-{cut}") as server:
                probes = [Probe(spec, server, rank=rank, state=f"{tmp_path}/state{rank}") for rank in range(ranks)]
                for batches, rest in zip(taken, take_in_step(probes, 0)):
                    batches += rest
                for probe in probes:
                    probe.close()
            check_job(taken, 100, 2, steps, 6, 3, resumed=True)


def test_a_state_fits_its_number_of_steps_alone(hundred, tmp_path):
    spec = steps_spec(tmp_path / "a.yaml", hundred, 20, ranks=1, batch=8)
    with Server(tmp_path / "server") as server:
        with Probe(spec, server) as probe:
            probe.batches(3)
            probe.ask(f"state {tmp_path}/state")
        with Probe(steps_spec(tmp_path / "a.yaml", hundred, 21, ranks=1, batch=8), server, state=f"{tmp_path}/state") as probe:
            assert probe.opened["error"] == EINVAL and "steps_per_epoch" in probe.opened["text"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_killed_server_changes_no_number(hundred, tmp_path, ranks):
    spec = steps_spec(tmp_path / "a.yaml", hundred, 16, ranks=ranks, batch=7, most=4, buffer=20)
    for round, cut in enumerate(random.sample(range(1, 32), 2)):
        first = Server(tmp_path / f"server{round}")
        probes = [Probe(spec, first, rank=rank, reconnect=30) for rank in range(ranks)]
        taken = take_in_step(probes, 0.002, count=cut)
        first.process.kill()
        first.process.wait()
        first.socket.unlink(missing_ok=True)
        with Server(tmp_path / f"server{round}"):
            for batches, rest in zip(taken, take_in_step(probes, 0)):
                batches += rest
            check_job(taken, 100, 2, 16, 7, 4, resumed=True)
            for probe in probes:
                probe.close()


def test_a_killed_rank_ends_the_others_at_once(hundred, tmp_path):
    spec = steps_spec(tmp_path / "a.yaml", hundred, 30, ranks=3, batch=4, epochs=None)
    for cut in (0, 5, 17, 30):  # also while repeats alone are left
        with Server(tmp_path / f"server{cut}") as server:
            probes = [Probe(spec, server, rank=rank) for rank in range(3)]
            take_in_step(probes, 0, count=cut)
            probes[1].kill()
            begun = time.monotonic()
            for probe in (probes[0], probes[2]):
                end = probe.batches()[-1]
                assert "rank 1 of this task is gone" in end["text"], end
                probe.close()
            assert time.monotonic() - begun < 10
            eventually(lambda: not server.status()["tasks"])
            assert server.status()["audit"]["sound"]


def test_one_rank_gives_an_epoch_up(hundred, tmp_path):
    spec = steps_spec(tmp_path / "a.yaml", hundred, 30, ranks=1, batch=8, epochs=4)
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        for count in (3, 14, 27):
            probe.batches(count)
            probe.ask("abandon")
        batches = everything(probe)
    assert {b["epoch"] for b in batches} == {3}
    check_job([[{**b, "epoch": 0} for b in batches]], 100, 1, 30, 8, 4)


def test_bad_samples_leave_the_number_as_it_is(hundred, tmp_path):
    folder = tmp_path / "pictures"
    (folder / "a").mkdir(parents=True)
    for number, path in enumerate(sorted(hundred.glob("*/*.jpg"))):
        (folder / "a" / path.name).write_bytes(b"no picture" if number % 20 == 3 else path.read_bytes())
    spec = steps_spec(tmp_path / "a.yaml", folder, 20, ranks=2, batch=7, on_error="skip", max_errors=50)
    with Server(tmp_path / "server") as server:
        probes = [Probe(spec, server, rank=rank) for rank in range(2)]
        taken = take_in_step(probes, 0)
        for batches in taken:
            assert [(b["epoch"], b["index"], len(b["ids"])) for b in batches] == [(epoch, index, 7) for epoch in range(2) for index in range(20)]
        for epoch in range(2):
            came = collections.Counter(i for batches in taken for b in batches if b["epoch"] == epoch for i, flags in zip(b["ids"], b["flags"])
                                       if not flags & (REPEAT | PADDED))
            assert came == collections.Counter(i for i in range(100) if i % 20 != 3)
        assert server.status()["audit"]["sound"]
        for probe in probes:
            probe.close()


@pytest.mark.parametrize("keys, words", [
    ({"steps_per_epoch": 6}, ["a.yaml:", "steps_per_epoch: 6; an epoch for each of 2 ranks has 50 fresh samples: 7 batches of 8", "expected 7 to 25"]),
    ({"steps_per_epoch": 26}, ["steps_per_epoch: 26", "25 where each comes 4 times (`max`)", "expected 7 to 25", "larger `max`"]),
    ({"steps_per_epoch": 25, "drop_last": True}, ["48 fresh samples: 6 batches of 8", "expected 6 to 24"]),
    ({"steps_per_epoch": 2, "ranks": 1, "split": {"part": 0.4}}, ["an epoch has 40 fresh samples: 5 batches of 8", "expected 5 to 20"]),
    ({"steps_per_epoch": None}, ["pipeline.echo", "another number of steps", "expected steps_per_epoch"])])
def test_a_number_that_cannot_be_is_refused_with_those_that_can(hundred, tmp_path, keys, words):
    spec = steps_spec(tmp_path / "a.yaml", hundred, **{"steps": 1, "ranks": 2, "batch": 8, **{("steps" if key == "steps_per_epoch" else key): value for key, value in keys.items()}})
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        assert probe.opened["error"] == EINVAL
        assert all(word in probe.opened["text"] for word in words), probe.opened["text"]
    plan = subprocess.run([FOREBAY, "plan", spec], capture_output=True, text=True)
    assert plan.returncode and all(word in plan.stderr for word in words), plan.stderr


def test_plan_and_status_tell_it(hundred, tmp_path):
    spec = steps_spec(tmp_path / "a.yaml", hundred, 20, ranks=2, batch=8)
    plan = subprocess.run([FOREBAY, "plan", spec, spec], capture_output=True, text=True, check=True).stdout
    assert "20 batches of 8 an epoch for each of 2 ranks, with 50 fresh samples" in plan, plan
    document = json.loads(subprocess.run([FOREBAY, "plan", "--json", spec, spec], capture_output=True, text=True, check=True).stdout)
    assert {task["batches"] for graph in document["graphs"] for task in graph["tasks"]} == {20}
    with Server(tmp_path / "server") as server:
        probes = [Probe(spec, server, rank=rank) for rank in range(2)]
        take_in_step(probes, 0, count=5)
        for task in server.status()["tasks"]:
            assert task["batches_per_epoch"] == task["echo"]["steps_per_epoch"] == 20 and task["echo"]["factor"] == "auto"
        for probe in probes:
            probe.close()
