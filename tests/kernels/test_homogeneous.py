"""The homogeneous map: its series, its layout, and scikit-learn's map of χ²."""

import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.kernel_approximation import AdditiveChi2Sampler

from visionkl.core.errors import UsageError
from visionkl.kernels.exact import KERNELS
from visionkl.kernels.homogeneous import HomogeneousMap, Spectrum

NAMES = ("chi2", "intersection", "jensen_shannon")


def signature(name, omega):
    """𝒦(ω) = k(exp(ω/2), exp(−ω/2)), from the exact kernel."""
    return KERNELS[name]()([[np.exp(omega / 2)]], [[np.exp(-omega / 2)]])[0, 0]


@pytest.mark.parametrize("name", NAMES)
def test_coefficients_are_those_of_the_fourier_series(name):
    spectrum = Spectrum.of(name, 3, period=7.0)
    for k, coefficient in enumerate(spectrum.coefficients):
        wave = lambda omega, k=k: signature(name, omega) * np.cos(2 * np.pi * k * omega / 7.0)  # noqa: E731
        expected = quad(wave, 0, 3.5)[0] / 3.5 * (2 if k else 1)
        assert coefficient == pytest.approx(max(expected, 0), abs=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_the_map_written_out(name):
    X = np.array([[0.0, 0.3], [2.0, 1e-3]])
    fitted = HomogeneousMap(name, order=2).fit(X)
    c, period = fitted.spectrum_.coefficients, fitted.spectrum_.period
    phase = 2 * np.pi * np.log(np.maximum(X, 1e-300)) / period
    waves = [np.ones_like(X), np.cos(phase), np.sin(phase), np.cos(2 * phase), np.sin(2 * phase)]
    expected = np.hstack([np.sqrt(c[k] * X) * wave for k, wave in zip((0, 1, 1, 2, 2), waves, strict=True)])
    np.testing.assert_allclose(fitted.transform(X), expected, atol=1e-13)
    np.testing.assert_allclose(fitted.transform(X.astype(np.float32)), expected, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_errors_fall_with_the_order(name):
    X = np.random.default_rng(0).random((60, 5))
    K = KERNELS[name]()(X)
    mapped = [HomogeneousMap(name, order=order).fit_transform(X) for order in (1, 3, 7)]
    errors = [np.abs(M @ M.T - K).mean() for M in mapped]
    assert errors[0] > 1.5 * errors[1] > 2 * errors[2]


@pytest.mark.parametrize("order", [1, 2])
def test_better_than_scikit_learns_map_of_the_same_size(order):
    X = np.random.default_rng(0).random((60, 5))
    K = KERNELS["chi2"]()(X)
    ours = HomogeneousMap(order=order).fit_transform(X)
    theirs = AdditiveChi2Sampler(sample_steps=order + 1).fit_transform(X)
    assert ours.shape == theirs.shape
    assert np.abs(ours @ ours.T - K).max() < 0.7 * np.abs(theirs @ theirs.T - K).max()


def test_nearly_the_map_of_scikit_learn_with_its_period():
    """Theirs samples the whole spectrum where ours integrates over the window, which is 40 wide here."""
    X = np.random.default_rng(0).random((20, 4)) + 0.01
    ours = HomogeneousMap(order=6, period=40.0).fit_transform(X)
    theirs = AdditiveChi2Sampler(sample_steps=7, sample_interval=2 * np.pi / 40).fit_transform(X)
    np.testing.assert_allclose(ours, theirs, atol=5e-5)


def test_zeros_stay_zeros_and_subnormal_numbers_do_no_harm():
    X = np.array([[0.0, 1e-310, 5e-324]])
    mapped = HomogeneousMap().fit_transform(X)
    assert (mapped[0, ::3] == 0).all()
    assert np.isfinite(mapped).all()
    assert np.abs(mapped).max() < 1e-150


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"kernel": "hellinger"}, "'kernel' parameter of HomogeneousMap"),
        ({"order": 0}, "'order' .* ≥ 1"),
        ({"period": 0.0}, "'period' .* > 0"),
        ({"period": "long"}, "'period'"),
    ],
)
def test_bad_parameters_in_one_sentence(settings, complaint):
    with pytest.raises(UsageError, match=complaint):
        HomogeneousMap(**settings).fit(np.ones((2, 2)))
