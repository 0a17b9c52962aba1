"""Checks of what users pass in, with one form of complaint: what, whose, what is accepted, what came.

NumPy is imported when a picture or an array is checked: settings, and the help of commands, do without.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from visionkl.core.errors import DataError, UsageError

if TYPE_CHECKING:
    import numpy.typing as npt


def parameter_error(owner: str, name: str, accepted: str, got: Any) -> UsageError:
    """Build the sentence in which a parameter is refused."""
    return UsageError(f"The {name!r} parameter of {owner} must be {accepted}. Got {got!r} instead.")


def check_number(
    owner: str,
    name: str,
    value: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    integer: bool = False,
) -> Any:
    """Return `value` if it is a finite number within `[low, high]`, and complain otherwise.

    Examples
    --------
    >>> check_number("DPMDetector", "n_parts", 8, low=0, integer=True)
    8
    >>> check_number("DPMDetector", "n_parts", -1, low=0, integer=True)
    Traceback (most recent call last):
    visionkl.core.errors.UsageError: The 'n_parts' parameter of DPMDetector must be an integer ≥ 0. Got -1
    instead.
    """
    # NumPy's numbers are Integral and Real, too.
    fits = isinstance(value, Integral if integer else Real) and not isinstance(value, bool)
    fits = fits and math.isfinite(value)
    fits = fits and (low is None or value >= low) and (high is None or value <= high)
    if not fits:
        accepted = "an integer" if integer else "a number"
        if low is not None and high is not None:
            accepted += f" between {low:g} and {high:g}"
        elif low is not None:
            accepted += f" ≥ {low:g}"
        elif high is not None:
            accepted += f" ≤ {high:g}"
        raise parameter_error(owner, name, accepted, value)
    return value


def check_choice(owner: str, name: str, value: Any, choices: Collection[Any]) -> Any:
    """Return `value` if it is one of `choices`, and complain otherwise."""
    if value not in choices:
        raise parameter_error(owner, name, "one of " + ", ".join(map(repr, choices)), value)
    return value


def check_rows(owner: str, X: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """Return samples as a contiguous array `(n_samples, n_features)` of finite numbers.

    Without a `dtype` float32 stays float32, and everything else becomes float64. Complaints name the first
    bad row and column, and hold the words that scikit-learn's own checks look for.

    Examples
    --------
    >>> check_rows("FourierMap", [[1, 2], [3, float("nan")]])
    Traceback (most recent call last):
    visionkl.core.errors.DataError: FourierMap: X holds NaN or infinity (or too large a number for float64)
    in row 1, column 1; fill in or leave out such rows.
    """
    import numpy as np
    import scipy.sparse

    if scipy.sparse.issparse(X):
        raise DataError(f"{owner}: sparse data are not supported; give a dense array (X.toarray()).")
    array = np.asarray(X)
    if array.dtype.kind == "c":
        raise DataError(f"{owner}: Complex data not supported; give real numbers.")
    if array.ndim != 2:
        raise DataError(
            f"{owner}: X must have the shape (n_samples, n_features), not {array.shape}. "
            "Reshape your data with X.reshape(-1, 1) if it has one feature, and with X.reshape(1, -1) if "
            "it is one sample."
        )
    if 0 in array.shape:
        raise DataError(
            f"{owner}: X has {array.shape[0]} sample(s) and {array.shape[1]} feature(s) "
            f"(shape={array.shape}) while a minimum of 1 is required."
        )
    kind = np.dtype(dtype or (np.float32 if array.dtype == np.float32 else np.float64))
    try:
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(array, dtype=kind)
    except ValueError as error:
        raise DataError(f"{owner}: X holds something that is no number ({error}).") from None
    # A finite sum is soon made, and says that all are finite; only an infinite one needs a closer look.
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(rows.sum())
    if suspicious and not (finite := np.isfinite(rows)).all():
        row, column = np.argwhere(~finite)[0]
        raise DataError(
            f"{owner}: X holds NaN or infinity (or too large a number for {kind}) "
            f"in row {row}, column {column}; fill in or leave out such rows."
        )
    return rows


def check_picture(image: npt.ArrayLike, owner: str = "image") -> npt.NDArray[Any]:
    """Return a picture as an array `(rows, cols, 3)` of uint8 or float; grey ones get three equal channels.

    Accepts `(rows, cols)`, `(rows, cols, 1)` and `(rows, cols, 3)` arrays with values 0..255.
    """
    import numpy as np

    picture = np.asarray(image)
    if picture.dtype.kind not in "uif":
        raise DataError(f"{owner}: a picture must be an array of numbers, not of {picture.dtype}.")
    if picture.ndim == 3 and picture.shape[2] == 1:
        picture = picture[:, :, 0]
    if picture.ndim == 2:
        picture = np.repeat(picture[:, :, None], 3, axis=2)
    if picture.ndim != 3 or picture.shape[2] != 3:
        raise DataError(
            f"{owner}: a picture must have the shape (rows, cols) or (rows, cols, 3), not {picture.shape}."
        )
    if picture.shape[0] == 0 or picture.shape[1] == 0:
        raise DataError(f"{owner}: the picture is empty (shape {picture.shape}).")
    if picture.dtype.kind == "f" and not np.isfinite(picture).all():
        raise DataError(f"{owner}: the picture holds NaN or infinite values.")
    if picture.dtype != np.uint8 and picture.dtype.kind != "f":
        if picture.min() < 0 or picture.max() > 255:
            raise DataError(
                f"{owner}: integer pictures must lie in 0..255; "
                f"this one spans {picture.min()}..{picture.max()}."
            )
        picture = picture.astype(np.uint8)
    return picture
