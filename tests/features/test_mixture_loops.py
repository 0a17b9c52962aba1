"""The compiled loops around mixtures, against SciPy and against products of matrices."""

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from visionkl.backend.cpu.mixture import add_relevant, posteriors_into
from visionkl.features.densities import add_sums


@pytest.mark.parametrize("n_components", [1, 3, 4, 7, 64, 256])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 3e-6), (np.float64, 1e-14)])
@pytest.mark.parametrize("spread", [0.1, 10, 1e4])
def test_posteriors_are_softmax(n_components, dtype, tolerance, spread):
    random = np.random.default_rng(0)
    logarithms = (spread * random.normal(size=(50, n_components)) - 3 * spread).astype(dtype)
    exact = logarithms.astype(np.float64)
    posteriors, log_likelihoods = logarithms.copy(), np.empty(50, dtype)
    n_relevant = posteriors_into(posteriors, log_likelihoods)
    expected = softmax(exact, axis=1)
    np.testing.assert_allclose(posteriors, expected, rtol=0, atol=tolerance)
    large = expected > 1e-5
    np.testing.assert_allclose(posteriors[large], expected[large], rtol=10 * tolerance)
    np.testing.assert_allclose(log_likelihoods, logsumexp(exact, axis=1), rtol=tolerance, atol=tolerance)
    assert n_relevant == (posteriors > dtype(1e-7)).sum()


def test_equal_logarithms_share_equally():
    posteriors, log_likelihoods = np.full((2, 5), -1e4, np.float32), np.empty(2, np.float32)
    assert posteriors_into(posteriors, log_likelihoods) == 10
    np.testing.assert_allclose(posteriors, 0.2, rtol=1e-6)


@pytest.mark.parametrize("n_features", [1, 8, 161])
def test_sums_over_relevant_posteriors_are_the_product(n_features):
    random = np.random.default_rng(0)
    posteriors = softmax(20 * random.normal(size=(200, 40)), axis=1).astype(np.float32)
    features = random.normal(size=(200, n_features)).astype(np.float32)
    sums = np.ones((40, n_features), np.float32)
    add_relevant(posteriors, features, sums)
    np.testing.assert_allclose(sums - 1, posteriors.T.astype(float) @ features, atol=2e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [0.1, 100])
def test_both_ways_of_summing_agree(dtype, spread):
    random = np.random.default_rng(0)
    posteriors = (spread * random.normal(size=(300, 50))).astype(dtype)
    n_relevant = posteriors_into(posteriors, np.empty(300, dtype))
    # Nearly all Gaussians count, or a few.
    assert n_relevant == posteriors.size if spread < 1 else n_relevant < posteriors.size / 8
    features = random.normal(size=(300, 9)).astype(dtype)
    total = np.full((50, 9), 3.0)
    add_sums(posteriors, features, n_relevant, total)
    np.testing.assert_allclose(total, 3 + posteriors.T.astype(float) @ features, atol=1e-4)
