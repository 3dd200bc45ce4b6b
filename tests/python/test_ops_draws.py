"""Draws follow torchvision's rules: distributions compared with those of an independent implementation, and with the exact ones."""

import itertools
import math
import random

import numpy
import pytest

from pipeline_library import KINDS, Pipelines

DRAWS = 6000
# One test in 10,000 fails by chance at this level; seeds are fixed, so a pass stays a pass.
LEVEL = 1e-4


def kolmogorov_p(ours, theirs):
    """The two-sample Kolmogorov-Smirnov test's p-value, asymptotic."""
    ours, theirs = sorted(ours), sorted(theirs)
    i = j = 0
    distance = 0.0
    while i < len(ours) and j < len(theirs):
        at = min(ours[i], theirs[j])
        while i < len(ours) and ours[i] == at:
            i += 1
        while j < len(theirs) and theirs[j] == at:
            j += 1
        distance = max(distance, abs(i / len(ours) - j / len(theirs)))
    scaled = distance * math.sqrt(len(ours) * len(theirs) / (len(ours) + len(theirs)))
    if scaled < 0.3:
        return 1.0
    return min(1.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 50)))


def chi_square_p(counts, expected):
    """Wilson and Hilferty's approximation."""
    degrees = len(counts) - 1
    statistic = sum((count - expected) ** 2 / expected for count in counts)
    z = ((statistic / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / math.sqrt(2 / (9 * degrees))
    return 0.5 * math.erfc(z / math.sqrt(2))


def torchvision_crop(rng, width, height, scale, ratio):
    """RandomResizedCrop.get_params, as torchvision has it: (x, y, w, h)."""
    area = height * width
    log_ratio = (math.log(ratio[0]), math.log(ratio[1]))
    for _ in range(10):
        target_area = area * rng.uniform(*scale)
        aspect_ratio = math.exp(rng.uniform(*log_ratio))
        w = int(round(math.sqrt(target_area * aspect_ratio)))
        h = int(round(math.sqrt(target_area / aspect_ratio)))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, width - w), rng.randint(0, height - h), w, h
    in_ratio = width / height
    w, h = width, height
    if in_ratio < min(ratio):
        h = int(round(w / min(ratio)))
    elif in_ratio > max(ratio):
        w = int(round(h * max(ratio)))
    return (width - w) // 2, (height - h) // 2, w, h


CASES = [
    (500, 375, (0.08, 1), (3 / 4, 4 / 3)),
    (375, 500, (0.08, 1), (3 / 4, 4 / 3)),
    (500, 100, (0.08, 1), (3 / 4, 4 / 3)),  # many tries fail
    (64, 64, (0.5, 1), (0.9, 1.1)),
    (600, 20, (0.9, 1), (3 / 4, 4 / 3)),  # the fallback only
    (300, 300, (0.25, 0.25), (1, 1)),
]


@pytest.mark.parametrize("width, height, scale, ratio", CASES)
def test_random_resized_crop(width, height, scale, ratio):
    rng = random.Random(71)
    theirs = [torchvision_crop(rng, width, height, scale, ratio) for _ in range(DRAWS)]
    op = {"random_resized_crop": {"size": 8, "scale": list(scale), "ratio": list(ratio)}}
    with Pipelines(["decode", op], augment_seed=5) as plan:
        steps = [plan.trace(width, height, id=id, turn=id % 3)[1] for id in range(DRAWS)]
    ours = [(step.crop_x, step.crop_y, step.crop_w, step.crop_h) for step in steps]
    measures = {
        "x": lambda box: box[0],
        "y": lambda box: box[1],
        "w": lambda box: box[2],
        "h": lambda box: box[3],
        "area": lambda box: box[2] * box[3],
        "aspect": lambda box: box[2] / box[3],
        "place across": lambda box: box[0] / max(1, width - box[2]),
        "place down": lambda box: box[1] / max(1, height - box[3]),
    }
    for name, measure in measures.items():
        p = kolmogorov_p([measure(box) for box in ours], [measure(box) for box in theirs])
        assert p > LEVEL, (name, p)


def test_the_whole_picture_when_only_it_fits():
    with Pipelines(["decode", {"random_resized_crop": {"size": 8, "scale": [1, 1], "ratio": [1, 1]}}]) as plan:
        step = plan.trace(50, 50, id=3)[1]
    assert (step.crop_x, step.crop_y, step.crop_w, step.crop_h) == (0, 0, 50, 50)


def test_offsets_are_uniform_and_inclusive():
    """A crop of 41 x 41 out of 50 x 50 has 10 places each way."""
    with Pipelines(["decode", {"random_resized_crop": {"size": 8, "scale": [0.6724, 0.6724], "ratio": [1, 1]}}]) as plan:
        steps = [plan.trace(50, 50, id=id)[1] for id in range(DRAWS)]
    assert {(step.crop_w, step.crop_h) for step in steps} == {(41, 41)}
    for places in ([step.crop_x for step in steps], [step.crop_y for step in steps]):
        assert set(places) == set(range(10))
        assert chi_square_p([places.count(place) for place in range(10)], DRAWS / 10) > LEVEL


@pytest.mark.parametrize("op, side", [("random_horizontal_flip", "mirror"), ("random_vertical_flip", "upend")])
@pytest.mark.parametrize("p", [0, 0.1, 0.5, 1])
def test_flips(op, side, p):
    with Pipelines(["decode", {"center_crop": 8}, {op: p}], augment_seed=3) as plan:
        flips = [getattr(plan.trace(9, 9, id=id)[2], side) for id in range(DRAWS)]
    deviation = abs(sum(flips) - DRAWS * p)
    assert deviation <= 4 * math.sqrt(DRAWS * p * (1 - p))


def test_draws_of_different_ops_samples_and_turns_are_independent():
    """Pairs of flips that differ in one thing agree half of the time."""
    pipeline = ["decode", {"center_crop": 8}, {"random_horizontal_flip": 0.5}, {"random_horizontal_flip": 0.5}]
    with Pipelines(pipeline, augment_seed=1) as plan, Pipelines(pipeline, augment_seed=2) as other:
        def flip(which=plan, op=2, **work):
            return which.trace(9, 9, **work)[op].mirror

        def agreement(a, b):
            return sum(a(id) == b(id) for id in range(DRAWS)) / DRAWS

        def first(id):
            return flip(id=id)
        pairs = {
            "op": lambda id: flip(op=3, id=id),
            "id": lambda id: flip(id=id + 1),
            "high id": lambda id: flip(id=id + (1 << 40)),
            "turn": lambda id: flip(id=id, turn=1),
            "repeat": lambda id: flip(id=id, repeat=1),
            "seed": lambda id: flip(which=other, id=id),
        }
        for name, second in pairs.items():
            assert abs(agreement(first, second) - 0.5) < 4 * 0.5 / math.sqrt(DRAWS), name
        assert agreement(first, first) == 1


@pytest.mark.parametrize("padding, places", [(0, (11, 7)), (4, (19, 15)), ([0, 1, 2, 3], (13, 11))])
def test_random_crop_is_uniform_over_inclusive_offsets(padding, places):
    with Pipelines(["decode", {"random_crop": {"size": 20, "padding": padding}}], augment_seed=6) as plan:
        steps = [plan.trace(30, 26, id=id, turn=id % 5)[1] for id in range(DRAWS)]
    for drawn, count in zip(([step.crop_x for step in steps], [step.crop_y for step in steps]), places):
        assert set(drawn) == set(range(count))
        assert chi_square_p([drawn.count(place) for place in range(count)], DRAWS / count) > LEVEL
    pairs = [step.crop_x % 3 * 3 + step.crop_y % 3 for step in steps if step.crop_x < 9 and step.crop_y < 6]
    assert chi_square_p([pairs.count(pair) for pair in range(9)], len(pairs) / 9) > LEVEL, "across and down are independent"


def test_random_crop_of_its_own_size_is_the_picture():
    with Pipelines(["decode", {"random_crop": [26, 30]}]) as plan:
        step = plan.trace(30, 26, id=3)[1]
    assert (step.crop_x, step.crop_y, step.crop_w, step.crop_h) == (0, 0, 30, 26)


RANGES = {"brightness": (0.6, 1.4), "contrast": (0.0, 3.0), "saturation": (0.5, 0.5), "hue": (-0.1, 0.3)}


def jitters(draws=DRAWS, seed=8, **ranges):
    with Pipelines(["decode", {"center_crop": 8}, {"color_jitter": ranges}], augment_seed=seed) as plan:
        return [plan.trace(9, 9, id=id, turn=id % 3)[2].adjustments for id in range(draws)]


def test_color_jitter_draws_every_order():
    drawn = [tuple(kind for kind, _ in applied) for applied in jitters(brightness=0.4, contrast=2, saturation=0.5, hue=0.1)]
    orders = list(itertools.permutations(KINDS))
    assert set(drawn) == set(orders)
    assert chi_square_p([drawn.count(order) for order in orders], DRAWS / len(orders)) > LEVEL


def test_color_jitter_draws_factors_uniformly():
    applied = jitters(**{kind: list(range) for kind, range in RANGES.items()})
    rng = random.Random(5)
    for kind, (low, high) in RANGES.items():
        factors = [dict(draw)[kind] for draw in applied]
        if low == high:
            assert set(factors) == {low}
            continue
        assert low <= min(factors) and max(factors) <= numpy.float32(high)
        assert kolmogorov_p(factors, [rng.uniform(low, high) for _ in range(DRAWS)]) > LEVEL, kind


@pytest.mark.parametrize("given, ranges", [
    ({"brightness": 0.25}, {"brightness": (0.75, 1.25)}),
    ({"contrast": 1.5}, {"contrast": (0, 2.5)}),
    ({"saturation": [1, 1], "hue": 0.5}, {"hue": (-0.5, 0.5)}),
    ({"hue": 0, "brightness": 0}, {}),
])
def test_color_jitter_applies_what_is_given(given, ranges):
    """As torchvision does, it leaves out what can't change a picture, and only that."""
    applied = jitters(600, **given)
    assert all(set(dict(draw)) == set(ranges) for draw in applied)
    for kind, (low, high) in ranges.items():
        factors = [dict(draw)[kind] for draw in applied]
        assert low <= min(factors) < low + (high - low) * 0.05 and high - (high - low) * 0.05 < max(factors) <= high


def test_what_color_jitter_draws_for_one_doesnt_depend_on_the_others():
    alone, all = jitters(200, hue=0.1), jitters(200, brightness=1, contrast=1, saturation=1, hue=0.1)
    assert [dict(draw)["hue"] for draw in alone] == [dict(draw)["hue"] for draw in all]


class Philox:
    """The documented generator, from the paper: philox4x32-10, keyed and counted as kernels/philox.h says."""

    def __init__(self, seed, ordinal, turn, id, repeat):
        self.key = [seed & 0xFFFFFFFF, seed >> 32 ^ ordinal * 0x9E3779B1 & 0xFFFFFFFF]
        self.counter = [turn & 0xFFFFFFFF, id & 0xFFFFFFFF, (id >> 32) << 16 & 0xFFFFFFFF ^ repeat, 0]
        self.words = []

    def u32(self):
        if not self.words:
            c, (k0, k1) = list(self.counter), self.key
            for _ in range(10):
                p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
                c = [p1 >> 32 ^ c[1] ^ k0, p1 & 0xFFFFFFFF, p0 >> 32 ^ c[3] ^ k1, p0 & 0xFFFFFFFF]
                k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
            self.words, self.counter[3] = c, self.counter[3] + 1
        return self.words.pop(0)

    def unit(self):
        high, low = self.u32(), self.u32()
        return ((high << 32 | low) >> 11) / 2**53

    def below(self, n):
        product = self.u32() * n
        while (product & 0xFFFFFFFF) < (2**32 - n) % n:
            product = self.u32() * n
        return product >> 32


def test_draws_are_the_documented_ones():
    """What docs/spec.md says of the order of draws, followed by an independent generator."""
    seed, ids = 0x1234567890ABCDEF, [0, 1, 77, 1 << 33 | 5]
    jitter = {kind: list(range) for kind, range in RANGES.items()}
    pipeline = ["decode", {"random_crop": {"size": [20, 24], "padding": 2}}, {"color_jitter": jitter}]
    with Pipelines(pipeline, augment_seed=seed) as plan:
        for id, turn, repeat in itertools.product(ids, [0, 9], [0, 2]):
            _, crop, colours, _ = plan.trace(30, 26, id=id, turn=turn, repeat=repeat)
            draw = Philox(seed, 0, turn, id, repeat)
            y = draw.below(26 + 4 - 20 + 1)
            assert (crop.crop_x, crop.crop_y) == (draw.below(30 + 4 - 24 + 1), y)

            draw, order = Philox(seed, 1, turn, id, repeat), list(KINDS)
            for last in (3, 2, 1):
                other = draw.below(last + 1)
                order[last], order[other] = order[other], order[last]
            factors = {kind: float(numpy.float32(low + (high - low) * draw.unit())) for kind, (low, high) in RANGES.items()}
            assert colours.adjustments == [(kind, factors[kind]) for kind in order]
