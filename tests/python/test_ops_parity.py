"""Whole pipelines, every op in them, equal Pillow's pixels on real photographs."""

import io
import random

import numpy
import pytest
from PIL import Image, ImageFile

from pipeline_library import BadSample, Pipelines, by_pillow

PHOTOGRAPHS = 200
ImageFile.MAXBLOCK = 1 << 22  # noise as a progressive JPEG is more than Pillow's encoder expects

TRAIN = ["decode", {"random_resized_crop": 224}, {"random_horizontal_flip": 0.5}, {"normalize": "imagenet"}]
TEST = ["decode", {"resize": 256}, {"center_crop": 224}, {"normalize": "imagenet"}, {"to": {"layout": "hwc"}}]
GRAY = {"grayscale": {"num_output_channels": 1}}
PIPELINES = [
    TRAIN,
    TRAIN + [{"to": {"dtype": "f16"}}],
    ["decode", {"random_resized_crop": {"size": [160, 192], "scale": [0.2, 1], "ratio": [1, 2], "interpolation": "bicubic",
                                        "augment_seed": 4}}, {"to": {"dtype": "bf16", "layout": "hwc"}}],
    TEST,
    ["decode", {"center_crop": [640, 200]}, {"random_vertical_flip": 0.5}],
    ["decode", {"random_horizontal_flip": 0.7}, {"resize": {"size": 99, "interpolation": "lanczos"}},
     {"random_vertical_flip": 0.5}, {"center_crop": 99}, {"to": {"dtype": "u8", "layout": "hwc"}}],
    ["decode", {"resize": {"size": [77, 310], "interpolation": "nearest"}}, {"random_horizontal_flip": 0.5},
     {"normalize": {"mean": [0, 0.5, 1], "std": [1, 0.25, 3]}}, {"random_vertical_flip": 0.5}, {"to": {"dtype": "f16", "layout": "hwc"}}],
    ["decode", {"center_crop": 300}, {"random_resized_crop": {"size": 64, "interpolation": "box"}}, {"to": {"dtype": "f32"}}],
    ["decode", {"random_crop": {"size": 150, "pad_if_needed": True}}, {"color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}},
     {"random_horizontal_flip": 0.5}, {"normalize": "imagenet"}],
    ["decode", {"random_resized_crop": 96}, {"random_horizontal_flip": 0.5},
     {"color_jitter": {"brightness": [0, 3], "contrast": [0.2, 4], "saturation": [0, 5], "hue": [-0.5, 0.5]}}, {"grayscale": {}}],
    ["decode", {"resize": [60, 50]}, {"random_crop": {"size": [70, 45], "padding": [3, 9], "padding_mode": "reflect"}},
     {"pad": {"padding": [1, 2, 3, 40], "fill": [9, 0, 255]}}],
    ["decode", {"random_horizontal_flip": 0.5}, {"random_crop": {"size": 40, "padding": 4, "padding_mode": "symmetric"}}, {"color_jitter": {"hue": 0.2}},
     {"to": {"dtype": "u8", "layout": "hwc"}}],
    ["decode", "grayscale", {"pad": {"padding": 7, "padding_mode": "edge"}}, {"center_crop": 350}],
    ["decode", {"random_resized_crop": 96}, GRAY, {"random_horizontal_flip": 0.5}, {"normalize": {"mean": [0.5], "std": [0.25]}}],
    ["decode", GRAY, {"resize": 99}, {"random_crop": {"size": 120, "padding": 4, "fill": 7, "pad_if_needed": True}},
     {"color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}}, {"normalize": {"mean": 0.4, "std": 0.3}}, {"to": {"dtype": "f16", "layout": "hwc"}}],
    ["decode", {"random_horizontal_flip": 0.5}, GRAY, {"pad": {"padding": [3, 5], "padding_mode": "reflect"}},
     {"resize": {"size": [70, 61], "interpolation": "bicubic"}}, {"random_vertical_flip": 0.5}, {"to": {"dtype": "u8", "layout": "hwc"}}],
    ["decode", GRAY, {"color_jitter": {"hue": 0.3}}, {"grayscale": {"num_output_channels": 3}}, {"center_crop": [80, 90]},
     {"to": {"dtype": "bf16"}}],
    ["decode", GRAY, {"center_crop": [801, 90]}],
]
OFTEN = 8  # so many see all photographs, those after them every fifth


def same(got, want):
    return got.dtype == want.dtype and numpy.array_equal(got, want)


def check(plan, pipelines, data, id, turn):
    """Every branch of the plan equals Pillow."""
    w, h = Image.open(io.BytesIO(data)).size
    for branch, got in enumerate(plan.run(data, id=id, turn=turn)):
        steps = plan.trace(w, h, branch=branch, id=id, turn=turn)
        want = by_pillow(data, pipelines[branch], steps)
        assert same(got, want), (pipelines[branch], id, turn, w, h, numpy.abs(got.astype(float) - want.astype(float)).max())


@pytest.fixture(scope="module")
def photograph_bytes(photographs):
    paths = sorted(path for path in photographs.rglob("*.jpg"))
    assert len(paths) >= PHOTOGRAPHS
    return [path.read_bytes() for path in paths[:: len(paths) // PHOTOGRAPHS][:PHOTOGRAPHS]]


@pytest.mark.parametrize("number", range(len(PIPELINES)))
def test_a_pipeline_alone(photograph_bytes, number):
    with Pipelines(PIPELINES[number], augment_seed=11) as plan:
        for id, data in enumerate(photograph_bytes[::1 if number < OFTEN else 5]):
            check(plan, [PIPELINES[number]], data, id, turn=3)


def test_all_pipelines_together(photograph_bytes):
    with Pipelines(*PIPELINES, augment_seed=12) as plan:
        for id, data in enumerate(photograph_bytes[::8]):
            check(plan, PIPELINES, data, id, turn=0)


def random_op(rng):
    size = rng.choice([rng.randint(1, 300), [rng.randint(1, 300), rng.randint(1, 300)]])
    both = {"size": size, "interpolation": rng.choice(["nearest", "box", "bilinear", "bicubic", "lanczos"])}
    return rng.choice([
        {"resize": {**both, "size": [rng.randint(1, 300), rng.randint(1, 300)]}},
        {"resize": both},
        {"center_crop": size},
        {"random_resized_crop": {**both, "scale": sorted([rng.uniform(0.01, 1), 1]), "ratio": [rng.uniform(0.1, 1), 1.5]}},
        {"random_horizontal_flip": 0.5},
        {"random_vertical_flip": 0.5},
        {"pad": random_padding(rng)},
        {"random_crop": {**random_padding(rng), "size": size, "pad_if_needed": True}},
        {"grayscale": {}},
        {"grayscale": {"num_output_channels": rng.choice([1, 3])}},
        {"color_jitter": {**{kind: rng.choice([0, rng.uniform(0, 2), sorted([rng.uniform(0, 4), rng.uniform(0, 1)])])
                             for kind in ("brightness", "contrast", "saturation")},
                          "hue": rng.choice([0, 0.5, rng.uniform(0, 0.5), sorted([rng.uniform(-0.5, 0.5), 0.3])])}},
    ])


def random_padding(rng):
    most = rng.choice([4, 40])
    sides = rng.choice([rng.randint(0, most), [rng.randint(0, most), rng.randint(0, most)], [rng.randint(0, most) for _ in range(4)]])
    fill = rng.choice([rng.randint(0, 255), [rng.randint(0, 255) for _ in range(3)]])
    return {"padding": sides, "fill": fill, "padding_mode": rng.choice(["constant", "edge", "reflect", "symmetric"])}


def random_pipeline(rng):
    ops = [random_op(rng) for _ in range(rng.randint(0, 4))]
    end = rng.choice([[], [{"normalize": "imagenet"}], [{"to": {"dtype": rng.choice(["u8", "f16", "bf16", "f32"])}}]])
    return ["decode", *ops, {"center_crop": rng.randint(1, 250)}, *end]


def test_random_pipelines_on_random_sizes():
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    numbers = numpy.random.default_rng(seed)
    for round in range(150):
        w, h = rng.randint(1, 320), rng.randint(1, 320)
        image = Image.fromarray(numbers.integers(0, 256, (h, w, 3), numpy.uint8))
        out = io.BytesIO()
        image.save(out, "JPEG", quality=rng.randint(40, 100), subsampling=rng.randrange(3), progressive=rng.random() < 0.3)
        pipelines = [random_pipeline(rng) for _ in range(rng.randint(1, 4))]
        try:
            with Pipelines(*pipelines, augment_seed=rng.getrandbits(64)) as plan:
                check(plan, pipelines, out.getvalue(), rng.getrandbits(48), rng.getrandbits(20))
        except (BadSample, ValueError) as error:
            # A 1-pixel side makes a shorter-side resize pass the largest picture: known before, or from the sample.
            # A colour, or its mean, is none of a picture's of one channel.
            assert any(words in str(error) for words in ("shape", "the longer side would be", "the samples have one channel")), (seed, round, error)


def test_other_formats(photograph_bytes):
    pipelines = [TRAIN, TEST, ["decode", {"random_resized_crop": {"size": 50, "augment_seed": 1}}]]
    with Pipelines(*pipelines) as plan:
        for id, data in enumerate(photograph_bytes[::40]):
            for format, mode in [("PNG", "RGB"), ("PNG", "L"), ("PNG", "RGBA"), ("JPEG", "L"), ("WEBP", "RGB"), ("TIFF", "RGB")]:
                out = io.BytesIO()
                Image.open(io.BytesIO(data)).convert(mode).save(out, format)
                check(plan, pipelines, out.getvalue(), id, turn=1)


def test_the_documented_options_change_what_they_say(photograph_bytes):
    """`pillow: 12` differs from 13 in some pixels by 1, and in crops that are cut flat only."""
    with Pipelines(["decode", {"resize": {"size": [40, 300]}}], ["decode", {"resize": {"size": [40, 300], "pillow": 12}}]) as plan:
        differences = set()
        for data in photograph_bytes[::10]:
            new, old = plan.run(data)
            differences |= set(numpy.unique(numpy.abs(new.astype(int) - old.astype(int))))
        assert differences == {0, 1}


def encoded(image, format="PNG", **options):
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


JITTER = {"brightness": [0.5, 2], "contrast": [0.3, 3], "saturation": [0, 3], "hue": [-0.5, 0.5]}
MODES = ["constant", "edge", "reflect", "symmetric"]


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (2, 1), (3, 2), (33, 17)])
@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "RGBA"])
def test_small_and_gray_pictures(size, mode):
    """Padding wider than the picture, mirrored again and again; colours of one pixel and of gray."""
    numbers = numpy.random.default_rng(23)
    data = encoded(Image.fromarray(numbers.integers(0, 256, (size[1], size[0], 3), numpy.uint8)).convert(mode))
    ends = ["grayscale", GRAY, {"color_jitter": JITTER}]
    pipelines = [["decode", {"pad": {"padding": [0, 5, 9, 2], "padding_mode": border, "fill": [1, 2, 3]}}, {"center_crop": [9, 11]}, end]
                 for border in MODES for end in ends]
    pipelines += [["decode", {"random_crop": {"size": [8, 9], "padding": [3, 0, 0, 1], "padding_mode": border, "fill": 70, "pad_if_needed": True}},
                   {"random_vertical_flip": 0.5}, end] for border in MODES for end in ends]
    pipelines += [["decode", end, {"random_crop": {"size": 1}}] for end in ends]
    with Pipelines(*pipelines, augment_seed=2) as plan:
        for id in range(30):
            check(plan, pipelines, data, id, turn=id % 4)


def test_a_crop_that_shows_padding_only():
    data = encoded(Image.new("RGB", (2, 2), (10, 20, 30)))
    for border, level in [("constant", [200, 100, 0]), ("edge", [10, 20, 30])]:
        pipeline = ["decode", {"random_crop": {"size": 1, "padding": 20, "padding_mode": border, "fill": [200, 100, 0]}},
                    {"to": {"dtype": "u8", "layout": "hwc"}}]
        with Pipelines(pipeline, augment_seed=2) as plan:
            seen = [plan.run(data, id=id)[0].reshape(3).tolist() for id in range(20)]
            assert level in seen
            for id in range(20):
                check(plan, [pipeline], data, id, turn=0)


def test_a_picture_smaller_than_its_crop_is_a_bad_sample():
    with Pipelines(["decode", {"random_crop": {"size": 9, "padding": 1}}]) as plan:
        assert plan.run(encoded(Image.new("RGB", (7, 8))))[0].shape == (3, 9, 9)
        with pytest.raises(BadSample, match="shape: random_crop"):
            plan.run(encoded(Image.new("RGB", (6, 8))))


def test_colours_of_photographs(photograph_bytes):
    """Alone and in a fork: a branch's colours are not those of its neighbours."""
    common = ["decode", {"resize": [224, 224]}]
    pipelines = [common + [{"color_jitter": {kind: value}}] for kind, value in JITTER.items()]
    pipelines += [common + [{"color_jitter": JITTER}], common + ["grayscale"], common + [GRAY], common]
    with Pipelines(*pipelines, augment_seed=31) as plan:
        for id, data in enumerate(photograph_bytes[::5]):
            check(plan, pipelines, data, id, turn=2)
