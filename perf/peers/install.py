"""Installs the loaders that ours is compared with, on demand, below build/peers. CI never calls this."""

import os
import subprocess

from measure import Unavailable

DALI = "nvidia-dali-cuda120==2.4.0"
TORCH = ["python3-torch", "python3-torchvision"]


def debian_torch(peers):
    """Debian's PyTorch and torchvision: packages of the system, which its own python3 sees. Returns that python."""
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import torch, torchvision"], capture_output=True).returncode != 0:
        if os.geteuid() != 0:
            raise Unavailable(f"PyTorch is missing. As root, run: apt-get install -y {' '.join(TORCH)}")
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *TORCH]
        if subprocess.run(install, stdout=subprocess.DEVNULL).returncode != 0:
            raise Unavailable(f"{' '.join(install)} failed")
    return python


def dali(peers):
    """NVIDIA DALI from PyPI in an environment of its own. Returns its python."""
    folder = peers / "dali"
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists() or done.read_text() != DALI:
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", folder], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", DALI]
        if subprocess.run(pip).returncode != 0:
            raise Unavailable(f"pip install {DALI} failed")
        done.write_text(DALI)
    return python
