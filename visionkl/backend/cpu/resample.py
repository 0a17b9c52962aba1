"""Shrinking pictures by averaging areas, in double precision.

Each output pixel is the mean of the input area it covers: whole pixels with full weight, the first and last
with the fraction covered. Fractions below `NEGLIGIBLE` are dropped, as the published part models were trained
that way. Double precision is not a luxury: in flat regions the HOG cell divides by almost nothing, so that
rounding noise of 1e-5 would become visible edges.

Rows are averaged first, one line of the result at a time. Within that line the three channels of a pixel lie
side by side, so that averaging columns takes one vector operation a pixel and tap, wherever the pixels are.
"""

# Numba gives intrinsics a typing context that their callers do not see.
# mypy: disable-error-code="no-untyped-def, call-arg, var-annotated"

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from visionkl.backend.cpu.jit import compiled_exactly
from visionkl.backend.cpu.simd import INT32, INT64, Registers, address, load, shifted, splat, store
from visionkl.backend.scratch import scratch

#: Fraction of a pixel below which a border pixel is left out of the mean.
NEGLIGIBLE = 1e-3

# Pixels in a vector of one channel, and numbers in a pixel: three channels and one that is not used.
_LANES = 4
# Weights that are taken at a time: almost all scales from a half to one need no more.
_TAPS = 3


def shrink(
    planes: npt.NDArray[np.float64], rows: int, cols: int, memory: str | None = None
) -> npt.NDArray[np.float64]:
    """Shrink a planar picture.

    Parameters
    ----------
    planes : ndarray of float64, shape (channels, rows, cols)
    rows, cols : int
        The new size, not larger than the old one.
    memory : str, optional
        Name of the thread's own memory for the result (see `scratch`), other than that of `planes`; new
        memory by default.

    Returns
    -------
    ndarray of float64, shape (channels, rows, cols)
    """
    channels, old_rows, old_cols = planes.shape
    if channels not in (1, 3):
        raise ValueError(f"pictures have 1 or 3 channels, not {channels}")
    if (rows, cols) == (old_rows, old_cols):
        return planes
    first_row, row_weights = area_taps(old_rows, rows)
    first_col, col_weights = area_taps(old_cols, cols)
    shape = channels, rows, cols
    shrunk = np.empty(shape) if memory is None else scratch(memory, shape, np.float64)
    if old_cols < _LANES:
        planes = np.pad(planes, ((0, 0), (0, 0), (0, _LANES - old_cols)))
    _shrink_into(
        np.ascontiguousarray(planes).reshape(-1), old_rows, first_row, row_weights, first_col, col_weights,
        shrunk.reshape(-1), channels,
    )  # fmt: skip
    return shrunk


@compiled_exactly
def area_taps(old, new):
    """Find the first source index `(new,)` and weights `(new, taps)` of each output pixel.

    The number of taps is a multiple of `_TAPS`.
    """
    step = old / new
    n_taps = (int(np.ceil(step)) + _TAPS) // _TAPS * _TAPS
    first = np.empty(new, np.int64)
    weights = np.zeros((new, n_taps))
    for i in range(new):
        begin = i * step
        end = begin + step
        inner_begin, inner_end = int(np.ceil(begin)), int(np.floor(end))
        lead, trail = inner_begin - begin, end - inner_end
        first[i] = inner_begin - 1 if lead > NEGLIGIBLE else inner_begin
        tap = 0
        if lead > NEGLIGIBLE:
            weights[i, tap] = lead * (new / old)
            tap += 1
        for _ in range(inner_begin, inner_end):
            weights[i, tap] = new / old
            tap += 1
        if trail > NEGLIGIBLE:
            weights[i, tap] = trail * (new / old)
    return first, weights


@compiled_exactly
def _shrink_into(planes, old_rows, first_row, row_weights, first_col, col_weights, shrunk, channels):
    rows, row_taps = row_weights.shape
    cols, col_taps = col_weights.shape
    old_cols = planes.shape[0] // (channels * old_rows)
    # The one channel of a grey picture is taken for all three.
    old_plane, new_plane = (old_rows * old_cols, rows * cols) if channels == 3 else (0, 0)
    line = np.zeros((old_cols + col_taps) * _LANES)  # some spare pixels, for taps without weight
    weights = col_weights.ravel()
    for y in range(rows):
        n_taps = row_taps
        while n_taps > 1 and row_weights[y, n_taps - 1] == 0.0:
            n_taps -= 1
        for begin in range(0, old_cols, _LANES):
            x = min(begin, old_cols - _LANES)
            total = _nothing(_THREE)
            at = first_row[y] * old_cols + x
            for tap in range(n_taps):
                total = _add_weighted(total, planes, at, old_plane, row_weights[y, tap])
                at += old_cols
            _write_pixels(line, x * _LANES, total)
        for x in range(cols):
            pixel = _nothing(_ONE)
            at = first_col[x] * _LANES
            for tap in range(x * col_taps, (x + 1) * col_taps, _TAPS):
                pixel = _add_taps(pixel, line, at, weights, tap)
                at += _TAPS * _LANES
            _write_channels(shrunk, y * cols + x, new_plane, pixel)


_ONE = (0,)
_THREE = (0, 0, 0)


@intrinsic
def _nothing(typing_context, count):
    """Begin sums: vectors of zeros."""
    registers = Registers(types.float64, _LANES, len(count))

    def generate(context, builder, signature, arguments):
        return ir.Constant(ir.ArrayType(registers.vector, registers.count), None)

    return registers(count), generate


@intrinsic
def _add_weighted(typing_context, total, source, at, step, weight):
    """Add weighted vectors of the source, which lie a step apart, to the sums."""

    def generate(context, builder, signature, arguments):
        total_, source_, at_, step_, weight_ = arguments
        weights = splat(builder, weight_, _LANES)
        for i in range(total.count):
            value = load(builder, address(context, builder, source, source_, at_), total.vector)
            added = builder.fadd(builder.extract_value(total_, i), builder.fmul(value, weights))
            total_ = builder.insert_value(total_, added, i)
            at_ = builder.add(at_, step_)
        return total_

    return total(total, source, types.int64, types.int64, types.float64), generate


@intrinsic
def _add_taps(typing_context, pixel, line, at, weights, first):
    """Add some neighbouring pixels of the line, with their weights."""

    def generate(context, builder, signature, arguments):
        pixel_, line_, at_, weights_, first_ = arguments
        total = builder.extract_value(pixel_, 0)
        for tap in range(_TAPS):
            weight = builder.load(address(context, builder, weights, weights_, shifted(builder, first_, tap)))
            place = address(context, builder, line, line_, shifted(builder, at_, tap * _LANES))
            value = load(builder, place, pixel.vector)
            total = builder.fadd(total, builder.fmul(value, splat(builder, weight, _LANES)))
        return builder.insert_value(pixel_, total, 0)

    return pixel(pixel, line, types.int64, weights, types.int64), generate


@intrinsic
def _write_pixels(typing_context, line, at, channels):
    """Write four pixels, each with its channels side by side, from a vector of pixels for each channel."""

    def generate(context, builder, signature, arguments):
        line_, at_, channels_ = arguments
        red, green, blue = (builder.extract_value(channels_, i) for i in range(3))
        zero = ir.Constant(red.type, None)

        def choose(a, b, *lanes):
            return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(INT32, _LANES), list(lanes)))

        # Pairs of channels of pixels 0 and 2, and of 1 and 3.
        even = choose(red, green, 0, 4, 2, 6), choose(blue, zero, 0, 4, 2, 6)
        odd = choose(red, green, 1, 5, 3, 7), choose(blue, zero, 1, 5, 3, 7)
        for pixel in range(_LANES):
            first = pixel // 2 * 2
            pairs = odd if pixel % 2 else even
            to = address(context, builder, line, line_, shifted(builder, at_, pixel * _LANES))
            store(builder, choose(*pairs, first, first + 1, first + 4, first + 5), to)
        return context.get_dummy_value()

    return types.void(line, types.int64, channels), generate


@intrinsic
def _write_channels(typing_context, planes, at, step, pixel):
    """Write the channels of a pixel, a step apart."""

    def generate(context, builder, signature, arguments):
        planes_, at_, step_, pixel_ = arguments
        vector = builder.extract_value(pixel_, 0)
        for channel in range(3):
            value = builder.extract_element(vector, ir.Constant(INT64, channel))
            builder.store(value, address(context, builder, planes, planes_, at_))
            at_ = builder.add(at_, step_)
        return context.get_dummy_value()

    return types.void(planes, types.int64, types.int64, pixel), generate
