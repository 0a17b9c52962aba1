"""Data sets in the format of YOLO: beside each picture's folder, a folder of text files with boxes.

A line of `labels/train/street.txt` is `class x y width height`: the number of the class, and the centre and
the sides of the box as fractions of the picture's width and height. A picture without a text file, or with an
empty one, has no objects. The text file's path is that of the picture with the last folder `images` replaced
by `labels`, or the picture's own folder.

The classes' names, and where the splits are, stand in a `data.yaml`::

    path: .                       # optional; where the splits are, seen from this file
    train: images/train           # a folder, a list of paths in a .txt file, or several of these
    val: images/val
    names: [bicycle, bus]         # or {0: bicycle, 1: bus}

A folder without one needs a `classes.txt` (a name a line), and pictures in `images/<split>`,
`<split>/images`, `<split>`, or, all in one, `images`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import yaml

from visionkl.core.errors import DataError, UsageError
from visionkl.core.image import image_size
from visionkl.core.types import Annotation
from visionkl.datasets.base import Dataset, Example, OnBadData, check_boxes, listing
from visionkl.datasets.folder import pictures_below

_SPLITS = ("train", "val", "test")


class YOLO(Dataset):
    r"""A data set in the format of YOLO.

    Parameters
    ----------
    root : str or Path
        A `data.yaml`, or the folder that holds one or a `classes.txt`.
    split : str
        "train", "val" or "test".
    on_bad_data : {"raise", "skip"}
        What a pass over the data set (`visionkl.datasets.base.usable`) does with a picture or an annotation
        that cannot be used.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ("images", "labels"):
    ...     (root / name / "val").mkdir(parents=True)
    >>> Image.new("RGB", (200, 100)).save(root / "images" / "val" / "a.png")
    >>> _ = (root / "labels" / "val" / "a.txt").write_text("1 0.5 0.5 0.5 0.2")
    >>> _ = (root / "classes.txt").write_text("bicycle\nbus\n")
    >>> objects = YOLO(root, "val")[0].annotation
    >>> objects.labels, objects.boxes.tolist()
    (('bus',), [[50.0, 40.0, 150.0, 60.0]])
    """

    def __init__(self, root: str | Path, split: str = "train", *, on_bad_data: OnBadData = "raise") -> None:
        root = Path(root)
        description = _find_description(root)
        if description.suffix.lower() == ".txt":
            names, places = _names_from_lines(description), _usual_places(root, split)
        else:
            document = _read_yaml(description)
            names, places = _names_from_yaml(description, document), _places(description, document, split)
        examples = []
        for folder, inside in places:
            path = folder / inside
            id = PurePath(inside).with_suffix("").as_posix()
            examples.append(Example(id, path, partial(_read_labels, path, names)))
        if not examples:
            raise DataError(f"{description}: there are no pictures in the split {split!r}.")
        name = description.resolve().parent.name
        super().__init__(f"{name} {split}", names, examples, on_bad_data=on_bad_data)


def _find_description(root: Path) -> Path:
    if root.is_file():
        return root
    if not root.is_dir():
        raise DataError(f"{root}: there is no such file or folder; a data.yaml or its folder is wanted.")
    for name in ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml", "classes.txt"):
        if (root / name).is_file():
            return root / name
    there = listing(sorted(os.listdir(root)), most=8)
    raise DataError(f"{root}: there is neither a data.yaml nor a classes.txt in this folder, but {there}.")


# -- names ---------------------------------------------------------------------------------------------------


def _names_from_lines(path: Path) -> tuple[str, ...]:
    names = tuple(line.strip() for line in _text(path).splitlines() if line.strip())
    if not names:
        raise DataError(f"{path}: the file names no classes; it must have one name a line.")
    return names


def _names_from_yaml(path: Path, document: dict[str, Any]) -> tuple[str, ...]:
    names = document.get("names")
    if isinstance(names, dict):
        names = [names.get(number) for number in range(len(names))]
    if not isinstance(names, list) or not names or not all(isinstance(name, str | int) for name in names):
        raise DataError(
            f"{path}: 'names' must list the classes, as [bicycle, bus] or {{0: bicycle, 1: bus}}, "
            f"not {document.get('names')!r}."
        )
    return tuple(map(str, names))


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(_text(path))
    except yaml.YAMLError as error:
        raise DataError(f"{path}: this is not YAML ({' '.join(str(error).split())}).") from None
    if not isinstance(document, dict):
        raise DataError(
            f"{path}: this does not describe a data set: 'names' and a split such as 'train' are wanted."
        )
    return document


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: this is not a text file.") from None


# -- pictures ------------------------------------------------------------------------------------------------


def _usual_places(root: Path, split: str) -> Iterator[tuple[Path, str]]:
    usual = [root / "images" / split, root / split / "images", root / split]
    if not any((root / "images" / name).is_dir() or (root / name).is_dir() for name in _SPLITS):
        usual.append(root / "images")  # not split at all
    for folder in usual:
        if folder.is_dir():
            return ((folder, name) for name in pictures_below(folder))
    raise UsageError(
        f"{root}: there is no split {split!r}; its pictures are looked for in images/{split}, {split}/images "
        f"and {split}."
    )


def _places(path: Path, document: dict[str, Any], split: str) -> Iterator[tuple[Path, str]]:
    entries = document.get(split)
    if not entries:
        there = [name for name in _SPLITS if document.get(name)]
        raise UsageError(f"{path}: there is no split {split!r}; there is {listing(there)}.")
    base = path.parent / str(document.get("path") or "")
    for entry in entries if isinstance(entries, list) else [entries]:
        place = _existing(path, base, str(entry))
        if place.is_dir():
            yield from ((place, name) for name in pictures_below(place))
        else:
            for line in filter(None, map(str.strip, _text(place).splitlines())):
                yield (place.parent, line)


def _existing(path: Path, base: Path, entry: str) -> Path:
    # Some exporters write paths as seen from a folder below the one that holds the YAML file.
    places = [base / entry, path.parent / entry, path.parent / entry.removeprefix("../")]
    for place in places:
        if place.exists():
            return place
    raise DataError(f"{path}: there is no {entry!r} as seen from {base}, which the file names.")


# -- labels --------------------------------------------------------------------------------------------------


def _labels_path(picture: Path) -> Path:
    parts = list(picture.parts)
    if "images" in parts[:-1]:
        parts[len(parts) - 2 - parts[-2::-1].index("images")] = "labels"
    return Path(*parts).with_suffix(".txt")


def _read_labels(picture: Path, names: tuple[str, ...]) -> Annotation:
    path = _labels_path(picture)
    if not path.is_file():
        return Annotation()
    rows: list[list[float]] = []
    lines: list[tuple[int, str]] = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = [float(word) for word in line.split()]
        except ValueError:
            row = []
        if len(row) != 5 or not row[0].is_integer():
            raise DataError(f"{path}: line {number} must be 'class x y width height', not {line.strip()!r}.")
        if not 0 <= row[0] < len(names):
            raise DataError(
                f"{path}: line {number} has the class {row[0]:g}; there are 0 to {len(names) - 1} "
                f"({listing(names)})."
            )
        rows.append(row)
        lines.append((number, line.strip()))
    if not rows:
        return Annotation()
    width, height = image_size(picture)
    table = np.array(rows, dtype=np.float64)
    centre, sides = table[:, 1:3] * [width, height], table[:, 3:5] * [width, height]
    boxes = np.hstack([centre - sides / 2, centre + sides / 2])
    check_boxes(
        boxes, (width, height), lambda row: f"{path}: the box of line {lines[row][0]} ({lines[row][1]})"
    )
    return Annotation(boxes=boxes, labels=tuple(names[int(number)] for number in table[:, 0]))  # type: ignore[arg-type]
