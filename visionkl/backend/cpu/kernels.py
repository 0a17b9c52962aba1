"""Sums over all features for all pairs of rows: χ², intersection and their like (METHODS §1).

    out[i, k]  =  Σ_j term(X[i, j], Y[k, j])

Four rows of Y stay in the nearest cache while a band of rows of X passes by, and their sums are made abreast:
the compiler holds them in registers, 16 features at a time. Nothing of the size rows × rows × features is
ever written. Where a term divides, the division takes most of the time, and nothing else needs to be faster.

Which term it is must be known when the loop is compiled, so it is passed as a tuple whose length tells.
"""

# Numba gives intrinsics a typing context that their callers do not see.
# mypy: disable-error-code="no-untyped-def, call-arg, var-annotated"

from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.elementary import binary_logarithm
from visionkl.backend.cpu.jit import compiled
from visionkl.backend.cpu.simd import piece

#: 2 x y / (x + y)
CHI2 = (0,)
#: (x − y)² / (x + y)
CHI2_DISTANCE = (0, 0)
#: min(x, y)
INTERSECTION = (0, 0, 0)
#: |x − y|
ABSOLUTE = (0, 0, 0, 0)
#: (x + y) log2(x + y)
ENTROPY = (0, 0, 0, 0, 0)
#: 2 x y / (x² + y²), multiplied and not added: Π sech(log x − log y)
SECH = (0, 0, 0, 0, 0, 0)


@compiled
def _add_term(total, kind, x, y, tiny, coefficients):
    """Take one more feature into a sum."""
    of_its_type = type(x)
    if len(kind) == 1:
        return total + of_its_type(2) * (x / max(x + y, tiny)) * y
    if len(kind) == 2:
        return total + (x - y) / max(x + y, tiny) * (x - y)
    if len(kind) == 3:
        return total + min(x, y)
    if len(kind) == 4:
        return total + abs(x - y)
    if len(kind) == 5:
        return total + (x + y) * binary_logarithm(max(x + y, tiny), coefficients)
    return total * (of_its_type(2) * x * y / (x * x + y * y))


@compiled
def add_pairs(kind, X, Y, out, first, last, n_columns, tiny, coefficients):
    """Fill a part of the matrix: the rows `first` to `last`, and the first `n_columns` columns.

    Parameters
    ----------
    kind : tuple
        CHI2 or another constant of this module.
    X, Y : ndarray of float, shapes (n, d) and (m, d)
        Contiguous and of one dtype.
    out : ndarray of the same dtype, shape (n, m)
    first, last, n_columns : int
    tiny : float of the same dtype
        The smallest normal number, which keeps 0 / 0 from being divided.
    coefficients : tuple of float of the same dtype
        From `elementary.logarithms`.
    """
    d = X.shape[1]
    start = out.dtype.type(1 if len(kind) == 6 else 0)
    for k in range(0, n_columns, 4):
        # Past the last row it is taken again, and the sum is not written.
        y0 = piece(Y, k * d, d)
        y1 = piece(Y, min(k + 1, n_columns - 1) * d, d)
        y2 = piece(Y, min(k + 2, n_columns - 1) * d, d)
        y3 = piece(Y, min(k + 3, n_columns - 1) * d, d)
        for i in range(first, last):
            x = piece(X, i * d, d)
            s0, s1, s2, s3 = start, start, start, start
            for j in range(d):
                s0 = _add_term(s0, kind, x[j], y0[j], tiny, coefficients)
                s1 = _add_term(s1, kind, x[j], y1[j], tiny, coefficients)
                s2 = _add_term(s2, kind, x[j], y2[j], tiny, coefficients)
                s3 = _add_term(s3, kind, x[j], y3[j], tiny, coefficients)
            out[i, k] = s0
            if k + 1 < n_columns:
                out[i, k + 1] = s1
            if k + 2 < n_columns:
                out[i, k + 2] = s2
            if k + 3 < n_columns:
                out[i, k + 3] = s3


@compiled
def mirror(matrix, first, last):
    """Copy what is left of the diagonal, in the rows `first` to `last`, to the other side of it."""
    tile = 32
    for left in range(0, last, tile):
        for i in range(first, last):
            for k in range(left, min(left + tile, i)):
                matrix[k, i] = matrix[i, k]


def squared_lengths(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the inner product of each row with itself, shape (n,)."""
    return np.einsum("ij,ij->i", rows, rows)


def exponentiate(numbers: npt.NDArray[Any], factor: float) -> None:
    """Put exp(factor · x) in the place of each x; exponents should be 0 or below, and count as 0 if above."""
    if factor != 1:
        numbers *= factor
    np.exp(np.minimum(numbers, 0, out=numbers), out=numbers)
