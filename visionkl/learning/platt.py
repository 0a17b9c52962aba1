"""Probabilities from scores: Platt's sigmoid, one for each class.

The probability of a class is taken as `1 / (1 + exp(a f + b))` for a score f, and a, b are those that make
held-out scores most likely. Labels are softened, to `(N₊ + 1) / (N₊ + 2)` and `1 / (N₋ + 2)`, so that the
sigmoid stays finite where the scores separate the classes. The problem has two unknowns and is convex; it is
solved by Newton's method with a ridge and a backtracking search, and with sums that neither overflow nor
cancel (Lin, Lin and Weng, 2007).

With more than two classes each has a sigmoid against the rest, and the probabilities are divided by their
sum.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

_RIDGE = 1e-12
_STEPS = 100


def fit_sigmoid(scores: Vector, positive: npt.NDArray[np.bool_], weights: Vector) -> tuple[float, float]:
    """Fit a and b of `1 / (1 + exp(a f + b))`.

    Parameters
    ----------
    scores : ndarray of float64, shape (n,)
        Held out: of machines that were not trained on the samples.
    positive : ndarray of bool, shape (n,)
    weights : ndarray of float64, shape (n,)

    Examples
    --------
    >>> a, b = fit_sigmoid(np.array([-2.0, -1.0, 1.0, 2.0]), np.array([False, False, True, True]), np.ones(4))
    >>> a < 0, abs(b) < 1e-9
    (True, True)
    """
    above, below = float(weights[positive].sum()), float(weights[~positive].sum())
    targets = np.where(positive, (above + 1) / (above + 2), 1 / (below + 2))
    # Newton's method does not mind the scale of the scores, but the ridge does.
    scale = float(np.abs(scores).max(initial=0.0)) or 1.0
    columns = np.column_stack([scores / scale, np.ones(len(scores))])
    solution = np.array([0.0, np.log((below + 1) / (above + 1))])
    value = _loss(columns @ solution, targets, weights)
    for _ in range(_STEPS):
        z = columns @ solution
        p = np.exp(-np.logaddexp(0, z))
        gradient = columns.T @ (weights * (targets - p))
        if np.abs(gradient).max() <= 1e-9 * weights.sum():
            break
        curvature = columns.T @ (columns * (weights * p * (1 - p))[:, None])
        curvature[np.diag_indices(2)] += _RIDGE * max(1.0, float(np.trace(curvature)))
        direction = -np.linalg.solve(curvature, gradient)
        step, fall = 1.0, float(gradient @ direction)
        while step > 1e-10:
            new_value = _loss(columns @ (solution + step * direction), targets, weights)
            if new_value <= value + 1e-4 * step * fall:
                break
            step /= 2
        else:
            break
        solution, value = solution + step * direction, new_value
    return float(solution[0] / scale), float(solution[1])


def probabilities(scores: Vector, sigmoids: Vector) -> Vector:
    """Return probabilities `(n, n_classes)` of scores `(n, k)`, given a and b of each column.

    One column belongs to two classes, the second of which has the high scores.

    Examples
    --------
    >>> probabilities(np.array([[0.0], [100.0]]), np.array([[-1.0, 0.0]])).round(3)
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    each = np.exp(-np.logaddexp(0, scores * sigmoids[:, 0] + sigmoids[:, 1]))
    if each.shape[1] == 1:
        return np.hstack([1 - each, each])
    sums = each.sum(axis=1, keepdims=True)
    return np.divide(each, sums, out=np.full(each.shape, 1 / each.shape[1]), where=sums > 0)


def _loss(z: Vector, targets: Vector, weights: Vector) -> float:
    """Return the negative log-likelihood of `p = 1 / (1 + exp(z))`."""
    return float(weights @ (targets * z + np.logaddexp(0, -z)))
