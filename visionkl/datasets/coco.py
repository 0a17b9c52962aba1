"""Data sets in the format of COCO: one JSON file and a folder of pictures.

Of the JSON, `images`, `annotations` and `categories` are read, and of an annotation its box, its category and
`iscrowd`: a crowd becomes an object marked `difficult`, which the average precision ignores, as COCO does.
Boxes there are `x, y, width, height`, 0-based. Classes are in the order of the categories' numbers.

The numbers that COCO knows pictures and categories by are in `image_ids` and `category_ids`, which
`Detections.to_coco` takes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from visionkl.core.errors import DataError
from visionkl.core.image import image_size
from visionkl.core.types import Annotation
from visionkl.datasets.base import Dataset, Example, OnBadData, check_boxes, check_classes

#: An object as it is kept: number of the annotation, x, y, width, height, class, crowd.
_Object = tuple[Any, float, float, float, float, str, bool]

#: What may stand under each key that is read.
_ACCEPTED: dict[str, tuple[tuple[type, ...], str]] = {
    "id": ((int, str), "a number"),
    "image_id": ((int, str), "a number"),
    "category_id": ((int,), "a number"),
    "file_name": ((str,), "a text"),
    "name": ((str,), "a text"),
    "bbox": ((list,), "[x, y, width, height]"),
}


class COCO(Dataset):
    """A data set in the format of COCO.

    Parameters
    ----------
    annotation_json : str or Path
        Such as `annotations/instances_val2017.json`.
    images_folder : str or Path
        Such as `val2017`.
    classes : sequence of str, optional
        Leave out the objects of all other categories (the pictures stay); all by default.
    on_bad_data : {"raise", "skip"}
        What a pass over the data set (`visionkl.datasets.base.usable`) does with a picture or an annotation
        that cannot be used.

    Attributes
    ----------
    image_ids : dict of str to int
        COCO's number of each picture by our id, which is the number as text.
    category_ids : dict of str to int
        COCO's number of each class.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "instances.json"
    >>> image = {"id": 7, "file_name": "7.jpg", "width": 640, "height": 480}
    >>> box = {"id": 1, "image_id": 7, "category_id": 3, "bbox": [10, 20, 30, 40], "iscrowd": 0}
    >>> categories = [{"id": 3, "name": "car"}]
    >>> _ = path.write_text(json.dumps({"images": [image], "annotations": [box], "categories": categories}))
    >>> data = COCO(path, path.parent)
    >>> data[0].annotation.boxes.tolist(), data.image_ids, data.category_ids
    ([[10.0, 20.0, 40.0, 60.0]], {'7': 7}, {'car': 3})
    """

    def __init__(
        self,
        annotation_json: str | Path,
        images_folder: str | Path,
        classes: Sequence[str] | None = None,
        on_bad_data: OnBadData = "raise",
    ) -> None:
        path, folder = Path(annotation_json), Path(images_folder)
        if not folder.is_dir():
            raise DataError(f"{folder}: there is no such folder.")
        document = _read_json(path)
        all_names = _category_names(path, document["categories"])
        names = tuple(all_names.values())
        if classes is not None:
            names = check_classes(path.name, classes, names)
        self.category_ids = {name: number for number, name in all_names.items() if name in names}
        by_image: dict[Any, list[_Object]] = {}
        for number, record in enumerate(document["images"]):
            by_image[_value(path, "image", number, record, "id")] = []
        for number, record in enumerate(document["annotations"]):
            image_id, found = _object(path, number, record, all_names)
            if image_id not in by_image:
                raise DataError(
                    f"{path}: annotation {found[0]} belongs to the image {image_id!r}, which is not listed."
                )
            if found[5] in self.category_ids:
                by_image[image_id].append(found)
        examples = []
        self.image_ids: dict[str, int] = {}
        for number, record in enumerate(document["images"]):
            image_id = record["id"]
            picture = folder / _value(path, "image", number, record, "file_name")
            size = (record.get("width"), record.get("height"))
            read = partial(_annotation, path, by_image[image_id], picture, size)
            examples.append(Example(str(image_id), picture, read))
            self.image_ids[str(image_id)] = image_id
        super().__init__(path.stem, names, examples, on_bad_data=on_bad_data)


def _annotation(
    path: Path, objects: list[_Object], picture: Path, stated_size: tuple[Any, Any]
) -> Annotation:
    written = np.array([found[1:5] for found in objects], dtype=np.float64).reshape(-1, 4)
    boxes = np.hstack([written[:, :2], written[:, :2] + written[:, 2:]])
    if objects:
        stated = all(isinstance(side, int) and side > 0 for side in stated_size)
        size = stated_size if stated else image_size(picture)

        def describe(row: int) -> str:
            number, x, y, w, h, label, _ = objects[row]
            written = f"x {x:g}, y {y:g}, width {w:g}, height {h:g}"
            return f"{path}: the box of annotation {number} ({label}; {written})"

        check_boxes(boxes, size, describe)
    return Annotation(
        boxes=boxes,  # type: ignore[arg-type]
        labels=tuple(found[5] for found in objects),
        difficult=np.array([found[6] for found in objects], dtype=bool),
    )


def _read_json(path: Path) -> dict[str, list[Any]]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            document = json.load(file)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: this is not JSON ({error}).") from None
    for key in ("images", "annotations", "categories"):
        if not isinstance(document, dict) or not isinstance(document.get(key), list):
            raise DataError(
                f"{path}: this is not an annotation file of COCO, which has the lists images, annotations "
                f"and categories; {key!r} is missing."
            )
    if not document["images"]:
        raise DataError(f"{path}: the file lists no images.")
    return document


def _category_names(path: Path, records: list[Any]) -> dict[int, str]:
    names: dict[int, str] = {}
    for number, record in enumerate(records):
        category, name = (_value(path, "category", number, record, key) for key in ("id", "name"))
        if not isinstance(category, int) or category in names or name in names.values():
            raise DataError(
                f"{path}: category number {number} must have a whole number and a name of its own, "
                f"not {category!r} and {name!r}."
            )
        names[category] = name
    return dict(sorted(names.items()))


def _object(path: Path, number: int, record: Any, names: dict[int, str]) -> tuple[Any, _Object]:
    image_id, category, box = (
        _value(path, "annotation", number, record, key) for key in ("image_id", "category_id", "bbox")
    )
    name = record.get("id", number)
    if category not in names:
        raise DataError(f"{path}: annotation {name} has the category {category!r}, which is not listed.")
    try:
        x, y, width, height = (float(value) for value in box)
    except (TypeError, ValueError):
        raise DataError(
            f"{path}: the bbox of annotation {name} must be [x, y, width, height], not {box!r}."
        ) from None
    return image_id, (name, x, y, width, height, names[category], bool(record.get("iscrowd", 0)))


def _value(path: Path, kind: str, number: int, record: Any, key: str) -> Any:
    types, called = _ACCEPTED[key]
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, types):
        raise DataError(f"{path}: {key!r} of {kind} number {number} must be {called}, not {value!r}.")
    return value
