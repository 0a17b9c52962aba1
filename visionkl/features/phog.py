"""PHOG: a pyramid of histograms of oriented gradients (METHODS §11; Bosch, Zisserman & Muñoz).

Fundamentals
------------
Pixels vote for the direction of their gradient: with its length, shared linearly between the two nearest of
`n_orientations` directions. Directions are spread over half a turn, so that dark on bright is the same as
bright on dark, or over the whole turn with `signed=True`; the first is along the x axis. There is a histogram
for each cell of a pyramid: the whole, 2 × 2 cells, 4 × 4 cells, ..., `levels` in all; 3 levels of 20
directions make 21 · 20 = 420 numbers. The vector is divided by its l1 norm, so that all levels have the same
share in it; or by its l2 norm.

Which pixels vote, and how strongly, is a matter of `edges`:

==============  ==============================================================================
`"canny"`       those on Canny's edges, by their gradients. The threshold of strong edges is
                what 70 % of the pixels' gradients are below, that of weak ones 0.4 times as high.
`"gradient"`    all, by their gradients
a function      given the picture `(rows, cols[, 3])` it returns how strong an edge each pixel is,
                `(rows, cols)`, such as the probability of a boundary; the vote is as strong
==============  ==============================================================================

Before, the picture is smoothed by a Gaussian. Cells are laid over the picture, or over the box of one of its
regions (`visionkl.features.regions`): the edges inside a mask, along its contour, or in its box.

Implementation
--------------
Half differences, directions to 2e-6 of an eighth of a turn; counts in double precision. Only the finest level
is counted, the others are its sums.

If unsure, take the defaults for the shape of objects, and `edges="gradient"` for texture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.phog import gradient_votes
from visionkl.core.errors import DataError
from visionkl.core.validation import check_choice, check_number, parameter_error
from visionkl.features.cells import Grids
from visionkl.features.histograms import FloatArray, PixelHistogram, grey_values
from visionkl.features.regions import REGIONS, Region, check_masks
from visionkl.features.votes import Votes

_STRONG = 0.7  # share of pixels with gradients below the threshold of strong edges
_WEAK = 0.4  # threshold of weak edges, by that of strong ones
_STEPS = 16  # gradients are told to a 16th of a grey value, which is what 16 bits hold

EdgeFinder = Callable[[npt.NDArray[Any]], npt.ArrayLike]


class PHOG(PixelHistogram):
    """Describes pictures by pyramids of histograms of oriented gradients, as a scikit-learn transformer.

    Parameters
    ----------
    n_orientations : int
        Directions of gradients.
    levels : int
        Levels of the pyramid: 3 are the whole, 2 × 2 and 4 × 4 cells.
    signed : bool
        Whether directions span the whole turn.
    edges : "canny", "gradient" or callable
        Which pixels vote; see the top of this module.
    smoothing : float
        Sigma of the Gaussian that smooths the picture, in pixels; 0 for none.
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
    >>> stripes = np.tile(np.arange(64) % 16 * 16, (48, 1))
    >>> vectors = PHOG(8, levels=2, edges="gradient").fit_transform([stripes, stripes.T])
    >>> vectors.shape, vectors[:, :8].argmax(axis=1)  # along x, and along y
    ((2, 40), array([0, 4]))
    """

    def __init__(
        self,
        n_orientations: int = 20,
        *,
        levels: int = 3,
        signed: bool = False,
        edges: str | EdgeFinder = "canny",
        smoothing: float = 1.4,
        norm: str = "l1",
        n_jobs: int | None = None,
    ) -> None:
        self.n_orientations = n_orientations
        self.levels = levels
        self.signed = signed
        self.edges = edges
        self.smoothing = smoothing
        self.norm = norm
        self.n_jobs = n_jobs

    def _votes(self, image: npt.NDArray[Any]) -> Votes:
        grey = grey_values(image, self._owner)
        if self.smoothing:
            smooth = cv2.GaussianBlur(grey, (0, 0), self.smoothing, borderType=cv2.BORDER_REPLICATE)
            grey = smooth.astype(np.float32, copy=False)
        strengths = None if self.edges == "gradient" else self._strengths(image, grey)
        starts, cols, labels, weights = gradient_votes(grey, strengths, self.n_orientations, self.signed)
        return Votes(starts, cols, labels, self.n_orientations, grey.shape[1], weights)

    def _strengths(self, image: npt.NDArray[Any], grey: FloatArray) -> FloatArray:
        if not callable(self.edges):
            return canny_strengths(grey)
        strengths = np.ascontiguousarray(self.edges(image), np.float32)
        if strengths.shape != grey.shape:
            raise DataError(
                f"{self._owner}: the edges have the shape {strengths.shape}, but the picture has "
                f"{grey.shape[0]} rows and {grey.shape[1]} columns."
            )
        if not np.isfinite(strengths).all() or strengths.min(initial=0) < 0:
            raise DataError(f"{self._owner}: the edges hold numbers below 0, NaN or infinity.")
        return strengths

    def _settle(self) -> tuple[Grids, int]:
        owner = self._owner
        check_number(owner, "n_orientations", self.n_orientations, low=1, high=65535, integer=True)
        check_number(owner, "levels", self.levels, low=1, high=6, integer=True)
        check_choice(owner, "signed", self.signed, (True, False))
        check_number(owner, "smoothing", self.smoothing, low=0)
        if not callable(self.edges) and self.edges not in ("canny", "gradient"):
            accepted = "'canny', 'gradient', or a function from a picture to the strength of edges"
            raise parameter_error(owner, "edges", accepted, self.edges)
        return tuple((2**level, 2**level) for level in range(self.levels)), self.n_orientations


def phog(
    image: npt.ArrayLike,
    *,
    n_orientations: int = 20,
    levels: int = 3,
    signed: bool = False,
    edges: str | EdgeFinder | npt.ArrayLike = "canny",
    smoothing: float = 1.4,
    norm: str = "l1",
    mask: npt.ArrayLike | None = None,
    region: str = "foreground",
) -> FloatArray:
    """Describe a picture, or a region of it, by a pyramid of histograms of oriented gradients.

    Parameters
    ----------
    image : array_like, shape (rows, cols) or (rows, cols, 3)
        Values 0..255.
    n_orientations, levels, signed, smoothing, norm
        As in `PHOG`.
    edges : "canny", "gradient", callable or array_like, shape (rows, cols)
        As in `PHOG`; or how strong an edge each pixel is.
    mask : array_like of bool, shape (rows, cols), optional
        True in the foreground.
    region : {"foreground", "background", "box", "contour", "whole"}
        What of the mask is described; see `visionkl.features.regions`.

    Returns
    -------
    ndarray of float32, shape (n_cells * n_orientations,)
        Zero where nothing votes.

    Examples
    --------
    >>> picture = np.random.default_rng(0).uniform(0, 255, (40, 60))
    >>> phog(picture, n_orientations=40).shape, round(float(phog(picture).sum()), 3)
    ((840,), 1.0)
    """
    check_choice("phog", "region", region, REGIONS)
    given = edges if isinstance(edges, str) or callable(edges) else lambda _: edges
    own = PHOG(
        n_orientations, levels=levels, signed=signed, edges=given, smoothing=smoothing, norm=norm
    ).fit()
    votes = own.prepare(image)
    where = Region.whole(votes.shape)
    if mask is not None:
        where = Region.of(check_masks("phog", np.asarray(mask)[None], votes.shape)[0], region)
    return own.encode_region(votes, where)


def canny_strengths(grey: FloatArray) -> FloatArray:
    """Return the length of the gradient on Canny's edges, and 0 elsewhere."""
    dx, dy = (np.rint(cv2.Sobel(grey, cv2.CV_32F, *order, scale=_STEPS / 8)) for order in ((1, 0), (0, 1)))
    lengths = np.sqrt(dx * dx + dy * dy)  # exact, which OpenCV's is not everywhere alike
    at = int(_STRONG * (lengths.size - 1))
    strong = float(np.partition(lengths.ravel(), at)[at])
    found = cv2.Canny(dx.astype(np.int16), dy.astype(np.int16), _WEAK * strong, strong, L2gradient=True)
    return np.where(found > 0, lengths / np.float32(_STEPS), np.float32(0))
