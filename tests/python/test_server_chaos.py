"""Many clients who come, go, stop, die and lie, all at once, for a minute (FOREBAY_TEST_SCALE minutes): the others' streams are as if they were alone."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import conftest
import pytest
from peers import layout_hash_of
from processes import Probe, Server, descriptors, resident
from test_server_crash import BAD, REPEAT, SAMPLES, copse, specs, strict_check  # noqa: F401

pytestmark = [pytest.mark.usefixtures("surroundings"), pytest.mark.slow]

SECONDS = 60 * int(os.environ.get("FOREBAY_TEST_SCALE", "1"))
CLIENTS = 20
STALL_S = 10
STRICT_KEPT = 500


class Stream:
    """What one client gets, checked as it comes: each id of an epoch once, whole epochs whole, batches without a gap."""

    name = ""

    def __init__(self):
        self.epoch, self.index, self.once, self.count, self.taken, self.kept = 0, 0, set(), 0, 0, []

    def add(self, batch, given_up=False):
        if given_up and batch["epoch"] != self.epoch:
            self.epoch, self.index, self.once, self.count = batch["epoch"], 0, set(), 0
        assert (batch["epoch"], batch["index"]) == (self.epoch, self.index), f"{self.name}: a batch is missing, or comes twice"
        fresh = [i for i, flags in zip(batch["ids"], batch["flags"]) if not flags & REPEAT]
        assert BAD not in batch["ids"] and len(set(fresh)) == len(fresh) and not self.once & set(fresh), "a sample twice in an epoch"
        self.once |= set(fresh)
        self.count += len(batch["ids"])
        self.index += 1
        self.taken += 1
        if len(self.kept) < STRICT_KEPT:
            self.kept.append(batch)
        if batch["last"]:
            assert self.whole() and len(self.once) == SAMPLES - 1, "a sample is missing from an epoch"
            self.epoch, self.index, self.once, self.count = self.epoch + 1, 0, set(), 0


    def whole(self):
        return self.count == SAMPLES


class EchoStream(Stream):
    """The same of a task that emits samples, or batches, again."""

    def whole(self):
        return self.count >= SAMPLES


class Actor(threading.Thread):
    """Runs until told to end; what it died of is kept."""

    def __init__(self, chaos):
        super().__init__(daemon=True)
        self.chaos, self.failure = chaos, None

    def run(self):
        try:
            self.act()
        except BaseException as failure:
            self.failure = failure
            self.chaos.over.set()


class Witness(Actor):
    def __init__(self, chaos, spec):
        super().__init__(chaos)
        self.probe, self.stream, self.longest = Probe(spec, chaos.server), Stream(), 0.0

    def take(self):
        started = time.monotonic()
        batch = self.probe.batches(1, until_error=False)[0]
        self.longest = max(self.longest, time.monotonic() - started)
        self.stream.add(batch)

    def act(self):
        while not self.chaos.over.is_set():
            self.take()


class Guest(Actor):
    """One life after the other, each as chance has it."""

    def __init__(self, chaos, number):
        super().__init__(chaos)
        self.chance = random.Random(f"{chaos.seed} {number}")
        self.lives = {}
        self.liars = subprocess.Popen([sys.executable, pathlib.Path(__file__).with_name("liar.py"), chaos.server.socket, str(chaos.layout_hash), *chaos.specs],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def act(self):
        while not self.chaos.over.is_set():
            life = self.chance.choice([self.proper, self.proper, self.killed, self.stopped, self.closed, self.liar, self.liar, self.liar])
            life()
            self.lives[life.__name__] = self.lives.get(life.__name__, 0) + 1
        self.liars.communicate()

    def take(self, probe, stream, most):
        """Takes some, keeps up to two, gives the epoch up at times; the numbers of what it keeps."""
        held, given_up = [], False
        for _ in range(self.chance.randrange(most)):
            if self.chance.random() < 0.03:
                assert probe.ask("abandon") == {"abandoned": True}
                given_up = True
            batch = probe.ask("next")
            assert "error" not in batch, batch
            stream.add(batch, given_up)
            given_up = False
            held.append(batch)
            if len(held) > 2 or self.chance.random() < 0.7:
                back = held.pop(self.chance.randrange(len(held)))
                assert probe.ask(f"hash {back['batch']}")["hash"] == back["hash"], "a batch changed while it was held"
                probe.ask(f"release {back['batch']}")
        return held

    def probe(self):
        spec = self.chance.choice(self.chaos.specs + self.chaos.echoes)
        self.stream = EchoStream() if spec in self.chaos.echoes else Stream()
        self.stream.name = spec.name
        return Probe(spec, self.chaos.server)

    def proper(self):
        with self.probe() as probe:
            self.take(probe, self.stream, 40)

    def killed(self):
        with self.probe() as probe:
            self.take(probe, self.stream, 20)
            if self.chance.random() < 0.5:
                probe.send("next")
                time.sleep(self.chance.random() * 0.005)
            probe.kill()

    def stopped(self):
        with self.probe() as probe:
            held = self.take(probe, self.stream, 10)
            probe.process.send_signal(signal.SIGSTOP)
            time.sleep(self.chance.random() * 3)
            if self.chance.random() < 0.3:
                probe.kill()
                return
            probe.process.send_signal(signal.SIGCONT)
            for batch in held:
                assert probe.ask(f"hash {batch['batch']}")["hash"] == batch["hash"], "a batch changed while its client was stopped"
                probe.ask(f"release {batch['batch']}")
            self.take(probe, self.stream, 10)

    def closed(self):
        """Closes, and reads on what it holds."""
        with self.probe() as probe:
            held = self.take(probe, self.stream, 20)
            assert probe.ask("close") == {"closed": True}
            time.sleep(self.chance.random() * 0.5)
            for batch in held:
                assert probe.ask(f"hash {batch['batch']}")["hash"] == batch["hash"], "a batch changed after its task was closed"
                if self.chance.random() < 0.7:
                    probe.ask(f"release {batch['batch']}")
            if self.chance.random() < 0.3:
                probe.kill()

    def liar(self):
        """See liar.py."""
        self.liars.stdin.write(f"{self.chance.random()}\n")
        self.liars.stdin.flush()
        assert self.liars.stdout.readline() == "0\n"


def echo_specs(folder, specs):
    """Tasks that emit samples again, at a point where others' stages are the same, and whole batches."""
    task = json.loads(pathlib.Path(specs[0]).read_text())
    decode, *rest = task["pipeline"]
    kinds = {"echo": {"pipeline": [decode, {"echo": {"factor": 2, "buffer": 20}}, *rest]},
             "fixed": {"pipeline": [decode, {"echo": {"factor": 1.5, "buffer": 20}}, *rest], "order": "strict"},
             "auto": {"pipeline": [decode, {"echo": "auto"}, *rest]},
             "steps": {"pipeline": [decode, {"echo": "auto"}, *rest], "steps_per_epoch": 40},
             "batches": {"batch": {"size": 8, "echo": {"factor": 2.5, "buffer": 3}}},
             "cache": {"pipeline": [decode, {"cache": "1MiB"}, {"echo": 2}, *rest]}}
    for name, keys in kinds.items():
        (folder / f"{name}.yaml").write_text(json.dumps({**task, **keys}))
    return [folder / f"{name}.yaml" for name in kinds]


class Chaos:
    def __init__(self, server, specs, echoes):
        self.server, self.specs, self.echoes = server, specs, echoes
        self.layout_hash = layout_hash_of(server)
        self.seed = random.randrange(1 << 32)
        print("seed", self.seed)
        self.over = threading.Event()
        self.witnesses = [Witness(self, spec) for spec in specs[:3]]
        self.guests = [Guest(self, number) for number in range(CLIENTS)]

    def at_rest(self):
        """Once only the witnesses are left: what the server has, segments apart; see test_server_crash.Scene.at_rest."""
        looks, until = [], time.monotonic() + 60
        while time.monotonic() < until:
            status = self.server.status()
            groups = [group for source in status["audit"]["sources"] for group in source["groups"]]
            gone = sum(source["segments_gone"] for source in status["audit"]["sources"])
            going = gone or any(group["segments_retiring"] or group["quarantined"] for group in groups)
            looks.append({"descriptors": descriptors(self.server.pid) - sum(group["segments"] for group in groups),
                          "memory": status["memory"]["used"] - sum(group["bytes"] for group in groups),
                          "threads": len(os.listdir(f"/proc/{self.server.pid}/task")), "tasks": len(status["tasks"]),
                          "needless": sum(group["segments_needless"] for group in groups), "groups": len(groups)})
            if not going and looks[-1]["tasks"] == 3 and looks[-5:] == [looks[-1]] * 5:
                assert status["audit"]["sound"], status["audit"]
                return looks[-1]
            if going:
                for witness in self.witnesses:
                    witness.take()
            time.sleep(0.02)
        raise AssertionError(f"it never comes to rest: {looks[-1]}, {status['audit']}")


@pytest.mark.timeout(SECONDS + 240)
def test_chaos(specs, tmp_path):
    with Server(tmp_path / "server") as server:
        chaos = Chaos(server, specs, echo_specs(tmp_path, specs))
        for witness in chaos.witnesses:
            for _ in range(10):
                witness.take()
        for spec in chaos.echoes:  # what rests of a cache counts from the beginning
            with Probe(spec, server) as probe:
                probe.batches(3)
        before, size = chaos.at_rest(), resident(server.pid)
        for actor in (*chaos.witnesses, *chaos.guests):
            actor.start()
        until, audits, progress = time.monotonic() + SECONDS, 0, {}
        while time.monotonic() < until and not chaos.over.wait(0.5):
            status = server.status()
            assert status["audit"]["sound"], status["audit"]
            audits += 1
            now = time.monotonic()
            for number, witness in enumerate(chaos.witnesses):
                if progress.get(number, (None, 0))[0] != witness.stream.taken:
                    progress[number] = (witness.stream.taken, now)
                assert now - progress[number][1] < STALL_S, (number, status)
        chaos.over.set()
        for actor in (*chaos.witnesses, *chaos.guests):
            actor.join(60)
            if actor.failure:
                raise actor.failure
            assert not actor.is_alive()
        lives = {}
        for guest in chaos.guests:
            for life, count in guest.lives.items():
                lives[life] = lives.get(life, 0) + count
        print(f"{audits} audits; lives {lives}; batches {[w.stream.taken for w in chaos.witnesses]}; "
              f"longest pause {max(w.longest for w in chaos.witnesses):.3f} s")
        assert max(witness.longest for witness in chaos.witnesses) < STALL_S
        assert chaos.at_rest() == before
        sanitized = "FOREBAY_SANITIZE:STRING=\n" not in (conftest.BUILD / "CMakeCache.txt").read_text()  # they keep what is freed
        print(f"resident {size >> 20} MiB before, {resident(server.pid) >> 20} MiB after")
        assert resident(server.pid) < size + (48 << 20) or sanitized
        for witness in chaos.witnesses:
            witness.probe.close()
    strict_check(chaos.witnesses[1].stream.kept, specs[1], tmp_path / "alone")
