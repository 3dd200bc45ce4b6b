"""Clients that lie, servers that talk nonsense, and many of both at once: whoever does it is told, or disconnected; nobody else notices."""

import fcntl
import json
import os
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import conftest
import peers
import pytest
from peers import (ABANDON, ABANDONED, AWAITS, AWAITS_REPLY, BLOCKS, BLOCKS_REPLY, DOWN, FAILED, HELLO, OPEN, OPENED, PROGRESS, SEGMENT, SEGMENT_ASK, SEGMENT_REPLY, STATUS,
                   STATUS_REPLY, TASK_FAILED, UP, WELCOME, FakeServer, Hostile, head, hello, layout_hash_of, region, send_with)
from processes import (EEND, EINVAL, ELOST, EPROTO, ESAMPLE, EVERSION, FOREBAY, PROBE, STUCK_JPEG, Probe, Server, descriptors,  # noqa: F401
                       eventually, hundred, resident, write_spec)

pytestmark = pytest.mark.usefixtures("surroundings")
STUCK = {"LD_PRELOAD": str(STUCK_JPEG), "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}


@pytest.fixture(scope="module")
def shared(hundred, tmp_path_factory):
    """A server for tests that must leave it as it was: (server, layout hash, text of a spec)."""
    folder = tmp_path_factory.mktemp("hostile")
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(folder))
    text = write_spec(folder / "s.yaml", hundred, epochs=None, order="shared").read_text()
    with Server(folder / "server") as server:
        yield server, layout_hash_of(server), text
    patch.undo()


@pytest.fixture
def served(shared, tmp_path):
    """The same, with a witness whose stream goes on undisturbed, and a server that keeps nothing of what the test did."""
    server, layout_hash, text = shared
    spec = tmp_path / "w.yaml"
    spec.write_text(text.replace('"shared"', '"sequential"'))
    with Probe(spec, server) as witness:
        assert witness.batches(2)[1]["ids"][0] == 8
        yield server, layout_hash, text
        assert [b["ids"][0] for b in witness.batches(3)] == [16, 24, 32]
    eventually(lambda: not server.status()["tasks"])


def windows_equal(server, before):
    """The server has as many descriptors and as much memory in use as before."""
    eventually(lambda: descriptors(server.pid) == before[0] and server.status()["memory"]["used"] == before[1])


def measured(server):
    """Its descriptors and memory in use, once they stay as they are: what ended just now may still be read and freed."""
    looks = []
    while len(looks) < 10 or len(set(looks[-10:])) > 1:
        assert len(looks) < 500, "it never comes to rest"
        looks.append((descriptors(server.pid), server.status()["memory"]["used"]))
        time.sleep(0.02)
    return looks[-1]


# --- hostile clients ---------------------------------------------------------------------------------------------------


def test_what_a_client_wakes_after_its_end_wakes_nobody(served):
    """The client keeps its eventfd: the server's watch of it must end with the session."""
    server, layout_hash, text = served
    clients = []
    for number in range(20):
        client = Hostile(server, layout_hash)
        assert client.open(text)[1] == OPENED
        if number % 2:
            client.socket.close()
        else:
            client.put_return(0, 0xFFFFFFFF)
            client.publish(1)  # it is disconnected for that
        clients.append(client)
    eventually(lambda: len(server.status()["tasks"]) == 1)
    rounds = server.status()["conductor"]["rounds"]
    for _ in range(20):
        for client in clients:
            client.wake()
        with Hostile(server, layout_hash):  # sessions come and go where the old ones were
            pass
    time.sleep(0.3)
    assert server.status()["conductor"]["rounds"] - rounds < 1000, "nor is it kept busy"
    for client in clients:
        client.close()


def returns_of_rubbish():
    def never_delivered(client):
        client.put_return(0, 5 << 32 | 3)
        client.publish(1)

    def twice(client):
        block, generation = client.descriptor(0)
        for place in (0, 1):
            client.put_return(place, generation << 32 | block)
        client.publish(2)

    def older_generation(client):
        block, generation = client.descriptor(0)
        client.put_return(0, (generation - 1) << 32 | block)
        client.publish(1)

    def block_zero(client):
        client.publish(1)

    def counter_too_far(client):
        client.publish(client.return_capacity + 1)

    def counter_backwards(client):
        client.publish(-1)

    def everything_wrong(client):
        client.up[:] = os.urandom(len(client.up))
        client.wake()

    return [never_delivered, twice, older_generation, block_zero, counter_too_far, counter_backwards, everything_wrong]


@pytest.mark.parametrize("rubbish", returns_of_rubbish(), ids=lambda rubbish: rubbish.__name__)
def test_a_false_return_ends_its_client_alone(served, rubbish):
    server, layout_hash, text = served
    before = measured(server)
    with Hostile(server, layout_hash) as client:
        assert client.open(text)[1] == OPENED
        eventually(lambda: client.tail() > 0)
        rubbish(client)
        assert client.ended()
    windows_equal(server, before)
    assert "is disconnected" in server.log.read_text()


def test_a_client_that_lies_about_waiting_and_taking_is_served(served):
    server, layout_hash, text = served
    with Hostile(server, layout_hash) as client:
        assert client.open(text)[1] == OPENED
        client.up[peers.UP_WAITING : peers.UP_WAITING + 4] = b"\xff" * 4
        client.up[peers.UP_HEAD : peers.UP_HEAD + 4] = b"\xfe" * 4
        taken = 0
        for _ in range(60):
            eventually(lambda: client.tail() > taken)
            block, generation = client.descriptor(taken)
            client.put_return(taken, generation << 32 | block)
            taken += 1
            client.publish(taken)


def test_every_message_in_every_state_is_answered_or_ends_the_connection(served):
    server, layout_hash, text = served
    before = measured(server)
    messages = {kind: head(kind) for kind in range(20)}
    messages[HELLO] = hello(layout_hash)
    messages[ABANDON] = head(ABANDON) + struct.pack("<Q", 1 << 63)
    messages[ABANDONED] = head(ABANDONED) + struct.pack("<Q", 0)
    messages[PROGRESS] = head(PROGRESS) + struct.pack("<QQ", 1, 1)
    messages[FAILED] = messages[TASK_FAILED] = head(FAILED) + struct.pack("<iIQ", -1, 0, 0)
    messages[SEGMENT_ASK] = messages[SEGMENT_REPLY] = None  # of a block that there is
    messages[BLOCKS_REPLY] = head(BLOCKS_REPLY) + bytes(8 + 4 * 1024)
    answered = {"new": {HELLO: WELCOME}, "greeted": {STATUS: STATUS_REPLY, OPEN: OPENED},
                "opened": {STATUS: STATUS_REPLY, ABANDON: ABANDONED, SEGMENT_ASK: SEGMENT_REPLY, BLOCKS: BLOCKS_REPLY, AWAITS: AWAITS_REPLY}}
    for state, expected in answered.items():
        for kind, message in messages.items():
            with Hostile(server, layout_hash, greet=state != "new") as client:
                block = 1
                if state == "opened":
                    assert client.open(text)[1] == OPENED
                    eventually(lambda: client.tail() > 0)
                    block = client.descriptor(0)[0] >> 16
                client.send(client.open_message(text) if kind == OPEN else message or head(kind) + struct.pack("<II", block, 0))
                got = PROGRESS
                while got == PROGRESS:
                    got = client.receive()[1]
                assert got == expected.get(kind), (state, kind, got)
                if got is None:
                    assert client.ended()
    windows_equal(server, before)


def test_blocks_that_are_not_the_tasks_have_no_segment(served, tmp_path):
    """Neither numbers of no block nor another pipeline's: who asks for those is disconnected. Its own is given as often as it is asked for."""
    server, layout_hash, text = served
    before = measured(server)
    other = json.dumps({**json.loads(text), "pipeline": ["decode", {"center_crop": 16}]})
    with Hostile(server, layout_hash) as neighbour:
        assert neighbour.open(other)[1] == OPENED
        eventually(lambda: neighbour.tail() > 0)
        foreign = neighbour.descriptor(0)[0] >> 16
        for block in (0, foreign, 0xFFFF, 0x10000, 0xFFFFFFFF):
            with Hostile(server, layout_hash) as client:
                assert client.open(text)[1] == OPENED
                eventually(lambda: client.tail() > 0)
                own = client.descriptor(0)[0] >> 16
                assert own != foreign
                for _ in range(3):
                    client.send(head(SEGMENT_ASK) + struct.pack("<II", own, 0))
                    message, kind = client.receive()
                    assert (kind, struct.unpack_from("<I", message, 16)[0]) == (SEGMENT_REPLY, own)
                client.send(head(BLOCKS))
                message, kind = client.receive()
                count = struct.unpack_from("<I", message, 16)[0]
                assert kind == BLOCKS_REPLY and own in struct.unpack_from(f"<{count}I", message, 24)
                client.send(head(SEGMENT_ASK) + struct.pack("<II", block, 0))
                assert client.ended()
    windows_equal(server, before)


STATE = struct.Struct("<QIIQQ" + "7Q6IQ" + "QQQQ")  # head, identity, place; dataplane/protocol/state.h
STATE_NAMES = ["magic", "version", "visits", "bytes", "sum", "dataset_high", "dataset_low", "output_high", "output_low", "samples", "subset", "seed",
               "order", "batch", "drop_last", "rank", "ranks", "reserved", "crew", "epoch", "behind", "part", "position"]


def state_sum(words):
    """Of all words but the sum itself, as a client that lies would make it."""
    total = 0
    for place, word in enumerate(words):
        if place != 3:
            total = (total ^ word) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
            total ^= total >> 32
    return total


def state_of(genuine, bitmap=b"", **fields):
    """A state of the task that was opened, with the fields that are given."""
    identity = struct.unpack_from("<7Q6IQ", genuine, len(genuine) - 88)
    values = dict(zip(STATE_NAMES, (0x4554415453594246, 1, 3, 152 + len(bitmap), 0, *identity, 2, 0, 100, 16)))
    assert not set(fields) - set(values)
    values.update(fields)
    words = struct.unpack(f"<{(152 + len(bitmap)) // 8}Q", STATE.pack(*values.values()) + bitmap)
    values["sum"] = state_sum(words)
    return STATE.pack(*values.values()) + bitmap


def memfd(content, seals=peers.SEALS_SERVER & ~0x10 | fcntl.F_SEAL_WRITE):
    fd = os.memfd_create("state", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, content)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def test_states_that_lie_are_refused_by_name_and_cost_nothing(served, tmp_path):
    server, layout_hash, strict = served
    shared = json.dumps({**json.loads(strict), "order": "shared", "epochs": 5})
    before = measured(server)

    def answer(text, *fds):
        try:
            with Hostile(server, layout_hash) as client:
                message, kind = client.open(text, fds)
                return kind, message
        finally:
            for fd in fds:
                os.close(fd)

    kind, opened = answer(shared)
    assert kind == OPENED
    bitmap = bytes([255, 255]) + bytes(14)
    good = state_of(opened, bitmap)
    kind, message = answer(shared, memfd(good))
    assert kind == OPENED, message
    first_epoch, position = struct.unpack_from("<Q", message, 16 + 6 * 8)[0], struct.unpack_from("<Q", message, len(message) - 104)[0]
    assert (first_epoch, position) == (2, 16)
    merged = {"ranks": 0, "behind": 16, "part": 0, "position": 0}
    assert answer(shared, memfd(state_of(opened, bitmap, **merged)))[0] == OPENED

    whole = bytes([255] * 12 + [15]) + bytes(3)
    wrong = [("samples of its epoch", state_of(opened, bitmap, position=100)), ("samples of its epoch", state_of(opened, bitmap, position=1 << 63)),
             ("samples of its epoch", state_of(opened, bitmap, position=17)), ("lists 100 ids", state_of(opened, whole)),
             ("beyond the data set", state_of(opened, bitmap[:15] + b"\x80", position=24)), ("in epoch 5, but the task ends", state_of(opened, bitmap, epoch=5)),
             ("in epoch 18446744073709551615", state_of(opened, bitmap, epoch=(1 << 64) - 1)), ("visits", state_of(opened, bitmap, visits=0xFFFFFFFF)),
             ("samples: 4294967295", state_of(opened, b"", samples=0xFFFFFFFF, position=0)), ("damaged", state_of(opened, bitmap, samples=1 << 60)),
             ("damaged", state_of(opened, b"")), ("at most", state_of(opened, bitmap + bytes(8), bytes=152 + 24)), ("cut", state_of(opened, bitmap, bytes=1 << 62)),
             ("damaged", state_of(opened, bitmap, position=0)), ("samples of its epoch", state_of(opened, bitmap, part=99)),
             ("no more than 100", state_of(opened, bitmap, behind=101)), ("no more than 100", state_of(opened, bitmap, **{**merged, "behind": 1 << 63})),
             ("lists 16 ids, of 17", state_of(opened, bitmap, **{**merged, "behind": 17})), ("lists 16 ids, of 15", state_of(opened, bitmap, **{**merged, "behind": 15})),
             ("samples of its epoch", state_of(opened, bitmap, **{**merged, "position": 8})), ("samples of its epoch", state_of(opened, bitmap, **{**merged, "part": 84})),
             ("damaged", state_of(opened, bitmap, ranks=0, rank=1)), ("damaged", state_of(opened, bitmap, ranks=2000)), ("damaged", state_of(opened, bitmap, rank=1)),
             ("one rank of 2", state_of(opened, bitmap, ranks=2)),
             ("order: unknown", state_of(opened, b"", order=7)), ("order: strict", state_of(opened, b"", order=1)),
             ("fingerprint", state_of(opened, bitmap, dataset_low=1)), ("no state", b"x" * 152), ("no state", b""), ("cut", good[:-8]), ("at most", good + bytes(64))]
    for words, state in wrong:
        kind, message = answer(shared, memfd(state))
        assert kind == FAILED and words.encode() in message[32:], (words, message)

    read, write = os.pipe()
    with open(tmp_path / "plain", "wb") as file:
        file.write(good)
    plain = [read, write, os.open(tmp_path / "plain", os.O_RDONLY), os.open("/dev/zero", os.O_RDONLY), os.open(tmp_path, os.O_RDONLY), memfd(good, 0),
             memfd(good, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)]
    for fd in plain:
        kind, message = answer(shared, fd)
        assert kind == FAILED and b"sealed against change" in message, message
    # More than one is none; other messages bring none.
    assert answer(shared, memfd(good), memfd(good))[0] == OPENED
    with Hostile(server, layout_hash) as client:
        fd = memfd(good)
        send_with(client.socket, head(STATUS), [fd])
        os.close(fd)
        assert client.receive()[1] == STATUS_REPLY
    windows_equal(server, before)


def test_lengths_that_do_not_fit_end_the_connection(served):
    server, layout_hash, text = served
    good = Hostile.open_message(None, text)
    wrong = [good[:-1], good + b"x", good[:16], good[:31],
             head(OPEN, 2) + struct.pack("<6I", 0xFFFFFFFF, 2, 1, 0, 0, 0) + b"ab", head(OPEN, 9000) + struct.pack("<6I", 4500, 4500, 0, 0, 0, 0) + b"a" * 9000,
             head(OPEN, 300) + struct.pack("<6I", 1, 1, 1, 0, 0, 297) + b"a" * 300, head(OPEN, 4) + struct.pack("<6I", 1, 1, 1, 0, 0, 2) + b"abcd",
             head(AWAITS) + b"x",
             head(ABANDON), head(ABANDON) + b"1234567", head(STATUS) + b"x", head(SEGMENT_ASK), head(SEGMENT_ASK) + b"1234567",
             head(BLOCKS) + b"x", head(STATUS, version=2), head(STATUS, magic=1), b"x" * 100000, b""]
    for message in wrong:
        with Hostile(server, layout_hash) as client:
            client.send(message)
            assert client.ended(), message[:64]
    for message, words in [(hello(layout_hash, version=7), b"protocol 1, the client 7"), (hello(1), b"memory layout"), (hello(layout_hash)[:100], None)]:
        with Hostile(server, layout_hash, greet=False) as client:
            client.send(message)
            answer, kind = client.receive()
            assert kind == FAILED and (not words or words in answer), answer
            assert struct.unpack_from("<i", answer, 16)[0] == EVERSION
            assert client.ended()


def test_descriptors_that_a_client_sends_are_closed(served):
    server, layout_hash, _ = served
    before = measured(server)
    with Hostile(server, layout_hash) as client:
        for count in (1, 8):
            send_with(client.socket, head(STATUS), [client.socket.fileno()] * count)
            assert client.receive()[1] == STATUS_REPLY
        send_with(client.socket, head(STATUS), [client.socket.fileno()] * 60)
        assert client.ended()
    windows_equal(server, before)


def test_who_never_reads_is_disconnected_and_who_floods_takes_turns(served, tmp_path):
    server, layout_hash, text = served
    with Hostile(server, layout_hash) as deaf:
        deaf.socket.setblocking(False)
        until = time.monotonic() + 30
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while time.monotonic() < until:
                try:
                    deaf.send(head(STATUS))
                except BlockingIOError:  # the server has yet to read what stands in its socket
                    time.sleep(0.01)
        eventually(lambda: "reads nothing" in server.log.read_text())
    over = threading.Event()

    def flood():
        with Hostile(server, layout_hash) as client:
            reader = threading.Thread(target=client.ended)
            reader.start()
            while not over.is_set():
                client.send(head(STATUS))
            client.socket.shutdown(socket.SHUT_RDWR)
            reader.join()

    floods = [threading.Thread(target=flood) for _ in range(2)]
    for thread in floods:
        thread.start()
    try:
        started = time.monotonic()
        with Probe(write_spec(tmp_path / "t.yaml", json.loads(text)["dataset"], epochs=1), server) as probe:
            assert probe.batches()[-1]["error"] == EEND
        assert time.monotonic() - started < 20
    finally:
        over.set()
        for thread in floods:
            thread.join()


def test_a_stopped_client_finds_its_task_opened(tmp_path):
    """Progress must leave room in its socket: an index of many files tells a lot of it."""
    folder = tmp_path / "many" / "a"
    folder.mkdir(parents=True)
    (folder / "0.jpg").write_bytes(b"x")
    for number in range(1, 30000):
        os.link(folder / "0.jpg", folder / f"{number}.jpg")
    text = write_spec(tmp_path / "s.yaml", folder.parent).read_text()
    with Server(tmp_path / "server") as server:
        layout_hash = layout_hash_of(server)
        with Hostile(server, layout_hash) as client:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send(client.open_message(text))
            eventually(lambda: server.status()["tasks"], 30)
            kinds = [PROGRESS]
            while kinds[-1] == PROGRESS:
                kinds.append(client.receive()[1])
            assert kinds[-1] == OPENED


# --- leaks ----------------------------------------------------------------------------------------------------------------


def test_connections_openings_and_failures_leave_nothing(shared, tmp_path):
    server, layout_hash, text = shared
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    wrong = [b"dataset: nowhere\n", b"\x00\xff\n", json.dumps({**json.loads(text), "batch": {"size": 4096}, "window": 1024}).encode(),
             json.dumps({**json.loads(text), "batch": {"size": 101, "drop_last": True}}).encode()]

    def life(much):
        for _ in range(much):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(str(server.socket))
        for number in range(much // 20):
            with Hostile(server, layout_hash) as client:
                stage = number % 6
                if stage < 4:
                    assert client.open(wrong[stage].decode("latin1"))[1] == FAILED
                elif stage == 4:
                    client.send(client.open_message(text))  # and away
                    time.sleep(chance.random() * 0.004)
                else:
                    assert client.open(text)[1] == OPENED
                    time.sleep(chance.random() * 0.01)
        eventually(lambda: not server.status()["tasks"], 30)

    life(300)
    before, size = measured(server), resident(server.pid)
    life(2000)
    windows_equal(server, before)
    sanitized = "FOREBAY_SANITIZE:STRING=\n" not in (conftest.BUILD / "CMakeCache.txt").read_text()  # they keep what is freed
    assert resident(server.pid) < size + (8 << 20) or sanitized


def test_a_server_without_free_descriptors_turns_clients_away(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None, order="sequential")
    with Server(tmp_path / "server", wrapper=["prlimit", "--nofile=64:64"]) as server, Probe(spec, server) as witness:
        witness.batches(1)
        layout_hash = layout_hash_of(server)
        clients = []
        for _ in range(80):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            client.connect(str(server.socket))
            client.settimeout(20)
            clients.append(client)
        eventually(lambda: "turned away" in server.log.read_text())
        assert clients[-1].recv(100) == b""
        busy = cpu_seconds(server.pid)
        time.sleep(0.5)
        assert cpu_seconds(server.pid) - busy < 0.2, "it doesn't spin"
        assert [b["ids"][0] for b in witness.batches(3)] == [8, 16, 24]
        for client in clients:
            client.close()
        eventually(lambda: descriptors(server.pid) < 40)
        with Hostile(server, layout_hash) as client:
            assert client.open(spec.read_text())[1] == OPENED


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- servers that talk nonsense -----------------------------------------------------------------------------------------


class Genuine:
    """What a real server says to a task's opening and to the questions after it: texts, and the contents of what it maps."""

    def __init__(self, server, layout_hash, text):
        self.layout_hash = layout_hash
        with Hostile(server, layout_hash) as client:
            self.opened, kind = client.open(text)
            assert kind == OPENED
            eventually(lambda: client.tail() > 0)
            self.block = client.descriptor(0)[0] >> 16
            client.send(head(SEGMENT_ASK) + struct.pack("<II", self.block, 0))
            self.segment_reply, kind = client.receive()
            assert kind == SEGMENT_REPLY
            down, up, _, _, segment = client.fds
            self.images = {name: os.pread(fd, os.fstat(fd).st_size, 0) for name, fd in (("down", down), ("up", up), ("segment", segment))}
            first_batch = 1
            while not client.flags(first_batch - 1) & 1:
                first_batch += 1
            client.send(head(BLOCKS))
            self.blocks_reply, kind = client.receive()
            assert kind == BLOCKS_REPLY
        # Of what was delivered the first batch is left, and then the word that the task has failed.
        down = bytearray(self.images["down"])
        struct.pack_into("<I", down, peers.DOWN_TAIL, first_batch + 1)
        struct.pack_into("<2IQ", down, peers.PAGE + first_batch * 16, 0, 0, (1 | 4) << 32)
        self.images["down"] = bytes(down)

    def region(self, name, **wrong):
        kind = {"segment": SEGMENT, "down": DOWN, "up": UP}[name]
        return region(kind, self.layout_hash, len(self.images[name]), self.images[name][64:], **wrong)

    def opened_fds(self, **wrong):
        classes = os.memfd_create("classes", os.MFD_CLOEXEC)
        os.write(classes, b"ash\0birch\0cedar\0")
        return [self.region("down", **wrong.get("down", {})), self.region("up", **wrong.get("up", {})), os.eventfd(0), classes]

    def segment(self, **fields):
        """A segment whose header says otherwise; sealed as the server does it."""
        names = ["segment", "first_block", "blocks", "capacity", "meta_offset", "meta_stride", "payload_offset", "payload_stride", "sample_stride",
                 "dtype", "dimensions"]
        values = dict(zip(names, struct.unpack_from("<4I5Q2I", self.images["segment"], 64)))
        assert not set(fields) - set(values)
        body = struct.pack("<4I5Q2I", *{**values, **fields}.values())
        return region(SEGMENT, self.layout_hash, len(self.images["segment"]), body + self.images["segment"][64 + len(body):])


@pytest.fixture(scope="module")
def genuine(shared):
    return Genuine(*shared)


def opened_with(message, **fields):
    names = ["magic", "type", "version", "text_bytes", "dataset", "samples", "batches", "epochs", "sample_bytes", "shared_bytes", "first_epoch", "batch",
             "window", "element", "channels_last", "dimensions", "shape0", "shape1", "shape2", "shape3", "classes", "return_capacity", "spin_ns", "ranks", "reserved"]
    values = dict(zip(names, struct.unpack_from("<4I7Q14I", message)))
    assert not set(fields) - set(values)
    return struct.pack("<4I7Q14I", *{**values, **fields}.values()) + message[struct.calcsize("<4I7Q14I"):]


def probe_against(tmp_path, script, spec, commands=()):
    """Its answer to the opening, or to the last command."""
    with FakeServer(tmp_path / "f", script) as fake:
        done = subprocess.run([PROBE, "--socket", fake.socket, spec], input="\n".join([*commands, "quit\n"]), capture_output=True, text=True, timeout=60,
                              env={**os.environ, "FOREBAY_RECONNECT": "0"})
        assert done.returncode in (0, 1), (done.returncode, done.stderr)
        assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


def welcome(layout_hash, **wrong):
    fields = {"magic": peers.MAGIC, "version": peers.VERSION, "layout": layout_hash, **wrong}
    return head(WELCOME, version=fields["version"], magic=fields["magic"]) + struct.pack("<QII", fields["layout"], os.getpid(), 0)


def says(greeting, *answers, greet=True):
    """Greets; the client's own connection says no more; its task's gets one answer, of (message, descriptors)... each, to a question."""

    def script(connection):
        connection.recv(1 << 17)
        if not greet:
            send_with(connection, greeting)
        else:
            connection.send(greeting)
            for answer in answers:
                connection.recv(1 << 17)
                for message, fds in answer:
                    send_with(connection, message, fds)

    return script


def test_answers_of_strange_servers_are_refused(genuine, hundred, tmp_path):
    opened, spec = genuine.opened, write_spec(tmp_path / "s.yaml", hundred)
    regions, greeting = genuine.opened_fds, welcome(genuine.layout_hash)
    plain = [(b"x", ()), (head(STATUS_REPLY), ()), (head(OPENED), ()), (opened[:-4], regions()), (opened, ()), (opened, regions()[:3]),
             (opened, [*regions(), os.eventfd(0)]), (opened, [os.eventfd(0)] * 4), (opened, [os.open("/dev/null", os.O_RDONLY)] * 4),
             (head(FAILED) + struct.pack("<iIQ", 5, 0, 0) + b"why", regions()), (head(PROGRESS), ()), (genuine.blocks_reply, ()),
             (genuine.segment_reply, [genuine.region("segment")])]
    for message, fds in plain:
        answer = probe_against(tmp_path, says(greeting, [(message, fds)]), spec)
        assert answer.get("error") == EPROTO and answer["text"], (message[:32], answer)
    for name in ("down", "up"):
        for wrong, code in [({"seals": 0}, EPROTO), ({"magic": 1}, EPROTO), ({"version": 9}, EVERSION), ({"says": 4096}, EPROTO)]:
            if wrong == {"says": 4096} and len(genuine.images[name]) == 4096:
                continue
            answer = probe_against(tmp_path, says(greeting, [(opened, regions(**{name: wrong}))]), spec)
            assert answer.get("error") == code and f"{name} region" in answer["text"], (name, wrong, answer)
    for fields in [{"batch": 0}, {"window": 0}, {"dimensions": 5}, {"dimensions": 0}, {"element": 77},
                   {"element": 1}, {"shape0": 0xFFFFFFFF, "shape1": 0xFFFFFFFF}, {"sample_bytes": 1 << 40}, {"sample_bytes": 0}, {"classes": 4},
                   {"classes": 0xFFFFFFFF}, {"return_capacity": 3}, {"return_capacity": 1 << 31}]:
        answer = probe_against(tmp_path, says(greeting, [(opened_with(opened, **fields), regions())]), spec)
        assert answer.get("error") == EPROTO, (fields, answer)
    for wrong, code, words in [({"magic": 3}, EPROTO, "Forebay"), ({"version": 8}, EVERSION, "protocol 8"), ({"layout": 5}, EVERSION, "0000000000000005")]:
        answer = probe_against(tmp_path, says(welcome(genuine.layout_hash, **wrong), greet=False), spec)
        assert answer.get("error") == code and words in answer["text"], answer
    answer = probe_against(tmp_path, lambda connection: connection.close(), spec)
    assert answer.get("error") == ELOST and "closed this connection" in answer["text"], answer


def test_strange_answers_about_segments_are_refused(genuine, hundred, tmp_path):
    """What a client asks in mid-stream: which memory a block of its ring lies in, and which blocks are left."""
    spec, greeting, reply, block = write_spec(tmp_path / "s.yaml", hundred), welcome(genuine.layout_hash), genuine.segment_reply, genuine.block

    def next_with(*answers, commands=("next",), **wrong):
        opening = [(genuine.opened, genuine.opened_fds(**wrong))]
        return probe_against(tmp_path, says(greeting, opening, *answers), spec, commands)

    def named(number):
        return head(SEGMENT_REPLY) + struct.pack("<II", number, 0)

    def failed(kind, code=ESAMPLE):
        return head(kind, 3) + struct.pack("<iIQ", code, 0, 41) + b"why"

    right = [(reply, [genuine.region("segment")])]
    assert next_with(right)["ids"], "a server that answers right is believed"
    answers = [(b"x", ()), (head(SEGMENT_REPLY), ()), (reply, ()), (reply, [genuine.region("segment")] * 2), (reply + b"x", [genuine.region("segment")]),
               (reply[:-1], [genuine.region("segment")]), (named(block + 1), [genuine.region("segment")]), (named(0), [genuine.region("segment")]),
               (genuine.blocks_reply, ()), (genuine.opened, genuine.opened_fds()), (head(STATUS_REPLY), [genuine.region("segment")]),
               (reply, [os.eventfd(0)]), (reply, [os.open("/dev/null", os.O_RDONLY)]), (reply, [genuine.region("down")]), (reply, [genuine.region("up")]),
               (reply, [genuine.region("segment", seals=0)]), (reply, [genuine.region("segment", seals=peers.SEALS_CLIENT)]),
               (reply, [genuine.region("segment", magic=1)]), (reply, [genuine.region("segment", says=peers.PAGE)])]
    for fields in [{"first_block": block + 1}, {"blocks": 0}, {"blocks": 2}, {"blocks": 0xFFFFFFFF}, {"capacity": 0}, {"capacity": 1}, {"capacity": 1 << 31},
                   {"meta_offset": 0}, {"meta_offset": 1 << 63}, {"meta_stride": 64}, {"payload_offset": 1 << 40}, {"payload_offset": 4097},
                   {"payload_stride": 4096}, {"payload_stride": 1 << 60}, {"sample_stride": 0}, {"sample_stride": 1}, {"sample_stride": 1 << 62}, {"dimensions": 9}]:
        answers.append((reply, [genuine.segment(**fields)]))
    for message, fds in answers:
        answer = next_with([(message, fds)], commands=("next", "next"))
        assert answer.get("error") == EPROTO and answer["text"], (message[:32], answer)
    assert next_with([(reply, [genuine.region("segment", version=9)])])["error"] == EVERSION
    assert next_with([(failed(FAILED), ())])["text"] == "why"
    # That the task has failed may come first: it is said when the ring says so, after what was delivered before.
    late = [(failed(TASK_FAILED), ()), *right]
    assert next_with(late)["ids"]
    answer = next_with(late, commands=("next", "next"))
    assert (answer["error"], answer["text"], answer["sample"]) == (ESAMPLE, "why", 41)

    down = bytearray(genuine.images["down"])
    struct.pack_into("<I", down, peers.DOWN_GONE, 1)
    kept, genuine.images["down"] = genuine.images["down"], bytes(down)
    try:
        for blocks in ([], [block], list(range(1, 1025))):
            message = head(BLOCKS_REPLY) + struct.pack("<II1024I", len(blocks), 0, *blocks, *[0] * (1024 - len(blocks)))
            assert next_with([(message, ())], right)["ids"]
            assert next_with([(failed(TASK_FAILED), ()), (message, ())], right, commands=("next", "next"))["text"] == "why"
            assert next_with([(message, [os.eventfd(0)])])["error"] == EPROTO
        too_many = head(BLOCKS_REPLY) + struct.pack("<II1024I", 1025, 0, *[block] * 1024)
        for message in (b"x", head(BLOCKS_REPLY), too_many, too_many[:-4], reply, genuine.opened):
            answer = next_with([(message, ())], right)
            assert answer.get("error") == EPROTO, (message[:32], answer)
    finally:
        genuine.images["down"] = kept


# --- many at once -----------------------------------------------------------------------------------------------------------


def test_many_clients_that_start_at_once_share_one_embedded_server(hundred, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    spec = write_spec(tmp_path / "s.yaml", hundred, order="sequential")
    for _ in range(2):  # the second time over a stale socket
        processes = [subprocess.Popen([PROBE, "--embedded", spec], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      env={**os.environ, "FOREBAY_SERVER": str(FOREBAY)}) for _ in range(20)]
        for process in processes:
            process.stdin.write("next\n")
            process.stdin.flush()
        answers = [[json.loads(process.stdout.readline()) for _ in range(2)] for process in processes]
        servers = {opened["opened"]["server"] for opened, _ in answers}
        assert len(servers) == 1
        assert all(batch["ids"][0] == 0 for _, batch in answers)
        for process in processes:
            process.kill()
            process.communicate()
        os.kill(servers.pop(), signal.SIGKILL)


def test_of_servers_that_start_at_once_one_serves(tmp_path):
    for _ in range(3):
        logs = [open(tmp_path / str(number), "w+") for number in range(6)]
        servers = [subprocess.Popen([FOREBAY, "serve", "--socket", tmp_path / "s"], stderr=log) for log in logs]
        eventually(lambda: sum(server.poll() is None for server in servers) == 1, 20)
        alive = [server for server in servers if server.poll() is None]
        eventually(lambda: subprocess.run([FOREBAY, "status", "--json", "--socket", tmp_path / "s"], capture_output=True).returncode == 0)
        for log, server in zip(logs, servers):
            log.seek(0)
            assert server in alive or "already listens" in log.read()
            log.close()
        alive[0].kill()
        alive[0].wait()


TRAINER = """
import os, pathlib, sys, forebay
os.dup2(os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT), 50)
for number in sys.argv[1]:
    os.close(int(number))
with forebay.Loader(spec=pathlib.Path(sys.argv[2]).read_text()) as loader:
    os.write(50, b"%d" % sum(len(labels) for _, labels in loader))
"""


def test_a_trainer_without_standard_streams_starts_a_server(hundred, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    spec = write_spec(tmp_path / "s.yaml", hundred)
    for closed in ("012", "12", "0", "2"):
        said = tmp_path / closed
        subprocess.run([sys.executable, "-c", TRAINER, closed, spec, said], timeout=30, env={**os.environ, "FOREBAY_SERVER": str(FOREBAY)})
        assert said.read_text() == "100"
        status = json.loads(subprocess.run([FOREBAY, "status", "--json"], capture_output=True, check=True).stdout)
        os.kill(status["pid"], signal.SIGKILL)


@pytest.mark.parametrize("length", [100, 107, 108, 200, 1000])
def test_socket_paths_of_any_length(hundred, tmp_path, length):
    folder = tmp_path
    while len(str(folder)) + 70 < length:
        folder = folder / ("d" * min(200, length - len(str(folder)) - 60))
    folder.mkdir(parents=True, exist_ok=True)
    name = "s" * max(1, min(70, length - len(str(folder)) - 1))
    with subprocess.Popen([FOREBAY, "serve", "--socket", folder / name], stderr=subprocess.PIPE, text=True) as server:
        assert "serving at" in server.stderr.readline()
        probe = subprocess.run([PROBE, "--socket", folder / name, write_spec(tmp_path / "s.yaml", hundred)], input="next\n", capture_output=True, text=True)
        assert '"ids"' in probe.stdout, probe.stdout
        server.terminate()
        server.communicate()
        assert server.returncode == 0 and not (folder / name).exists()


def test_a_home_that_cannot_be_written_and_no_runtime_folder(hundred, tmp_path):
    """Even so a client starts its server: it does without log and without a kept index."""
    spec = write_spec(tmp_path / "s.yaml", hundred)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")}
    environment.update(HOME="/proc/nowhere", FOREBAY_SERVER=str(FOREBAY))
    folder = f"/tmp/forebay-{os.geteuid()}"
    there = os.path.exists(folder)
    done = subprocess.run([PROBE, "--embedded", spec], input="next\n", capture_output=True, text=True, timeout=30, env=environment)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert "ids" in answers[1], done.stdout
    assert os.stat(folder).st_mode & 0o777 == 0o700
    if not there:
        os.kill(answers[0]["opened"]["server"], signal.SIGTERM)
        eventually(lambda: not os.path.exists(f"/proc/{answers[0]['opened']['server']}"))
        shutil.rmtree(folder)


def test_a_server_told_to_end_while_tasks_run_ends_soon(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None, order="shared")
    with Server(tmp_path / "server") as server:
        probes = [Probe(spec, server) for _ in range(4)]
        for probe in probes:
            probe.batches(3)
            probe.send("next 30000")
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 3
        assert not server.socket.exists()
        for probe in probes:
            answer = probe.read()
            while "error" not in answer:
                probe.ask(f"release {answer['batch']}")
                answer = probe.ask("next")
            assert answer["error"] == ELOST
            probe.close()


# --- odd shapes of tasks ------------------------------------------------------------------------------------------------------


def numbered(batches):
    """Epochs follow each other, batches are counted within them, and each epoch's last one says so."""
    epochs = {}
    for batch in batches:
        epochs.setdefault(batch["epoch"], []).append(batch)
    assert list(epochs) == sorted(epochs)
    for taken in epochs.values():
        assert [b["index"] for b in taken] == list(range(len(taken)))
        assert not any(b["last"] for b in taken[:-1])
    return epochs


@pytest.fixture(scope="module")
def one_picture(hundred, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    (folder / "a").mkdir()
    shutil.copy(hundred / "ash" / "000.jpg", folder / "a")
    return folder


@pytest.mark.parametrize("order", ["shared", "strict", "sequential"])
def test_small_and_large_batches_and_windows(shared, hundred, one_picture, tmp_path, order):
    server, _, _ = shared
    for dataset, samples in ((hundred, 100), (one_picture, 1)):
        for batch, window in [(1, 1), (7, 1), (100, 1), (4096, 1), (33, 2)]:
            spec = write_spec(tmp_path / "s.yaml", dataset, order=order, batch={"size": batch}, window=window, epochs=3, pipeline=["decode", {"center_crop": 8}])
            with Probe(spec, server) as probe:
                batches = probe.batches()
                assert batches.pop()["error"] == EEND
                info = probe.opened["opened"]
            epochs = numbered(batches)
            assert len(epochs) == 3 and info["batches"] == -(-samples // batch)
            for taken in epochs.values():
                assert taken[-1]["last"] and len(taken) == info["batches"]
                assert sorted(i for b in taken for i in b["ids"]) == list(range(samples))
                assert all(len(b["ids"]) == min(batch, samples) for b in taken[:-1])


def test_drop_last_with_more_than_the_data_set_is_refused(shared, hundred, one_picture, tmp_path):
    server, _, _ = shared
    for batch, dataset in ((101, hundred), (2, one_picture)):
        with Probe(write_spec(tmp_path / "s.yaml", dataset, batch={"size": batch, "drop_last": True}), server) as probe:
            assert probe.opened["error"] == EINVAL and "drop_last" in probe.opened["text"], probe.opened
    with Probe(write_spec(tmp_path / "t.yaml", hundred, batch={"size": 30, "drop_last": True}, epochs=2), server) as probe:
        epochs = numbered(probe.batches()[:-1])
        assert [[len(b["ids"]) for b in taken] for taken in epochs.values()] == [[30] * 3] * 2


@pytest.mark.parametrize("order", ["shared", "strict"])
@pytest.mark.parametrize("epochs", [1, 4, None])
def test_epochs_given_up_anywhere_are_numbered_right(shared, hundred, one_picture, tmp_path, order, epochs):
    server, _, _ = shared
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    for dataset, batch in ((hundred, 8), (hundred, 60), (one_picture, 3)):
        with Probe(write_spec(tmp_path / "s.yaml", dataset, order=order, epochs=epochs, batch={"size": batch}, pipeline=["decode", {"center_crop": 8}]),
                   server) as probe:
            least, batches, ended = 0, [], False
            for _ in range(40):
                if chance.random() < 0.2:
                    answer = probe.ask("abandon")
                    ended = answer.get("error") == EEND
                    assert ended or answer == {"abandoned": True}
                    if batches and not batches[-1]["last"]:
                        least = batches[-1]["epoch"] + 1
                    if ended:
                        break
                taken = probe.batches(1)[0]
                if taken.get("error") == EEND:
                    ended = True
                    break
                assert taken["epoch"] >= least
                batches.append(taken)
            if ended:
                assert epochs and probe.ask("next")["error"] == EEND
            for taken in numbered(batches).values():
                ids = [i for b in taken for i in b["ids"]]
                assert len(set(ids)) == len(ids)


# --- bad samples ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["shared", "strict", "sequential"])
def test_skip_where_everything_is_bad_says_so(shared, tmp_path, order):
    server, _, _ = shared
    for count in (1, 9, 200):
        folder = tmp_path / str(count) / "a"
        folder.mkdir(parents=True)
        for number in range(count):
            (folder / f"{number}.jpg").write_bytes(b"\xff\xd8\xff nothing")
        spec = write_spec(tmp_path / "s.yaml", folder.parent, order=order, on_error="skip", max_errors=100000, epochs=None)
        with Probe(spec, server) as probe:
            answer = probe.ask("next")
            assert answer["error"] == ESAMPLE and "stand in" in answer["text"], answer
            assert probe.ask("next")["error"] == ESAMPLE


@pytest.mark.parametrize("order", ["shared", "strict", "sequential"])
def test_bad_samples_at_the_ends_of_epochs(shared, hundred, tmp_path, order):
    """Lots of several epochs are under way at once, repairs of older ones among them: lengths, numbers and ids stay right, and errors are
    counted by their own epoch."""
    server, _, _ = shared
    for count, batch, bad in ((5, 4, [4]), (9, 4, [0, 8]), (20, 20, [19]), (3, 8, [0, 2])):
        folder = tmp_path / f"{count}-{batch}" / "a"
        folder.mkdir(parents=True)
        for number in range(count):
            shutil.copy(hundred / "ash" / f"{number:03}.jpg", folder / f"{number:03}.jpg")
            if number in bad:
                (folder / f"{number:03}.jpg").write_bytes(b"\xff\xd8\xff nothing")
        keys = dict(order=order, on_error="skip", epochs=12, batch={"size": batch}, pipeline=["decode", {"center_crop": 8}])
        good = sorted(set(range(count)) - set(bad))
        with Probe(write_spec(tmp_path / "s.yaml", folder.parent, max_errors=len(bad), **keys), server) as probe:
            batches = probe.batches()
            assert batches.pop()["error"] == EEND, batches
        for taken in numbered(batches).values():
            assert taken[-1]["last"]
            samples = [(i, f) for b in taken for i, f in zip(b["ids"], b["flags"])]
            assert len(samples) == count
            assert sorted(i for i, flag in samples if not flag & 2) == good
        with Probe(write_spec(tmp_path / "t.yaml", folder.parent, max_errors=len(bad) - 1, **keys), server) as probe:
            last = probe.batches()[-1]
            assert last["error"] == ESAMPLE and "max_errors" in last["text"], last


def test_more_stuck_decoders_than_read_buffers(hundred, tmp_path):
    """What an abandoned worker holds is replaced: workers, and the buffers of encoded bytes."""
    spec = write_spec(tmp_path / "s.yaml", hundred, on_error="skip", max_errors=50, sample_timeout="100ms", pipeline=["decode", {"center_crop": 32}])
    stuck = {**STUCK, "FBY_STUCK_WIDTH": "60"}
    with Server(tmp_path / "server", "--workers", 1, "--depth", 1, environment=stuck) as server, Probe(spec, server) as probe:
        assert probe.batches()[-1]["error"] == EEND
        with Probe(spec, server) as again:
            again.send("next 1000")
            again.read()
        with Probe(write_spec(tmp_path / "t.yaml", hundred, order="sequential", batch={"size": 1}, on_error="skip", max_errors=50, sample_timeout="100ms",
                              pipeline=["decode", {"center_crop": 32}]), server) as other:
            assert len(other.batches(5)) == 5
        engine = server.status()["engine"]
        assert engine["abandoned_workers"] > 14 and engine["workers"] == 1
        server.process.kill()
