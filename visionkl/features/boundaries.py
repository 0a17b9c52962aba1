"""How strong the boundaries between things are, pixel by pixel: in colour at three scales, and in texture.

Fundamentals
------------
A boundary is a place where several *layers* of a picture change together in one direction. The layers of
colour are CIE Lab's three; those of texture say how much of the fine contrast has which of four orientations
nearby. With `g_l` the gradient of layer `l` (of a Gaussian of width s, times s, so that a step is as strong
at every scale), the strength is the root of the larger eigenvalue of `sum_l g_l g_l'`: a step in one layer
counts in full, steps of several layers in one direction add up, and changes in all directions, as in a
texture, count once.

Implementation
--------------
OpenCV blurs; the rest is arithmetic on whole maps.
"""

from __future__ import annotations

import math

import cv2
import numpy as np
import numpy.typing as npt

#: Widths of the Gaussians of the colour maps, in pixels.
COLOUR_SCALES = (1.0, 2.0, 4.0)
#: Width of the Gaussian of the texture map, and of the window in which contrast is collected.
TEXTURE_SCALE = 3.0

_ORIENTATIONS = 4

FloatArray = npt.NDArray[np.float32]


def lab_picture(image: npt.NDArray[np.generic]) -> FloatArray:
    """Turn an RGB picture `(rows, cols, 3)` with values 0..255 into CIE Lab over 100."""
    shares = np.clip(np.ascontiguousarray(image, np.float32) / np.float32(255), 0, 1)
    return np.asarray(cv2.cvtColor(shares, cv2.COLOR_RGB2LAB), np.float32) / np.float32(100)


def boundary_maps(lab: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Measure the strength of boundaries.

    Parameters
    ----------
    lab : ndarray of float32, shape (rows, cols, 3)
        From `lab_picture`.

    Returns
    -------
    maps : ndarray of float32, shape (rows, cols, 4)
        Strengths in colour from fine to coarse, and in texture.
    texture : ndarray of float32, shape (rows, cols, 4)
        Contrast of four orientations around each pixel.
    """
    texture = _texture_layers(lab[:, :, 0])
    maps = [_strength(lab, scale) for scale in COLOUR_SCALES]
    return np.stack([*maps, _strength(texture, TEXTURE_SCALE)], axis=2), texture


def _texture_layers(lightness: FloatArray) -> FloatArray:
    right, down = _slopes(lightness, 1.0)
    size = np.hypot(right, down)
    layers = []
    for number in range(_ORIENTATIONS):
        angle = math.pi * number / _ORIENTATIONS
        along = np.abs(math.cos(angle) * right + math.sin(angle) * down)
        layers.append(along * along / np.maximum(size, np.float32(1e-6)))
    return _blurred(np.stack(layers, axis=2), TEXTURE_SCALE)


def _strength(layers: FloatArray, scale: float) -> FloatArray:
    right, down = _slopes(layers, scale)
    xx, xy, yy = ((one * other).sum(axis=2) for one, other in ((right, right), (right, down), (down, down)))
    larger = (xx + yy) / 2 + np.sqrt(np.square((xx - yy) / 2) + np.square(xy))
    return np.sqrt(np.maximum(larger, 0)).astype(np.float32)


def _slopes(layers: FloatArray, scale: float) -> tuple[FloatArray, FloatArray]:
    smooth = _blurred(layers, scale)
    across = np.array([[-0.5, 0, 0.5]], np.float32) * np.float32(scale)
    right, down = (
        cv2.filter2D(smooth, cv2.CV_32F, kernel, borderType=cv2.BORDER_REPLICATE)
        for kernel in (across, np.ascontiguousarray(across.T))
    )
    return np.asarray(right, np.float32), np.asarray(down, np.float32)


def _blurred(layers: FloatArray, scale: float) -> FloatArray:
    blurred = cv2.GaussianBlur(layers, (0, 0), scale, borderType=cv2.BORDER_REPLICATE)
    return np.asarray(blurred, np.float32)
