"""MBKLClassifier: its three steps against plain NumPy and a reference SVM, scoring, controls, bad input."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from visionkl.core.errors import DataError, UsageError
from visionkl.kernels.binary import StumpMap
from visionkl.kernels.fourier import FourierMap
from visionkl.kernels.questions import encode, unpack
from visionkl.learning.binary import MBKLClassifier
from visionkl.learning.binary_kernel import draw_pairs, guess, learn_theta, response_rows, signed_rows
from visionkl.learning.routes import Settings

TIGHT = 1e-7


def digits(n=400, n_classes=10):
    X, y = load_digits(return_X_y=True)
    keep = y < n_classes
    return np.ascontiguousarray(X[keep][:n]), y[keep][:n]


def bits_of(X, n_maps=150):
    questions = StumpMap(n_maps).fit(X).questions_
    return encode(questions, X), unpack(encode(questions, X), n_maps)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_guesses_compare_fractions(n_classes):
    X, y = digits(n_classes=n_classes)
    packed, s = bits_of(X)
    signs = guess(packed, y)
    assert not signs[:, 150:].any()
    for number in range(n_classes):
        own, rest = s[y == number].mean(axis=0), s[y != number].mean(axis=0)
        expected = np.where(np.isclose(own, rest, atol=1e-12), 0, np.sign(own - rest))
        np.testing.assert_array_equal(signs[number, :150], expected)
    constant = s.all(axis=0) | ~s.any(axis=0)
    assert constant.any()
    assert not signs[:, :150][:, constant].any()


def test_pairs_are_balanced_and_never_repeat():
    numbers = np.repeat([0, 1, 2, 3], [200, 50, 50, 3])
    samples, classes, labels = draw_pairs(numbers, 1000, 1.0, np.random.default_rng(0))
    own = labels > 0
    np.testing.assert_array_equal(np.sort(samples[own]), np.arange(303))
    np.testing.assert_array_equal(classes[own], numbers[samples[own]])
    assert (classes[~own] != numbers[samples[~own]]).all()
    pairs = np.stack([samples[~own], classes[~own]])
    assert len(np.unique(pairs, axis=1).T) == pairs.shape[1]
    # A class of three samples has nine pairs at most.
    np.testing.assert_array_equal(np.bincount(numbers[samples[~own]]), [76, 76, 76, 9])
    few = draw_pairs(numbers, 40, 2.0, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(numbers[few[0][few[2] > 0]]), [10, 10, 10, 3])
    assert (few[2] < 0).sum() == 17 * 3 + 9


def answers_by_hand(s, signs, samples, classes):
    return signs[classes][:, : s.shape[1]] * (2.0 * s[samples] - 1)


@pytest.mark.parametrize("n_classes", [2, 10])
def test_theta_is_that_of_a_reference_machine(n_classes):
    X, y = digits(n_classes=n_classes)
    packed, s = bits_of(X)
    signs = guess(packed, y)
    pairs = draw_pairs(y, 300, 1.0, np.random.default_rng(1))
    by_hand = answers_by_hand(s, signs, *pairs[:2]) / np.sqrt(150)
    rows = response_rows(packed, signs, *pairs[:2], 150)
    weights = np.random.default_rng(2).normal(size=rows.dim)
    np.testing.assert_allclose(rows.scores(weights), by_hand @ weights[:150], atol=1e-5)
    settings = Settings("hinge", 0.0, 1.0, 1e-6, 10_000, 0, None)
    theta, solution = learn_theta(packed, signs, pairs, 150, 1.0, settings, "test")
    reference = LinearSVC(C=1.0, loss="hinge", tol=1e-9, max_iter=10**6).fit(by_hand, pairs[2])
    np.testing.assert_allclose(theta, np.maximum(reference.coef_[0], 0), atol=5e-3)
    np.testing.assert_allclose(solution.bias, reference.intercept_[0], atol=5e-3)
    assert (theta >= 0).all()
    assert 0 < (theta > 0).sum() < 150


def test_rows_with_their_constant_have_the_kernels_inner_products():
    X, _ = digits(60)
    packed, s = bits_of(X)
    theta = np.random.default_rng(0).random(150)
    explicit = np.hstack([np.sqrt(theta) * s, np.sqrt(theta) * (1 - s)])
    rows = signed_rows(packed, theta)
    decoded = rows.decode(slice(0, 60), slice(0, rows.n_blocks))
    np.testing.assert_allclose(decoded @ decoded.T + theta.sum() / 2, explicit @ explicit.T, rtol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_machines_are_those_of_the_learned_kernel(n_classes):
    X, y = digits(300, n_classes)
    model = MBKLClassifier(500, C=5.0, tol=TIGHT).fit(X, y)
    K = model.kernel_(X)
    scores = model.decision_function(X).reshape(len(X), -1)
    for column, number in zip(scores.T, range(1, 2) if n_classes == 2 else range(n_classes), strict=True):
        labels = np.where(y == number, 1, -1)
        # Our intercept is part of the kernel; libsvm's is free, so its objective is no higher.
        theirs = SVC(kernel="precomputed", C=5.0, tol=1e-6).fit(K, labels)
        assert np.mean(np.sign(theirs.decision_function(K)) == np.sign(column)) > 0.97


MODELS = [
    MBKLClassifier(700),
    MBKLClassifier(700, theta="selected"),
    MBKLClassifier(200, theta="ones"),
    MBKLClassifier(150, theta="l1", tol=0.02),
    MBKLClassifier(300, maps="projections"),
    MBKLClassifier(300, maps="projections", base=FourierMap(n_components=60)),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: repr(model)[15:60])
@pytest.mark.parametrize("n_classes", [2, 10])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_are_those_of_unpacked_bits(model, n_classes, dtype):
    X, y = digits(500, n_classes)
    X = X.astype(dtype)
    fitted = clone(model).fit(X[:300], y[:300])
    n = len(fitted.selected_)
    s = unpack(encode(fitted.questions_, X), n)
    plain = (2.0 * s - 1) @ fitted.coef_.T + fitted.intercept_
    scores = fitted.decision_function(X)
    np.testing.assert_allclose(scores.reshape(plain.shape), plain, atol=1e-4 * np.abs(plain).max())
    np.testing.assert_array_equal(fitted.set_params(n_jobs=1).decision_function(X), scores)
    one_by_one = np.concatenate([fitted.decision_function(X[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(one_by_one, scores[:20], atol=1e-4 * np.abs(plain).max())
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.decision_function(X), scores)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: repr(model)[15:60])
def test_theta_and_selection_belong_together(model):
    X, y = digits()
    fitted = clone(model).fit(X, y)
    assert fitted.theta_.shape == (model.n_maps,)
    np.testing.assert_allclose(fitted.theta_.sum(), 1)
    assert (fitted.theta_ >= 0).all()
    np.testing.assert_array_equal(fitted.selected_, np.flatnonzero(fitted.theta_))
    assert fitted.coef_.shape == (10, len(fitted.selected_))
    if model.theta != "learned":
        np.testing.assert_allclose(fitted.theta_[fitted.selected_], 1 / len(fitted.selected_))
    if model.theta == "ones":
        assert len(fitted.selected_) == model.n_maps
    else:
        assert len(fitted.selected_) < model.n_maps


def test_the_same_seed_gives_the_same_model_on_any_number_of_threads():
    X, y = digits()
    first, second = (MBKLClassifier(300, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 3))
    np.testing.assert_array_equal(first.theta_, second.theta_)
    np.testing.assert_array_equal(first.coef_, second.coef_)
    other = MBKLClassifier(300, random_state=1).fit(X, y)
    assert not np.array_equal(first.theta_, other.theta_)


@pytest.mark.parametrize("maps", ["stumps", "projections"])
def test_sparse_rows_give_the_model_of_dense_ones(maps):
    X, y = digits()
    dense = MBKLClassifier(300, maps=maps).fit(X, y)
    thin = MBKLClassifier(300, maps=maps).fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(thin.theta_, dense.theta_, atol=1e-9)
    np.testing.assert_allclose(
        thin.decision_function(sparse.csr_array(X)), dense.decision_function(X), atol=1e-6
    )


def test_l1_selects_as_liblinear_does():
    X, y = digits(200, 2)
    model = MBKLClassifier(60, theta="l1", C=20.0, tol=1e-6, max_iter=20_000).fit(X, y)
    s = unpack(encode(StumpMap(60).fit(X).questions_, X), 60)
    scaled = (2.0 * s - 1) / np.sqrt(120)
    reference = LinearSVC(
        penalty="l1", dual=False, C=20.0, tol=1e-8, max_iter=10**6, intercept_scaling=1e3
    ).fit(scaled, y)

    def objective(w, b):
        missing = np.maximum(1 - np.where(y == 1, 1, -1) * (scaled @ w + b), 0)
        return np.abs(w).sum() + 20 * (missing**2).sum()

    ours = np.zeros(60)
    ours[model.selected_] = model.coef_[0] * np.sqrt(120)
    best = objective(reference.coef_[0], reference.intercept_[0])
    assert objective(ours, model.intercept_[0]) <= best * (1 + 1e-3)
    assert len(model.selected_) < 40


def test_unscaled_features_change_nothing():
    X, y = digits()
    scales = 10.0 ** np.random.default_rng(0).integers(-6, 7, X.shape[1])
    plain, scaled = MBKLClassifier(500).fit(X, y), MBKLClassifier(500).fit(X * scales + 3 * scales, y)
    agree = plain.predict(X) == scaled.predict(X * scales + 3 * scales)
    assert agree.mean() > 0.99


def test_constant_features_are_never_asked():
    X, y = digits()
    X = np.hstack([X, np.full((len(X), 30), 7.0)])
    model = MBKLClassifier(800).fit(X, y)
    assert model.questions_.features.max() < 64
    assert model.score(X, y) > 0.95


def test_a_class_with_one_sample():
    X, y = digits(200, 3)
    y = y.copy()
    y[5] = 99
    model = MBKLClassifier(500, C=100.0).fit(X, y)
    assert model.predict(X[5:6]) == [99]
    assert model.score(X, y) > 0.95


def test_nothing_to_tell_classes_apart_is_said():
    with pytest.raises(DataError, match="none of the 50 questions tells the classes apart"):
        MBKLClassifier(50).fit(np.ones((10, 3)), np.arange(10) % 2)


def test_one_class_is_refused():
    with pytest.raises(DataError, match="at least two classes"):
        MBKLClassifier().fit(np.random.default_rng(0).random((10, 3)), np.ones(10))


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_missing_numbers_are_refused(make):
    X, y = digits(50)
    X[3, 4] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        MBKLClassifier().fit(make(X), y)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maps", "trees"),
        ("theta", "two"),
        ("C", 0),
        ("n_maps", 0),
        ("kernel_samples", 1),
        ("negatives", -1.0),
    ],
)
def test_bad_parameters_are_named(name, value):
    with pytest.raises(UsageError, match=f"'{name}' parameter of MBKLClassifier"):
        MBKLClassifier(**{name: value}).fit(*digits(50))


@pytest.mark.realdata
def test_sonar_without_tuning(realdata):
    table = np.genfromtxt(realdata / "uci" / "sonar.csv", delimiter=",", dtype=str, skip_header=1)
    X, y = table[:, :-1].astype(float), table[:, -1]
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    # A linear machine is right on some 76 % of it.
    assert cross_val_score(MBKLClassifier(2000), X, y, cv=folds).mean() > 0.82


def test_too_few_passes_are_said():
    with pytest.warns(ConvergenceWarning, match="MBKLClassifier stopped after 1 passes"):
        MBKLClassifier(300, max_iter=1).fit(*digits())


@parametrize_with_checks([MBKLClassifier(200), MBKLClassifier(100, maps="projections")])
def test_scikit_learn_is_content(estimator, check):
    check(estimator)
