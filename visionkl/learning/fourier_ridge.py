"""Ridge regression on random Fourier features, and how its quality changes with σ (METHODS §3).

Fundamentals
------------
With features Φ of the training part, Q = ΦᵀΦ + λI and β = Q⁻¹Φᵀy. Two criteria of σ:

* validation: ‖Φ_U β − v‖² on a held-out part (U, v);
* training: ½ ‖Φβ − y‖² + λ ‖β‖².

The adjoint method gives the slopes by all σ's for the price of one more solve. With r = Φβ − y,

========== ================== ============= ==========================================================
criterion  a                  by Φ_U        by Φ
========== ================== ============= ==========================================================
validation Q⁻¹ Φ_Uᵀ (Φ_Uβ−v)  2 (Φ_Uβ−v) βᵀ  −2 [r aᵀ + (Φa) βᵀ]
training   λ Q⁻¹ β            —             r (β − a)ᵀ − (Φa) βᵀ
========== ================== ============= ==========================================================

and that by log λ, for validation, is −2λ⟨a, β⟩. There may be many outputs: columns of y, v, β and a.

Implementation
--------------
Features are never held for all rows: a block is mapped, used, and mapped again when it is needed the second
time; only phases, the product of inputs and frequencies, are kept from the first time, as far as they fit
into half a gigabyte. The first pass sums ΦᵀΦ, tile by tile of its upper half, the second pulls the slopes
back. The held-out part needs one pass only. Sums over blocks are in float64, features in the data's own
precision. Threads share the bands and the tiles of a block, which are cut the same whatever their number, and
their results are added in order: the outcome does not depend on `n_jobs`.

On a GPU the same is done with whole blocks, which become smaller while memory is short. Data, frequencies and
phases stay there as far as they fit, and sums come back once a pass. What is solved is small, and the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg

from visionkl.backend.dispatch import CPU, Device, to_host
from visionkl.backend.gpu.device import enough_memory, in_blocks
from visionkl.backend.threads import run_tasks
from visionkl.kernels.base import Matrix
from visionkl.kernels.fourier import FourierBasis
from visionkl.learning.search import Slopes, factor

Vector = npt.NDArray[np.float64]

#: Rows that a thread maps at a time, and columns of a tile of ΦᵀΦ.
_BAND = 512
_TILE = 512
#: Bytes of phases that are kept between two passes.
_MOST_PHASES = 1 << 29


@dataclass(frozen=True, eq=False)
class Part:
    """Some samples.

    Parameters
    ----------
    inputs : ndarray of float, shape (n, n_features)
        t(x) for Fourier features.
    targets : ndarray of float, shape (n, n_outputs)
    device : visionkl.backend.dispatch.Device
        Where they are gone over. Arrays that do not fit there are in ordinary memory.
    """

    inputs: Matrix
    targets: Matrix
    device: Device = CPU


#: Makes coefficients of scores, in their place, given the targets, and returns the residuals.
Arrange = Callable[[Matrix, Matrix], Matrix]


def take_off_targets(scores: Matrix, targets: Matrix) -> Matrix:
    """Make residuals of the first scores; targets of further ones are 0."""
    residuals = scores[:, : targets.shape[1]]
    residuals -= targets
    return residuals


def take_off_exceeded_targets(scores: Matrix, targets: Matrix) -> Matrix:
    """Do the same, but forgive scores that go beyond their target: then squares are the squared hinge loss.

    Targets are ±1 less their mean, and so are the scores: the signs tell what is beyond.
    """
    residuals = take_off_targets(scores, targets)
    residuals[residuals * targets > 0] = 0
    return residuals


@dataclass(eq=False)
class FourierRidge:
    """Ridge regression on Fourier features of rows that are mapped block by block.

    Parameters
    ----------
    owner : str
        For complaints.
    basis : FourierBasis
    block_rows : int
        Rows whose features are held at a time.
    n_jobs : int, optional
    judge : callable
        Makes residuals of the scores of held-out rows.
    device : visionkl.backend.dispatch.Device
        Where rows are mapped and summed up; sums, and what is solved, are in ordinary memory.
    """

    owner: str
    basis: FourierBasis
    block_rows: int
    n_jobs: int | None = None
    judge: Arrange = take_off_targets
    device: Device = CPU

    def __post_init__(self) -> None:
        self._phases: Matrix = np.empty((0, 0))
        with enough_memory("the frequencies"):
            self.basis = self.basis.put(self.device)

    def projection(self, sigma: Vector, dtype: npt.DTypeLike) -> Matrix:
        """Return what takes inputs to phases, on the device."""
        with self.device.use(), enough_memory("the frequencies"):
            return self.basis.projection(sigma, dtype)

    def normal_equations(
        self, parts: Sequence[Part], projection: Matrix, phases: Matrix | None = None
    ) -> tuple[Vector, Vector]:
        """Return ΦᵀΦ, of which only the upper half is filled, and Φᵀy; keep the phases of the first rows."""
        d, n_outputs = projection.shape[1], parts[0].targets.shape[1]
        device, xp = self.device, self.device.namespace
        with device.use(), enough_memory(f"sums of {d} × {d} products"):
            gram, moments = xp.zeros((d, d)), xp.zeros((d, n_outputs))
        room = self._room_for_blocks(max(len(part.inputs) for part in parts), projection)
        columns = list(_cut(slice(0, d), d if device.is_gpu else _TILE))
        tiles = [(left, right) for i, left in enumerate(columns) for right in columns[i:]]

        def add(part: Part, block: slice) -> None:
            phi, targets = room(_length(block)), device.put(part.targets[block])

            def map_band(band: slice) -> None:
                out = phi[band.start - block.start : band.stop - block.start]
                inputs = device.put(part.inputs[band])
                if phases is None or band.stop > len(phases):
                    self.basis.features(inputs, projection, out)
                else:
                    phases[band] = xp.matmul(inputs, projection, out=out)
                    self.basis.waves(out)

            def add_tile(tile: tuple[slice, slice]) -> None:
                left, right = tile
                product = device.room("Fourier tile", (_length(left), _length(right)), phi.dtype)
                xp.matmul(phi[:, left].T, phi[:, right], out=product)
                own = phi[:, left].T @ targets if left == right else None
                # From here on nothing asks for memory, of which a GPU may have too little: see `in_blocks`.
                gram[left, right] += product
                if own is not None:
                    moments[left] += own

            run_tasks(map_band, self._bands(block), self.n_jobs)
            run_tasks(add_tile, tiles, self.n_jobs)

        for part in parts:
            self._go_over(partial(add, part), len(part.inputs))
        return to_host(gram), to_host(moments)

    def solve(
        self, parts: Sequence[Part], projection: Matrix, strength: float, phases: Matrix | None = None
    ) -> tuple[Any, Vector]:
        """Return the factor of Q, and β, shape (n_components, n_outputs)."""
        gram, moments = self.normal_equations(parts, projection, phases)
        factored = factor(self.owner, gram, strength)
        return factored, linalg.cho_solve(factored, moments, check_finite=False)

    def best_strength(self, train: Part, held_out: Part, sigma: Vector, strengths: Sequence[float]) -> float:
        """Return the λ with the least error on the held-out part; the data are mapped once for all."""
        projection = self.projection(sigma, train.inputs.dtype)
        gram, moments = self.normal_equations([train], projection)
        errors = []
        for strength in strengths:
            factored = factor(self.owner, gram.copy(), strength)
            beta = linalg.cho_solve(factored, moments, check_finite=False)
            errors.append(self.held_out_errors(held_out, projection, beta)[0])
        return strengths[int(np.argmin(errors))]

    def criterion(self, train: Part, held_out: Part | None, sigma: Vector, strength: float) -> Slopes:
        """Evaluate the validation criterion, or that of training if nothing is held out."""
        projection = self.projection(sigma, train.inputs.dtype)
        phases = self.room_for_phases(len(train.inputs), projection)
        factored, beta = self.solve([train], projection, strength, phases)
        if held_out is None:
            adjoint = strength * linalg.cho_solve(factored, beta, check_finite=False)
            del factored
            ahead, back = np.hstack([beta, adjoint]), np.hstack([beta - adjoint, -beta])
            half, _, by_sigma = self.pull_back(train, projection, ahead, back, phases=phases)
            return Slopes(half / 2 + strength * float((beta**2).sum()), by_sigma)
        value, moments, by_sigma = self.pull_back(held_out, projection, beta, 2 * beta, arrange=self.judge)
        adjoint = linalg.cho_solve(factored, moments, check_finite=False)
        del factored  # as large as ΦᵀΦ
        ahead, back = np.hstack([beta, adjoint]), -2 * np.hstack([adjoint, beta])
        by_sigma += self.pull_back(train, projection, ahead, back, phases=phases)[2]
        return Slopes(value, by_sigma, -2 * strength * float((adjoint * beta).sum()))

    def held_out_errors(
        self, part: Part, projection: Matrix, beta: Vector, phases: Matrix | None = None
    ) -> tuple[float, Vector]:
        """Return ‖R‖² and ΦᵀR of rows that β was not learned from."""
        device, dtype = self.device, projection.dtype
        weights = self._bring(beta.astype(dtype))

        def share(band: slice) -> tuple[Any, Matrix]:
            phi = device.room("Fourier features", (_length(band), len(weights)), dtype)
            if phases is None or band.stop > len(phases):
                self.basis.features(device.put(part.inputs[band]), projection, phi)
            else:
                phi[...] = phases[band]
                self.basis.waves(phi)
            residuals = self.judge(phi @ weights, device.put(part.targets[band]))
            return _squares(residuals), phi.T @ residuals

        squares, moments = self._add_up(share, len(part.inputs), (), beta.shape)
        return float(squares), moments

    def room_for_phases(self, n: int, projection: Matrix) -> Matrix:
        """Return an array for the phases of n rows, or of as many as may be kept; it is used again.

        On a GPU, where blocks of the second pass may be smaller than the first's, it is for all or for none.
        """
        dtype, d = projection.dtype, projection.shape[1]
        most = _MOST_PHASES // (d * dtype.itemsize)
        shape = (n if n <= most else 0 if self.device.is_gpu else most, d)
        if self._phases.shape != shape or self._phases.dtype != dtype:
            self._phases = none = np.empty((0, d), dtype)  # the others are freed first
            reserved = self.device.reserve(shape, dtype)
            self._phases = none if reserved is None else reserved
        return self._phases

    def predict(self, inputs: Matrix, sigma: Vector, beta: Matrix) -> Matrix:
        """Return Φβ of rows, shape (n, n_outputs), in their precision and in ordinary memory."""
        device = self.device
        projection = self.projection(sigma, inputs.dtype)
        weights = self._bring(beta.astype(inputs.dtype, copy=False))
        out = np.empty((len(inputs), weights.shape[1]), inputs.dtype)

        def fill(band: slice) -> None:
            phi = device.room("Fourier features", (_length(band), len(weights)), inputs.dtype)
            self.basis.features(device.put(inputs[band]), projection, phi)
            out[band] = to_host(phi @ weights)

        if device.is_gpu:
            self._go_over(fill, len(inputs))
        else:
            run_tasks(fill, _cut(slice(0, len(inputs)), _BAND), self.n_jobs)
        return out

    def pull_back(
        self,
        part: Part,
        projection: Matrix,
        weights: Vector,
        back: Vector,
        *,
        phases: Matrix | None = None,
        arrange: Arrange = take_off_targets,
    ) -> tuple[float, Vector, Vector]:
        """Return ‖R‖², ΦᵀR and the slopes by σ, where the slopes by Φ are C backᵀ.

        Parameters
        ----------
        part : Part
        projection : ndarray of float, shape (n_features, n_components)
        weights, back : ndarray of float64, shape (n_components, n_columns)
        phases : ndarray of float, shape (n_known, n_components), optional
            Of the first rows, as `normal_equations` left them. Then ΦᵀR is not asked for, and is zero.
        arrange : callable
            Makes C of Φ weights, in its place, and returns R; told the targets as well.
        """
        device, dtype, d = self.device, part.inputs.dtype, projection.shape[1]
        ahead = self._bring(weights.astype(dtype))
        behind = self._bring(np.ascontiguousarray(back.T, dtype=dtype))

        def share(band: slice) -> tuple[Any, Matrix | float, Vector]:
            shape = (_length(band), d)
            phi, slopes = (device.room(f"Fourier {name}", shape, dtype) for name in ("features", "slopes"))
            inputs = device.put(part.inputs[band])
            if phases is None or band.stop > len(phases):
                self.basis.features_and_slopes(inputs, projection, phi, slopes)
            else:
                phi[...] = phases[band]
                self.basis.waves_and_slopes(phi, slopes)
            scores = phi @ ahead
            residuals = arrange(scores, device.put(part.targets[band]))
            moments = phi.T @ residuals if phases is None else 0.0
            slopes *= device.namespace.matmul(scores, behind, out=phi)
            return _squares(residuals), moments, self.basis.pull_back(inputs, slopes)

        shapes = (), (d, part.targets.shape[1]), (part.inputs.shape[1],)
        squares, moments, by_sigma = self._add_up(share, len(part.inputs), *shapes)
        return float(squares), moments, by_sigma

    def _bring(self, weights: Matrix) -> Matrix:
        with enough_memory("the weights"):
            return self.device.put(weights)

    def _go_over(self, work: Callable[[slice], None], n_rows: int) -> None:
        """Call `work` on blocks of rows; on a GPU, on smaller ones while memory is short."""
        if self.device.is_gpu:
            with self.device.use():
                in_blocks(work, n_rows, self.block_rows)
        else:
            for block in _cut(slice(0, n_rows), self.block_rows):
                work(block)

    def _bands(self, block: slice) -> Iterable[slice]:
        """Cut a block into what threads share; a GPU wants all at once."""
        return [block] if self.device.is_gpu else _cut(block, _BAND)

    def _add_up(
        self, share: Callable[[slice], tuple[Any, ...]], n_rows: int, *shapes: tuple[int, ...]
    ) -> list[Vector]:
        """Return float64 sums, of some shapes, of what `share` makes of bands of rows, in their order."""
        with self.device.use(), enough_memory("the sums"):
            totals = [self.device.namespace.zeros(shape) for shape in shapes]

        def add(block: slice) -> None:
            for of_band in run_tasks(share, self._bands(block), self.n_jobs):
                for total, own in zip(totals, of_band, strict=True):
                    total += own

        self._go_over(add, n_rows)
        return [to_host(total) for total in totals]

    def _room_for_blocks(self, n_rows: int, projection: Matrix) -> Callable[[int], Matrix]:
        """Return what gives memory for the features of so many rows of a block; on a CPU, always the same."""
        d, dtype = projection.shape[1], projection.dtype
        if self.device.is_gpu:
            return lambda n: self.device.namespace.empty((n, d), dtype)
        whole = np.empty((min(self.block_rows, n_rows), d), dtype)
        return lambda n: whole[:n]


def _squares(residuals: Matrix) -> Any:
    return (residuals.astype(np.float64) ** 2).sum()


def _cut(whole: slice, size: int) -> Iterator[slice]:
    for first in range(whole.start, whole.stop, size):
        yield slice(first, min(first + size, whole.stop))


def _length(part: slice) -> int:
    return int(part.stop - part.start)
