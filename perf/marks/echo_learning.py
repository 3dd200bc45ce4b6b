"""Training with echo: wall time to an accuracy with a pipeline four times slower than the trainer, factor 1 over the best echo found."""

import json
import os
import subprocess

from measure import BUILD, ROOT, Result, Unavailable

PYTHON = "/usr/bin/python3"  # Debian's, which sees python3-torch
NEEDED = ("torch", "numpy", "PIL")


def study(program, *options):
    environment = dict(os.environ, PYTHONPATH=str(BUILD / "python"), OMP_NUM_THREADS="1")
    done = subprocess.run([PYTHON, str(ROOT / "perf/echo" / program), *options], stdout=subprocess.PIPE, text=True, env=environment)
    if done.returncode != 0:
        raise Unavailable(f"perf/echo/{program} failed; what it said is above")
    return done.stdout


def measure(pairs):
    """Runs what the figure needs at least and hasn't been run yet; perf/echo/grid.py runs the rest."""
    del pairs  # a run is long, and its steps are counted
    for name in NEEDED:
        if subprocess.run([PYTHON, "-c", f"import {name}"], stderr=subprocess.DEVNULL).returncode != 0:
            raise Unavailable(f"{PYTHON} has no {name}: apt-get install python3-torch python3-pil dataset-fashion-mnist")
    study("grid.py", "--first")
    found = json.loads(study("report.py", "--json"))
    detail = f"{found['where']}. {found['told']}"
    return [Result("echo_learning", "wall time to 99.5% of factor 1's accuracy, factor 1 / best echo, R = 4", [found["speedup"] or 0], 3.25, detail=detail)]
