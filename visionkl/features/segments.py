"""Figure–ground segments: the hundred or so regions of a picture that look most like whole things.

Fundamentals
------------
A picture becomes a graph of superpixels (`visionkl.features.superpixels`). Cuts of the graph around many
seeds, each for a growing bias towards the figure, give some thousand segments (`visionkl.features.cuts`). A
regression says how likely each is to be an object, and those that stand for most objects together are kept
(`visionkl.features.segment_ranking`). This is the method of constrained parametric min-cuts.

The ranking works out of the box. `fit` learns another from pictures of one's own and masks of the objects in
them.

Implementation
--------------
Segments are unions of superpixels, and stay so until somebody asks for their masks: sizes, overlaps and
features are sums over superpixels. Large pictures are made smaller first (`max_side`), and masks have the
size of the picture. Pictures are worked on side by side in threads; results do not depend on how many.

If unsure, take a hundred segments; more find more small things.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin

from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError
from visionkl.core.validation import check_number, check_picture
from visionkl.features.cuts import propose
from visionkl.features.pictures import Picture, as_pictures
from visionkl.features.segment_ranking import (
    DEFAULT_RANKING,
    Ranking,
    choose_segments,
    describe_segments,
    fit_ranking,
    object_shares,
)
from visionkl.features.superpixels import RegionGraph, reduced, region_graph

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

# Segments of a picture that teach the ranking: those with more votes than this, and about so many others.
_LEAST_VOTE = 1e-3
_MOST_OTHERS = 700


@dataclass(frozen=True, eq=False)
class Segments:
    """Segments of one picture, best first.

    Parameters
    ----------
    labels : ndarray of int32, shape (rows, cols)
        Superpixel of each pixel.
    members : ndarray of bool, shape (n, n_superpixels)
        Which superpixels make up each segment.
    scores : ndarray of float64, shape (n,)
        How many objects each is expected to be the best segment of. They need not fall from segment to
        segment: one that differs from those before it may come before better ones that do not.

    Examples
    --------
    >>> halves = Segments(np.int32([[0, 0, 1], [0, 0, 1]]), np.eye(2, dtype=bool), np.ones(2))
    >>> halves.masks[1].astype(int)
    array([[0, 0, 1],
           [0, 0, 1]])
    >>> halves.boxes
    array([[0., 0., 2., 2.],
           [2., 0., 3., 2.]], dtype=float32)
    """

    labels: npt.NDArray[np.int32]
    members: BoolArray
    scores: FloatArray

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, rows: slice | npt.ArrayLike) -> Segments:
        chosen = rows if isinstance(rows, slice) else np.atleast_1d(np.asarray(rows))
        return Segments(self.labels, self.members[chosen], self.scores[chosen])

    @property
    def masks(self) -> BoolArray:
        """Masks `(n, rows, cols)`, made anew each time."""
        return self.members[:, self.labels]

    @property
    def boxes(self) -> npt.NDArray[np.float32]:
        """Smallest boxes around the segments, `x1, y1, x2, y2`: `(n, 4)`."""
        return np.array([_box(mask) for mask in (row[self.labels] for row in self.members)]).reshape(-1, 4)

    def overlaps(self, masks: npt.ArrayLike, ignore: npt.ArrayLike | None = None) -> FloatArray:
        """Measure intersection over union with masks of objects.

        Parameters
        ----------
        masks : array_like of bool, shape (m, rows, cols)
        ignore : array_like of bool, shape (rows, cols), optional
            Pixels that do not count, such as VOC's void.

        Returns
        -------
        ndarray of float64, shape (n, m)
        """
        objects = check_masks(masks, self.labels.shape, "overlaps")
        counted = np.ones(self.labels.shape, bool) if ignore is None else ~np.asarray(ignore, bool)
        if counted.shape != self.labels.shape:
            raise DataError(
                f"overlaps: 'ignore' has the shape {counted.shape}, but the picture has {self.labels.shape}."
            )
        n = self.members.shape[1]
        members = self.members.astype(np.float64)
        inside = [np.bincount(self.labels[mask & counted], minlength=n) for mask in objects]
        shared = members @ np.array(inside, np.float64).reshape(-1, n).T
        own = members @ np.bincount(self.labels[counted], minlength=n)
        theirs = np.array([counts.sum() for counts in inside])
        return shared / np.maximum(own[:, None] + theirs - shared, 1)


class FigureGround(TransformerMixin, BaseEstimator):
    """Proposes segments that look like whole things, as a scikit-learn transformer.

    Parameters
    ----------
    n_segments : int
        Segments a picture, at most.
    n_superpixels : int
        Superpixels that segments are made of; more follow outlines better, and take longer.
    grid : int
        Seeds along each side of the picture.
    min_area : float
        Smallest segment, as a share of the picture.
    max_overlap : float
        A segment that overlaps one chosen before by more (intersection over union) is left out.
    max_side : int
        Larger pictures are reduced to this longer side; masks have the size of the picture all the same.
    n_jobs : int, optional
        Threads; all usable cores by default.

    Attributes
    ----------
    ranking_ : Ranking
        After `fit`.

    Examples
    --------
    >>> picture = np.full((60, 80, 3), 200, np.uint8)
    >>> picture[20:45, 30:60] = (40, 90, 160)
    >>> (found,) = FigureGround(n_segments=10).transform([picture])
    >>> truth = np.zeros((1, 60, 80), bool)
    >>> truth[0, 20:45, 30:60] = True
    >>> bool(found.overlaps(truth).max() > 0.9)
    True
    """

    def __init__(
        self,
        n_segments: int = 100,
        *,
        n_superpixels: int = 800,
        grid: int = 5,
        min_area: float = 0.001,
        max_overlap: float = 0.95,
        max_side: int = 500,
        n_jobs: int | None = None,
    ) -> None:
        self.n_segments = n_segments
        self.n_superpixels = n_superpixels
        self.grid = grid
        self.min_area = min_area
        self.max_overlap = max_overlap
        self.max_side = max_side
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Sequence[npt.ArrayLike] | None = None) -> FigureGround:
        """Learn how to rank segments, where masks of objects are given.

        Parameters
        ----------
        X : list of ndarray, str or Path; or Dataset
            Pictures.
        y : sequence of array_like of bool, shape (n_objects, rows, cols), optional
            Masks of the objects of each picture. Without them the ranking is the default.

        Returns
        -------
        self
        """
        self._check_parameters()
        pictures = as_pictures(X, self._owner)
        if y is None:
            self.ranking_ = DEFAULT_RANKING
            return self
        if len(y) != len(pictures):
            raise DataError(
                f"{self._owner}: there are {len(pictures)} pictures and masks of {len(y)}; give masks, an "
                "array (n_objects, rows, cols), for each picture."
            )
        lessons = run_tasks(lambda pair: self._lesson(*pair), zip(pictures, y, strict=True), self.n_jobs)
        taught = [lesson for lesson in lessons if lesson is not None]
        if not taught:
            raise DataError(f"{self._owner}: all masks are empty; the ranking is learned from objects.")
        self.ranking_ = fit_ranking(*(np.concatenate(parts) for parts in zip(*taught, strict=True)))
        return self

    def transform(self, X: Any) -> list[Segments]:
        """Propose segments of pictures; works without `fit`.

        Parameters
        ----------
        X : list of ndarray, str or Path; or Dataset

        Returns
        -------
        list of Segments
        """
        self._check_parameters()
        pictures = as_pictures(X, self._owner)
        # Several pictures go side by side; a single one is shared by all threads.
        within = self.n_jobs if len(pictures) == 1 else 1
        return run_tasks(lambda picture: self._segments(picture, within), pictures, self.n_jobs)

    # -- one picture -----------------------------------------------------------------------------------------

    def _segments(self, picture: Picture, n_jobs: int | None) -> Segments:
        size, graph, segments = self._pool(picture, n_jobs)
        ranking: Ranking = getattr(self, "ranking_", DEFAULT_RANKING)
        scores = ranking.score(describe_segments(graph, segments, n_jobs))
        chosen = choose_segments(segments, graph.area, scores, self.n_segments, self.max_overlap, n_jobs)
        return Segments(_enlarged(graph.labels, size), segments[chosen], scores[chosen])

    def _pool(
        self, picture: Picture, n_jobs: int | None = 1
    ) -> tuple[tuple[int, int], RegionGraph, BoolArray]:
        """Return the size of a picture, its graph, and all segments that are large enough."""
        pixels = check_picture(picture.pixels(), picture.name)
        graph = region_graph(reduced(pixels, self.max_side), self.n_superpixels)
        segments = propose(graph, self.grid, n_jobs)
        large = segments @ graph.area >= self.min_area * graph.area.sum()
        return pixels.shape[:2], graph, segments[large]

    def _lesson(self, picture: Picture, masks: npt.ArrayLike) -> tuple[FloatArray, ...] | None:
        """Return features of a picture's segments, their votes and weights; None where there is no object."""
        size, graph, segments = self._pool(picture)
        objects = check_masks(masks, size, picture.name)
        objects = objects[objects.any(axis=(1, 2))]
        if not len(objects):
            return None
        found = Segments(_enlarged(graph.labels, size), segments, np.zeros(len(segments)))
        votes = object_shares(found.overlaps(objects))
        # All that have votes, and of the many others every so many, which stand for the rest.
        voted = votes > _LEAST_VOTE
        every = max(int((~voted).sum()) // _MOST_OTHERS, 1)
        others = np.flatnonzero(~voted)[::every]
        taken = np.concatenate([np.flatnonzero(voted), others])
        weight = np.where(voted[taken], 1.0, (~voted).sum() / max(len(others), 1))
        return describe_segments(graph, segments[taken]), votes[taken], weight

    @property
    def _owner(self) -> str:
        return type(self).__name__

    def _check_parameters(self) -> None:
        for name in ("n_segments", "n_superpixels", "grid", "max_side"):
            check_number(self._owner, name, getattr(self, name), low=1, integer=True)
        for name in ("min_area", "max_overlap"):
            check_number(self._owner, name, getattr(self, name), low=0, high=1)
        if self.n_jobs is not None:
            check_number(self._owner, "n_jobs", self.n_jobs, low=1, integer=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        tags.requires_fit = False
        return tags


def check_masks(masks: npt.ArrayLike, size: tuple[int, ...], owner: str) -> BoolArray:
    """Return masks as an array of bool `(n, rows, cols)` of the picture's size, and complain otherwise."""
    array = np.asarray(masks)
    if array.size == 0 and array.ndim < 3:  # an empty list: there is no object
        return np.zeros((0, *size), bool)
    if array.ndim != 3 or array.shape[1:] != tuple(size):
        raise DataError(
            f"{owner}: masks must have the shape (n, {size[0]}, {size[1]}), because the picture has "
            f"{size[0]} rows and {size[1]} columns, not {array.shape}."
        )
    return array.astype(bool, copy=False)


def _enlarged(labels: npt.NDArray[np.int32], size: tuple[int, int]) -> npt.NDArray[np.int32]:
    if labels.shape == tuple(size):
        return labels
    enlarged = cv2.resize(labels, (size[1], size[0]), interpolation=cv2.INTER_NEAREST)
    return np.asarray(enlarged, np.int32)


def _box(mask: BoolArray) -> npt.NDArray[np.float32]:
    rows, cols = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return np.zeros(4, np.float32)
    return np.array([cols[0], rows[0], cols[-1] + 1, rows[-1] + 1], np.float32)
