"""Maps, exact kernels and mixtures: kernels executed on the CPU, against the CPU's own loops."""

import numpy as np
import pytest

from visionkl.backend.cpu import kernels as cpu_kernels
from visionkl.backend.cpu import maps as cpu_maps
from visionkl.backend.cpu import mixture as cpu_mixture
from visionkl.backend.cpu.elementary import logarithms, waves
from visionkl.backend.gpu import kernels, maps, mixture

DTYPES = [np.float32, np.float64]
BOUND = {np.float32: 2e-6, np.float64: 1e-13}


@pytest.mark.parametrize(("first", "last"), [(0, 33), (5, 20)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_waves_are_those_of_the_cpu(gpu, dtype, first, last):
    random = np.random.default_rng(0)
    phases = random.normal(0, 3, (7, 33)).astype(dtype)
    offsets = random.random(33).astype(dtype)
    scale = dtype(0.7)
    expected = phases.copy()
    cpu_maps.make_waves(expected, first, last, offsets, scale, waves(dtype))
    on_device = gpu.put(phases)
    maps.make_waves(on_device, first, last, gpu.put(offsets), scale, waves(dtype))
    np.testing.assert_allclose(gpu.get(on_device), expected, rtol=0, atol=BOUND[dtype])

    expected, expected_slopes = phases.copy(), np.empty_like(phases)
    cpu_maps.make_waves_and_slopes(expected, offsets, scale, waves(dtype), expected_slopes)
    on_device, slopes = gpu.put(phases), gpu.put(np.empty_like(phases))
    maps.make_waves_and_slopes(on_device, gpu.put(offsets), scale, waves(dtype), slopes)
    np.testing.assert_allclose(gpu.get(on_device), expected, rtol=0, atol=BOUND[dtype])
    np.testing.assert_allclose(gpu.get(slopes), expected_slopes, rtol=0, atol=BOUND[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_spectra_are_those_of_the_cpu(gpu, dtype):
    X = np.random.default_rng(1).random((9, 13)).astype(dtype)
    X[0, :3] = 0, 1, 1e-30
    amplitudes = np.array([0.8, 0.5, 0.2], dtype)
    expected = np.empty((9, 5 * 13), dtype)
    tiny = np.finfo(dtype).tiny
    cpu_maps.sample_spectrum(X, dtype(0.3), amplitudes, tiny, logarithms(dtype), waves(dtype), expected)
    out = gpu.put(np.empty_like(expected))
    maps.sample_spectrum(gpu.put(X), dtype(0.3), amplitudes, tiny, logarithms(dtype), waves(dtype), out)
    np.testing.assert_allclose(gpu.get(out), expected, rtol=0, atol=10 * BOUND[dtype])


KINDS = ["CHI2", "CHI2_DISTANCE", "INTERSECTION", "ABSOLUTE", "ENTROPY", "SECH"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_over_pairs_are_those_of_the_cpu(gpu, kind, dtype):
    random = np.random.default_rng(2)
    X, Y = random.random((70, 19)).astype(dtype), random.random((9, 19)).astype(dtype)
    if kind != "SECH":  # whose numbers are powers, never 0
        X[::3, ::4] = 0
        Y[::2, ::4] = 0
    arguments = np.finfo(dtype).tiny, logarithms(dtype)
    expected = np.full((70, 9), -1, dtype)
    out = gpu.put(expected)
    cpu_kernels.add_pairs(getattr(cpu_kernels, kind), X, Y, expected, 2, 69, 8, *arguments)
    kernels.add_pairs(getattr(kernels, kind), gpu.put(X), gpu.put(Y), out, 2, 69, 8, *arguments)
    # Terms of the entropy have both signs, so that their sum may be small.
    bound = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(gpu.get(out), expected, rtol=bound, atol=bound if kind == "ENTROPY" else 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_mirrored_matrices_are_those_of_the_cpu(gpu, dtype):
    matrix = np.random.default_rng(3).random((23, 23)).astype(dtype)
    on_device = gpu.put(matrix)
    kernels.mirror(on_device, 4, 20)
    cpu_kernels.mirror(matrix, 4, 20)
    assert np.array_equal(gpu.get(on_device), matrix)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_components", [5, 32, 70])
def test_posteriors_are_those_of_the_cpu(gpu, n_components, dtype):
    random = np.random.default_rng(4)
    logs = random.normal(0, 8, (11, n_components)).astype(dtype)
    expected, likelihoods = logs.copy(), np.empty(11, dtype)
    n_relevant = cpu_mixture.posteriors_into(expected, likelihoods)
    on_device, own = gpu.put(logs), gpu.put(np.empty(11, dtype))
    assert mixture.posteriors_into(on_device, own) == n_relevant
    np.testing.assert_allclose(gpu.get(on_device), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gpu.get(own), likelihoods, rtol=1e-5)


def test_sums_weighted_by_posteriors_are_those_of_the_cpu(gpu):
    random = np.random.default_rng(5)
    posteriors = random.dirichlet(np.full(6, 0.1), 40).astype(np.float32)
    features = random.normal(size=(40, 9)).astype(np.float32)
    expected = np.ones((6, 9), np.float32)
    sums = gpu.put(expected)
    mixture.add_relevant(gpu.put(posteriors), gpu.put(features), sums)
    cpu_mixture.add_relevant(posteriors, features, expected)
    np.testing.assert_allclose(gpu.get(sums), expected, rtol=1e-5, atol=1e-5)
