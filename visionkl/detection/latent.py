"""Placing a model on labelled objects: the latent half of training (METHODS §10).

Which component an object belongs to, where exactly its root lies and where its parts are, no one has
labelled: it is what the model so far thinks. Of all placements whose window, cut off at the picture's border,
overlaps the object's box enough, the best counts; objects that no window fits stay out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device, to_host
from visionkl.detection.boxes import filter_boxes
from visionkl.detection.matching import Matcher
from visionkl.detection.model import MixtureModel
from visionkl.detection.pyramids import Pyramids
from visionkl.detection.samples import Samples, collect_samples
from visionkl.features.pyramid import FeaturePyramid

Boxes = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PlacedObjects:
    """The best placements of a model on the objects of one picture; those that were not placed are left out.

    Parameters
    ----------
    samples : list of Samples
        By model component.
    rows : ndarray of int, shape (n,)
        Which objects were placed.
    components : ndarray of int64, shape (n,)
    scores : ndarray of float32, shape (n,)
    roots : ndarray of float64, shape (n, 4)
        Boxes of the roots in the picture.
    parts : ndarray of float64, shape (n, n_parts, 4)
    """

    samples: list[Samples]
    rows: npt.NDArray[np.intp]
    components: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    roots: Boxes
    parts: Boxes


@dataclass(frozen=True, eq=False)
class PlacingPass:
    """What workers need to place a model on objects.

    Parameters
    ----------
    model : MixtureModel
    pyramids : Pyramids
    boxes : sequence of ndarray of float64, shape (n, 4)
        Objects by picture.
    min_overlap : float
    device : visionkl.backend.dispatch.Device
        Where the model is matched.
    """

    model: MixtureModel
    pyramids: Pyramids
    boxes: Sequence[Boxes] = field(repr=False)
    min_overlap: float
    device: Device = CPU

    @cached_property
    def matcher(self) -> Matcher:
        """The model, ready for matching."""
        return Matcher(self.model, self.device)


def place_objects(context: PlacingPass, picture: int) -> PlacedObjects:
    """Place the model on the objects of a picture."""
    model, boxes = context.model, context.boxes[picture]
    pyramid = context.pyramids[picture].framed(model.padding)
    windows = _Windows(model, pyramid, boxes, context.min_overlap)
    owners: dict[int, npt.NDArray[np.intp]] = {}

    def choose(
        level: int, scores: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        owners[level], components, roots = windows.best(level, to_host(scores))
        return components, roots

    levels = [level for level in context.matcher.root_levels(pyramid) if windows.may_fit(level)]
    placed = context.matcher.place(pyramid.on(context.device), choose, levels).on(CPU)
    owner = np.concatenate([np.zeros(0, np.intp), *(owners[level] for level in levels)])
    # The best level of each object; of equally good ones the finest.
    order = np.lexsort((np.arange(len(owner)), -placed.scores, owner))
    first = np.ones(len(order), bool)
    first[1:] = owner[order][1:] != owner[order][:-1]
    best = order[first]
    chosen = placed[best]
    roots, parts = filter_boxes(model, pyramid, chosen)
    samples = collect_samples(model, pyramid.on(CPU), chosen, picture)
    return PlacedObjects(samples, owner[best], chosen.components, chosen.scores, roots, parts)


class _Windows:
    """Which windows of a pyramid overlap which boxes enough."""

    def __init__(
        self, model: MixtureModel, pyramid: FeaturePyramid, boxes: Boxes, min_overlap: float
    ) -> None:
        self._roots = [component.root.shape[:2] for component in model.components]
        self._pyramid = pyramid
        self._boxes = boxes
        self._min_overlap = min_overlap

    def may_fit(self, level: int) -> bool:
        """Tell whether a window of this level can overlap a box enough, were it placed freely."""
        cell = self._pyramid.cell_size / self._pyramid.scales[level]
        width, height = self._pyramid.image_size
        for x1, y1, x2, y2 in self._boxes:
            at_border = x1 < cell or y1 < cell or x2 > width - cell or y2 > height - cell
            w, h = x2 - x1, y2 - y1
            for rows, cols in self._roots:
                common = min(w, cols * cell) * min(h, rows * cell)
                smallest = w * h if at_border else w * h + rows * cols * cell**2 - common
                if common >= self._min_overlap * smallest:
                    return True
        return False

    def best(
        self, level: int, scores: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return, for each box that a window fits, its number, the best component, and its root's place."""
        owners, components, places = [], [], []
        for number, box in enumerate(self._boxes):
            overlaps = [
                window_overlaps(self._pyramid, level, root, scores.shape[1:], box) for root in self._roots
            ]
            masked = np.where(np.stack(overlaps) >= self._min_overlap, scores, -np.inf)
            component, row, col = (
                np.unravel_index(int(masked.argmax()), masked.shape) if masked.size else (0,) * 3
            )
            if masked.size and np.isfinite(masked[component, row, col]):
                owners.append(number)
                components.append(component)
                places.append((row, col))
        return (
            np.array(owners, np.intp),
            np.array(components, np.int64),
            np.array(places, np.int64).reshape(-1, 2),
        )


def window_overlaps(
    pyramid: FeaturePyramid, level: int, root: tuple[int, ...], places: tuple[int, ...], box: Boxes
) -> Boxes:
    """Intersection over union `(rows, cols)` of a box with a root's windows, cut off at the border."""
    cell = pyramid.cell_size / pyramid.scales[level]
    tops, bottoms = _ends(places[0], root[0], pyramid.padding[0], cell, pyramid.image_size[1])
    lefts, rights = _ends(places[1], root[1], pyramid.padding[1], cell, pyramid.image_size[0])
    high = np.clip(np.minimum(bottoms, box[3]) - np.maximum(tops, box[1]), 0, None)
    wide = np.clip(np.minimum(rights, box[2]) - np.maximum(lefts, box[0]), 0, None)
    common = np.outer(high, wide)
    union = np.outer(bottoms - tops, rights - lefts) + (box[2] - box[0]) * (box[3] - box[1]) - common
    return common / union


def _ends(n: int, size: int, padding: int, cell: float, limit: int) -> tuple[Boxes, Boxes]:
    first = (np.arange(n) - padding) * cell
    return np.clip(first, 0, limit), np.clip(first + size * cell, 0, limit)
