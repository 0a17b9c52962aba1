"""Surfaces and light of the sample set: textured backgrounds, lit objects, the exposure of a picture.

All pictures here are float32 RGB `(rows, cols, 3)` in about 0..1; only `expose` makes 8 bits of them.
"""

import cv2
import numpy as np
import numpy.typing as npt

from visionkl.datasets.sample_shapes import Pixels, Random, Sprite, rotation


def draw_background(rng: Random, width: int, height: int) -> Pixels:
    """Paint clouds, stripes, tiles, or a sky over a ground, with strokes and polygons on them."""
    kind = rng.choice(["clouds", "stripes", "tiles", "landscape"])
    texture = _clouds(rng, height, width, roughness=rng.uniform(0.5, 0.95))
    x, y = np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)[:, None]
    turn = rotation(rng.uniform(0, 180)).astype(np.float32)
    u, v = turn[0, 0] * x + turn[0, 1] * y, turn[1, 0] * x + turn[1, 1] * y
    if kind == "stripes":
        waves = np.sin(u * np.float32(2 * np.pi / rng.uniform(10, 50)) + 4 * texture)
        texture = 0.6 * texture + 0.2 + 0.2 * waves
    elif kind == "tiles":
        across, down = rng.uniform(20, 70), rng.uniform(15, 40)
        row = v / down
        column = u / across + np.floor(row) / 2
        joint = (row - np.floor(row) < 3 / down) | (column - np.floor(column) < 3 / across)
        texture = np.where(joint, np.float32(rng.uniform(0, 1)), 0.7 * texture + 0.15)
    picture = _coloured(rng, texture)
    if kind == "landscape":
        horizon = height * rng.uniform(0.3, 0.65) + 20 * (texture[height // 2] - 0.5)
        np.copyto(picture, _coloured(rng, texture), where=(y > horizon)[..., None])
    for _ in range(rng.integers(4, 16)):
        colour = tuple(float(c) for c in rng.uniform(0.05, 0.95, 3))
        start = rng.uniform(-0.1, 1.1, 2) * (width, height)
        if rng.uniform() < 0.6:
            ends = start + np.cumsum(rng.normal(0, 45, size=(rng.integers(2, 5), 2)), axis=0)
            cv2.polylines(picture, [ends.astype(np.int32)], False, colour, int(rng.integers(1, 9)))
        else:
            corners = start + rng.normal(0, rng.uniform(10, 60), size=(rng.integers(3, 6), 2))
            cv2.fillPoly(picture, [cv2.convexHull(corners.astype(np.int32))], colour)
    picture *= on_all_channels(0.85 + 0.3 * _clouds(rng, height, width, roughness=0.9))
    return picture


def light_up(rng: Random, sprite: Sprite) -> Sprite:
    """Light an object from one side and roughen its paint."""
    rough = _clouds(rng, *sprite.size, roughness=1.0, cells=(4, 16, 40)) - np.float32(0.5)
    shade = _slope(rng, *sprite.size, steepest=0.3) * (1 + rng.uniform(0.1, 0.6) * rough)
    return Sprite(sprite.colour * on_all_channels(shade), sprite.opacity)


def expose(rng: Random, picture: Pixels) -> npt.NDArray[np.uint8]:
    """Let light fall over the scene, a lens blur it and a sensor add noise: uint8 RGB."""
    rows, cols = picture.shape[:2]
    brightness = _slope(rng, rows, cols, steepest=0.45) * rng.uniform(0.7, 1.15)
    light = cv2.merge([brightness * channel for channel in rng.uniform(0.85, 1.15, 3)])
    exposed = cv2.multiply(picture, light, scale=255, dtype=cv2.CV_8U)
    gamma, contrast, level = np.exp(rng.uniform(-0.4, 0.4)), rng.uniform(0.55, 1.0), rng.uniform(0, 1)
    tones = contrast * np.linspace(0, 1, 256) ** gamma + level * (1 - contrast)
    exposed = cv2.LUT(exposed, np.rint(255 * tones).astype(np.uint8))
    blur = rng.uniform(0, 1.3)
    if blur > 0.3:
        exposed = cv2.GaussianBlur(exposed, (0, 0), blur)
    noise = rng.uniform(0.5, 9.0) * rng.standard_normal((rows, cols), dtype=np.float32)
    return np.asarray(cv2.add(exposed, on_all_channels(noise), dtype=cv2.CV_8U), dtype=np.uint8)


def on_all_channels(values: Pixels) -> Pixels:
    """Repeat `(rows, cols)` as `(rows, cols, 3)`: faster to multiply with than a last axis of one."""
    return np.asarray(cv2.merge([values, values, values]), dtype=np.float32)


def _clouds(
    rng: Random, rows: int, cols: int, roughness: float, cells: tuple[int, ...] = (3, 6, 12, 24, 48, 96)
) -> Pixels:
    """Sum up random grids, each finer and `roughness` times as strong as the one before: 0..1."""
    total = np.zeros((rows, cols), np.float32)
    strengths = roughness ** np.arange(len(cells)) / np.sum(roughness ** np.arange(len(cells)))
    for n, strength in zip(cells, strengths, strict=True):
        grid = rng.random((n * rows // cols + 2, n + 1), dtype=np.float32) * np.float32(strength)
        total += cv2.resize(grid, (cols, rows), interpolation=cv2.INTER_LINEAR)
    return total


def _coloured(rng: Random, texture: Pixels) -> Pixels:
    """Paint a texture in 0..1 with a ramp through three colours."""
    colours = rng.uniform(0.05, 0.95, size=(3, 3))
    # Half way to grey: fully saturated walls look like nothing on earth.
    colours = 0.5 * colours + 0.5 * colours.mean(axis=1, keepdims=True)
    levels = np.linspace(0, 2, 256)
    ramp = np.stack([np.interp(levels, [0, 1, 2], channel) for channel in colours.T], axis=1)
    ramp = ramp.astype(np.float32)
    numbers = cv2.convertScaleAbs(texture, alpha=255)
    return np.asarray(cv2.LUT(cv2.merge([numbers] * 3), ramp[:, None]), dtype=np.float32)


def _slope(rng: Random, rows: int, cols: int, steepest: float) -> Pixels:
    """Brightness around 1 that rises evenly in a random direction."""
    towards, rise = rng.uniform(0, 2 * np.pi), rng.uniform(0, steepest)
    down = np.linspace(-1, 1, rows, dtype=np.float32) * np.float32(rise * np.sin(towards))
    across = np.linspace(-1, 1, cols, dtype=np.float32) * np.float32(rise * np.cos(towards))
    return 1 + down[:, None] + across
