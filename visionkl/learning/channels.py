"""Channels: several descriptions of the same samples (METHODS §7).

A channel is a set of columns of one matrix, or a matrix of its own: colours, gradients, words, ... Estimators
with a kernel for each channel read their data here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from visionkl.backend.dispatch import Device, device_of, rows_anywhere, to_host
from visionkl.core.errors import DataError
from visionkl.core.validation import parameter_error

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]
Columns = slice | npt.NDArray[np.intp]


def is_list_of_channels(X: Any) -> bool:
    """Whether X is a list or tuple of matrices."""
    return isinstance(X, list | tuple) and len(X) > 0 and all(len(_shape(part)) == 2 for part in X)


def _shape(part: Any) -> tuple[int, ...]:
    """Shape of an array, wherever it lies, or of nested lists."""
    return part.shape if hasattr(part, "shape") else np.shape(part)


def home_of(X: Any) -> Device:
    """Find the device that a matrix, or a list of one for each channel, lies on."""
    return device_of(*X) if is_list_of_channels(X) else device_of(X)


def read_channels(owner: str, X: Any, channels: Any) -> tuple[list[Matrix], int]:
    """Return the matrix of each channel, checked, and the number of columns of X.

    Parameters
    ----------
    owner : str
        Who complains.
    X : array_like of float, shape (n_samples, n_features), or list of such
        A list has one matrix for each channel. What lies on a GPU stays there.
    channels : None, or sequence
        Lengths of neighbouring blocks of columns, or the columns of each channel as slices or lists.
    """
    if not is_list_of_channels(X):
        rows = rows_anywhere(owner, X)
        chosen = chosen_columns(owner, channels, rows.shape[1])
        device = device_of(rows)
        with device.use():
            places = [some if isinstance(some, slice) else device.put(some) for some in chosen]
            return [rows[:, columns] for columns in places], rows.shape[1]
    lengths = [len(part) for part in X]
    if len(set(lengths)) > 1:
        raise DataError(
            f"{owner}: all channels must have the same number of rows, one for each sample; "
            f"they have {', '.join(map(str, lengths))}."
        )
    widths = [_shape(part)[1] for part in X]
    if channels is not None and list(channels) != widths:
        accepted = f"None, or the widths {widths}, since X is a list of arrays, which are the channels"
        raise parameter_error(owner, "channels", accepted, channels)
    single = all(getattr(part, "dtype", None) == np.float32 for part in X)
    kind = np.float32 if single else np.float64
    return [rows_anywhere(f"{owner}, channel {k}", part, kind) for k, part in enumerate(X)], sum(widths)


def chosen_columns(owner: str, channels: Any, n_features: int) -> list[Columns]:
    """Return the columns of each channel.

    Examples
    --------
    >>> chosen_columns("FourierMKLClassifier", [2, 3], 5)
    [slice(0, 2, None), slice(2, 5, None)]
    """
    if channels is None:
        return [slice(0, n_features)]
    accepted = "a list of lengths, or of slices or lists of columns, one for each channel"
    if isinstance(channels, str) or not hasattr(channels, "__len__") or not len(channels):
        raise parameter_error(owner, "channels", accepted, channels)
    if all(isinstance(length, int | np.integer) for length in channels):
        if min(channels) < 1 or sum(channels) != n_features:
            accepted = f"lengths > 0 whose sum is the number of columns of X, {n_features}"
            raise parameter_error(owner, "channels", accepted, channels)
        ends = np.cumsum(channels)
        return [slice(int(end - length), int(end)) for end, length in zip(ends, channels, strict=True)]
    chosen: list[Columns] = []
    used = np.zeros(n_features, bool)
    for number, columns in enumerate(channels):
        if isinstance(columns, slice):
            columns = slice(*columns.indices(n_features))
            places = np.arange(n_features)[columns]
            columns = columns if columns.step == 1 else places
        else:
            places = columns = np.asarray(columns)
            if places.ndim != 1 or places.dtype.kind not in "iu":
                raise parameter_error(owner, "channels", accepted, channels)
        where = f"{owner}: channel {number} of 'channels'"
        if not len(places):
            raise DataError(f"{where} has no column; leave it out.")
        if places.min() < 0 or places.max() >= n_features:
            odd = places[(places < 0) | (places >= n_features)][0]
            raise DataError(f"{where} has column {odd}, but X has the columns 0 to {n_features - 1}.")
        if used[places].any() or len(np.unique(places)) < len(places):
            twice = places[used[places]] if used[places].any() else np.sort(places)
            odd = twice[0] if used[places].any() else twice[:-1][twice[1:] == twice[:-1]][0]
            raise DataError(f"{where} has column {odd}, which was there before; columns must not overlap.")
        used[places] = True
        chosen.append(columns)
    return chosen


class ChannelEstimator(BaseEstimator):
    """Base of estimators with a kernel for each channel: reads what they are given."""

    channels: Any

    def _read_training(self, X: Any, y: Any) -> tuple[list[Matrix], npt.NDArray[Any]]:
        """Return the matrix of each channel, and the labels or targets, one for each row."""
        owner = type(self).__name__
        parts, n_features = read_channels(owner, X, self.channels)
        if y is None:
            raise DataError(
                f"This {owner} estimator requires y to be passed, but the target y is None; give a label or "
                "a target for each sample."
            )
        if is_list_of_channels(X):
            self.n_features_in_ = n_features
        else:
            validate_data(self, X, skip_check_array=True)
        y = np.asarray(to_host(y))
        if y.ndim == 0 or len(y) != len(parts[0]):
            raise DataError(
                f"{owner}: y must have one entry for each sample; found input variables with inconsistent "
                f"numbers of samples: X has {len(parts[0])}, y has the shape {y.shape}."
            )
        self._widths = [part.shape[1] for part in parts]
        return parts, y

    def _read_new(self, X: Any) -> list[Matrix]:
        """Return the matrix of each channel of new samples."""
        check_is_fitted(self)
        owner = type(self).__name__
        if is_list_of_channels(X):
            given = [_shape(part)[1] for part in X]
            if given != self._widths:
                raise DataError(
                    f"{owner} was trained on channels of the widths {self._widths}; these have {given}."
                )
            return read_channels(owner, X, None)[0]
        rows = rows_anywhere(owner, X)
        if rows.shape[1] != self.n_features_in_:
            raise DataError(
                f"X has {rows.shape[1]} features, but {owner} is expecting {self.n_features_in_} features "
                "as input."
            )
        validate_data(self, X, reset=False, skip_check_array=True)
        # Trained on a list of matrices, their columns may come side by side.
        return read_channels(owner, rows, self._widths if self.channels is None else self.channels)[0]

    def _one_each(self, name: str, value: Any, n_channels: int) -> list[Any]:
        """Return a parameter of each channel, given one for all or a list of them."""
        if not isinstance(value, list | tuple | np.ndarray) or np.ndim(value) == 0:
            return [value] * n_channels
        if len(value) != n_channels:
            accepted = f"one value for all channels, or a list of {n_channels}, one for each"
            raise parameter_error(type(self).__name__, name, accepted, value)
        return list(value)


def class_signs(owner: str, y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Vector]:
    """Return the classes, and +1 and -1 for each class against the rest; of two, only for the second.

    Examples
    --------
    >>> class_signs("FourierMKLClassifier", np.array(["a", "b", "a"]))
    (array(['a', 'b'], dtype='<U1'), array([[-1.],
           [ 1.],
           [-1.]]))
    """
    labels = column_or_1d(y, warn=True)
    check_classification_targets(labels)
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise DataError(
            f"{owner} needs samples of at least two classes; all {len(labels)} are of 1 class, "
            f"{classes[0]!r}."
        )
    positive = np.arange(len(classes))[-1:] if len(classes) == 2 else np.arange(len(classes))
    return classes, np.where(numbers[:, None] == positive, 1.0, -1.0)


def best_classes(classes: npt.NDArray[Any], scores: Matrix) -> npt.NDArray[Any]:
    """Return the class with the highest of the scores `(n_samples, 1 or n_classes)`."""
    if scores.shape[1] == 1:
        return classes[(scores[:, 0] > 0).astype(np.intp)]
    return classes[scores.argmax(axis=1)]


def numeric_targets(owner: str, y: npt.NDArray[Any]) -> Vector:
    """Return targets as finite numbers; complain of anything else."""
    if y.ndim not in (1, 2) or y.dtype.kind == "c":
        raise DataError(
            f"{owner}: y must be a list of numbers or of rows of them, not of the shape {y.shape}."
        )
    try:
        targets = y.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{owner}: y holds something that is no number.") from None
    if not np.isfinite(targets).all():
        place = int(np.argwhere(~np.isfinite(targets))[0][0])
        raise DataError(f"{owner}: y holds NaN or infinity, first for sample {place}.")
    return targets
