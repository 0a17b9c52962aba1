"""Proximal solvers: optimality, gaps, screening, and other people's answers."""

import numpy as np
import pytest
from sklearn.linear_model import Lasso, Ridge

from visionkl.solvers.penalties import Absolute, Groups, Squares
from visionkl.solvers.proximal import GramMatrix, Quadratic, solve_quadratic
from visionkl.solvers.scalar import GammaLogistic, Logistic, Signed, Squared, SquaredHinge
from visionkl.solvers.smooth import level, solve_smooth

N, WIDTH = 200, 6
GROUPS = [slice(k, k + WIDTH) for k in range(0, 30, WIDTH)]


class Plain:
    """Features that are simply there."""

    def __init__(self, X):
        self.X, self.means = X, X.mean(axis=0)
        centred = X - self.means
        self.gram = GramMatrix(centred.T @ centred / len(X))

    def scores(self, weights):
        return self.X @ weights

    def combine(self, shares):
        return self.X.T @ shares


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 30)) + 0.5
    X[:, 6:12] = X[:, :6] + 0.1 * rng.normal(size=(N, 6))  # two channels that say nearly the same
    y = X[:, :4] @ rng.normal(size=(4, 3)) + X[:, 12:14] @ rng.normal(size=(2, 3)) + 2
    return X, y + 0.5 * rng.normal(size=(N, 3))


def quadratic(X, y):
    X, y = X - X.mean(axis=0), y - y.mean(axis=0)
    return Quadratic(GramMatrix(X.T @ X / N), X.T @ y / N, (y**2).mean(axis=0))


def solve(problem, penalty, strength, **options):
    tolerance = 1e-10 * problem.energy
    return solve_quadratic(problem, penalty, strength, tolerance=tolerance, max_iter=20000, **options)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
def test_group_lasso_meets_the_conditions_of_optimality(data, share):
    problem, penalty = quadratic(*data), Groups(GROUPS)
    strength = share * penalty.dual_norm(problem.linear)
    found = solve(problem, penalty, strength)
    assert (found.gap <= 1e-10 * problem.energy).all()
    slopes, norms = problem.slopes(found.weights), penalty.norms(found.weights)
    for j, group in enumerate(GROUPS):
        for k in range(3):
            if norms[j, k] > 0:
                expected = strength[k] * found.weights[group, k] / norms[j, k]
                np.testing.assert_allclose(slopes[group, k], expected, atol=2e-4 * strength[k])
            else:
                assert np.linalg.norm(slopes[group, k]) <= strength[k] * (1 + 1e-9)


def test_all_is_zero_from_the_highest_strength_on(data):
    problem, penalty = quadratic(*data), Groups(GROUPS)
    highest = penalty.dual_norm(problem.linear)
    assert not solve(problem, penalty, highest * (1 + 1e-12)).weights.any()
    assert solve(problem, penalty, 0.99 * highest).weights.any(axis=0).all()


@pytest.mark.parametrize("share", [0.6, 0.3, 0.03])
def test_screening_does_not_change_the_result(data, share):
    problem, penalty = quadratic(*data), Groups(GROUPS)
    strength = share * penalty.dual_norm(problem.linear)
    with_screening, without = (solve(problem, penalty, strength, screen=screen) for screen in (True, False))
    np.testing.assert_allclose(with_screening.objective, without.objective, rtol=1e-9)
    np.testing.assert_allclose(with_screening.weights, without.weights, atol=1e-4)


@pytest.mark.parametrize("penalty", [Groups(GROUPS), Absolute()])
def test_a_warm_start_ends_where_a_cold_one_does(data, penalty):
    problem = quadratic(*data)
    highest = penalty.dual_norm(problem.linear)
    start = solve(problem, penalty, 0.3 * highest).weights
    warm, cold = solve(problem, penalty, 0.05 * highest, start=start), solve(problem, penalty, 0.05 * highest)
    np.testing.assert_allclose(warm.objective, cold.objective, rtol=1e-9)


def test_lasso_and_ridge_are_scikit_learns(data):
    X, y = data
    problem = quadratic(X, y)
    lasso = Lasso(alpha=0.05, tol=1e-10, max_iter=100000).fit(X, y)
    ridge = Ridge(alpha=0.05 * N, tol=1e-12).fit(X, y)
    strength = np.full(3, 0.05)
    np.testing.assert_allclose(solve(problem, Absolute(), strength).weights.T, lasso.coef_, atol=1e-4)
    np.testing.assert_allclose(solve(problem, Squares(), strength).weights.T, ridge.coef_, atol=1e-9)


@pytest.mark.slow
def test_group_lasso_is_skglms(data):
    skglm = pytest.importorskip("skglm")
    X, y = data
    problem, penalty = quadratic(X, y), Groups(GROUPS)
    found = solve(problem, penalty, np.full(3, 0.1))
    for k in range(3):
        theirs = skglm.GroupLasso(groups=WIDTH, alpha=0.1, tol=1e-10, fit_intercept=True).fit(X, y[:, k])
        weights = np.tile(theirs.coef_[:, None], 3)
        value = problem.value(weights, problem.slopes(weights)) + 0.1 * penalty.value(weights)
        assert found.objective[k] == pytest.approx(value[k], rel=1e-7)


def losses(y):
    signs = np.where(y > y.mean(axis=0), 1.0, -1.0)
    return {
        "squared": Squared(y),
        "logistic": Signed(Logistic(), signs),
        "squared_hinge": Signed(SquaredHinge(), signs),
        "gamma_logistic": GammaLogistic(y, 0.2, 5.0),
    }


@pytest.mark.parametrize("name", ["squared", "logistic", "squared_hinge", "gamma_logistic"])
@pytest.mark.parametrize("intercept", [True, False])
def test_smooth_losses_reach_the_minimum(data, name, intercept):
    """Thousands of plain proximal gradient steps find the same."""
    X, y = data
    loss, penalty, strength = losses(y)[name], Groups(GROUPS), np.full(3, 0.05)
    design = Plain(X)
    if not intercept:
        design.means = np.zeros(30)
        design.gram = GramMatrix(X.T @ X / N)
    found = solve_smooth(design, loss, penalty, strength, tol=1e-8, intercept=intercept)

    rows = np.hstack([X, np.full((N, 1), float(intercept))])
    step = N / (loss.curvature * np.linalg.norm(rows, 2) ** 2)
    weights = ahead = np.zeros((31, 3))
    for k in range(4000):
        moved = ahead - step * rows.T @ loss.derivative(rows @ ahead) / N
        new = np.vstack([penalty.prox(moved[:-1], step * strength), moved[-1:]])
        ahead = new + k / (k + 3) * (new - weights)
        weights = new
    expected = loss.value(rows @ weights).mean(axis=0) + strength * penalty.value(weights[:-1])
    np.testing.assert_allclose(found.objective, expected, rtol=1e-6)
    assert (found.objective <= expected + found.gap).all()


@pytest.mark.parametrize("penalty", [Groups(GROUPS), Absolute(), Squares()])
def test_smooth_and_quadratic_agree_on_the_squared_loss(data, penalty):
    X, y = data
    exact = solve(quadratic(X, y), penalty, np.full(3, 0.1))
    found = solve_smooth(Plain(X), Squared(y), penalty, np.full(3, 0.1), tol=1e-9)
    np.testing.assert_allclose(found.objective, exact.objective, rtol=1e-7)


@pytest.mark.parametrize("name", ["squared", "logistic", "squared_hinge", "gamma_logistic"])
def test_the_level_is_where_the_derivatives_cancel(data, name):
    X, y = data
    loss = losses(y)[name]
    scores = 3 * X[:, :3]
    np.testing.assert_allclose(loss.derivative(scores + level(loss, scores)).mean(axis=0), 0, atol=1e-12)
