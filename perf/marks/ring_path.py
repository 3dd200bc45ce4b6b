"""The full path of a batch, from worker to client; each structure beside a pipe, a socket and a locked queue."""

from measure import Result, run_program


def measure(pairs):
    figures = run_program("ring_path", "ringbuf/bench_ringbuf", "ring_path", pairs)
    return [Result(name, figure["unit"], figure["samples"]) for name, figure in figures.items()]
