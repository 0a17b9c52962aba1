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

from visionkl.backend.boxes import box_features, boxes_of_places, cut_off, inside_picture, move_sides, spans
from visionkl.backend.dispatch import device_of
from visionkl.detection.matching import Placements
from visionkl.detection.model import Component, MixtureModel
from visionkl.features.pyramid import FeaturePyramid

Boxes = npt.NDArray[np.float64]

# Offsets of parts hardly vary: a little ridge, a share of the number of objects, keeps their weights small.
_BOX_RIDGE = 1e-3


def filter_boxes(model: MixtureModel, pyramid: FeaturePyramid, placements: Placements) -> tuple[Boxes, Boxes]:
    """Boxes of roots `(n, 4)` and of parts `(n, n_parts, 4)` in the picture, where the placements lie.

    NaN for parts a component does not have.
    """
    root_sizes = np.array([component.root.shape[:2] for component in model.components], np.float64)
    part_sizes = np.zeros((len(model.components), model.n_parts, 2))
    for number, component in enumerate(model.components):
        for slot, part in enumerate(component.parts):
            part_sizes[number, slot] = part.weights.shape[:2]
    device = device_of(placements.roots, placements.parts)
    of_roots, of_parts, cell, padding = map(
        device.put,
        (root_sizes, part_sizes, pyramid.cell_size / pyramid.scales, np.array(pyramid.padding, np.float64)),
    )
    components, levels = placements.components, placements.levels
    with device.use():
        roots = boxes_of_places(placements.roots, of_roots[components], cell[levels], padding)
        finer = cell[levels - pyramid.interval][:, None]
        return roots, boxes_of_places(placements.parts, of_parts[components], finer, padding)


def regress_boxes(
    model: MixtureModel,
    components: npt.NDArray[np.int64],
    roots: Boxes,
    parts: Boxes,
    image_size: tuple[int, int],
) -> Boxes:
    """Predict objects' boxes `(n, 4)` from the boxes of filters, where these lie.

    Components without a regression keep the clipped window.
    """
    device = device_of(components, roots, parts)
    xp = device.namespace
    with device.use():
        windows = cut_off(roots, device.put(_limits(image_size, np.float64)))
        predicted = windows.copy()
        for number, component in enumerate(model.components):
            if component.box_weights is None:
                continue
            mine = xp.nonzero(components == number)[0]
            if len(mine):
                own = parts[mine][:, : len(component.parts)]
                filters = xp.concatenate([roots[mine][:, None], own], axis=1)
                predicted[mine] = move_sides(windows[mine], filters, device.put(component.box_weights))
        return predicted


def boxes_in_picture(
    boxes: Boxes, image_size: tuple[int, int]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Cut predicted boxes off at the picture's border, and tell which are left.

    A regression far from its training data may turn a box inside out: such a box is empty, as is one that
    lies outside.

    Returns
    -------
    boxes : ndarray of float32, shape (n, 4)
    rows : ndarray of int64, shape (m,)
        Which are not empty.
    """
    device = device_of(boxes)
    with device.use():
        return inside_picture(boxes, device.put(_limits(image_size, np.float32)))


def _limits(image_size: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[np.floating]:
    return np.array([*image_size, *image_size], dtype)


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
            moved = (targets[mine] - windows[mine]) / spans(windows[mine])
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
