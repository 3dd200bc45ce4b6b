"""Where the package under test is, and surroundings that a test can't leave marks in."""

import fcntl
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FOREBAY_BUILD", ROOT / "build" / "release")).resolve()
sys.path.insert(0, str(BUILD / "python"))


@pytest.fixture(scope="session")
def surroundings(tmp_path_factory):
    """Sockets, logs and indexes in a folder of this run: no server of the user is met, none of ours is left to them."""
    folder = tmp_path_factory.mktemp("forebay")
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(BUILD / "python"))
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        (folder / name).mkdir(mode=0o700)
        patch.setenv(name, str(folder / name))
    for name in ("FOREBAY_SOCKET", "FOREBAY_SERVER"):
        patch.delenv(name, raising=False)
    yield folder
    patch.undo()


def photographs_make(kind, folder):
    with (ROOT / "build" / "photographs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of this run may be at it
        subprocess.run([sys.executable, str(ROOT / "scripts" / "photographs.py"), kind, str(folder)], check=True)
    return folder


@pytest.fixture(scope="session")
def photographs():
    """400 real photographs, the ones of `make demo`."""
    return photographs_make("demo", ROOT / "build" / "demo" / "photographs")


@pytest.fixture(scope="session")
def benchmark_photographs():
    """2,000 photographs like ImageNet's, the ones of `make bench`."""
    return photographs_make("imagenet", ROOT / "build" / "perf-data" / "imagenet")


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """310 small pictures in 3 classes, as a folder; their colour, (place % 250, place // 250, 7), names the place in the data set."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("pictures")
    for number in range(310):
        name = ["ash", "birch", "cedar"][number * 3 // 310]
        (folder / name).mkdir(exist_ok=True)
        Image.new("RGB", (40 + number % 5, 36), (number % 250, number // 250, 7)).save(folder / name / f"{number:03}.png")
    return folder
