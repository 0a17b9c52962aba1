"""Context: what else was found in a picture, and where, tells whether a detection is right.

A bus in the sky is unlikely, a bicycle below a person is not. After detectors of several classes have
searched a picture, each detection is described by

    g = (σ(s), x1/width, y1/height, x2/width, y2/height, σ(s_1), ..., σ(s_k)),   σ(s) = 1 / (1 + exp(-2 s)),

with its own score s, its box relative to the picture, and for each of the k classes the best score s_i that
the class has anywhere in the picture (σ = 0 if it was not found). One classifier a class, a support vector
machine with the quadratic kernel (1 + g·h)², learns from labelled pictures to tell right detections of the
class from wrong ones; its decision value is the new score (METHODS §10; Felzenszwalb et al., PAMI 2010).

A detection is right if it overlaps an object of its class by at least a half, and no better one does: as in
the average precision, a second detection of an object is wrong. If the object it overlaps most is a difficult
one, it is left out. All detections weigh the same. (Weighing right and wrong ones as if there were as many of
each, or taking second ones for right, made the order worse on photographs.)

When to take it: with several classes that are seen together or in typical places, and a few hundred
detections of each. It also works with one class, whose best score, places and sizes remain. The detections to
learn from should come from pictures that the detectors have not been trained on; on the others they are surer
than they will ever be again.

Implementation: the kernel is a product of vectors with a 1 put before them, (1 + g·h) = g̃·h̃. So the sum over
support vectors, Σ a_i (g̃·h̃_i)² + b, is the quadratic form g̃ᵀ A g̃ with A = Σ a_i h̃_i h̃_iᵀ and b added to its
first element. One small matrix a class is all that is kept: scikit-learn learns it, NumPy applies it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.core.boxes import iou
from visionkl.core.errors import DataError, UsageError
from visionkl.core.types import Annotation, Detections
from visionkl.core.validation import check_number, parameter_error
from visionkl.datasets.base import Dataset, check_classes, listing

Floats = npt.NDArray[np.float64]

#: Features before those of the classes: the score and the box.
_N_OWN = 5
#: An object so much overlapped is found.
_MIN_OVERLAP = 0.5


class ContextRescorer:
    """Scores detections anew by what else there is in the picture.

    Parameters
    ----------
    cost : float, default=1.0
        The price of an error on a training detection (C of the support vector machine).

    Attributes
    ----------
    classes_ : tuple of str
        Their order is that of the features.
    forms_ : ndarray of float64, shape (k classes, 6 + k, 6 + k)
        The symmetric matrices A.
    counts_ : ndarray of int, shape (k classes, 2)
        Right and wrong detections of each class that `fit` has learned from.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from visionkl.datasets.base import Example
    >>> path = Path(tempfile.mkdtemp()) / "street.png"
    >>> Image.new("RGB", (100, 50)).save(path)
    >>> road = Annotation([[10, 30, 40, 50]], ["car"])
    >>> data = Dataset("streets", ("car",), [Example("street", path, lambda: road)])
    >>> found = Detections([[10, 0, 40, 20], [10, 30, 40, 50]], [0.1, 0.0], "car")  # in the sky; on the road
    >>> rescorer = ContextRescorer(cost=100).fit({"street": found}, data)
    >>> rescorer.rescore(found, (100, 50)).boxes[0].tolist()
    [10.0, 30.0, 40.0, 50.0]
    """

    classes_: tuple[str, ...]
    forms_: Floats
    counts_: npt.NDArray[np.int64]

    def __init__(self, *, cost: float = 1.0) -> None:
        self.cost = cost

    def fit(
        self,
        detections_by_image: Mapping[str, Detections],
        dataset: Dataset,
        classes: Sequence[str] | None = None,
    ) -> ContextRescorer:
        """Learn from labelled pictures.

        Parameters
        ----------
        detections_by_image : mapping of str to Detections
            Of all detectors, by the ids of the pictures; low scores included. A picture that is missing here
            has no detections.
        dataset : Dataset
            Labelled pictures; of the pictures, only the sizes are read.
        classes : sequence of str, optional
            The classes that are looked for, all classes of the data set by default.

        Returns
        -------
        ContextRescorer
            Itself. A class that has only right or only wrong detections keeps its order of scores.

        Raises
        ------
        DataError
            If there are detections for a picture that the data set does not hold, or if no class has both
            right and wrong detections.
        """
        from sklearn.svm import SVC

        check_number("ContextRescorer", "cost", self.cost, low=0)
        if self.cost == 0:
            raise parameter_error("ContextRescorer", "cost", "a number above 0", self.cost)
        classes = check_classes(
            dataset.name, dataset.classes if classes is None else classes, dataset.classes
        )
        features, right, labels = _training_rows(detections_by_image, dataset, classes)
        n = 1 + _N_OWN + len(classes)
        forms = np.zeros((len(classes), n, n))
        counts = np.array([[(right[labels == c] == so).sum() for so in (True, False)] for c in classes])
        for form, label, count in zip(forms, classes, counts, strict=True):
            mine = labels == label
            if count.min() == 0:
                form[0, :2] = form[:2, 0] = -1, 1  # 2 σ(s) - 1
                continue
            machine = SVC(C=self.cost, kernel="poly", degree=2, gamma=1.0, coef0=1.0).fit(
                features[mine], right[mine]
            )
            vectors = _with_one(machine.support_vectors_)
            form[:] = vectors.T @ (machine.dual_coef_[0][:, None] * vectors)
            form[0, 0] += machine.intercept_[0]
        if not counts.all(axis=1).any():
            raise DataError(
                f"ContextRescorer: no class of {dataset.name} has both right and wrong detections to learn "
                "from; search with lower thresholds, or on more pictures."
            )
        self.classes_, self.forms_, self.counts_ = classes, forms, counts
        return self

    def rescore(self, detections: Detections, image_size: tuple[int, int]) -> Detections:
        """Score the detections of all classes in one picture anew.

        Parameters
        ----------
        detections : Detections
            Of all detectors, down to the scores that were learned from.
        image_size : tuple of int
            `(width, height)` of the picture.

        Returns
        -------
        Detections
            The same, with new scores, best first. Right ones tend to score above 0.
        """
        if not hasattr(self, "forms_"):
            raise UsageError("This ContextRescorer has not been trained: call fit, or load one.")
        for label in detections.labels:
            if label not in self.classes_:
                raise UsageError(
                    f"ContextRescorer: the class {label!r} is not one of those that it was trained with: "
                    f"{listing(self.classes_)}."
                )
        described = _with_one(context_features(detections, image_size, self.classes_))
        forms = self.forms_[[self.classes_.index(label) for label in detections.labels]]
        scores = np.einsum("ni,nij,nj->n", described, forms, described)
        return replace(detections, scores=scores.astype(np.float32)).sorted()

    def save(self, path: str | Path) -> None:
        """Write it to a `.safetensors` file; `visionkl.load` reads it."""
        from visionkl.store import save

        save(self, path)

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Give what was learned as plain arrays, for a file; `classes_` belongs beside them."""
        if not hasattr(self, "forms_"):
            raise UsageError("This ContextRescorer has not been trained: call fit, or load one.")
        return {"forms": self.forms_.copy()}

    @classmethod
    def from_arrays(cls, classes: Sequence[str], arrays: Mapping[str, npt.NDArray[Any]]) -> ContextRescorer:
        """Make a rescorer of the `classes_` and arrays of another one."""
        n = 1 + _N_OWN + len(classes)
        forms = np.array(arrays.get("forms"), dtype=np.float64)
        if forms.shape != (len(classes), n, n) or not np.isfinite(forms).all():
            raise DataError(
                f"ContextRescorer: for {len(classes)} classes, 'forms' must be finite numbers of the shape "
                f"{(len(classes), n, n)}, not {forms.shape}."
            )
        rescorer = cls()
        rescorer.classes_, rescorer.forms_ = tuple(classes), forms
        return rescorer


def context_features(detections: Detections, image_size: tuple[int, int], classes: Sequence[str]) -> Floats:
    """Describe the detections of one picture by their scores, their boxes and the best score of each class.

    Parameters
    ----------
    detections : Detections
    image_size : tuple of int
        `(width, height)`.
    classes : sequence of str

    Returns
    -------
    ndarray of float64, shape (n, 5 + len(classes))

    Examples
    --------
    >>> found = Detections([[10, 0, 50, 20]], [0.0], "car")
    >>> context_features(found, (100, 40), ("car", "dog")).tolist()
    [[0.5, 0.1, 0.0, 0.5, 0.5, 0.5, 0.0]]
    """
    width, height = image_size
    # The logistic function in terms of tanh, which does not overflow.
    squashed = (1 + np.tanh(detections.scores.astype(np.float64))) / 2
    labels = np.array(detections.labels, dtype=object)
    best = [squashed[labels == label].max(initial=0.0) for label in classes]
    boxes = detections.boxes / np.array([width, height, width, height], dtype=np.float64)
    around = np.broadcast_to(np.array(best, dtype=np.float64), (len(detections), len(classes)))
    return np.hstack([squashed[:, None], boxes, around])


def _training_rows(
    detections_by_image: Mapping[str, Detections], dataset: Dataset, classes: tuple[str, ...]
) -> tuple[Floats, npt.NDArray[np.bool_], npt.NDArray[Any]]:
    """Features, verdicts and labels of all detections that are right or wrong."""
    features = [np.zeros((0, _N_OWN + len(classes)))]
    right: list[bool] = []
    labels: list[str] = []
    seen = set()
    for example in dataset:
        if example.id not in detections_by_image:
            continue
        seen.add(example.id)
        found = detections_by_image[example.id].filter(labels=classes)
        if len(found) == 0:
            continue
        true, judged = _judge(found, example.annotation)
        features.append(context_features(found, example.size(), classes)[judged])
        right += true[judged].tolist()
        labels += [found.labels[row] for row in np.flatnonzero(judged)]
    for image_id in detections_by_image:
        if image_id not in seen:
            raise DataError(
                f"ContextRescorer: the picture {image_id!r} is not one of the {len(dataset)} "
                f"of {dataset.name}."
            )
    return np.concatenate(features), np.array(right, dtype=bool), np.array(labels, dtype=object)


def _judge(found: Detections, annotation: Annotation) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which detections of a picture are right, and which are either right or wrong."""
    same = np.array(found.labels, dtype=object)[:, None] == np.array(annotation.labels, dtype=object)
    # A last object that nothing overlaps, so that there is always one.
    overlaps = np.pad(iou(found.boxes, annotation.boxes) * same, [(0, 0), (0, 1)])
    nearest = overlaps.argmax(axis=1)
    hit = overlaps.max(axis=1) >= _MIN_OVERLAP
    difficult = hit & np.append(annotation.difficult, False)[nearest]
    best_first = np.argsort(-found.scores, kind="stable")
    best_first = best_first[hit[best_first]]
    _, first = np.unique(nearest[best_first], return_index=True)
    right = np.zeros(len(found), bool)
    right[best_first[first]] = True
    return right & ~difficult, ~difficult


def _with_one(rows: Floats) -> Floats:
    return np.hstack([np.ones((len(rows), 1)), rows])
