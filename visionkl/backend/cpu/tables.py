"""Filter responses on codes: sums of rows of tables (METHODS §10).

A filter's score of a cell depends on the cell's codes alone, so it is worked out once for every position in
the filter, block and codeword. The response at a place is then a sum of one number for each position and
block. The tables of all filters of a size are laid side by side, so that a code fetches a whole row of scores
in a few vector loads. That, and an addition each, is all the inner loop does: the sums stay in registers. The
codes of neighbouring positions lie side by side, so the positions of a filter row are taken in *runs* of a
fixed length, which the compiler knows; the last run of a row is filled up with positions that score zero.

The table of 48 filters of 6 × 6 cells with 256 codewords takes 0.9 MB with 16 bits a number. It need not be
cut to fit into a core's own cache, because a picture uses few of its codewords often. It matters more that
rows begin at multiples of a vector's length, and that positions do not lie a power of two apart.

Filters of different sizes may share tables: positions that a filter does not have score zero. Few filters
take as long as one, so this pays for the roots of a model.

16-bit tables hold the scores relative to the middle of their range, in steps that are chosen for each filter
and each group of about 48 positions so that the sum of a group cannot overflow (partial sums may, and wrap
around harmlessly). Within a group the sum is exact; groups are added up in float32. What is lost is the
rounding of the entries, at most half a step each: `Tables.error_bound`.
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
from visionkl.backend.cpu.simd import INT64, Registers, address, load, shifted, store
from visionkl.backend.scratch import scratch

# The largest row of scores that is summed at a time, in filters.
_WIDEST = 48
_REGISTER_BYTES = 32
_CACHE_LINE = 64
# Positions whose 16-bit scores are summed before the sum becomes a float.
_GROUP_POSITIONS = 48
# To begin a run takes as long as some positions; very long ones only make the compiled loop long.
_LONGEST_RUN = 8
_RUN_COST = 2

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Tables:
    """The tables of filters of one size, ready for `look_up`.

    Parameters
    ----------
    size : tuple of int
        `(h, w)` of the largest filters.
    smallest : tuple of int
        `(h, w)` of the smallest: responses range over their places.
    n_filters : int
    strips : tuple of Strip
        At most 48 filters each.
    error_bound : ndarray of float32, shape (n_filters,)
        How far a response can be from the sum of the table's entries before they were rounded to 16 bits; 0
        for float32, where only sums are rounded.
    """

    size: tuple[int, int]
    smallest: tuple[int, int]
    n_filters: int
    strips: tuple[Strip, ...]
    error_bound: FloatArray


@dataclass(frozen=True)
class Strip:
    """Tables of some filters, side by side.

    Parameters
    ----------
    first, n : int
        The filters' numbers: `first .. first + n - 1`.
    stride : int
        From a codeword's row to the next one's; less than a vector where filters are few.
    position_stride : int
        From a position's rows to the next one's.
    rows : ndarray of int16 or float32, shape (n_runs * run * position_stride + a vector,)
    groups : ndarray of int64, shape (n_groups + 1,)
        Where groups of runs begin and end.
    steps : ndarray of float32, shape (n_groups * width,)
        What a 1 in the rows of a group stands for; `width` is `n`, filled up to whole vectors.
    offset : ndarray of float32, shape (width,)
        Added to every response.
    abreast, run : int
        Places that are computed at a time, and positions in a run.
    counts : tuple of tuple of int
        For the compiler (see `simd`): lanes of a vector, vectors of a row, `abreast`, `run`.
    """

    first: int
    n: int
    stride: int
    position_stride: int
    rows: npt.NDArray[np.int16] | FloatArray
    groups: npt.NDArray[np.int64]
    steps: FloatArray
    offset: FloatArray
    abreast: int
    run: int
    counts: tuple[tuple[int, ...], ...]


def make_tables(scores: FloatArray, dtype: npt.DTypeLike, smallest: tuple[int, int] | None = None) -> Tables:
    """Lay out tables for `look_up`.

    Parameters
    ----------
    scores : ndarray of float32, shape (h, w, n_blocks, n_codewords, n)
        The score of each codeword of each block in each position, for `n` filters.
    dtype : float32 or int16
    smallest : tuple of int, optional
        `(h, w)` of the smallest filters, where some have zeros in their last rows or columns.

    Returns
    -------
    Tables
    """
    h, w, n_blocks, n_codewords, n = scores.shape
    length = w * n_blocks
    run = min(range(1, _LONGEST_RUN + 1), key=lambda run: -(-length // run) * (run + _RUN_COST))
    by_row = np.ascontiguousarray(scores, np.float32).reshape(h, length, n_codewords, n)
    strips, bounds = [], []
    for first in range(0, n, _WIDEST):
        strip, bound = _make_strip(by_row[..., first : first + _WIDEST], first, run, np.dtype(dtype))
        strips.append(strip)
        bounds.append(bound)
    return Tables((h, w), smallest or (h, w), n, tuple(strips), np.concatenate(bounds))


def _make_strip(
    scores: FloatArray, first: int, run: int, dtype: np.dtype[np.generic]
) -> tuple[Strip, FloatArray]:
    h, length, n_codewords, n = scores.shape
    runs_a_row = -(-length // run)
    n_runs, n_positions = h * runs_a_row, h * runs_a_row * run
    # Few filters are read as half a register; lanes beyond them see the next row, and are not used.
    full = _REGISTER_BYTES // dtype.itemsize
    lanes = full // 2 if n <= full // 2 else full
    n_vectors = -(-n // lanes)
    width = n_vectors * lanes
    stride = next((few for few in (1, 2, 4) if n <= few), width)
    # A line of the cache between positions: were they a power of two apart, the rows of a frequent code would
    # push each other out of it.
    position_stride = -(-n_codewords * stride // lanes) * lanes + _CACHE_LINE // dtype.itemsize
    memory = _aligned_zeros(n_positions * position_stride + lanes, dtype)
    rows = memory[:-lanes].reshape(n_positions, position_stride)[:, : n_codewords * stride]
    rows = rows.reshape(n_positions, n_codewords, stride)[..., :n]
    n_groups = -(-n_positions // _GROUP_POSITIONS)
    groups = np.linspace(0, n_runs, min(n_groups, n_runs) + 1).astype(np.int64)
    steps = np.ones((len(groups) - 1, width), np.float32)
    offset = np.zeros(width, np.float32)
    bound = np.zeros(n, np.float32)
    if dtype == np.float32:
        rows.reshape(h, runs_a_row * run, n_codewords, n)[:, :length] = scores
    else:
        _round_scores(scores, groups * run, runs_a_row * run, rows, steps, offset, bound)
    # Four places at a time for a single vector, fewer for more: all sums stay in registers.
    abreast = max(4 // n_vectors, 1)
    counts = ((0,) * lanes, (0,) * n_vectors, (0,) * abreast, (0,) * run)
    strip = Strip(
        first, n, stride, position_stride, memory, groups, steps.ravel(), offset, abreast, run, counts
    )
    return strip, bound


@compiled
def _round_scores(scores, groups, positions_a_row, rows, steps, offset, bound):
    """Fill 16-bit rows, the steps of their groups, the offset, and the bound of the error."""
    _, length, _, n = scores.shape
    low, high, middle = np.empty(n, np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
    total, spread, error = np.zeros(n), np.empty(n), np.zeros(n)
    unit, worst = np.empty(n, np.float32), np.empty(n, np.float32)
    for group in range(groups.shape[0] - 1):
        first, last = groups[group], groups[group + 1]
        spread[:] = 0
        for position in range(first, last):
            if position % positions_a_row < length:
                entries = scores[position // positions_a_row, position % positions_a_row]
                _find_range(entries, low, high)
                for f in range(n):
                    spread[f] += (np.float64(high[f]) - low[f]) / 2
        # Rounding may add half a step for each position to the largest sum; one is for float32.
        largest_sum = 32766 - (last - first + 1) // 2
        for f in range(n):
            step = np.float32(spread[f] / largest_sum)
            steps[group, f] = step if step > 0 else np.float32(1)
            unit[f] = np.float32(1) / steps[group, f]
            # Of scores that differ by next to nothing, the middle stands for all.
            unit[f] = unit[f] if unit[f] < np.inf else np.float32(0)
        for position in range(first, last):
            if position % positions_a_row < length:
                entries = scores[position // positions_a_row, position % positions_a_row]
                _find_range(entries, low, high)
                for f in range(n):
                    middle[f] = low[f] + (high[f] - low[f]) / 2
                    total[f] += middle[f]
                _round_entries(entries, middle, unit, rows[position], worst)
                for f in range(n):
                    error[f] += worst[f] * steps[group, f]
    for f in range(n):
        offset[f] = total[f]
        bound[f] = error[f]


@compiled
def _find_range(entries, low, high):
    low[:] = np.inf
    high[:] = -np.inf
    for word in range(entries.shape[0]):
        for f in range(entries.shape[1]):
            value = entries[word, f]
            low[f] = value if value < low[f] else low[f]
            high[f] = value if value > high[f] else high[f]


@compiled
def _round_entries(entries, middle, unit, rows, worst):
    worst[:] = 0
    for word in range(entries.shape[0]):
        for f in range(entries.shape[1]):
            exact = (entries[word, f] - middle[f]) * unit[f]
            whole = np.rint(exact)
            rows[word, f] = np.int16(whole)
            error = abs(exact - whole)
            worst[f] = error if error > worst[f] else worst[f]


def _aligned_zeros(n: int, dtype: np.dtype[np.generic]) -> npt.NDArray[Any]:
    """Zeros that begin with a line of the cache, so that no vector of a row reaches over two lines."""
    memory = np.zeros(n * dtype.itemsize + _CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % _CACHE_LINE
    return memory[start : start + n * dtype.itemsize].view(dtype)


def look_up(codes: npt.NDArray[np.integer], tables: Tables, memory: str | None = None) -> FloatArray:
    """Responses of filters at every place where they fit wholly into a level of codes.

    Parameters
    ----------
    codes : ndarray of int, shape (rows, cols, n_blocks)
        All below the tables' number of codewords; that is for the caller to make sure.
    tables : Tables
    memory : str, optional
        Name of the thread's own memory that the responses are written to (see `scratch`); new memory by
        default.

    Returns
    -------
    ndarray of float32, shape (rows - h + 1, cols - w + 1, n_filters)
        For the smallest filters' `h` and `w`; those of larger ones mean nothing where these do not fit. Empty
        where none fits.
    """
    (h, w), (least_h, least_w) = tables.size, tables.smallest
    rows, cols, n_blocks = codes.shape
    shape = max(rows - least_h + 1, 0), max(cols - least_w + 1, 0), tables.n_filters
    responses: FloatArray = (
        scratch(memory, shape, np.float32) if memory is not None else np.empty(shape, np.float32)
    )
    if not responses.size:
        return responses
    line = cols + w - least_w
    for strip in tables.strips:
        row_starts, runs = _find_rows(
            codes, line, rows + h - least_h, strip.stride, h, w, strip.run, strip.abreast
        )
        _sum_rows(
            row_starts, runs, line, n_blocks, strip.rows, strip.position_stride, strip.groups,
            strip.steps, strip.offset, responses, strip.first, strip.n, *strip.counts,
        )  # fmt: skip
    return responses


@compiled
def _find_rows(codes, line, n_lines, stride, h, w, run, abreast):
    """Where each cell's row begins, and how far the first code of each run is from a place's first code.

    The cells are laid out in lines of a given length; where the level has none, code 0 stands for them.
    """
    rows, cols, n_blocks = codes.shape
    # The last places of a line are computed together with some that are not there, and the last run of a row
    # may be too long: codes must at least be readable.
    row_starts = np.zeros(n_lines * line * n_blocks + abreast * n_blocks + run, np.int32)
    for y in range(rows):
        at = y * line * n_blocks
        for x in range(cols):
            for block in range(n_blocks):
                row_starts[at] = np.int32(codes[y, x, block]) * stride
                at += 1
    runs_a_row = (w * n_blocks + run - 1) // run
    runs = np.empty(h * runs_a_row, np.int64)
    for i in range(h * runs_a_row):
        runs[i] = i // runs_a_row * line * n_blocks + i % runs_a_row * run
    return row_starts, runs


@compiled
def _sum_rows(
    row_starts, runs, cols, n_blocks, table, position_stride, groups, steps, offset, responses, first, n,
    lanes, vectors, abreast, run,
):  # fmt: skip
    width = len(lanes) * len(vectors)
    n_rows, n_cols, n_filters = responses.shape
    flat = responses.ravel()
    padded = np.empty(width * len(abreast), np.float32)
    for y in range(n_rows):
        for x in range(0, n_cols, len(abreast)):
            response = _repeat(offset, lanes, vectors, abreast)
            here = (y * cols + x) * n_blocks
            for group in range(groups.shape[0] - 1):
                total = _zero(table, lanes, vectors, abreast)
                for i in range(groups[group], groups[group + 1]):
                    row, code = i * len(run) * position_stride, here + runs[i]
                    total = _add_rows(
                        total, table, row, position_stride, row_starts, code, n_blocks, abreast, run
                    )
                response = _add_scaled(response, total, steps, group * width, abreast)
            to = (y * n_cols + x) * n_filters + first
            if n == width and x + len(abreast) <= n_cols:
                _write_places(flat, to, n_filters, response, abreast)
            else:  # some lanes are padding, or some places are past the end of the line
                _write_places(padded, 0, width, response, abreast)
                for place in range(min(len(abreast), n_cols - x)):
                    for f in range(n):
                        flat[to + place * n_filters + f] = padded[place * width + f]


@intrinsic
def _zero(typing_context, table, lanes, vectors, abreast):
    """Begin sums: the vectors of a row, for each of some places abreast."""
    registers = Registers(table.dtype, len(lanes), len(vectors) * len(abreast))

    def generate(context, builder, signature, arguments):
        return ir.Constant(ir.ArrayType(registers.vector, registers.count), None)

    return registers(table, lanes, vectors, abreast), generate


@intrinsic
def _repeat(typing_context, row, lanes, vectors, abreast):
    """Begin responses: a row of floats, for each of some places abreast."""
    registers = Registers(types.float32, len(lanes), len(vectors) * len(abreast))

    def generate(context, builder, signature, arguments):
        result = registers.undefined
        for i in range(registers.count):
            at = ir.Constant(INT64, i % len(vectors) * len(lanes))
            value = load(builder, address(context, builder, row, arguments[0], at), registers.vector)
            result = builder.insert_value(result, value, i)
        return result

    return registers(row, lanes, vectors, abreast), generate


@intrinsic
def _add_rows(
    typing_context, total, table, first, position_stride, row_starts, code, place_stride, abreast, run
):
    """Add to each place's sums the rows that its next codes point at, for the positions of a run."""
    n_vectors = total.count // len(abreast)

    def generate(context, builder, signature, arguments):
        total_, table_, first_, position_stride_, row_starts_, code_, place_stride_, _, _ = arguments
        add = builder.fadd if isinstance(total.dtype, types.Float) else builder.add
        for position in range(len(run)):
            rows = address(context, builder, table, table_, first_)
            code_of_place = shifted(builder, code_, position)
            for place in range(len(abreast)):
                start = builder.load(address(context, builder, row_starts, row_starts_, code_of_place))
                row = builder.gep(rows, [builder.zext(start, INT64)])
                for vector in range(n_vectors):
                    i = place * n_vectors + vector
                    pointer = builder.gep(row, [ir.Constant(INT64, vector * total.lanes)])
                    scores = load(builder, pointer, total.vector)
                    total_ = builder.insert_value(total_, add(builder.extract_value(total_, i), scores), i)
                code_of_place = builder.add(code_of_place, place_stride_)
            first_ = builder.add(first_, position_stride_)
        return total_

    integer = types.int64
    return total(total, table, integer, integer, row_starts, integer, integer, abreast, run), generate


@intrinsic
def _add_scaled(typing_context, response, total, steps, first, abreast):
    """Add `total`, times the steps of its group, to the responses."""
    n_vectors = total.count // len(abreast)

    def generate(context, builder, signature, arguments):
        response_, total_, steps_, first_, _ = arguments
        for i in range(total.count):
            at = shifted(builder, first_, i % n_vectors * total.lanes)
            step = load(builder, address(context, builder, steps, steps_, at), response.vector)
            value = builder.extract_value(total_, i)
            if not isinstance(total.dtype, types.Float):
                value = builder.sitofp(value, response.vector)
            scaled = builder.fmul(value, step, flags=("contract",))
            added = builder.fadd(builder.extract_value(response_, i), scaled, flags=("contract",))
            response_ = builder.insert_value(response_, added, i)
        return response_

    return response(response, total, steps, types.int64, abreast), generate


@intrinsic
def _write_places(typing_context, target, at, stride, response, abreast):
    """Write the responses of places abreast; `stride` leads from one place to the next."""
    n_vectors = response.count // len(abreast)

    def generate(context, builder, signature, arguments):
        target_, at_, stride_, response_, _ = arguments
        for place in range(len(abreast)):
            for vector in range(n_vectors):
                to = address(
                    context, builder, target, target_, shifted(builder, at_, vector * response.lanes)
                )
                store(builder, builder.extract_value(response_, place * n_vectors + vector), to)
            at_ = builder.add(at_, stride_)
        return context.get_dummy_value()

    return types.void(target, types.int64, types.int64, response, abreast), generate
