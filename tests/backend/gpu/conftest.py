"""A GPU made of the CPU: kernels executed by fibres, arrays of a fake CuPy."""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import visionkl.backend.gpu
from tests.backend.gpu import host_build
from tests.backend.gpu.fake_cupy import DeviceArray, FakeCupy
from visionkl.backend.gpu import device, launch

MODULES = [module.name for module in pkgutil.iter_modules(visionkl.backend.gpu.__path__)]
for _name in MODULES:
    importlib.import_module(f"visionkl.backend.gpu.{_name}")

#: Flavours of kernels and orders of their threads; and a real GPU, where there is one.
WAYS: list[Any] = [
    ("plain", "forward"),
    ("plain", "backward"),
    ("plain", "random"),
    ("asan", "random"),
    ("tsan", "forward"),
    pytest.param(("cuda", "device"), marks=pytest.mark.gpu),
]


@pytest.fixture(scope="session")
def build_folder(request: pytest.FixtureRequest) -> Path:
    missing = host_build.missing_compiler()
    if missing:
        pytest.skip(missing)
    return Path(request.config.cache.mkdir("gpu-host"))


@pytest.fixture(scope="session", params=WAYS, ids="-".join)
def machine(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Any]:
    """All kernels, compiled for the CPU in one of some ways, and an order of threads; None is a real GPU."""
    flavour, order = request.param
    if flavour == "cuda":
        problem = device.problem()
        if problem is not None:
            pytest.skip(problem)
        yield None
        return
    sources = {file: launch.source(file) for file in sorted({kernel.file for kernel in launch.KERNELS})}
    program = host_build.build(flavour, sources, launch.KERNELS, request.getfixturevalue("build_folder"))
    made = host_build.make_machine(flavour, program, tmp_path_factory.mktemp("machine"))
    yield made, order
    made.close()


class Gpu:
    """Moves arrays to a device, real or fake, and back."""

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace

    def put(self, array: Any) -> Any:
        return self._namespace.asarray(np.array(array))

    def get(self, array: Any) -> np.ndarray:
        assert isinstance(array, self._namespace.ndarray), "the result left the device"
        return array.get()


@pytest.fixture
def gpu(machine: Any, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A device on which the functions of `backend/gpu` run."""
    if machine is None:
        return Gpu(device.namespace())
    made, order = machine
    fake = FakeCupy()
    one_at_a_time = threading.Lock()  # the scheduler of fibres is no place for threads

    def run(kernel: launch.Kernel, n_blocks: int, arguments: list[Any]) -> None:
        plain = [value.data_of_test if isinstance(value, DeviceArray) else value for value in arguments]
        with one_at_a_time:
            made.run(kernel, n_blocks, plain, order, seed=n_blocks)

    monkeypatch.setattr(device, "namespace", lambda: fake)
    monkeypatch.setattr(device, "problem", lambda number=0: None)
    monkeypatch.setattr(launch, "_run", run)
    return Gpu(fake)


@pytest.fixture
def transfers(gpu: Gpu, machine: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What left the device: names of methods that bring numbers to ordinary memory."""
    if machine is None:
        pytest.skip("methods of real arrays are not counted")
    left: list[str] = []

    def counted(name: str) -> Any:
        method = getattr(DeviceArray, name)

        def call(*arguments: Any) -> Any:
            left.append(name)
            return method(*arguments)

        return call

    for name in ("get", "__int__", "__float__", "__bool__", "__iter__"):
        monkeypatch.setattr(DeviceArray, name, counted(name))
    monkeypatch.setattr(FakeCupy, "asnumpy", staticmethod(lambda array: array.get()))
    return left
