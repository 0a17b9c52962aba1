"""What all data sets share: an ordered collection of examples that decode nothing until asked.

A data set knows its classes and holds `Example`s. An example has an id and a path, and reads its annotation
and its pixels when they are asked for, so that opening a data set of a million pictures opens none of them.

What cannot be read is an error that names the file, at the moment it is read. A pass over a whole data set
goes through `usable`, the one place that knows what to do then: stop (`on_bad_data="raise"`, the default), or
name it and go on with the next picture (`"skip"`). A picture with one bad box is left out as a whole: without
that box, an object would pass for background.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import DataError, UsageError
from visionkl.core.image import image_size, read_image, read_mask
from visionkl.core.types import Annotation
from visionkl.core.validation import check_choice

OnBadData = Literal["raise", "skip"]
ON_BAD_DATA = ("raise", "skip")

#: Environment variable that says where data sets are.
DATA_VARIABLE = "VISIONKL_DATA"


@dataclass(frozen=True)
class Example:
    """One picture of a data set.

    Parameters
    ----------
    id : str
        Unique within the data set; what results files call the picture.
    path : Path
        The picture file.
    read_annotation : callable, optional
        Reads the objects when asked; a picture without labels has none.
    mask_paths : dict of str to Path, optional
        Segmentation masks by kind, such as "class" and "object".
    label : str, optional
        Class of the picture as a whole, in data sets for image classification.
    """

    id: str
    path: Path
    read_annotation: Callable[[], Annotation] = field(default=Annotation, repr=False, compare=False)
    mask_paths: dict[str, Path] = field(default_factory=dict, repr=False, compare=False)
    label: str | None = None

    @cached_property
    def annotation(self) -> Annotation:
        """The labelled objects; read once."""
        return self.read_annotation()

    def image(self) -> npt.NDArray[np.uint8]:
        """Decode the pixels: uint8 RGB `(rows, cols, 3)`. Nothing is kept."""
        return read_image(self.path)

    def size(self) -> tuple[int, int]:
        """`(width, height)`, from the file's header."""
        return image_size(self.path)

    def mask(self, kind: str = "class") -> npt.NDArray[np.uint8]:
        """Read the segmentation mask of a kind: `(rows, cols)`, as `visionkl.core.image.read_mask` does."""
        if kind not in self.mask_paths:
            there = f"it has {', '.join(map(repr, self.mask_paths))}" if self.mask_paths else "it has none"
            raise UsageError(f"picture {self.id}: there is no mask of the kind {kind!r}; {there}.")
        return read_mask(self.mask_paths[kind])


class Dataset:
    """An ordered collection of examples.

    Parameters
    ----------
    name : str
        For people and for run folders, such as "VOC2012 val".
    classes : sequence of str
        Class names in a fixed order.
    examples : sequence of Example
    on_bad_data : {"raise", "skip"}
        What a pass over the data set (`usable`) does with a picture or an annotation that cannot be read.
    """

    def __init__(
        self,
        name: str,
        classes: Sequence[str],
        examples: Sequence[Example],
        *,
        on_bad_data: OnBadData = "raise",
    ) -> None:
        self.name = name
        self.classes = tuple(classes)
        self.on_bad_data = check_choice(type(self).__name__, "on_bad_data", on_bad_data, ON_BAD_DATA)
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, number: int) -> Example:
        return self._examples[number]

    def __iter__(self) -> Iterator[Example]:
        return iter(self._examples)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {len(self)} pictures, {len(self.classes)} classes>"


def usable(
    dataset: Dataset,
    on_bad_data: OnBadData | None = None,
    *,
    annotations: bool = True,
    on_skip: Callable[[Example, DataError], None] | None = None,
) -> Iterator[tuple[Example, npt.NDArray[np.uint8]]]:
    """Pass over a data set: each example with its decoded picture, and a say in what happens to bad ones.

    Parameters
    ----------
    dataset : Dataset
    on_bad_data : {"raise", "skip"}, optional
        Stop at the first picture or annotation that cannot be read, or leave it out; what the data set was
        opened with by default.
    annotations : bool
        Whether the annotation must be readable, too. It is read along with the picture and kept.
    on_skip : callable, optional
        Told about every example that is left out; by default a warning goes to the log.

    Yields
    ------
    example : Example
    image : ndarray of uint8, shape (rows, cols, 3)

    Raises
    ------
    DataError
        At the first bad example with "raise"; with "skip", if not one example could be used.

    Examples
    --------
    >>> examples = [Example("a", Path("no-such-picture.jpg"))]
    >>> next(usable(Dataset("mine", (), examples)))
    Traceback (most recent call last):
    visionkl.core.errors.DataError: no-such-picture.jpg: there is no such file.
    """
    policy = dataset.on_bad_data if on_bad_data is None else on_bad_data
    check_choice("usable", "on_bad_data", policy, ON_BAD_DATA)
    n_used, first = 0, None
    for example in dataset:
        try:
            image = example.image()
            if annotations:
                _ = example.annotation
        except DataError as error:
            if policy == "raise":
                raise
            first = first or error
            if on_skip is None:
                logging.getLogger("visionkl").warning("left out: %s", error)
            else:
                on_skip(example, error)
            continue
        n_used += 1
        yield example, image
    if first is not None and n_used == 0:
        raise DataError(f"{dataset.name}: not one of its {len(dataset)} pictures can be used; {first}")


# -- for those who read data sets ----------------------------------------------------------------------------


def data_folder() -> Path:
    """Where data sets are looked for and downloaded to: `VISIONKL_DATA`, or `datasets` in this folder."""
    return Path(os.environ.get(DATA_VARIABLE) or "datasets")


class BoxError(DataError):
    """Boxes of a picture that cannot be used; how many of them are empty, and how many lie outside.

    Parameters
    ----------
    message : str
    n_empty, n_outside : int
    """

    def __init__(self, message: str, n_empty: int = 0, n_outside: int = 0) -> None:
        super().__init__(message)
        self.n_empty = n_empty
        self.n_outside = n_outside


def check_boxes(
    boxes: npt.NDArray[np.floating[Any]],
    size: tuple[int, int],
    describe: Callable[[int], str],
    *,
    sides_above: float = 0.0,
) -> None:
    """Complain of boxes that are empty, inside out, no numbers, or altogether outside of their picture.

    Parameters
    ----------
    boxes : ndarray of float, shape (n, 4)
    size : tuple of int
        `(width, height)` of the picture.
    describe : callable
        Says of a row number where the box stands and how it is written there: the sentence's subject.
    sides_above : float
        Sides must be longer than this.

    Raises
    ------
    BoxError
        In the words of the first bad box, with the number of the others.

    Examples
    --------
    >>> check_boxes(np.array([[5.0, 5, 5, 9]]), (100, 50), "a.xml: the box of object number {}".format)
    Traceback (most recent call last):
    visionkl.datasets.base.BoxError: a.xml: the box of object number 0 is empty.
    """
    width, height = size
    x1, y1, x2, y2 = np.asarray(boxes, dtype=np.float64).reshape(-1, 4).T
    whole = np.isfinite(x1) & np.isfinite(y1) & np.isfinite(x2) & np.isfinite(y2)
    empty = ~(whole & (x2 - x1 > sides_above) & (y2 - y1 > sides_above))
    outside = ~empty & ((x1 >= width) | (y1 >= height) | (x2 <= 0) | (y2 <= 0))
    bad = np.flatnonzero(empty | outside)
    if len(bad):
        row = int(bad[0])
        inside_out = bool(x2[row] < x1[row] or y2[row] < y1[row])
        what = "is inside out" if inside_out else "is empty"
        if not whole[row]:
            what = "is not made of finite numbers"
        if outside[row]:
            what = f"lies outside of the picture, which has {width} × {height} pixels"
        others = f" ({len(bad) - 1} more of this picture cannot be used, either)" if len(bad) > 1 else ""
        raise BoxError(f"{describe(row)} {what}{others}.", int(empty.sum()), int(outside.sum()))


def check_classes(owner: str, wanted: Sequence[str], there: Sequence[str]) -> tuple[str, ...]:
    """Return the wanted classes if all are there; the complaint lists what there is."""
    if isinstance(wanted, str):
        raise UsageError(
            f"The 'classes' parameter of {owner} must be a list of names. Got {wanted!r} instead."
        )
    unknown = [name for name in wanted if name not in there]
    if unknown or not len(wanted):
        what = f"there is no class {unknown[0]!r}" if unknown else "no class is asked for"
        raise UsageError(f"{owner}: {what}; there are {listing(there)}.")
    return tuple(wanted)


def listing(names: Sequence[str], most: int = 30) -> str:
    """Write names for an error message, the first `most` of them.

    Examples
    --------
    >>> listing(["train", "val"]), listing([]), listing(["a", "b", "c"], most=2)
    ('train, val', 'none', 'a, b, ... (3 in all)')
    """
    shown = ", ".join(names[:most])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > most else shown or "none"
