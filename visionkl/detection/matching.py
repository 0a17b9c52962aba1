"""Matching: where in a pyramid a model's components fit, and where their parts go.

For each level that may hold a root, the parts' responses one octave finer are transformed (`distance`) at
every second anchor and added to the root's. At each place the best component counts. Where its score passes
the threshold, the placement of its parts is looked up: only there, so that no table of arg-maxima is ever
stored.

All of it is done where the pyramid lies, and there the placements stay: what a search makes of them is made
there too (`boxes`), and training, which goes on in ordinary memory, asks for them (`Placements.on`).

An anchor must lie on the part's level, and a part reaches at most as far as the level goes: both are the
published models' rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device, to_host
from visionkl.backend.threads import run_tasks
from visionkl.detection.distance import PartAdder, place_parts
from visionkl.detection.filters import DenseFilters, TableFilters
from visionkl.detection.model import N_SCALE_BIASES, MixtureModel
from visionkl.features.pyramid import FeaturePyramid

# Further than any anchor, and than any part may go.
_FAR = 2**30


@dataclass(frozen=True)
class Placements:
    """Placements of a model in a pyramid, one row each; in ordinary memory or on a GPU.

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
        return Placements(*(array[rows] for array in self._arrays()))

    def on(self, device: Device) -> Placements:
        """Return the placements on a device, or in ordinary memory; what is there stays."""
        move: Callable[[Any], Any] = device.put if device.is_gpu else to_host
        return Placements(*map(move, self._arrays()))

    def _arrays(self) -> list[npt.NDArray[Any]]:
        return [getattr(self, field.name) for field in fields(self)]


#: Chooses placements on a level from its number and its scores `(n_components, rows, cols)`: returns the
#: components `(n,)` and the roots' places `(n, 2)`, where the scores lie or in ordinary memory.
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
            own_parts = np.zeros((len(roots), model.n_parts), np.int64)
            own_anchors = np.full((*own_parts.shape, 2), -_FAR, np.int64)
            own_parts[owners[numbers], slots[numbers]] = np.arange(len(numbers))
            own_anchors[owners[numbers], slots[numbers]] = anchors[numbers]
            self._groups.append(
                _Group(device.put(costs), device.put(own_parts), device.put(own_anchors), adder)
            )
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
        xp = self.device.namespace

        def choose(
            level: int, scores: npt.NDArray[np.float32]
        ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
            roots: Any = xp.argwhere(scores.max(axis=0) > threshold) if scores.size else ()
            if not len(roots):
                return np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
            return scores[:, roots[:, 0], roots[:, 1]].argmax(axis=0), roots

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
        again. Placements lie where the pyramid does.
        """
        if self.device.is_gpu and self.model.codebooks is not None:
            self.model.codebooks.check_range(pyramid.levels)
        padding = self.device.put(np.array(pyramid.padding, np.int64))
        with self.device.use():
            found = run_tasks(
                lambda level: self._place_on_level(pyramid, level, choose, padding),
                self.root_levels(pyramid) if levels is None else levels,
                1 if self.device.is_gpu else n_jobs,
            )
            some = [self._none(), *(placements for placements in found if placements is not None)]
            together = zip(*(placements._arrays() for placements in some), strict=True)
            return Placements(*map(self.device.namespace.concatenate, together))

    def root_levels(self, pyramid: FeaturePyramid) -> range:
        """Levels that may hold a root: all but the first octave, which is for parts."""
        return range(pyramid.interval, len(pyramid))

    def level_scores(self, pyramid: FeaturePyramid, level: int) -> npt.NDArray[np.float32]:
        """Scores `(n_components, rows, cols)` of each component's root at each place of a level.

        -inf where it cannot be.
        """
        return self._score_level(pyramid, level)[0]

    def _none(self) -> Placements:
        shapes = [(0,), (0,), (0,), (0, 2), (0, self.model.n_parts, 2)]
        dtypes = [np.float32] + [np.int64] * 4
        return Placements(*map(self.device.namespace.zeros, shapes, dtypes))

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

    def _place_on_level(
        self, pyramid: FeaturePyramid, level: int, choose: Choice, padding: npt.NDArray[np.int64]
    ) -> Placements | None:
        scores, responses = self._score_level(pyramid, level)
        chosen = choose(level, scores)
        if not len(chosen[0]):
            return None
        components, roots = map(self.device.put, chosen)
        xp = self.device.namespace
        parts: npt.NDArray[np.int64] = xp.full((len(roots), self.model.n_parts, 2), -1, np.int64)
        for own, of_group in zip(self._groups, responses, strict=True):
            # Every chosen root with every part: those of other groups are nowhere.
            anchors = 2 * roots[:, None] - padding + own.anchors[components]
            placed = place_parts(
                of_group,
                own.costs,
                self.model.max_displacement,
                anchors.reshape(-1, 2),
                own.parts[components].reshape(-1),
            )
            parts = xp.maximum(parts, placed.reshape(parts.shape))
        return Placements(
            scores[components, roots[:, 0], roots[:, 1]],
            components,
            xp.full(len(roots), level, np.int64),
            roots,
            parts,
        )

    def _places(self, level: npt.NDArray[Any]) -> tuple[int, int]:
        """Places on a level: as many as the smallest filter has."""
        rows, cols = np.maximum(level.shape[:2] - self._smallest + 1, 0).tolist()
        return rows, cols


@dataclass(frozen=True)
class _Group:
    """Parts of one size, on the device: deformations `(n, 4)`; by component and slot, numbers and anchors.

    Anchors `(row, col)` of slots that hold none of these parts lie where nothing is reached.
    """

    costs: npt.NDArray[np.float32]
    parts: npt.NDArray[np.int64]
    anchors: npt.NDArray[np.int64]
    adder: PartAdder
