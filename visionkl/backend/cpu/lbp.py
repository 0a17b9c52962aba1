"""Local binary patterns: every pixel compared with points on a circle about it.

Points between pixels are interpolated. The shares of the four pixels about a point are whole numbers of a
65 536th, and grey values are whole numbers up to 255, so all sums are whole numbers that float32 holds
exactly: a flat patch is equal to its neighbours, not a little brighter or darker by rounding.
"""

# Numba gives intrinsics a typing context that their callers do not see.
# mypy: disable-error-code="no-untyped-def, call-arg, var-annotated"

import numpy as np

from visionkl.backend.cpu.jit import compiled
from visionkl.backend.cpu.simd import piece

#: What the shares of the pixels about a point sum up to.
UNIT = 1 << 16


@compiled
def patterns_into(padded, margin, offsets, shares, table, labels):
    """Compare each pixel with points on a circle about it, and look the pattern of answers up.

    Parameters
    ----------
    padded : ndarray of float32, shape (rows + 2 * margin, cols + 2 * margin)
        Whole numbers from 0 to 255.
    margin : int
    offsets : ndarray of int64, shape (n_points, 4)
        Where the four pixels about each point are, from the pixel on.
    shares : ndarray of float32, shape (n_points, 4)
        What they count: whole numbers whose sum is `UNIT`, and the first alone where a point is a pixel.
    table : ndarray of uint16, shape (2 ** n_points,)
    labels : ndarray of uint16, shape (rows, cols)
    """
    rows, cols = labels.shape
    width = padded.shape[1]
    codes = np.empty(cols, np.int32)
    unit = np.float32(UNIT)
    for r in range(rows):
        start = (r + margin) * width + margin
        here = piece(padded, start, cols)
        codes[:] = 0
        for p in range(len(offsets)):
            bit = np.int32(1 << p)
            a = piece(padded, start + offsets[p, 0], cols)
            if shares[p, 0] == unit:
                for x in range(cols):
                    codes[x] |= bit if a[x] >= here[x] else np.int32(0)
                continue
            b, c = piece(padded, start + offsets[p, 1], cols), piece(padded, start + offsets[p, 2], cols)
            d = piece(padded, start + offsets[p, 3], cols)
            wa, wb, wc, wd = shares[p, 0], shares[p, 1], shares[p, 2], shares[p, 3]
            for x in range(cols):
                value = wa * a[x] + wb * b[x] + wc * c[x] + wd * d[x]
                codes[x] |= bit if value >= unit * here[x] else np.int32(0)
        for x in range(cols):
            labels[r, x] = table[codes[x]]


@compiled
def uniform_labels(n_points, by_rotation, table):
    """Give labels to patterns with at most two changes round the circle, and one to all others.

    Parameters
    ----------
    n_points : int
    by_rotation : bool
        Whether patterns that are rotations of each other have one label.
    table : ndarray of uint16, shape (2 ** n_points,)
    """
    full = (1 << n_points) - 1
    for code in range(full + 1):
        previous = ((code << 1) | (code >> (n_points - 1))) & full
        starts = code & ~previous  # ones that follow a zero
        n_starts, n_ones, first = 0, 0, 0
        for p in range(n_points):
            n_ones += (code >> p) & 1
            if (starts >> p) & 1:
                n_starts += 1
                first = p
        if n_starts > 1:
            table[code] = n_points + 1 if by_rotation else n_points * (n_points - 1) + 2
        elif by_rotation or n_ones == 0:
            table[code] = n_ones
        else:
            table[code] = 1 + (n_ones - 1) * n_points + first


@compiled
def least_rotations(n_points, least):
    """Write the least number that the bits of each pattern make when they are turned round the circle."""
    full = (1 << n_points) - 1
    for code in range(full + 1):
        turned = best = code
        for _ in range(n_points - 1):
            turned = ((turned << 1) | (turned >> (n_points - 1))) & full
            best = min(best, turned)
        least[code] = best
