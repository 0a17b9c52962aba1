"""The exponential χ² kernel as an explicit map (METHODS §2; Sreekanth et al.).

    k(x, y) = exp(−Σ_j (x_j − y_j)² / (x_j + y_j) / width)

is a gaussian of the χ² distance, and the χ² distance is the euclidean one of what the χ² kernel's homogeneous
map makes of x and y. So there are two maps, one after the other: the homogeneous map, 2 · order + 1 numbers a
feature, and a random Fourier map of the gaussian with σ = √(2 / width) on top of it. The first goes through a
block of rows at a time and is never held as a whole.

If unsure, keep the width: the mean χ² distance between training samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.scratch import scratch
from visionkl.backend.threads import run_tasks
from visionkl.core.rng import seed_of, stream
from visionkl.core.validation import check_choice, check_number
from visionkl.kernels.base import Matrix
from visionkl.kernels.exact import ExpChi2
from visionkl.kernels.fourier import DRAWS, FourierBasis, draw_waves
from visionkl.kernels.homogeneous import Spectrum
from visionkl.kernels.mapping import KernelMap, bands


class ExpChi2Map(KernelMap):
    """Random Fourier map of the exponential χ² kernel.

    Parameters
    ----------
    n_components : int
        Frequencies, which is the number of features that come out.
    width : float, optional
        Of the kernel; the mean χ² distance between rows by default (measured on at most 2000 of them).
    order : int
        Of the homogeneous map underneath: waves besides the constant.
    frequencies : {"iid", "orthogonal", "quasi"}
        How they are drawn; see `visionkl.kernels.fourier`.
    random_state : int, RandomState instance or None
        Seed; None is different each time.
    n_jobs : int, optional
        Threads; all usable cores by default.

    Attributes
    ----------
    kernel_ : ExpChi2
        What the map comes near; `kernel_.width` is the width.
    n_features_in_ : int

    Examples
    --------
    >>> X = np.random.default_rng(0).random((100, 8))
    >>> exp_chi2 = ExpChi2Map(n_components=4096, order=2).fit(X)
    >>> mapped = exp_chi2.transform(X)
    >>> bool(np.abs(mapped @ mapped.T - exp_chi2.kernel_(X)).mean() < 0.03)
    True
    """

    def __init__(
        self,
        n_components: int = 1000,
        *,
        width: float | None = None,
        order: int = 1,
        frequencies: str = "iid",
        random_state: Any = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.width = width
        self.order = order
        self.frequencies = frequencies
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: npt.ArrayLike, y: object = None) -> ExpChi2Map:
        """Measure the width and draw the frequencies.

        Parameters
        ----------
        X : array_like of float ≥ 0, shape (n_samples, n_features)
        y : None
            Not used.

        Returns
        -------
        self
        """
        check_choice("ExpChi2Map", "frequencies", self.frequencies, DRAWS)
        check_number("ExpChi2Map", "n_components", self.n_components, low=1, integer=True)
        check_number("ExpChi2Map", "order", self.order, low=1, integer=True)
        rows = self._rows_to_fit(X)
        kernel = ExpChi2.of(rows, n_jobs=self.n_jobs) if self.width is None else ExpChi2(self.width)
        kernel.check(rows[:1])
        self.spectrum_ = Spectrum.of("chi2", self.order)
        draw = stream(seed_of(self.random_state), "exponential χ² map", self.frequencies)
        n_inputs = self.spectrum_.n_numbers * rows.shape[1]
        drawn, offsets = draw_waves("gaussian", self.frequencies, self.n_components, n_inputs, draw)
        self.basis_ = FourierBasis(drawn.astype(rows.dtype), offsets.astype(rows.dtype))
        self.kernel_: ExpChi2 = kernel
        self._n_features_out = self.n_components
        return self

    def transform(self, X: npt.ArrayLike) -> Matrix:
        """Map rows.

        Parameters
        ----------
        X : array_like of float ≥ 0, shape (n_samples, n_features)

        Returns
        -------
        ndarray of float32 if X is, and of float64 otherwise, shape (n_samples, n_components)
        """
        rows = self._rows_to_map(X)
        n_inputs = self.basis_.frequencies.shape[1]
        projection = self.basis_.projection(np.sqrt(2 / self.kernel_.width), rows.dtype)
        out = np.empty((len(rows), self.n_components), rows.dtype)

        def map_band(band: slice) -> None:
            inputs = scratch("homogeneous map", (band.stop - band.start, n_inputs), rows.dtype)
            self.spectrum_.sample(rows[band], inputs)
            self.basis_.features(inputs, projection, out[band])

        run_tasks(map_band, bands(len(rows), max(self.n_components, n_inputs)), self.n_jobs)
        return out

    def _is_for_histograms(self) -> bool:
        return True
