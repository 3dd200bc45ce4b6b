"""Servers and probe clients as real processes."""

import contextlib
import json
import os
import signal
import subprocess
import time

import conftest
import pytest
from PIL import Image

FOREBAY = conftest.BUILD / "dataplane" / "cli" / "forebay"
PROBE = conftest.BUILD / "tests" / "server" / "fby_probe"
TRAINER = conftest.BUILD / "tests" / "server" / "fby_trainer"
STUCK_JPEG = conftest.BUILD / "tests" / "server" / "libfby_stuck_jpeg.so"
OTHER_JPEG = conftest.BUILD / "tests" / "server" / "libfby_other_jpeg.so"
DENY_URING = conftest.BUILD / "tests" / "server" / "fby_deny_uring"

# The codes of include/forebay/error.h.
EINVAL, ENOMEM, EIO, ESAMPLE, ETIMEDOUT, ELOST = -1, -2, -3, -4, -5, -6
EFULL, EWINDOW, EEND, EVERSION, EPERM, EFORKED, ECLOSED, EINTR, ENOTSUP, EPROTO = -7, -8, -9, -10, -11, -12, -13, -14, -15, -16


class Server:
    """A `forebay serve` of its own, with its log."""

    program = FOREBAY

    def __init__(self, folder, *arguments, environment=None, wrapper=()):
        folder.mkdir(exist_ok=True, parents=True)
        self.socket = folder / "s"
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*wrapper, self.program, "serve", "--socket", self.socket, "--cache", folder / "cache", *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **(environment or {})})
        until = time.monotonic() + 30
        while not self.socket.exists() or "serving at" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, "the server didn't get ready"
            time.sleep(0.01)

    @property
    def pid(self):
        return self.process.pid

    def status(self):
        done = subprocess.run([FOREBAY, "status", "--json", "--socket", self.socket], capture_output=True, check=True, timeout=30)
        return json.loads(done.stdout)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        code = self.stop()
        log = self.log.read_text(errors="replace")
        assert "Sanitizer" not in log and "runtime error" not in log, log
        assert code in (0, -signal.SIGKILL, -signal.SIGSEGV), log


def eventually(look, seconds=10):
    """What `look` returns, once that is true."""
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until, "it didn't come true in time"
        time.sleep(0.02)
    return found


class Probe:
    """A client process that does what it is told; see tests/server/probe.c. `reconnect`: seconds that it waits for a lost server's successor."""

    program = PROBE

    def __init__(self, spec, server=None, environment=None, wrapper=(), rank=0, state=None, states=(), reconnect=0, job=None, notice_ms=None,
                 stderr=None):
        where = ["--socket", server.socket] if server else ["--embedded"]
        where += ["--rank", str(rank)]
        where += ["--state", state] if state else []
        where += ["--job", job] if job else []
        where += ["--notice", str(notice_ms)] if notice_ms else []
        for each in states:
            where += ["--merge", each]
        self.process = subprocess.Popen([*wrapper, self.program, *where, spec], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True,
                                        env={**os.environ, "FOREBAY_SERVER": str(FOREBAY), "FOREBAY_RECONNECT": str(reconnect),
                                             **(environment or {})})
        self.opened = self.read()

    @property
    def pid(self):
        return self.process.pid

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def read(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, line):
        self.send(line)
        return self.read()

    def batches(self, count=None, until_error=True):
        """Takes and gives back batches one by one; the last item is what ended it, where that was no batch."""
        taken = []
        while count is None or len(taken) < count:
            answer = self.ask("next")
            taken.append(answer)
            if "error" in answer:
                assert until_error, answer
                break
            assert self.ask(f"release {answer['batch']}") == {"released": answer["batch"]}
        return taken

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                self.send("quit")
        with contextlib.suppress(BrokenPipeError):  # it may have ended meanwhile, with "quit" still to be flushed
            self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
        self.close()


class Company:
    """Other tasks over the same data, for as long as the test runs: one with the spec itself, one of another order and batch size,
    which trains as fast as it can. Both go on for ever."""

    def __init__(self, server, spec, count):
        self.processes = []
        for number in range(count):
            keys = json.loads(spec.read_text())
            keys["epochs"] = "unlimited"
            if number:
                keys.update(order="shared", batch={"size": 24}, window=6)
            other = spec.with_suffix(f".company{number}.yaml")
            other.write_text(json.dumps(keys))
            self.processes.append(subprocess.Popen([TRAINER, server.socket, other, "2000" if number else "1e9", "600"], stdout=subprocess.DEVNULL))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def write_spec(path, dataset, **keys):
    """A spec file (JSON is YAML) over a folder of pictures; keys override."""
    spec = {
        "dataset": str(dataset),
        "order": "strict",
        "epochs": 1,
        "pipeline": ["decode", {"random_resized_crop": {"size": 32}}, "random_horizontal_flip", {"normalize": "imagenet"},
                     {"to": {"dtype": "f32", "layout": "chw"}}],
        "batch": {"size": 8},
    }
    spec.update(keys)
    path.write_text(json.dumps({key: value for key, value in spec.items() if value is not None}))
    return path


@pytest.fixture(scope="session")
def hundred(tmp_path_factory):
    """100 small JPEGs in 3 classes: id i has label i * 3 // 100."""
    folder = tmp_path_factory.mktemp("hundred")
    for number in range(100):
        name = ["ash", "birch", "cedar"][number * 3 // 100]
        (folder / name).mkdir(exist_ok=True)
        picture = Image.linear_gradient("L").resize((60 + number % 7, 48)).rotate(number * 3)
        Image.merge("RGB", (picture, picture.rotate(90), picture.rotate(180))).save(folder / name / f"{number:03}.jpg", quality=90)
    return folder


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def is_over(pid):
    """Whether a process has ended, be it that nobody has waited for it yet: an orphan's new parent may take its time."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def resident(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
