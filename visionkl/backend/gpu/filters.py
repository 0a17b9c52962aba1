"""Dense filter responses on a GPU: the function of `visionkl.backend.cpu.filters` on CuPy arrays.

A filter of `h` rows is cut into them; the windows of `w` neighbouring cells of a level are the lines of one
matrix, and each filter row is a product with the windows that lie so many rows further down. All of it is
matrix products, which is what a GPU does best, whatever the number of filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.gpu import device


class ProductFilters:
    """Filters of any sizes, ready to be applied by matrix products.

    Parameters
    ----------
    filters : sequence of ndarray of float32, each of shape (h, w, channels)
        NumPy arrays.
    """

    def __init__(self, filters: Sequence[npt.NDArray[np.float32]]) -> None:
        sizes = np.array([filter_.shape[:2] for filter_ in filters])
        self._smallest = sizes.min(axis=0).tolist()
        self._h, self._w = sizes.max(axis=0).tolist()
        channels = filters[0].shape[2]
        rows = np.zeros((self._h, self._w, channels, len(filters)), np.float32)
        for i, filter_ in enumerate(filters):
            rows[: filter_.shape[0], : filter_.shape[1], :, i] = filter_
        self._rows = device.upload(rows.reshape(self._h, self._w * channels, len(filters)))

    def correlate(self, level: Any) -> Any:
        """Compute responses `(rows - h + 1, cols - w + 1, n)` for the smallest h and w.

        Where a larger filter reaches outside, the level goes on with zeros.
        """
        xp = device.namespace()
        rows, cols, channels = level.shape
        out_rows, out_cols = max(rows - self._smallest[0] + 1, 0), max(cols - self._smallest[1] + 1, 0)
        n = self._rows.shape[2]
        responses = xp.zeros((out_rows * out_cols, n), np.float32)
        if responses.size:
            padded = xp.zeros((out_rows + self._h - 1, out_cols + self._w - 1, channels), np.float32)
            padded[:rows, :cols] = level
            windows = xp.empty((len(padded), out_cols, self._w, channels), np.float32)
            for across in range(self._w):
                windows[:, :, across] = padded[:, across : across + out_cols]
            lines = windows.reshape(len(padded), out_cols, -1)
            for down in range(self._h):
                band = lines[down : down + out_rows].reshape(out_rows * out_cols, -1)
                responses += xp.matmul(band, self._rows[down])
        return responses.reshape(out_rows, out_cols, n)


def dense_filters(filters: Sequence[npt.NDArray[np.float32]]) -> ProductFilters:
    """Make filters ready; on a GPU there is one way."""
    return ProductFilters(filters)
