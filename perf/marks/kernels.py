"""Microseconds of each picture kernel, tier by tier."""

from measure import Result, run_program


def measure(pairs):
    figures = run_program("kernels", "kernels/bench_kernels", pairs)
    return [Result(name, figure["unit"], figure["samples"]) for name, figure in figures.items()]
