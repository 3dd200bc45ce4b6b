"""A parked wake over a bare futex wake in the same run."""

from measure import Result, run_program


def measure(pairs):
    figure = run_program("ring_wake", "ringbuf/bench_ringbuf", "ring_wake", pairs)["ring_wake"]
    return [Result("ring_wake", figure["unit"], figure["samples"], 1.2, at_least=False)]
