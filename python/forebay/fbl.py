"""FBL, Forebay's lossless picture format, for numpy and Pillow.

    data = forebay.fbl.encode(array)                    # uint8 or uint16, (height, width) or (height, width, channels)
    array = forebay.fbl.decode(data)
    corner = forebay.fbl.decode(data, region=(0, 0, 64, 64))   # decodes only the tiles that it touches

    forebay.fbl.register()                              # Pillow opens and saves .fbl
    PIL.Image.open("photo.fbl").save("photo.png")

Everything runs without the interpreter's lock. docs/fbl.md specifies the format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy

from forebay._forebay_fbl import FblError
from forebay._forebay_fbl import decode as _decode
from forebay._forebay_fbl import encode as _encode
from forebay._forebay_fbl import info as _info

if TYPE_CHECKING:
    from PIL import Image

    Bytes = Union[bytes, bytearray, memoryview, numpy.ndarray]

__all__ = ["FblError", "Info", "MODES", "decode", "encode", "info", "register"]

_LEVELS = {"small": 0, "fast": 1}
_LAYOUTS = {"hwc": 0, "chw": 1}
MODES = ("raw", "const", "palette", "pack", "rans")
"""How tiles are coded, by Info.modes' numbers."""


class Info(NamedTuple):
    """What an FBL file says of itself."""

    width: int
    height: int
    channels: int
    bits: int
    tile: Tuple[int, int]
    """Width and height of a tile."""
    tiles: Tuple[int, int]
    """Tiles across and down."""
    modes: List[int]
    """How each tile is coded, row by row: places in MODES."""
    metadata: Dict[str, bytes]
    """Of each type the first: "EXIF", "ICCP", "XMP ", and whatever else was put in."""
    bytes: int


def encode(
    array: numpy.ndarray,
    *,
    level: str = "small",
    bits: Optional[int] = None,
    metadata: Optional[Dict[str, bytes]] = None,
    threads: int = 1,
) -> bytes:
    """An FBL file of a picture: uint8 or uint16, (height, width) or (height, width, 1 to 4).

    `level` is "small", or "fast": a fifth larger, encoded and decoded faster. `bits` of a uint16 picture are 9 to 16,
    16 unless given. `metadata` are bytes by a type of four characters: "EXIF" (without a leading "Exif\\0\\0"), "ICCP",
    "XMP " are those that others know. What comes out was decoded and compared.
    """
    array = numpy.asarray(array)
    if array.ndim not in (2, 3) or (array.ndim == 3 and not 1 <= array.shape[2] <= 4) or not array.size:
        raise FblError(f"an array of shape {array.shape}; (height, width) or (height, width, 1 to 4) is expected")
    if array.dtype not in (numpy.uint8, numpy.uint16):
        raise FblError(f"an array of {array.dtype}; uint8 or uint16 is expected")
    array = numpy.ascontiguousarray(array, array.dtype.newbyteorder("="))
    most = 8 * array.itemsize
    if bits is None:
        bits = most
    if not most - 7 <= bits <= most and bits != 8:
        raise FblError(f"bits={bits}; of {array.dtype} {'8 is' if most == 8 else '9 to 16 are'} expected")
    if bits <= 8 and most == 16:
        raise FblError(f"bits={bits} of uint16; 9 to 16 are expected: make it uint8")
    chunks = [(_type(name), bytes(data)) for name, data in (metadata or {}).items()]
    height, width = array.shape[:2]
    channels = array.shape[2] if array.ndim == 3 else 1
    return _encode(
        array.ctypes.data, width, height, channels, bits, _choice("level", level, _LEVELS), _count(threads), chunks
    )


def info(data: Bytes, *, max_pixels: int = 0) -> Info:
    """Size, channels, bits, tiles and metadata of an FBL file, its pixels undecoded."""
    given = _bytes(data)
    said = _info(given.ctypes.data, given.size, max_pixels)
    metadata: Dict[str, bytes] = {}
    for name, chunk in said.pop("metadata"):
        metadata.setdefault(name.decode("latin-1"), chunk)
    return Info(metadata=metadata, **said)


def decode(
    data: Bytes,
    *,
    region: Optional[Tuple[int, int, int, int]] = None,
    out: Optional[numpy.ndarray] = None,
    layout: str = "hwc",
    threads: int = 1,
    max_pixels: int = 0,
) -> numpy.ndarray:
    """The picture, or its `region` (x, y, width, height), of which only the tiles that it touches are decoded.

    One channel gives (height, width); more (height, width, channels), or (channels, height, width) with
    `layout="chw"`. 8 bits are uint8, more uint16. `out` is written to and returned: its shape and type must be those,
    its pixels (with "chw" its rows) without gaps; rows may have some. More than `max_pixels` (0: 178,956,970) are
    refused before memory is taken.
    """
    given = _bytes(data)
    said = _info(given.ctypes.data, given.size, max_pixels)
    planar = _choice("layout", layout, _LAYOUTS)
    x, y, width, height = region if region is not None else (0, 0, said["width"], said["height"])
    channels = said["channels"]
    if min(x, y, width - 1, height - 1) < 0 or x + width > said["width"] or y + height > said["height"]:
        raise FblError(
            f"region {(x, y, width, height)} isn't within the picture of {said['width']} x {said['height']}"
        )
    shape: Tuple[int, ...] = (height, width)
    if channels > 1:
        shape = (channels, height, width) if planar else (height, width, channels)
    dtype = numpy.dtype(numpy.uint8 if said["bits"] == 8 else numpy.uint16)
    if out is None:
        out = numpy.empty(shape, dtype)
    strides = _strides(out, shape, dtype, planar)
    _decode(
        given.ctypes.data, given.size, max_pixels, (x, y, width, height), out.ctypes.data, *strides, planar,
        _count(threads),
    )  # fmt: skip
    return out


def _strides(out: numpy.ndarray, shape: Tuple[int, ...], dtype: numpy.dtype, planar: int) -> Tuple[int, int]:
    """Bytes from row to row and from plane to plane, of an array that can be written to."""
    if out.shape != shape or out.dtype != dtype:
        raise FblError(f"out is {out.dtype} of shape {out.shape}; {dtype} of {shape} is expected")
    if not out.flags.writeable or not out.flags.aligned:
        raise FblError("out can't be written to: expected a writeable, aligned array")
    row_axis = 1 if planar and len(shape) == 3 else 0
    step = dtype.itemsize
    for axis in range(len(shape) - 1, row_axis, -1):
        if out.strides[axis] != step and shape[axis] > 1:
            raise FblError(f"out has strides of {out.strides}: within a row there may be no gaps")
        step *= shape[axis]
    row = out.strides[row_axis] if shape[row_axis] > 1 else step
    plane = out.strides[0] if row_axis and shape[0] > 1 else row * shape[row_axis]
    if row < step or plane < row * shape[row_axis]:
        raise FblError(f"out has strides of {out.strides}: rows and planes may not overlap, nor run backwards")
    return row, plane


def _bytes(data: Bytes) -> numpy.ndarray:
    given = numpy.frombuffer(data, numpy.uint8)
    if not given.size:
        raise FblError("no bytes; an FBL file is expected")
    return given


def _choice(name: str, value: str, choices: Dict[str, int]) -> int:
    if value not in choices:
        raise FblError(f"{name}={value!r}; {' or '.join(map(repr, choices))} is expected")
    return choices[value]


def _count(threads: int) -> int:
    if not 1 <= threads <= 1024:
        raise FblError(f"threads={threads}; 1 to 1024 are expected")
    return threads


def _type(name: str) -> bytes:
    try:
        raw = name.encode("latin-1")
    except UnicodeEncodeError:
        raw = b""
    if len(raw) != 4:
        raise FblError(f"metadata {name!r}; a type has four characters: 'EXIF', 'ICCP', 'XMP '")
    return raw


# ---- Pillow

_EXIF_START = b"Exif\0\0"
_PILLOW_MODES = {(1, False): "L", (2, False): "LA", (3, False): "RGB", (4, False): "RGBA", (1, True): "I;16"}


def _entries(chunk: bytes, channels: int) -> Optional[numpy.ndarray]:
    """A palette's entries, as one number each."""
    count = len(chunk) // channels
    if channels < 3 or not 0 < count <= 256 or len(chunk) != count * channels:
        return None
    return _numbers(numpy.frombuffer(chunk, numpy.uint8).reshape(count, channels))


def _numbers(pixels: numpy.ndarray) -> numpy.ndarray:
    return sum(pixels[..., c].astype(numpy.uint32) << (8 * c) for c in range(pixels.shape[-1]))


def _indices(pixels: numpy.ndarray, entries: numpy.ndarray) -> Optional[numpy.ndarray]:
    """Of each pixel the first palette entry with its colour; None where there is none."""
    colours, first = numpy.unique(entries, return_index=True)
    numbers = _numbers(pixels)
    at = numpy.minimum(numpy.searchsorted(colours, numbers), len(colours) - 1)
    return first[at].astype(numpy.uint8) if (colours[at] == numbers).all() else None


def _palette_picture(image: "Image.Image") -> Tuple[numpy.ndarray, Dict[str, bytes]]:
    """A picture with a palette as RGB or RGBA, and the palette, so that it can become what it was."""
    pixels = numpy.asarray(image.convert("RGBA" if "transparency" in image.info else "RGB"))
    channels = pixels.shape[2]
    table = image.palette
    count = len(image.getpalette("RGB") or []) // 3
    if table is None or not 0 < count <= 256:
        return pixels, {}
    ramp = image.resize((count, 1))
    ramp.frombytes(bytes(range(count)))
    chunk = numpy.asarray(ramp.convert("RGBA" if channels == 4 else "RGB")).tobytes()
    entries = _entries(chunk, channels)
    again = _indices(pixels, entries) if entries is not None else None
    same = again is not None and numpy.array_equal(again, numpy.asarray(image))
    return pixels, {"PLTE": chunk} if same else {}


def _pillow_metadata(image: "Image.Image", options: Dict[str, Any]) -> Dict[str, bytes]:
    found = {}
    for name, kind in (("exif", "EXIF"), ("icc_profile", "ICCP"), ("xmp", "XMP ")):
        value = options.get(name, image.info.get(name))
        if value is not None and not isinstance(value, (bytes, bytearray)):
            value = value.tobytes()  # PIL.Image.Exif
        if kind == "EXIF" and value and value.startswith(_EXIF_START):
            value = value[len(_EXIF_START) :]
        if value:
            found[kind] = bytes(value)
    return found


def _save(image: "Image.Image", file: Any, filename: Union[str, bytes]) -> None:
    options = getattr(image, "encoderinfo", {})
    metadata = _pillow_metadata(image, options)
    if image.mode == "P":
        pixels, palette = _palette_picture(image)
        metadata.update(palette)
    elif image.mode in ("1", "L", "LA", "RGB", "RGBA", "I;16"):
        pixels = numpy.asarray(image.convert("L") if image.mode == "1" else image)
    else:
        raise OSError(f"cannot write mode {image.mode} as FBL: convert it to L, LA, P, RGB, RGBA or I;16")
    file.write(encode(pixels, level=options.get("level", "small"), metadata=metadata,
                      threads=options.get("threads", 1)))  # fmt: skip


_registered = False


def register() -> None:
    """Makes Pillow open and save FBL: modes L, LA, P, RGB, RGBA and I;16 as they are, 1 as L.

    Of more than 8 bits in several channels, which Pillow has no modes for, the upper 8 are opened. EXIF, ICC profile
    and XMP are kept in both directions. `save(..., level="fast")` as in encode().
    """
    global _registered
    if _registered:
        return
    _registered = True
    from PIL import Image, ImageFile, ImagePalette

    class FblDecoder(ImageFile.PyDecoder):
        _pulls_fd = True

        def decode(self, buffer: Any) -> Tuple[int, int]:
            assert self.fd is not None
            self.fd.seek(0)
            try:
                pixels = decode(self.fd.read(), max_pixels=1 << 62)
            except FblError as error:
                raise OSError(str(error)) from error
            bits, palette = self.args
            if palette:
                entries = _entries(palette, pixels.shape[2])
                found = _indices(pixels, entries) if entries is not None else None
                if found is None:
                    raise OSError("FBL: a pixel has a colour that isn't in the palette: the file is damaged")
                pixels = found
            elif self.mode == "I;16":
                pixels = pixels.astype("<u2")
            elif bits > 8:
                pixels = (pixels >> (bits - 8)).astype(numpy.uint8)
            self.set_as_raw(pixels.tobytes())
            return -1, 0

    class FblImageFile(ImageFile.ImageFile):
        format = "FBL"
        format_description = "FBL (Forebay)"

        def _open(self) -> None:
            assert self.fp is not None
            try:
                said = info(self.fp.read(), max_pixels=1 << 62)
            except FblError as error:
                raise (SyntaxError if error.reason == "format" else OSError)(str(error)) from error
            self._size = (said.width, said.height)
            mode = _PILLOW_MODES.get((said.channels, said.bits > 8)) or _PILLOW_MODES[(said.channels, False)]
            chunk = said.metadata.get("PLTE", b"") if said.bits == 8 else b""
            if chunk and _entries(chunk, said.channels) is not None:
                kind = mode
                mode = "P"
                self.palette = ImagePalette.raw(kind, chunk)
                if kind == "RGBA":
                    self.palette = ImagePalette.raw("RGB", b"".join(chunk[i : i + 3] for i in range(0, len(chunk), 4)))
                    self.info["transparency"] = chunk[3::4]
            else:
                chunk = b""
            for kind, name in (("EXIF", "exif"), ("ICCP", "icc_profile"), ("XMP ", "xmp")):
                if kind in said.metadata:
                    self.info[name] = (_EXIF_START if kind == "EXIF" else b"") + said.metadata[kind]
            # Before Pillow 10.1 `mode` is an attribute like any other, and a tile a tuple like any other, which later ones take too.
            setattr(self, "_mode" if hasattr(Image.Image, "mode") else "mode", mode)
            self.tile = [("fbl", (0, 0, *self._size), 0, (said.bits, chunk))]  # type: ignore[list-item]

    Image.register_decoder("fbl", FblDecoder)
    Image.register_open("FBL", FblImageFile, lambda prefix: prefix.startswith(b"\x89FBL\r\n\x1a\n"))
    Image.register_save("FBL", _save)
    Image.register_extension("FBL", ".fbl")
    Image.register_mime("FBL", "image/x-fbl")
