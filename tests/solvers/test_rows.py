"""Rows of all kinds give the same scores and sums as a plain matrix, with any number of threads."""

import numpy as np
import pytest
from scipy import sparse

from tests.solvers.problems import codes_and_books
from visionkl.core.errors import DataError
from visionkl.solvers.rows import CodedRows, DenseRows, SparseRows, as_rows

N = 5000  # more than a band


def one_hot(codes, n_codewords):
    return np.concatenate([np.eye(n_codewords)[codes[:, m]] for m in range(codes.shape[1])], axis=1)


def cases():
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(N, 7))
    thin = sparse.random(N, 40, 0.1, random_state=0, format="csr")
    codes, _ = codes_and_books(N, 6, 11, 2)
    wide = codes.astype(np.uint16)
    return {
        "float64": (lambda j: DenseRows(dense, n_jobs=j), dense),
        "float32": (lambda j: DenseRows(dense.astype(np.float32), n_jobs=j), dense),
        "sparse": (lambda j: SparseRows(thin, n_jobs=j), thin.toarray()),
        "codes": (lambda j: CodedRows(codes, 11, n_jobs=j), one_hot(codes, 11)),
        "uint16": (lambda j: CodedRows(wide.T, 11, samples_last=True, n_jobs=j), one_hot(codes, 11)),
    }


@pytest.fixture(params=cases())
def case(request):
    return cases()[request.param]


def test_scores_and_sums(case):
    make, matrix = case
    rows = make(2)
    assert (rows.n_rows, rows.dim) == matrix.shape
    rng = np.random.default_rng(1)
    v, shares = rng.normal(size=(3, rows.dim)), rng.normal(size=(2, N))
    assert rows.scores(v) == pytest.approx(v @ matrix.T, abs=1e-4)
    assert rows.scores(v[0]) == pytest.approx(matrix @ v[0], abs=1e-4)
    assert rows.combine(shares) == pytest.approx(shares @ matrix, abs=2e-3)
    part = shares[:, 1000:4321]
    assert rows.combine(part, 1000) == pytest.approx(part @ matrix[1000:4321], abs=2e-3)


def test_threads_change_nothing(case):
    make, _ = case
    rng = np.random.default_rng(1)
    one, three = make(1), make(3)
    v, shares = rng.normal(size=one.dim), rng.normal(size=(1, N))
    assert (one.scores(v) == three.scores(v)).all()
    assert (one.combine(shares) == three.combine(shares)).all()


def test_rows_are_taken_as_they_come():
    assert isinstance(as_rows([[1, 2], [3, 4]]), DenseRows)
    assert isinstance(as_rows(sparse.eye(3)), SparseRows)
    rows = CodedRows(np.zeros((2, 1), np.uint8), 1)
    assert as_rows(rows) is rows


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: DenseRows(np.empty((0, 3))), "at least one of each"),
        (lambda: DenseRows([1.0, 2.0]), "must be a matrix"),
        (lambda: DenseRows([["a"]]), "must be numbers"),
        (lambda: DenseRows([[0.0], [np.nan]]), "Row 1 of the training data holds NaN"),
        (lambda: SparseRows(sparse.csr_array([[0.0, 0.0], [0.0, np.inf]])), "Row 1 of the training data"),
        (lambda: CodedRows(np.zeros((2, 2)), 4), "uint8 or uint16"),
        (lambda: CodedRows(np.full((2, 2), 4, np.uint8), 4), "reach 4, but there are 4 codewords"),
    ],
)
def test_bad_data_in_one_sentence(make, complaint):
    with pytest.raises(DataError, match=complaint):
        make()
