"""What a twin Gaussian process searches for outputs with: criteria, slopes and Gram matrices (METHODS §9).

Outputs are in units of the output kernel's width, z = σ y, with their mean taken off, so that
g(z, z') = exp(−½ ‖z − z'‖²) and one step length suits all problems. With p = ψ(g_z), the criteria are

    KL      −2 pᵀu − η log s,   s = ψ(1) + λ − pᵀ (ψ(G) + λI)⁻¹ p ≥ λ
    HSIC    −2 pᵀa

where u, η and a come from the input side; ψ(g(z, z)) is constant, and left out. As log g_k = −½ ‖z − z_k‖²,
the gradient is Σ_k w_k (z_k − z), where w_k is the slope of the criterion by log g_k. So an evaluation for
many z is two products with the samples' outputs, one with the inverse, and two passes over the kernels.

Two kinds of samples: `SharedSamples` are the same for all z, so products are of matrices; `OwnSamples` are
other ones, few, for each.

Low rank
--------
Outputs of few dimensions have Gram matrices of a low rank, up to rounding. `SharedSamples` finds it by a
Cholesky factorisation with pivoting, which stops where every residual is below 1e-6 λ, and then works with a
factor of so many columns in the place of the inverse: for one output in 2000 samples about 20 instead of
2000. What is left out changes s by a share of 1e-12 times the number of samples.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy import linalg

from visionkl.backend.cpu import twin as loops
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError
from visionkl.kernels.base import Matrix

Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

#: Residuals of a factor, in shares of λ.
_RESIDUAL = 1e-6
#: A factor of fewer columns than this share of the samples is quicker than the inverse.
_WORTH_IT = 1 / 3
#: The most that is added to a diagonal, in shares of it.
_MOST_JITTER = 1e-2


class Samples(Protocol):
    """Training outputs, as the criteria need them."""

    def exponents(self, points: Vector, which: Indices) -> Vector:
        """Return log g between points and samples, shape (n, m)."""

    def solve(self, psi: Vector, which: Indices) -> Vector:
        """Return (ψ(G) + λI)⁻¹ times every row."""

    def pull(self, weights: Vector, which: Indices) -> Vector:
        """Return the weighted sum of samples for every row."""


class SharedSamples:
    """Samples that are the same for all points.

    Parameters
    ----------
    outputs : ndarray of float64, shape (m, d)
    inverse : ndarray of float64, shape (m, m) or (m, rank), optional
        The inverse, or a factor B of it (B Bᵀ); the HSIC criterion needs neither.
    """

    def __init__(self, outputs: Vector, inverse: Vector | None) -> None:
        self.outputs = outputs
        self.inverse = inverse
        self._halves = np.einsum("ij,ij->i", outputs, outputs) / 2

    def exponents(self, points: Vector, which: Indices) -> Vector:
        """Return log g between points and samples, shape (n, m)."""
        products = points @ self.outputs.T
        products -= np.einsum("ij,ij->i", points, points)[:, None] / 2
        products -= self._halves
        return products

    def solve(self, psi: Vector, which: Indices) -> Vector:
        """Return (ψ(G) + λI)⁻¹ times every row."""
        assert self.inverse is not None
        product = psi @ self.inverse
        return product if product.shape == psi.shape else product @ self.inverse.T

    def pull(self, weights: Vector, which: Indices) -> Vector:
        """Return the weighted sum of samples for every row."""
        return weights @ self.outputs


class OwnSamples:
    """Samples that are other ones for each point.

    Parameters
    ----------
    outputs : ndarray of float64, shape (n, k, d)
    inverse : ndarray of float64, shape (n, k, k), optional
        The HSIC criterion does without.
    """

    def __init__(self, outputs: Vector, inverse: Vector | None) -> None:
        self.outputs = outputs
        self.inverse = inverse

    def exponents(self, points: Vector, which: Indices) -> Vector:
        """Return log g between points and samples, shape (n, k)."""
        away = self.outputs[which] - points[:, None]
        return np.einsum("nkd,nkd->nk", away, away) / -2

    def solve(self, psi: Vector, which: Indices) -> Vector:
        """Return (ψ(G) + λI)⁻¹ times every row."""
        assert self.inverse is not None
        return np.matmul(self.inverse[which], psi[:, :, None])[:, :, 0]

    def pull(self, weights: Vector, which: Indices) -> Vector:
        """Return the weighted sum of samples for every row."""
        return np.matmul(weights[:, None], self.outputs[which])[:, 0]


@dataclass(frozen=True, eq=False)
class TwinCriterion:
    """The criterion of many points, with its slopes.

    Parameters
    ----------
    samples : Samples
    coefficients : tuple of float
        Of ψ.
    weights : ndarray of float64, shape (n, m)
        u of the KL criterion, or a of HSIC.
    eta : ndarray of float64, shape (n,), or None
        None for HSIC.
    noise : float
        λ.
    """

    samples: Samples
    coefficients: tuple[float, ...]
    weights: Vector
    eta: Vector | None
    noise: float

    def __call__(self, points: Vector, which: Indices) -> tuple[Vector, Vector]:
        """Return values and slopes at points `(n, d)`, which belong to the rows `which`."""
        psi = self.samples.exponents(points, which)
        np.exp(np.minimum(psi, 0, out=psi), out=psi)
        slopes = np.empty_like(psi)
        loops.apply_polynomial(psi.reshape(-1), self.coefficients, slopes.reshape(-1))
        values = np.empty(len(points))
        if self.eta is None:
            loops.weigh_hsic(psi, slopes, which, self.weights, values)
        else:
            top = sum(self.coefficients) + self.noise
            least = max(self.noise / 2, np.finfo(np.float64).tiny)  # less is rounding
            solved = self.samples.solve(psi, which)
            loops.weigh_kl(psi, slopes, solved, which, self.weights, self.eta, top, least, values)
        return values, self.samples.pull(slopes, which) - slopes.sum(axis=1)[:, None] * points


def polynomial(values: Vector, coefficients: tuple[float, ...]) -> Vector:
    """Replace values by their polynomial, in their place."""
    flat = values.reshape(-1)
    loops.apply_polynomial(flat, coefficients, np.empty_like(flat))
    return values


def add_noise(owner: str, name: str, matrices: Matrix, noise: float) -> tuple[Matrix, float]:
    """Add λ to the diagonals of Gram matrices, and more if they cannot be factored otherwise.

    First it is `noise` times the mean of the diagonal. If the matrix is singular all the same, as with
    repeated samples and no noise, it is tenfold from rounding on, until it can be factored, with a warning.

    Parameters
    ----------
    owner, name : str
        Who complains, and about which parameter.
    matrices : ndarray of float64, shape (m, m) or (n, m, m)
        Changed in their place.
    noise : float

    Returns
    -------
    factors : ndarray of float64, of the same shape
        Lower triangular: of Cholesky's factorisation.
    added : float
        λ.
    """
    m = matrices.shape[-1]
    diagonals = np.einsum("...ii->...i", matrices)
    scale = float(diagonals.mean())
    added, share = 0.0, noise
    while True:
        diagonals += share * scale - added
        added = share * scale
        try:
            factors = run_tasks(np.linalg.cholesky, [matrices], 1)[0]
        except np.linalg.LinAlgError:
            share = max(10 * share, m * float(np.finfo(np.float64).eps))
            if share > _MOST_JITTER:
                raise DataError(
                    f"{owner}: the Gram matrix cannot be factored even with {_MOST_JITTER:g} of its diagonal "
                    f"added; this is no kernel, or raise {name!r}."
                ) from None
        else:
            if share > noise:
                warnings.warn(
                    f"{owner}: the Gram matrix is singular with {name!r} = {noise:g} (are samples repeated?) "
                    f"and {share:.1g} was taken instead.",
                    stacklevel=4,
                )
            return factors, added


def inverse_of(gram: Matrix, factor: Matrix, noise: float) -> Matrix:
    """Return (ψ(G) + λI)⁻¹, or a factor B of few columns with B Bᵀ as good as it.

    Parameters
    ----------
    gram : ndarray of float64, shape (m, m)
        ψ(G) + λI; overwritten.
    factor : ndarray of float64, shape (m, m)
        Its Cholesky factor, lower triangular.
    noise : float
        λ.
    """
    return run_tasks(lambda _: _inverse_of(gram, factor, noise), [None], 1)[0]


def _inverse_of(gram: Matrix, factor: Matrix, noise: float) -> Matrix:
    if noise > 0:
        np.einsum("ii->i", gram)[:] -= noise
        low = _low_rank(gram, noise)
        if low is not None:
            orthonormal, triangle = linalg.qr(low, mode="economic", overwrite_a=True, check_finite=False)
            small = triangle @ triangle.T
            np.einsum("ii->i", small)[:] += noise
            root = np.linalg.cholesky(small)
            return np.ascontiguousarray(
                linalg.solve_triangular(root, orthonormal.T, lower=True, check_finite=False).T
            )
    inverse, _ = linalg.lapack.dpotri(factor, lower=1)
    below = np.tril(inverse, -1)
    return np.tril(inverse) + below.T


def _low_rank(gram: Matrix, noise: float) -> Any:
    """Return L of few columns with L Lᵀ as good as the matrix, or None if there would be many."""
    packed, order, rank, _ = linalg.lapack.dpstrf(gram.T, tol=_RESIDUAL * noise, lower=1, overwrite_a=True)
    if rank > _WORTH_IT * len(gram):
        return None
    low = np.empty((len(gram), rank))
    low[order - 1] = np.tril(packed)[:, :rank]
    return low
