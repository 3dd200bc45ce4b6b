"""The command line program: what it prints, where, and how it ends."""

import functools
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import time

import conftest
import processes
import pytest
from PIL import Image
from processes import DENY_URING, FOREBAY, OTHER_JPEG, Probe, Server, hundred, write_spec  # noqa: F401

pytestmark = pytest.mark.usefixtures("surroundings")
eventually = functools.partial(processes.eventually, seconds=20)  # whole commands start meanwhile
COMMANDS = ["run", "serve", "plan", "status", "doctor", "convert", "inspect", "verify"]
CROP, FLIP, IMAGENET = {"random_resized_crop": {"size": 32}}, "random_horizontal_flip", {"normalize": "imagenet"}
PIPELINES = {"a": ["decode", CROP, FLIP, IMAGENET], "b": ["decode", CROP, FLIP, {"to": {"dtype": "u8"}}],
             "c": ["decode", {"resize": 40}, {"center_crop": 32}]}
MANUAL = conftest.ROOT / "docs" / "man" / "forebay.1"
SUMMARY = {"samples", "batches", "epochs", "wall_s", "first_batch_s", "samples_per_s", "opening_s", "opening_cpu_s", "cpu_s", "server_cpu_s",
           "cpu_s_per_1000_samples", "worked_samples", "mb_read", "wait_s", "decode_s", "transform_s", "read_cpu_s", "conductor_cpu_s",
           "workers", "bottleneck", "bad_samples", "substituted", "batch", "interrupted"}


def forebay(*arguments, code=0, environment=None, wrapper=(), **options):
    """Runs the program to its end; `code` is the exit status that is expected."""
    done = subprocess.run([*wrapper, FOREBAY, *map(str, arguments)], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                          env={**os.environ, **(environment or {})}, **options)
    assert done.returncode == code, done
    return done


def run_json(*arguments, **options):
    return json.loads(forebay("run", "--json", "--quiet", *arguments, **options).stdout)


def bytes_of(folder):
    return sum(file.stat().st_size for file in pathlib.Path(folder).rglob("*") if file.is_file())


@pytest.fixture(scope="module")
def server(surroundings, tmp_path_factory):
    with Server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A socket folder where no server is; an embedded one that a test starts there ends with the test."""
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    if (folder / "forebay" / "embedded.sock").exists():
        os.kill(json.loads(forebay("status", "--json").stdout)["pid"], signal.SIGTERM)


@pytest.fixture
def three(hundred, tmp_path):
    """Specs that share decoding; two of them the crop and the flip, too."""
    return [write_spec(tmp_path / f"{name}.yaml", hundred, order="shared", pipeline=pipeline) for name, pipeline in PIPELINES.items()]


# --- the program as a whole -------------------------------------------------------------------------------------------


def test_without_a_command_it_says_what_there_is():
    done = forebay(code=64)
    assert not done.stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w", done.stderr, re.MULTILINE)


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_goes_to_standard_output(word):
    done = forebay(word)
    assert done.stdout.startswith("usage: forebay COMMAND") and not done.stderr


def test_version():
    assert re.fullmatch(r"forebay \d+\.\d+\.\d+\n", forebay("--version").stdout)


def test_an_unknown_command_is_named():
    done = forebay("rnu", code=64)
    assert "there is no command rnu" in done.stderr and "usage:" in done.stderr


@pytest.mark.parametrize("arguments, words", [
    (["run"], "a SPEC file is expected"),
    (["run", "a", "--epochs", "0"], "--epochs 0: expected a whole number above 0"),
    (["run", "a", "--batches", "-1"], "--batches -1: expected a whole number above 0"),
    (["run", "a", "--rate", "fast"], "--rate fast: expected samples a second"),
    (["run", "a", "--rate", "0"], "--rate 0: expected samples a second"),
    (["run", "a", "--rate", "nan"], "--rate nan: expected samples a second"),
    (["plan"], "a SPEC file is expected"),
    (["plan", "a", "--samples", "1e3"], "--samples 1e3: expected a whole number"),
    (["status", "now"], "status takes no argument, got now"),
    (["doctor", "me"], "doctor takes no argument, got me"),
    (["serve", "here"], "serve takes no argument, got here"),
    (["serve", "--memory", "plenty"], "--memory plenty: expected a size such as 8GiB"),
    (["serve", "--memory", "0"], "--memory 0: expected a size such as 8GiB"),
    (["serve", "--memory=-1GiB"], "--memory -1GiB: expected a size such as 8GiB"),
    (["serve", "--workers", "0"], "--workers 0: expected 1 to 1024"),
    (["serve", "--workers", "1025"], "--workers 1025: expected 1 to 1024"),
    (["serve", "--workers", "two"], "--workers two: expected 1 to 1024"),
    (["serve", "--reader", "mmap"], "--reader mmap: expected auto, uring or pread"),
    (["serve", "--depth", "0"], "--depth 0: expected 1 to 1024"),
    (["serve", "--depth", "18446744073709551617"], "--depth 18446744073709551617: expected 1 to 1024"),
    (["status", "--verbose"], "unrecognized option"),
])
def test_a_wrong_command_line_is_refused_by_name(arguments, words):
    done = forebay(*arguments, code=64)
    assert words in done.stderr and f"forebay {arguments[0]}" in done.stderr and not done.stdout


@pytest.mark.parametrize("arguments", [["plan", "--samples", "0"], ["doctor"], ["doctor", "--json"]])
def test_output_that_is_lost_is_a_failure(hundred, tmp_path, arguments):
    spec = [write_spec(tmp_path / "s.yaml", hundred)] if arguments[0] == "plan" else []
    with open("/dev/full", "w") as full:
        done = subprocess.run([FOREBAY, *arguments, *spec], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1 and "No space left" in done.stderr


# --- run ----------------------------------------------------------------------------------------------------------------


def test_a_run_ends_with_a_summary_in_plain_words(hundred, tmp_path, alone):
    done = forebay("run", write_spec(tmp_path / "s.yaml", hundred, epochs=2))
    assert "Done: 200 samples in 26 batches, 2 epochs" in done.stdout
    for words in (r"\d+ samples/s; opening took [\d.]+ s", r"[\d.]+ CPU-seconds per 1000 samples, [\d.]+ KiB read", "Where the CPU time went",
                  r"decoding +[\d.]+ s +\d+%", "resizing, converting", "reading files", "taking batches",
                  r"The bottleneck was (decoding|transforming|reading|the taker): this run waited \d+% of its time"):
        assert re.search(words, done.stdout), words
    assert done.stderr.splitlines()[-1].startswith("200 of 200 samples, ")
    assert "\r" not in done.stderr and "\033" not in done.stdout + done.stderr


def test_quiet_shows_no_progress(hundred, tmp_path, server):
    done = forebay("run", "-q", "--socket", server.socket, write_spec(tmp_path / "s.yaml", hundred))
    assert "Done: 100 samples" in done.stdout and not done.stderr


def test_on_a_terminal_there_is_a_bar(hundred, tmp_path, server):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=3)
    master, slave = pty.openpty()
    with subprocess.Popen([FOREBAY, "run", "--socket", server.socket, "--rate", "500", spec], stdout=subprocess.PIPE, stderr=slave) as process:
        os.close(slave)
        shown = b""
        until = time.monotonic() + 60
        while time.monotonic() < until and select.select([master], [], [], 60)[0]:
            try:
                shown += os.read(master, 4096)
            except OSError:  # the other end was closed
                break
        summary = process.stdout.read().decode()
    os.close(master)
    assert process.returncode == 0 and "Done: 300 samples" in summary
    parts = [int(part) for part in re.findall(r"\r\[[= ]{30}\] +(\d+)%  \d+ samples  \d+/s  epoch \d  \d+ s left", shown.decode())]
    assert parts == sorted(parts) and parts[-1] == 100 and len(parts) > 3
    assert b"[==============================]" in shown and shown.endswith(b"\n")


def test_the_figures_of_a_run_agree(hundred, tmp_path):
    with Server(tmp_path / "server") as server:
        summary = run_json("--socket", server.socket, write_spec(tmp_path / "s.yaml", hundred, epochs=3))
        status = server.status()
    assert set(summary) == SUMMARY
    assert (summary["samples"], summary["batches"], summary["epochs"], summary["batch"]) == (300, 39, 3, 8)
    assert summary["bad_samples"] == summary["substituted"] == 0 and summary["interrupted"] is False
    assert summary["samples_per_s"] == pytest.approx(300 / summary["wall_s"], rel=1e-6)
    assert summary["mb_read"] == pytest.approx(3 * bytes_of(hundred) / 1e6, abs=1e-9)
    assert 300 - summary["workers"] <= summary["worked_samples"] <= 300
    client_cpu_s = summary["cpu_s"] - summary["server_cpu_s"]
    per_sample = summary["server_cpu_s"] / summary["worked_samples"] + client_cpu_s / 300
    assert summary["cpu_s_per_1000_samples"] == pytest.approx(1000 * per_sample, rel=1e-4)
    assert 0 < summary["server_cpu_s"] + summary["opening_cpu_s"] <= status["cpu_s"]
    parts = sum(summary[name] for name in ("decode_s", "transform_s", "read_cpu_s", "conductor_cpu_s"))
    assert 0 < parts <= summary["server_cpu_s"] + 0.05
    assert 0 < summary["first_batch_s"] <= summary["wall_s"] and 0 <= summary["wait_s"] <= summary["wall_s"] and summary["opening_s"] > 0
    assert summary["workers"] == status["engine"]["workers"]


def test_what_is_prepared_ahead_isnt_charged_to_what_was_taken(hundred, tmp_path, server):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    summary = run_json("--socket", server.socket, "--batches", 2, "--rate", 100, spec)
    assert (summary["samples"], summary["batches"], summary["epochs"]) == (16, 2, 0)
    assert summary["worked_samples"] > 16, "the window of 128 samples is filled meanwhile"
    per_sample = summary["server_cpu_s"] / summary["worked_samples"] + (summary["cpu_s"] - summary["server_cpu_s"]) / 16
    assert summary["cpu_s_per_1000_samples"] == pytest.approx(1000 * per_sample, rel=1e-4)


def test_without_an_end_one_epoch_is_run(hundred, tmp_path, server):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    assert run_json("--socket", server.socket, spec)["samples"] == 100


def test_epochs_and_batches_say_when_to_stop(hundred, tmp_path, server):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=4)
    assert run_json("--socket", server.socket, "-e", 2, spec)["samples"] == 200
    assert run_json("--socket", server.socket, "--batches", 14, spec)["samples"] == 108  # 12 x 8 + 4 + 8
    assert run_json("--socket", server.socket, "--epochs", 9, spec)["epochs"] == 4, "the spec has no more"


def test_a_rate_is_held(hundred, tmp_path, server):
    summary = run_json("--socket", server.socket, "--rate", 150, write_spec(tmp_path / "s.yaml", hundred, epochs=2))
    assert 0.85 * 150 <= summary["samples_per_s"] <= 1.15 * 150
    assert summary["bottleneck"] == "the taker (--rate)"


@pytest.mark.parametrize("size, pipeline, batch, verdict", [
    ((900, 700), ["decode", {"resize": {"size": [8, 8], "interpolation": "nearest"}}], 8, "decoding"),
    ((24, 20), ["decode", {"resize": {"size": [900, 900], "interpolation": "lanczos"}}], 4, "transforming"),
])
def test_the_bottleneck_is_found(tmp_path, server, size, pipeline, batch, verdict):
    Image.effect_noise(size, 80).convert("RGB").save(tmp_path / "p.jpg", quality=95)
    (tmp_path / "many.tsv").write_text("p.jpg\t0\n" * 32)
    spec = tmp_path / "s.yaml"
    spec.write_text(json.dumps({"dataset": {"list": "many.tsv"}, "epochs": 1, "pipeline": pipeline, "batch": batch}))
    summary = run_json("--socket", server.socket, spec)
    assert summary["bottleneck"] == verdict, summary


def test_bad_samples_are_counted(hundred, tmp_path, server):
    folder = tmp_path / "spoiled"
    shutil.copytree(hundred, folder)
    for name in ("ash/003.jpg", "cedar/090.jpg"):
        (folder / name).write_bytes(b"no picture")
    spec = write_spec(tmp_path / "s.yaml", folder, on_error="skip", max_errors=5)
    summary = run_json("--socket", server.socket, spec)
    assert (summary["samples"], summary["bad_samples"], summary["substituted"]) == (100, 2, 2)
    assert "2 bad samples, 2 replaced" in forebay("run", "-q", "--socket", server.socket, spec).stdout
    done = forebay("run", "--socket", server.socket, write_spec(tmp_path / "f.yaml", folder, order="sequential"), code=1)
    assert re.search(r"forebay: \S+/ash/003.jpg: sample 3, decode: .*on_error: skip", done.stderr) and "Done" not in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("rate", [None, 1])
def test_a_signal_ends_it_with_a_summary(hundred, tmp_path, server, number, rate):
    """In the middle of taking batches, and in the middle of waiting for the time of the next."""
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    pace = ["--rate", str(rate)] if rate else []
    with subprocess.Popen([FOREBAY, "run", "--json", "--socket", server.socket, "--epochs", "1000000", *pace, spec],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert " of 100000000 samples" in process.stderr.readline()
        time.sleep(0.2)
        process.send_signal(number)
        sent = time.monotonic()
        summary = json.loads(process.communicate(timeout=30)[0])
    assert time.monotonic() - sent < 2
    assert process.returncode == 128 + number
    assert summary["interrupted"] is True and summary["samples"] > 0


def test_a_second_ctrl_c_doesnt_wait_for_anybody(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    with Server(tmp_path / "server") as server, \
            subprocess.Popen([FOREBAY, "run", "--socket", server.socket, "--epochs", "1000000", spec], stderr=subprocess.PIPE, text=True) as process:
        process.stderr.readline()
        os.kill(server.pid, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        assert process.wait(30) in (-signal.SIGINT, 128 + signal.SIGINT)
        assert time.monotonic() - sent < 2


def test_a_wrong_spec_is_one_line_on_standard_error(tmp_path, server):
    spec = tmp_path / "s.yaml"
    spec.write_text("dataset: .\npipeline: [decode, resiez: 32]\n")
    done = forebay("run", "--socket", server.socket, spec, code=1)
    assert not done.stdout and re.fullmatch(r"forebay: \S*s\.yaml:2: .*resiez.*did you mean resize\?\n", done.stderr), done.stderr
    done = forebay("run", "--socket", server.socket, tmp_path / "none.yaml", code=1)
    assert "none.yaml" in done.stderr and "No such file" in done.stderr


def test_the_nearest_name_that_there_is(hundred, tmp_path, server, monkeypatch):
    spec = write_spec(tmp_path / "train.yaml", hundred)
    for command in (("plan",), ("run", "--socket", server.socket)):
        done = forebay(*command, tmp_path / "trian.yaml", code=1)
        assert re.search(rf"trian.yaml.*: No such file or directory; expected .*YAML file; did you mean {spec}\?\n", done.stderr), done.stderr
        monkeypatch.chdir(tmp_path)
        assert forebay(*command, "trian.yaml", code=1).stderr.endswith("; did you mean train.yaml?\n")
        for far in ("other", "abc.yaml"):
            assert "did you mean" not in forebay(*command, tmp_path / far, code=1).stderr
        (tmp_path / "pictures").mkdir(exist_ok=True)
        other = write_spec(tmp_path / "other.yaml", tmp_path / "pictuers" / "train")
        done = forebay(*command, other, code=1)
        assert re.search(rf"can't open the folder .*/pictuers/train: No such file or directory; expected a folder of class folders; "
                         rf"did you mean {tmp_path}/pictures\?\n", done.stderr), done.stderr
        other.write_text(json.dumps({"dataset": {"list": str(tmp_path / "lost.tsv")}, "pipeline": ["decode", {"center_crop": 8}]}))
        assert "expected a text file with a path and a label on each line\n" in forebay(*command, other, code=1).stderr


def test_too_many_bad_samples_say_what_to_raise(hundred, tmp_path, server):
    folder = tmp_path / "spoiled"
    shutil.copytree(hundred, folder)
    for name in ("ash/003.jpg", "cedar/090.jpg"):
        (folder / name).write_bytes(b"no picture")
    done = forebay("run", "--socket", server.socket, write_spec(tmp_path / "s.yaml", folder, on_error="skip"), code=1)
    assert re.search(r"2 bad samples in epoch 0 are more than max_errors allows: 0.001, of 100 samples 1; raise max_errors .*; the last: ", done.stderr)
    assert "set on_error" not in done.stderr


def test_a_wrong_variable_names_the_program(hundred, tmp_path, alone):
    done = forebay("run", write_spec(tmp_path / "s.yaml", hundred), code=1, environment={"FOREBAY_WORKERS": "abc"})
    assert f"the server {os.path.realpath(FOREBAY)} didn't start: " in done.stderr and "FOREBAY_WORKERS" in done.stderr


def test_too_long_a_socket_name(tmp_path):
    done = forebay("serve", "--socket", tmp_path / ("s" * 100), code=1)
    assert f"the socket's file name, {'s' * 100}, is too long: expected under 80 bytes (its folder's path may be longer)" in done.stderr


def test_a_server_that_is_named_must_be_there(hundred, tmp_path, alone):
    spec = write_spec(tmp_path / "s.yaml", hundred)
    done = forebay("run", "--socket", tmp_path / "nobody", spec, code=1)
    assert f"no server answers at {tmp_path}/nobody" in done.stderr
    done = forebay("run", spec, code=1, environment={"FOREBAY_SOCKET": str(tmp_path / "nobody")})
    assert f"no server answers at {tmp_path}/nobody" in done.stderr
    assert not (alone / "forebay" / "embedded.sock").exists()


def test_the_server_that_is_named_does_the_work(hundred, tmp_path, server, alone):
    before = server.status()["engine"]["files_read"]
    forebay("run", "-q", "--socket", server.socket, write_spec(tmp_path / "s.yaml", hundred))
    forebay("run", "-q", write_spec(tmp_path / "s.yaml", hundred), environment={"FOREBAY_SOCKET": str(server.socket)})
    assert server.status()["engine"]["files_read"] == before + 200
    assert not (alone / "forebay" / "embedded.sock").exists()


def test_embedded_is_embedded_even_where_a_server_runs(hundred, tmp_path, server, alone):
    before = server.status()["engine"]["files_read"]
    forebay("run", "-q", "--embedded", write_spec(tmp_path / "s.yaml", hundred), environment={"FOREBAY_SOCKET": str(server.socket)})
    assert server.status()["engine"]["files_read"] == before
    assert json.loads(forebay("status", "--json").stdout)["engine"]["files_read"] == 100


def test_a_server_that_dies_ends_the_run(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    with Server(tmp_path / "server") as server:
        with subprocess.Popen([FOREBAY, "run", "--socket", server.socket, "--epochs", "1000000", spec],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            process.stderr.readline()
            server.process.kill()
            output, errors = process.communicate(timeout=30)
    assert process.returncode == 1 and f"the server, process {server.pid}, is gone" in errors and not output


# --- run of several specs -------------------------------------------------------------------------------------------------


MEMBER = {"name", "samples", "batches", "epochs", "wall_s", "first_batch_s", "opening_s", "wait_s", "samples_per_s", "client_cpu_s",
          "bad_samples", "substituted", "root", "interrupted", "failed"}


def test_several_tasks_run_at_once(three, hundred, tmp_path):
    with Server(tmp_path / "server") as server:
        run = run_json("--socket", server.socket, "--epochs", 3, *three)
        status = server.status()
    assert [(task["name"], task["samples"], task["batches"], task["epochs"]) for task in run["tasks"]] == [
        ("a.yaml", 100, 13, 1), ("b.yaml", 100, 13, 1), ("c.yaml", 100, 13, 1)], "the specs have no more than one epoch"
    for task in run["tasks"]:
        assert set(task) == MEMBER and task["failed"] is None and task["interrupted"] is False and task["root"] == str(hundred)
        assert task["samples_per_s"] == pytest.approx(100 / task["wall_s"])
    (source,) = run["sources"]
    assert (source["root"], source["tasks"], source["delivered"]) == (str(hundred), 3, 300)
    assert 100 <= source["drawn"] < 300 and 0 < source["draws"] <= source["drawn"]
    assert source["share_factor"] == pytest.approx(300 / source["drawn"])
    assert 0 < run["server_cpu_s"] <= status["cpu_s"] and run["worked_samples"] <= source["drawn"]
    client_cpu_s = sum(task["client_cpu_s"] for task in run["tasks"])
    assert run["cpu_s_per_1000_samples"] == pytest.approx(1000 * (run["server_cpu_s"] / 300 + client_cpu_s / 300), rel=1e-4)
    assert not status["tasks"]


def test_several_tasks_as_text(three, hundred, tmp_path):
    folder = tmp_path / "other"
    shutil.copytree(hundred / "ash", folder / "ash")
    other = write_spec(tmp_path / "other.yaml", folder, epochs=2)
    with Server(tmp_path / "server") as server:
        done = forebay("run", "--socket", server.socket, *three, other)
    for words in (r"^task +batches +samples +samples/s +waited$", r"^a\.yaml +13 +100 +\d+ +\d+%$", r"^other\.yaml +10 +68 +\d+ +\d+%$",
                  rf"^{hundred}: \d+ draws, \d+ samples drawn, delivered 300 times: [123]\.\d\d tasks a sample$",
                  rf"^{folder}: \d+ draws, 68 samples drawn, delivered 68 times: 1\.00 tasks a sample$",
                  r"^The server took [\d.]+ CPU-seconds .*; [\d.]+ CPU-seconds per 1000 samples delivered$"):
        assert re.search(words, done.stdout, re.MULTILINE), (words, done.stdout)
    assert re.fullmatch(r"a\.yaml 100 of 100, \d+/s; b\.yaml 100 of 100, \d+/s; c\.yaml 100 of 100, \d+/s; other\.yaml 68 of 68, \d+/s",
                        done.stderr.splitlines()[-1])


def test_several_tasks_start_one_embedded_server(three, alone):
    run = run_json(*three)
    assert [task["samples"] for task in run["tasks"]] == [100, 100, 100]
    assert json.loads(forebay("status", "--json").stdout)["embedded"] is True


def test_what_was_before_isnt_counted(three, hundred, tmp_path):
    """Another task over the same data set was there before, and goes on meanwhile."""
    with Server(tmp_path / "server") as server, Probe(write_spec(tmp_path / "s.yaml", hundred, order="shared", epochs=None), server) as probe:
        probe.batches(30)
        before = server.status()["sources"][0]
        (source,) = run_json("--socket", server.socket, *three[:2])["sources"]
    assert before["delivered"] >= 240 and source["delivered"] < 240 + 128 and source["tasks"] == 2


def test_all_ranks_of_a_spec_are_run(hundred, tmp_path, server):
    spec = write_spec(tmp_path / "s.yaml", hundred, ranks=3)
    run = run_json("--socket", server.socket, spec)
    assert [(task["name"], task["samples"], task["batches"]) for task in run["tasks"]] == [(f"s.yaml rank {rank}", 34, 5) for rank in range(3)]
    assert run["sources"][0]["drawn"] == 102, "two repeat a sample, so that all have as many"
    assert "5 batches of 8 an epoch for each of 3 ranks" in forebay("plan", "--samples", 0, spec).stdout


def test_a_spec_from_a_pipe(hundred, tmp_path, server):
    text = write_spec(tmp_path / "s.yaml", hundred).read_bytes()
    done = subprocess.run([FOREBAY, "run", "--json", "-q", "--socket", server.socket, "/dev/stdin"], input=text, capture_output=True, timeout=60)
    assert json.loads(done.stdout)["samples"] == 100, done


def test_a_wrong_spec_among_several(three, tmp_path, server):
    """It is named, the others run to their end, and the run has failed."""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("dataset: .\npipeline: [decode, resiez: 32]\n")
    done = forebay("run", "--socket", server.socket, "--json", "--quiet", three[0], wrong, three[2], code=1)
    assert re.fullmatch(r"forebay: \S*wrong\.yaml:2: .*resiez.*did you mean resize\?\n", done.stderr)
    run = json.loads(done.stdout)
    assert [task["samples"] for task in run["tasks"]] == [100, 0, 100]
    assert [task["failed"] and "resiez" in task["failed"] for task in run["tasks"]] == [None, True, None]
    assert run["sources"][0]["tasks"] == 2
    done = forebay("run", "--socket", server.socket, *three[:2], tmp_path / "none.yaml", code=1)
    assert re.search(r"^none\.yaml +0 +0 +0 +0%  failed$", done.stdout, re.MULTILINE) and "; none.yaml failed" in done.stderr


def test_a_server_that_isnt_there_fails_each(three, tmp_path):
    done = forebay("run", "--socket", tmp_path / "nobody", *three, code=1)
    lines = [line for line in done.stderr.splitlines() if line.startswith("forebay: ")]
    assert sorted(line.split(":")[1] for line in lines) == [" a.yaml", " b.yaml", " c.yaml"]
    assert all(f"no server answers at {tmp_path}/nobody" in line for line in lines)


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


@pytest.fixture
def endless(three):
    """The program at work on three tasks without an end; the server is `three`'s caller's."""
    for spec in three:
        text = json.loads(spec.read_text())
        del text["epochs"]
        spec.write_text(json.dumps(text))
    started = []

    def start(server, *arguments):
        process = subprocess.Popen([FOREBAY, "run", "--socket", server.socket, "--epochs", "1000000", *arguments, *three],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        eventually(lambda: len(server.status()["tasks"]) == 3 and all(task["delivered_samples"] for task in server.status()["tasks"]))
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all(endless, tmp_path, number):
    with Server(tmp_path / "server") as server:
        process = endless(server, "--json")
        process.send_signal(number)
        run = json.loads(process.communicate(timeout=30)[0])
        assert process.returncode == 128 + number
        eventually(lambda: not server.status()["tasks"])
    assert all(task["interrupted"] and task["failed"] is None for task in run["tasks"])


def test_a_killed_parent_takes_its_tasks_along(endless, tmp_path):
    with Server(tmp_path / "server") as server:
        process = endless(server)
        assert len(children_of(process.pid)) == 3
        process.kill()
        eventually(lambda: not server.status()["tasks"])


def test_a_task_that_is_killed_is_named(endless, tmp_path):
    with Server(tmp_path / "server") as server:
        process = endless(server, "-q")
        os.kill(next(task["pid"] for task in server.status()["tasks"] if task["name"].endswith("b.yaml")), signal.SIGKILL)
        assert process.stderr.readline() == "forebay: b.yaml: its process was ended by signal 9 (Killed)\n"
        assert len(server.status()["tasks"]) >= 2, "the others go on"
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=30)[0]
    assert process.returncode == 1
    assert re.search(r"^b\.yaml .*  failed$", output, re.MULTILINE) and re.search(r"^a\.yaml .*  stopped early$", output, re.MULTILINE)


def test_on_a_terminal_the_line_fits(three, tmp_path, server):
    master, slave = pty.openpty()
    with subprocess.Popen([FOREBAY, "run", "--socket", server.socket, "--rate", "200", *three], stdout=subprocess.DEVNULL, stderr=slave) as process:
        os.close(slave)
        shown = b""
        while select.select([master], [], [], 60)[0]:
            try:
                shown += os.read(master, 4096)
            except OSError:  # the other end was closed
                break
    os.close(master)
    lines = shown.decode().replace("\033[K", "").strip("\r\n").split("\r")
    assert process.returncode == 0 and len(lines) > 2 and all(len(line) <= 79 for line in lines)
    assert re.match(r"a\.yaml 100 of 100, \d+/s; b\.yaml 100 of 100, ", lines[-1])


# --- status ---------------------------------------------------------------------------------------------------------------


def test_status_shows_a_running_task(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred, epochs=None)
    with Server(tmp_path / "server", "--workers", 1, "--memory", "512MiB") as server, Probe(spec, server) as probe:
        probe.batches(3)
        probe.ask("next")
        status = server.status()
        text = forebay("status", "-s", server.socket).stdout
    assert (status["pid"], status["socket"], status["embedded"]) == (server.pid, str(server.socket), False)
    assert status["engine"]["workers"] == 1 and status["memory"]["limit"] == 512 << 20 and 0 < status["memory"]["used"] < 512 << 20
    (task,) = status["tasks"]
    assert (task["name"], task["pid"], task["order"], task["batch"]) == (str(spec), probe.pid, "strict", 8)
    assert (task["window"], task["batches_per_epoch"], task["failed"]) == (16, 13, None)
    assert task["epoch"] <= 1, "it counts what was delivered: up to a window more than was taken"
    assert task["dataset"]["samples"] == 100 and task["dataset"]["classes"] == 3
    assert task["held_batches"] >= 1 and task["delivered_samples"] >= 32
    for words in (f"process {server.pid}, standalone server at {server.socket}", "of 512.0 MiB", f"{spec}  (process {probe.pid})",
                  "100 samples, 3 classes", "of 13, order strict", "workers: 1"):
        assert words in text, text


def test_status_names_bad_samples_and_failures(hundred, tmp_path):
    folder = tmp_path / "spoiled"
    shutil.copytree(hundred, folder)
    (folder / "ash" / "003.jpg").write_bytes(b"no picture")
    skipping = write_spec(tmp_path / "skip.yaml", folder, on_error="skip", max_errors=5)
    failing = write_spec(tmp_path / "fail.yaml", folder, order="sequential")
    with Server(tmp_path / "server") as server, Probe(skipping, server) as one, Probe(failing, server) as other:
        one.batches()
        other.batches()
        text = forebay("status", "-s", server.socket).stdout
    assert "1 samples, 1 replaced" in text and re.search(r"ash/003\.jpg: decode: \w+", text)
    assert re.search(r"FAILED +\S+/ash/003\.jpg: sample 3", text)


def jpegs_of(server, spec):
    """What the server's own entropy decoder began for all of a task's samples, and what it declined. `status` and `doctor` say the same."""
    with Probe(spec, server) as probe:
        probe.batches()
        eventually(lambda: server.status()["engine"]["samples"] == 100)  # workers count after they deliver
        engine = server.status()["engine"]
        text = forebay("status", "-s", server.socket).stdout
    assert f"  JPEG       entropy decoder: {engine['jpeg_entropy']}\n" in text
    assert doctor()["JPEG"]["what"] == f"entropy decoder: {engine['jpeg_entropy']}"
    began, declined = engine["own_entropy_jpegs"], engine["own_entropy_declined"]
    assert (f"ours began {began} pictures, and left {declined} of them to libjpeg's" in text) == (began > 0)
    return began, declined


def test_the_spec_chooses_the_entropy_decoder(hundred, tmp_path):
    ours = doctor()["JPEG"]["verdict"] == "good"
    for choice, used in (("auto", ours), ("libjpeg", False)):
        spec = write_spec(tmp_path / f"{choice}.yaml", hundred, epochs=1, pipeline=[{"decode": {"entropy": choice}}, CROP])
        with Server(tmp_path / choice) as server:
            began, declined = jpegs_of(server, spec)
        assert (began, declined) == (100 if used else 0, 0)


def test_declined_pictures_are_counted(hundred, tmp_path):
    if doctor()["JPEG"]["verdict"] != "good":
        pytest.skip("built without an entropy decoder of its own")
    folder = tmp_path / "lossy"
    shutil.copytree(hundred, folder)
    lossy = folder / "ash" / "003.jpg"
    data = lossy.read_bytes()
    lossy.write_bytes(data[: len(data) // 2] + data[len(data) // 2 + 50 :])
    spec = write_spec(tmp_path / "s.yaml", folder, on_error="skip", epochs=1, pipeline=["decode", CROP])
    with Server(tmp_path / "server") as server:
        assert jpegs_of(server, spec) == (100, 1)


def test_status_and_doctor_say_why_libjpeg_decodes_alone(hundred, tmp_path):
    other = {"LD_PRELOAD": str(OTHER_JPEG), "ASAN_OPTIONS": f"verify_asan_link_order=0:{os.environ.get('ASAN_OPTIONS', '')}"}
    finding = doctor(environment=other)["JPEG"]
    assert finding["verdict"] == "fair" and re.match("entropy decoder: libjpeg's: .+", finding["what"]) and finding["advice"]
    if doctor()["JPEG"]["verdict"] == "good":
        assert "isn't the version" in finding["what"]
    with Server(tmp_path / "server", environment=other) as server, \
            Probe(write_spec(tmp_path / "s.yaml", hundred, pipeline=["decode", CROP]), server) as probe:
        probe.batches(3)
        engine = server.status()["engine"]
        text = forebay("status", "-s", server.socket).stdout
    assert finding["what"] == f"entropy decoder: {engine['jpeg_entropy']}" and engine["own_entropy_jpegs"] == 0
    assert f"  JPEG       {finding['what']}\n" in text


def test_status_shows_what_tasks_share(hundred, tmp_path):
    """Three tasks over one data set, one over another."""
    specs = [write_spec(tmp_path / f"{name}.yaml", hundred, order="shared", epochs=None, pipeline=pipeline) for name, pipeline in PIPELINES.items()]
    folder = tmp_path / "other"
    shutil.copytree(hundred / "ash", folder / "ash")
    with Server(tmp_path / "server") as server, Probe(specs[0], server) as a, Probe(specs[1], server) as b, Probe(specs[2], server) as c, \
            Probe(write_spec(tmp_path / "d.yaml", folder), server) as d:
        for _ in range(10):
            for probe in (a, b, c):
                probe.batches(1)
        a.batches(40)

        def at_rest():
            status = server.status()
            return status if status["engine"]["read_waiting"] == status["engine"]["work_waiting"] == 0 and not any(
                task["pending_draws"] for task in status["tasks"]) else None

        status = eventually(at_rest)
        text = forebay("status", "-s", server.socket).stdout
        tasks = {pathlib.Path(task["name"]).name: task for task in status["tasks"]}
        assert [task["pid"] for _, task in sorted(tasks.items())] == [a.pid, b.pid, c.pid, d.pid]
    numbers = {name: task["number"] for name, task in tasks.items()}
    sources = {source["root"]: source for source in status["sources"]}
    assert set(sources) == {str(hundred), str(folder)}
    source, other = sources[str(hundred)], sources[str(folder)]
    assert sorted(source["tasks"]) == sorted(numbers[f"{name}.yaml"] for name in "abc") and other["tasks"] == [numbers["d.yaml"]]
    assert {name: task["source"] for name, task in tasks.items()} == {
        "a.yaml": source["source"], "b.yaml": source["source"], "c.yaml": source["source"], "d.yaml": other["source"]}

    assert source["drawn"] < source["delivered"], "at least once two tasks were given one sample"
    assert source["delivered"] >= sum(tasks[f"{name}.yaml"]["delivered_samples"] for name in "abc")
    assert source["share_factor"] == pytest.approx(source["delivered"] / source["drawn"]) and other["share_factor"] == 1
    assert 0 < source["segment_bytes"] + other["segment_bytes"] <= status["memory"]["used"]
    assert tasks["a.yaml"]["lag_epochs"] == 0 and tasks["b.yaml"]["lag_epochs"] > 1
    assert all(0 <= task["contiguous_share"] <= 1 for task in status["tasks"])

    graph = source["graph"]
    passing = {(stage["op"], tuple(sorted(stage["tasks"]))) for stage in graph["stages"]}
    by_name = [numbers[f"{name}.yaml"] for name in "abc"]
    for op, names in [("source", by_name), ("decode", by_name), ("random_resized_crop", by_name[:2]), ("resize", by_name[2:])]:
        assert (op, tuple(sorted(names))) in passing
    assert sorted(number for stage in graph["stages"] for number in stage["ends"]) == sorted(by_name)
    stages = {stage["op"]: stage for stage in graph["stages"]}
    assert stages["source"]["samples"] == stages["decode"]["samples"] >= stages["random_resized_crop"]["samples"] > 0
    assert sum(stage["cpu_share"] for stage in graph["stages"]) == pytest.approx(1)
    assert stages["decode"]["samples_per_s"] == pytest.approx(stages["decode"]["samples"] / graph["age_s"])
    for words in (rf"^data set {hundred}: 100 samples, tasks [\d -]+$", r"^  draws      \d+: \d+ samples drawn, delivered \d+ times: \d\.\d\d tasks a sample",
                  r"^ +samples/s +CPU +tasks +stage$", r"^ +[\d.]+ +\d+%  [\d -]+(\|-- |`-- )?decode \{", r"=> \d", r"\d% of the batches in one piece$",
                  r"[\d.]+ epochs behind the task that has come furthest"):
        assert re.search(words, text, re.MULTILINE), (words, text)


def test_status_without_a_task(tmp_path, server):
    assert "no task" in forebay("status", "-s", server.socket).stdout


def test_status_without_a_server_starts_none(alone):
    for arguments in (["status"], ["status", "--json"]):
        done = forebay(*arguments, code=1)
        assert not done.stdout and done.stderr.startswith("forebay: no server answers at ")
    assert not list(alone.rglob("*.sock"))


# --- plan -----------------------------------------------------------------------------------------------------------------


def test_a_plan_is_a_chain_with_stable_keys(hundred, tmp_path, alone):
    spec = write_spec(tmp_path / "s.yaml", hundred)
    plan = json.loads(forebay("plan", "--json", spec).stdout)
    again = json.loads(forebay("plan", "--json", spec).stdout)
    stages = plan["stages"]
    assert [stage["op"] for stage in stages] == ["source", "decode", "random_resized_crop", "random_horizontal_flip", "normalize", "to"]
    assert [stage["parent"] for stage in stages] == list(range(-1, len(stages) - 1))
    assert [stage["random"] for stage in stages] == [False, False, True, True, False, False]
    keys = [stage["key"] for stage in stages]
    assert len(set(keys)) == len(keys) and all(re.fullmatch("[0-9a-f]{32}", key) for key in keys)
    assert again["stages"] == stages
    assert (plan["name"], plan["samples"], plan["batch"], plan["dtype"]) == ("s.yaml", 100, 8, "f32")
    assert plan["shape"] == [3, 32, 32] and plan["sample_bytes"] == 4 * 3 * 32 * 32
    assert plan["measured_samples"] == 32 and plan["bad_samples"] == 0 and plan["decode_us"] > 0 and plan["transform_us"] > 0
    assert len(plan["stage_us"]) == len(stages) and plan["stage_us"][1] == max(plan["stage_us"]), "decoding costs most"
    assert not list(alone.rglob("*.sock")), "a plan needs no server"


def test_keys_change_from_the_change_on(hundred, tmp_path):
    def keys(dataset=hundred, **changes):
        spec = write_spec(tmp_path / "s.yaml", dataset, **changes)
        return [stage["key"] for stage in json.loads(forebay("plan", "--json", "--samples", 0, spec).stdout)["stages"]]

    def differ(one, other):
        return [mine != its for mine, its in zip(one, other)]

    pipeline = ["decode", {"random_resized_crop": {"size": 32}}, {"random_horizontal_flip": {"p": 0.25}}, {"normalize": "imagenet"}]
    base = keys()
    assert keys(seed=5, batch=16, epochs=7) == base, "what isn't done to a sample is no part of them"
    assert differ(base, keys(pipeline=pipeline)) == [False, False, False, True, True, True]
    assert differ(base, keys(augment_seed=1)) == [False, False, True, True, True, True]
    folder = tmp_path / "moved"
    shutil.copytree(hundred, folder)
    assert keys(dataset=folder) == base, "where the data lie doesn't matter"
    (folder / "ash" / "003.jpg").unlink()
    assert differ(base, keys(dataset=folder)) == [True] * 6


def test_a_plan_in_words(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred)
    text = forebay("plan", "--cache", tmp_path / "cache", spec).stdout
    for words in (f"{hundred}: 100 samples, 3 classes", "order      strict, seed 0; 13 batches of 8 an epoch", "f32 3 x 32 x 32, 12.0 KiB",
                  "random_horizontal_flip {p: 0.5, augment_seed: 0}  (random)", "measured on 32 samples"):
        assert words in text, text
    assert any((tmp_path / "cache").iterdir()), "the index was kept there"
    assert "cost" not in forebay("plan", "--samples", 0, spec).stdout


def test_the_costs_of_a_plan_agree(hundred, tmp_path):
    plan = json.loads(forebay("plan", "--json", write_spec(tmp_path / "s.yaml", hundred)).stdout)
    costs = dict(zip([stage["op"] for stage in plan["stages"]], plan["stage_us"]))
    assert plan["decode_us"] == costs.pop("decode") > 0
    assert abs(plan["transform_us"] - sum(costs.values())) < 1e-6


def test_a_plan_counts_what_is_bad(hundred, tmp_path):
    folder = tmp_path / "spoiled"
    shutil.copytree(hundred, folder)
    (folder / "ash" / "000.jpg").write_bytes(b"no picture")
    spec = write_spec(tmp_path / "s.yaml", folder)
    plan = json.loads(forebay("plan", "--json", "--samples", 1000, spec).stdout)
    assert (plan["measured_samples"], plan["bad_samples"]) == (100, 1)
    assert "1 of them are bad" in forebay("plan", spec).stdout


def test_a_plan_of_a_wrong_spec(tmp_path):
    spec = tmp_path / "s.yaml"
    spec.write_text("dataset: nowhere\npipeline: [decode, center_crop: 8]\n")
    assert "nowhere" in forebay("plan", spec, code=1).stderr
    spec.write_text("dataset: .\npipeline: [decode]\n")
    assert re.search(r"s\.yaml:2: ", forebay("plan", spec, code=1).stderr)


# --- plan of several specs ------------------------------------------------------------------------------------------------


def graphs(*arguments, **options):
    return json.loads(forebay("plan", "--json", *arguments, **options).stdout)["graphs"]


def test_several_specs_make_one_graph(three, hundred):
    (graph,) = graphs(*three)
    assert (graph["root"], graph["samples"]) == (str(hundred), 100)
    assert [(task["name"], task["order"], task["batches"], task["dtype"]) for task in graph["tasks"]] == [
        ("a.yaml", "shared", 13, "f32"), ("b.yaml", "shared", 13, "u8"), ("c.yaml", "shared", 13, "u8")]
    stages = [(stage["op"], stage["tasks"], stage["ends"]) for stage in graph["stages"]]
    assert stages == [("source", [0, 1, 2], []), ("decode", [0, 1, 2], []), ("random_resized_crop", [0, 1], []),
                      ("random_horizontal_flip", [0, 1], []), ("normalize", [0], []), ("to", [0], [0]), ("to", [1], [1]),
                      ("resize", [2], []), ("center_crop", [2], []), ("to", [2], [2])]
    assert [stage["parent"] for stage in graph["stages"]] == [-1, 0, 1, 2, 3, 4, 3, 1, 7, 8]
    assert [stage["op"] for stage in graph["stages"] if stage["random"]] == ["random_resized_crop", "random_horizontal_flip"]


def test_what_sharing_saves_is_measured(tmp_path):
    """Decoding dominates: three tasks that share nothing but it cost about a third together."""
    Image.effect_noise((1400, 1000), 80).convert("RGB").save(tmp_path / "p.jpg", quality=95)
    (tmp_path / "many.tsv").write_text("p.jpg\t0\n" * 8)
    specs = []
    for size in (8, 9, 10):
        resize = {"resize": {"size": [size, size], "interpolation": "nearest"}}
        specs.append(tmp_path / f"{size}.yaml")
        specs[-1].write_text(json.dumps({"dataset": {"list": "many.tsv"}, "pipeline": ["decode", resize], "batch": 8}))
    (graph,) = graphs(*specs)
    assert graph["measured_samples"] == 8 and graph["bad_samples"] == 0
    assert graph["together_us"] == pytest.approx(graph["decode_us"] + graph["transform_us"])
    assert graph["apart_us"] == pytest.approx(sum(task["us"] for task in graph["tasks"]))
    assert graph["saving"] == pytest.approx(graph["apart_us"] / graph["together_us"])
    assert 2 < graph["saving"] < 3.5
    stages = {stage["op"]: stage["us"] for stage in graph["stages"]}
    assert stages["decode"] > 0.7 * graph["together_us"], "decoding counts at decode, though a resize needed the pixels"
    assert 0.9 * graph["together_us"] < sum(stage["us"] for stage in graph["stages"]) <= 1.01 * graph["together_us"]


def test_equal_specs_end_in_one_stage(hundred, tmp_path):
    spec = write_spec(tmp_path / "s.yaml", hundred)
    (tmp_path / "other").mkdir()
    other = write_spec(tmp_path / "other" / "s.yaml", hundred)
    (graph,) = graphs("--samples", 0, spec, spec, other)
    assert [task["name"] for task in graph["tasks"]] == [str(spec), f"{spec} #2", str(other)], "names tell them apart"
    assert [stage["tasks"] for stage in graph["stages"]] == [[0, 1, 2]] * 6 and graph["stages"][-1]["ends"] == [0, 1, 2]
    assert "saving" not in graph and "us" not in graph["stages"][0]


def test_each_data_set_has_a_graph(three, hundred, tmp_path):
    folder = tmp_path / "other"
    shutil.copytree(hundred, folder)
    (folder / "ash" / "003.jpg").unlink()
    other = write_spec(tmp_path / "d.yaml", folder, order="shared", split={"part": [0, 0.5]})
    one, two = graphs("--samples", 0, three[0], other, three[1])
    assert [task["name"] for task in one["tasks"]] == ["a.yaml", "b.yaml"] and [task["name"] for task in two["tasks"]] == ["d.yaml"]
    assert (two["samples"], two["tasks"][0]["samples"]) == (99, 50)
    text = forebay("plan", "--samples", 0, three[0], other, three[1]).stdout
    assert f"{hundred}: 100 samples" in text and f"{folder}: 99 samples" in text and "50 of the samples" in text


def test_a_graph_as_text(three):
    text = forebay("plan", *three).stdout
    for words in (r"^ +1  a\.yaml  shared order, 13 batches of 8 an epoch; a sample: f32 3 x 32 x 32, 12\.0 KiB; alone [\d.]+ us$",
                  r"^ +us +tasks +stage$", r"^ +[\d.]+  1-3 +decode \{.*\}$", r"^ +[\d.]+  1 2 +\|-- random_resized_crop .*\(random\)$",
                  r"^ +[\d.]+  1 2 +\|   random_horizontal_flip .*\(random\)$", r"^ +[\d.]+  1 +\|   \|-- normalize .*\}$",
                  r"^ +[\d.]+  1 +\|   \|   to .*  => a\.yaml$", r"^ +[\d.]+  2 +\|   `-- to .*  => b\.yaml$", r"^ +[\d.]+  3 +`-- resize ",
                  r"^ +[\d.]+  3 +to .*  => c\.yaml$",
                  r"^  cost +together [\d.]+ us a sample on one core, apart [\d.]+: [\d.]+ times as much \(measured on 32 samples"):
        assert re.search(words, text, re.MULTILINE), (words, text)
    text = forebay("plan", "--samples", 0, *three).stdout
    assert "cost" not in text and " us" not in text and re.search(r"^    1-3    decode", text, re.MULTILINE)


def test_a_graph_for_graphviz(three, tmp_path):
    quoted = tmp_path / 'q"\\.yaml'
    quoted.write_bytes(three[2].read_bytes())
    file = tmp_path / "g.dot"
    forebay("plan", "--dot", file, *three[:2], quoted)
    text = file.read_text()
    assert text.startswith("digraph forebay {\n") and text.endswith("}\n") and text.count("{") - text.count("}") == 0
    nodes = dict(re.findall(r'^    (g0_s\d+) \[label="(\w+)(?:\\n|")', text, re.MULTILINE))
    assert list(nodes.values()) == ["source", "decode", "random_resized_crop", "random_horizontal_flip", "normalize", "to", "to", "resize",
                                    "center_crop", "to"]
    edges = re.findall(r'^    (g0_s\d+) -> (g0_s\d+) \[label="  (\d)"', text, re.MULTILINE)
    assert [(nodes[one], nodes[other], count) for one, other, count in edges[:3]] == [
        ("source", "decode", "3"), ("decode", "random_resized_crop", "2"), ("random_resized_crop", "random_horizontal_flip", "2")]
    assert len(edges) == 9
    assert [nodes[name] for name in re.findall(r"(g0_s\d+) \[.*dashed", text)] == ["random_resized_crop", "random_horizontal_flip"]
    assert re.findall(r"^    (g0_t\d) \[label=(.*), shape=ellipse", text, re.MULTILINE) == [
        ("g0_t0", '"a.yaml"'), ("g0_t1", '"b.yaml"'), ("g0_t2", r'"q\"\\.yaml"')]
    assert len(re.findall(r"^    g0_s\d+ -> g0_t\d;$", text, re.MULTILINE)) == 3
    if shutil.which("dot"):
        drawn = subprocess.run(["dot", "-Tplain", file], capture_output=True, text=True, check=True, timeout=60)
        assert len(re.findall(r"^node ", drawn.stdout, re.MULTILINE)) == 13 and not drawn.stderr
    assert "g.dot: No such file or directory" in forebay("plan", "--dot", tmp_path / "none" / "g.dot", three[0], code=1).stderr


def test_a_picture_of_a_graph(three, tmp_path):
    picture = tmp_path / "g.svg"
    if shutil.which("dot"):
        forebay("plan", "--samples", 0, "--svg", picture, *three)
        assert "<svg" in picture.read_text() and "random_resized_crop" in picture.read_text()
    done = forebay("plan", "--samples", 0, "--svg", picture, *three, code=1, environment={"PATH": str(tmp_path)})
    assert "needs the program dot of Graphviz" in done.stderr and "apt-get install graphviz" in done.stderr
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "dot").write_text("#!/bin/sh\necho no memory >&2\nexit 3\n")
    (fake / "dot").chmod(0o755)
    done = forebay("plan", "--samples", 0, "--svg", picture, *three, code=1, environment={"PATH": f"{fake}:{os.environ['PATH']}"})
    assert done.stderr == f"no memory\nforebay: --svg {picture}: dot failed (exit status 3); its own message stands above\n"


def test_a_plan_of_several_names_the_wrong_one(three, tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("dataset: .\npipeline: [decode]\n")
    done = forebay("plan", *three, wrong, code=1)
    assert re.search(r"wrong\.yaml:2: ", done.stderr) and not done.stdout


# --- doctor ---------------------------------------------------------------------------------------------------------------


def doctor(**options):
    return json.loads(forebay("doctor", "--json", **options).stdout)


def test_doctor_says_what_is_granted():
    findings = doctor()
    assert list(findings) == ["kernel", "CPUs", "SIMD", "JPEG", "NUMA", "memory", "shared memory", "memlock", "huge pages", "io_uring", "descriptors",
                              "CUDA", "socket folder"]
    for name, finding in findings.items():
        assert finding["verdict"] in ("good", "fair") and finding["what"], name
        assert bool(finding["advice"]) == (finding["verdict"] != "good"), name
    text = forebay("doctor").stdout
    for name, finding in findings.items():
        assert re.search(rf"^{finding['verdict']} +{name} +{re.escape(finding['what'])}$", text, re.MULTILINE), name
    assert text.endswith("Forebay can work here.\n")


def test_a_plan_takes_no_memory_for_a_file_that_claims_to_be_huge(hundred, tmp_path):
    folder = tmp_path / "huge"
    shutil.copytree(hundred, folder)
    os.truncate(sorted(folder.glob("*/*.jpg"))[0], 1 << 40)
    spec = write_spec(tmp_path / "s.yaml", folder)
    assert json.loads(forebay("plan", "--json", spec).stdout)["bad_samples"] == 1


def test_doctor_and_a_server_agree_on_io_uring(tmp_path, monkeypatch):
    monkeypatch.delenv("FOREBAY_READER", raising=False)
    granted = doctor()["io_uring"]["verdict"] == "good"
    with Server(tmp_path / "server") as server:
        assert server.status()["engine"]["reader"].startswith("io_uring" if granted else "pread")


def test_doctor_where_io_uring_is_refused(tmp_path):
    finding = doctor(wrapper=[DENY_URING])["io_uring"]
    assert finding["verdict"] == "fair" and finding["what"].startswith("refused: io_uring_setup: Operation not permitted")
    assert "seccomp" in finding["advice"] and "a pool of threads reads" in finding["advice"]
    assert "-> allow io_uring_setup" in forebay("doctor", wrapper=[DENY_URING]).stdout
    with Server(tmp_path / "server", wrapper=[DENY_URING]) as server:
        assert server.status()["engine"]["reader"].startswith("pread")


def test_doctor_counts_the_cpus_of_the_affinity():
    one = min(os.sched_getaffinity(0))
    finding = doctor(preexec_fn=lambda: os.sched_setaffinity(0, {one}))["CPUs"]
    assert finding["what"].startswith("1 of ") and finding["what"].endswith("1 workers")


def test_doctor_where_forebay_cant_work(alone):
    (alone / "forebay").write_text("in the way")
    done = forebay("doctor", code=1)
    assert re.search(r"^bad +socket folder +.*isn't a folder of this user", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("Forebay can't work here: see what is bad.\n")


# --- serve ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_in_order(hundred, tmp_path, number):
    with Server(tmp_path / "server") as server, Probe(write_spec(tmp_path / "s.yaml", hundred, epochs=None), server) as probe:
        probe.ask("next")
        server.process.send_signal(number)
        assert server.process.wait(10) == 0
        assert not server.socket.exists()


def test_a_stale_socket_is_replaced(hundred, tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()
    with Server(folder) as server:
        assert server.status()["pid"] == server.pid
        assert server.socket.stat().st_mode & 0o777 == 0o600


def test_a_socket_that_is_in_use_is_left(server):
    done = forebay("serve", "--socket", server.socket, code=1)
    assert f"a server already listens at {server.socket}" in done.stderr
    assert server.status()["pid"] == server.pid


def test_a_file_in_the_sockets_place_is_left(tmp_path):
    (tmp_path / "s").write_text("mine")
    assert "isn't a socket" in forebay("serve", "--socket", tmp_path / "s", code=1).stderr
    assert (tmp_path / "s").read_text() == "mine"


def test_more_memory_than_there_is_is_refused(tmp_path):
    done = forebay("serve", "--socket", tmp_path / "s", "--memory", "900TiB", code=1)
    assert "--memory asks for 943718400.0 MiB, but this process is granted " in done.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("text, size", [("67108864", 64 << 20), ("64MiB", 64 << 20), ("64M", 64 << 20), ("0.25GiB", 256 << 20), ("100MB", 10 ** 8)])
def test_how_sizes_are_written(tmp_path, text, size):
    with Server(tmp_path / "server", "--memory", text) as server:
        assert server.status()["memory"]["limit"] == size


def test_the_environment_sets_an_embedded_server(hundred, tmp_path, alone):
    settings = {"FOREBAY_WORKERS": "3", "FOREBAY_MEMORY": "200MiB", "FOREBAY_READER": "pread"}
    forebay("run", "-q", write_spec(tmp_path / "s.yaml", hundred), environment=settings)
    status = json.loads(forebay("status", "--json").stdout)
    assert status["embedded"] is True and status["memory"]["limit"] == 200 << 20
    assert status["engine"]["workers"] == 3 and status["engine"]["reader"].startswith("pread")


@pytest.mark.parametrize("name, value, expected", [("FOREBAY_WORKERS", "0", "1 to 1024"), ("FOREBAY_MEMORY", "0", "a size such as 8GiB"),
                                                   ("FOREBAY_MEMORY", "some", "a size such as 8GiB"),
                                                   ("FOREBAY_READER", "mmap", "auto, uring or pread")])
def test_a_wrong_environment_is_named(hundred, tmp_path, alone, name, value, expected):
    words = f"{name}={value}: expected {expected}"
    assert words in forebay("run", write_spec(tmp_path / "s.yaml", hundred), code=1, environment={name: value}).stderr
    assert words in forebay("serve", code=1, environment={name: value}).stderr


def test_the_command_line_goes_before_the_environment(tmp_path):
    environment = {"FOREBAY_WORKERS": "3", "FOREBAY_MEMORY": "", "FOREBAY_READER": "mmap"}
    with Server(tmp_path / "server", "--workers", 2, "--reader", "pread", environment=environment) as server:
        status = server.status()
    assert status["engine"]["workers"] == 2 and status["engine"]["reader"].startswith("pread")


# --- the manual -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_the_manual_names_the_options(command):
    """All that a command's --help prints, and none besides."""
    printed = set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", forebay(command, "--help").stdout)) - {"help", "usage"}
    part = MANUAL.read_text().split(f"\n.Ss forebay {command}", 1)[1].split("\n.S", 1)[0]
    assert set(re.findall(r"^\.It .*Fl -([a-z-]+)", part, re.MULTILINE)) == printed


def test_the_manual_names_the_environment():
    names = set()
    for file in conftest.ROOT.glob("dataplane/*/*.c"):
        names |= set(re.findall(r'"((?:FOREBAY|XDG)_[A-Z_]+)"', file.read_text()))
    for file in conftest.ROOT.glob("[ik]*/*.c"):
        names |= set(re.findall(r'getenv\("([A-Z_]+)"\)', file.read_text()))
    part = MANUAL.read_text().split("\n.Sh ENVIRONMENT", 1)[1].split("\n.Sh", 1)[0]
    assert names - {"HOME"} == set(re.findall(r"^\.It Ev (\S+)", part, re.MULTILINE)) - {"PATH"}
