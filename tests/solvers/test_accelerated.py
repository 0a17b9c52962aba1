"""Accelerated proximal steps against the solver that has the Gram matrix of features."""

import numpy as np
import pytest
from sklearn.linear_model import Lasso
from sklearn.svm import LinearSVC

from visionkl.solvers.accelerated import solve_rows
from visionkl.solvers.penalties import Absolute, Squares
from visionkl.solvers.rows import DenseRows, SparseRows
from visionkl.solvers.scalar import Signed, Squared, SquaredHinge


def problem(n=80, d=30):
    random = np.random.default_rng(0)
    X = random.normal(size=(n, d)) + 1.0
    return X, X[:, :3] @ [1.0, -2.0, 0.5] + 0.1 * random.normal(size=n)


@pytest.mark.parametrize("kind", [DenseRows, SparseRows])
def test_squared_loss_and_l1_are_the_lasso(kind):
    X, y = problem()
    found = solve_rows(
        kind(X), Squared(np.stack([y, -y], axis=1)), Absolute(), np.array([0.1, 0.3]), tol=1e-9, max_iter=5000
    )
    assert (found.gap < 1e-8 * np.var(y)).all()
    for column, (target, strength) in enumerate([(y, 0.1), (-y, 0.3)]):
        reference = Lasso(alpha=strength, tol=1e-12, max_iter=10**6).fit(X, target)
        np.testing.assert_allclose(found.weights[:, column], reference.coef_, atol=1e-4)
        np.testing.assert_allclose(found.intercept[column], reference.intercept_, atol=1e-3)


def test_squared_hinge_and_l2_are_a_support_vector_machine():
    X, y = problem()
    labels = np.where(y > np.median(y), 1.0, -1.0)
    loss = Signed(SquaredHinge(), labels[:, None])
    found = solve_rows(DenseRows(X), loss, Squares(), np.array([0.05]), tol=1e-9, max_iter=5000)
    C = 1 / (0.05 * len(y))
    reference = LinearSVC(C=C, intercept_scaling=1e3, tol=1e-10, max_iter=10**6).fit(X, labels)
    np.testing.assert_allclose(found.weights[:, 0], reference.coef_[0], atol=2e-3)


def test_too_few_steps_return_what_is_there():
    X, y = problem()
    found = solve_rows(DenseRows(X), Squared(y[:, None]), Absolute(), np.array([0.1]), tol=1e-12, max_iter=3)
    assert found.n_iter == 3
    assert found.gap[0] > 0
