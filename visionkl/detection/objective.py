"""What training minimises: a latent SVM with its latent choices fixed (METHODS §10).

    ½ Σ_j r_j v_j²  +  Σ_i C_i max(0, 1 - y_i ⟨v, φ_i⟩)

over positive samples, whose placements were chosen by the model so far, and negative ones, mined from the
background. Several placements of a component with the same root are one negative sample, whose score is that
of the best. Errors on positives cost more, because negatives are many: with equal costs the best answer would
be to take everything for background. The vector v and the multipliers r are those of
`visionkl.detection.parameters`.

`PlacementRows` shows samples to the solver as rows of a matrix that is never made: a component's samples are
codes or plain cells, with the deformations and biases beside them. On codes, scores come from tables, and the
sum of many samples is a histogram of codes that is decoded once (METHODS §6, delayed expansion).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device
from visionkl.coding.codebooks import Codebooks
from visionkl.detection.model import N_SCALE_BIASES
from visionkl.detection.parameters import BIAS_GAIN, Parameters, Vector, mirror_cells
from visionkl.detection.samples import Samples
from visionkl.features.hog import N_CHANNELS
from visionkl.solvers.bundle import BundleResult, minimise
from visionkl.solvers.losses import Risk
from visionkl.solvers.metrics import DiagonalMetric
from visionkl.solvers.rows import CodedRows, DenseRows, Rows

# Of a mirrored component, the shared vector sees displacements to the left as displacements to the right.
_SIGNS = np.array([[1, 1, 1, 1], [1, -1, 1, 1]], np.float64)


def solve(
    parameters: Parameters,
    start: Vector,
    positives: Sequence[Samples],
    negatives: Sequence[Samples],
    codebooks: Codebooks | None,
    *,
    costs: tuple[float, float],
    tol: float,
    max_passes: int,
    n_jobs: int | None = None,
    device: Device = CPU,
) -> BundleResult:
    """Minimise the objective over the samples of each model component.

    The costs are those of negative and of positive samples. The result's values are the objective divided by
    the number of samples. A GPU goes over the cells of samples; all else is the CPU's.
    """
    risk = _risk(parameters, positives, negatives, codebooks, costs, n_jobs, device)
    return minimise(
        risk,
        DiagonalMetric(parameters.regularisation()),
        regularisation=1 / len(risk.labels),
        lower=parameters.lower_bounds(),
        start=start,
        tol=tol,
        max_passes=max_passes,
        n_jobs=n_jobs,
    )


def objective(
    parameters: Parameters,
    vector: Vector,
    positives: Sequence[Samples],
    negatives: Sequence[Samples],
    codebooks: Codebooks | None,
    costs: tuple[float, float],
    n_jobs: int | None = None,
    device: Device = CPU,
) -> float:
    """Return the value of the objective at a vector."""
    risk = _risk(parameters, positives, negatives, codebooks, costs, n_jobs, device)
    losses = len(risk.labels) * risk.loss(risk.scores(vector))
    return 0.5 * float(parameters.regularisation() @ vector**2) + losses


def _risk(
    parameters: Parameters,
    positives: Sequence[Samples],
    negatives: Sequence[Samples],
    codebooks: Codebooks | None,
    costs: tuple[float, float],
    n_jobs: int | None,
    device: Device,
) -> Risk:
    rows = PlacementRows(parameters, [*positives, *negatives], codebooks, n_jobs=n_jobs, device=device)
    n_positives = sum(map(len, positives))
    groups = np.concatenate([np.arange(n_positives), n_positives + _groups(negatives)])
    labels = np.where(np.arange(groups.max() + 1) < n_positives, 1, -1)
    return Risk(rows, labels, bias=0.0, groups=groups, class_weights=costs)


def _groups(negatives: Sequence[Samples]) -> npt.NDArray[np.intp]:
    """Return the number of the sample that each row stands for; rows must be sorted by their roots."""
    first: list[npt.NDArray[np.bool_]] = [np.zeros(0, bool)]
    for samples in negatives:
        new = np.ones(len(samples), bool)
        new[1:] = (samples.keys[1:] != samples.keys[:-1]).any(axis=1)
        first.append(new)
    return np.cumsum(np.concatenate(first)) - 1


class PlacementRows:
    """Samples of all components as rows; see the head of this module.

    Parameters
    ----------
    parameters : Parameters
    samples : sequence of Samples
        For each model component in turn: learned component 0, its mirror image, learned component 1, ...;
        then, if there are more, for each component again.
    codebooks : Codebooks or None
        What the samples' codes stand for; None if they are plain cells.
    n_jobs : int, optional
        Threads; all usable cores by default.
    device : visionkl.backend.dispatch.Device
        Where the cells of samples are gone over.
    """

    def __init__(
        self,
        parameters: Parameters,
        samples: Sequence[Samples],
        codebooks: Codebooks | None,
        *,
        n_jobs: int | None = None,
        device: Device = CPU,
    ) -> None:
        self.dim = parameters.size
        n_components = 2 * len(parameters.components)
        self._blocks: list[_Block] = []
        self.n_rows = 0
        for number, some in enumerate(samples):
            if len(some):
                self._blocks.append(
                    _Block(parameters, number % n_components, some, codebooks, self.n_rows, n_jobs, device)
                )
                self.n_rows += len(some)

    def scores(self, v: Vector) -> Vector:
        """Return scores `(n_rows,)` of all samples."""
        return np.concatenate([block.scores(v) for block in self._blocks])

    def combine(self, shares: Vector, first: int = 0) -> Vector:
        """Return sums `(k, dim)` of the samples `first, first + 1, ...` times `shares (k, m)`."""
        total = np.zeros((len(shares), self.dim))
        last = first + shares.shape[1]
        for block in self._blocks:
            low, high = max(first, block.first), min(last, block.first + block.n_rows)
            if low < high:
                block.add_total(shares[:, low - first : high - first], low - block.first, total)
        return total


class _Block:
    """Samples of one model component."""

    def __init__(
        self,
        parameters: Parameters,
        number: int,
        samples: Samples,
        codebooks: Codebooks | None,
        first: int,
        n_jobs: int | None,
        device: Device,
    ) -> None:
        self.first, self.n_rows = first, len(samples)
        self._component = parameters.components[number // 2]
        self._where = parameters.blocks[number // 2]
        self._flipped = number % 2 == 1
        self._codebooks = codebooks
        self._cells: Rows = (
            DenseRows(samples.features, n_jobs=n_jobs, device=device)
            if codebooks is None
            else CodedRows(samples.features, codebooks.n_codewords, n_jobs=n_jobs, device=device)
        )
        dx, dy = samples.shifts[..., 0].astype(np.float64), samples.shifts[..., 1].astype(np.float64)
        deformations = np.stack([dx**2, dx, dy**2, dy], axis=-1)
        np.negative(deformations, out=deformations)  # in place: there are many of them
        deformations *= _SIGNS[int(self._flipped)]
        self._deformations = deformations.reshape(len(samples), 4 * samples.shifts.shape[1])
        self._octaves = np.eye(N_SCALE_BIASES)[samples.octaves]

    def scores(self, v: Vector) -> Vector:
        where = self._where
        weights = self._own(v[where.cells].reshape(-1, N_CHANNELS))
        cells = weights if self._codebooks is None else self._codebooks.tables(weights)
        return (
            self._cells.scores(cells.reshape(-1).astype(np.float64))
            + self._deformations @ v[where.deformations]
            + self._octaves @ v[where.scale_bias]
            + BIAS_GAIN * v[where.bias]
        )

    def add_total(self, shares: Vector, first: int, total: Vector) -> None:
        where, rows = self._where, np.s_[first : first + shares.shape[1]]
        for k, cells in enumerate(self._cells.combine(shares, first)):
            total[k, where.cells] += self._own(self._decoded(cells)).reshape(-1)
        total[:, where.deformations] += shares @ self._deformations[rows]
        total[:, where.scale_bias] += shares @ self._octaves[rows]
        total[:, where.bias] += BIAS_GAIN * shares.sum(axis=1)

    def _decoded(self, cells: Vector) -> npt.NDArray[np.floating]:
        if self._codebooks is None:
            return cells.reshape(-1, N_CHANNELS)
        books = self._codebooks
        return books.totals(cells.reshape(-1, books.n_blocks, books.n_codewords))

    def _own(self, cells: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        return mirror_cells(self._component, cells) if self._flipped else cells
