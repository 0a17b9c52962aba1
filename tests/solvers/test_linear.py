"""Dual coordinate descent against liblinear and against itself on other data kinds."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import LinearSVC

from tests.solvers.problems import codes_and_books, decode, objective, two_classes
from visionkl.core.errors import DataError, UsageError
from visionkl.solvers.bundle import minimise
from visionkl.solvers.linear import dual_svm, dual_svm_gram
from visionkl.solvers.losses import Risk
from visionkl.solvers.metrics import DiagonalMetric
from visionkl.solvers.rows import CodedRows


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("strength", [1.0, 0.01, 0.001])
def test_same_objective_as_liblinear(loss, strength):
    X, y = two_classes(150, 12)
    weights = np.random.default_rng(0).random(150)
    settings = {"regularisation": strength, "loss": loss, "weights": weights, "tol": 1e-6}
    model = LinearSVC(C=1 / (strength * 150), loss=loss, intercept_scaling=2.0, tol=1e-8, max_iter=10**6).fit(
        X, y, sample_weight=weights
    )
    augmented = np.column_stack([X, np.full(150, 2.0)])
    w = np.append(model.coef_[0], model.intercept_ / 2)
    theirs = objective(w, augmented, y, strength, loss, weights)
    for data in (X, X.astype(np.float32), sparse.csr_array(X)):
        result = dual_svm(data, y, bias=2.0, max_passes=100000, **settings)
        assert result.converged
        ours = objective(np.append(result.w, result.bias / 2), augmented, y, strength, loss, weights)
        assert ours == pytest.approx(theirs, rel=1e-5)
        assert result.primal == pytest.approx(theirs, rel=1e-5)
    result = dual_svm_gram(X @ X.T, y, bias=2.0, max_passes=100000, **settings)
    assert result.primal == pytest.approx(theirs, rel=1e-5)
    assert result.bias == pytest.approx(float(model.intercept_[0]), abs=1e-2)
    assert X @ (X.T @ (result.alpha * y)) == pytest.approx(X @ model.coef_[0], abs=3e-2)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_codes_equal_decoded_vectors(loss):
    codes, books = codes_and_books(200, 4, 16, 3)
    X = decode(codes, books)
    y = np.where(X[:, 0] > 0, 1, -1)
    settings = {"regularisation": 0.01, "loss": loss, "tol": 1e-5}
    coded = dual_svm(CodedRows(codes, 16), y, codebooks=books, **settings)
    plain = dual_svm(X, y, **settings)
    assert coded.primal == pytest.approx(plain.primal, rel=1e-6)
    assert coded.w == pytest.approx(plain.w, abs=1e-6)


def test_seed_and_gap():
    X, y = two_classes(100, 5)
    results = [dual_svm(X, y, regularisation=0.01, seed=seed) for seed in (0, 0, 1)]
    assert (results[0].w == results[1].w).all()
    assert (results[0].w != results[2].w).any()
    for result in results:
        assert result.dual <= result.primal
        assert result.gap == pytest.approx((result.primal - result.dual) / result.primal)
        assert (result.alpha >= 0).all()
        assert (result.alpha <= 1 / (0.01 * 100) + 1e-12).all()


def test_stops_when_told():
    X, y = two_classes(100, 5)
    result = dual_svm(X, y, regularisation=1e-5, tol=1e-9, max_passes=3)
    assert result.n_passes == 3
    assert not result.converged


def test_empty_rows_and_weights_of_nothing():
    X, y = two_classes(50, 4)
    X[:5] = 0
    weights = np.ones(50)
    weights[10:20] = 0
    for loss in ("hinge", "squared_hinge"):
        result = dual_svm(X, y, regularisation=0.01, loss=loss, weights=weights, bias=0.0)
        assert result.converged
        assert (result.alpha[10:20] == 0).all()


@pytest.mark.parametrize(
    ("call", "error", "complaint"),
    [
        (lambda X, y: dual_svm(X, y[:-1], regularisation=1.0), DataError, "20 rows .* 19 labels"),
        (lambda X, y: dual_svm(X, np.ones(20), regularisation=1.0), DataError, "samples of both labels"),
        (lambda X, y: dual_svm(X * np.nan, y, regularisation=1.0), DataError, "NaN"),
        (lambda X, y: dual_svm(X[:0], y[:0], regularisation=1.0), DataError, "at least one of each"),
        (lambda X, y: dual_svm(X, y, regularisation=-1.0), UsageError, "'regularisation'"),
        (lambda X, y: dual_svm(X, y, regularisation=1.0, loss="logistic"), UsageError, "'squared_hinge'"),
        (lambda X, y: dual_svm(X, y, regularisation=1.0, weights=[1.0]), UsageError, "20 finite numbers"),
        (lambda X, y: dual_svm_gram(X, y, regularisation=1.0), DataError, "square"),
        (lambda X, y: dual_svm_gram(X @ X.T / 0, y, regularisation=1.0), DataError, "NaN"),
        (
            lambda X, y: dual_svm(CodedRows(np.zeros((20, 2), np.uint8), 4), y, regularisation=1.0),
            UsageError,
            "\\(2, 4, block_size\\)",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bad_input_in_one_sentence(call, error, complaint):
    X, y = two_classes(20, 3)
    with pytest.raises(error, match=complaint):
        call(X, y)


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
def test_regression_is_what_the_bundle_solver_finds(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6))
    y = X @ rng.normal(size=6) + 3 + rng.normal(size=120)
    weights = rng.integers(0, 3, 120)
    settings = {"loss": loss, "epsilon": 0.3, "weights": weights}
    risk = Risk(X, y, **settings)
    planes = minimise(risk, DiagonalMetric(7), regularisation=0.05, tol=1e-6)
    for result in (
        dual_svm(X, y, regularisation=0.05, tol=1e-6, max_passes=10_000, **settings),
        dual_svm_gram(X @ X.T, y, regularisation=0.05, tol=1e-6, max_passes=10_000, **settings),
    ):
        assert result.converged
        assert result.primal == pytest.approx(planes.primal, rel=1e-5)
        assert X.T @ result.shares == pytest.approx(planes.v[:-1], abs=0.02)
        assert result.bias == pytest.approx(planes.v[-1], abs=0.02)


def test_descent_goes_on_where_it_was():
    X, y = two_classes(200, 10)
    cold = dual_svm(X, y, regularisation=1e-3, tol=1e-6, max_passes=100_000)
    again = dual_svm(X, y, regularisation=1e-3, tol=1e-6, start=cold.alpha)
    assert again.n_passes < 0.2 * cold.n_passes
    assert again.primal == pytest.approx(cold.primal, rel=1e-6)
    with pytest.raises(UsageError, match="another problem"):
        dual_svm(X, y, regularisation=1e-3, start=cold.alpha[1:])
