"""What all maps promise: inner products near their kernel's, and manners of scikit-learn transformers."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from visionkl.core.errors import DataError
from visionkl.kernels.additive import SparseAdditiveMap
from visionkl.kernels.exact import Gaussian
from visionkl.kernels.fourier import FourierMap
from visionkl.kernels.homogeneous import HomogeneousMap
from visionkl.kernels.projection import KernelProjection
from visionkl.kernels.rbf import ExpChi2Map


class Laplacian:
    """A kernel of one's own. Its name is the same in all processes, which a function's is not."""

    def __call__(self, x, y):
        return np.exp(-np.abs(x - y))

    def __repr__(self):
        return "laplacian"


laplacian = Laplacian()


#: Each map with the largest error that its inner products may have, as a share of the kernel's largest value.
#: Random maps stay below 5/√d; the others' errors do not depend on chance.
MAPS = [
    (FourierMap(n_components=4096, sigma=1.5), 5 / 64),
    (FourierMap(n_components=4096, sigma=[2.0, 0.5], blocks=[3, 5], frequencies="orthogonal"), 5 / 64),
    (FourierMap(n_components=4096, frequencies="quasi"), 5 / 64),
    (FourierMap("skewed_chi2", n_components=4096, c=0.2), 5 / 64),
    (FourierMap("skewed_chi2", n_components=4096, frequencies="quasi"), 2 / 64),
    (FourierMap("skewed_intersection", n_components=4096, sigma=np.linspace(0.1, 0.5, 8)), 5 / 64),
    (HomogeneousMap("chi2", order=1), 0.03),
    (HomogeneousMap("chi2", order=5), 5e-3),
    (HomogeneousMap("intersection", order=1), 0.2),
    (HomogeneousMap("intersection", order=10), 0.06),
    (HomogeneousMap("jensen_shannon", order=1), 0.015),
    (HomogeneousMap("jensen_shannon", order=5), 5e-3),
    (SparseAdditiveMap("intersection", n_points=32), 0.04),
    (SparseAdditiveMap("chi2", n_points=32), 0.02),
    (SparseAdditiveMap("hellinger", n_points=8), 1e-12),
    (SparseAdditiveMap(laplacian, n_points=32), 0.01),
    (KernelProjection(n_representatives=120), 0.02),
    (KernelProjection("chi2", n_representatives=120), 0.02),
    (KernelProjection(Gaussian(1.0), n_representatives=60, coordinates="raw"), 0.02),
    (KernelProjection(Gaussian(0.5), n_representatives=60, n_components=30), 0.02),
    (KernelProjection(Gaussian(0.5), n_representatives=100, method="omp", n_nonzero=12), 0.01),
    (KernelProjection(Gaussian(0.5), n_representatives=100, method="nearest", n_nonzero=12), 0.02),
    (ExpChi2Map(4096, order=2), 5 / 64),
]


def name_of(value):
    return repr(value).replace("\n", "")[:80] if hasattr(value, "fit") else ""


@pytest.fixture(scope="module")
def rows():
    """Histograms of sum 1 with some zeros, in float64."""
    random = np.random.default_rng(0)
    X = random.random((120, 8)) ** 2 * (random.random((120, 8)) > 0.1)
    X[:, -1] = 0.25  # a constant column is nothing special
    return X / X.sum(axis=1, keepdims=True)


def inner_products(fitted, mapped):
    """Inner products as the map means them: plain, or through the Gram matrix of its coordinates."""
    if isinstance(fitted, SparseAdditiveMap):
        return mapped @ fitted.kernel_product(mapped.toarray()).T
    if isinstance(fitted, KernelProjection) and fitted._is_raw():
        return mapped @ (mapped @ fitted.gram_).T
    return mapped @ mapped.T


@pytest.mark.parametrize(("map_", "bound"), MAPS, ids=name_of)
def test_inner_products_come_near_the_kernel(map_, bound, rows):
    fitted = clone(map_).fit(rows)
    K = fitted.kernel_(rows)
    error = np.abs(inner_products(fitted, fitted.transform(rows)) - K).max()
    assert error < bound * K.max()


@pytest.mark.parametrize(("map_", "bound"), MAPS, ids=name_of)
def test_single_precision_and_threads(map_, bound, rows):
    single = rows.astype(np.float32)
    fitted = clone(map_).set_params(n_jobs=1).fit(single)
    many = np.tile(single, (20, 1))
    one = fitted.transform(many)
    three = fitted.set_params(n_jobs=3).transform(many)
    assert one.dtype == three.dtype == np.float32
    dense = (lambda M: M.toarray()) if sparse.issparse(one) else np.asarray
    np.testing.assert_array_equal(dense(one), dense(three))
    assert one.shape == (2400, len(fitted.get_feature_names_out()))
    K = fitted.kernel_(rows)
    error = np.abs(inner_products(fitted, fitted.transform(single)) - K).max()
    assert error < (bound + 1e-4) * K.max()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(dense(again.transform(single)), dense(fitted.transform(single)))


@parametrize_with_checks(
    [
        FourierMap(n_components=20),
        HomogeneousMap(),
        SparseAdditiveMap(n_points=4),
        SparseAdditiveMap(laplacian, n_points=4),
        KernelProjection(n_representatives=5),
        KernelProjection("chi2", n_representatives=5, method="omp", n_nonzero=2),
        ExpChi2Map(20),
    ]
)
@pytest.mark.filterwarnings("ignore:KernelProjection. 5 representatives")
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "map_", [HomogeneousMap(), SparseAdditiveMap(), KernelProjection("chi2"), ExpChi2Map()], ids=name_of
)
def test_negative_values_name_their_column(map_, rows):
    X = rows.copy()
    X[7, 3] = -1.5
    complaint = type(map_).__name__ + r": Negative values in data: X holds -1\.5 in row 7, column 3"
    with pytest.raises(DataError, match=complaint):
        clone(map_).fit(X)
    with pytest.raises(DataError, match=complaint):
        clone(map_).fit(rows).transform(X)


@pytest.mark.parametrize("map_", [entry[0] for entry in MAPS[::4]], ids=name_of)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_missing_numbers_are_named(map_, bad, rows):
    X = rows.copy()
    X[2, 5] = bad
    with pytest.raises(DataError, match="row 2, column 5"):
        clone(map_).fit(X)
