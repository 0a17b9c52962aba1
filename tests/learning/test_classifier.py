"""BundleSVC: others' objectives by any route and loss; weights, paths, probabilities, bad input."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, LinearSVC

from tests.solvers.problems import two_classes
from visionkl.core.errors import DataError, UsageError
from visionkl.learning import routes
from visionkl.learning.svm import BundleSVC
from visionkl.solvers.metrics import additive_metric

ROUTES = ("bundle", "gram", "rows")


@pytest.fixture(scope="module")
def two():
    return two_classes(300, 20)


@pytest.fixture(scope="module")
def four():
    """Four classes, of unequal size, with names, around centres that are not quite apart."""
    random = np.random.default_rng(1)
    numbers = random.choice(4, size=400, p=[0.4, 0.3, 0.2, 0.1])
    X = random.normal(size=(4, 15))[numbers] + random.normal(size=(400, 15))
    return X, np.array(["cat", "dog", "emu", "fox"])[numbers]


def losses(scores, signs, loss):
    margins = signs * scores
    if loss == "logistic":
        return np.logaddexp(0, -margins)
    return np.maximum(1 - margins, 0) ** (2 if loss == "squared_hinge" else 1)


def objective(model, X, y, C, loss, weights=1.0):
    """`½ ‖w‖² + ½ intercept² + C Σ loss` of each machine."""
    scores = X @ model.coef_.T + model.intercept_
    classes = model.classes_[1:] if len(model.classes_) == 2 else model.classes_
    return np.array(
        [
            (w @ w + b * b) / 2 + C * (weights * losses(scores[:, k], np.where(y == c, 1, -1), loss)).sum()
            for k, (w, b, c) in enumerate(zip(model.coef_, model.intercept_, classes, strict=True))
        ]
    )


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_as_good_as_liblinear(two, route, loss):
    X, y = two
    peer = LinearSVC(C=0.5, loss=loss, dual=True, tol=1e-8, max_iter=200_000).fit(X, y)
    best = objective(peer, X, y, 0.5, loss)
    ours = BundleSVC(0.5, loss=loss, route=route, tol=1e-4).fit(X, y)
    assert ours.route_ == route
    assert ours.gap_ <= 1e-4
    np.testing.assert_allclose(objective(ours, X, y, 0.5, loss), best, rtol=2e-4)
    np.testing.assert_allclose(ours.decision_function(X), peer.decision_function(X), atol=0.2)


def test_as_good_as_logistic_regression(two):
    X, y = two
    ours = BundleSVC(0.5, loss="logistic", intercept_scaling=1e3, tol=1e-6).fit(X, y)
    peer = LogisticRegression(C=0.5, tol=1e-8, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=0.01)
    np.testing.assert_allclose(ours.intercept_, peer.intercept_, atol=0.01)
    assert ours.route_ == "bundle"


def test_a_free_intercept_is_that_of_a_kernel_machine(two):
    X, y = two
    ours = BundleSVC(0.5, intercept_scaling=100.0, route="bundle", tol=1e-6).fit(X, y)
    peer = SVC(C=0.5, kernel="linear", tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), peer.decision_function(X), atol=0.01)


@pytest.mark.parametrize("route", ROUTES)
def test_many_classes_are_each_against_the_rest(four, route):
    X, y = four
    ours = BundleSVC(0.3, route=route, tol=1e-4).fit(X, y)
    peer = LinearSVC(C=0.3, loss="hinge", dual=True, tol=1e-8, max_iter=200_000).fit(X, y)
    np.testing.assert_allclose(
        objective(ours, X, y, 0.3, "hinge"), objective(peer, X, y, 0.3, "hinge"), rtol=3e-4
    )
    np.testing.assert_array_equal(ours.classes_, ["cat", "dog", "emu", "fox"])
    assert (ours.predict(X) == peer.predict(X)).mean() > 0.99
    assert ours.coef_.shape == (4, 15)


def test_classes_in_step_are_what_they_are_alone(four):
    X, y = four
    together = BundleSVC(0.3, loss="squared_hinge", route="bundle", tol=1e-7).fit(X, y)
    for k, name in enumerate(together.classes_):
        alone = BundleSVC(0.3, loss="squared_hinge", route="bundle", tol=1e-7).fit(X, y == name)
        np.testing.assert_allclose(together.coef_[k], alone.coef_[0], atol=1e-3)


@pytest.mark.parametrize("route", ROUTES)
def test_threads_change_nothing(four, route):
    X, y = four
    one, two = (BundleSVC(route=route, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.intercept_, two.intercept_)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("kind", [np.float32, sparse.csr_matrix, sparse.coo_array])
def test_kinds_of_data(four, route, kind):
    X, y = four
    X = np.where(np.abs(X) > 1, X, 0)
    plain = BundleSVC(0.3, route=route, tol=1e-5, max_iter=20_000).fit(X, y)
    data = X.astype(np.float32) if kind is np.float32 else kind(X)
    other = BundleSVC(0.3, route=route, tol=1e-5, max_iter=20_000).fit(data, y)
    np.testing.assert_allclose(
        objective(other, X, y, 0.3, "hinge"), objective(plain, X, y, 0.3, "hinge"), rtol=3e-5
    )
    np.testing.assert_allclose(other.decision_function(data), plain.decision_function(X), atol=0.02)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_weights_are_repetitions(two, route, loss):
    X, y = two
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = BundleSVC(0.3, loss=loss, route=route, tol=1e-8, max_iter=100_000)
    repeated = clone(weighted)
    weighted.fit(X, y, sample_weight=weights)
    repeated.fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=2e-4)
    by_lambda = BundleSVC(regularisation=1 / (0.3 * weights.sum()), loss=loss, tol=1e-8, route="bundle")
    np.testing.assert_allclose(by_lambda.fit(X, y, weights).coef_, weighted.coef_, atol=2e-4)


def test_class_weights_are_weights_of_samples(four):
    X, y = four
    names, counts = np.unique(y, return_counts=True)
    balanced = dict(zip(names, len(y) / (4 * counts), strict=True))
    by_hand = BundleSVC(tol=1e-6).fit(X, y, sample_weight=[balanced[name] for name in y])
    for class_weight in ("balanced", balanced):
        np.testing.assert_allclose(
            BundleSVC(class_weight=class_weight, tol=1e-6).fit(X, y).coef_, by_hand.coef_, atol=1e-3
        )


@pytest.mark.parametrize("route", ROUTES)
def test_a_path_ends_where_single_fits_do(four, route):
    X, y = four
    base = BundleSVC(route=route, tol=1e-6, max_iter=20_000)
    Cs = [1.0, 0.01, 0.1]
    for C, model in zip(Cs, base.fit_path(X, y, Cs), strict=True):
        cold = clone(base).set_params(C=C).fit(X, y)
        assert model.C == C
        np.testing.assert_allclose(
            objective(model, X, y, C, "hinge"), objective(cold, X, y, C, "hinge"), rtol=3e-6
        )
        np.testing.assert_array_equal(model.classes_, cold.classes_)
    assert not hasattr(base, "n_features_in_")


def test_a_path_takes_fewer_passes(two):
    X, y = two
    Cs = list(np.geomspace(0.01, 1, 8))
    warm = BundleSVC(route="bundle", tol=1e-3).fit_path(X, y, Cs)
    cold = [BundleSVC(C, route="bundle", tol=1e-3).fit(X, y) for C in Cs]
    assert sum(model.n_iter_ for model in warm) < 0.8 * sum(model.n_iter_ for model in cold)


def test_probabilities_are_those_of_others(four):
    X, y = four
    ours = BundleSVC(0.1, probability=True, random_state=3).fit(X, y)
    peer = CalibratedClassifierCV(LinearSVC(C=0.1, loss="hinge"), ensemble=False, cv=5).fit(X, y)
    found = ours.predict_proba(X)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert found.min() >= 0
    assert np.abs(found - peer.predict_proba(X)).mean() < 0.02
    assert (ours.predict(X) == BundleSVC(0.1).fit(X, y).predict(X)).mean() > 0.99
    two = BundleSVC(0.1, probability=True).fit(X, y == "cat")
    order = np.argsort(two.decision_function(X))
    assert (np.diff(two.predict_proba(X)[order, 1]) >= 0).all()
    assert not hasattr(BundleSVC(), "predict_proba")


def test_probabilities_are_calibrated():
    X, y = two_classes(4000, 5, noise=1.5)
    found = BundleSVC(0.1, probability=True).fit(X[:2000], y[:2000]).predict_proba(X[2000:])[:, 1]
    truth = y[2000:] > 0
    for low in (0.1, 0.3, 0.5, 0.7):
        inside = (found >= low) & (found < low + 0.2)
        assert abs(found[inside].mean() - truth[inside].mean()) < 0.08


def test_a_class_with_one_sample(four):
    X, y = four
    y = y.copy()
    y[0] = "yak"
    assert BundleSVC().fit(X, y).coef_.shape == (5, 15)
    with pytest.warns(UserWarning, match=r"class .*yak.* has one sample"):
        model = BundleSVC(probability=True).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


def test_few_samples_have_probabilities(two):
    X, y = two
    chosen = np.concatenate([np.flatnonzero(y > 0)[:2], np.flatnonzero(y < 0)[:2]])
    model = BundleSVC(probability=True).fit(X[chosen], y[chosen])
    assert np.isfinite(model.predict_proba(X)).all()


def test_the_route_is_chosen_and_said(two, caplog):
    X, y = two
    with caplog.at_level("INFO", logger="visionkl"):
        model = BundleSVC(tol=1e-2).fit(X, y)
    assert model.route_ in ROUTES
    assert model.route_reason_.startswith(model.route_)
    assert model.route_reason_ in caplog.text
    # Far from zero mean, descent fails and planes do not.
    far = BundleSVC().fit(X + 100, y)
    assert far.route_ == "bundle"
    assert "did not reach" in far.route_reason_
    assert far.gap_ <= 1e-3


def test_planes_do_what_descent_leaves(monkeypatch):
    random = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], 40)
    X = random.normal(size=(120, 30))
    X[y == 0, 0] += 4  # one class is easily told from the others
    monkeypatch.setattr(routes, "_TRIAL_PASSES", 500)
    monkeypatch.setattr(routes, "_TRIAL_SECONDS", 0.0)
    model = BundleSVC(tol=1e-3).fit(X, y)
    assert "1 of 3 problems in 500 passes" in model.route_reason_
    assert (model.gap_ <= 1e-3).all()
    np.testing.assert_allclose(
        model.decision_function(X),
        BundleSVC(tol=1e-5, route="gram").fit(X, y).decision_function(X),
        atol=0.2,
    )


def test_a_gap_that_is_not_reached_is_said(two):
    X, y = two
    with pytest.warns(ConvergenceWarning, match="2 passes at a duality gap of"):
        BundleSVC(10, route="bundle", max_iter=2).fit(X, y)


@pytest.mark.parametrize("kernel", ["intersection", "chi2", "hellinger"])
def test_an_additive_kernel_by_a_sparse_map_and_its_metric(kernel):
    """Values at grid points, regularised by K†, make the same machine as the kernel itself."""
    random = np.random.default_rng(0)
    grid = np.linspace(0, 1, 6)
    cells = random.integers(0, 6, (200, 3))
    y = np.where(np.sin(9 * grid[cells]).sum(axis=1) > 0.3, 1, -1)
    columns = (cells + 6 * np.arange(3)).ravel()
    sparse_map = sparse.csr_matrix((np.ones(600), columns, 3 * np.arange(201)), shape=(200, 18))
    metric = additive_metric(kernel, np.tile(grid, (3, 1)))
    ours = BundleSVC(5, metric=metric, intercept_scaling=10.0, tol=1e-4).fit(sparse_map, y)
    x, z = grid[cells][:, None], grid[cells][None]
    with np.errstate(invalid="ignore"):
        values = {
            "intersection": np.minimum(x, z),
            "hellinger": np.sqrt(x * z),
            "chi2": np.nan_to_num(2 * x * z / (x + z)),
        }[kernel]
    peer = SVC(C=5, kernel="precomputed", tol=1e-4).fit(values.sum(axis=2), y)
    np.testing.assert_allclose(
        ours.decision_function(sparse_map), peer.decision_function(values.sum(axis=2)), atol=0.1
    )


def test_a_metric_as_a_matrix(two):
    X, y = two
    block = np.array([[2.0, 1.0], [1.0, 3.0]])
    by_blocks = BundleSVC(metric=block, tol=1e-6).fit(X, y)
    whole = BundleSVC(metric=np.kron(np.eye(10), block), tol=1e-6).fit(X, y)
    each = BundleSVC(metric=np.tile(block, (10, 1, 1)), tol=1e-6).fit(X, y)
    np.testing.assert_allclose(by_blocks.coef_, whole.coef_, atol=1e-3)
    np.testing.assert_allclose(by_blocks.coef_, each.coef_, atol=1e-3)


def test_pickles(four):
    X, y = four
    model = BundleSVC(probability=True).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"C": 0}, "'C' parameter"),
        ({"C": "big"}, "'C' parameter"),
        ({"regularisation": -1}, "'regularisation' parameter"),
        ({"loss": "huber"}, "'loss' parameter"),
        ({"route": "short"}, "'route' parameter"),
        ({"expansion": "late"}, "'expansion' parameter"),
        ({"loss": "logistic", "route": "gram"}, "'route' parameter"),
        ({"metric": np.eye(3)}, "metric of 20 features"),
        ({"metric": np.eye(20), "route": "rows"}, "'route' parameter"),
        ({"metric": -np.eye(20)}, "positive semi-definite"),
        ({"intercept_scaling": 0}, "'intercept_scaling' parameter"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"n_jobs": 0}, "'n_jobs' parameter"),
        ({"cv": 1, "probability": True}, "'cv' parameter"),
        ({"codebooks": "these"}, "'codebooks' parameter"),
    ],
)
def test_bad_parameters(two, settings, message):
    with pytest.raises(UsageError, match=message):
        BundleSVC(**settings).fit(*two)


def test_bad_data(two):
    X, y = two
    with pytest.raises(DataError, match="1 class, "):
        BundleSVC().fit(X, np.ones(len(y)))
    with pytest.raises(ValueError, match="weights"):
        BundleSVC().fit(X, y, sample_weight=np.zeros(len(y)))
    with pytest.raises(ValueError, match="egative"):
        BundleSVC().fit(X, y, sample_weight=-np.ones(len(y)))
    with pytest.raises(DataError, match="give 'codebooks'"):
        BundleSVC().fit(np.zeros((4, 3), np.uint8), [0, 0, 1, 1])
    with pytest.raises(UsageError, match="'Cs' parameter"):
        BundleSVC().fit_path(X, y, [])
