"""Draws follow torchvision's rules: distributions compared with those of an independent implementation, and with the exact ones."""

import math
import random

import pytest

from pipeline_library import Pipelines

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
