"""FourierKernelRegressor and FourierKernelClassifier: slopes, equations, streaming, learning, bad input."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from visionkl.core.errors import DataError, DeviceError, UsageError
from visionkl.kernels.fourier import FourierMap
from visionkl.learning.exact import KernelRidgeGD, KernelRidgeGDClassifier, gram_criterion
from visionkl.learning.fourier_ridge import FourierRidge, Part
from visionkl.learning.search import Search
from visionkl.learning.single import FourierKernelClassifier, FourierKernelRegressor

KERNELS = ("gaussian", "skewed_chi2", "skewed_intersection")
STRENGTH = 0.3


def parts_of(kernel="gaussian", n=150, n_features=5, n_outputs=3, n_components=30, dtype=np.float64):
    """A training and a held-out part, and the map whose waves they are for."""
    random = np.random.default_rng(0)
    X = random.random((n, n_features)).astype(dtype)
    Y = (np.sin(X @ random.normal(size=(n_features, n_outputs)) * 4)).astype(dtype)
    waves = FourierMap(kernel, n_components=n_components, sigma=0.7, random_state=1).fit(X)
    inputs, first = waves.basis_.inputs(X), 2 * n // 3
    return Part(inputs[:first], Y[:first]), Part(inputs[first:], Y[first:]), waves


def plain_criterion(phi, y, held_out, strength):
    """The formulas of METHODS §3, in so many words."""
    beta = np.linalg.solve(phi.T @ phi + strength * np.eye(phi.shape[1]), phi.T @ y)
    if held_out is None:
        return ((phi @ beta - y) ** 2).sum() / 2 + strength * (beta**2).sum()
    return ((held_out[0] @ beta - held_out[1]) ** 2).sum()


def mapped(waves, part, sigma):
    angles = (part.inputs * sigma) @ waves.basis_.frequencies.T + 2 * np.pi * waves.basis_.offsets
    return np.sqrt(2 / angles.shape[1]) * np.cos(angles)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("criterion", ["validation", "training"])
def test_value_is_the_plain_formula_and_slopes_are_its_differences(kernel, criterion):
    train, held, waves = parts_of(kernel)
    held = held if criterion == "validation" else None
    ridge = FourierRidge("test", waves.basis_, 64)
    sigma = np.random.default_rng(1).uniform(0.4, 0.9, 5)

    def plain(at, strength=STRENGTH):
        other = None if held is None else (mapped(waves, held, at), held.targets)
        return plain_criterion(mapped(waves, train, at), train.targets, other, strength)

    outcome = ridge.criterion(train, held, sigma, STRENGTH)
    np.testing.assert_allclose(outcome.value, plain(sigma), rtol=1e-8)
    step = 1e-6
    differences = [(plain(sigma + step * e) - plain(sigma - step * e)) / (2 * step) for e in np.eye(5)]
    np.testing.assert_allclose(outcome.by_sigma, differences, atol=1e-5 * np.abs(differences).max())
    if held is not None:
        change = plain(sigma, STRENGTH * np.exp(step)) - plain(sigma, STRENGTH * np.exp(-step))
        np.testing.assert_allclose(outcome.by_log_strength, change / (2 * step), rtol=1e-5)


@pytest.mark.parametrize("criterion", ["validation", "training"])
def test_exact_value_is_the_plain_formula_and_slopes_are_its_differences(criterion):
    train, held, _ = parts_of(n=90)
    held = held if criterion == "validation" else None
    sigma = np.random.default_rng(1).uniform(0.5, 2.0, 5)

    def gram(left, right, at):
        return np.exp(-(((left[:, None] - right) * at) ** 2).sum(axis=2) / 2)

    def plain(at, strength=STRENGTH):
        K = gram(train.inputs, train.inputs, at)
        alpha = np.linalg.solve(K + strength * np.eye(len(K)), train.targets)
        if held is None:
            return ((K @ alpha - train.targets) ** 2).sum() / 2 + strength * (alpha * (K @ alpha)).sum()
        return ((gram(held.inputs, train.inputs, at) @ alpha - held.targets) ** 2).sum()

    outcome = gram_criterion("test", None, train, held, sigma, STRENGTH)
    np.testing.assert_allclose(outcome.value, plain(sigma), rtol=1e-8)
    step = 1e-6
    differences = [(plain(sigma + step * e) - plain(sigma - step * e)) / (2 * step) for e in np.eye(5)]
    np.testing.assert_allclose(outcome.by_sigma, differences, atol=1e-6 * np.abs(differences).max())
    if held is not None:
        change = plain(sigma, STRENGTH * np.exp(step)) - plain(sigma, STRENGTH * np.exp(-step))
        np.testing.assert_allclose(outcome.by_log_strength, change / (2 * step), rtol=1e-5)


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("groups", [[0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 1, 2, 3, 4]])
def test_the_search_is_told_the_slopes_of_groups_and_penalty(groups, norm, monkeypatch):
    from scipy import optimize

    train, held, waves = parts_of()
    ridge = FourierRidge("test", waves.basis_, 64)
    search = Search(0.2, norm, True, 0.0, 5, 1e-9)
    seen = {}

    def check(function, x, **_):
        seen["error"] = optimize.check_grad(lambda at: function(at)[0], lambda at: function(at)[1], x + 0.1)
        seen["size"] = np.linalg.norm(function(x + 0.1)[1])
        return optimize.OptimizeResult(x=x)

    monkeypatch.setattr("visionkl.learning.search.optimize.minimize", check)
    sigma = np.linspace(0.5, 0.9, max(groups) + 1)
    search.run(lambda *at: ridge.criterion(train, held, *at), sigma, np.array(groups), STRENGTH)
    assert seen["error"] < 1e-5 * max(1, seen["size"])


@pytest.mark.parametrize("block_rows", [1, 37, 512, 700, 5000])
def test_streamed_is_unstreamed(block_rows):
    train, held, waves = parts_of(n=1800, n_components=40)
    sigma = np.linspace(0.4, 0.9, 5)
    whole = FourierRidge("test", waves.basis_, 10_000).criterion(train, held, sigma, STRENGTH)
    streamed = FourierRidge("test", waves.basis_, block_rows).criterion(train, held, sigma, STRENGTH)
    np.testing.assert_allclose(streamed.value, whole.value, rtol=1e-9)
    np.testing.assert_allclose(streamed.by_sigma, whole.by_sigma, atol=1e-8 * np.abs(whole.by_sigma).max())


@pytest.mark.parametrize("n_components", [40, 1100])
def test_the_number_of_threads_changes_nothing(n_components):
    train, held, waves = parts_of(n=1500, n_components=n_components, dtype=np.float32)
    sigma = np.linspace(0.4, 0.9, 5)
    outcomes = [
        FourierRidge("test", waves.basis_, 1024, n_jobs).criterion(train, held, sigma, STRENGTH)
        for n_jobs in (1, 2, 5)
    ]
    for other in outcomes[1:]:
        assert other.value == outcomes[0].value
        np.testing.assert_array_equal(other.by_sigma, outcomes[0].by_sigma)


def test_many_tiles_make_one_matrix():
    train, _, waves = parts_of(n=300, n_components=1100)
    ridge = FourierRidge("test", waves.basis_, 128)
    gram, moments = ridge.normal_equations([train], waves.basis_.projection(0.7, np.float64))
    phi = mapped(waves, train, 0.7)
    np.testing.assert_allclose(np.triu(gram), np.triu(phi.T @ phi), atol=1e-9)
    np.testing.assert_allclose(moments, phi.T @ train.targets, atol=1e-9)


def waves_in_noise(n=600, n_noise=8, seed=0):
    """Values that depend on the first two features only."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (n, 2 + n_noise))
    return X, np.sin(4 * X[:, 0]) + np.cos(3 * X[:, 1]) + 0.1 * random.normal(size=n)


def test_with_sigma_fixed_it_is_scikit_learns_ridge():
    X, y = waves_in_noise(200)
    Y = np.column_stack([y, -2 * y + X[:, 0] + 5])
    model = FourierKernelRegressor(n_components=50, sigma=0.5, regularisation=0.7, max_iter=0).fit(X, Y)
    peer = Ridge(0.7, fit_intercept=False).fit(model.map_.transform(X), Y - Y.mean(axis=0))
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-8)
    np.testing.assert_allclose(model.intercept_, Y.mean(axis=0))
    expected = peer.predict(model.map_.transform(X)) + Y.mean(axis=0)
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-8)
    assert model.n_iter_ == 0
    assert model.predict(X).shape == (200, 2)


@pytest.mark.parametrize(
    ("estimator", "settings"), [(FourierKernelRegressor, {"n_components": 300}), (KernelRidgeGD, {})]
)
def test_features_of_no_use_are_turned_down(estimator, settings):
    X, y = waves_in_noise()
    X_test, y_test = waves_in_noise(400, seed=1)
    model = estimator(tol=1e-5, penalty=0.1, penalty_norm="l1", **settings).fit(X, y)
    fixed = estimator(max_iter=0, **settings).fit(X, y)
    assert model.sigma_[:2].min() > 2 * model.sigma_[2:].max()
    assert model.sigma_[:2].min() > 5 * model.sigma_[2:].mean()
    assert (model.sigma_ == 0).any()  # a bound that is reached, not only neared
    errors = [np.mean((one.predict(X_test) - y_test) ** 2) for one in (model, fixed)]
    assert errors[0] < 0.5 * errors[1]
    assert errors[0] < 0.03  # the noise alone has 0.01


def test_classes_are_learned_better_with_a_sigma_for_each_feature():
    X, y = waves_in_noise(800, n_noise=12)
    X_test, y_test = waves_in_noise(500, n_noise=12, seed=1)
    names, wanted = (np.digitize(v, [0.0, 1.0]).astype(str) for v in (y, y_test))
    learned = FourierKernelClassifier(n_components=300).fit(X, names)
    fixed = FourierKernelClassifier(n_components=300, max_iter=0).fit(X, names)
    assert learned.score(X_test, wanted) > fixed.score(X_test, wanted) + 0.05
    assert list(learned.classes_) == ["0", "1", "2"]
    assert learned.decision_function(X_test).shape == (500, 3)


@pytest.mark.parametrize("criterion", ["validation", "training"])
@pytest.mark.parametrize("learn", ["all", "blocks", "features"])
@pytest.mark.parametrize("estimator", [FourierKernelRegressor, KernelRidgeGD])
def test_the_criterion_never_rises(criterion, learn, estimator):
    X, y = waves_in_noise(200)
    told = []
    settings = {"blocks": [2, 8]} if learn == "blocks" else {}
    if estimator is FourierKernelRegressor:
        settings["n_components"] = 60
    model = estimator(
        learn=learn, criterion=criterion, penalty=0.1, callback=lambda *step: told.append(step), **settings
    ).fit(X, y)
    assert len(model.sigma_) == {"all": 1, "blocks": 2, "features": 10}[learn]
    path = model.criterion_path_
    assert len(path) == model.n_iter_ + 1
    assert (np.diff(path) <= 0).all()
    assert path[-1] < path[0]
    assert told == list(enumerate(path))[1:]


def test_a_given_part_judges_sigma():
    X, y = waves_in_noise(300)
    settings = {"n_components": 50, "sigma": 0.5, "regularisation": 0.1, "learn": "all", "max_iter": 3}
    model = FourierKernelRegressor(**settings).fit(X[:200], y[:200], validation=(X[200:], y[200:]))
    phi = FourierMap(n_components=50, sigma=0.5).fit(X).transform(X)
    centred = y - y[:200].mean()
    expected = plain_criterion(phi[:200], centred[:200], (phi[200:], centred[200:]), 0.1)
    np.testing.assert_allclose(model.criterion_path_[0], expected, rtol=1e-8)
    np.testing.assert_allclose(model.intercept_, y.mean())  # the weights are of all samples


def test_a_warm_start_goes_on():
    X, y = waves_in_noise(300)
    model = FourierKernelRegressor(n_components=60, max_iter=4, warm_start=True).fit(X, y)
    end, sigma = model.criterion_path_[-1], model.sigma_
    model.fit(X, y)
    np.testing.assert_allclose(model.criterion_path_[0], end, rtol=1e-6)
    assert model.criterion_path_[-1] < end
    assert not np.array_equal(model.sigma_, sigma)


def test_a_callback_may_end_the_search():
    def enough(iteration, value):
        if iteration == 2:
            raise StopIteration

    X, y = waves_in_noise(200)
    assert FourierKernelRegressor(n_components=40, callback=enough).fit(X, y).n_iter_ == 2


@pytest.mark.parametrize("criterion", ["validation", "training"])
def test_many_waves_come_near_the_exact_kernel(criterion):
    train, held, _ = parts_of(n=120, n_features=2)
    held = held if criterion == "validation" else None
    sigma = np.array([1.0, 1.5])
    exact = gram_criterion("test", None, train, held, sigma, STRENGTH)
    errors = []
    for n_components in (64, 2048):
        waves = FourierMap(n_components=n_components, frequencies="quasi").fit(train.inputs)
        near = FourierRidge("test", waves.basis_, 64).criterion(train, held, sigma, STRENGTH)
        far = np.abs(near.by_sigma - exact.by_sigma).max() / np.abs(exact.by_sigma).max()
        errors.append(max(abs(near.value / exact.value - 1), far))
    assert errors[1] < min(0.05, errors[0] / 2)


@pytest.mark.parametrize("estimator", [FourierKernelClassifier, KernelRidgeGDClassifier])
def test_single_precision_stays(estimator):
    X, y = waves_in_noise(200)
    labels = np.where(y > 1, "high", "low")
    single = estimator(max_iter=3).fit(X.astype(np.float32), labels)
    double = estimator(max_iter=3).fit(X, labels)
    scores = single.decision_function(X.astype(np.float32))
    assert scores.dtype == np.float32
    assert double.decision_function(X).dtype == np.float64
    assert np.abs(scores - double.decision_function(X)).mean() < 0.05
    if estimator is FourierKernelClassifier:
        assert single.coef_.dtype == np.float32


@pytest.mark.parametrize("kernel", KERNELS[1:])
def test_skewed_kernels_learn(kernel):
    X, y = waves_in_noise(400)
    model = FourierKernelRegressor(kernel, n_components=200, c=1.5, learn="blocks", blocks=[2, 8]).fit(X, y)
    assert model.criterion_path_[-1] < model.criterion_path_[0]
    assert model.score(X, y) > 0.5


def test_fewer_samples_than_waves_and_constant_columns():
    X, y = waves_in_noise(40)
    X[:, 3] = 7
    model = FourierKernelRegressor(n_components=300).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert np.isfinite(model.sigma_).all()
    same = FourierKernelRegressor(n_components=20).fit(np.ones((10, 2)), np.arange(10.0))
    np.testing.assert_allclose(same.predict(np.ones((3, 2))), 4.5, atol=0.1)


def test_every_class_stays_in_both_parts():
    model = FourierKernelClassifier(n_components=10)
    strata = np.repeat([0, 1, 2], [50, 40, 1])
    train, held = model._split(91, 0, False, strata, 0)
    assert sorted([*train, *held]) == list(range(91))
    assert np.bincount(strata[held], minlength=3).tolist() == pytest.approx([10, 8, 0], abs=1)
    assert len(held) == 18


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sigma": [1.0, 2.0]}, "'sigma' parameter .* list of 10"),
        ({"sigma": np.ones(10), "learn": "all"}, "'sigma' parameter .* a number if learn='all'"),
        ({"sigma": -1.0}, "'sigma' parameter"),
        ({"learn": "blocks"}, "'blocks' parameter"),
        ({"learn": "blocks", "blocks": [3, 3]}, "'blocks' parameter"),
        ({"blocks": [3, 7]}, "'blocks' parameter"),
        ({"learn": "none"}, "'learn' parameter"),
        ({"criterion": "test"}, "'criterion' parameter"),
        ({"validation_fraction": 1.5}, "'validation_fraction' parameter"),
        ({"regularisation": 0}, "'regularisation' parameter"),
        ({"regularisation": "best"}, "'regularisation' parameter"),
        ({"penalty": -1}, "'penalty' parameter"),
        ({"penalty_norm": "l3"}, "'penalty_norm' parameter"),
        ({"max_iter": 1.5}, "'max_iter' parameter"),
    ],
)
@pytest.mark.parametrize("estimator", [FourierKernelRegressor, KernelRidgeGD])
def test_bad_parameters(estimator, settings, message):
    with pytest.raises(UsageError, match=message):
        estimator(**settings).fit(*waves_in_noise(50))


def test_bad_data():
    X, y = waves_in_noise(50)
    with pytest.raises(DataError, match="1 class"):
        FourierKernelClassifier().fit(X, np.ones(50, int))
    with pytest.raises(DataError, match="no class has two samples"):
        FourierKernelClassifier().fit(X[:3], ["a", "b", "c"])
    with pytest.raises(ValueError, match="NaN"):
        FourierKernelRegressor().fit(np.where(X > 0.99, np.nan, X), y)
    with pytest.raises(DataError, match="Negative values"):
        FourierKernelRegressor("skewed_chi2", c=0.5).fit(X, y)
    with pytest.raises(UsageError, match="'validation' is given"):
        FourierKernelRegressor(criterion="training").fit(X, y, validation=(X, y))
    with pytest.raises(UsageError, match="pair of X and y"):
        FourierKernelRegressor().fit(X, y, validation=X)
    with pytest.raises(DataError, match="same outputs"):
        FourierKernelRegressor().fit(X, y, validation=(X, np.column_stack([y, y])))
    with pytest.raises(UsageError, match="'block_rows' parameter"):
        FourierKernelRegressor(block_rows=0).fit(X, y)
    with pytest.raises(UsageError, match="'device' parameter of FourierKernelRegressor must be 'auto'"):
        FourierKernelRegressor(device="gpu").fit(X, y)
    with pytest.raises(DeviceError, match="FourierKernelRegressor: device 'cuda:99' cannot compute here"):
        FourierKernelRegressor(device="cuda:99").fit(X, y)


def test_a_matrix_that_does_not_fit_is_refused():
    X, y = waves_in_noise(50)
    with pytest.raises(DataError, match=r"50 samples .* FourierKernelRegressor"):
        KernelRidgeGD(max_memory=10_000).fit(X, y)


@parametrize_with_checks(
    [
        FourierKernelRegressor(n_components=50, max_iter=5),
        FourierKernelClassifier(n_components=50, max_iter=5),
        FourierKernelClassifier("skewed_chi2", n_components=50, max_iter=5),
        KernelRidgeGD(max_iter=5),
        KernelRidgeGDClassifier(max_iter=5),
    ]
)
def test_scikit_learn_is_content(estimator, check):
    check(estimator)
