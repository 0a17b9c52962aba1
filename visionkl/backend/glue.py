"""What is a few products of matrices, in the words of the array API.

The functions of this module take arrays of any library that follows the standard and use nothing that is not
in it, neither NumPy nor CuPy: results are made where the arrays lie, and nothing goes through ordinary memory
on the way. The GPU's backend calls them for what needs no loop. Tests run them on NumPy arrays, and on those
of `array-api-strict`, whose second device refuses whatever would leave it.
"""

from __future__ import annotations

from typing import Any

from visionkl.core.errors import DeviceError


def namespace(*arrays: Any) -> Any:
    """Return the functions of the standard for arrays."""
    try:
        from array_api_compat import array_namespace
    except ImportError:
        raise DeviceError(
            "array-api-compat is not installed, which computing on a GPU needs; "
            'pip install "visionkl[cuda12]" (or "visionkl[cuda13]").'
        ) from None
    return array_namespace(*arrays)


def _zeros(shape: tuple[int, ...], like: Any) -> Any:
    from array_api_compat import device

    return namespace(like).zeros(shape, dtype=like.dtype, device=device(like))


def all_finite(numbers: Any) -> bool:
    """Tell whether the sum of numbers is finite, so that all of them are."""
    xp = namespace(numbers)
    return bool(xp.isfinite(xp.sum(numbers)))


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
    return xp.matmul(histograms[:, None, :], xp.astype(words, histograms.dtype))[:, 0, :]


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
    responses = _zeros((out_rows * out_cols, n), level)
    if out_rows * out_cols:
        width = line // channels
        padded = _zeros((out_rows + h - 1, out_cols + width - 1, channels), level)
        padded[:rows, :cols, :] = level
        windows = xp.stack([padded[:, left : left + out_cols, :] for left in range(width)], axis=2)
        lines = xp.reshape(windows, (out_rows + h - 1, out_cols, line))
        for down in range(h):
            band = xp.reshape(lines[down : down + out_rows, :, :], (out_rows * out_cols, line))
            responses += xp.matmul(band, filter_rows[down, :, :])
    return xp.reshape(responses, (out_rows, out_cols, n))
