"""Spatial cells: where in the picture a descriptor lies, as coarsely as is good for comparing pictures.

`cells` is a sequence of grids. A number stands for so many horizontal strips of equal height, a pair `(rows,
cols)` for a grid of cells:

====================  ==================================================
`(1,)`                the picture as a whole: one cell
`(1, 3)`              the whole, and three strips: four cells
`(3,)`                three strips alone
`(1, 3, (2, 2))`      the whole, three strips, and quarters: eight cells
`(1, (2, 2), (4, 4))` a spatial pyramid of three levels: 21 cells
====================  ==================================================

Cells are numbered grid by grid, in each from left to right and from top to bottom. A descriptor belongs to
the cell of each grid that its centre lies in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.core.validation import check_number, parameter_error
from visionkl.features.local import LocalDescriptors

#: Grids as they are computed with: (rows, cols) of each.
Grids = tuple[tuple[int, int], ...]

_MOST_CELLS = 4096


def check_cells(owner: str, cells: Any) -> Grids:
    """Return the grids that `cells` stands for, and complain if it stands for none.

    Examples
    --------
    >>> check_cells("FisherVector", (1, 3, (2, 2)))
    ((1, 1), (3, 1), (2, 2))
    """
    accepted = "a sequence of numbers of strips or of pairs (rows, cols), such as (1, 3, (2, 2))"
    if isinstance(cells, str) or not isinstance(cells, Sequence) or not len(cells):
        raise parameter_error(owner, "cells", accepted, cells)
    grids = []
    for grid in cells:
        pair = grid if isinstance(grid, Sequence) and not isinstance(grid, str) else (grid, 1)
        if len(pair) != 2:
            raise parameter_error(owner, "cells", accepted, cells)
        rows, cols = (check_number(owner, "cells", side, low=1, high=64, integer=True) for side in pair)
        grids.append((int(rows), int(cols)))
    if count_cells(tuple(grids)) > _MOST_CELLS:
        raise parameter_error(owner, "cells", f"{accepted}, of at most {_MOST_CELLS} cells", cells)
    return tuple(grids)


def count_cells(grids: Grids) -> int:
    """Count the cells of all grids.

    Examples
    --------
    >>> count_cells(((1, 1), (3, 1)))
    4
    """
    return sum(rows * cols for rows, cols in grids)


def relative_places(
    descriptors: LocalDescriptors,
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the positions and sizes that descriptors would have in a picture of 1 × 1."""
    width, height = descriptors.image_size
    positions = descriptors.positions / np.array([width, height], dtype=np.float32)
    return positions, descriptors.sizes / np.float32((width * height) ** 0.5)


def cell_numbers(descriptors: LocalDescriptors, grids: Grids) -> npt.NDArray[np.int64]:
    """Find the cell of each grid that each descriptor lies in: `(n, n_grids)`.

    Examples
    --------
    >>> positions = np.float32([[10, 10], [90, 10], [90, 59]])
    >>> ones = np.ones(3, np.float32)
    >>> cell_numbers(LocalDescriptors(ones[:, None], positions, ones, (100, 60)), ((1, 1), (2, 2)))
    array([[0, 1],
           [0, 2],
           [0, 4]])
    """
    x, y = relative_places(descriptors)[0].T
    numbers = np.empty((len(descriptors), len(grids)), np.int64)
    first = 0
    for grid, (rows, cols) in enumerate(grids):
        row = np.clip((y * rows).astype(np.int64), 0, rows - 1)
        numbers[:, grid] = first + row * cols + np.clip((x * cols).astype(np.int64), 0, cols - 1)
        first += rows * cols
    return numbers


def regions(
    descriptors: LocalDescriptors, grids: Grids
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Cut a picture into regions that no cell's border runs through.

    What is summed over descriptors need be summed only once for each region, and added to all its cells.

    Yields
    ------
    rows : ndarray of int64
        The descriptors of a region, in order.
    cells : ndarray of int64, shape (n_grids,)
        The cells it lies in.
    """
    numbers = cell_numbers(descriptors, grids)
    which = np.zeros(len(numbers), np.int64)
    for column in numbers.T:
        which = np.unique(which * _MOST_CELLS + column, return_inverse=True)[1]
    order = np.argsort(which, kind="stable")
    for rows in np.split(order, np.cumsum(np.bincount(which))[:-1]):
        if len(rows):
            yield rows, numbers[rows[0]]
