"""Questions that a sample answers with yes or no: what bits are made of (METHODS §8).

`Stumps` and `Projections` are fitted questions, for rows that were checked before (`check_any_rows`).
`encode` asks them in threads and packs the answers, and `unpack` gives them back. What draws them, and what
they are good for, is told in `visionkl.kernels.binary`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy import sparse

from visionkl.backend.cpu.bits import BLOCK
from visionkl.backend.dispatch import CPU, Device, device_of, kept_on, rows_anywhere, to_host
from visionkl.backend.gpu.device import in_blocks
from visionkl.backend.scratch import scratch
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError
from visionkl.kernels.base import Matrix
from visionkl.kernels.mapping import KernelMap, bands

Bytes = npt.NDArray[np.uint8]

# Rows that a thread encodes at a time.
_ROWS_A_TASK = 16 * BLOCK
# Features, or answers, of a block of rows on a GPU.
_NUMBERS_ON_A_GPU = 2**26


class Questions(Protocol):
    """What bits are made of: fitted questions, for single blocks of checked rows."""

    @property
    def n_maps(self) -> int:
        """How many there are."""
        ...

    def write(self, rows: Any, first: int, out: npt.NDArray[np.uint64]) -> None:
        """Write the bits of the rows `first, first + 1, ...` into words, which lie where the rows do."""
        ...

    def rows_a_task(self) -> int:
        """How many rows a thread should take at a time."""
        ...

    def keep(self, which: npt.NDArray[np.intp]) -> Questions:
        """Return some of the questions, given by rising numbers."""
        ...


@dataclass(frozen=True, eq=False)
class Stumps:
    """Stumps in the order of their features, and of thresholds for each feature.

    Parameters
    ----------
    features : ndarray of int64, shape (n_maps,)
    thresholds : ndarray of float, shape (n_maps,)
    n_features : int
        Features of a row.

    Attributes
    ----------
    used : ndarray of uint32, shape (n_used,)
        Features that a stump asks for.
    places : ndarray of int64, shape (n_features,)
        Where in `used` a feature is, or -1.
    ends : ndarray of int64, shape (n_used + 1,)
        Where the stumps of each used feature begin, and where the last ones end.
    """

    features: npt.NDArray[np.int64]
    thresholds: Matrix
    n_features: int
    used: npt.NDArray[np.uint32] = field(init=False)
    places: npt.NDArray[np.int64] = field(init=False)
    ends: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        used, counts = np.unique(self.features, return_counts=True)
        places = np.full(self.n_features, -1)
        places[used] = np.arange(len(used))
        object.__setattr__(self, "used", used.astype(np.uint32))
        object.__setattr__(self, "places", places)
        object.__setattr__(self, "ends", np.concatenate([[0], np.cumsum(counts)]))

    @classmethod
    def draw(cls, low: Matrix, high: Matrix, n_maps: int, random: np.random.Generator) -> Stumps:
        """Draw features, and thresholds between the lowest and the highest number of each."""
        features = random.integers(len(low), size=n_maps)
        share = random.random(n_maps)
        # Not low + share (high − low), which overflows where a range is as wide as numbers go.
        thresholds = ((1 - share) * low[features] + share * high[features]).astype(low.dtype)
        order = np.lexsort((thresholds, features))
        return cls(features[order], thresholds[order], len(low))

    @property
    def n_maps(self) -> int:
        """How many stumps there are."""
        return len(self.thresholds)

    def write(self, rows: Any, first: int, out: npt.NDArray[np.uint64]) -> None:
        """Write the bits of the rows `first, first + 1, ...` into words."""
        device = device_of(out)
        *where, thresholds = self.questions(rows.dtype)
        room = (None, None) if device.is_gpu else self.room(rows.dtype)
        encode_stumps = device.loops("bits").encode_stumps
        encode_stumps(row_parts(rows), first, *where, device.put(thresholds), *room, out)

    def questions(self, dtype: npt.DTypeLike) -> tuple[Any, Any, Any, Any]:
        """Return what the loops ask for: used features, places, ends, and thresholds with room behind."""
        thresholds = np.pad(self.thresholds.astype(dtype, copy=False), (0, 16), constant_values=np.inf)
        return self.used, self.places, self.ends, thresholds

    def room(self, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
        """Return room for the columns and ranks of a block of rows."""
        shape = (len(self.used), BLOCK)
        return scratch("columns of stumps", shape, dtype), scratch("ranks of stumps", shape, np.int32)

    def rows_a_task(self) -> int:
        """How many rows a thread should take at a time."""
        return _ROWS_A_TASK

    def keep(self, which: npt.NDArray[np.intp]) -> Stumps:
        """Return some of the stumps, given by rising numbers."""
        return Stumps(self.features[which], self.thresholds[which], self.n_features)


@dataclass(frozen=True, eq=False)
class Projections:
    """Thresholded projections of a map of the rows.

    Parameters
    ----------
    base : fitted transformer or None
        ψ; None is the rows themselves.
    directions : ndarray of float, shape (n_mapped_features, n_maps)
    thresholds : ndarray of float, shape (n_maps,)
    """

    base: Any
    directions: Matrix
    thresholds: Matrix

    @property
    def n_maps(self) -> int:
        """How many projections there are."""
        return len(self.thresholds)

    def project(self, rows: Any) -> Matrix:
        """Return r · ψ(x) of all directions, `(n, n_maps)`, where the rows are."""
        device = device_of(rows)
        if self.base is None:
            mapped = rows
        elif isinstance(self.base, KernelMap):
            mapped = self.base.transform(rows)
        else:
            mapped = device.put(self.base.transform(to_host(rows)))  # others know no GPU
        directions = self.directions
        if device.is_gpu:
            directions = kept_on(device, self, lambda: device.put(self.directions))
        return mapped @ directions.astype(mapped.dtype, copy=False)

    def write(self, rows: Any, first: int, out: npt.NDArray[np.uint64]) -> None:
        """Write the bits of the rows `first, first + 1, ...` into words."""
        device = device_of(out)
        values = device.namespace.ascontiguousarray(self.project(rows[first : first + len(out)]))
        thresholds = device.put(self.thresholds.astype(values.dtype, copy=False))
        device.loops("bits").encode_above(values, thresholds, out)

    def rows_a_task(self) -> int:
        """How many rows a thread should take at a time."""
        return bands(1024, max(self.directions.shape))[0].stop

    def keep(self, which: npt.NDArray[np.intp]) -> Projections:
        """Return some of the projections, given by rising numbers."""
        return Projections(self.base, np.ascontiguousarray(self.directions[:, which]), self.thresholds[which])


def encode(questions: Questions, rows: Any, n_jobs: int | None = None, device: Device = CPU) -> Bytes:
    """Ask all questions of checked rows, in threads or on a GPU.

    Parameters
    ----------
    questions : Questions
    rows : ndarray or sparse matrix, shape (n, n_features)
    n_jobs : int, optional
    device : visionkl.backend.dispatch.Device
        Where to ask. Rows that lie on a GPU are asked there anyway, and so are their bits.

    Returns
    -------
    ndarray of uint8, shape (n, 8 ceil(n_maps / 64))
    """
    home = device_of(rows)
    if home.is_gpu or device.is_gpu:
        return _encode_there(questions, rows, home, home if home.is_gpu else device)
    out = np.empty((rows.shape[0], -(-questions.n_maps // 64)), np.uint64)
    size = questions.rows_a_task()

    def write(first: int) -> None:
        questions.write(rows, first, out[first : first + size])

    run_tasks(write, range(0, len(out), size), n_jobs)
    return out.view(np.uint8)


def _encode_there(questions: Questions, rows: Any, home: Device, device: Device) -> Bytes:
    """Ask on a GPU, in blocks that fit into its memory; sparse rows are made dense on the way."""
    n, n_words = rows.shape[0], -(-questions.n_maps // 64)

    def write(some: slice) -> None:
        words = device.namespace.empty((some.stop - some.start, n_words), np.uint64)
        questions.write(device.put(dense_rows(rows[some])), 0, words)
        out[some] = words if home.is_gpu else to_host(words)

    with device.use():
        out = home.namespace.empty((n, n_words), np.uint64)
        in_blocks(write, n, rows_on_a_gpu(questions, rows))
    return out.view(np.uint8)


def rows_on_a_gpu(questions: Questions, rows: Any) -> int:
    """Tell how many rows a GPU should take at a time."""
    return max(_NUMBERS_ON_A_GPU // max(questions.n_maps, rows.shape[1]), 1)


def dense_rows(rows: Any) -> Any:
    """Return rows that may be sparse as an array."""
    return rows.toarray() if sparse.issparse(rows) else rows


def unpack(codes: npt.ArrayLike, n_maps: int | None = None) -> npt.NDArray[np.bool_]:
    """Return packed bits as truth values.

    Parameters
    ----------
    codes : array_like of uint8, shape (n_samples, n_bytes)
        From a binary map.
    n_maps : int, optional
        How many bits there are; what fills up the last word is left away. All by default.

    Returns
    -------
    ndarray of bool, shape (n_samples, n_maps)

    Examples
    --------
    >>> unpack(np.uint8([[5, 0, 0, 0, 0, 0, 0, 0]]), 4)
    array([[ True, False,  True, False]])
    """
    return np.unpackbits(np.asarray(codes, np.uint8), axis=1, count=n_maps, bitorder="little").view(np.bool_)


def check_any_rows(owner: str, X: Any) -> Any:
    """Return dense rows as `rows_anywhere` does, and sparse ones as a CSR array of finite floats."""
    if not sparse.issparse(X):
        return rows_anywhere(owner, X)
    if X.dtype.kind == "c":
        raise DataError(f"{owner}: Complex data not supported; give real numbers.")
    rows = sparse.csr_array(X)
    if 0 in rows.shape:
        raise DataError(
            f"{owner}: X has {rows.shape[0]} sample(s) and {rows.shape[1]} feature(s) (shape={rows.shape}) "
            "while a minimum of 1 is required."
        )
    rows = rows.astype(np.float32 if rows.dtype == np.float32 else np.float64, copy=False)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    bad = np.flatnonzero(~np.isfinite(rows.data))
    if len(bad):
        row = int(np.searchsorted(rows.indptr, bad[0], "right")) - 1
        raise DataError(
            f"{owner}: X holds NaN or infinity in row {row}, column {rows.indices[bad[0]]}; fill in or leave "
            "out such rows."
        )
    return rows


def row_parts(rows: Any) -> tuple[npt.NDArray[Any], ...]:
    """Return rows as the loops take them."""
    return (rows.data, rows.indices, rows.indptr) if sparse.issparse(rows) else (rows,)
