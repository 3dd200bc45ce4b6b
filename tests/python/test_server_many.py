"""Many tasks over one data set: each gets what it would get alone, and the node does the work once."""

import collections
import json
import os
import pathlib
import random
import signal
import time

import pytest
from PIL import Image
from processes import EEND, ESAMPLE, Probe, Server, descriptors, eventually, hundred, is_over, write_spec  # noqa: F401

pytestmark = pytest.mark.usefixtures("surroundings")

SCALE = float(os.environ.get("FOREBAY_TEST_SCALE", "1"))
ROUNDS = int(400 * SCALE)  # of two tasks that share their draws: enough for windows to weigh nothing
SMALL = ["decode", {"random_resized_crop": {"size": 32}}, "random_horizontal_flip", {"normalize": "imagenet"}]
LARGER = ["decode", {"random_resized_crop": {"size": 48}}, {"normalize": "imagenet"}]
FIXED = ["decode", {"resize": {"size": [40, 40]}}, {"to": {"dtype": "u8", "layout": "hwc"}}]


@pytest.fixture(scope="session")
def many(tmp_path_factory):
    """2,003 tiny JPEGs in 7 classes."""
    folder = tmp_path_factory.mktemp("many")
    for number in range(2003):
        name = folder / f"c{number % 7}"
        name.mkdir(exist_ok=True)
        Image.new("RGB", (20 + number % 5, 18), (number % 256, number // 8 % 256, 90)).save(name / f"{number:04}.jpg", quality=80)
    return folder


def of_epoch(batches, epoch):
    return [i for b in batches if b["epoch"] == epoch for i in b["ids"]]


def everything(probe):
    batches = probe.batches()
    assert batches.pop()["error"] == EEND
    return batches


def turns(probes, count=None):
    """Takes from all in turn, until each has ended or had `count` batches: lists of batches."""
    taken = [[] for _ in probes]
    going = set(range(len(probes)))
    while going:
        for number in sorted(going):
            answer = probes[number].ask("next")
            if "error" in answer:
                assert answer["error"] == EEND, answer
                going.discard(number)
                continue
            taken[number].append(answer)
            probes[number].ask(f"release {answer['batch']}")
            if count and len(taken[number]) == count:
                going.discard(number)
    return taken


def source(server):
    task = server.status()["tasks"][0]
    return task["draws"], task["drawn"]


@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_equal_tasks_share_every_draw(many, tmp_path, tasks):
    specs = [write_spec(tmp_path / f"{n}.yaml", many, order="shared", pipeline=SMALL, batch={"size": 64}, epochs=2) for n in range(tasks)]
    with Server(tmp_path / "server") as server:
        probes = [Probe(spec, server) for spec in specs]
        taken = turns(probes, 60)
        _, drawn = source(server)
        status = server.status()
        for batches in taken:
            assert sorted(of_epoch(batches, 0)) == list(range(2003))
        delivered = sum(task["delivered_samples"] for task in status["tasks"])
        assert drawn <= delivered / tasks + 64 * 2 * tasks, "they ride along"
        assert status["engine"]["samples"] <= drawn
        contiguous = sum(task["contiguous_batches"] for task in status["tasks"]) / sum(task["delivered_batches"] for task in status["tasks"])
        assert contiguous > 0.9
        for probe in probes:
            assert probe.close() == 0
        eventually(lambda: not server.status()["tasks"] and server.status()["memory"]["used"] == 0)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("order", ["shared", "strict"])
def test_batch_sizes_that_do_not_fit(many, tmp_path, order, drop_last):
    sizes = [32, 48, 64, 96, 100]
    specs = [write_spec(tmp_path / f"{size}.yaml", many, order=order, seed=size, pipeline=SMALL if size % 3 else FIXED, epochs=2,
                        batch={"size": size, "drop_last": drop_last}) for size in sizes]
    with Server(tmp_path / "server") as server:
        probes = [Probe(spec, server) for spec in specs]
        for size, probe, batches in zip(sizes, probes, turns(probes)):
            for epoch in range(2):
                ids = of_epoch(batches, epoch)
                assert len(ids) == len(set(ids)) == (2003 - 2003 % size if drop_last else 2003)
                lengths = [len(b["ids"]) for b in batches if b["epoch"] == epoch]
                assert lengths == [size] * (2003 // size) + ([] if drop_last else [2003 % size])
                assert [b["index"] for b in batches if b["epoch"] == epoch] == list(range(len(lengths)))
            probe.close()


def digest(batches):
    return [(b["epoch"], b["index"], b["ids"], b["labels"], b["flags"], b["hash"]) for b in batches]


def strict_round(hundred, folder, chance):
    strict = [write_spec(folder / f"strict{n}.yaml", hundred, order=order, seed=n // 2, pipeline=pipeline, epochs=6, batch={"size": size})
              for n, (order, pipeline, size) in enumerate([("strict", SMALL, 8), ("strict", LARGER, 8), ("strict", SMALL, 12),
                                                           ("sequential", FIXED, 10), ("strict", SMALL, 8)])]
    alone = []
    for n, spec in enumerate(strict):
        with Server(folder / f"alone{n}") as server, Probe(spec, server) as probe:
            alone.append(digest(everything(probe)))
    others = [write_spec(folder / f"other{n}.yaml", hundred, order=chance.choice(["shared", "strict"]), seed=n, epochs=None,
                         pipeline=chance.choice([SMALL, LARGER, FIXED]), batch={"size": chance.choice([4, 8, 20, 33])}) for n in range(6)]
    with Server(folder / "server", "--workers", chance.choice([1, 2, 5])) as server:
        probes = [Probe(spec, server) for spec in strict]
        got, going, guests = [[] for _ in probes], set(range(len(probes))), []
        while going:
            number = chance.choice(sorted(going))
            answer = probes[number].ask("next")
            if "error" in answer:
                assert answer["error"] == EEND, answer
                going.discard(number)
                continue
            got[number].append(answer)
            probes[number].ask(f"release {answer['batch']}")
            what = chance.random()
            if what < 0.15 and len(guests) < 5:
                guests.append(Probe(chance.choice(others), server))
            elif guests and what < 0.30:
                chance.choice(guests).batches(chance.randrange(1, 6))
            elif guests and what < 0.36:
                guest = guests.pop(chance.randrange(len(guests)))
                if what < 0.32:
                    guest.kill()
                elif what < 0.34:
                    os.kill(guest.pid, signal.SIGSTOP)
                    time.sleep(0.01)
                    os.kill(guest.pid, signal.SIGCONT)
                    guest.kill()
                else:
                    guest.close()
        for guest in guests:
            guest.kill()
        for number, batches in enumerate(got):
            assert digest(batches) == alone[number], number
            probes[number].close()
        eventually(lambda: not server.status()["tasks"] and server.status()["memory"]["used"] == 0)


@pytest.mark.slow
def test_strict_tasks_get_the_bytes_that_they_get_alone(hundred, tmp_path):
    """Whatever joins, leaves, is stopped or killed beside them: a minute of rounds, an hour in the long run. The seed is printed."""
    seed = int(os.environ.get("FOREBAY_TEST_SEED", random.randrange(1 << 32)))
    print("seed", seed)
    chance = random.Random(seed)
    until, number = time.monotonic() + 60 * (3 * SCALE if SCALE > 1 else 1), 0
    while number == 0 or time.monotonic() < until:
        folder = tmp_path / str(number)
        folder.mkdir()
        strict_round(hundred, folder, chance)
        number += 1
    print(number, "rounds")


def test_branches_get_the_pixels_that_they_get_alone(hundred, tmp_path):
    """One decoding, three forks of the graph."""
    specs = [write_spec(tmp_path / f"{n}.yaml", hundred, order="strict", pipeline=pipeline, epochs=3, batch={"size": 20})
             for n, pipeline in enumerate([SMALL, LARGER, FIXED])]
    alone = []
    for n, spec in enumerate(specs):
        with Server(tmp_path / f"alone{n}") as server, Probe(spec, server) as probe:
            alone.append(digest(everything(probe)))
    with Server(tmp_path / "server") as server:
        probes = [Probe(spec, server) for spec in specs]
        assert [digest(batches) for batches in turns(probes)] == alone
        for probe in probes:
            probe.close()


def sleeping_at_half(probes, rounds, beside):
    """`rounds` batches of each, in step; then all sleep as long as that took: the node could do twice as much. `beside(round)` is called in
    between."""
    taken = [[] for _ in probes]
    for number in range(rounds):
        begin = time.monotonic()
        for probe in probes:
            probe.send("next 60000")
        for batches, probe in zip(taken, probes):
            batches.append(probe.read())
            probe.ask(f"release {batches[-1]['batch']}")
        beside(number)
        time.sleep(time.monotonic() - begin)
    return taken


def drawn_beside(neighbour, many, folder):
    """What the node draws while two tasks take ROUNDS batches each beside a neighbour, a function of (probe, round), or None; and what each of
    them gets."""
    folder.mkdir()
    spec = write_spec(folder / "s.yaml", many, order="shared", pipeline=FIXED, epochs=None, batch={"size": 50})
    with Server(folder / "server") as server:
        other = Probe(spec, server) if neighbour else None
        probes = [Probe(spec, server) for _ in range(2)]
        taken = turns(probes + ([other] if other else []), 10)[:2]
        before = source(server)[1]
        more = sleeping_at_half(probes, ROUNDS, lambda number: other and neighbour(other, number))
        drawn = source(server)[1] - before
        for first, second in zip(taken, more):
            batches = first + second
            for epoch in range(batches[-1]["epoch"]):
                assert sorted(of_epoch(batches, epoch)) == list(range(2003)), "as alone"
        for probe in (*probes, *([other] if other else [])):
            if probe.process.poll() is None:
                probe.process.send_signal(signal.SIGCONT)
                probe.close()
    return drawn, sum(len(b["ids"]) for b in more[0])


def takes_every_third(probe, number):
    if number % 3 == 0:
        probe.batches(1)


def is_stopped(probe, number):
    if number == 0:
        os.kill(probe.pid, signal.SIGSTOP)


def is_killed(probe, number):
    if number == ROUNDS // 2:
        probe.kill()
    elif number < ROUNDS // 2:
        probe.batches(1)


def test_others_get_what_they_would_get_alone(many, tmp_path):
    """Beside a task three times slower, one that is stopped and one that is killed: within 3%, counted in what the node draws, whatever
    else the machine does."""
    alone, got_alone = drawn_beside(None, many, tmp_path / "alone")
    assert abs(alone - got_alone) <= 0.03 * got_alone, "two share all their draws"
    for neighbour in (takes_every_third, is_stopped, is_killed):
        beside, got = drawn_beside(neighbour, many, tmp_path / neighbour.__name__)
        assert abs(got / beside - got_alone / alone) <= 0.03 * got_alone / alone, (neighbour.__name__, got, beside, got_alone, alone)


def test_a_task_that_stopped_goes_on_and_nothing_is_left_of_one_that_died(many, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", many, order="shared", pipeline=FIXED, epochs=None, batch={"size": 50})
    with Server(tmp_path / "server") as server:
        stopped, killed, first, second = probes = [Probe(spec, server) for _ in range(4)]
        for probe in probes:
            probe.batches(3)
        os.kill(stopped.pid, signal.SIGSTOP)
        killed.kill()
        taken = turns([first, second], 100)
        for batches in taken:
            for epoch in range(1, batches[-1]["epoch"]):
                assert sorted(of_epoch(batches, epoch)) == list(range(2003))
        os.kill(stopped.pid, signal.SIGCONT)
        late = stopped.batches(100)
        assert sorted(of_epoch(late, 1)) == list(range(2003))
        for probe in (stopped, first, second):
            probe.close()
        eventually(lambda: not server.status()["tasks"] and server.status()["memory"]["used"] == 0)


def test_slow_tasks_ride_with_fast_ones(many, tmp_path):
    """The node draws at the rate of its fastest task."""
    spec = write_spec(tmp_path / "s.yaml", many, order="shared", pipeline=FIXED, epochs=None, batch={"size": 50})
    with Server(tmp_path / "server") as server:
        fast, slow, slower = probes = [Probe(spec, server) for _ in range(3)]
        got = [[], [], []]
        for step in range(240):
            got[0] += fast.batches(1)
            if step % 2 == 0:
                got[1] += slow.batches(1)
            if step % 3 == 0:
                got[2] += slower.batches(1)
        assert source(server)[1] < 240 * 50 * 1.1 + 600
        for batches in got:
            for epoch in range(batches[-1]["epoch"]):
                assert sorted(of_epoch(batches, epoch)) == list(range(2003))
        for probe in probes:
            probe.close()


def test_parts_that_overlap(many, tmp_path):
    """Tasks over different parts of one data set: each its own, what both have is done once."""
    parts = [[0, 0.6], [0.4, 1], [0, 1]]
    specs = [write_spec(tmp_path / f"{n}.yaml", many, order="shared", pipeline=FIXED, epochs=3, batch={"size": 40}, split={"part": part})
             for n, part in enumerate(parts)]
    with Server(tmp_path / "server") as server:
        probes = [Probe(spec, server) for spec in specs]
        assert [probe.opened["opened"]["samples"] for probe in probes] == [1202, 1202, 2003]
        taken = turns(probes)
        sets = [[set(of_epoch(batches, epoch)) for epoch in range(3)] for batches in taken]
        for number, batches in enumerate(taken):
            for epoch in range(3):
                ids = of_epoch(batches, epoch)
                assert len(ids) == len(set(ids)) == probes[number].opened["opened"]["samples"]
            assert sets[number][0] == sets[number][1] == sets[number][2]
        assert sets[0][0] | sets[1][0] == sets[2][0] == set(range(2003))
        for probe in probes:
            probe.close()


def test_two_data_sets_in_one_server(hundred, many, tmp_path):
    specs = [write_spec(tmp_path / f"{n}.yaml", folder, order="shared", pipeline=FIXED, epochs=2, batch={"size": 25})
             for n, folder in enumerate([hundred, many, hundred, many])]
    with Server(tmp_path / "server") as server:
        probes = [Probe(spec, server) for spec in specs]
        for number, batches in enumerate(turns(probes)):
            for epoch in range(2):
                assert sorted(of_epoch(batches, epoch)) == list(range([100, 2003][number % 2]))
        for probe in probes:
            probe.close()


def test_memory_comes_with_joins_and_goes_with_ends(many, tmp_path):
    """Segments are made for who joins, and unmapped by all once nobody needs them."""
    small = write_spec(tmp_path / "s.yaml", many, order="shared", pipeline=FIXED, epochs=None, batch={"size": 20})
    large = write_spec(tmp_path / "l.yaml", many, order="shared", pipeline=FIXED, epochs=None, batch={"size": 200})
    with Server(tmp_path / "server") as server, Probe(small, server) as stays:
        stays.batches(2)
        alone = server.status()["memory"]["used"]
        for _ in range(5):
            guest = Probe(large, server)
            turns([stays, guest], 12)
            assert server.status()["memory"]["used"] > alone
            guest.close()
            stays.batches(12)
            eventually(lambda: stays.batches(3) and server.status()["memory"]["used"] == alone)
        eventually(lambda: stays.batches(3) and len([line for line in open(f"/proc/{stays.pid}/maps") if "forebay" in line]) <= 4)


def test_failing_and_skipping_tasks_side_by_side(hundred, tmp_path):
    """A bad sample is each task's own affair: one fails over it, others take another in its place."""
    folder = tmp_path / "spoiled"
    import shutil
    shutil.copytree(hundred, folder)
    bad = {10, 50, 77}
    for number, path in enumerate(sorted(folder.glob("*/*.jpg"))):
        if number in bad:
            path.write_bytes(b"GIF89a")
    specs = [write_spec(tmp_path / f"{n}.yaml", folder, order=order, pipeline=SMALL, epochs=3, batch={"size": size}, on_error="skip", max_errors=5)
             for n, (order, size) in enumerate([("shared", 8), ("shared", 8), ("strict", 8), ("shared", 20)])]
    fails = write_spec(tmp_path / "fails.yaml", folder, order="shared", pipeline=SMALL, epochs=3, batch={"size": 8})
    with Server(tmp_path / "server") as server:
        probes = [Probe(spec, server) for spec in specs]
        loser = Probe(fails, server)
        ended = loser.batches()[-1]
        assert ended["error"] == ESAMPLE and ended["sample"] in bad
        for number, batches in enumerate(turns(probes)):
            for epoch in range(3):
                ids = of_epoch(batches, epoch)
                flags = [flag for b in batches if b["epoch"] == epoch for flag in b["flags"]]
                assert len(ids) == 100 and not bad & set(ids)
                seen = collections.Counter(ids)
                assert len(seen) == 97 and sum(seen.values()) == 100
                assert sum(1 for flag in flags if flag & 4) == 3 or number != 2
                assert sum(1 for flag in flags if flag & 2) == 3, "what comes twice is flagged"
        for probe in [*probes, loser]:
            probe.close()
        eventually(lambda: not server.status()["tasks"] and server.status()["memory"]["used"] == 0)


def test_sixty_four_tasks_and_no_more(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, order="shared", pipeline=FIXED, epochs=None, batch={"size": 4})
    with Server(tmp_path / "server") as server:
        before = descriptors(server.pid)
        probes = [Probe(spec, server) for _ in range(64)]
        assert all("opened" in probe.opened for probe in probes)
        with Probe(spec, server) as one_more:
            assert "64 tasks" in one_more.opened["text"]
        for batches in turns(probes, 3):
            assert len(batches) == 3
        probes.pop().close()
        eventually(lambda: len(server.status()["tasks"]) == 63)
        with Probe(spec, server) as another:
            assert len(another.batches(30)) == 30
        for probe in probes:
            probe.kill()
        eventually(lambda: not server.status()["tasks"] and descriptors(server.pid) == before and server.status()["memory"]["used"] == 0)


def test_a_closed_client_that_lives_keeps_what_it_holds(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, order="strict", pipeline=SMALL, epochs=None, batch={"size": 8}, window=16)
    with Server(tmp_path / "server") as server, Probe(spec, server) as holder:
        held = [holder.ask("next") for _ in range(4)]
        holder.ask("close")
        with Probe(spec, server) as other:
            other.batches(60)
            for batch in held:
                assert holder.ask(f"hash {batch['batch']}")["hash"] == batch["hash"], "nobody else has written there"
            for batch in held:
                holder.ask(f"release {batch['batch']}")
            other.batches(3)
        eventually(lambda: server.status()["memory"]["used"] == 0)


def test_ids_of_a_file_and_classes(many, tmp_path):
    (tmp_path / "ids.txt").write_text("# odd\n" + "".join(f"{i}\n" for i in range(1, 2003, 2)))
    odd = write_spec(tmp_path / "odd.yaml", many, order="shared", pipeline=FIXED, split={"ids": "ids.txt"}, batch={"size": 30})
    classes = write_spec(tmp_path / "classes.yaml", many, order="shared", pipeline=FIXED, split={"classes": ["c1", "c5"]}, batch={"size": 30})
    with Server(tmp_path / "server") as server:
        probes = [Probe(odd, server), Probe(classes, server)]
        of_odd, of_classes = turns(probes)
        assert sorted(of_epoch(of_odd, 0)) == list(range(1, 2003, 2))
        assert {label for b in of_classes for label in b["labels"]} == {1, 5}
        for probe in probes:
            probe.close()
    wrong = write_spec(tmp_path / "wrong.yaml", many, split={"classes": ["c9"]})
    with Server(tmp_path / "server2") as server, Probe(wrong, server) as probe:
        assert "c9" in probe.opened["text"] and json.dumps(probe.opened)


# --- ranks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order, drop_last", [("shared", False), ("strict", False), ("sequential", True), ("shared", True)])
def test_ranks_share_an_epoch(many, tmp_path, order, drop_last):
    """Equal parts, padded by flagged repeats; a job of one client beside them rides along."""
    spec = write_spec(tmp_path / "s.yaml", many, order=order, pipeline=FIXED, epochs=2, ranks=4, batch={"size": 30, "drop_last": drop_last})
    with Server(tmp_path / "server") as server:
        probes = [Probe(spec, server, rank=rank) for rank in range(4)]
        part = 501 - (501 % 30 if drop_last else 0)
        assert [probe.opened["opened"]["samples"] for probe in probes] == [part] * 4
        taken = turns(probes)
        for epoch in range(2):
            ids = [of_epoch(batches, epoch) for batches in taken]
            assert [len(of_rank) for of_rank in ids] == [part] * 4
            seen = collections.Counter(i for of_rank in ids for i in of_rank)
            padded = sum(1 for batches in taken for b in batches if b["epoch"] == epoch for flag in b["flags"] if flag & 1)
            if drop_last:
                assert set(seen.values()) == {1} and padded == 0
            else:
                assert len(seen) == 2003 and sum(seen.values()) == 2004 and padded == 1
            if order == "sequential":
                assert ids[1][:3] == [1, 5, 9], "as DistributedSampler deals them"
        for probe in probes:
            probe.close()
        eventually(lambda: not server.status()["tasks"] and server.status()["memory"]["used"] == 0)


def test_ranks_wait_for_each_other(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, order="shared", pipeline=FIXED, epochs=2, ranks=2, batch={"size": 10})
    with Server(tmp_path / "server") as server:
        first = Probe(spec, server, rank=0)
        assert first.ask("next 300")["error"] == -110 or "no batch" in first.ask("next 300")["text"]
        with Probe(spec, server, rank=2) as third:
            assert "rank 2 of a task of 2" in third.opened["text"]
        second = Probe(spec, server, rank=1)
        a, b = turns([first, second])
        assert sorted(of_epoch(a, 0) + of_epoch(b, 0)) == list(range(100))
        for probe in (first, second):
            probe.close()


def test_two_jobs_of_the_same_spec_have_ranks_of_their_own(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, order="shared", pipeline=FIXED, epochs=2, ranks=2, batch={"size": 10})
    with Server(tmp_path / "server") as server:
        probes = [Probe(spec, server, rank=rank, job=job) for rank, job in ((0, "a"), (0, "b"), (1, "b"), (1, "a"))]
        taken = turns(probes)
        for a, b in ((0, 3), (1, 2)):
            assert sorted(of_epoch(taken[a], 0) + of_epoch(taken[b], 0)) == list(range(100))
        for probe in probes:
            probe.close()


def test_a_rank_that_dies_ends_the_others(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, order="shared", pipeline=FIXED, epochs=None, ranks=3, batch={"size": 10})
    other = write_spec(tmp_path / "o.yaml", hundred, order="shared", pipeline=FIXED, epochs=None, batch={"size": 10})
    with Server(tmp_path / "server") as server, Probe(other, server) as bystander:
        probes = [Probe(spec, server, rank=rank) for rank in range(3)]
        turns([*probes, bystander], 5)
        probes.pop(1).kill()
        for probe in probes:
            ended = probe.batches()[-1]
            assert "rank 1" in ended["text"], ended
            probe.close()
        assert len(bystander.batches(40)) == 40


def test_a_rank_gives_up_its_part_of_an_epoch_alone(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, order="shared", pipeline=FIXED, epochs=3, ranks=2, batch={"size": 10})
    with Server(tmp_path / "server") as server:
        probes = [Probe(spec, server, rank=rank) for rank in range(2)]
        turns(probes, 2)
        assert "error" not in probes[0].ask("abandon")
        nexts = turns(probes)
        assert {b["epoch"] for b in nexts[0]} == {1, 2} and {b["epoch"] for b in nexts[1]} == {0, 1, 2}
        for epoch in (1, 2):
            assert sorted(of_epoch(nexts[0], epoch) + of_epoch(nexts[1], epoch)) == list(range(100))
        for probe in probes:
            probe.close()


# --- opening and closing -----------------------------------------------------------------------------------------------


def test_tasks_open_and_close_without_end(hundred, tmp_path):
    """500 in one process (10,000 in the long run), beside a task that stays: descriptors, threads and memory are as before."""
    import forebay

    def life(times):
        for number in range(times):
            with forebay.Loader(str(hundred), FIXED, batch_size=8, order=["shared", "strict"][number % 2], socket=server.socket, mode="running") as loader:
                if number % 3:
                    next(iter(loader))

    def measured():
        return descriptors(server.pid), descriptors(os.getpid()), len(os.listdir(f"/proc/{server.pid}/task")), server.status()["memory"]["used"]

    spec = write_spec(tmp_path / "s.yaml", hundred, order="shared", pipeline=FIXED, epochs=None, batch={"size": 8})
    with Server(tmp_path / "server") as server, Probe(spec, server) as stays:
        stays.batches(3)
        life(20)
        eventually(lambda: stays.batches(1) and len(server.status()["tasks"]) == 1)
        before = measured()
        life(int(500 * SCALE))
        eventually(lambda: stays.batches(1) and all(now <= then for now, then in zip(measured(), before)))


@pytest.mark.usefixtures("surroundings")
def test_embedded_servers_come_and_go(hundred):
    """10 in one process (200 in the long run), one after the other: descriptors, threads, children and sockets are as before."""
    import forebay

    folder = pathlib.Path(os.environ["XDG_RUNTIME_DIR"]) / "forebay"

    def life():
        with forebay.Loader(str(hundred), FIXED, batch_size=8, mode="embedded") as loader:
            assert len(next(iter(loader)).ids) == 8
            server = loader.server_pid
        os.kill(server, signal.SIGTERM)
        eventually(lambda: is_over(server))
        return server

    def measured():
        return descriptors(os.getpid()), len(os.listdir("/proc/self/task")), sorted(path.name for path in folder.iterdir())

    def children():
        return {int(pid) for task in pathlib.Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}

    ours = children()
    servers = [life(), life()]
    before = measured()
    servers += [life() for _ in range(int(10 * SCALE))]
    assert len(set(servers)) == len(servers), "each had one of its own"
    assert measured() == before
    assert children() <= ours, "a server is nobody's child"
