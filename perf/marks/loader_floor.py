"""Pictures per second, ours end to end with exact pixels over a plain C loop whose pixels are not."""

from measure import Result, compare, our_loader, plain_c, samples_per_second


def measure(pairs):
    ours, floor = our_loader(), plain_c()
    ratios = compare(pairs, ours, floor, samples_per_second)
    detail = f"{ours.summary()}; {floor.summary()}"
    return [Result("loader_floor", "img/s, Forebay / plain C loop", ratios, 1.45, detail=detail)]
