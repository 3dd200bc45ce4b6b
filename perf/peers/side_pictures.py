"""Lossless codecs beside each other: sizes, and how fast each decodes the same pictures, in turn, in one process.

usage: side_pictures.py FOREBAY ROUNDS FOLDER...      FOREBAY: the folder of the Python package; FOLDER: pictures, as PNM files

Prints one line of JSON: {folder: {codec: {"size": bytes, "mb_s": [one a round]}}}. All are called from Python, with one thread, on whole
pictures in memory; the interpreter's part is the same for all and small beside a picture."""

import json
import pathlib
import sys
import time

import imagecodecs
import numpy

sys.path.insert(0, sys.argv[1])
import forebay.fbl  # noqa: E402: found through the path set above


def pnm(path):
    """The pixels of a binary PGM or PPM file without comments."""
    data = path.read_bytes()
    kind, width, height, most = data.split(maxsplit=4)[:4]
    start = data.index(most, len(kind) + len(width) + len(height) + 3) + len(most) + 1
    values = numpy.frombuffer(data, ">u2" if int(most) > 255 else "u1", offset=start)
    shape = (int(height), int(width)) + ((3,) if kind == b"P6" else ())
    return numpy.ascontiguousarray(values.reshape(shape).astype("u2" if int(most) > 255 else "u1"))


CODECS = {
    "fbl small": (lambda p: forebay.fbl.encode(p, level="small"), forebay.fbl.decode),
    "fbl fast": (lambda p: forebay.fbl.encode(p, level="fast"), forebay.fbl.decode),
    "libpng": (lambda p: imagecodecs.png_encode(p, level=9), imagecodecs.png_decode),
    "libspng": (lambda p: imagecodecs.png_encode(p, level=9), imagecodecs.spng_decode),
    "qoi": (imagecodecs.qoi_encode, imagecodecs.qoi_decode),
    "webp": (lambda p: imagecodecs.webp_encode(p, lossless=True), imagecodecs.webp_decode),
    "jpeg xl e1": (lambda p: imagecodecs.jpegxl_encode(p, lossless=True, effort=1, numthreads=1), lambda b: imagecodecs.jpegxl_decode(b, numthreads=1)),
    "jpeg xl e3": (lambda p: imagecodecs.jpegxl_encode(p, lossless=True, effort=3, numthreads=1), lambda b: imagecodecs.jpegxl_decode(b, numthreads=1)),
    "htj2k": (lambda p: imagecodecs.htj2k_encode(p, reversible=True), imagecodecs.htj2k_decode),
}


def encoded(codec, pixels):
    """The bytes, or None where the codec doesn't take such pictures; they must decode to the same pixels."""
    encode, decode = CODECS[codec]
    try:
        data = bytes(encode(pixels))
        back = numpy.asarray(decode(data))
    except (RuntimeError, ValueError, TypeError):  # imagecodecs' errors are RuntimeErrors
        return None
    if pixels.ndim == 2 and back.ndim == 3:
        back = back[..., 0]
    return data if back.shape == pixels.shape and (back == pixels).all() else None


def folder_measure(folder, rounds):
    pictures = [pnm(path) for path in sorted(pathlib.Path(folder).iterdir()) if path.suffix in (".ppm", ".pgm")]
    files = {codec: [encoded(codec, picture) for picture in pictures] for codec in CODECS}
    files = {codec: data for codec, data in files.items() if None not in data}
    size = sum(picture.nbytes for picture in pictures)
    found = {codec: {"size": sum(map(len, data)), "mb_s": []} for codec, data in files.items()}
    for _ in range(rounds):
        spent = dict.fromkeys(files, 0.0)
        for number in range(len(pictures)):
            for codec, data in files.items():
                start = time.perf_counter()
                CODECS[codec][1](data[number])
                spent[codec] += time.perf_counter() - start
        for codec, seconds in spent.items():
            found[codec]["mb_s"].append(size / seconds / 1e6)
    return found


print(json.dumps({pathlib.Path(folder).name: folder_measure(folder, int(sys.argv[2])) for folder in sys.argv[3:]}))
