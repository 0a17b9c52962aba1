"""Twin kernel transforms: singular vectors, any kernels, features for Gram matrices, bad input."""

import warnings

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from visionkl.core.errors import DataError, UsageError
from visionkl.kernels.exact import KERNELS, Gaussian
from visionkl.learning.hsic import hsic
from visionkl.learning.twin_kernels import TwinKernelTransform, most_dependent


@pytest.fixture(scope="module")
def pairs():
    random = np.random.default_rng(0)
    X = random.uniform(0, 1, size=(200, 3))
    return X, np.abs(np.sin(5 * X[:, :2])) + 0.05 * random.uniform(size=(200, 2))


@parametrize_with_checks([TwinKernelTransform((2, 3))])
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", KERNELS)
def test_polynomials_are_the_first_singular_vectors(pairs, name):
    X, Y = pairs
    twins = TwinKernelTransform((4, 3), input_kernel=name, output_kernel=name).fit(X, Y)
    C = twins.hsic_
    left, values, right = np.linalg.svd(C)
    for found, vector in ((twins.alpha_, left[:, 0]), (twins.beta_, right[0])):
        assert (found >= 0).all()
        assert np.linalg.norm(found) == pytest.approx(1)
        np.testing.assert_allclose(found, vector * np.sign(vector.sum()), atol=1e-8)
    # What was promised is what the learned kernels have.
    assert hsic(twins.input_kernel_(X), twins.output_kernel_(Y)) == pytest.approx(values[0], rel=1e-8)


def test_no_other_polynomials_depend_more(pairs):
    X, Y = pairs
    twins = TwinKernelTransform((5, 5)).fit(X, Y)
    best = twins.alpha_ @ twins.hsic_ @ twins.beta_
    random = np.random.default_rng(1)
    for _ in range(50):
        a, b = np.abs(random.normal(size=(2, 6)))
        assert a @ twins.hsic_ @ b / np.linalg.norm(a) / np.linalg.norm(b) <= best * (1 + 1e-12)


def test_degree_one_leaves_kernels_as_they_are(pairs):
    twins = TwinKernelTransform((1, 1)).fit(*pairs)
    assert twins.alpha_.tolist() == twins.beta_.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("way", "kernel"), [("fourier", "gaussian"), ("nystroem", "gaussian"), ("nystroem", "chi2")]
)
def test_features_find_nearly_the_same_polynomials(pairs, way, kernel):
    X, Y = (np.tile(rows, (3, 1)) for rows in pairs)
    settings = {"input_kernel": kernel, "output_kernel": kernel}
    exact = TwinKernelTransform((5, 5), approximation="exact", **settings).fit(X, Y)
    near = TwinKernelTransform((5, 5), approximation=way, n_components=200, **settings).fit(X, Y)
    assert exact.alpha_ @ near.alpha_ > 0.99
    assert exact.beta_ @ near.beta_ > 0.99
    np.testing.assert_allclose(near.hsic_[1, 1], exact.hsic_[1, 1], rtol=0.15)


def test_many_samples_go_to_features(monkeypatch, pairs):
    from visionkl.learning import twin_kernels

    monkeypatch.setattr(twin_kernels, "_MOST_EXACT", 100)
    monkeypatch.setattr(twin_kernels, "scaled_hsic_matrix", None)  # must not be called
    for kernel in ("gaussian", "chi2"):
        twins = TwinKernelTransform((3, 3), input_kernel=kernel, n_components=50).fit(*pairs)
        assert (twins.alpha_ >= 0).all()


def test_it_goes_before_estimators_of_precomputed_kernels(pairs):
    X, Y = pairs
    model = make_pipeline(TwinKernelTransform((3, 3)), KernelRidge(kernel="precomputed", alpha=1e-3)).fit(
        X, Y
    )
    assert model.score(X, Y) > 0.9


def test_float32_stays(pairs):
    X, Y = (rows.astype(np.float32) for rows in pairs)
    twins = TwinKernelTransform((2, 2)).fit(X, Y)
    assert twins.transform(X).dtype == np.float32


def test_constant_outputs_leave_kernels_as_they_are(pairs):
    with pytest.warns(UserWarning, match="do not depend on inputs at all"):
        twins = TwinKernelTransform((3, 3)).fit(pairs[0], np.ones(200))
    assert twins.alpha_.tolist() == [0, 1, 0, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TwinKernelTransform((1, 1)).fit(pairs[0], np.ones(200))


def test_constant_features_do_no_harm(pairs):
    X, Y = pairs
    padded = np.column_stack([X, np.full(len(X), 7.0)])
    kernel = Gaussian(1.0)
    plain = TwinKernelTransform((3, 3), input_kernel=kernel).fit(X, Y)
    np.testing.assert_allclose(
        TwinKernelTransform((3, 3), input_kernel=kernel).fit(padded, Y).alpha_, plain.alpha_
    )


def test_scale_of_unbounded_kernels_does_not_matter(pairs):
    X, Y = pairs
    small = TwinKernelTransform((11, 11), input_kernel="linear", output_kernel="chi2").fit(X, Y)
    large = TwinKernelTransform((11, 11), input_kernel="linear", output_kernel="chi2").fit(1e6 * X, 1e-6 * Y)
    np.testing.assert_allclose(large.alpha_, small.alpha_, atol=1e-9)
    np.testing.assert_allclose(large.transform(1e6 * X), small.transform(X), rtol=1e-7)


def test_bad_input(pairs):
    X, Y = pairs
    for degrees in ((0, 3), (2, 1.5), 3, (1, 2, 3), "11"):
        with pytest.raises(ValueError, match="degrees"):
            TwinKernelTransform(degrees).fit(X, Y)
    with pytest.raises(UsageError, match="unless both kernels are gaussian"):
        TwinKernelTransform(input_kernel="chi2", approximation="fourier").fit(X, Y)
    with pytest.raises(UsageError, match="'approximation' parameter"):
        TwinKernelTransform(approximation="none").fit(X, Y)
    with pytest.raises(DataError, match="every sample with itself is 0"):
        TwinKernelTransform(input_kernel="linear").fit(np.zeros((5, 2)), Y[:5])
    with pytest.raises(DataError, match="scale the data"):
        TwinKernelTransform(input_kernel="linear").fit(1e20 * X, Y)
    with pytest.raises(DataError, match="Negative values"):
        TwinKernelTransform(output_kernel="chi2").fit(X, -Y)
    with pytest.raises(ValueError, match="NaN"):
        TwinKernelTransform().fit(X, np.where(Y > 0.9, np.nan, Y))


def test_a_matrix_of_zeros_changes_nothing():
    with pytest.warns(UserWarning, match="stay as they are"):
        assert most_dependent(np.zeros((3, 3)))[1].tolist() == [0, 1, 0]
