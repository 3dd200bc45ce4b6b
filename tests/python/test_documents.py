"""The programs that the documents print, run as they are printed: over pictures of the tests, with a small model."""

import re
import subprocess
import textwrap

import conftest
import forebay
import pytest
from torch_python import TORCH_PYTHON

pytestmark = pytest.mark.usefixtures("surroundings")

MODEL = """
import torch
model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 3))
"""


def blocks(document, heading):
    """The Python blocks of a document's section, as one program."""
    text = (conftest.ROOT / document).read_text()
    section = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^```python\n(.*?)^```", section[1], re.MULTILINE | re.DOTALL)
    assert found, (document, heading)
    return "\n".join(found)


def run(program, folder):
    done = subprocess.run([TORCH_PYTHON, "-c", MODEL + program], capture_output=True, text=True, timeout=120, cwd=folder)
    assert done.returncode == 0, program + done.stdout + done.stderr


if TORCH_PYTHON:

    @pytest.fixture
    def photos(pictures, tmp_path):
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "train").symlink_to(pictures)
        return tmp_path

    @pytest.mark.parametrize("document, heading", [("README.md", "From Python"), ("python/README.md", "python: the package"),
                                                   ("docs/python.md", "A loader")])
    def test_the_loops(photos, document, heading):
        run(blocks(document, heading).replace("range(90)", "range(2)"), photos)

    def test_the_loop_in_the_packages_help(photos):
        run("import forebay\n" + textwrap.dedent(re.search(r"\n\n(    import forebay\n.*?\n)\n(?=\w)", forebay.__doc__, re.DOTALL)[1]), photos)
