"""What a kernel is: a small object that is called on rows and returns a matrix.

`Kernel` checks the rows, cuts the matrix into bands and hands them to threads; a kernel says how rows are
made ready (once) and how a band is filled. `PairKernel` fills with a compiled loop over pairs of rows. Three
kernels are made of something else: `Polynomial` of another kernel, `Additive` of a function of two numbers,
and `UserKernel` of a function of two matrices. Those with names are in `visionkl.kernels.exact`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from visionkl.backend import glue
from visionkl.backend.cpu.elementary import logarithms
from visionkl.backend.cpu.kernels import CHI2
from visionkl.backend.dispatch import Device, device_of, loops, rows_anywhere
from visionkl.backend.gpu.device import enough_memory
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError
from visionkl.core.validation import parameter_error

Matrix = npt.NDArray[Any]

_BAND = 64
#: Numbers of a band on a GPU, which may have temporaries of its size; a band has at least `_BAND` rows.
_NUMBERS_ON_A_GPU = 2**26


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
            CuPy arrays are computed on the GPU they lie on, and so is the result.
        n_jobs : int, optional
            Threads; all usable cores by default.

        Returns
        -------
        ndarray of float32 if both are, and of float64 otherwise, shape (n, m)
        """
        rows = self.check(X)
        device = device_of(rows)
        if Y is None:
            others = rows
        else:
            others = self.check(Y)
            if others.shape[1] != rows.shape[1]:
                raise DataError(
                    f"{self._name}: X has {rows.shape[1]} features but Y has {others.shape[1]}; "
                    "give rows of the same length."
                )
            device = device_of(rows, others)
            dtype = np.result_type(rows.dtype, others.dtype)
            with device.use():
                rows, others = rows.astype(dtype, copy=False), others.astype(dtype, copy=False)
        with device.use(), enough_memory(f"a matrix of {len(rows)} × {len(others)} kernels"):
            return self._matrix(rows, others, device, 1 if device.is_gpu else n_jobs)

    def _matrix(self, rows: Matrix, others: Matrix, device: Device, n_jobs: int | None) -> Matrix:
        """Compute the matrix between checked rows; if both are the same, half of it."""
        out: Matrix = device.namespace.empty((len(rows), len(others)), rows.dtype)
        left, right = self._prepare(rows, others)
        size = max(_NUMBERS_ON_A_GPU // len(others), _BAND) if device.is_gpu else _BAND
        bands = [slice(first, min(first + size, len(rows))) for first in range(0, len(rows), size)]
        mirror = device.loops("kernels").mirror
        if others is rows:
            run_tasks(lambda band: self._fill(left, right, out, band, band.stop), bands[::-1], n_jobs)
            run_tasks(lambda band: mirror(out, band.start, band.stop), bands, n_jobs)
        else:
            run_tasks(lambda band: self._fill(left, right, out, band, len(others)), bands, n_jobs)
        return out

    def diagonal(self, X: npt.ArrayLike) -> Matrix:
        """Compute the kernel of each row with itself, shape (n,)."""
        rows = self.check(X)
        device = device_of(rows)
        with device.use():
            return device.namespace.ones(len(rows), rows.dtype)

    def check(self, X: npt.ArrayLike) -> Matrix:
        """Return rows that this kernel takes, as an array, or complain and name the column."""
        rows = rows_anywhere(self._name, X)
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
    with device_of(rows).use():
        lowest, place = glue.lowest(rows)
    if lowest > bound or (inclusive and lowest == bound):
        return
    row, column = divmod(place, rows.shape[1])
    raise DataError(
        f"{owner}: Negative values in data: X holds {lowest:g} in row {row}, column {column}, but numbers "
        f"must be {'≥' if inclusive else '>'} {bound:g}; leave the column out, or shift or clip it."
    )


class PairKernel(Kernel):
    """A kernel that is summed pair by pair."""

    kind: ClassVar[tuple[int, ...]] = CHI2

    def _fill(self, left: Matrix, right: Matrix, out: Matrix, band: slice, n_columns: int) -> None:
        dtype = out.dtype
        constants = np.finfo(dtype).tiny, logarithms(dtype)
        loops("kernels", out).add_pairs(
            self.kind, left, right, out, band.start, band.stop, n_columns, *constants
        )


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
    >>> Polynomial(Additive(np.multiply), (1.0, 0.0, 2.0))([[1.0]], [[3.0]])
    array([[19.]])
    """

    kernel: Kernel
    coefficients: Sequence[float]

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
        with device_of(K).use():
            return glue.polynomial(K, self.coefficients)


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
        device = device_of(rows)
        with device.use():
            return glue.row_sums(device.namespace.asarray(self.function(rows, rows), dtype=rows.dtype))

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
        device = device_of(rows, others)
        with device.use():
            made = self.function(rows, others)
            matrix: Matrix = device.namespace.asarray(made, dtype=np.result_type(rows.dtype, others.dtype))
        if matrix.shape != (len(rows), len(others)):
            raise DataError(
                f"UserKernel: the function must return a matrix of the shape {(len(rows), len(others))}, "
                f"not {matrix.shape}."
            )
        return matrix

    def diagonal(self, X: npt.ArrayLike) -> Matrix:
        """Compute the kernel of each row with itself, shape (n,)."""
        rows = self.check(X)
        device = device_of(rows)
        with device.use():
            return device.namespace.concatenate([self(row[None])[0] for row in rows])
