"""What all data sets share: an ordered collection of examples that decode nothing until asked.

A data set knows its classes and holds `Example`s. An example has an id and a path, and reads its annotation and its pixels when
they are asked for, so that a census of a million pictures opens none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from visionkl.core.image import image_size, read_image
from visionkl.core.types import Annotation


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
    """

    id: str
    path: Path
    read_annotation: Callable[[], Annotation] = field(default=Annotation, repr=False, compare=False)
    mask_paths: dict[str, Path] = field(default_factory=dict, repr=False, compare=False)

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


class Dataset:
    """An ordered collection of examples.

    Parameters
    ----------
    name : str
        For people and for run folders, such as "VOC2012 val".
    classes : sequence of str
        Class names in a fixed order.
    examples : sequence of Example
    """

    def __init__(self, name: str, classes: tuple[str, ...], examples: list[Example]) -> None:
        self.name = name
        self.classes = tuple(classes)
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, number: int) -> Example:
        return self._examples[number]

    def __iter__(self) -> Iterator[Example]:
        return iter(self._examples)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {len(self)} pictures, {len(self.classes)} classes>"
