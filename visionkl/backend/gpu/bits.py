"""Bits of stumps on a GPU: functions of `visionkl.backend.cpu.bits` on CuPy arrays.

A thread makes a word of 64 bits by 64 comparisons: with so many threads, ranks would gain nothing. Rows are
dense.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.gpu import device
from visionkl.backend.gpu.launch import FLOATS, declare_for, launch

_STUMPS = declare_for(
    FLOATS,
    "bits",
    "stumps",
    "const TYPE* X, const unsigned int* features, const TYPE* thresholds, unsigned long long* out, "
    "long long first, long long n_words_in_all, int n_words, int n_stumps, int d",
)
_ABOVE = declare_for(
    FLOATS,
    "bits",
    "above",
    "const TYPE* values, const TYPE* thresholds, unsigned long long* out, long long n_words_in_all, "
    "int n_words, int m",
)
_AGREEMENTS = declare_for(
    FLOATS,
    "bits",
    "agreements",
    "const unsigned long long* left, const unsigned long long* right, TYPE* out, long long n_pairs, "
    "long long n_right, int n_words, long long n_bits, TYPE scale",
)
_WEIGH = declare_for(
    FLOATS,
    "bits",
    "weigh",
    "const unsigned char* left, const unsigned char* right, const double* tables, TYPE* out, "
    "long long n_pairs, long long n_right, int n_bytes",
)


def encode_stumps(
    rows: tuple[Any, ...],
    first: int,
    used: npt.NDArray[np.uint32],
    places: Any,
    ends: npt.NDArray[np.int64],
    thresholds: Any,
    columns: Any,
    ranks: Any,
    out: Any,
) -> None:
    """Write the bits of dense rows; see the CPU's function. What it works in is not used.

    `used` and `ends` are NumPy arrays.
    """
    (X,) = rows
    n, n_words = out.shape
    features = device.upload(np.repeat(used, np.diff(ends)).astype(np.uint32, copy=False))
    launch(
        _STUMPS[X.dtype.name], X, features, thresholds, out, first, n * n_words, n_words, len(features),
        X.shape[1], threads=n * n_words,
    )  # fmt: skip


def encode_above(values: Any, thresholds: Any, out: Any) -> None:
    """Write the bits of numbers that are above their thresholds; see the CPU's function."""
    n, n_words = out.shape
    launch(
        _ABOVE[values.dtype.name], values, thresholds, out, n * n_words, n_words, values.shape[1],
        threads=n * n_words,
    )  # fmt: skip


def count_agreements(left: Any, right: Any, n_bits: int, scale: Any, out: Any) -> None:
    """Write how many bits of two samples agree, times a scale; see the CPU's function."""
    n, m = out.shape
    launch(
        _AGREEMENTS[out.dtype.name], left, right, out, n * m, m, left.shape[1], n_bits, scale,
        threads=n * m,
    )  # fmt: skip


def weigh_agreements(left: Any, right: Any, tables: Any, out: Any) -> None:
    """Write the weight of the bits of two samples that agree, for all pairs; see the CPU's function."""
    n, m = out.shape
    launch(_WEIGH[out.dtype.name], left, right, tables, out, n * m, m, left.shape[1], threads=n * m)
