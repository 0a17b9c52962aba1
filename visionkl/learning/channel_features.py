"""The Fourier features of all channels of some samples, a block of rows at a time (METHODS §7).

Features are made whenever they are needed, and are kept only as far as they fit into a given number of bytes:
learning with the squared loss passes over them once, other losses often. Threads share blocks or tiles of the
result, and sums are made in the order of the rows, so nothing depends on how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.threads import run_tasks
from visionkl.kernels.fourier import FourierMap
from visionkl.kernels.mapping import bands
from visionkl.solvers.proximal import GramMatrix

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]

_TILE = 512
_ROWS_AT_ONCE = 2048
_SUMS_AT_ONCE = 8


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
    ) -> None:
        self.parts, self.maps = list(parts), list(maps)
        self.intercept = intercept
        self.n_jobs = n_jobs
        self.dtype = np.dtype(parts[0].dtype)
        ends = np.cumsum([fourier.n_components for fourier in maps])
        starts = ends - [fourier.n_components for fourier in maps]
        self.groups = [slice(int(first), int(last)) for first, last in zip(starts, ends, strict=True)]
        self.n_samples, self.dim = len(parts[0]), int(ends[-1])
        self.sigma = np.concatenate([fourier.sigma_ for fourier in maps]) if sigma is None else sigma
        self._projections = [
            fourier.basis_.projection(own[fourier.groups_], self.dtype)
            for fourier, own in zip(maps, self.sigmas(), strict=True)
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
            self.parts, self.maps, sigma=sigma, keep=kept, intercept=self.intercept, n_jobs=self.n_jobs
        )

    def block(self, band: slice) -> Matrix:
        """Return the features of some rows."""
        if band.start in self._store and len(self._store[band.start]) == band.stop - band.start:
            return self._store[band.start]
        out = np.empty((band.stop - band.start, self.dim), self.dtype)
        for fourier, part, group, projection in zip(
            self.maps, self.parts, self.groups, self._projections, strict=True
        ):
            inputs = fourier.basis_.inputs(part[band])
            own = np.empty((len(out), fourier.n_components), self.dtype)
            out[:, group] = fourier.basis_.features(inputs, projection, own)
        if band.stop <= self._kept:
            self._store[band.start] = out
        return out

    def scores(self, weights: Vector) -> Vector:
        """Return Φ w, `(n_samples, n_outputs)`: one pass over the data."""
        own = np.ascontiguousarray(weights, dtype=self.dtype)
        out = np.empty((self.n_samples, own.shape[1]))

        def score(band: slice) -> None:
            out[band] = self.block(band) @ own

        run_tasks(score, bands(self.n_samples, self.dim), self.n_jobs)
        return out

    def combine(self, shares: Vector) -> Vector:
        """Return Φᵀ shares, `(n_features, n_outputs)`: one pass over the data."""
        own = np.ascontiguousarray(shares, dtype=self.dtype)
        total = np.zeros((self.dim, own.shape[1]))
        for some in _in_turns(bands(self.n_samples, self.dim), _SUMS_AT_ONCE):
            for share in run_tasks(lambda band: self.block(band).T @ own[band], some, self.n_jobs):
                total += share
        return total

    def sum_up(self, targets: Vector | None = None) -> Vector | None:
        """Make `gram` and `means` in one pass; return Φᵀ targets / n of targets `(n_samples, n_outputs)`."""
        n = self.n_samples
        matrix = np.zeros((self.dim, self.dim))
        total = np.zeros(self.dim)
        linear = None if targets is None else np.zeros((self.dim, targets.shape[1]))
        pieces = [slice(first, min(first + _TILE, self.dim)) for first in range(0, self.dim, _TILE)]
        tiles = [(rows, columns) for rows in pieces for columns in pieces if rows.start <= columns.start]
        for some in _in_turns(bands(n, self.dim), max(1, _ROWS_AT_ONCE // bands(n, self.dim)[0].stop)):
            blocks = np.concatenate(run_tasks(self.block, some, self.n_jobs))

            def add(tile: tuple[slice, slice], blocks: Matrix = blocks) -> None:
                rows, columns = tile
                matrix[tile] += blocks[:, rows].T @ blocks[:, columns]

            run_tasks(add, tiles, self.n_jobs)
            total += blocks.sum(axis=0, dtype=np.float64)
            if targets is not None and linear is not None:
                linear += blocks.T @ targets[some[0].start : some[-1].stop].astype(self.dtype)
        matrix /= n
        for rows, columns in tiles:
            matrix[columns, rows] = matrix[rows, columns].T
        self.means = total / n if self.intercept else np.zeros(self.dim)
        if self.intercept:
            matrix -= np.outer(self.means, self.means)
        self.gram = GramMatrix(matrix, self.n_jobs)
        return None if linear is None else linear / n

    def gradient(self, shares: Vector, weights: Vector) -> Vector:
        """Tell how a loss changes with each σ, given its derivatives by the scores, `(n_samples, k)`."""
        shares = shares.astype(self.dtype)

        def of_channel(j: int) -> Vector:
            own = weights[self.groups[j]].T.astype(self.dtype)
            if not own.any():
                return np.zeros(len(self.maps[j].sigma_))
            # Only this channel's features are made again: the others' do not depend on its σ.
            return self.maps[j].gradient(self.parts[j], lambda band, _: shares[band] @ own, self.sigmas()[j])

        return np.concatenate([of_channel(j) for j in range(len(self.maps))])


def _in_turns(tasks: list[slice], size: int) -> Iterator[list[slice]]:
    for first in range(0, len(tasks), size):
        yield tasks[first : first + size]
