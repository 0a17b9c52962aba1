"""Generalised distance transforms: the best score a part can reach from every anchor, less its cost.

With `placed = anchor + (dx, dy)` and a cost `ax dx² + bx dx + ay dy² + by dy`,

    transformed[anchor] = max over placed of  scores[placed] - cost(placed - anchor)

is separable: first along columns, then along rows. Two exact algorithms are here, both for many parts at once
(last axis):

* `windowed`: displacements up to a radius, by trying them all. The parts lie side by side in memory, so each
  trial is one vector operation over all parts; for the radius 4 of the published models it is several times
  faster than the envelope.
* `envelope`: any displacement, by the upper envelope of parabolas, in linear time.
"""

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.jit import compiled


def windowed(
    scores: npt.NDArray[np.float32], costs: npt.NDArray[np.float32], radius: int, rows: int, cols: int
) -> npt.NDArray[np.float32]:
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
    n_rows, n_cols, n = scores.shape
    shifts = np.arange(-radius, radius + 1, dtype=np.float32)[:, None]
    along_x = np.tile(costs[:, 0] * shifts**2 + costs[:, 1] * shifts, cols)
    along_y = np.tile(costs[:, 2] * shifts**2 + costs[:, 3] * shifts, n_cols)
    best = np.empty((rows, cols * n), np.float32)
    _best_in_window(scores.reshape(n_rows, n_cols * n), along_y, along_x, n, best)
    return best.reshape(rows, cols, n)


def envelope(
    scores: npt.NDArray[np.float32], costs: npt.NDArray[np.float32], rows: int, cols: int
) -> npt.NDArray[np.float32]:
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
def best_placements(scores, costs, radius, anchors, parts, placed):  # type: ignore[no-untyped-def]
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
def _best_in_window(scores, along_y, along_x, n, best):  # type: ignore[no-untyped-def]
    # A row of all parts at all places is one line of numbers; a neighbouring place is n numbers further on.
    n_rows, width = scores.shape
    n_taps = along_y.shape[0]
    radius = n_taps // 2
    anchors = best.shape[1]
    nothing = np.full(width, -np.inf, np.float32)
    # What the first pass leaves, with room to look past both ends.
    margin = radius * n
    framed = np.full(max(width, anchors) + 2 * margin, -np.inf, np.float32)
    spare = np.empty(max(width, anchors), np.float32)
    for y in range(best.shape[0]):
        old, new = framed[margin : margin + width], spare[:width]
        if radius % 2:
            old, new = new, old
        _deduct(scores[y] if y < n_rows else nothing, along_y[radius], old)
        for step in range(1, radius + 1):
            above = scores[y - step] if 0 <= y - step < n_rows else nothing
            below = scores[y + step] if y + step < n_rows else nothing
            _best_of_three(old, above, along_y[radius - step], below, along_y[radius + step], new)
            old, new = new, old
        old, new = best[y], spare[:anchors]
        if radius % 2:
            old, new = new, old
        _deduct(framed[margin : margin + anchors], along_x[radius], old)
        for step in range(1, radius + 1):
            left = framed[margin - step * n : margin - step * n + anchors]
            right = framed[margin + step * n : margin + step * n + anchors]
            _best_of_three(old, left, along_x[radius - step], right, along_x[radius + step], new)
            old, new = new, old


@compiled
def _deduct(source, cost, target):  # type: ignore[no-untyped-def]
    for i in range(target.shape[0]):
        target[i] = source[i] - cost[i]


@compiled
def _best_of_three(old, first, first_cost, second, second_cost, new):  # type: ignore[no-untyped-def]
    # Written to another line than it reads: raising values in place would compile to masked stores, ten times
    # slower.
    for i in range(new.shape[0]):
        a = first[i] - first_cost[i]
        b = second[i] - second_cost[i]
        better = a if a > b else b
        new[i] = better if better > old[i] else old[i]


@compiled
def _envelope_down(scores, quadratic, linear, best):  # type: ignore[no-untyped-def]
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
