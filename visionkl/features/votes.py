"""Votes of a picture's pixels for labels, and their histograms in the cells of a region.

Directions of gradients and binary patterns are alike in the end: at a pixel there are labels, perhaps with
weights. What is computed of the picture is the `Votes`, once; a histogram of them is made for each region, of
which a picture may have a hundred (`visionkl.features.regions`).

The layout of a vector is that of `visionkl.features.cells`, over the region's box:

    cell 0: all labels;  cell 1: all labels;  ...
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.votes import count_into
from visionkl.features.cells import Grids, count_cells
from visionkl.features.regions import Region

#: What vectors are divided by.
NORMS = ("l1", "l2", "none")

_ALL = np.zeros((0, 0), np.uint8)
_EQUAL = np.zeros(0, np.float32)


@dataclass(frozen=True, eq=False)
class Votes:
    """Labels at pixels of a picture, row by row.

    Parameters
    ----------
    starts : ndarray of int64, shape (rows + 1,)
        The votes of row r are those from `starts[r]` to `starts[r + 1]`.
    cols : ndarray of int32, shape (n,)
    labels : ndarray of uint16, shape (n,)
    n_labels : int
    width : int
        Columns of the picture.
    weights : ndarray of float32, shape (n,), optional
        1 by default.
    """

    starts: npt.NDArray[np.int64]
    cols: npt.NDArray[np.int32]
    labels: npt.NDArray[np.uint16]
    n_labels: int
    width: int
    weights: npt.NDArray[np.float32] | None = None

    @classmethod
    def everywhere(cls, labels: npt.NDArray[np.uint16], n_labels: int) -> Votes:
        """Return the votes of all pixels, whose labels are given, `(rows, cols)`."""
        rows, cols = labels.shape
        starts = np.arange(0, rows * cols + 1, cols, dtype=np.int64)
        return cls(starts, np.tile(np.arange(cols, dtype=np.int32), rows), labels.ravel(), n_labels, cols)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the picture."""
        return len(self.starts) - 1, self.width

    def counts(self, region: Region, grids: Grids) -> npt.NDArray[np.float64]:
        """Count the votes in each cell of a region: `(n_cells, n_labels)`."""
        finest = max(grids, key=lambda grid: grid[0] * grid[1])
        fine = self._count(region, finest)
        found = np.empty((count_cells(grids), self.n_labels))
        first = 0
        for rows, cols in grids:
            own = found[first : first + rows * cols].reshape(rows, cols, -1)
            if finest[0] % rows or finest[1] % cols:
                own[:] = self._count(region, (rows, cols))
            else:  # cells are whole numbers of those of the finest grid
                parts = fine.reshape(rows, finest[0] // rows, cols, finest[1] // cols, -1)
                np.sum(parts, axis=(1, 3), out=own)
            first += rows * cols
        return found

    def histogram(self, region: Region, grids: Grids, norm: str) -> npt.NDArray[np.float32]:
        """Return the counts of a region as one vector, divided by its norm; zero where nothing votes."""
        vector = self.counts(region, grids).ravel()
        if norm != "none":
            length = np.linalg.norm(vector, 1 if norm == "l1" else 2)
            vector /= length or 1
        return vector.astype(np.float32)

    def _count(self, region: Region, grid: tuple[int, int]) -> npt.NDArray[np.float64]:
        counts = np.zeros((*grid, self.n_labels))
        inside = _ALL if region.inside is None else region.inside
        weights = _EQUAL if self.weights is None else self.weights
        count_into(self.starts, self.cols, self.labels, weights, inside, region.box, counts)
        return counts
