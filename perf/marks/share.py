"""CPU-seconds of the server per sample: one task's over k equal tasks', and separate servers' over one server's at known shared parts."""

import json
import subprocess

from measure import BUILD, SPEC, Result, Tasks, imagenet, ratios, rounds, samples_per_second, server_cpu_per_sample, spec_write

BATCHES = 20  # of each task a turn, where the tasks are equal
BATCHES_APART = 8  # where they aren't
TASKS = 3  # of these
ABOVE = ["decode", {"random_resized_crop": {"size": 224}}, "random_horizontal_flip"]
BELOW = [{"normalize": "imagenet"}, {"to": {"dtype": "f32", "layout": "chw"}}]
PARTS = (0.56, 0.75, 0.9, 1.0)


def equal_tasks(pairs):
    one = Tasks("1 task", [SPEC], BATCHES)
    many = {
        (k, joining): Tasks(f"{k} {joining}", [SPEC] * k, BATCHES, joining)
        for k in (2, 3, 4)
        for joining in ("together", "random")
    }
    rounds(pairs, [one, *many.values()])
    results = []
    for (k, joining), side in many.items():
        how = "start together" if joining == "together" else "join at random moments"
        unit = f"server CPU-seconds per sample, 1 task / {k} equal tasks that {how}"
        values = ratios(one, side, server_cpu_per_sample)
        results.append(Result(f"share_{k}_{joining}", unit, values, round(0.95 * k, 2), detail=f"{one.summary()}; {side.summary()}"))
    return results


def cost(pipeline, above):
    """CPU microseconds of a sample above and below a fork after `above` ops."""
    command = [BUILD / "perf/share/perf_parts", spec_write("share-parts", pipeline), str(above)]
    parts = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return parts["above_us"], parts["below_us"]


def pipelines(part):
    """Three pipelines that fork where `part` of a sample's cost is spent, made so by burning CPU time; and that part, measured."""
    if part == 1:
        return [ABOVE + BELOW] * TASKS, 1.0
    above, below = cost([*ABOVE, {"burn": 1}, *BELOW], len(ABOVE))
    more_below = round(above * (1 - part) / part - below)
    more_above = 0 if more_below >= 0 else round(below * part / (1 - part) - above)
    shared = ABOVE + ([{"burn": more_above}] if more_above else [])
    # A microsecond apart: enough to make them three.
    different = [[*shared, {"burn": max(1, more_below) + task}, *BELOW] for task in range(TASKS)]
    above, below = cost(different[1], len(shared))
    return different, above / (above + below)


def different_tasks(pairs, wanted):
    made, part = pipelines(wanted)
    specs = [spec_write(f"share-{wanted:g}-{task}", pipeline) for task, pipeline in enumerate(made)]
    apart = Tasks("separate servers", specs, BATCHES_APART, separate=True)
    together = Tasks("one server", specs, BATCHES_APART)
    rounds(pairs, [apart, together])
    best = TASKS / (TASKS - (TASKS - 1) * part)
    name, one = f"share_part_{wanted * 100:.0f}", f"one server for {TASKS} tasks"
    detail = f"{part:.3f} of the cost is shared: at best {best:.2f}; {apart.summary()}; {together.summary()}"
    cost_ratios = ratios(apart, together, server_cpu_per_sample)
    rate_ratios = ratios(together, apart, samples_per_second)
    return [
        Result(name, f"server CPU-seconds per sample, {TASKS} servers / {one}", cost_ratios, round(0.93 * best, 3), detail=detail),
        Result(name + "_rate", f"img/s, {one} / {TASKS} servers", rate_ratios),
    ]


def measure(pairs):
    imagenet()
    results = equal_tasks(pairs)
    for part in PARTS:
        results += different_tasks(pairs, part)
    return results
