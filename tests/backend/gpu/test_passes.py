"""Passes over codes: kernels executed on the CPU, against the CPU's own loops."""

import numpy as np
import pytest

from visionkl.backend.cpu import codes as cpu_codes
from visionkl.backend.cpu import solver as cpu_solver
from visionkl.backend.gpu import codes, solver

LANES = cpu_codes.LANES


def coded(n_blocks=6, n=150, n_codewords=20, dtype=np.uint8, seed=0):
    random = np.random.default_rng(seed)
    return random, random.integers(0, n_codewords, (n_blocks, n)).astype(dtype)


@pytest.mark.parametrize(("n_blocks", "dtype"), [(6, np.uint8), (4, np.uint16), (3, np.uint8)])
def test_scores_are_those_of_the_cpu(gpu, n_blocks, dtype):
    random, samples = coded(n_blocks, dtype=dtype)
    tables = random.normal(size=(n_blocks, 20)).astype(np.float32)
    scores = random.normal(size=90)
    expected = scores.copy()
    on_device = gpu.put(scores)
    solver.look_up(gpu.put(samples), 20, 110, gpu.put(tables), on_device)
    cpu_solver.look_up(samples, 20, 110, tables, expected)
    np.testing.assert_allclose(gpu.get(on_device), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("n_codewords", "dtype"), [(20, np.uint8), (1500, np.uint16)])
def test_scattered_shares_are_those_of_the_cpu(gpu, n_codewords, dtype, monkeypatch):
    monkeypatch.setattr(solver, "_CHUNK", 40)  # several blocks add to one table
    random, samples = coded(3, n_codewords=n_codewords, dtype=dtype)
    chosen = np.sort(random.choice(150, 100, replace=False)).astype(np.uint32)
    shares = random.normal(size=100)
    tables = random.normal(size=(3, n_codewords))
    expected = tables.copy()
    on_device = gpu.put(tables)
    solver.scatter(gpu.put(samples), 1, 3, gpu.put(chosen), gpu.put(shares), on_device)
    cpu_solver.scatter(samples, 1, 3, chosen, shares, expected)
    np.testing.assert_allclose(gpu.get(on_device), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_lines_of_scores_are_those_of_the_cpu(gpu, dtype):
    random, samples = coded(dtype=dtype, n=40)
    tables = random.normal(size=(5, 20, 2 * LANES)).astype(np.float32)
    scores = random.normal(size=(30, 2 * LANES))
    expected = scores.copy()
    on_device = gpu.put(scores)
    codes.look_up_lines(gpu.put(samples), 1, 5, 35, gpu.put(tables), None, on_device, (0, 0))
    room = np.empty((1024, 2 * LANES), np.float32)
    cpu_codes.look_up_lines(samples, 1, 5, 35, tables, room, expected, (0, 0))
    np.testing.assert_allclose(gpu.get(on_device), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("n_codewords", "dtype"), [(20, np.uint8), (300, np.uint16)])
def test_scattered_lines_are_those_of_the_cpu(gpu, n_codewords, dtype, monkeypatch):
    monkeypatch.setattr(codes, "_CHUNK", 30)
    random, samples = coded(n=60, n_codewords=n_codewords, dtype=dtype)
    shares = random.normal(size=(50, LANES)).astype(np.float32)
    tables = random.normal(size=(2, n_codewords, LANES)).astype(np.float32)
    expected = tables.copy()
    on_device = gpu.put(tables)
    codes.scatter_lines(gpu.put(samples), 2, 7, gpu.put(shares), on_device, (0,))
    cpu_codes.scatter_lines(samples, 2, 7, shares, expected, (0,))
    np.testing.assert_allclose(gpu.get(on_device), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_immediate_expansion_is_that_of_the_cpu(gpu, dtype):
    random, samples = coded(dtype=dtype, n=60)
    words = random.normal(size=(6, 20, 5)).astype(np.float32)
    weights = random.normal(size=(6, 5)).astype(np.float32)
    scores, expected = gpu.put(np.ones(50)), np.ones(50)
    codes.multiply_decoded(gpu.put(samples), 10, 60, gpu.put(words), gpu.put(weights), scores)
    cpu_codes.multiply_decoded(samples, 10, 60, words, weights, expected)
    np.testing.assert_allclose(gpu.get(scores), expected, rtol=1e-5, atol=1e-5)
    shares = random.normal(size=50)
    total, expected = gpu.put(np.ones((6, 5))), np.ones((6, 5))
    codes.add_decoded(gpu.put(samples), 10, gpu.put(words), gpu.put(shares), total)
    cpu_codes.add_decoded(samples, 10, words, shares, expected)
    np.testing.assert_allclose(gpu.get(total), expected, rtol=1e-9, atol=1e-9)
