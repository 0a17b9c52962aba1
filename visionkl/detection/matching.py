"""Matching: where in a pyramid a model's components fit, and where their parts go.

For each level that may hold a root, the parts' responses one octave finer are transformed (`distance`),
sampled at every second anchor and added to the root's. At each place the best component counts. Where its
score passes the threshold, the placement of its parts is looked up: only there, so that no table of
arg-maxima is ever stored.

An anchor must lie on the part's level, and a part reaches at most as far as the level goes: both are the
published models' rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.matching import add_parts
from visionkl.backend.threads import run_tasks
from visionkl.detection.distance import place_parts, transform_parts
from visionkl.detection.filters import DenseFilters, TableFilters
from visionkl.detection.model import N_SCALE_BIASES, MixtureModel
from visionkl.features.pyramid import FeaturePyramid


@dataclass(frozen=True)
class Placements:
    """Placements of a model in a pyramid, one row each.

    Parameters
    ----------
    scores : ndarray of float32, shape (n,)
    components, levels : ndarray of int64, shape (n,)
        Which component, and on which level its root lies.
    roots : ndarray of int64, shape (n, 2)
        `(row, col)` of the root's first cell on its (padded) level.
    parts : ndarray of int64, shape (n, n_parts, 2)
        `(row, col)` of each part's first cell on its level, one octave finer; -1 for parts a component does
        not have.
    """

    scores: npt.NDArray[np.float32]
    components: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int64]
    roots: npt.NDArray[np.int64]
    parts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scores)


#: Chooses placements on a level from its number and its scores `(n_components, rows, cols)`: returns the
#: components `(n,)` and the roots' places `(n, 2)`.
Choice = Callable[[int, npt.NDArray[np.float32]], tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]


class Matcher:
    """A model made ready for matching: on codes if the model has codebooks, and else on plain cells.

    Parameters
    ----------
    model : MixtureModel
    """

    def __init__(self, model: MixtureModel) -> None:
        self.model = model
        parts = [part for component in model.components for part in component.parts]
        roots = [component.root for component in model.components]
        self._roots: DenseFilters | TableFilters
        self._parts: DenseFilters | TableFilters
        if model.codebooks is None:
            self._roots = DenseFilters(roots, together=True)
            self._parts = DenseFilters([part.weights for part in parts])
        else:
            self._roots = TableFilters(roots, model.codebooks, dtype="int16")
            self._parts = TableFilters([part.weights for part in parts], model.codebooks, dtype="int16")
        self._costs = [np.stack([parts[i].deformation for i in group]) for group in self._parts.groups]
        self._smallest = tuple(np.min(model.filter_shapes, axis=0))
        self._wiring = self._wire_parts()

    def _wire_parts(self) -> list[list[_PartsOfGroup]]:
        """For each component, which parts of which group are its own."""
        place_in_group = {
            n: (g, i) for g, group in enumerate(self._parts.groups) for i, n in enumerate(group)
        }
        wiring = []
        number = 0
        for component in self.model.components:
            of_group: dict[int, _PartsOfGroup] = {}
            for slot, part in enumerate(component.parts):
                group, index = place_in_group[number]
                own = of_group.setdefault(group, _PartsOfGroup(group, [], [], []))
                own.slots.append(slot)
                own.indices.append(index)
                own.anchors.append((part.anchor[1], part.anchor[0]))
                number += 1
            wiring.append(list(of_group.values()))
        return wiring

    def match(self, pyramid: FeaturePyramid, threshold: float, n_jobs: int | None = None) -> Placements:
        """Find all placements that score above `threshold`.

        At each place of a root, only the best component's.
        """

        def choose(
            level: int, scores: npt.NDArray[np.float32]
        ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
            roots = np.argwhere(scores.max(axis=0) > threshold)
            return scores[:, roots[:, 0], roots[:, 1]].argmax(axis=0), roots

        return self.place(pyramid, choose, n_jobs=n_jobs)

    def place(
        self,
        pyramid: FeaturePyramid,
        choose: Choice,
        levels: Iterable[int] | None = None,
        n_jobs: int | None = None,
    ) -> Placements:
        """Score levels, all that may hold a root by default, and place the parts of what is chosen there."""
        found = run_tasks(
            lambda level: self._place_on_level(pyramid, level, choose),
            self.root_levels(pyramid) if levels is None else levels,
            n_jobs,
        )
        none = Placements(*(np.zeros(shape, dtype) for shape, dtype in self._empty()))
        return Placements(
            *(
                np.concatenate([getattr(part, name) for part in (none, *found)])
                for name in ("scores", "components", "levels", "roots", "parts")
            )
        )

    def root_levels(self, pyramid: FeaturePyramid) -> range:
        """Levels that may hold a root: all but the first octave, which is for parts."""
        return range(pyramid.interval, len(pyramid))

    def level_scores(self, pyramid: FeaturePyramid, level: int) -> npt.NDArray[np.float32]:
        """Scores `(n_components, rows, cols)` of each component's root at each place of a level.

        -inf where it cannot be.
        """
        return self._score_level(pyramid, level)[0]

    def _empty(self) -> list[tuple[tuple[int, ...], type]]:
        n_parts = self.model.n_parts
        return [
            ((0,), np.float32),
            ((0,), np.int64),
            ((0,), np.int64),
            ((0, 2), np.int64),
            ((0, n_parts, 2), np.int64),
        ]

    def _score_level(
        self, pyramid: FeaturePyramid, level: int
    ) -> tuple[npt.NDArray[np.float32], list[npt.NDArray[np.float32]]]:
        """Scores as in `level_scores`, and the responses of each group of parts one octave finer."""
        responses = []
        transformed = []
        if self._parts.groups:
            finer = pyramid.levels[level - pyramid.interval]
            rows, cols = self._places(finer)
            for group, costs in enumerate(self._costs):
                responses.append(self._parts.responses(finer, group))
                transformed.append(
                    transform_parts(responses[-1], costs, self.model.max_displacement, rows, cols)
                )
        scores = np.full(
            (len(self.model.components), *self._places(pyramid.levels[level])), -np.inf, np.float32
        )
        octave = min(level // pyramid.interval, N_SCALE_BIASES - 1)
        for group, numbers in enumerate(self._roots.groups):
            root_responses = self._roots.responses(pyramid.levels[level], group)
            for i, number in enumerate(numbers):
                component = self.model.components[number]
                rows, cols = (
                    max(edge - size + 1, 0)
                    for edge, size in zip(pyramid.levels[level].shape, component.root.shape[:2], strict=False)
                )
                own = root_responses[:rows, :cols, i] + np.float32(
                    component.bias + component.scale_bias[octave]
                )
                for parts in self._wiring[number]:
                    offsets = np.array(parts.anchors, np.int64) - pyramid.padding
                    add_parts(transformed[parts.group], np.array(parts.indices, np.int64), offsets, own)
                scores[number, : own.shape[0], : own.shape[1]] = own
        return scores, responses

    def _place_on_level(self, pyramid: FeaturePyramid, level: int, choose: Choice) -> Placements:
        scores, responses = self._score_level(pyramid, level)
        components, roots = choose(level, scores)
        parts = np.full((len(roots), self.model.n_parts, 2), -1, np.int64)
        for number in np.unique(components):
            mine = np.nonzero(components == number)[0]
            for own in self._wiring[number]:
                n = len(own.slots)
                anchors = (2 * roots[mine] - pyramid.padding)[:, None] + np.array(own.anchors)
                placed = place_parts(
                    responses[own.group],
                    self._costs[own.group],
                    self.model.max_displacement,
                    anchors.reshape(-1, 2),
                    np.tile(np.array(own.indices, np.int64), len(mine)),
                )
                parts[mine[:, None], own.slots] = placed.reshape(len(mine), n, 2)
        return Placements(
            scores[components, roots[:, 0], roots[:, 1]],
            components,
            np.full(len(roots), level, np.int64),
            roots,
            parts,
        )

    def _places(self, level: npt.NDArray[Any]) -> tuple[int, int]:
        """Places on a level: as many as the smallest filter has."""
        return max(level.shape[0] - self._smallest[0] + 1, 0), max(level.shape[1] - self._smallest[1] + 1, 0)


@dataclass(frozen=True)
class _PartsOfGroup:
    group: int
    slots: list[int]
    indices: list[int]
    anchors: list[tuple[int, int]]
