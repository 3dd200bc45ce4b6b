"""What drawing ids costs the conductor, for 10 million ids and 64 tasks."""

from measure import Result, run_program


def measure(pairs):
    figures = run_program("sampler", "sampler/sampler_cost")
    return [
        Result(name, figure["unit"], [figure["ratio"]], figure["mark"], at_least=False) for name, figure in figures.items()
    ]
