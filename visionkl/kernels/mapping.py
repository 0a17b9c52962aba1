"""What all explicit maps have in common as scikit-learn transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from visionkl.backend.dispatch import choose_device, device_of, rows_anywhere, to_host
from visionkl.backend.gpu.device import in_blocks
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError, UsageError
from visionkl.core.validation import check_number
from visionkl.kernels.base import Kernel, Matrix, check_above

#: Numbers that come out of a block of rows on a GPU.
NUMBERS_ON_A_GPU = 2**26


class KernelMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer whose outputs' inner products come near a kernel, `kernel_`."""

    kernel_: Kernel
    n_features_in_: int
    n_jobs: int | None
    device: str = "cpu"

    def _is_for_histograms(self) -> bool:
        """Whether numbers must be 0 or above."""
        return False

    def _rows_to_fit(self, X: npt.ArrayLike) -> Matrix:
        """Check rows to learn from, and remember their features."""
        if self.n_jobs is not None:
            check_number(type(self).__name__, "n_jobs", self.n_jobs, low=1, integer=True)
        choose_device(self.device, type(self).__name__)
        X = to_host(X)
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

    def _map(
        self, rows: Matrix, n_outputs: int, work: Callable[[Matrix, Matrix], Any], effort: int = 1
    ) -> Matrix:
        """Map all rows, block by block, where they lie or on the device that is asked for.

        Parameters
        ----------
        rows : ndarray, shape (n_samples, n_features)
        n_outputs : int
        work : callable
            Takes a block of rows and the array that receives what comes out.
        effort : int
            How many times as long as usual a number takes: then threads get fewer rows at a time.

        Returns
        -------
        ndarray, shape (n_samples, n_outputs)
            Where the rows are.
        """
        home = device_of(rows)
        device = home if home.is_gpu else choose_device(self.device, type(self).__name__)
        with home.use():
            out = home.namespace.empty((len(rows), n_outputs), rows.dtype)
        if not device.is_gpu:
            tasks = bands(len(rows), effort * n_outputs)
            run_tasks(lambda band: work(rows[band], out[band]), tasks, self.n_jobs)
            return out

        def work_there(band: slice) -> None:
            block = device.namespace.empty((band.stop - band.start, n_outputs), rows.dtype)
            work(device.put(rows[band]), block)
            out[band] = block if home.is_gpu else to_host(block)

        with device.use():
            in_blocks(work_there, len(rows), max(NUMBERS_ON_A_GPU // n_outputs, 1))
        return out

    def _checked(self, X: npt.ArrayLike) -> Matrix:
        if device_of(X).is_gpu and "device" not in self.get_params(deep=False):
            raise UsageError(f"{type(self).__name__} maps rows on the CPU; give NumPy arrays (cupy.asnumpy).")
        rows = rows_anywhere(type(self).__name__, X)
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
