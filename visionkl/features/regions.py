"""Regions of a picture: which of its pixels are described, and the box that cells are laid over.

A mask says which pixels belong to an object. Of it there are

==============  ================================================================================
`"foreground"`  the pixels of the mask; cells are laid over its bounding box
`"background"`  all others; cells are laid over the picture
`"box"`         all pixels in the mask's bounding box
`"contour"`     pixels at most 2 from the mask's border, on either side; where the picture ends
                there is no border
`"whole"`       the picture, whatever the mask
==============  ================================================================================

Without a mask there is only the whole picture, which is its own foreground and box.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from visionkl.core.errors import DataError
from visionkl.features.local import LocalDescriptors

#: What there is of a mask.
REGIONS = ("foreground", "background", "box", "contour", "whole")
#: What there is of them without a mask.
WITHOUT_MASK = ("foreground", "box", "whole")

_REACH = 2  # of the contour, in pixels

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Region:
    """Part of a picture.

    Parameters
    ----------
    box : tuple of int
        Top, left, bottom and right, half-open.
    inside : ndarray of uint8, shape (rows, cols), optional
        1 for pixels that belong to the region; all of the box do by default.
    """

    box: tuple[int, int, int, int]
    inside: npt.NDArray[np.uint8] | None = None

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> Region:
        """Return all of a picture `(rows, cols)`."""
        return cls((0, 0, shape[0], shape[1]))

    @classmethod
    def of(cls, mask: Mask, kind: str) -> Region:
        """Return what `kind` names of a mask `(rows, cols)`; see the top of this module.

        Examples
        --------
        >>> mask = np.zeros((20, 30), bool)
        >>> mask[5:9, 10:20] = True
        >>> Region.of(mask, "foreground").box, Region.of(mask, "contour").box
        ((5, 10, 9, 20), (3, 8, 11, 22))
        """
        if kind == "whole":
            return cls.whole(mask.shape)
        if kind == "background":
            return cls((0, 0, *mask.shape), (~mask).view(np.uint8))
        if kind == "contour":
            square = np.ones((2 * _REACH + 1, 2 * _REACH + 1), np.uint8)
            pixels = mask.view(np.uint8)
            band = cv2.dilate(pixels, square) != cv2.erode(pixels, square)
            return cls(bounding_box(band), band.view(np.uint8))
        return cls(bounding_box(mask), None if kind == "box" else mask.view(np.uint8))

    def select(self, descriptors: LocalDescriptors) -> LocalDescriptors:
        """Return those whose centres lie in the region, as descriptors of the box's part of the picture."""
        top, left, bottom, right = self.box
        width, height = descriptors.image_size
        x, y = np.clip(descriptors.positions.astype(np.int64), 0, (width - 1, height - 1)).T
        if self.inside is None and self.box == (0, 0, height, width):
            return descriptors
        chosen = (y >= top) & (y < bottom) & (x >= left) & (x < right)
        if self.inside is not None:
            chosen[chosen] = self.inside[y[chosen], x[chosen]] != 0
        found = descriptors[chosen]
        places = found.positions - np.array([left, top], np.float32)
        return LocalDescriptors(found.values, places, found.sizes, (right - left, bottom - top))


def bounding_box(mask: npt.NDArray[Any]) -> tuple[int, int, int, int]:
    """Return top, left, bottom and right of the pixels that are not 0; all 0 if there is none."""
    rows, cols = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return (0, 0, 0, 0)
    return int(rows[0]), int(cols[0]), int(rows[-1]) + 1, int(cols[-1]) + 1


def check_masks(name: str, masks: Any, shape: tuple[int, ...]) -> Mask:
    """Return the masks of a picture as `(n, rows, cols)` of bool; complain of others and of empty ones.

    Parameters
    ----------
    name : str
        What complaints call the picture.
    masks : array_like of bool or number, shape (n, rows, cols)
        What is not 0 is foreground.
    shape : tuple of int
        Rows and columns of the picture.

    Examples
    --------
    >>> check_masks("a.jpg", np.zeros((1, 4, 4)), (4, 4))
    Traceback (most recent call last):
    visionkl.core.errors.DataError: a.jpg: mask number 0 is empty; leave it out.
    """
    array = np.asarray(masks)
    if array.ndim != 3 or array.shape[1:] != tuple(shape[:2]):
        raise DataError(
            f"{name}: the masks have the shape {array.shape}, but the picture has {shape[0]} rows and "
            f"{shape[1]} columns; masks must have the shape (n, {shape[0]}, {shape[1]})."
        )
    if array.dtype.kind not in "buif":
        raise DataError(f"{name}: masks must be arrays of bool or of numbers, not of {array.dtype}.")
    own = np.ascontiguousarray(array != 0)
    empty = np.flatnonzero(~own.any(axis=(1, 2)))
    if len(empty):
        raise DataError(f"{name}: mask number {empty[0]} is empty; leave it out.")
    return own
