"""Exact kernels and their matrices (METHODS §1).

Fundamentals
------------
========================= ========================================================== ==============
name                      k(x, y)                                                    values
========================= ========================================================== ==============
`"linear"`                Σ_j x_j y_j                                                any
`"gaussian"`              exp(−½ Σ_j σ_j² (x_j − y_j)²)                              any
`"skewed_chi2"`           Π_j sech(σ_j Δ_j),  Δ_j = log(x_j + c) − log(y_j + c)      above −c
`"skewed_intersection"`   Π_j exp(−σ_j abs(Δ_j))                                     above −c
`"chi2"`                  Σ_j 2 x_j y_j / (x_j + y_j)                                0 and above
`"intersection"`          Σ_j min(x_j, y_j)                                          0 and above
`"hellinger"`             Σ_j √(x_j y_j)                                             0 and above
`"jensen_shannon"`        Σ_j ½ x_j log2(1 + y_j/x_j) + ½ y_j log2(1 + x_j/y_j)      0 and above
`"exp_chi2"`              exp(−Σ_j (x_j − y_j)² / (x_j + y_j) / width)               0 and above
========================= ========================================================== ==============

0/0 is 0. A kernel is a small object that is called on rows: `Chi2()(X, Y)` is the matrix `k(X[i], Y[k])`, and
`Chi2()(X)` that of X with itself. `kernel_matrix` does the same by name. `visionkl.kernels.base` has
kernels made of others.

If unsure: histograms of words or gradients take `"exp_chi2"` with its own width; numbers of any sign take
`"gaussian"`.

Implementation
--------------
Linear, gaussian and Hellinger kernels are matrix products. The others are compiled loops over pairs of rows
(`visionkl.backend.cpu.kernels`). Either way the matrix is filled in bands of rows by several threads, and no
temporary is larger than a band; a matrix of X with itself is computed on one side of the diagonal only. The
result does not depend on the number of threads. float32 stays float32: sums over features then carry an error
of about 1e-6 of their size, and numbers should lie between 1e-18 and 1e18.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from visionkl.backend import glue
from visionkl.backend.cpu import kernels as pairs
from visionkl.backend.dispatch import device_of, loops, namespace_of, rows_anywhere
from visionkl.core.errors import DataError
from visionkl.core.validation import check_choice, check_number, parameter_error
from visionkl.kernels.base import Kernel, Matrix, PairKernel, UserKernel, check_above
from visionkl.kernels.sigma import Sigma, feature_groups

#: exp of half the numbers in this span, squared, is still a normal number.
_WIDEST = {np.dtype(np.float32): 80.0, np.dtype(np.float64): 700.0}
#: Rows that tell the mean distance well.
_ENOUGH_ROWS = 2000


@dataclass(frozen=True)
class Linear(Kernel):
    """Inner products."""

    def diagonal(self, X: npt.ArrayLike) -> Matrix:
        """Compute the kernel of each row with itself, shape (n,)."""
        rows = self.check(X)
        with device_of(rows).use():
            return loops("kernels", rows).squared_lengths(rows)

    def _fill(self, left: Matrix, right: Matrix, out: Matrix, band: slice, n_columns: int) -> None:
        namespace_of(out).matmul(left[band], right[:n_columns].T, out=out[band, :n_columns])


@dataclass(frozen=True)
class Hellinger(Linear):
    """Σ √(x y): the inner product of roots."""

    histogram = True

    def diagonal(self, X: npt.ArrayLike) -> Matrix:
        """Compute the kernel of each row with itself, shape (n,)."""
        rows = self.check(X)
        with device_of(rows).use():
            return glue.row_sums(rows)

    def _prepare(self, X: Matrix, Y: Matrix) -> tuple[Matrix, Matrix]:
        left = glue.roots(X)
        return left, left if Y is X else glue.roots(Y)


@dataclass(frozen=True, eq=False)
class Gaussian(Kernel):
    """exp(−½ Σ σ² (x − y)²).

    Parameters
    ----------
    sigma : float or array_like of float
        One for all features, one for each block, or one for each feature.
    blocks : sequence of int, optional
        Lengths of the blocks.

    Examples
    --------
    >>> Gaussian(sigma=2.0)([[0.0, 0.0]], [[1.0, 0.0]])  # exp(-2)
    array([[0.13533528]])
    """

    sigma: Sigma = 1.0
    blocks: Sequence[int] | None = None

    @classmethod
    def of(cls, X: npt.ArrayLike) -> Gaussian:
        """Make the kernel whose σ suits the spread of the data: √(2 / (n_features · variance))."""
        rows = rows_anywhere(cls.__name__, X)
        with device_of(rows).use():
            spread = rows.shape[1] * float(rows.var(dtype=np.float64))
        return cls(float(np.sqrt(2 / spread)) if spread > 0 else 1.0)

    def _prepare(self, X: Matrix, Y: Matrix) -> tuple[Any, Any]:
        sigmas, groups = feature_groups(self._name, self.sigma, self.blocks, X.shape[1])
        scale = device_of(X).put(sigmas[groups].astype(X.dtype))
        # The kernel sees differences only: near 0 the squares lose less of them.
        centre = glue.centre(Y)
        left = (X - centre) * scale
        right = left if Y is X else (Y - centre) * scale
        squared_lengths = loops("kernels", X, Y).squared_lengths
        halves = [squared_lengths(rows) / 2 for rows in (left, right)]
        return (left, halves[0]), (right, halves[1])

    def _fill(self, left: Any, right: Any, out: Matrix, band: slice, n_columns: int) -> None:
        xp = namespace_of(out)
        part = out[band, :n_columns]
        xp.matmul(left[0][band], right[0][:n_columns].T, out=part)
        part -= left[1][band, None]
        part -= right[1][:n_columns]
        loops("kernels", out).exponentiate(part, 1)
        if left[0] is right[0]:
            diagonal = xp.arange(band.start, band.stop)
            out[diagonal, diagonal] = 1  # free of rounding


@dataclass(frozen=True, eq=False)
class SkewedChi2(PairKernel):
    """Π sech(σ Δ), Δ = log(x + c) − log(y + c); with σ = ½ it is Π 2√((x+c)(y+c)) / (x + y + 2c).

    Parameters
    ----------
    sigma : float or array_like of float
        One for all features, one for each block, or one for each feature.
    c : float
        Positive: the larger, the less do small values matter.
    blocks : sequence of int, optional
        Lengths of the blocks.
    """

    sigma: Sigma = 0.5
    c: float = 1.0
    blocks: Sequence[int] | None = None
    kind: ClassVar[tuple[int, ...]] = pairs.SECH

    def check(self, X: npt.ArrayLike) -> Matrix:
        """Return rows that this kernel takes, as an array, or complain and name the column."""
        check_number(self._name, "c", self.c)
        rows = rows_anywhere(self._name, X)
        check_above(self._name, rows, -self.c)
        return rows

    def _prepare(self, X: Matrix, Y: Matrix) -> tuple[Matrix, Matrix]:
        left = self._scaled_logarithms(X)
        right = left if Y is X else self._scaled_logarithms(Y)
        # sech(a − b) = 2 eᵃeᵇ / (e²ᵃ + e²ᵇ): exponentials once a number instead of once a pair. They are
        # taken around the middle of each feature, so that they stay far from overflow.
        low, high = glue.ranges(left, right)
        widest = float((high - low).max())
        if widest > _WIDEST[np.dtype(np.float64)]:
            raise DataError(
                f"{self._name}: σ log(x + c) spans {widest:g} in column {int((high - low).argmax())}, where "
                f"{_WIDEST[np.dtype(np.float64)]:g} is the most; take a smaller 'sigma' or a larger 'c'."
            )
        dtype = X.dtype if widest <= _WIDEST[X.dtype] else np.dtype(np.float64)
        middle = (low + high) / 2
        powers = glue.powers(left, middle, dtype)
        return powers, powers if Y is X else glue.powers(right, middle, dtype)

    def _fill(self, left: Matrix, right: Matrix, out: Matrix, band: slice, n_columns: int) -> None:
        if left.dtype == out.dtype:
            super()._fill(left, right, out, band, n_columns)
        else:
            part = namespace_of(out).empty((band.stop - band.start, n_columns), left.dtype)
            super()._fill(left[band], right[:n_columns], part, slice(0, len(part)), n_columns)
            out[band, :n_columns] = part

    def _scaled_logarithms(self, X: Matrix) -> Matrix:
        sigmas, groups = feature_groups(self._name, self.sigma, self.blocks, X.shape[1])
        return glue.logarithms(X, self.c) * device_of(X).put(sigmas[groups].astype(X.dtype))


@dataclass(frozen=True, eq=False)
class SkewedIntersection(SkewedChi2):
    """Π exp(−σ |Δ|), Δ = log(x + c) − log(y + c); with σ = ½ it is Π √(min / max) of x + c and y + c.

    Parameters
    ----------
    sigma, c, blocks
        As in `SkewedChi2`.
    """

    kind = pairs.ABSOLUTE

    def _prepare(self, X: Matrix, Y: Matrix) -> tuple[Matrix, Matrix]:
        left = self._scaled_logarithms(X)
        return left, left if Y is X else self._scaled_logarithms(Y)

    def _fill(self, left: Matrix, right: Matrix, out: Matrix, band: slice, n_columns: int) -> None:
        super()._fill(left, right, out, band, n_columns)
        loops("kernels", out).exponentiate(out[band, :n_columns], -1)


class _Histogram(PairKernel):
    """A sum over features of something homogeneous, with k(x, x) = x."""

    histogram = True

    def diagonal(self, X: npt.ArrayLike) -> Matrix:
        """Compute the kernel of each row with itself, shape (n,)."""
        rows = self.check(X)
        with device_of(rows).use():
            return glue.row_sums(rows)


@dataclass(frozen=True)
class Chi2(_Histogram):
    """Σ 2 x y / (x + y).

    Examples
    --------
    >>> Chi2()([[1.0, 0.0, 0.5]], [[1.0, 0.0, 0.5], [3.0, 1.0, 0.0]])
    array([[1.5, 1.5]])
    """


@dataclass(frozen=True)
class Intersection(_Histogram):
    """Σ min(x, y)."""

    kind = pairs.INTERSECTION


@dataclass(frozen=True)
class JensenShannon(_Histogram):
    """Σ ½ x log2(1 + y/x) + ½ y log2(1 + x/y)."""

    kind = pairs.ENTROPY

    def _prepare(self, X: Matrix, Y: Matrix) -> tuple[Any, Any]:
        left = (X, self._entropies(X))
        return left, left if Y is X else (Y, self._entropies(Y))

    def _fill(self, left: Any, right: Any, out: Matrix, band: slice, n_columns: int) -> None:
        super()._fill(left[0], right[0], out, band, n_columns)
        part = out[band, :n_columns]
        part -= left[1][band, None]
        part -= right[1][:n_columns]
        part /= 2

    @staticmethod
    def _entropies(X: Matrix) -> Matrix:
        return glue.entropies(X, float(np.finfo(X.dtype).tiny))


@dataclass(frozen=True)
class ExpChi2(PairKernel):
    """exp(−Σ (x − y)² / (x + y) / width).

    Parameters
    ----------
    width : float
        Best the mean χ² distance between training samples: `ExpChi2.of(X)` measures it.

    Examples
    --------
    >>> X = np.random.default_rng(0).random((50, 10))
    >>> kernel = ExpChi2.of(X)
    >>> round(float(-np.log(kernel(X)).sum() / (50 * 49)), 6)  # the mean distance is the width
    1.0
    """

    width: float = 1.0
    histogram = True
    kind = pairs.CHI2_DISTANCE

    @classmethod
    def of(cls, X: npt.ArrayLike, *, n_jobs: int | None = None) -> ExpChi2:
        """Make the kernel whose width is the mean χ² distance between different rows.

        Of very many rows, some spread evenly over all are taken. The width is 1 if all are equal.
        """
        rows = cls().check(X)
        if len(rows) > _ENOUGH_ROWS:
            some = np.linspace(0, len(rows) - 1, _ENOUGH_ROWS).astype(np.intp)
            with device_of(rows).use():
                rows = rows[device_of(rows).put(some)]
        distances = _Chi2Distance()(rows, n_jobs=n_jobs)
        with device_of(distances).use():
            total = float(distances.sum(dtype=np.float64))
        return cls(total / (len(rows) * (len(rows) - 1)) if total > 0 else 1.0)

    def _fill(self, left: Matrix, right: Matrix, out: Matrix, band: slice, n_columns: int) -> None:
        super()._fill(left, right, out, band, n_columns)
        loops("kernels", out).exponentiate(out[band, :n_columns], -1 / self.width)

    def check(self, X: npt.ArrayLike) -> Matrix:
        """Return rows that this kernel takes, as an array, or complain and name the column."""
        if not check_number(self._name, "width", self.width) > 0:
            raise parameter_error(self._name, "width", "a number > 0", self.width)
        return super().check(X)


class _Chi2Distance(PairKernel):
    histogram = True
    kind = pairs.CHI2_DISTANCE


KERNELS: dict[str, type[Kernel]] = {
    "linear": Linear,
    "gaussian": Gaussian,
    "skewed_chi2": SkewedChi2,
    "skewed_intersection": SkewedIntersection,
    "chi2": Chi2,
    "intersection": Intersection,
    "hellinger": Hellinger,
    "jensen_shannon": JensenShannon,
    "exp_chi2": ExpChi2,
}


AnyKernel = str | Kernel | Callable[[Matrix, Matrix], Matrix]


def kernel_matrix(
    X: npt.ArrayLike,
    Y: npt.ArrayLike | None = None,
    kernel: AnyKernel = "gaussian",
    *,
    n_jobs: int | None = None,
    **params: Any,
) -> Matrix:
    """Compute a kernel between all rows of X and all rows of Y (X by default).

    Parameters
    ----------
    X, Y : array_like of float, shapes (n, d) and (m, d)
    kernel : str, Kernel or callable
        A name of the table at the head of this module, a kernel object, or a function of X and Y.
    n_jobs : int, optional
        Threads; all usable cores by default.
    **params
        The kernel's parameters, such as `sigma` or `width`, if it was given by name. Without any, the
        gaussian's σ and the width of `"exp_chi2"` are measured on the rows of Y (`Gaussian.of`,
        `ExpChi2.of`).

    Returns
    -------
    ndarray of float32 if both are, and of float64 otherwise, shape (n, m)

    Examples
    --------
    >>> kernel_matrix([[1.0, 2.0]], [[3.0, 1.0]], "intersection")
    array([[2.]])
    """
    return make_kernel("kernel_matrix", kernel, X if Y is None else Y, **params)(X, Y, n_jobs=n_jobs)


def make_kernel(owner: str, kernel: AnyKernel, X: npt.ArrayLike, **params: Any) -> Kernel:
    """Make a kernel by name or of a function, or pass one through; without parameters it suits the rows."""
    if not isinstance(kernel, str) and callable(kernel):
        if params:
            raise parameter_error(owner, "kernel", "a name if parameters are given beside it", kernel)
        return kernel if isinstance(kernel, Kernel) else UserKernel(kernel)
    check_choice(owner, "kernel", kernel, tuple(KERNELS))
    known = getattr(KERNELS[kernel], "__dataclass_fields__", {})
    for name in params:
        check_choice(owner, f"parameter of the {kernel} kernel", name, tuple(known))
    if kernel in ("gaussian", "exp_chi2") and not params:
        return Gaussian.of(X) if kernel == "gaussian" else ExpChi2.of(X)
    return KERNELS[kernel](**params)
