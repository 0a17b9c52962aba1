"""Nearest codewords, exactly and fast (METHODS §5).

For each point the codeword `z` is sought that makes `|x - z|` smallest. Points and codewords are first
rounded to 16-bit integers, in steps that put the farthest codeword near the end of the range. Then

    |x - z|² / 2  =  |x|² / 2  +  (|z|² / 2 - x·z)

and the bracket, the *sum* below, is compared in exact integer arithmetic, two products a lane at a time: 16
points are searched side by side, with four codewords' sums in registers. That is twice as many products a
second as the same loop makes in float32, and it needs no matrix of distances.

Certainty
    Rounding moves `x` by a known distance and `z` by at most a known one, `e` together. By the triangle
    inequality the nearest codeword is among those whose rounded distance is at most `2 e` longer than the
    shortest. If there is only one (the second best is remembered, too), it is the answer. Less than one HOG
    cell in a hundred is not so clear, and is compared again, in float32 and finally in double precision. So
    the answer is that of a search in double precision; of equally near codewords the first. Points far
    outside the codewords' range do not fit into 16 bits, and are searched in the slow way as well.
"""

# Numba gives intrinsics a typing context that their callers do not see.
# mypy: disable-error-code="no-untyped-def, call-arg, var-annotated"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from visionkl.backend.cpu.jit import compiled
from visionkl.backend.cpu.simd import (
    INT32,
    Registers,
    address,
    filled,
    larger,
    load,
    multiply_pairs,
    piece,
    shifted,
    smaller,
    splat,
    write,
)

# Codewords and vectors of eight points that are compared at a time: 8 sums, and what they are made of, fit
# into 16 registers. More of either were slower.
_WORDS = (0, 0, 0, 0)
_VECTORS = (0, 0)
_LANES = 8
_TILE = _LANES * len(_VECTORS)
_SHORTS = ir.VectorType(ir.IntType(16), 2 * _LANES)
# The farthest codeword lies this many steps from the centre. Points may lie half as far again; then all sums
# stay below 2³¹.
_RADIUS = 32400.0
_FARTHEST = 1.5 * _RADIUS
_LARGEST = 32767.0
# What float32 arithmetic may do to a coordinate of this size, in steps (generously).
_FLOAT_ERROR = 0.01
_NOTHING = 2**31 - 1

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Codebook:
    """The codewords of a block, made ready for `encode` by `make_codebook`.

    Parameters
    ----------
    words : ndarray of float32, shape (n_codewords, size)
    columns : ndarray of float32, shape (size, n_codewords)
        The same, transposed.
    centre : ndarray of float32, shape (size,)
    pairs : ndarray of int32, shape (n_padded * n_pairs,)
        Pairs of rounded coordinates, negated: four codewords' first pairs, their second ones, and so on.
    norms : ndarray of int32, shape (n_padded,)
        Half the squared norms of the rounded codewords; the padding's are too large to be the smallest.
    steps : float
        Steps in a unit.
    moved : float
        How far rounding moved a codeword at most, in steps.
    """

    words: FloatArray
    columns: FloatArray
    centre: FloatArray
    pairs: npt.NDArray[np.int32]
    norms: npt.NDArray[np.int32]
    steps: float
    moved: float


def make_codebook(words: FloatArray) -> Codebook:
    """Make codewords `(n_codewords, size)` ready for searching."""
    words = np.ascontiguousarray(words, np.float32)
    n, size = words.shape
    n_padded = -(-n // len(_WORDS)) * len(_WORDS)
    columns, centre = np.empty((size, n), np.float32), np.empty(size, np.float32)
    pairs, norms = np.empty(n_padded * ((size + 1) // 2), np.int32), np.empty(n_padded, np.int32)
    steps, moved = _round_codewords(words, columns, centre, pairs, norms, _WORDS)
    return Codebook(words, columns, centre, pairs, norms, steps, moved)


def encode(
    cells: FloatArray,
    channels: npt.NDArray[np.int64],
    codebook: Codebook,
    codes: npt.NDArray[np.integer],
) -> None:
    """Find the nearest codeword of each cell.

    Parameters
    ----------
    cells : ndarray of float32, shape (rows, cols, channels)
        Contiguous along the last axis; rows and columns may be spaced in any way.
    channels : ndarray of int64, shape (size,)
        The channels that make up the block, in the order of the codewords.
    codebook : Codebook
    codes : ndarray of integers, shape (rows, cols)
        Receives the codewords' numbers.
    """
    rows, cols = codes.shape
    if not rows or not cols:
        return
    memory, (row_step, col_step) = _as_memory(cells, writeable=False)
    code_memory, code_steps = _as_memory(codes[:, :, None], writeable=True)
    book = codebook
    _encode(
        memory, (rows, cols, row_step, col_step), channels, book.words, book.columns, book.centre, book.pairs,
        book.norms, book.steps, book.moved, code_memory, code_steps, _WORDS, _VECTORS,
    )  # fmt: skip


def _as_memory(cells: npt.NDArray[Any], *, writeable: bool) -> tuple[npt.NDArray[Any], tuple[int, int]]:
    """See `(rows, cols, channels)` as one line of memory, and the steps from row to row and cell to cell.

    So the loops are compiled for one kind of array, however the cells are spaced.
    """
    steps = cells.strides[0] // cells.itemsize, cells.strides[1] // cells.itemsize
    length = (cells.shape[0] - 1) * steps[0] + (cells.shape[1] - 1) * steps[1] + cells.shape[2]
    line = np.lib.stride_tricks.as_strided(cells, (length,), (cells.itemsize,), writeable=writeable)
    return line, steps


@compiled
def _encode(
    memory,
    layout,
    channels,
    words,
    columns,
    centre,
    pairs,
    norms,
    steps,
    moved,
    codes,
    code_steps,
    abreast,
    vectors,
):
    rows, cols, row_step, col_step = layout
    n_words, size = words.shape
    n_pairs = (size + 1) // 2
    point = np.empty(size, np.float32)
    together = True  # channels that stand side by side need not be gathered
    for j in range(size):
        together = together and channels[j] == channels[0] + j
    rounded = np.zeros(2 * n_pairs, np.int16)
    in_pairs = rounded.view(np.int32)
    tile = np.zeros(n_pairs * _TILE, np.int32)
    where = np.zeros((_TILE, 2), np.int64)
    squares, moves = np.zeros(_TILE, np.float32), np.zeros(_TILE, np.float32)
    best, second, nearest = np.empty(_TILE, np.int32), np.empty(_TILE, np.int32), np.empty(_TILE, np.int32)
    margins = np.empty(_TILE)
    distances = np.empty(n_words, np.float32)
    unit = np.float32(steps)
    # In steps; float32 makes up for itself by a little more on all sides.
    always_moved = moved + _FLOAT_ERROR * np.sqrt(np.float64(size))
    row, col, left = 0, 0, rows * cols
    while left > 0:
        n = min(_TILE, left)
        left -= n
        for i in range(n):
            at = row * row_step + col * col_step
            where[i, 0], where[i, 1] = at, row * code_steps[0] + col * code_steps[1]
            if together:
                squares[i], moves[i] = _round_point(
                    piece(memory, at + channels[0], size), centre, unit, rounded
                )
            else:
                for j in range(size):
                    point[j] = memory[at + channels[j]]
                squares[i], moves[i] = _round_point(point, centre, unit, rounded)
            for pair in range(n_pairs):
                tile[pair * _TILE + i] = in_pairs[pair]
            col += 1
            if col == cols:
                row, col = row + 1, 0
        _search(tile, pairs, norms, n_pairs, best, second, nearest, abreast, vectors)
        for i in range(_TILE):
            # Sums are halves of squared distances, less the same number for all codewords.
            square = np.float64(squares[i])
            error = 1.01 * np.sqrt(np.float64(moves[i])) + always_moved
            distance = np.sqrt(max(1.00001 * square + 2.0 * best[i], 0.0))
            margin = 2.0 * error * (distance + error) + 1.0
            margins[i] = margin if square <= _FARTHEST * _FARTHEST else np.inf
        for i in range(n):
            at, to = where[i, 0], where[i, 1]
            if np.float64(second[i]) - np.float64(best[i]) > margins[i]:
                codes[to] = nearest[i]
            else:
                for j in range(size):
                    point[j] = memory[at + channels[j]]
                codes[to] = _search_slowly(point, words, columns, distances)


@compiled
def _round_codewords(words, columns, centre, pairs, norms, abreast):
    """Fill the arrays of a `Codebook`; returns `steps` and `moved`."""
    n, size = words.shape
    n_pairs = (size + 1) // 2
    for j in range(size):
        total = 0.0
        for word in range(n):
            columns[j, word] = words[word, j]
            total += words[word, j]
        centre[j] = total / n
    radius = 0.0
    for word in range(n):
        square = 0.0
        for j in range(size):
            square += (np.float64(words[word, j]) - np.float64(centre[j])) ** 2
        radius = max(radius, np.sqrt(square))
    steps = np.float64(np.float32(_RADIUS / radius)) if radius > 0 else 1.0
    # Codewords that are as good as equal cannot be told apart in steps: all points are searched slowly.
    steps = steps if steps < np.inf else 1.0
    norms[:] = _NOTHING
    pairs[:] = 0
    moved = 0.0
    rounded = np.zeros(2 * n_pairs, np.int16)
    in_pairs = rounded.view(np.int32)
    for word in range(n):
        square, error = 0.0, 0.0
        for j in range(size):
            exact = (np.float64(words[word, j]) - np.float64(centre[j])) * steps
            whole = np.rint(exact)
            rounded[j] = -np.int16(whole)
            square += whole * whole
            error += (exact - whole) ** 2
        norms[word] = np.int32(np.floor(square / 2))
        moved = max(moved, np.sqrt(error))
        group, place = word // len(abreast), word % len(abreast)
        for pair in range(n_pairs):
            pairs[(group * n_pairs + pair) * len(abreast) + place] = in_pairs[pair]
    return steps, moved


@compiled
def _round_point(point, centre, steps, rounded):
    """Round a point to whole steps; returns its squared norm and how far it was moved, squared."""
    square = np.float32(0)
    moved = np.float32(0)
    for j in range(point.shape[0]):
        exact = (point[j] - centre[j]) * steps
        bounded = exact if exact < np.float32(_LARGEST) else np.float32(_LARGEST)
        bounded = bounded if bounded > np.float32(-_LARGEST) else np.float32(-_LARGEST)
        whole = np.rint(bounded)
        rounded[j] = np.int16(whole)
        square += whole * whole
        moved += (exact - whole) * (exact - whole)
    return square, moved


@compiled
def _search(tile, pairs, norms, n_pairs, best, second, nearest, abreast, vectors):
    """Compare all codewords with the points of a tile; the two smallest sums, and whose the first is."""
    lowest = filled(np.int32(_NOTHING), vectors)
    next_lowest = lowest
    numbers = filled(np.int32(0), vectors)
    at = 0
    for word in range(0, norms.shape[0], len(abreast)):
        sums = _norms_of(norms, word, abreast, vectors)
        for pair in range(n_pairs):
            sums = _add_products(sums, tile, pair * _TILE, pairs, at, abreast, vectors)
            at += len(abreast)
        lowest, next_lowest, numbers = _rank(lowest, next_lowest, numbers, sums, word, abreast)
    write(best, 0, lowest)
    write(second, 0, next_lowest)
    write(nearest, 0, numbers)


@compiled
def _search_slowly(point, words, columns, distances):
    """Find the nearest codeword in double precision, of those that are near enough in float32."""
    size, n = columns.shape
    distances[:] = 0
    for j in range(size):
        value, column = point[j], piece(columns, j * n, n)
        for word in range(n):
            difference = value - column[word]
            distances[word] += difference * difference
    shortest = np.float32(np.inf)
    for word in range(n):
        shortest = distances[word] if distances[word] < shortest else shortest
    limit = np.float64(shortest) * (1.0 + 1e-6 * (size + 4)) + 1e-37
    best, nearest = np.inf, 0
    for word in range(n):
        if distances[word] <= limit:
            distance = 0.0
            for j in range(size):
                difference = np.float64(point[j]) - np.float64(words[word, j])
                distance += difference * difference
            if distance < best:
                best, nearest = distance, word
    return nearest


@intrinsic
def _norms_of(typing_context, norms, first, abreast, vectors):
    """Begin sums for some codewords abreast, with each one's norm in all lanes of its vectors."""
    registers = Registers(types.int32, _LANES, len(abreast) * len(vectors))

    def generate(context, builder, signature, arguments):
        norms_, first_, _, _ = arguments
        result = registers.undefined
        for word in range(len(abreast)):
            pointer = address(context, builder, norms, norms_, shifted(builder, first_, word))
            norm = splat(builder, builder.load(pointer), _LANES)
            for vector in range(len(vectors)):
                result = builder.insert_value(result, norm, word * len(vectors) + vector)
        return result

    return registers(norms, types.int64, abreast, vectors), generate


@intrinsic
def _add_products(typing_context, sums, tile, tile_at, pairs, pairs_at, abreast, vectors):
    """Add to each codeword's sums the products of a pair of its coordinates with the points'."""

    def generate(context, builder, signature, arguments):
        sums_, tile_, tile_at_, pairs_, pairs_at_, _, _ = arguments
        points = [
            load(builder, address(context, builder, tile, tile_, shifted(builder, tile_at_, by)), _SHORTS)
            for by in range(0, _LANES * len(vectors), _LANES)
        ]
        for word in range(len(abreast)):
            pointer = address(context, builder, pairs, pairs_, shifted(builder, pairs_at_, word))
            pair = builder.bitcast(splat(builder, builder.load(pointer), _LANES), _SHORTS)
            for vector, point in enumerate(points):
                i = word * len(vectors) + vector
                total = builder.add(builder.extract_value(sums_, i), multiply_pairs(builder, pair, point))
                sums_ = builder.insert_value(sums_, total, i)
        return sums_

    return sums(sums, tile, types.int64, pairs, types.int64, abreast, vectors), generate


@intrinsic
def _rank(typing_context, lowest, next_lowest, numbers, sums, first, abreast):
    """Update the lowest sums, the next lowest ones, and the numbers of the codewords with the lowest."""
    n_vectors = lowest.count
    result = types.Tuple((lowest, next_lowest, numbers))

    def generate(context, builder, signature, arguments):
        lowest_, next_, numbers_, sums_, first_, _ = arguments
        for word in range(len(abreast)):
            number = splat(builder, builder.trunc(shifted(builder, first_, word), INT32), _LANES)
            for vector in range(n_vectors):
                value = builder.extract_value(sums_, word * n_vectors + vector)
                low = builder.extract_value(lowest_, vector)
                following = builder.extract_value(next_, vector)
                who = builder.extract_value(numbers_, vector)
                following = smaller(builder, following, larger(builder, low, value))
                who = builder.select(builder.icmp_signed("<", value, low), number, who)
                lowest_ = builder.insert_value(lowest_, smaller(builder, low, value), vector)
                next_ = builder.insert_value(next_, following, vector)
                numbers_ = builder.insert_value(numbers_, who, vector)
        return context.make_tuple(builder, result, [lowest_, next_, numbers_])

    return result(lowest, next_lowest, numbers, sums, types.int64, abreast), generate
