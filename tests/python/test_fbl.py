"""forebay.fbl: arrays and Pillow pictures come back as they were; what can't be is refused by name."""

import concurrent.futures
import io
import os

import hypothesis.extra.numpy as arrays
import numpy
import pytest
from hypothesis import HealthCheck, given, settings, strategies
from PIL import Image

from forebay import fbl

EXAMPLES = int(60 * float(os.environ.get("FOREBAY_TEST_SCALE", "1")))
quick = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

sides = strategies.one_of(strategies.integers(1, 40), strategies.sampled_from([127, 128, 129, 200]))


@strategies.composite
def pictures(draw):
    """Noise, areas of few colours or one colour; any strides."""
    height, width = draw(sides), draw(sides)
    channels = draw(strategies.sampled_from([None, 1, 2, 3, 4]))
    dtype = draw(strategies.sampled_from([numpy.uint8, numpy.uint16]))
    shape = (height, width) if channels is None else (height, width, channels)
    generator = numpy.random.default_rng(draw(strategies.integers(0, 1 << 30)))
    most = draw(strategies.sampled_from([1, 2, 5, 256 if dtype == numpy.uint8 else 1 << 16]))
    array = generator.integers(0, most, shape).astype(dtype)
    if draw(strategies.booleans()):
        array = array[::-1, ::-1]
    return array


@quick
@given(pictures(), strategies.sampled_from(["small", "fast"]), strategies.integers(1, 3), strategies.data())
def test_round_trip(array, level, threads, data):
    file = fbl.encode(array, level=level, threads=threads)
    assert file == fbl.encode(array, level=level)  # the same on any number of threads
    want = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    got = fbl.decode(file, threads=threads)
    assert got.dtype == array.dtype and numpy.array_equal(got, want)
    height, width = want.shape[:2]
    x, y = data.draw(strategies.integers(0, width - 1)), data.draw(strategies.integers(0, height - 1))
    w, h = data.draw(strategies.integers(1, width - x)), data.draw(strategies.integers(1, height - y))
    part = want[y : y + h, x : x + w]
    assert numpy.array_equal(fbl.decode(file, region=(x, y, w, h)), part)
    if want.ndim == 3:
        planes = fbl.decode(file, region=(x, y, w, h), layout="chw")
        assert numpy.array_equal(planes, part.transpose(2, 0, 1))
    room = numpy.zeros((h + 2, w + 2) + want.shape[2:], want.dtype)
    assert numpy.shares_memory(fbl.decode(file, region=(x, y, w, h), out=room[1:-1, 1:-1]), room)
    assert numpy.array_equal(room[1:-1, 1:-1], part)
    room[1:-1, 1:-1] = 0
    assert not room.any()  # nothing around it was touched


@quick
@given(arrays.arrays(numpy.uint16, (3, 5, 3), elements=strategies.integers(0, 4095)), strategies.integers(12, 15))
def test_bits_between(array, bits):
    file = fbl.encode(array, bits=bits)
    assert fbl.info(file).bits == bits
    assert numpy.array_equal(fbl.decode(file), array)


@quick
@given(strategies.dictionaries(strategies.text(strategies.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=4),
                               strategies.binary(min_size=1, max_size=50), max_size=5))
def test_metadata(metadata):
    info = fbl.info(fbl.encode(numpy.zeros((3, 5), numpy.uint8), metadata=metadata))
    assert info.metadata == metadata
    assert (info.width, info.height, info.channels, info.bits) == (5, 3, 1, 8)
    assert [fbl.MODES[mode] for mode in info.modes] == ["const"]


@quick
@given(strategies.binary(max_size=100), strategies.integers(0, 60), strategies.integers(0, 255))
def test_bytes_that_are_none(junk, at, value):
    file = bytearray(fbl.encode(numpy.arange(60, dtype=numpy.uint8).reshape(6, 10)))
    with pytest.raises(fbl.FblError):
        fbl.decode(junk)
    file[at] ^= value
    try:
        assert fbl.decode(file).tobytes() == bytes(range(60))
    except fbl.FblError as error:
        assert error.reason in ("format", "truncated", "corrupt", "unsupported", "too large")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fbl.encode(numpy.zeros((3, 3), numpy.float32)), "float32"),
        (lambda: fbl.encode(numpy.zeros((3, 3, 5), numpy.uint8)), r"\(3, 3, 5\)"),
        (lambda: fbl.encode(numpy.zeros((0, 3), numpy.uint8)), r"\(0, 3\)"),
        (lambda: fbl.encode(numpy.zeros((3, 3), numpy.uint8), bits=12), "bits=12"),
        (lambda: fbl.encode(numpy.zeros((3, 3), numpy.uint16), bits=8), "bits=8"),
        (lambda: fbl.encode(numpy.full((3, 3), 4096, numpy.uint16), bits=12), "12"),
        (lambda: fbl.encode(numpy.zeros((3, 3), numpy.uint8), level="best"), "'small' or 'fast'"),
        (lambda: fbl.encode(numpy.zeros((3, 3), numpy.uint8), metadata={"exif data": b""}), "four characters"),
        (lambda: fbl.encode(numpy.zeros((3, 3), numpy.uint8), threads=0), "threads=0"),
        (lambda: fbl.decode(GRAY, region=(0, 0, 4, 3)), "4 x 3|3 x 3"),
        (lambda: fbl.decode(GRAY, region=(-1, 0, 2, 2)), "isn't within"),
        (lambda: fbl.decode(GRAY, out=numpy.zeros((3, 3), numpy.uint16)), "uint8 of"),
        (lambda: fbl.decode(GRAY, out=numpy.zeros((3, 6), numpy.uint8)[:, ::2]), "gaps"),
        (lambda: fbl.decode(GRAY, out=numpy.zeros((3, 3), numpy.uint8)[::-1]), "backwards"),
        (lambda: fbl.decode(GRAY, out=numpy.frombuffer(b"123456789", numpy.uint8).reshape(3, 3)), "written"),
        (lambda: fbl.decode(GRAY, max_pixels=8), "max_pixels"),
        (lambda: fbl.decode(b""), "no bytes"),
    ],
)
def test_refusals(call, said):
    with pytest.raises(fbl.FblError, match=said):
        call()


GRAY = fbl.encode(numpy.zeros((3, 3), numpy.uint8))


def test_threads_share_nothing():
    rng = numpy.random.default_rng(1)
    images = [rng.integers(0, 40, (90, 200, 3)).astype(numpy.uint8) for _ in range(40)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        files = list(pool.map(fbl.encode, images))
        for image, got in zip(images, pool.map(fbl.decode, files)):
            assert numpy.array_equal(image, got)
