"""Gaussians with diagonal covariances, ready for computing: densities, posteriors, and sums weighted by them.

The formulas are those of `visionkl.features.gmm`, which learns mixtures; Fisher vectors
(`visionkl.features.fisher`) are made of the same sums. Rows go through in blocks: on the CPU such that they
stay in the cache, and on a GPU in larger ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device, device_of
from visionkl.backend.gpu.device import in_blocks
from visionkl.backend.scratch import scratch

#: Rows of a block: its features and posteriors fit into a core's own cache.
BLOCK_ROWS = 512
# On a GPU; float32 sums of more would lose digits.
_BLOCK_ROWS_ON_A_GPU = 8192
# Sums over posteriors are a product of matrices where more than this share of them counts.
_MANY = 1 / 8

Floats = npt.NDArray[np.floating[Any]]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Mixture:
    """Gaussians with diagonal covariances.

    Parameters
    ----------
    weights : ndarray of float64, shape (n_components,)
    means, variances : ndarray of float64, shape (n_components, n_features)
    """

    weights: Doubles
    means: Doubles
    variances: Doubles

    def moments(self) -> tuple[Doubles, Doubles]:
        """Return the mean and the standard deviation of each feature in the mixture as a whole."""
        centre = self.weights @ self.means
        return centre, np.sqrt(self.weights @ (self.variances + (self.means - centre) ** 2))


class Densities:
    """A mixture made ready for computing: the matrix that turns features into logarithms of densities.

    Parameters
    ----------
    mixture : Mixture
    dtype : data type
        float32 or float64: the precision of products.
    scaling : tuple of ndarray, optional
        What features are centred at and divided by; the mixture's own moments by default.
    device : visionkl.backend.dispatch.Device
        Where rows will be.

    Attributes
    ----------
    centre, scale : ndarray of float64, shape (d,)
    means, variances : ndarray of float64, shape (n_components, d)
        Of the scaled features.
    n_features : int
        `2d + 1`: what `features` makes of a row, that is the scaled row, its squares, and a one.
    matrix : ndarray, shape (n_features, n_components)
        On the device.
    block_rows : int
        How many rows should go through at a time.
    """

    def __init__(
        self,
        mixture: Mixture,
        dtype: npt.DTypeLike,
        scaling: tuple[Doubles, Doubles] | None = None,
        device: Device = CPU,
    ) -> None:
        self.device = device
        self.block_rows = _BLOCK_ROWS_ON_A_GPU if device.is_gpu else BLOCK_ROWS
        self.dtype = np.dtype(dtype)
        self.centre, self.scale = scaling or mixture.moments()
        self.means = (mixture.means - self.centre) / self.scale
        self.variances = mixture.variances / self.scale**2
        self.size = mixture.means.shape[1]
        self.n_features = 2 * self.size + 1
        constants = np.log(mixture.weights) - np.log(2 * np.pi * mixture.variances).sum(axis=1) / 2
        constants -= (self.means**2 / self.variances).sum(axis=1) / 2
        rows = (self.means / self.variances, -0.5 / self.variances, constants[:, None])
        self.matrix = device.put(np.ascontiguousarray(np.concatenate(rows, axis=1).T, self.dtype))
        self._centre = device.put(self.centre.astype(self.dtype))
        self._factor = device.put((1 / self.scale).astype(self.dtype))

    @property
    def n_components(self) -> int:
        """Number of Gaussians."""
        return self.matrix.shape[1]

    def features(self, rows: Floats, out: Floats) -> Floats:
        """Write the features of rows `(n, d)` into the first `n` rows of `out`, and return those."""
        out = out[: len(rows)]
        scaled = out[:, : self.size]
        self.device.namespace.subtract(rows, self._centre, out=scaled)
        scaled *= self._factor
        return self.complete(out)

    def complete(self, features: Floats) -> Floats:
        """Write squares and ones beside scaled rows, which stand in the first columns."""
        scaled = features[:, : self.size]
        self.device.namespace.multiply(scaled, scaled, out=features[:, self.size : -1])
        features[:, -1] = 1
        return features

    def posteriors(self, features: Floats, out: Floats) -> tuple[Floats, int]:
        """Write the posteriors of features into `out`; return log-likelihoods, and how many count."""
        xp = self.device.namespace
        xp.matmul(features, self.matrix, out=out)
        log_likelihoods = xp.empty(len(features), self.dtype)
        n_relevant = self.device.loops("mixture").posteriors_into(out, log_likelihoods)
        return log_likelihoods, n_relevant

    def room(self, n_rows: int | None = None) -> tuple[Floats, Floats]:
        """Allocate memory for the features and the posteriors of a block, or of some rows."""
        xp, n = self.device.namespace, self.block_rows if n_rows is None else n_rows
        return xp.empty((n, self.n_features), self.dtype), xp.empty((n, self.n_components), self.dtype)

    def go_over(self, work: Callable[[slice], None], n_rows: int) -> None:
        """Call `work` on blocks of rows; on a GPU, on smaller ones while memory is short."""
        if self.device.is_gpu:
            with self.device.use():
                in_blocks(work, n_rows, self.block_rows)
        else:
            for block in blocks_of(slice(0, n_rows)):
                work(block)


def add_sums(posteriors: Floats, features: Floats, n_relevant: int, total: Doubles) -> None:
    """Add to `total` the sums of a block's features, weighted by posteriors.

    Parameters
    ----------
    posteriors : ndarray, shape (n, n_components)
    features : ndarray, shape (n, n_features)
    n_relevant : int
        How many posteriors are not negligible. In float32, where they are few, only those count.
    total : ndarray of float64, shape (n_components, n_features)
    """
    device = device_of(total)
    add_relevant = device.loops("mixture").add_relevant
    if device.is_gpu:
        add_relevant(posteriors, features, total)
    elif features.dtype == np.float32 and n_relevant < _MANY * posteriors.size:
        sums = scratch("mixture sums", total.shape, np.float32)
        sums[:] = 0
        add_relevant(posteriors, features, sums)
        total += sums
    else:
        total += posteriors.T @ features


def blocks_of(part: slice) -> Iterator[slice]:
    """Cut rows into blocks."""
    for start in range(part.start, part.stop, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, part.stop))
