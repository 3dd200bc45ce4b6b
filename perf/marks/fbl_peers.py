"""FBL beside other lossless codecs, those of PyPI's imagecodecs, on the same pictures in one process: sizes and decoding."""

import json
import statistics
import subprocess

from measure import BUILD, DATA, PEERS, ROOT, Result, Unavailable, imagenet
from peers.install import imagecodecs

KINDS = ["photo", "gray", "mask", "screen"]


def measure(pairs):
    python, folder = imagecodecs(PEERS), DATA / "fbl"
    making = [ROOT / "build" / "venv" / "bin" / "python", ROOT / "perf" / "fbl" / "pictures.py", imagenet(), folder]
    subprocess.run(making, check=True)
    program = [python, ROOT / "perf" / "peers" / "side_pictures.py", BUILD / "python", str(pairs), *[folder / kind for kind in KINDS]]
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Unavailable("side_pictures.py failed")
    results = []
    for kind, codecs in json.loads(done.stdout).items():
        ours, png = codecs["fbl small"], codecs["libpng"]
        for codec, figures in codecs.items():
            speed = statistics.median(figures["mb_s"])
            detail = f"{codec}, {kind}: {figures['size'] / png['size']:.3f} of PNG's size, {speed:.0f} MB/s"
            ratios = [a / b for a, b in zip(ours["mb_s"], figures["mb_s"])]
            name = f"fbl_peers_{kind}_{codec.replace(' ', '_')}"
            results.append(Result(name, f"decoding, FBL small / {codec}", ratios, detail=detail))
    return results
