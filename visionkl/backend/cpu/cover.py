"""Choosing a few things that stand for many: greedy maximisation of a covering."""

import numpy as np

from visionkl.backend.cpu.jit import compiled_exactly


@compiled_exactly
def cover(likeness, weight, max_likeness, chosen):  # type: ignore[no-untyped-def]
    """Choose things one by one, each the one that raises `sum_j weight_j max_chosen likeness_ij` most.

    What a thing adds only falls while others are chosen. So the gain of an earlier turn is a bound, and few
    gains are counted anew.

    Parameters
    ----------
    likeness : ndarray of float32, shape (n, n)
        Between 0 and 1, the same both ways.
    weight : ndarray of float64, shape (n,)
    max_likeness : float
        Things more like a chosen one than this are duplicates, and are not chosen.
    chosen : ndarray of int64, shape (most,)
        Receives numbers of things.

    Returns
    -------
    int
        How many were chosen: fewer than `most` if the others are duplicates.
    """
    n = len(weight)
    covered = np.zeros(n)
    bound = np.full(n, np.inf)
    for turn in range(len(chosen)):
        best, most = -1, -1.0
        for i in np.argsort(-bound, kind="mergesort"):
            if bound[i] <= most:
                break
            gain = 0.0
            for j in range(n):
                gain += weight[j] * max(likeness[i, j] - covered[j], 0.0)
            bound[i] = gain
            if gain > most:
                best, most = i, gain
        if best < 0:
            return turn
        chosen[turn] = best
        for j in range(n):
            covered[j] = max(covered[j], likeness[best, j])
            if likeness[best, j] > max_likeness:
                bound[j] = -np.inf
        bound[best] = -np.inf
    return len(chosen)
