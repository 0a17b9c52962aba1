"""Smooth losses and a penalty, by plain accelerated proximal steps over rows of any kind.

`solve_rows` minimises, for each of several outputs side by side,

    (1/n) Σ_i loss(row_i · w + b; i)  +  λ penalty(w),       b free,

as `visionkl.solvers.smooth` does, but asks for scores and sums of rows only: there is no Gram matrix of
features, so memory is linear, and rows may be codes or bits. It pays with passes: hundreds, where features
are alike. Take it for many more features than samples.

b is settled exactly in each step (`level`), so that what is left is smooth in w, and steps of the length
1 / (curvature · largest eigenvalue of the centred rows) are safe. Momentum starts anew when it points uphill.
The duality gap is that of `visionkl.solvers.smooth`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from visionkl.core.rng import stream
from visionkl.solvers.penalties import Penalty
from visionkl.solvers.proximal import Solution
from visionkl.solvers.rows import Rows
from visionkl.solvers.scalar import SmoothLoss
from visionkl.solvers.smooth import level

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]

_POWER_STEPS = 30
_CHECK_EVERY = 10


def solve_rows(
    rows: Rows,
    loss: SmoothLoss,
    penalty: Penalty,
    strength: Vector,
    *,
    tol: float = 1e-3,
    max_iter: int = 1000,
) -> Solution:
    """Minimise the average of a smooth loss and λ times a penalty, for each output.

    Parameters
    ----------
    rows : Rows
    loss : SmoothLoss
        Of scores `(n_rows, n_outputs)`.
    penalty : Penalty
    strength : ndarray of float64, shape (n_outputs,)
        λ > 0.
    tol : float
        Duality gap to reach, relative to the loss of the best constant.
    max_iter : int
        Steps, of two passes over the data each, at most.

    Returns
    -------
    Solution

    Examples
    --------
    >>> from visionkl.solvers.penalties import Absolute
    >>> from visionkl.solvers.rows import DenseRows
    >>> from visionkl.solvers.scalar import Signed, SquaredHinge
    >>> rows = DenseRows([[1.0, 0.1], [2.0, -0.1], [3.0, 0.1], [4.0, -0.1]])
    >>> labels = np.array([[-1.0], [-1.0], [1.0], [1.0]])
    >>> found = solve_rows(rows, Signed(SquaredHinge(), labels), Absolute(), np.array([0.1]), tol=1e-6)
    >>> bool(found.weights[0, 0] > 1), float(found.weights[1, 0])
    (True, 0.0)
    """
    n = rows.n_rows
    size = 1 / (loss.curvature * _largest(rows))
    weights = ahead = np.zeros((rows.dim, len(strength)))
    scores = ahead_scores = np.zeros((n, len(strength)))
    offset = level(loss, scores)
    tolerance = tol * loss.value(scores + offset).mean(axis=0)
    momentum = np.ones(len(strength))
    n_iter = 0
    while True:
        if n_iter % _CHECK_EVERY == 0 or n_iter == max_iter:
            offset = level(loss, scores, offset)
            shares = loss.derivative(scores + offset)
            gradient = rows.combine(shares.T / n).T
            scale = penalty.dual_scale(gradient, strength)
            below = -loss.conjugate(scale * shares).mean(axis=0)
            below -= penalty.conjugate(scale * gradient, strength)
            objective = loss.value(scores + offset).mean(axis=0) + strength * penalty.value(weights)
            gap = objective - below
            if (gap <= tolerance).all() or n_iter == max_iter:
                return Solution(weights, offset, gap, objective, n_iter)
        n_iter += 1
        shares = loss.derivative(ahead_scores + level(loss, ahead_scores, offset))
        new = penalty.prox(ahead - size * rows.combine(shares.T / n).T, size * strength)
        new_scores = rows.scores(new.T).T
        uphill = np.einsum("ij,ij->j", ahead - new, new - weights) > 0
        following = np.where(uphill, 1.0, (1 + np.sqrt(1 + 4 * momentum**2)) / 2)
        push = np.where(uphill, 0.0, (momentum - 1) / following)
        ahead, ahead_scores = new + push * (new - weights), new_scores + push * (new_scores - scores)
        weights, scores, momentum = new, new_scores, following


def _largest(rows: Rows) -> float:
    """Return a bound, some per cent above, of the largest eigenvalue of the centred rows' covariance."""
    vector = stream(0, "largest eigenvalue").standard_normal(rows.dim)
    value = 0.0
    for _ in range(_POWER_STEPS):
        scores = rows.scores(vector / np.linalg.norm(vector))
        vector = rows.combine((scores - scores.mean())[None] / rows.n_rows)[0]
        before, value = value, float(np.linalg.norm(vector))
        if value <= before * (1 + 1e-3) or value == 0:
            break
    return 1.05 * value or 1.0
