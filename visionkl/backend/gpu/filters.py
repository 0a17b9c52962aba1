"""Dense filter responses on a GPU: the function of `visionkl.backend.cpu.filters` on CuPy arrays.

All of it is matrix products (`visionkl.backend.glue.correlate`), which is what a GPU does best, whatever the
number of filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend import glue
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
        down, across = sizes.min(axis=0).tolist()
        self._smallest = down, across
        h, w = sizes.max(axis=0).tolist()
        channels = filters[0].shape[2]
        rows = np.zeros((h, w, channels, len(filters)), np.float32)
        for i, filter_ in enumerate(filters):
            rows[: filter_.shape[0], : filter_.shape[1], :, i] = filter_
        self._rows = device.upload(rows.reshape(h, w * channels, len(filters)))

    def correlate(self, level: Any) -> Any:
        """Compute responses `(rows - h + 1, cols - w + 1, n)` for the smallest h and w.

        Where a larger filter reaches outside, the level goes on with zeros.
        """
        return glue.correlate(level, self._rows, self._smallest)


def dense_filters(filters: Sequence[npt.NDArray[np.float32]]) -> ProductFilters:
    """Make filters ready; on a GPU there is one way."""
    return ProductFilters(filters)
