"""A stand-in for CuPy whose arrays lie in ordinary memory, to run `backend/gpu` without a GPU.

It is as strict as CuPy where that matters: neither NumPy arrays nor tuples and lists of numbers mix with its
own in arithmetic, nothing is copied to NumPy unasked, only functions that CuPy has can be called (those of
the array API through `__array_namespace__`, which is what array-api-compat makes of CuPy), and there are
several devices: an array belongs to the one that was the current one when it was made, and is computed with
on that one only. New memory is poisoned.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from visionkl.backend.gpu import device as cuda
from visionkl.backend.gpu import launch

try:
    import cupy as _real
except ImportError:
    _real = None

_POISON = 0xC3
_ALLOWED = (int, float, complex, bool, str, type(None), slice, type(Ellipsis), np.generic, np.dtype, type)


_here = threading.local()
# Methods that make views, wherever the array lies.
_VIEWS = ("reshape", "transpose", "view", "ravel")


class _Device:
    def __init__(self, number: int | None = None) -> None:
        self.id = _stack()[-1] if number is None else number

    def __enter__(self) -> _Device:
        _stack().append(self.id)
        return self

    def __exit__(self, *_: object) -> None:
        _stack().pop()


def _stack() -> list[int]:
    """Numbers of this thread's devices; the last is the current one."""
    if not hasattr(_here, "numbers"):
        _here.numbers = [0]
    return _here.numbers


class DeviceArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that NumPy cannot touch."""

    __module__ = "cupy.fake"  # by which arrays of a device are known

    def __init__(self, data: np.ndarray, device: _Device | None = None) -> None:
        self.data_of_test = data
        self.device = device or _Device()

    def _check_device(self) -> None:
        if self.device.id != _stack()[-1]:
            raise ValueError(
                f"Array device must be same as the current device: {self.device.id} is not {_stack()[-1]}"
            )

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("implicit conversion to a NumPy array is not allowed; call asnumpy")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is not None:
            kwargs["out"] = tuple(map(inside, out))
        return outside(getattr(ufunc, method)(*map(operand, inputs), **kwargs))

    def __array_function__(self, function: Any, *_: Any) -> Any:
        raise TypeError(f"{function.__name__} of NumPy was called on an array of the device")

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, int | slice | tuple):
            self._check_device()
        return outside(self.data_of_test[inside(key)], self.device)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._check_device()
        self.data_of_test[inside(key)] = inside(value)

    def __len__(self) -> int:
        return len(self.data_of_test)

    def __iter__(self) -> Any:
        return (outside(value, self.device) for value in self.data_of_test)

    def __int__(self) -> int:
        return int(self.data_of_test)

    def __float__(self) -> float:
        return float(self.data_of_test)

    def __bool__(self) -> bool:
        return bool(self.data_of_test)

    def __array_namespace__(self, *, api_version: Any = None) -> StandardCupy:
        return StandardCupy()

    def get(self) -> np.ndarray:
        return self.data_of_test.copy()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if _real is not None and not hasattr(_real.ndarray, name):
            raise AttributeError(f"arrays of CuPy have no {name!r}")
        value = getattr(self.data_of_test, name)
        if not callable(value):
            return outside(value, self.device) if isinstance(value, np.ndarray) else value
        if name not in _VIEWS:
            self._check_device()
        return _adapted(value, self.device)


def inside(value: Any) -> Any:
    """The NumPy array of a device's one; complains about anything that CuPy would not take."""
    if isinstance(value, DeviceArray):
        value._check_device()
        return value.data_of_test
    if isinstance(value, tuple | list):
        return type(value)(map(inside, value))
    if not isinstance(value, _ALLOWED):
        raise TypeError(f"Unsupported type {type(value)}")
    return value


def operand(value: Any) -> Any:
    """The same of what arithmetic is done with: CuPy makes no arrays of sequences there."""
    if isinstance(value, tuple | list):
        raise TypeError(f"Unsupported type {type(value)}")
    return inside(value)


def outside(value: Any, device: _Device | None = None) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return DeviceArray(np.asarray(value), device)
    if isinstance(value, tuple | list):
        return type(value)(outside(part, device) for part in value)
    return value


def _adapted(function: Any, device: _Device | None = None) -> Any:
    if isinstance(function, type):
        return function  # such as float32
    if not callable(function):
        return outside(function) if isinstance(function, np.ndarray) else function

    unwrap = operand if isinstance(function, np.ufunc) else inside

    def call(*arguments: Any, **named: Any) -> Any:
        return outside(
            function(*map(unwrap, arguments), **{name: inside(value) for name, value in named.items()}),
            device,
        )

    return call


class FakeCupy:
    """The module."""

    ndarray = DeviceArray
    cuda = SimpleNamespace(Device=_Device)

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
    def zeros(shape: Any, dtype: Any = np.float64) -> DeviceArray:
        return DeviceArray(np.zeros(shape, dtype))

    @staticmethod
    def empty_like(other: DeviceArray) -> DeviceArray:
        return FakeCupy.empty(other.shape, other.dtype)

    @staticmethod
    def asarray(value: Any, dtype: Any = None) -> DeviceArray:
        if isinstance(value, DeviceArray):
            return value if dtype is None else value.astype(dtype)
        return DeviceArray(np.asarray(np.array(value), dtype))

    @staticmethod
    def asnumpy(value: DeviceArray) -> np.ndarray:
        return value.data_of_test.copy()


class StandardCupy(FakeCupy):
    """The functions of the array API, under NumPy's names of them."""

    def __getattr__(self, name: str) -> Any:
        return _adapted(getattr(np, name))

    @staticmethod
    def full(shape: Any, value: Any, *, dtype: Any, device: _Device) -> DeviceArray:
        with device:
            return DeviceArray(np.full(shape, value, dtype))


def stand_in(monkeypatch: pytest.MonkeyPatch, machine: Any, order: str) -> FakeCupy:
    """Put a stand-in in CuPy's place, with kernels that a machine made of the CPU runs in some order."""
    fake = FakeCupy()
    one_at_a_time = threading.Lock()  # the scheduler of fibres is no place for threads

    def run(kernel: launch.Kernel, n_blocks: int, arguments: list[Any]) -> None:
        plain = [value.data_of_test if isinstance(value, DeviceArray) else value for value in arguments]
        with one_at_a_time:
            machine.run(kernel, n_blocks, plain, order, seed=n_blocks)

    monkeypatch.setattr(cuda, "namespace", lambda: fake)
    monkeypatch.setattr(cuda, "problem", lambda number=0: None)
    monkeypatch.setattr(launch, "_run", run)
    return fake
