"""Matching: where in a pyramid a model's components fit, and where their parts go.

For each level that may hold a root, the parts' responses one octave finer are transformed (`distance`) at
every second anchor and added to the root's. At each place the best component counts. Where its score passes
the threshold, the placement of its parts is looked up: only there, so that no table of arg-maxima is ever
stored.

An anchor must lie on the part's level, and a part reaches at most as far as the level goes: both are the
published models' rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device, namespace_of, to_host
from visionkl.backend.threads import run_tasks
from visionkl.detection.distance import PartAdder, place_parts
from visionkl.detection.filters import DenseFilters, TableFilters
from visionkl.detection.model import N_SCALE_BIASES, MixtureModel
from visionkl.features.pyramid import FeaturePyramid

# Further than any anchor.
_FAR = 2**30


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

    def __getitem__(self, rows: npt.NDArray[np.generic]) -> Placements:
        return Placements(
            self.scores[rows], self.components[rows], self.levels[rows], self.roots[rows], self.parts[rows]
        )


#: Chooses placements on a level from its number and its scores `(n_components, rows, cols)`: returns the
#: components `(n,)` and the roots' places `(n, 2)`, in ordinary memory wherever the scores lie.
Choice = Callable[[int, npt.NDArray[np.float32]], tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]


class Matcher:
    """A model made ready for matching: on codes if the model has codebooks, and else on plain cells.

    Parameters
    ----------
    model : MixtureModel
    device : visionkl.backend.dispatch.Device
        Where the levels of pyramids lie.
    """

    def __init__(self, model: MixtureModel, device: Device = CPU) -> None:
        self.model = model
        self.device = device
        numbered = [
            (owner, slot, part)
            for owner, component in enumerate(model.components)
            for slot, part in enumerate(component.parts)
        ]
        # Parts whose anchors are even or odd alike are transformed together: they had better be neighbours.
        numbered.sort(key=lambda entry: (entry[2].anchor[1] % 2, entry[2].anchor[0] % 2))
        parts = [part for _, _, part in numbered]
        roots = [component.root for component in model.components]
        self._roots: DenseFilters | TableFilters
        self._parts: DenseFilters | TableFilters
        if model.codebooks is None:
            self._roots = DenseFilters(roots, together=True, device=device)
            self._parts = DenseFilters([part.weights for part in parts], device=device)
        else:
            self._roots = TableFilters(
                roots, model.codebooks, dtype="int16", together=True, memory="root responses", device=device
            )
            self._parts = TableFilters(
                [part.weights for part in parts],
                model.codebooks,
                dtype="int16",
                memory="part responses",
                device=device,
            )
        owners = np.array([owner for owner, _, _ in numbered], np.int64)
        slots = np.array([slot for _, slot, _ in numbered], np.int64)
        anchors = np.array([part.anchor[::-1] for part in parts], np.int64).reshape(-1, 2)
        self._groups = []
        for numbers in map(list, self._parts.groups):
            costs = np.stack([parts[i].deformation for i in numbers])
            adder = PartAdder(costs, model.max_displacement, owners[numbers], anchors[numbers], device)
            self._groups.append(_Group(costs, owners[numbers], slots[numbers], anchors[numbers], adder))
        # A root is where all anchors of its parts are on the level: the first and the last tell.
        self._root_shapes = np.array([root.shape[:2] for root in roots])
        self._first_anchors = np.full((len(roots), 2), _FAR)
        self._last_anchors = np.full((len(roots), 2), -_FAR)
        np.minimum.at(self._first_anchors, owners, anchors)
        np.maximum.at(self._last_anchors, owners, anchors)
        self._smallest = np.min(model.filter_shapes, axis=0)

    def match(self, pyramid: FeaturePyramid, threshold: float, n_jobs: int | None = None) -> Placements:
        """Find all placements that score above `threshold`.

        At each place of a root, only the best component's.
        """

        def choose(
            level: int, scores: npt.NDArray[np.float32]
        ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
            xp = namespace_of(scores)
            roots: Any = xp.argwhere(scores.max(axis=0) > threshold) if scores.size else ()
            if not len(roots):
                return np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
            return to_host(scores[:, roots[:, 0], roots[:, 1]].argmax(axis=0)), to_host(roots)

        return self.place(pyramid, choose, n_jobs=n_jobs)

    def place(
        self,
        pyramid: FeaturePyramid,
        choose: Choice,
        levels: Iterable[int] | None = None,
        n_jobs: int | None = None,
    ) -> Placements:
        """Score levels, all that may hold a root by default, and place the parts of what is chosen there.

        While it chooses, `choose` must not match anything itself: levels are scored in memory that is used
        again.
        """
        found = run_tasks(
            lambda level: self._place_on_level(pyramid, level, choose),
            self.root_levels(pyramid) if levels is None else levels,
            1 if self.device.is_gpu else n_jobs,
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
        coarse = pyramid.levels[level]
        xp = self.device.namespace
        scores = xp.full((len(self.model.components), *self._places(coarse)), -np.inf, np.float32)
        limits = self._limits(pyramid, level)
        octave = min(level // pyramid.interval, N_SCALE_BIASES - 1)
        for group, numbers in enumerate(self._roots.groups):
            responses = self._roots.responses(coarse, group)
            for i, number in enumerate(numbers):
                component = self.model.components[number]
                top, bottom, left, right = limits[number]
                bias = np.float32(component.bias + component.scale_bias[octave])
                xp.add(responses[top:bottom, left:right, i], bias, out=scores[number, top:bottom, left:right])
        part_responses = []
        for group, parts in enumerate(self._groups):
            part_responses.append(self._parts.responses(pyramid.levels[level - pyramid.interval], group))
            parts.adder.add(part_responses[-1], pyramid.padding, limits, scores)
        return scores, part_responses

    def _limits(self, pyramid: FeaturePyramid, level: int) -> npt.NDArray[np.int64]:
        """Places `top, bottom, left, right` (half-open) where each component can be, shape (n, 4)."""
        most = np.array(pyramid.levels[level].shape[:2]) - self._root_shapes + 1
        if self._groups:
            finer = self._places(pyramid.levels[level - pyramid.interval])
            padding = np.array(pyramid.padding)
            # 0 <= 2 place + anchor - padding < finer, for all anchors.
            least = np.maximum(-((self._first_anchors - padding) // 2), 0)
            most = np.minimum(most, -((self._last_anchors - padding - finer) // 2))
        else:
            least = np.zeros_like(most)
        most = np.maximum(most, least)
        return np.ascontiguousarray(np.stack([least, most], axis=2).reshape(len(most), 4))

    def _place_on_level(self, pyramid: FeaturePyramid, level: int, choose: Choice) -> Placements:
        scores, responses = self._score_level(pyramid, level)
        components, roots = choose(level, scores)
        parts = np.full((len(roots), self.model.n_parts, 2), -1, np.int64)
        if len(roots):
            for own, of_group in zip(self._groups, responses, strict=True):
                # Every chosen root with every part of the group that is its own.
                which, part = np.nonzero(components[:, None] == own.components)
                anchors = 2 * roots[which] - pyramid.padding + own.anchors[part]
                parts[which, own.slots[part]] = place_parts(
                    of_group, own.costs, self.model.max_displacement, anchors, part
                )
        places = map(self.device.put, (components, roots[:, 0], roots[:, 1]))
        return Placements(
            to_host(scores[tuple(places)]),
            components,
            np.full(len(roots), level, np.int64),
            roots,
            parts,
        )

    def _places(self, level: npt.NDArray[Any]) -> tuple[int, int]:
        """Places on a level: as many as the smallest filter has."""
        rows, cols = np.maximum(level.shape[:2] - self._smallest + 1, 0).tolist()
        return rows, cols


@dataclass(frozen=True)
class _Group:
    """Parts of one size: deformations, components, numbers within these, anchors `(row, col)`."""

    costs: npt.NDArray[np.float32]
    components: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    anchors: npt.NDArray[np.int64]
    adder: PartAdder
