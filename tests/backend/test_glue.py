"""Glue in the array API: right on NumPy's arrays; on strict ones, within the standard and on its device."""

import sys

import numpy as np
import pytest

from visionkl.backend import glue
from visionkl.core.errors import DeviceError


def test_the_second_device_refuses_numpy(second_device):
    """What the tests rely on: leaks do not go unnoticed."""
    array, strict = second_device.put(np.zeros(3)), second_device.strict
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


def test_arrays_of_two_devices_are_refused(second_device):
    here, there = second_device.strict.ones((2, 2)), second_device.put(np.ones((2, 2)))
    with pytest.raises((TypeError, ValueError)):
        glue.weighted_sums(here, there)


def test_without_the_package_its_name_is_said(monkeypatch, second_device):
    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    assert glue.namespace(np.zeros(2)) is np
    with pytest.raises(DeviceError, match="array-api-compat is not installed"):
        glue.namespace(second_device.put(np.zeros(2)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_new_arrays_are_beside_others(library, dtype):
    found = library.get(glue.filled((2, 3), 4, library.put(np.zeros(1, dtype))))
    assert found.dtype == dtype
    assert np.array_equal(found, np.full((2, 3), 4))


def test_the_lowest_number_and_its_place(library, random):
    rows = random.normal(size=(5, 7))
    rows[3, 2] = -9
    assert glue.lowest(library.put(rows)) == (-9.0, 3 * 7 + 2)


def test_extremes_of_codes(library):
    arrays = [np.array([[3, 7]], np.uint8), np.array([5, 9, 2], np.uint8)]
    assert glue.extremes([library.put(array) for array in arrays]) == (2, 9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_keep_their_type(library, random, dtype):
    X, Y = (random.normal(size=(6, 4)).astype(dtype) for _ in range(2))
    bound = 1e-5 if dtype == np.float32 else 1e-12

    def check(found, expected, wanted=dtype):
        found = library.get(found)
        assert found.dtype == wanted
        np.testing.assert_allclose(found, expected, rtol=bound, atol=bound)

    rows, others = library.put(X), library.put(Y)
    check(glue.row_sums(rows), X.sum(axis=1))
    check(glue.squared_lengths(rows), np.einsum("ij,ij->i", X, X))
    check(glue.paired_sums(rows, others), np.einsum("ij,ij->j", X, Y), np.float64)
    check(glue.centre(rows), X.mean(axis=0))
    for found, expected in zip(glue.ranges(rows, others), (np.minimum, np.maximum), strict=True):
        check(found, expected.reduce(np.vstack([X, Y])))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_numbers_keep_their_type(library, random, dtype):
    X = random.random((5, 4)).astype(dtype)
    X[0, :2] = 0
    rows = library.put(X)

    def check(found, expected):
        found = library.get(found)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == np.float32 else 1e-12)

    check(glue.roots(rows), np.sqrt(X))
    check(glue.logarithms(rows, np.float64(0.5)), np.log(X + 0.5))
    check(glue.exponentials(rows, -2.0), np.exp(-2 * X))
    check(glue.exponentials(rows, 2.0), np.ones_like(X))
    check(glue.polynomial(rows, (0.5, 0.0, 3.0)), 0.5 + 3 * X**2)
    check(glue.polynomial(rows, [2]), np.full_like(X, 2))
    positive = np.where(X > 0, X, 1)
    check(glue.entropies(rows, float(np.finfo(dtype).tiny)), (X * np.log2(positive)).sum(axis=1))


def test_powers_are_of_the_type_that_is_asked_for(library, random):
    X, middle = (100 * random.random(shape, dtype=np.float32) for shape in ((5, 4), 4))
    found = glue.powers(library.put(X), library.put(middle), library.dtype("float64"))
    assert library.get(found).dtype == np.float64
    np.testing.assert_allclose(library.get(found), np.exp((X - middle).astype(np.float64)))
