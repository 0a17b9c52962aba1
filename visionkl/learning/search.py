"""The search for σ: where it starts, and how it goes down (METHODS §3).

A criterion is a function of σ and of the ridge's λ that returns its value and its slopes. The search is
SciPy's L-BFGS-B, with each σ in units of its start and bounded below by 0:

* kernels depend on |σ| alone, so nothing is lost by the bound;
* ‖σ‖₁ is smooth within it, and the bound itself is a value that a σ can take: a feature that is of no use is
  switched off for good, not merely turned down, which is all that a search for log σ can do;
* in units of the start, one step length suits all.

λ, if it is learned as well, is searched for by its logarithm, because its size is not known beforehand.

The search **starts** where generalised cross-validation on some of the rows, with the exact kernel, is least:
over some factors of the kernel's own default σ, and over powers of ten of λ. That takes a second or so and
saves many steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg, optimize

from visionkl.backend.threads import run_tasks
from visionkl.core.errors import UsageError
from visionkl.kernels.base import Kernel, Matrix

Vector = npt.NDArray[np.float64]

#: Rows that tell a good start well enough.
_ENOUGH_ROWS = 600
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
_STRENGTHS = 10.0 ** np.arange(-3, 2.5, 0.5)
#: How far from its start λ may be driven.
_RANGE = 1e6


@dataclass(frozen=True, eq=False)
class Slopes:
    """The value of a criterion, and how it changes.

    Parameters
    ----------
    value : float
    by_sigma : ndarray of float64, shape (n_features,)
        Derivatives by the σ of each feature.
    by_log_strength : float
        Derivative by log λ.
    """

    value: float
    by_sigma: Vector
    by_log_strength: float = 0.0


#: Tells a criterion and its slopes for the σ of each feature, and for λ.
Criterion = Callable[[Vector, float], Slopes]


@dataclass(frozen=True)
class Search:
    """How to go down.

    Parameters
    ----------
    penalty : float
        ρ.
    norm : {"l2", "l1"}
        ρ Σ σ², or ρ Σ σ.
    learn_strength : bool
        Whether λ is learned as well.
    least_strength : float
        No λ below this.
    max_iter : int
    tol : float
        The search ends when a step gains less than this share of the criterion at the start.
    callback : callable, optional
        Called as `callback(iteration, value)` after each step; to raise StopIteration ends the search.
    """

    penalty: float
    norm: str
    learn_strength: bool
    least_strength: float
    max_iter: int
    tol: float
    callback: Callable[[int, float], object] | None = None

    def penalise(self, sigma: Vector) -> tuple[float, Vector]:
        """Return the penalty of some σ's, and its slopes."""
        if self.norm == "l1":
            return self.penalty * float(sigma.sum()), np.full_like(sigma, self.penalty)
        return self.penalty * float(sigma @ sigma), 2 * self.penalty * sigma

    def run(
        self, criterion: Criterion, sigma: Vector, groups: npt.NDArray[np.intp], strength: float
    ) -> Found:
        """Go down from σ of each group of features, and from λ."""
        path: list[float] = []
        positive = sigma[sigma > 0]
        unit = np.where(sigma > 0, sigma, positive.mean() if len(positive) else 1.0)
        largest = 1.0  # of values: L-BFGS-B stops at slopes that are small as such

        def evaluate(x: Vector) -> tuple[float, Vector]:
            sigmas = x[:-1] * unit
            outcome = criterion(sigmas[groups], float(np.exp(x[-1])))
            price, slopes = self.penalise(sigmas)
            slopes = slopes + np.bincount(groups, outcome.by_sigma, len(sigmas))
            by_strength = outcome.by_log_strength if self.learn_strength else 0.0
            return (outcome.value + price) / largest, np.append(slopes * unit, by_strength) / largest

        def note(intermediate_result: Any) -> None:
            path.append(float(intermediate_result.fun) * largest)
            if self.callback is not None:
                self.callback(len(path) - 1, path[-1])

        strength = max(strength, self.least_strength)
        x = np.append(sigma / unit, np.log(strength))
        if not self.max_iter:
            return Found(sigma, strength, np.empty(0), 0)
        first = evaluate(x)
        path.append(first[0])
        largest = max(first[0], np.finfo(float).tiny)
        known = {x.tobytes(): (first[0] / largest, first[1] / largest)}
        low = np.log(max(strength / _RANGE, self.least_strength))
        answer = optimize.minimize(
            lambda at: known.pop(at.tobytes(), None) or evaluate(at),
            x,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, None)] * len(sigma) + [(low, np.log(strength * _RANGE))],
            callback=note,
            options={"maxiter": self.max_iter, "ftol": self.tol, "gtol": 1e-8, "maxcor": 20},
        )
        return Found(answer.x[:-1] * unit, float(np.exp(answer.x[-1])), np.array(path), len(path) - 1)


@dataclass(frozen=True, eq=False)
class Found:
    """Where a search ended.

    Parameters
    ----------
    sigma : ndarray of float64, shape (n_groups,)
    strength : float
        λ.
    path : ndarray of float64, shape (n_iter + 1,)
        The criterion with its penalty, at the start and after each step.
    n_iter : int
    """

    sigma: Vector
    strength: float
    path: Vector
    n_iter: int


def factor(owner: str, matrix: Matrix, strength: float) -> Any:
    """Factor a symmetric matrix plus λ I, in its place, by one thread, so that the result is always the same.

    Of the matrix, the diagonal and what is above it are read.
    """
    np.einsum("ii->i", matrix)[:] += strength

    def cholesky(_: object) -> Any:
        # LAPACK takes columns for rows: what is above the diagonal is below it there.
        return linalg.cho_factor(matrix.T, lower=True, overwrite_a=True, check_finite=False)

    try:
        return run_tasks(cholesky, [None], 1)[0]
    except linalg.LinAlgError:
        raise UsageError(
            f"{owner}: with 'regularisation' = {strength:g} the equations cannot be solved in this "
            "precision; raise it, or give X as float64."
        ) from None


def good_start(
    kernel_of: Callable[[float], Kernel],
    factors: bool,
    X: Matrix,
    targets: Matrix,
    random: np.random.Generator,
    n_jobs: int | None = None,
) -> tuple[float, float]:
    """Find a factor of σ, and λ, with which some of the rows are predicted well from the others.

    Parameters
    ----------
    kernel_of : callable
        Makes the kernel whose σ is multiplied by a number.
    factors : bool
        Whether other numbers than 1 are tried.
    X : ndarray of float, shape (n, n_features)
    targets : ndarray of float, shape (n, n_outputs)
    random : numpy.random.Generator
        Chooses the rows.
    n_jobs : int, optional

    Returns
    -------
    number, strength : float
    """
    rows = slice(None) if len(X) <= _ENOUGH_ROWS else random.choice(len(X), _ENOUGH_ROWS, replace=False)
    some, wanted = X[rows].astype(np.float64), targets[rows].astype(np.float64)
    wanted -= wanted.mean(axis=0)
    matrices = [(number, kernel_of(number)(some)) for number in (_FACTORS if factors else (1.0,))]

    def judge(candidate: tuple[float, Matrix]) -> tuple[float, float, float]:
        values, vectors = np.linalg.eigh(candidate[1])
        energies = ((vectors.T @ wanted) ** 2).sum(axis=1)
        # What is left of each direction, for each λ.
        left = _STRENGTHS[:, None] / (np.maximum(values, 0) + _STRENGTHS[:, None])
        scores = (left**2 @ energies) / left.sum(axis=1) ** 2
        best = int(np.argmin(scores))
        return float(scores[best]), candidate[0], float(_STRENGTHS[best])

    return min(run_tasks(judge, matrices, n_jobs))[1:]
