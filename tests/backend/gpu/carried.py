"""The GPU's loops under the CPU's tests.

Both backends have the same functions, so the tests of the whole package can be tests of the GPU's as well:
here are stand-ins for the modules of `backend/cpu`, whose functions carry NumPy arrays to the device, call
the function of `backend/gpu`, and carry back what it returned and what it wrote into the arrays. What the
package makes of the loops is then what its tests expect, or they fail.
"""

from __future__ import annotations

import importlib
import inspect
import threading
from functools import wraps
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest

from tests.backend.gpu.host_build import MODULES
from visionkl.backend.cpu.pq import Codebook
from visionkl.backend.dispatch import CPU, Device
from visionkl.backend.gpu import device as cuda

#: Parameters that are NumPy arrays on the GPU, too: they are small, or go there once.
_STAY = {
    "bits.encode_stumps": {"used", "ends", "places", "columns", "ranks"},
    "distance.add_windowed": {"wiring", "limits"},
    "distance.make_windows": {"costs", "chosen"},
    "filters.dense_filters": {"filters"},
    "pq.encode": {"channels"},
    "pq.make_codebook": {"words"},
    "resample.area_taps": {"old", "new"},
    "sift.describe": {"smoother", "kernels", "bin_weights"},
    "tables.make_tables": {"scores"},
}

#: An array, what was in it, and its copy on the device.
_Luggage = tuple[np.ndarray, np.ndarray, Any]

# Codebooks on the device, by those of the CPU.
_codebooks: WeakKeyDictionary[Codebook, Any] = WeakKeyDictionary()
# Threads of the CPU write to parts of one array; here each carries back all of it.
_one_at_a_time = threading.RLock()


def carry_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let work on NumPy arrays be done by the GPU's loops."""
    loops_of = Device.loops
    carried = {name: _carried_module(name) for name in MODULES if name not in ("device", "launch")}

    def loops(self: Device, name: str) -> Any:
        return carried[name] if self == CPU and name in carried else loops_of(self, name)

    monkeypatch.setattr(Device, "loops", loops)


def _carried_module(name: str) -> ModuleType:
    """Make a module like the CPU's, with functions of the GPU."""
    cpu = importlib.import_module(f"visionkl.backend.cpu.{name}")
    gpu = importlib.import_module(f"visionkl.backend.gpu.{name}")
    module = ModuleType(f"carried.{name}")
    vars(module).update(vars(cpu))
    for own, function in vars(gpu).items():
        if inspect.isfunction(function) and hasattr(cpu, own):
            full_name = f"{name}.{own}"
            setattr(module, own, _carried(function, getattr(cpu, own), _STAY.get(full_name, set())))
    return module


def _carried(function: Any, on_cpu: Any, stay: set[str]) -> Any:
    signature = inspect.signature(function)

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        given = signature.bind(*arguments, **named)
        rows = given.arguments.get("rows")
        if isinstance(rows, tuple) and len(rows) > 1:
            return on_cpu(*arguments, **named)  # sparse rows are the CPU's
        with _one_at_a_time:
            luggage: list[_Luggage] = []
            for name, value in given.arguments.items():
                if name not in stay:
                    given.arguments[name] = _there(value, luggage)
            result = function(*given.args, **given.kwargs)
            for here, before, there in luggage:
                _write_changes(here, before, there.get())
            return _here(result)

    return call


def _there(value: Any, luggage: list[_Luggage]) -> Any:
    """Bring an argument to the device, and remember arrays."""
    if isinstance(value, np.ndarray):
        before = np.array(value, order="C")
        luggage.append((value, before, cuda.namespace().asarray(before)))
        return luggage[-1][2]
    if isinstance(value, tuple):
        return tuple(_there(part, luggage) for part in value)
    if isinstance(value, Codebook):
        if value not in _codebooks:
            _codebooks[value] = importlib.import_module("visionkl.backend.gpu.pq").make_codebook(value.words)
        return _codebooks[value]
    return value


def _write_changes(here: np.ndarray, before: np.ndarray, after: np.ndarray) -> None:
    """Write what the loop wrote, and no more: other threads are busy with other parts of the array."""
    bits = f"u{here.dtype.itemsize}"
    changed = before.view(bits) != after.view(bits)
    if changed.any():
        here[changed] = after[changed]


def _here(value: Any) -> Any:
    """Bring a result back."""
    if cuda.is_device_array(value):
        return value.get()
    if isinstance(value, tuple):
        return tuple(map(_here, value))
    if hasattr(value, "correlate"):
        return _Filters(value)
    return value


class _Filters:
    """Dense filters on the device, for levels that are not."""

    def __init__(self, filters: Any) -> None:
        self._filters = filters

    def correlate(self, level: np.ndarray) -> np.ndarray:
        with _one_at_a_time:
            return self._filters.correlate(cuda.namespace().asarray(np.ascontiguousarray(level))).get()
