"""Each structure of ringbuf beside a pipe, a Unix socket and a locked queue, in the same run."""

from measure import Result, run_program


def measure(pairs):
    figures = run_program("ring_path", "ring/bench_ring", max(pairs, 11))
    return [Result(name, figure["unit"], figure["samples"]) for name, figure in figures.items()]
