"""Wall time of a delivered batch with a pipeline R times slower than the trainer, for each echo factor: what is expected of it."""

import json
import subprocess
import sys

from measure import BUILD, DATA, ROOT, Result, Server, Unavailable, ahead_of_others, wait_until_quiet

sys.path.insert(0, str(ROOT / "perf" / "echo"))
import tiny  # noqa: E402: found through the path set above

SLOWNESS = (1, 2, 4, 5)  # R: steps that the pipeline takes for a fresh batch
FACTORS = (1, 2, 3, 4, 5, "auto")
MOST = 5  # of auto
STEP_US = 20000
BATCH = 32
BUFFER = 4 * BATCH
SAMPLES = 16384  # no epoch ends while it is measured
WARM_S, MEASURED_S = 3, 7
WITHIN, WITHIN_NEAR, NEAR = 0.05, 0.12, 0.2  # of what is expected; where R / factor is that near to 1


def spec_write(folder, slowness, factor):
    echo = {"factor": factor, "buffer": BUFFER}
    if factor == "auto":
        echo["max"] = MOST
    pipeline = ["decode", {"pace": slowness * STEP_US // BATCH}, {"echo": echo}, {"center_crop": tiny.SIDE}, {"to": {"dtype": "u8"}}]
    path = DATA / f"echo-time-{slowness}-{factor}.json"
    path.write_text(json.dumps({"dataset": str(folder), "pipeline": pipeline, "batch": BATCH}))
    return path


def stands_for(slowness, factor):
    """auto repeats as often as it takes, and no more."""
    return min(slowness, MOST) if factor == "auto" else factor


class Cell:
    """A pipeline of `slowness` and a factor, on a server of its own."""

    def __init__(self, folder, slowness, factor):
        self.slowness, self.factor = slowness, factor
        self.server = Server()
        spec = spec_write(folder, slowness, factor)
        command = [BUILD / "perf/echo/perf_echo_time", self.server.socket, spec, str(STEP_US), str(WARM_S), str(MEASURED_S)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def finish(self):
        out = self.process.communicate()[0]
        self.server.close()
        if self.process.returncode != 0:
            raise Unavailable(f"perf_echo_time ended with {self.process.returncode}; what it said is above")
        self.answer = json.loads(out)
        # The pipeline's pace is by the clock, whatever a step really took.
        step = self.answer["in_steps"] / self.answer["batches"]
        paced = self.slowness * STEP_US * 1e-6 / stands_for(self.slowness, self.factor)
        self.ratio = self.answer["wall"] / self.answer["batches"] / max(paced, step)
        near = abs(self.slowness / stands_for(self.slowness, self.factor) - 1) <= NEAR
        self.holds = abs(self.ratio - 1) <= (WITHIN_NEAR if near else WITHIN)
        return self

    @property
    def fresh_share(self):
        """Of the fresh samples that pipeline and trainer allow, those that came."""
        step = self.answer["in_steps"] / self.answer["batches"]
        return self.answer["fresh"] / self.answer["wall"] * max(self.slowness * STEP_US * 1e-6, step) / BATCH

    @property
    def title(self):
        return f"R {self.slowness}, factor {self.factor}"


def cells_measure(folder):
    cells = []
    for number, factor in enumerate(FACTORS):
        wait_until_quiet(limit=60 if number == 0 else 5)
        # Beside one another: all of them sleep nearly always.
        at_once = [Cell(folder, slowness, factor) for slowness in SLOWNESS]
        cells += [cell.finish() for cell in at_once]
    return cells


def table(cells):
    print("  wall of a delivered batch, as a part of max(R / factor, 1) steps", file=sys.stderr)
    print("      " + "".join(f"{'factor ' + str(factor):>12}" for factor in FACTORS), file=sys.stderr)
    for slowness in SLOWNESS:
        row = [cell for cell in cells if cell.slowness == slowness]
        print(f"  R {slowness} " + "".join(f"{cell.ratio:11.3f}{' ' if cell.holds else '!'}" for cell in row), file=sys.stderr)


def measure(pairs):
    del pairs  # each cell is some hundred batches
    folder = tiny.folder_write(DATA / "tiny", SAMPLES)
    with ahead_of_others():
        cells = cells_measure(folder)
    table(cells)
    worst = max(cells, key=lambda cell: abs(cell.ratio - 1))
    detail = f"worst: {worst.title}, {worst.ratio:.3f} of what is expected; fresh {worst.answer['fresh']} of {worst.answer['samples']} samples"
    unit = "part of the cells (R x factor) whose wall per batch is as expected"
    # auto may not keep up with the trainer at fresh samples' cost.
    fresh = min((cell for cell in cells if cell.factor == "auto"), key=lambda cell: cell.fresh_share)
    return [
        Result("echo_time", unit, [sum(cell.holds for cell in cells) / len(cells)], 1, detail=detail),
        Result("echo_time_fresh", "auto: fresh samples that came / that pipeline and trainer allow, the least", [fresh.fresh_share], 0.95, detail=fresh.title),
    ]
