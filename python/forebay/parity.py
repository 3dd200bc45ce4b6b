"""Compares a pipeline with Pillow: python -m forebay.parity SPEC [--samples N]

Every picture goes through the pipeline twice: here, and by Pillow (decode, crop, pad, resize, flip, colours) and numpy (arithmetic in
float32, mirrored padding), with what the random ops drew. Each op is a row: the pictures after it, as far as the pipeline has come. The last row is
what a training job gets: batches from a server of its own.

Exit status: 0 where every row is within its tolerance, 1 where one is not, 2 where nothing could be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import PIL
from PIL import Image, ImageEnhance, ImageFile, ImageOps

from forebay import _forebay_plan, fbl
from forebay.errors import Error
from forebay.loader import Loader

Params = Dict[str, Any]
Step = Dict[str, Any]

# NUMERICS of the project: 0 where levels are compared; what `fast` may cost is measured and documented.
FAST_LEVELS = 64
# Sides up to this can be asked for in a spec.
SIDE_MOST = 16384
# Pictures of a data set often share a few sizes.
PLANS_KEPT = 8

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}


# --- the reference: Pillow and numpy -----------------------------------------------------------------------------


def _decode(path: bytes, params: Params) -> Image.Image:
    fbl.register()
    with Image.open(os.fsdecode(path)) as image:
        if params["exif"]:
            image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I"):
            # Pillow would clip 16-bit gray to 255; ours keeps the upper byte.
            levels = (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)
            return Image.fromarray(levels).convert("RGB")
        return image.convert("RGB")


def _vertical_first(pillow: Any, size: Tuple[int, int], out: Tuple[int, int]) -> bool:
    """Pillow 12.2 and later resize vertically first where that shrinks more."""
    if int(pillow) < 13:
        return False
    less_h = size[1] - out[1]
    return less_h > 0 and less_h > 2 * (size[0] - out[0])


def _resized(image: Image.Image, out: Tuple[int, int], params: Params) -> Image.Image:
    kind = _FILTERS[params["interpolation"]]
    version = tuple(int(part) for part in PIL.__version__.split(".")[:2])
    installed = 13 if version >= (12, 2) else 12
    here = _vertical_first(installed, image.size, out)
    wanted = _vertical_first(params["pillow"], image.size, out)
    if here == wanted or kind == Image.Resampling.NEAREST:
        return image.resize(out, kind)
    # The installed Pillow would take the other order: one pass at a time.
    if wanted:
        return image.resize((image.width, out[1]), kind).resize(out, kind)
    return image.resize((out[0], image.height), kind).resize(out, kind)


def _sides(size: Any) -> Tuple[int, int]:
    """(width, height) of a parameter that is written as [height, width] or one side."""
    return (size[1], size[0]) if isinstance(size, (list, tuple)) else (size, size)


def _resize(image: Image.Image, params: Params, step: Step) -> Image.Image:
    size = params["size"]
    if isinstance(size, (list, tuple)):
        return _resized(image, _sides(size), params)
    w, h = image.size
    short, long = (w, h) if w <= h else (h, w)
    other = int(size * long / short)
    return _resized(image, (size, other) if w <= h else (other, size), params)


def _center_crop(image: Image.Image, params: Params, step: Step) -> Image.Image:
    w, h = _sides(params["size"])
    left, top = max(0, (w - image.width) // 2), max(0, (h - image.height) // 2)
    if w > image.width or h > image.height:
        padded = Image.new(image.mode, (max(w, image.width), max(h, image.height)))
        padded.paste(image, (left, top))
        image = padded
    x, y = round((image.width - w) / 2), round((image.height - h) / 2)
    return image.crop((x, y, x + w, y + h))


def _random_resized_crop(image: Image.Image, params: Params, step: Step) -> Image.Image:
    x, y, w, h = step["crop"] or (0, 0, *image.size)
    if x + w > image.width or y + h > image.height:
        raise ValueError(f"the crop {step['crop']} lies outside a picture of {image.width} x {image.height}")
    return _resized(image.crop((x, y, x + w, y + h)), _sides(params["size"]), params)


def _padded(image: Image.Image, sides: Sequence[int], params: Params) -> Image.Image:
    left, top, right, bottom = sides
    if params["padding_mode"] == "constant":
        return ImageOps.expand(image, border=(left, top, right, bottom), fill=tuple(params["fill"][:len(image.getbands())]))
    # As torchvision does it.
    levels = np.asarray(image)
    return Image.fromarray(np.pad(levels, ((top, bottom), (left, right), (0, 0))[:levels.ndim], mode=params["padding_mode"]))


def _pad(image: Image.Image, params: Params, step: Step) -> Image.Image:
    return _padded(image, params["padding"], params)


def _random_crop(image: Image.Image, params: Params, step: Step) -> Image.Image:
    w, h = _sides(params["size"])
    image = _padded(image, params["padding"], params)
    if params["pad_if_needed"]:
        across, down = max(0, w - image.width), max(0, h - image.height)
        image = _padded(image, (across, down, across, down), params)
    x, y = step["crop"][:2]
    if x + w > image.width or y + h > image.height:
        raise ValueError(f"the crop {step['crop']} lies outside a picture of {image.width} x {image.height}")
    return image.crop((x, y, x + w, y + h))


def _grayscale(image: Image.Image, params: Params, step: Step) -> Image.Image:
    gray = image.convert("L")
    return gray if int(params["num_output_channels"]) == 1 else Image.merge("RGB", (gray, gray, gray))


_ENHANCERS = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "saturation": ImageEnhance.Color,
}


def _color_jitter(image: Image.Image, params: Params, step: Step) -> Image.Image:
    for kind, factor in step["adjustments"]:
        if kind == "hue":
            if image.mode == "L":
                continue
            hue, saturation, value = image.convert("HSV").split()
            turned = np.asarray(hue) + np.int32(factor * 255).astype(np.uint8)
            image = Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")
        else:
            image = _ENHANCERS[kind](image).enhance(factor)
    return image


def _flip(key: str, how: Image.Transpose) -> Callable[[Image.Image, Params, Step], Image.Image]:
    return lambda image, params, step: image.transpose(how) if step[key] else image


_PICTURE_OPS: Dict[str, Callable[[Image.Image, Params, Step], Image.Image]] = {
    "resize": _resize,
    "center_crop": _center_crop,
    "random_resized_crop": _random_resized_crop,
    "random_crop": _random_crop,
    "pad": _pad,
    "grayscale": _grayscale,
    "color_jitter": _color_jitter,
    "random_horizontal_flip": _flip("flip_horizontal", Image.Transpose.FLIP_LEFT_RIGHT),
    "random_vertical_flip": _flip("flip_vertical", Image.Transpose.FLIP_TOP_BOTTOM),
}


def _levels(image: Image.Image) -> Any:
    """Height, width, channels."""
    return np.asarray(image).reshape(image.height, image.width, -1)


def _normalized(levels: Any, params: Params) -> Any:
    values = levels.astype(np.float32) / np.float32(255)
    channels = levels.shape[2]
    return (values - np.float32(params["mean"][:channels])) / np.float32(params["std"][:channels])


def _bfloat16(values: Any) -> Any:
    """The bits of the nearest bfloat16, half to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _finished(values: Any, params: Params) -> Any:
    """What `to` makes of levels (uint8) or of normalized values (float32): height, width, channels."""
    dtype = params["dtype"]
    if dtype != "u8" and values.dtype == np.uint8:
        values = values.astype(np.float32) / np.float32(255)
    if dtype == "f16":
        values = values.astype(np.float16)
    elif dtype == "bf16":
        values = _bfloat16(np.ascontiguousarray(values))
    return values if params["layout"] == "hwc" else np.ascontiguousarray(values.transpose(2, 0, 1))


# --- ours, one op further each time ---------------------------------------------------------------------------------


def _sample(raw: bytes, plan: Any) -> Any:
    info = plan.sample
    dtype = {"bfloat16": np.uint16}.get(info["dtype"], info["dtype"])
    return np.frombuffer(raw, dtype).reshape(info["shape"])


class Prefix:
    """The pipeline up to an op, ended so that its samples come out: by their own size, as levels or as float32."""

    def __init__(self, pipeline: Sequence[Tuple[str, Params]], count: int) -> None:
        self._ops: List[Dict[str, Params]] = [{name: params} for name, params in pipeline[:count]]
        names = [name for name, _ in pipeline[:count]]
        self._to = None
        if "to" not in names:
            self._to = {"to": {"dtype": "f32" if "normalize" in names else "u8", "layout": "hwc"}}
        self._plans: Dict[Optional[Tuple[int, int]], Any] = {}
        try:
            self._plans[None] = self._plan(None)
        except Error:
            self._fixed = False  # pictures still vary in size
        else:
            self._fixed = True

    def _plan(self, size: Optional[Tuple[int, int]]) -> Any:
        ops = list(self._ops)
        if size is not None:
            # Of a picture's own size this changes nothing, but fixes the shape.
            place = next((i for i, op in enumerate(ops) if "normalize" in op or "to" in op), len(ops))
            ops.insert(place, {"center_crop": {"size": [size[1], size[0]]}})
        if self._to:
            ops.append(self._to)
        return _forebay_plan.Plan(spec=json.dumps({"dataset": "/", "pipeline": ops}))

    def run(self, data: bytes, sample: int, size: Tuple[int, int]) -> Any:
        key = None if self._fixed else size
        if key not in self._plans:
            if len(self._plans) >= PLANS_KEPT:
                self._plans.clear()
            self._plans[key] = self._plan(key)
        plan = self._plans[key]
        return _sample(plan.run(data, sample, 0, 0), plan)


# --- comparing ----------------------------------------------------------------------------------------------------


def _ordered(bits: Any) -> Any:
    """16-bit floats as integers whose difference counts the floats between them."""
    signed = bits.view(np.int16).astype(np.int32)
    return np.where(signed < 0, -(signed & 0x7FFF), signed)


class Row:
    """The differences at one place of the pipeline."""

    def __init__(self, name: str, tolerance: float, unit: str) -> None:
        self.name = name
        self.tolerance = tolerance
        self.unit = unit
        self.samples = 0
        self.max = 0.0
        self._sum = 0.0
        self.worst: Optional[int] = None
        self.note = ""

    def add(self, sample: int, ours: Any, theirs: Any) -> None:
        self.samples += 1
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            self.note = f"{ours.dtype} {ours.shape} against {theirs.dtype} {theirs.shape}"
            self.max, self.worst = float("inf"), sample
            return
        if np.array_equal(ours, theirs):
            return
        if self.unit == "ulp":
            difference = np.abs(_ordered(ours) - _ordered(theirs))
        else:
            difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
        most = float(difference.max())
        self._sum += float(difference.mean())
        if not most <= self.max:
            self.max, self.worst = most, sample

    @property
    def mean(self) -> float:
        return self._sum / self.samples if self.samples else 0.0

    @property
    def holds(self) -> bool:
        return self.samples > 0 and not self.note and self.max <= self.tolerance

    @property
    def verdict(self) -> str:
        if self.note:
            return self.note
        if not self.samples:
            return "not compared"
        if not self.holds:
            return "MISS"
        return "equal" if self.max == 0 else "within"


class Report:
    """A spec compared: rows, one an op, and a last one for batches from a server."""

    def __init__(self, rows: List[Row], samples: int, bad: int) -> None:
        self.rows = rows
        self.samples = samples
        self.bad = bad

    @property
    def holds(self) -> bool:
        return self.samples > 0 and all(row.holds for row in self.rows)

    def text(self) -> str:
        head = f"{'after':<26}{'samples':>8}{'max diff':>12}{'mean diff':>12}{'tolerance':>16}  verdict"
        lines = [head, "-" * len(head)]
        for row in self.rows:
            tolerance = f"{row.tolerance:.4g} {row.unit}"
            lines.append(f"{row.name:<26}{row.samples:>8}{row.max:>12.4g}{row.mean:>12.4g}{tolerance:>16}  {row.verdict}")
            if not row.holds and row.worst is not None:
                lines.append(f"{'':<26}the worst is sample {row.worst}")
        lines.append("")
        missed = [row.name for row in self.rows if not row.holds]
        lines.append(f"Pillow {PIL.__version__}, numpy {np.__version__}, {self.samples} pictures: "
                     + (f"not equal after {', '.join(missed)}" if missed else "every op is within its tolerance"))
        if self.bad:
            lines.append(f"{self.bad} samples were left out: repeats, or substitutes of bad samples")
        return "\n".join(lines)


class Comparison:
    """Our pipeline beside the reference, a picture at a time."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self._pipeline = plan.pipeline
        self._prefixes = [Prefix(self._pipeline, count + 1) for count in range(len(self._pipeline))]
        tolerance, unit = 0.0, "levels"
        self.rows: List[Row] = []
        for name, params in self._pipeline:
            if name == "decode" and params["fast"]:
                tolerance = FAST_LEVELS
            if name == "normalize":
                tolerance, unit = tolerance / 255 / min(params["std"]), "float32"
            if name == "to" and params["dtype"] != "u8":
                if unit == "levels":
                    tolerance, unit = tolerance / 255, "float32"
                if params["dtype"] != "f32":
                    tolerance, unit = (float("inf") if tolerance else 1.0), "ulp"
            self.rows.append(Row(name, tolerance, unit))
        self.rows.append(Row("all, from a server", tolerance, unit))

    def add(self, sample: int, served: Any) -> None:
        path = self._plan.path(sample)
        with open(path, "rb") as file:
            data = file.read()
        image: Any = None
        steps: List[Step] = []
        value: Any = None
        for place, (name, params) in enumerate(self._pipeline):
            if name == "decode":
                image = _decode(path, params)
                steps = self._plan.trace(sample, 0, 0, image.width, image.height)
            elif name in _PICTURE_OPS:
                image = _PICTURE_OPS[name](image, params, steps[place])
            elif name not in ("normalize", "to"):
                self.rows[place].note = "Pillow has no such op"
                return
            if name == "normalize":
                value = _normalized(_levels(image), params)
            elif name == "to":
                value = _finished(_levels(image) if value is None else value, params)
            if max(image.size) > SIDE_MOST:
                continue
            ours = self._prefixes[place].run(data, sample, image.size)
            self.rows[place].add(sample, ours, _levels(image) if value is None else value)
        self.rows[-1].add(sample, served, value)


def compare(spec: str, samples: int = 200) -> Report:
    """Compares the first `samples` pictures that the task of a spec file is given."""
    Image.MAX_IMAGE_PIXELS = None
    plan = _forebay_plan.Plan(spec_path=os.fsencode(spec))
    comparison = Comparison(plan)
    ImageFile.LOAD_TRUNCATED_IMAGES = any(params.get("tolerate_missing_eoi") for _, params in plan.pipeline)
    wanted = min(samples, plan.count())
    seen, bad = set(), 0

    # A server of its own, which has drawn nothing before: then the draws of its first epoch are the ones that trace() tells.
    with tempfile.TemporaryDirectory(prefix="forebay-parity-") as folder:
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = folder
        try:
            loader = Loader.from_spec(spec, mode="embedded", timeout=60)
        finally:
            if before is None:
                del os.environ["XDG_RUNTIME_DIR"]
            else:
                os.environ["XDG_RUNTIME_DIR"] = before
        with loader:
            for batch in loader:
                images = np.asarray(batch.images)
                if loader.dtype == "bfloat16":
                    images = images.view(np.uint16)
                for place, (sample, flags) in enumerate(zip(np.asarray(batch.ids), np.asarray(batch.flags))):
                    if len(seen) == wanted:
                        break
                    if flags or int(sample) in seen:
                        bad += 1
                        continue
                    seen.add(int(sample))
                    comparison.add(int(sample), images[place])
                if len(seen) == wanted:
                    break
    return Report(comparison.rows, len(seen), bad)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m forebay.parity", description="Compares a pipeline with Pillow.")
    parser.add_argument("spec", help="a spec file")
    parser.add_argument("--samples", type=int, default=200, metavar="N", help="pictures to compare (default: 200)")
    options = parser.parse_args(arguments)
    if options.samples < 1:
        parser.error("--samples: expected 1 or more")
    try:
        report = compare(options.spec, options.samples)
    except (Error, OSError) as error:
        print(f"forebay.parity: {error}", file=sys.stderr)
        return 2
    print(report.text())
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
