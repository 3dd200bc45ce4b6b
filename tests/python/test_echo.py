"""Echoes: each fresh sample once an epoch, and again as often as the factor says; whatever stands after the echo runs afresh."""

import collections
import os
import random
import re
import signal
import subprocess
import threading

import conftest
import pytest
from PIL import Image
from processes import EEND, FOREBAY, Probe, Server, eventually, hundred, write_spec  # noqa: F401
from test_server_many import digest, everything, turns
from test_server_crash import HITS, OF_ECHOES, CrashingServer, crash_at

pytestmark = pytest.mark.usefixtures("surroundings")

REPEAT = 2
AUGMENTED = ["decode", {"random_resized_crop": {"size": 24}}, "random_horizontal_flip", {"normalize": "imagenet"}]


@pytest.fixture(scope="session")
def thousand(tmp_path_factory):
    """1,000 tiny JPEGs."""
    folder = tmp_path_factory.mktemp("thousand") / "a"
    folder.mkdir()
    for number in range(1000):
        Image.new("RGB", (20 + number % 5, 18), (number % 256, number // 4, 90)).save(folder / f"{number:04}.jpg", quality=80)
    return folder.parent


def echoed(place, **echo):
    """The pipeline with an echo before its op number `place`."""
    return [*AUGMENTED[:place], {"echo": echo}, *AUGMENTED[place:]]


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


@pytest.mark.parametrize("order", ["shared", "strict"])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_what_stands_before_is_done_once_and_what_stands_after_afresh(hundred, tmp_path, place, order):
    spec = write_spec(tmp_path / "a.yaml", hundred, order=order, pipeline=echoed(place, factor=3, buffer=30), batch={"size": 1}, epochs=1)
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        batches = everything(probe)
        engine = server.status()["engine"]
        assert (engine["files_read"], engine["unread"]) == (100, 200)
    pixels = collections.defaultdict(set)
    for b in batches:
        pixels[b["ids"][0]].add(b["hash"])
    # Below the echo all is drawn anew: crops of a picture are hardly ever equal. Above it nothing is.
    drawn_anew = sum(len(hashes) == 3 for hashes in pixels.values())
    assert drawn_anew > 60 if place < 2 else drawn_anew == 0


@pytest.mark.parametrize("order", ["strict", "shared"])
def test_three_tasks_share_an_echo(thousand, tmp_path, order):
    specs = [write_spec(tmp_path / f"{n}.yaml", thousand, order=order, pipeline=echoed(1, factor=2, buffer=100), batch={"size": 20}, epochs=2) for n in range(3)]
    with Server(tmp_path / "server") as server:
        probes = [Probe(spec, server) for spec in specs]
        taken = turns(probes, 200)
        for batches in taken:
            for epoch in range(2):
                check_epoch(batches, epoch, range(1000), 2)
        engine = server.status()["engine"]
        assert engine["samples"] <= 4000 * 1.25, "fresh or again, what all are owed is done once: alone it were 12000"
        assert engine["files_read"] <= 2000 * 1.25
        for probe in probes:
            probe.close()


def test_a_task_without_the_echo_shares_what_is_fresh(thousand, tmp_path):
    with_echo = write_spec(tmp_path / "a.yaml", thousand, order="shared", pipeline=echoed(1, factor=2, buffer=100), batch={"size": 20}, epochs=3)
    without = write_spec(tmp_path / "b.yaml", thousand, order="shared", pipeline=AUGMENTED, batch={"size": 20}, epochs=3)
    with Server(tmp_path / "server") as server, Probe(with_echo, server) as a, Probe(without, server) as b:
        taken = {a: [], b: []}
        for step in range(300):
            for probe in (a, b) if step % 2 else (a,):
                taken[probe].append(probe.ask("next"))
                probe.ask(f"release {taken[probe][-1]['batch']}")
        for epoch in range(3):
            check_epoch(taken[a], epoch, range(1000), 2)
            check_epoch(taken[b], epoch, range(1000), 1)
        assert server.status()["engine"]["files_read"] <= 3000 * 1.2, "alone they would read 6000"


@pytest.mark.parametrize("factor", [1.5, 3])
def test_strict_bytes_are_the_same_alone_and_among_others(hundred, tmp_path, factor):
    spec = write_spec(tmp_path / "a.yaml", hundred, order="strict", seed=3, pipeline=echoed(1, factor=factor, buffer=25), batch={"size": 8}, epochs=3)
    twin = write_spec(tmp_path / "b.yaml", hundred, order="strict", seed=3, pipeline=echoed(1, factor=factor, buffer=25), batch={"size": 8}, epochs=3)
    other = write_spec(tmp_path / "c.yaml", hundred, order="shared", pipeline=echoed(1, factor=2, buffer=25), batch={"size": 12}, epochs=None)
    digests = []
    for workers in (1, 4):
        with Server(tmp_path / f"alone{workers}", "--workers", workers) as server, Probe(spec, server) as probe:
            digests.append(digest(everything(probe)))
    assert digests[0] == digests[1]
    chance = random.Random(int(factor))
    with Server(tmp_path / "server") as server, Probe(spec, server) as a, Probe(other, server) as guest:
        taken, b = {a: []}, None
        while len(taken) < 2 or not all(t and "error" in t[-1] for t in taken.values()):
            if not b and len(taken[a]) == 5:
                b = Probe(twin, server)
                taken[b] = []
            probe = chance.choice([p for p in (*taken, guest) if p is guest or not taken[p] or "error" not in taken[p][-1]])
            answer = probe.ask("next")
            if probe is not guest:
                taken[probe].append(answer)
            if "error" not in answer:
                probe.ask(f"release {answer['batch']}")
        for batches in taken.values():
            assert batches.pop()["error"] == EEND
            assert digest(batches) == digests[0]
        b.close()


@pytest.mark.parametrize("order", ["shared", "strict"])
@pytest.mark.parametrize("factor", [1.5, 2, 3.25])
def test_a_state_goes_on_in_the_middle_of_an_epoch(hundred, tmp_path, order, factor):
    spec = write_spec(tmp_path / "a.yaml", hundred, order=order, pipeline=echoed(1, factor=factor, buffer=20), batch={"size": 6}, epochs=2)
    per_epoch = -(-int(100 * factor) // 6)
    with Server(tmp_path / "whole") as server, Probe(spec, server) as probe:
        whole = digest(everything(probe))
    for cut in sorted(random.Random(factor).sample(range(1, 2 * per_epoch), 6)):
        with Server(tmp_path / f"first{cut}") as server, Probe(spec, server) as probe:
            first = probe.batches(cut)
            probe.ask(f"state {tmp_path}/state")
        with Server(tmp_path / f"second{cut}") as server, Probe(spec, server, state=f"{tmp_path}/state") as probe:
            batches = first + everything(probe)
        if order == "strict":
            assert digest(batches) == whole
        assert [(b["epoch"], b["index"]) for b in batches] == [(e, i) for e in range(2) for i in range(per_epoch)]
        for epoch in range(2):
            came = emissions(batches, epoch)
            assert sorted(i for i, flags in came if not flags & REPEAT) == list(range(100))
            counts = collections.Counter(i for i, _ in came)
            assert len(came) == int(100 * factor) and set(counts.values()) <= {int(factor), int(factor) + (factor != int(factor))}


@pytest.mark.parametrize("order", ["shared", "strict"])
def test_states_of_ranks_go_on_in_the_middle_of_an_epoch(hundred, tmp_path, order):
    spec = write_spec(tmp_path / "a.yaml", hundred, order=order, ranks=2, pipeline=echoed(1, factor=2.5, buffer=20), batch={"size": 6}, epochs=2)
    per_epoch = -(-int(50 * 2.5) // 6)
    for cut in sorted(random.Random(order).sample(range(1, 2 * per_epoch), 3)):
        with Server(tmp_path / f"first{cut}") as server:
            probes = [Probe(spec, server, rank=rank) for rank in range(2)]
            taken = turns(probes, cut)
            for rank, probe in enumerate(probes):
                probe.ask(f"state {tmp_path}/state{rank}")
                probe.close()
        with Server(tmp_path / f"second{cut}") as server:
            probes = [Probe(spec, server, rank=rank, state=f"{tmp_path}/state{rank}") for rank in range(2)]
            for batches, rest in zip(taken, turns(probes)):
                batches += rest
                assert [(b["epoch"], b["index"]) for b in batches] == [(e, i) for e in range(2) for i in range(per_epoch)]
            for probe in probes:
                probe.close()
        for epoch in range(2):
            assert sorted(i for batches in taken for i, flags in emissions(batches, epoch) if not flags & REPEAT) == list(range(100))
            assert all(len(emissions(batches, epoch)) == 125 for batches in taken)


def test_an_epoch_can_be_given_up(hundred, tmp_path):
    for order in ("shared", "strict"):
        spec = write_spec(tmp_path / "a.yaml", hundred, order=order, pipeline=echoed(1, factor=2.5, buffer=20), batch={"size": 8}, epochs=4)
        with Server(tmp_path / order) as server, Probe(spec, server) as probe:
            for count in (3, 14, 31):
                probe.batches(count)
                probe.ask("abandon")
            batches = everything(probe)
            check_epoch(batches, 3, range(100), 2.5)
            assert {b["epoch"] for b in batches} == {3}


def test_auto_brings_each_sample_fresh_and_again_only_where_the_task_would_wait(hundred, tmp_path):
    spec = write_spec(tmp_path / "a.yaml", hundred, order="shared", pipeline=echoed(1, factor="auto", max=4, buffer=64), batch={"size": 5}, epochs=6)
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        batches = everything(probe)
    for epoch in range(6):
        came = emissions(batches, epoch)
        assert sorted(i for i, flags in came if not flags & REPEAT) == list(range(100))
        assert max(collections.Counter(i for i, _ in came).values()) <= 4


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("order", ["shared", "strict"])
def test_ranks_get_equal_parts_fresh_and_again(hundred, tmp_path, ranks, order):
    spec = write_spec(tmp_path / "a.yaml", hundred, order=order, ranks=ranks, pipeline=echoed(1, factor=1.5, buffer=16), batch={"size": 4}, epochs=2)
    with Server(tmp_path / "server") as server:
        probes = [Probe(spec, server, rank=rank) for rank in range(ranks)]
        taken = turns(probes)
        part = -(-100 // ranks)
        for epoch in range(2):
            fresh = [i for batches in taken for i, flags in emissions(batches, epoch) if not flags]
            assert sorted(fresh) == list(range(100))
            assert all(len(emissions(batches, epoch)) == int(part * 1.5) for batches in taken)
        for probe in probes:
            probe.close()


def test_a_killed_server_loses_nothing(hundred, tmp_path):
    spec = write_spec(tmp_path / "a.yaml", hundred, order="strict", pipeline=echoed(1, factor=2, buffer=20), batch={"size": 6}, epochs=3)
    with Server(tmp_path / "alone") as server, Probe(spec, server) as probe:
        alone = digest(everything(probe))
    chance = random.Random(7)
    first = Server(tmp_path / "server")
    with Probe(spec, first, reconnect=30) as probe:
        batches = probe.batches(chance.randrange(1, 60))
        first.process.kill()
        first.process.wait()
        first.socket.unlink(missing_ok=True)
        with Server(tmp_path / "server"):
            batches += everything(probe)
    assert digest(batches) == alone


def of_batches(batches, epoch):
    return [tuple(b["ids"]) for b in batches if b["epoch"] == epoch]


@pytest.mark.parametrize("order", ["shared", "strict"])
@pytest.mark.parametrize("factor,buffer", [(1, 4), (2, 1), (2, 4), (2.5, 4), (4, 100)])
def test_whole_batches_come_again_as_they_were(hundred, tmp_path, order, factor, buffer):
    spec = write_spec(tmp_path / "a.yaml", hundred, order=order, pipeline=AUGMENTED, batch={"size": 8, "echo": {"factor": factor, "buffer": buffer}}, epochs=3)
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        batches = everything(probe)
        status = server.status()
        assert status["audit"]["sound"], status["audit"]
        assert status["engine"]["files_read"] == 300
        assert probe.opened["opened"]["batches"] == int(13 * factor)
    for epoch in range(3):
        own = [b for b in batches if b["epoch"] == epoch]
        assert [b["index"] for b in own] == list(range(int(13 * factor)))
        fresh = [b for b in own if not b["flags"][0] & REPEAT]
        assert sorted(i for b in fresh for i in b["ids"]) == list(range(100))
        counts = collections.Counter((tuple(b["ids"]), b["hash"]) for b in own)
        assert len(counts) == 13, "the same samples with the same pixels"
        assert set(counts.values()) <= {int(factor), int(factor) + (factor != int(factor))}


def test_a_batch_may_be_held_several_times(hundred, tmp_path):
    spec = write_spec(tmp_path / "a.yaml", hundred, order="shared", pipeline=AUGMENTED, batch={"size": 50, "echo": {"factor": 3, "buffer": 1}}, epochs=2)
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        held = [probe.ask("next") for _ in range(3)]
        assert len({b["hash"] for b in held}) == 1
        for b in held:
            assert probe.ask(f"hash {b['batch']}")["hash"] == b["hash"]
            probe.ask(f"release {b['batch']}")
        rest = everything(probe)
        assert len(rest) == 9
        assert server.status()["audit"]["sound"]


def test_the_books_stay_sound_when_a_task_with_kept_batches_dies(hundred, tmp_path):
    spec = write_spec(tmp_path / "a.yaml", hundred, order="shared", pipeline=AUGMENTED, batch={"size": 8, "echo": {"factor": 3, "buffer": 5}}, epochs=None)
    other = write_spec(tmp_path / "b.yaml", hundred, order="shared", pipeline=AUGMENTED, batch={"size": 8}, epochs=None)
    with Server(tmp_path / "server") as server, Probe(other, server) as beside:
        for end in ("kill", "close", "abandon"):
            probe = Probe(spec, server)
            probe.batches(14)
            probe.ask("next")
            beside.batches(5)
            if end == "kill":
                probe.kill()
            if end == "abandon":
                probe.ask("abandon")
                assert server.status()["audit"]["sound"]
                probe.batches(20)
            probe.close()
            eventually(lambda: len(server.status()["tasks"]) == 1)
            assert server.status()["audit"]["sound"]
        beside.batches(20)


@pytest.mark.parametrize("echo", [{"pipeline": AUGMENTED, "batch": {"size": 8, "echo": 2}},
                                  {"pipeline": ["decode", {"echo": "auto"}, {"random_resized_crop": {"size": 24}}], "batch": {"size": 8}}])
def test_a_state_of_what_comes_again_freely_keeps_what_came_fresh(hundred, tmp_path, echo):
    spec = write_spec(tmp_path / "a.yaml", hundred, order="shared", epochs=2, **echo)
    for cut in (3, 9, 17, 30):
        with Server(tmp_path / f"first{cut}") as server, Probe(spec, server) as probe:
            first = [b for b in probe.batches(cut) if "error" not in b]
            probe.ask(f"state {tmp_path}/state")
        with Server(tmp_path / f"second{cut}") as server, Probe(spec, server, state=f"{tmp_path}/state") as probe:
            batches = first + everything(probe)
        for epoch in range(2):
            fresh = [i for i, flags in emissions(batches, epoch) if not flags & REPEAT]
            assert sorted(fresh) == list(range(100))


def test_status_tells_what_an_echo_does_and_what_would_help(thousand, tmp_path):
    with_echo = write_spec(tmp_path / "a.yaml", thousand, order="shared", pipeline=echoed(1, factor=2, buffer=50), batch={"size": 20}, epochs=None)
    batches = write_spec(tmp_path / "b.yaml", thousand, order="shared", pipeline=AUGMENTED, batch={"size": 20, "echo": {"factor": 3, "buffer": 4}}, epochs=None)
    with Server(tmp_path / "server") as server, Probe(with_echo, server) as a, Probe(batches, server) as b:
        a.batches(60)
        b.batches(60)
        status = server.status()
        one, other = sorted(status["tasks"], key=lambda task: task["number"])
        assert one["echo"]["of"] == "samples" and one["echo"]["factor"] == 2
        assert one["echo"]["fresh"] + one["echo"]["repeated"] >= 1200
        assert 0 < one["echo"]["buffered"] <= 50 and 1.5 < one["echo"]["in_force"] <= 2
        assert other["echo"]["of"] == "batches" and other["echo"]["repeated"] >= 40 * 20 and other["echo"]["buffered"] <= 4
        assert one["upstream_batch_s"] > 0
        assert status["sources"][0]["again_samples"] >= one["echo"]["repeated"]
        shown = subprocess.run([FOREBAY, "status", "--socket", server.socket], capture_output=True, text=True, check=True).stdout
        assert "echo       of samples" in shown and "echo       of batches" in shown


ECHO_SOURCES = [conftest.ROOT / "dataplane" / "server" / name for name in OF_ECHOES]


@pytest.mark.parametrize("hit", HITS)
@pytest.mark.parametrize("point", [name for source in ECHO_SOURCES for name in re.findall(r'FBY_CRASH_POINT\("([^"]+)"\)', source.read_text())])
def test_a_server_killed_at_any_point_of_an_echo_loses_nothing(hundred, tmp_path, point, hit):
    whole = "batch" in point
    echo = {"pipeline": AUGMENTED, "batch": {"size": 6, "echo": {"factor": 2, "buffer": 4}}} if whole else {
        "pipeline": echoed(1, factor=2, buffer=20), "batch": {"size": 6}}
    spec = write_spec(tmp_path / "a.yaml", hundred, order="strict", epochs=3, **echo)
    with Server(tmp_path / "alone") as server, Probe(spec, server) as probe:
        alone = digest(everything(probe))
    first = CrashingServer(tmp_path / "server", environment=crash_at(point, hit))
    with Probe(spec, first, reconnect=30) as probe:
        until = threading.Thread(target=lambda: (first.process.wait(), first.socket.unlink(missing_ok=True), successors.append(Server(tmp_path / "server"))))
        successors = []
        until.start()
        batches = everything(probe)
        until.join()
        with successors[0]:
            pass
    assert first.process.returncode == -signal.SIGKILL, "the point was never met"
    if not whole:
        assert digest(batches) == alone
    for epoch in range(3):
        assert sorted(i for i, flags in emissions(batches, epoch) if not flags & REPEAT) == list(range(100))


def test_every_window_buffer_and_batch_comes_to_its_end(thousand, tmp_path):
    chance = random.Random()
    seed = chance.randrange(1 << 32)
    print('seed', seed)
    chance.seed(seed)
    for number in range(int(12 * float(os.environ.get("FOREBAY_TEST_SCALE", "1")))):
        order = chance.choice(["shared", "strict"])
        kind = chance.choice(["samples", "batches", "auto" if order == "shared" else "samples"])
        factor = chance.choice([1, 1.2, 2, 3.7, 9])
        size, buffer, window = chance.choice([1, 7, 64, 300, 1000]), chance.choice([1, 5, 90, 5000]), chance.choice([1, 2, 5])
        keys = {"order": order, "window": window, "epochs": 2, "batch": {"size": size, "drop_last": chance.random() < 0.3}}
        if kind == "batches":
            keys["batch"]["echo"] = {"factor": factor, "buffer": min(buffer, 20)}
            keys["pipeline"] = AUGMENTED
        else:
            keys["pipeline"] = echoed(1, factor="auto" if kind == "auto" else factor, buffer=buffer)
        spec = write_spec(tmp_path / "a.yaml", thousand, **keys)
        with Server(tmp_path / f"s{number}", "--workers", chance.choice([1, 3])) as server, Probe(spec, server) as probe:
            batches = everything(probe)
            part = 1000 - 1000 % size if keys["batch"]["drop_last"] else 1000
            for epoch in range(2):
                fresh = [i for i, flags in emissions(batches, epoch) if not flags & REPEAT]
                assert len(fresh) == len(set(fresh)) == part, keys
                assert not keys["batch"]["drop_last"] or {len(b["ids"]) for b in batches if b["epoch"] == epoch} == {size}, keys
            assert server.status()["audit"]["sound"], keys
