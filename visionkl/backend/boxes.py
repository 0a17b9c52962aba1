"""Boxes of filters and of objects in a picture, in the words of the array API (see `visionkl.backend.glue`).

The formulas of what `visionkl.detection.boxes` does with a model: on NumPy arrays, or where a search on a GPU
has left its placements. Boxes are `x1, y1, x2, y2`; numbers are float64 until the last step.
"""

from __future__ import annotations

from typing import Any

from visionkl.backend.glue import filled, namespace


def boxes_of_places(places: Any, sizes: Any, cell: Any, padding: Any) -> Any:
    """Return the boxes that cells of a pyramid's levels cover in the picture.

    Parameters
    ----------
    places : array of int64, shape (..., 2)
        `(row, col)` of the first cell, on a level with its frame.
    sizes : array of float64, shape (..., 2)
        Rows and columns of cells.
    cell : array of float64, broadcasts to (...)
        Pixels that a cell's edge covers.
    padding : array of float64, shape (2,)
        Rows and columns of the frame.

    Returns
    -------
    array of float64, shape (..., 4)
        NaN for places below 0, which mean that there is none.
    """
    xp = namespace(places, sizes, cell, padding)
    # Rows and columns become y and x.
    first = xp.flip(xp.asarray(places, dtype=cell.dtype) - padding, axis=-1)
    boxes = _with_corners(first, first + xp.flip(sizes, axis=-1)) * cell[..., None]
    return xp.where(places[..., :1] < 0, filled((1,) * places.ndim, xp.nan, boxes), boxes)


def cut_off(boxes: Any, limits: Any) -> Any:
    """Cut boxes `(n, 4)` off at a picture's border: `limits` are its width and height, twice."""
    xp = namespace(boxes, limits)
    return xp.minimum(xp.maximum(boxes, filled((1, 1), 0, boxes)), limits)


def box_features(windows: Any, filters: Any) -> Any:
    """Describe where filters `(n, n_filters, 4)` lie in their windows `(n, 4)`.

    The result is `(n, 2 * n_filters + 1)`.
    """
    xp = namespace(windows, filters)
    offsets = (_centres(filters) - _centres(windows)[:, None, :]) / spans(windows)[:, None, :2]
    n, n_numbers = filters.shape[0], 2 * filters.shape[1]
    features = filled((n, n_numbers + 1), 1, windows)
    features[:, :n_numbers] = xp.reshape(offsets, (n, n_numbers))
    return features


def spans(boxes: Any) -> Any:
    """Return widths and heights, twice, between the centres of the outermost pixels."""
    xp = namespace(boxes)
    # A window cut down to a sliver still has a span to divide by.
    sizes = xp.maximum(boxes[:, 2:] - boxes[:, :2] - 1, filled((1, 1), 1, boxes))
    return _with_corners(sizes, sizes)


def move_sides(windows: Any, filters: Any, weights: Any) -> Any:
    """Return windows `(n, 4)` with each side moved as a regression `(4, n_features)` says."""
    shifts = namespace(windows, weights).matmul(box_features(windows, filters), weights.T)
    return windows + spans(windows) * shifts


def inside_picture(boxes: Any, limits: Any) -> tuple[Any, Any]:
    """Make boxes that a regression predicted fit for use.

    Parameters
    ----------
    boxes : array of float64, shape (n, 4)
        One that is turned inside out becomes empty.
    limits : array of float32, shape (4,)
        As for `cut_off`.

    Returns
    -------
    boxes : array of float32, shape (n, 4)
        Cut off at the border.
    rows : array of int64, shape (m,)
        Which are not empty.
    """
    xp = namespace(boxes, limits)
    first = boxes[:, :2]
    upright = _with_corners(first, xp.maximum(boxes[:, 2:], first))
    cut = cut_off(xp.asarray(upright, dtype=limits.dtype), limits)
    return cut, xp.nonzero((cut[:, 2] > cut[:, 0]) & (cut[:, 3] > cut[:, 1]))[0]


def _centres(boxes: Any) -> Any:
    return (boxes[..., :2] + boxes[..., 2:]) / 2


def _with_corners(first: Any, last: Any) -> Any:
    """Put corners `(..., 2)` together to `(..., 4)`."""
    xp = namespace(first, last)
    return xp.reshape(xp.stack([first, last], axis=-2), (*first.shape[:-1], 4))
