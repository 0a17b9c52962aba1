"""The homogeneous map of additive histogram kernels (METHODS §4; Vedaldi and Zisserman).

Fundamentals
------------
χ², intersection and Jensen–Shannon kernels are *homogeneous*: with ω = log(y/x),

    k(x, y) = √(x y) · 𝒦(ω).

The signature 𝒦 is even and falls off on both sides. Within a window of one *period* Λ around 0 it is a sum of
waves, the Fourier series Σ_k c_k cos(2πkω/Λ), of which the first `order` + 1 terms are kept. Since the cosine
of a difference is a sum of products, each feature x becomes 2 · order + 1 numbers,

    √(c_0 x),  √(c_k x) cos(2πk log x / Λ),  √(c_k x) sin(2πk log x / Λ),   k = 1, ..., order,

whose inner products come near the kernel. 0 stays 0. (A term with a negative c_k is left at 0.)

=================== ============================================ ================================
kernel              𝒦(ω)                                         period by default, n = order
=================== ============================================ ================================
`"chi2"`            1 / cosh(ω/2)                                8.80 √(n + 4.44) − 12.6
`"intersection"`    exp(−abs(ω)/2)                               2.00 log(n + 0.99) + 3.52
`"jensen_shannon"`  ½ exp(ω/2) log2(1 + exp(−ω)) + the same      9.63 √(n + 1.00) − 2.93
                    with −ω for ω
=================== ============================================ ================================

A long period takes in more of the signature, a short one resolves what it takes in with fewer terms; the rule
is its authors' for this window. The kernel of several features is the sum over them.

If unsure, take order 1. For χ² its error is below 0.02 √(xy) unless x and y differ twentyfold or more. Odd
orders serve χ² and Jensen–Shannon best; 2 is hardly better than 1.

Implementation
--------------
The c_k are integrals over the window (Gauss–Legendre). Logarithms and waves are compiled into one pass over
the rows (`visionkl.backend.cpu.maps`), shared by threads. The outputs come as all features' constants, then
all first cosines, all first sines, and so on, as in scikit-learn's AdditiveChi2Sampler, which has χ² only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.elementary import logarithms, waves
from visionkl.backend.dispatch import loops
from visionkl.core.validation import check_choice, check_number, parameter_error
from visionkl.kernels.base import Matrix
from visionkl.kernels.exact import KERNELS
from visionkl.kernels.mapping import KernelMap

Vector = npt.NDArray[np.float64]

# Enough for the signature, and for each wave of the series.
_NODES, _NODES_A_WAVE = 48, 4


def _jensen_shannon(omega: Vector) -> Vector:
    half = np.exp(omega / 2)
    return (half * np.log1p(1 / half**2) + np.log1p(half**2) / half) / (2 * np.log(2))


_SIGNATURES = {
    "chi2": lambda omega: 1 / np.cosh(omega / 2),
    "intersection": lambda omega: np.exp(-np.abs(omega) / 2),
    "jensen_shannon": _jensen_shannon,
}
_PERIODS = {
    "chi2": lambda order: 8.80 * np.sqrt(order + 4.44) - 12.6,
    "intersection": lambda order: 2.00 * np.log(order + 0.99) + 3.52,
    "jensen_shannon": lambda order: 9.63 * np.sqrt(order + 1.00) - 2.93,
}


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The waves of a homogeneous map, for single blocks of rows.

    Parameters
    ----------
    period : float
    coefficients : ndarray of float64, shape (order + 1,)
        c_k, not negative.
    """

    period: float
    coefficients: Vector

    @classmethod
    def of(cls, kernel: str, order: int, period: float | None = None) -> Spectrum:
        """Compute the coefficients; the period follows the rule by default."""
        length = float(_PERIODS[kernel](order)) if period is None else float(period)
        nodes, weights = np.polynomial.legendre.leggauss(_NODES + _NODES_A_WAVE * order)
        omega = (nodes + 1) * length / 4  # one half of the window: the signature is even
        terms = np.cos(2 * np.pi / length * np.outer(np.arange(order + 1), omega))
        means = terms @ (weights * _SIGNATURES[kernel](omega)) / 2
        means[1:] *= 2
        return cls(length, np.maximum(means, 0))

    @property
    def n_numbers(self) -> int:
        """How many numbers a feature becomes."""
        return 2 * len(self.coefficients) - 1

    def sample(self, X: Matrix, out: Matrix) -> Matrix:
        """Write the map of a block of rows into `out`; both must be contiguous."""
        dtype = X.dtype
        loops("maps", X, out).sample_spectrum(
            X,
            dtype.type(np.log(2) / self.period),
            np.sqrt(self.coefficients).astype(dtype),
            np.finfo(dtype).tiny,
            logarithms(dtype),
            waves(dtype),
            out,
        )
        return out


class HomogeneousMap(KernelMap):
    """Dense map of an additive histogram kernel: 2 · order + 1 numbers for each feature.

    Parameters
    ----------
    kernel : {"chi2", "intersection", "jensen_shannon"}
    order : int
        Waves besides the constant.
    period : float, optional
        Of the first wave, in units of log x; by a rule that depends on the kernel and the order by default.
    n_jobs : int, optional
        Threads; all usable cores by default.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "auto". Rows that lie on a GPU are mapped there anyway.

    Attributes
    ----------
    kernel_ : Kernel
        What the map comes near.
    spectrum_ : Spectrum
        The period and the squared amplitudes of the waves.
    n_features_in_ : int

    Examples
    --------
    >>> X = np.random.default_rng(0).random((100, 8))
    >>> homogeneous = HomogeneousMap(order=2).fit(X)
    >>> mapped = homogeneous.transform(X)
    >>> mapped.shape
    (100, 40)
    >>> bool(np.abs(mapped @ mapped.T - homogeneous.kernel_(X)).max() < 0.1)
    True
    """

    def __init__(
        self,
        kernel: str = "chi2",
        *,
        order: int = 1,
        period: float | None = None,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.kernel = kernel
        self.order = order
        self.period = period
        self.n_jobs = n_jobs
        self.device = device

    def fit(self, X: npt.ArrayLike, y: object = None) -> HomogeneousMap:
        """Compute the spectrum; of X only the number of features is taken.

        Parameters
        ----------
        X : array_like of float ≥ 0, shape (n_samples, n_features)
        y : None
            Not used.

        Returns
        -------
        self
        """
        check_choice("HomogeneousMap", "kernel", self.kernel, tuple(_SIGNATURES))
        check_number("HomogeneousMap", "order", self.order, low=1, integer=True)
        if self.period is not None and not check_number("HomogeneousMap", "period", self.period) > 0:
            raise parameter_error("HomogeneousMap", "period", "None or a number > 0", self.period)
        rows = self._rows_to_fit(X)
        self.spectrum_ = Spectrum.of(self.kernel, self.order, self.period)
        self.kernel_ = KERNELS[self.kernel]()
        self._n_features_out = self.spectrum_.n_numbers * rows.shape[1]
        return self

    def transform(self, X: npt.ArrayLike) -> Matrix:
        """Map rows.

        Parameters
        ----------
        X : array_like of float ≥ 0, shape (n_samples, n_features)

        Returns
        -------
        ndarray of float32 if X is, and of float64 otherwise, shape (n_samples, (2 order + 1) n_features)
        """
        return self._map(self._rows_to_map(X), self._n_features_out, self.spectrum_.sample, effort=16)

    def _is_for_histograms(self) -> bool:
        return True
