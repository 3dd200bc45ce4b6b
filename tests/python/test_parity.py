"""Every op against Pillow, on real photographs, by the tool that users have for it."""

import json
import subprocess
import sys

import numpy
import pytest
from PIL import Image
from processes import FOREBAY

import forebay
from forebay import parity

pytestmark = pytest.mark.usefixtures("surroundings")

TRAIN = ["decode", {"random_resized_crop": 224}, {"random_horizontal_flip": {"p": 0.5}}, {"random_vertical_flip": {"p": 0.3}}, {"normalize": "imagenet"}]
EVALUATE = ["decode", {"resize": 256}, {"center_crop": 224}, {"normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}}]

PIPELINES = {
    "train, f32 chw": (TRAIN + ["to"], 200),
    "train, strict, f16 hwc": (TRAIN + [{"to": {"dtype": "f16", "layout": "hwc"}}], 30),
    "train, bf16": (TRAIN + [{"to": {"dtype": "bf16"}}], 30),
    "evaluate, f32": (EVALUATE + ["to"], 200),
    "evaluate, u8": (EVALUATE[:3] + [{"to": {"dtype": "u8"}}], 30),
    "u8 to f32": (EVALUATE[:3] + [{"to": {"dtype": "f32"}}], 30),
    "center_crop pads": (["decode", {"center_crop": [601, 444]}], 30),
    "bicubic": (["decode", {"resize": {"size": [191, 260], "interpolation": "bicubic"}}], 30),
    "lanczos": (["decode", {"random_resized_crop": {"size": [96, 120], "interpolation": "lanczos", "scale": [0.01, 0.2]}}], 30),
    "box, Pillow 12's order": (["decode", {"resize": {"size": [100, 470], "interpolation": "box", "pillow": 12}}], 30),
    "colours": (["decode", {"random_resized_crop": 224}, {"color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}}, "to"], 30),
    "gray, padded": (["decode", "grayscale", {"resize": 60}, {"random_crop": {"size": 64, "padding": 4, "padding_mode": "reflect", "pad_if_needed": True}},
                      {"pad": {"padding": [1, 2, 3, 4], "fill": [9, 8, 7]}}], 30),
    "one channel": (["decode", {"random_resized_crop": 96}, {"grayscale": {"num_output_channels": 1}}, {"pad": {"padding": 2, "padding_mode": "edge"}},
                     {"color_jitter": {"contrast": 0.4, "hue": 0.1}}, {"center_crop": [120, 90]}, {"normalize": {"mean": [0.5], "std": [0.25]}}, "to"], 30),
    "one channel, bf16 hwc": (["decode", {"grayscale": 1}, {"resize": [70, 61]}, {"to": {"dtype": "bf16", "layout": "hwc"}}], 30),
    "nearest": (["decode", {"random_resized_crop": {"size": 64, "interpolation": "nearest"}}], 30),
}


def write_spec(folder, dataset, pipeline, **keys):
    path = folder / "spec.yaml"
    path.write_text(json.dumps({"dataset": str(dataset), "pipeline": pipeline, "batch": {"size": 32}, **keys}))
    return path


@pytest.mark.parametrize("name", PIPELINES)
def test_equal_to_pillow(photographs, tmp_path, name):
    pipeline, samples = PIPELINES[name]
    order = "strict" if "strict" in name else "shared"
    report = parity.compare(str(write_spec(tmp_path, photographs, pipeline, order=order, seed=5, augment_seed=9)), samples)
    assert report.holds, "\n" + report.text()
    assert report.samples == samples
    for row in report.rows:
        assert row.max <= (1 if row.unit == "ulp" else 0)


def test_all_kinds_of_files(tmp_path):
    """Modes and formats, each against Pillow's own reading."""
    folder = tmp_path / "data" / "kinds"
    folder.mkdir(parents=True)
    random = numpy.random.default_rng(8)
    colours = Image.fromarray(random.integers(0, 256, (37, 53, 3), numpy.uint8)).resize((91, 67), Image.Resampling.BICUBIC)
    colours.save(folder / "rgb.png")
    colours.convert("L").save(folder / "gray.png")
    colours.convert("L").save(folder / "gray.jpg", quality=88)
    colours.convert("P", palette=Image.Palette.ADAPTIVE).save(folder / "palette.png")
    colours.convert("1").save(folder / "bits.png")
    colours.convert("CMYK").save(folder / "cmyk.jpg", quality=91)
    alpha = colours.copy()
    alpha.putalpha(colours.convert("L"))
    alpha.save(folder / "alpha.png")
    alpha.save(folder / "alpha.webp", lossless=True)
    colours.save(folder / "lossy.webp", quality=80)
    colours.save(folder / "colours.tif")
    colours.save(folder / "colours.gif")
    Image.fromarray(random.integers(0, 65536, (67, 91), numpy.uint16)).save(folder / "deep.png")
    for subsampling in (0, 1, 2):
        colours.save(folder / f"sub{subsampling}.jpg", quality=83, subsampling=subsampling, progressive=subsampling == 1)
    exif = Image.Exif()
    exif[0x0112] = 6
    colours.save(folder / "turned.jpg", exif=exif)
    spec = write_spec(tmp_path, tmp_path / "data", [{"decode": {"exif": True}}, {"resize": [50, 40]}], batch={"size": 4})
    report = parity.compare(str(spec))
    assert report.samples == 16
    assert report.holds, "\n" + report.text()


@pytest.mark.parametrize("level", ["small", "fast"])
def test_fbl_gives_what_the_png_gives(photographs, tmp_path, level):
    """The tiles of a crop alone are decoded; Pillow's pixels are those of the PNGs that were converted."""
    source = tmp_path / "source"
    for number, path in enumerate(sorted(photographs.glob("*/*.jpg"))[:24]):
        target = source / path.parent.name / f"{number:02}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as image:
            kind = ["RGB", "L", "RGB", "P"][number % 4]
            (image.quantize(200) if kind == "P" else image.convert(kind)).save(target, compress_level=1)
    subprocess.run([FOREBAY, "convert", "--quiet", "--level", level, source, tmp_path / "made"], check=True, capture_output=True)
    samples = []
    for folder in (source, tmp_path / "made"):
        spec = str(write_spec(tmp_path, folder, TRAIN + ["to"], seed=5, augment_seed=9, order="strict", batch={"size": 8}))
        report = parity.compare(spec)
        assert report.holds and report.samples == 24, "\n" + report.text()
        with forebay.Loader.from_spec(spec) as loader:
            samples.append([numpy.array(images) for images, labels in loader])
    assert len(samples[0]) == 3
    assert all(numpy.array_equal(a, b) for a, b in zip(*samples))


def test_a_difference_is_seen(photographs, tmp_path, monkeypatch, capsys):
    """The tool must be able to fail."""
    flip = parity._PICTURE_OPS["random_horizontal_flip"]
    monkeypatch.setitem(parity._PICTURE_OPS, "random_horizontal_flip", lambda image, params, step: flip(image, params, {"flip_horizontal": 1}))
    spec = write_spec(tmp_path, photographs, TRAIN)
    assert parity.main([str(spec), "--samples", "20"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("random_horizontal_flip") and line.endswith("MISS") for line in lines)
    assert any(line.startswith("random_resized_crop") and line.endswith("equal") for line in lines)


def test_the_command(photographs, tmp_path):
    spec = write_spec(tmp_path, photographs, EVALUATE)
    done = subprocess.run([sys.executable, "-m", "forebay.parity", str(spec), "--samples", "12"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "every op is within its tolerance" in done.stdout
    assert "all, from a server" in done.stdout
    (tmp_path / "wrong.yaml").write_text("dataset: [\n")
    done = subprocess.run([sys.executable, "-m", "forebay.parity", str(tmp_path / "wrong.yaml")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "wrong.yaml" in done.stderr and "Traceback" not in done.stderr
