"""What training minimises: a latent SVM with its latent choices fixed (METHODS §10).

    ½ Σ_j r_j v_j²  +  C Σ_i max(0, 1 - y_i ⟨v, φ_i⟩)

over positive samples, whose placements were chosen by the model so far, and negative ones, mined from
pictures without the object. `HingeOracle` gives the second sum and its gradient; the vector v and the
multipliers r are those of `visionkl.detection.parameters`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from visionkl.detection.parameters import (
    BIAS_GAIN,
    Parameters,
    Vector,
    mirror_cells,
)
from visionkl.detection.samples import Cells, Codebooks, CodedCells, PlainCells, Samples

# Of a mirrored component, the shared vector sees displacements to the left as displacements to the right.
_SIGNS = np.array([[1, 1, 1, 1], [1, -1, 1, 1]], np.float64)


class HingeOracle:
    """The hinge loss of samples of a mixture, and its gradient.

    Parameters
    ----------
    parameters : Parameters
    positives, negatives : sequence of Samples
        One for each model component: learned component 0, its mirror image, learned component 1, ...
    cost : float
        C, the price of an error of size 1.
    codebooks : ndarray or None
        What the samples' codes stand for; None if they are plain cells.
    """

    def __init__(
        self,
        parameters: Parameters,
        positives: Sequence[Samples],
        negatives: Sequence[Samples],
        cost: float,
        codebooks: Codebooks | None,
    ) -> None:
        self.parameters = parameters
        self.cost = cost
        self._groups = [
            _Group(parameters, number, sign, samples, codebooks)
            for sign, side in ((1.0, positives), (-1.0, negatives))
            for number, samples in enumerate(side)
            if len(samples)
        ]

    def __call__(self, vector: Vector) -> tuple[float, Vector]:
        """Return the loss at a vector, and a sub-gradient."""
        loss = 0.0
        gradient = np.zeros(self.parameters.size)
        for group in self._groups:
            margins = group.sign * group.scores(vector)
            short = 1.0 - margins
            wrong = short > 0
            loss += float(short[wrong].sum(dtype=np.float64))
            group.add_total(np.where(wrong, -group.sign * self.cost, 0.0).astype(np.float32), gradient)
        return self.cost * loss, gradient

    def margins(self, vector: Vector) -> npt.NDArray[np.float64]:
        """Return y_i ⟨v, φ_i⟩ of all samples; linear in the vector, which makes exact line searches cheap."""
        return np.concatenate([group.sign * group.scores(vector) for group in self._groups])


class _Group:
    """Samples of one model component on one side."""

    def __init__(
        self, parameters: Parameters, number: int, sign: float, samples: Samples, codebooks: Codebooks | None
    ) -> None:
        self.sign = sign
        self._component = parameters.components[number // 2]
        self._block = parameters.blocks[number // 2]
        self._flipped = number % 2 == 1
        self._parameters = parameters
        self._cells: Cells = (
            PlainCells(samples.features) if codebooks is None else CodedCells(samples.features, codebooks)  # type: ignore[arg-type]
        )
        dx, dy = samples.shifts[..., 0].astype(np.float64), samples.shifts[..., 1].astype(np.float64)
        deformations = -np.stack([dx**2, dx, dy**2, dy], axis=-1) * _SIGNS[int(self._flipped)]
        self._deformations = deformations.reshape(len(samples), -1)
        self._octaves = np.eye(3)[samples.octaves]

    def scores(self, vector: Vector) -> npt.NDArray[np.float64]:
        block = self._block
        return (
            self._cells.scores(self._own(vector[block.cells].reshape(-1, 32)))
            + self._deformations @ vector[block.deformations]
            + self._octaves @ vector[block.scale_bias]
            + BIAS_GAIN * vector[block.bias]
        )

    def add_total(self, shares: npt.NDArray[np.float32], gradient: Vector) -> None:
        block = self._block
        gradient[block.cells] += self._own(self._cells.total(shares)).reshape(-1)
        gradient[block.deformations] += shares @ self._deformations
        gradient[block.scale_bias] += shares @ self._octaves
        gradient[block.bias] += BIAS_GAIN * float(shares.sum(dtype=np.float64))

    def _own(self, cells: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        return mirror_cells(self._component, cells) if self._flipped else cells
