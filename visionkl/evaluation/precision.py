"""Precision, recall, and what VOC makes of them: curves, average precisions, tables.

`visionkl.evaluation.voc` says what is measured; here are the curve, the two ways of summing it up, and the
results that people and programs read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import UsageError
from visionkl.core.validation import check_choice, check_number

Metric = Literal["07", "10"]
Curve = npt.NDArray[np.float64]

#: The eleven-point mean of VOC2007, and the area of VOC2010 and later.
METRICS: tuple[Metric, ...] = ("07", "10")


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

    def best_f1(self) -> tuple[float, int] | None:
        """Where precision and recall are best balanced: the largest 2 p r / (p + r), and the point there.

        Returns
        -------
        tuple of (float, int), or None
            F1 and the number of the last detection that is kept; None if nothing was found.

        Examples
        --------
        >>> scores, precision, recall = np.array([[3.0, 2, 1], [1, 1, 0.5], [0.5, 1, 1]])
        >>> ClassResult("car", "07", 2, 0, 3, scores, precision, recall).best_f1()
        (1.0, 1)
        """
        total = self.precision + self.recall
        if not np.nansum(total) > 0:
            return None
        f1 = 2 * self.precision * self.recall / np.where(total > 0, total, 1)
        best = int(np.argmax(f1))
        return float(f1[best]), best

    def threshold_after(self, point: int) -> float:
        """Return a score between a detection, which passes it, and the next worse one, which does not.

        Detectors report what scores above a threshold, so it must not be the detection's own score.
        """
        score = float(self.scores[point])
        worse = self.scores[self.scores < score]
        return (score + float(worse[0])) / 2 if len(worse) else score - 0.01


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


def _ap_text(ap: float) -> str:
    return "  none" if np.isnan(ap) else f"{ap:6.4f}"


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value
