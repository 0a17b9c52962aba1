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

from visionkl.backend.cpu.codes import LANES, add_decoded, look_up_lines, multiply_decoded, scatter_lines
from visionkl.backend.cpu.solver import look_up, scatter
from visionkl.backend.scratch import scratch
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError
from visionkl.solvers.rows import DenseRows, check_codes, cut, with_shares

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
# Columns that are decoded at a time for a Gram matrix.
_PANEL = 2048


class QuantisedRows:
    """Codes and codebooks, and how to go over them piece by piece; what a piece gives is a subclass's.

    Parameters
    ----------
    codes : array_like of uint8 or uint16, shape (n_rows, n_blocks)
        May be memory-mapped.
    words : array_like of float32, shape (n_blocks, n_codewords, size)
        The codebooks.
    n_jobs : int, optional
        Threads; all usable cores by default.
    """

    def __init__(self, codes: npt.ArrayLike, words: npt.ArrayLike, *, n_jobs: int | None = None) -> None:
        self.words: FloatArray = np.ascontiguousarray(words, np.float32)
        given = np.asarray(codes)
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
        self._codes = given if self.mapped else np.ascontiguousarray(given.T)

    def scores(self, v: Vector) -> Vector:
        """Return inner products `(n_rows,)` of the rows with `v (dim,)`; `(k, n_rows)` with `v (k, dim)`."""
        weights = v.astype(np.float32).reshape(-1, self.n_blocks, self.size)
        scores = np.zeros((len(weights), self.n_rows))
        for some in cut(0, len(weights), _MOST_LANES):

            def of_piece(piece: tuple[slice, slice], some: slice = some) -> Vector:
                return self._piece_scores(*piece, weights[some, piece[1]])

            for (chunk, _), part in self._go_over(of_piece, 0, self.n_rows):
                scores[some, chunk] += part
        return scores.reshape(*v.shape[:-1], self.n_rows)

    def combine(self, shares: Vector, first: int = 0) -> Vector:
        """Return sums `(k, dim)` of the rows `first, first + 1, ...` times `shares (k, m)`."""
        sums = np.zeros((len(shares), self.n_blocks, self.size))
        for some in cut(0, len(shares), _MOST_LANES):

            def of_piece(piece: tuple[slice, slice], some: slice = some) -> Vector:
                own = slice(piece[0].start - first, piece[0].stop - first)
                return self._piece_sums(*piece, shares[some, own])

            for (_, group), part in self._go_over(of_piece, first, first + shares.shape[1]):
                sums[some, group] += part
        return sums.reshape(len(shares), self.dim)

    def stored(self) -> npt.NDArray[Any]:
        """Return the codes `(n_rows, n_blocks)`, row by row; a copy, unless they lie in a file."""
        return self._codes if self.mapped else np.ascontiguousarray(self._codes.T)

    def panels(self) -> Iterator[FloatArray]:
        """Decode some columns after the other; all rows of each."""
        blocks_of_panel = max(1, _PANEL // self.size)
        for group in cut(0, self.n_blocks, blocks_of_panel):
            yield self.decode(slice(0, self.n_rows), group)

    def decode(self, rows: slice, blocks: slice) -> FloatArray:
        """Decode some blocks of some rows: `(n_rows, n_blocks · size)`."""
        codes, start = self._turned(rows, blocks)
        n = rows.stop - rows.start
        decoded = np.empty((n, blocks.stop - blocks.start, self.size), np.float32)

        def one(block: int) -> None:
            decoded[:, block] = self.words[blocks.start + block][codes[block, start : start + n]]

        run_tasks(one, range(decoded.shape[1]), self.n_jobs)
        return decoded.reshape(n, -1)

    def _go_over(
        self, of_piece: Callable[[tuple[slice, slice]], Vector], first: int, last: int
    ) -> Iterator[tuple[tuple[slice, slice], Vector]]:
        """Yield what pieces of rows and blocks give, in order; how they are cut depends on shapes only."""
        size_of_group = max(_LEAST_BLOCKS, -(-self.n_blocks // 8 // _TILE) * _TILE)
        pieces = list(product(cut(first, last, _CHUNK), cut(0, self.n_blocks, size_of_group)))
        for wave in cut(0, len(pieces), _TASKS_OF_WAVE):
            yield from zip(pieces[wave], run_tasks(of_piece, pieces[wave], self.n_jobs), strict=True)

    def _turned(self, rows: slice, blocks: slice) -> tuple[npt.NDArray[Any], int]:
        """Return codes `(n_blocks, ...)` of some blocks, and where in them some rows begin."""
        if self.mapped:
            return np.ascontiguousarray(self._codes[rows, blocks].T), 0
        return self._codes[blocks], rows.start

    def _piece_scores(self, rows: slice, blocks: slice, weights: FloatArray) -> Vector:
        """Return what blocks add to the scores `(k, n)` of rows under weights `(k, n_blocks, size)`."""
        raise NotImplementedError

    def _piece_sums(self, rows: slice, blocks: slice, shares: Vector) -> Vector:
        """Return sums `(k, n_blocks, size)` of blocks of rows times shares `(k, n)`."""
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

    def _piece_scores(self, rows: slice, blocks: slice, weights: FloatArray) -> Vector:
        codes, start = self._turned(rows, blocks)
        words, n = self.words[blocks], rows.stop - rows.start
        if len(weights) == 1:
            scores = np.zeros(n)
            for tile in cut(0, len(words), _LEAST_BLOCKS):
                tables = np.matmul(words[tile], weights[0, tile, :, None])[..., 0]
                for band in cut(0, n, _BAND):
                    look_up(codes[tile], start + band.start, start + band.stop, tables, scores[band])
            return scores[None]
        columns, count = _in_lines(weights.transpose(1, 2, 0))
        lanes = columns.shape[2]
        lines = np.zeros((n, lanes))
        sums = scratch("sums of lines", (1024, lanes), np.float32)
        for tile in cut(0, len(words), _TILE):
            tables = scratch("tables", (tile.stop - tile.start, self.n_codewords, lanes), np.float32)
            np.matmul(words[tile], columns[tile], out=tables)
            look_up_lines(codes, tile.start, start, start + n, tables, sums, lines, count)
        return lines[:, : len(weights)].T

    def _piece_sums(self, rows: slice, blocks: slice, shares: Vector) -> Vector:
        codes, start = self._turned(rows, blocks)
        words = self.words[blocks]
        sums = np.empty((len(shares), len(words), self.size))
        if len(shares) == 1:
            samples, own = with_shares(shares[0], start)
            for tile in cut(0, len(words), _LEAST_BLOCKS):
                histograms = np.zeros((tile.stop - tile.start, self.n_codewords))
                scatter(codes[tile], 0, len(histograms), samples, own, histograms)
                rounded = histograms.astype(np.float32)[:, None]
                sums[0, tile] = np.matmul(rounded, words[tile])[:, 0]
            return sums
        lines, count = _in_lines(shares.T)
        for tile in cut(0, len(words), _TILE):
            shape = (tile.stop - tile.start, self.n_codewords, lines.shape[1])
            tables = scratch("tables", shape, np.float32)
            tables[:] = 0
            scatter_lines(codes, tile.start, start, lines, tables, count)
            totals = np.matmul(words[tile].transpose(0, 2, 1), tables)
            sums[:, tile] = totals[..., : len(shares)].transpose(2, 0, 1)
        return sums


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

    def _piece_scores(self, rows: slice, blocks: slice, weights: FloatArray) -> Vector:
        codes, start = self._turned(rows, blocks)
        scores = np.zeros((len(weights), rows.stop - rows.start))
        for own, line in zip(weights, scores, strict=True):
            for band in cut(0, len(line), _BAND):
                multiply_decoded(
                    codes, start + band.start, start + band.stop, self.words[blocks], own, line[band]
                )
        return scores

    def _piece_sums(self, rows: slice, blocks: slice, shares: Vector) -> Vector:
        codes, start = self._turned(rows, blocks)
        sums = np.zeros((len(shares), len(codes), self.size))
        for own, total in zip(np.ascontiguousarray(shares), sums, strict=True):
            add_decoded(codes, start, self.words[blocks], own, total)
        return sums


def decoded_rows(rows: QuantisedRows) -> DenseRows:
    """Decode all rows into a dense matrix of float32."""
    return DenseRows(rows.decode(slice(0, rows.n_rows), slice(0, rows.n_blocks)), n_jobs=rows.n_jobs)


def _in_lines(columns: npt.NDArray[np.floating]) -> tuple[FloatArray, tuple[int, ...]]:
    """Pad the last axis with zeros to whole cache lines, which arrays begin with; also count the lines."""
    *shape, k = columns.shape
    n_lines = -(-k // LANES)
    lines = scratch("lines", (*shape, n_lines * LANES), np.float32)
    lines[..., :k] = columns
    lines[..., k:] = 0
    return lines, (0,) * n_lines


def _is_mapped(array: npt.NDArray[Any]) -> bool:
    """Tell whether an array lies in a file."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return isinstance(base, mmap.mmap)
