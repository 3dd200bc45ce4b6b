"""The kernels against Pillow and numpy: every pixel and every float is equal, in every tier that this CPU has."""

import ctypes
import os
import pathlib
import random

import numpy
import pytest

PIL = pytest.importorskip("PIL")
from PIL import Image, ImageEnhance  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FOREBAY_BUILD", ROOT / "build" / "release"))
LIBRARY = BUILD / "tests" / "kernels" / "libfby_kernels_test.so"
PILLOW = int(PIL.__version__.split(".")[0])

U8, U16, F16, BF16, F32 = 1, 2, 3, 4, 5
HWC, CHW = 1, 2
FILTERS = {
    "nearest": (0, Image.Resampling.NEAREST),
    "box": (1, Image.Resampling.BOX),
    "bilinear": (2, Image.Resampling.BILINEAR),
    "bicubic": (3, Image.Resampling.BICUBIC),
    "lanczos": (4, Image.Resampling.LANCZOS),
}
TIERS = ["c", "avx2", "avx512"]
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
PAST_END = 64


class Job(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("in_w", "in_h", "out_w", "out_h")]
    _fields_ += [(name, ctypes.c_int32) for name in ("filter", "pillow", "flip_horizontal", "flip_vertical")]
    _fields_ += [("rows_at_a_time", ctypes.c_uint32)]


class Output(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("dtype", "layout", "normalize", "unit")]
    _fields_ += [("mean", ctypes.c_float * 3), ("std", ctypes.c_float * 3)]


@pytest.fixture(scope="session")
def library():
    if not LIBRARY.exists():
        pytest.fail(f"{LIBRARY} is missing: build the tests, or set FOREBAY_BUILD to a build folder")
    return ctypes.CDLL(str(LIBRARY))


@pytest.fixture(params=range(len(TIERS)), ids=TIERS)
def tier(request, library):
    if not library.fby_test_tier_supported(request.param):
        pytest.skip(f"this CPU has no {TIERS[request.param]}")
    return request.param


def output_of(dtype=U8, layout=HWC, normalize=None, unit=False):
    mean, std = normalize or ([0, 0, 0], [1, 1, 1])
    return Output(dtype, layout, normalize is not None, unit, (ctypes.c_float * 3)(*mean), (ctypes.c_float * 3)(*std))


def element(dtype):
    return {U8: numpy.uint8, F32: numpy.float32}.get(dtype, numpy.uint16)


def padded(picture):
    """The picture's bytes with what the kernels may read past the end, in a pattern that would show."""
    return numpy.concatenate([picture.reshape(-1), numpy.full(PAST_END, 0xA5, numpy.uint8)])


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def call(function, tier, picture, job, output, w, h):
    shape = (h, w, 3) if output.layout == HWC else (3, h, w)
    count = h * w * 3
    guard = 64 // numpy.dtype(element(output.dtype)).itemsize
    out = numpy.full(count + guard, 0x5A, element(output.dtype))
    memory = padded(picture)
    status = function(
        tier, pointer(memory), ctypes.c_size_t(picture.shape[1] * 3), ctypes.byref(job), ctypes.byref(output), pointer(out)
    )
    assert status == 0
    assert (out[count:] == 0x5A).all(), "wrote past the end"
    return out[:count].reshape(shape)


def resize(library, tier, picture, size, filter_name, flips=(0, 0), output=None, pillow=PILLOW, rows=16):
    h, w = picture.shape[:2]
    job = Job(w, h, size[0], size[1], FILTERS[filter_name][0], pillow, flips[0], flips[1], rows)
    return call(library.fby_test_resize, tier, picture, job, output or output_of(), size[0], size[1])


def convert(library, tier, picture, flips=(0, 0), output=None):
    h, w = picture.shape[:2]
    job = Job(w, h, w, h, 0, PILLOW, flips[0], flips[1], 1)
    return call(library.fby_test_convert, tier, picture, job, output or output_of(), w, h)


def picture_of(rng, w, h):
    """Noise, steps or a ramp: what rounds every way, what overshoots, what is smooth."""
    kind = rng.integers(0, 3)
    if kind == 0:
        return rng.integers(0, 256, (h, w, 3), dtype=numpy.uint8)
    if kind == 1:
        return (rng.integers(0, 2, (h, w, 3), dtype=numpy.uint8) * 255).astype(numpy.uint8)
    y, x = numpy.mgrid[0:h, 0:w]
    ramp = numpy.stack([x * 3 + y, x + y * 5, x * 7 ^ y], axis=2) + rng.integers(0, 8, (h, w, 3))
    return (ramp & 255).astype(numpy.uint8)


def reference(picture, size, filter_name, flips=(0, 0)):
    image = Image.fromarray(picture).resize(size, FILTERS[filter_name][1])
    if flips[0]:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if flips[1]:
        image = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    return numpy.asarray(image)


def random_side(chance):
    return chance.choice([1, 2, 3, chance.randint(1, 40), chance.randint(1, 40), chance.randint(30, 150), chance.randint(150, 500)])


needs_known_order = pytest.mark.skipif(PILLOW < 13, reason="the order of passes compared is Pillow 13's")


@needs_known_order
@pytest.mark.parametrize("filter_name", FILTERS)
def test_resize_is_pillows(library, tier, filter_name):
    seed = int(os.environ.get("FOREBAY_SEED", "1"))
    chance = random.Random(f"{filter_name}{seed}")
    rng = numpy.random.default_rng(seed)
    for _ in range(int(os.environ.get("FOREBAY_KERNEL_CASES", "80"))):
        w, h, size = random_side(chance), random_side(chance), (random_side(chance), random_side(chance))
        if chance.random() < 0.3:
            size = (224, 224)
        flips = (chance.randrange(2), chance.randrange(2))
        rows = chance.choice([1, 2, 3, 8, 16, 1000])
        picture = picture_of(rng, w, h)
        ours = resize(library, tier, picture, size, filter_name, flips, rows=rows)
        expected = reference(picture, size, filter_name, flips)
        assert numpy.array_equal(ours, expected), f"seed {seed}: {w}x{h} to {size}, flips {flips}, {rows} rows"


@needs_known_order
@pytest.mark.parametrize("filter_name", FILTERS)
@pytest.mark.parametrize(
    "w,h,size",
    [
        (1, 1, (1, 1)),
        (1, 1, (224, 224)),
        (1, 30000, (7, 5)),
        (30000, 1, (5, 7)),
        (1, 30000, (1, 1)),
        (30000, 1, (1, 1)),
        (5, 4, (3000, 2)),
        (4, 5, (2, 3000)),
        (700, 500, (3, 2)),
        (500, 375, (500, 100)),
        (500, 375, (100, 375)),
        (500, 375, (500, 375)),
        (224, 400, (224, 224)),
        (3, 448, (224, 224)),
        (9, 3, (3, 9)),
        (15, 17, (17, 15)),
        (33, 31, (99, 93)),
    ],
)
def test_edges_are_pillows(library, tier, filter_name, w, h, size):
    picture = picture_of(numpy.random.default_rng(w * 31 + h), w, h)
    for flips in [(0, 0), (1, 1)]:
        ours = resize(library, tier, picture, size, filter_name, flips)
        assert numpy.array_equal(ours, reference(picture, size, filter_name, flips))


@needs_known_order
@pytest.mark.parametrize("filter_name", ["bilinear", "bicubic"])
def test_pillow_12_runs_the_horizontal_pass_first(library, tier, filter_name):
    """Two resizes of one axis each fix the order, whatever Pillow's version."""
    rng = numpy.random.default_rng(5)
    differs = 0
    for w, h in [(230, 600), (100, 400), (224, 300), (50, 1200), (224, 225)]:
        picture = rng.integers(0, 256, (h, w, 3), dtype=numpy.uint8)
        which = FILTERS[filter_name][1]
        expected = numpy.asarray(Image.fromarray(picture).resize((224, h), which).resize((224, 224), which))
        ours = resize(library, tier, picture, (224, 224), filter_name, pillow=12)
        assert numpy.array_equal(ours, expected)
        newer = resize(library, tier, picture, (224, 224), filter_name, pillow=13)
        assert numpy.array_equal(newer, reference(picture, (224, 224), filter_name))
        differs += not numpy.array_equal(ours, newer)
    assert differs, "none of the cases tells the orders apart"


def half_bits(values, dtype):
    if dtype == F16:
        with numpy.errstate(over="ignore"):
            return values.astype(numpy.float16).view(numpy.uint16)
    bits = values.view(numpy.uint32).astype(numpy.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)


def expected_values(levels, dtype, layout, normalize, unit):
    """torchvision v1 restated: float32(v) / 255, then (v - mean) / std, each step rounded to float32."""
    values = levels.astype(numpy.float32)
    if normalize or unit:
        values = values / numpy.float32(255)
    if normalize:
        mean, std = (numpy.array(part, numpy.float32) for part in normalize)
        values = (values - mean) / std
    if dtype == U8:
        values = levels
    elif dtype != F32:
        values = half_bits(numpy.ascontiguousarray(values), dtype)
    return numpy.ascontiguousarray(values if layout == HWC else values.transpose(2, 0, 1))


NORMALIZERS = {
    "imagenet": IMAGENET,
    "half": ([0.5, 0.5, 0.5], [0.5, 0.5, 0.5]),
    "cifar": ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
    "negative": ([0.1, -0.7, 0.0], [-0.3, 0.001, 3.0]),
    "tiny": ([0.5, 0.5, 0.5], [1e-38, 1e-6, 1e30]),
}


@pytest.mark.parametrize("layout", [HWC, CHW], ids=["hwc", "chw"])
@pytest.mark.parametrize("dtype", [U8, F16, BF16, F32], ids=["u8", "f16", "bf16", "f32"])
@pytest.mark.parametrize("values", ["plain", "unit", *NORMALIZERS])
def test_values_are_torchvisions(library, tier, dtype, layout, values):
    if dtype == U8 and values != "plain":
        pytest.skip("u8 keeps its levels")
    normalize = NORMALIZERS.get(values)
    output = output_of(dtype, layout, normalize, values == "unit")
    rng = numpy.random.default_rng(11)
    for w, h, size in [(256, 7, (256, 3)), (50, 60, (37, 41)), (300, 200, (224, 16)), (7, 5, (1, 1)), (9, 30, (100, 8))]:
        picture = rng.integers(0, 256, (h, w, 3), dtype=numpy.uint8)
        for flips in [(0, 0), (1, 0), (0, 1), (1, 1)]:
            levels = resize(library, tier, picture, size, "bicubic", flips)
            ours = resize(library, tier, picture, size, "bicubic", flips, output)
            with numpy.errstate(over="ignore"):
                expected = expected_values(levels, dtype, layout, normalize, values == "unit")
            assert ours.tobytes() == expected.tobytes()


@pytest.mark.parametrize("layout", [HWC, CHW], ids=["hwc", "chw"])
@pytest.mark.parametrize("dtype", [U8, F16, BF16, F32], ids=["u8", "f16", "bf16", "f32"])
def test_conversion_without_resize(library, tier, dtype, layout):
    rng = numpy.random.default_rng(12)
    normalize = None if dtype == U8 else IMAGENET
    for w, h in [(256, 3), (1, 1), (15, 2), (16, 2), (17, 2), (511, 2), (513, 2), (1100, 2)]:
        picture = rng.integers(0, 256, (h, w, 3), dtype=numpy.uint8)
        for flips in [(0, 0), (1, 0), (0, 1), (1, 1)]:
            mirrored = picture[:: -1 if flips[1] else 1, :: -1 if flips[0] else 1]
            ours = convert(library, tier, picture, flips, output_of(dtype, layout, normalize))
            assert ours.tobytes() == expected_values(mirrored, dtype, layout, normalize, False).tobytes()


def test_every_level_of_every_normalizer(library, tier):
    levels = numpy.repeat(numpy.arange(256, dtype=numpy.uint8), 3).reshape(1, 256, 3)
    for normalize in NORMALIZERS.values():
        for dtype in (F32, F16, BF16):
            ours = convert(library, tier, levels, output=output_of(dtype, CHW, normalize))
            with numpy.errstate(over="ignore"):
                expected = expected_values(levels, dtype, CHW, normalize, False)
            assert ours.tobytes() == expected.tobytes()


def philox_in_python(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [second >> 32 ^ c[1] ^ k[0], second & 0xFFFFFFFF, first >> 32 ^ c[3] ^ k[1], first & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_philox_is_philox(library):
    chance = random.Random(3)
    for _ in range(200):
        counter = [chance.getrandbits(32) for _ in range(4)]
        key = [chance.getrandbits(32) for _ in range(2)]
        out = (ctypes.c_uint32 * 4)()
        library.fby_test_philox((ctypes.c_uint32 * 4)(*counter), (ctypes.c_uint32 * 2)(*key), out)
        assert list(out) == philox_in_python(counter, key)


def adjust(library, tier, picture, kind, factor):
    h, w = picture.shape[:2]
    out = picture.copy()
    library.fby_test_adjust(tier, KINDS.index(kind), ctypes.c_float(factor), pointer(out), ctypes.c_size_t(w * 3), w, h)
    return out


KINDS = ["brightness", "contrast", "saturation", "hue"]
ENHANCERS = {"brightness": ImageEnhance.Brightness, "contrast": ImageEnhance.Contrast, "saturation": ImageEnhance.Color}


def hue_shifted(image, factor):
    """torchvision's adjust_hue on a PIL picture, from its source."""
    h, s, v = image.convert("HSV").split()
    levels = numpy.array(h, dtype=numpy.uint8)
    levels += numpy.int32(factor * 255).astype(numpy.uint8)
    return Image.merge("HSV", (Image.fromarray(levels), s, v)).convert("RGB")


@pytest.fixture(scope="module")
def all_colours():
    numbers = numpy.arange(1 << 24, dtype=numpy.uint32)
    return numpy.stack([numbers >> 16, numbers >> 8 & 255, numbers & 255], axis=1).astype(numpy.uint8).reshape(4096, 4096, 3)


@pytest.mark.parametrize("factor", [0.213])
def test_hue_of_every_colour(library, tier, all_colours, factor):
    factor = float(numpy.float32(factor))
    got = adjust(library, tier, all_colours, "hue", factor)
    assert numpy.array_equal(got, numpy.asarray(hue_shifted(Image.fromarray(all_colours), factor)))


@pytest.mark.parametrize("factor", [0.0, 1.7])
def test_saturation_of_every_colour(library, tier, all_colours, factor):
    got = adjust(library, tier, all_colours, "saturation", factor)
    assert numpy.array_equal(got, numpy.asarray(ImageEnhance.Color(Image.fromarray(all_colours)).enhance(factor)))


def test_every_hue_shift(library, tier):
    """Each of the 255 shifts that torchvision can make, on random colours."""
    rng = numpy.random.default_rng(17)
    picture = rng.integers(0, 256, (64, 97, 3), dtype=numpy.uint8)
    for step in range(-127, 128):
        factor = float(numpy.float32(step / 255))
        got = adjust(library, tier, picture, "hue", factor)
        assert numpy.array_equal(got, numpy.asarray(hue_shifted(Image.fromarray(picture), factor))), step


@pytest.mark.parametrize("kind", ENHANCERS)
def test_adjustments_of_random_pictures(library, tier, kind):
    seed = random.randrange(1 << 30)
    rng = numpy.random.default_rng(seed)
    for round in range(200):
        w, h = (int(side) for side in rng.integers(1, 60, 2))
        picture = picture_of(rng, w, h) if round % 4 else numpy.full((h, w, 3), rng.integers(0, 256), numpy.uint8)
        factor = float(numpy.float32(rng.choice([0, 1, rng.uniform(0, 1), rng.uniform(0, 4), 1000])))
        got = adjust(library, tier, picture, kind, factor)
        assert numpy.array_equal(got, numpy.asarray(ENHANCERS[kind](Image.fromarray(picture)).enhance(factor))), (seed, round, factor)
