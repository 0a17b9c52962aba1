"""Training data as the solvers see them: something that gives scores and takes shares.

A linear model needs two things of its data, and one *pass* does each of them once:

* `scores(v)`: the inner product of every row with the coefficients `v`;
* `combine(shares)`: the sum of the rows, each times its share, which is what a plane is made of.

Three kinds of data are here. `DenseRows` leave both to BLAS. `SparseRows` hold a SciPy CSR matrix.
`CodedRows` hold product-quantiser codes: the coefficients are then one table of scores for each block of a
code, a score is a sum of table entries, and a plane is a histogram of the codes (METHODS §6, delayed
expansion): nothing is ever decoded. `as_rows` picks the kind.

Passes use threads. Rows are cut into bands of a fixed size whose results are added in order, so the result
does not depend on the number of threads. Several vectors `(k, dim)` or shares `(k, n)` at once cost less than
one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy import sparse

from visionkl.backend.dispatch import CPU, Device, device_of, to_host
from visionkl.backend.gpu.device import in_blocks
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError, UsageError
from visionkl.core.validation import check_number

Vector = npt.NDArray[np.float64]

_BAND = 1024
_BAND_OF_CODES = 2048
_TILE_OF_BLOCKS = 16
# On a GPU; float32 sums of more rows would lose digits.
_BAND_ON_A_GPU = 8192
#: Codes that are brought to a GPU at a time.
CODES_ON_A_GPU = 2**28


class Rows(Protocol):
    """What a loss asks of its data.

    Attributes
    ----------
    n_rows : int
    dim : int
        Length of the coefficients.
    """

    n_rows: int
    dim: int

    def scores(self, v: Vector) -> Vector:
        """Return inner products `(n_rows,)` of the rows with `v (dim,)`; `(k, n_rows)` with `v (k, dim)`."""
        ...

    def combine(self, shares: Vector, first: int = 0) -> Vector:
        """Return sums `(k, dim)` of the rows `first, first + 1, ...` times `shares (k, m)`."""
        ...


class DenseRows:
    """A dense matrix.

    Parameters
    ----------
    X : array_like of float, shape (n_rows, dim)
        float32 is multiplied in float32 (a duality gap much below 1e-5 is out of reach then), anything else
        in float64. May be memory-mapped, or lie on a GPU.
    n_jobs : int, optional
        Threads; all usable cores by default.
    device : visionkl.backend.dispatch.Device
        Where to multiply. A GPU keeps the matrix if there is memory for it; if not, each pass brings it band
        by band. Scores and sums come back.
    """

    def __init__(self, X: npt.ArrayLike, *, n_jobs: int | None = None, device: Device = CPU) -> None:
        home = device_of(X)
        self.device = home if home.is_gpu else device
        matrix: Any = X if home.is_gpu else np.asarray(X)
        if matrix.dtype.kind not in "uifb":
            raise DataError(f"The training data must be numbers, not {matrix.dtype}.")
        _check_shape(matrix.shape)
        with home.use():
            if matrix.dtype != np.float32:
                matrix = matrix.astype(np.float64, copy=False)
            matrix = home.namespace.ascontiguousarray(matrix)
            _check_finite(matrix)
        self.n_rows, self.dim = matrix.shape
        self.n_jobs = n_jobs
        self.X = self.device.hold(matrix)

    def scores(self, v: Vector) -> Vector:
        """Return inner products `(n_rows,)` of the rows with `v (dim,)`; `(k, n_rows)` with `v (k, dim)`."""
        turned = v.astype(self.X.dtype, copy=False).T
        if self.device.is_gpu:
            return self._scores_there(turned).T
        bands = run_tasks(lambda band: self.X[band] @ turned, cut(0, self.n_rows, _BAND), self.n_jobs)
        return np.concatenate(bands).astype(np.float64).T

    def combine(self, shares: Vector, first: int = 0) -> Vector:
        """Return sums `(k, dim)` of the rows `first, first + 1, ...` times `shares (k, m)`."""
        rounded = shares.astype(self.X.dtype, copy=False)
        if self.device.is_gpu:
            return self._combine_there(rounded, first)
        return _sum_ofcut(
            lambda band: rounded[:, band.start - first : band.stop - first] @ self.X[band],
            cut(first, first + shares.shape[1], _BAND),
            self.n_jobs,
        )

    def _scores_there(self, turned: npt.NDArray[Any]) -> Vector:
        scores = np.empty((self.n_rows, *turned.shape[1:]))
        with self.device.use():
            columns = self.device.put(turned)

            def multiply(band: slice) -> None:
                scores[band] = to_host(self.device.put(self.X[band]) @ columns)

            in_blocks(multiply, self.n_rows, self.n_rows)
        return scores

    def _combine_there(self, rounded: npt.NDArray[Any], first: int) -> Vector:
        total = np.zeros((len(rounded), self.dim))
        with self.device.use():
            shares = self.device.put(rounded)

            def add(band: slice) -> None:
                rows = self.X[first + band.start : first + band.stop]
                total.__iadd__(to_host(shares[:, band] @ self.device.put(rows)))

            in_blocks(add, rounded.shape[1], _BAND_ON_A_GPU)
        return total


class SparseRows:
    """A sparse matrix with few non-zeros a row.

    Parameters
    ----------
    X : scipy sparse matrix or array of float, shape (n_rows, dim)
    n_jobs : int, optional
        Threads; all usable cores by default.
    """

    def __init__(self, X: Any, *, n_jobs: int | None = None) -> None:
        _check_shape(X.shape)
        matrix = sparse.csr_array(X)
        self.X = matrix if matrix.dtype.kind == "f" else matrix.astype(np.float64)
        self.n_rows, self.dim = self.X.shape
        self.n_jobs = n_jobs
        bad = np.flatnonzero(~np.isfinite(self.X.data))
        if len(bad):
            row = int(np.searchsorted(self.X.indptr, bad[0], "right")) - 1
            raise DataError(f"Row {row} of the training data holds NaN or infinite values.")

    def scores(self, v: Vector) -> Vector:
        """Return inner products `(n_rows,)` of the rows with `v (dim,)`; `(k, n_rows)` with `v (k, dim)`."""
        turned = np.ascontiguousarray(v.T)
        bands = run_tasks(lambda band: self._rows(band) @ turned, cut(0, self.n_rows, _BAND), self.n_jobs)
        return np.concatenate(bands).astype(np.float64).T

    def combine(self, shares: Vector, first: int = 0) -> Vector:
        """Return sums `(k, dim)` of the rows `first, first + 1, ...` times `shares (k, m)`."""
        turned = np.ascontiguousarray(shares.T)
        return _sum_ofcut(
            lambda band: (self._rows(band).T @ turned[band.start - first : band.stop - first]).T,
            cut(first, first + shares.shape[1], _BAND),
            self.n_jobs,
        )

    def _rows(self, band: slice) -> Any:
        """Rows without a copy, which slicing the matrix would make."""
        X = self.X
        start, stop = X.indptr[band.start], X.indptr[band.stop]
        pointers = X.indptr[band.start : band.stop + 1] - start
        own = (X.data[start:stop], X.indices[start:stop], pointers)
        return sparse.csr_array(own, shape=(band.stop - band.start, self.dim), copy=False)


class CodedRows:
    """Product-quantiser codes: the coefficients are tables `(n_blocks, n_codewords)`, in one row.

    Parameters
    ----------
    codes : array_like of uint8 or uint16, shape (n_rows, n_blocks)
    n_codewords : int
        Every code is below this.
    samples_last : bool
        Whether the codes come as `(n_blocks, n_rows)`, which is how they are used; if not, they are copied
        into that order.
    n_jobs : int, optional
        Threads; all usable cores by default.
    device : visionkl.backend.dispatch.Device
        Where to go over them. A GPU keeps the codes if there is memory for them; scores and sums come back.

    Examples
    --------
    >>> rows = CodedRows(np.array([[0, 1], [1, 1]], np.uint8), n_codewords=2)
    >>> rows.scores(np.array([1.0, 2.0, 10.0, 20.0]))
    array([21., 22.])
    >>> rows.combine(np.array([[1.0, 3.0]]))
    array([[1., 3., 0., 4.]])
    """

    def __init__(
        self,
        codes: npt.ArrayLike,
        n_codewords: int,
        *,
        samples_last: bool = False,
        n_jobs: int | None = None,
        device: Device = CPU,
    ) -> None:
        check_number("CodedRows", "n_codewords", n_codewords, low=1, high=1 << 16, integer=True)
        given = np.asarray(codes)
        check_codes(given.T if samples_last else given, n_codewords)
        by_sample = given.T if samples_last else given
        codes_there = turn_there(by_sample, device) if device.is_gpu else None
        self.codes = np.ascontiguousarray(by_sample.T) if codes_there is None else codes_there
        self.device = device
        self.n_codewords = n_codewords
        self.n_blocks, self.n_rows = self.codes.shape
        self.dim = self.n_blocks * n_codewords
        self.n_jobs = n_jobs

    def scores(self, v: Vector) -> Vector:
        """Return sums of table entries `(n_rows,)` for `v (dim,)`, or `(k, n_rows)` for `v (k, dim)`."""
        tables = v.astype(np.float32).reshape(-1, self.n_blocks, self.n_codewords)
        if self.device.is_gpu:
            return self._scores_there(tables).reshape(*v.shape[:-1], self.n_rows)
        scores = np.zeros((len(tables), self.n_rows))
        look_up = self.device.loops("solver").look_up
        run_tasks(
            lambda task: look_up(self.codes, task[1].start, task[1].stop, tables[task[0]], scores[task]),
            product(range(len(tables)), cut(0, self.n_rows, _BAND_OF_CODES)),
            self.n_jobs,
        )
        return scores.reshape(*v.shape[:-1], self.n_rows)

    def combine(self, shares: Vector, first: int = 0) -> Vector:
        """Return histograms `(k, dim)` of the codes of rows `first, first + 1, ...`, with `shares (k, m)`."""
        if self.device.is_gpu:
            return self._combine_there(shares, first).reshape(len(shares), self.dim)
        tables = np.zeros((len(shares), self.n_blocks, self.n_codewords))
        shared = [with_shares(line, first) for line in shares]
        scatter = self.device.loops("solver").scatter

        def fill(task: tuple[int, slice]) -> None:
            (samples, own), blocks = shared[task[0]], task[1]
            scatter(self.codes, blocks.start, blocks.stop, samples, own, tables[task[0]])

        # Tiles of blocks write to different tables, so nothing has to be added up afterwards.
        run_tasks(fill, product(range(len(shares)), cut(0, self.n_blocks, _TILE_OF_BLOCKS)), self.n_jobs)
        return tables.reshape(len(shares), self.dim)

    def _scores_there(self, tables: npt.NDArray[np.float32]) -> Vector:
        scores = np.empty((len(tables), self.n_rows))
        look_up = self.device.loops("solver").look_up

        def score(band: slice) -> None:
            codes, start = self._codes_there(band)
            for number, table in enumerate(tables):
                sums = self.device.namespace.zeros(band.stop - band.start)
                look_up(codes, start, start + len(sums), self.device.put(table), sums)
                scores[number, band] = to_host(sums)

        with self.device.use():
            in_blocks(score, self.n_rows, max(CODES_ON_A_GPU // self.n_blocks, 1))
        return scores

    def _combine_there(self, shares: Vector, first: int) -> Vector:
        total = np.zeros((len(shares), self.n_blocks, self.n_codewords))
        scatter, put = self.device.loops("solver").scatter, self.device.put

        def add(some: slice) -> None:
            codes, start = self._codes_there(slice(first + some.start, first + some.stop))
            tables = self.device.namespace.zeros(total.shape)
            for number, line in enumerate(shares[:, some]):
                samples, own = with_shares(line, start)
                scatter(codes, 0, self.n_blocks, put(samples), put(own), tables[number])
            total.__iadd__(to_host(tables))

        with self.device.use():
            in_blocks(add, shares.shape[1], max(CODES_ON_A_GPU // self.n_blocks, 1))
        return total

    def _codes_there(self, rows: slice) -> tuple[Any, int]:
        """Return codes on the device, and where in them some rows begin."""
        if device_of(self.codes).is_gpu:
            return self.codes, rows.start
        return self.device.put(np.ascontiguousarray(self.codes[:, rows])), 0


def as_rows(X: Any, *, n_jobs: int | None = None, device: Device = CPU) -> Rows:
    """Take data as they come: a dense array, a SciPy sparse matrix, or something that is `Rows` already."""
    if hasattr(X, "scores") and hasattr(X, "combine"):
        return X
    if not sparse.issparse(X):
        return DenseRows(X, n_jobs=n_jobs, device=device)
    if device.is_gpu:
        raise UsageError(
            f"Sparse rows are multiplied on the CPU, not on {device}; leave 'device' out, or give a dense "
            "array."
        )
    return SparseRows(X, n_jobs=n_jobs)


def turn_there(codes: Any, device: Device) -> Any:
    """Copy codes `(n, n_blocks)` into `(n_blocks, n)` on a GPU; None where its memory is too small."""
    turned = device.reserve(codes.shape[::-1], codes.dtype)
    if turned is None:
        return None
    with device.use():

        def turn(band: slice) -> None:
            turned[:, band] = device.put(codes[band]).T

        in_blocks(turn, len(codes), max(1, CODES_ON_A_GPU // codes.shape[1]))
    return turned


def with_shares(shares: Vector, first: int) -> tuple[npt.NDArray[np.uint32], Vector]:
    """Return the numbers of the samples `first, first + 1, ...` whose share is not 0, and these shares."""
    places = np.flatnonzero(shares)
    return (places + first).astype(np.uint32), shares[places]


def cut(first: int, last: int, size: int) -> list[slice]:
    """Cut a range into pieces of a size; the last one may be shorter."""
    return [slice(start, min(start + size, last)) for start in range(first, last, size)]


def _sum_ofcut(
    function: Callable[[slice], npt.NDArray[np.floating]], bands: list[slice], n_jobs: int | None
) -> Vector:
    """Add up the bands' results in order, a few at a time so that memory stays bounded."""
    total: Vector | None = None
    for wave in range(0, len(bands), 8):
        for result in run_tasks(function, bands[wave : wave + 8], n_jobs):
            total = result.astype(np.float64) if total is None else total.__iadd__(result)
    assert total is not None
    return total


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or 0 in shape:
        raise DataError(
            "The training data must be a matrix (n_samples, n_features) with at least one of each, "
            f"not of the shape {shape}."
        )


def check_codes(codes: npt.NDArray[Any], n_codewords: int) -> None:
    """Complain of an array `(n_rows, n_blocks)` that does not hold codes below a number."""
    if codes.dtype not in (np.uint8, np.uint16):
        raise DataError(f"Codes must be uint8 or uint16, not {codes.dtype}.")
    _check_shape(codes.shape)
    with device_of(codes).use():
        largest = int(codes.max())
    if largest >= n_codewords:
        raise DataError(
            f"The codes reach {largest}, but there are {n_codewords} codewords, numbered from 0; "
            "were the codes made by this quantiser?"
        )


def _check_finite(matrix: npt.NDArray[np.floating]) -> None:
    device = device_of(matrix)
    size = len(matrix) if device.is_gpu else _BAND
    for first in range(0, len(matrix), size):
        bad = ~device.namespace.isfinite(matrix[first : first + size]).all(axis=1)
        if bad.any():
            row = first + int(bad.argmax())
            raise DataError(f"Row {row} of the training data holds NaN or infinite values.")
