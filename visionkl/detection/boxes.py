"""From placements to boxes: where filters lie in the picture, and what box that suggests.

A root's window is not the object's box, but root and parts together tell a good deal about it. Box regression
predicts each side of the box linearly from where the filters lie: for each filter, the offset of its centre
from the window's centre, in units of the window's size, and a constant 1. The prediction is the displacement
of that side, in the same units. The window's size is taken between the centres of its outermost pixels (width
- 1), and a window that reaches outside is first cut off at the picture's border: both as in the published
models.
"""

import numpy as np
import numpy.typing as npt

from visionkl.core.boxes import clip
from visionkl.detection.matching import Placements
from visionkl.detection.model import MixtureModel
from visionkl.features.pyramid import FeaturePyramid

Boxes = npt.NDArray[np.float64]


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


def box_features(windows: Boxes, filters: Boxes) -> Boxes:
    """Describe filters' boxes `(n, n_filters, 4)` in their windows `(n, 4)` to the regression.

    The result is `(n, 2 * n_filters + 1)`.
    """
    offsets = (_centres(filters) - _centres(windows)[:, None]) / _spans(windows)[:, None, :2]
    return np.concatenate([offsets.reshape(len(filters), -1), np.ones((len(filters), 1))], axis=1)


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
