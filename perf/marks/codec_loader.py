"""Samples per second of the whole data plane: FBL over the same pictures as PNG, of 2048 x 1024; over JPEG, of ImageNet's sizes."""

from measure import Result, as_fbl, imagenet, large, loader, ratios, rounds, samples_per_second, spec_write

PIPELINE = ["decode", {"random_resized_crop": 224}, "random_horizontal_flip", {"normalize": "imagenet"}, "to"]
LEVELS = ("small", "fast")
UNIT = "samples per second, FBL %s / %s, decode to normalize"


def side(folder, title, batch, epochs):
    spec = spec_write(f"codec-loader-{folder.name}", PIPELINE, folder, batch)
    return loader(title, spec, epochs)


def measure_kind(pairs, name, folder, title, batch, epochs, epochs_fbl, mark):
    """One side of another format, two of FBL; turns differ in epochs, so that each takes about as long."""
    made = {level: as_fbl(folder, level) for level in LEVELS}
    sizes = {level: sum(path.stat().st_size for path in folder.rglob("*.*")) for level, folder in [(title, folder), *made.items()]}
    other = side(folder, title, batch, epochs)
    ours = {level: side(made[level], f"FBL {level}", batch, epochs_fbl) for level in LEVELS}
    rounds(pairs, [other, *ours.values()])
    return [
        Result(f"codec_loader_{name}_{level}", UNIT % (level, title), ratios(of, other, samples_per_second), mark,
               detail=f"{of.summary()}; {other.summary()}; {sizes[level] / sizes[title]:.3f} of its bytes")
        for level, of in ours.items()
    ]  # fmt: skip


def measure(pairs):
    results = measure_kind(pairs, "png", large(), "PNG", 32, 1, 12, 9.29)
    return results + measure_kind(pairs, "jpeg", imagenet(), "JPEG", 64, 1, 1, None)
