"""HOG cells in two steps: strongest gradient of every pixel, then histograms and their normalisation.

The gradients of a picture are worth keeping for a moment: cells of 4 and of 8 pixels (and of 2) are built
from the same ones.
"""

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.jit import compiled, compiled_exactly
from visionkl.backend.scratch import scratch

N_CHANNELS = 32
TRUNCATION = 31

_N_UNSIGNED = 9
_N_SIGNED = 18
_EPSILON = 1e-4
_CLIP = np.float32(0.2)
_TEXTURE_GAIN = np.float32(0.2357)
# Unit vectors of the nine orientations, rounded to four digits as in the published models.
_COSINES = np.array([1.0, 0.9397, 0.7660, 0.5, 0.1736, -0.1736, -0.5, -0.7660, -0.9397], dtype=np.float32)
_SINES = np.array([0.0, 0.3420, 0.6428, 0.8660, 0.9848, 0.9848, 0.8660, 0.6428, 0.3420], dtype=np.float32)


def gradients(planes: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Magnitude and signed orientation (0..17) of each pixel's strongest gradient over the channels.

    Parameters
    ----------
    planes : ndarray of float64, shape (channels, rows, cols)

    Returns
    -------
    magnitude : ndarray of float32, shape (rows, cols)
    orientation : ndarray of int32, shape (rows, cols)
        Both are undefined on the outermost ring of pixels, which has no gradient, and valid until this thread
        computes the next.
    """
    magnitude = scratch("magnitude", planes.shape[1:], np.float32)
    orientation = scratch("orientation", planes.shape[1:], np.int32)
    if min(magnitude.shape) >= 3:
        _gradients_into(planes, magnitude, orientation)
    return magnitude, orientation


def cell_counts(shape: tuple[int, ...], cell_size: int) -> tuple[int, int]:
    """Rows and columns of HOG cells, before the outermost ring of cells is dropped for want of neighbours."""
    # Half a cell or more counts as a cell (halves go up).
    return int(shape[0] / cell_size + 0.5), int(shape[1] / cell_size + 0.5)


def cells_into(
    magnitude: npt.NDArray[np.float32],
    orientation: npt.NDArray[np.int32],
    cell_size: int,
    level: npt.NDArray[np.float32],
    row_offset: int,
    col_offset: int,
) -> None:
    """Write a picture's HOG cells into `level (rows, cols, 32)`, its first inner cell at the given offset."""
    n_rows, n_cols = cell_counts(magnitude.shape, cell_size)
    if min(n_rows, n_cols) < 3:  # no cell has neighbours on both sides
        return
    histogram = scratch("histogram", (n_rows + 2, n_cols + 2, _N_SIGNED), np.float32)
    histogram.fill(0)
    _histograms_into(magnitude, orientation, cell_size, histogram)
    _normalise_into(histogram[1:-1, 1:-1], level, row_offset, col_offset)


@compiled_exactly
def _gradients_into(planes, magnitude, orientation):  # type: ignore[no-untyped-def]
    channels, rows, cols = planes.shape
    width = cols - 2
    # A grey picture is looked at three times, which is simpler than a loop of its own and costs it nothing
    # extra.
    second, third = min(1, channels - 1), min(2, channels - 1)
    dx = np.empty(width)
    dy = np.empty(width)
    squared = np.empty(width)
    for y in range(1, rows - 1):
        _steepest(
            planes[0, y - 1 : y + 2],
            planes[second, y - 1 : y + 2],
            planes[third, y - 1 : y + 2],
            dx,
            dy,
            squared,
        )
        strengths = magnitude[y, 1 : cols - 1]
        for x in range(width):
            strengths[x] = np.sqrt(np.float32(squared[x]))
        _nearest_orientation(dx, dy, orientation[y, 1 : cols - 1])


@compiled_exactly
def _steepest(red, green, blue, dx, dy, squared):  # type: ignore[no-untyped-def]
    # In double precision: which of two equally steep channels wins decides the orientation in smooth regions.
    # All choices are made on local variables: choosing in place would compile to masked stores, ten times
    # slower.
    width = dx.shape[0]
    red_left, red_right, red_above, red_below = _neighbours(red, width)
    green_left, green_right, green_above, green_below = _neighbours(green, width)
    blue_left, blue_right, blue_above, blue_below = _neighbours(blue, width)
    for x in range(width):
        gx, gy = red_right[x] - red_left[x], red_below[x] - red_above[x]
        strength = gx * gx + gy * gy
        gx2, gy2 = green_right[x] - green_left[x], green_below[x] - green_above[x]
        strength2 = gx2 * gx2 + gy2 * gy2
        gx3, gy3 = blue_right[x] - blue_left[x], blue_below[x] - blue_above[x]
        strength3 = gx3 * gx3 + gy3 * gy3
        second = strength2 > strength
        gx, gy = (gx2 if second else gx), (gy2 if second else gy)
        strength = strength2 if second else strength
        third = strength3 > strength
        dx[x] = gx3 if third else gx
        dy[x] = gy3 if third else gy
        squared[x] = strength3 if third else strength


@compiled_exactly
def _neighbours(three_rows, width):  # type: ignore[no-untyped-def]
    here = three_rows[1]
    return here[:width], here[2:], three_rows[0, 1 : width + 1], three_rows[2, 1 : width + 1]


@compiled_exactly
def _nearest_orientation(dx, dy, bins):  # type: ignore[no-untyped-def]
    for x in range(dx.shape[0]):
        u, v = np.float32(dx[x]), np.float32(dy[x])
        best, chosen = np.float32(0), np.int32(0)
        for o in range(_N_UNSIGNED):
            dot = _COSINES[o] * u + _SINES[o] * v
            signed = np.int32(o) if dot > np.float32(0) else np.int32(o + _N_UNSIGNED)
            better = abs(dot) > best
            chosen = signed if better else chosen
            best = abs(dot) if better else best
        # Orientations 4 and 5 lie symmetrically about the vertical: only double precision tells them apart
        # where dx is tiny.
        lean, rise = 0.1736 * dx[x], 0.9848 * dy[x]
        vertical = (chosen == 4) | (chosen == 4 + _N_UNSIGNED)
        tied = vertical & (abs(rise - lean) > abs(rise + lean))
        bins[x] = chosen + (np.int32(1) if tied else np.int32(0))


@compiled
def _histograms_into(magnitude, orientation, cell_size, histogram):  # type: ignore[no-untyped-def]
    # `histogram` has a spare ring of cells, so that the outermost pixels need no tests.
    rows, cols = magnitude.shape
    n_rows, n_cols = histogram.shape[0] - 2, histogram.shape[1] - 2
    shares = ((np.arange(cell_size) + 0.5) / cell_size).astype(np.float32)
    for y in range(1, n_rows * cell_size - 1):
        # Cells may reach past the picture by half a cell; the last gradients are repeated there.
        strengths = magnitude[min(y, rows - 2)]
        bins = orientation[min(y, rows - 2)]
        top = (y + cell_size - cell_size // 2) // cell_size
        lower = shares[(y + cell_size - cell_size // 2) % cell_size]
        upper = np.float32(1) - lower
        above = histogram[top]
        below = histogram[top + 1]
        for left in range(n_cols + 1):
            begin = (left - 1) * cell_size + cell_size // 2
            for k in range(cell_size):
                x = begin + k
                if 1 <= x < n_cols * cell_size - 1:
                    source = min(x, cols - 2)
                    o = np.uint32(bins[source])
                    strength = strengths[source]
                    right = shares[k] * strength
                    rest = strength - right
                    above[left, o] += upper * rest
                    below[left, o] += lower * rest
                    above[left + 1, o] += upper * right
                    below[left + 1, o] += lower * right


@compiled
def _normalise_into(histogram, level, row_offset, col_offset):  # type: ignore[no-untyped-def]
    n_rows, n_cols, _ = histogram.shape
    energy = np.zeros((n_rows, n_cols), np.float32)
    for y in range(n_rows):
        for x in range(n_cols):
            total = np.float32(0)
            for o in range(_N_UNSIGNED):
                both = histogram[y, x, o] + histogram[y, x, o + _N_UNSIGNED]
                total += both * both
            energy[y, x] = total
    # One over the norm of each 2 × 2 block of cells; four blocks share a cell.
    scale = np.empty((max(n_rows - 1, 0), max(n_cols - 1, 0)), np.float32)
    for y in range(n_rows - 1):
        for x in range(n_cols - 1):
            block = energy[y, x] + energy[y, x + 1] + energy[y + 1, x] + energy[y + 1, x + 1]
            scale[y, x] = np.float32(1.0 / np.sqrt(block + _EPSILON))
    half = np.float32(0.5)
    for y in range(n_rows - 2):
        for x in range(n_cols - 2):
            source = histogram[y + 1, x + 1]
            cell = level[y + row_offset, x + col_offset]
            n1, n2, n3, n4 = scale[y + 1, x + 1], scale[y, x + 1], scale[y + 1, x], scale[y, x]
            t1 = t2 = t3 = t4 = np.float32(0)
            for o in range(_N_SIGNED):
                value = source[o]
                h1, h2 = min(value * n1, _CLIP), min(value * n2, _CLIP)
                h3, h4 = min(value * n3, _CLIP), min(value * n4, _CLIP)
                cell[o] = half * (h1 + h2 + h3 + h4)
                t1 += h1
                t2 += h2
                t3 += h3
                t4 += h4
            for o in range(_N_UNSIGNED):
                value = source[o] + source[o + _N_UNSIGNED]
                h1, h2 = min(value * n1, _CLIP), min(value * n2, _CLIP)
                h3, h4 = min(value * n3, _CLIP), min(value * n4, _CLIP)
                cell[_N_SIGNED + o] = half * (h1 + h2 + h3 + h4)
            cell[27] = _TEXTURE_GAIN * t1
            cell[28] = _TEXTURE_GAIN * t2
            cell[29] = _TEXTURE_GAIN * t3
            cell[30] = _TEXTURE_GAIN * t4
            cell[TRUNCATION] = 0
