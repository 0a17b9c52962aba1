"""Which errors a detector makes: what its false alarms are, and which objects it misses.

An average precision says how good a detector is, not what is wrong with it. Here each detection of a class is
given one of six kinds. The matching is that of `visionkl.evaluation.voc`, so true and ignored ones are the
same; what is false there is told apart by the overlap with what it may have been meant for:

============  ==============================================================================================
true          the first to find its object
ignored       its object is marked difficult
duplicate     its object was found before
localisation  it overlaps an object of its class by at least 0.1, and too little to find it
other class   it overlaps no object of its class so much, but one of another class by at least 0.1
background    none of these
============  ==============================================================================================

The order is that of the table: a box between a car and a bus is a badly placed car before it is a bus. Each
object is found or missed, with the best overlap that any detection of its class has with it.

Two numbers tell which kind matters. The *share* of a kind is taken among the false detections of the highest
scores, as many as there are objects: further down, a detector may report anything. The *gain* is what the AP
would rise by if all detections of that kind were not there.

If unsure, begin with the gains: many duplicates ask for a stricter suppression, bad places for box regression
or other root sizes, other classes for context, and the background for more hard negatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from visionkl.core.boxes import iou
from visionkl.core.types import Annotation, Detections
from visionkl.core.validation import check_choice, check_number
from visionkl.datasets.base import Dataset, check_classes
from visionkl.evaluation.precision import METRICS, Metric, average_precision, precision_recall
from visionkl.evaluation.voc import FALSE, IGNORED, TRUE, check_image_ids, judge_boxes

Kind = Literal["true", "ignored", "duplicate", "localisation", "other class", "background"]
Box = tuple[float, float, float, float]

#: What a detection can be.
KINDS: tuple[Kind, ...] = ("true", "ignored", "duplicate", "localisation", "other class", "background")
#: The kinds that are false.
FALSE_KINDS: tuple[Kind, ...] = KINDS[2:]
#: A detection that overlaps an object by so much has to do with it.
NEAR = 0.1


class JudgedDetection(NamedTuple):
    """A detection of the class, and what it is.

    Parameters
    ----------
    image_id : str
    box : tuple of float
        `x1, y1, x2, y2`.
    score : float
    kind : str
        One of `KINDS`.
    overlap : float
        The best with an object of the class; of another class if that is its kind.
    near : str
        The class of the object that it overlaps so; "" for the background.
    """

    image_id: str
    box: Box
    score: float
    kind: Kind
    overlap: float
    near: str


class JudgedObject(NamedTuple):
    """An object of the class, and how it was found.

    Parameters
    ----------
    image_id : str
    box : tuple of float
        `x1, y1, x2, y2`.
    difficult : bool
        Difficult objects are neither found nor missed, as far as the AP is concerned.
    found : bool
    overlap : float
        The best of all detections of the class; 0 if there are none.
    score : float
        Of the detection that found it. If none did, the best among those that overlap it by at least 0.1;
        NaN without any.
    """

    image_id: str
    box: Box
    difficult: bool
    found: bool
    overlap: float
    score: float


@dataclass(frozen=True, eq=False)
class ErrorAnalysis:
    """What a detector of one class does right and wrong on a data set.

    Parameters
    ----------
    dataset : str
        Its name.
    label : str
        The class.
    metric : {"07", "10"}
        Which average precision is meant.
    min_overlap : float
        The overlap at which an object counts as found.
    detections : tuple of JudgedDetection
        Best score first.
    objects : tuple of JudgedObject
        In the order of the data set.
    """

    dataset: str
    label: str
    metric: Metric
    min_overlap: float
    detections: tuple[JudgedDetection, ...]
    objects: tuple[JudgedObject, ...]

    @property
    def n_objects(self) -> int:
        """Objects to find; difficult ones are not counted."""
        return sum(not thing.difficult for thing in self.objects)

    @property
    def counts(self) -> dict[Kind, int]:
        """How many detections are of each kind."""
        kinds = [found.kind for found in self.detections]
        return {kind: kinds.count(kind) for kind in KINDS}

    @property
    def false_positives(self) -> tuple[JudgedDetection, ...]:
        """False detections, the most certain first."""
        return tuple(found for found in self.detections if found.kind in FALSE_KINDS)

    @property
    def misses(self) -> tuple[JudgedObject, ...]:
        """Objects that no detection found, in the order of the data set; difficult ones are left out."""
        return tuple(thing for thing in self.objects if not thing.found and not thing.difficult)

    @property
    def shares(self) -> dict[Kind, float]:
        """Share of each false kind among the best false detections, as many as there are objects."""
        top = [found.kind for found in self.false_positives[: self.n_objects]]
        return {kind: top.count(kind) / max(len(top), 1) for kind in FALSE_KINDS}

    @property
    def ap(self) -> float:
        """The average precision, as `visionkl.evaluation.voc` has it; NaN where there was nothing to find."""
        return self._ap_without("ignored")

    @property
    def gains(self) -> dict[Kind, float]:
        """How much the AP would rise without the detections of a false kind."""
        return {kind: self._ap_without("ignored", kind) - self.ap for kind in FALSE_KINDS}

    def _ap_without(self, *kinds: Kind) -> float:
        if self.n_objects == 0:
            return float("nan")
        kept = [found for found in self.detections if found.kind not in kinds]
        true = np.array([found.kind == "true" for found in kept], dtype=bool)
        precision, recall = precision_recall([found.score for found in kept], true, self.n_objects)
        return average_precision(recall, precision, self.metric)

    def table(self) -> str:
        """Write the kinds of errors as plain text."""
        counts, shares, gains = self.counts, self.shares, self.gains
        n_found = self.n_objects - len(self.misses)
        lines = [
            f"{self.label} on {self.dataset}: {n_found} of {self.n_objects} objects found, AP {self.metric} "
            + ("none" if np.isnan(self.ap) else f"{self.ap:.4f}"),
            f"{'detections':<12}  {'all':>7}  {'of the worst':>12}  {'AP gained without':>17}",
        ]
        for kind in KINDS:
            line = f"{kind:<12}  {counts[kind]:>7}"
            if kind in FALSE_KINDS:
                gain = "none" if np.isnan(gains[kind]) else f"{gains[kind]:.4f}"
                line += f"  {shares[kind]:>12.0%}  {gain:>17}"
            lines.append(line)
        return "\n".join(lines)

    def to_dict(self, n_worst: int = 20) -> dict[str, Any]:
        """Give the numbers, the worst false positives and the misses for JSON; a missing number is null."""

        def plain(row: JudgedDetection | JudgedObject) -> dict[str, Any]:
            return {name: _or_none(value) for name, value in row._asdict().items()}

        return {
            "dataset": self.dataset,
            "label": self.label,
            "metric": self.metric,
            "min_overlap": self.min_overlap,
            "ap": _or_none(self.ap),
            "n_objects": self.n_objects,
            "n_found": self.n_objects - len(self.misses),
            "counts": self.counts,
            "shares": self.shares,
            "gains": {kind: _or_none(gain) for kind, gain in self.gains.items()},
            "false_positives": [plain(found) for found in self.false_positives[:n_worst]],
            "misses": [plain(thing) for thing in self.misses],
        }


def analyse_errors(
    detections_by_image: Mapping[str, Detections],
    dataset: Dataset,
    label: str,
    metric: Metric = "07",
    min_overlap: float = 0.5,
) -> ErrorAnalysis:
    """Tell what the detections of a class are, and which of its objects were found.

    Parameters
    ----------
    detections_by_image : mapping of str to Detections
        By the ids of the pictures. A picture that is missing here has no detections; detections of other
        classes are passed over.
    dataset : Dataset
        Labelled pictures; the pixels are not read.
    label : str
        The class.
    metric : {"07", "10"}, default="07"
        Eleven-point mean, or area under the curve.
    min_overlap : float, default=0.5
        The overlap at which an object counts as found, at least 0.1.

    Returns
    -------
    ErrorAnalysis

    Raises
    ------
    DataError
        If there are detections for a picture that the data set does not hold.
    UsageError
        If the class is not one of the data set's.

    Examples
    --------
    >>> from visionkl.datasets.base import Example
    >>> street = Annotation([[0, 0, 10, 10], [20, 0, 30, 10], [50, 0, 60, 10]], ["car", "car", "bus"])
    >>> data = Dataset("streets", ("car", "bus"), [Example("street", "street.png", lambda: street)])
    >>> boxes = [[0, 0, 10, 9], [50, 0, 60, 10], [0, 0, 10, 10], [0, 5, 9, 20]]
    >>> found = Detections(boxes, [4, 3, 2, 1], "car")
    >>> errors = analyse_errors({"street": found}, data, "car", metric="10")
    >>> [detection.kind for detection in errors.detections]
    ['true', 'other class', 'duplicate', 'localisation']
    >>> [missed.box for missed in errors.misses]
    [(20.0, 0.0, 30.0, 10.0)]
    >>> errors.shares["other class"], errors.gains["other class"]
    (0.5, 0.0)
    """
    check_choice("analyse_errors", "metric", metric, METRICS)
    check_classes(dataset.name, [label], dataset.classes)
    check_image_ids(detections_by_image, dataset)
    check_number("analyse_errors", "min_overlap", min_overlap, low=NEAR, high=1)
    detections: list[JudgedDetection] = []
    objects: list[JudgedObject] = []
    nothing = Detections()
    for example in dataset:
        found = detections_by_image.get(example.id, nothing).filter(labels=label).sorted()
        here, there = _judge(example.id, found, example.annotation, label, min_overlap)
        detections += here
        objects += there
    detections.sort(key=lambda detection: -detection.score)  # equal scores keep their order
    return ErrorAnalysis(dataset.name, label, metric, float(min_overlap), tuple(detections), tuple(objects))


def _judge(
    image_id: str, found: Detections, annotation: Annotation, label: str, min_overlap: float
) -> tuple[list[JudgedDetection], list[JudgedObject]]:
    """Judge detections of one class in one picture, best score first, and its objects."""
    mine = np.array([name == label for name in annotation.labels], dtype=bool)
    objects, others = annotation[mine], annotation[~mine]
    verdicts = judge_boxes(found.boxes, objects.boxes, objects.difficult, min_overlap)
    overlaps = iou(found.boxes, objects.boxes)
    target, own = _best(overlaps)
    other, foreign = _best(iou(found.boxes, others.boxes))
    kinds = np.full(len(found), "background", dtype=object)
    kinds[foreign >= NEAR] = "other class"
    kinds[own >= NEAR] = "localisation"
    kinds[(verdicts == FALSE) & (own >= min_overlap)] = "duplicate"
    kinds[verdicts == IGNORED] = "ignored"
    kinds[verdicts == TRUE] = "true"
    detections = []
    for row, kind in enumerate(kinds):
        near, overlap = ("" if kind == "background" else label), own[row]
        if kind == "other class":
            near, overlap = others.labels[other[row]], foreign[row]
        box, score = _box(found.boxes[row]), float(found.scores[row])
        detections.append(JudgedDetection(image_id, box, score, kind, float(overlap), near))
    judged = []
    for row, box in enumerate(map(_box, objects.boxes)):
        finders = np.flatnonzero((target == row) & (verdicts != FALSE))
        tellers = finders if len(finders) else np.flatnonzero(overlaps[:, row] >= NEAR)
        score = float(found.scores[tellers[0]]) if len(tellers) else float("nan")
        overlap = float(overlaps[:, row].max(initial=0.0))
        difficult = bool(objects.difficult[row])
        judged.append(JudgedObject(image_id, box, difficult, len(finders) > 0, overlap, score))
    return detections, judged


def _best(overlaps: npt.NDArray[np.floating]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.floating]]:
    """Which column is the best of each row, and its value; 0 and 0.0 if there are no columns."""
    if overlaps.shape[1] == 0:
        return np.zeros(len(overlaps), np.intp), np.zeros(len(overlaps))
    return overlaps.argmax(axis=1), overlaps.max(axis=1)


def _box(corners: npt.NDArray[np.float32]) -> Box:
    x1, y1, x2, y2 = corners.tolist()
    return x1, y1, x2, y2


def _or_none(value: Any) -> Any:
    return None if isinstance(value, float) and np.isnan(value) else value
