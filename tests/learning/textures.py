"""Pictures of textures that are told apart at a glance: stripes that lie, that stand, and squares."""

from pathlib import Path

import numpy as np
from PIL import Image

TEXTURES = ("lying", "squares", "standing")

#: A classifier that learns in a moment.
TINY = {
    "step": 6,
    "bin_sizes": [3, 4],
    "n_pca": 8,
    "n_gaussians": 4,
    "cells": [1, 2],
    "n_codewords": 8,
    "block_size": 4,
}
TINY_OPTIONS = [
    word
    for name, value in TINY.items()
    for word in (
        f"--{name.replace('_', '-')}",
        *map(str, value if isinstance(value, list) else [value]),
    )
]


def texture(name, number, side=44):
    """Draw a texture, a little different each time: uint8 RGB."""
    random = np.random.default_rng([TEXTURES.index(name), number])
    rows, cols = np.mgrid[:side, :side] + random.uniform(0, 9, 2)[:, None, None]
    lying, standing = np.sin(0.7 * rows), np.sin(0.7 * cols)
    wave = {"lying": lying, "standing": standing, "squares": lying * standing}[name]
    wave = 128 + 80 * wave + random.normal(0, 5, (side, side))
    return np.clip(np.repeat(wave[:, :, None], 3, axis=2), 0, 255).astype(np.uint8)


def write_folder(folder: Path, n: int = 10, first: int = 0) -> Path:
    """Write a folder of classes."""
    for name in TEXTURES:
        (folder / name).mkdir(parents=True)
        for number in range(first, first + n):
            Image.fromarray(texture(name, number)).save(folder / name / f"{number:03}.png")
    return folder
