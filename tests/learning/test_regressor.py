"""BundleSVR: liblinear's objective by every route, weights, paths, bad input."""

import numpy as np
import pytest
from sklearn.svm import LinearSVR

from visionkl.core.errors import UsageError
from visionkl.learning.svm import BundleSVR

ROUTES = ("bundle", "gram", "rows")
LOSSES = ("epsilon_insensitive", "squared_epsilon_insensitive")


@pytest.fixture(scope="module")
def plane():
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 8))
    return X, X @ random.normal(size=8) + 2 + random.standard_t(3, size=200)


def objective(model, X, y, C, epsilon, loss, weights=1.0):
    outside = np.maximum(np.abs(X @ model.coef_ + model.intercept_ - y) - epsilon, 0)
    power = 2 if loss.startswith("squared") else 1
    return (model.coef_ @ model.coef_ + np.sum(model.intercept_) ** 2) / 2 + C * (
        weights * outside**power
    ).sum()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("loss", LOSSES)
def test_as_good_as_liblinear(plane, route, loss):
    X, y = plane
    peer = LinearSVR(C=0.5, epsilon=0.2, loss=loss, tol=1e-9, max_iter=200_000, dual=True).fit(X, y)
    ours = BundleSVR(0.5, epsilon=0.2, loss=loss, route=route, tol=1e-4, max_iter=5000).fit(X, y)
    assert ours.gap_ <= 1e-4
    np.testing.assert_allclose(
        objective(ours, X, y, 0.5, 0.2, loss), objective(peer, X, y, 0.5, 0.2, loss), rtol=2e-4
    )
    np.testing.assert_allclose(ours.predict(X), peer.predict(X), atol=0.1)


@pytest.mark.parametrize("route", ROUTES)
def test_weights_are_repetitions(plane, route):
    X, y = plane
    weights = np.random.default_rng(0).integers(0, 3, len(y))
    settings = {"loss": "squared_epsilon_insensitive", "route": route, "tol": 1e-8, "max_iter": 10_000}
    weighted = BundleSVR(0.5, **settings).fit(X, y, weights)
    repeated = BundleSVR(0.5, **settings).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-3)


@pytest.mark.parametrize("route", ROUTES)
def test_a_path_ends_where_single_fits_do(plane, route):
    X, y = plane
    base = BundleSVR(route=route, tol=1e-5, max_iter=20_000)
    for C, model in zip([1.0, 0.05], base.fit_path(X, y, [1.0, 0.05]), strict=True):
        cold = BundleSVR(C, route=route, tol=1e-5, max_iter=20_000).fit(X, y)
        found = [objective(one, X, y, C, 0.1, "epsilon_insensitive") for one in (model, cold)]
        np.testing.assert_allclose(found[0], found[1], rtol=3e-5)


def test_the_scale_of_targets_does_not_matter(plane):
    X, y = plane
    small = BundleSVR(1.0, epsilon=0.1, loss="squared_epsilon_insensitive", route="rows", tol=1e-6).fit(X, y)
    large = BundleSVR(1.0, epsilon=100.0, loss="squared_epsilon_insensitive", route="rows", tol=1e-6)
    np.testing.assert_allclose(large.fit(X, 1000 * y).coef_, 1000 * small.coef_, rtol=1e-2, atol=5)


def test_bad_parameters(plane):
    with pytest.raises(UsageError, match="'epsilon' parameter"):
        BundleSVR(epsilon=-1).fit(*plane)
    with pytest.raises(UsageError, match="'loss' parameter"):
        BundleSVR(loss="hinge").fit(*plane)
