"""Penalties of linear models: what keeps weights small, or makes them zero (METHODS §7).

=========== ===================== ============================================================================
`"l2"`      ½ ‖w‖²                all weights small, none zero; take this if all features may matter
`"l1"`      Σ abs(w_i)            single weights become zero
`"l21"`     Σ_j ‖w_j‖₂            whole groups of weights become zero: a channel, and with it its kernel
=========== ===================== ============================================================================

All are functions of a matrix `(n_features, n_outputs)` and return a number for each output, since outputs are
learned side by side. λ, which multiplies a penalty, may differ between them.

A norm is zero at the optimum if the loss's slope at zero is not beyond λ in the *dual norm*: so `dual_norm`
of that slope is λ_max, from which on everything is zero, and it tells how far the residual of a model must be
shrunk to prove a bound from below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]


class Penalty(Protocol):
    """A convex function of weights, with everything a proximal solver asks for."""

    def value(self, weights: Matrix) -> Vector:
        """Return the penalty of each output's weights."""
        ...

    def prox(self, weights: Matrix, step: float | Vector) -> Matrix:
        """Return argmin_v ½ ‖v − weights‖² + step · penalty(v), for each output."""
        ...

    def dual_scale(self, slopes: Matrix, strength: Vector) -> Vector:
        """Return the factor, at most 1, by which slopes must be shrunk to be slopes of λ · penalty."""
        ...

    def conjugate(self, slopes: Matrix, strength: Vector) -> Vector:
        """Return the conjugate of λ · penalty at slopes that `dual_scale` has shrunk."""
        ...


class Squares:
    """`½ ‖w‖²`."""

    def value(self, weights: Matrix) -> Vector:
        """Return the penalty of each output's weights."""
        return 0.5 * np.einsum("ij,ij->j", weights, weights)

    def prox(self, weights: Matrix, step: float | Vector) -> Matrix:
        """Return weights shrunk by the same factor."""
        return weights / (1 + step)

    def dual_scale(self, slopes: Matrix, strength: Vector) -> Vector:
        """Return ones: every slope is that of some weights."""
        return np.ones(slopes.shape[1])

    def conjugate(self, slopes: Matrix, strength: Vector) -> Vector:
        """Return ‖slopes‖² / 2λ."""
        return self.value(slopes) / strength


class Norm:
    """What is common to norms: the conjugate of λ times a norm is 0 within λ, and infinite outside."""

    def dual_norm(self, slopes: Matrix) -> Vector:
        """Return the dual norm of each output's slopes."""
        raise NotImplementedError

    def dual_scale(self, slopes: Matrix, strength: Vector) -> Vector:
        """Return the factor that takes the dual norm down to λ."""
        return np.minimum(1.0, strength / np.maximum(self.dual_norm(slopes), np.finfo(float).tiny))

    def conjugate(self, slopes: Matrix, strength: Vector) -> Vector:
        """Return zeros."""
        return np.zeros(slopes.shape[1])


class Absolute(Norm):
    """`Σ |w_i|`."""

    def value(self, weights: Matrix) -> Vector:
        """Return the penalty of each output's weights."""
        return np.abs(weights).sum(axis=0)

    def prox(self, weights: Matrix, step: float | Vector) -> Matrix:
        """Return weights moved towards zero by the step, and no further."""
        return np.sign(weights) * np.maximum(np.abs(weights) - step, 0)

    def dual_norm(self, slopes: Matrix) -> Vector:
        """Return the largest slope."""
        return np.abs(slopes).max(axis=0)


class Groups(Norm):
    """`Σ_j ‖w_j‖₂` over groups of neighbouring features.

    Parameters
    ----------
    slices : sequence of slice
        The groups, which cover all features.

    Examples
    --------
    >>> penalty = Groups([slice(0, 2), slice(2, 3)])
    >>> penalty.prox(np.array([[3.0], [4.0], [0.5]]), 1.0).ravel()
    array([2.4, 3.2, 0. ])
    """

    def __init__(self, slices: Sequence[slice]) -> None:
        self.slices = list(slices)

    def norms(self, weights: Matrix) -> Matrix:
        """Return ‖w_j‖ of each group and output, `(n_groups, n_outputs)`."""
        return np.stack([np.sqrt(np.einsum("ij,ij->j", w, w)) for w in (weights[s] for s in self.slices)])

    def value(self, weights: Matrix) -> Vector:
        """Return the penalty of each output's weights."""
        return self.norms(weights).sum(axis=0)

    def prox(self, weights: Matrix, step: float | Vector) -> Matrix:
        """Return groups shortened by the step, and not below zero."""
        norms = self.norms(weights)
        factors = np.maximum(norms - step, 0) / np.maximum(norms, np.finfo(float).tiny)
        lengths = [s.stop - s.start for s in self.slices]
        return weights * np.repeat(factors, lengths, axis=0)

    def dual_norm(self, slopes: Matrix) -> Vector:
        """Return the longest group."""
        return self.norms(slopes).max(axis=0)


#: Makers of penalties, told the groups.
PENALTIES: dict[str, Callable[[Sequence[slice]], Penalty]] = {
    "l2": lambda groups: Squares(),
    "l1": lambda groups: Absolute(),
    "l21": Groups,
}
