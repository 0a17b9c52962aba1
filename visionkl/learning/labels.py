"""Classes as numbers: which there are, and which of them have a machine of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from visionkl.core.errors import DataError


def numbered(owner: str, labels: npt.ArrayLike) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """Return the classes in order, and the number of each sample's class; one class alone is refused.

    Examples
    --------
    >>> numbered("BundleSVC", ["dog", "cat", "dog"])
    (array(['cat', 'dog'], dtype='<U3'), array([1, 0, 1]))
    """
    column = column_or_1d(labels, warn=True)
    check_classification_targets(column)
    classes, numbers = np.unique(column, return_inverse=True)
    if len(classes) < 2:
        raise DataError(
            f"{owner} needs samples of at least two classes; all {len(column)} are of 1 class, "
            f"{classes[0]!r}."
        )
    return classes, numbers


def positive_classes(classes: npt.NDArray[Any]) -> range:
    """Return the numbers of the classes that have a machine: of two, only the second."""
    return range(1, 2) if len(classes) == 2 else range(len(classes))


def winners(scores: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the number of the class with the highest score, of scores (n, 1) for two classes or (n, k)."""
    return (scores[:, 0] > 0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)
