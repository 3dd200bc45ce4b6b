"""What happens when something goes wrong: processes that die or stop, samples that are bad, memory that is short."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import time

import pytest
from processes import (DENY_URING, EEND, EFORKED, EINVAL, ELOST, ENOMEM, ENOTSUP, EPERM, ESAMPLE, ETIMEDOUT, FOREBAY, PROBE, STUCK_JPEG,  # noqa: F401
                       Probe, Server, descriptors, eventually, hundred, write_spec)

pytestmark = pytest.mark.usefixtures("surroundings")
CRASH = {"LD_PRELOAD": str(STUCK_JPEG), "ASAN_OPTIONS": f"verify_asan_link_order=0:{os.environ.get('ASAN_OPTIONS', '')}:handle_segv=0",
         "TSAN_OPTIONS": f"{os.environ.get('TSAN_OPTIONS', '')}:handle_segv=0"}
STUCK = {"LD_PRELOAD": str(STUCK_JPEG), "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}


# --- processes that die or stop -----------------------------------------------------------------------------------


def test_the_window_of_a_killed_client_comes_back(hundred, tmp_path):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    with Server(tmp_path / "server") as server, Probe(spec, server) as witness:
        first = witness.batches(5)
        with Probe(spec, server) as probe:  # what a server keeps for good, it keeps from its first tasks on
            probe.batches(5)
        eventually(lambda: len(server.status()["tasks"]) == 1)
        used, held = server.status()["memory"]["used"], descriptors(server.pid)
        for _ in range(10):
            probe = Probe(spec, server)
            for _ in range(chance.randrange(8)):
                batch = probe.ask("next")
                if chance.random() < 0.5:
                    probe.ask(f"release {batch['batch']}")
            if chance.random() < 0.5:
                probe.send("next 10000")
            probe.kill()
        eventually(lambda: len(server.status()["tasks"]) == 1)
        eventually(lambda: server.status()["memory"]["used"] == used and descriptors(server.pid) == held)
        assert server.status()["disconnected"] == 0
        rest = witness.batches(8)
        assert sorted(i for b in first + rest for i in b["ids"]) == list(range(100))


def test_a_stopped_client_costs_the_others_nothing(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    with Server(tmp_path / "server") as server, Probe(spec, server) as stopped:
        before = stopped.batches(3)
        stopped.process.send_signal(signal.SIGSTOP)
        with Probe(write_spec(tmp_path / "t.yaml", hundred, epochs=5), server) as other:
            assert other.batches()[-1]["error"] == EEND
        stopped.process.send_signal(signal.SIGCONT)
        after = stopped.batches(10)
        assert sorted(i for b in before + after for i in b["ids"]) == list(range(100))


@pytest.mark.parametrize("number, name", [(signal.SIGKILL, "Killed"), (signal.SIGTERM, "")])
def test_a_wait_ends_when_the_server_dies(hundred, tmp_path, number, name):
    # The server can't deliver: its only picture never comes out of the decoder.
    spec = write_spec(tmp_path / "s.yaml", hundred, sample_timeout="1h", pipeline=["decode", {"center_crop": 32}])
    with Server(tmp_path / "server", "--workers", 1, environment={**STUCK, "FBY_STUCK_WIDTH": "60"}) as server, Probe(spec, server) as probe:
        probe.send("next 60000")
        time.sleep(0.3)
        started = time.monotonic()
        server.process.send_signal(number)
        server.process.wait()  # its parent takes note of its end: only then the kernel tells how it ended
        answer = probe.read()
        if number == signal.SIGKILL:
            assert time.monotonic() - started < 2  # a second, and the machine's pauses
        assert (answer["error"], answer["pid"]) == (ELOST, server.pid), answer
        assert str(server.pid) in answer["text"] and name in answer["text"]
        if answer["signal"]:  # older kernels don't tell
            assert answer["signal"] == number
        assert probe.ask("next")["error"] == ELOST
        server.process.kill()


def test_what_was_delivered_before_the_server_died_still_comes_and_stays(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        held = probe.ask("next")
        time.sleep(0.3)
        server.process.kill()
        server.process.wait()
        assert probe.ask(f"hash {held['batch']}")["hash"] == held["hash"]
        answer = probe.ask("next")
        while "batch" in answer:
            probe.ask(f"release {answer['batch']}")
            answer = probe.ask("next")
        assert answer["error"] == ELOST
        assert probe.ask(f"hash {held['batch']}")["hash"] == held["hash"]


def test_a_decoder_that_crashes_ends_the_wait_with_its_signal(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, pipeline=["decode", {"center_crop": 32}])
    with Server(tmp_path / "server", environment={**CRASH, "FBY_CRASH_WIDTH": "63"}) as server, Probe(spec, server) as probe:
        answer = probe.batches()[-1]
        assert (answer["error"], answer["pid"]) == (ELOST, server.pid)
        assert answer["signal"] in (0, signal.SIGSEGV)


def test_nothing_that_a_killed_server_left_stops_the_next(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred)
    for _ in range(3):
        with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
            assert len(probe.batches(3)) == 3
            server.process.kill()
            server.process.wait()
    with Server(tmp_path / "server"):
        done = subprocess.run([FOREBAY, "serve", "--socket", tmp_path / "server" / "s"], capture_output=True, text=True, timeout=30)
        assert done.returncode == 1 and "already listens" in done.stderr


def test_embedded_servers_start_end_and_start_again(hundred, tmp_path, surroundings):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    with Probe(spec) as one, Probe(spec) as two:
        server = one.opened["opened"]["server"]
        assert two.opened["opened"]["server"] == server, "one server serves all"
        assert len(one.batches(3)) == len(two.batches(3)) == 3
        assert os.getsid(server) == server or os.getsid(server) != os.getsid(0)
        os.kill(server, signal.SIGKILL)
        assert one.batches()[-1]["error"] == two.batches()[-1]["error"] == ELOST
    with Probe(spec) as three:
        second = three.opened["opened"]["server"]
        assert second != server and len(three.batches(3)) == 3
    os.kill(second, signal.SIGTERM)
    eventually(lambda: not pathlib.Path(f"/proc/{second}").exists())


def test_a_forked_child_is_told_and_its_parent_goes_on(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=1)
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        held = probe.ask("next")
        answer = probe.ask("fork")
        assert answer["error"] == EFORKED and "child" in answer["text"]
        assert probe.ask(f"hash {held['batch']}")["hash"] == held["hash"]
        rest = probe.batches()
        assert rest.pop()["error"] == EEND
        assert sorted(held["ids"] + [i for b in rest for i in b["ids"]]) == list(range(100))


def test_a_write_into_a_batch_hurts_the_writer_alone(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    with Server(tmp_path / "server") as server, Probe(spec, server) as witness:
        with Probe(spec, server) as probe:
            probe.ask("next")
            probe.send("write 0")
            assert probe.process.wait(10) in (-signal.SIGSEGV, 1, 66)  # 1, 66: how sanitizers end
        assert len(witness.batches(20)) == 20


def test_a_closed_task_leaves_what_is_held(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        held = probe.ask("next")
        probe.ask("close")
        eventually(lambda: not server.status()["tasks"])
        with Probe(spec, server) as other:
            other.batches(20)
        assert probe.ask(f"hash {held['batch']}")["hash"] == held["hash"]


# --- who may connect ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_another_user_is_refused(hundred, tmp_path, mode):
    folder = pathlib.Path("/tmp") / f"forebay-test-{os.getpid()}-{mode:o}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o755)
        program = shutil.copy(PROBE, folder / "probe")
        spec = write_spec(folder / "s.yaml", hundred)
        with Server(folder) as server:
            os.chmod(server.socket, mode)
            done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, "--socket", server.socket, spec],
                                  capture_output=True, text=True, timeout=30)
            answer = json.loads(done.stdout.splitlines()[0])
            assert answer["error"] == EPERM, answer
            with Probe(spec, server) as probe:
                assert len(probe.batches(2)) == 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_rubbish_on_the_socket_is_answered_by_a_disconnect(hundred, tmp_path):
    chance = random.Random(5)
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    with Server(tmp_path / "server") as server, Probe(spec, server) as witness:
        for length in [1, 15, 16, 17, 100, 1040, 1056, 5000, 60000]:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(str(server.socket))
                client.settimeout(10)
                client.send(chance.randbytes(length))
                assert client.recv(4096) == b""
        assert len(witness.batches(5)) == 5
        eventually(lambda: server.status()["disconnected"] == 9)


# --- bad samples ------------------------------------------------------------------------------------------------------


@pytest.fixture
def spoiled(hundred, tmp_path):
    """The hundred, of which five are bad, each in its way: {id: reason}."""
    folder = tmp_path / "spoiled"
    shutil.copytree(hundred, folder)
    files = sorted(folder.glob("*/*.jpg"))
    whole = files[10].read_bytes()
    files[10].write_bytes(whole[: len(whole) // 2])
    files[25].write_bytes(b"")
    files[40].write_bytes(b"<html><body>404 Not Found</body></html>")
    files[77].write_bytes(b"GIF89a")
    files[99].write_bytes(whole[:600] + b"\xff\xd9")
    return folder, {10: "truncated", 25: "empty", 40: "format", 77: "truncated", 99: None}


def test_a_bad_sample_fails_its_task_by_name(spoiled, tmp_path):
    folder, bad = spoiled
    spec = write_spec(tmp_path / "s.yaml", folder, order="sequential")
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        batches = probe.batches()
        assert [b["ids"][0] for b in batches[:-1]] == [0], "what comes before it is delivered"
        for answer in (batches[-1], probe.ask("next")):
            assert (answer["error"], answer["sample"]) == (ESAMPLE, 10)
            assert "ash/010.jpg" in answer["text"] and "truncated" in answer["text"] and "decode" in answer["text"]
        assert "ash/010.jpg" in server.status()["tasks"][0]["failed"]
        with Probe(write_spec(tmp_path / "t.yaml", folder, order="sequential", batch={"size": 10}), server) as other:
            assert len(other.batches(1)[0]["ids"]) == 10


@pytest.mark.parametrize("reader", ["uring", "pread"])
@pytest.mark.parametrize("order", ["shared", "strict", "sequential"])
def test_skip_replaces_bad_samples_and_counts_them(spoiled, tmp_path, order, reader):
    folder, bad = spoiled
    spec = write_spec(tmp_path / "s.yaml", folder, order=order, on_error="skip", max_errors=10, epochs=2)
    with Server(tmp_path / "server", "--reader", reader) as server, Probe(spec, server) as probe:
        batches = probe.batches(26)
        status = server.status()["tasks"][0]["bad"]
        assert probe.ask("next")["error"] == EEND
    good = set(range(100)) - set(bad)
    for epoch in (0, 1):
        samples = [(i, flag) for b in batches if b["epoch"] == epoch for i, flag in zip(b["ids"], b["flags"])]
        assert len(samples) == 100, "the length never changes"
        assert {i for i, _ in samples} == good
        assert sorted(i for i, flag in samples if not flag & 2) == sorted(good), "but for flagged repeats each comes once"
        assert sum(1 for _, flag in samples if flag & 4) >= len(bad)
    assert status["total"] >= 2 * len(bad) and status["substituted"] == status["total"]
    assert {entry["id"] for entry in status["latest"]} == set(bad)
    for entry in status["latest"]:
        assert bad[entry["id"]] in (entry["reason"], None) and f"{entry['id']:03}.jpg" in entry["path"]


def test_skip_is_as_repeatable_as_strict_order(spoiled, tmp_path):
    folder, _ = spoiled
    spec = write_spec(tmp_path / "s.yaml", folder, on_error="skip", max_errors=10)
    runs = []
    for workers in (1, 4):
        with Server(tmp_path / str(workers), "--workers", workers) as server, Probe(spec, server) as probe:
            runs.append([(b["ids"], b["flags"], b["hash"]) for b in probe.batches(13)])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("limit, ends", [(5, False), (4, True), (0, True), (0.06, False), (0.04, True)])
def test_max_errors_ends_a_task(spoiled, tmp_path, limit, ends):
    folder, _ = spoiled
    spec = write_spec(tmp_path / "s.yaml", folder, on_error="skip", max_errors=limit)
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        last = probe.batches()[-1]
        assert last["error"] == (ESAMPLE if ends else EEND), last
        if ends:
            assert "max_errors" in last["text"] and ".jpg" in last["text"]


def test_files_that_vanish_or_change_are_bad_by_their_reason(hundred, tmp_path):
    folder = tmp_path / "changing"
    shutil.copytree(hundred, folder)
    files = sorted(folder.glob("*/*.jpg"))
    folders = [folder, *folder.iterdir()]

    def age():  # what changed long ago is believed to be as the index says
        for old in folders:
            os.utime(old, ns=(10**18, 10**18))

    age()
    spec = write_spec(tmp_path / "s.yaml", folder, on_error="skip", max_errors=10, order="sequential")
    with Server(tmp_path / "server") as server:
        with Probe(spec, server) as probe:
            assert "error" not in probe.batches(1)[0]
        files[50].unlink()
        files[60].write_bytes(files[60].read_bytes() + b"more")
        files[70].write_bytes(files[70].read_bytes()[:-1])
        files[80].unlink()
        files[80].mkdir()
        files[90].unlink()
        files[90].symlink_to(files[90])
        age()
        with Probe(spec, server) as probe:
            assert probe.batches()[-1]["error"] == EEND
            bad = server.status()["tasks"][0]["bad"]["latest"]
    assert {entry["id"]: entry["reason"] for entry in bad} == {50: "missing", 60: "changed", 70: "changed", 80: "unreadable", 90: "missing"}


def test_a_file_that_claims_to_be_huge_is_bad_before_memory_is_taken(hundred, tmp_path):
    folder = tmp_path / "huge"
    shutil.copytree(hundred, folder)
    os.truncate(sorted(folder.glob("*/*.jpg"))[3], 1 << 40)
    spec = write_spec(tmp_path / "s.yaml", folder, order="sequential")
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        answer = probe.ask("next")
        assert (answer["error"], answer["sample"]) == (ESAMPLE, 3), answer
        assert "256 MiB" in answer["text"] and server.status()["engine"]["buffer_bytes"] < 1 << 30


# --- decoders that don't return ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["shared", "strict"])
def test_a_decoder_that_never_returns_costs_its_samples_only(hundred, tmp_path, order):
    spec = write_spec(tmp_path / "s.yaml", hundred, order=order, on_error="skip", max_errors=50, sample_timeout="300ms", epochs=1,
                      pipeline=["decode", {"center_crop": 32}], batch={"size": 32})
    with Server(tmp_path / "server", "--workers", 2, environment={**STUCK, "FBY_STUCK_WIDTH": "62"}) as server, Probe(spec, server) as probe:
        batches = probe.batches(4)
        assert "error" not in batches[-1], (batches[-1], server.log.read_text())
        status = server.status()
        ids = [i for b in batches for i in b["ids"]]
        assert len(ids) == 100 and not any(i % 7 == 2 for i in ids)
        assert status["engine"]["workers"] == 2 and status["engine"]["abandoned_workers"] == 14
        assert {entry["reason"] for entry in status["tasks"][0]["bad"]["latest"]} == {"timeout"}
        server.process.kill()


def test_a_decoder_that_returns_late_changes_nothing_and_leaves_nothing(hundred, tmp_path):
    """Its place went to a stand-in and then to later samples: what its worker made comes too late to be written there."""
    keys = dict(on_error="skip", max_errors=50, pipeline=["decode", {"center_crop": 32}], batch={"size": 50})
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=1, sample_timeout="200ms", **keys)
    stuck = {**STUCK, "FBY_STUCK_WIDTH": "66", "FBY_STUCK_SECONDS": "1"}
    with Server(tmp_path / "server", "--workers", 2, environment=stuck) as server:
        with Probe(spec, server) as probe:
            held = [probe.ask("next") for _ in range(2)]
            assert sorted(i for b in held for i, flags in zip(b["ids"], b["flags"]) if not flags & 2) == [i for i in range(100) if i % 7 != 6]
            assert server.status()["engine"]["abandoned_workers"] > 0, "they are still inside it"
            eventually(lambda: server.status()["engine"]["abandoned_workers"] == 0)
            assert [probe.ask(f"hash {b['batch']}")["hash"] for b in held] == [b["hash"] for b in held]
            assert probe.ask("next")["error"] == EEND
        eventually(lambda: not server.status()["tasks"])
        assert server.status()["engine"]["workers"] == 2
        assert server.status()["memory"]["used"] == 0, "all that the task had is given back"


def test_a_stuck_sample_fails_its_task_by_name(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, order="sequential", sample_timeout="300ms", pipeline=["decode", {"center_crop": 32}])
    with Server(tmp_path / "server", "--workers", 1, environment={**STUCK, "FBY_STUCK_WIDTH": "65"}) as server, Probe(spec, server) as probe:
        answer = probe.batches()[-1]
        assert (answer["error"], answer["sample"]) == (ESAMPLE, 5)
        assert "ash/005.jpg" in answer["text"] and "timeout" in answer["text"]
        server.process.kill()


def test_a_deadline_says_what_it_waited_for(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, sample_timeout="1h", pipeline=["decode", {"center_crop": 32}])
    with Server(tmp_path / "server", environment={**STUCK, "FBY_STUCK_WIDTH": "60"}) as server, Probe(spec, server) as probe:
        while "batch" in (answer := probe.ask("next 200")):
            pass
        assert answer["error"] == ETIMEDOUT and "epoch 0" in answer["text"] and "0.200 s" in answer["text"]
        server.process.kill()


# --- what is refused ----------------------------------------------------------------------------------------------------


def test_short_memory_refuses_the_join_with_figures(hundred, tmp_path):
    with Server(tmp_path / "server", "--memory", "40MiB") as server, Probe(write_spec(tmp_path / "s.yaml", hundred, epochs=None), server) as running:
        large = write_spec(tmp_path / "l.yaml", hundred, batch={"size": 256},
                           pipeline=["decode", {"random_resized_crop": {"size": 224}}, {"normalize": "imagenet"}])
        with Probe(large, server) as refused:
            assert refused.opened["error"] == ENOMEM
            assert "--memory" in refused.opened["text"] and "40.0 MiB" in refused.opened["text"]
        assert len(running.batches(20)) == 20


def test_a_wrong_spec_names_line_key_and_remedy(hundred, tmp_path):
    bad = tmp_path / "bad.yaml"
    with Server(tmp_path / "server") as server:
        for text, words in [("dataset: x\nbatch:\n  sise: 3\n", ["bad.yaml:3", "sise", "size"]),
                            (f"dataset: {hundred}\npipeline:\n  - decode\n  - center_crop: 0\n", ["bad.yaml:4", "center_crop"]),
                            (f"dataset: {hundred}\npipeline:\n  - decode\n", ["decode"]),
                            (f"dataset: {{tar: a.tar}}\npipeline: [decode, {{center_crop: 8}}]\n", ["bad.yaml:1", "not in this version"]),
                            (f"dataset: {hundred}\nsteps_per_epoch: 2\npipeline: [decode, {{center_crop: 8}}]\n", ["bad.yaml:2", "steps_per_epoch", "echo: {factor: auto}"]),
                            ("dataset: nowhere\npipeline: [decode, {center_crop: 8}]\n", ["nowhere"])]:
            bad.write_text(text)
            with Probe(bad, server) as probe:
                assert probe.opened["error"] in (EINVAL, ENOTSUP), probe.opened
                assert all(word in probe.opened["text"] for word in words), probe.opened["text"]


# --- what a machine may refuse --------------------------------------------------------------------------------------------


def test_where_io_uring_is_refused_threads_read(hundred, tmp_path, monkeypatch):
    monkeypatch.delenv("FOREBAY_READER", raising=False)
    spec = write_spec(tmp_path / "s.yaml", hundred)
    hashes = []
    for wrapper in ([], [DENY_URING]):
        with Server(tmp_path / f"server{len(wrapper)}", wrapper=wrapper) as server, Probe(spec, server) as probe:
            hashes.append([b["hash"] for b in probe.batches(13)])
            about = server.status()["engine"]["reader"]
    assert hashes[0] == hashes[1]
    assert "io_uring_setup" in about and "pread" in about
    done = subprocess.run([DENY_URING, FOREBAY, "serve", "--socket", tmp_path / "t", "--reader", "uring"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "io_uring" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_plain_user_with_little_locked_memory_is_served(hundred, tmp_path):
    folder = pathlib.Path("/tmp") / f"forebay-plain-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        (folder / "run").mkdir(parents=True)
        shutil.copytree(hundred, folder / "data")
        programs = [shutil.copy(program, folder) for program in (FOREBAY, PROBE)]
        spec = write_spec(folder / "s.yaml", folder / "data")
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755)
            os.chown(path, 65534, 65534)
        plain = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        environment = {name: str(folder / "run") for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME")}
        environment["FOREBAY_SERVER"] = programs[0]
        probe = subprocess.run([*plain, programs[1], "--embedded", spec], input="next\nnext\nquit\n", capture_output=True, text=True, timeout=60,
                               env={**os.environ, **environment})
        answers = [json.loads(line) for line in probe.stdout.splitlines()]
        assert [sorted(a)[0] for a in answers] == ["opened", "batch", "batch"], probe.stdout + probe.stderr
        os.kill(answers[0]["opened"]["server"], signal.SIGTERM)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_workers_are_as_many_as_the_affinity_grants(hundred, tmp_path):
    cpu = min(os.sched_getaffinity(0))
    spec = write_spec(tmp_path / "s.yaml", hundred)
    with Server(tmp_path / "server", wrapper=["taskset", "-c", str(cpu)]) as server, Probe(spec, server) as probe:
        assert probe.batches()[-1]["error"] == EEND
        assert server.status()["engine"]["workers"] == 1


def test_the_index_is_the_servers_alone(hundred, tmp_path):
    """CASES: index lists copied per worker."""
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    with Server(tmp_path / "server") as server, Probe(spec, server) as probe:
        probe.batches(2)
        cache = str(tmp_path / "server" / "cache")
        assert cache in pathlib.Path(f"/proc/{server.pid}/maps").read_text()
        assert cache not in pathlib.Path(f"/proc/{probe.pid}/maps").read_text()


def test_a_stopped_server_only_means_waiting(hundred, tmp_path):
    """Also while the client asks it for a segment: a wait ends at its deadline, may be repeated, and goes on when the server does."""
    spec = write_spec(tmp_path / "s.yaml", hundred, order="sequential", epochs=None)
    with Server(tmp_path / "server") as server:
        for taken in range(3):
            with Probe(spec, server) as probe:
                assert [b["ids"][0] for b in probe.batches(taken)] == [8 * n for n in range(taken)]
                time.sleep(0.2)  # what comes next stands in the ring
                os.kill(server.pid, signal.SIGSTOP)
                try:
                    for _ in range(3):
                        started = time.monotonic()
                        answer = probe.ask("next 200")
                        assert "error" not in answer or answer["error"] == ETIMEDOUT, answer
                        assert time.monotonic() - started < 2
                        taken += "error" not in answer
                        if "error" not in answer:
                            probe.ask(f"release {answer['batch']}")
                finally:
                    os.kill(server.pid, signal.SIGCONT)
                assert [b["ids"][0] for b in probe.batches(3)] == [8 * n % 104 for n in range(taken, taken + 3)]
                assert probe.ask("abandon") == {"abandoned": True}
