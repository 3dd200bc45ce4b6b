"""CPU-seconds per sample of FFCV on its own set, coded again and decoded inexactly, over ours on the files, end to end."""

import subprocess

from measure import CPUS, DATA, PEERS, Result, ROOT, Side, compare, cpu_per_sample, imagenet, our_loader
from peers.install import ffcv


def measure(pairs):
    python, folder, file = ffcv(PEERS), imagenet(), DATA / "imagenet.beton"
    if not file.exists():
        subprocess.run([python, ROOT / "perf/peers/ffcv_write.py", folder, file, str(CPUS)], check=True)
    peer = Side("FFCV", [python, ROOT / "perf/peers/side_ffcv.py", file, CPUS])
    ours = our_loader()
    ratios = compare(pairs, peer, ours, cpu_per_sample)
    detail = f"{peer.summary()}; {ours.summary()}"
    return [Result("loader_ffcv", "CPU-seconds per sample, FFCV / Forebay", ratios, 2.0, detail=detail)]
