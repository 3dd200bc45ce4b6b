"""CPU-seconds per sample of a bare loop of our own ops, without a loader, over ours end to end."""

from measure import Result, bare_loop, compare, cpu_per_sample, our_loader


def measure(pairs):
    bare, ours = bare_loop(), our_loader()
    ratios = compare(pairs, bare, ours, cpu_per_sample)
    detail = f"{bare.summary()}; {ours.summary()}"
    return [Result("loader_limit", "CPU-seconds per sample, bare loop / Forebay", ratios, 0.95, detail=detail)]
