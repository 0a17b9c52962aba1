"""The general objective of kernel learning in the Fourier domain (METHODS §7).

    f(σ, w, b) = (1/n) Σ_i loss(ψ_σ(x_i) · w + b, y_i)  +  λ ν(w)  +  μ η(σ),

summed over the outputs, which share σ. `fit_weights` minimises it over w and b, which is convex, to a duality
gap; `fit_jointly` over σ as well.

**Variable projection.** f is minimised over σ ≥ 0 as a function of σ alone, w and b being the best for it.
Its derivative is that of f by σ, with w and b held: they are where the derivatives by them vanish, and the
penalty, smooth or not, does not hold σ. So the gradient costs one pass over the data once w is there, and
steps along σ see how w will follow, which alternating between the two does not. L-BFGS-B takes the steps. It
accepts none along which f rises; the problem is not convex, so the result depends on where it starts.

`η` is `½ ‖σ‖²` or `Σ σ`, and makes maps smooth: a σ of zero leaves a channel, or a feature, out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize

from visionkl.backend.threads import run_tasks
from visionkl.learning.channel_features import ChannelFeatures
from visionkl.solvers.penalties import Norm, Penalty, Squares
from visionkl.solvers.proximal import Quadratic, Solution, solve_quadratic
from visionkl.solvers.scalar import SmoothLoss, Squared
from visionkl.solvers.smooth import level, solve_smooth

Vector = npt.NDArray[np.float64]

_OUTPUTS_AT_ONCE = 16


@dataclass(frozen=True)
class Objective:
    """Loss, penalty and how close to come.

    Parameters
    ----------
    loss : SmoothLoss
        Of scores `(n_samples, n_outputs)`.
    penalty : Penalty
    tol : float
        Duality gap, relative to the loss of the best constant.
    max_iter : int
    """

    loss: SmoothLoss
    penalty: Penalty
    tol: float
    max_iter: int
    n_outputs: int
    screen: bool = True


class Weights:
    """The convex part of the objective, for some features: sums up the data once, then solves for any λ."""

    def __init__(self, objective: Objective, features: ChannelFeatures) -> None:
        self.objective, self.features = objective, features
        self.quadratic: Quadratic | None = None
        loss = objective.loss
        zeros = np.zeros((features.n_samples, objective.n_outputs))
        self.constant = level(loss, zeros) if features.intercept else np.zeros(objective.n_outputs)
        #: Losses of the best constant, to which gaps are relative.
        self.scale = loss.value(zeros + self.constant).mean(axis=0)
        if isinstance(loss, Squared):
            targets = loss.targets - self.constant
            linear = features.sum_up(targets)
            assert linear is not None
            self.quadratic = Quadratic(features.gram, linear, (targets**2).mean(axis=0))
            self.slopes = linear
        else:
            features.sum_up()
            self.slopes = -features.combine(loss.derivative(zeros + self.constant) / features.n_samples)

    def strongest(self) -> Vector:
        """Return λ_max of each output, from which on all weights are zero.

        The l2 penalty makes none zero: for it, the curvature of the loss along a feature, on the average.
        """
        penalty = self.objective.penalty
        if isinstance(penalty, Norm):
            found = penalty.dual_norm(self.slopes)
            # Features that are all constant leave slopes of rounding errors alone.
            noise = 10 * float(np.finfo(self.features.dtype).eps) * np.sqrt(self.scale)
            return np.where(found > noise, found, 0.0)
        mean = float(np.trace(self.features.gram.matrix)) / self.features.dim
        return np.full(self.objective.n_outputs, self.objective.loss.curvature * mean)

    def solve(self, strength: Vector, start: Vector | None = None) -> Solution:
        """Return the best weights and intercepts."""
        goal, features = self.objective, self.features
        if self.quadratic is None:
            return solve_smooth(
                features,
                goal.loss,
                goal.penalty,
                strength,
                tol=goal.tol,
                start=start,
                max_iter=goal.max_iter,
                intercept=features.intercept,
                screen=goal.screen,
            )
        whole = self.quadratic
        if isinstance(goal.penalty, Squares):
            whole.gram.solve(float(strength[0]), whole.linear[:, :1])  # made before threads ask for it
        else:
            whole.gram.eigen(features.groups)

        def solve_some(some: slice) -> Solution:
            return solve_quadratic(
                Quadratic(whole.gram, whole.linear[:, some], whole.energy[some]),
                goal.penalty,
                strength[some],
                tolerance=goal.tol * self.scale[some],
                start=None if start is None else start[:, some],
                max_iter=goal.max_iter,
                screen=goal.screen,
            )

        size = _OUTPUTS_AT_ONCE
        parts = [slice(first, first + size) for first in range(0, goal.n_outputs, size)]
        found = run_tasks(solve_some, parts, features.n_jobs)
        weights = np.concatenate([part.weights for part in found], axis=1)
        intercept = self.constant - features.means @ weights
        gap, value = (
            np.concatenate([getattr(part, name) for part in found]) for name in ("gap", "objective")
        )
        return Solution(weights, intercept, gap, value, max(part.n_iter for part in found))


@dataclass
class JointFit:
    """What `fit_jointly` finds: features with their σ, their solution, and f at the start and after steps."""

    features: ChannelFeatures
    solution: Solution
    objectives: list[float]


def fit_jointly(
    weights: Weights,
    strength: Vector,
    *,
    eta: str,
    mu: float,
    max_iter: int,
    observer: Callable[[int, float], Any] | None = None,
) -> JointFit:
    """Minimise the general objective over σ as well.

    Parameters
    ----------
    weights : Weights
        With the features of the σ to start from.
    strength : ndarray of float64, shape (n_outputs,)
        λ.
    eta : {"l2", "l1"}
    mu : float
        Multiplies η.
    max_iter : int
        Steps along σ, at most.
    observer : callable, optional
        Called as `observer(step, objective)` after each.
    """
    goal, first = weights.objective, weights.features
    # σ's differ by orders of magnitude; in units of where they start they do not.
    unit = np.where(first.sigma > 0, first.sigma, np.median(first.sigma) or 1.0)
    best: JointFit | None = None
    latest = None
    objectives: list[float] = []

    def evaluate(scaled: Vector) -> tuple[float, Vector]:
        nonlocal best, latest
        sigma = scaled * unit
        same = np.array_equal(sigma, first.sigma)
        own = weights if same else Weights(goal, first.with_sigma(sigma))
        latest = own.solve(strength, None if latest is None else latest.weights)
        shares = goal.loss.derivative(own.features.scores(latest.weights) + latest.intercept)
        slope = own.features.gradient(shares / first.n_samples, latest.weights)
        eta_value, eta_slope = _eta(eta, sigma)
        value = float(latest.objective.sum()) + mu * eta_value
        if best is None:
            objectives.append(value)
        if best is None or value < best.objectives[-1]:
            best = JointFit(own.features, latest, [value])
        return value, (slope + mu * eta_slope) * unit

    def note(intermediate_result: optimize.OptimizeResult) -> None:
        objectives.append(float(intermediate_result.fun))
        if observer is not None:
            observer(len(objectives) - 1, objectives[-1])

    start = first.sigma / unit
    optimize.minimize(
        evaluate,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(start),
        callback=note,
        options={"maxiter": max_iter, "ftol": goal.tol * 0.1, "maxls": 20},
    )
    assert best is not None
    return JointFit(best.features, best.solution, objectives)


def _eta(name: str, sigma: Vector) -> tuple[float, Vector]:
    if name == "l2":
        return 0.5 * float(sigma @ sigma), sigma
    return float(sigma.sum()), np.ones_like(sigma)
