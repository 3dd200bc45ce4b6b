"""A cache with room for a part of the data set: what later epochs find in it, and what the page cache finds with as much memory."""

import json
import shutil
import subprocess
import sys

from measure import BUILD, DATA, ROOT, Result, Server, Unavailable, imagenet

sys.path.append(str(BUILD / "python"))

SHARES = (0.35, 0.5, 0.65, 0.8)  # of what all files need
EPOCHS = 4  # the first fills it
AMPLE = "8GiB"


def task(folder, server, memory):
    """A loader of one epoch, with a cache of the encoded files, whose samples cost little."""
    import forebay

    pipeline = [*([{"cache": {"memory": memory}}] if memory else []), "decode", {"random_crop": {"size": 32, "pad_if_needed": True}}]
    return forebay.Loader(folder, pipeline, order="strict", epochs=1, socket=server.socket, mode="running")


def memory_used(folder, memory):
    server = Server()
    try:
        with task(folder, server, memory) as loader:
            return loader.status()["memory"]["used"]
    finally:
        server.close()


def reads_of_epochs(folder, memory):
    """Files read in each epoch, and those kept after all; an epoch is a task, so that none is begun before the one before is over."""
    server, totals = Server(), [0]
    try:
        for _ in range(EPOCHS):
            with task(folder, server, memory) as loader:
                for _ in loader:
                    pass
                status = loader.status()
                totals.append(status["engine"]["files_read"])
    finally:
        server.close()
    kept = sum(cache["samples"] for source in status["sources"] for cache in source["caches"])
    return kept, [after - before for before, after in zip(totals, totals[1:])]


def files_alone(folder):
    """A copy that nobody else reads: what others bring into the page cache, they pay for."""
    alone = DATA / "imagenet-alone"
    if not alone.is_dir():
        half = alone.with_name(alone.name + ".part")
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(folder, half)
        half.rename(alone)
    return alone


def page_cache_hits(folder, share):
    """The part of the files that the page cache has in later epochs; None where it can't be measured here."""
    command = [sys.executable, str(ROOT / "perf/cache/pages.py"), str(folder), str(share), str(EPOCHS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"  no figure of the page cache: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    answer = json.loads(done.stdout)
    return sum(answer["hits"]) / len(answer["hits"]) / answer["files"]


def measure(pairs):
    del pairs  # counts, not times
    if not (BUILD / "python/forebay").is_dir():
        raise Unavailable("the Python package wasn't built: install what scripts/setup build names")
    folder = imagenet()
    need = memory_used(folder, AMPLE) - memory_used(folder, None)
    print(f"  all files need {need / (1 << 20):.1f} MiB\n  memory   hits  page cache's  files read by epoch", file=sys.stderr)
    parts, off, pages = [], [], []
    for share in SHARES:
        kept, reads = reads_of_epochs(folder, f"{int(share * need) >> 10}KiB")
        hits = 1 - reads[-1] / reads[0]
        parts.append(hits / share)
        off.append(max(abs(read - (reads[0] - kept)) for read in reads[1:]))
        pages.append(page_cache_hits(files_alone(folder), share))
        shown = "-" if pages[-1] is None else f"{pages[-1]:.1%}"
        print(f"  {share:6.0%} {hits:6.1%} {shown:>13}  {', '.join(map(str, reads))}", file=sys.stderr)
    known = [hits / share for hits, share in zip(pages, SHARES) if hits is not None]
    results = [
        Result("cache", f"part of the files found in memory / part that fits, the least of {len(SHARES)} sizes", [min(parts)], 0.99),
        Result("cache_exact", "files by which a later epoch's reads differ from those that aren't kept", [max(off)], 0, at_least=False),
    ]
    if known:
        results.append(Result("cache_pages", "the same of the page cache, with as much memory, the most", [max(known)]))
    return results
