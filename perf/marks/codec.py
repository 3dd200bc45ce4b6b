"""JPEG decoding with our entropy decoder over libjpeg's, kind by kind: qualities, samplings, tables, sizes, regions."""

from measure import Result, imagenet, run_program

PHOTOGRAPHS = 12


def measure(pairs):
    files = sorted(imagenet().glob("*/*.jpg"))
    chosen = files[:: len(files) // PHOTOGRAPHS][:PHOTOGRAPHS]
    figures = run_program("codec", "codec/bench_jpeg", pairs, *chosen)
    return [Result(name, figure["unit"], figure["samples"]) for name, figure in figures.items()]
