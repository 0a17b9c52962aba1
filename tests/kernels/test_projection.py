"""Projections on representatives: Nyström against scikit-learn, sparse ones against dense linear algebra."""

import numpy as np
import pytest
from sklearn.kernel_approximation import Nystroem

from visionkl.core.errors import DataError, UsageError
from visionkl.kernels.exact import Chi2, Gaussian
from visionkl.kernels.projection import KernelProjection


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).random((300, 4))


def residuals(fitted, X):
    """Squared distance, in the kernel's space, of samples from their sparse projections."""
    coefficients = fitted.transform(X).toarray()
    similar = fitted.kernel_(X, fitted.representatives_)
    explained = 2 * (coefficients * similar).sum(axis=1)
    return fitted.kernel_.diagonal(X) - explained + ((coefficients @ fitted.gram_) * coefficients).sum(axis=1)


def test_scikit_learns_nystroem_on_the_same_representatives(rows):
    ours = KernelProjection(Gaussian(np.sqrt(2 * 3.0)), n_representatives=40).fit(rows)
    theirs = Nystroem("rbf", gamma=3.0, n_components=40)
    mapped = theirs.fit(ours.representatives_).transform(rows)
    np.testing.assert_allclose(ours.transform(rows) @ ours.transform(rows).T, mapped @ mapped.T, atol=1e-8)


@pytest.mark.parametrize("source", ["random", "kmeans", "given"])
def test_representatives_are_mapped_exactly(source, rows):
    given = rows[:30] if source == "given" else source
    fitted = KernelProjection(Gaussian(3.0), n_representatives=30, representatives=given).fit(rows)
    Z = fitted.representatives_
    assert Z.shape == (30, 4)
    mapped = fitted.transform(np.concatenate([rows, Z]))
    np.testing.assert_allclose(
        mapped @ mapped[-30:].T, fitted.kernel_(np.concatenate([rows, Z]), Z), atol=1e-7
    )


def test_raw_coordinates_are_the_same_projection(rows):
    settings = {"kernel": Gaussian(3.0), "n_representatives": 30}
    plain = KernelProjection(**settings).fit_transform(rows)
    raw = KernelProjection(**settings, coordinates="raw").fit(rows)
    mapped = raw.transform(rows)
    np.testing.assert_allclose(mapped @ raw.gram_ @ mapped.T, plain @ plain.T, atol=1e-9)
    K = raw.kernel_(rows, raw.representatives_)
    np.testing.assert_allclose(mapped, K @ np.linalg.pinv(raw.gram_), atol=1e-6)


def test_principal_directions_come_first(rows):
    whole = KernelProjection(Gaussian(2.0), n_representatives=50).fit(rows)
    few = KernelProjection(Gaussian(2.0), n_representatives=50, n_components=10).fit(rows)
    assert (np.diff(whole.eigenvalues_) <= 0).all()
    np.testing.assert_allclose(few.transform(rows), whole.transform(rows)[:, :10], atol=1e-10)


def test_twins_among_the_representatives(rows):
    twice = np.concatenate([rows[:20], rows[:20]])
    fitted = KernelProjection(Gaussian(3.0), representatives=twice).fit(rows)
    assert fitted.transform(rows).shape[1] == 20
    for method in ("nearest", "omp"):
        sparse = KernelProjection(Gaussian(3.0), representatives=twice, method=method, n_nonzero=40).fit(rows)
        mapped = sparse.transform(rows)
        plain = fitted.transform(rows)
        inner = mapped @ (mapped @ sparse.gram_).T
        np.testing.assert_allclose(inner, plain @ plain.T, atol=1e-6)


@pytest.mark.parametrize("kernel", [Gaussian(2.0), Chi2()], ids=["gaussian", "chi2"])
def test_more_representatives_explain_more_and_pursuit_explains_most(kernel, rows):
    error = {
        (method, n): residuals(
            KernelProjection(kernel, n_representatives=60, method=method, n_nonzero=n).fit(rows), rows
        )
        for method in ("nearest", "omp")
        for n in (1, 2, 4, 8)
    }
    for method in ("nearest", "omp"):
        for less, more in ((1, 2), (2, 4), (4, 8)):
            assert (error[method, more] <= error[method, less] + 1e-9).all()
    for n in (2, 4, 8):
        assert error["omp", n].mean() <= error["nearest", n].mean()


def reference_pursuit(k_x, gram, n_nonzero):
    chosen, left = [], k_x.copy()
    for _ in range(n_nonzero):
        share = np.abs(left) / np.sqrt(np.diag(gram))
        share[chosen] = -1
        chosen.append(int(np.argmax(share)))
        weights = np.linalg.solve(gram[np.ix_(chosen, chosen)], k_x[chosen])
        left = k_x - gram[:, chosen] @ weights
    row = np.zeros(len(gram))
    row[chosen] = weights
    return row


def test_pursuit_step_by_step(rows):
    fitted = KernelProjection(Chi2(), n_representatives=40, method="omp", n_nonzero=4).fit(rows)
    K = fitted.kernel_(rows, fitted.representatives_)
    expected = [reference_pursuit(k_x, fitted.gram_, 4) for k_x in K]
    is_one = np.isin(rows, fitted.representatives_).all(axis=1)  # explained by themselves: ties follow
    np.testing.assert_allclose(
        fitted.transform(rows).toarray()[~is_one], np.array(expected)[~is_one], atol=1e-7
    )


def test_nearest_step_by_step(rows):
    fitted = KernelProjection(Gaussian(2.0), n_representatives=40, method="nearest", n_nonzero=3).fit(rows)
    mapped = fitted.transform(rows).toarray()
    K, gram = fitted.kernel_(rows, fitted.representatives_), fitted.gram_
    for row, k_x in zip(mapped, K, strict=True):
        nearest = np.argsort(np.diag(gram) - 2 * k_x, kind="stable")[:3]
        expected = np.zeros(40)
        expected[nearest] = np.linalg.solve(gram[np.ix_(nearest, nearest)], k_x[nearest])
        np.testing.assert_allclose(row, expected, atol=1e-8)


def test_a_function_as_kernel_and_few_rows(rows):
    with pytest.warns(UserWarning, match="500 representatives were asked for, but there are 300 rows"):
        fitted = KernelProjection(lambda A, B: A @ B.T, n_representatives=500).fit(rows)
    mapped = fitted.transform(rows)
    assert mapped.shape == (300, 4)
    np.testing.assert_allclose(mapped @ mapped.T, rows @ rows.T, atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "error", "complaint"),
    [
        ({"method": "lasso"}, UsageError, "'method' parameter of KernelProjection"),
        ({"coordinates": "polar"}, UsageError, "'coordinates'"),
        ({"method": "omp", "coordinates": "orthonormal"}, UsageError, "must be 'raw' with method='omp'"),
        ({"representatives": "best"}, UsageError, "'representatives'"),
        ({"n_representatives": 0}, UsageError, "'n_representatives'"),
        ({"n_nonzero": 0}, UsageError, "'n_nonzero'"),
        ({"n_components": 0}, UsageError, "'n_components'"),
        ({"kernel": "rbf"}, UsageError, "'kernel' parameter of KernelProjection"),
        ({"representatives": np.ones((3, 5))}, DataError, "have 5 features but X has 4"),
        ({"representatives": np.zeros((3, 4)), "kernel": "chi2"}, DataError, "nothing can be projected"),
        ({"representatives": -np.ones((3, 4)), "kernel": "chi2"}, DataError, "column 0"),
    ],
)
def test_bad_parameters_in_one_sentence(settings, error, complaint, rows):
    with pytest.raises(error, match=complaint):
        KernelProjection(**settings).fit(rows)
