"""pip install .: the wheel carries the server and works alone."""

import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

PROGRAM = """
import sys
import forebay
assert forebay.__file__.startswith(sys.prefix), forebay.__file__
with forebay.Loader(sys.argv[1], ["decode", {"center_crop": 8}, {"to": {"dtype": "u8"}}], 10, timeout=20) as loader:
    print(forebay.__version__, sum(len(labels) for images, labels in loader))
    print(open(f"/proc/{loader.server_pid}/cmdline").read().split("\\0")[0])
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    # The same flags as the build under test, and no folder in ccache's keys: then most of it is compiled already.
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check",
         "--config-settings", f"build-dir={folder / 'build'}", "--config-settings", "cmake.define.FOREBAY_WERROR=ON",
         "--wheel-dir", str(folder), str(ROOT)],
        check=True, env={**os.environ, "CCACHE_NOHASHDIR": "1"})
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_wheel_carries_all_and_nothing_else(wheel):
    version = re.search(r"project\(forebay VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    assert wheel.name.startswith(f"forebay-{version}-cp39-abi3-linux_")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = archive.read(f"forebay-{version}.dist-info/METADATA").decode()
        mode = archive.getinfo("forebay/bin/forebay").external_attr >> 16
    wanted = {"__init__.py", "__main__.py", "errors.py", "launch.py", "loader.py", "names.py", "ops.py", "parity.py", "py.typed", "_forebay.abi3.so", "_forebay.pyi",
              "_forebay_plan.abi3.so", "_forebay_plan.pyi", "fbl.py", "_forebay_fbl.abi3.so", "_forebay_fbl.pyi", "bin/forebay"}
    assert names == {f"forebay/{name}" for name in wanted}
    assert mode & 0o111
    assert "License-Expression: Apache-2.0" in metadata and "Requires-Python: >=3.9" in metadata


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_installed_wheel_feeds_a_program(wheel, pictures, surroundings, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", str(wheel)], check=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FOREBAY_SERVER")}
    (tmp_path / "run").mkdir(mode=0o700)
    environment["XDG_RUNTIME_DIR"] = str(tmp_path / "run")
    done = subprocess.run([python, "-c", PROGRAM, str(pictures)], capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    version, samples, server = done.stdout.split()
    assert (wheel.name.split("-")[1], "310") == (version, samples)
    assert server == str(next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages" / "forebay" / "bin" / "forebay")
    for command in ([tmp_path / "venv" / "bin" / "forebay"], [python, "-m", "forebay"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"forebay {version}\n", "")
        done = subprocess.run([*command, "inspect", "nothing.fbl"], capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path)
        assert done.returncode and "nothing.fbl" in done.stderr
