"""Servers and clients that are killed in the middle of things: at every crash point of the sources (dataplane/protocol/crash.h)."""

import os
import re
import signal
import subprocess
import threading
import time

import conftest
import pytest
from PIL import Image
from processes import ELOST, FOREBAY, Probe, Server, descriptors, write_spec

pytestmark = pytest.mark.usefixtures("surroundings")

SCALE = int(os.environ.get("FOREBAY_TEST_SCALE", "1"))
# At which of its hits a point kills.
HITS = [1, 4] if SCALE == 1 else [1, 2, 3, 4, 7, 12, 20]
# Points of these are met by tasks that echo alone: tests/python/test_echo.py.
OF_ECHOES = ("echoes.c", "batches.c")
SOURCES = [*sorted((conftest.ROOT / "dataplane" / "server").glob("*.c")), *sorted((conftest.ROOT / "dataplane" / "client").glob("*.c"))]
POINTS = [name for source in SOURCES if source.name not in OF_ECHOES for name in re.findall(r'FBY_CRASH_POINT\("([^"]+)"\)', source.read_text())]
OF_CLIENTS = [name for name in POINTS if name.startswith("client: ")]
OF_SERVERS = [name for name in POINTS if not name.startswith("client: ")]
# Kernels from 6.15 on tell by which signal a process ended.
KERNEL_TELLS = tuple(int(part) for part in re.match(r"(\d+)\.(\d+)", os.uname().release).groups()) >= (6, 15)
NOTICED_S = 1
SAMPLES, BAD, REPEAT = 121, 57, 2


class CrashingServer(Server):
    program = conftest.BUILD / "tests" / "server" / "fby_crash_forebay"


class CrashingProbe(Probe):
    program = conftest.BUILD / "tests" / "server" / "fby_crash_probe"


def crash_at(point, hit):
    return {"FOREBAY_CRASH_POINT": f"{point}:{hit}"}


@pytest.fixture(scope="module")
def copse(tmp_path_factory):
    """121 tiny pictures, one of which is none."""
    folder = tmp_path_factory.mktemp("copse") / "a"
    folder.mkdir()
    for number in range(SAMPLES):
        Image.new("RGB", (24 + number % 5, 20), (number * 2, 255 - number, 9)).save(folder / f"{number:03}.png")
    (folder / f"{BAD:03}.png").write_bytes(b"\x89PNG nothing")
    return folder.parent


@pytest.fixture(scope="module")
def specs(copse, tmp_path_factory):
    """Of three tasks that run beside each other, and of a fourth that comes and goes; the second's order is fixed, the third's branch its own."""
    folder = tmp_path_factory.mktemp("specs")
    keys = dict(epochs=None, on_error="skip", max_errors=10**6)
    small = ["decode", {"random_resized_crop": {"size": 12}}, {"to": {"dtype": "u8", "layout": "hwc"}}]
    other = ["decode", {"center_crop": 16}, {"to": {"dtype": "u8", "layout": "hwc"}}]
    return [write_spec(folder / "shared.yaml", copse, order="shared", batch={"size": 8}, pipeline=small, **keys),
            write_spec(folder / "strict.yaml", copse, order="strict", batch={"size": 12}, pipeline=small, **keys),
            write_spec(folder / "other.yaml", copse, order="shared", batch={"size": 20}, pipeline=other, **keys),
            write_spec(folder / "guest.yaml", copse, order="shared", batch={"size": 24}, pipeline=small, **keys)]


def stream_check(batches, whole=True):
    """Each epoch's ids come once each, whole epochs have them all; batches are counted without a gap."""
    epochs = {}
    for batch in batches:
        epochs.setdefault(batch["epoch"], []).append(batch)
    assert not whole or list(epochs) == list(range(len(epochs)))
    for taken in epochs.values():
        assert [b["index"] for b in taken] == list(range(len(taken)))
        samples = [(i, flags) for b in taken for i, flags in zip(b["ids"], b["flags"])]
        once = [i for i, flags in samples if not flags & REPEAT]
        assert len(set(once)) == len(once) and BAD not in once, "a sample twice in an epoch"
        if taken[-1]["last"]:
            assert len(samples) == SAMPLES and len(once) == SAMPLES - 1, "a sample is missing from an epoch"


def strict_check(batches, spec, folder):
    """The same bytes as alone."""
    if not batches:
        return
    with Server(folder) as server, Probe(spec, server) as alone:
        for batch in batches:
            answer = alone.batches(1)[0]
            assert [answer[key] for key in ("epoch", "index", "ids", "flags", "hash")] == [batch[key] for key in ("epoch", "index", "ids", "flags", "hash")]


# --- clients that are killed ---------------------------------------------------------------------------------------------


class Witness:
    def __init__(self, spec, server):
        self.probe, self.batches = Probe(spec, server), []

    def take(self, count):
        self.batches += self.probe.batches(count, until_error=False)


class Scene:
    """A server with three witnesses who go on whatever happens to others."""

    def __init__(self, server, specs):
        self.server, self.specs = server, specs
        self.witnesses = [Witness(spec, server) for spec in specs[:3]]

    def all_take(self, count):
        failures = []

        def take(witness):
            try:
                witness.take(count)
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=take, args=(witness,)) for witness in self.witnesses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures

    def parting(self):
        """Whether somebody's memory is still to go."""
        status = self.server.status()
        groups = [group for source in status["audit"]["sources"] for group in source["groups"]]
        return len(status["tasks"]) > 4 or any(group["segments_retiring"] for group in groups) or any(
            source["segments_gone"] for source in status["audit"]["sources"])

    def at_rest(self):
        """(descriptors, memory in use), segments apart, once nothing moves. Which segments cover a need depends on who came first and who left first: but
        none is there that isn't needed. What others were sent is unmapped by and by, as they take what comes."""
        looks = []
        for _ in range(200):
            status = self.server.status()
            groups = [group for source in status["audit"]["sources"] for group in source["groups"]]
            looks.append((descriptors(self.server.pid) - sum(group["segments"] for group in groups),
                          status["memory"]["used"] - sum(group["bytes"] for group in groups)))
            gone = sum(source["segments_gone"] for source in status["audit"]["sources"])
            if not gone and len(status["tasks"]) == 3 and looks[-4:] == [looks[-1]] * 4:
                assert status["audit"]["sound"] and not any(group["segments_needless"] for group in groups), status["audit"]
                return looks[-1]
            if gone:
                self.all_take(1)
            time.sleep(0.01)
        raise AssertionError(f"it never comes to rest: {looks[-1]}, {status['audit']}")


@pytest.fixture(scope="module")
def scene(specs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene")
    with Server(folder / "server") as server:
        scene = Scene(server, specs)
        scene.all_take(8)
        victim_live(scene)
        scene.at_rest()
        yield scene
        for witness in scene.witnesses:
            stream_check(witness.batches)
            witness.probe.close()
        strict_check(scene.witnesses[1].batches, specs[1], folder / "alone")


def victim_live(scene, point="", hit=1):
    """One client's life, with all that a client does; whether it was killed on the way."""
    victim = CrashingProbe(scene.specs[0], scene.server, environment=crash_at(point, hit))
    guest = None

    def ask(line):
        answer = victim.ask(line)
        if answer is None:
            raise BrokenPipeError
        assert "error" not in answer, answer
        return answer

    def go_on(count):
        for _ in range(count):
            ask(f"release {ask('next')['batch']}")

    try:
        if victim.opened is None:
            raise BrokenPipeError
        go_on(3)
        held = ask("next")["batch"]
        # Somebody comes, whose memory is shared, and leaves: that memory is unmapped by all.
        guest = Probe(scene.specs[3], scene.server)
        for _ in range(3):
            guest.batches(2)
            scene.all_take(1)
            go_on(3)
        guest.kill()
        ask(f"release {held}")
        while scene.parting():
            scene.all_take(2)
            go_on(2)
        # More than half of its window is held: the next is drawn only when it asks for it, or on somebody else's account.
        for _ in range(100 if "wait" in point else 1):
            for batch in [ask("next") for _ in range(victim.opened["opened"]["window"] - 1)]:
                ask(f"release {batch['batch']}")
        last = True
        while last:  # between two epochs there is nothing to give up
            batch = ask("next")
            last = batch["last"]
            ask(f"release {batch['batch']}")
        ask("abandon")
        go_on(2)
        held = [ask("next")["batch"] for _ in range(2)]
        ask(f"release {held[1]}")
        ask("close")
        ask(f"release {held[0]}")
        victim.send("quit")
        killed = victim.process.wait(30) != 0
    except BrokenPipeError:
        killed = True
    finally:
        if guest:
            guest.kill()
            guest.close()
    code = victim.process.wait(30)
    assert code == (-signal.SIGKILL if killed else 0)
    victim.process.stdout.close()
    return killed


@pytest.mark.parametrize("point", OF_CLIENTS)
def test_a_client_killed_anywhere_costs_nobody_anything(scene, point):
    before = scene.at_rest()
    for hit in HITS:
        killed = victim_live(scene, point, hit)
        assert killed or hit > 1, "this point is never reached"
        scene.all_take(2)
        assert scene.at_rest() == before, (point, hit)
    for witness in scene.witnesses:
        stream_check(witness.batches)
    assert scene.server.status()["disconnected"] == 0


# --- servers that are killed ------------------------------------------------------------------------------------------------


class Drainer(threading.Thread):
    """Takes batches until there are no more; when and why that was."""

    def __init__(self, spec, server):
        super().__init__()
        self.spec, self.server, self.batches, self.end = spec, server, [], None
        self.start()

    def run(self):
        with Probe(self.spec, self.server) as probe:
            self.opened = "opened" in probe.opened
            answer = probe.opened
            while "error" not in answer:
                answer = probe.ask("next")
                if "batch" in answer:
                    self.batches.append(answer)
                    assert probe.ask(f"release {answer['batch']}") == {"released": answer["batch"]}
            self.noticed, self.end = time.monotonic(), answer


def guest_live(spec, server, manner):
    """Comes, takes, gives an epoch up, and goes in one of three manners; every error must be that the server is gone."""
    with Probe(spec, server) as guest:
        lines = ["next", "release 0", "next", "next", "abandon", "next", "release 1", "close", "release 2"]
        if "error" in guest.opened:
            assert guest.opened["error"] == ELOST, guest.opened
            return
        for line in lines[:-2] if manner else lines:
            answer = guest.ask(line)
            if "error" in answer:
                assert answer["error"] == ELOST or line.startswith("release"), (line, answer)
                return
        if manner == 1:
            guest.kill()


@pytest.mark.parametrize("point", OF_SERVERS)
def test_a_server_killed_anywhere_is_missed_at_once_and_replaced(specs, tmp_path, point):
    for hit in HITS:
        with CrashingServer(tmp_path / "server", environment=crash_at(point, hit)) as server:
            ended = []
            reaper = threading.Thread(target=lambda: ended.append((server.process.wait(), time.monotonic())))
            reaper.start()
            drainers = [Drainer(spec, server) for spec in specs[:3]]
            until, lives = time.monotonic() + 30, 0
            while not ended:
                guest_live(specs[3], server, lives % 3)
                lives += 1
                if time.monotonic() > until:
                    server.process.kill()
                    reaper.join()
                    raise AssertionError(f"after {lives} guests this point was never reached, for the {hit}th time")
            reaper.join()
            for drainer in drainers:
                drainer.join()
            code, at = ended[0]
            assert code == -signal.SIGKILL, server.log.read_text()
            for drainer in drainers:
                assert drainer.end and drainer.end["error"] == ELOST, drainer.end
                if not drainer.opened:
                    continue  # it may not even have known whose socket that was
                assert drainer.noticed - at < NOTICED_S, "a client waits for a server that is gone"
                assert drainer.end["pid"] == server.pid and str(server.pid) in drainer.end["text"], drainer.end
                assert drainer.end["signal"] == (signal.SIGKILL if KERNEL_TELLS else 0), drainer.end
            for drainer in drainers:
                stream_check(drainer.batches)
        strict_check(drainers[1].batches[:30], specs[1], tmp_path / "alone")
        with Server(tmp_path / "server") as successor, Probe(specs[1], successor) as probe:
            stream_check(probe.batches(12))
            assert successor.status()["audit"]["sound"]


# --- what is shipped --------------------------------------------------------------------------------------------------------------


def test_no_shipped_program_has_crash_points():
    for program in (FOREBAY, *(conftest.BUILD / "dataplane" / "client").glob("libforebay.so*"), Probe.program):
        text = program.read_bytes()
        assert b"FOREBAY_CRASH_POINT" not in text and b"open handed over" not in text
    assert b"FOREBAY_CRASH_POINT" in CrashingServer.program.read_bytes() and b"FOREBAY_CRASH_POINT" in CrashingProbe.program.read_bytes()
    assert len(OF_CLIENTS) > 15 and len(OF_SERVERS) > 30 and len(set(POINTS)) == len(POINTS)
