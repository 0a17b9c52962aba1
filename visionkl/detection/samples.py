"""Samples: placements of a component, stored as the features that the solver sees.

A sample's features are the cells under its filters, its parts' displacements and the octave of its root.
Cells are kept as product-quantiser codes, a few hundred bytes a sample, or as plain numbers, up to 128 times
that. `visionkl.detection.objective` shows them to the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visionkl.detection.matching import Placements
from visionkl.detection.model import N_SCALE_BIASES, Component, MixtureModel
from visionkl.detection.parameters import filters_of, n_cells
from visionkl.features.hog import N_CHANNELS
from visionkl.features.pyramid import FeaturePyramid

_PICKED_TOGETHER = 4096


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of one model component.

    Parameters
    ----------
    features : ndarray, shape (n, n_features)
        Codes (unsigned integers) or cells (float32): the root's, row by row, then each part's.
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

    def __getitem__(self, rows: slice | npt.NDArray[np.generic]) -> Samples:
        return Samples(self.features[rows], self.shifts[rows], self.octaves[rows], self.keys[rows])

    @property
    def nbytes(self) -> int:
        """Memory they take."""
        return self.features.nbytes + self.shifts.nbytes + self.octaves.nbytes + self.keys.nbytes

    @staticmethod
    def join(many: Sequence[Samples]) -> Samples:
        """Put samples of one component together."""
        return Samples(
            np.concatenate([samples.features for samples in many]),
            np.concatenate([samples.shifts for samples in many]),
            np.concatenate([samples.octaves for samples in many]),
            np.concatenate([samples.keys for samples in many]),
        )

    @staticmethod
    def pick(many: Sequence[Samples], rows: npt.NDArray[np.intp]) -> Samples:
        """Take rows of samples of one component as if these were joined, which would need more memory.

        Codes come with the first ones of all samples side by side, and so on: that is how the solver reads
        them, and it needs no copy of its own then.
        """
        starts = np.cumsum([0, *map(len, many)])
        picked = {}
        for name in ("features", "shifts", "octaves", "keys"):
            pieces = [getattr(samples, name) for samples in many]
            shape, dtype = (len(rows), *pieces[0].shape[1:]), pieces[0].dtype
            codes = name == "features" and dtype.kind == "u"
            values = np.empty(shape, dtype, "F" if codes else "C")
            for first in range(0, len(rows), _PICKED_TOGETHER):
                some = rows[first : first + _PICKED_TOGETHER]
                owners = np.searchsorted(starts, some, side="right") - 1
                for number, piece in enumerate(pieces):
                    mine = np.flatnonzero(owners == number)
                    values[first + mine] = piece[some[mine] - starts[number]]
            picked[name] = values
        return Samples(**picked)

    def new_to(self, others: Samples) -> npt.NDArray[np.bool_]:
        """Tell which samples are not among the others: another root, or the same with parts elsewhere."""
        known = {row.tobytes() for row in others._identities()}
        return np.array([row.tobytes() not in known for row in self._identities()], dtype=bool)

    def _identities(self) -> npt.NDArray[np.int32]:
        shifts = self.shifts.reshape(len(self), 2 * self.shifts.shape[1])
        return np.concatenate([self.keys, shifts.astype(np.int32)], axis=1)


def no_samples(model: MixtureModel) -> tuple[Samples, ...]:
    """Return no samples of each component, of the kind that there will be."""
    books = model.codebooks
    depth, dtype = (N_CHANNELS, np.float32) if books is None else (books.n_blocks, books.code_dtype)
    return tuple(
        Samples(
            np.zeros((0, depth * n_cells(component)), dtype),
            np.zeros((0, len(component.parts), 2), np.int16),
            np.zeros(0, np.uint8),
            np.zeros((0, 4), np.int32),
        )
        for component in model.components
    )


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
    features = np.empty((len(mine), sum(h * w for h, w in shapes) * depth), pyramid.levels[0].dtype)
    for i in range(len(mine)):
        places = [(pyramid.levels[levels[i]], *roots[i])]
        places += [(pyramid.levels[levels[i] - pyramid.interval], *place) for place in parts[i]]
        features[i] = np.concatenate(
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
