"""Which route is taken, for rows of given shapes; and Platt's sigmoid against a general solver."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

from visionkl.learning.platt import fit_sigmoid, probabilities
from visionkl.learning.routes import choose_route
from visionkl.solvers.coded import TableRows
from visionkl.solvers.rows import as_rows


def codes_of(n, n_blocks):
    """Rows that have the shape of codes, but no codes."""
    rows = object.__new__(TableRows)
    rows.n_rows, rows.n_blocks, rows.n_codewords, rows.size = n, n_blocks, 256, 8
    rows.dim = 8 * n_blocks
    return rows


def taken(rows, n_problems, tol=1e-3):
    return choose_route("auto", rows, n_problems, "hinge", tol, None, "test")


def test_one_class_on_long_codes_is_for_planes():
    assert taken(codes_of(5000, 5120), 1)[0] == "bundle"


def test_many_classes_on_few_samples_are_for_inner_products():
    assert taken(codes_of(5000, 5120), 20)[0] == "gram"
    assert taken(as_rows(np.zeros((2000, 5000), np.float32)), 20)[0] == "gram"


def test_what_does_not_fit_into_memory_is_left_out():
    route, reason = taken(codes_of(100_000, 1280), 20)
    assert route == "bundle"
    assert "left out" in reason


def test_few_features_and_sparse_rows_are_for_descent():
    assert taken(as_rows(np.zeros((5000, 30))), 2)[0] == "rows"
    assert taken(as_rows(sparse.random_array((500, 3000), density=0.01, format="csr")), 3)[0] == "rows"


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("apart", [0.0, 1.0, 30.0])
def test_sigmoids_are_most_likely(scale, apart):
    random = np.random.default_rng(0)
    positive = random.random(300) < 0.3
    scores = scale * (random.normal(size=300) + apart * positive - 0.5)
    weights = random.random(300) + 0.1
    above, below = weights[positive].sum(), weights[~positive].sum()
    targets = np.where(positive, (above + 1) / (above + 2), 1 / (below + 2))

    def unlikeliness(ab):
        z = ab[0] * scores / scale + ab[1]
        return weights @ (targets * np.logaddexp(0, z) + (1 - targets) * np.logaddexp(0, -z))

    best = minimize(unlikeliness, [0.0, 0.0], method="BFGS", options={"gtol": 1e-7})
    a, b = fit_sigmoid(scores, positive, weights)
    assert unlikeliness([a * scale, b]) <= best.fun + 1e-6


def test_probabilities_of_scores_that_no_class_likes():
    sigmoids = np.array([[-1.0, 0.0]] * 3)
    found = probabilities(np.array([[-1e5, -1e5, -1e5], [0.0, 0.0, 1e5]]), sigmoids)
    np.testing.assert_allclose(found, [[1 / 3] * 3, [0.25, 0.25, 0.5]])
