"""The example programs, against a server that they start themselves."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import conftest
import pytest
from processes import FOREBAY

pytestmark = pytest.mark.usefixtures("surroundings")
TRAIN = conftest.BUILD / "examples" / "train"
DEMO = conftest.ROOT / "examples" / "demo"


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


@pytest.fixture
def demo(pictures, tmp_path):
    """examples/demo, its specs over the tests' pictures."""
    folder = tmp_path / "demo"
    shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for spec in folder.glob("*.yaml"):
        text, changed = re.subn("^dataset: .*", f"dataset: {pictures}", spec.read_text(), flags=re.MULTILINE)
        assert changed == 1, spec
        spec.write_text(text)
    return folder


def test_the_specs_of_the_demo(demo, train):
    specs = sorted(demo.glob("*.yaml"))
    assert [spec.stem for spec in specs] == ["color", "plain", "small"]
    for spec in specs:
        assert train(spec).stdout.startswith("310 samples in 5 batches an epoch\nepoch 0: 5 batches, mean of the last ")


def run_demo(demo, *arguments):
    return subprocess.run([sys.executable, demo / "demo.py", *map(str, arguments)], capture_output=True, text=True, timeout=120)


def test_the_demo(demo, tmp_path):
    """The same samples come from three servers and from one; the one decodes fewer pictures for them."""
    done = run_demo(demo, FOREBAY, "--epochs", 24, "--graph", tmp_path / "graph")
    assert done.returncode == 0, done
    assert done.stderr == ""
    text = done.stdout
    assert re.search(r"1-3 +decode ", text) and re.search(r"1-3 +random_resized_crop ", text), text
    assert (tmp_path / "graph" / "graph.dot").read_text().startswith("digraph forebay {")
    for name, epochs in (("plain", 24), ("small", 16), ("color", 16)):
        assert f"{name}, {310 * epochs:,} samples" in text, text
    assert text.count("100%  17,360 of 17,360 samples") == 2, text
    apart, together = (int(word.replace(",", "")) for word in re.search(r"pictures decoded +([\d,]+) +([\d,]+)", text).groups())
    assert apart >= 17360
    assert 310 * 24 <= together < apart
    factor = float(re.search(r"share factor +1\.0 +(\d\.\d)", text)[1])
    assert abs(factor - 17360 / together) <= 0.05 and 1 < factor <= 56 / 24


def test_what_goes_wrong_in_the_demo_is_said(demo, pictures):
    assert "expected a number above 0" in run_demo(demo, FOREBAY, "--epochs", 0).stderr
    (demo / "color.yaml").write_text("pipeline: [decode]\n")
    done = run_demo(demo, FOREBAY, "--epochs", 1)
    assert done.returncode == 1
    assert "demo.py: forebay plan failed" in done.stderr
