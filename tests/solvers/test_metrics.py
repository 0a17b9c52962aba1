"""Regularisers: factors, products and their inverses agree with the plain matrices."""

import numpy as np
import pytest

from visionkl.core.errors import UsageError
from visionkl.solvers.metrics import (
    BlockMetric,
    DiagonalMetric,
    GridMetric,
    StackedMetric,
    additive_metric,
    as_metric,
    dense_metric,
    product,
)

rng = np.random.default_rng(0)
BOOKS = rng.normal(size=(3, 5, 2))
LOW_RANK = rng.normal(size=(4, 2)) @ rng.normal(size=(2, 4))


def block_matrix():
    K = np.zeros((15, 15))
    for m in range(3):
        K[5 * m : 5 * m + 5, 5 * m : 5 * m + 5] = BOOKS[m] @ BOOKS[m].T
    return K


def grid_matrix():
    z = 0.25 * np.arange(4)
    return np.kron(np.eye(2), np.minimum(z[:, None], z))


def stacked_matrix():
    K = np.zeros((17, 17))
    K[:15, :15] = block_matrix()
    K[15:, 15:] = np.diag([0.5, 4.0])
    return K


METRICS = {
    "diagonal": (DiagonalMetric([2.0, 0.25]), np.diag([0.5, 4.0])),
    "blocks": (BlockMetric(BOOKS), block_matrix()),
    "dense": (dense_metric(LOW_RANK @ LOW_RANK.T), LOW_RANK @ LOW_RANK.T),
    "grid": (GridMetric(2, 4, 0.25), grid_matrix()),
    "stacked": (StackedMetric([BlockMetric(BOOKS), DiagonalMetric([2.0, 0.25])]), stacked_matrix()),
}


@pytest.fixture(params=METRICS)
def case(request):
    return METRICS[request.param]


def test_product_is_the_matrix(case):
    metric, K = case
    a = rng.normal(size=(3, metric.dim))
    assert product(metric, a) == pytest.approx(a @ K, abs=1e-9)
    assert product(metric, a[0]) == pytest.approx(K @ a[0], abs=1e-9)


def test_reduce_is_the_transpose_of_expand(case):
    metric, _ = case
    w, a = rng.normal(size=metric.rank), rng.normal(size=metric.dim)
    assert metric.expand(w) @ a == pytest.approx(w @ metric.reduce(a))


def test_length_of_coordinates_is_the_regulariser(case):
    metric, K = case
    v = K @ rng.normal(size=metric.dim)
    w = metric.coordinates(v)
    assert metric.expand(w) == pytest.approx(v, abs=1e-8)
    assert w @ w == pytest.approx(v @ np.linalg.pinv(K) @ v)


def test_bounds_are_found_in_a_stack():
    metric, _ = METRICS["stacked"]
    positions, scales = metric.locate(np.array([16, 15]))
    w = rng.normal(size=metric.rank)
    assert w[positions] * scales == pytest.approx(metric.expand(w)[[16, 15]])


@pytest.mark.parametrize("kernel", ["intersection", "hellinger", "chi2"])
@pytest.mark.parametrize("first", [0.0, 0.3])
def test_products_of_additive_kernels_on_grids(kernel, first):
    grid = first + np.cumsum([[0.0, 0.5, 0.1, 1.0], [0.0, 0.2, 0.2, 0.2]], axis=1)
    a = np.random.default_rng(0).normal(size=(2, 4))
    x, z = grid[:, :, None], grid[:, None, :]
    with np.errstate(invalid="ignore"):
        K = {
            "intersection": np.minimum(x, z),
            "hellinger": np.sqrt(x * z),
            "chi2": np.nan_to_num(2 * x * z / (x + z)),
        }[kernel]
    metric = additive_metric(kernel, grid)
    expected = (K @ a[:, :, None]).ravel()
    np.testing.assert_allclose(product(metric, a.ravel()), expected, atol=1e-9)
    np.testing.assert_allclose(product(as_metric(K, 8), a.ravel()), expected, atol=1e-9)


def test_tied_coefficients_cannot_be_bounded():
    for name, index in (("blocks", 0), ("grid", 1), ("stacked", 3)):
        with pytest.raises(UsageError, match="ties it to others"):
            METRICS[name][0].locate(np.array([index]))


def test_single_precision_codebooks_stay_so():
    metric = BlockMetric(BOOKS.astype(np.float32))
    assert metric.factors.dtype == np.float32
    w = rng.normal(size=metric.rank)
    assert metric.expand(w) == pytest.approx(METRICS["blocks"][0].expand(w), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: DiagonalMetric([1.0, 0.0]), "finite numbers > 0"),
        (lambda: DiagonalMetric([]), "finite numbers > 0"),
        (lambda: BlockMetric(np.ones((2, 3))), "shape"),
        (lambda: BlockMetric(np.full((1, 2, 3), np.nan)), "NaN"),
        (lambda: dense_metric(np.ones((2, 3))), "square"),
        (lambda: dense_metric([[0.0, 1.0], [0.0, 1.0]]), "symmetric"),
        (lambda: dense_metric([[1.0, 0.0], [0.0, -1.0]]), "semi-definite"),
        (lambda: GridMetric(2, 1), "'n_points'"),
        (lambda: StackedMetric([]), "at least one"),
    ],
)
def test_what_is_no_metric_is_refused(make, complaint):
    with pytest.raises(UsageError, match=complaint):
        make()
