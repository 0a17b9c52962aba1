"""Cross-validation in the Fourier domain and with exact kernels: value, slopes, parts, forgiven scores."""

import numpy as np
import pytest

from visionkl.core.errors import UsageError
from visionkl.kernels.fourier import FourierMap
from visionkl.learning import fourier_ridge
from visionkl.learning.cross_ridge import CrossValidation
from visionkl.learning.exact import KernelRidgeGDClassifier, gram_criterion
from visionkl.learning.fourier_ridge import (
    FourierRidge,
    Part,
    take_off_exceeded_targets,
    take_off_targets,
)
from visionkl.learning.single import FourierKernelClassifier, FourierKernelRegressor
from visionkl.learning.widths import _folds

JUDGES = {"squared": take_off_targets, "squared hinge": take_off_exceeded_targets}
SIGMA, STRENGTH = np.array([0.4, 0.9, 0.6, 0.5]), 0.3


@pytest.fixture(scope="module")
def waves():
    return FourierMap(n_components=30, sigma=0.7, random_state=1).fit(np.zeros((1, 4)))


@pytest.fixture(scope="module")
def parts():
    random = np.random.default_rng(0)
    X = random.normal(size=(140, 4))
    signs = np.where(np.sin(2 * X @ random.normal(size=(4, 3))) > 0.2, 1.0, -1.0)
    Y = signs - signs.mean(axis=0)
    return [Part(X[some], Y[some]) for some in (slice(0, 40), slice(40, 100), slice(100, 140))]


def loss(judge, scores, targets):
    errors = scores - targets
    if judge == "squared hinge":  # of ±1 and of scores that are not centred
        errors = np.maximum(0, errors * -np.sign(targets))
    return (errors**2).sum()


def plain(waves, parts, judge, sigma, strength=STRENGTH):
    """The sum over parts, each judged by the ridge regression of the others."""
    total = 0.0
    maps = [waves.basis_.frequencies * sigma @ part.inputs.T for part in parts]
    phis = [np.sqrt(2 / 30) * np.cos(m.T + 2 * np.pi * waves.basis_.offsets) for m in maps]
    for held, part in enumerate(parts):
        phi = np.vstack([phis[k] for k in range(3) if k != held])
        y = np.vstack([parts[k].targets for k in range(3) if k != held])
        beta = np.linalg.solve(phi.T @ phi + strength * np.eye(30), phi.T @ y)
        total += loss(judge, phis[held] @ beta, part.targets)
    return total


@pytest.mark.parametrize("judge", JUDGES)
def test_value_and_slopes(judge, waves, parts):
    ridge = FourierRidge("test", waves.basis_, 32, judge=JUDGES[judge])
    outcome = CrossValidation(ridge, parts).criterion(SIGMA, STRENGTH)
    np.testing.assert_allclose(outcome.value, plain(waves, parts, judge, SIGMA), rtol=1e-9)
    step = 1e-6
    differences = [
        (plain(waves, parts, judge, SIGMA + e) - plain(waves, parts, judge, SIGMA - e)) / (2 * step)
        for e in step * np.eye(4)
    ]
    np.testing.assert_allclose(outcome.by_sigma, differences, atol=1e-5 * np.abs(differences).max())
    ends = [plain(waves, parts, judge, SIGMA, STRENGTH * np.exp(side)) for side in (step, -step)]
    np.testing.assert_allclose(outcome.by_log_strength, (ends[0] - ends[1]) / (2 * step), rtol=1e-5)


@pytest.mark.parametrize("judge", JUDGES)
def test_one_held_out_part_forgives_as_well(judge, waves, parts):
    train, held = parts[:2]
    ridge = FourierRidge("test", waves.basis_, 32, judge=JUDGES[judge])
    outcome = ridge.criterion(train, held, SIGMA, STRENGTH)
    step = 1e-6
    differences = []
    for e in step * np.eye(4):
        ends = [ridge.criterion(train, held, SIGMA + side * e, STRENGTH).value for side in (1, -1)]
        differences.append((ends[0] - ends[1]) / (2 * step))
    np.testing.assert_allclose(outcome.by_sigma, differences, atol=1e-5 * np.abs(differences).max())


@pytest.mark.parametrize("judge", JUDGES)
def test_exact_slopes_of_what_is_judged(judge, parts):
    train, held = parts[:2]

    def value(sigma):
        return gram_criterion("test", None, train, held, sigma, STRENGTH, judge=JUDGES[judge]).value

    outcome = gram_criterion("test", None, train, held, SIGMA, STRENGTH, judge=JUDGES[judge])
    step = 1e-6
    differences = [(value(SIGMA + e) - value(SIGMA - e)) / (2 * step) for e in step * np.eye(4)]
    np.testing.assert_allclose(outcome.by_sigma, differences, atol=1e-5 * np.abs(differences).max())


def test_phases_that_are_not_kept_are_made_again(waves, parts, monkeypatch):
    ridge = FourierRidge("test", waves.basis_, 32)
    kept = CrossValidation(ridge, parts).criterion(SIGMA, STRENGTH)
    monkeypatch.setattr(fourier_ridge, "_MOST_PHASES", 50 * 30 * 8)  # of 50 rows
    again = CrossValidation(FourierRidge("test", waves.basis_, 32), parts).criterion(SIGMA, STRENGTH)
    np.testing.assert_allclose(again.value, kept.value, rtol=1e-10)
    np.testing.assert_allclose(again.by_sigma, kept.by_sigma, rtol=1e-7)


def test_the_best_strength_is_that_of_the_least_criterion(waves, parts):
    validation = CrossValidation(FourierRidge("test", waves.basis_, 32), parts)
    strengths = [0.01, 0.1, 1.0, 10.0, 100.0]
    values = [plain(waves, parts, "squared", SIGMA, strength) for strength in strengths]
    assert validation.best_strength(SIGMA, strengths) == strengths[int(np.argmin(values))]


def test_threads_change_nothing(waves, parts):
    found = [
        CrossValidation(FourierRidge("test", waves.basis_, 32, n_jobs), parts).criterion(SIGMA, STRENGTH)
        for n_jobs in (1, 3)
    ]
    assert found[0].value == found[1].value
    np.testing.assert_array_equal(found[0].by_sigma, found[1].by_sigma)


def test_parts_share_the_classes_evenly():
    strata = np.repeat([0, 1, 2], [50, 11, 1])
    parts = _folds(strata, 5, 0)
    assert sorted(np.concatenate(parts)) == list(range(62))
    assert all(9 <= (strata[part] == 0).sum() <= 11 for part in parts)
    assert all(2 <= (strata[part] == 1).sum() <= 3 for part in parts)


def test_estimators_hold_out_in_turn():
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (300, 6))
    y = np.sin(4 * X[:, 0]) + np.cos(3 * X[:, 1])
    for n_folds, count in ((1, 1), ("auto", 5), (3, 3)):
        model = FourierKernelRegressor(n_components=60, n_folds=n_folds, max_iter=3)
        assert model._count_folds(300) == count
        assert (np.diff(model.fit(X, y).criterion_path_) <= 0).all()
    assert FourierKernelRegressor()._count_folds(100_000) == 1
    assert FourierKernelRegressor(n_folds=5)._count_folds(3) == 1
    exact = KernelRidgeGDClassifier(n_folds=3, max_iter=3).fit(X, y > 0)
    ours = FourierKernelClassifier(n_folds=3, n_components=2000, max_iter=0).fit(X, y > 0)
    assert exact.criterion_path_[-1] < exact.criterion_path_[0]
    assert exact.score(X, y > 0) > 0.9
    assert ours.score(X, y > 0) > 0.9
    with pytest.raises(UsageError, match="'n_folds' parameter"):
        FourierKernelRegressor(n_folds=0).fit(X, y)
