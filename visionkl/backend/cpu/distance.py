"""Generalised distance transforms: the best score a part can reach from every anchor, less its cost.

With `placed = anchor + (dx, dy)` and a cost `ax dx² + bx dx + ay dy² + by dy`,

    transformed[anchor] = max over placed of  scores[placed] - cost(placed - anchor)

is separable: first along columns, then along rows. Two exact algorithms are here, both for many parts at once
(last axis):

* *windowed*: displacements up to a radius, by trying them all. The parts lie side by side in memory, so each
  trial is a vector operation on eight parts, and the best of all trials stays in a register; for the radius 4
  of the published models it is many times faster than the envelope.
* *envelope*: any displacement, by the upper envelope of parabolas, in linear time.

Matching needs the transform only at every second anchor, one for each place of a root, and only to add it to
the root's score. `add_windowed` makes one line of anchors at a time and adds it at once: nothing else is
computed, and nothing is stored.
"""

# Numba gives intrinsics a typing context that their callers do not see.
# mypy: disable-error-code="no-untyped-def, call-arg, var-annotated"

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from visionkl.backend.cpu.jit import compiled
from visionkl.backend.cpu.simd import INT64, Registers, address, load, write

_LANES = 8

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Windows:
    """Some of a group's parts, made ready by `make_windows` to be transformed within a radius.

    Parameters
    ----------
    starts : ndarray of int64, shape (n_vectors,)
        The parts are taken eight at a time; these are the numbers of the first ones.
    lanes : ndarray of int64, shape (n_chosen,)
        Where the chosen parts are, counted through all vectors.
    along_y, along_x : ndarray of float32, shape (taps * n_vectors * 8,)
        Costs of all displacements, from `-radius` to `radius`.
    taps : tuple of int
        Its length is the number of displacements, for the compiler (see `simd`).
    """

    starts: IntArray
    lanes: IntArray
    along_y: FloatArray
    along_x: FloatArray
    taps: tuple[int, ...]


def make_windows(costs: FloatArray, radius: int, chosen: IntArray) -> Windows:
    """Make parts ready.

    Parameters
    ----------
    costs : ndarray of float32, shape (n, 4)
        `ax, bx, ay, by` of each part of the group.
    radius : int
        Largest displacement in each direction.
    chosen : ndarray of int64, shape (n_chosen,)
        Numbers of the parts wanted, increasing.

    Returns
    -------
    Windows
    """
    # Vectors end with the last part, so that no memory beyond is read; a part may be in two of them.
    last = max(len(costs) - _LANES, 0)
    starts: list[int] = []
    lanes = np.empty(len(chosen), np.int64)
    for i, part in enumerate(chosen.tolist()):
        if not starts or part >= starts[-1] + _LANES:
            starts.append(min(part, last))
        lanes[i] = (len(starts) - 1) * _LANES + part - starts[-1]
    everyone = np.zeros((max(len(costs), _LANES), 4), np.float32)
    everyone[: len(costs)] = costs
    mine = everyone[(np.array(starts)[:, None] + np.arange(_LANES)).ravel()]
    shifts = np.arange(-radius, radius + 1, dtype=np.float32)[:, None]
    along_x = mine[:, 0] * shifts**2 + mine[:, 1] * shifts
    along_y = mine[:, 2] * shifts**2 + mine[:, 3] * shifts
    return Windows(
        np.array(starts, np.int64), lanes, along_y.ravel(), along_x.ravel(), (0,) * (2 * radius + 1)
    )


def windowed(scores: FloatArray, costs: FloatArray, radius: int, rows: int, cols: int) -> FloatArray:
    """Transform with displacements of at most `radius` in each direction.

    Parameters
    ----------
    scores : ndarray of float32, shape (score_rows, score_cols, n)
    costs : ndarray of float32, shape (n, 4)
        `ax, bx, ay, by` of each part.
    radius : int
    rows, cols : int
        Anchors range over `rows × cols`, which may reach past the scores on the far side; -inf where nothing
        is in reach.

    Returns
    -------
    ndarray of float32, shape (rows, cols, n)
    """
    best = np.empty((rows, cols, scores.shape[2]), np.float32)
    if not scores.size:
        best.fill(-np.inf)
    elif best.size:
        windows = make_windows(costs, radius, np.arange(len(costs)))
        flat, layout = _as_vectors(scores)
        _transform(
            flat, layout, windows.starts, windows.lanes, windows.along_y, windows.along_x, best, windows.taps
        )
    return best


def add_windowed(
    scores: FloatArray,
    windows: Windows,
    first: tuple[int, int],
    wiring: IntArray,
    limits: IntArray,
    totals: FloatArray,
) -> None:
    """Transform the scores of parts at every second anchor and add them to the totals of their roots.

    Parameters
    ----------
    scores : ndarray of float32, shape (rows, cols, n)
        Of all parts of the group; not empty.
    windows : Windows
    first : tuple of int
        `(row, col)` of the first anchor, 0 or 1 each.
    wiring : ndarray of int64, shape (n_chosen, 3)
        For each chosen part: which total it belongs to, and the line and column of anchors that its root at
        0, 0 needs; they may lie outside.
    limits : ndarray of int64, shape (n_totals, 4)
        For each total, the roots' places `top, bottom, left, right` (half-open) that are wanted: all their
        anchors must be at 0 or beyond.
    totals : ndarray of float32, shape (n_totals, root_rows, root_cols)
    """
    flat, layout = _as_vectors(scores)
    _add_transformed(
        flat, layout, windows.starts, windows.lanes, windows.along_y, windows.along_x, first, wiring, limits,
        totals, windows.taps,
    )  # fmt: skip


def _as_vectors(scores: FloatArray) -> tuple[FloatArray, tuple[int, int, int]]:
    """See scores as one line of memory, with at least a whole vector of parts at each place."""
    rows, cols, n = scores.shape
    if n < _LANES:
        wider = np.zeros((rows, cols, _LANES), np.float32)
        wider[..., :n] = scores
        scores = wider
    return np.ascontiguousarray(scores).reshape(-1), scores.shape


def envelope(scores: FloatArray, costs: FloatArray, rows: int, cols: int) -> FloatArray:
    """Transform with displacements of any size.

    Parameters and result as for `windowed`, with `ax, ay > 0`.
    """
    down = np.empty((rows, scores.shape[1], scores.shape[2]), np.float32)
    _envelope_down(scores, costs[:, 2].astype(np.float64), costs[:, 3].astype(np.float64), down)
    across = np.empty((cols, rows, scores.shape[2]), np.float32)
    turned = np.ascontiguousarray(down.transpose(1, 0, 2))
    _envelope_down(turned, costs[:, 0].astype(np.float64), costs[:, 1].astype(np.float64), across)
    return np.ascontiguousarray(across.transpose(1, 0, 2))


@compiled
def best_placements(scores, costs, radius, anchors, parts, placed):
    """Find where parts were placed: arg-max of the transform at a few anchors only.

    Parameters
    ----------
    scores : ndarray of float32, shape (rows, cols, n)
    costs : ndarray of float32, shape (n, 4)
    radius : int
        As in `windowed`; a radius as large as the level makes displacements free.
    anchors : ndarray of int64, shape (m, 2)
        `(row, col)` each.
    parts : ndarray of int64, shape (m,)
        Which of the `n` parts.
    placed : ndarray of int64, shape (m, 2)
        Receives `(row, col)` of the best placement; of equally good ones the first in column, then row,
        order.
    """
    rows, cols, _ = scores.shape
    for i in range(anchors.shape[0]):
        part = parts[i]
        ax, bx, ay, by = costs[part, 0], costs[part, 1], costs[part, 2], costs[part, 3]
        row, col = anchors[i, 0], anchors[i, 1]
        best = np.float32(-np.inf)
        for x in range(max(col - radius, 0), min(col + radius + 1, cols)):
            dx = np.float32(x - col)
            for y in range(max(row - radius, 0), min(row + radius + 1, rows)):
                dy = np.float32(y - row)
                value = scores[y, x, part] - (ax * dx + bx) * dx - (ay * dy + by) * dy
                if value > best:
                    best = value
                    placed[i, 0] = y
                    placed[i, 1] = x


@compiled
def _transform(scores, layout, starts, lanes, along_y, along_x, best, taps):
    rows, cols, n = best.shape
    width = starts.shape[0] * _LANES
    line, offsets, costs = _make_room(layout, cols, width, taps)
    flat, across = best.ravel(), np.empty(cols * width, np.float32)
    for y in range(rows):
        _look_down(scores, layout, y, starts, along_y, costs, offsets, line, taps)
        if width == n:  # whole vectors of parts, in their order
            _look_across(line, 0, 1, cols, along_x, offsets, flat, y * cols * n, width, taps)
        else:
            _look_across(line, 0, 1, cols, along_x, offsets, across, 0, width, taps)
            for x in range(cols):
                for part in range(n):
                    best[y, x, part] = across[x * width + lanes[part]]


@compiled
def _add_transformed(
    scores, layout, starts, lanes, along_y, along_x, first, wiring, limits, totals, taps
):  # fmt: skip
    width = starts.shape[0] * _LANES
    # Lines and columns of anchors that are needed at all.
    top, bottom, left, right = 2**31, 0, 2**31, 0
    for part in range(wiring.shape[0]):
        root, down, across = wiring[part]
        if limits[root, 0] < limits[root, 1] and limits[root, 2] < limits[root, 3]:
            top, bottom = min(top, limits[root, 0] + down), max(bottom, limits[root, 1] + down)
            left, right = min(left, limits[root, 2] + across), max(right, limits[root, 3] + across)
    n_anchors = right - left
    if n_anchors <= 0:
        return
    line, offsets, costs = _make_room(layout, first[1] + 2 * right, width, taps)
    anchors = np.empty(n_anchors * width, np.float32)
    for anchor_line in range(top, bottom):
        _look_down(scores, layout, first[0] + 2 * anchor_line, starts, along_y, costs, offsets, line, taps)
        _look_across(line, first[1] + 2 * left, 2, n_anchors, along_x, offsets, anchors, 0, width, taps)
        for part in range(wiring.shape[0]):
            root, down, across = wiring[part]
            y = anchor_line - down
            if limits[root, 0] <= y < limits[root, 1]:
                total = totals[root, y]
                at = (limits[root, 2] + across - left) * width + lanes[part]
                for x in range(limits[root, 2], limits[root, 3]):
                    total[x] += anchors[at]
                    at += width


@compiled
def _make_room(layout, cols, width, taps):
    """Make a line that reaches over all scores and all anchors, with a margin of -inf, and smaller things."""
    line = np.full((max(layout[1], cols) + len(taps) - 1) * width, -np.inf, np.float32)
    return line, np.empty(len(taps), np.int64), np.empty(len(taps) * width, np.float32)


@compiled
def _look_down(scores, layout, y, starts, along_y, costs, offsets, line, taps):
    """Put the best of all vertical displacements from row `y` into the line, within its margin."""
    rows, cols, n = layout
    width = starts.shape[0] * _LANES
    for tap in range(len(taps)):
        row = y + tap - len(taps) // 2
        offsets[tap] = min(max(row, 0), rows - 1) * cols * n
        for i in range(tap * width, (tap + 1) * width):
            costs[i] = along_y[i] if 0 <= row < rows else np.inf
    to = len(taps) // 2 * width
    for x in range(cols):
        for vector in range(starts.shape[0]):
            best = _best(scores, x * n + starts[vector], offsets, costs, vector * _LANES, width, taps)
            write(line, to, best)
            to += _LANES


@compiled
def _look_across(line, first, step, n, along_x, offsets, best, to, width, taps):
    """Write the best of all horizontal displacements from `n` columns: the first, and every so many."""
    for tap in range(len(taps)):
        offsets[tap] = tap * width
    for i in range(n):
        at = (first + step * i) * width
        for lane in range(0, width, _LANES):
            write(best, to, _best(line, at + lane, offsets, along_x, lane, width, taps))
            to += _LANES


@intrinsic
def _best(typing_context, scores, at, offsets, costs, first_cost, cost_step, taps):
    """Find the best of `scores[at + offsets[tap]] - cost` over all taps, for eight parts side by side."""
    registers = Registers(types.float32, _LANES, 1)

    def generate(context, builder, signature, arguments):
        scores_, at_, offsets_, costs_, cost_at, cost_step_, _ = arguments
        best = None
        for tap in range(len(taps)):
            pointer = address(context, builder, offsets, offsets_, ir.Constant(INT64, tap))
            place = builder.add(at_, builder.load(pointer))
            score = load(builder, address(context, builder, scores, scores_, place), registers.vector)
            cost = load(builder, address(context, builder, costs, costs_, cost_at), registers.vector)
            value = builder.fsub(score, cost)
            if best is None:
                best = value
            else:
                best = builder.select(builder.fcmp_ordered(">", value, best), value, best)
            cost_at = builder.add(cost_at, cost_step_)
        return builder.insert_value(registers.undefined, best, 0)

    integer = types.int64
    return registers(scores, integer, offsets, costs, integer, integer, taps), generate


@compiled
def _envelope_down(scores, quadratic, linear, best):
    # Parabola of place p over anchors q: scores[p] - a (p - q)² - b (p - q). The later of two parabolas is
    # the higher one to the right of their crossing; `starts[k]` is where parabola `tops[k]` begins to be the
    # highest.
    n_scores, n_lines, n = scores.shape
    tops = np.empty(n_scores, np.int64)
    starts = np.empty(n_scores + 1)
    for line in range(n_lines):
        for f in range(n):
            a, b = quadratic[f], linear[f]
            count = 0
            for p in range(n_scores):
                height = np.float64(scores[p, line, f])
                if height == -np.inf:
                    continue
                start = -np.inf
                while count > 0:
                    q = tops[count - 1]
                    below = np.float64(scores[q, line, f])
                    start = 0.5 * (p + q + b / a) - (height - below) / (2.0 * a * (p - q))
                    if start > starts[count - 1]:
                        break
                    count -= 1
                    start = -np.inf
                tops[count] = p
                starts[count] = start
                count += 1
            current = 0
            for q in range(best.shape[0]):
                if count == 0:
                    best[q, line, f] = -np.inf
                    continue
                while current + 1 < count and starts[current + 1] < q:
                    current += 1
                shift = tops[current] - q
                best[q, line, f] = scores[tops[current], line, f] - (a * shift + b) * shift
