"""Installs the loaders that ours is compared with, on demand, below build/peers. CI never calls this."""

import os
import subprocess

from measure import Unavailable

DALI = ["nvidia-dali-cuda120==2.4.0"]
CODECS = ["imagecodecs==2026.3.6", "numpy==2.4.6"]
TORCH = ["python3-torch", "python3-torchvision"]
FFCV = ["ffcv==1.0.2"]
FFCV_NEEDS = ["numba==0.60.0", "opencv-python-headless==4.9.0.80", "tqdm==4.70.1"]
FFCV_BUILD = ["g++", "libopencv-dev", "libturbojpeg0-dev", "pkg-config", "python3-dev"]
PYTHON = "/usr/bin/python3"


def debian(title, packages, present):
    """Packages of the system, where `present`, a command, says that they are missing."""
    try:
        if subprocess.run(present, capture_output=True).returncode == 0:
            return
    except FileNotFoundError:
        pass
    if os.geteuid() != 0:
        raise Unavailable(f"{title} is missing. As root, run: apt-get install -y {' '.join(packages)}")
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    if subprocess.run(install, stdout=subprocess.DEVNULL).returncode != 0:
        raise Unavailable(f"{' '.join(install)} failed")


def environment(folder, *installs, options=()):
    """A Python environment of its own with packages from PyPI, each list of `installs` by one pip. Returns its python."""
    python = folder / "bin" / "python"
    done, wanted = folder / "installed", repr((options, installs))
    if not done.exists() or done.read_text() != wanted:
        subprocess.run([PYTHON, "-m", "venv", "--clear", *options, folder], check=True)
        for packages in installs:
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
            if subprocess.run(pip).returncode != 0:
                raise Unavailable(f"pip install {' '.join(packages)} failed")
        done.write_text(wanted)
    return python


def debian_torch(peers):
    """Debian's PyTorch and torchvision, which the system's own python3 sees. Returns that python."""
    debian("PyTorch", TORCH, [PYTHON, "-c", "import torch, torchvision"])
    return PYTHON


def dali(peers):
    """NVIDIA DALI from PyPI. Returns its python."""
    return environment(peers / "dali", DALI)


def imagecodecs(peers):
    """Many codecs in one wheel from PyPI. Returns its python."""
    return environment(peers / "imagecodecs", CODECS)


def ffcv(peers):
    """FFCV from PyPI, compiled here against Debian's OpenCV and TurboJPEG, over Debian's PyTorch. Returns its python."""
    debian_torch(peers)
    debian("What FFCV is compiled with", FFCV_BUILD, ["sh", "-c", "c++ --version && pkg-config --exists opencv4 libturbojpeg python3"])
    # Its list of needs names an OpenCV that wants a desktop's libraries, and what only its benchmarks and its GPU code use.
    return environment(peers / "ffcv", FFCV_NEEDS, ["--no-deps", *FFCV], options=("--system-site-packages",))
