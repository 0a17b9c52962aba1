"""Exact kernels against their formulas written out, and against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import pairwise

from visionkl.core.errors import DataError, UsageError
from visionkl.kernels.base import Additive, Polynomial, UserKernel
from visionkl.kernels.exact import (
    KERNELS,
    Chi2,
    ExpChi2,
    Gaussian,
    Linear,
    SkewedChi2,
    SkewedIntersection,
    kernel_matrix,
)

SIGMA, C, WIDTH = 0.7, 0.3, 1.9


def skewed_difference(x, y):
    return np.log(x + C) - np.log(y + C)


def ratio(a, b):
    return np.divide(a, b, out=np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b))), where=b > 0)


def half_of_jensen_shannon(x, y):
    return 0.5 * x * np.log2(1 + ratio(y, x))


#: k(x, y) of two rows, from METHODS §1.
FORMULAS = {
    "linear": lambda x, y: x @ y,
    "gaussian": lambda x, y: np.exp(-0.5 * np.sum(SIGMA**2 * (x - y) ** 2)),
    "skewed_chi2": lambda x, y: np.prod(1 / np.cosh(SIGMA * skewed_difference(x, y))),
    "skewed_intersection": lambda x, y: np.prod(np.exp(-SIGMA * np.abs(skewed_difference(x, y)))),
    "chi2": lambda x, y: np.sum(ratio(2 * x * y, x + y)),
    "intersection": lambda x, y: np.sum(np.minimum(x, y)),
    "hellinger": lambda x, y: np.sum(np.sqrt(x * y)),
    "jensen_shannon": lambda x, y: np.sum(half_of_jensen_shannon(x, y) + half_of_jensen_shannon(y, x)),
    "exp_chi2": lambda x, y: np.exp(-np.sum(ratio((x - y) ** 2, x + y)) / WIDTH),
}
PARAMETERS = {
    "gaussian": {"sigma": SIGMA},
    "skewed_chi2": {"sigma": SIGMA, "c": C},
    "skewed_intersection": {"sigma": SIGMA, "c": C},
    "exp_chi2": {"width": WIDTH},
}


def histograms(n, d, seed=0, dtype=np.float64):
    """Rows with zeros in common and zeros of their own."""
    random = np.random.default_rng(seed)
    rows = random.random((n, d)) * random.integers(0, 2, (n, d))
    rows[:, 0] = 0
    return rows.astype(dtype)


def by_formula(name, X, Y):
    return np.array([[FORMULAS[name](x, y) for y in Y.astype(float)] for x in X.astype(float)])


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 5e-6), (np.float64, 1e-12)])
@pytest.mark.parametrize("name", KERNELS)
def test_formula(name, dtype, tolerance):
    X, Y = histograms(9, 37, 0, dtype), histograms(6, 37, 1, dtype)
    K = kernel_matrix(X, Y, name, **PARAMETERS.get(name, {}))
    assert K.dtype == dtype
    expected = by_formula(name, X, Y)
    np.testing.assert_allclose(K, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", KERNELS)
def test_rows_with_themselves(name, dtype):
    # More rows than a band, and no multiple of anything.
    X = histograms(131, 19, 0, dtype)
    kernel = KERNELS[name](**PARAMETERS.get(name, {}))
    K = kernel(X)
    tolerance = 2e-6 if dtype == np.float32 else 1e-12
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(K, kernel(X, X.copy()), atol=tolerance * np.abs(K).max())
    np.testing.assert_allclose(K.diagonal(), kernel.diagonal(X), atol=tolerance * np.abs(K).max())
    assert kernel.diagonal(X).dtype == dtype
    assert np.linalg.eigvalsh(K.astype(float)).min() > -1e-5 * len(K)


@pytest.mark.parametrize("name", KERNELS)
def test_threads_change_nothing(name):
    X, Y = histograms(150, 23, 0, np.float32), histograms(70, 23, 1, np.float32)
    kernel = KERNELS[name]()
    np.testing.assert_array_equal(kernel(X, Y, n_jobs=1), kernel(X, Y, n_jobs=3))
    np.testing.assert_array_equal(kernel(X, n_jobs=1), kernel(X, n_jobs=3))


def test_scikit_learn_agrees():
    X, Y = histograms(40, 12), histograms(30, 12, 1)
    np.testing.assert_allclose(
        Gaussian(np.sqrt(2 * 0.4))(X, Y), pairwise.rbf_kernel(X, Y, gamma=0.4), atol=1e-13
    )
    np.testing.assert_allclose(ExpChi2(1 / 0.4)(X, Y), pairwise.chi2_kernel(X, Y, gamma=0.4), atol=1e-13)
    distances = -pairwise.additive_chi2_kernel(X, Y)
    sums = X.sum(axis=1)[:, None] + Y.sum(axis=1)
    np.testing.assert_allclose(Chi2()(X, Y), (sums - distances) / 2, atol=1e-13)


@pytest.mark.parametrize("kernel", [Gaussian, SkewedChi2, SkewedIntersection])
def test_sigma_of_blocks_and_of_features(kernel):
    X = histograms(20, 6)
    per_feature = kernel(sigma=[1.0, 1.0, 0.2, 0.2, 0.2, 3.0])(X)
    np.testing.assert_array_equal(kernel(sigma=[1.0, 0.2, 3.0], blocks=[2, 3, 1])(X), per_feature)
    np.testing.assert_array_equal(kernel(sigma=0.5, blocks=[2, 4])(X), kernel(sigma=0.5)(X))
    assert np.abs(per_feature - kernel(sigma=1.0)(X)).max() > 0.01


def test_skewed_kernels_with_one_half():
    """The closed forms of METHODS §1."""
    x, y = histograms(1, 8), histograms(1, 8, 1)
    a, b = x + C, y + C
    assert SkewedChi2(0.5, C)(x, y)[0, 0] == pytest.approx(np.prod(2 * np.sqrt(a * b) / (a + b)))
    expected = np.prod(np.sqrt(np.minimum(a, b) / np.maximum(a, b)))
    assert SkewedIntersection(0.5, C)(x, y)[0, 0] == pytest.approx(expected)


def test_steep_skewed_kernels_do_not_overflow():
    X = np.array([[1e-6], [1.0], [1e6]], np.float32)
    K = SkewedChi2(sigma=5.0, c=1e-6)(X)
    delta = 5 * np.log((X + 1e-6) / (X.T + 1e-6))
    np.testing.assert_allclose(K, 1 / np.cosh(delta.astype(float)), rtol=1e-4, atol=1e-30)
    with pytest.raises(DataError, match=r"spans [\d.]+ in column 0"):
        SkewedChi2(sigma=50.0, c=1e-6)(X)


def test_far_from_zero_the_gaussian_keeps_its_precision():
    X = np.random.default_rng(0).normal(size=(20, 5))
    K = Gaussian(0.5)(X)
    np.testing.assert_allclose(Gaussian(0.5)((X + 1000).astype(np.float32)), K, atol=2e-3)
    assert (Gaussian(0.5)((X + 1000).astype(np.float32)).diagonal() == 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["chi2", "intersection", "hellinger", "jensen_shannon"])
def test_tiny_and_huge_histograms_scale(name, dtype):
    """These kernels are homogeneous: k(s x, s y) = s k(x, y)."""
    X = histograms(10, 9, 0, dtype)
    K = kernel_matrix(X, kernel=name)
    for scale in (2.0**-60, 2.0**60):
        scaled = kernel_matrix(X * dtype(scale), kernel=name) / dtype(scale)
        np.testing.assert_allclose(scaled, K, rtol=1e-3, atol=1e-4 if dtype == np.float32 else 1e-12)


def test_width_is_the_mean_distance_of_different_rows():
    X = histograms(30, 7)
    distances = -pairwise.additive_chi2_kernel(X)
    assert ExpChi2.of(X).width == pytest.approx(distances[~np.eye(30, dtype=bool)].mean())
    np.testing.assert_allclose(kernel_matrix(X, kernel="exp_chi2"), ExpChi2.of(X)(X))
    assert ExpChi2.of(np.ones((5, 2))).width == 1.0
    many = np.tile(X, (200, 1))
    assert ExpChi2.of(many).width == pytest.approx(ExpChi2.of(X).width, rel=0.06)


def test_kernels_of_kernels():
    X, Y = histograms(12, 5), histograms(7, 5, 1)
    K = Chi2()(X, Y)
    polynomial = Polynomial(Chi2(), (0.5, 1.0, 0.0, 2.0))
    np.testing.assert_allclose(polynomial(X, Y), 0.5 + K + 2 * K**3)
    np.testing.assert_allclose(polynomial(X).diagonal(), polynomial.diagonal(X))
    np.testing.assert_allclose(Additive(np.minimum)(X, Y), kernel_matrix(X, Y, "intersection"))
    np.testing.assert_allclose(Additive(np.minimum).diagonal(X), X.sum(axis=1))
    own = UserKernel(lambda A, B: A @ B.T)
    np.testing.assert_allclose(own(X, Y), Linear()(X, Y))
    np.testing.assert_allclose(own.diagonal(X), Linear().diagonal(X))
    np.testing.assert_allclose(kernel_matrix(X, Y, lambda A, B: A @ B.T), X @ Y.T)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40), st.sampled_from(sorted(KERNELS)))
def test_any_shape(n, m, d, name):
    X, Y = histograms(n, d, n), histograms(m, d, m + 10)
    K = kernel_matrix(X, Y, name, **PARAMETERS.get(name, {}))
    expected = by_formula(name, X, Y)
    np.testing.assert_allclose(K, expected, atol=1e-12 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("name", ["chi2", "intersection", "hellinger", "jensen_shannon", "exp_chi2"])
def test_negative_values_name_their_column(name):
    X = histograms(5, 4)
    X[3, 2] = -0.25
    with pytest.raises(DataError, match=r"X holds -0\.25 in row 3, column 2, but numbers must be ≥ 0"):
        KERNELS[name]()(X)


@pytest.mark.parametrize(
    ("call", "error", "complaint"),
    [
        (lambda X: SkewedChi2(c=0.0)(X), DataError, r"X holds 0 in row 0, column 0, .* must be > -?0"),
        (lambda X: SkewedIntersection(c=-0.5)(X), DataError, r"must be > 0\.5"),
        (lambda X: Gaussian([1.0, 2.0])(X), UsageError, "a list of 4, one for each feature. Got '2 numbers'"),
        (lambda X: Gaussian([1.0], blocks=[2, 2])(X), UsageError, "a list of 2, one for each block"),
        (lambda X: Gaussian(1.0, blocks=[2, 3])(X), UsageError, "whose sum is the number of features, 4"),
        (lambda X: Gaussian("wide")(X), UsageError, "'sigma'"),
        (lambda X: Gaussian(np.nan)(X), UsageError, "'sigma' .* finite"),
        (lambda X: ExpChi2(0.0)(X), UsageError, "'width' .* > 0"),
        (lambda X: Chi2()(X, X[:, :3]), DataError, "X has 4 features but Y has 3"),
        (lambda X: Chi2()(np.where(X.max() == X, np.nan, X)), DataError, "NaN or infinity"),
        (lambda X: Chi2()(X[0]), DataError, r"not \(4,\)"),
        (lambda X: kernel_matrix(X, kernel="chi"), UsageError, "'kernel' parameter of kernel_matrix"),
        (lambda X: kernel_matrix(X, kernel="chi2", sigma=1.0), UsageError, "sigma"),
        (lambda X: kernel_matrix(X, kernel=Chi2(), sigma=1.0), UsageError, "'kernel'"),
        (lambda X: Polynomial(Chi2(), (1.0, -1.0)), UsageError, "'coefficients'"),
        (lambda X: kernel_matrix(X, kernel=lambda A, B: A), DataError, r"shape \(5, 5\), not \(5, 4\)"),
    ],
)
def test_bad_input_in_one_sentence(call, error, complaint):
    with pytest.raises(error, match=complaint):
        call(histograms(5, 4))
