"""The decoders under test, through ctypes, and Pillow's answers beside them."""

import ctypes
import io
import os
import pathlib
import warnings

import numpy
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FOREBAY_BUILD", ROOT / "build" / "release"))
LIBRARY = BUILD / "tests" / "codec" / "libfby_codec_test.so"

FAST, EXIF, TOLERATE, LIBJPEG_ENTROPY = 1, 2, 4, 8


class Info(ctypes.Structure):
    _fields_ = [
        ("format", ctypes.c_int),
        ("w", ctypes.c_uint32),
        ("h", ctypes.c_uint32),
        ("channels", ctypes.c_uint32),
        ("bits", ctypes.c_uint32),
        ("frames", ctypes.c_uint32),
        ("orientation", ctypes.c_uint32),
    ]


class Region(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in "xywh"]


class Refused(Exception):
    """The decoder's verdict on a bad picture: `reason` is its name."""

    def __init__(self, reason, text):
        super().__init__(f"{reason}: {text}")
        self.reason = reason
        self.text = text


class Decoder:
    """One decoder, reused for every picture as a worker does."""

    def __init__(self):
        self.library = ctypes.CDLL(str(LIBRARY))
        self.library.codec_test_text.restype = ctypes.c_char_p
        self.library.codec_test_reason.restype = ctypes.c_char_p
        self.library.codec_test_bytes.restype = ctypes.c_size_t
        self.handle = ctypes.c_void_p()
        self.info = Info()

    def _check(self, reason):
        if reason:
            name = self.library.codec_test_reason(reason).decode()
            text = self.library.codec_test_text(self.handle).decode("utf-8", "replace")
            raise Refused(name, text)

    def open(self, data, options=0, max_pixels=0):
        # A copy with the margin that the interface asks for.
        self.data = ctypes.create_string_buffer(data, len(data) + 64)
        self._check(
            self.library.codec_test_open(
                ctypes.byref(self.handle),
                self.data,
                ctypes.c_size_t(len(data)),
                ctypes.c_uint64(max_pixels),
                options,
                ctypes.byref(self.info),
            )
        )
        return self.info

    def decode(self, data, region=None, options=0, max_pixels=0, rows=None):
        """The region (x, y, w, h), or all of the picture, as an array; `rows`: as rows, at most so many at once."""
        info = self.open(data, options, max_pixels)
        x, y, w, h = region or (0, 0, info.w, info.h)
        out = numpy.zeros((h, w, 3), numpy.uint8)
        pointer = out.ctypes.data_as(ctypes.c_void_p)
        wanted = Region(x, y, w, h)
        if rows:
            self._check(self.library.codec_test_rows(self.handle, ctypes.byref(wanted), rows, pointer))
        else:
            self._check(self.library.codec_test_into(self.handle, ctypes.byref(wanted), pointer))
        return out

    def bytes(self):
        return self.library.codec_test_bytes(self.handle)

    def jpeg_counts(self):
        """JPEGs that our entropy decoder began, and those of them that it declined."""
        own, declined = ctypes.c_uint64(), ctypes.c_uint64()
        if self.handle:
            self.library.codec_test_jpeg_counts(self.handle, ctypes.byref(own), ctypes.byref(declined))
        return own.value, declined.value

    def own_entropy(self):
        return bool(self.library.codec_test_own_entropy())


def pillow_rgb(data):
    """Pillow's RGB pixels; raises what Pillow raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(data)) as image:
            return numpy.asarray(image.convert("RGB"))


def pillow_verdict(data):
    """(pixels, None) or (None, the exception): whatever Pillow raises is a refusal."""
    try:
        return pillow_rgb(data), None
    except Exception as error:  # Pillow raises many kinds
        return None, error


def verdict(decoder, data, **options):
    """(pixels, None) or (None, Refused)."""
    try:
        return decoder.decode(data, **options), None
    except Refused as refused:
        return None, refused


def random_region(rng, w, h):
    """Regions of all sizes, often narrow, often at an edge or on a block's border."""
    width, height = rng.randint(1, w), rng.randint(1, h)
    if rng.random() < 0.3:
        width, height = min(w, rng.randint(1, 20)), min(h, rng.randint(1, 20))
    x, y = rng.randint(0, w - width), rng.randint(0, h - height)
    edge = rng.randrange(7)
    if edge == 0:
        y = 0
    elif edge == 1:
        y = h - height
    elif edge == 2:
        x = 0
    elif edge == 3:
        x = w - width
    elif edge == 4 and x >= 16:
        x = x // 16 * 16
    elif edge == 5 and (x + width) // 16 * 16 > x:
        width = (x + width) // 16 * 16 - x
    return x, y, width, height


def noise_picture(rng, w, h, mode="RGB"):
    """Smooth colours with noise on them: every coefficient has something to do."""
    generator = numpy.random.default_rng(rng.getrandbits(32))
    y, x = numpy.mgrid[0:h, 0:w]
    waves = [
        127 + 90 * numpy.sin(x / generator.uniform(2, 40) + y / generator.uniform(2, 40) + generator.uniform(0, 6))
        for _ in range(4)
    ]
    picture = numpy.stack(waves, -1) + generator.normal(0, 12, (h, w, 4))
    picture = numpy.clip(picture, 0, 255).astype(numpy.uint8)
    bands = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    return Image.fromarray(picture[:, :, 0] if bands == 1 else numpy.ascontiguousarray(picture[:, :, :bands]), mode)
