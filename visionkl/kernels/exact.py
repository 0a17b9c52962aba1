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
`Chi2()(X)` that of X with itself. `kernel_matrix` does the same by name. `Polynomial` transforms another kernel,
and `Additive` sums any function of two numbers over the features.

If unsure: histograms of words or gradients take `"exp_chi2"` with its own width; numbers of any sign take
`"gaussian"`.

Implementation
--------------
Linear, gaussian and Hellinger kernels are matrix products. The others are compiled loops over pairs of rows
(`visionkl.backend.cpu.kernels`). Either way the matrix is filled in bands of rows by several threads, and no
temporary is larger than a band; a matrix of X with itself is computed on one side of the diagonal only. The
result does not depend on the number of threads. float32 stays float32: sums over features then carry an error of
about 1e-6 of their size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu import kernels as loops
from visionkl.backend.cpu.elementary import logarithms
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError
from visionkl.core.validation import check_choice, check_number, check_rows, parameter_error
from visionkl.kernels.sigma import Sigma, feature_groups

Matrix = npt.NDArray[Any]

_BAND = 64
#: exp of half the numbers in this span, squared, is still a normal number.
_WIDEST = {np.dtype(np.float32): 80.0, np.dtype(np.float64): 700.0}


class Kernel:
    """What all kernels have in common: the checks, the bands and the threads.

    A kernel says how rows are made ready (`_prepare`) and how a band of the matrix is filled (`_fill`).
    """

    #: Whether numbers must be 0 or above.
    histogram = False

    def __call__(
        self, X: npt.ArrayLike, Y: npt.ArrayLike | None = None, *, n_jobs: int | None = None
    ) -> Matrix:
        """Compute the kernel between all rows of X and all rows of Y (X by default).

        Parameters
        ----------
        X, Y : array_like of float, shapes (n, d) and (m, d)
        n_jobs : int, optional
            Threads; all usable cores by default.

        Returns
        -------
        ndarray of float32 if both are, and of float64 otherwise, shape (n, m)
        """
        rows = self.check(X)
        if Y is None:
            others = rows
        else:
            others = self.check(Y)
            if others.shape[1] != rows.shape[1]:
                raise DataError(
                    f"{self._name}: X has {rows.shape[1]} features but Y has {others.shape[1]}; "
                    "give rows of the same length."
                )
            dtype = np.result_type(rows, others)
            rows, others = rows.astype(dtype, copy=False), others.astype(dtype, copy=False)
        out = np.empty((len(rows), len(others)), rows.dtype)
        left, right = self._prepare(rows, others)
        bands = [slice(first, min(first + _BAND, len(rows))) for first in range(0, len(rows), _BAND)]
        if Y is None:
            run_tasks(lambda band: self._fill(left, right, out, band, band.stop), bands[::-1], n_jobs)
            run_tasks(lambda band: loops.mirror(out, band.start, band.stop), bands, n_jobs)
        else:
            run_tasks(lambda band: self._fill(left, right, out, band, len(others)), bands, n_jobs)
        return out

    def diagonal(self, X: npt.ArrayLike) -> Matrix:
        """Compute the kernel of each row with itself, shape (n,)."""
        rows = self.check(X)
        return np.ones(len(rows), rows.dtype)

    def check(self, X: npt.ArrayLike) -> Matrix:
        """Return rows that this kernel takes, as an array, or complain and name the column."""
        rows = check_rows(self._name, X)
        if self.histogram:
            check_above(self._name, rows, 0.0, inclusive=True)
        return rows

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _prepare(self, X: Matrix, Y: Matrix) -> tuple[Any, Any]:
        return X, Y

    def _fill(self, left: Any, right: Any, out: Matrix, band: slice, n_columns: int) -> None:
        raise NotImplementedError


def check_above(owner: str, rows: Matrix, bound: float, *, inclusive: bool = False) -> None:
    """Complain if a number is below the bound, or equal to it if that is not allowed."""
    lowest = rows.min()
    if lowest > bound or (inclusive and lowest == bound):
        return
    row, column = np.unravel_index(np.argmin(rows), rows.shape)
    raise DataError(
        f"{owner}: Negative values in data: X holds {lowest:g} in row {row}, column {column}, but numbers must be "
        f"{'≥' if inclusive else '>'} {bound:g}; leave the column out, or shift or clip it."
    )


@dataclass(frozen=True)
class Linear(Kernel):
    """Inner products."""

    def diagonal(self, X: npt.ArrayLike) -> Matrix:
        """Compute the kernel of each row with itself, shape (n,)."""
        rows = self.check(X)
        return np.einsum("ij,ij->i", rows, rows)

    def _fill(self, left: Matrix, right: Matrix, out: Matrix, band: slice, n_columns: int) -> None:
        np.matmul(left[band], right[:n_columns].T, out=out[band, :n_columns])


@dataclass(frozen=True)
class Hellinger(Linear):
    """Σ √(x y): the inner product of roots."""

    histogram = True

    def diagonal(self, X: npt.ArrayLike) -> Matrix:
        """Compute the kernel of each row with itself, shape (n,)."""
        return self.check(X).sum(axis=1)

    def _prepare(self, X: Matrix, Y: Matrix) -> tuple[Matrix, Matrix]:
        left = np.sqrt(X)
        return left, left if Y is X else np.sqrt(Y)


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

    def _prepare(self, X: Matrix, Y: Matrix) -> tuple[Any, Any]:
        sigmas, groups = feature_groups(self._name, self.sigma, self.blocks, X.shape[1])
        scale = sigmas[groups].astype(X.dtype)
        # The kernel sees differences only: near 0 the squares lose less of them.
        centre = Y.mean(axis=0, dtype=np.float64).astype(X.dtype)
        left = (X - centre) * scale
        right = left if Y is X else (Y - centre) * scale
        halves = [np.einsum("ij,ij->i", rows, rows) / X.dtype.type(2) for rows in (left, right)]
        return (left, halves[0]), (right, halves[1])

    def _fill(self, left: Any, right: Any, out: Matrix, band: slice, n_columns: int) -> None:
        part = out[band, :n_columns]
        np.matmul(left[0][band], right[0][:n_columns].T, out=part)
        part -= left[1][band, None]
        part -= right[1][:n_columns]
        np.exp(np.minimum(part, 0, out=part), out=part)
        if left[0] is right[0]:
            diagonal = np.arange(band.start, band.stop)
            out[diagonal, diagonal] = 1  # free of rounding


class _PairKernel(Kernel):
    """A kernel that is summed pair by pair."""

    kind = loops.CHI2

    def _fill(self, left: Matrix, right: Matrix, out: Matrix, band: slice, n_columns: int) -> None:
        dtype = out.dtype
        constants = np.finfo(dtype).tiny, logarithms(dtype)
        loops.add_pairs(self.kind, left, right, out, band.start, band.stop, n_columns, *constants)


@dataclass(frozen=True, eq=False)
class SkewedChi2(_PairKernel):
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
    kind = loops.SECH

    def check(self, X: npt.ArrayLike) -> Matrix:
        """Return rows that this kernel takes, as an array, or complain and name the column."""
        check_number(self._name, "c", self.c)
        rows = check_rows(self._name, X)
        check_above(self._name, rows, -self.c)
        return rows

    def _prepare(self, X: Matrix, Y: Matrix) -> tuple[Matrix, Matrix]:
        left = self._scaled_logarithms(X)
        right = left if Y is X else self._scaled_logarithms(Y)
        # sech(a − b) = 2 eᵃeᵇ / (e²ᵃ + e²ᵇ): exponentials once a number instead of once a pair. They are taken
        # around the middle of each feature, so that they stay far from overflow.
        low = np.minimum(left.min(axis=0), right.min(axis=0))
        high = np.maximum(left.max(axis=0), right.max(axis=0))
        widest = float((high - low).max())
        if widest > _WIDEST[np.dtype(np.float64)]:
            raise DataError(
                f"{self._name}: σ log(x + c) spans {widest:g} in column {int(np.argmax(high - low))}, where "
                f"{_WIDEST[np.dtype(np.float64)]:g} is the most; take a smaller 'sigma' or a larger 'c'."
            )
        dtype = X.dtype if widest <= _WIDEST[X.dtype] else np.dtype(np.float64)
        middle = (low + high) / 2
        powers = np.exp(left - middle, dtype=dtype)
        return powers, powers if Y is X else np.exp(right - middle, dtype=dtype)

    def _fill(self, left: Matrix, right: Matrix, out: Matrix, band: slice, n_columns: int) -> None:
        if left.dtype == out.dtype:
            super()._fill(left, right, out, band, n_columns)
        else:
            part = np.empty((band.stop - band.start, n_columns), left.dtype)
            super()._fill(left[band], right[:n_columns], part, slice(0, len(part)), n_columns)
            out[band, :n_columns] = part

    def _scaled_logarithms(self, X: Matrix) -> Matrix:
        sigmas, groups = feature_groups(self._name, self.sigma, self.blocks, X.shape[1])
        return np.log(X + X.dtype.type(self.c)) * sigmas[groups].astype(X.dtype)


@dataclass(frozen=True, eq=False)
class SkewedIntersection(SkewedChi2):
    """Π exp(−σ |Δ|), Δ = log(x + c) − log(y + c); with σ = ½ it is Π √(min / max) of x + c and y + c.

    Parameters
    ----------
    sigma, c, blocks
        As in `SkewedChi2`.
    """

    kind = loops.ABSOLUTE

    def _prepare(self, X: Matrix, Y: Matrix) -> tuple[Matrix, Matrix]:
        left = self._scaled_logarithms(X)
        return left, left if Y is X else self._scaled_logarithms(Y)

    def _fill(self, left: Matrix, right: Matrix, out: Matrix, band: slice, n_columns: int) -> None:
        super()._fill(left, right, out, band, n_columns)
        part = out[band, :n_columns]
        np.exp(np.negative(part, out=part), out=part)


class _Histogram(_PairKernel):
    """A sum over features of something homogeneous, with k(x, x) = x."""

    histogram = True

    def diagonal(self, X: npt.ArrayLike) -> Matrix:
        """Compute the kernel of each row with itself, shape (n,)."""
        return self.check(X).sum(axis=1)


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

    kind = loops.INTERSECTION


@dataclass(frozen=True)
class JensenShannon(_Histogram):
    """Σ ½ x log2(1 + y/x) + ½ y log2(1 + x/y)."""

    kind = loops.ENTROPY

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
        return (X * np.log2(np.maximum(X, np.finfo(X.dtype).tiny))).sum(axis=1)


@dataclass(frozen=True)
class ExpChi2(_PairKernel):
    """exp(−Σ (x − y)² / (x + y) / width).

    Parameters
    ----------
    width : float
        Best the mean χ² distance between training samples: `ExpChi2.of(X)` measures it.

    Examples
    --------
    >>> X = np.random.default_rng(0).random((50, 10))
    >>> kernel = ExpChi2.of(X)
    >>> bool(abs(np.log(kernel(X)).mean() + 1) < 1e-6)  # the mean distance is the width
    True
    """

    width: float = 1.0
    histogram = True
    kind = loops.CHI2_DISTANCE

    @classmethod
    def of(cls, X: npt.ArrayLike, *, n_jobs: int | None = None) -> ExpChi2:
        """Make the kernel whose width is the mean χ² distance between rows (1, if all are equal)."""
        distances = _Chi2Distance()(X, n_jobs=n_jobs)
        return cls(float(distances.mean(dtype=np.float64)) or 1.0)

    def _fill(self, left: Matrix, right: Matrix, out: Matrix, band: slice, n_columns: int) -> None:
        super()._fill(left, right, out, band, n_columns)
        part = out[band, :n_columns]
        part *= -1 / self.width
        np.exp(part, out=part)

    def check(self, X: npt.ArrayLike) -> Matrix:
        """Return rows that this kernel takes, as an array, or complain and name the column."""
        if not check_number(self._name, "width", self.width) > 0:
            raise parameter_error(self._name, "width", "a number > 0", self.width)
        return super().check(X)


class _Chi2Distance(_PairKernel):
    histogram = True
    kind = loops.CHI2_DISTANCE


@dataclass(frozen=True)
class Polynomial(Kernel):
    """Σ_i coefficients[i] · K^i, element by element, of another kernel K (METHODS §9).

    Parameters
    ----------
    kernel : Kernel
    coefficients : sequence of float
        None negative: of the powers 0, 1, 2, ...

    Examples
    --------
    >>> Polynomial(Linear(), (1.0, 0.0, 2.0))([[1.0]], [[3.0]])
    array([[19.]])
    """

    kernel: Kernel = field(default_factory=Linear)
    coefficients: Sequence[float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        values = np.asarray(self.coefficients, dtype=np.float64)
        if values.ndim != 1 or not len(values) or not (np.isfinite(values) & (values >= 0)).all():
            accepted = "a list of finite numbers ≥ 0, so that the result is a kernel"
            raise parameter_error("Polynomial", "coefficients", accepted, self.coefficients)

    def check(self, X: npt.ArrayLike) -> Matrix:
        """Return rows that this kernel takes, as an array, or complain and name the column."""
        return self.kernel.check(X)

    def diagonal(self, X: npt.ArrayLike) -> Matrix:
        """Compute the kernel of each row with itself, shape (n,)."""
        return self._transform(self.kernel.diagonal(X))

    def _prepare(self, X: Matrix, Y: Matrix) -> tuple[Any, Any]:
        return self.kernel._prepare(X, Y)

    def _fill(self, left: Any, right: Any, out: Matrix, band: slice, n_columns: int) -> None:
        self.kernel._fill(left, right, out, band, n_columns)
        part = out[band, :n_columns]
        part[...] = self._transform(part)

    def _transform(self, K: Matrix) -> Matrix:
        total = np.full_like(K, self.coefficients[-1])
        for coefficient in reversed(self.coefficients[:-1]):
            total *= K
            total += K.dtype.type(coefficient)
        return total


@dataclass(frozen=True)
class Additive(Kernel):
    """Σ_j function(x_j, y_j), for any kernel of two numbers; as slow as the function.

    Parameters
    ----------
    function : callable
        Takes two arrays that broadcast, and returns the kernel of their elements.

    Examples
    --------
    >>> Additive(np.minimum)([[1.0, 2.0]], [[3.0, 1.0]])
    array([[2.]])
    """

    function: Callable[[Matrix, Matrix], Matrix]

    def diagonal(self, X: npt.ArrayLike) -> Matrix:
        """Compute the kernel of each row with itself, shape (n,)."""
        rows = self.check(X)
        return np.asarray(self.function(rows, rows), rows.dtype).sum(axis=1)

    def _fill(self, left: Matrix, right: Matrix, out: Matrix, band: slice, n_columns: int) -> None:
        part = out[band, :n_columns]
        part[...] = 0
        for j in range(left.shape[1]):
            part += self.function(left[band, j, None], right[None, :n_columns, j])


@dataclass(frozen=True)
class UserKernel(Kernel):
    """Any function of two matrices of rows that returns the matrix of kernels.

    Parameters
    ----------
    function : callable
    """

    function: Callable[[Matrix, Matrix], Matrix]

    def __call__(
        self, X: npt.ArrayLike, Y: npt.ArrayLike | None = None, *, n_jobs: int | None = None
    ) -> Matrix:
        """Call the function; it may or may not use threads."""
        rows = self.check(X)
        others = rows if Y is None else self.check(Y)
        matrix = np.asarray(self.function(rows, others), np.result_type(rows, others))
        if matrix.shape != (len(rows), len(others)):
            raise DataError(
                f"UserKernel: the function must return a matrix of the shape {(len(rows), len(others))}, "
                f"not {matrix.shape}."
            )
        return matrix

    def diagonal(self, X: npt.ArrayLike) -> Matrix:
        """Compute the kernel of each row with itself, shape (n,)."""
        rows = self.check(X)
        return np.concatenate([self(row[None])[0] for row in rows])


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
        The kernel's parameters, such as `sigma` or `width`, if it was given by name. The width of `"exp_chi2"` is
        by default the mean distance between rows of Y.

    Returns
    -------
    ndarray of float32 if both are, and of float64 otherwise, shape (n, m)

    Examples
    --------
    >>> kernel_matrix([[1.0, 2.0]], [[3.0, 1.0]], "intersection")
    array([[2.]])
    """
    if isinstance(kernel, str) and kernel == "exp_chi2" and not params:
        return ExpChi2.of(X if Y is None else Y, n_jobs=n_jobs)(X, Y, n_jobs=n_jobs)
    return make_kernel("kernel_matrix", kernel, **params)(X, Y, n_jobs=n_jobs)


def make_kernel(owner: str, kernel: AnyKernel, **params: Any) -> Kernel:
    """Make a kernel by name or of a function, or pass one through."""
    if not isinstance(kernel, str) and callable(kernel):
        if params:
            raise parameter_error(owner, "kernel", "a name if parameters are given beside it", kernel)
        return kernel if isinstance(kernel, Kernel) else UserKernel(kernel)
    check_choice(owner, "kernel", kernel, tuple(KERNELS))
    known = getattr(KERNELS[kernel], "__dataclass_fields__", {})
    for name in params:
        check_choice(owner, f"parameter of the {kernel} kernel", name, tuple(known))
    return KERNELS[kernel](**params)
