"""Where PyTorch is, for the tests that need it."""

import os
import subprocess
import sys


def find_torch():
    """A Python that has PyTorch (Debian's belongs to the system's), or None: it isn't required."""
    for python in (sys.executable, "/usr/bin/python3"):
        probe = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('torch'))"
        if os.path.exists(python) and subprocess.run([python, "-c", probe], check=False).returncode == 0:
            return python
    return None


TORCH_PYTHON = find_torch()
