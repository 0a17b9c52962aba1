"""Proximal solvers: the squared loss and a penalty, to a proven duality gap (METHODS §7).

Fundamentals
------------
`solve_quadratic` minimises, for each of several outputs side by side,

    (1/2n) Σ_i (row_i · w + b − y_i)²  +  λ penalty(w),       b free,

for the penalties of `visionkl.solvers.penalties`. All that counts of the data is their Gram matrix of
features, centred because of b: `G = Φᵀ Φ / n`. Once it is there, neither the iterations, nor the outputs, nor
the values of λ touch the data again.

* `l2` is one linear system.
* `l21` is solved group after group, each *exactly*: in the eigenvectors of its block of G a group's minimum
  is a root of one increasing, concave function, which Newton's method finds from below. Every five rounds
  Anderson's extrapolation is tried, and kept where the objective falls: it is what makes correlated channels
  fast. Groups that the gap proves to be zero (gap-safe screening) are left out.
* `l1`, and any other penalty with a `prox`, is solved by accelerated proximal gradient steps (FISTA), whose
  momentum starts anew when it points uphill.

Other losses build on this: `visionkl.solvers.smooth`.

**The gap.** The residuals, shrunk until they are slopes of the penalty, give a bound from below. `gap` is the
objective minus that bound: the result is proven to be so close to the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import linalg

from visionkl.backend.threads import run_tasks
from visionkl.solvers.penalties import Groups, Penalty, Squares

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]

_ROUNDS_OF_EXTRAPOLATION = 5
_MOST_NEWTON_STEPS = 60


class GramMatrix:
    """A Gram matrix of features, with the factorisations that solvers ask for, made once.

    Parameters
    ----------
    matrix : ndarray of float64, shape (n_features, n_features)
    n_jobs : int, optional
        Threads; all usable cores by default.
    """

    def __init__(self, matrix: Matrix, n_jobs: int | None = None) -> None:
        self.matrix = matrix
        self.n_jobs = n_jobs
        self._blocks: list[tuple[Vector, Matrix]] = []
        self._slices: list[slice] = []
        self._factors: dict[float, tuple[Matrix, bool]] = {}

    def eigen(self, slices: Sequence[slice]) -> list[tuple[Vector, Matrix]]:
        """Return the eigenvalues and eigenvectors of blocks on the diagonal."""
        if self._slices != list(slices):
            parts = run_tasks(lambda s: linalg.eigh(self.matrix[s, s], driver="evd"), slices, self.n_jobs)
            self._blocks = [(np.maximum(values, 0), vectors) for values, vectors in parts]
            self._slices = list(slices)
        return self._blocks

    def largest(self) -> float:
        """Return a bound, 1 % above, of the largest eigenvalue."""
        vector = np.ones(len(self.matrix))
        value = 0.0
        for _ in range(100):
            product = self.matrix @ (vector / np.linalg.norm(vector))
            before, value = value, float(np.linalg.norm(product))
            if value <= before * (1 + 1e-4) or value == 0:
                break
            vector = product
        # Power iteration comes from below; the trace is a bound from above.
        return min(1.01 * value, float(np.trace(self.matrix))) or 1.0

    def solve(self, strength: float, right: Matrix) -> Matrix:
        """Return (G + λ I)⁻¹ of some columns."""
        if strength not in self._factors:
            shifted = self.matrix.copy()
            shifted.flat[:: len(shifted) + 1] += strength
            self._factors = {strength: linalg.cho_factor(shifted, lower=True, overwrite_a=True)}
        return linalg.cho_solve(self._factors[strength], right)


@dataclass
class Quadratic:
    """`½ wᵀ G w − linear · w + ½ energy` for each output: the squared loss, its data summed up.

    Parameters
    ----------
    gram : GramMatrix
        G, of features with the mean 0 if there is an intercept.
    linear : ndarray of float64, shape (n_features, n_outputs)
        Φᵀ y / n.
    energy : ndarray of float64, shape (n_outputs,)
        ‖y‖² / n, of targets with the mean 0 if there is an intercept.
    """

    gram: GramMatrix
    linear: Matrix
    energy: Vector

    def slopes(self, weights: Matrix) -> Matrix:
        """Return the negative gradient."""
        return self.linear - self.gram.matrix @ weights

    def value(self, weights: Matrix, slopes: Matrix) -> Vector:
        """Return the value at weights whose slopes are known."""
        return 0.5 * (self.energy - _dots(weights, self.linear + slopes))

    def gap(self, weights: Matrix, slopes: Matrix, penalty: Penalty, strength: Vector) -> Vector:
        """Return the duality gap."""
        fitted = self.energy - _dots(weights, self.linear)
        error = fitted - _dots(weights, slopes)
        scale = penalty.dual_scale(slopes, strength)
        below = scale * fitted - 0.5 * scale**2 * error - penalty.conjugate(scale * slopes, strength)
        return 0.5 * error + strength * penalty.value(weights) - below


@dataclass
class Solution:
    """Weights `(n_features, n_outputs)`, intercepts, and how close to the best they are proven to be."""

    weights: Matrix
    intercept: Vector
    gap: Vector
    objective: Vector
    n_iter: int


def solve_quadratic(
    problem: Quadratic,
    penalty: Penalty,
    strength: Vector,
    *,
    tolerance: Vector,
    start: Matrix | None = None,
    max_iter: int = 1000,
    screen: bool = True,
) -> Solution:
    """Minimise `problem + λ penalty` for each output.

    Parameters
    ----------
    problem : Quadratic
    penalty : Penalty
    strength : ndarray of float64, shape (n_outputs,)
        λ > 0.
    tolerance : ndarray of float64, shape (n_outputs,)
        Duality gaps to reach.
    start : ndarray of float64, shape (n_features, n_outputs), optional
        Weights to begin with; zeros by default.
    max_iter : int
        Rounds over the groups, or proximal steps, at most.
    screen : bool
        Whether to leave out groups that the gap proves to be zero.

    Returns
    -------
    Solution
        With intercepts of zero.
    """
    weights = np.zeros_like(problem.linear) if start is None else start.copy()
    if isinstance(penalty, Squares):
        for value in np.unique(strength):
            same = strength == value
            weights[:, same] = problem.gram.solve(float(value), problem.linear[:, same])
        n_iter = 1
    elif isinstance(penalty, Groups):
        n_iter = _descend_groups(problem, penalty, strength, tolerance, weights, max_iter, screen)
    else:
        n_iter = _descend_fast(problem, penalty, strength, tolerance, weights, max_iter)
    slopes = problem.slopes(weights)
    gap = problem.gap(weights, slopes, penalty, strength)
    objective = problem.value(weights, slopes) + strength * penalty.value(weights)
    return Solution(weights, np.zeros(len(strength)), gap, objective, n_iter)


def _descend_groups(
    problem: Quadratic,
    penalty: Groups,
    strength: Vector,
    tolerance: Vector,
    weights: Matrix,
    max_iter: int,
    screen: bool,
) -> int:
    """Minimise over one group after the other, in place; return how many rounds that took."""
    gram, slices = problem.gram.matrix, penalty.slices
    eigen = problem.gram.eigen(slices)
    slopes = problem.slopes(weights)
    alive = list(range(len(slices)))
    history = [weights.copy()]
    for n_iter in range(max_iter):
        if n_iter % _ROUNDS_OF_EXTRAPOLATION == 0:
            if n_iter:
                _extrapolate(problem, penalty, strength, history, weights, slopes)
                history = [weights.copy()]
                for j in set(range(len(slices))) - set(alive):
                    slopes[slices[j]] = 0  # as `_screen` has left it
            gap = problem.gap(weights, slopes, penalty, strength)
            if (gap <= tolerance).all():
                return n_iter
            if screen:
                alive = _screen(problem, penalty, strength, gap, alive, eigen, weights, slopes)
        for j in alive:
            part, (values, vectors) = slices[j], eigen[j]
            old = weights[part]
            pull = vectors.T @ slopes[part] + values[:, None] * (vectors.T @ old)
            change = vectors @ _shortened(values, pull, strength) - old
            if change.any():
                weights[part] += change
                for i in alive:
                    slopes[slices[i]] -= gram[slices[i], part] @ change
        history.append(weights.copy())
    return max_iter


def _shortened(values: Vector, pull: Matrix, strength: Vector) -> Matrix:
    """Return argmin_v ½ vᵀ diag(values) v − pull · v + λ ‖v‖ of each column.

    With ρ = ‖v‖ it is v = ρ pull / (ρ values + λ), whose length must be ρ.
    """
    result = np.zeros_like(pull)
    live = np.sqrt(_dots(pull, pull)) > strength
    if not live.any():
        return result
    squares, bound, spread = pull[:, live] ** 2, strength[live], values[:, None]
    length = np.zeros(len(bound))
    for _ in range(_MOST_NEWTON_STEPS):
        shifted = spread * length + bound
        terms = squares / shifted**2
        total = terms.sum(axis=0)
        fall = (terms * spread / shifted).sum(axis=0)
        # A step of Newton's on 1/√total = 1, which is concave and increases, so the root is met from below.
        step = total * (np.sqrt(total) - 1) / np.maximum(fall, np.finfo(float).tiny)
        length += np.maximum(step, 0)
        if (step <= 1e-14 * length).all():
            break
    result[:, live] = length * pull[:, live] / (spread * length + bound)
    return result


def _screen(
    problem: Quadratic,
    penalty: Groups,
    strength: Vector,
    gap: Vector,
    alive: list[int],
    eigen: list[tuple[Vector, Matrix]],
    weights: Matrix,
    slopes: Matrix,
) -> list[int]:
    """Leave out groups whose slopes cannot reach λ anywhere within the gap, for no output."""
    scale = penalty.dual_scale(slopes, strength)
    norms = penalty.norms(slopes) * scale
    radius = np.sqrt(2 * np.maximum(gap, 0))
    kept = [j for j in alive if (norms[j] + radius * np.sqrt(eigen[j][0][-1]) >= strength).any()]
    for j in set(alive) - set(kept):
        part = penalty.slices[j]
        if weights[part].any():
            slopes += problem.gram.matrix[:, part] @ weights[part]
        weights[part] = 0
        slopes[part] = 0  # not kept up to date from now on; zero is within any bound
    return kept


def _extrapolate(
    problem: Quadratic,
    penalty: Penalty,
    strength: Vector,
    history: list[Matrix],
    weights: Matrix,
    slopes: Matrix,
) -> None:
    """Combine the latest weights so that their changes cancel, and keep that where the objective falls."""
    rounds = np.stack(history)
    changes = np.diff(rounds, axis=0)
    products = np.einsum("adk,bdk->kab", changes, changes, optimize=True)
    sizes = np.trace(products, axis1=1, axis2=2)
    moving = np.flatnonzero(sizes > 0)
    if not len(moving):
        return
    systems = products[moving] + 1e-10 * sizes[moving, None, None] * np.eye(len(changes))
    shares = np.linalg.solve(systems, np.ones((len(moving), len(changes), 1)))[:, :, 0]
    shares /= shares.sum(axis=1, keepdims=True)
    trial = np.einsum("adk,ka->dk", rounds[1:, :, moving], shares, optimize=True)
    part = Quadratic(problem.gram, problem.linear[:, moving], problem.energy[moving])
    tried = part.slopes(trial)
    bound = strength[moving]
    before = part.value(weights[:, moving], slopes[:, moving]) + bound * penalty.value(weights[:, moving])
    better = part.value(trial, tried) + bound * penalty.value(trial) < before
    weights[:, moving[better]] = trial[:, better]
    slopes[:, moving[better]] = tried[:, better]


def _descend_fast(
    problem: Quadratic,
    penalty: Penalty,
    strength: Vector,
    tolerance: Vector,
    weights: Matrix,
    max_iter: int,
) -> int:
    """Take accelerated proximal gradient steps, in place; return how many."""
    size = 1 / problem.gram.largest()
    slopes = problem.slopes(weights)
    ahead, ahead_slopes = weights.copy(), slopes.copy()
    momentum = np.ones(len(strength))
    for n_iter in range(max_iter):
        if n_iter % 10 == 0 and (problem.gap(weights, slopes, penalty, strength) <= tolerance).all():
            return n_iter
        new = penalty.prox(ahead + size * ahead_slopes, size * strength)
        new_slopes = problem.slopes(new)
        # Momentum that points uphill, against the step just taken, is given up.
        uphill = _dots(ahead - new, new - weights) > 0
        following = np.where(uphill, 1.0, (1 + np.sqrt(1 + 4 * momentum**2)) / 2)
        push = np.where(uphill, 0.0, (momentum - 1) / following)
        ahead, ahead_slopes = new + push * (new - weights), new_slopes + push * (new_slopes - slopes)
        weights[:], slopes, momentum = new, new_slopes, following
    return max_iter


def _dots(left: Matrix, right: Matrix) -> Vector:
    return np.einsum("ij,ij->j", left, right)
