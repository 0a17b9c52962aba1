"""How well classes of whole pictures are told: average precision of each, accuracy, confusion.

Where pictures may show several classes, each class ranks all pictures by its score, as in VOC's
classification task: a picture that shows difficult objects alone is left out, and the ranking is summed up as
that of detections is (`visionkl.evaluation.precision`), with pictures in the place of objects.

Where classes exclude each other, a picture is given to the class of the highest score. *Accuracy* is the
share of pictures that are given to their own; the *mean over classes* of that share counts rare classes as
much as frequent ones. Row `i` and column `j` of the *confusion* count the pictures of class `i` that were
given to `j`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import DataError
from visionkl.evaluation.precision import METRICS, ClassResult, Metric, precision_recall


@dataclass(frozen=True, eq=False)
class ImageResult:
    """Scores of pictures, and what they are worth.

    Parameters
    ----------
    dataset : str
        Its name.
    classes : tuple of str
    exclusive : bool
        Whether each picture shows one class.
    signs : ndarray of int8, shape (n_pictures, n_classes)
        1: the picture shows the class; -1: it does not; 0: it says nothing about it.
    scores : ndarray of float64, shape (n_pictures, n_classes)

    Examples
    --------
    >>> signs = np.array([[1, -1], [1, -1], [-1, 1]], np.int8)
    >>> scores = np.array([[0.9, 0.1], [0.2, 0.3], [-1.0, 2.0]])
    >>> result = ImageResult("pets", ("cat", "dog"), True, signs, scores)
    >>> round(result.accuracy, 3), result.mean_class_accuracy, result.confusion.tolist()
    (0.667, 0.75, [[1, 1], [0, 1]])
    >>> result.by_class("10")["cat"].ap
    1.0
    """

    dataset: str
    classes: tuple[str, ...]
    exclusive: bool
    signs: npt.NDArray[np.int8]
    scores: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        expected = (len(self.signs), len(self.classes))
        if self.signs.shape != expected or self.scores.shape != expected:
            raise DataError(
                f"{self.dataset}: signs and scores must have the shape (n_pictures, {len(self.classes)}), "
                f"not {self.signs.shape} and {self.scores.shape}."
            )

    def __len__(self) -> int:
        return len(self.signs)

    def by_class(self, metric: Metric = "07") -> dict[str, ClassResult]:
        """Rank the pictures by the score of each class."""
        found = {}
        for label, column, score in zip(self.classes, self.signs.T, self.scores.T, strict=True):
            counted = column != 0
            true = column[counted] > 0
            precision, recall = precision_recall(score[counted], true, int(true.sum()))
            found[label] = ClassResult(
                label,
                metric,
                int(true.sum()),
                int((~counted).sum()),
                len(column),
                -np.sort(-score[counted]),
                precision,
                recall,
            )
        return found

    def mean_ap(self, metric: Metric = "07") -> float:
        """Mean over the classes that some picture shows; NaN if there is none."""
        known = [result.ap for result in self.by_class(metric).values() if result.n_objects]
        return float(np.mean(known)) if known else float("nan")

    @property
    def given(self) -> npt.NDArray[np.intp]:
        """Number of the class with the highest score, of each picture."""
        return self.scores.argmax(axis=1)

    @property
    def confusion(self) -> npt.NDArray[np.int64]:
        """Pictures by their class (rows) and the class they were given to (columns)."""
        counts = np.zeros((len(self.classes), len(self.classes)), np.int64)
        np.add.at(counts, (self.signs.argmax(axis=1), self.given), 1)
        return counts

    @property
    def accuracy(self) -> float:
        """Share of pictures that were given to their class."""
        return float(np.trace(self.confusion) / max(len(self), 1))

    @property
    def class_accuracies(self) -> dict[str, float]:
        """The same for the pictures of each class; NaN where there are none."""
        totals = self.confusion.sum(axis=1)
        right = np.diag(self.confusion) / np.where(totals > 0, totals, np.nan)
        return dict(zip(self.classes, right.tolist(), strict=True))

    @property
    def mean_class_accuracy(self) -> float:
        """Mean of the accuracies of classes that have pictures."""
        return float(np.nanmean(list(self.class_accuracies.values())))

    def summary(self) -> str:
        """Say in a line how good it is."""
        if self.exclusive:
            return f"accuracy {self.accuracy:.4f}, mean over classes {self.mean_class_accuracy:.4f}"
        return ", ".join(f"mAP {metric} {self.mean_ap(metric):.4f}" for metric in METRICS)

    def columns(self) -> list[str]:
        """Names of the numbers that `rows` gives."""
        own = ["accuracy"] if self.exclusive else []
        ignored = [] if self.exclusive else ["difficult"]
        return ["class", "pictures", *ignored, *own, *(f"AP {metric}" for metric in METRICS)]

    def rows(self) -> list[list[Any]]:
        """Give the numbers of each class, and the means."""
        both = [self.by_class(metric) for metric in METRICS]
        rows: list[list[Any]] = []
        for label in self.classes:
            mine = both[0][label]
            ignored = [] if self.exclusive else [mine.n_difficult]
            own = [self.class_accuracies[label]] if self.exclusive else []
            rows.append([label, mine.n_objects, *ignored, *own, *(results[label].ap for results in both)])
        means = [self.mean_ap(metric) for metric in METRICS]
        rows.append(["mean", "", *([self.mean_class_accuracy] if self.exclusive else [""]), *means])
        return rows

    def table(self) -> str:
        """Write the numbers as plain text: one line a class, and the means."""
        width = max(map(len, (*self.classes, "class")))
        lines = [f"{'class':<{width}}" + "".join(f"{name:>11}" for name in self.columns()[1:])]
        for label, *numbers in self.rows():
            lines.append(f"{label:<{width}}" + "".join(f"{_text(number):>11}" for number in numbers))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Give the numbers for JSON; a missing one is null."""
        both = {metric: self.by_class(metric) for metric in METRICS}
        document: dict[str, Any] = {
            "dataset": self.dataset,
            "n_images": len(self),
            "mean_ap": {metric: _or_none(self.mean_ap(metric)) for metric in METRICS},
            "classes": {
                label: {
                    "n_pictures": both["07"][label].n_objects,
                    "n_difficult": both["07"][label].n_difficult,
                    "ap": {metric: _or_none(results[label].ap) for metric, results in both.items()},
                }
                for label in self.classes
            },
        }
        if self.exclusive:
            for label, accuracy in self.class_accuracies.items():
                document["classes"][label]["accuracy"] = _or_none(accuracy)
            document |= {
                "accuracy": self.accuracy,
                "mean_class_accuracy": self.mean_class_accuracy,
                "confusion": self.confusion.tolist(),
            }
        return document


def _text(number: Any) -> str:
    if isinstance(number, float):
        return "none" if np.isnan(number) else f"{number:.4f}"
    return str(number)


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value
