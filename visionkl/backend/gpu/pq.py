"""Nearest codewords on a GPU: the functions of `visionkl.backend.cpu.pq` on CuPy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.gpu import device
from visionkl.backend.gpu.launch import declare, launch

# Codewords that are compared at a time, as in the source.
_ABREAST = 8

_NEAREST = declare(
    "pq",
    "nearest_words",
    "const float* points, const float* columns, int* nearest, long long n, int size, int n_words, "
    "int n_padded",
    block=128,
)


@dataclass(frozen=True)
class Codebook:
    """The codewords of a block on the device: a line for each coordinate, filled up with zeros."""

    columns: Any
    n_words: int


def make_codebook(words: npt.NDArray[np.float32]) -> Codebook:
    """Make codewords `(n_codewords, size)`, a NumPy array, ready for searching."""
    n, size = words.shape
    columns = np.zeros((size, -(-n // _ABREAST) * _ABREAST), np.float32)
    columns[:, :n] = words.T
    return Codebook(device.upload(columns), n)


def encode(cells: Any, channels: npt.NDArray[np.int64], codebook: Codebook, codes: Any) -> None:
    """Find the nearest codeword of each cell; see the CPU's function."""
    xp = device.namespace()
    rows, cols = codes.shape
    size, n_padded = codebook.columns.shape
    if not rows * cols:
        return
    block = cells[:, :, xp.asarray(channels)].reshape(rows * cols, size)
    points = xp.ascontiguousarray(block.T)
    nearest = xp.empty(rows * cols, np.int32)
    launch(
        _NEAREST, points, codebook.columns, nearest, rows * cols, size, codebook.n_words, n_padded,
        threads=rows * cols,
    )  # fmt: skip
    codes[...] = nearest.reshape(rows, cols)
