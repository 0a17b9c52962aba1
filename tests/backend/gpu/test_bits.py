"""Bits of stumps: kernels executed on the CPU, against the CPU's own loops, to the last bit."""

import numpy as np
import pytest

from visionkl.backend.cpu import bits as cpu_bits
from visionkl.backend.gpu import bits

DTYPES = [np.float32, np.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_stumps", [1, 64, 150])
def test_stumps_are_those_of_the_cpu(gpu, dtype, n_stumps):
    random = np.random.default_rng(n_stumps)
    X = random.normal(size=(37, 6)).astype(dtype)
    features = np.sort(random.choice([0, 2, 5], n_stumps)).astype(np.uint32)
    thresholds = random.normal(size=n_stumps).astype(dtype)
    thresholds = thresholds[np.lexsort((thresholds, features))]
    used, counts = np.unique(features, return_counts=True)
    places = np.full(6, -1)
    places[used] = np.arange(len(used))
    ends = np.concatenate([[0], np.cumsum(counts)])
    n_words = -(-n_stumps // 64)
    expected = np.zeros((30, n_words), np.uint64)
    room = np.empty((len(used), cpu_bits.BLOCK), dtype), np.empty((len(used), cpu_bits.BLOCK), np.int32)
    padded = np.pad(thresholds, (0, 16), constant_values=np.inf)
    cpu_bits.encode_stumps((X,), 5, used, places, ends, padded, *room, expected)
    out = gpu.put(np.ones((30, n_words), np.uint64))
    bits.encode_stumps((gpu.put(X),), 5, used, None, ends, gpu.put(padded), None, None, out)
    np.testing.assert_array_equal(gpu.get(out), expected)
    assert expected.any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_thresholds_are_those_of_the_cpu(gpu, dtype):
    random = np.random.default_rng(1)
    values = random.normal(size=(9, 70)).astype(dtype)
    thresholds = random.normal(size=70).astype(dtype)
    expected, out = np.zeros((9, 2), np.uint64), gpu.put(np.ones((9, 2), np.uint64))
    cpu_bits.encode_above(values, thresholds, expected)
    bits.encode_above(gpu.put(values), gpu.put(thresholds), out)
    np.testing.assert_array_equal(gpu.get(out), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_agreements_are_those_of_the_cpu(gpu, dtype):
    random = np.random.default_rng(2)
    left, right = (random.integers(0, 2**63, (n, 3)).astype(np.uint64) for n in (7, 11))
    expected, out = np.zeros((7, 11), dtype), gpu.put(np.ones((7, 11), dtype))
    cpu_bits.count_agreements(left, right, 192, dtype(0.01), expected)
    bits.count_agreements(gpu.put(left), gpu.put(right), 192, dtype(0.01), out)
    np.testing.assert_array_equal(gpu.get(out), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_weighed_agreements_are_those_of_the_cpu(gpu, dtype):
    random = np.random.default_rng(3)
    left, right = (random.integers(0, 256, (n, 16)).astype(np.uint8) for n in (6, 9))
    tables = random.random((16, 256))
    expected, out = np.zeros((6, 9), dtype), gpu.put(np.ones((6, 9), dtype))
    cpu_bits.weigh_agreements(left, right, tables, expected)
    bits.weigh_agreements(gpu.put(left), gpu.put(right), gpu.put(tables), out)
    np.testing.assert_allclose(gpu.get(out), expected, rtol=1e-6)
