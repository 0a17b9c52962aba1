"""Learning codewords: as good as scikit-learn's k-means, the same for any number of threads, well-behaved."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from visionkl.backend.cpu import kmeans
from visionkl.coding.pq import ProductQuantizer
from visionkl.core.errors import DataError, UsageError


@parametrize_with_checks([ProductQuantizer(n_codewords=4, block_size=1, max_iter=5)])
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def clustered():
    """3000 rows around 40 centres in 12 dimensions."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(40, 12))
    return (centres[random.integers(40, size=3000)] + 0.3 * random.normal(size=(3000, 12))).astype(np.float32)


def squared_error(quantizer, rows):
    return float(((rows - quantizer.inverse_transform(quantizer.transform(rows))) ** 2).sum())


@pytest.mark.parametrize(("n_blocks", "n_codewords"), [(1, 40), (3, 64)])
def test_as_good_as_scikit_learns_kmeans(clustered, n_blocks, n_codewords):
    ours = squared_error(ProductQuantizer(n_codewords, n_blocks=n_blocks).fit(clustered), clustered)
    size = 12 // n_blocks
    blocks = [clustered[:, i * size : (i + 1) * size] for i in range(n_blocks)]
    theirs = sum(KMeans(n_codewords, n_init=1, random_state=0).fit(block).inertia_ for block in blocks)
    assert ours < 1.1 * theirs


def test_batches_learn_nearly_as_well(clustered):
    whole = ProductQuantizer(50, n_blocks=2).fit(clustered)
    in_batches = ProductQuantizer(50, n_blocks=2, batch_size=500).fit(clustered)
    assert squared_error(in_batches, clustered) < 1.1 * squared_error(whole, clustered)


def test_as_many_codewords_as_different_rows_lose_nothing():
    rows = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    many = np.repeat(rows, 20, axis=0)
    quantizer = ProductQuantizer(30, n_blocks=2).fit(many)
    np.testing.assert_allclose(quantizer.inverse_transform(quantizer.transform(many)), many, atol=1e-6)


@pytest.mark.parametrize("settings", [{"n_blocks": 1}, {"n_blocks": 10}, {"n_blocks": 2, "batch_size": 700}])
def test_threads_do_not_change_codewords(clustered, settings):
    one = ProductQuantizer(16, n_jobs=1, **settings).fit(clustered[:, :10])
    two = ProductQuantizer(16, n_jobs=2, **settings).fit(clustered[:, :10])
    np.testing.assert_array_equal(one.codebooks_, two.codebooks_)


def test_seeds(clustered):
    def words(seed):
        return ProductQuantizer(16, block_size=4, max_iter=2, random_state=seed).fit(clustered).codebooks_

    np.testing.assert_array_equal(words(3), words(3))
    assert (words(3) != words(4)).any()
    np.testing.assert_array_equal(words(np.random.RandomState(5)), words(np.random.RandomState(5)))
    assert (words(None) != words(None)).any()


def test_more_rows_than_wanted_are_sampled(clustered):
    quantizer = ProductQuantizer(8, n_blocks=1, max_samples=500).fit(clustered)
    assert squared_error(quantizer, clustered) < 1.3 * squared_error(
        ProductQuantizer(8, n_blocks=1).fit(clustered), clustered
    )


@pytest.mark.parametrize(
    ("settings", "n_features", "shape"),
    [
        ({}, 32, (4, 4, 8)),
        ({}, 5, (1, 4, 5)),
        ({}, 31, (4, 4, 8)),
        ({"block_size": 4}, 10, (3, 4, 4)),
        ({"n_blocks": 3}, 10, (3, 4, 4)),
        ({"n_blocks": 2, "block_size": 5}, 10, (2, 4, 5)),
    ],
)
def test_blocks(settings, n_features, shape):
    rows = np.random.default_rng(0).normal(size=(50, n_features))
    quantizer = ProductQuantizer(4, **settings).fit(rows)
    assert quantizer.codebooks_.shape == shape
    assert quantizer.transform(rows).shape == (50, shape[0])
    assert quantizer.inverse_transform(quantizer.transform(rows)).shape == rows.shape
    assert quantizer.get_feature_names_out()[0] == "productquantizer0"
    past_the_end = shape[0] * shape[2] - n_features
    if past_the_end:
        assert not quantizer.codebooks_[-1, :, -past_the_end:].any()


def test_codewords_without_points_start_again():
    points = np.array([[0.0], [0.1], [10.0]], np.float32)
    words = np.array([[0.0], [50.0]], np.float32)
    counts, distances = np.zeros(2, np.int64), np.zeros(3, np.float32)
    error = kmeans.move_to_means(points, np.zeros(3, np.uint16), words, counts, distances)
    assert error == pytest.approx(100.01)
    assert counts.tolist() == [3, 0]
    kmeans.seed_again(points, distances, counts, words)
    assert words[:, 0].tolist() == pytest.approx([10.1 / 3, 10.0])


def test_seeds_are_different_points_until_there_are_no_more():
    points = np.repeat(np.arange(5, dtype=np.float32), 300)[None]
    seeds = np.empty(8, np.int64)
    assert kmeans.draw_seeds(points, np.random.default_rng(0).random((8, 1)), seeds) == 5
    assert sorted(points[0, seeds[:5]]) == [0, 1, 2, 3, 4]


def test_far_points_are_likelier_seeds():
    random = np.random.default_rng(0)
    points = np.append(np.zeros(999), 100.0).astype(np.float32)[None] + np.float32(1e-3) * random.normal(
        size=(1, 1000)
    ).astype(np.float32)
    drawn = np.empty(2, np.int64)
    for _ in range(20):
        kmeans.draw_seeds(points, random.random((2, 1)), drawn)
        assert 999 in drawn


def test_known_codewords(clustered):
    learned = ProductQuantizer(8, block_size=5).fit(clustered)
    known = ProductQuantizer.from_codebooks(learned.codebooks_, n_features=12)
    np.testing.assert_array_equal(known.transform(clustered), learned.transform(clustered))
    tables = np.ones((3, 8), np.float32)
    np.testing.assert_array_equal(known.kernel_product(tables), learned.kernel_product(tables))


def test_behaves_as_a_transformer(clustered):
    pipeline = make_pipeline(StandardScaler(), ProductQuantizer(8)).fit(clustered)
    codes = pipeline.transform(clustered)
    assert codes.dtype == np.uint8
    again = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(again.transform(clustered), codes)
    assert clone(pipeline[-1]).get_params() == pipeline[-1].get_params()
    in_double = ProductQuantizer(8).fit(clustered.astype(np.float64))
    assert in_double.inverse_transform(codes).dtype == np.float32


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"n_codewords": 0}, "'n_codewords' parameter of ProductQuantizer"),
        ({"n_codewords": 65537}, "between 1 and 65536"),
        ({"block_size": 0}, "'block_size'"),
        ({"block_size": 13}, "at most the number of features, 12"),
        ({"n_blocks": 13}, "make 12 blocks of 1, not 13"),
        ({"n_blocks": 5}, "make 4 blocks of 3, not 5"),
        ({"n_blocks": 2, "block_size": 4}, "make 3 blocks of 4, not 2"),
        ({"max_samples": 3, "n_codewords": 4}, "'max_samples'"),
        ({"batch_size": 0}, "'batch_size'"),
        ({"max_iter": 0}, "'max_iter'"),
        ({"tol": -1}, "'tol'"),
        ({"n_jobs": 0}, "'n_jobs'"),
    ],
)
def test_parameters_are_checked(settings, complaint, clustered):
    with pytest.raises(UsageError, match=complaint):
        ProductQuantizer(**{"n_codewords": 4, **settings}).fit(clustered)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (np.zeros((3, 12)), "n_samples = 3 rows are too few to learn 4 codewords"),
        (np.where(np.eye(12) > 0, np.nan, 0.0), "in row 0, column 0"),
        (np.full((9, 12), 1e300), "row 0, column 0"),
        (np.zeros(12), "not \\(12,\\)"),
        (scipy.sparse.csr_matrix(np.eye(12)), "sparse"),
        ([["a"] * 12] * 9, "no number"),
        (np.zeros((0, 12)), "0 sample"),
    ],
)
def test_rows_are_checked(rows, complaint):
    with pytest.raises(DataError, match=complaint):
        ProductQuantizer(4).fit(rows)


def test_rows_of_another_width_are_refused(clustered):
    quantizer = ProductQuantizer(4).fit(clustered)
    with pytest.raises(DataError, match="X has 11 features, but ProductQuantizer is expecting 12"):
        quantizer.transform(clustered[:, :11])


def test_a_warning_where_codewords_must_repeat(clustered):
    rows = clustered.copy()
    rows[:, 4:8] = 1  # a block that is constant
    with pytest.warns(UserWarning, match="block 1 has only 1 different rows for 6 codewords"):
        quantizer = ProductQuantizer(6, block_size=4).fit(rows)
    decoded = quantizer.inverse_transform(quantizer.transform(rows))
    np.testing.assert_array_equal(decoded[:, 4:8], 1)
