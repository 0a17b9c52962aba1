"""The bundle solver against liblinear, SciPy and the dual; its bounds, starts, memory and threads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from tests.solvers.problems import codes_and_books, decode, objective, solve_with_slacks, two_classes
from visionkl.core.errors import DataError, UsageError
from visionkl.solvers.bundle import minimise
from visionkl.solvers.linear import dual_svm
from visionkl.solvers.losses import Risk
from visionkl.solvers.metrics import (
    BlockMetric,
    DiagonalMetric,
    GridMetric,
    StackedMetric,
    dense_metric,
)
from visionkl.solvers.rows import CodedRows
from visionkl.solvers.state import Bundle


def liblinear(X, y, strength, loss, weights=None):
    """Weights, with that of a constant feature at the end, from scikit-learn."""
    C = 1 / (strength * len(y))
    X = np.column_stack([X, np.ones(len(y))])
    if loss == "logistic":
        model = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=10000)
    else:
        model = LinearSVC(C=C, loss=loss, fit_intercept=False, tol=1e-8, max_iter=1000000)
    return X, model.fit(X, y, sample_weight=weights).coef_[0]


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
@pytest.mark.parametrize("strength", [1.0, 0.03, 0.001])
@pytest.mark.parametrize("kind", ["dense", "float32", "sparse"])
def test_same_objective_as_liblinear(loss, strength, kind):
    X, y = two_classes(150, 12)
    data = {"dense": X, "float32": X.astype(np.float32), "sparse": sparse.csr_array(X)}[kind]
    result = minimise(Risk(data, y, loss=loss), DiagonalMetric(13), regularisation=strength, tol=2e-5)
    augmented, w = liblinear(X, y, strength, loss)
    theirs = objective(w, augmented, y, strength, loss)
    assert result.converged
    assert objective(result.v, augmented, y, strength, loss) == pytest.approx(theirs, rel=1e-4)
    assert result.primal == pytest.approx(theirs, rel=1e-4)
    assert result.dual <= theirs * (1 + 1e-6)


def test_same_objective_with_weights():
    X, y = two_classes(150, 12)
    weights = np.random.default_rng(0).random(150) * np.where(y > 0, 3, 1)
    result = minimise(Risk(X, y, weights=weights), DiagonalMetric(13), regularisation=0.01, tol=2e-5)
    augmented, w = liblinear(X, y, 0.01, "hinge", weights)
    theirs = objective(w, augmented, y, 0.01, "hinge", weights)
    assert result.primal == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
def test_codes_equal_decoded_vectors(loss):
    codes, books = codes_and_books(300, 4, 16, 3)
    decoded = decode(codes, books)
    y = np.where(decoded @ np.random.default_rng(1).normal(size=12) > 0.5, 1, -1)
    metric = StackedMetric([BlockMetric(books), DiagonalMetric(1)])
    settings = {"regularisation": 0.01, "tol": 1e-6}
    coded = minimise(Risk(CodedRows(codes, 16), y, loss=loss), metric, **settings)
    plain = minimise(Risk(decoded, y, loss=loss), DiagonalMetric(13), **settings)
    assert coded.primal == pytest.approx(plain.primal, rel=2e-5)
    # In the metric's coordinates, tables are weights of decoded vectors.
    w = coded.coordinates
    assert w == pytest.approx(plain.v, abs=0.02 * np.abs(plain.v).max())
    tables = coded.v[:-1].reshape(4, 16)
    scores = tables[np.arange(4), codes].sum(axis=1)
    assert scores == pytest.approx(decoded @ w[:-1], abs=1e-5)
    assert objective(w, np.column_stack([decoded, np.ones(300)]), y, 0.01, loss) == pytest.approx(
        coded.primal, rel=1e-5
    )


def test_any_matrix_as_regulariser():
    X, y = two_classes(40, 4)
    root = np.random.default_rng(2).normal(size=(4, 4))
    K = root @ root.T + 0.1 * np.eye(4)
    result = minimise(Risk(X, y, bias=0.0), dense_metric(K), regularisation=0.1, tol=1e-7)
    v, value = solve_with_slacks(np.linalg.inv(K), X, y, np.arange(40), 0.1)
    assert result.primal == pytest.approx(value, rel=1e-5)
    assert result.v == pytest.approx(v, abs=1e-2 * np.abs(v).max())


def test_singular_regulariser_stays_in_its_range():
    X, y = two_classes(40, 4)
    factor = np.random.default_rng(2).normal(size=(4, 2))
    result = minimise(Risk(X, y, bias=0.0), dense_metric(factor @ factor.T), regularisation=0.1, tol=1e-7)
    _, value = solve_with_slacks(np.eye(2), X @ factor, y, np.arange(40), 0.1)
    assert result.primal == pytest.approx(value, rel=1e-5)


def test_intersection_grid_equals_its_matrix():
    rng = np.random.default_rng(0)
    rows = np.abs(rng.normal(size=(60, 10)))
    y = np.where(rng.random(60) < 0.5, 1, -1)
    z = 0.5 * np.arange(5)
    K = np.kron(np.eye(2), np.minimum(z[:, None], z))
    settings = {"regularisation": 0.05, "tol": 1e-8}
    by_sums = minimise(Risk(rows, y, bias=0.0), GridMetric(2, 5, 0.5), **settings)
    by_matrix = minimise(Risk(rows, y, bias=0.0), dense_metric(K), **settings)
    assert by_sums.primal == pytest.approx(by_matrix.primal, rel=1e-7)
    assert by_sums.v.reshape(2, 5)[:, 0].tolist() == [0, 0]


def test_lower_bounds_and_weights_against_a_general_solver():
    X, y = two_classes(40, 4, seed=3)
    weights = np.array([1.0, 10.0, 1.0, 0.01])
    lower = np.array([-np.inf, 0.3, 0.01, -np.inf])
    result = minimise(
        Risk(X, y, bias=0.0), DiagonalMetric(weights), regularisation=0.1, lower=lower, tol=1e-7
    )
    v, value = solve_with_slacks(np.diag(weights), X, y, np.arange(40), 0.1, lower)
    assert (result.v >= lower).all()
    assert result.primal == pytest.approx(value, rel=1e-5)
    assert result.v == pytest.approx(v, abs=1e-2)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31))
def test_lower_bounds_meet_the_conditions_of_optimality(seed):
    X, y = two_classes(60, 5, seed=seed % 1000)
    rng = np.random.default_rng(seed)
    lower = np.where(rng.random(5) < 0.5, rng.normal(size=5), -np.inf)
    strength = 0.05
    # The squared hinge has a gradient: it vanishes along free coefficients and points inwards at bounds.
    risk = Risk(X, y, loss="squared_hinge", bias=0.0, n_parts=3)
    result = minimise(risk, DiagonalMetric(5), regularisation=strength, lower=lower, tol=1e-9)
    _, gradient = risk(result.v)
    gradient = gradient + strength * result.v
    at_bound = result.v <= lower + 1e-7
    assert (result.v >= lower).all()
    assert np.abs(gradient[~at_bound]).max(initial=0) < 1e-3
    assert gradient[at_bound].min(initial=0) > -1e-3


def test_samples_of_several_rows_against_a_general_solver():
    rng = np.random.default_rng(5)
    y = np.array([1, -1] * 12)
    owners = np.concatenate([np.full(1 if label > 0 else 4, i) for i, label in enumerate(y)])
    rows = rng.normal(size=(len(owners), 3)) + 0.7 * y[owners][:, None]
    rows = np.column_stack([rows, np.ones(len(owners))])
    _, value = solve_with_slacks(np.eye(4), rows, y, owners, 0.1)
    for order in (np.arange(len(owners)), rng.permutation(len(owners))):
        risk = Risk(rows[order], y, groups=owners[order], bias=0.0, n_parts=2)
        result = minimise(risk, DiagonalMetric(4), regularisation=0.1, tol=1e-7)
        assert result.primal == pytest.approx(value, rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1.0, 0.1, 0.01]),
    st.integers(1, 25),
    st.sampled_from([0, 12, None]),
    st.sampled_from([1, 5]),
)
def test_the_gap_is_a_proof_at_any_time(seed, strength, n_passes, max_planes, n_parts):
    X, y = two_classes(50, 6, seed=seed)
    optimum = dual_svm(X, y, regularisation=strength, tol=1e-7, max_passes=100000)
    result = minimise(
        Risk(X, y, n_parts=n_parts),
        DiagonalMetric(7),
        regularisation=strength,
        tol=0,
        max_passes=n_passes,
        max_planes=max_planes,
    )
    assert result.dual <= optimum.primal * (1 + 1e-9)
    assert result.primal >= optimum.dual * (1 - 1e-9)
    assert result.primal == pytest.approx(
        objective(result.v, np.column_stack([X, np.ones(50)]), y, strength, "hinge"), rel=1e-9
    )
    primal = [progress.primal for progress in result.history]
    dual = [progress.dual for progress in result.history]
    assert (np.diff(primal) <= 0).all()
    assert (np.diff(dual) >= 0).all()


def test_plain_oracles_of_one_and_of_several_parts():
    X, y = two_classes(120, 8)
    whole = Risk(X, y)
    halves = [Risk(X[::2], y[::2]), Risk(X[1::2], y[1::2])]

    def two_parts(v):
        losses, planes = zip(*(half(v) for half in halves), strict=True)
        return np.array(losses) / 2, np.array(planes) / 2

    best = minimise(whole, DiagonalMetric(9), regularisation=0.01, tol=1e-5)
    for oracle in (lambda v: whole(v), two_parts):
        result = minimise(oracle, DiagonalMetric(9), regularisation=0.01, tol=1e-4)
        assert result.converged
        assert result.primal == pytest.approx(best.primal, rel=2e-4)


def test_plain_oracle_of_a_smooth_loss_by_hand():
    # 1/2 v² + 3/2 (v − 2)² has its minimum, 3/2, at v = 3/2.
    result = minimise(
        lambda v: (1.5 * (v[0] - 2) ** 2, 3 * (v - 2)), DiagonalMetric(1), regularisation=1.0, tol=1e-9
    )
    assert result.v == pytest.approx([1.5], abs=1e-3)
    assert result.primal == pytest.approx(1.5)


def test_line_search_saves_passes():
    X, y = two_classes(400, 60)
    risk = Risk(X, y, n_parts=1)
    searching = minimise(risk, DiagonalMetric(61), regularisation=1e-3)
    plain = minimise(lambda v: risk(v), DiagonalMetric(61), regularisation=1e-3)
    in_parts = minimise(Risk(X, y, n_parts=8), DiagonalMetric(61), regularisation=1e-3)
    assert in_parts.n_passes < searching.n_passes < plain.n_passes
    assert searching.primal == pytest.approx(plain.primal, rel=1e-3)


def test_warm_starts_save_passes():
    X, y = two_classes(400, 60)
    risk, metric = Risk(X, y), DiagonalMetric(61)
    first = minimise(risk, metric, regularisation=2e-3)
    cold = minimise(risk, metric, regularisation=1e-3)
    from_planes = minimise(risk, metric, regularisation=1e-3, start=first.v, planes=first.planes)
    again = minimise(risk, metric, regularisation=1e-3, start=cold.v, planes=cold.planes)
    assert from_planes.n_passes < cold.n_passes
    assert again.n_passes <= 2
    changed = Risk(X[3:], y[3:])
    from_point = minimise(changed, metric, regularisation=1e-3, start=cold.v)
    assert from_point.history[0].primal < 1.1 * cold.primal
    assert from_point.n_passes <= minimise(changed, metric, regularisation=1e-3).n_passes


@pytest.mark.parametrize(("loss", "few"), [("hinge", 6), ("logistic", 3)])
def test_few_planes_suffice(loss, few):
    X, y = two_classes(300, 30)
    risk = Risk(X, y, loss=loss, n_parts=1)
    free = minimise(risk, DiagonalMetric(31), regularisation=0.01)
    bounded = minimise(risk, DiagonalMetric(31), regularisation=0.01, max_planes=few, max_passes=5000)
    assert max(progress.n_planes for progress in bounded.history) <= few < len(free.planes.offsets)
    assert bounded.converged
    assert bounded.primal == pytest.approx(free.primal, rel=1e-3)


@pytest.mark.parametrize("kind", ["dense", "sparse", "codes"])
def test_threads_change_nothing(kind):
    codes, books = codes_and_books(4200, 4, 16, 3)
    X = decode(codes, books).astype(np.float32)
    y = np.where(X[:, 0] + X[:, 3] > 0, 1, -1)
    y[::9] *= -1
    results = []
    for n_jobs in (1, 2, 3):
        if kind == "codes":
            rows = CodedRows(codes, 16, n_jobs=n_jobs)
            metric = StackedMetric([BlockMetric(books.astype(np.float32)), DiagonalMetric(1)])
        else:
            rows = X if kind == "dense" else sparse.csr_array(X)
            metric = DiagonalMetric(13)
        risk = Risk(rows, y, n_jobs=n_jobs)
        results.append(minimise(risk, metric, regularisation=1e-3, n_jobs=n_jobs))
    assert (results[0].v == results[1].v).all()
    assert (results[0].v == results[2].v).all()


def test_progress_is_told_and_can_stop():
    X, y = two_classes(200, 20)
    told = []

    def stop_after_three(progress):
        told.append(progress)
        return len(told) == 3

    result = minimise(Risk(X, y), DiagonalMetric(21), regularisation=1e-3, tol=0, callback=stop_after_three)
    assert result.history == told
    assert [progress.n_passes for progress in told] == [1, 2, 3]
    assert not result.converged
    assert result.gap == told[-1].gap
    assert told[0].seconds <= told[-1].seconds


def test_asking_for_more_than_rounding_allows_ends():
    X, y = two_classes(60, 5)
    result = minimise(Risk(X.astype(np.float32), y), DiagonalMetric(6), regularisation=0.1, tol=0.0)
    assert result.n_passes < 1000
    assert result.gap < 1e-5


def test_several_problems_in_one_pass():
    X, _ = two_classes(200, 10)
    labels = [np.where(X[:, k] > 0, 1, -1) for k in range(3)]
    risks = [Risk(X, y, bias=0.0, n_parts=1) for y in labels]
    bundles = [Bundle(DiagonalMetric(10), regularisation=0.01) for _ in risks]
    points = [bundle.begin(risk, risk.scores(bundle.v)) for bundle, risk in zip(bundles, risks, strict=True)]
    rows = risks[0].rows
    while max(bundle.gap for bundle in bundles) > 1e-3:
        parts = [
            risk.shares(point, bundle.slack)
            for risk, point, bundle in zip(risks, points, bundles, strict=True)
        ]
        planes = rows.combine(np.concatenate([shares for _, shares in parts]))
        for bundle, (offsets, _), plane in zip(bundles, parts, planes, strict=True):
            bundle.add(offsets, plane[None, None])
        scores = rows.scores(np.stack([bundle.answer() for bundle in bundles]))
        points = [bundle.search(r, s) for bundle, r, s in zip(bundles, risks, scores, strict=True)]
    for bundle, risk in zip(bundles, risks, strict=True):
        alone = minimise(risk, DiagonalMetric(10), regularisation=0.01)
        assert bundle.primal == pytest.approx(alone.primal, rel=1e-3)


def small_problem(**changes):
    X, y = two_classes(20, 3)
    return minimise(
        changes.pop("oracle", Risk(X, y)), DiagonalMetric(4), **{"regularisation": 0.1, **changes}
    )


@pytest.mark.parametrize(
    ("changes", "error", "complaint"),
    [
        ({"regularisation": 0}, UsageError, "'regularisation' .* must be a number > 0. Got 0"),
        ({"regularisation": np.nan}, UsageError, "'regularisation'"),
        ({"tol": -1}, UsageError, "'tol'"),
        ({"max_passes": 0}, UsageError, "'max_passes'"),
        ({"max_planes": 2.5}, UsageError, "'max_planes'"),
        ({"start": [1.0, 2.0]}, UsageError, "'start' .* 4 finite numbers"),
        ({"start": [1.0, 2.0, np.nan, 0]}, UsageError, "'start' .* 4 finite numbers"),
        ({"lower": [0.0]}, UsageError, "'lower' .* 4 numbers"),
        ({"lower": [0.0, 0, 0, np.inf]}, UsageError, "'lower' .* 4 numbers"),
        ({"oracle": lambda v: (np.nan, v)}, DataError, "not finite"),
        ({"oracle": lambda v: (1.0, v[:2])}, UsageError, "must have the shape \\(1, 4\\)"),
    ],
)
def test_bad_input_in_one_sentence(changes, error, complaint):
    with pytest.raises(error, match=complaint):
        small_problem(**changes)


def test_planes_of_another_problem_are_refused():
    other = minimise(lambda v: (0.0, v * 0), DiagonalMetric(2), regularisation=1.0)
    with pytest.raises(UsageError, match="belong to another problem"):
        small_problem(planes=other.planes)
