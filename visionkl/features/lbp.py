"""LBP: local binary patterns and their histograms (METHODS §11; Ojala, Pietikäinen & Mäenpää).

Fundamentals
------------
About each pixel there are `n_points` points on a circle of `radius` pixels, the first to the right, the next
ones counter-clockwise. Those that are not darker than the pixel give a 1; between pixels, grey values are
interpolated. The ones and zeros are a pattern, and patterns become labels:

========================== =================================================================== ==============
`patterns`                 labels                                                              8 points
========================== =================================================================== ==============
`"all"`                    each pattern by itself: the number whose bit p is the point p's     256
`"uniform"`                patterns with at most two changes round the circle, such as         59
                           00111000; all others share the last label
`"rotation"`               patterns that are rotations of each other are the same              36
`"uniform rotation"`       both: how many ones a uniform pattern has, and one for the others   10
========================== =================================================================== ==============

`LBP` counts labels in the cells of a picture, or of the box of one of its regions
(`visionkl.features.regions`); `lbp` returns the labels themselves. Grey values are rounded to whole numbers.
The picture's border is repeated outside.

Implementation
--------------
Comparisons are exact (`visionkl.backend.cpu.lbp`). Away from the border, patterns are those of scikit-image's
`local_binary_pattern`, whose methods are called "default", "nri_uniform", "ror" and "uniform"; its own labels
for the second and third stand in another order.

If unsure, take the defaults; for textures that may be turned, `patterns="uniform rotation"`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.lbp import UNIT, least_rotations, patterns_into, uniform_labels
from visionkl.core.validation import check_choice, check_number
from visionkl.features.cells import Grids, check_cells
from visionkl.features.histograms import FloatArray, PixelHistogram, grey_values
from visionkl.features.votes import Votes

#: Most points, by kind: labels are 16-bit numbers, and there is a table of all patterns.
_MOST_POINTS = {"all": 16, "uniform": 24, "rotation": 16, "uniform rotation": 24}


class LBP(PixelHistogram):
    """Describes pictures by histograms of local binary patterns, as a scikit-learn transformer.

    Parameters
    ----------
    n_points : int
        Points on the circle.
    radius : float
        Of the circle, in pixels.
    patterns : {"uniform", "all", "rotation", "uniform rotation"}
        Which patterns are told apart; see the top of this module.
    cells : sequence of int or of (rows, cols)
        Grids of cells, each with a histogram of its own; a pyramid of three levels by default. See
        `visionkl.features.cells`.
    norm : {"l1", "l2", "none"}
        What the whole vector is divided by.
    n_jobs : int, optional
        Threads; all usable cores by default.

    Attributes
    ----------
    grids_ : tuple of (rows, cols)
    n_labels_ : int

    Examples
    --------
    >>> picture = np.random.default_rng(0).uniform(0, 255, (40, 60))
    >>> LBP(cells=(1, (2, 2))).fit_transform([picture]).shape  # 5 cells · 59 patterns
    (1, 295)
    """

    def __init__(
        self,
        n_points: int = 8,
        radius: float = 1.0,
        *,
        patterns: str = "uniform",
        cells: Any = (1, (2, 2), (4, 4)),
        norm: str = "l1",
        n_jobs: int | None = None,
    ) -> None:
        self.n_points = n_points
        self.radius = radius
        self.patterns = patterns
        self.cells = cells
        self.norm = norm
        self.n_jobs = n_jobs

    def _votes(self, image: npt.NDArray[Any]) -> Votes:
        labels = _labels(grey_values(image, self._owner), self.n_points, self.radius, self.patterns)
        return Votes.everywhere(labels, self.n_labels_)

    def _settle(self) -> tuple[Grids, int]:
        _check(self._owner, self.n_points, self.radius, self.patterns)
        return check_cells(self._owner, self.cells), n_patterns(self.n_points, self.patterns)


def lbp(
    image: npt.ArrayLike, *, n_points: int = 8, radius: float = 1.0, patterns: str = "uniform"
) -> npt.NDArray[np.uint16]:
    """Label each pixel of a picture by its local binary pattern.

    Parameters
    ----------
    image : array_like, shape (rows, cols) or (rows, cols, 3)
        Values 0..255.
    n_points, radius, patterns
        As in `LBP`.

    Returns
    -------
    ndarray of uint16, shape (rows, cols)

    Examples
    --------
    >>> lbp(np.eye(3) * 200, patterns="uniform rotation")[1, 1]  # no point is as bright as the middle
    np.uint16(0)
    """
    _check("lbp", n_points, radius, patterns)
    return _labels(grey_values(image, "lbp"), n_points, radius, patterns)


def n_patterns(n_points: int, patterns: str) -> int:
    """Count the labels that there are.

    Examples
    --------
    >>> [n_patterns(8, kind) for kind in ("all", "uniform", "rotation", "uniform rotation")]
    [256, 59, 36, 10]
    """
    if patterns == "uniform":
        return n_points * (n_points - 1) + 3
    return n_points + 2 if patterns == "uniform rotation" else int(_table(n_points, patterns).max()) + 1


def _check(owner: str, n_points: int, radius: float, patterns: str) -> None:
    check_choice(owner, "patterns", patterns, tuple(_MOST_POINTS))
    check_number(owner, "n_points", n_points, low=2, high=_MOST_POINTS[patterns], integer=True)
    check_number(owner, "radius", radius, low=0.5, high=256)


def _labels(grey: FloatArray, n_points: int, radius: float, patterns: str) -> npt.NDArray[np.uint16]:
    margin = int(radius) + 1
    padded = cv2.copyMakeBorder(np.rint(grey), margin, margin, margin, margin, cv2.BORDER_REPLICATE)
    labels = np.empty(grey.shape, np.uint16)
    offsets, shares = _points(n_points, radius, padded.shape[1])
    patterns_into(padded, margin, offsets, shares, _table(n_points, patterns), labels)
    return labels


def _points(n_points: int, radius: float, width: int) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Find the four pixels about each point of the circle, and what they count."""
    angles = 2 * np.pi * np.arange(n_points) / n_points
    # Five digits: what rounding makes of sin π is no place beside a pixel.
    places = np.round(np.stack([-radius * np.sin(angles), radius * np.cos(angles)], axis=1), 5)
    corners = np.floor(places).astype(np.int64)
    down, right = (places - corners).T
    exact = np.stack([(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right], axis=1)
    shares = np.rint(UNIT * exact)
    # Rounded, they must sum up to one all the same; the largest bears it best.
    shares[np.arange(n_points), shares.argmax(axis=1)] += UNIT - shares.sum(axis=1)
    offsets = (corners[:, :1] * width + corners[:, 1:]) + np.array([0, 1, width, width + 1])
    return offsets, shares.astype(np.float32)


@lru_cache(maxsize=8)
def _table(n_points: int, patterns: str) -> npt.NDArray[np.uint16]:
    """Tell the label of each pattern."""
    table = np.arange(2**n_points).astype(np.uint16)
    if patterns == "rotation":
        least = np.empty(2**n_points, np.int64)
        least_rotations(n_points, least)
        return np.unique(least, return_inverse=True)[1].astype(np.uint16)
    if patterns != "all":
        uniform_labels(n_points, patterns == "uniform rotation", table)
    return table
