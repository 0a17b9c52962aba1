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

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device
from visionkl.core.boxes import iou
from visionkl.core.errors import DataError, UsageError
from visionkl.core.types import Annotation, Detections
from visionkl.core.validation import check_choice, check_number, parameter_error
from visionkl.datasets.base import Dataset, OnBadData, check_classes
from visionkl.evaluation.precision import (
    METRICS,
    ClassResult,
    Metric,
    VOCResult,
    average_precision,
    precision_recall,
)
from visionkl.evaluation.search import LOWEST_SCORE, Detector, search

__all__ = [
    "FALSE",
    "IGNORED",
    "METRICS",
    "TRUE",
    "ClassResult",
    "Metric",
    "VOCResult",
    "VOCScorer",
    "average_precision",
    "check_image_ids",
    "evaluate_detections",
    "evaluate_voc",
    "judge_boxes",
    "precision_recall",
]

#: Verdicts of `judge_boxes`.
TRUE, FALSE, IGNORED = 1, 0, -1


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
        if len(set(self.classes)) < len(self.classes):
            raise UsageError(f"VOCScorer: each class is named once, not as in {', '.join(self.classes)}.")
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
            found, objects = detections.boxes[ranked], annotation.boxes[there]
            self._scores[label].append(detections.scores[ranked])
            self._verdicts[label].append(judge_boxes(found, objects, difficult, self.min_overlap))

    def result(self, dataset: str, metric: Metric = "07", skipped: Iterable[str] = ()) -> VOCResult:
        """Sum up everything that was added."""
        check_choice("VOCScorer.result", "metric", metric, METRICS)
        by_class = {label: self._class_result(label, metric) for label in self.classes}
        return VOCResult(dataset, self.n_images, metric, self.min_overlap, by_class, tuple(skipped))

    def _class_result(self, label: str, metric: Metric) -> ClassResult:
        scores = np.concatenate([*self._scores[label], np.zeros(0, np.float32)]).astype(np.float64)
        verdicts = np.concatenate([*self._verdicts[label], np.zeros(0, np.int8)])
        counted = verdicts != IGNORED
        n_objects = self._n_objects[label]
        precision, recall = precision_recall(scores[counted], verdicts[counted] == TRUE, n_objects)
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


def judge_boxes(
    found: npt.NDArray[np.float32],
    objects: npt.NDArray[np.float32],
    difficult: npt.NDArray[np.bool_],
    min_overlap: float,
) -> npt.NDArray[np.int8]:
    """Judge the boxes found of one class in one picture, best score first, by the boxes of its objects.

    Parameters
    ----------
    found : ndarray of float32, shape (n, 4)
    objects : ndarray of float32, shape (m, 4)
    difficult : ndarray of bool, shape (m,)
    min_overlap : float
        The overlap at which an object counts as found.

    Returns
    -------
    ndarray of int8, shape (n,)
        `TRUE`, `FALSE` or `IGNORED`.
    """
    verdicts = np.full(len(found), FALSE, np.int8)
    if len(objects) == 0:
        return verdicts
    overlaps = iou(found, objects)
    target = overlaps.argmax(axis=1)
    hit = overlaps.max(axis=1) >= min_overlap
    verdicts[hit & difficult[target]] = IGNORED
    right = np.flatnonzero(hit & ~difficult[target])
    # The best score takes the object; all later ones are duplicates.
    _, first = np.unique(target[right], return_index=True)
    verdicts[right[first]] = TRUE
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
    check_classes(dataset.name, classes, dataset.classes)
    check_image_ids(detections_by_image, dataset)
    nothing = Detections()
    scorer = VOCScorer(classes, min_overlap)
    for example in dataset:
        scorer.add(example.annotation, detections_by_image.get(example.id, nothing))
    return scorer.result(dataset.name, metric)


def evaluate_voc(
    detectors: Mapping[str, Detector],
    dataset: Dataset,
    metric: Metric = "07",
    *,
    min_overlap: float = 0.5,
    threshold: float = LOWEST_SCORE,
    n_jobs: int | None = None,
    device: str | Device = CPU,
    on_bad_data: OnBadData | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> VOCResult:
    """Search all pictures of a data set with detectors, and score what they find.

    Parameters
    ----------
    detectors : mapping of str to detector
        One for each class, by the data set's name of the class. A detector has a method `detect` that takes
        a picture and returns `Detections`; all that it returns is scored.
    dataset : Dataset
        Labelled pictures. They are decoded one by one, and none is kept.
    metric : {"07", "10"}, default="07"
        Eleven-point mean, or area under the curve.
    min_overlap : float, default=0.5
        The overlap at which an object counts as found.
    threshold : float
        The lowest score that is kept. A detector's own threshold is meant for showing: it would cut the curve
        off and lower the AP.
    n_jobs : int, optional
        Threads that search a picture; all usable cores by default.
    device : str
        Where part-based detectors search: "cpu", "cuda" (an error where no GPU computes), "cuda:1", or
        "auto": a GPU if there is one.
    on_bad_data : {"raise", "skip"}, optional
        Stop at a picture or annotation that cannot be read, or leave it out and list it in the result; what
        the data set was opened with by default.
    progress : callable, optional
        Called after each picture with the number of pictures that are done, and of all.

    Returns
    -------
    VOCResult

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from visionkl.datasets.base import Example
    >>> path = Path(tempfile.mkdtemp()) / "wall.png"
    >>> Image.new("RGB", (64, 48)).save(path)
    >>> wall = Annotation([[0, 0, 64, 48]], ["wall"])
    >>> class Everywhere:
    ...     def detect(self, image, *, threshold=None, n_jobs=None):
    ...         return Detections([[0, 0, image.shape[1], image.shape[0]]], [1.0], "wall")
    >>> data = Dataset("walls", ("wall",), [Example("a", path, lambda: wall)])
    >>> evaluate_voc({"wall": Everywhere()}, data).mean_ap
    1.0
    """
    check_choice("evaluate_voc", "metric", metric, METRICS)
    check_classes(dataset.name, tuple(detectors), dataset.classes)
    skipped: list[str] = []
    scorer = VOCScorer(tuple(detectors), min_overlap)
    found = search(
        detectors,
        dataset,
        threshold=threshold,
        n_jobs=n_jobs,
        device=device,
        on_bad_data=on_bad_data,
        on_skip=lambda example, error: skipped.append(example.id),
    )
    for example, detections in found:
        scorer.add(example.annotation, detections)
        if progress is not None:
            progress(scorer.n_images + len(skipped), len(dataset))
    return scorer.result(dataset.name, metric, skipped)


def check_image_ids(image_ids: Iterable[str], dataset: Dataset, where: str = "detections") -> None:
    """Complain about a picture that the data set does not hold."""
    known = {example.id for example in dataset}
    for image_id in image_ids:
        if image_id not in known:
            raise DataError(
                f"{where}: the picture {image_id!r} is not one of the {len(known)} of {dataset.name}; "
                "score these results on the split that they were made for."
            )
