"""Glue in the array API: right on NumPy's arrays; on strict ones, within the standard and on its device."""

import sys

import numpy as np
import pytest

from visionkl.backend import glue
from visionkl.core.errors import DeviceError

strict = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")


class Library:
    """Moves arrays to a library and device, and back."""

    def __init__(self, name):
        self.name = name
        self.device = None if name == "numpy" else strict.Device(name)

    def put(self, array):
        return array if self.device is None else strict.asarray(array, device=self.device)

    def get(self, array):
        if self.device is None:
            assert isinstance(array, np.ndarray)
            return array
        assert array.device == self.device, "the result left the device"
        return np.asarray(strict.asarray(array, device=strict.Device("CPU_DEVICE")))


@pytest.fixture(params=["numpy", "CPU_DEVICE", "device1"])
def library(request):
    return Library(request.param)


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_the_second_device_refuses_numpy():
    """What the tests rely on: leaks do not go unnoticed."""
    array = Library("device1").put(np.zeros(3))
    with pytest.raises((TypeError, RuntimeError)):
        np.asarray(array)
    with pytest.raises((TypeError, ValueError)):
        strict.add(array, strict.zeros(3))


def test_sums_of_rows(library, random):
    weights, rows = random.random((7, 3)), random.normal(size=(7, 5))
    found = glue.weighted_sums(library.put(weights), library.put(rows))
    np.testing.assert_allclose(library.get(found), np.einsum("nk,nd->kd", weights, rows))


def test_sums_of_codewords(library, random):
    histograms, words = random.random((4, 6)), random.normal(size=(4, 6, 3)).astype(np.float32)
    found = library.get(glue.decoded_sums(library.put(histograms), library.put(words)))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.einsum("bc,bcs->bs", histograms, words), rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite(library, bad):
    numbers = np.ones((3, 4), np.float32)
    assert glue.all_finite(library.put(numbers)) is True
    numbers[1, 2] = bad
    assert glue.all_finite(library.put(numbers)) is False


@pytest.mark.parametrize("shape", [(9, 8), (3, 2), (1, 8), (2, 2)])
def test_correlations(library, random, shape):
    level = random.normal(size=(*shape, 4)).astype(np.float32)
    filters = [random.normal(size=(h, w, 4)).astype(np.float32) for h, w in ((3, 2), (2, 4), (2, 2))]
    rows = np.zeros((3, 4, 4, 3), np.float32)
    for number, filter_ in enumerate(filters):
        rows[: filter_.shape[0], : filter_.shape[1], :, number] = filter_
    filter_rows = library.put(rows.reshape(3, 16, 3))
    found = library.get(glue.correlate(library.put(level), filter_rows, (2, 2)))
    places = max(shape[0] - 1, 0), max(shape[1] - 1, 0)
    assert found.shape == (*places, 3)
    assert found.dtype == np.float32
    padded = np.zeros((shape[0] + 3, shape[1] + 4, 4))
    padded[: shape[0], : shape[1]] = level
    for row, col in np.ndindex(*places):
        expected = [(padded[row : row + len(f), col : col + f.shape[1]] * f).sum() for f in filters]
        np.testing.assert_allclose(found[row, col], expected, rtol=1e-4, atol=1e-4)


def test_arrays_of_two_devices_are_refused():
    here, there = strict.ones((2, 2)), Library("device1").put(np.ones((2, 2)))
    with pytest.raises((TypeError, ValueError)):
        glue.weighted_sums(here, there)


def test_without_the_package_its_name_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    with pytest.raises(DeviceError, match="array-api-compat is not installed"):
        glue.namespace(np.zeros(2))
