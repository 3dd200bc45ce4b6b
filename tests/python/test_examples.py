"""The example programs, against a server that they start themselves."""

import json
import os
import re
import signal
import subprocess

import conftest
import pytest
from processes import FOREBAY

pytestmark = pytest.mark.usefixtures("surroundings")
TRAIN = conftest.BUILD / "examples" / "train"


@pytest.fixture
def train(tmp_path):
    """Runs examples/train in a socket folder of its own; the embedded server that it starts ends with the test."""
    (tmp_path / "runtime").mkdir(mode=0o700)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "runtime")}

    def run(*arguments, code=0):
        done = subprocess.run([TRAIN, *map(str, arguments)], capture_output=True, text=True, timeout=60, env=environment)
        assert done.returncode == code, done
        return done

    yield run
    status = subprocess.run([FOREBAY, "status", "--json"], capture_output=True, text=True, env=environment)
    if status.returncode == 0:
        os.kill(json.loads(status.stdout)["pid"], signal.SIGTERM)


def write(path, dataset, **keys):
    """A spec; `dataset` as it stands there."""
    path.write_text(json.dumps({"dataset": dataset, "order": "sequential", "batch": 64, "pipeline": ["decode", {"center_crop": 32}], **keys}))
    return path


def test_a_training_loop(pictures, tmp_path, train):
    """The pictures have one colour each: what the program computes of the last batch, 54 pictures from place 256 on, can be told beforehand."""
    lines = train(write(tmp_path / "train.json", str(pictures)), 2).stdout.splitlines()
    mean = sum((place % 250 + place // 250 + 7) / 3 for place in range(256, 310)) / 54
    assert lines == ["310 samples in 5 batches an epoch",
                     f"epoch 0: 5 batches, mean of the last {mean:.4f}, its first label 2 (cedar)",
                     f"epoch 1: 5 batches, mean of the last {mean:.4f}, its first label 2 (cedar)"]


def test_it_ends_with_the_spec(pictures, tmp_path, train):
    assert len(train(write(tmp_path / "train.json", str(pictures), epochs=1), 9).stdout.splitlines()) == 2


def test_numbers_as_labels(pictures, tmp_path, train):
    paths = sorted(pictures.rglob("*.png"))
    (tmp_path / "list.tsv").write_text("".join(f"{path}\t{number + 40}\n" for number, path in enumerate(paths)))
    spec = write(tmp_path / "train.json", {"list": "list.tsv"}, pipeline=["decode", {"center_crop": 32}, {"normalize": "imagenet"}])
    lines = train(spec).stdout.splitlines()
    assert re.fullmatch(r"epoch 0: 5 batches, mean of the last -?\d\.\d{4}, its first label 296 \(a number\)", lines[1]), lines


def test_what_goes_wrong_is_said(pictures, tmp_path, train):
    assert train(code=64).stderr == "usage: train SPEC [EPOCHS]\n"
    assert "batch" in train(write(tmp_path / "train.json", str(pictures), batch=0), code=1).stderr
