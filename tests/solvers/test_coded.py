"""Rows of codes with codebooks: the same scores, sums and inner products as the decoded matrix."""

import numpy as np
import pytest

from tests.solvers.problems import codes_and_books, decode
from visionkl.core.errors import DataError
from visionkl.solvers import coded
from visionkl.solvers.coded import DecodingRows, TableRows, decoded_rows
from visionkl.solvers.linear import DualRows, dual_svm, gram_matrix
from visionkl.solvers.rows import CodedRows, DenseRows, SparseRows

KINDS = [TableRows, DecodingRows]


@pytest.fixture
def small_pieces(monkeypatch):
    """Cut data of a few hundred rows into as many pieces as large ones."""
    for name, size in {"_CHUNK": 130, "_BAND": 50, "_LEAST_BLOCKS": 6, "_TILE": 4, "_PANEL": 9}.items():
        monkeypatch.setattr(coded, name, size)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 2, 16, 20, 40])
@pytest.mark.parametrize("n_blocks", [1, 7, 21])
def test_as_the_decoded_matrix(kind, k, n_blocks):
    codes, books = codes_and_books(301, n_blocks, 11, 3)
    random = np.random.default_rng(1)
    X, rows = decode(codes, books), kind(codes, books)
    v, shares = random.normal(size=(k, rows.dim)), random.normal(size=(k, 150))
    shares[:, ::3] = 0
    np.testing.assert_allclose(rows.scores(v), v @ X.T, atol=1e-4)
    np.testing.assert_allclose(rows.scores(v[0]), X @ v[0], atol=1e-4)
    np.testing.assert_allclose(rows.combine(shares, 100), shares @ X[100:250], atol=1e-4)
    np.testing.assert_allclose(decoded_rows(rows).X, X, atol=1e-6)
    np.testing.assert_allclose(gram_matrix(rows), X @ X.T, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_codes_of_two_bytes(kind):
    random = np.random.default_rng(0)
    books = random.normal(size=(5, 400, 2))
    codes = random.integers(0, 400, (90, 5)).astype(np.uint16)
    rows, X = kind(codes, books), decode(codes, books)
    v = random.normal(size=(3, 10))
    np.testing.assert_allclose(rows.scores(v), v @ X.T, atol=1e-4)
    np.testing.assert_allclose(rows.combine(np.ones((3, 90))), np.ones((3, 90)) @ X, atol=1e-3)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_gives_what_memory_does_and_threads_change_nothing(kind, tmp_path):
    codes, books = codes_and_books(301, 21, 11, 3)
    np.save(tmp_path / "codes.npy", codes)
    stored = np.load(tmp_path / "codes.npy", mmap_mode="r")
    random = np.random.default_rng(0)
    one, two, in_file = kind(codes, books, n_jobs=1), kind(codes, books, n_jobs=2), kind(stored, books)
    assert in_file.mapped
    assert not one.mapped
    for k in (1, 20):
        v, shares = random.normal(size=(k, one.dim)), random.normal(size=(k, 301))
        for other in (two, in_file):
            np.testing.assert_array_equal(other.scores(v), one.scores(v))
            np.testing.assert_array_equal(other.combine(shares), one.combine(shares))
            np.testing.assert_array_equal(gram_matrix(other), gram_matrix(one))


def test_descent_decodes_as_it_goes():
    codes, books = codes_and_books(200, 4, 8, 2)
    y = np.sign(np.random.default_rng(0).normal(size=200))
    settings = {"regularisation": 1e-2, "tol": 1e-6}
    tables = dual_svm(TableRows(codes, books), y, **settings)
    older = dual_svm(CodedRows(codes, 8), y, codebooks=books, **settings)
    assert tables.primal == pytest.approx(older.primal, rel=1e-5)
    assert DualRows(TableRows(codes, books)).n_features == 8


@pytest.mark.parametrize("kind", [DenseRows, SparseRows])
def test_inner_products_of_other_rows(kind):
    X = np.random.default_rng(0).normal(size=(50, 7))
    from scipy import sparse

    np.testing.assert_allclose(gram_matrix(kind(X if kind is DenseRows else sparse.csr_array(X))), X @ X.T)


@pytest.mark.parametrize("kind", KINDS)
def test_codes_of_other_codebooks(kind):
    codes, books = codes_and_books(20, 4, 8, 2)
    with pytest.raises(DataError, match="do not belong"):
        kind(codes, books[:3])
    with pytest.raises(DataError, match="reach 7"):
        kind(codes, books[:, :7])
    with pytest.raises(DataError, match="uint8 or uint16"):
        kind(codes.astype(int), books)
