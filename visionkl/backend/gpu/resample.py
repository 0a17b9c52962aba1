"""Shrinking pictures on a GPU: the function of `visionkl.backend.cpu.resample` on CuPy arrays."""

from typing import Any

import numpy as np

from visionkl.backend.cpu.resample import area_taps
from visionkl.backend.gpu import device
from visionkl.backend.gpu.launch import declare, launch

_SHRINK = declare(
    "resample",
    "shrink",
    "const double* planes, const long long* first_row, const double* row_weights, "
    "const long long* first_col, const double* col_weights, double* shrunk, int channels, int old_rows, "
    "int old_cols, int rows, int cols, int row_taps, int col_taps",
)


def shrink(planes: Any, rows: int, cols: int, memory: str | None = None) -> Any:
    """Shrink a planar picture; see the CPU's function. CuPy keeps memory itself, so `memory` is not used."""
    channels, old_rows, old_cols = planes.shape
    if channels not in (1, 3):
        raise ValueError(f"pictures have 1 or 3 channels, not {channels}")
    if (rows, cols) == (old_rows, old_cols):
        return planes
    first_row, row_weights = map(device.upload, area_taps(old_rows, rows))
    first_col, col_weights = map(device.upload, area_taps(old_cols, cols))
    shrunk = device.namespace().empty((channels, rows, cols), np.float64)
    launch(
        _SHRINK, planes, first_row, row_weights, first_col, col_weights, shrunk, channels, old_rows, old_cols,
        rows, cols, row_weights.shape[1], col_weights.shape[1], threads=shrunk.size,
    )  # fmt: skip
    return shrunk
