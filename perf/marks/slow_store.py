"""Samples per second from a throttled disk, beside a trainer four times as fast: as they come, with echo's auto, from a cache of half the data."""

import json
import subprocess
import time

from measure import BUILD, DATA, Result, Server, Unavailable, ahead_of_others, imagenet, wait_until_quiet
from slow_disk import pages_drop, throttled

BYTES_PER_S = 8 << 20
SLOWNESS = 4  # the disk's time for a batch, in steps
BATCH = 16
WARM_S, MEASURED_S = 3, 8
CACHED = 0.5
SIDE = 64  # of what is delivered: small, so that the disk decides


def spec_write(name, folder, before_decode=(), after_decode=()):
    crop = {"random_resized_crop": {"size": SIDE}}
    pipeline = [*before_decode, "decode", *after_decode, crop, {"to": {"dtype": "u8"}}]
    path = DATA / f"slow-store-{name}.json"
    path.write_text(json.dumps({"dataset": str(folder), "pipeline": pipeline, "batch": BATCH}))
    return path


def run(folder, spec, warm_s, step_us):
    """Trains for a while on a server of its own, whose disk is slow and whose page cache stays empty."""
    with ahead_of_others():
        server = Server()
    try:
        with throttled(server.process.pid, folder, BYTES_PER_S), ahead_of_others():
            wait_until_quiet(limit=20)
            command = [BUILD / "perf/echo/perf_echo_time", server.socket, spec, str(step_us), str(warm_s), str(MEASURED_S)]
            trainer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            while trainer.poll() is None:
                pages_drop(folder.glob("*/*"))
                time.sleep(0.5)
            out = trainer.communicate()[0]
    finally:
        server.close()
    if trainer.returncode != 0:
        raise Unavailable("perf_echo_time failed; what it said is above")
    answer = json.loads(out)
    answer["rate"] = answer["samples"] / answer["wall"]
    return answer


def measure(pairs):
    del pairs  # the disk's time decides, and it is throttled
    folder = imagenet()
    sizes = [path.stat().st_size for path in folder.glob("*/*")]
    rate = BYTES_PER_S / (sum(sizes) / len(sizes))  # samples/s that the disk gives
    step_us = round(1e6 * BATCH / (SLOWNESS * rate))
    plain = run(folder, spec_write("plain", folder), WARM_S, step_us)
    echo = run(folder, spec_write("echo", folder, after_decode=[{"echo": {"factor": "auto", "max": 5, "buffer": 256}}]), WARM_S, step_us)
    # One epoch fills it, at the disk's pace; the next one is measured.
    half = {"cache": f"{int(CACHED * sum(sizes)) >> 10}KiB"}
    cache = run(folder, spec_write("cache", folder, before_decode=[half]), sum(sizes) / BYTES_PER_S + WARM_S, step_us)
    told = f"{plain['rate']:.0f} samples/s as they come; a trainer takes {BATCH * 1e6 / step_us:.0f}"
    return [
        Result("slow_store", "samples/s delivered from a slow disk / its bytes per second allow", [plain["rate"] / rate], 0.95, detail=told),
        Result("slow_store_echo", "samples/s, echo auto / as they come", [echo["rate"] / plain["rate"]], round(SLOWNESS / 1.12, 2),
               detail=f"{echo['fresh'] / echo['wall']:.0f} fresh samples/s of {echo['rate']:.0f}"),
        Result("slow_store_cache", f"samples/s, half of the files in a cache, second epoch / as they come", [cache["rate"] / plain["rate"]],
               0.95 / (1 - CACHED), detail=f"{cache['rate']:.0f} samples/s"),
    ]
