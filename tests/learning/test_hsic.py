"""HSIC against its definition, by Gram matrices and by features."""

import numpy as np
import pytest

from visionkl.core.errors import DataError
from visionkl.kernels.exact import Gaussian
from visionkl.kernels.fourier import FourierMap
from visionkl.learning.hsic import hsic, hsic_matrix, mapped_hsic_matrix


@pytest.fixture(scope="module")
def pairs():
    random = np.random.default_rng(0)
    X = random.normal(size=(301, 3))  # strips and bands are not all whole
    return X, np.sin(X[:, :2]) + 0.1 * random.normal(size=(301, 2))


def definition(K, G):
    m = len(K)
    H = np.eye(m) - 1 / m
    return np.trace(H @ K @ H @ G) / (m - 1) ** 2


def test_all_powers_against_the_definition(pairs):
    K, G = (Gaussian.of(rows)(rows) for rows in pairs)
    found = hsic_matrix(K, G, (5, 3))
    wanted = [[definition(K**i, G**j) for j in range(4)] for i in range(6)]
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-15)
    assert (found >= 0).all()
    assert not found[0].any()
    assert not found[:, 0].any()
    np.testing.assert_allclose(hsic(K, G), found[1, 1])


def test_threads_change_nothing(pairs):
    K, G = (Gaussian.of(rows)(rows) for rows in pairs)
    np.testing.assert_array_equal(hsic_matrix(K, G, n_jobs=1), hsic_matrix(K, G, n_jobs=3))


def test_a_constant_depends_on_nothing(pairs):
    K = Gaussian.of(pairs[0])(pairs[0])
    assert not hsic_matrix(K, np.ones_like(K), (2, 2)).any()
    assert not hsic_matrix(K, np.full_like(K, 0.7), (2, 2)).any()


def test_features_that_are_exact_give_the_same(pairs):
    X, Y = pairs
    maps = [[FourierMap(n_components=40, sigma=s, random_state=k).fit(rows) for k, s in enumerate((0.5, 1.0))]
            for rows in (X, Y)]  # fmt: skip
    mapped = [[one.transform(rows) for one in those] for those, rows in zip(maps, pairs, strict=True)]
    wanted = [[definition(a @ a.T, b @ b.T) for b in mapped[1]] for a in mapped[0]]
    found = mapped_hsic_matrix(maps[0], maps[1], X, Y)
    np.testing.assert_allclose(found[1:, 1:], wanted, rtol=1e-9)


def test_bad_matrices():
    with pytest.raises(DataError, match="K must be the square Gram matrix"):
        hsic(np.ones((3, 2)), np.ones((3, 3)))
    with pytest.raises(DataError, match="K is of 3 samples but G of 4"):
        hsic(np.eye(3), np.eye(4))
    with pytest.raises(DataError, match="NaN or infinity"):
        hsic(np.full((3, 3), np.nan), np.eye(3))
