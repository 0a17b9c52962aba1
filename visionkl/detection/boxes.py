"""From placements to boxes: where filters lie in the picture, and what box that suggests.

A root's window is not the object's box, but root and parts together tell a good deal about it. Box regression
predicts each side of the box linearly from where the filters lie: for each filter, the offset of its centre
from the window's centre, in units of the window's size, and a constant 1. The prediction is the displacement
of that side, in the same units. The window's size is taken between the centres of its outermost pixels (width
- 1), and a window that reaches outside is first cut off at the picture's border: both as in the published
models.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from visionkl.core.boxes import clip
from visionkl.detection.matching import Placements
from visionkl.detection.model import Component, MixtureModel
from visionkl.features.pyramid import FeaturePyramid

Boxes = npt.NDArray[np.float64]

# Offsets of parts hardly vary: a little ridge, a share of the number of objects, keeps their weights small.
_BOX_RIDGE = 1e-3


def filter_boxes(model: MixtureModel, pyramid: FeaturePyramid, placements: Placements) -> tuple[Boxes, Boxes]:
    """Boxes of roots `(n, 4)` and of parts `(n, n_parts, 4)` in the picture.

    NaN for parts a component does not have.
    """
    root_sizes = np.array([component.root.shape[:2] for component in model.components])
    part_sizes = np.zeros((len(model.components), model.n_parts, 2))
    for number, component in enumerate(model.components):
        for slot, part in enumerate(component.parts):
            part_sizes[number, slot] = part.weights.shape[:2]
    cell = pyramid.cell_size / pyramid.scales
    roots = _boxes(
        placements.roots, root_sizes[placements.components], cell[placements.levels], pyramid.padding
    )
    finer = cell[placements.levels - pyramid.interval][:, None]
    parts = _boxes(placements.parts, part_sizes[placements.components], finer, pyramid.padding)
    parts[placements.parts[..., 0] < 0] = np.nan
    return roots, parts


def regress_boxes(
    model: MixtureModel,
    components: npt.NDArray[np.int64],
    roots: Boxes,
    parts: Boxes,
    image_size: tuple[int, int],
) -> Boxes:
    """Predict objects' boxes `(n, 4)` from the boxes of filters.

    Components without a regression keep the clipped window.
    """
    windows = clip(roots, *image_size).astype(np.float64)
    predicted = windows.copy()
    for number, component in enumerate(model.components):
        mine = np.nonzero(components == number)[0]
        if component.box_weights is None or not len(mine):
            continue
        filters = np.concatenate([roots[mine, None], parts[mine, : len(component.parts)]], axis=1)
        features = box_features(windows[mine], filters)
        predicted[mine] += _spans(windows[mine]) * (features @ component.box_weights.T)
    return predicted


def learn_box_weights(
    model: MixtureModel,
    components: npt.NDArray[np.int64],
    roots: Boxes,
    parts: Boxes,
    image_sizes: npt.NDArray[np.int64],
    targets: Boxes,
) -> tuple[Component, ...]:
    """Learn the regression of each mirrored pair of components from placements on labelled objects.

    Parameters
    ----------
    model : MixtureModel
        Of mirrored pairs: component 2k + 1 is the mirror image of component 2k.
    components : ndarray of int64, shape (n,)
    roots, parts : ndarray of float64, shapes (n, 4) and (n, n_parts, 4)
        Boxes of the placements' filters.
    image_sizes : ndarray of int, shape (n, 2)
        `(width, height)` of the pictures.
    targets : ndarray of float64, shape (n, 4)
        The objects' boxes.

    Returns
    -------
    tuple of Component
        With regressions; pairs with fewer objects than numbers to learn keep the window.
    """
    learned = list(model.components)
    limits = np.concatenate([image_sizes, image_sizes], axis=1).astype(np.float64)
    windows = np.clip(roots, 0, limits)
    for pair in range(0, len(learned), 2):
        features, shifts = [], []
        for flipped in (0, 1):
            mine = np.nonzero(components == pair + flipped)[0]
            filters = np.concatenate([roots[mine, None], parts[mine, : len(learned[pair].parts)]], axis=1)
            described = box_features(windows[mine], filters)
            moved = (targets[mine] - windows[mine]) / _spans(windows[mine])
            if flipped:
                described, moved = described * _mirror_signs(described.shape[1]), _mirrored_shifts(moved)
            features.append(described)
            shifts.append(moved)
        A, b = np.concatenate(features), np.concatenate(shifts)
        if len(A) <= A.shape[1]:
            continue
        ridge = _BOX_RIDGE * len(A) * np.eye(A.shape[1])
        ridge[-1, -1] = 0  # the constant is free
        weights = np.linalg.solve(A.T @ A + ridge, A.T @ b).T
        mirrored_weights = _mirrored_shifts(weights.T * _mirror_signs(len(weights.T))[:, None]).T
        learned[pair] = replace(learned[pair], box_weights=weights.astype(np.float32))
        learned[pair + 1] = replace(learned[pair + 1], box_weights=mirrored_weights.astype(np.float32))
    return tuple(learned)


def _mirror_signs(n_features: int) -> Boxes:
    """Signs of the features `x, y, x, y, ..., 1` in a mirror."""
    signs = np.ones(n_features)
    signs[:-1:2] = -1
    return signs


def _mirrored_shifts(shifts: Boxes) -> Boxes:
    """Displacements `(n, 4)` of a box's sides as a mirror shows them: left and right change places."""
    return shifts[:, [2, 1, 0, 3]] * np.array([-1.0, 1.0, -1.0, 1.0])


def box_features(windows: Boxes, filters: Boxes) -> Boxes:
    """Describe filters' boxes `(n, n_filters, 4)` in their windows `(n, 4)` to the regression.

    The result is `(n, 2 * n_filters + 1)`.
    """
    offsets = (_centres(filters) - _centres(windows)[:, None]) / _spans(windows)[:, None, :2]
    return np.concatenate(
        [offsets.reshape(len(filters), 2 * filters.shape[1]), np.ones((len(filters), 1))], axis=1
    )


def _centres(boxes: Boxes) -> Boxes:
    return (boxes[..., :2] + boxes[..., 2:]) / 2


def _spans(boxes: Boxes) -> Boxes:
    # A window cut down to a sliver still has a span to divide by.
    sizes = np.maximum(boxes[:, 2:] - boxes[:, :2] - 1, 1)
    return np.concatenate([sizes, sizes], axis=1)


def _boxes(
    places: npt.NDArray[np.int64], sizes: npt.NDArray[np.float64], cell: Boxes, padding: tuple[int, int]
) -> Boxes:
    # Rows and columns become y and x.
    first = (places - padding)[..., ::-1]
    return np.concatenate([first, first + sizes[..., ::-1]], axis=-1) * cell[..., None]
