"""CPU-seconds per sample of PyTorch's DataLoader with torchvision on PIL, over ours end to end."""

from measure import CPUS, PEERS, Result, ROOT, Side, compare, cpu_per_sample, imagenet, our_loader
from peers.install import debian_torch


def measure(pairs):
    python = debian_torch(PEERS)
    torch = Side("DataLoader", [python, ROOT / "perf/peers/side_torch.py", imagenet(), CPUS])
    ours = our_loader()
    ratios = compare(pairs, torch, ours, cpu_per_sample)
    detail = f"{torch.summary()}; {ours.summary()}"
    return [Result("loader_torch", "CPU-seconds per sample, DataLoader / Forebay", ratios, 4.5, detail=detail)]
