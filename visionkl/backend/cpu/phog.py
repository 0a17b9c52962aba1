"""Votes of pixels for the directions of their gradients."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.gradients import differences, eighths
from visionkl.backend.cpu.jit import compiled

Floats = npt.NDArray[np.float32]


def gradient_votes(
    grey: Floats, strengths: Floats | None, n_labels: int, signed: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.uint16], Floats]:
    """Let pixels vote for the direction of their gradient, each for the two nearest.

    Parameters
    ----------
    grey : ndarray of float32, shape (rows, cols)
    strengths : ndarray of float32, shape (rows, cols), optional
        What the pixels' votes count; the lengths of their gradients by default. Pixels that have no gradient
        do not vote.
    n_labels : int
        Directions.
    signed : bool
        Whether they span the whole turn, or half of it.

    Returns
    -------
    starts, cols, labels, weights
        As `visionkl.backend.cpu.votes.count_into` takes them.
    """
    rows, n_cols = grey.shape
    starts = np.zeros(rows + 1, np.int64)
    cols = np.empty(2 * grey.size, np.int32)
    labels = np.empty(2 * grey.size, np.uint16)
    weights = np.empty(2 * grey.size, np.float32)
    given = np.empty((0, n_cols), np.float32) if strengths is None else strengths
    # One more row above and below, which is never looked at, spares the loop its ends.
    padded = np.empty((rows + 2, n_cols), np.float32)
    padded[1:-1] = grey
    n = _gradient_votes(padded, given, n_labels, signed, starts, cols, labels, weights)
    return starts, cols[:n], labels[:n], weights[:n]


@compiled
def _gradient_votes(padded, given, n_labels, signed, starts, cols, labels, weights):
    rows, n_cols = len(starts) - 1, padded.shape[1]
    dx, dy = np.empty(n_cols, np.float32), np.empty(n_cols, np.float32)
    lengths, places = np.empty(n_cols, np.float32), np.empty(n_cols, np.float32)
    n = 0
    for r in range(rows):
        differences(padded[r : r + 3], r > 0, r < rows - 1, dx, dy)
        _polar(dx, dy, np.float32(n_labels / (8 if signed else 4)), signed, lengths, places)
        for x in range(n_cols):
            weight = lengths[x]
            if weight > 0 and len(given) > 0:
                weight = given[r, x]
            if weight > 0:
                lower = int(places[x])
                upper_part = weight * (places[x] - np.float32(lower))
                first = lower if lower < n_labels else lower - n_labels
                cols[n], labels[n], weights[n] = x, first, weight - upper_part
                n += 1
                if upper_part > 0:
                    cols[n], labels[n], weights[n] = x, (first + 1 if first + 1 < n_labels else 0), upper_part
                    n += 1
        starts[r + 1] = n
    return n


@compiled
def _polar(dx, dy, scale, signed, lengths, places):
    # The angle in eighths of a turn, from the x axis towards the y axis, times `scale`.
    for x in range(len(dx)):
        across, down = abs(dx[x]), abs(dy[x])
        steep = down > across
        larger, smaller = (down if steep else across), (across if steep else down)
        lengths[x] = np.sqrt(across * across + down * down)
        angle = eighths(smaller, larger)
        angle = np.float32(2) - angle if steep else angle
        angle = np.float32(4) - angle if dx[x] < np.float32(0) else angle
        turned = np.float32(8) - angle if signed else np.float32(4) - angle
        places[x] = scale * (turned if dy[x] < np.float32(0) else angle)
