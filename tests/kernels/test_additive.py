"""Sparse maps of additive kernels against METHODS' formulas, and as the solvers' metric sees them."""

import numpy as np
import pytest

from visionkl.core.errors import DataError, UsageError
from visionkl.kernels.additive import SparseAdditiveMap
from visionkl.kernels.exact import KERNELS
from visionkl.solvers.metrics import GridMetric, product

NAMES = ("intersection", "chi2", "hellinger")
FORMULAS = {
    "intersection": lambda i, x: 1.0,
    "chi2": lambda i, x: 2 * (1 + 2 * i) * x / ((i + x) * (1 + i + x)),
}


def fitted_on_a_unit_grid(name, n_points=9):
    return SparseAdditiveMap(name, n_points=n_points).fit([[0.0], [n_points - 1.0]])


@pytest.mark.parametrize("name", FORMULAS)
def test_coefficients_between_grid_points(name):
    fitted = fitted_on_a_unit_grid(name)
    for x in (1.25, 4.5, 7.9):
        i = int(x)
        expected = np.zeros(9)
        expected[[i, i + 1]] = FORMULAS[name](i, x) * np.array([i + 1 - x, x - i])
        np.testing.assert_allclose(fitted.transform([[x]]).toarray()[0], expected, atol=1e-12)


def test_hellinger_coefficients():
    x, i = 4.3, 4
    coefficients = fitted_on_a_unit_grid("hellinger").transform([[x]]).toarray()[0, 4:6]
    np.testing.assert_allclose(coefficients, np.sqrt(x) / (2 * i + 1) * np.sqrt([i, i + 1]))


@pytest.mark.parametrize("name", NAMES)
def test_below_the_first_point_only_it_counts(name):
    fitted = fitted_on_a_unit_grid(name)
    k = KERNELS[name]()
    expected = k([[1.0]], [[0.4]])[0, 0] / k([[1.0]], [[1.0]])[0, 0]
    mapped = fitted.transform([[0.4]])
    assert mapped.nnz == 1
    assert mapped[0, 1] == pytest.approx(expected)
    assert fitted.transform([[0.0]]).nnz == 0


@pytest.mark.parametrize("name", NAMES)
def test_exact_at_grid_points(name):
    X = np.array([[0.0, 30.0], [1.0, 15.0], [2.0, 0.0], [4.0, 45.0], [8.0, 120.0]])  # steps of 1 and of 15
    fitted = SparseAdditiveMap(name, n_points=9).fit(X)
    np.testing.assert_allclose(fitted.steps_, [1, 15])
    mapped = fitted.transform(X)
    assert mapped.nnz <= (2 if name == "hellinger" else 1) * 8
    inner = mapped @ fitted.kernel_product(mapped.toarray()).T
    np.testing.assert_allclose(inner, fitted.kernel_(X), atol=1e-9)


@pytest.mark.parametrize("name", [*NAMES, lambda x, y: np.exp(-((x - y) ** 2))])
def test_gram_is_the_same_for_all_features(name):
    X = np.random.default_rng(0).random((30, 3)) * [1, 10, 0.1]
    fitted = SparseAdditiveMap(name, n_points=6).fit(X)
    mapped = fitted.transform(X).toarray()
    whole = np.kron(np.eye(3), fitted.gram_)
    np.testing.assert_allclose(fitted.kernel_product(mapped), mapped @ whole, atol=1e-12)
    np.testing.assert_allclose(fitted.kernel_product(mapped[0]), whole @ mapped[0], atol=1e-12)


def test_the_solvers_grid_metric_is_the_intersection_kernels():
    X = np.random.default_rng(0).random((10, 3)) * [1, 10, 0.1]
    fitted = SparseAdditiveMap("intersection", n_points=7).fit(X)
    v = np.random.default_rng(1).normal(size=(4, 21))
    np.testing.assert_allclose(product(GridMetric(3, 7), v), fitted.kernel_product(v))


@pytest.mark.parametrize("name", ["intersection", "chi2"])
def test_errors_fall_with_the_points(name):
    X = np.random.default_rng(0).random((40, 3))
    errors = []
    for n_points in (5, 17, 65):
        fitted = SparseAdditiveMap(name, n_points=n_points).fit(X)
        mapped = fitted.transform(X)
        errors.append(np.abs(mapped @ fitted.kernel_product(mapped.toarray()).T - fitted.kernel_(X)).max())
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_values_outside_of_the_grid_are_taken_as_its_end():
    fitted = fitted_on_a_unit_grid("chi2")
    np.testing.assert_array_equal(fitted.transform([[99.0]]).toarray(), fitted.transform([[8.0]]).toarray())


def test_columns_of_zeros_and_constants():
    X = np.array([[0.0, 2.0], [0.0, 2.0]])
    for kernel in (*NAMES, np.multiply):
        fitted = SparseAdditiveMap(kernel, n_points=4).fit(X)
        mapped = fitted.transform(X)
        inner = mapped @ fitted.kernel_product(mapped.toarray()).T
        np.testing.assert_allclose(inner, fitted.kernel_(X), atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "error", "complaint"),
    [
        ({"kernel": "gaussian"}, UsageError, "'kernel' parameter of SparseAdditiveMap must be one of"),
        ({"n_points": 1}, UsageError, "'n_points' .* ≥ 2"),
        ({"kernel": lambda x, y: x * 0 + 1}, DataError, "for each pair of numbers"),
        ({"kernel": np.subtract}, DataError, "the same in both orders"),
    ],
)
def test_bad_parameters_in_one_sentence(settings, error, complaint):
    with pytest.raises(error, match=complaint):
        SparseAdditiveMap(**settings).fit([[0.0, 1.0], [2.0, 0.5]])
