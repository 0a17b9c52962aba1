"""Superpixels, and the graph of which lie beside which.

Fundamentals
------------
A picture is flooded from a marker in each cell of a fine grid, over the landscape of its boundaries
(`visionkl.features.boundaries`): some thousand small regions, whose borders run along the boundaries wherever
there are any. The two regions whose border is weakest are merged, and again, until some hundred are left:
*superpixels*, large where a picture is plain and small where it is busy.

Whatever is made of superpixels is counted in numbers of each of them: area, sums of places, histograms of
colour and of texture. A segment's are the sums of its superpixels'.

The *probability of a border* to separate two things is learned, in two steps, each a logistic function of
few numbers (`LOCAL_WEIGHTS`, `BORDER_WEIGHTS`). The first looks at how strong the boundary is along the
border and how different the superpixels on both sides are. The second looks further, too: at how late the two
superpixels come together when the least probable borders go first, and at how far apart they are in the first
eigenvectors of the graph's normalised Laplacian, whose eigenvalues say how freely a random walk that rarely
crosses probable borders moves from one to the other. Both see that a weak stretch belongs to a long outline.

The numbers were learned by maximum likelihood from the borders between superpixels of the 124 training
pictures that have masks in a part of VOC2012, by whether two objects, or an object and the ground, meet
there.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt
import scipy.linalg

from visionkl.backend.cpu.regions import count_borders, flood, merge_regions, place_markers
from visionkl.features.boundaries import boundary_maps, lab_picture

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]

# Edge of the grid's cells that regions are flooded from, in pixels.
_CELL = 8
# Strength of a boundary that the landscape's highest step stands for.
_HIGHEST = 0.8
# How much sooner small regions are merged than large ones.
_SIZE_POWER = 0.5
_COLOUR_BINS = 12
_CONTRAST_BINS = 4

#: Logistic regression of "separates two things" on `_local_features`: the constant first.
LOCAL_WEIGHTS = (-6.05, -0.93, 0.64, 3.81, 0.58, -0.03, 3.13, 1.47)
#: The same on `_local_features` and on how late and how far apart superpixels are.
BORDER_WEIGHTS = (-3.88, 0.53, -1.06, 0.82, 4.86, -0.80, 0.40, 0.44, 0.51, 0.45)
# Odds at which a border costs half as much to cut as one that separates nothing, and how fast that falls.
_HALF_ODDS = 0.03
_FALL = 2.0
# Mergers that tell how late superpixels come together: how much sooner small regions are merged.
_LATE_POWER = 0.3
_EIGENVECTORS = 12


@dataclass(frozen=True, eq=False)
class RegionGraph:
    """Superpixels of a picture and their neighbourhood.

    Parameters
    ----------
    labels : ndarray of int32, shape (rows, cols)
        Superpixel of each pixel.
    area : ndarray of float64, shape (n,)
        In pixels.
    moments : ndarray of float64, shape (n, 5)
        Sums of x, y, x², y² and xy over the pixels, as shares of the picture's longer side.
    boxes : ndarray of int32, shape (n, 4)
        `x1, y1, x2, y2` of each superpixel, half-open.
    frame : ndarray of float64, shape (n, 4)
        Pixels on the picture's left, top, right and bottom edge.
    colour : ndarray of float64, shape (n, 3)
        Mean Lab, over 100.
    colour_histograms, texture_histograms : ndarray of float64, shape (n, bins)
        Counts of pixels.
    pairs : ndarray of int32, shape (m, 2)
        Neighbours, each pair once.
    length : ndarray of float64, shape (m,)
        Of their border, in pixels.
    strength : ndarray of float64, shape (m, 4)
        Mean of the boundary maps along it.
    probability : ndarray of float64, shape (m,)
        That the border separates two things.
    """

    labels: IntArray
    area: FloatArray
    moments: FloatArray
    boxes: IntArray
    frame: FloatArray
    colour: FloatArray
    colour_histograms: FloatArray
    texture_histograms: FloatArray
    pairs: IntArray
    length: FloatArray
    strength: FloatArray
    probability: FloatArray

    def __len__(self) -> int:
        return len(self.area)


def region_graph(image: npt.NDArray[np.generic], n_superpixels: int) -> RegionGraph:
    """Cut a picture into superpixels.

    Parameters
    ----------
    image : ndarray of uint8 or float, shape (rows, cols, 3)
        RGB, 0..255.
    n_superpixels : int
        As many, or fewer where a picture is small.

    Returns
    -------
    RegionGraph
    """
    lab = lab_picture(image)
    maps, texture = boundary_maps(lab)
    labels = superpixels(maps, n_superpixels)
    n = int(labels.max()) + 1
    flat = labels.ravel()
    area = np.bincount(flat, minlength=n).astype(np.float64)
    colour = _sums(flat, lab.reshape(-1, 3), n) / area[:, None]
    colours = np.concatenate(
        [_histogram(flat, _colour_bin(lab, i), _COLOUR_BINS, n) for i in range(3)], axis=1
    )
    bins = np.minimum(texture * np.float32(_CONTRAST_BINS / 0.12), _CONTRAST_BINS - 1).astype(np.int64)
    textures = np.concatenate(
        [_histogram(flat, bins[:, :, i], _CONTRAST_BINS, n) for i in range(texture.shape[2])], axis=1
    )
    pairs, length, sums = borders(labels, maps)
    strength = sums / length[:, None]
    local = _local_features(pairs, strength, colour, colours, textures)
    probability = _border_probability(pairs, length, local, area)
    return RegionGraph(
        labels, area, _moments(labels, n), _boxes(labels, n), _frame(labels, n),
        colour, colours, textures, pairs, length, strength, probability,
    )  # fmt: skip


def superpixels(maps: npt.NDArray[np.float32], n_superpixels: int) -> IntArray:
    """Flood a landscape of boundaries and merge regions until so many are left; labels run from 0."""
    strength = maps[:, :, 0] + maps[:, :, 1]  # the others blur fine borders
    # The root spreads the many weak boundaries over more of the 256 steps.
    height = (255 * np.sqrt(np.clip(strength / np.float32(_HIGHEST), 0, 1))).astype(np.uint8)
    labels = np.empty(height.shape, np.int32)
    n = place_markers(height, _CELL, labels)
    flood(height, labels, np.empty(height.size, np.int32))
    if n <= n_superpixels:
        return labels
    pairs, length, sums = borders(labels, strength[:, :, None])
    area = np.bincount(labels.ravel(), minlength=n).astype(np.float64)
    roots, _ = merged(pairs, length, sums[:, 0], area, n_superpixels, _SIZE_POWER)
    return roots[labels]


def merged(
    pairs: IntArray,
    length: FloatArray,
    strength: FloatArray,
    area: FloatArray,
    n_left: int,
    size_power: float,
) -> tuple[IntArray, IntArray]:
    """Merge regions until `n_left` are left.

    Returns
    -------
    roots : ndarray of int32, shape (n,)
        Number of what each region was merged into, from 0.
    parents : ndarray of int32, shape (n + mergers,)
        The tree of mergers: see `visionkl.backend.cpu.regions.merge_regions`.
    """
    n = len(area)
    parents = np.empty(2 * n - 1, np.int32)
    costs = np.empty(2 * n - 1)
    made = merge_regions(pairs, length, strength, area, n_left, size_power, parents, costs)
    parents = parents[:made]
    roots = np.arange(made, dtype=np.int32)
    for region in range(made - 1, -1, -1):
        if parents[region] >= 0:
            roots[region] = roots[parents[region]]
    return np.unique(roots[:n], return_inverse=True)[1].astype(np.int32), parents


def borders(labels: IntArray, maps: npt.NDArray[np.float32]) -> tuple[IntArray, FloatArray, FloatArray]:
    """List neighbours `(m, 2)`, lengths of borders `(m,)`, and sums of maps along them `(m, maps)`."""
    most = 2 * labels.size
    keys = np.empty(most, np.int64)
    values = np.empty((most, maps.shape[2]), np.float32)
    n = count_borders(labels, maps, keys, values)
    found, numbers = np.unique(keys[:n], return_inverse=True)
    pairs = np.stack([found >> 32, found & 0xFFFFFFFF], axis=1).astype(np.int32)
    length = np.bincount(numbers, minlength=len(found)).astype(np.float64)
    return pairs, length, _sums(numbers, values[:n], len(found))


def chi2_distance(one: FloatArray, other: FloatArray) -> FloatArray:
    """Compare rows of histograms, each divided by its sum: 0 for equal ones, 1 where they share no bin."""
    one = one / np.maximum(one.sum(axis=1, keepdims=True), 1e-12)
    other = other / np.maximum(other.sum(axis=1, keepdims=True), 1e-12)
    return 0.5 * (np.square(one - other) / np.maximum(one + other, 1e-12)).sum(axis=1)


def reduced(image: npt.NDArray[np.generic], max_side: int) -> npt.NDArray[np.generic]:
    """Make a picture smaller, if need be, so that its longer side has `max_side` pixels."""
    rows, cols = image.shape[:2]
    factor = max_side / max(rows, cols)
    if factor >= 1:
        return image
    size = (max(round(cols * factor), 1), max(round(rows * factor), 1))
    return cv2.resize(np.ascontiguousarray(image, np.float32), size, interpolation=cv2.INTER_AREA)


# -- what is counted -----------------------------------------------------------------------------------------


def _border_probability(
    pairs: IntArray, length: FloatArray, local: FloatArray, area: FloatArray
) -> FloatArray:
    if not len(pairs):
        return np.zeros(0)
    first = _logistic(local, LOCAL_WEIGHTS)
    late = merging_costs(pairs, length, first, area)
    apart = _spectral_distance(pairs, crossing_costs(length, first), len(area))
    wider = np.column_stack([local, np.log(late + 1e-3), np.log(apart + 1e-3)])
    return _logistic(wider, BORDER_WEIGHTS)


def _logistic(features: FloatArray, weights: tuple[float, ...]) -> FloatArray:
    return 1 / (1 + np.exp(-(weights[0] + features @ np.array(weights[1:]))))


def _local_features(
    pairs: IntArray, strength: FloatArray, colour: FloatArray, colours: FloatArray, textures: FloatArray
) -> FloatArray:
    """Describe borders `(m, 7)`: four roots of strengths, differences in colour, and in both histograms."""
    one, other = pairs[:, 0], pairs[:, 1]
    difference = np.sqrt(np.linalg.norm(colour[one] - colour[other], axis=1))
    return np.column_stack(
        [
            np.sqrt(strength),
            difference,
            np.sqrt(chi2_distance(colours[one], colours[other])),
            np.sqrt(chi2_distance(textures[one], textures[other])),
        ]
    )


def crossing_costs(length: FloatArray, probability: FloatArray) -> FloatArray:
    """Return what it costs to cut each border: its length, less where it is likely to separate things."""
    odds = probability / np.maximum(1 - probability, 1e-9)
    return length * (1 + odds / _HALF_ODDS) ** -_FALL


def merging_costs(
    pairs: IntArray, length: FloatArray, probability: FloatArray, area: FloatArray
) -> FloatArray:
    """Return the cost of the merger at which the two sides of each border come together."""
    n = len(area)
    parents, costs = np.empty(2 * n - 1, np.int32), np.empty(2 * n - 1)
    merge_regions(pairs, length, length * probability, area, 1, _LATE_POWER, parents, costs)
    one, other = pairs.T
    while (different := one != other).any():
        # A merger has a higher number than what it merged: the lower of both goes up.
        one, other = (
            np.where(different & (one < other), parents[one], one),
            np.where(different & (other < one), parents[other], other),
        )
    return costs[one]


def _spectral_distance(pairs: IntArray, weight: FloatArray, n: int) -> FloatArray:
    """Measure how far apart neighbours are in the first eigenvectors of the normalised Laplacian."""
    one, other = pairs.T
    matrix = np.zeros((n, n))
    matrix[one, other] = matrix[other, one] = weight
    degree = matrix.sum(axis=1) + 1e-9
    laplacian = np.eye(n) - matrix / np.sqrt(degree[:, None] * degree)
    last = min(_EIGENVECTORS, n - 1)
    values, vectors = scipy.linalg.eigh(laplacian, subset_by_index=[1, last])
    vectors *= np.sqrt(degree.sum() / degree)[:, None]
    return np.sqrt((np.square(vectors[one] - vectors[other]) / np.maximum(values, 1e-6)).sum(axis=1))


def _sums(numbers: npt.NDArray[np.integer], values: npt.NDArray[np.floating], n: int) -> FloatArray:
    columns = [np.bincount(numbers, weights=column, minlength=n) for column in values.T]
    return np.stack(columns, axis=1) if columns else np.zeros((n, 0))


def _histogram(flat: IntArray, bins: npt.NDArray[np.int64], n_bins: int, n: int) -> FloatArray:
    counts = np.bincount(flat * np.int64(n_bins) + bins.ravel(), minlength=n * n_bins)
    return counts.reshape(n, n_bins).astype(np.float64)


def _colour_bin(lab: npt.NDArray[np.float32], channel: int) -> npt.NDArray[np.int64]:
    # Lightness spans 0..1; a and b rarely leave -0.6..0.6, and mostly lie near 0.
    low, high = (0.0, 1.0) if channel == 0 else (-0.6, 0.6)
    share = (lab[:, :, channel] - low) / (high - low)
    return np.clip(share * _COLOUR_BINS, 0, _COLOUR_BINS - 1).astype(np.int64)


def _moments(labels: IntArray, n: int) -> FloatArray:
    rows, cols = labels.shape
    side = max(rows, cols)
    y, x = np.divmod(np.arange(labels.size), cols)
    x, y = (x + 0.5) / side, (y + 0.5) / side
    return _sums(labels.ravel(), np.stack([x, y, x * x, y * y, x * y], axis=1), n)


def _boxes(labels: IntArray, n: int) -> IntArray:
    y, x = np.divmod(np.arange(labels.size), labels.shape[1])
    boxes = np.empty((n, 4), np.int32)
    boxes[:, :2] = np.iinfo(np.int32).max
    boxes[:, 2:] = 0
    flat = labels.ravel()
    np.minimum.at(boxes[:, 0], flat, x.astype(np.int32))
    np.minimum.at(boxes[:, 1], flat, y.astype(np.int32))
    np.maximum.at(boxes[:, 2], flat, x.astype(np.int32) + 1)
    np.maximum.at(boxes[:, 3], flat, y.astype(np.int32) + 1)
    return boxes


def _frame(labels: IntArray, n: int) -> FloatArray:
    edges = (labels[:, 0], labels[0], labels[:, -1], labels[-1])
    return np.stack([np.bincount(edge, minlength=n) for edge in edges], axis=1).astype(np.float64)
