"""Arrays of libraries that follow the array API: NumPy's, and strict ones on two devices."""

import numpy as np
import pytest


class Library:
    """Moves arrays to a library and device, and back."""

    def __init__(self, name):
        self.name = name
        self.strict = None if name == "numpy" else pytest.importorskip("array_api_strict")
        self.device = None if self.strict is None else self.strict.Device(name)

    def put(self, array):
        return array if self.strict is None else self.strict.asarray(array, device=self.device)

    def get(self, array):
        if self.strict is None:
            assert isinstance(array, np.ndarray)
            return array
        assert array.device == self.device, "the result left the device"
        return np.asarray(self.strict.asarray(array, device=self.strict.Device("CPU_DEVICE")))

    def dtype(self, name):
        return getattr(self.strict or np, name)


@pytest.fixture(params=["numpy", "CPU_DEVICE", "device1"])
def library(request):
    return Library(request.param)


@pytest.fixture
def second_device():
    """Strict arrays on a device that refuses whatever would leave it."""
    return Library("device1")


@pytest.fixture
def random():
    return np.random.default_rng(0)
