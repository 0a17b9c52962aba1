"""A stand-in for CuPy whose arrays lie in ordinary memory, to run `backend/gpu` without a GPU.

It is as strict as CuPy where that matters: NumPy arrays and its own do not mix, nothing is copied to NumPy
unasked, and only functions that CuPy has can be called. New memory is poisoned.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

try:
    import cupy as _real
except ImportError:
    _real = None

_POISON = 0xC3
_ALLOWED = (int, float, complex, bool, str, type(None), slice, type(Ellipsis), np.generic, np.dtype, type)


class _Device:
    id = 0

    def __enter__(self) -> _Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class DeviceArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that NumPy cannot touch."""

    __module__ = "cupy.fake"  # by which arrays of a device are known
    device = _Device()

    def __init__(self, data: np.ndarray) -> None:
        self.data_of_test = data

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("implicit conversion to a NumPy array is not allowed; call asnumpy")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is not None:
            kwargs["out"] = tuple(map(inside, out))
        return outside(getattr(ufunc, method)(*map(inside, inputs), **kwargs))

    def __array_function__(self, function: Any, *_: Any) -> Any:
        raise TypeError(f"{function.__name__} of NumPy was called on an array of the device")

    def __getitem__(self, key: Any) -> Any:
        return outside(self.data_of_test[inside(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data_of_test[inside(key)] = inside(value)

    def __len__(self) -> int:
        return len(self.data_of_test)

    def __iter__(self) -> Any:
        return map(outside, self.data_of_test)

    def __int__(self) -> int:
        return int(self.data_of_test)

    def __float__(self) -> float:
        return float(self.data_of_test)

    def __bool__(self) -> bool:
        return bool(self.data_of_test)

    def __array_namespace__(self, *, api_version: Any = None) -> FakeCupy:
        return FakeCupy()

    def get(self) -> np.ndarray:
        return self.data_of_test.copy()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if _real is not None and not hasattr(_real.ndarray, name):
            raise AttributeError(f"arrays of CuPy have no {name!r}")
        return _adapted(getattr(self.data_of_test, name))


def inside(value: Any) -> Any:
    """The NumPy array of a device's one; complains about anything that CuPy would not take."""
    if isinstance(value, DeviceArray):
        return value.data_of_test
    if isinstance(value, tuple | list):
        return type(value)(map(inside, value))
    if not isinstance(value, _ALLOWED):
        raise TypeError(f"Unsupported type {type(value)}")
    return value


def outside(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return DeviceArray(np.asarray(value))
    if isinstance(value, tuple | list):
        return type(value)(map(outside, value))
    return value


def _adapted(function: Any) -> Any:
    if isinstance(function, type):
        return function  # such as float32
    if not callable(function):
        return outside(function) if isinstance(function, np.ndarray) else function

    def call(*arguments: Any, **named: Any) -> Any:
        return outside(
            function(*map(inside, arguments), **{name: inside(value) for name, value in named.items()})
        )

    return call


class FakeCupy:
    """The module."""

    ndarray = DeviceArray
    cuda = SimpleNamespace(Device=lambda number: _Device())

    def __getattr__(self, name: str) -> Any:
        if _real is not None and not hasattr(_real, name):
            raise AttributeError(f"CuPy has no {name!r}")
        return _adapted(getattr(np, name))

    @staticmethod
    def empty(shape: Any, dtype: Any = np.float64) -> DeviceArray:
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8)[...] = _POISON
        return DeviceArray(array)

    @staticmethod
    def zeros(shape: Any, dtype: Any = np.float64, *, device: _Device | None = None) -> DeviceArray:
        return DeviceArray(np.zeros(shape, dtype))

    @staticmethod
    def astype(array: DeviceArray, dtype: Any) -> DeviceArray:
        return array.astype(dtype)

    @staticmethod
    def empty_like(other: DeviceArray) -> DeviceArray:
        return FakeCupy.empty(other.shape, other.dtype)

    @staticmethod
    def asarray(value: Any, dtype: Any = None) -> DeviceArray:
        data = value.data_of_test if isinstance(value, DeviceArray) else np.array(value)
        return DeviceArray(np.asarray(data, dtype))

    @staticmethod
    def asnumpy(value: DeviceArray) -> np.ndarray:
        return value.data_of_test.copy()
