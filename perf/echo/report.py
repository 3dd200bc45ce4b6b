#!/usr/bin/python3
"""What the study has found so far: the tables and the plot of docs/echo-study.md.

usage: perf/echo/report.py           prints the table, and what doesn't come from it
       perf/echo/report.py --json    the greatest speed-up, for the mark echo_learning
       perf/echo/report.py --write   puts both into docs/echo-study.md and docs/echo-study.svg (needs gnuplot)"""

import json
import re
import statistics
import subprocess
import sys

import grid
from disk import WAYS, disk_results
from grid import BATCH, BUFFER, RATES, SEEDS, SLOWNESS, baseline, reached, results, steps, target, timed_results, tuned

PAGE = grid.ROOT / "docs" / "echo-study.md"
PLOT = grid.ROOT / "docs" / "echo-study.svg"
PLOTTED = ((1, "before"), (4, "before"), (2, "before"), (4, "after"), (4, "batch"))


def kind_of(configuration):
    """What is compared: all but rate and seed."""
    return configuration.factor, configuration.place, configuration.buffer, configuration.batch


class Kind:
    """All runs of a factor, place, buffer and batch size, at the rate that serves it best."""

    def __init__(self, kind, done, wanted):
        self.factor, self.place, self.buffer, self.batch = kind
        runs = {one: reached(curve, wanted) for one, curve in done.items() if kind_of(one) == kind}
        self.rates = {one.rate for one in runs}

        def score(rate):
            """Every seed counts; who didn't get there took longer than any."""
            return statistics.mean(at[0] if at else 2 * grid.LONGEST for one, at in runs.items() if one.rate == rate)

        self.rate = min(self.rates, key=score)
        self.runs = {one.seed: at for one, at in runs.items() if one.rate == self.rate}
        self.reached = {seed: at for seed, at in self.runs.items() if at}

    def speedup(self, base):
        """Wall time of factor 1 at the same batch size over this one's, of the seeds that both have; None: some didn't get there."""
        seeds = [seed for seed in self.runs if seed in base.runs]
        if not seeds or any(seed not in self.reached or seed not in base.reached for seed in seeds):
            return None
        return statistics.mean(steps_of(base, seed) for seed in seeds) / statistics.mean(steps_of(self, seed) for seed in seeds)


def steps_of(kind, seed):
    configuration = grid.Configuration(kind.factor, kind.place, kind.buffer, kind.batch, kind.rate, seed)
    return steps(configuration, kind.reached[seed][0])


def kinds(done):
    wanted = target(done)
    return [Kind(kind, done, wanted) for kind in sorted({kind_of(one) for one in done}, key=lambda kind: (kind[3] != BATCH, kind[3], kind[0], kind[1] == "after", kind))]


def base_of(kind, found):
    return next((one for one in found if one.factor == 1 and one.batch == kind.batch), None)


def best(done):
    """The greatest speed-up and its kind, of those that ran with the most seeds: one run alone may be luck."""
    found = kinds(done)
    rated = [(kind.speedup(base_of(kind, found)), kind) for kind in found if kind.factor > 1 and base_of(kind, found)]
    rated = [pair for pair in rated if pair[0]]
    return max(rated, key=lambda pair: (len(pair[1].runs), pair[0])) if rated else (None, None)


def table(done):
    found = kinds(done)
    rows = ["| batch | factor | echo | buffer | rate (of) | seeds there | samples trained on | fresh ones | steps' time, R = 4 | against factor 1 |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for kind in found:
        base = base_of(kind, found)
        speedup = kind.speedup(base) if base else None
        place = "-" if kind.factor == 1 else {"before": "before augmentation", "after": "after it", "batch": "whole batches"}[kind.place]
        buffer = "-" if kind.factor == 1 else f"{kind.buffer} batches" if kind.place == "batch" else "off" if kind.buffer == kind.batch else f"{kind.buffer:,}"
        there = list(kind.reached.values())
        means = [f"{statistics.mean(at[i] for at in there):,.0f}" for i in (0, 1)] if there else ["-", "-"]
        wall = f"{statistics.mean(steps_of(kind, seed) for seed in kind.reached):,.0f}" if there else "-"
        rows.append(f"| {kind.batch} | {kind.factor:g} | {place} | {buffer} | {kind.rate:g} ({len(kind.rates)}) | {len(there)} of {len(kind.runs)} | {means[0]} | {means[1]} | "
                    f"{wall} | {f'{speedup:.2f}x' if speedup else '-'} |")
    return "\n".join(rows)


def timed_table(done):
    wanted, rows = target(done), []
    for configuration, row in timed_results().items():
        at = reached(row["curve"], wanted)
        if at:
            emitted, _, seconds = at
            name = "1" if configuration.factor == 1 else f"{configuration.factor:g}, {configuration.place}, buffer {configuration.buffer:,}"
            counted = steps(configuration, emitted) * row["timed"]["step_s"]
            rows.append((seconds, f"| {name} | {emitted:,.0f} | {counted:,.0f} | {seconds:,.0f} |"))
    head = ["| factor | samples trained on | seconds, counted | seconds, measured |", "| --- | --- | --- | --- |"]
    if len(rows) < 2:
        return "Not run."
    rows.sort(key=lambda row: row[0])
    return "\n".join([*head, *(text for _, text in rows)]) + f"\n\nThat is {rows[-1][0] / rows[0][0]:.2f}x less."


def disk_table(done):
    """Means over the seeds of each way."""
    wanted, found = target(done), disk_results()
    if not found:
        return "Not run."
    lines, first = ["| from a slow disk | seeds there | samples/s | fresh ones/s | seconds to the target | against as it comes |",
                    "| --- | --- | --- | --- | --- | --- |"], None
    for way in WAYS:
        curves = [row["curve"] for (name, _), row in found.items() if name == way]
        if not curves:
            continue
        rates = [f"{statistics.mean(curve[-1][i] / curve[-1][3] for curve in curves):,.0f}" for i in (0, 1)]
        there = [at[2] for at in (reached(curve, wanted) for curve in curves) if at]
        mean = statistics.mean(there) if there else None
        first = first or mean
        told = [f"{mean:,.0f}", f"{first / mean:.2f}x"] if mean and first else ["-", "-"]
        lines.append(f"| {way} | {len(there)} of {len(curves)} | {' | '.join([*rates, *told])} |")
    return "\n".join(lines)


def missing(done):
    """What the grid still lacks."""
    wanted = {baseline(rate=rate, seed=seed) for rate in RATES for seed in SEEDS}
    for stage in grid.stages(tuned(done)):
        wanted |= set(stage)
    return f"{len(wanted & set(done))} of the grid's {len(wanted)} runs are in."


def plot(done):
    wanted, seed, rate = target(done), SEEDS[0], tuned(done)
    lines, titles = [], []
    for factor, place in PLOTTED:
        fitting = [one for one in done if (one.factor, one.place, one.batch, one.seed, one.rate) == (factor, place, BATCH, seed, rate)
                   and (one.buffer == BUFFER // BATCH if place == "batch" else one.buffer == BUFFER)]
        for one in fitting:
            titles.append("factor 1" if factor == 1 else f"factor {factor}, " + {"before": "before augmentation", "after": "after it", "batch": "whole batches"}[place])
            lines.append("\n".join(f"{steps(one, row[0])} {row[2]}" for row in done[one]) + "\ne")
    curves = ", ".join(f"'-' with lines linewidth 2 title '{title}'" for title in titles)
    script = f"""set terminal svg size 800,450 font 'sans-serif,13' background '#ffffff'
set output '{PLOT}'
set xlabel 'time, in steps of the trainer (a fresh batch takes {SLOWNESS})'
set ylabel 'accuracy'
set yrange [0.80:0.90]
set key bottom right
set grid
plot {curves}, {wanted} with lines dashtype 2 linecolor 'black' title 'target'
""" + "\n".join(lines) + "\n"
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def between(text, name, what):
    """The page with what stands between its marks replaced."""
    return re.sub(f"(<!-- {name} -->\n).*?(<!-- end -->)", lambda found: f"{found[1]}{what}\n{found[2]}", text, flags=re.S)


def main():
    done = results()
    if not any(one.factor == 1 for one in done):
        sys.exit("there is no run yet: perf/echo/grid.py")
    ends = [grid.final(done[baseline(rate=tuned(done), seed=seed)]) for seed in SEEDS if baseline(rate=tuned(done), seed=seed) in done]
    told = f"Final accuracy of factor 1 (rate {tuned(done):g}, {len(ends)} seeds): {statistics.mean(ends):.4f}; the target: {target(done):.4f}. {missing(done)}"
    parts = {"summary": told, "table": table(done), "timed": timed_table(done), "disk": disk_table(done)}
    if sys.argv[1:] == ["--json"]:
        speedup, kind = best(done)
        where = f"factor {kind.factor:g}, {kind.place}, buffer {kind.buffer}, batch {kind.batch}, {len(kind.runs)} seeds" if kind else ""
        print(json.dumps({"speedup": speedup, "where": where, "told": told}))
        return
    if sys.argv[1:] != ["--write"]:
        print("\n\n".join(parts.values()))
        return
    page = PAGE.read_text()
    for name, what in parts.items():
        page = between(page, name, what)
    PAGE.write_text(page)
    plot(done)


if __name__ == "__main__":
    main()
