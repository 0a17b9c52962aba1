"""Mixtures of Gaussians: scikit-learn's likelihoods from the same start, and no surprises at the edges."""

import warnings

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

from visionkl.core.errors import DataError, UsageError
from visionkl.core.rng import stream
from visionkl.features.densities import Mixture
from visionkl.features.gmm import DiagonalGMM, _Learner


@parametrize_with_checks([DiagonalGMM(n_components=2, max_iter=5)])
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def rows():
    """3000 rows of 8 features on very different scales, around 12 centres."""
    random = np.random.default_rng(0)
    centres = 2 * random.normal(size=(12, 8))
    scaled = centres[random.integers(12, size=3000)] + random.uniform(0.5, 1, 8) * random.normal(
        size=(3000, 8)
    )
    return scaled * 10.0 ** np.arange(-2, 6) + 100 * np.arange(8)


def theirs_from(mixture: Mixture, rows, n_iter):
    peer = GaussianMixture(
        len(mixture.weights),
        covariance_type="diag",
        weights_init=mixture.weights,
        means_init=mixture.means,
        precisions_init=1 / mixture.variances,
        reg_covar=0,
        tol=0,
        max_iter=n_iter,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return peer.fit(rows)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 2e-5)])
def test_the_way_is_scikit_learns(rows, dtype, tolerance):
    learner = _Learner(rows.astype(dtype), 1e-9, None)
    start = learner.start(10, stream(0, "test"))
    ours, history, _ = learner.improve(start, 8, tol=0)
    theirs = theirs_from(start, rows, 8)
    # scikit-learn gives the likelihoods after their E steps, as we do.
    np.testing.assert_allclose(history, theirs.lower_bounds_, rtol=tolerance)
    scale = rows.std(axis=0)
    wide = 1e3 * tolerance  # after eight passes, parameters differ by more than likelihoods
    np.testing.assert_allclose(ours.weights, theirs.weights_, rtol=wide)
    np.testing.assert_allclose(ours.means / scale, theirs.means_ / scale, rtol=wide, atol=wide)
    np.testing.assert_allclose(ours.variances, theirs.covariances_, rtol=wide)


def test_densities_and_posteriors_are_scikit_learns(rows):
    ours = DiagonalGMM(6, max_iter=5).fit(rows)
    theirs = theirs_from(ours.mixture_, rows, 1)
    theirs.weights_, theirs.means_, theirs.covariances_ = ours.weights_, ours.means_, ours.variances_
    theirs.precisions_cholesky_ = 1 / np.sqrt(ours.variances_)
    np.testing.assert_allclose(ours.score_samples(rows), theirs.score_samples(rows), rtol=1e-10)
    np.testing.assert_allclose(ours.predict_proba(rows), theirs.predict_proba(rows), atol=1e-10)
    np.testing.assert_array_equal(ours.predict(rows), theirs.predict(rows))
    assert ours.score(rows) == pytest.approx(theirs.score(rows))


def test_single_precision_stays_single_and_near(rows):
    model = DiagonalGMM(6, max_iter=5).fit(rows)
    single = rows.astype(np.float32)
    assert model.score_samples(single).dtype == model.predict_proba(single).dtype == np.float32
    np.testing.assert_allclose(model.predict_proba(single), model.predict_proba(rows), atol=2e-3)
    np.testing.assert_allclose(model.predict_proba(single).sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(("dtype", "slack"), [(np.float64, 1e-10), (np.float32, 1e-4)])
def test_likelihood_never_falls(rows, dtype, slack):
    model = DiagonalGMM(20, max_iter=40, tol=0).fit(rows.astype(dtype))
    assert np.diff(model.log_likelihoods_).min() > -slack
    assert model.log_likelihoods_[-1] > model.log_likelihoods_[0]
    assert model.n_iter_ == 40
    assert not model.converged_


def test_as_good_as_scikit_learn_from_starts_of_its_own(rows):
    scaled = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    ours = [DiagonalGMM(12, random_state=seed).fit(scaled).score(scaled) for seed in range(5)]
    theirs = [
        GaussianMixture(12, covariance_type="diag", random_state=seed).fit(scaled).score(scaled)
        for seed in range(5)
    ]
    assert np.median(ours) > np.median(theirs) - 0.05
    assert max(ours) > max(theirs) - 0.01


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_do_not_change_the_mixture(dtype):
    rows = np.random.default_rng(0).normal(size=(20000, 3)).astype(dtype)  # three tasks
    one, two = (DiagonalGMM(8, max_iter=3, n_jobs=n_jobs).fit(rows) for n_jobs in (1, 2))
    for name in ("weights_", "means_", "variances_", "log_likelihoods_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_scales_and_shifts_do_not_matter(rows):
    factors = 4.0 ** np.arange(8)
    first = _Learner(rows, 1e-4, None)
    second = _Learner(rows * factors - 64, 1e-4, None)
    start = first.start(5, stream(0, "test"))
    moved = Mixture(start.weights, start.means * factors - 64, start.variances * factors**2)
    a, b = first.improve(start, 5, 0)[0], second.improve(moved, 5, 0)[0]
    np.testing.assert_allclose(b.variances, a.variances * factors**2, rtol=1e-9)


def test_a_gaussian_without_rows_starts_again(rows):
    learner = _Learner(rows, 1e-4, None)
    start = learner.start(4, stream(0, "test"))
    means = start.means.copy()
    means[2] += 1e3 * rows.std(axis=0)  # far from all rows
    lost = Mixture(start.weights, means, start.variances)
    _, history, _ = learner.improve(lost, 1, 0)
    found, after, _ = learner.improve(lost, 30, 0)
    assert np.isfinite(found.means).all()
    assert found.weights.min() > 1e-3
    assert after[-1] > history[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_variances_have_a_floor(dtype):
    random = np.random.default_rng(0)
    rows = random.normal(size=(200, 3)).astype(dtype)
    rows[:, 1] = 7  # constant
    rows[:100] = rows[0]  # a hundred times the same
    model = DiagonalGMM(3, min_variance=1e-3).fit(rows)
    variance = rows.var(axis=0, dtype=float)
    assert (model.variances_[:, [0, 2]] >= 0.999e-3 * variance[[0, 2]]).all()
    assert (model.variances_ > 0).all()
    assert np.isfinite(model.score_samples(rows)).all()


def test_equal_rows_are_no_problem():
    rows = np.full((50, 4), 3.0, np.float32)
    model = DiagonalGMM(5).fit(rows)
    np.testing.assert_allclose(model.means_, 3, atol=1e-5)
    assert model.weights_.sum() == pytest.approx(1)
    assert np.isfinite(model.score_samples(rows)).all()


def test_bad_input_gets_one_sentence(rows):
    with pytest.raises(DataError, match="n_samples = 5 rows are too few to learn 6 Gaussians"):
        DiagonalGMM(6).fit(rows[:5])
    with pytest.raises(ValueError, match="NaN"):
        DiagonalGMM(2).fit(np.full((10, 2), np.nan))
    with pytest.raises(UsageError, match="'min_variance' parameter of DiagonalGMM"):
        DiagonalGMM(2, min_variance=0).fit(rows)
    with pytest.raises(UsageError, match="'n_components' parameter of DiagonalGMM"):
        DiagonalGMM(0).fit(rows)
