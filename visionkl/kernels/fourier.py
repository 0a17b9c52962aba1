"""Random Fourier maps (METHODS §2).

Fundamentals
------------
A kernel that depends on the difference of its arguments is the mean of waves over random frequencies
(Bochner). With `n_components` = d frequencies drawn once,

    ψ(x) = √(2/d) cos(H diag(σ) t(x) + 2π b),   k(x, y) ≈ ψ(x) · ψ(y),

where H = h(ω), and ω and b are uniform in (0, 1):

======================== ============== ======================= ====================================
kernel                   t(x)           h(ω)                    of a feature's difference Δ in t
======================== ============== ======================= ====================================
`"gaussian"`             x              √2 erf⁻¹(2ω − 1)        exp(−½ σ² Δ²)
`"skewed_chi2"`          log(x + c)     (2/π) log tan(πω/2)     sech(σ Δ)
`"skewed_intersection"`  log(x + c)     tan(π(ω − ½))           exp(−σ abs(Δ))
======================== ============== ======================= ====================================

The error falls as 1/√d, whatever the number of features. The frequencies may be drawn with less variance:

* `"iid"`: independently, as above.
* `"orthogonal"`: in sets of orthogonal directions. Only a gaussian's frequencies have a direction that is
  uniform on the sphere, so only they can be drawn so.
* `"quasi"`: ω are points of a scrambled Sobol sequence, for all three kernels. It gains most for few
  features; twice a power of two components makes the best use of it.

The last two use each frequency twice, a quarter turn apart, which is a cosine and a sine: then the kernel of
equal samples is exactly 1, and that of similar ones nearly so.

If unsure, take `"orthogonal"` for a gaussian and `"quasi"` otherwise; `"iid"`, the default, is the plain
method.

σ is learned elsewhere, so H stays while σ changes: `transform_with` maps with another σ, and `gradient` tells
how a loss of the map's outputs changes with σ. Both work on blocks of rows and hold nothing of the size n × d
but what they return. `FourierBasis` is the same for single blocks.

Implementation
--------------
Phases are computed in turns, not in radians: taking off whole turns is then exact, and the cosine is a
polynomial (`visionkl.backend.cpu.elementary`), good to 3e-7 in float32. Blocks of rows are shared by threads,
each of which lets BLAS multiply and passes over the result while it is in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri
from scipy.stats import qmc

from visionkl.backend import glue
from visionkl.backend.cpu.elementary import waves
from visionkl.backend.dispatch import Device, choose_device, device_of, loops, namespace_of, to_host
from visionkl.backend.gpu.device import enough_memory, in_blocks
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError, UsageError
from visionkl.core.rng import seed_of, stream
from visionkl.core.validation import check_choice, check_number
from visionkl.kernels.base import Kernel, Matrix, check_above
from visionkl.kernels.exact import Gaussian, SkewedChi2, SkewedIntersection
from visionkl.kernels.mapping import NUMBERS_ON_A_GPU, KernelMap, bands
from visionkl.kernels.sigma import Sigma, feature_groups

Vector = npt.NDArray[np.float64]

_KERNELS = ("gaussian", "skewed_chi2", "skewed_intersection")
DRAWS = ("iid", "orthogonal", "quasi")
_MOST_SOBOL_DIMENSIONS = 21201
#: Features whose phases are multiplied out at a time: those of a band of rows stay in the cache of a core.
_TILE = 512

#: Gives dL/dΦ of some rows, told which they are and what the map makes of them.
Slopes = Callable[[slice, Matrix], Matrix]


@dataclass(frozen=True, eq=False)
class FourierBasis:
    """The waves of a Fourier map, for single blocks of rows: no checks, no threads.

    A solver with blocks and threads of its own calls `inputs` once, `projection` once for each σ, and then
    for every block `features`, or `features_and_slopes` followed by `pull_back`.

    Parameters
    ----------
    frequencies : ndarray of float, shape (n_components, n_features)
        H.
    offsets : ndarray of float, shape (n_components,)
        b, in turns.
    c : float or None
        Of a skewed kernel; None for the gaussian.
    """

    frequencies: Matrix
    offsets: Matrix
    c: float | None = None

    def inputs(self, X: Matrix) -> Matrix:
        """Return t(x) of all rows."""
        return X if self.c is None else glue.logarithms(X, self.c)

    def put(self, device: Device) -> FourierBasis:
        """Return these waves on a device, for many blocks there."""
        if not device.is_gpu:
            return self
        return FourierBasis(device.put(self.frequencies), device.put(self.offsets), self.c)

    def projection(self, sigma: npt.ArrayLike, dtype: npt.DTypeLike) -> Matrix:
        """Return (H diag(σ) / 2π)ᵀ, which takes inputs to phases; σ is a number or has n_features of them."""
        device = device_of(self.frequencies)
        turns = device.put(np.asarray(sigma) / (2 * np.pi))
        return device.namespace.ascontiguousarray((self.frequencies * turns).T, dtype=dtype)

    def features(self, inputs: Matrix, projection: Matrix, out: Matrix) -> Matrix:
        """Write the map of a block of inputs into `out`, which must be contiguous."""
        xp, compiled, constants = namespace_of(inputs, out), loops("maps", out), self._constants(out)
        # On a CPU waves are made of phases that are still in the cache; a GPU wants all at once.
        width = _TILE if xp is np else out.shape[1]
        for first in range(0, out.shape[1], width):
            last = min(first + width, out.shape[1])
            xp.matmul(inputs, projection[:, first:last], out=out[:, first:last])
            compiled.make_waves(out, first, last, *constants)
        return out

    def features_and_slopes(self, inputs: Matrix, projection: Matrix, out: Matrix, slopes: Matrix) -> Matrix:
        """Do as `features`, and write the derivatives of the features by their angles into `slopes`."""
        return self.waves_and_slopes(namespace_of(inputs, out).matmul(inputs, projection, out=out), slopes)

    def waves(self, phases: Matrix) -> Matrix:
        """Put features in the place of phases, which are products of inputs and the projection."""
        loops("maps", phases).make_waves(phases, 0, phases.shape[1], *self._constants(phases))
        return phases

    def waves_and_slopes(self, phases: Matrix, slopes: Matrix) -> Matrix:
        """Do as `waves`, and write the derivatives of the features by their angles into `slopes`."""
        offsets, scale, coefficients = self._constants(phases)
        loops("maps", phases).make_waves_and_slopes(phases, offsets, scale, coefficients, slopes)
        return phases

    def pull_back(self, inputs: Matrix, slopes: Matrix) -> Vector:
        """Return dL/dσ of each feature, summed over the block, where that lies.

        `slopes` are already multiplied by dL/dΦ.
        """
        device = device_of(inputs, slopes)
        by_input = slopes @ device.put(self.frequencies.astype(slopes.dtype, copy=False))
        if device.is_gpu:
            return glue.paired_sums(inputs, by_input)
        return np.einsum("ij,ij->j", inputs, by_input, dtype=np.float64)

    def _constants(self, out: Matrix) -> tuple[Any, ...]:
        dtype = out.dtype
        scale = dtype.type(np.sqrt(2 / len(self.offsets)))
        return device_of(out).put(self.offsets.astype(dtype, copy=False)), scale, waves(dtype)


class FourierMap(KernelMap):
    """Random Fourier map of a gaussian, skewed χ² or skewed intersection kernel.

    Parameters
    ----------
    kernel : {"gaussian", "skewed_chi2", "skewed_intersection"}
    n_components : int
        Frequencies, which is the number of features that come out.
    sigma : float or array_like of float, optional
        Multiplies the frequencies, so it is an inverse width: one for all features, one for each block, or
        one for each feature. By default ½ for the skewed kernels, and √(2 / (n_features · variance of X)) for
        the gaussian.
    c : float
        Of the skewed kernels: numbers must be above −c.
    blocks : sequence of int, optional
        Lengths of the blocks of features that share a σ.
    frequencies : {"iid", "orthogonal", "quasi"}
        How they are drawn; see the head of this module.
    random_state : int, RandomState instance or None
        Seed; None is different each time.
    n_jobs : int, optional
        Threads; all usable cores by default.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "auto": where rows are mapped. The frequencies are drawn by
        NumPy either way, and are the same. Rows that lie on a GPU are mapped there anyway, and stay there.

    Attributes
    ----------
    kernel_ : Kernel
        What the map comes near.
    sigma_ : ndarray of float64, shape (n_groups,)
        σ of each group of features: of all, of each block, or of each feature.
    groups_ : ndarray of int, shape (n_features,)
        The group of each feature.
    basis_ : FourierBasis
        H and b.
    n_features_in_ : int

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> fourier = FourierMap(n_components=4096, sigma=0.5).fit(X)
    >>> mapped = fourier.transform(X)
    >>> bool(np.abs(mapped @ mapped.T - fourier.kernel_(X)).max() < 0.1)
    True
    """

    def __init__(
        self,
        kernel: str = "gaussian",
        *,
        n_components: int = 1000,
        sigma: Sigma | None = None,
        c: float = 1.0,
        blocks: Sequence[int] | None = None,
        frequencies: str = "iid",
        random_state: Any = 0,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.sigma = sigma
        self.c = c
        self.blocks = blocks
        self.frequencies = frequencies
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def fit(self, X: npt.ArrayLike, y: object = None) -> FourierMap:
        """Draw the frequencies; of X only the size and the default σ are taken.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)
        y : None
            Not used.

        Returns
        -------
        self
        """
        self._check_parameters()
        rows = self._rows_to_fit(X)
        n_features = rows.shape[1]
        sigma = self.sigma
        if sigma is None:
            sigma = Gaussian.of(rows).sigma if self.kernel == "gaussian" else SkewedChi2.sigma
        self.sigma_, self.groups_ = feature_groups("FourierMap", sigma, self.blocks, n_features)
        draw = stream(seed_of(self.random_state), "Fourier map", self.kernel, self.frequencies)
        drawn, offsets = draw_waves(self.kernel, self.frequencies, self.n_components, n_features, draw)
        c = None if self.kernel == "gaussian" else float(self.c)
        self.basis_ = FourierBasis(drawn.astype(rows.dtype), offsets.astype(rows.dtype), c)
        self.kernel_ = self._exact_kernel()
        self._n_features_out = self.n_components
        return self

    def transform(self, X: npt.ArrayLike) -> Matrix:
        """Map rows.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)

        Returns
        -------
        ndarray of float32 if X is, and of float64 otherwise, shape (n_samples, n_components)
        """
        return self.transform_with(X)

    def transform_with(self, X: npt.ArrayLike, sigma: npt.ArrayLike | None = None) -> Matrix:
        """Map rows with the same frequencies and another σ, given as a number or as `sigma_` is."""
        rows = self._rows_to_map(X)
        basis = self.basis_
        projection = basis.projection(self._spread(sigma), rows.dtype)

        def map_block(block: Matrix, out: Matrix) -> None:
            basis.features(basis.inputs(block), device_of(block).put(projection), out)

        return self._map(rows, self.n_components, map_block)

    def gradient(
        self, X: npt.ArrayLike, dL_dPhi: npt.ArrayLike | Slopes, sigma: npt.ArrayLike | None = None
    ) -> Vector:
        """Tell how a loss of the outputs changes with σ.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)
        dL_dPhi : array_like of float, shape (n_samples, n_components), or callable
            Derivatives of the loss by the outputs. A function is called as `dL_dPhi(rows, outputs)` with a
            slice and what these rows are mapped to, and returns the derivatives for them: then nothing of the
            size of all outputs is held. It is called by several threads. For rows on a GPU, all of this is
            there.
        sigma : float or array_like of float, shape (n_groups,), optional
            `sigma_` by default.

        Returns
        -------
        ndarray of float64, shape (n_groups,)
        """
        rows = self._rows_to_map(X)
        home = device_of(rows)
        device = home if home.is_gpu else choose_device(self.device, "FourierMap")
        told = self._slopes(dL_dPhi, rows)

        def told_here(band: slice, phi: Matrix) -> Matrix:
            return device.put(told(band, to_host(phi)))

        return self.gradient_on(device, rows, told if home == device else told_here, sigma)

    def gradient_on(
        self, device: Device, rows: Matrix, slopes_of: Slopes, sigma: npt.ArrayLike | None = None
    ) -> Vector:
        """Do as `gradient`, with rows that are known to be sound, on a device: for solvers.

        Parameters
        ----------
        device : visionkl.backend.dispatch.Device
        rows : ndarray of float, shape (n_samples, n_features)
            There, or in ordinary memory.
        slopes_of : callable
            Takes and returns arrays on the device.
        sigma : float or array_like of float, shape (n_groups,), optional
        """
        by_feature: Vector = np.zeros(rows.shape[1])
        with device.use():
            with enough_memory("the frequencies"):
                basis = self.basis_.put(device)
                projection = basis.projection(self._spread(sigma), rows.dtype)

            def pull_back(band: slice) -> Vector:
                shape = (band.stop - band.start, self.n_components)
                inputs = basis.inputs(device.put(rows[band]))
                slopes = device.room("Fourier slopes", shape, rows.dtype)
                phi = device.room("Fourier features", shape, rows.dtype)
                basis.features_and_slopes(inputs, projection, phi, slopes)
                slopes *= slopes_of(band, phi)
                return basis.pull_back(inputs, slopes)

            def add(band: slice) -> None:
                by_feature.__iadd__(to_host(pull_back(band)))

            if device.is_gpu:
                in_blocks(add, len(rows), max(NUMBERS_ON_A_GPU // self.n_components, 1))
            else:
                tasks = bands(len(rows), self.n_components)
                by_feature += np.sum(run_tasks(pull_back, tasks, self.n_jobs), axis=0)
        return np.bincount(self.groups_, by_feature, len(self.sigma_)).astype(np.float64)

    def _check_parameters(self) -> None:
        check_choice("FourierMap", "kernel", self.kernel, _KERNELS)
        check_choice("FourierMap", "frequencies", self.frequencies, DRAWS)
        check_number("FourierMap", "n_components", self.n_components, low=1, integer=True)
        check_number("FourierMap", "c", self.c)

    def _checked(self, X: npt.ArrayLike) -> Matrix:
        rows = super()._checked(X)
        if self.kernel != "gaussian":
            check_above("FourierMap", rows, -self.c)
        return rows

    def _exact_kernel(self) -> Kernel:
        sigma = self.sigma_[self.groups_]
        if self.kernel == "gaussian":
            return Gaussian(sigma)
        kernel = SkewedChi2 if self.kernel == "skewed_chi2" else SkewedIntersection
        return kernel(sigma, self.c)

    def _spread(self, sigma: npt.ArrayLike | None) -> Vector:
        """Return σ of each feature."""
        if sigma is None:
            return self.sigma_[self.groups_]
        values = np.asarray(sigma, dtype=np.float64)
        if values.ndim and values.shape != self.sigma_.shape:
            raise UsageError(
                f"The 'sigma' parameter of FourierMap must be a number or a list of {len(self.sigma_)}, as "
                f"'sigma_' is. Got the shape {values.shape} instead."
            )
        return np.broadcast_to(values, self.sigma_.shape)[self.groups_]

    def _slopes(self, dL_dPhi: npt.ArrayLike | Slopes, rows: Matrix) -> Slopes:
        if callable(dL_dPhi):
            return dL_dPhi
        whole: Any = dL_dPhi if device_of(dL_dPhi).is_gpu else np.asarray(dL_dPhi)
        device_of(rows, whole)
        if whole.shape != (len(rows), self.n_components):
            raise DataError(
                f"FourierMap: dL_dPhi must have the shape {(len(rows), self.n_components)}, one number for "
                f"each output, not {whole.shape}."
            )
        return lambda band, _: whole[band]


def draw_waves(
    kernel: str, how: str, n_components: int, n_features: int, random: np.random.Generator
) -> tuple[Vector, Vector]:
    """Draw H `(n_components, n_features)` and b `(n_components,)`."""
    if how == "iid":
        return _frequencies(kernel, random.random((n_components, n_features))), random.random(n_components)
    n_pairs = -(-n_components // 2)
    if how == "orthogonal":
        if kernel != "gaussian":
            raise UsageError(
                "The 'frequencies' parameter of FourierMap can be 'orthogonal' for the gaussian kernel only, "
                "whose frequencies have no preferred direction. "
                f"Got the kernel {kernel!r}; take 'quasi' or 'iid'."
            )
        drawn = _orthogonal(n_pairs, n_features, random)
    else:
        drawn = _frequencies(kernel, _quasi_random(n_pairs, n_features, random))
    offsets = random.random(n_pairs)[:, None] + [0.0, 0.25]
    return np.repeat(drawn, 2, axis=0)[:n_components], offsets.ravel()[:n_components]


def _frequencies(kernel: str, omega: Vector) -> Vector:
    """Return h(ω)."""
    smallest = 2.0**-53
    omega = np.clip(omega, smallest, 1 - smallest)
    if kernel == "gaussian":
        return ndtri(omega)
    if kernel == "skewed_chi2":
        return 2 / np.pi * np.log(np.tan(np.pi / 2 * omega))
    return np.tan(np.pi * (omega - 0.5))


def _orthogonal(n_components: int, n_features: int, random: np.random.Generator) -> Vector:
    """Draw rows that are orthogonal in sets of n_features, each with the length of a gaussian vector."""
    directions = []
    for first in range(0, n_components, n_features):
        square, triangle = np.linalg.qr(random.standard_normal((n_features, n_features)))
        square *= np.sign(np.diag(triangle))  # uniform over rotations and mirrors
        directions.append(square[: n_components - first])
    lengths = np.sqrt(random.chisquare(n_features, n_components))
    return np.concatenate(directions) * lengths[:, None]


def _quasi_random(n_points: int, n_dimensions: int, random: np.random.Generator) -> Vector:
    if n_dimensions > _MOST_SOBOL_DIMENSIONS:
        raise UsageError(
            "The 'frequencies' parameter of FourierMap can be 'quasi' for up to "
            f"{_MOST_SOBOL_DIMENSIONS} features. Got {n_dimensions} instead; take 'iid'."
        )
    sequence = qmc.Sobol(n_dimensions, scramble=True, rng=random)
    return sequence.random_base2(int(np.ceil(np.log2(n_points))))[:n_points]
