"""Dense SIFT: gradients shared among eight orientations, weighted sums of them at every bin, normalisation.

All of the smoothing and pooling is one loop, `_weighted_sum`, which adds up stretches of one array. What it
needs is a layout in which the numbers to be added lie in stretches:

- the eight orientations of a pixel are neighbours, so a stretch of pixels is one of numbers;
- the columns of a row are sorted by their remainder modulo `spacing`, the distance of the places where sums
  are wanted. So the columns that one tap of a kernel meets, one for each place, are neighbours, and no sum is
  made where none is wanted.

Sums are made afresh everywhere instead of being carried along from pixel to pixel: it does not matter where a
picture is cut into bands, and where there are no gradients the sums are exactly zero.
"""

# Numba gives intrinsics a typing context that their callers do not see.
# mypy: disable-error-code="no-untyped-def, call-arg, var-annotated"

from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.gradients import differences, eighths
from visionkl.backend.cpu.jit import compiled
from visionkl.backend.cpu.simd import piece
from visionkl.backend.scratch import scratch

N_BINS = 4
N_ORIENTATIONS = 8
#: Numbers of a descriptor.
LENGTH = N_BINS * N_BINS * N_ORIENTATIONS

# Taps of a kernel that are added in one go; kernels are filled up with zeros.
_TAPS_AT_ONCE = 4
_CLIP = np.float32(0.2)
# Sums of gradients, in grey values of 0..255, that may come from rounding alone.
_ROUNDING = 1e-3

Floats = npt.NDArray[np.float32]


def describe(
    plane: Floats,
    *,
    smoother: Floats,
    kernels: Floats,
    bin_weights: Floats,
    bin_size: int,
    step: int,
    first: tuple[int, int],
    counts: tuple[int, int],
    threshold: float,
    root: bool,
    values: npt.NDArray[np.generic],
    at: int,
    channel: int,
) -> None:
    """Describe a grid of places in one channel of a picture.

    Parameters
    ----------
    plane : ndarray of float32, shape (rows, cols)
        Values 0..255.
    smoother : ndarray of float32, shape (odd,)
        Smooths rows and columns before gradients are taken.
    kernels : ndarray of float32, shape (1 or 4, 2 * bin_size - 1)
        What the pixels about a bin's centre count for along an axis: in any bin, or in each of the four.
    bin_weights : ndarray of float32, shape (4,)
        What the four bins along an axis count for, besides.
    bin_size, step : int
        Distance of neighbouring bins and of neighbouring places, in pixels.
    first : tuple of int
        Column and row of the centre of the first bin of the first place.
    counts : tuple of int
        Columns and rows of places.
    threshold : float
        Descriptors with a smaller sum are set to zero.
    root : bool
        Take the root of l1-normalised values.
    values : ndarray of float32 or uint8, shape (n, channels * 128)
        Descriptors, of which those from `at` on are written.
    at : int
    channel : int
    """
    n_cols, n_rows = counts
    n_taps = 2 * bin_size - 1
    shared = len(kernels) == 1
    spacing = gcd(step, bin_size) if shared else step
    # All columns and rows that any bin needs; column p of them stands at slots[p].
    width, height = ((count - 1) * step + (N_BINS - 1) * bin_size + n_taps for count in counts)
    run = -(-width // spacing)
    p = np.arange(width)
    slots = (p % spacing * run + p // spacing) * N_ORIENTATIONS
    left, top = first[0] - bin_size + 1, first[1] - bin_size + 1
    smoothed = scratch("sift smoothed", (height + 2, plane.shape[1]), np.float32)
    _smooth_into(plane, _filled_up(smoother), len(smoother), top - 1, smoothed)
    votes = scratch("sift votes", (height, spacing * run * N_ORIENTATIONS), np.float32)
    _vote_into(smoothed, plane.shape[0], top, left, slots, votes)

    down, across = np.divmod(np.arange(N_BINS**2), N_BINS)
    taps = np.stack([_filled_up(one) for one in kernels])
    rows = _filled_up(np.arange(n_taps) * votes.shape[1])
    cols = np.stack([_filled_up(slots[b * bin_size :][:n_taps]) for b in range(len(kernels))])
    if shared:
        # One sum at every place that is a bin's centre for some descriptor.
        n_across, n_down = (((n - 1) * step + (N_BINS - 1) * bin_size) // spacing + 1 for n in counts)
        sums = scratch("sift sums", (n_down, n_across * N_ORIENTATIONS), np.float32)
        _sum_everywhere(votes, taps[0], rows, cols[0], spacing, sums)
        stride = np.array([step // spacing * sums.shape[1], step // spacing * N_ORIENTATIONS])
        starts = bin_size // spacing * (down * sums.shape[1] + across * N_ORIENTATIONS)
    else:
        # The sums of each bin at every descriptor.
        sums = scratch("sift sums", (n_rows, N_BINS**2 * n_cols * N_ORIENTATIONS), np.float32)
        _sum_each_bin(votes, taps, rows, cols, bin_size, step, sums)
        stride = np.array([sums.shape[1], N_ORIENTATIONS])
        starts = np.arange(N_BINS**2) * n_cols * N_ORIENTATIONS
    weights = (bin_weights[down] * bin_weights[across]).astype(np.float32)
    finish = (512, 0.5, 255) if values.dtype == np.uint8 else (1, 0, np.inf)
    floor = np.float32(max(threshold, _ROUNDING))
    _normalise_into(
        sums, starts, stride, counts, weights, floor, root, np.array(finish, np.float32), values, at, channel
    )


def _filled_up(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Append zeros until there are as many taps, or offsets of taps, as are added in one go."""
    return np.append(array, np.zeros(-len(array) % _TAPS_AT_ONCE, array.dtype))


@compiled
def _weighted_sum(source, start, offsets, weights, target, at, length):
    # target[at + i] = sum over t of weights[t] * source[start + offsets[t] + i], four taps at once: so the
    # target is read and written less often.
    result = piece(target, at, length)
    for t in range(0, len(offsets), _TAPS_AT_ONCE):
        a, b = piece(source, start + offsets[t], length), piece(source, start + offsets[t + 1], length)
        c, d = piece(source, start + offsets[t + 2], length), piece(source, start + offsets[t + 3], length)
        wa, wb, wc, wd = weights[t], weights[t + 1], weights[t + 2], weights[t + 3]
        if t == 0:
            for i in range(length):
                result[i] = wa * a[i] + wb * b[i] + wc * c[i] + wd * d[i]
        else:
            for i in range(length):
                result[i] += wa * a[i] + wb * b[i] + wc * c[i] + wd * d[i]


@compiled
def _smooth_into(plane, taps, n_taps, top, smoothed):
    # Row r of `smoothed` is row top + r of the picture, whose border pixels are repeated outside.
    rows, cols = plane.shape
    radius = n_taps // 2
    padded = np.empty(cols + 2 * radius, np.float32)
    above, left = np.zeros(len(taps), np.int64), np.zeros(len(taps), np.int64)
    left[:n_taps] = np.arange(n_taps)
    for r in range(len(smoothed)):
        y = top + r
        if 0 <= y < rows:
            for t in range(n_taps):
                above[t] = min(max(y - radius + t, 0), rows - 1) * cols
            _weighted_sum(plane, 0, above, taps, padded, radius, cols)
            padded[:radius] = padded[radius]
            padded[radius + cols :] = padded[radius + cols - 1]
            _weighted_sum(padded, 0, left, taps, smoothed, r * cols, cols)


@compiled
def _vote_into(smoothed, rows, top, left, slots, votes):
    # Pixels outside the picture do not vote.
    cols = smoothed.shape[1]
    dx, dy = np.empty(cols, np.float32), np.empty(cols, np.float32)
    on_axis, on_diagonal = np.empty(cols, np.float32), np.empty(cols, np.float32)
    axis, diagonal = np.empty(cols, np.int32), np.empty(cols, np.int32)
    begin, end = max(left, 0), min(left + len(slots), cols)
    for r in range(len(votes)):
        row = votes[r]
        row[:] = 0
        y = top + r
        if y < 0 or y >= rows:
            continue
        differences(smoothed[r : r + 3], y > 0, y < rows - 1, dx, dy)
        _share(dx, dy, on_axis, on_diagonal, axis, diagonal)
        for x in range(begin, end):
            slot = np.uint64(slots[x - left])
            row[slot + np.uint64(axis[x])] = on_axis[x]
            row[slot + np.uint64(diagonal[x])] = on_diagonal[x]


@compiled
def _share(dx, dy, on_axis, on_diagonal, axis, diagonal):
    # Between two of the eight orientations, an even and an odd one, a gradient is shared linearly by its
    # angle from the even one, which is at most 45 degrees.
    for x in range(len(dx)):
        across, down = abs(dx[x]), abs(dy[x])
        steep = down > across
        larger, smaller = (down if steep else across), (across if steep else down)
        length = np.sqrt(across * across + down * down)
        part = length * eighths(smaller, larger)
        on_diagonal[x] = part
        on_axis[x] = length - part
        leftwards, upwards = dx[x] < np.float32(0), dy[x] < np.float32(0)
        horizontal = np.int32(4) if leftwards else np.int32(0)
        vertical = np.int32(6) if upwards else np.int32(2)
        axis[x] = vertical if steep else horizontal
        lower = np.int32(3) if leftwards else np.int32(1)
        upper = np.int32(5) if leftwards else np.int32(7)
        diagonal[x] = upper if upwards else lower


@compiled
def _sum_everywhere(votes, taps, rows, cols, spacing, sums):
    row_length, length = votes.shape[1], sums.shape[1]
    summed = np.empty(row_length, np.float32)
    for m in range(len(sums)):
        _weighted_sum(votes, m * spacing * row_length, rows, taps, summed, 0, row_length)
        _weighted_sum(summed, 0, cols, taps, sums, m * length, length)


@compiled
def _sum_each_bin(votes, taps, rows, cols, bin_size, step, sums):
    row_length, length = votes.shape[1], sums.shape[1] // N_BINS**2
    summed = np.empty(row_length, np.float32)
    for i in range(len(sums)):
        for down in range(N_BINS):
            start = (i * step + down * bin_size) * row_length
            _weighted_sum(votes, start, rows, taps[down], summed, 0, row_length)
            for across in range(N_BINS):
                at = ((i * N_BINS + down) * N_BINS + across) * length
                _weighted_sum(summed, 0, cols[across], taps[across], sums, at, length)


@compiled
def _normalise_into(sums, starts, stride, counts, weights, threshold, root, finish, values, at, channel):
    # Bin b of the descriptor in row i and column k is at starts[b] + i * stride[0] + k * stride[1].
    n_cols, n_rows = counts
    buffer = np.empty(LENGTH, np.float32)
    for n in range(n_rows * n_cols):
        place = n // n_cols * stride[0] + n % n_cols * stride[1]
        for b in range(N_BINS**2):
            source = piece(sums, place + starts[b], N_ORIENTATIONS)
            own = piece(buffer, b * N_ORIENTATIONS, N_ORIENTATIONS)
            weight = weights[b]
            for o in range(N_ORIENTATIONS):
                own[o] = weight * source[o]
        descriptor = piece(values, (at + n) * values.shape[1] + channel * LENGTH, LENGTH)
        _normalise(buffer, threshold, root, finish, descriptor)


@compiled
def _normalise(buffer, threshold, root, finish, descriptor):
    total, squares = np.float32(0), np.float32(0)
    for j in range(LENGTH):
        total += buffer[j]
        squares += buffer[j] * buffer[j]
    if total < threshold:
        for j in range(LENGTH):
            descriptor[j] = 0
        return
    one = np.float32(1)
    scale = one / np.sqrt(squares)
    total, squares = np.float32(0), np.float32(0)
    for j in range(LENGTH):
        value = min(buffer[j] * scale, _CLIP)
        buffer[j] = value
        total += value
        squares += value * value
    scale = one / (total if root else np.sqrt(squares))
    if root:
        for j in range(LENGTH):
            buffer[j] = np.sqrt(buffer[j] * scale)
        scale = one
    gain, shift, limit = finish[0] * scale, finish[1], finish[2]
    for j in range(LENGTH):
        descriptor[j] = min(gain * buffer[j] + shift, limit)
