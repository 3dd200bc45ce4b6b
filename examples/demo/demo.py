#!/usr/bin/env python3
"""Three training tasks over one data set, on a server each and then on one together, and what that saves.

usage: demo.py FOREBAY [--epochs N] [--graph FOLDER]     FOREBAY: the command

plain.yaml trains from beginning to end, small.yaml leaves early, color.yaml joins later. The trainers are `forebay run`, which takes
batches as fast as they come; nothing here but the command is needed."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
LOOK_S = 0.25


def stop(message):
    sys.exit(f"demo.py: {message}")


class Server:
    """`forebay serve`, on a socket of its own."""

    def __init__(self, forebay, folder, number):
        self.forebay, self.socket = forebay, folder / f"{number}.sock"
        self.log = folder / f"{number}.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([forebay, "serve", "--socket", self.socket], stderr=log)
        end = time.monotonic() + 20
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                stop(f"the server didn't start: {self.log.read_text().strip()}")
            time.sleep(0.02)

    def status(self):
        command = [self.forebay, "status", "--json", "--socket", self.socket]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

    def end(self):
        self.process.terminate()
        self.process.wait()


class Task:
    """`forebay run` on a spec, for so many epochs; it starts when the first task has come so far."""

    def __init__(self, name, epochs, starts_at=0.0):
        self.name, self.epochs, self.starts_at = name, epochs, starts_at
        self.spec = HERE / f"{name}.yaml"
        self.process = self.summary = None
        self.taken = 0

    def start(self, forebay, server):
        self.server = server
        command = [forebay, "run", "--json", "--quiet", "--socket", server.socket, "--epochs", str(self.epochs), self.spec]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)

    def look(self, statuses):
        """Notes how far it is, from the server's word or from its own last."""
        if self.process is None or self.summary is not None:
            return
        if self.process.poll() is None:
            for task in statuses[self.server]["tasks"]:
                if task["pid"] == self.process.pid:
                    self.taken = task["delivered_samples"]
            return
        if self.process.returncode != 0:
            stop(f"forebay run {self.spec.name} ended with {self.process.returncode}; what it said is above")
        self.summary = json.loads(self.process.stdout.read())
        self.taken = self.summary["samples"]


def show(title, taken, total, started, last):
    rate = taken / (time.monotonic() - started)
    text = f"{title:8} [{'=' * (30 * taken // total):30}] {100 * taken // total:3}%  {taken:,} of {total:,} samples  {rate:,.0f}/s"
    if sys.stdout.isatty():
        print(f"\r{text}\033[K", end="\n" if last else "", flush=True)
    elif last:
        print(text, flush=True)


def run(title, forebay, tasks, apart, samples):
    """Runs the tasks; returns wall seconds, the servers' CPU seconds and how many samples they prepared."""
    total = sum(task.epochs for task in tasks) * samples
    first = tasks[0]
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as folder:
        servers = []
        try:
            servers = [Server(forebay, pathlib.Path(folder), number) for number in range(len(tasks) if apart else 1)]
            started = time.monotonic()
            while any(task.summary is None for task in tasks):
                for number, task in enumerate(tasks):
                    if task.process is None and first.taken >= task.starts_at * first.epochs * samples:
                        task.start(forebay, servers[number if apart else 0])
                time.sleep(LOOK_S)
                statuses = {server: server.status() for server in servers}
                for task in tasks:
                    task.look(statuses)
                show(title, sum(task.taken for task in tasks), total, started, False)
            wall = time.monotonic() - started
            show(title, total, total, started, True)
            statuses = [server.status() for server in servers]
        finally:
            for process in [task.process for task in tasks if task.process] + [server.process for server in servers]:
                if process.poll() is None:
                    process.terminate()
                process.wait()
    return wall, sum(status["cpu_s"] for status in statuses), sum(status["engine"]["samples"] for status in statuses)


def three_tasks(epochs):
    two_thirds = max(1, epochs * 2 // 3)
    return [Task("plain", epochs), Task("small", two_thirds), Task("color", two_thirds, 1 / 3)]


def table(apart, together, apart_figures, together_figures):
    wall, cpu, prepared = zip(apart_figures, together_figures)
    rows = [("", "a server each", "one server")]
    for one, other in zip(apart, together):
        rates = [task.summary["samples_per_s"] for task in (one, other)]
        rows.append((f"{one.name}, {one.summary['samples']:,} samples", *(f"{rate:,.0f} samples/s" for rate in rates)))
    taken = sum(task.summary["samples"] for task in apart)
    rows.append((f"all three, {taken:,} samples", *(f"{taken / seconds:,.0f} samples/s" for seconds in wall)))
    rows.append(("time", *(f"{seconds:.1f} s" for seconds in wall)))
    rows.append(("CPU time of the servers", *(f"{seconds:.1f} s" for seconds in cpu)))
    rows.append(("pictures decoded", *(f"{count:,}" for count in prepared)))
    rows.append(("share factor", *(f"{taken / count:.1f}" for count in prepared)))
    for name, *values in rows:
        print(f"  {name:32}" + "".join(f"{value:>20}" for value in values))
    print("\n  (Pictures decoded include what a server had prepared ahead when its last task ended.)")
    print(f"\nOn one server a picture that was decoded once went to {taken / prepared[1]:.1f} tasks on average (the share factor).")
    print(f"The same batches took {cpu[1]:.1f} s of CPU time instead of {cpu[0]:.1f} s, and {wall[1]:.1f} s instead of {wall[0]:.1f} s.")


def graph(forebay, specs, folder):
    """Prints the merged graph before it runs; writes a picture of it where Graphviz is there."""
    command = [forebay, "plan", *specs]
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        command += ["--dot", folder / "graph.dot"]
        if shutil.which("dot"):
            command += ["--svg", folder / "graph.svg"]
    sys.stdout.flush()
    if subprocess.run(command).returncode != 0:
        stop("forebay plan failed; what it said is above")
    if folder and shutil.which("dot"):
        print(f"\nA picture of this graph: {folder / 'graph.svg'}")
    elif folder:
        print(f"\nThis graph for Graphviz: {folder / 'graph.dot'} (with the package graphviz installed, a picture too)")


def main():
    parser = argparse.ArgumentParser(description="Three training tasks over one data set, on a server each and on one together.")
    parser.add_argument("forebay", metavar="FOREBAY", help="the command")
    parser.add_argument("--epochs", type=int, default=48, help="of the task that trains longest (default 48)")
    parser.add_argument("--graph", type=pathlib.Path, metavar="FOLDER", help="write the graph there")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs: expected a number above 0")
    forebay = os.path.abspath(options.forebay)

    apart, together = three_tasks(options.epochs), three_tasks(options.epochs)
    print("What three tasks need, merged into one graph:\n")
    graph(forebay, [task.spec for task in apart], options.graph)
    plan = subprocess.run([forebay, "plan", "--json", "--samples", "0", apart[0].spec], stdout=subprocess.PIPE, check=True)
    samples = json.loads(plan.stdout)["samples"]
    print(f"\nplain trains for {options.epochs} epochs; small leaves after {apart[1].epochs}; color joins when plain has a third "
          "behind it.\n")
    apart_figures = run("apart", forebay, apart, True, samples)
    together_figures = run("together", forebay, together, False, samples)
    print()
    table(apart, together, apart_figures, together_figures)


if __name__ == "__main__":
    main()
