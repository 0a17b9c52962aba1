"""Votes of a picture's pixels for labels, counted in the cells of a region.

Votes stand row by row of the picture: those of row r are `starts[r]` to `starts[r + 1]`. So the rows of a
region are found at once, and a small region costs little.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from visionkl.backend.cpu.jit import compiled


@compiled
def count_into(starts, cols, labels, weights, inside, box, counts):
    """Add up votes in the cells of a box.

    Parameters
    ----------
    starts : ndarray of int64, shape (rows + 1,)
    cols : ndarray of int32, shape (n,)
    labels : ndarray of uint16, shape (n,)
    weights : ndarray of float32, shape (n,) or (0,)
        Without any, each vote counts 1.
    inside : ndarray of uint8, shape (rows, cols) or (0, 0)
        Which pixels count; without any, all do.
    box : tuple of int
        Top, left, bottom and right.
    counts : ndarray of float64, shape (cell_rows, cell_cols, n_labels)
    """
    top, left, bottom, right = box
    cell_rows, cell_cols, _ = counts.shape
    everywhere, weighted = inside.size == 0, len(weights) > 0
    cell_of = np.empty(max(right - left, 0), np.int64)
    for x in range(len(cell_of)):
        cell_of[x] = x * cell_cols // (right - left)
    for r in range(top, bottom):
        band = counts[(r - top) * cell_rows // (bottom - top)]
        for i in range(starts[r], starts[r + 1]):
            c = cols[i]
            if c >= left and c < right and (everywhere or inside[r, c]):
                band[cell_of[c - left], labels[i]] += weights[i] if weighted else np.float32(1)
