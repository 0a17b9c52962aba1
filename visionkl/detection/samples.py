"""Samples: placements of a component, stored as the features that the solver sees.

A sample's features are the cells under its filters, its parts' displacements and the octave of its root.
Cells are kept as product-quantiser codes, a few hundred bytes a sample, or as plain numbers, 32 times that.
Learning never decodes: scores come from tables, and what the solver needs of many samples, a weighted sum of
their features, is a histogram of codes that is decoded once (METHODS §6, delayed expansion).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.samples import add_scores, add_weights
from visionkl.detection.matching import Placements
from visionkl.detection.model import N_SCALE_BIASES, Component, MixtureModel
from visionkl.detection.parameters import filters_of
from visionkl.features.hog import N_CHANNELS
from visionkl.features.pyramid import FeaturePyramid

Weights = npt.NDArray[np.float32]
Codebooks = npt.NDArray[np.float32]


class Cells(Protocol):
    """The cells of samples of one component, in one form or another."""

    def scores(self, weights: Weights) -> npt.NDArray[np.float32]:
        """Inner products `(n,)` with weights `(n_cells, 32)`."""
        ...

    def total(self, shares: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Sum of all samples' cells `(n_cells, 32)`, each times its share `(n,)`."""
        ...


@dataclass(frozen=True, eq=False)
class CodedCells:
    """Cells as codes.

    Parameters
    ----------
    codes : ndarray of uint8 or uint16, shape (n_cells * n_blocks, n)
    codebooks : ndarray of float32, shape (n_blocks, n_codewords, block_size)
    """

    codes: npt.NDArray[np.unsignedinteger]
    codebooks: Codebooks

    def scores(self, weights: Weights) -> npt.NDArray[np.float32]:
        """Inner products `(n,)` with weights `(n_cells, 32)`."""
        scores = np.zeros(self.codes.shape[1], np.float32)
        add_scores(self.codes, code_tables(weights, self.codebooks), scores)
        return scores

    def total(self, shares: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Sum of all samples' cells `(n_cells, 32)`, each times its share `(n,)`."""
        n_blocks, n_codewords, _ = self.codebooks.shape
        tables = np.zeros((len(self.codes), n_codewords))
        add_weights(self.codes, shares, tables)
        by_block = tables.reshape(-1, n_blocks, n_codewords).transpose(1, 0, 2)
        decoded = by_block @ self.codebooks
        return decoded.transpose(1, 0, 2).reshape(len(self.codes) // n_blocks, N_CHANNELS)


@dataclass(frozen=True, eq=False)
class PlainCells:
    """Cells as numbers.

    Parameters
    ----------
    cells : ndarray of float32, shape (n_cells * 32, n)
    """

    cells: npt.NDArray[np.float32]

    def scores(self, weights: Weights) -> npt.NDArray[np.float32]:
        """Inner products `(n,)` with weights `(n_cells, 32)`."""
        return weights.reshape(-1).astype(np.float32) @ self.cells

    def total(self, shares: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Sum of all samples' cells `(n_cells, 32)`, each times its share `(n,)`."""
        return (self.cells @ shares).reshape(-1, N_CHANNELS).astype(np.float64)


def code_tables(weights: Weights, codebooks: Codebooks) -> Weights:
    """Scores `(n_cells * n_blocks, n_codewords)` of all codewords under weights `(n_cells, 32)`."""
    n_blocks, n_codewords, size = codebooks.shape
    blocks = np.ascontiguousarray(weights, dtype=np.float32).reshape(-1, n_blocks, size).transpose(1, 0, 2)
    return np.ascontiguousarray((blocks @ codebooks.transpose(0, 2, 1)).transpose(1, 0, 2)).reshape(
        -1, n_codewords
    )


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of one model component.

    Parameters
    ----------
    features : ndarray, shape (n_features, n)
        Codes (unsigned integers) or cells (float32), samples last.
    shifts : ndarray of int16, shape (n, n_parts, 2)
        `(dx, dy)` of each part: placed minus anchor.
    octaves : ndarray of uint8, shape (n,)
        Which scale bias applies.
    keys : ndarray of int32, shape (n, 4)
        Picture, level, row and column of the root: where the sample comes from.
    """

    features: npt.NDArray[np.generic]
    shifts: npt.NDArray[np.int16]
    octaves: npt.NDArray[np.uint8]
    keys: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.octaves)

    def __getitem__(self, rows: npt.NDArray[np.generic]) -> Samples:
        return Samples(
            np.ascontiguousarray(self.features[:, rows]),
            self.shifts[rows],
            self.octaves[rows],
            self.keys[rows],
        )

    @property
    def nbytes(self) -> int:
        """Memory they take."""
        return self.features.nbytes + self.shifts.nbytes + self.octaves.nbytes + self.keys.nbytes

    @staticmethod
    def join(many: Sequence[Samples]) -> Samples:
        """Put samples of one component together."""
        return Samples(
            np.concatenate([samples.features for samples in many], axis=1),
            np.concatenate([samples.shifts for samples in many]),
            np.concatenate([samples.octaves for samples in many]),
            np.concatenate([samples.keys for samples in many]),
        )

    def new_to(self, others: Samples) -> npt.NDArray[np.bool_]:
        """Tell which samples are not among the others: another root, or the same with parts elsewhere."""
        known = {row.tobytes() for row in others._identities()}
        return np.array([row.tobytes() not in known for row in self._identities()], dtype=bool)

    def _identities(self) -> npt.NDArray[np.int32]:
        return np.concatenate([self.keys, self.shifts.reshape(len(self), -1).astype(np.int32)], axis=1)


def collect_samples(
    model: MixtureModel, pyramid: FeaturePyramid, placements: Placements, picture: int
) -> list[Samples]:
    """Take the features under placements, component by component.

    The pyramid may hold codes or plain cells.
    """
    collected = []
    for number, component in enumerate(model.components):
        mine = np.nonzero(placements.components == number)[0]
        collected.append(_collect(component, pyramid, placements, mine, picture))
    return collected


def _collect(
    component: Component,
    pyramid: FeaturePyramid,
    placements: Placements,
    mine: npt.NDArray[np.intp],
    picture: int,
) -> Samples:
    roots, levels = placements.roots[mine], placements.levels[mine]
    parts = placements.parts[mine, : len(component.parts)]
    depth = pyramid.levels[0].shape[2]
    shapes = [filter_.shape[:2] for filter_ in filters_of(component)]
    features = np.empty((sum(h * w for h, w in shapes) * depth, len(mine)), pyramid.levels[0].dtype)
    for i in range(len(mine)):
        places = [(pyramid.levels[levels[i]], *roots[i])]
        places += [(pyramid.levels[levels[i] - pyramid.interval], *place) for place in parts[i]]
        features[:, i] = np.concatenate(
            [
                level[row : row + h, col : col + w].reshape(-1)
                for (level, row, col), (h, w) in zip(places, shapes, strict=True)
            ]
        )
    anchors = np.array([part.anchor for part in component.parts], np.int64).reshape(-1, 2)
    rooted = (2 * roots - np.array(pyramid.padding))[:, None, ::-1] + anchors
    return Samples(
        features,
        (parts[:, :, ::-1] - rooted).astype(np.int16),
        np.minimum(levels // pyramid.interval, N_SCALE_BIASES - 1).astype(np.uint8),
        np.column_stack([np.full(len(mine), picture), levels, roots]).astype(np.int32),
    )
