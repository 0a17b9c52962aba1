"""A census of a data set: what is in it, and what is wrong with it.

Every picture and every annotation is read. What cannot be used is put down, in the reader's own sentence, and
the count goes on: the census is the list of what to mend before training.

**Bad**, so that training would stop at it: pictures that cannot be decoded, annotations that cannot be read,
boxes that are empty or lie outside of their picture, ids that occur twice. **Worth knowing**, but not bad:
boxes that stick out of their picture. Objects of a picture with a bad box are not counted.

Pictures are decoded whole, since a truncated file shows only then. `decode=False` reads headers alone and is
several times faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError
from visionkl.core.types import Annotation
from visionkl.datasets.base import BoxError, Dataset, Example

_PICTURES_AT_A_TIME = 64


@dataclass(frozen=True)
class Spread:
    """How numbers spread: the smallest, three quantiles, and the largest."""

    minimum: float
    low: float
    median: float
    high: float
    maximum: float

    @classmethod
    def of(cls, values: npt.ArrayLike) -> Spread | None:
        """Measure the spread of numbers, with the 10% and the 90% quantile; None of no numbers.

        Examples
        --------
        >>> Spread.of(range(11))
        Spread(minimum=0.0, low=1.0, median=5.0, high=9.0, maximum=10.0)
        """
        values = np.asarray(values, dtype=np.float64)
        return cls(*map(float, np.quantile(values, [0, 0.1, 0.5, 0.9, 1]))) if values.size else None


@dataclass(frozen=True)
class ClassCensus:
    """Count of one class.

    Parameters
    ----------
    pictures : int
        Pictures that show the class, or are labelled with it.
    objects, difficult, truncated, occluded : int
        Objects, and how many of them have VOC's flags.
    width, height, aspect : Spread, optional
        Sides of the boxes in pixels, and width over height.
    """

    pictures: int
    objects: int
    difficult: int
    truncated: int
    occluded: int
    width: Spread | None
    height: Spread | None
    aspect: Spread | None


@dataclass(frozen=True)
class Problem:
    """Something that cannot be used.

    Parameters
    ----------
    kind : {"picture", "annotation", "box", "id"}
    id : str
        The example.
    reason : str
        What is wrong, where: one sentence.
    """

    kind: Literal["picture", "annotation", "box", "id"]
    id: str
    reason: str


@dataclass(frozen=True)
class Census:
    """What is in a data set, and what is wrong with it; made by `census`.

    Parameters
    ----------
    name : str
        The data set.
    pictures : int
    unlabelled : int
        Pictures with neither objects nor a label.
    classes : dict of str to ClassCensus
        In the data set's order.
    total : ClassCensus
        All classes together.
    picture_width, picture_height : Spread, optional
    empty_boxes, outside_boxes : int
        Boxes without an area, and boxes altogether outside of their picture.
    sticking_out : tuple of str
        Ids of the pictures with a box that reaches past the border.
    problems : tuple of Problem
        In the order of the pictures.
    """

    name: str
    pictures: int
    unlabelled: int
    classes: dict[str, ClassCensus]
    total: ClassCensus
    picture_width: Spread | None
    picture_height: Spread | None
    empty_boxes: int
    outside_boxes: int
    sticking_out: tuple[str, ...]
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether everything can be used."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Turn it into plain dictionaries, lists and numbers, for JSON."""
        return {"ok": self.ok, **asdict(self)}


@dataclass(frozen=True)
class _Seen:
    """What one example turned out to be."""

    size: tuple[int, int] | None
    annotation: Annotation
    problems: tuple[Problem, ...]
    empty_boxes: int
    outside_boxes: int


def census(
    dataset: Dataset,
    *,
    decode: bool = True,
    n_jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Census:
    """Look at every picture and every annotation of a data set.

    Parameters
    ----------
    dataset : Dataset
    decode : bool
        Whether pictures are decoded whole, or their headers read alone.
    n_jobs : int, optional
        Threads; all usable cores by default.
    progress : callable, optional
        Told how many pictures have been looked at, and how many there are.

    Returns
    -------
    Census

    Examples
    --------
    >>> from pathlib import Path
    >>> data = Dataset("mine", ("dog",), [Example("a", Path("no-such-picture.jpg"))])
    >>> found = census(data)
    >>> found.ok, found.problems[0].reason
    (False, 'no-such-picture.jpg: there is no such file.')
    """
    tally = _Tally()
    for batch in _batches(dataset):
        for example, seen in zip(
            batch, run_tasks(partial(_look_at, decode=decode), batch, n_jobs), strict=True
        ):
            tally.add(example, seen)
        if progress is not None:
            progress(tally.pictures, len(dataset))
    return tally.census(dataset)


def _batches(examples: Iterable[Example]) -> Iterator[list[Example]]:
    rest = iter(examples)
    while batch := list(islice(rest, _PICTURES_AT_A_TIME)):
        yield batch


def _look_at(example: Example, decode: bool) -> _Seen:
    size, objects = None, Annotation()
    problems: list[Problem] = []
    n_empty = n_outside = 0
    try:
        if decode:
            rows, cols = example.image().shape[:2]
            size = (cols, rows)
        else:
            size = example.size()
    except DataError as error:
        problems.append(Problem("picture", example.id, str(error)))
    try:
        objects = example.annotation
    except BoxError as error:
        problems.append(Problem("box", example.id, str(error)))
        n_empty, n_outside = error.n_empty, error.n_outside
    except DataError as error:
        problems.append(Problem("annotation", example.id, str(error)))
    return _Seen(size, objects, tuple(problems), n_empty, n_outside)


class _Tally:
    """What has been seen so far: one row a picture, and one row an object."""

    def __init__(self) -> None:
        self.pictures = 0
        self.ids: Counter[str] = Counter()
        self.sizes: list[tuple[int, int]] = []
        self.labelled: list[tuple[int, str]] = []  # picture and the label of the whole of it
        self.owners: list[int] = []  # of each object: its picture, its class, its sides and its flags
        self.labels: list[str] = []
        self.sides: list[npt.NDArray[np.float32]] = []
        self.flags: list[npt.NDArray[np.bool_]] = []
        self.empty_boxes = 0
        self.outside_boxes = 0
        self.sticking_out: list[str] = []
        self.problems: list[Problem] = []

    def add(self, example: Example, seen: _Seen) -> None:
        objects = seen.annotation
        self.ids[example.id] += 1
        if self.ids[example.id] == 2:
            reason = f"{example.path}: the id {example.id} stands for more than one picture of the data set."
            self.problems.append(Problem("id", example.id, reason))
        self.problems += seen.problems
        self.empty_boxes += seen.empty_boxes
        self.outside_boxes += seen.outside_boxes
        if seen.size is not None:
            self.sizes.append(seen.size)
            limits = np.array([*seen.size, *seen.size])
            if ((objects.boxes < 0) | (objects.boxes > limits)).any():
                self.sticking_out.append(example.id)
        if example.label is not None:
            self.labelled.append((self.pictures, example.label))
        self.owners += [self.pictures] * len(objects)
        self.labels += objects.labels
        self.sides.append(objects.boxes[:, 2:] - objects.boxes[:, :2])
        self.flags.append(np.stack([objects.difficult, objects.truncated, objects.occluded], axis=1))
        self.pictures += 1

    def census(self, dataset: Dataset) -> Census:
        sides = np.concatenate([np.zeros((0, 2), np.float32), *self.sides])
        flags = np.concatenate([np.zeros((0, 3), bool), *self.flags])
        owners = np.array(self.owners, dtype=np.int64)
        rows_of: dict[str, list[int]] = {name: [] for name in dataset.classes}
        for row, label in enumerate(self.labels):
            rows_of.setdefault(label, []).append(row)
        wholes_of: dict[str, set[int]] = {}
        for picture, label in self.labelled:
            wholes_of.setdefault(label, set()).add(picture)

        def count(rows: npt.ArrayLike, wholes: set[int]) -> ClassCensus:
            chosen = np.asarray(rows, dtype=np.int64)
            width, height = sides[chosen].T
            difficult, truncated, occluded = flags[chosen].sum(axis=0).tolist()
            return ClassCensus(
                pictures=len(wholes | set(owners[chosen].tolist())),
                objects=len(chosen),
                difficult=difficult,
                truncated=truncated,
                occluded=occluded,
                width=Spread.of(width),
                height=Spread.of(height),
                aspect=Spread.of(width / height),
            )

        total = count(np.arange(len(owners)), {picture for picture, _ in self.labelled})
        sizes = np.array(self.sizes).reshape(-1, 2)
        return Census(
            name=dataset.name,
            pictures=self.pictures,
            unlabelled=self.pictures - total.pictures,
            classes={name: count(rows, wholes_of.get(name, set())) for name, rows in rows_of.items()},
            total=total,
            picture_width=Spread.of(sizes[:, 0]),
            picture_height=Spread.of(sizes[:, 1]),
            empty_boxes=self.empty_boxes,
            outside_boxes=self.outside_boxes,
            sticking_out=tuple(self.sticking_out),
            problems=tuple(self.problems),
        )
