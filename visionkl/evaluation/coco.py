"""The average precision and recall of COCO, from boxes.

What is measured
----------------
In each picture and class, the 100 best detections are gone through from the best score down; each takes the
free object that it overlaps most, if by at least t. The precision-recall curve over all pictures is made
monotone and read off at the 101 recalls 0, 0.01, ..., 1. This is done for t = 0.5, 0.55, ..., 0.95, and for
all objects as well as for small (area up to 32²), medium and large ones (from 96²):

========  =====================================================  ========  =================================
AP        mean over the ten t and over the classes               AR1       recall with 1 detection a picture
AP50      at t = 0.5                                             AR10      with 10
AP75      at t = 0.75                                            AR100     with 100
APsmall   AP of small objects (APmedium, APlarge: likewise)      ARsmall   AR100 of small objects (...)
========  =====================================================  ========  =================================

It differs from VOC's in more than the numbers: a detection whose best object is taken turns to the next, and
of equally good objects it takes the last.

Crowds, and objects outside the size that is asked for, are ignored: a detection may take one if no other
object is left for it, and is then neither right nor wrong; so is a detection that takes nothing and is itself
outside the size. Many detections can share a crowd, and overlap it by the share of *their* area that lies in
it. Classes (and sizes) without objects have no value: NaN, left out of the means, where pycocotools says -1.

Two doors
---------
`evaluate_coco_files` scores a results file against an instances file. It uses the segments' areas for the
sizes, as COCO does, and gives pycocotools' numbers. `evaluate_coco` scores detections on any data set; there,
difficult objects are taken for crowds, and sizes are those of the boxes.

Implementation: one loop over the detections of a picture, vectorised over the sizes, the thresholds and the
objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from visionkl.core.boxes import area, intersection
from visionkl.core.errors import DataError
from visionkl.core.types import Detections
from visionkl.datasets.base import Dataset, check_classes
from visionkl.evaluation.results import ImageId, read_coco_records, read_json
from visionkl.evaluation.voc import check_image_ids

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

#: The overlaps t that count as found.
OVERLAPS = np.linspace(0.5, 0.95, 10)
#: The recalls at which the precision is read off.
RECALLS = np.linspace(0, 1, 101)
#: Sizes of objects, by their area in pixels; both ends belong to the size.
SIZES = {"all": (0.0, 1e10), "small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}
#: How many detections of a class in a picture are looked at.
MAX_DETECTIONS = (1, 10, 100)

_LOWER, _UPPER = np.array(list(SIZES.values())).T


@dataclass(frozen=True, eq=False)
class COCOResult:
    """COCO's numbers for several classes on one data set; NaN where there was nothing to find.

    Parameters
    ----------
    dataset : str
        Its name.
    n_images : int
        How many pictures were scored.
    classes : tuple of str
        Their order is that of the arrays.
    precision : ndarray of float64, shape (10 overlaps, 101 recalls, classes, 4 sizes)
        The monotone curves with 100 detections a picture.
    recall : ndarray of float64, shape (10 overlaps, classes, 4 sizes, 3 numbers of detections)
        The highest recalls.
    """

    dataset: str
    n_images: int
    classes: tuple[str, ...]
    precision: Floats
    recall: Floats

    @property
    def ap(self) -> float:
        """The mean over overlaps and classes, COCO's first number."""
        return self.stats()["AP"]

    def stats(self, label: str | None = None) -> dict[str, float]:
        """Give the twelve numbers of COCO, over all classes or for one of them."""
        chosen = slice(None) if label is None else [self.classes.index(label)]
        precision, recall = self.precision[:, :, chosen], self.recall[:, chosen]
        at_75 = int(np.argmin(np.abs(OVERLAPS - 0.75)))
        numbers = {
            "AP": _mean(precision[..., 0]),
            "AP50": _mean(precision[0, ..., 0]),
            "AP75": _mean(precision[at_75, ..., 0]),
        }
        numbers |= {f"AP{size}": _mean(precision[..., i]) for i, size in enumerate(SIZES) if i}
        numbers |= {f"AR{most}": _mean(recall[:, :, 0, i]) for i, most in enumerate(MAX_DETECTIONS)}
        numbers |= {f"AR{size}": _mean(recall[:, :, i, -1]) for i, size in enumerate(SIZES) if i}
        return numbers

    def table(self) -> str:
        """Write the numbers as plain text: one line a class, and the mean."""
        rows = [(label, self.stats(label)) for label in self.classes]
        rows.append((f"mean ({sum(not np.isnan(row['AP']) for _, row in rows)} with objects)", self.stats()))
        names = list(rows[-1][1])
        width = max(len("class"), *(len(title) for title, _ in rows))
        lines = [f"{'class':<{width}}" + "".join(f"  {name:>8}" for name in names)]
        for title, row in rows:
            texts = ["none" if np.isnan(value) else f"{value:.4f}" for value in row.values()]
            lines.append(f"{title:<{width}}" + "".join(f"  {text:>8}" for text in texts))
        rule = "-" * len(lines[0])
        return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])

    def to_dict(self) -> dict[str, Any]:
        """Give the numbers for JSON; a missing number is null."""

        def plain(numbers: dict[str, float]) -> dict[str, float | None]:
            return {name: None if np.isnan(value) else value for name, value in numbers.items()}

        return {
            "dataset": self.dataset,
            "n_images": self.n_images,
            "mean": plain(self.stats()),
            "classes": {label: plain(self.stats(label)) for label in self.classes},
        }


def evaluate_coco(
    detections_by_image: Mapping[str, Detections], dataset: Dataset, classes: Sequence[str] | None = None
) -> COCOResult:
    """Score detections on any data set as COCO does.

    Parameters
    ----------
    detections_by_image : mapping of str to Detections
        By the ids of the pictures. A picture that is missing here has no detections.
    dataset : Dataset
        Labelled pictures; the pixels are not read.
    classes : sequence of str, optional
        The classes to score, all classes of the data set by default; others are passed over.

    Returns
    -------
    COCOResult

    Examples
    --------
    >>> from visionkl.core.types import Annotation
    >>> from visionkl.datasets.base import Example
    >>> car = Annotation([[0, 0, 10, 10]], ["car"])
    >>> data = Dataset("streets", ("car",), [Example("street", "street.png", lambda: car)])
    >>> found = {"street": Detections([[0, 0, 10, 7]], [0.9], "car")}  # overlaps by 0.7: 5 of 10 thresholds
    >>> result = evaluate_coco(found, data)
    >>> round(result.ap, 3), result.stats()["AP75"]
    (0.5, 0.0)
    """
    classes = dataset.classes if classes is None else tuple(classes)
    check_classes(dataset.name, classes, dataset.classes)
    check_image_ids(detections_by_image, dataset)
    nothing = Detections()
    scorer = _Scorer(classes)
    for example in dataset:
        objects = example.annotation
        found = detections_by_image.get(example.id, nothing)
        sizes = area(objects.boxes)
        scorer.add(
            _Objects(objects.labels, objects.boxes, sizes, sizes, objects.difficult),
            _Found(found.labels, found.boxes, area(found.boxes), found.scores),
        )
    return scorer.result(dataset.name)


def evaluate_coco_files(results: str | Path, annotations: str | Path) -> COCOResult:
    """Score a COCO results file against a COCO instances file; the numbers are pycocotools'.

    Parameters
    ----------
    results : str or Path
        JSON: a list of `{image_id, category_id, bbox: [x, y, width, height], score}`.
    annotations : str or Path
        JSON with `images`, `annotations` (each with `bbox`, `area` and `iscrowd`) and `categories`.

    Returns
    -------
    COCOResult

    Raises
    ------
    DataError
        If a file is missing, cut short or of another form, or names a picture or category that is not there.
    """
    names, objects = _read_instances(Path(annotations))
    found = read_coco_records(results, names, objects)
    scorer = _Scorer(tuple(names.values()))
    for image_id, here in objects.items():
        records = found.get(image_id, [])
        labels = [names[record["category_id"]] for record in records]
        boxes = np.array([record["bbox"] for record in records], dtype=np.float64).reshape(-1, 4)
        scores = np.array([record["score"] for record in records], dtype=np.float64)
        corners = np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]])
        scorer.add(here, _Found(labels, corners, boxes[:, 2] * boxes[:, 3], scores))
    return scorer.result(Path(annotations).stem)


class _Objects(NamedTuple):
    """The objects of a picture; `sizes` are the areas of segments, if they are known, and of boxes if not."""

    labels: Sequence[str]
    boxes: npt.NDArray[np.floating]
    areas: npt.NDArray[np.floating]
    sizes: npt.NDArray[np.floating]
    crowd: Bools


class _Found(NamedTuple):
    labels: Sequence[str]
    boxes: npt.NDArray[np.floating]
    areas: npt.NDArray[np.floating]
    scores: npt.NDArray[np.floating]


class _Scorer:
    """Takes picture after picture, and keeps for each detection what it is at each size and overlap."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self.classes = classes
        self.n_images = 0
        self._n_objects = np.zeros((len(classes), len(SIZES)), dtype=np.int64)
        self._seen: list[list[tuple[Floats, npt.NDArray[np.intp], Bools, Bools]]] = [[] for _ in classes]

    def add(self, objects: _Objects, found: _Found) -> None:
        self.n_images += 1
        object_labels = np.array(objects.labels, dtype=object)
        found_labels = np.array(found.labels, dtype=object)
        for number, label in enumerate(self.classes):
            there = np.flatnonzero(object_labels == label)
            mine = np.flatnonzero(found_labels == label)
            sizes, crowd = objects.sizes[there], objects.crowd[there]
            ignored = crowd | (sizes < _LOWER[:, None]) | (sizes > _UPPER[:, None])
            self._n_objects[number] += (~ignored).sum(axis=1)
            if len(mine) == 0:
                continue
            scores = found.scores[mine].astype(np.float64)
            ranked = np.argsort(-scores, kind="stable")[: MAX_DETECTIONS[-1]]
            mine, scores = mine[ranked], scores[ranked]
            areas = found.areas[mine]
            shared = intersection(found.boxes[mine], objects.boxes[there])
            whole = areas[:, None] + np.where(crowd, 0.0, objects.areas[there] - shared)
            overlaps = np.divide(shared, whole, out=np.zeros_like(shared), where=shared > 0)
            taken, passed_over = _match(overlaps, ignored, crowd)
            outside = (areas < _LOWER[:, None]) | (areas > _UPPER[:, None])
            passed_over |= ~taken & outside[:, None]
            self._seen[number].append((scores, np.arange(len(mine)), taken, passed_over))

    def result(self, dataset: str) -> COCOResult:
        n_classes = len(self.classes)
        precision = np.full((len(OVERLAPS), len(RECALLS), n_classes, len(SIZES)), np.nan)
        recall = np.full((len(OVERLAPS), n_classes, len(SIZES), len(MAX_DETECTIONS)), np.nan)
        for number in range(n_classes):
            for size in np.flatnonzero(self._n_objects[number]).tolist():
                n_objects = self._n_objects[number, size]
                precision[:, :, number, size], recall[:, number, size] = self._curves(number, size, n_objects)
        return COCOResult(dataset, self.n_images, self.classes, precision, recall)

    def _curves(self, number: int, size: int, n_objects: int) -> tuple[Floats, Floats]:
        """Precisions (overlaps, recalls) and highest recalls (overlaps, numbers of detections)."""
        curves = np.zeros((len(OVERLAPS), len(RECALLS)))
        highest = np.zeros((len(OVERLAPS), len(MAX_DETECTIONS)))
        if not self._seen[number]:
            return curves, highest
        scores, ranks, taken, passed_over = (
            np.concatenate(parts, axis=-1) for parts in zip(*self._seen[number], strict=True)
        )
        order = np.argsort(-scores, kind="stable")
        true = (taken & ~passed_over)[size][:, order]
        false = (~taken & ~passed_over)[size][:, order]
        for i, most in enumerate(MAX_DETECTIONS):
            highest[:, i] = true[:, ranks[order] < most].sum(axis=1) / n_objects
        n_true = np.cumsum(true, axis=1, dtype=np.float64)
        n_false = np.cumsum(false, axis=1, dtype=np.float64)
        # COCO's guard against 0/0 while only ignored detections were seen.
        precision = n_true / (n_true + n_false + np.spacing(1))
        precision = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        for row in range(len(OVERLAPS)):
            reached = np.searchsorted(n_true[row] / n_objects, RECALLS, side="left")
            curves[row] = np.append(precision[row], 0.0)[reached]
        return curves, highest


def _match(overlaps: Floats, ignored: Bools, crowd: Bools) -> tuple[Bools, Bools]:
    """Give objects to detections, best score first.

    Parameters
    ----------
    overlaps : ndarray of float64, shape (detections, objects)
    ignored : ndarray of bool, shape (sizes, objects)
    crowd : ndarray of bool, shape (objects,)

    Returns
    -------
    taken, passed_over : ndarray of bool, shape (sizes, overlaps, detections)
        Whether the detection took an object, and whether that object is an ignored one.
    """
    n_found, n_objects = overlaps.shape
    taken = np.zeros((len(ignored), len(OVERLAPS), n_found), dtype=bool)
    passed_over = np.zeros_like(taken)
    if n_objects == 0:
        return taken, passed_over
    free = np.ones((len(ignored), len(OVERLAPS), n_objects), dtype=bool)
    least = np.minimum(OVERLAPS, 1 - 1e-10)[:, None]
    for i in np.flatnonzero(overlaps.max(axis=1) >= OVERLAPS[0]):
        usable = free & (overlaps[i] >= least)
        regular = usable & ~ignored[:, None]
        value = np.where(np.where(regular.any(axis=-1, keepdims=True), regular, usable), overlaps[i], -1.0)
        # Turned round, so that of equal values the last is taken, as COCO does.
        best = n_objects - 1 - value[..., ::-1].argmax(axis=-1)
        hit = usable.any(axis=-1)
        taken[..., i] = hit
        passed_over[..., i] = hit & np.take_along_axis(ignored, best, axis=1)
        sizes, rows = np.nonzero(hit & ~crowd[best])
        free[sizes, rows, best[sizes, rows]] = False
    return taken, passed_over


def _read_instances(path: Path) -> tuple[dict[int, str], dict[ImageId, _Objects]]:
    """Read class names by category id, and the objects of all pictures by image id."""
    truth = read_json(path)
    try:
        names = {record["id"]: str(record["name"]) for record in truth["categories"]}
        rows_by_image: dict[ImageId, list[tuple[Any, ...]]] = {record["id"]: [] for record in truth["images"]}
        records = list(truth["annotations"])
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{path}: a COCO instances file is an object with images, annotations and categories ({error!r})."
        ) from None
    if len(set(names.values())) < len(names):
        raise DataError(f"{path}: two categories have the same name; each class needs its own.")
    for number, record in enumerate(records):
        try:
            x, y, width, height = map(float, record["bbox"])
            box = (x, y, x + width, y + height)
            label, crowd = names[record["category_id"]], bool(record.get("iscrowd", 0))
            row = (label, box, width * height, float(record["area"]), crowd)
            rows_by_image[record["image_id"]].append(row)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}: annotation number {number} must have bbox, area, and image_id and category_id that "
                f"are in the file ({error!r})."
            ) from None
    return names, {image_id: _as_objects(rows) for image_id, rows in rows_by_image.items()}


def _as_objects(rows: list[tuple[Any, ...]]) -> _Objects:
    labels, boxes, areas, sizes, crowd = zip(*rows, strict=True) if rows else ((),) * 5
    return _Objects(
        labels,
        np.reshape(boxes, (-1, 4)),
        np.array(areas, float),
        np.array(sizes, float),
        np.array(crowd, bool),
    )


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
