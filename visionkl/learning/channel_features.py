"""The Fourier features of all channels of some samples, a block of rows at a time (METHODS §7).

Features are made whenever they are needed, and are kept only as far as they fit into a given number of bytes:
learning with the squared loss passes over them once, other losses often. Threads share blocks or tiles of the
result, and sums are made in the order of the rows, so nothing depends on how many there are. On a GPU a block
is computed as a whole, and becomes smaller while memory is short; scores and sums come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device, to_host
from visionkl.backend.gpu.device import enough_memory, in_blocks, is_out_of_memory
from visionkl.backend.threads import run_tasks
from visionkl.kernels.fourier import FourierMap
from visionkl.kernels.mapping import bands
from visionkl.solvers.proximal import GramMatrix

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]

_TILE = 512
_ROWS_AT_ONCE = 2048
_SUMS_AT_ONCE = 8
# float32 sums of more rows would lose digits.
_ROWS_ON_A_GPU = 8192


class ChannelFeatures:
    """The features of all channels of some samples: a `Design` for `visionkl.solvers.proximal`.

    Parameters
    ----------
    parts : sequence of ndarray of float, shape (n_samples, width of the channel)
    maps : sequence of FourierMap
        Fitted, one for each channel.
    sigma : ndarray of float64, optional
        σ's of all maps behind one another, instead of theirs.
    keep : int
        Bytes of features that may be kept.
    intercept : bool
        Whether the Gram matrix is that of features with the mean 0.
    n_jobs : int, optional
    device : visionkl.backend.dispatch.Device
        Where features are made, kept and multiplied. It holds the samples if there is memory for them; if
        not, each pass brings them block by block.

    Attributes
    ----------
    groups : list of slice
        The features of each channel.
    gram : GramMatrix
        After `sum_up`.
    means : ndarray of float64, shape (n_features,)
        After `sum_up`; zeros if there is no intercept.
    """

    gram: GramMatrix
    means: Vector

    def __init__(
        self,
        parts: Sequence[Matrix],
        maps: Sequence[FourierMap],
        *,
        sigma: Vector | None = None,
        keep: int = 0,
        intercept: bool = True,
        n_jobs: int | None = None,
        device: Device = CPU,
    ) -> None:
        self.parts, self.maps = [device.hold(part) for part in parts], list(maps)
        self.intercept = intercept
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = np.dtype(parts[0].dtype)
        ends = np.cumsum([fourier.n_components for fourier in maps])
        starts = ends - [fourier.n_components for fourier in maps]
        self.groups = [slice(int(first), int(last)) for first, last in zip(starts, ends, strict=True)]
        self.n_samples, self.dim = len(parts[0]), int(ends[-1])
        self.sigma = np.concatenate([fourier.sigma_ for fourier in maps]) if sigma is None else sigma
        with device.use(), enough_memory("the frequencies"):
            self._bases = [fourier.basis_.put(device) for fourier in maps]
            self._projections = [
                basis.projection(own[fourier.groups_], self.dtype)
                for basis, fourier, own in zip(self._bases, maps, self.sigmas(), strict=True)
            ]
        self._kept = keep // max(1, self.dim * self.dtype.itemsize)
        self._store: dict[int, Matrix] = {}

    def sigmas(self) -> list[Vector]:
        """Return the σ's of each map."""
        return np.split(self.sigma, np.cumsum([len(fourier.sigma_) for fourier in self.maps])[:-1])

    def with_sigma(self, sigma: Vector) -> ChannelFeatures:
        """Return the features of the same samples with other σ's."""
        kept = self._kept * self.dim * self.dtype.itemsize
        return ChannelFeatures(
            self.parts,
            self.maps,
            sigma=sigma,
            keep=kept,
            intercept=self.intercept,
            n_jobs=self.n_jobs,
            device=self.device,
        )

    def block(self, band: slice) -> Matrix:
        """Return the features of some rows, on the device."""
        if band.start in self._store and len(self._store[band.start]) == band.stop - band.start:
            return self._store[band.start]
        xp = self.device.namespace
        out = xp.empty((band.stop - band.start, self.dim), self.dtype)
        for basis, part, group, projection in zip(
            self._bases, self.parts, self.groups, self._projections, strict=True
        ):
            inputs = basis.inputs(self.device.put(part[band]))
            own = xp.empty((len(out), group.stop - group.start), self.dtype)
            out[:, group] = basis.features(inputs, projection, own)
        if band.stop <= self._kept:
            self._store[band.start] = out
        return out

    def scores(self, weights: Vector) -> Vector:
        """Return Φ w, `(n_samples, n_outputs)`: one pass over the data."""
        with enough_memory("the weights"):
            own = self.device.put(np.ascontiguousarray(weights, dtype=self.dtype))
        out = np.empty((self.n_samples, own.shape[1]))

        def score(band: slice) -> None:
            out[band] = to_host(self.block(band) @ own)

        self._go_over(score)
        return out

    def combine(self, shares: Vector) -> Vector:
        """Return Φᵀ shares, `(n_features, n_outputs)`: one pass over the data."""
        own = self.device.hold(np.ascontiguousarray(shares, dtype=self.dtype))
        with self.device.use(), enough_memory("the sums"):
            total = self.device.namespace.zeros((self.dim, own.shape[1]))

        def share(band: slice) -> Matrix:
            return self.block(band).T @ self.device.put(own[band])

        def add(band: slice) -> None:
            total.__iadd__(share(band))

        if self.device.is_gpu:
            self._go_over(add)
            return to_host(total)
        for some in _in_turns(bands(self.n_samples, self.dim), _SUMS_AT_ONCE):
            for part in run_tasks(share, some, self.n_jobs):
                total += part
        return total

    def sum_up(self, targets: Vector | None = None) -> Vector | None:
        """Make `gram` and `means` in one pass; return Φᵀ targets / n of targets `(n_samples, n_outputs)`."""
        n, device = self.n_samples, self.device
        n_outputs = 0 if targets is None else targets.shape[1]
        with device.use(), enough_memory(f"sums of {self.dim} × {self.dim} products"):
            zeros = device.namespace.zeros
            matrix, total, linear = zeros((self.dim, self.dim)), zeros(self.dim), zeros((self.dim, n_outputs))
        size = self.dim if device.is_gpu else _TILE
        pieces = [slice(first, min(first + size, self.dim)) for first in range(0, self.dim, size)]
        tiles = [(rows, columns) for rows in pieces for columns in pieces if rows.start <= columns.start]

        def add(blocks: Matrix, some: slice) -> None:
            sums = blocks.sum(axis=0, dtype=np.float64)
            own = None if targets is None else blocks.T @ device.put(targets[some].astype(self.dtype))

            def add_tile(tile: tuple[slice, slice]) -> None:
                rows, columns = tile
                matrix[tile] += blocks[:, rows].T @ blocks[:, columns]

            # The last to ask for memory, of which a GPU may have too little: see `in_blocks`.
            run_tasks(add_tile, tiles, self.n_jobs)
            total.__iadd__(sums)
            if own is not None:
                linear.__iadd__(own)

        if device.is_gpu:
            self._go_over(lambda band: add(self.block(band), band))
        else:
            turns = max(1, _ROWS_AT_ONCE // bands(n, self.dim)[0].stop)
            for some in _in_turns(bands(n, self.dim), turns):
                blocks = np.concatenate(run_tasks(self.block, some, self.n_jobs))
                add(blocks, slice(some[0].start, some[-1].stop))
        matrix, total, linear = to_host(matrix), to_host(total), to_host(linear)
        matrix /= n
        for rows, columns in tiles:
            if rows != columns:
                matrix[columns, rows] = matrix[rows, columns].T
        self.means = total / n if self.intercept else np.zeros(self.dim)
        if self.intercept:
            matrix -= np.outer(self.means, self.means)
        self.gram = GramMatrix(matrix, self.n_jobs)
        return None if targets is None else linear / n

    def gradient(self, shares: Vector, weights: Vector) -> Vector:
        """Tell how a loss changes with each σ, given its derivatives by the scores, `(n_samples, k)`."""
        device = self.device
        held = device.hold(shares.astype(self.dtype))

        def of_channel(j: int) -> Vector:
            own = weights[self.groups[j]].T.astype(self.dtype)
            if not own.any():
                return np.zeros(len(self.maps[j].sigma_))
            ahead = device.put(own)

            def slopes(band: slice, _: Matrix) -> Matrix:
                return device.put(held[band]) @ ahead

            # Only this channel's features are made again: the others' do not depend on its σ.
            return self.maps[j].gradient_on(device, self.parts[j], slopes, self.sigmas()[j])

        return np.concatenate([of_channel(j) for j in range(len(self.maps))])

    def _go_over(self, work: Callable[[slice], None]) -> None:
        """Call `work` on blocks of rows, by threads; on a GPU one by one, smaller while memory is short."""
        if not self.device.is_gpu:
            run_tasks(work, bands(self.n_samples, self.dim), self.n_jobs)
            return

        def work_there(band: slice) -> None:
            try:
                work(band)
            except Exception as error:
                if is_out_of_memory(error):  # before blocks become smaller, nothing is kept
                    self._store, self._kept = {}, 0
                raise

        with self.device.use():
            in_blocks(work_there, self.n_samples, _ROWS_ON_A_GPU)


def _in_turns(tasks: list[slice], size: int) -> Iterator[list[slice]]:
    for first in range(0, len(tasks), size):
        yield tasks[first : first + size]
