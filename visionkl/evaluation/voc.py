"""The average precision of PASCAL VOC: one number for a ranked list of boxes.

What is measured
----------------
For one class, all detections of all pictures are ranked by their score. Walking down the list, a detection is

* **true** if the object of its class that it overlaps most, in its picture, overlaps it by at least
  `min_overlap` (intersection over union, 0.5 in all challenges) and was not found before;
* **ignored** if that object is marked `difficult`: neither right nor wrong, and difficult objects are not
  counted;
* **false** otherwise; a second detection of the same object is false, too, even if it overlaps another
  object well enough.

After the k-th detection that was not ignored, precision is the share of true ones among k and recall the
share of objects found. The average precision (AP) sums the curve up:

* metric ``"07"`` (2007 to 2009): the mean, over the recalls r = 0, 0.1, ..., 1, of the best precision at a
  recall ≥ r;
* metric ``"10"`` (2010 and later): the area under the curve made monotone from the right.

If unsure, take "07" to compare with work on VOC2007 and "10" for everything else.

Where the definition leaves room
--------------------------------
* Equal scores are ranked in the order of the pictures in the data set, and in a picture in the order of its
  detections; the devkit's stable sort does the same with a results file written in this order.
* Of objects that overlap a detection equally, the first in the annotation counts.
* A class without objects (or with difficult ones alone) has no AP: NaN, and the mean leaves it out. A class
  with objects and without detections has AP 0.
* Overlaps are those of the devkit: its corners include the last pixel (width = x2 - x1 + 1), ours are
  half-open (width = x2 - x1), and the areas agree.
* The recalls of metric "07" are compared with k/10 correctly rounded, so that 3 objects of 10 reach the
  recall 0.3. MATLAB's ``0:0.1:1`` holds 0.30000000000000004 instead, so the devkit passes over a recall of
  exactly 0.3; nothing else differs.

Memory holds a score and a verdict for each detection, never boxes or pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from visionkl.core.boxes import iou
from visionkl.core.errors import DataError, UsageError
from visionkl.core.types import Annotation, Detections
from visionkl.core.validation import check_choice, check_number, parameter_error
from visionkl.datasets.base import Dataset

Metric = Literal["07", "10"]
Curve = npt.NDArray[np.float64]

#: The eleven-point mean of VOC2007, and the area of VOC2010 and later.
METRICS: tuple[Metric, ...] = ("07", "10")

_TRUE, _FALSE, _IGNORED = 1, 0, -1


def average_precision(recall: npt.ArrayLike, precision: npt.ArrayLike, metric: Metric = "07") -> float:
    """Sum a precision-recall curve up in one number.

    Parameters
    ----------
    recall, precision : array_like of float, shape (n,)
        The curve from the best score to the lowest, as `precision_recall` returns it; recall never falls.
    metric : {"07", "10"}, default="07"
        Eleven-point mean, or area under the monotone curve.

    Returns
    -------
    float
        Between 0 and 1; 0 for an empty curve, NaN if the recall is NaN (there was nothing to find).

    Examples
    --------
    Two objects; the first and third detection are right:

    >>> average_precision([0.5, 0.5, 1], [1, 0.5, 2 / 3], metric="10")  # 0.5 * 1 + 0.5 * 2/3
    0.833...
    >>> average_precision([0.5, 0.5, 1], [1, 0.5, 2 / 3], metric="07")  # (6 * 1 + 5 * 2/3) / 11
    0.848...
    """
    check_choice("average_precision", "metric", metric, METRICS)
    recall = np.asarray(recall, dtype=np.float64)
    precision = np.asarray(precision, dtype=np.float64)
    if recall.ndim != 1 or recall.shape != precision.shape:
        raise UsageError(
            "average_precision: recall and precision must be two lists of the same length, "
            f"not of the shapes {recall.shape} and {precision.shape}."
        )
    if len(recall) == 0:
        return 0.0
    if np.isnan(recall).any():
        return float("nan")
    if (np.diff(recall) < 0).any():
        raise UsageError(
            "average_precision: recall must not fall along the curve; begin with the best score."
        )
    best_from_here = np.maximum.accumulate(precision[::-1])[::-1]
    if metric == "07":
        reached = np.searchsorted(recall, np.arange(11) / 10, side="left")
        return float(np.append(best_from_here, 0.0)[reached].mean())
    steps = np.diff(recall, prepend=0.0)
    return float(steps @ best_from_here)


def precision_recall(scores: npt.ArrayLike, true: npt.ArrayLike, n_objects: int) -> tuple[Curve, Curve]:
    """Precision and recall after each detection, from the best score down.

    Parameters
    ----------
    scores : array_like of float, shape (n,)
        Equal scores keep their order.
    true : array_like of bool, shape (n,)
        Which detections found an object; leave out those that are to be ignored.
    n_objects : int
        How many objects there were to find; with none, the recall is NaN.

    Returns
    -------
    precision, recall : ndarray of float64, shape (n,)

    Examples
    --------
    >>> precision, recall = precision_recall([0.1, 0.9, 0.5], [True, True, False], n_objects=4)
    >>> precision.round(3).tolist(), recall.tolist()
    ([1.0, 0.5, 0.667], [0.25, 0.25, 0.5])
    """
    check_number("precision_recall", "n_objects", n_objects, low=0, integer=True)
    scores = np.asarray(scores, dtype=np.float64)
    hits = np.asarray(true, dtype=bool)
    if scores.ndim != 1 or scores.shape != hits.shape:
        raise UsageError(
            "precision_recall: scores and true must be two lists of the same length, "
            f"not of the shapes {scores.shape} and {hits.shape}."
        )
    n_true = np.cumsum(hits[np.argsort(-scores, kind="stable")], dtype=np.float64)
    recall = n_true / n_objects if n_objects else np.full(len(n_true), np.nan)
    return n_true / np.arange(1, len(n_true) + 1), recall


@dataclass(frozen=True, eq=False)
class ClassResult:
    """How one class was found.

    Parameters
    ----------
    label : str
        The class.
    metric : {"07", "10"}
        Which average precision `ap` is.
    n_objects, n_difficult, n_detections : int
        Objects to find, difficult objects (not among them), and all detections, ignored ones included.
    scores, precision, recall : ndarray of float64, shape (n,)
        The curve, best score first, with one point for each detection that was not ignored.
    """

    label: str
    metric: Metric
    n_objects: int
    n_difficult: int
    n_detections: int
    scores: Curve
    precision: Curve
    recall: Curve

    @property
    def ap(self) -> float:
        """The average precision; NaN where there was nothing to find."""
        if self.n_objects == 0:
            return float("nan")
        return average_precision(self.recall, self.precision, self.metric)


@dataclass(frozen=True, eq=False)
class VOCResult:
    """Average precisions of several classes on one data set.

    Parameters
    ----------
    dataset : str
        Its name.
    n_images : int
        How many pictures were scored.
    metric : {"07", "10"}
        Which average precision is meant; `with_metric` gives the other without scoring again.
    min_overlap : float
        The overlap at which an object counts as found.
    by_class : dict of str to ClassResult
        In the order in which the classes were asked for.
    skipped : tuple of str
        Ids of pictures that could not be used and are not among `n_images`.
    """

    dataset: str
    n_images: int
    metric: Metric
    min_overlap: float
    by_class: dict[str, ClassResult]
    skipped: tuple[str, ...] = ()

    @property
    def mean_ap(self) -> float:
        """Mean over the classes that have objects; NaN if none has."""
        known = [result.ap for result in self.by_class.values() if result.n_objects]
        return float(np.mean(known)) if known else float("nan")

    def with_metric(self, metric: Metric) -> VOCResult:
        """Sum the same curves up by the other metric."""
        check_choice("VOCResult.with_metric", "metric", metric, METRICS)
        by_class = {label: replace(result, metric=metric) for label, result in self.by_class.items()}
        return replace(self, metric=metric, by_class=by_class)

    def table(self) -> str:
        """Write the results as plain text: one line a class, and the mean."""
        width = max([len("mean of 00 classes"), *map(len, self.by_class)])
        head = f"{'class':<{width}}  objects  difficult  detections  {'AP ' + self.metric:>6}"
        lines = [head, "-" * len(head)]
        for result in self.by_class.values():
            counts = f"{result.n_objects:>7}  {result.n_difficult:>9}  {result.n_detections:>10}"
            lines.append(f"{result.label:<{width}}  {counts}  {_ap_text(result.ap)}")
        n_known = sum(result.n_objects > 0 for result in self.by_class.values())
        lines.append("-" * len(head))
        title = f"mean of {n_known} class{'' if n_known == 1 else 'es'}"
        lines.append(f"{title:<{len(head) - 8}}  {_ap_text(self.mean_ap)}")
        if n_known < len(self.by_class):
            lines.append("Classes without objects in these pictures have no AP and are left out of the mean.")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Give the numbers for JSON, by both metrics; a missing AP is null. Curves are left out."""
        both = {metric: self.with_metric(metric) for metric in METRICS}
        return {
            "dataset": self.dataset,
            "n_images": self.n_images,
            "skipped": list(self.skipped),
            "metric": self.metric,
            "min_overlap": self.min_overlap,
            "mean_ap": {metric: _or_none(result.mean_ap) for metric, result in both.items()},
            "classes": {
                label: {
                    "ap": {metric: _or_none(result.by_class[label].ap) for metric, result in both.items()},
                    "n_objects": mine.n_objects,
                    "n_difficult": mine.n_difficult,
                    "n_detections": mine.n_detections,
                }
                for label, mine in self.by_class.items()
            },
        }


class VOCScorer:
    """Scores picture after picture; the door for data that arrive one by one.

    Parameters
    ----------
    classes : sequence of str
        The classes to score; detections and objects of others are passed over.
    min_overlap : float, default=0.5
        The overlap at which an object counts as found.

    Examples
    --------
    >>> scorer = VOCScorer(["car"])
    >>> scorer.add(Annotation([[0, 0, 10, 10]], ["car"]), Detections([[0, 0, 10, 9]], [1.5], "car"))
    >>> scorer.result("one street", metric="10").mean_ap
    1.0
    """

    def __init__(self, classes: Sequence[str], min_overlap: float = 0.5) -> None:
        check_number("VOCScorer", "min_overlap", min_overlap, low=0, high=1)
        if min_overlap == 0:  # every box overlaps every other by at least 0
            raise parameter_error("VOCScorer", "min_overlap", "a number above 0", min_overlap)
        self.classes = tuple(classes)
        self.min_overlap = float(min_overlap)
        self.n_images = 0
        self._scores: dict[str, list[npt.NDArray[np.float32]]] = {label: [] for label in self.classes}
        self._verdicts: dict[str, list[npt.NDArray[np.int8]]] = {label: [] for label in self.classes}
        self._n_objects = dict.fromkeys(self.classes, 0)
        self._n_difficult = dict.fromkeys(self.classes, 0)

    def add(self, annotation: Annotation, detections: Detections) -> None:
        """Compare what was found in one picture with what is in it."""
        self.n_images += 1
        object_labels = np.array(annotation.labels, dtype=object)
        found_labels = np.array(detections.labels, dtype=object)
        for label in self.classes:
            there = object_labels == label
            difficult = annotation.difficult[there]
            self._n_difficult[label] += int(difficult.sum())
            self._n_objects[label] += int((~difficult).sum())
            mine = np.flatnonzero(found_labels == label)
            if len(mine) == 0:
                continue
            ranked = mine[np.argsort(-detections.scores[mine], kind="stable")]
            overlaps = iou(detections.boxes[ranked], annotation.boxes[there])
            self._scores[label].append(detections.scores[ranked])
            self._verdicts[label].append(_verdicts(overlaps, difficult, self.min_overlap))

    def result(self, dataset: str, metric: Metric = "07", skipped: Iterable[str] = ()) -> VOCResult:
        """Sum up everything that was added."""
        check_choice("VOCScorer.result", "metric", metric, METRICS)
        by_class = {label: self._class_result(label, metric) for label in self.classes}
        return VOCResult(dataset, self.n_images, metric, self.min_overlap, by_class, tuple(skipped))

    def _class_result(self, label: str, metric: Metric) -> ClassResult:
        scores = np.concatenate([*self._scores[label], np.zeros(0, np.float32)]).astype(np.float64)
        verdicts = np.concatenate([*self._verdicts[label], np.zeros(0, np.int8)])
        counted = verdicts != _IGNORED
        n_objects = self._n_objects[label]
        precision, recall = precision_recall(scores[counted], verdicts[counted] == _TRUE, n_objects)
        return ClassResult(
            label,
            metric,
            n_objects,
            self._n_difficult[label],
            len(scores),
            -np.sort(-scores[counted]),
            precision,
            recall,
        )


def _verdicts(
    overlaps: npt.NDArray[np.floating], difficult: npt.NDArray[np.bool_], min_overlap: float
) -> npt.NDArray[np.int8]:
    """Judge the detections of one class in one picture, best first; `overlaps` is (detections, objects)."""
    verdicts = np.full(len(overlaps), _FALSE, np.int8)
    if len(difficult) == 0:
        return verdicts
    target = overlaps.argmax(axis=1)
    hit = overlaps.max(axis=1) >= min_overlap
    verdicts[hit & difficult[target]] = _IGNORED
    right = np.flatnonzero(hit & ~difficult[target])
    # The best score takes the object; all later ones are duplicates.
    _, first = np.unique(target[right], return_index=True)
    verdicts[right[first]] = _TRUE
    return verdicts


def evaluate_detections(
    detections_by_image: Mapping[str, Detections],
    dataset: Dataset,
    classes: Sequence[str] | None = None,
    metric: Metric = "07",
    min_overlap: float = 0.5,
) -> VOCResult:
    """Score detections that are already there.

    Parameters
    ----------
    detections_by_image : mapping of str to Detections
        By the ids of the pictures. A picture that is missing here has no detections.
    dataset : Dataset
        Labelled pictures; the pixels are not read.
    classes : sequence of str, optional
        The classes to score, all classes of the data set by default; others are passed over.
    metric : {"07", "10"}, default="07"
        Eleven-point mean, or area under the curve.
    min_overlap : float, default=0.5
        The overlap at which an object counts as found.

    Returns
    -------
    VOCResult

    Raises
    ------
    DataError
        If there are detections for a picture that the data set does not hold.
    UsageError
        If a class is not one of the data set's.

    Examples
    --------
    >>> from visionkl.datasets.base import Example
    >>> cars = Annotation([[0, 0, 10, 10], [20, 0, 30, 10]], ["car", "car"])
    >>> data = Dataset("streets", ("car", "dog"), [Example("street", "street.png", lambda: cars)])
    >>> found = Detections([[0, 0, 10, 10], [0, 0, 9, 10], [20, 0, 30, 9]], [0.9, 0.8, 0.7], "car")
    >>> print(evaluate_detections({"street": found}, data, metric="10").table())
    class               objects  difficult  detections   AP 10
    ----------------------------------------------------------
    car                       2          0           3  0.8333
    dog                       0          0           0    none
    ----------------------------------------------------------
    mean of 1 class                                     0.8333
    Classes without objects in these pictures have no AP and are left out of the mean.
    """
    classes = dataset.classes if classes is None else classes
    check_classes("evaluate_detections", classes, dataset)
    check_image_ids(detections_by_image, dataset)
    nothing = Detections()
    scorer = VOCScorer(classes, min_overlap)
    for example in dataset:
        scorer.add(example.annotation, detections_by_image.get(example.id, nothing))
    return scorer.result(dataset.name, metric)


def check_classes(owner: str, classes: Sequence[str], dataset: Dataset) -> None:
    """Complain about a class that the data set does not have, and about one that is named twice."""
    for label in classes:
        if label not in dataset.classes:
            known = ", ".join(dataset.classes)
            raise UsageError(f"{owner}: {label!r} is not a class of {dataset.name}; its classes are {known}.")
    if len(set(classes)) < len(classes):
        twice = next(label for number, label in enumerate(classes) if label in classes[:number])
        raise UsageError(f"{owner}: the class {twice!r} is named twice; name each class once.")


def check_image_ids(image_ids: Iterable[str], dataset: Dataset, where: str = "detections") -> None:
    """Complain about a picture that the data set does not hold."""
    known = {example.id for example in dataset}
    for image_id in image_ids:
        if image_id not in known:
            raise DataError(
                f"{where}: the picture {image_id!r} is not one of the {len(known)} of {dataset.name}; "
                "score these results on the split that they were made for."
            )


def _ap_text(ap: float) -> str:
    return "  none" if np.isnan(ap) else f"{ap:6.4f}"


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value
