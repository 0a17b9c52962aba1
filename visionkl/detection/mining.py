"""Negative samples: background that the model takes for objects, and a bounded cache of it (METHODS §10).

A mining pass searches all training pictures with the model so far. What scores above -1, the margin, and
overlaps no object of the class much is a hard negative; of each picture the hardest are kept, thinned out so
that they are not all of one place. The cache keeps what was mined before, because a model that has learned
one mistake makes another; if it grows too large, the hardest stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device, to_host
from visionkl.core.rng import stream
from visionkl.detection.boxes import filter_boxes
from visionkl.detection.latent import window_overlaps
from visionkl.detection.matching import Matcher, Placements
from visionkl.detection.model import MixtureModel
from visionkl.detection.pyramids import Pyramids
from visionkl.detection.samples import Samples, collect_samples
from visionkl.detection.suppress import suppress

#: Negatives are hard if they score above this.
MARGIN = -1.0
# A window that overlaps an object so much is no background.
_OBJECT_OVERLAP = 0.3
# Windows that overlap a harder one so much are left for a later pass.
_ALIKE = 0.8
# Of very many hard windows, so many are looked at: of a picture, and of a level.
_MOST_CANDIDATES = 800
_MOST_A_LEVEL = 400

Boxes = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MiningPass:
    """What workers need to mine a picture.

    Parameters
    ----------
    model : MixtureModel
    pyramids : Pyramids
    taboo : sequence of ndarray of float64, shape (n, 4)
        Boxes of objects of the class, by picture.
    n_windows : int
        Largest number of negatives of a picture.
    device : visionkl.backend.dispatch.Device
        Where the model is matched.
    """

    model: MixtureModel
    pyramids: Pyramids
    taboo: Sequence[Boxes] = field(repr=False)
    n_windows: int
    device: Device = CPU

    @cached_property
    def matcher(self) -> Matcher:
        """The model, ready for matching."""
        return Matcher(self.model, self.device)


def mine_picture(context: MiningPass, picture: int) -> list[Samples]:
    """Return the hardest negatives of a picture, by model component."""
    model = context.model
    pyramid = context.pyramids[picture].framed(model.padding)
    taboo = context.taboo[picture]

    def choose(
        level: int, scores: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        scores = to_host(scores)
        roots = np.argwhere(scores.max(axis=0) > MARGIN)
        components = scores[:, roots[:, 0], roots[:, 1]].argmax(axis=0)
        allowed = np.ones(len(roots), bool)
        if len(taboo) and len(roots):
            for number, component in enumerate(model.components):
                own = components == number
                for box in taboo:
                    overlaps = window_overlaps(pyramid, level, component.root.shape, scores.shape[1:], box)
                    allowed[own] &= overlaps[roots[own, 0], roots[own, 1]] < _OBJECT_OVERLAP
        chosen = np.flatnonzero(allowed)
        if len(chosen) > _MOST_A_LEVEL:
            hardness = scores[components[chosen], roots[chosen, 0], roots[chosen, 1]]
            chosen = chosen[np.sort(np.argsort(-hardness, kind="stable")[:_MOST_A_LEVEL])]
        return components[chosen], roots[chosen]

    found = context.matcher.place(pyramid.on(context.device), choose).on(CPU)
    if len(found) > _MOST_CANDIDATES:
        found = found[np.argsort(-found.scores, kind="stable")[:_MOST_CANDIDATES]]
    boxes, _ = filter_boxes(model, pyramid, found)
    keep = suppress(boxes, found.scores, overlap=_ALIKE, measure="iou")[: context.n_windows]
    return collect_samples(model, pyramid.on(CPU), found[keep], picture)


@dataclass(frozen=True, eq=False)
class DrawingPass:
    """What workers need to draw random windows from a picture.

    Parameters
    ----------
    model : MixtureModel
        Of roots alone.
    pyramids : Pyramids
    taboo : sequence of ndarray of float64, shape (n, 4)
    seed : int
    n_windows : int
        For each learned component.
    """

    model: MixtureModel
    pyramids: Pyramids
    taboo: Sequence[Boxes] = field(repr=False)
    seed: int
    n_windows: int


def draw_negatives(context: DrawingPass, picture: int) -> list[Samples]:
    """Draw random windows of each learned component's root; its mirror image gets none."""
    model = context.model
    pyramid = context.pyramids[picture].framed(model.padding)
    random = stream(context.seed, "random negatives", picture)
    components, levels, roots = [], [], []
    for number in range(0, len(model.components), 2):
        rows, cols, _ = model.components[number].root.shape
        # Not in the frame, which is the same everywhere.
        top, left = pyramid.padding[0] + 1, pyramid.padding[1] + 1
        ends = [(level.shape[0] - top - rows, level.shape[1] - left - cols) for level in pyramid.levels]
        fits = [n for n in range(pyramid.interval, len(ends)) if ends[n][0] >= top and ends[n][1] >= left]
        for _ in range(context.n_windows if fits else 0):
            level = fits[int(random.integers(len(fits)))]
            row = int(random.integers(top, ends[level][0] + 1))
            col = int(random.integers(left, ends[level][1] + 1))
            overlaps = [
                window_overlaps(pyramid, level, (rows, cols), (row + 1, col + 1), box)[row, col]
                for box in context.taboo[picture]
            ]
            if max(overlaps, default=0.0) < _OBJECT_OVERLAP:
                components.append(number)
                levels.append(level)
                roots.append((row, col))
    n = len(components)
    drawn = Placements(
        np.zeros(n, np.float32),
        np.array(components, np.int64),
        np.array(levels, np.int64),
        np.array(roots, np.int64).reshape(-1, 2),
        np.zeros((n, 0, 2), np.int64),
    )
    return collect_samples(model, pyramid.on(CPU), drawn, picture)


def sorted_by_root(samples: Samples) -> Samples:
    """Put samples in the order of their roots, as the objective wants them."""
    return samples[root_order(samples.keys)]


def root_order(keys: npt.NDArray[np.int32]) -> npt.NDArray[np.intp]:
    """Return the order of roots: by picture, level, row and column."""
    return np.lexsort((keys[:, 3], keys[:, 2], keys[:, 1], keys[:, 0]))
