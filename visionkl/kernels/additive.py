"""Sparse maps of additive kernels: two numbers a feature (METHODS §4).

Fundamentals
------------
An additive kernel is a sum over features of a kernel of two numbers. For one number, take a grid of
`n_points` points z_0, z_1, ... over the feature's range, and project x, in the kernel's space, on the two
grid points beside it. The two coefficients solve K_Z̄Z̄ c = K_Z̄x (with the pseudo-inverse, because the
kernel of 0 with itself is 0). On a grid with spacing 1, and with i = ⌊x⌋,

* intersection: c = [i + 1 − x, x − i];
* χ²: c = 2 (1 + 2i) x / ((i + x) (1 + i + x)) · [i + 1 − x, x − i];
* Hellinger: c = √x / (2i + 1) · [√i, √(i + 1)];

and below the first point, i = 0, only z_1 counts. At grid points all are exact.

Inner products are taken through the grid's own kernel, K_ZZ:

    k(x, y) ≈ Φ(x)ᵀ K Φ(y),   K = K_ZZ for every feature, and 0 between features.

So a linear model on Φ is regularised with `vᵀ K† v`, as `visionkl.solvers.bundle` does: `gram_` is K_ZZ of
one feature. It is the same for all features: the three kernels above are homogeneous, so each feature is
measured in steps of its own grid, which runs from 0 to the largest value seen, and √step is multiplied into
its coefficients. A kernel of your own is taken on one grid for all features, from the smallest to the largest
value seen anywhere.

Take this map where a dense one has too many numbers, or where its terms are to be looked at: a linear model
on it is a piecewise curve for each feature. Else `HomogeneousMap` is faster to learn with.

Values outside of the grid are taken as its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from visionkl.backend.cpu import maps as loops
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError
from visionkl.core.validation import check_number, parameter_error
from visionkl.kernels.base import Additive, Matrix
from visionkl.kernels.exact import KERNELS
from visionkl.kernels.mapping import KernelMap, bands

Vector = npt.NDArray[np.float64]
Function = Callable[[Any, Any], Any]

_RANK_TOLERANCE = 1e-12


def _chi2(x: Matrix, y: Matrix) -> Matrix:
    return 2 * x * y / np.maximum(x + y, np.finfo(np.float64).tiny)


_FUNCTIONS: dict[str, Function] = {
    "intersection": np.minimum,
    "chi2": _chi2,
    "hellinger": lambda x, y: np.sqrt(x * y),
}


class SparseAdditiveMap(KernelMap):
    """Sparse map of an additive kernel: at most two numbers for each feature.

    Parameters
    ----------
    kernel : {"intersection", "chi2", "hellinger"} or callable
        A function takes two arrays of numbers and returns the kernel of their elements.
    n_points : int
        Grid points of a feature.
    n_jobs : int, optional
        Threads; all usable cores by default.

    Attributes
    ----------
    kernel_ : Kernel
        What the map comes near.
    gram_ : ndarray of float64, shape (n_points, n_points)
        K_ZZ, the kernel between the grid points of a feature, the same for all features.
    grid_ : ndarray of float64, shape (n_points,)
        The grid, in steps for the named kernels, and in the data's unit for others.
    steps_ : ndarray of float64, shape (n_features,)
        Step of each feature's grid: point p stands for the value `grid_[p] * steps_[j]`.
    n_features_in_ : int

    Examples
    --------
    >>> X = np.random.default_rng(0).random((100, 4))
    >>> additive = SparseAdditiveMap("chi2", n_points=16).fit(X)
    >>> mapped = additive.transform(X)
    >>> mapped.shape, mapped.nnz <= 100 * 4 * 2
    ((100, 64), True)
    >>> bool(np.abs(mapped @ additive.kernel_product(mapped.toarray()).T - additive.kernel_(X)).max() < 0.1)
    True
    """

    def __init__(
        self, kernel: str | Function = "intersection", *, n_points: int = 16, n_jobs: int | None = None
    ) -> None:
        self.kernel = kernel
        self.n_points = n_points
        self.n_jobs = n_jobs

    def fit(self, X: npt.ArrayLike, y: object = None) -> SparseAdditiveMap:
        """Lay the grids over the range of the data.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)
            Not negative, for the named kernels.
        y : None
            Not used.

        Returns
        -------
        self
        """
        check_number("SparseAdditiveMap", "n_points", self.n_points, low=2, integer=True)
        if not callable(self.kernel) and self.kernel not in _FUNCTIONS:
            accepted = "one of " + ", ".join(map(repr, _FUNCTIONS)) + ", or a function of two arrays"
            raise parameter_error("SparseAdditiveMap", "kernel", accepted, self.kernel)
        rows = self._rows_to_fit(X)
        n_features = rows.shape[1]
        if callable(self.kernel):
            low, high = float(rows.min()), float(rows.max())
            self.grid_ = np.linspace(low, high if high > low else low + 1.0, self.n_points)
            self.steps_ = np.ones(n_features)
            self.kernel_ = Additive(self.kernel)
        else:
            self.grid_ = np.arange(self.n_points, dtype=np.float64)
            top = rows.max(axis=0).astype(np.float64)
            self.steps_ = np.where(top > 0, top, 1.0) / (self.n_points - 1)
            self.kernel_ = KERNELS[self.kernel]()
        gram = np.asarray(self._function(self.grid_[:, None], self.grid_), np.float64)
        if gram.shape != (self.n_points, self.n_points) or not np.allclose(gram, gram.T):
            raise DataError(
                "SparseAdditiveMap: the kernel must return a number for each pair of numbers, the same in "
                f"both orders; on a grid of {self.n_points} points it returned an array {gram.shape}."
            )
        self.gram_ = gram
        pairs = np.lib.stride_tricks.sliding_window_view(gram, (2, 2))
        pairs = pairs[np.arange(self.n_points - 1), np.arange(self.n_points - 1)]
        self._inverses = np.linalg.pinv(pairs, rcond=_RANK_TOLERANCE, hermitian=True)
        self._n_features_out = n_features * self.n_points
        return self

    def transform(self, X: npt.ArrayLike) -> sparse.csr_matrix:
        """Map rows.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)

        Returns
        -------
        csr_matrix of float32 if X is, and of float64 otherwise, shape (n_samples, n_features * n_points)
            The columns of a feature are side by side, one for each grid point.
        """
        rows = self._rows_to_map(X)
        parts = run_tasks(
            lambda band: self._map_band(rows[band]), bands(len(rows), 64 * rows.shape[1]), self.n_jobs
        )
        counts, columns, values = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
        starts = np.concatenate([[0], np.cumsum(counts)])
        if starts[-1] < np.iinfo(np.int32).max and self._n_features_out < np.iinfo(np.int32).max:
            starts, columns = starts.astype(np.int32), columns.astype(np.int32)
        return sparse.csr_matrix((values, columns, starts), shape=(len(rows), self._n_features_out))

    def kernel_product(self, v: npt.ArrayLike) -> Vector:
        """Multiply by K: by `gram_` for each feature.

        For the intersection kernel that takes two running sums instead of a product.

        Parameters
        ----------
        v : array_like of float, shape (..., n_features * n_points)

        Returns
        -------
        ndarray of float64, same shape
        """
        values = np.asarray(v, dtype=np.float64)
        by_feature = values.reshape(*values.shape[:-1], -1, self.n_points)
        if self.kernel != "intersection":
            return (by_feature @ self.gram_).reshape(values.shape)
        product = np.zeros_like(by_feature)
        above = np.cumsum(by_feature[..., :0:-1], axis=-1)[..., ::-1]
        np.cumsum(above, axis=-1, out=product[..., 1:])
        return product.reshape(values.shape)

    def _map_band(self, X: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """Map a block of rows; returns counts of the rows, columns and values."""
        positions = X / self.steps_
        np.clip(positions, self.grid_[0], self.grid_[-1], out=positions)
        spacing = self.grid_[1] - self.grid_[0]
        cells = ((positions - self.grid_[0]) / spacing).astype(np.int64)
        np.clip(cells, 0, self.n_points - 2, out=cells)
        below = np.asarray(self._function(self.grid_[cells], positions))
        above = np.asarray(self._function(self.grid_[cells + 1], positions))
        inverses = self._inverses[cells]
        roots = np.sqrt(self.steps_)
        lower = (inverses[..., 0, 0] * below + inverses[..., 0, 1] * above) * roots
        upper = (inverses[..., 1, 0] * below + inverses[..., 1, 1] * above) * roots
        # At a grid point the other coefficient is 0 but for rounding.
        negligible = 1e-12 * (np.abs(lower) + np.abs(upper))
        lower[np.abs(lower) <= negligible] = 0
        upper[np.abs(upper) <= negligible] = 0
        counts = np.empty(len(X), np.int64)
        columns, values = np.empty(2 * X.size, np.int64), np.empty(2 * X.size, X.dtype)
        n = loops.pack_neighbours(cells, lower, upper, self.n_points, counts, columns, values)
        return counts, columns[:n].copy(), values[:n].copy()

    @property
    def _function(self) -> Function:
        return self.kernel if callable(self.kernel) else _FUNCTIONS[self.kernel]

    def _is_for_histograms(self) -> bool:
        return not callable(self.kernel)
