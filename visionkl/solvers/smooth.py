"""Smooth losses and a penalty, by proximal steps in the metric of the data (METHODS §7).

`solve_smooth` minimises, for each of several outputs side by side,

    (1/n) Σ_i loss(row_i · w + b; i)  +  λ penalty(w),       b free,

for the losses of `visionkl.solvers.scalar` and the penalties of `visionkl.solvers.penalties`.

A loss of curvature at most c lies below a parabola at every point, so each step is a problem with the squared
loss (`visionkl.solvers.proximal`), the same Gram matrix of features and the strength λ / c: a proximal step
in the metric of the data instead of the identity. With Nesterov's momentum, some ten steps of two passes over
the data are enough where plain proximal gradients take hundreds, because only the loss's curvature is left to
adapt to, and not the spectrum of the features. Momentum starts anew when the objective rises.

The derivatives of the losses, shrunk until they are slopes of the penalty, give a bound from below, and with
it a duality gap. They must add up to zero, because b is free; so b is settled exactly in each step.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from visionkl.solvers.penalties import Penalty
from visionkl.solvers.proximal import GramMatrix, Quadratic, Solution, solve_quadratic
from visionkl.solvers.scalar import SmoothLoss

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]


class Design(Protocol):
    """Training data as `solve_smooth` sees them."""

    gram: GramMatrix
    means: Vector

    def scores(self, weights: Matrix) -> Matrix:
        """Return Φ w: one pass over the data."""
        ...

    def combine(self, shares: Matrix) -> Matrix:
        """Return Φᵀ shares: one pass over the data."""
        ...


def solve_smooth(
    design: Design,
    loss: SmoothLoss,
    penalty: Penalty,
    strength: Vector,
    *,
    tol: float,
    start: Matrix | None = None,
    max_iter: int = 500,
    intercept: bool = True,
    screen: bool = True,
) -> Solution:
    """Minimise the average of a smooth loss and λ times a penalty, for each output.

    Parameters
    ----------
    design : Design
        With `means` of zero and a Gram matrix that is not centred, if there is no intercept.
    loss : SmoothLoss
        Of scores `(n_samples, n_outputs)`.
    penalty : Penalty
    strength : ndarray of float64, shape (n_outputs,)
        λ > 0.
    tol : float
        Duality gap to reach, relative to the loss of the best constant.
    start : ndarray of float64, shape (n_features, n_outputs), optional
    max_iter : int
        Steps, of two passes over the data each, at most.
    intercept, screen : bool

    Returns
    -------
    Solution
    """
    gram, means = design.gram, design.means
    weights = np.zeros((len(means), len(strength))) if start is None else start.copy()
    scores = design.scores(weights)
    n, curvature = len(scores), loss.curvature
    constant = level(loss, np.zeros_like(scores)) if intercept else np.zeros(len(strength))
    tolerance = tol * _means(loss.value(constant + np.zeros_like(scores)))
    offset = level(loss, scores) if intercept else constant
    objective = _means(loss.value(scores + offset)) + strength * penalty.value(weights)
    ahead, ahead_scores, momentum = weights, scores, 1.0
    below = np.full(len(strength), -np.inf)
    gap = np.full(len(strength), np.inf)
    n_iter = 0
    while n_iter < max_iter:
        base = level(loss, ahead_scores, offset) if intercept else offset
        shares = loss.derivative(ahead_scores + base)
        gradient = design.combine(shares / n)
        scale = penalty.dual_scale(gradient, strength)
        bound = -_means(loss.conjugate(scale * shares)) - penalty.conjugate(scale * gradient, strength)
        below = np.maximum(below, bound)
        gap = objective - below
        if (gap <= tolerance).all():
            break
        n_iter += 1
        # The parabola above the loss is a squared loss with these targets.
        targets = ahead_scores - shares / curvature
        targets -= _means(targets) if intercept else 0.0
        linear = gram.matrix @ ahead - (gradient - np.outer(means, _means(shares))) / curvature
        model = Quadratic(gram, linear, _means(targets**2))
        step = solve_quadratic(
            model,
            penalty,
            strength / curvature,
            tolerance=0.1 * np.maximum(tolerance, 0.1 * np.minimum(gap, 1e300)) / curvature,
            start=weights,
            screen=screen,
        )
        new_scores = design.scores(step.weights)
        offset = level(loss, new_scores, base) if intercept else base
        new = _means(loss.value(new_scores + offset)) + strength * penalty.value(step.weights)
        if (new > objective).any() and momentum > 1:
            ahead, ahead_scores, momentum = weights, scores, 1.0
            continue
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        push = (momentum - 1) / following
        ahead = step.weights + push * (step.weights - weights)
        ahead_scores = new_scores + push * (new_scores - scores)
        weights, scores, objective, momentum = step.weights, new_scores, new, following
    offset = level(loss, scores, offset) if intercept else offset
    return Solution(weights, offset, gap, objective, n_iter)


def level(loss: SmoothLoss, scores: Matrix, start: Vector | None = None) -> Vector:
    """Return the constant of each output that minimises the loss of scores plus this constant.

    The derivative by the constant increases, so its zero is enclosed, and found by secants within.
    """
    place = np.zeros(scores.shape[1]) if start is None else start.copy()
    slope = _means(loss.derivative(scores + place))
    low, high = np.full_like(place, -np.inf), np.full_like(place, np.inf)
    step = -slope / loss.curvature
    for _ in range(100):
        low, high = np.where(slope <= 0, place, low), np.where(slope >= 0, place, high)
        if (np.abs(slope) <= 1e-13).all() or (np.abs(step) <= 1e-15 * (1 + np.abs(place))).all():
            break
        moved = place + step
        outside = (moved <= low) | (moved >= high)
        moved = np.where(outside & np.isfinite(high - low), (low + high) / 2, moved)
        new = _means(loss.derivative(scores + moved))
        rise = (new - slope) / np.where(moved == place, 1, moved - place)
        # No steeper than the bound, and not so flat that a step runs away.
        rise = np.clip(rise, 1e-3 * loss.curvature, loss.curvature)
        place, slope, step = moved, new, -new / rise
    return place


def _means(values: Matrix) -> Vector:
    return values.mean(axis=0)
