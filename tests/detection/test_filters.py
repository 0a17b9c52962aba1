"""Filter responses against the sum they are."""

import numpy as np
import pytest

from visionkl.backend.cpu.filters import FourierFilters, ProductFilters
from visionkl.detection.filters import DenseFilters


@pytest.mark.parametrize("shape", [(9, 11), (6, 200), (40, 6), (3, 3)])
def test_responses_are_correlations(shape):
    rng = np.random.default_rng(0)
    level = rng.normal(size=(*shape, 32)).astype(np.float32)
    filters = [rng.normal(size=(*size, 32)).astype(np.float32) for size in [(3, 4), (6, 6), (3, 4), (1, 2)]]
    bank = DenseFilters(filters)
    assert sorted(n for group in bank.groups for n in group) == [0, 1, 2, 3]
    for group, numbers in enumerate(bank.groups):
        responses = bank.responses(level, group)
        for i, number in enumerate(numbers):
            h, w = filters[number].shape[:2]
            places = max(shape[0] - h + 1, 0), max(shape[1] - w + 1, 0)
            assert responses.shape[:2] == places
            for y in range(places[0]):
                for x in range(places[1]):
                    expected = np.sum(level[y : y + h, x : x + w] * filters[number], dtype=np.float64)
                    assert responses[y, x, i] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("ready", [FourierFilters, ProductFilters])
@pytest.mark.parametrize("shape", [(5, 30), (47, 19), (25, 61), (4, 4), (3, 90)])
def test_both_ways_compute_correlations(ready, shape):
    rng = np.random.default_rng(1)
    level = rng.normal(size=(*shape, 32)).astype(np.float32)
    filters = rng.normal(size=(3, 4, 5, 32)).astype(np.float32)
    responses = ready(filters).correlate(level)
    assert responses.shape == (max(shape[0] - 3, 0), max(shape[1] - 4, 0), 3)
    if responses.size:
        windows = np.lib.stride_tricks.sliding_window_view(level, (4, 5), axis=(0, 1))
        expected = np.einsum("yxcij,nijc->yxn", windows, filters, optimize=True)
        np.testing.assert_allclose(responses, expected, atol=2e-4)


def test_filters_of_different_sizes_are_computed_together():
    rng = np.random.default_rng(2)
    level = rng.normal(size=(30, 44, 32)).astype(np.float32)
    filters = [
        rng.normal(size=(*size, 32)).astype(np.float32) for size in [(7, 11), (9, 9), (11, 6), (7, 11)]
    ]
    together, apart = DenseFilters(filters, together=True), DenseFilters(filters)
    assert together.groups == [(0, 1, 2, 3)]
    responses = together.responses(level, 0)
    assert responses.shape == (24, 39, 4)
    for group, numbers in enumerate(apart.groups):
        for i, number in enumerate(numbers):
            expected = apart.responses(level, group)[:, :, i]
            rows, cols = expected.shape
            np.testing.assert_allclose(responses[:rows, :cols, number], expected, atol=1e-3)


def test_a_view_into_a_larger_level_is_taken():
    rng = np.random.default_rng(0)
    level = rng.normal(size=(12, 14, 32)).astype(np.float32)
    bank = DenseFilters([rng.normal(size=(3, 3, 32)).astype(np.float32)])
    inner = level[2:-2, 3:-3]
    np.testing.assert_array_equal(bank.responses(inner, 0), bank.responses(inner.copy(), 0))
