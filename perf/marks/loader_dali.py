"""CPU-seconds per sample of NVIDIA DALI's CPU pipeline, over ours end to end."""

from measure import CPUS, PEERS, Result, ROOT, Side, compare, cpu_per_sample, imagenet, our_loader
from peers.install import dali


def measure(pairs):
    python = dali(PEERS)
    peer = Side("DALI", [python, ROOT / "perf/peers/side_dali.py", imagenet(), CPUS])
    ours = our_loader()
    ratios = compare(pairs, peer, ours, cpu_per_sample)
    detail = f"{peer.summary()}; {ours.summary()}"
    return [Result("loader_dali", "CPU-seconds per sample, DALI / Forebay", ratios, 2.8, detail=detail)]
