"""Binary maps: bits against NumPy's comparisons, kernels against explicit maps, sparse rows, bad input."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.utils.estimator_checks import parametrize_with_checks

from visionkl.core.errors import DataError, UsageError
from visionkl.kernels.binary import BinaryKernel, BinaryProjectionMap, StumpMap
from visionkl.kernels.fourier import FourierMap
from visionkl.kernels.homogeneous import HomogeneousMap
from visionkl.kernels.questions import Stumps, encode, unpack

MAPS = [
    StumpMap(300),
    BinaryProjectionMap(130),
    BinaryProjectionMap(300, base=FourierMap(n_components=50)),
    BinaryProjectionMap(64, base=HomogeneousMap()),
]


def name_of(value):
    return repr(value).replace("\n", "")[:80]


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    X = random.random((200, 9)) * 10.0 ** random.integers(-3, 4, 9)
    X[:, 4] = 2.5  # a constant feature
    return X


def answers(stumps, X):
    """What stumps answer, in so many words."""
    return X[:, stumps.features] > stumps.thresholds


@given(
    n=st.integers(1, 150),
    n_features=st.integers(1, 40),
    n_maps=st.integers(1, 400),
    seed=st.integers(0, 2**16),
    dtype=st.sampled_from([np.float32, np.float64]),
)
@settings(max_examples=40, deadline=None)
def test_bits_of_stumps_are_comparisons(n, n_features, n_maps, seed, dtype):
    random = np.random.default_rng(seed)
    X = random.integers(-3, 4, (n, n_features)).astype(dtype)  # thresholds and numbers often meet
    features, thresholds = random.integers(n_features, size=n_maps), random.integers(-4, 5, n_maps)
    order = np.lexsort((thresholds, features))
    stumps = Stumps(features[order], thresholds[order].astype(dtype), n_features)
    packed = encode(stumps, X)
    assert packed.shape == (n, 8 * -(-n_maps // 64))
    np.testing.assert_array_equal(unpack(packed, n_maps), answers(stumps, X))
    assert not unpack(packed)[:, n_maps:].any()
    np.testing.assert_array_equal(encode(stumps, sparse.csr_array(X)), packed)
    few = np.flatnonzero(random.random(n_maps) < 0.3)
    if len(few):
        kept = encode(stumps.keep(few), X)
        np.testing.assert_array_equal(unpack(kept, len(few)), answers(stumps, X)[:, few])


def test_packed_bits_are_numpys(rows):
    stumps = StumpMap(256).fit(rows)
    expected = np.packbits(answers(stumps.questions_, rows), axis=1, bitorder="little")
    np.testing.assert_array_equal(stumps.transform(rows), expected)


def test_thresholds_lie_in_the_range_seen(rows):
    stumps = StumpMap(5000).fit(rows).questions_
    low, high = rows.min(axis=0)[stumps.features], rows.max(axis=0)[stumps.features]
    assert (stumps.thresholds >= low).all()
    assert (stumps.thresholds <= high).all()
    share = (stumps.thresholds - low)[high > low] / (high - low)[high > low]
    np.testing.assert_allclose(np.quantile(share, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.03)
    np.testing.assert_allclose(np.bincount(stumps.features), 5000 / 9, rtol=0.2)


def test_bits_of_projections_are_comparisons(rows):
    fitted = BinaryProjectionMap(130, base=FourierMap(n_components=50)).fit(rows)
    asked = fitted.questions_
    projected = asked.base.transform(rows) @ asked.directions
    np.testing.assert_array_equal(unpack(fitted.transform(rows), 130), projected > asked.thresholds)
    assert (asked.thresholds >= projected.min(axis=0) - 1e-9).all()
    assert (asked.thresholds <= projected.max(axis=0) + 1e-9).all()


@pytest.mark.parametrize("map_", MAPS, ids=name_of)
@pytest.mark.parametrize("weighted", [False, True])
def test_kernel_is_the_inner_product_of_the_explicit_map(map_, weighted, rows):
    fitted = map_.fit(rows)
    theta = np.full(map_.n_maps, 1 / map_.n_maps)
    kernel = fitted.kernel_
    if weighted:
        theta = np.random.default_rng(1).random(map_.n_maps)
        kernel = BinaryKernel(fitted.questions_, theta)
    s = unpack(fitted.transform(rows), map_.n_maps)
    explicit = np.hstack([np.sqrt(theta) * s, np.sqrt(theta) * (1 - s)])
    K = kernel(rows, rows[:70])
    np.testing.assert_allclose(K, explicit @ explicit[:70].T, rtol=1e-12)
    np.testing.assert_allclose(np.diag(kernel(rows)), kernel.diagonal(rows), rtol=1e-12)
    assert np.linalg.eigvalsh(kernel(rows)).min() > -1e-9
    assert kernel(rows.astype(np.float32)).dtype == np.float32


def test_kernel_of_many_stumps_comes_near_its_limit(rows):
    kernel = StumpMap(40_000).fit(rows).kernel_
    spans = np.where(np.ptp(rows, axis=0) > 0, np.ptp(rows, axis=0), 1)
    expected = 1 - (np.abs(rows[:, None] - rows) / spans).mean(axis=2)
    assert np.abs(kernel(rows) - expected).max() < 5 / np.sqrt(40_000)


@pytest.mark.parametrize("map_", MAPS[:2], ids=name_of)
def test_sparse_rows_are_dense_rows(map_, rows):
    thin = np.where(np.random.default_rng(3).random(rows.shape) < 0.7, 0, rows)
    twice = sparse.csr_array(thin)
    # Halves of the same entry, in rows that are not sorted.
    halves = sparse.coo_array(
        (np.tile(twice.data / 2, 2), (np.tile(twice.tocoo().row, 2), np.tile(twice.tocoo().col, 2))),
        thin.shape,
    )
    dense = map_.fit(thin)
    expected = dense.transform(thin)
    for given_rows in (twice, halves, sparse.csc_matrix(thin)):
        np.testing.assert_array_equal(dense.transform(given_rows), expected)
        np.testing.assert_array_equal(map_.fit(given_rows).transform(given_rows), expected)


@pytest.mark.parametrize("map_", MAPS, ids=name_of)
def test_threads_and_pickles_change_nothing(map_, rows):
    many = np.tile(rows, (15, 1))
    fitted = map_.set_params(n_jobs=1).fit(many)
    one = fitted.transform(many)
    np.testing.assert_array_equal(fitted.set_params(n_jobs=3).transform(many), one)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(many), one)
    assert one.shape[1] == len(fitted.get_feature_names_out())


@parametrize_with_checks(
    [StumpMap(70), BinaryProjectionMap(70), BinaryProjectionMap(70, base=FourierMap(n_components=8))]
)
def test_scikit_learn_is_content(estimator, check):
    if check.func.__name__.startswith("check_estimator_sparse") and estimator.get_params().get("base"):
        pytest.skip("a Fourier map takes no sparse rows")
    check(estimator)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_missing_numbers_are_named(make, bad, rows):
    X = rows.copy()
    X[2, 5] = bad
    with pytest.raises(DataError, match=r"StumpMap: X holds NaN or infinity.*row 2, column 5"):
        StumpMap().fit(make(X))


def test_wide_ranges_do_not_overflow():
    X = np.array([[-1.7e308, 0.0], [1.7e308, 1e-300]])
    stumps = StumpMap(50).fit(X).questions_
    assert np.isfinite(stumps.thresholds).all()
    assert unpack(StumpMap(50).fit_transform(X), 50).tolist() == [[False] * 50, [True] * 50]


def test_bad_parameters_and_bits(rows):
    with pytest.raises(UsageError, match="'n_maps' parameter of StumpMap must be an integer ≥ 1"):
        StumpMap(0).fit(rows)
    with pytest.raises(
        UsageError, match="'base' parameter of BinaryProjectionMap must be None or a transformer"
    ):
        BinaryProjectionMap(base="fourier").fit(rows)
    kernel = StumpMap(100).fit(rows).kernel_
    with pytest.raises(DataError, match="bits of 100 maps have 16 bytes a sample"):
        kernel.of_bits(np.zeros((3, 13), np.uint8), np.zeros((3, 16), np.uint8))
