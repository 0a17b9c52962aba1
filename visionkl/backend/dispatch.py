"""Where work is done: arrays decide.

`loops("pq", cells)` is the module `pq` of the backend that holds the cells: `visionkl.backend.gpu` for CuPy
arrays, `visionkl.backend.cpu` for NumPy's. Both have the same functions. Arrays on the GPU give results on
the GPU, so along a pipeline nothing is copied back and forth.

What begins with a picture or rows in ordinary memory takes a `device`, which `choose_device` understands:

========== ==========================================================================================
`"cpu"`    NumPy and Numba
`"cuda"`   CuPy on the current GPU; `"cuda:1"` on the second. An error where it cannot compute
`"auto"`   CUDA if a GPU really computes, and else the CPU
========== ==========================================================================================
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from visionkl.backend import glue
from visionkl.backend.gpu import device as cuda
from visionkl.backend.scratch import scratch
from visionkl.core.errors import DataError, DeviceError, UsageError
from visionkl.core.validation import check_rows, parameter_error


@dataclass(frozen=True)
class Device:
    """The CPU, or a GPU by its number.

    Parameters
    ----------
    number : int or None
        None is the CPU.
    """

    number: int | None = None

    def __str__(self) -> str:
        return "cpu" if self.number is None else f"cuda:{self.number}"

    @property
    def is_gpu(self) -> bool:
        """Whether arrays lie on a GPU."""
        return self.number is not None

    @property
    def namespace(self) -> Any:
        """NumPy or CuPy."""
        return cuda.namespace() if self.is_gpu else np

    def loops(self, name: str) -> ModuleType:
        """Return the module of this device's backend, such as "hog"."""
        return importlib.import_module(f"visionkl.backend.{'gpu' if self.is_gpu else 'cpu'}.{name}")

    def use(self) -> contextlib.AbstractContextManager[Any]:
        """Make it the current device for a while."""
        return cuda.namespace().cuda.Device(self.number) if self.is_gpu else contextlib.nullcontext()

    def put(self, array: npt.NDArray[Any]) -> Any:
        """Bring an array here; one that is here already stays."""
        if cuda.is_device_array(array) or not self.is_gpu:
            return array
        with self.use():
            return cuda.namespace().asarray(array)

    def room(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """Return an array with anything in it, valid until this thread asks for the same name again.

        On the CPU it is the thread's own memory, `scratch`; a GPU's pool of memory keeps what is freed.
        """
        return self.namespace.empty(shape, dtype) if self.is_gpu else scratch(name, shape, dtype)

    def hold(self, array: npt.NDArray[Any]) -> Any:
        """Bring an array here if there is memory for all of it; else it stays, to be brought in blocks."""
        held = _if_it_fits(lambda: self.put(array))
        return array if held is None else held

    def reserve(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """Return a new array with anything in it, or None where a GPU has too little memory for it."""
        with self.use():
            return _if_it_fits(lambda: self.namespace.empty(shape, dtype))


def _if_it_fits(make: Callable[[], Any]) -> Any:
    """Return what is made, or None if a GPU has too little memory for that."""
    try:
        return make()
    except Exception as error:
        if not cuda.is_out_of_memory(error):
            raise
        cuda.free_memory()
        return None


CPU = Device()

# What objects have on GPUs: not kept in the objects, which are pickled and sent to other processes.
_KEPT: WeakKeyDictionary[Any, dict[Device, Any]] = WeakKeyDictionary()


def kept_on(device: Device, owner: Any, make: Callable[[], Any]) -> Any:
    """Return what `make` makes of an object on a device; it stays there as long as the object lives.

    Parameters
    ----------
    device : Device
        On the CPU nothing is kept.
    owner : object
        What it is made of, which never changes. It has one such thing on a device.
    make : callable
        Called with this device as the current one.
    """
    if not device.is_gpu:
        return make()
    made = _KEPT.setdefault(owner, {})
    if device not in made:
        with device.use():
            made[device] = make()
    return made[device]


def choose_device(device: str | Device, owner: str = "device") -> Device:
    """Find the device that is meant, and make sure that it can compute.

    Parameters
    ----------
    device : str or Device
        "auto", "cpu", "cuda" or "cuda:" and a number.
    owner : str
        Whose parameter it is, for complaints.

    Examples
    --------
    >>> str(choose_device("cpu"))
    'cpu'
    >>> choose_device("gpu", "DPMDetector")
    Traceback (most recent call last):
    visionkl.core.errors.UsageError: The 'device' parameter of DPMDetector must be 'auto', 'cpu', 'cuda' or
    'cuda:<number>'. Got 'gpu' instead.
    """
    if isinstance(device, Device):
        return device
    match = re.fullmatch(r"auto|cpu|cuda(?::(\d+))?", device) if isinstance(device, str) else None
    if match is None:
        raise parameter_error(owner, "device", "'auto', 'cpu', 'cuda' or 'cuda:<number>'", device)
    if device == "cpu" or (device == "auto" and find_spec("cupy") is None):
        return CPU
    number = int(match[1] or 0)
    problem = cuda.problem(number)
    if problem is None:
        return Device(number)
    if device == "auto":
        return CPU
    raise DeviceError(f"{owner}: device {device!r} cannot compute here: {problem}.")


def device_for(estimator: Any, *arrays: Any) -> Device:
    """Find where an estimator computes: on the GPU that its data lie on, or else on its `device`.

    One that has no `device` is the CPU's, and data on a GPU are refused.
    """
    owner, home = type(estimator).__name__, device_of(*arrays)
    if not home.is_gpu:
        return choose_device(getattr(estimator, "device", "cpu"), owner)
    if not hasattr(estimator, "device"):
        raise UsageError(f"{owner} computes on the CPU; give NumPy arrays (cupy.asnumpy).")
    return home


def device_of(*arrays: Any) -> Device:
    """Find the device that all arrays lie on; complain if they lie on several."""
    numbers = {int(array.device.id) if cuda.is_device_array(array) else None for array in arrays}
    if len(numbers) > 1:
        places = ", ".join(sorted(str(Device(number)) for number in numbers))
        raise UsageError(
            f"Arrays lie on different devices ({places}); bring them to one with cupy.asarray or "
            "cupy.asnumpy."
        )
    return Device(numbers.pop()) if numbers else CPU


def loops(name: str, *arrays: Any) -> ModuleType:
    """Return the module of the backend that the arrays belong to, such as "hog"."""
    return device_of(*arrays).loops(name)


def namespace_of(*arrays: Any) -> Any:
    """Return NumPy, or CuPy for arrays on a GPU."""
    return device_of(*arrays).namespace


def rows_anywhere(owner: str, X: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """Do as `check_rows`, also for rows that lie on a GPU, which stay there."""
    device = device_of(X)
    if not device.is_gpu:
        return check_rows(owner, X, dtype)
    given: Any = X
    if given.dtype.kind not in "fiub":
        raise DataError(f"{owner}: X must hold real numbers, not {given.dtype}.")
    if given.ndim != 2 or 0 in given.shape:
        raise DataError(f"{owner}: X must have the shape (n_samples, n_features), not {given.shape}.")
    kind = dtype or (np.float32 if given.dtype == np.float32 else np.float64)
    with device.use():
        rows = device.namespace.ascontiguousarray(given.astype(kind, copy=False))
        finite = glue.all_finite(rows)
    if not finite:
        raise DataError(f"{owner}: X holds NaN or infinity, or numbers whose sum is; leave out such rows.")
    return rows


def validated_rows(estimator: Any, X: Any, *, reset: bool = False, **accepted: Any) -> Any:
    """Do as scikit-learn's `validate_data`, also for dense rows that lie on a GPU, which stay there.

    Parameters
    ----------
    estimator : BaseEstimator
    X : array_like, sparse matrix or CuPy array, shape (n_samples, n_features)
    reset : bool
        Whether features are learned, or have to be those that were.
    **accepted
        What scikit-learn is told to accept; on a GPU, float32 and float64 are.
    """
    from sklearn.utils.validation import validate_data

    on_gpu = device_of(X).is_gpu
    rows = rows_anywhere(type(estimator).__name__, X) if on_gpu else X
    return validate_data(estimator, rows, reset=reset, skip_check_array=on_gpu, **accepted)


def to_host(array: Any) -> npt.NDArray[Any]:
    """Return a NumPy array with the same numbers; one that is NumPy's stays."""
    return array.get() if cuda.is_device_array(array) else array
