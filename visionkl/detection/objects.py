"""What there is to learn from: the objects of one class in a data set, and the pictures around them.

Difficult objects are not learned from, but nothing that overlaps them counts as background, either. Objects
that reach outside their picture (truncated) are learned from, but do not decide the shapes of root filters;
boxes that do are cut off at the border, as windows are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from visionkl.core.boxes import clip
from visionkl.core.errors import DataError
from visionkl.datasets.base import Dataset, Example, check_boxes, check_classes, usable
from visionkl.detection.initialise import group_by_aspect, root_size
from visionkl.detection.settings import TrainingSettings

# Fewer objects than this do not make a component of their own.
_OBJECTS_A_COMPONENT = 4
_FEWEST_OBJECTS = 2

Boxes = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TrainingPicture:
    """A picture and its objects of the class.

    Parameters
    ----------
    id : str
    path : Path
    size : tuple of int
        `(width, height)`.
    boxes : ndarray of float64, shape (n, 4)
        Objects to learn from.
    whole : ndarray of bool, shape (n,)
        Which of them are not truncated.
    all_boxes : ndarray of float64, shape (m, 4)
        These and the difficult ones: places that are not background.
    """

    id: str
    path: Path
    size: tuple[int, int]
    boxes: Boxes
    whole: npt.NDArray[np.bool_]
    all_boxes: Boxes


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The pictures of a data set as training sees them.

    Parameters
    ----------
    name, label : str
        The data set's, and the class.
    pictures : tuple of TrainingPicture
    roots : tuple of tuple of int
        `(rows, cols)` of the root filter of each learned component.
    groups : tuple of ndarray of int
        For each component, the numbers of the whole objects that it starts from, as `objects` counts them.
    n_difficult : int
        Objects that are left out.
    n_small : int
        Objects that are smaller than any root filter at the picture's own resolution: they cannot be learned.
    """

    name: str
    label: str
    pictures: tuple[TrainingPicture, ...]
    roots: tuple[tuple[int, int], ...]
    groups: tuple[npt.NDArray[np.intp], ...]
    n_difficult: int
    n_small: int

    @property
    def objects(self) -> list[tuple[int, int]]:
        """Picture number and row of every object to learn from."""
        return [(i, row) for i, picture in enumerate(self.pictures) for row in range(len(picture.boxes))]

    @property
    def with_objects(self) -> list[int]:
        """Numbers of the pictures with objects to learn from."""
        return [i for i, picture in enumerate(self.pictures) if len(picture.boxes)]

    @property
    def padding(self) -> tuple[int, int]:
        """Cells around each level of a pyramid, for the largest root."""
        return max(rows for rows, _ in self.roots), max(cols for _, cols in self.roots)


def collect(
    dataset: Dataset,
    label: str,
    settings: TrainingSettings,
    *,
    on_picture: Callable[[], None] | None = None,
    on_skip: Callable[[Example, DataError], None] | None = None,
) -> TrainingData:
    """Read all pictures and annotations once, and settle the shapes of the root filters.

    Parameters
    ----------
    dataset : Dataset
        Its `on_bad_data` says what happens to pictures that cannot be read.
    label : str
    settings : TrainingSettings
    on_picture : callable, optional
        Called after each picture.
    on_skip : callable, optional
        Told about every picture that is left out.

    Raises
    ------
    DataError
        If there is too little to learn from; the sentence says what to do.
    """
    check_classes(f"{dataset.name}", [label], dataset.classes)
    pictures = []
    for example, image in usable(dataset, on_skip=on_skip):
        try:
            pictures.append(_picture(example, (image.shape[1], image.shape[0]), label))
        except DataError as error:
            if dataset.on_bad_data == "raise" or on_skip is None:
                raise
            on_skip(example, error)
        if on_picture is not None:
            on_picture()
    n_difficult = sum(len(picture.all_boxes) - len(picture.boxes) for picture in pictures)
    boxes = _boxes(pictures)
    if len(boxes) < _FEWEST_OBJECTS:
        there = f"only {len(boxes)} object" if len(boxes) else "no object"
        beside = f", beside {n_difficult} marked difficult" if n_difficult else ""
        raise DataError(
            f"{dataset.name}: there is {there} of the class {label!r} to learn from{beside}; at least "
            f"{_FEWEST_OBJECTS} are needed, and some dozens are sensible: label more pictures, or choose "
            "another split or class."
        )
    whole = np.concatenate([picture.whole for picture in pictures])
    roots, groups = _shape_roots(boxes, whole, settings)
    n_small = n_too_small(pictures, roots, settings)
    if n_small == len(boxes):
        cell = settings.cell_size
        rows, cols = min(roots, key=lambda root: root[0] * root[1])
        width, height = max(boxes[:, 2:] - boxes[:, :2], key=np.prod)
        raise DataError(
            f"{dataset.name}: all {len(boxes)} objects of the class {label!r} are too small: the largest has "
            f"{width:.0f} × {height:.0f} pixels, the smallest filter {cols * cell} × {rows * cell}; a "
            "smaller cell size, or larger pictures, would do."
        )
    return TrainingData(dataset.name, label, tuple(pictures), roots, groups, n_difficult, n_small)


def _picture(example: Example, size: tuple[int, int], label: str) -> TrainingPicture:
    """Take the objects of a picture, cut off at its border."""
    objects = example.annotation.of(label)
    check_boxes(objects.boxes, size, lambda row: f"{example.path}: the box of {label} number {row + 1}")
    boxes = clip(objects.boxes, *size).astype(np.float64)
    # Corners that are off by one say nothing about the object.
    whole = ~objects.truncated & (np.abs(boxes - objects.boxes) <= 1).all(axis=1)
    easy = ~objects.difficult
    return TrainingPicture(example.id, example.path, size, boxes[easy], whole[easy], boxes)


def _shape_roots(
    boxes: Boxes, whole: npt.NDArray[np.bool_], settings: TrainingSettings
) -> tuple[tuple[tuple[int, int], ...], tuple[npt.NDArray[np.intp], ...]]:
    """Group objects by aspect ratio; return root sizes and groups."""
    chosen = np.flatnonzero(whole)
    if len(chosen) < _FEWEST_OBJECTS:
        chosen = np.arange(len(boxes))
    sizes = boxes[:, 2:] - boxes[:, :2]
    n_groups = max(min(settings.n_components, len(chosen) // _OBJECTS_A_COMPONENT), 1)
    groups = tuple(chosen[group] for group in group_by_aspect(sizes[chosen], n_groups))
    roots = tuple(root_size(sizes[group], settings.cell_size) for group in groups)
    return roots, groups


def n_too_small(
    pictures: Sequence[TrainingPicture], roots: Sequence[tuple[int, int]], settings: TrainingSettings
) -> int:
    """Count the objects that are smaller than any root filter at their picture's own resolution."""
    boxes = _boxes(pictures)
    smallest = min(rows * cols for rows, cols in roots) * settings.cell_size**2
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    return int((areas < settings.min_overlap * smallest).sum())


def _boxes(pictures: Sequence[TrainingPicture]) -> Boxes:
    return np.concatenate([np.zeros((0, 4)), *(picture.boxes for picture in pictures)])
