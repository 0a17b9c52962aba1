"""A GPU made of the CPU: kernels executed by fibres, arrays of a fake CuPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.backend.gpu import host_build
from tests.backend.gpu.fake_cupy import DeviceArray, FakeCupy, stand_in
from visionkl.backend.gpu import device

#: Flavours of kernels and orders of their threads; and a real GPU, where there is one.
WAYS: list[Any] = [
    ("plain", "forward"),
    ("plain", "backward"),
    ("plain", "random"),
    ("asan", "random"),
    ("tsan", "forward"),
    pytest.param(("cuda", "device"), marks=pytest.mark.gpu),
]


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
    folder = request.getfixturevalue("build_folder")
    made = host_build.machine_of_all_kernels(flavour, folder, tmp_path_factory.mktemp("machine"))
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
    return Gpu(stand_in(monkeypatch, *machine))


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
