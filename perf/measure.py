"""What the marks are made of: sides that are kept alive and asked in turn, pairs, medians.

A side is a program that reads a line "go", does its work once and answers with one line of JSON: samples, wall
and cpu (seconds; user + system of all processes of the side, its trainer included)."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "perf"  # the preset's build folder
DATA = ROOT / "build" / "perf-data"
PEERS = ROOT / "build" / "peers"
SPEC = ROOT / "perf" / "loader" / "imagenet.yaml"
CPUS = len(os.sched_getaffinity(0))


class Unavailable(Exception):
    """A mark can't be measured here; the text says why and what to do."""


@dataclasses.dataclass
class Result:
    """One line of the table, one of JSON. `values` are the pairs' ratios, or what a single program measured."""

    name: str
    unit: str
    values: list
    mark: float = None  # None: reported only
    at_least: bool = True
    detail: str = ""

    @property
    def ratio(self):
        return statistics.median(self.values)

    @property
    def spread(self):
        """The middle half of the values, as a part of the median."""
        if len(self.values) < 4:
            return 0.0
        first, _, third = statistics.quantiles(self.values, n=4)
        return (third - first) / self.ratio if self.ratio else 0.0

    @property
    def holds(self):
        if self.mark is None:
            return None
        return self.ratio >= self.mark if self.at_least else self.ratio <= self.mark

    def line(self):
        return json.dumps(
            {
                "name": self.name,
                "ratio": round(self.ratio, 4),
                "spread": round(self.spread, 4),
                "mark": self.mark,
                "holds": self.holds,
                "unit": self.unit,
            }
        )


class Side:
    """A running program, in a line of JSON a turn."""

    def __init__(self, title, command):
        self.title = title
        self.turns = []
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise Unavailable(f"{self.title} ended with {self.process.wait()}; what it said is above")
        return json.loads(line)

    def turn(self):
        answer = self.ask()
        self.turns.append(answer)
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(30)

    def summary(self):
        rate = statistics.median(t["samples"] / t["wall"] for t in self.turns)
        cost = statistics.median(1000 * t["cpu"] / t["samples"] for t in self.turns)
        return f"{self.title} {rate:.0f} img/s, {cost:.3f} CPU-ms each"


class Server:
    """A standing server of ours, on a socket of its own; `options` are forebay serve's."""

    def __init__(self, *options):
        self.folder = tempfile.TemporaryDirectory(prefix="forebay-perf-")
        self.socket = pathlib.Path(self.folder.name) / "socket"
        self.process = subprocess.Popen(
            [BUILD / "dataplane/cli/forebay", "serve", "--socket", self.socket, *options], stderr=subprocess.PIPE, text=True
        )
        end = time.monotonic() + 20
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise Unavailable(f"forebay serve didn't start: {self.process.communicate()[1].strip()}")
            time.sleep(0.02)
        self.process.stderr.close()

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.folder.cleanup()


class Tasks(Side):
    """Training tasks at once (perf/share), one for each spec: of one server, or of one each."""

    def __init__(self, title, specs, batches, joining="together", separate=False):
        self.servers = [Server() for _ in (specs if separate else specs[:1])]
        sockets = [server.socket for server in self.servers] * (1 if separate else len(specs))
        pairs = [word for pair in zip(sockets, specs) for word in pair]
        super().__init__(title, [BUILD / "perf/share/perf_share", joining, batches, *pairs])

    def close(self):
        super().close()
        for server in self.servers:
            server.close()


def cpu_per_sample(turn):
    return turn["cpu"] / turn["samples"]


def server_cpu_per_sample(turn):
    return turn["server"] / turn["samples"]


def samples_per_second(turn):
    return turn["samples"] / turn["wall"]


def busy_seconds():
    """CPU time spent by everybody on this machine."""
    fields = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def wait_until_quiet(limit=60):
    """Waits while others use the machine: a figure that was taken beside another job is none."""
    end = time.monotonic() + limit
    while True:
        before, begin = busy_seconds(), time.monotonic()
        time.sleep(0.5)
        load = (busy_seconds() - before) / (time.monotonic() - begin)
        if load < 0.1:
            return True
        if time.monotonic() > end:
            print(f"  others use {load:.1f} CPUs of this machine: the figures below can't be trusted", file=sys.stderr)
            return False


AUTOGROUP = pathlib.Path("/proc/self/autogroup")  # "… nice N": where there is one, sessions share CPUs by it, and processes only within


@contextlib.contextmanager
def ahead_of_others():
    """What is started here goes before other programs, where this is allowed: for what sleeps nearly always, and mustn't wake late."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    session = AUTOGROUP.read_text().split()[-1] if AUTOGROUP.exists() else None
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -15)
        AUTOGROUP.write_text("-15")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before)
            if session:
                AUTOGROUP.write_text(session)


def rounds(count, sides):
    """Asks every side `count` times after one turn each that doesn't count, by turns, in changing order; ends them. Turn i of
    one side belongs to turn i of the others."""
    try:
        for side in sides:
            side.ask()
        for number in range(count):
            wait_until_quiet(limit=60 if number == 0 else 5)
            for side in sides if number % 2 == 0 else reversed(sides):
                side.turn()
            print(f"  round {number + 1}/{count}: " + ", ".join(f"{side.title} {samples_per_second(side.turns[-1]):.0f}"
                                                                for side in sides) + " img/s", file=sys.stderr)
    finally:
        for side in sides:
            side.close()


def ratios(upper, lower, figure):
    """Of the pairs of turns of two sides."""
    return [figure(above) / figure(below) for above, below in zip(upper.turns, lower.turns)]


def compare(pairs, upper, lower, figure):
    """Alternates two sides and returns the ratios of `figure`."""
    rounds(pairs, [upper, lower])
    return ratios(upper, lower, figure)


def build(*targets):
    """The benchmarks, optimised."""
    (ROOT / "build").mkdir(exist_ok=True)
    for command in (
        ["cmake", "--preset", "perf"],
        ["cmake", "--build", "--preset", "perf", "-j", str(CPUS), *(["--target", *targets] if targets else [])],
    ):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout[-4000:] + done.stderr[-4000:])


def imagenet():
    """The 2,000 pictures like ImageNet's; returns their folder."""
    subprocess.run([ROOT / "scripts" / "setup", "build"], check=True)
    folder = DATA / "imagenet"
    python = ROOT / "build" / "venv" / "bin" / "python"
    subprocess.run([python, ROOT / "scripts" / "photographs.py", "imagenet", folder], check=True)
    return folder


def large():
    """64 PNGs of 2048 x 1024; returns their folder."""
    subprocess.run([ROOT / "scripts" / "setup", "build"], check=True)
    folder = DATA / "large"
    python = ROOT / "build" / "venv" / "bin" / "python"
    subprocess.run([python, ROOT / "scripts" / "photographs.py", "large", folder], check=True)
    return folder


def as_fbl(folder, level):
    """The folder's pictures as FBL, made by forebay convert; returns their folder. What an earlier encoder made is made anew."""
    forebay = BUILD / "dataplane/cli/forebay"
    made = folder.with_name(f"{folder.name}-{level}")
    stamp = made.with_name(made.name + ".encoder")
    encoder = hashlib.sha256(forebay.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != encoder:
        shutil.rmtree(made, ignore_errors=True)
    subprocess.run([forebay, "convert", "--level", level, folder, made], check=True, stdout=sys.stderr)
    stamp.write_text(encoder)
    return made


def spec_write(name, pipeline, folder=None, batch=64):
    """The path of a spec over the 2,000 pictures, or those of another folder: the loader marks' but for its pipeline."""
    path = DATA / f"{name}.json"
    path.write_text(json.dumps({"dataset": str(folder or DATA / "imagenet"), "pipeline": pipeline,
                                "batch": {"size": batch, "drop_last": True}}))
    return path


def loader(title, spec, epochs):
    """Ours end to end, over any spec."""
    return Side(title, [BUILD / "perf/loader/perf_loader", spec, epochs, BUILD / "dataplane/cli/forebay"])


def our_loader(epochs=2):
    imagenet()
    return loader("forebay", SPEC, epochs)


def bare_loop(epochs=2):
    imagenet()
    return Side("bare loop", [BUILD / "perf/loader/perf_bare", SPEC, epochs, CPUS])


def plain_c():
    folder = imagenet()
    names = DATA / "imagenet.txt"
    names.write_text("".join(f"{path}\n" for path in sorted(folder.glob("*/*.jpg"))))
    return Side("plain C", [BUILD / "perf/floor/perf_floor", names, CPUS])


def run_program(name, program, *arguments):
    """A program that measures by itself. Each line of JSON on its output is one figure: {"name", "samples", "unit"}, or
    an answer complete with its own mark. Returns {name: line}."""
    path = BUILD / "perf" / program
    if not path.exists():
        raise Unavailable(f"{name}: there is no {path}")
    wait_until_quiet()
    done = subprocess.run([str(path), *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{name}: {path.name} ended with {done.returncode}")
    lines = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            figure = json.loads(line)
            lines[figure["name"]] = figure
        elif line.strip():
            print("  " + line, file=sys.stderr)
    return lines
