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
    shifts = np.arange(-radius, radius + 1, dtype=np.float32)[:, None]
    along_x = costs[:, 0] * shifts**2 + costs[:, 1] * shifts
    along_y = costs[:, 2] * shifts**2 + costs[:, 3] * shifts
    down = np.full((rows, scores.shape[1], scores.shape[2]), -np.inf, np.float32)
    _best_down(scores, along_y, down)
    across = np.full((rows, cols, scores.shape[2]), -np.inf, np.float32)
    _best_across(down, along_x, across)
    return across


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
def _best_down(scores, costs, best):  # type: ignore[no-untyped-def]
    n_shifts, n = costs.shape
    radius = n_shifts // 2
    for y in range(best.shape[0]):
        for shift in range(n_shifts):
            source_row = y + shift - radius
            if 0 <= source_row < scores.shape[0]:
                for x in range(scores.shape[1]):
                    source, target, cost = scores[source_row, x], best[y, x], costs[shift]
                    for f in range(n):
                        value = source[f] - cost[f]
                        target[f] = value if value > target[f] else target[f]


@compiled
def _best_across(scores, costs, best):  # type: ignore[no-untyped-def]
    n_shifts, n = costs.shape
    radius = n_shifts // 2
    for y in range(best.shape[0]):
        for x in range(best.shape[1]):
            target = best[y, x]
            for shift in range(n_shifts):
                source_col = x + shift - radius
                if 0 <= source_col < scores.shape[1]:
                    source, cost = scores[y, source_col], costs[shift]
                    for f in range(n):
                        value = source[f] - cost[f]
                        target[f] = value if value > target[f] else target[f]


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
