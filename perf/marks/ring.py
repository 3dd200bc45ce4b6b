"""Nanoseconds a descriptor through the delivery ring, between two pinned threads, in batches of 32."""

from measure import Result, run_program


def measure(pairs):
    figure = run_program("ring", "ring/bench_ring", max(pairs, 11))["ring"]
    return [Result("ring", figure["unit"], figure["samples"], 10, at_least=False)]
