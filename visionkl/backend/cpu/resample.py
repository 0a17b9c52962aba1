"""Shrinking pictures by averaging areas, in double precision.

Each output pixel is the mean of the input area it covers: whole pixels with full weight, the first and last
with the fraction covered. Fractions below `NEGLIGIBLE` are dropped, as the published part models were trained
that way. Double precision is not a luxury: in flat regions the HOG cell divides by almost nothing, so that
rounding noise of 1e-5 would become visible edges.
"""

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.jit import compiled_exactly

#: Fraction of a pixel below which a border pixel is left out of the mean.
NEGLIGIBLE = 1e-3

# Every scale from a half to one needs no more taps than this, which is worth a loop of its own.
_UNROLLED_TAPS = 4


def shrink(planes: npt.NDArray[np.float64], rows: int, cols: int) -> npt.NDArray[np.float64]:
    """Shrink a planar picture.

    Parameters
    ----------
    planes : ndarray of float64, shape (channels, rows, cols)
    rows, cols : int
        The new size, not larger than the old one.

    Returns
    -------
    ndarray of float64, shape (channels, rows, cols)
    """
    channels, old_rows, old_cols = planes.shape
    if (rows, cols) == (old_rows, old_cols):
        return planes
    first_row, row_weights = _area_taps(old_rows, rows)
    first_col, col_weights = _area_taps(old_cols, cols)
    shrunk = np.empty((channels, rows, cols))
    _shrink_into(planes, first_row, row_weights, first_col, col_weights, shrunk)
    return shrunk


def _area_taps(old: int, new: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """First source index `(new,)` (-1 where it has no weight) and weights `(new, taps)` per output pixel."""
    step = old / new
    begin = np.arange(new) * step
    end = begin + step
    inner_begin, inner_end = np.ceil(begin).astype(np.int64), np.floor(end).astype(np.int64)
    first = inner_begin - 1
    n_taps = max(int((inner_end - first).max()) + 1, _UNROLLED_TAPS)
    source = first[:, None] + np.arange(n_taps)
    weights = np.where((source >= inner_begin[:, None]) & (source < inner_end[:, None]), 1.0, 0.0)
    lead, trail = inner_begin - begin, end - inner_end
    weights[:, 0] = np.where(lead > NEGLIGIBLE, lead, 0.0)
    weights += np.where((source == inner_end[:, None]) & (trail > NEGLIGIBLE)[:, None], trail[:, None], 0.0)
    return first, weights * (new / old)


@compiled_exactly
def _shrink_into(planes, first_row, row_weights, first_col, col_weights, shrunk):  # type: ignore[no-untyped-def]
    channels, _, old_cols = planes.shape
    rows, row_taps = row_weights.shape
    cols, col_taps = col_weights.shape
    line = np.zeros(old_cols + col_taps + 1)  # one spare pixel before, some after, for taps without weight
    inner = line[1 : old_cols + 1]
    for c in range(channels):
        for y in range(rows):
            inner[:] = 0.0
            for tap in range(row_taps):
                weight = row_weights[y, tap]
                if weight != 0.0:
                    source = planes[c, first_row[y] + tap]
                    for x in range(old_cols):
                        inner[x] += weight * source[x]
            target = shrunk[c, y]
            if col_taps == _UNROLLED_TAPS:
                for x in range(cols):
                    window = line[first_col[x] + 1 :]
                    weights = col_weights[x]
                    target[x] = (
                        weights[0] * window[0]
                        + weights[1] * window[1]
                        + weights[2] * window[2]
                        + weights[3] * window[3]
                    )
            else:
                for x in range(cols):
                    total = 0.0
                    for tap in range(col_taps):
                        total += col_weights[x, tap] * line[first_col[x] + 1 + tap]
                    target[x] = total
