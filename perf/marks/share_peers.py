"""Samples per second of three tasks on one server of ours, over three loaders of each peer on the same cores."""

from measure import BUILD, CPUS, PEERS, ROOT, SPEC, Result, Server, Side, Tasks, imagenet, ratios, rounds, samples_per_second
from peers.install import dali, debian_torch

TASKS = 3
EACH = -(-CPUS // TASKS)  # workers, or threads, of each of three loaders: the cores are busy, whatever they are
HERE = ROOT / "perf/peers"

# Batches of each task a turn: some two seconds.
OURS, PRODUCER, DALI, TORCH = 60, 24, 9, 7


class PythonTasks(Side):
    """Our tasks as Python programs."""

    def __init__(self, python):
        self.server = Server()
        program = [python, HERE / "side_forebay_tasks.py", BUILD / "python"]
        super().__init__("forebay in Python", [*program, self.server.socket, SPEC, TASKS, OURS])

    def close(self):
        super().close()
        self.server.close()


def measure(pairs):
    folder, torch = imagenet(), debian_torch(PEERS)
    ours, python = Tasks("forebay in C", [SPEC] * TASKS, OURS), PythonTasks(torch)
    program = [torch, HERE / "side_torch_tasks.py"]
    separate = Side("DataLoaders", [*program, "separate", folder, TASKS, EACH, TORCH])
    pipelines = Side("DALI pipelines", [dali(PEERS), HERE / "side_dali_tasks.py", folder, TASKS, EACH, DALI])
    producer = Side("producer", [*program, "producer", folder, TASKS, CPUS, PRODUCER])
    rounds(pairs, [ours, python, separate, pipelines, producer])
    results = []
    for name, peer, title, mark in (
        ("torch", separate, "three PyTorch DataLoaders with PIL", 9),
        ("dali", pipelines, "three DALI pipelines", 5.5),
        ("producer", producer, "one torchvision producer and three queues", 2.4),
    ):
        of_c, of_python = (ratios(side, peer, samples_per_second) for side in (ours, python))
        detail = f"{ours.summary()}; {peer.summary()}"
        results.append(Result(f"share_{name}", f"img/s, three tasks in C / {title}", of_c, mark, detail=detail))
        detail = python.summary()
        results.append(Result(f"share_{name}_python", f"img/s, three tasks in Python / {title}", of_python, detail=detail))
    return results
