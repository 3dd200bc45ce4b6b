"""FBL beside PNG at level 9 by libpng: sizes, decoding and encoding, on photographs, masks, screenshots, gray and 16 bits."""

import subprocess

from measure import DATA, ROOT, Result, imagenet, run_program

KINDS = ["photo", "gray", "deep", "mask", "screen"]
# What is wanted: at most for sizes, at least for the rest. Of decoding what AVX2 is to reach, and AVX-512.
SIZES = {
    "fbl_photo_small_size": 0.775,
    "fbl_photo_fast_size": 0.925,
    "fbl_mask_small_size": 0.60,
    "fbl_screen_small_size": 0.60,
}
SPEEDS = {
    "fbl_photo_small_decode": 9.29,
    "fbl_photo_fast_decode": 12,
    "fbl_photo_small_encode": 80,
    "fbl_photo_small_encode_large": 120,
    "fbl_photo_fast_encode_large": 1200,
}


def measure(pairs):
    python = ROOT / "build" / "venv" / "bin" / "python"
    folder = DATA / "fbl"
    subprocess.run([python, ROOT / "perf" / "fbl" / "pictures.py", imagenet(), folder], check=True)
    figures = run_program("fbl", "fbl/bench_fbl", pairs, *[folder / kind for kind in KINDS])
    return [
        Result(name, figure["unit"], figure["samples"], SIZES.get(name, SPEEDS.get(name)), name not in SIZES)
        for name, figure in figures.items()
    ]
