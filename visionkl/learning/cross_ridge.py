"""The validation criterion with each part of the samples held out in turn: cross-validation (METHODS §3).

One held-out part judges hundreds of σ's by few samples, and they come to suit these. Held out in turn, all
samples judge. With the features Φ_g of part g, Q_g = Σ_{h≠g} Φ_hᵀΦ_h + λI and β_g = Q_g⁻¹ Σ_{h≠g} Φ_hᵀy_h,

    J(σ) = Σ_g ‖Φ_g β_g − y_g‖².

The ΦᵀΦ of the parts add up, so they are made once, and Q_g is their sum less one of them: only factorisations
are as many as the parts. With a_g = Q_g⁻¹ Φ_gᵀ(Φ_g β_g − y_g), the slope by the rows of part g is

    2 (Φ_g β_g − y_g) β_gᵀ − 2 Σ_{h≠g} [(Φ_g β_h − y_g) a_hᵀ + (Φ_g a_h) β_hᵀ],

a product of two narrow matrices, as it is with one held-out part (`visionkl.learning.fourier_ridge`). So for
many samples an evaluation costs little more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg

from visionkl.backend.threads import run_tasks
from visionkl.kernels.base import Matrix
from visionkl.learning.fourier_ridge import Arrange, FourierRidge, Part
from visionkl.learning.search import Slopes, factor

Vector = npt.NDArray[np.float64]


class CrossValidation:
    """The parts of some samples, and what ridge regressions without one of them make of it.

    Parameters
    ----------
    ridge : FourierRidge
    parts : sequence of Part
    """

    def __init__(self, ridge: FourierRidge, parts: Sequence[Part]) -> None:
        self.ridge, self.parts = ridge, parts

    def criterion(self, sigma: Vector, strength: float) -> Slopes:
        """Evaluate the criterion for the σ of each feature, and λ."""
        ridge = self.ridge
        projection = ridge.projection(sigma, self.parts[0].inputs.dtype)
        room = ridge.room_for_phases(sum(len(part.inputs) for part in self.parts), projection)
        starts = np.cumsum([0, *(len(part.inputs) for part in self.parts)])
        phases = [room[first:last] for first, last in pairwise(starts)]
        sums = self._sums(projection, phases)
        solved = self._solve(sums, strength)
        betas = [beta for _, beta in solved]
        moments = [
            ridge.held_out_errors(part, projection, beta, some)[1]
            for part, beta, some in zip(self.parts, betas, phases, strict=True)
        ]
        tasks = [(factored, own) for (factored, _), own in zip(solved, moments, strict=True)]
        adjoints = run_tasks(lambda task: linalg.cho_solve(*task, check_finite=False), tasks, ridge.n_jobs)
        del sums, solved, tasks  # each part's are as large as ΦᵀΦ
        ahead, back = np.hstack([*betas, *adjoints]), -2 * np.hstack([*adjoints, *betas])
        value, by_sigma = 0.0, np.zeros(len(projection))
        for number, (part, some) in enumerate(zip(self.parts, phases, strict=True)):
            squares, _, slopes = ridge.pull_back(
                part, projection, ahead, back, phases=some, arrange=self._arrange(number)
            )
            value += squares
            by_sigma += slopes
        along = sum(float((a * beta).sum()) for a, beta in zip(adjoints, betas, strict=True))
        return Slopes(value, by_sigma, -2 * strength * along)

    def best_strength(self, sigma: Vector, strengths: Sequence[float]) -> float:
        """Return the λ with the least criterion; the data are mapped once for all."""
        projection = self.ridge.projection(sigma, self.parts[0].inputs.dtype)
        sums = self._sums(projection, None)

        def value(strength: float) -> float:
            solved = self._solve([(gram.copy(), moments) for gram, moments in sums], strength)
            return sum(
                self.ridge.held_out_errors(part, projection, beta)[0]
                for part, (_, beta) in zip(self.parts, solved, strict=True)
            )

        return min(strengths, key=value)

    def _sums(self, projection: Matrix, phases: Sequence[Matrix] | None) -> list[tuple[Vector, Vector]]:
        """Return ΦᵀΦ and Φᵀy of each part."""
        return [
            self.ridge.normal_equations([part], projection, None if phases is None else phases[number])
            for number, part in enumerate(self.parts)
        ]

    def _solve(self, sums: Sequence[tuple[Vector, Vector]], strength: float) -> list[tuple[Any, Vector]]:
        """Return the factor of Q, in the place of ΦᵀΦ, and β without each part."""
        whole, moments = sums[0][0].copy(), sum(own for _, own in sums)
        for gram, _ in sums[1:]:
            whole += gram

        def without(number: int) -> tuple[Any, Vector]:
            gram, own = sums[number]
            factored = factor(self.ridge.owner, np.subtract(whole, gram, out=gram), strength)
            return factored, linalg.cho_solve(factored, moments - own, check_finite=False)

        return run_tasks(without, range(len(sums)), self.ridge.n_jobs)

    def _arrange(self, number: int) -> Arrange:
        """Return what makes coefficients of β and a of all parts of the scores of one part's rows."""
        n_parts = len(self.parts)

        def arrange(scores: Matrix, targets: Matrix) -> Matrix:
            k = targets.shape[1]
            own = slice(number * k, (number + 1) * k)
            residuals = self.ridge.judge(scores[:, own].copy(), targets)
            for part in range(n_parts):
                scores[:, part * k : (part + 1) * k] -= targets
            # Nothing was learned from these rows where they were held out, and there alone they are judged.
            scores[:, own] = 0
            scores[:, n_parts * k + own.start : n_parts * k + own.stop] = -residuals
            return residuals

        return arrange
