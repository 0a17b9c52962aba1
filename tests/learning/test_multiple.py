"""Multiple kernel learning in the Fourier domain, and with exact kernels."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from visionkl.core.errors import DataError, DeviceError, UsageError
from visionkl.learning.channel_features import ChannelFeatures
from visionkl.learning.gmkl import GMKLClassifier, GMKLRegressor
from visionkl.learning.multiple import NAMED_MODELS, FourierMKLClassifier, FourierMKLRegressor, named_model
from visionkl.solvers.penalties import Groups

WIDTHS = [3, 4, 2]


@pytest.fixture(scope="module")
def numbers():
    """Two channels that matter and one of noise; in the first, one feature is noise as well."""
    X = np.random.default_rng(0).normal(size=(400, 9))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 2 + np.tanh(X[:, 3] + X[:, 4])
    return X, y + 0.1 * np.random.default_rng(1).normal(size=400)


@pytest.fixture(scope="module")
def classes(numbers):
    X, y = numbers
    return X, np.array(["low", "middle", "high"])[np.digitize(y, [0.3, 1.0])]


def regressor(**parameters):
    return FourierMKLRegressor(**{"channels": WIDTHS, "n_components": 60, "share": 0.05, **parameters})


def classifier(**parameters):
    return FourierMKLClassifier(**{"channels": WIDTHS, "n_components": 60, "share": 0.05, **parameters})


@parametrize_with_checks(
    [
        FourierMKLClassifier(n_components=30),
        FourierMKLClassifier(n_components=30, loss="logistic", penalty="l2"),
        FourierMKLRegressor(n_components=30),
        GMKLClassifier(),
        GMKLRegressor(),
    ]
)
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


def test_a_channel_of_noise_gets_no_weight(numbers, classes):
    weights = regressor(share=0.2).fit(*numbers).kernel_weights_
    assert weights[2] == 0
    assert (weights[:2] > 0.05).all()
    model = classifier(share=0.4).fit(*classes)
    assert model.kernel_weights_.shape == (3, 3)
    assert not model.kernel_weights_[:2, 2].any()  # what is in the middle is hard to tell by anything
    assert list(model.classes_) == ["high", "low", "middle"]


def test_weights_of_kernels_are_norms(numbers):
    model = regressor().fit(*numbers)
    expected = [np.linalg.norm(model.coef_[0, k : k + 60]) / np.sqrt(2) for k in (0, 60, 120)]
    np.testing.assert_allclose(model.kernel_weights_, expected, rtol=1e-12)


def test_rff_mkl_equals_gmkl_on_the_same_features(numbers):
    X, y = numbers[0][:150], numbers[1][:150]
    model = regressor(tol=1e-9, share=0.02).fit(X, y)
    parts = np.split(X, np.cumsum(WIDTHS)[:-1], axis=1)
    features = [fourier.transform(part) for fourier, part in zip(model.maps_, parts, strict=True)]
    C = np.sqrt(2) / model.lambda_[0]
    exact = GMKLRegressor(C=C, kernel="precomputed", tol=1e-12, max_iter=1000).fit(
        [F @ F.T for F in features], y
    )
    np.testing.assert_allclose(exact.kernel_weights_, model.kernel_weights_, rtol=0.01, atol=1e-4)
    # The objectives are the same but for the factor C, and so are the machines.
    assert exact.objective_[0] == pytest.approx(C * model.objectives_[0], rel=1e-6)
    np.testing.assert_allclose(exact.predict([F @ F.T for F in features]), model.predict(X), atol=1e-2)


def test_gmkl_is_at_its_minimum(numbers):
    X, y = numbers[0][:100], numbers[1][:100]
    model = GMKLRegressor(channels=WIDTHS, C=50.0, tol=1e-13, max_iter=1000).fit(X, y)
    parts = np.split(X, np.cumsum(WIDTHS)[:-1], axis=1)
    kernels = [k(part) for k, part in zip(model.kernels_, parts, strict=True)]
    alpha, d = model.dual_coef_[0], model.kernel_weights_
    slopes = np.array([1 - 0.5 * alpha @ K @ alpha for K in kernels])
    assert slopes.min() >= -1e-3
    assert np.abs(slopes[d > 1e-6]).max() <= 1e-3
    assert alpha.sum() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
@pytest.mark.parametrize("penalty", ["l21", "l2", "l1"])
def test_all_losses_and_penalties_learn_classes(classes, loss, penalty):
    X, y = classes
    model = classifier(loss=loss, penalty=penalty).fit(X[:300], y[:300])
    assert (model.gap_ <= 1e-4).all()
    assert model.score(X[300:], y[300:]) > 0.6
    assert hasattr(model, "predict_proba") == (loss == "logistic")
    if loss == "logistic":
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_smooth_tube_and_several_targets(numbers):
    X, y = numbers
    tube = regressor(loss="gamma_logistic", epsilon=0.05).fit(X, y)
    assert tube.score(X, y) > 0.7
    both = regressor().fit(X, np.stack([y, -2 * y], axis=1))
    assert both.predict(X).shape == (400, 2)
    np.testing.assert_allclose(both.predict(X)[:, 0], regressor().fit(X, y).predict(X), atol=2e-2)
    np.testing.assert_allclose(both.kernel_weights_[1], 2 * both.kernel_weights_[0], rtol=0.02, atol=1e-3)


def test_a_path_equals_single_fits_and_begins_at_zero(numbers):
    X, y = numbers
    path = regressor(tol=1e-7).fit_path(X, y)
    assert len(path) == 20
    assert not path[0].coef_.any()
    assert path[0].lambda_[0] == pytest.approx(path[0].lambda_max_[0])
    for model in path[5::7]:
        alone = regressor(tol=1e-7, regularisation=model.lambda_[0]).fit(X, y)
        assert model.objectives_[0] == pytest.approx(alone.objectives_[0], rel=1e-6)
    given = regressor(tol=1e-7).fit_path(X, y, [1e-3, 1e-2])
    assert [model.regularisation for model in given] == [1e-3, 1e-2]
    assert given[0].score(X, y) > given[1].score(X, y)


def test_ways_to_give_channels(numbers):
    X, y = numbers
    expected = regressor().fit(X, y).predict(X)
    parts = np.split(X, np.cumsum(WIDTHS)[:-1], axis=1)
    listed = regressor(channels=None).fit(parts, y)
    slices = regressor(channels=[slice(0, 3), slice(3, 7), slice(7, None)]).fit(X, y)
    mixed = regressor(channels=[[0, 1, 2], range(3, 7), np.array([7, 8])]).fit(X, y)
    for got in (listed.predict(parts), listed.predict(X), slices.predict(X), mixed.predict(parts)):
        np.testing.assert_allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_threads_do_not_change_the_result(classes, loss):
    one, two = (classifier(loss=loss, n_jobs=jobs).fit(*classes) for jobs in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_single_precision_stays(numbers):
    X, y = numbers
    single, double = regressor().fit(X.astype(np.float32), y), regressor().fit(X, y)
    assert single.coef_.dtype == np.float32
    predicted = single.predict(X.astype(np.float32))
    assert predicted.dtype == np.float32
    np.testing.assert_allclose(predicted, double.predict(X), atol=5e-3)


def test_features_that_are_not_kept_are_the_same(numbers):
    X, _ = numbers
    maps = regressor().fit(*numbers).maps_
    parts = np.split(X, np.cumsum(WIDTHS)[:-1], axis=1)
    kept, fresh = (ChannelFeatures(parts, maps, keep=keep) for keep in (1 << 20, 0))
    weights = np.random.default_rng(0).normal(size=(180, 2))
    for features in (kept, kept, fresh):
        np.testing.assert_array_equal(features.scores(weights), fresh.scores(weights))
    whole = np.hstack([fourier.transform(part) for fourier, part in zip(maps, parts, strict=True)])
    linear = fresh.sum_up(X)
    centred = whole - whole.mean(axis=0)
    np.testing.assert_allclose(fresh.gram.matrix, centred.T @ centred / 400, atol=1e-12)
    np.testing.assert_allclose(linear, whole.T @ X / 400, atol=1e-12)


@pytest.mark.parametrize("loss", ["squared", "gamma_logistic"])
@pytest.mark.parametrize("per_feature", [False, True])
def test_the_joint_objective_falls(numbers, loss, per_feature):
    X, y = numbers[0][:200], numbers[1][:200]
    fixed = regressor(loss=loss, n_components=30, tol=1e-6).fit(X, y)
    model = clone(fixed).set_params(learn_sigma=True, per_feature=per_feature, sigma_iter=6).fit(X, y)
    assert model.objectives_[0] == pytest.approx(fixed.objectives_[0], rel=1e-4)
    assert len(model.objectives_) > 2
    assert (np.diff(model.objectives_) <= 1e-12).all()
    assert model.objectives_[-1] < 0.95 * fixed.objectives_[0]
    assert [len(sigma) for sigma in model.sigma_] == (WIDTHS if per_feature else [1, 1, 1])
    if per_feature:
        assert model.sigma_[0][2] < model.sigma_[0][:2].min()  # the noise among the first three


def test_the_gradient_of_sigma_is_right(numbers):
    X, y = numbers
    model = regressor().fit(X, y)
    parts = np.split(X, np.cumsum(WIDTHS)[:-1], axis=1)
    features = ChannelFeatures(parts, model.maps_)
    weights = model.coef_.T

    def loss(sigma):
        return 0.5 * ((features.with_sigma(sigma).scores(weights)[:, 0] - y) ** 2).mean()

    shares = (features.scores(weights) - y[:, None]) / len(y)
    for k, step in enumerate(1e-5 * np.eye(3)):
        numeric = (loss(features.sigma + step) - loss(features.sigma - step)) / 2e-5
        assert features.gradient(shares, weights)[k] == pytest.approx(numeric, rel=1e-5, abs=1e-9)


def test_a_penalty_keeps_sigma_small(numbers):
    X, y = numbers[0][:200], numbers[1][:200]
    free, held = (
        regressor(learn_sigma=True, sigma_penalty="l1", sigma_regularisation=mu, sigma_iter=6).fit(X, y)
        for mu in (0.0, 0.1)
    )
    assert np.concatenate(held.sigma_).sum() < np.concatenate(free.sigma_).sum()


@pytest.mark.parametrize("name", NAMED_MODELS)
def test_named_models(classes, name):
    X, y = classes[0][:150], classes[1][:150]
    model = named_model(name, WIDTHS, n_components=40, sigma_iter=2).fit(X, y)
    assert model.score(X, y) > 0.6
    assert len(model.maps_) == (1 if "SKL" in name else 3)
    assert (len(model.objectives_) > 1) == ("JOINT" in name)


def test_named_models_keep_what_names_them():
    assert named_model("RFF-SQL-MKL", [2], regression=True, share=0.5).share == 0.5
    with pytest.raises(UsageError, match="left out, since RFF-SQL-MKL sets it"):
        named_model("RFF-SQL-MKL", penalty="l2")
    with pytest.raises(UsageError, match="must be one of 'RFF-SQL-MKL'"):
        named_model("RFF-MKL")


@pytest.mark.parametrize(
    ("channels", "complaint"),
    [
        ([3, 4], "lengths > 0 whose sum is the number of columns of X, 9"),
        ([[0, 1], [1, 2]], "channel 1 of 'channels' has column 1, which was there before"),
        ([[0, 0]], "has column 0, which was there before"),
        ([[0, 9]], "has column 9, but X has the columns 0 to 8"),
        ([[]], "a list of lengths"),
        ([slice(3, 3)], "has no column"),
        ("all", "a list of lengths"),
    ],
)
def test_channels_that_cannot_be(numbers, channels, complaint):
    with pytest.raises(ValueError, match=complaint):
        regressor(channels=channels).fit(*numbers)


def test_bad_data_get_a_sentence(numbers, classes):
    X, y = numbers
    with pytest.raises(DataError, match="same number of rows, one for each sample; they have 400, 399"):
        regressor(channels=None).fit([X, X[1:]], y)
    with pytest.raises(DataError, match="1 class"):
        classifier().fit(X, ["a"] * 400)
    with pytest.raises(DataError, match="row 7, column 2"):
        regressor().fit(np.where(np.arange(3600).reshape(400, 9) == 65, np.nan, X), y)
    place = np.arange(3600).reshape(400, 9)
    with pytest.raises(DataError, match=r"channel 1.*row 7, column 2"):
        regressor(channels=None).fit([X, np.where(place == 65, np.inf, X)], y)
    with pytest.raises(DataError, match=r"-2 in row 5, column 1.*must be > -1"):
        regressor(kernel="skewed_chi2").fit(np.where(place == 46, -2.0, np.abs(X)), y)
    with pytest.raises(DataError, match=r"400 samples take .* FourierMKLRegressor"):
        GMKLRegressor(max_memory=1000).fit(X, y)
    with pytest.raises(DataError, match="y holds NaN or infinity, first for sample 3"):
        regressor().fit(X, np.where(np.arange(400) == 3, np.inf, y))
    model = regressor(channels=None).fit([X[:, :4], X[:, 4:]], y)
    with pytest.raises(DataError, match=r"trained on channels of the widths \[4, 5\]; these have \[5, 4\]"):
        model.predict([X[:, :5], X[:, 5:]])
    with pytest.raises(DataError, match="channel 1"):
        regressor(kernel="skewed_chi2").fit(np.abs(X), y).predict(
            np.where(np.arange(9) == 4, -2.0, np.abs(X))
        )


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"loss": "logistic"}, "'loss'"),
        ({"penalty": "l3"}, "'penalty'"),
        ({"share": 0.0}, "'share'"),
        ({"regularisation": 0}, "'regularisation'"),
        ({"n_components": [5, 5]}, "a list of 3, one for each"),
        ({"gamma": 1e4, "epsilon": 1.0}, "at most 300"),
        ({"device": "gpu"}, "'device' parameter of FourierMKLRegressor must be 'auto'"),
        ({"device": "cuda:99"}, "FourierMKLRegressor: device 'cuda:99' cannot compute here"),
    ],
)
def test_parameters_that_cannot_be(numbers, parameters, complaint):
    with pytest.raises((UsageError, DeviceError), match=complaint):
        regressor(**parameters).fit(*numbers)


def test_fewer_samples_than_features_and_constant_columns(numbers):
    X, y = numbers
    few = np.where(np.arange(9) == 4, 7.0, X)[:40]
    model = regressor(n_components=200).fit(few, y[:40])
    assert np.isfinite(model.predict(few)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = regressor().fit(np.ones((20, 9)), np.arange(20.0))
    np.testing.assert_allclose(same.predict(np.ones((2, 9))), 9.5, atol=1e-6)


def test_group_penalty_is_what_counts(numbers):
    """The reported objective is the one in the documentation."""
    X, y = numbers
    model = regressor().fit(X, y)
    penalty = Groups([slice(0, 60), slice(60, 120), slice(120, 180)]).value(model.coef_.T)[0]
    value = 0.5 * ((model.predict(X) - y) ** 2).mean() + model.lambda_[0] * penalty
    assert model.objectives_[0] == pytest.approx(value, rel=1e-9)
