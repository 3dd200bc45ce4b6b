"""forebay inspect and forebay verify: what they say of files, and how they end."""

import json
import random
import subprocess

import numpy
import pytest
from codec_library import noise_picture
from PIL import Image
from processes import FOREBAY

from forebay import fbl

pytestmark = pytest.mark.usefixtures("surroundings")


def forebay(*arguments, code=0):
    done = subprocess.run([FOREBAY, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done
    return done


def mixed():
    """Four tiles: a photograph's, one colour, two colours, noise."""
    image = numpy.asarray(noise_picture(random.Random(1), 256, 200)).copy()
    image[:128, 128:] = (1, 2, 3)
    image[128:, :128] = 9
    image[130:150:3, 5:100] = 7
    image[128:, 128:] = numpy.random.default_rng(1).integers(0, 256, (72, 128, 3))
    return image


@pytest.fixture
def file(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "a.fbl"
    path.write_bytes(fbl.encode(mixed(), metadata={"EXIF": exif.tobytes()[6:], "XMP ": b"<x/>"}))
    return path


def test_inspect_json(file):
    said = json.loads(forebay("inspect", "--json", file).stdout)
    info = fbl.info(file.read_bytes())
    assert (said["path"], said["format"], said["bytes"]) == (str(file), "FBL", file.stat().st_size)
    assert (said["width"], said["height"], said["channels"], said["bits"]) == (256, 200, 3, 8)
    assert said["tiles"] == [2, 2] and said["tile"] == [128, 128] and said["orientation"] == 6
    counts = {name: info.modes.count(number) for number, name in enumerate(fbl.MODES) if number in info.modes}
    assert {name: mode["tiles"] for name, mode in said["modes"].items()} == counts
    assert counts["const"] == counts["palette"] == 1
    assert sum(mode["bytes"] for mode in said["modes"].values()) == said["parts"]["tiles"]
    assert sum(said["parts"].values()) == file.stat().st_size
    assert said["metadata"] == [{"type": "EXIF", "bytes": len(info.metadata["EXIF"])}, {"type": "XMP", "bytes": 4}]
    assert said["level"] == "small"


def test_inspect_text(file, tmp_path):
    other = tmp_path / "b.png"
    Image.new("LA", (7, 5)).save(other)
    text = forebay("inspect", file, other).stdout
    assert f"{file}: FBL, 256 x 200, 3 channels of 8 bits" in text
    assert "orientation 6" in text and "const     1 tiles" in text and "metadata  XMP, 4 B" in text
    assert f"{other}: PNG, 7 x 5, 2 channels of 8 bits" in text


def test_inspect_knows_fast(tmp_path):
    path = tmp_path / "a.fbl"
    path.write_bytes(fbl.encode(numpy.asarray(noise_picture(random.Random(2), 150, 90)), level="fast"))
    assert json.loads(forebay("inspect", "--json", path).stdout)["level"] == "fast"


def test_inspect_draws_modes(file, tmp_path):
    forebay("inspect", "--modes", tmp_path / "modes.png", file)
    with Image.open(tmp_path / "modes.png") as drawn:
        drawn.load()
        indices = numpy.asarray(drawn)
        colours = numpy.asarray(drawn.convert("RGB"))
    assert indices.shape == (16, 16)
    assert [indices[y, x] for y in (0, 8) for x in (0, 8)] == fbl.info(file.read_bytes()).modes
    assert tuple(colours[0, 8]) == (210, 210, 210)  # const is gray


def test_inspect_refuses(file, tmp_path):
    png = tmp_path / "b.png"
    Image.new("L", (7, 5)).save(png)
    assert "no FBL file" in forebay("inspect", "--modes", tmp_path / "m.png", png, code=1).stderr
    assert "--modes takes one FILE" in forebay("inspect", "--modes", tmp_path / "m.png", png, file, code=64).stderr
    assert "can't read" in forebay("inspect", tmp_path / "none", code=1).stderr
    assert "can't read" in forebay("inspect", tmp_path, code=1).stderr
    assert "can't write" in forebay("inspect", "--modes", tmp_path / "none" / "m.png", file, code=1).stderr
    (tmp_path / "cut.fbl").write_bytes(file.read_bytes()[:-1])
    done = forebay("inspect", tmp_path / "cut.fbl", file, code=1)
    assert "truncated" in done.stderr and f"{file}: FBL" in done.stdout  # the others are told


def test_verify(file, tmp_path):
    folder = tmp_path / "folder"
    (folder / "a").mkdir(parents=True)
    data = file.read_bytes()
    for number in range(5):
        (folder / "a" / f"{number}.fbl").write_bytes(data)
    Image.new("RGB", (9, 9)).save(folder / "b.png")
    (folder / "notes.txt").write_text("none of its business")
    said = json.loads(forebay("verify", "--json", folder, file).stdout)
    assert (said["good"], said["bad"], said["other_files"]) == (7, [], 1)
    assert "7 pictures are good, 0 aren't" in forebay("verify", folder, file).stdout

    for at, name in ((-70, "metadata"), (len(data) // 2, "tile"), (70, "index")):
        damaged = bytearray(data)
        damaged[at] ^= 1
        (folder / "a" / f"{name}.fbl").write_bytes(damaged)
    (folder / "a" / "cut.fbl").write_bytes(data[:-1])
    said = json.loads(forebay("verify", "--json", "--threads", "2", folder, code=1).stdout)
    assert {entry["path"].rsplit("/", 1)[1]: entry["reason"] for entry in said["bad"]} == {
        "metadata.fbl": "corrupt", "tile.fbl": "corrupt", "index.fbl": "corrupt", "cut.fbl": "truncated"}
    assert said["good"] == 6
    text = forebay("verify", folder, code=1).stdout
    assert f"{folder}/a/cut.fbl: truncated: FBL: the file is" in text and "6 pictures are good, 4 aren't" in text


def test_verify_judges_what_it_was_given_by_name(tmp_path):
    (tmp_path / "notes.txt").write_text("no picture")
    assert "notes.txt: format" in forebay("verify", tmp_path / "notes.txt", code=1).stdout
    assert "can't read" in forebay("verify", tmp_path / "none", code=1).stderr
