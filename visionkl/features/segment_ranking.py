"""Which segments look like whole things: features of segments, what they are worth, and a choice.

Fundamentals
------------
A segment is described by a few dozen numbers that anyone would look at: how likely its outline is to separate
things, and how much of it is unlikely to; how likely borders inside it are; how its colours and textures
differ from those next to it and from the rest of the picture; its size, place, shape, and how much of the
picture's edge it touches.

Which segments to keep depends on what for. Here a pool of n segments is wanted in which every object, large
or small, finds one that overlaps it well. If `pi_j` is how many objects are expected to have segment j as
their best, then the best overlaps of a chosen set S add up to about

    sum_j  pi_j  max over i in S of overlap(i, j)

and the set that maximises this is found greedily, which is within 1 - 1/e of the best. The logarithm of pi is
a polynomial of the features, learned by Poisson regression from masks of objects, each of which shares one
vote among the segments that fit it best. Ranking by the expected overlap alone would choose large segments
only: they overlap something large all the more, and small things not at all. The default's coefficients
(`visionkl.features.segment_weights`) were learned from photographs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.optimize

from visionkl.backend.cpu.cover import cover
from visionkl.backend.threads import run_tasks
from visionkl.features.segment_weights import CONSTANT, ROWS
from visionkl.features.superpixels import RegionGraph, chi2_distance, crossing_costs

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

# Segments described, or compared with all others, at a time.
_BLOCK = 512
# Borders below this probability are weak.
_WEAK, _FIRM = 0.03, 0.12
# Features are held within so many times their spread.
_MOST_SPREAD = 2
# Objects vote for segments whose overlap is not much more than this below their best.
_VOTE_WIDTH = 0.05
_PENALTY = 1.0
# The choice is among so many segments, those of the highest scores.
_CANDIDATES = 4000

FEATURE_NAMES = (
    "cost of the outline", "outline", "weak share", "firm share", "fine strength", "texture strength",
    "inside", "outline over inside", "colour across", "texture across", "colour against rest",
    "texture against rest", "spread of colour", "log area", "area", "compactness", "edge sides", "edge top",
    "edge bottom", "off centre", "height", "roundness", "aspect", "box filled", "outline length",
    "lightness across", "edge share", "tall",
)  # fmt: skip


def describe_segments(graph: RegionGraph, segments: BoolArray, n_jobs: int | None = 1) -> FloatArray:
    """Describe segments: an array `(n_segments, len(FEATURE_NAMES))`.

    Parameters
    ----------
    graph : RegionGraph
    segments : ndarray of bool, shape (n_segments, n_superpixels)
    n_jobs : int, optional
        Threads; None takes all usable cores.
    """
    blocks = [segments[start : start + _BLOCK] for start in range(0, len(segments), _BLOCK)]
    described = run_tasks(lambda block: _describe(graph, block), blocks, n_jobs)
    return np.concatenate([*described, np.zeros((0, len(FEATURE_NAMES)))])


def _describe(graph: RegionGraph, segments: BoolArray) -> FloatArray:
    members = segments.astype(np.float64)
    rows, cols = graph.labels.shape
    picture = float(graph.area.sum())
    area = np.maximum(members @ graph.area, 1)
    one, other = graph.pairs.T
    leaving, entering = segments[:, one] & ~segments[:, other], segments[:, other] & ~segments[:, one]
    cut = (leaving | entering).astype(np.float64)
    within = (segments[:, one] & segments[:, other]).astype(np.float64)
    length = cut @ graph.length
    whole = np.maximum(length, 1)
    edges = members @ graph.frame
    outline = cut @ (graph.length * graph.probability) / whole
    inner = within @ (graph.length * graph.probability) / np.maximum(within @ graph.length, 1)
    # Across the outline: the superpixels that touch it from within, and from outside.
    near = _touching(graph, leaving, entering)
    far = _touching(graph, entering, leaving)
    near_colour, near_texture, near_mean = near
    far_colour, far_texture, far_mean = far
    colours, textures = members @ graph.colour_histograms, members @ graph.texture_histograms
    rest_colours = graph.colour_histograms.sum(axis=0) - colours
    rest_textures = graph.texture_histograms.sum(axis=0) - textures
    mean = members @ (graph.colour * graph.area[:, None]) / area[:, None]
    square = members @ (np.square(graph.colour).sum(axis=1) * graph.area) / area
    shape = _shape(graph, members, area)
    perimeter = length + edges.sum(axis=1)
    return np.column_stack(
        [
            np.log(cut @ crossing_costs(graph.length, graph.probability) / whole + 1e-3),
            np.log(outline + 1e-3),
            cut @ (graph.length * (graph.probability < _WEAK)) / whole,
            cut @ (graph.length * (graph.probability > _FIRM)) / whole,
            np.sqrt(cut @ (graph.length * graph.strength[:, 0]) / whole),
            np.sqrt(cut @ (graph.length * graph.strength[:, 3]) / whole),
            np.log(inner + 1e-3),
            np.log((outline + 1e-2) / (inner + 1e-2)),
            np.sqrt(chi2_distance(near_colour, far_colour)),
            np.sqrt(chi2_distance(near_texture, far_texture)),
            np.sqrt(chi2_distance(colours, rest_colours)),
            np.sqrt(chi2_distance(textures, rest_textures)),
            np.sqrt(np.maximum(square - np.square(mean).sum(axis=1), 0)),
            np.log(area / picture),
            area / picture,
            np.log(perimeter / np.sqrt(area)),
            (edges[:, 0] + edges[:, 2]) / (2 * rows),
            edges[:, 1] / cols,
            edges[:, 3] / cols,
            *shape,
            np.log(perimeter / np.sqrt(picture)),
            np.linalg.norm(near_mean - far_mean, axis=1),
            edges.sum(axis=1) / np.maximum(perimeter, 1),
            (edges[:, 1] > 0) & (edges[:, 3] > 0),
        ]
    )


def _touching(
    graph: RegionGraph, from_first: BoolArray, from_second: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sum histograms and colours of the superpixels on one side of the outlines, by the length they touch."""
    lengths = np.zeros((len(from_first), len(graph)))
    rows = np.arange(len(from_first))[:, None]
    for flags, ends in ((from_first, graph.pairs[:, 0]), (from_second, graph.pairs[:, 1])):
        places = (rows * len(graph) + ends)[flags]
        weights = np.broadcast_to(graph.length, flags.shape)[flags]
        lengths += np.bincount(places, weights, lengths.size).reshape(lengths.shape)
    share = lengths / graph.area
    total = np.maximum(lengths.sum(axis=1, keepdims=True), 1)
    return share @ graph.colour_histograms, share @ graph.texture_histograms, lengths @ graph.colour / total


def _shape(graph: RegionGraph, members: FloatArray, area: FloatArray) -> list[FloatArray]:
    """Place and shape: off the centre, height, roundness, aspect, and how much of its box is filled."""
    rows, cols = graph.labels.shape
    side = max(rows, cols)
    x, y, xx, yy, xy = (members @ graph.moments / area[:, None]).T
    # A pixel is a square, and has a spread of its own.
    var_x, var_y, cov = xx - x * x + 1 / (12 * side**2), yy - y * y + 1 / (12 * side**2), xy - x * y
    spread = np.sqrt(np.maximum(var_x * var_y - cov * cov, 1e-12))
    inside = members > 0
    left, top = (np.where(inside, graph.boxes[:, i], side).min(axis=1) for i in (0, 1))
    right, bottom = (np.where(inside, graph.boxes[:, i], 0).max(axis=1) for i in (2, 3))
    box = np.maximum((right - left) * (bottom - top), 1)
    return [
        np.abs(x * side / cols - 0.5),
        y * side / rows - 0.5,
        np.log(area / side**2 / (4 * np.pi * spread)),
        0.5 * np.log(var_x / var_y),
        area / box,
    ]


@dataclass(frozen=True, eq=False)
class Ranking:
    """Expected numbers of objects that segments stand for, `exp` of a polynomial of their features.

    Parameters
    ----------
    centre, scale : ndarray of float64, shape (n_features,)
        Features are shifted and divided by these first, and held within twice the scale, because
        polynomials go astray where nothing was seen.
    weights : ndarray of float64, shape (1 + 3 * n_features,)
        Of the constant, the features, their squares, and their products with the logarithm of the area.
    """

    centre: FloatArray
    scale: FloatArray
    weights: FloatArray

    def score(self, features: FloatArray) -> FloatArray:
        """Return how many objects each segment is expected to be the best one of."""
        return np.exp(np.minimum(self._terms(features) @ self.weights, 0))

    def _terms(self, features: FloatArray) -> FloatArray:
        values = np.clip((features - self.centre) / self.scale, -_MOST_SPREAD, _MOST_SPREAD)
        products = values * values[:, [FEATURE_NAMES.index("log area")]]
        return np.concatenate([np.ones((len(values), 1)), values, np.square(values), products], axis=1)


def object_shares(overlaps: FloatArray) -> FloatArray:
    """Let each object share one vote among the segments that overlap it most: the votes of segments `(n,)`.

    Parameters
    ----------
    overlaps : ndarray of float64, shape (n_segments, n_objects)

    Examples
    --------
    >>> object_shares(np.array([[0.8, 0.1], [0.8, 0.7], [0.2, 0.3]])).round(3).tolist()
    [0.5, 1.5, 0.0]
    """
    votes = np.exp((overlaps - overlaps.max(axis=0)) / _VOTE_WIDTH)
    return (votes / votes.sum(axis=0)).sum(axis=1)


def fit_ranking(features: FloatArray, votes: FloatArray, weight: FloatArray) -> Ranking:
    """Learn a ranking by a Poisson regression of votes on features.

    Parameters
    ----------
    features : ndarray of float64, shape (n, n_features)
    votes : ndarray of float64, shape (n,)
        From `object_shares`.
    weight : ndarray of float64, shape (n,)
        How many segments each row stands for.
    """
    centre = np.average(features, axis=0, weights=weight)
    scale = np.sqrt(np.average(np.square(features - centre), axis=0, weights=weight))
    ranking = Ranking(centre, np.maximum(scale, 1e-6), np.zeros(1 + 3 * len(centre)))
    terms = ranking._terms(features)
    penalty = np.full(terms.shape[1], _PENALTY)
    penalty[0] = 0
    start = np.zeros(terms.shape[1])
    start[0] = np.log(max(float(weight @ votes), 1e-6) / weight.sum())

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        powers = np.minimum(terms @ weights, 10)
        expected = np.exp(powers) * weight
        value = expected.sum() - (weight * votes) @ powers + 0.5 * penalty @ np.square(weights)
        return float(value), terms.T @ (expected - weight * votes) + penalty * weights

    found = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return Ranking(ranking.centre, ranking.scale, found.x)


def choose_segments(
    segments: BoolArray,
    area: FloatArray,
    scores: FloatArray,
    n: int,
    max_overlap: float,
    n_jobs: int | None = 1,
) -> npt.NDArray[np.int64]:
    """Choose the segments that stand for most objects together, as far as scores tell.

    Parameters
    ----------
    segments : ndarray of bool, shape (n_segments, n_superpixels)
    area : ndarray of float64, shape (n_superpixels,)
    scores : ndarray of float64, shape (n_segments,)
    n : int
        Most segments to choose.
    max_overlap : float
        Segments that overlap a chosen one by more are duplicates, and left out.
    n_jobs : int, optional
        Threads; None takes all usable cores.

    Returns
    -------
    ndarray of int64
        Numbers of the chosen, first chosen first.
    """
    candidates = np.argsort(-scores, kind="stable")[:_CANDIDATES]
    chosen = np.empty(min(n, len(candidates)), np.int64)
    likeness = segment_overlaps(segments[candidates], area, n_jobs)
    count = cover(likeness, np.ascontiguousarray(scores[candidates], np.float64), max_overlap, chosen)
    return candidates[chosen[:count]]


def segment_overlaps(
    segments: BoolArray, area: FloatArray, n_jobs: int | None = 1
) -> npt.NDArray[np.float32]:
    """Measure intersection over union of all segments with each other."""
    members = segments.astype(np.float32)
    weighted = members * area.astype(np.float32)
    sizes = weighted.sum(axis=1)
    overlaps = np.empty((len(members), len(members)), np.float32)

    def fill(start: int) -> None:
        rows = slice(start, start + _BLOCK)
        shared = weighted[rows] @ members.T
        overlaps[rows] = shared / np.maximum(sizes[rows, None] + sizes - shared, 1)

    run_tasks(fill, range(0, len(members), _BLOCK), n_jobs)
    return overlaps


def _default_ranking() -> Ranking:
    rows = np.array([ROWS[name] for name in FEATURE_NAMES])
    centre, scale, linear, square, with_area = rows.T
    return Ranking(centre, scale, np.concatenate([[CONSTANT], linear, square, with_area]))


DEFAULT_RANKING = _default_ranking()
