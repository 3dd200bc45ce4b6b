"""A parked wake over a bare futex wake, round by round of the same run."""

from measure import Result, run_program


def measure(pairs):
    figures = run_program("ring_wake", "ring/bench_ring", max(pairs, 11))
    ratios = [ours / futex for ours, futex in zip(figures["wake"]["samples"], figures["wake_futex"]["samples"])]
    return [Result("ring_wake", "ours / bare futex", ratios, 1.2, at_least=False)]
