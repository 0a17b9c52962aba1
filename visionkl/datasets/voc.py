"""PASCAL VOC, 2007 to 2012, and every data set that keeps to its layout.

The layout, inside a folder such as `VOCdevkit/VOC2012`::

    ImageSets/Main/train.txt, val.txt, ...      ids of a split, one a line
    ImageSets/Main/bicycle_train.txt, ...       ids and 1, 0 or -1: has a bicycle, only a difficult one, none
    ImageSets/Segmentation/train.txt, ...       ids of the pictures that have masks
    Annotations/2008_000036.xml                 objects: class, box, difficult, truncated, occluded, pose
    JPEGImages/2008_000036.jpg
    SegmentationClass/2008_000036.png           palette pictures: numbers of classes
    SegmentationObject/2008_000036.png          numbers of objects

Opening a data set reads its lists, and neither pictures nor annotations. Only where there are no lists by
class, as in most home-made sets, annotations are read to learn which classes there are.

VOC's 1-based inclusive corners are turned into boxes by `visionkl.datasets.voc_xml`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import DataError, UsageError
from visionkl.core.image import PICTURE_SUFFIXES
from visionkl.datasets.base import Dataset, Example, OnBadData, check_classes, data_folder, listing
from visionkl.datasets.voc_xml import labels_in, read_voc_xml

#: The classes of VOC2007 to VOC2012, in the order of the masks' numbers, which begin with 1.
VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip

# Number of pixels that belong to nobody knows what.
_VOID = 255
_MASK_FOLDERS = {"class": "SegmentationClass", "object": "SegmentationObject"}
_YEAR_FOLDER = re.compile(r"VOC(\d{4})")


class VOC(Dataset):
    r"""PASCAL VOC, or another data set in its layout.

    Parameters
    ----------
    root : str or Path, optional
        The `VOCdevkit` folder, the folder above it, or a folder such as `VOC2012` itself; by default
        `VISIONKL_DATA`, or `datasets` in the current folder.
    year : str, optional
        Which `VOC<year>` folder; by default the only one there is, and "2012" where there are several.
    split : str
        A list in `ImageSets/Main`: "train", "val", "trainval", "test", or any other. Where there is no list
        "trainval", it is "train" followed by "val".
    classes : sequence of str, optional
        Leave out the objects of all other classes (the pictures stay: they are negatives). By default VOC's
        twenty classes where no other occurs, and else all that occur, in alphabetical order.
    image_set : str
        Which folder of `ImageSets` holds the list, such as "Segmentation".
    on_bad_data : {"raise", "skip"}
        What a pass over the data set (`visionkl.datasets.base.usable`) does with a picture or an annotation
        that cannot be read. Reading one by hand always raises.

    Attributes
    ----------
    folder : Path
        The `VOC<year>` folder.
    split : str

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "VOCdevkit" / "VOC2007"
    >>> (folder / "ImageSets" / "Main").mkdir(parents=True)
    >>> _ = (folder / "ImageSets" / "Main" / "val.txt").write_text("000005\n000007\n")
    >>> val = VOC(folder.parent, split="val")
    >>> val, val[1].id
    (<VOC 'VOC2007 val': 2 pictures, 20 classes>, '000007')
    """

    def __init__(
        self,
        root: str | Path | None = None,
        year: str | int | None = None,
        split: str = "trainval",
        classes: Sequence[str] | None = None,
        on_bad_data: OnBadData = "raise",
        *,
        image_set: str = "Main",
    ) -> None:
        self.folder = _find_folder(data_folder() if root is None else Path(root), year)
        self.split = split
        listed_ids = _split_ids(self.folder, image_set, split)
        names, others = _choose_classes(self.folder, classes)
        pictures = _files_by_id(self.folder / "JPEGImages", PICTURE_SUFFIXES)
        masks = {kind: _files_by_id(self.folder / name, {".png"}) for kind, name in _MASK_FOLDERS.items()}
        examples = []
        for id in listed_ids:
            path = pictures.get(id, self.folder / "JPEGImages" / f"{id}.jpg")
            xml = self.folder / "Annotations" / f"{id}.xml"
            examples.append(
                Example(
                    id,
                    path,
                    partial(read_voc_xml, xml, path, names, others=others),
                    {kind: files[id] for kind, files in masks.items() if id in files},
                )
            )
        name = " ".join([self.folder.name, *([] if image_set == "Main" else [image_set]), split])
        super().__init__(name, names, examples, on_bad_data=on_bad_data)

    def image_labels(self, label: str) -> npt.NDArray[np.int8]:
        """Tell for each picture whether it shows a class, as in VOC's classification task.

        Parameters
        ----------
        label : str
            One of the data set's classes.

        Returns
        -------
        ndarray of int8, shape (pictures,)
            1: the class is there; 0: only objects marked difficult are; -1: it is not there. From the list
            by class where there is one, and from the annotations elsewhere.
        """
        check_classes(self.name, [label], self.classes)
        path = self.folder / "ImageSets" / "Main" / f"{label}_{self.split}.txt"
        listed = _labels_by_id(path) if path.is_file() else {}
        if all(example.id in listed for example in self):
            return np.array([listed[example.id] for example in self], dtype=np.int8)
        return np.array([image_label(example, label) for example in self], dtype=np.int8)


def voc_splits(root: str | Path | None = None, year: str | int | None = None) -> list[str]:
    """List the splits that a VOC folder has lists for, by name; `root` and `year` are those of `VOC`."""
    folder = _find_folder(data_folder() if root is None else Path(root), year)
    return _plain_splits(folder / "ImageSets" / "Main")


def image_label(example: Example, label: str) -> int:
    """Tell whether a picture shows a class: 1; 0 if only objects marked difficult are there; or -1."""
    objects = example.annotation.of(label)
    if not len(objects):
        return -1
    return 0 if objects.difficult.all() else 1


# -- masks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ObjectMasks:
    """The objects of a picture, pixel by pixel.

    Parameters
    ----------
    masks : ndarray of bool, shape (n, rows, cols)
        One an object, in the order of their numbers.
    labels : tuple of str, length n
        Their classes.
    void : ndarray of bool, shape (rows, cols)
        Pixels that belong to nobody knows what: along borders, and on objects marked difficult. Scores leave
        them out.
    """

    masks: npt.NDArray[np.bool_]
    labels: tuple[str, ...]
    void: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.masks)


def read_object_masks(example: Example, classes: Sequence[str] = VOC_CLASSES) -> ObjectMasks:
    """Read the masks of a picture's objects.

    Parameters
    ----------
    example : Example
        Of a data set that has masks of classes and of objects; `VOC(..., image_set="Segmentation")` lists
        them.
    classes : sequence of str
        Names of the classes 1, 2, ... of the masks.

    Returns
    -------
    ObjectMasks
    """
    objects, kinds = example.mask("object"), example.mask("class")
    where = example.mask_paths["object"]
    if objects.shape != kinds.shape:
        raise DataError(
            f"{where}: the mask of objects has the shape {objects.shape}, and that of classes {kinds.shape}."
        )
    numbers = [number for number in np.unique(objects).tolist() if number not in (0, _VOID)]
    masks = np.zeros((len(numbers), *objects.shape), bool)
    labels = []
    for number, mask in zip(numbers, masks, strict=True):
        mask[:] = objects == number
        counts = np.bincount(kinds[mask], minlength=_VOID + 1)
        counts[[0, _VOID]] = 0
        kind = int(counts.argmax())
        if not 1 <= kind <= len(classes):
            what = "no class" if kind == 0 else f"the class number {kind}, of {len(classes)}"
            raise DataError(f"{where}: object number {number} has {what} in the mask of classes.")
        labels.append(classes[kind - 1])
    return ObjectMasks(masks, tuple(labels), objects == _VOID)


# -- where things are ----------------------------------------------------------------------------------------


def _find_folder(root: Path, year: str | int | None) -> Path:
    accepted = "the VOCdevkit folder, the folder above it, or a folder such as VOC2012 itself is wanted"
    if not root.is_dir():
        raise DataError(f"{root}: there is no such folder; {accepted}.")
    if _has_layout(root):
        match = _YEAR_FOLDER.fullmatch(root.resolve().name)
        if year is not None and match and match[1] != str(year):
            raise UsageError(f"{root}: this is VOC{match[1]}, not VOC{year}; give another folder or year.")
        return root
    # The archive of VOC2011 has one more folder around it than those of the other years.
    parents = [root, root / "VOCdevkit", root / "TrainVal" / "VOCdevkit"]
    there: dict[str, Path] = {}
    for folder in (folder for parent in parents for folder in sorted(parent.glob("VOC*"))):
        match = _YEAR_FOLDER.fullmatch(folder.name)
        if match and _has_layout(folder):
            there.setdefault(match[1], folder)
    if not there:
        raise DataError(
            f"{root}: there is no VOC<year>/ImageSets in this folder, in VOCdevkit or in TrainVal/VOCdevkit; "
            f"{accepted}, and this one holds {listing(sorted(os.listdir(root)), most=8)}."
        )
    wanted = str(year) if year is not None else next(iter(there)) if len(there) == 1 else "2012"
    if wanted not in there:
        raise UsageError(
            f"{root}: there is no VOC{wanted} in this folder; there is {listing(sorted(there))}."
        )
    return there[wanted]


def _has_layout(folder: Path) -> bool:
    return (folder / "ImageSets").is_dir()


def _files_by_id(folder: Path, suffixes: frozenset[str] | set[str]) -> dict[str, Path]:
    """Files of a folder by the name before the ending; `.jpg` wins where a name has several endings."""
    if not folder.is_dir():
        return {}
    names = sorted(os.listdir(folder), key=lambda name: (name.lower().endswith(".jpg"), name))
    parts = (os.path.splitext(name) for name in names)
    return {stem: folder / f"{stem}{suffix}" for stem, suffix in parts if suffix.lower() in suffixes}


# -- lists ---------------------------------------------------------------------------------------------------


def _split_ids(folder: Path, image_set: str, split: str) -> list[str]:
    lists = folder / "ImageSets" / image_set
    if not lists.is_dir():
        there = sorted(path.name for path in (folder / "ImageSets").iterdir() if path.is_dir())
        raise UsageError(f"{folder}: there is no image set {image_set!r}; there is {listing(there)}.")
    by_split = {path.stem: path for path in lists.glob("*.txt")}
    parts = ["train", "val"] if split == "trainval" and split not in by_split else [split]
    if any(part not in by_split for part in parts):
        raise UsageError(f"{lists}: there is no split {split!r}; there is {listing(_plain_splits(lists))}.")
    rows = [row for part in parts for row in _rows(by_split[part])]
    if not rows:
        raise DataError(f"{by_split[parts[0]]}: the list of the split {split!r} is empty.")
    # Lists for person layout and actions name a picture once for each of its people.
    with_numbers = len(rows[0]) > 1
    ids = [row[0] for row in rows]
    return list(dict.fromkeys(ids)) if with_numbers else ids


def _plain_splits(lists: Path) -> list[str]:
    by_class = {stem for stems in _lists_by_class(lists).values() for stem in stems}
    return sorted({path.stem for path in lists.glob("*.txt")} - by_class)


def _lists_by_class(lists: Path) -> dict[str, list[str]]:
    """Find the lists by class, such as `bicycle_train`: their stems by class.

    `train_val` is the class "train" in the split "val": a list by class has two columns, and its last word
    is a split that has a list of its own.
    """
    stems = {path.stem for path in lists.glob("*.txt")}
    found: dict[str, list[str]] = {}
    for stem in sorted(stems):
        name, _, split = stem.rpartition("_")
        if name and split in stems and len(next(iter(_rows(lists / f"{stem}.txt", most=1)), [])) == 2:
            found.setdefault(name, []).append(stem)
    return found


def _rows(path: Path, most: int | None = None) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            filled = (line.split() for line in file if line.strip())
            return [row for row, _ in zip(filled, range(most), strict=False)] if most else list(filled)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the list cannot be read ({error}).") from None


def _labels_by_id(path: Path) -> dict[str, int]:
    labels = {}
    for number, row in enumerate(_rows(path), start=1):
        if len(row) != 2 or row[1] not in ("1", "0", "-1"):
            raise DataError(f"{path}: line {number} must be an id and 1, 0 or -1, not {' '.join(row)!r}.")
        labels[row[0]] = int(row[1])
    return labels


# -- classes -------------------------------------------------------------------------------------------------


def _choose_classes(
    folder: Path, wanted: Sequence[str] | None
) -> tuple[tuple[str, ...], Literal["raise", "drop"]]:
    """Return the classes of the data set, and what to do with objects of others."""
    lists = folder / "ImageSets" / "Main"
    occurring: Iterator[str] | list[str] = list(_lists_by_class(lists)) if lists.is_dir() else []
    occurring = occurring or _labels_of_annotations(folder / "Annotations")
    missing = set(wanted or ())
    names = set()
    for name in occurring:
        names.add(name)
        missing.discard(name)
        if wanted and not missing:  # no need to read the other annotations
            break
    all_names = VOC_CLASSES if names <= set(VOC_CLASSES) else tuple(sorted(names))
    if wanted is None:
        return all_names, "raise"
    if missing or not wanted or isinstance(wanted, str):
        check_classes(folder.name, wanted, all_names)
    return tuple(wanted), "drop"


def _labels_of_annotations(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.xml")):
        try:
            yield from labels_in(path)
        except DataError:
            continue  # it is named when this annotation is wanted
