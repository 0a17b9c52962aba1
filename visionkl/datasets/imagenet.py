"""ImageNet (ILSVRC), for classification and localisation: pictures by class, synset names, boxes.

Pictures lie in class folders named by WordNet ids (`train/n01440764/*.JPEG`; so does `val` in most copies),
or all in one folder (`val` as it comes in the archive), with the labels in a file beside it:

- `LOC_val_solution.csv` (Kaggle's edition), or
- `ILSVRC2012_validation_ground_truth.txt` (also as `ILSVRC2015_clsloc_validation_ground_truth.txt`), one
  ILSVRC number a line, together with the file that says which synset a number stands for: the development
  kit's `meta.mat`, `meta_clsloc.mat` or `map_clsloc.txt`.

`root` is the folder that holds `train` and `val`, or `ILSVRC` or its `Data/CLS-LOC` as Kaggle packs them. The
files above, and `LOC_synset_mapping.txt`, `synset_words.txt` or `words.txt` with the names, are looked for in
`root`, beside it, and in the development kit's folders. Boxes are VOC-like XML files in
`Annotations/CLS-LOC/<split>`, `Annotations/<split>` or `bbox/<split>`.

Most training pictures have no boxes: their annotation is empty. Boxes that reach past the border are cut off
there: ILSVRC calls its format VOC's, which counts from 1, but its boxes begin at 0 now and then.

A million examples would fill a gigabyte, so they are made when they are asked for.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from visionkl.core.errors import DataError, UsageError
from visionkl.core.types import Annotation
from visionkl.datasets.base import Dataset, Example, OnBadData, check_classes, data_folder, listing
from visionkl.datasets.folder import pictures_in
from visionkl.datasets.voc_xml import read_voc_xml

_WNID = re.compile(r"n\d{8}")
_NUMBER_OF_PICTURE = re.compile(r"_(\d{8})\.\w+$")
_PACKAGES = (".", "Data/CLS-LOC", "ILSVRC/Data/CLS-LOC")
_SIDE_FOLDERS = (
    ".",
    "devkit/data",
    "ILSVRC2012_devkit_t12/data",
    "ILSVRC/devkit/data",
    "..",
    "../..",
    "../../..",
)
_NAME_FILES = ("LOC_synset_mapping.txt", "synset_words.txt", "words.txt")
_TRUTH_FILES = ("ILSVRC2012_validation_ground_truth.txt", "ILSVRC2015_clsloc_validation_ground_truth.txt")


class ImageNet(Dataset):
    """ImageNet (ILSVRC) for classification and localisation.

    Parameters
    ----------
    root : str or Path, optional
        The folder that holds the splits, as the module says; by default `imagenet` in `VISIONKL_DATA`.
    split : str
        "train", "val" or "test", the last without labels.
    classes : sequence of str, optional
        WordNet ids; leave out the pictures of all others. By default all that occur, in alphabetical order.
    on_bad_data : {"raise", "skip"}
        What a pass over the data set (`visionkl.datasets.base.usable`) does with a picture or an annotation
        that cannot be read.

    Attributes
    ----------
    synset_names : dict of str to str
        What each class is called, such as "tench, Tinca tinca"; the WordNet id itself where nothing tells.

    Examples
    --------
    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> (root / "train" / "n01440764").mkdir(parents=True)
    >>> (root / "train" / "n01440764" / "n01440764_18.JPEG").touch()
    >>> _ = (root / "synset_words.txt").write_text("n01440764 tench, Tinca tinca")
    >>> train = ImageNet(root, "train")
    >>> train[0].id, train[0].label, train.synset_names["n01440764"]
    ('n01440764_18', 'n01440764', 'tench, Tinca tinca')
    """

    def __init__(
        self,
        root: str | Path | None = None,
        split: str = "train",
        classes: Sequence[str] | None = None,
        on_bad_data: OnBadData = "raise",
    ) -> None:
        root = data_folder() / "imagenet" if root is None else Path(root)
        self._folder = _split_folder(root, split)
        self._boxes_folder = _boxes_folder(root, self._folder, split)
        wnids = sorted(
            entry.name for entry in os.scandir(self._folder) if entry.is_dir() and _WNID.fullmatch(entry.name)
        )
        if wnids:
            if classes is not None:
                wnids = sorted(check_classes(f"ImageNet {split}", classes, wnids))
            labelled = [
                (f"{wnid}/{name}", wnid) for wnid in wnids for name in pictures_in(self._folder / wnid)
            ]
        else:
            labelled = _flat_pictures(root, self._folder, split)
            occurring = sorted({wnid for _, wnid in labelled if wnid})
            wnids = sorted(check_classes(f"ImageNet {split}", classes, occurring)) if classes else occurring
            if classes is not None:
                labelled = [(name, wnid) for name, wnid in labelled if wnid in wnids]
        if not labelled:
            raise DataError(
                f"{self._folder}: there are no pictures in this folder or in class folders below."
            )
        self._names = [name for name, _ in labelled]
        number_of = {wnid: number for number, wnid in enumerate(wnids)}
        self._labels = np.array([number_of.get(wnid, -1) for _, wnid in labelled], dtype=np.int32)
        super().__init__(f"ImageNet {split}", wnids, (), on_bad_data=on_bad_data)
        self.synset_names = {wnid: wnid for wnid in wnids} | _synset_names(root, set(wnids))

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, number: int) -> Example:
        name = self._names[number]
        label = None if self._labels[number] < 0 else self.classes[self._labels[number]]
        id, path = os.path.splitext(os.path.basename(name))[0], self._folder / name
        return Example(id, path, partial(_read_boxes, self._boxes_folder, label, id, path), label=label)

    def __iter__(self) -> Iterator[Example]:
        return (self[number] for number in range(len(self)))


def _read_boxes(folder: Path | None, label: str | None, id: str, picture: Path) -> Annotation:
    if folder is not None:
        for path in (folder / f"{id}.xml", folder / (label or "") / f"{id}.xml"):
            if path.is_file():
                return read_voc_xml(path, picture, clip=True)
    return Annotation()


# -- where things are ----------------------------------------------------------------------------------------


def _split_folder(root: Path, split: str) -> Path:
    if not root.is_dir():
        raise DataError(
            f"{root}: there is no such folder; the one that holds ImageNet's train and val is wanted."
        )
    for package in _PACKAGES:
        if (root / package / split).is_dir():
            return root / package / split
    packages = [root / package for package in _PACKAGES if (root / package).is_dir()]
    there = sorted(
        {name for folder in packages for name in ("train", "val", "test") if (folder / name).is_dir()}
    )
    if there:
        raise UsageError(f"{root}: there is no split {split!r}; there is {listing(there)}.")
    raise DataError(
        f"{root}: there is no folder {split!r} in it, nor in Data/CLS-LOC or ILSVRC/Data/CLS-LOC; "
        f"it holds {listing(sorted(os.listdir(root)), most=8)}."
    )


def _boxes_folder(root: Path, pictures: Path, split: str) -> Path | None:
    places = [
        root / "Annotations" / "CLS-LOC" / split,
        pictures.parent.parent.parent / "Annotations" / "CLS-LOC" / split,  # beside Data
        root / "Annotations" / split,
        root / "bbox" / split,
    ]
    return next((place for place in places if place.is_dir()), None)


def _side_file(root: Path, *names: str) -> Path | None:
    places = (root / folder / name for name in names for folder in _SIDE_FOLDERS)
    return next((place for place in places if place.is_file()), None)


def _text_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the file cannot be read ({error}).") from None


# -- labels and names ----------------------------------------------------------------------------------------


def _synset_names(root: Path, wnids: set[str]) -> dict[str, str]:
    path = _side_file(root, *_NAME_FILES)
    pairs = (line.split(None, 1) for line in _text_lines(path)) if path is not None else ()
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2 and pair[0] in wnids}


def _flat_pictures(root: Path, folder: Path, split: str) -> list[tuple[str, str]]:
    """Pictures that lie in one folder, with their WordNet ids; those of "test" are unknown, and ""."""
    names = pictures_in(folder)
    if split == "test" or not names:
        return [(name, "") for name in names]
    solution = _side_file(root, f"LOC_{split}_solution.csv")
    if solution is not None:
        by_id = _labels_of_solution(solution)
        missing = next((name for name in names if os.path.splitext(name)[0] not in by_id), None)
        if missing is not None:
            raise DataError(f"{solution}: there is no label for the picture {missing}.")
        return [(name, by_id[os.path.splitext(name)[0]]) for name in names]
    truth = _side_file(root, *_TRUTH_FILES)
    if truth is None:
        raise DataError(
            f"{folder}: these pictures lie in one folder, so their labels are needed, and neither "
            f"LOC_{split}_solution.csv nor {_TRUTH_FILES[0]} is in {root} or in its devkit/data."
        )
    return _labels_of_ground_truth(truth, _wnids_by_number(root, truth), names)


def _labels_of_solution(path: Path) -> dict[str, str]:
    labels = {}
    for number, row in enumerate(csv.reader(_text_lines(path)), start=1):
        words = row[1].split() if len(row) > 1 else []
        if number == 1 and words and not _WNID.fullmatch(words[0]):
            continue  # the heading
        if not words or not _WNID.fullmatch(words[0]):
            raise DataError(
                f"{path}: line {number} must be 'ImageId,wnid x1 y1 x2 y2 ...', not {','.join(row)!r}."
            )
        labels[row[0]] = words[0]
    return labels


def _labels_of_ground_truth(path: Path, wnids: dict[int, str], names: list[str]) -> list[tuple[str, str]]:
    lines = [line.strip() for line in _text_lines(path) if line.strip()]
    labelled = []
    for name in names:
        match = _NUMBER_OF_PICTURE.search(name)
        number = int(match[1]) if match else 0
        if not 1 <= number <= len(lines):
            raise DataError(
                f"{path}: there is no label for the picture {name}; its name must end in a number from 1 to "
                f"{len(lines)}, such as ILSVRC2012_val_00000001.JPEG."
            )
        written = lines[number - 1]
        if not written.isdigit() or int(written) not in wnids:
            raise DataError(
                f"{path}: line {number} must be an ILSVRC number from 1 to 1000, not {written!r}."
            )
        labelled.append((name, wnids[int(written)]))
    return labelled


def _wnids_by_number(root: Path, truth: Path) -> dict[int, str]:
    path = _side_file(root, "map_clsloc.txt", "meta.mat", "meta_clsloc.mat")
    if path is None:
        raise DataError(
            f"{truth}: the ILSVRC numbers in it need the development kit's meta.mat or map_clsloc.txt beside "
            f"it, which say which synsets they stand for."
        )
    try:
        if path.suffix == ".txt":
            rows = [line.split() for line in _text_lines(path) if line.strip()]
            return {int(row[1]): row[0] for row in rows}
        return _numbers_of_meta(path)
    except Exception as error:  # SciPy's reader raises nearly anything on a file that is none
        raise DataError(
            f"{path}: this is not a table of synsets and their ILSVRC numbers ({error})."
        ) from None


def _numbers_of_meta(path: Path) -> dict[int, str]:
    from scipy.io import loadmat

    synsets = loadmat(path, squeeze_me=True, variable_names=["synsets"])["synsets"]
    number_field = next(name for name in synsets.dtype.names if name.endswith("_ID"))
    return {int(row[number_field]): str(row["WNID"]) for row in np.atleast_1d(synsets)}
