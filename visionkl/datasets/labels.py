"""What pictures show as a whole: the labels of image classification, and pictures set aside for a test.

There are two kinds. In a folder of classes every picture has one label, and the classes exclude each other.
In a data set with labelled objects a picture shows any number of classes; one of which it shows difficult
objects alone says nothing about this class, and is left out where the class is learned or scored, as in VOC.
Both are written as *signs*: for each picture and class 1 (shows it), -1 (does not) or 0 (says nothing).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import DataError
from visionkl.core.rng import stream
from visionkl.core.validation import check_number
from visionkl.datasets.base import Dataset, check_classes, listing
from visionkl.datasets.voc import VOC, image_label

Signs = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class LabelledPictures:
    """Pictures, and which classes they show.

    Parameters
    ----------
    name : str
        For people.
    classes : tuple of str
    pictures : sequence
        Examples, paths or arrays.
    signs : ndarray of int8, shape (n_pictures, n_classes)
        1: shows the class; -1: does not; 0: says nothing about it.
    exclusive : bool
        Whether each picture shows one class.
    """

    name: str
    classes: tuple[str, ...]
    pictures: Sequence[Any]
    signs: Signs
    exclusive: bool

    def __len__(self) -> int:
        return len(self.pictures)

    def check_learnable(self) -> None:
        """Complain if there is nothing to tell apart."""
        if self.exclusive and len(self.classes) < 2:
            raise DataError(
                f"{self.name}: all {len(self)} pictures are of one class, {listing(self.classes)}; at least "
                "two classes are needed to tell apart."
            )
        for label, column in zip(self.classes, self.signs.T, strict=True):
            beside = (
                f" (beside {(column == 0).sum()} with difficult ones alone)" if (column == 0).any() else ""
            )
            if not (column > 0).any():
                raise DataError(
                    f"{self.name}: none of the {len(self)} pictures shows the class {label!r}{beside}, so it "
                    "cannot be learned; add pictures of it, or leave the class out."
                )
            if not (column < 0).any():
                raise DataError(
                    f"{self.name}: all {len(self)} pictures show the class {label!r}{beside}; add pictures "
                    "without it, or leave the class out."
                )


def labelled(dataset: Dataset, classes: Sequence[str] | None = None) -> LabelledPictures:
    """Tell which classes the pictures of a data set show.

    Parameters
    ----------
    dataset : Dataset
        With a label a picture, such as `ImageFolder`, or with labelled objects, such as `VOC`.
    classes : sequence of str, optional
        All by default. Where labels exclude each other, pictures of other classes are left out.

    Examples
    --------
    >>> from visionkl.datasets.base import Example
    >>> flowers = [Example("a", Path("a.jpg"), label="daisy"), Example("b", Path("b.jpg"), label="tulip")]
    >>> labelled(Dataset("flowers", ["daisy", "tulip"], flowers)).signs
    array([[ 1, -1],
           [-1,  1]], dtype=int8)
    """
    chosen = check_classes(dataset.name, dataset.classes if classes is None else classes, dataset.classes)
    examples = list(dataset)
    if any(example.label is not None for example in examples):
        examples = [example for example in examples if example.label in chosen]
        return from_labels([example.label for example in examples], examples, dataset.name, chosen)
    if isinstance(dataset, VOC):
        columns = [dataset.image_labels(label) for label in chosen]
    else:
        columns = [
            np.array([image_label(example, label) for example in examples], np.int8) for label in chosen
        ]
    return LabelledPictures(dataset.name, chosen, examples, np.stack(columns, axis=1), False)


def from_labels(
    labels: Sequence[Any],
    pictures: Sequence[Any],
    name: str = "pictures",
    classes: Sequence[str] | None = None,
) -> LabelledPictures:
    """Put pictures and labels together.

    Parameters
    ----------
    labels : sequence of str, or of collections of str
        The class of each picture; or all classes that it shows, of which there may be none.
    pictures : sequence
    name : str
    classes : sequence of str, optional
        In this order; all that occur, in alphabetical order, by default.

    Examples
    --------
    >>> from_labels([{"cat", "dog"}, {"dog"}, ()], ["a.jpg", "b.jpg", "c.jpg"]).signs
    array([[ 1,  1],
           [-1,  1],
           [-1, -1]], dtype=int8)
    """
    if len(labels) != len(pictures):
        raise DataError(f"{name}: there are {len(pictures)} pictures, but labels of {len(labels)}.")
    exclusive = not any(isinstance(label, Collection) and not isinstance(label, str) for label in labels)
    shown = [(label,) if exclusive else tuple(label) for label in labels]
    if classes is None:
        classes = sorted({str(label) for labels_of_one in shown for label in labels_of_one})
    numbers = {label: number for number, label in enumerate(classes)}
    signs = np.full((len(pictures), len(classes)), -1, np.int8)
    for row, labels_of_one in enumerate(shown):
        signs[row, [numbers[str(label)] for label in labels_of_one]] = 1
    return LabelledPictures(name, tuple(classes), pictures, signs, exclusive)


# -- setting pictures aside ----------------------------------------------------------------------------------


def split_by_class(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """Set a share of the pictures of each label aside, at random; at least one, and never all.

    Parameters
    ----------
    dataset : Dataset
        With a label a picture.
    share : float
        Above 0 and below 1.
    seed : int

    Returns
    -------
    rest, aside : Dataset
    """
    check_number("split_by_class", "share", share, low=0, high=1)
    aside: set[int] = set()
    for label in dataset.classes:
        members = [number for number, example in enumerate(dataset) if example.label == label]
        if len(members) < 2:
            raise DataError(
                f"{dataset.name}: the class {label!r} has {len(members)} picture, which cannot be both "
                "learned from and scored on; add pictures, or leave the class out."
            )
        n_aside = min(max(round(share * len(members)), 1), len(members) - 1)
        order = stream(seed, "pictures set aside", label).permutation(len(members))
        aside.update(members[place] for place in order[:n_aside])
    return _part(dataset, "train", [n for n in range(len(dataset)) if n not in aside]), _part(
        dataset, "test", sorted(aside)
    )


def pick_listed(dataset: Dataset, path: Path) -> Dataset:
    """Take the pictures that a text file lists, one a line: ids, or paths inside the data set's folder."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the list cannot be read ({error}).") from None
    numbers = {example.id: number for number, example in enumerate(dataset)}
    for example in list(dataset):  # with the ending of the file, too
        numbers.setdefault(f"{example.id}{example.path.suffix}", numbers[example.id])
    for number, line in enumerate(lines, start=1):
        if line not in numbers:
            raise DataError(
                f"{path}: line {number} names {line!r}, which is none of the {len(dataset)} pictures of "
                f"{dataset.name}; a line is a path inside that folder, such as {dataset[0].id}."
            )
    if not lines:
        raise DataError(f"{path}: the list is empty.")
    return _part(dataset, path.stem, [numbers[line] for line in dict.fromkeys(lines)])


def _part(dataset: Dataset, name: str, numbers: Sequence[int]) -> Dataset:
    examples = [dataset[number] for number in numbers]
    return Dataset(f"{dataset.name} {name}", dataset.classes, examples, on_bad_data=dataset.on_bad_data)
