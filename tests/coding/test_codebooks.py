"""Codes against a search that computes every distance, and their kernel against decoded vectors."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visionkl.backend.cpu.pq import encode, make_codebook
from visionkl.coding.codebooks import Codebooks, as_codebooks
from visionkl.core.errors import DataError, UsageError


def distances(points, words):
    """Squared distances `(n, n_codewords)` in double precision, one difference at a time."""
    return ((points[:, None].astype(np.float64) - words[None].astype(np.float64)) ** 2).sum(axis=2)


def check_nearest(points, words):
    """The search must find the smallest distance, up to the rounding of double precision."""
    codes = np.zeros((1, len(points)), np.uint16)
    encode(points[None], np.arange(words.shape[1]), make_codebook(words), codes)
    all_distances = distances(points, words)
    found = all_distances[np.arange(len(points)), codes[0]]
    smallest = all_distances.min(axis=1)
    np.testing.assert_array_less(found, smallest * (1 + 1e-12) + 1e-300)
    clear = (all_distances <= smallest[:, None] * (1 + 1e-12)).sum(axis=1) == 1
    np.testing.assert_array_equal(codes[0, clear], all_distances.argmin(axis=1)[clear])


@given(
    st.integers(1, 50),
    st.integers(1, 70),
    st.integers(1, 40),
    st.sampled_from([1e-20, 1e-3, 1.0, 1e6, 1e18]),
    st.sampled_from([0.0, 1.0, 1000.0]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, deadline=None)
def test_codewords_are_the_nearest(n, n_words, size, scale, offset, seed):
    random = np.random.default_rng(seed)
    words = ((random.normal(size=(n_words, size)) + offset) * scale).astype(np.float32)
    points = ((random.normal(size=(n, size)) + offset) * scale).astype(np.float32)
    points[::3] = words[random.integers(n_words, size=len(points[::3]))]  # some lie on codewords
    points[::7] *= 100  # and some far away
    check_nearest(points, words)


@given(st.integers(1, 40), st.integers(2, 30), st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_of_equally_near_codewords_the_first_is_taken(n, n_words, size, seed):
    random = np.random.default_rng(seed)
    words = random.integers(0, 3, (n_words, size)).astype(np.float32)  # many are equal, many equally far
    points = random.integers(0, 5, (n, size)).astype(np.float32) / 2
    codes = Codebooks(words[None]).encode(points, n_jobs=1)
    np.testing.assert_array_equal(codes[:, 0], distances(points, words).argmin(axis=1))


def test_nearly_equal_distances_are_told_apart():
    # Each point lies between two codewords, nearer to one by less than the search's first step can see.
    random = np.random.default_rng(0)
    words = random.normal(size=(256, 32)).astype(np.float32)
    pairs = random.integers(256, size=(2000, 2))
    share = np.float32(0.5) + random.uniform(-1e-5, 1e-5, (2000, 1)).astype(np.float32)
    check_nearest(words[pairs[:, 0]] * share + words[pairs[:, 1]] * (1 - share), words)


def test_codewords_that_are_all_equal():
    assert Codebooks(np.full((1, 5, 3), 7.0)).encode(np.zeros((4, 3), np.float32)).tolist() == [[0]] * 4


def test_very_large_and_very_small_numbers():
    words = np.array([[-3e38, 1], [3e38, 1], [0, 1e-40]], np.float32)
    points = np.array([[-2e38, 0], [2.5e38, 0], [1, 0]], np.float32)
    assert Codebooks(words[None]).encode(points).tolist() == [[0], [1], [2]]
    tiny = np.array([[0.0], [1e-44], [3e-44]], np.float32)
    assert Codebooks(tiny[None]).encode(tiny).tolist() == [[0], [1], [2]]


@pytest.mark.parametrize(("n_words", "dtype"), [(2, np.uint8), (256, np.uint8), (257, np.uint16)])
def test_codes_are_as_short_as_they_can_be(n_words, dtype):
    words = np.arange(n_words, dtype=np.float32).reshape(1, n_words, 1)
    codes = Codebooks(words).encode(words[0])
    assert codes.dtype == dtype
    assert codes[:, 0].tolist() == list(range(n_words))


def test_65536_codewords():
    words = np.random.default_rng(0).normal(size=(65536, 2)).astype(np.float32)
    codes = Codebooks(words[None]).encode(words[::97])
    np.testing.assert_array_equal(codes[:, 0], np.arange(0, 65536, 97))


def test_blocks_are_coded_on_their_own_and_the_last_may_be_shorter():
    random = np.random.default_rng(0)
    words = random.normal(size=(3, 20, 4)).astype(np.float32)
    words[2, :, 2:] = 0
    vectors = random.normal(size=(7, 5, 10)).astype(np.float32)
    books = Codebooks(words, n_features=10)
    codes = books.encode(vectors)
    assert codes.shape == (7, 5, 3)
    for block, last in enumerate((4, 8, 10)):
        first = 4 * block
        expected = distances(vectors[..., first:last].reshape(35, -1), words[block, :, : last - first])
        np.testing.assert_array_equal(codes[..., block].ravel(), expected.argmin(axis=1))
    decoded = books.decode(codes)
    assert decoded.shape == vectors.shape
    assert decoded.dtype == np.float32
    np.testing.assert_array_equal(decoded[3, 2, 8:], words[2, codes[3, 2, 2], :2])


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_threads_do_not_change_codes(n_jobs):
    random = np.random.default_rng(0)
    books = Codebooks(random.normal(size=(2, 30, 3)))
    vectors = random.normal(size=(9000, 6)).astype(np.float32)
    np.testing.assert_array_equal(books.encode(vectors, n_jobs), books.encode(vectors[::-1], 1)[::-1])


def test_views_are_encoded_into_views():
    random = np.random.default_rng(0)
    books = Codebooks(random.normal(size=(2, 30, 4)))
    level = random.normal(size=(9, 11, 8)).astype(np.float32)
    level.flags.writeable = False
    codes = np.full((9, 11, 2), 99, np.uint8)
    books.encode_into(level[2:-3, 1:-4], codes[2:-3, 1:-4])
    np.testing.assert_array_equal(codes[2:-3, 1:-4], books.encode(level[2:-3, 1:-4]))
    assert (codes[:2] == 99).all()
    assert (codes[:, -4:] == 99).all()


def test_nothing_to_encode():
    books = Codebooks(np.zeros((2, 3, 4)))
    assert books.encode(np.zeros((0, 8), np.float32)).shape == (0, 2)
    assert books.decode(np.zeros((0, 2), np.uint8)).shape == (0, 8)


@pytest.mark.parametrize("shape", [(2, 5), (2, 5, 1), (2, 5, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernel_products_are_those_of_the_explicit_kernel(shape, dtype):
    random = np.random.default_rng(0)
    books = Codebooks(random.normal(size=(2, 5, 4)))
    tables = random.normal(size=shape).astype(dtype)
    expected = np.stack([(z @ z.T) @ a for z, a in zip(books.words.astype(np.float64), tables, strict=True)])
    product = books.kernel_product(tables)
    assert product.dtype == dtype
    np.testing.assert_allclose(product, expected, rtol=1e-4, atol=1e-5)


def test_the_kernel_of_codes_is_the_inner_product_of_decoded_vectors():
    random = np.random.default_rng(0)
    books = Codebooks(random.normal(size=(3, 6, 2)))
    a, b = random.integers(6, size=(2, 3))
    map_of_a = np.zeros((3, 6))
    map_of_a[np.arange(3), a] = 1
    by_table = books.kernel_product(map_of_a)[np.arange(3), b].sum()
    assert by_table == pytest.approx(float(books.decode(a) @ books.decode(b)), rel=1e-5)


@pytest.mark.parametrize(
    ("words", "n_features", "complaint"),
    [
        (np.zeros((4, 3)), None, "have the shape"),
        (np.zeros((1, 0, 3)), None, "have the shape"),
        (np.full((1, 2, 3), np.nan), None, "NaN"),
        (np.zeros((1, 65537, 1)), None, "at most 65536"),
        (np.zeros((2, 3, 4)), 9, None),
        (np.zeros((2, 3, 4)), 4, "between 5 and 8"),
        (np.ones((2, 3, 4)), 7, "zero past the last feature"),
    ],
)
def test_codewords_are_checked(words, n_features, complaint):
    with pytest.raises((DataError, UsageError), match=complaint):
        Codebooks(words, n_features)


@pytest.mark.parametrize(
    ("codes", "complaint"),
    [
        ([[0.5, 0]], "integers"),
        ([[0, 1, 2]], "2 blocks"),
        ([[0, 3]], r"0\.\.2; these span 0\.\.3"),
        ([[-1, 0]], "span -1"),
        (3, "2 blocks"),
    ],
)
def test_codes_are_checked(codes, complaint):
    with pytest.raises(DataError, match=complaint):
        Codebooks(np.zeros((2, 3, 4))).decode(codes)


def test_vectors_and_tables_are_checked():
    books = Codebooks(np.zeros((2, 3, 4)))
    with pytest.raises(DataError, match="8 features"):
        books.encode(np.zeros((5, 7), np.float32))
    with pytest.raises(DataError, match=r"\(2, 3\)"):
        books.kernel_product(np.zeros((3, 2)))
    with pytest.raises(UsageError, match="call fit first"):
        as_codebooks(object())
    assert as_codebooks(books) is books


@pytest.mark.slow
def test_processors_without_these_instructions_find_the_same(tmp_path):
    program = (
        "import numpy as np; from visionkl.coding.codebooks import Codebooks; "
        "r = np.random.default_rng(0); books = Codebooks(r.normal(size=(1, 40, 7))); "
        "print(books.encode(r.normal(size=(100, 7)).astype(np.float32), 1).ravel().tolist())"
    )
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    answers = [
        subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=True).stdout
        for more in ({}, generic)
    ]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("n_features", [12, 10])
def test_features_in_another_order(n_features):
    """An order of the features changes which go together, and nothing that a user sees."""
    rng = np.random.default_rng(0)
    order = rng.permutation(n_features)
    words = rng.normal(size=(3, 20, 4)).astype(np.float32)
    words[-1, :, 4 - (12 - n_features) :] = 0 if n_features < 12 else words[-1, :, 4:]
    plain, ordered = Codebooks(words, n_features), Codebooks(words, n_features, order)
    vectors = rng.normal(size=(50, n_features)).astype(np.float32)
    codes = ordered.encode(vectors)
    np.testing.assert_array_equal(codes, plain.encode(vectors[:, order]))
    np.testing.assert_array_equal(ordered.decode(codes)[:, order], plain.decode(codes))
    weights = rng.normal(size=n_features)
    tables = ordered.tables(weights)
    scores = tables[np.arange(3), codes].sum(axis=1)
    np.testing.assert_allclose(scores, ordered.decode(codes) @ weights, atol=1e-5)
    histogram = np.zeros((3, 20))
    for block in range(3):
        np.add.at(histogram[block], codes[:, block], 0.5)
    np.testing.assert_allclose(
        ordered.totals(histogram), 0.5 * ordered.decode(codes).sum(axis=0, dtype=np.float64), rtol=1e-5
    )
    with pytest.raises(DataError, match="each of the"):
        Codebooks(words, n_features, np.zeros(n_features, int))
