"""Plans under test, through ctypes, and the same done by Pillow."""

import ctypes
import io
import json
import os
import pathlib
import struct

import numpy
from PIL import Image, ImageEnhance, ImageOps

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FOREBAY_BUILD", ROOT / "build" / "release"))
LIBRARY = BUILD / "tests" / "plan" / "libfby_pipeline_test.so"

MOST_OPS, MESSAGE = 64, 1000
DTYPES = {1: numpy.uint8, 3: numpy.float16, 4: numpy.uint16, 5: numpy.float32}  # bf16 as its bits
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


class BadSample(Exception):
    pass


KINDS = ["brightness", "contrast", "saturation", "hue"]
MOST_ADJUSTMENTS = 4
TRACE_VALUES = 11 + 2 * MOST_ADJUSTMENTS


class Step:
    """What one op did."""

    def __init__(self, values):
        (self.crop_x, self.crop_y, self.crop_w, self.crop_h, self.left, self.top, self.w, self.h, self.mirror, self.upend,
         adjustments) = values[:11]
        pairs = [values[at:at + 2] for at in range(11, 11 + 2 * adjustments, 2)]
        self.adjustments = [(KINDS[kind], struct.unpack("f", struct.pack("I", bits))[0]) for kind, bits in pairs]


class Pipelines:
    """A plan with a branch for each pipeline (a list as in a spec)."""

    def __init__(self, *pipelines, augment_seed=0):
        self.library = ctypes.CDLL(str(LIBRARY))
        self.library.pipeline_reason.restype = ctypes.c_char_p
        self.message = ctypes.create_string_buffer(MESSAGE)
        texts = [
            json.dumps({"dataset": "d", "augment_seed": augment_seed, "pipeline": pipeline}).encode()
            for pipeline in pipelines
        ]
        array = (ctypes.c_char_p * len(texts))(*texts)
        self.handle = ctypes.c_void_p()
        if self.library.pipeline_open(ctypes.byref(self.handle), array, len(texts), self.message):
            raise ValueError(self.message.value.decode())
        self.count = len(texts)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.library.pipeline_close(ctypes.byref(self.handle))

    def empty(self, branch):
        info = (ctypes.c_uint64 * 8)()
        self.library.pipeline_info(self.handle, branch, info)
        array = numpy.empty(tuple(info[2:5]), DTYPES[info[0]])
        assert array.nbytes == info[5]
        return array

    def run(self, data, id=0, turn=0, repeat=0):
        """Every branch's array of this picture."""
        margin = ctypes.create_string_buffer(data, len(data) + 64)
        arrays = [self.empty(branch) for branch in range(self.count)]
        out = (ctypes.c_void_p * self.count)(*[array.ctypes.data for array in arrays])
        reason = self.library.pipeline_run(
            self.handle, margin, ctypes.c_size_t(len(data)), ctypes.c_uint64(id), ctypes.c_uint64(turn), repeat,
            ctypes.c_uint64((1 << self.count) - 1), out, self.message)
        if reason:
            raise BadSample(f"{self.library.pipeline_reason(reason).decode()}: {self.message.value.decode()}")
        return arrays

    def trace(self, w, h, branch=0, id=0, turn=0, repeat=0):
        steps = (ctypes.c_uint32 * TRACE_VALUES * MOST_OPS)()
        count = self.library.pipeline_trace(
            self.handle, branch, ctypes.c_uint64(id), ctypes.c_uint64(turn), repeat, w, h, steps)
        assert count > 0
        return [Step(list(steps[i])) for i in range(count)]


def name_and_parameters(entry):
    """An entry of a pipeline as (name, parameters); `size` for the lone values that the tests use."""
    if isinstance(entry, str):
        return entry, {}
    (name, value), = entry.items()
    if isinstance(value, dict):
        return name, value
    lone = "p" if name.endswith("flip") else {"pad": "padding", "grayscale": "num_output_channels"}.get(name, "size")
    return name, IMAGENET if value == "imagenet" else {lone: value}


def bfloat16(values):
    """The bits of float32 values rounded to bfloat16, half to even."""
    bits = values.view(numpy.uint32).astype(numpy.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)


def by_pillow(data, pipeline, steps):
    """The pipeline done with Pillow and numpy: torchvision's rules, what was drawn from `steps`."""
    image, pixels, normalized, dtype, layout = None, None, None, None, "chw"
    for entry, step in zip(pipeline, steps):
        name, given = name_and_parameters(entry)
        if name == "decode":
            image = Image.open(io.BytesIO(data)).convert("RGB")
        elif name == "resize":
            image = image.resize(resized(image.size, given["size"]), FILTERS[given.get("interpolation", "bilinear")])
        elif name == "center_crop":
            image = center_cropped(image, given["size"])
        elif name == "random_resized_crop":
            box = (step.crop_x, step.crop_y, step.crop_x + step.crop_w, step.crop_y + step.crop_h)
            size = both(given["size"])
            image = image.crop(box).resize(size, FILTERS[given.get("interpolation", "bilinear")])
        elif name == "random_horizontal_flip":
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if step.mirror else image
        elif name == "random_vertical_flip":
            image = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM) if step.upend else image
        elif name == "pad":
            image = padded(image, given["padding"], given)
        elif name == "random_crop":
            image = random_cropped(image, given, step)
        elif name == "grayscale":
            gray = image.convert("L")
            image = gray if given.get("num_output_channels", 3) == 1 else Image.merge("RGB", [gray] * 3)
        elif name == "color_jitter":
            for kind, factor in step.adjustments:
                image = adjusted(image, kind, factor)
        elif name == "normalize":
            normalized = given
        elif name == "to":
            dtype, layout = given.get("dtype", "f32"), given.get("layout", "chw")
        assert image.size == (step.w, step.h), name
    dtype = dtype or ("f32" if normalized else "u8")
    pixels = numpy.asarray(image).reshape(image.height, image.width, -1)
    if dtype != "u8":
        pixels = pixels.astype(numpy.float32) / numpy.float32(255)
        if normalized:
            pixels = (pixels - numpy.float32(normalized["mean"])) / numpy.float32(normalized["std"])
        if dtype == "f16":
            pixels = pixels.astype(numpy.float16)
        if dtype == "bf16":
            pixels = bfloat16(pixels)
    return pixels.transpose(2, 0, 1) if layout == "chw" else pixels


def both(size):
    """(w, h) of a size as a spec has it."""
    return (size, size) if isinstance(size, int) else (size[1], size[0])


def resized(have, size):
    """torchvision's Resize: an int is the shorter side."""
    if not isinstance(size, int):
        return both(size)
    w, h = have
    short, long = (w, h) if w <= h else (h, w)
    longer = int(size * long / short)
    return (size, longer) if w <= h else (longer, size)


def center_cropped(image, size):
    """torchvision's CenterCrop, from its source."""
    crop_w, crop_h = both(size)
    w, h = image.size
    if crop_w > w or crop_h > h:
        left = (crop_w - w) // 2 if crop_w > w else 0
        top = (crop_h - h) // 2 if crop_h > h else 0
        right = (crop_w - w + 1) // 2 if crop_w > w else 0
        bottom = (crop_h - h + 1) // 2 if crop_h > h else 0
        padded = Image.new(image.mode, (w + left + right, h + top + bottom))
        padded.paste(image, (left, top))
        image = padded
        w, h = image.size
    top = int(round((h - crop_h) / 2.0))
    left = int(round((w - crop_w) / 2.0))
    return image.crop((left, top, left + crop_w, top + crop_h))


def padded(image, padding, given):
    """torchvision's pad on a PIL picture, from its source: ImageOps.expand for a constant, else numpy.pad."""
    if isinstance(padding, int):
        padding = [padding] * 4
    if len(padding) == 2:
        padding = padding * 2
    left, top, right, bottom = padding
    mode, fill = given.get("padding_mode", "constant"), given.get("fill", 0)
    if mode == "constant":
        return ImageOps.expand(image, border=(left, top, right, bottom), fill=(fill,) * len(image.getbands()) if isinstance(fill, int) else tuple(fill))
    pixels = numpy.asarray(image)
    return Image.fromarray(numpy.pad(pixels, ((top, bottom), (left, right), (0, 0))[:pixels.ndim], mode))


def random_cropped(image, given, step):
    """torchvision's RandomCrop.forward, from its source, the place from `step`."""
    w, h = both(given["size"])
    if given.get("padding", 0) != 0:
        image = padded(image, given["padding"], given)
    if given.get("pad_if_needed") and image.width < w:
        image = padded(image, [w - image.width, 0], given)
    if given.get("pad_if_needed") and image.height < h:
        image = padded(image, [0, h - image.height], given)
    assert (step.crop_w, step.crop_h) == (w, h)
    assert step.crop_x + w <= image.width and step.crop_y + h <= image.height
    return image.crop((step.crop_x, step.crop_y, step.crop_x + w, step.crop_y + h))


def adjusted(image, kind, factor):
    """torchvision's adjust_brightness, …_contrast, …_saturation and …_hue on a PIL picture, from their source."""
    if kind == "hue" and image.mode == "L":
        return image
    if kind != "hue":
        enhance = {"brightness": ImageEnhance.Brightness, "contrast": ImageEnhance.Contrast, "saturation": ImageEnhance.Color}[kind]
        return enhance(image).enhance(factor)
    h, s, v = image.convert("HSV").split()
    levels = numpy.array(h, dtype=numpy.uint8)
    levels += numpy.int32(factor * 255).astype(numpy.uint8)
    return Image.merge("HSV", (Image.fromarray(levels), s, v)).convert("RGB")
