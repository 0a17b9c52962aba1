"""HOG cells on a GPU: the functions of `visionkl.backend.cpu.hog` on CuPy arrays."""

from typing import Any

import numpy as np

from visionkl.backend.cpu.hog import N_CHANNELS, TRUNCATION, cell_counts
from visionkl.backend.gpu import device
from visionkl.backend.gpu.launch import declare, launch

__all__ = ["N_CHANNELS", "TRUNCATION", "cell_counts", "cells_into", "gradients"]

_N_SIGNED = 18

_GRADIENTS = declare(
    "hog",
    "hog_gradients",
    "const double* planes, float* magnitude, int* orientation, int channels, int rows, int cols",
)
_HISTOGRAMS = declare(
    "hog",
    "hog_histograms",
    "const float* magnitude, const int* orientation, float* histogram, int rows, int cols, int n_rows, "
    "int n_cols, int cell_size",
)
_ENERGIES = declare("hog", "hog_energies", "const float* histogram, float* energy, int n_cells")
_NORMALISE = declare(
    "hog",
    "hog_normalise",
    "const float* histogram, const float* energy, float* level, int n_rows, int n_cols, int level_cols, "
    "int row_offset, int col_offset",
)


def gradients(planes: Any) -> tuple[Any, Any]:
    """Magnitude and signed orientation of each pixel's strongest gradient; see the CPU's function."""
    xp = device.namespace()
    channels, rows, cols = planes.shape
    magnitude, orientation = xp.empty((rows, cols), np.float32), xp.empty((rows, cols), np.int32)
    n_inner = max(rows - 2, 0) * max(cols - 2, 0)
    launch(_GRADIENTS, planes, magnitude, orientation, channels, rows, cols, threads=n_inner)
    return magnitude, orientation


def cells_into(
    magnitude: Any, orientation: Any, cell_size: int, level: Any, row_offset: int, col_offset: int
) -> None:
    """Write a picture's HOG cells into `level`; see the CPU's function."""
    xp = device.namespace()
    rows, cols = magnitude.shape
    n_rows, n_cols = cell_counts(magnitude.shape, cell_size)
    if min(n_rows, n_cols) < 3:  # no cell has neighbours on both sides
        return
    n_cells = n_rows * n_cols
    histogram, energy = xp.empty((n_cells, _N_SIGNED), np.float32), xp.empty(n_cells, np.float32)
    launch(
        _HISTOGRAMS, magnitude, orientation, histogram, rows, cols, n_rows, n_cols, cell_size,
        threads=n_cells * _N_SIGNED,
    )  # fmt: skip
    launch(_ENERGIES, histogram, energy, n_cells, threads=n_cells)
    launch(
        _NORMALISE, histogram, energy, level, n_rows, n_cols, level.shape[1], row_offset, col_offset,
        threads=(n_rows - 2) * (n_cols - 2) * N_CHANNELS,
    )  # fmt: skip
