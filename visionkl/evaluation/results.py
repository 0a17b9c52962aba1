"""Results files: what was found, written once and scored as often as you like.

VOC's form is one text file a class, ``comp3_det_<split>_<class>.txt``, with one line a detection, ``image_id
score x1 y1 x2 y2``, in the devkit's corners (from 1, last pixel included); the devkit reads it as it is.
Beside them, ``images_<split>.txt`` lists the pictures that were searched, so that results of a part of a
split (a run that was interrupted, pictures that were skipped) are scored on that part. Results from elsewhere
have no such list and are scored on the whole split.

COCO's form is one JSON file with a list of ``{image_id, category_id, bbox: [x, y, width, height], score}``.
COCO numbers its pictures: an id that is a whole number is written as one, any other as text.

A file appears when it is complete. Pictures go to disk as they come; nothing is kept in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from visionkl.core.errors import DataError, UsageError
from visionkl.core.files import atomic_write
from visionkl.core.types import Detections

ImageId = int | str


def voc_results_path(folder: str | Path, split: str, label: str) -> Path:
    """Name the VOC results file of a class.

    Examples
    --------
    >>> voc_results_path("runs/x", "val", "bicycle").name
    'comp3_det_val_bicycle.txt'
    """
    return Path(folder) / f"comp3_det_{split}_{label}.txt"


@contextmanager
def voc_results_writer(
    folder: str | Path, split: str, classes: Sequence[str]
) -> Iterator[Callable[[str, Detections], None]]:
    r"""Open the VOC results files of several classes; they appear together when the block ends.

    Parameters
    ----------
    folder : str or Path
        Must exist.
    split : str
        Part of the file names, such as "val".
    classes : sequence of str
        One file each, even if nothing is found; detections of other classes are not written.

    Yields
    ------
    callable
        Call it with the id and the detections of each picture, in the order of the data set.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with voc_results_writer(folder, "val", ["car"]) as write:
    ...     write("000012", Detections([[0, 0, 100, 50]], [1.25], "car"))
    >>> voc_results_path(folder, "val", "car").read_text()
    '000012 1.25 1 1 100 50\n'
    >>> read_voc_results(folder, "val", "car")["000012"].boxes.tolist()
    [[0.0, 0.0, 100.0, 50.0]]
    """
    folder = Path(folder)
    for name in (split, *classes):
        if not name or any(letter in name for letter in "/\\\0"):
            raise UsageError(f"{name!r} cannot be part of the name of a results file; use a plain word.")
    with ExitStack() as stack:
        # Opened first, it is moved into place last: where the list is there, the results are, too.
        images = stack.enter_context(atomic_write(_images_path(folder, split)))
        files = {
            label: stack.enter_context(atomic_write(voc_results_path(folder, split, label)))
            for label in classes
        }

        def write(image_id: str, detections: Detections) -> None:
            if len(image_id.split()) != 1:
                raise DataError(
                    f"the picture {image_id!r} has a blank in its name, which VOC results files cannot hold; "
                    "rename it or write COCO results."
                )
            images.write(f"{image_id}\n")
            for label in dict.fromkeys(detections.labels):
                if label in files:
                    lines = detections.filter(labels=label).to_voc_lines(image_id)
                    files[label].writelines(f"{line}\n" for line in lines)

        yield write


def voc_results_classes(folder: str | Path, split: str) -> list[str]:
    """List the classes that have a VOC results file for this split, by name."""
    start, end = voc_results_path(folder, split, "\0").name.split("\0")
    paths = Path(folder).glob(f"{start}*{end}")
    return sorted(path.name.removeprefix(start).removesuffix(end) for path in paths)


def read_voc_results(folder: str | Path, split: str, label: str) -> dict[str, Detections]:
    """Read the VOC results file of one class.

    Parameters
    ----------
    folder : str or Path
        Where the results files are.
    split, label : str
        Which of them.

    Returns
    -------
    dict of str to Detections
        By the ids of the pictures; pictures without detections are not in it.

    Raises
    ------
    DataError
        If the file is missing, is cut in the middle of a line, or has a line of another form.
    """
    path = voc_results_path(folder, split, label)
    text = _read_text(path)
    if text and not text.endswith("\n"):
        number = text.count("\n") + 1
        raise DataError(
            f"{path}: the file ends in the middle of line {number}: it was cut short; detect again, "
            "or end the line if nothing is missing."
        )
    try:
        return Detections.from_voc_lines(text.splitlines(), label)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def read_all_voc_results(folder: str | Path, split: str, classes: Sequence[str]) -> dict[str, Detections]:
    """Read the VOC results files of several classes; the detections of a picture are put together.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with voc_results_writer(folder, "val", ["car", "dog"]) as write:
    ...     write("000012", Detections([[0, 0, 100, 50], [20, 20, 40, 40]], [1.25, -0.5], ["dog", "car"]))
    >>> read_all_voc_results(folder, "val", ["car", "dog"])["000012"].labels
    ('car', 'dog')
    """
    found: dict[str, list[Detections]] = {}
    for label in classes:
        for image_id, some in read_voc_results(folder, split, label).items():
            found.setdefault(image_id, []).append(some)
    return {image_id: Detections.concatenate(some) for image_id, some in found.items()}


def read_voc_image_ids(folder: str | Path, split: str) -> list[str] | None:
    """Read which pictures the results in this folder cover; None where no list says so."""
    path = _images_path(Path(folder), split)
    return _read_text(path).split() if path.exists() else None


def write_coco_results(
    path: str | Path, detections_by_image: Mapping[str, Detections], category_ids: Mapping[str, int]
) -> None:
    """Write a COCO results file.

    Parameters
    ----------
    path : str or Path
        The JSON file; its folder must exist.
    detections_by_image : mapping of str to Detections
        By the ids of the pictures.
    category_ids : mapping of str to int
        COCO's numbers of the classes.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "results.json"
    >>> write_coco_results(path, {"42": Detections([[10, 10, 30, 20]], [0.5], "car")}, {"car": 3})
    >>> print(path.read_text())
    [
    {"image_id": 42, "category_id": 3, "bbox": [10.0, 10.0, 20.0, 10.0], "score": 0.5}
    ]
    >>> print(read_coco_results(path, {3: "car"})["42"])
    1 detection: car 0.500 at 10.0 10.0 30.0 20.0
    """
    with atomic_write(path) as file:
        file.write("[")
        separator = "\n"
        for image_id, detections in detections_by_image.items():
            for record in detections.to_coco(_coco_image_id(image_id), category_ids):
                file.write(separator + json.dumps(record))
                separator = ",\n"
        file.write("\n]\n")


def read_coco_results(path: str | Path, category_names: Mapping[int, str]) -> dict[str, Detections]:
    """Read a COCO results file.

    Parameters
    ----------
    path : str or Path
        The JSON file.
    category_names : mapping of int to str
        The classes, by COCO's numbers.

    Returns
    -------
    dict of str to Detections
        By the ids of the pictures, as text.
    """
    records = read_coco_records(path, category_names)
    return {str(image_id): Detections.from_coco(mine, category_names) for image_id, mine in records.items()}


def read_coco_records(
    path: str | Path, category_ids: Collection[int], image_ids: Collection[ImageId] | None = None
) -> dict[ImageId, list[dict[str, Any]]]:
    """Read a COCO results file as it is, by picture, after checking every record.

    Parameters
    ----------
    path : str or Path
        The JSON file.
    category_ids : collection of int
        COCO's numbers of the classes that there are.
    image_ids : collection of int or str, optional
        The pictures that there are; any by default.

    Returns
    -------
    dict of int or str to list of dict
    """
    records = read_json(path)
    if not isinstance(records, list):
        raise DataError(f"{path}: COCO results are a JSON list, not a {type(records).__name__}.")
    by_image: dict[ImageId, list[dict[str, Any]]] = {}
    for number, record in enumerate(records):
        try:
            box_and_score = [*map(float, record["bbox"]), float(record["score"])]
            image_id, category_id = record["image_id"], record["category_id"]
            usable = (
                len(box_and_score) == 5 and np.isfinite(box_and_score).all() and min(box_and_score[2:4]) >= 0
            )
        except (KeyError, TypeError, ValueError):
            usable = False
        if not usable:
            raise DataError(
                f"{path}: result number {number} must have image_id, category_id, bbox [x, y, width, height] "
                f"and score, but is {_short(record)}."
            )
        if category_id not in category_ids:
            known = ", ".join(map(str, category_ids))
            raise DataError(
                f"{path}: result number {number} has category_id {category_id!r}; there are {known}."
            )
        if image_ids is not None and image_id not in image_ids:
            raise DataError(
                f"{path}: result number {number} is for image_id {image_id!r}, "
                f"which is not one of the {len(image_ids)} pictures."
            )
        by_image.setdefault(image_id, []).append(record)
    return by_image


def read_json(path: str | Path) -> Any:
    """Read a JSON file, or say in one sentence why not."""
    try:
        return json.loads(_read_text(Path(path)))
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}: this is not a complete JSON file ({error.msg} in line {error.lineno})."
        ) from None


def _images_path(folder: Path, split: str) -> Path:
    return folder / f"images_{split}.txt"


def _coco_image_id(image_id: str) -> ImageId:
    # "000042" is text: as the number 42 it could not be found again.
    return int(image_id) if image_id.isdecimal() and str(int(image_id)) == image_id else image_id


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such results file.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: this is not a text file.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from None


def _short(value: Any, length: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= length else text[: length - 3] + "..."
