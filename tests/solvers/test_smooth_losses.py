"""Smooth losses: derivatives, conjugates, curvature, and huge scores."""

import numpy as np
import pytest

from visionkl.solvers.scalar import GammaLogistic, Logistic, Signed, Squared, SquaredHinge

POINTS = np.linspace(-4, 4, 81) + 0.013
TARGETS = np.full(81, 0.5)
LABELS = np.where(np.arange(81) % 3 == 0, 1.0, -1.0)
LOSSES = {
    "squared": Squared(TARGETS),
    "logistic": Signed(Logistic(), LABELS),
    "squared_hinge": Signed(SquaredHinge(), LABELS),
    "tube": GammaLogistic(TARGETS, 0.3, 5.0),
    "sharp tube": GammaLogistic(TARGETS, 1.0, 40.0),
    "no tube": GammaLogistic(TARGETS, 0.0, 2.0),
}


@pytest.fixture(params=LOSSES)
def loss(request):
    return LOSSES[request.param]


def test_derivative_is_that_of_the_value(loss):
    step = 1e-6
    numeric = (loss.value(POINTS + step) - loss.value(POINTS - step)) / (2 * step)
    np.testing.assert_allclose(loss.derivative(POINTS), numeric, atol=1e-7)


def test_curvature_bounds_the_second_derivative(loss):
    step = 1e-5
    second = (loss.derivative(POINTS + step) - loss.derivative(POINTS - step)) / (2 * step)
    assert second.max() <= loss.curvature * (1 + 1e-6)
    assert second.min() >= -1e-6


def test_conjugate_meets_fenchel_with_equality_at_the_derivative(loss):
    slope = loss.derivative(POINTS)
    np.testing.assert_allclose(loss.conjugate(slope), slope * POINTS - loss.value(POINTS), atol=1e-9)


def test_conjugate_of_shrunk_slopes_is_above_all_lines(loss):
    slope = 0.7 * loss.derivative(POINTS)
    lines = [slope * z - loss.value(np.full(81, z)) for z in np.linspace(-6, 6, 400)]
    assert (loss.conjugate(slope) >= np.max(lines, axis=0) - 1e-12).all()


@pytest.mark.parametrize("huge", [1e4, -1e4])
def test_huge_scores_are_no_trouble(loss, huge):
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        scores = np.full(81, huge)
        value, slope = loss.value(scores), loss.derivative(scores)
        conjugate = loss.conjugate(slope)
    assert np.isfinite([value, slope, conjugate]).all()
    if isinstance(loss, GammaLogistic):
        np.testing.assert_allclose(value, np.abs(huge - 0.5) - loss.epsilon, rtol=1e-4)


def test_the_smooth_tube_is_the_published_formula():
    gamma, epsilon, error = 5.0, 0.3, POINTS - TARGETS
    parts = np.log(1 + np.exp(gamma * (error - epsilon))) + np.log(1 + np.exp(gamma * (-error - epsilon)))
    expected = (parts - 2 * np.log(1 + np.exp(-gamma * epsilon))) / gamma
    np.testing.assert_allclose(LOSSES["tube"].value(POINTS), expected, atol=1e-13)
    assert LOSSES["tube"].value(TARGETS).max() == 0
