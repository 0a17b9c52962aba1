"""What all explicit maps have in common as scikit-learn transformers."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from visionkl.core.errors import DataError
from visionkl.core.validation import check_number, check_rows
from visionkl.kernels.base import Kernel, Matrix, check_above


class KernelMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer whose outputs' inner products come near a kernel, `kernel_`."""

    kernel_: Kernel
    n_features_in_: int
    n_jobs: int | None

    def _is_for_histograms(self) -> bool:
        """Whether numbers must be 0 or above."""
        return False

    def _rows_to_fit(self, X: npt.ArrayLike) -> Matrix:
        """Check rows to learn from, and remember their features."""
        if self.n_jobs is not None:
            check_number(type(self).__name__, "n_jobs", self.n_jobs, low=1, integer=True)
        rows = self._checked(X)
        validate_data(self, X, skip_check_array=True)
        return rows

    def _rows_to_map(self, X: npt.ArrayLike) -> Matrix:
        """Check rows to map: they must have the features of those learned from."""
        check_is_fitted(self)
        rows = self._checked(X)
        if rows.shape[1] != self.n_features_in_:
            raise DataError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        validate_data(self, X, reset=False, skip_check_array=True)
        return rows

    def _checked(self, X: npt.ArrayLike) -> Matrix:
        rows = check_rows(type(self).__name__, X)
        if self._is_for_histograms():
            check_above(type(self).__name__, rows, 0.0, inclusive=True)
        return rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.positive_only = self._is_for_histograms()
        return tags


def bands(n_rows: int, n_numbers: int) -> list[slice]:
    """Cut rows into blocks that threads share, each of which maps to some megabytes, whatever the width.

    Matrix products of fewer rows are slower than one of all.

    Examples
    --------
    >>> bands(1500, 3000)
    [slice(0, 1024, None), slice(1024, 1500, None)]
    """
    size = max(32, min(1024, 2**22 // n_numbers))
    return [slice(first, min(first + size, n_rows)) for first in range(0, n_rows, size)]
