"""Product-quantiser codes as the vectors that they stand for, without decoding them.

`visionkl.solvers.rows.CodedRows` have tables as coefficients, and the codebooks come in through the metric
`K = Z Zᵀ`. The rows of this module have the codebooks themselves, and their coefficients are weights `w` of
decoded vectors, as for a dense matrix. It is the same *delayed expansion* (METHODS §6), since tables are
`Z w` and planes `Zᵀ` of histograms; but tables and histograms are made for a few blocks at a time, while
these are in the cache, and never stand in memory as a whole. Many vectors of weights at once, such as one for
each class, have their tables side by side: twenty cost about three times as much as one.

=============== ============================================================================
`TableRows`     delayed expansion: scores by look-up, planes by histograms; take this
`DecodingRows`  immediate expansion: decodes each block and multiplies; for comparison
`decoded_rows`  decodes everything at once, for BLAS; 4 · n · d bytes
=============== ============================================================================

On a GPU (`device`), tables, histograms and products are made there, and what comes of a pass comes back; the
codes stay there if there is memory for them.

Codes in memory are turned once, into `(n_blocks, n)`. Memory-mapped codes, which may be larger than memory,
stay where they are: each pass reads and turns a piece at a time.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.codes import LANES
from visionkl.backend.dispatch import CPU, Device, device_of, to_host
from visionkl.backend.gpu.device import in_blocks
from visionkl.backend.scratch import scratch
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError
from visionkl.solvers.rows import CODES_ON_A_GPU, DenseRows, check_codes, cut, turn_there, with_shares

Vector = npt.NDArray[np.float64]
FloatArray = npt.NDArray[np.float32]

# A task goes over so many samples, and over an eighth of the blocks or so many; tables are made for so many
# blocks at a time.
_CHUNK = 16384
_BAND = 2048
_LEAST_BLOCKS = 64
_TILE = 16
_TASKS_OF_WAVE = 16
# Functions whose tables stand side by side.
_MOST_LANES = 2 * LANES
# Codes are turned in pieces of so many rows, and an eighth as many blocks.
_SQUARE = 512
# On a GPU: rows of a piece, and blocks whose tables are made at a time.
_CHUNK_ON_A_GPU = 2**18
_TILE_ON_A_GPU = 512
# Columns that are decoded at a time for a Gram matrix.
_PANEL = 2048


class QuantisedRows:
    """Codes and codebooks, and how to go over them piece by piece; what a piece gives is a subclass's.

    Parameters
    ----------
    codes : array_like of uint8 or uint16, shape (n_rows, n_blocks)
        May be memory-mapped, or lie on a GPU.
    words : array_like of float32, shape (n_blocks, n_codewords, size)
        The codebooks.
    n_jobs : int, optional
        Threads; all usable cores by default.
    device : visionkl.backend.dispatch.Device
        Where to go over them; codes that lie on a GPU are gone over there anyway.
    """

    def __init__(
        self,
        codes: npt.ArrayLike,
        words: npt.ArrayLike,
        *,
        n_jobs: int | None = None,
        device: Device = CPU,
    ) -> None:
        home = device_of(codes)
        self.device = home if home.is_gpu else device
        self.words: FloatArray = np.ascontiguousarray(words, np.float32)
        given: Any = codes if home.is_gpu else np.asarray(codes)
        if self.words.ndim != 3 or given.ndim != 2 or given.shape[1] != len(self.words):
            raise DataError(
                f"Codes (n_rows, n_blocks) of the shape {given.shape} do not belong to codebooks (n_blocks, "
                f"n_codewords, size) of the shape {self.words.shape}."
            )
        self.n_blocks, self.n_codewords, self.size = self.words.shape
        check_codes(given, self.n_codewords)
        self.n_rows = len(given)
        self.dim = self.n_blocks * self.size
        self.n_jobs = n_jobs
        self.mapped = _is_mapped(given)
        self._words = self.device.put(self.words)
        turned = turn_there(given, self.device) if self.device.is_gpu else None
        if turned is None:
            turned = given if self.mapped else _turn(given, n_jobs)
        self._codes = turned

    def scores(self, v: Vector) -> Vector:
        """Return inner products `(n_rows,)` of the rows with `v (dim,)`; `(k, n_rows)` with `v (k, dim)`."""
        weights = v.astype(np.float32).reshape(-1, self.n_blocks, self.size)
        scores = np.zeros((len(weights), self.n_rows))
        for some in cut(0, len(weights), _MOST_LANES):

            def of_piece(piece: tuple[slice, slice], some: slice = some) -> Vector:
                return self._piece_scores(*piece, weights[some, piece[1]])

            def add(piece: tuple[slice, slice], part: Vector, some: slice = some) -> None:
                scores[some, piece[0]] += part

            self._go_over(of_piece, add, 0, self.n_rows)
        return scores.reshape(*v.shape[:-1], self.n_rows)

    def combine(self, shares: Vector, first: int = 0) -> Vector:
        """Return sums `(k, dim)` of the rows `first, first + 1, ...` times `shares (k, m)`."""
        sums = np.zeros((len(shares), self.n_blocks, self.size))
        for some in cut(0, len(shares), _MOST_LANES):

            def of_piece(piece: tuple[slice, slice], some: slice = some) -> Vector:
                own = slice(piece[0].start - first, piece[0].stop - first)
                return self._piece_sums(*piece, shares[some, own])

            def add(piece: tuple[slice, slice], part: Vector, some: slice = some) -> None:
                sums[some, piece[1]] += part

            self._go_over(of_piece, add, first, first + shares.shape[1])
        return sums.reshape(len(shares), self.dim)

    def stored(self) -> npt.NDArray[Any]:
        """Return the codes `(n_rows, n_blocks)`, row by row; a copy, unless they lie in a file."""
        there = device_of(self._codes).is_gpu
        return self._codes if self.mapped and not there else np.ascontiguousarray(to_host(self._codes).T)

    def panels(self) -> Iterator[FloatArray]:
        """Decode some columns after the other; all rows of each."""
        blocks_of_panel = max(1, _PANEL // self.size)
        for group in cut(0, self.n_blocks, blocks_of_panel):
            yield self.decode(slice(0, self.n_rows), group)

    def decode(self, rows: slice, blocks: slice) -> FloatArray:
        """Decode some blocks of some rows: `(n_rows, n_blocks · size)`, on the device."""
        codes, start = self._turned(rows, blocks)
        n = rows.stop - rows.start
        with self.device.use():
            decoded = self.device.namespace.empty((n, blocks.stop - blocks.start, self.size), np.float32)

        def one(block: int) -> None:
            with self.device.use():
                decoded[:, block] = self._words[blocks.start + block][codes[block, start : start + n]]

        run_tasks(one, range(decoded.shape[1]), self.n_jobs)
        return decoded.reshape(n, -1)

    def _go_over(
        self,
        of_piece: Callable[[tuple[slice, slice]], Any],
        add: Callable[[tuple[slice, slice], Vector], None],
        first: int,
        last: int,
    ) -> None:
        """Add up what pieces of rows and blocks give, in order; how they are cut depends on shapes only."""
        if self.device.is_gpu:

            def go_over(rows: slice) -> None:
                piece = slice(first + rows.start, first + rows.stop), slice(0, self.n_blocks)
                add(piece, to_host(of_piece(piece)))

            with self.device.use():
                in_blocks(
                    go_over, last - first, max(1, min(_CHUNK_ON_A_GPU, CODES_ON_A_GPU // self.n_blocks))
                )
            return
        size_of_group = max(_LEAST_BLOCKS, -(-self.n_blocks // 8 // _TILE) * _TILE)
        pieces = list(product(cut(first, last, _CHUNK), cut(0, self.n_blocks, size_of_group)))
        for wave in cut(0, len(pieces), _TASKS_OF_WAVE):
            for piece, part in zip(pieces[wave], run_tasks(of_piece, pieces[wave], self.n_jobs), strict=True):
                add(piece, part)

    def _turned(self, rows: slice, blocks: slice) -> tuple[Any, int]:
        """Return codes `(n_blocks, ...)` of some blocks, on the device, and where in them some rows begin."""
        if device_of(self._codes) != self.device:
            own = _turn(self._codes[rows, blocks], 1) if self.mapped else self._codes[blocks, rows]
            return self.device.put(np.ascontiguousarray(own)), 0
        if self.mapped and not self.device.is_gpu:
            return _turn(self._codes[rows, blocks], 1), 0
        return self._codes[blocks], rows.start

    def _room(self, name: str, shape: tuple[int, ...]) -> Any:
        """Return room for float32 numbers on the device."""
        if self.device.is_gpu:
            return self.device.namespace.empty(shape, np.float32)
        return scratch(name, shape, np.float32)

    def _piece_scores(self, rows: slice, blocks: slice, weights: FloatArray) -> Any:
        """Return what blocks add to the scores `(k, n)` of rows under weights `(k, n_blocks, size)`.

        Weights are NumPy's; what is returned lies on the device.
        """
        raise NotImplementedError

    def _piece_sums(self, rows: slice, blocks: slice, shares: Vector) -> Any:
        """Return sums `(k, n_blocks, size)` of blocks of rows times shares `(k, n)`; likewise."""
        raise NotImplementedError


class TableRows(QuantisedRows):
    """Codes as decoded vectors, by delayed expansion: tables of scores and histograms of codes.

    Parameters
    ----------
    codes : array_like of uint8 or uint16, shape (n_rows, n_blocks)
        May be memory-mapped.
    words : array_like of float32, shape (n_blocks, n_codewords, size)
        The codebooks.
    n_jobs : int, optional
        Threads; all usable cores by default.

    Examples
    --------
    >>> rows = TableRows(np.array([[0], [1], [1]], np.uint8), [[[1.0, 2.0], [3.0, 4.0]]])
    >>> rows.scores(np.array([10.0, 1.0]))
    array([12., 34., 34.])
    >>> rows.combine(np.array([[1.0, 1.0, 0.0]]))
    array([[4., 6.]])
    """

    #: A part of the loss costs one product with all codebooks, so there should be few.
    rows_per_part = 4096

    def _piece_scores(self, rows: slice, blocks: slice, weights: FloatArray) -> Any:
        codes, start = self._turned(rows, blocks)
        words, n, xp = self._words[blocks], rows.stop - rows.start, self.device.namespace
        if len(weights) == 1:
            look_up = self.device.loops("solver").look_up
            scores, columns = xp.zeros(n), self.device.put(weights[0])
            for tile in cut(0, len(words), self._tile(_LEAST_BLOCKS)):
                tables = xp.matmul(words[tile], columns[tile, :, None])[..., 0]
                for band in cut(0, n, n if self.device.is_gpu else _BAND):
                    look_up(codes[tile], start + band.start, start + band.stop, tables, scores[band])
            return scores[None]
        padded, count = _in_lines(weights.transpose(1, 2, 0))
        columns, lanes = self.device.put(padded), padded.shape[2]
        lines, sums = xp.zeros((n, lanes)), self._room("sums of lines", (1024, lanes))
        look_up_lines = self.device.loops("codes").look_up_lines
        for tile in cut(0, len(words), self._tile(_TILE)):
            tables = self._room("tables", (tile.stop - tile.start, self.n_codewords, lanes))
            xp.matmul(words[tile], columns[tile], out=tables)
            look_up_lines(codes, tile.start, start, start + n, tables, sums, lines, count)
        return lines[:, : len(weights)].T

    def _piece_sums(self, rows: slice, blocks: slice, shares: Vector) -> Any:
        codes, start = self._turned(rows, blocks)
        words, put, xp = self._words[blocks], self.device.put, self.device.namespace
        sums = xp.empty((len(shares), len(words), self.size))
        if len(shares) == 1:
            scatter = self.device.loops("solver").scatter
            numbers, nonzero = with_shares(shares[0], start)
            samples, own = put(numbers), put(nonzero)
            for tile in cut(0, len(words), self._tile(_LEAST_BLOCKS)):
                histograms = xp.zeros((tile.stop - tile.start, self.n_codewords))
                scatter(codes[tile], 0, len(histograms), samples, own, histograms)
                rounded = histograms.astype(np.float32)[:, None]
                sums[0, tile] = xp.matmul(rounded, words[tile])[:, 0]
            return sums
        scatter_lines = self.device.loops("codes").scatter_lines
        padded, count = _in_lines(shares.T)
        lines = put(padded)
        for tile in cut(0, len(words), self._tile(_TILE)):
            tables = self._room("tables", (tile.stop - tile.start, self.n_codewords, lines.shape[1]))
            tables[:] = 0
            scatter_lines(codes, tile.start, start, lines, tables, count)
            totals = xp.matmul(words[tile].transpose(0, 2, 1), tables)
            sums[:, tile] = totals[..., : len(shares)].transpose(2, 0, 1)
        return sums

    def _tile(self, here: int) -> int:
        """Tell for how many blocks tables are made at a time."""
        return _TILE_ON_A_GPU if self.device.is_gpu else here


class DecodingRows(QuantisedRows):
    """Codes as decoded vectors, by immediate expansion: each block is decoded as it is used.

    Parameters
    ----------
    codes : array_like of uint8 or uint16, shape (n_rows, n_blocks)
        May be memory-mapped.
    words : array_like of float32, shape (n_blocks, n_codewords, size)
        The codebooks.
    n_jobs : int, optional
        Threads; all usable cores by default.
    """

    rows_per_part = TableRows.rows_per_part

    def _piece_scores(self, rows: slice, blocks: slice, weights: FloatArray) -> Any:
        codes, start = self._turned(rows, blocks)
        n, multiply_decoded = rows.stop - rows.start, self.device.loops("codes").multiply_decoded
        scores = self.device.namespace.zeros((len(weights), n))
        for number, own in enumerate(self.device.put(np.ascontiguousarray(weights))):
            for band in cut(0, n, n if self.device.is_gpu else _BAND):
                line = scores[number, band]
                multiply_decoded(codes, start + band.start, start + band.stop, self._words[blocks], own, line)
        return scores

    def _piece_sums(self, rows: slice, blocks: slice, shares: Vector) -> Any:
        codes, start = self._turned(rows, blocks)
        add_decoded = self.device.loops("codes").add_decoded
        sums = self.device.namespace.zeros((len(shares), len(codes), self.size))
        for number, own in enumerate(self.device.put(np.ascontiguousarray(shares))):
            add_decoded(codes, start, self._words[blocks], own, sums[number])
        return sums


def decoded_rows(rows: QuantisedRows) -> DenseRows:
    """Decode all rows into a dense matrix of float32."""
    whole = rows.decode(slice(0, rows.n_rows), slice(0, rows.n_blocks))
    return DenseRows(whole, n_jobs=rows.n_jobs, device=rows.device)


def _in_lines(columns: npt.NDArray[np.floating]) -> tuple[FloatArray, tuple[int, ...]]:
    """Pad the last axis with zeros to whole cache lines, which arrays begin with; also count the lines."""
    *shape, k = columns.shape
    n_lines = -(-k // LANES)
    lines = scratch("lines", (*shape, n_lines * LANES), np.float32)
    lines[..., :k] = columns
    lines[..., k:] = 0
    return lines, (0,) * n_lines


def _turn(codes: npt.NDArray[Any], n_jobs: int | None) -> npt.NDArray[Any]:
    """Copy codes `(n, n_blocks)` into `(n_blocks, n)`, in squares that stay in the cache."""
    turned = np.empty(codes.shape[::-1], codes.dtype)

    def turn(blocks: slice) -> None:
        for band in cut(0, len(codes), _SQUARE):
            turned[blocks, band] = codes[band, blocks].T

    run_tasks(turn, cut(0, codes.shape[1], _SQUARE // 8), n_jobs)
    return turned


def _is_mapped(array: npt.NDArray[Any]) -> bool:
    """Tell whether an array lies in a file."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return isinstance(base, mmap.mmap)
