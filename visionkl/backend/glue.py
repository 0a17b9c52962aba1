"""Generic arithmetic on arrays, in the words of the array API.

The functions of this module, and those of `visionkl.backend.boxes`, take arrays of any library that follows
the standard and use nothing that is not in it: results are made where the arrays lie, and nothing goes
through ordinary memory on the way. The GPU's backend calls them for what needs no loop; where nothing would
be gained by writing in place, they are the CPU's functions as well. Tests run them on NumPy arrays, and on
those of `array-api-strict`, whose second device refuses whatever would leave it.

NumPy needs nothing else installed: of the standard's functions only those are used that go by the same names
in NumPy 1. What the standard does not have is left to those who call: matrix products and differences that
are written into given memory (`out=`), which NumPy and CuPy make alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from visionkl.core.errors import DeviceError


def namespace(*arrays: Any) -> Any:
    """Return the functions of the standard for arrays."""
    if all(isinstance(array, np.ndarray) for array in arrays):
        return np
    try:
        from array_api_compat import array_namespace
    except ImportError:
        raise DeviceError(
            "array-api-compat is not installed, which computing on a GPU needs; "
            'pip install "visionkl[cuda12]" (or "visionkl[cuda13]").'
        ) from None
    return array_namespace(*arrays)


def filled(shape: tuple[int, ...], value: float, like: Any) -> Any:
    """Return a new array of one value, of the type of another array and beside it."""
    if isinstance(like, np.ndarray):
        return np.full(shape, value, like.dtype)
    from array_api_compat import device

    return namespace(like).full(shape, value, dtype=like.dtype, device=device(like))


# -- choosing and checking --------------------------------------------------------------------------------


def all_finite(numbers: Any) -> bool:
    """Tell whether the sum of numbers is finite, so that all of them are."""
    xp = namespace(numbers)
    return bool(xp.isfinite(xp.sum(numbers)))


def lowest(rows: Any) -> tuple[float, int]:
    """Return the smallest number of a matrix, and its place, counted row by row."""
    xp = namespace(rows)
    place = int(xp.argmin(rows))
    return float(rows[place // rows.shape[1], place % rows.shape[1]]), place


def extremes(arrays: Sequence[Any]) -> tuple[int, int]:
    """Return the smallest and the largest integer of some arrays; nothing else leaves their device."""
    xp = namespace(*arrays)
    low, high = (xp.stack([of(array) for array in arrays]) for of in (xp.min, xp.max))
    return int(xp.min(low)), int(xp.max(high))


# -- sums and products ------------------------------------------------------------------------------------


def weighted_sums(weights: Any, rows: Any) -> Any:
    """Return sums `(k, d)` of rows `(n, d)`, with weights `(n, k)`."""
    return namespace(weights, rows).matmul(weights.T, rows)


def decoded_sums(histograms: Any, words: Any) -> Any:
    """Return sums `(n_blocks, size)` of codewords, as often as histograms say.

    Parameters
    ----------
    histograms : array of float64, shape (n_blocks, n_codewords)
    words : array of float32, shape (n_blocks, n_codewords, size)
    """
    xp = namespace(histograms, words)
    return xp.matmul(histograms[:, None, :], xp.asarray(words, dtype=histograms.dtype))[:, 0, :]


def row_sums(rows: Any) -> Any:
    """Return the sum of each row, shape (n,)."""
    return namespace(rows).sum(rows, axis=1, dtype=rows.dtype)


def squared_lengths(rows: Any) -> Any:
    """Return the inner product of each row with itself, shape (n,)."""
    return row_sums(rows * rows)


def paired_sums(left: Any, right: Any) -> Any:
    """Return sums `(d,)` over rows of products of two matrices `(n, d)`, in float64."""
    xp = namespace(left, right)
    return xp.sum(left * right, axis=0, dtype=xp.float64)


def centre(rows: Any) -> Any:
    """Return the mean of each column, summed in float64 and of the rows' type."""
    xp = namespace(rows)
    return xp.asarray(xp.sum(rows, axis=0, dtype=xp.float64) / rows.shape[0], dtype=rows.dtype)


def correlate(level: Any, filter_rows: Any, smallest: tuple[int, int]) -> Any:
    """Correlate a level with filters, row by row of the filters.

    The windows of `w` neighbouring cells are the lines of one matrix, and each filter row is a product with
    the windows that lie so many rows further down.

    Parameters
    ----------
    level : array of float32, shape (rows, cols, channels)
    filter_rows : array of float32, shape (h, w * channels, n)
        Filters of up to `h` rows and `w` columns, with zeros below and to the right.
    smallest : tuple of int
        Rows and columns of the smallest filter: there are as many places as it has. Where a larger one
        reaches outside, the level goes on with zeros.

    Returns
    -------
    array of float32, shape (rows - smallest[0] + 1, cols - smallest[1] + 1, n)
    """
    xp = namespace(level, filter_rows)
    rows, cols, channels = level.shape
    h, line, n = filter_rows.shape
    out_rows, out_cols = max(rows - smallest[0] + 1, 0), max(cols - smallest[1] + 1, 0)
    responses = filled((out_rows * out_cols, n), 0, level)
    if out_rows * out_cols:
        width = line // channels
        padded = filled((out_rows + h - 1, out_cols + width - 1, channels), 0, level)
        padded[:rows, :cols, :] = level
        windows = xp.stack([padded[:, left : left + out_cols, :] for left in range(width)], axis=2)
        lines = xp.reshape(windows, (out_rows + h - 1, out_cols, line))
        for down in range(h):
            band = xp.reshape(lines[down : down + out_rows, :, :], (out_rows * out_cols, line))
            responses += xp.matmul(band, filter_rows[down, :, :])
    return xp.reshape(responses, (out_rows, out_cols, n))


# -- what kernels are made of -----------------------------------------------------------------------------


def roots(numbers: Any) -> Any:
    """Return square roots."""
    return namespace(numbers).sqrt(numbers)


def logarithms(numbers: Any, shift: float) -> Any:
    """Return log(x + shift)."""
    return namespace(numbers).log(numbers + float(shift))


def exponentials(numbers: Any, factor: float) -> Any:
    """Return exp(factor · x), where the exponents should be 0 or below: what is above, by rounding, is 0."""
    xp = namespace(numbers)
    exponents = numbers * float(factor)
    return xp.exp(xp.minimum(exponents, filled((1,) * numbers.ndim, 0, numbers)))


def powers(numbers: Any, middle: Any, dtype: Any) -> Any:
    """Return exp(x − middle), with the exponential in a type that holds it."""
    xp = namespace(numbers, middle)
    return xp.exp(xp.asarray(numbers - middle, dtype=dtype))


def ranges(left: Any, right: Any) -> tuple[Any, Any]:
    """Return the smallest and the largest number of each column of two matrices."""
    xp = namespace(left, right)
    low = xp.minimum(xp.min(left, axis=0), xp.min(right, axis=0))
    return low, xp.maximum(xp.max(left, axis=0), xp.max(right, axis=0))


def entropies(rows: Any, tiny: float) -> Any:
    """Return Σ x log2 x of each row; 0 log 0 is 0, for which logarithms begin at a tiny number."""
    xp = namespace(rows)
    return row_sums(rows * xp.log2(xp.maximum(rows, filled((1, 1), tiny, rows))))


def polynomial(numbers: Any, coefficients: Sequence[float]) -> Any:
    """Return Σ_i coefficients[i] · x^i of each number."""
    total = filled(numbers.shape, coefficients[-1], numbers)
    for coefficient in reversed(coefficients[:-1]):
        total *= numbers
        total += float(coefficient)
    return total
