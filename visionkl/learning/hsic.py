"""How much two kernels say about each other: the Hilbert–Schmidt independence criterion (METHODS §9).

Fundamentals
------------
For the Gram matrices K and G of m paired samples, HSIC(K, G) = (m − 1)⁻² tr(H K H G), where H takes the mean
off. It is 0 or above, and 0 where nothing depends on anything.

`hsic_matrix` has C_ij = HSIC(K^(i), G^(j)) for the element-wise powers of both. Written out,

    tr(H K H G)  =  Σ_pq K_pq G_pq  −  2/m Σ_p r_p s_p  +  1/m² Σ_p r_p Σ_p s_p

with the sums r and s of their rows: so one pass over both matrices gives all C_ij, and no matrix is ever
multiplied by another. Powers of zero are constant, and HSIC with a constant is 0.

`mapped_hsic_matrix` does without Gram matrices: with explicit maps Φ_i of the kernels K^(i), and Γ_j of the
others, HSIC is the squared norm of the covariance of Φ_i and Γ_j, and is summed over blocks of samples. Time
and memory grow linearly with their number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu import twin as loops
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError
from visionkl.core.validation import check_number, check_rows
from visionkl.kernels.base import Matrix
from visionkl.kernels.mapping import KernelMap

#: Rows of a task; their sums are added up in order, so that the result does not depend on threads.
_BAND = 128
#: Rows of the maps that are held at a time.
_BLOCK = 1024
#: HSIC below this share of what it is the difference of is rounding.
_ROUNDING = 1e-12


def hsic(K: npt.ArrayLike, G: npt.ArrayLike, *, n_jobs: int | None = None) -> float:
    """Return the dependence of two kernels on the same samples.

    Parameters
    ----------
    K, G : array_like of float, shape (m, m)
        Symmetric.
    n_jobs : int, optional
        Threads; all usable cores by default.

    Examples
    --------
    >>> hsic(np.eye(3), np.eye(3))
    0.5
    """
    return float(hsic_matrix(K, G, (1, 1), n_jobs=n_jobs)[1, 1])


def hsic_matrix(
    K: npt.ArrayLike, G: npt.ArrayLike, degrees: tuple[int, int] = (11, 11), *, n_jobs: int | None = None
) -> npt.NDArray[np.float64]:
    """Return HSIC of all element-wise powers of two Gram matrices, in one pass over them.

    Parameters
    ----------
    K, G : array_like of float, shape (m, m)
        Symmetric, of the same samples.
    degrees : tuple of two int
        The highest powers of K and of G.
    n_jobs : int, optional
        Threads; all usable cores by default. The result does not depend on it.

    Returns
    -------
    ndarray of float64, shape (degrees[0] + 1, degrees[1] + 1)
        C; the first row and column, of the constant powers, are 0. Values that are rounding are 0, too.

    Examples
    --------
    >>> x = np.arange(6.0)[:, None]
    >>> K = np.exp(-((x - x.T) ** 2))
    >>> hsic_matrix(K, K, (1, 2)).shape
    (2, 3)
    """
    matrices = [_gram(name, matrix) for name, matrix in (("K", K), ("G", G))]
    if matrices[0].shape != matrices[1].shape:
        raise DataError(
            f"hsic_matrix: K is of {len(matrices[0])} samples but G of {len(matrices[1])}; "
            "give both of the same samples."
        )
    return scaled_hsic_matrix(matrices[0], matrices[1], (1.0, 1.0), degrees, n_jobs)


def scaled_hsic_matrix(
    K: Matrix, G: Matrix, scales: tuple[float, float], degrees: tuple[int, int], n_jobs: int | None
) -> npt.NDArray[np.float64]:
    """Do as `hsic_matrix` of float64 matrices times a number each; nothing is checked."""
    m = len(K)
    rows = np.empty((m, degrees[0])), np.empty((m, degrees[1]))

    def add(first: int) -> Matrix:
        products = np.zeros(degrees)
        loops.add_power_sums(K, G, *scales, first, min(first + _BAND, m), products, *rows)
        return products

    products = np.sum(run_tasks(add, range(0, m, _BAND), n_jobs), axis=0)
    totals = np.outer(rows[0].sum(axis=0), rows[1].sum(axis=0)) / m**2
    centred = products - 2 / m * np.einsum("mi,mj->ij", *rows) + totals
    centred[centred <= _ROUNDING * np.abs(products)] = 0
    return _with_constants(centred / (m - 1) ** 2)


def mapped_hsic_matrix(
    input_maps: Sequence[KernelMap], output_maps: Sequence[KernelMap], X: Matrix, Y: Matrix
) -> npt.NDArray[np.float64]:
    """Return HSIC of the kernels of explicit maps, without their Gram matrices.

    Parameters
    ----------
    input_maps, output_maps : sequence of KernelMap
        Fitted: of the powers 1, 2, ... of the kernel on X, and on Y.
    X, Y : ndarray of float, shapes (m, d) and (m, p)

    Returns
    -------
    ndarray of float64, shape (len(input_maps) + 1, len(output_maps) + 1)
        As from `hsic_matrix`.
    """
    m = len(X)
    sizes = [[one._n_features_out for one in maps] for maps in (input_maps, output_maps)]
    products = np.zeros((sum(sizes[0]), sum(sizes[1])))
    sums = [np.zeros(length) for length in products.shape]
    for first in range(0, m, _BLOCK):
        block = slice(first, first + _BLOCK)
        left, right = _features(input_maps, X[block]), _features(output_maps, Y[block])
        products += left.T @ right
        sums[0] += left.sum(axis=0)
        sums[1] += right.sum(axis=0)
    covariances = (products - np.outer(sums[0], sums[1]) / m) / (m - 1)
    squares = covariances**2
    starts = [np.cumsum([0, *those])[:-1] for those in sizes]
    return _with_constants(np.add.reduceat(np.add.reduceat(squares, starts[0], axis=0), starts[1], axis=1))


def _features(maps: Sequence[KernelMap], rows: Matrix) -> Matrix:
    return np.concatenate([one.transform(rows) for one in maps], axis=1, dtype=np.float64)


def _with_constants(C: Matrix) -> npt.NDArray[np.float64]:
    """Put the row and the column of the constant powers before the others."""
    return np.pad(C, ((1, 0), (1, 0)))


def _gram(name: str, matrix: npt.ArrayLike) -> Matrix:
    array = check_rows("hsic_matrix", matrix, np.float64)
    if array.shape[0] != array.shape[1] or len(array) < 2:
        raise DataError(
            f"hsic_matrix: {name} must be the square Gram matrix of two samples or more, not of the shape "
            f"{array.shape}."
        )
    return array


def check_degrees(owner: str, degrees: object) -> tuple[int, int]:
    """Return the two highest powers, and complain if they are none."""
    pair = tuple(degrees) if isinstance(degrees, tuple | list) else (degrees,)
    if len(pair) != 2:
        raise DataError(
            f"{owner}: 'degrees' must be two integers ≥ 1, of inputs and outputs, not {degrees!r}."
        )
    for degree in pair:
        check_number(owner, "degrees", degree, low=1, high=64, integer=True)
    return int(pair[0]), int(pair[1])
