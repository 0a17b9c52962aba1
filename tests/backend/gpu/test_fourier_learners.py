"""Learning with Fourier features on a device, against the CPU."""

import pickle

import numpy as np
import pytest

from tests.backend.gpu.fake_cupy import FakeCupy
from tests.backend.gpu.test_estimators import WAYS
from visionkl.backend import dispatch
from visionkl.backend.cpu import maps as cpu_maps
from visionkl.backend.gpu import device as cuda
from visionkl.backend.gpu import launch
from visionkl.core.errors import DataError, DeviceError, UsageError
from visionkl.kernels import fourier
from visionkl.kernels.fourier import FourierMap
from visionkl.learning import channel_features, fourier_ridge
from visionkl.learning.channel_features import ChannelFeatures
from visionkl.learning.cross_ridge import CrossValidation
from visionkl.learning.exact import KernelRidgeGD
from visionkl.learning.fourier_ridge import FourierRidge, Part, take_off_exceeded_targets
from visionkl.learning.gmkl import GMKLClassifier
from visionkl.learning.multiple import FourierMKLClassifier, FourierMKLRegressor
from visionkl.learning.single import FourierKernelClassifier, FourierKernelRegressor

pytestmark = pytest.mark.parametrize("machine", WAYS, indirect=True, ids="-".join)

THERE = dispatch.Device(0)
SIGMA, STRENGTH = np.array([0.4, 0.9, 0.6, 0.5]), 0.3
BOUND = {np.float32: 2e-3, np.float64: 1e-9}


class OutOfMemoryError(MemoryError):
    """Named as CuPy's."""


@pytest.fixture
def data():
    random = np.random.default_rng(0)
    X = random.uniform(0.1, 2, (90, 4))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2]


def classes_of(values, n_classes):
    return np.array(["no", "yes", "maybe"])[
        np.searchsorted(np.quantile(values, np.arange(1, n_classes) / n_classes), values)
    ]


def parts_of(data, dtype):
    X, y = data
    targets = np.stack([np.sign(y - y.mean()), np.sign(X[:, 3] - 1)], axis=1)
    rows = X.astype(dtype), (targets - targets.mean(axis=0)).astype(dtype)
    return [Part(*(array[some] for array in rows)) for some in (slice(0, 40), slice(40, 70), slice(70, 90))]


def short_of_memory(monkeypatch, most, *, put=False):
    """Let a device have no room for arrays of more rows than `most`, and return what is freed."""
    if not isinstance(cuda.namespace(), FakeCupy):
        pytest.skip("memory that runs out is simulated")
    freed = []
    monkeypatch.setattr(cuda, "free_memory", lambda: freed.append(1))
    whole, empty = dispatch.Device.put, FakeCupy.empty

    def checked_put(self, array):
        if self.is_gpu and isinstance(array, np.ndarray) and array.ndim == 2 and len(array) > most:
            raise OutOfMemoryError("7 GB")
        return whole(self, array)

    def checked_empty(shape, dtype=np.float64):
        if shape[0] > most:
            raise OutOfMemoryError("7 GB")
        return empty(shape, dtype)

    if put:
        monkeypatch.setattr(dispatch.Device, "put", checked_put)
    monkeypatch.setattr(FakeCupy, "empty", staticmethod(checked_empty))
    return freed


def same_slopes(found, expected, bound):
    np.testing.assert_allclose(found.value, expected.value, rtol=bound)
    scale = np.abs(expected.by_sigma).max()
    np.testing.assert_allclose(found.by_sigma, expected.by_sigma, rtol=0, atol=bound * scale)
    np.testing.assert_allclose(found.by_log_strength, expected.by_log_strength, rtol=10 * bound)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kept", [True, False])
def test_criteria_are_those_of_the_cpu(gpu, data, dtype, kept, monkeypatch):
    parts = parts_of(data, dtype)
    basis = FourierMap(n_components=20).fit(parts[0].inputs).basis_
    here, there = (
        FourierRidge("test", basis, 16, judge=take_off_exceeded_targets, device=device)
        for device in (dispatch.CPU, THERE)
    )
    held = [Part(THERE.hold(part.inputs), THERE.hold(part.targets), THERE) for part in parts]
    if not kept:
        monkeypatch.setattr(fourier_ridge, "_MOST_PHASES", 30 * 20 * np.dtype(dtype).itemsize)
    for given in (parts, held):
        for held_out in (True, False):
            expected = here.criterion(parts[0], parts[1] if held_out else None, SIGMA, STRENGTH)
            found = there.criterion(given[0], given[1] if held_out else None, SIGMA, STRENGTH)
            same_slopes(found, expected, BOUND[dtype])
        expected, found = CrossValidation(here, parts), CrossValidation(there, given)
        same_slopes(found.criterion(SIGMA, STRENGTH), expected.criterion(SIGMA, STRENGTH), BOUND[dtype])
        strengths = [0.01, 0.3, 10.0]
        assert found.best_strength(SIGMA, strengths) == expected.best_strength(SIGMA, strengths)
        assert there.best_strength(*given[:2], SIGMA, strengths) == here.best_strength(
            *parts[:2], SIGMA, strengths
        )
    for found, expected in zip(
        there.normal_equations(held, there.projection(SIGMA, dtype)),
        here.normal_equations(parts, here.projection(SIGMA, dtype)),
        strict=True,
    ):
        assert found.dtype == np.float64
        np.testing.assert_allclose(np.triu(found), np.triu(expected), atol=BOUND[dtype])


@pytest.mark.parametrize("brought", [True, False], ids=["held", "brought"])
def test_smaller_blocks_count_no_row_twice(gpu, data, brought, monkeypatch):
    parts = parts_of(data, np.float64)
    basis = FourierMap(n_components=8).fit(parts[0].inputs).basis_
    held = [Part(*(THERE.hold(array) for array in (part.inputs, part.targets)), THERE) for part in parts]
    here, there = (FourierRidge("test", basis, 64, device=device) for device in (dispatch.CPU, THERE))
    expected = CrossValidation(here, parts).criterion(SIGMA, STRENGTH)
    freed = short_of_memory(monkeypatch, 12, put=not brought)
    same_slopes(CrossValidation(there, held if brought else parts).criterion(SIGMA, STRENGTH), expected, 1e-9)
    assert len(freed) > 2
    short_of_memory(monkeypatch, 7)  # fewer than products of 8 features have
    with pytest.raises(DeviceError, match="too small even for a single row"):
        there.normal_equations(held, there.projection(SIGMA, np.float64))


@pytest.mark.parametrize(
    ("settings", "n_outputs"),
    [
        ({}, 1),
        ({"n_folds": 1, "block_rows": 20}, 2),
        ({"criterion": "training", "learn": "all", "block_rows": 20}, 1),
        ({"kernel": "skewed_chi2", "learn": "blocks", "blocks": [1, 3]}, 1),
    ],
    ids=["cross-validation", "held-out", "training", "skewed"],
)
def test_learned_values_are_those_of_the_cpu(gpu, data, settings, n_outputs):
    X, y = data
    y = y if n_outputs == 1 else np.stack([y, X[:, 3]], axis=1)
    settings = {"n_components": 20, "max_iter": 2, **settings}
    here = FourierKernelRegressor(**settings).fit(X, y)
    expected = here.predict(X)
    for given in ((X, y), (gpu.put(X), gpu.put(y))):
        there = FourierKernelRegressor(device="cuda", **settings).fit(*given)
        np.testing.assert_allclose(there.sigma_, here.sigma_, rtol=1e-5)
        np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-4, atol=1e-4)
        assert isinstance(there.coef_, np.ndarray)
        found = there.predict(X)
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(gpu.get(here.predict(gpu.put(X))), expected, rtol=1e-9)
    copy = pickle.loads(pickle.dumps(there)).set_params(device="cpu")
    np.testing.assert_allclose(copy.predict(X), found, rtol=1e-9)
    with pytest.raises(ValueError, match="expecting 4 features"):
        there.predict(gpu.put(X[:, 1:]))
    with pytest.raises(DataError, match="X holds NaN"):
        there.predict(gpu.put(np.where(X > 1.9, np.nan, X)))


def test_single_precision_stays_on_a_device(gpu, data):
    X, y = data[0].astype(np.float32), data[1]
    there = FourierKernelRegressor(n_components=20, max_iter=2, device="cuda").fit(X, y)
    assert there.coef_.dtype == there.predict(X).dtype == gpu.get(there.predict(gpu.put(X))).dtype
    assert there.coef_.dtype == np.float32
    here = FourierKernelRegressor(n_components=20, max_iter=2).fit(X, y)
    np.testing.assert_allclose(there.predict(X), here.predict(X), atol=0.05)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_learned_classes_are_those_of_the_cpu(gpu, data, n_classes):
    X, y = data[0], classes_of(data[1], n_classes)
    here = FourierKernelClassifier(n_components=20, max_iter=2).fit(X, y, validation=(X[:30], y[:30]))
    there = FourierKernelClassifier(n_components=20, max_iter=2, device="cuda").fit(
        gpu.put(X), y, validation=(gpu.put(X[:30]), y[:30])
    )
    expected = here.decision_function(X)
    np.testing.assert_allclose(there.decision_function(X), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        gpu.get(there.decision_function(gpu.put(X))), there.decision_function(X), rtol=1e-9
    )
    for given in (X, gpu.put(X)):
        found = there.predict(given)
        assert isinstance(found, np.ndarray)
        assert np.array_equal(found, here.predict(X))
    skewed = FourierKernelClassifier("skewed_chi2", n_components=20, max_iter=0).fit(X, y)
    bad = gpu.put(np.where(np.arange(X.size).reshape(X.shape) == 13, -2.0, X))
    with pytest.raises(DataError, match=r"Negative values in data: X holds -2 in row 3, column 1"):
        skewed.predict(bad)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("keep", [0, 1 << 20])
@pytest.mark.parametrize("short", [False, True])
def test_features_of_channels_are_those_of_the_cpu(gpu, data, dtype, keep, short, monkeypatch):
    X = data[0].astype(dtype)
    parts = [X[:, :1], X[:, 1:]]
    maps = [
        FourierMap(kernel, n_components=n, sigma=0.7).fit(part)
        for kernel, n, part in zip(("gaussian", "skewed_chi2"), (9, 6), parts, strict=True)
    ]
    random = np.random.default_rng(1)
    weights, shares = random.normal(size=(15, 2)), random.normal(size=(90, 2))
    monkeypatch.setattr(channel_features, "_ROWS_ON_A_GPU", 40)
    monkeypatch.setattr(fourier, "NUMBERS_ON_A_GPU", 200)
    here = ChannelFeatures(parts, maps, keep=keep)
    if short:
        freed = short_of_memory(monkeypatch, 16, put=True)
    there = ChannelFeatures(parts, maps, keep=keep, device=THERE)
    bound = 1e-4 if dtype == np.float32 else 1e-10
    for _ in range(2):  # the second time what is kept is taken
        np.testing.assert_allclose(there.scores(weights), here.scores(weights), atol=bound)
        np.testing.assert_allclose(there.combine(shares), here.combine(shares), atol=10 * bound)
    np.testing.assert_allclose(there.sum_up(shares), here.sum_up(shares), atol=bound)
    assert there.sum_up() is None
    np.testing.assert_allclose(there.means, here.means, atol=bound)
    np.testing.assert_allclose(there.gram.matrix, here.gram.matrix, atol=bound)
    np.testing.assert_allclose(
        there.gradient(shares, weights), here.gradient(shares, weights), rtol=bound, atol=100 * bound
    )
    other = there.with_sigma(np.array([0.3, 0.9]))
    assert other.device == THERE
    np.testing.assert_allclose(
        other.scores(weights), here.with_sigma(np.array([0.3, 0.9])).scores(weights), atol=bound
    )
    if short:
        assert len(freed) > 3
        assert not there._store


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"learn_sigma": True, "sigma_iter": 2, "per_feature": True},
        {"loss": "gamma_logistic", "channels": [[0, 3], [1, 2]]},
        {"kernel": "skewed_intersection", "penalty": "l2"},
    ],
    ids=["squared", "joint", "tube", "skewed"],
)
def test_learned_kernels_are_those_of_the_cpu(gpu, data, settings):
    X, y = data
    settings = {"channels": [1, 3], "n_components": 12, "share": 0.05, "tol": 1e-6, **settings}
    here = FourierMKLRegressor(**settings).fit(X, y)
    expected = here.predict(X)
    for given in ((X, y), (gpu.put(X), gpu.put(y))):
        there = FourierMKLRegressor(device="cuda", **settings).fit(*given)
        np.testing.assert_allclose(there.kernel_weights_, here.kernel_weights_, rtol=1e-2, atol=1e-4)
        np.testing.assert_allclose(np.concatenate(there.sigma_), np.concatenate(here.sigma_), rtol=1e-3)
        found = there.predict(X)
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, expected, atol=1e-2)
    np.testing.assert_allclose(gpu.get(here.predict(gpu.put(X))), expected, rtol=1e-9)
    copy = pickle.loads(pickle.dumps(there)).set_params(device="cpu")
    np.testing.assert_allclose(copy.predict(X), found, rtol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_lists_of_channels_lie_on_a_device(gpu, data, loss, n_classes):
    X, y = data[0], classes_of(data[1], n_classes)
    parts = [X[:, :1].astype(np.float32), X[:, 1:]]
    put = [gpu.put(part) for part in parts]
    settings = {"n_components": 12, "share": 0.1, "tol": 1e-6, "loss": loss}
    here = FourierMKLClassifier(**settings).fit(parts, y)
    expected = here.decision_function(parts)
    for given in (parts, put):
        there = FourierMKLClassifier(device="cuda", **settings).fit(given, y)
        np.testing.assert_allclose(there.decision_function(parts), expected, atol=1e-2)
        assert np.array_equal(there.predict(given), there.predict(parts))
    scores = gpu.get(here.decision_function(put))
    np.testing.assert_allclose(scores, expected, rtol=1e-9)
    np.testing.assert_allclose(
        gpu.get(here.decision_function(gpu.put(np.hstack(parts)))), expected, atol=1e-6
    )
    if loss == "logistic":
        np.testing.assert_allclose(here.predict_proba(put), here.predict_proba(parts), rtol=1e-9)
    path = FourierMKLClassifier(device="cuda", **settings).fit_path(put, y, [0.1, 0.01])
    assert [model.device for model in path] == ["cuda", "cuda"]
    assert np.abs(path[1].coef_).sum() > np.abs(path[0].coef_).sum()
    with pytest.raises(UsageError, match="different devices"):
        here.predict([put[0], parts[1]])
    with pytest.raises(DataError, match="channels of the widths"):
        here.predict(put[::-1])


def test_gradients_of_maps_take_what_is_told_here_and_there(gpu, data, monkeypatch):
    monkeypatch.setattr(fourier, "NUMBERS_ON_A_GPU", 200)
    X = data[0]
    waves = FourierMap(n_components=10, sigma=SIGMA).fit(X)
    slopes = np.random.default_rng(0).normal(size=(90, 10))
    expected = waves.gradient(X, slopes)
    np.testing.assert_allclose(waves.gradient(gpu.put(X), gpu.put(slopes)), expected, rtol=1e-9)
    waves.set_params(device="cuda")
    np.testing.assert_allclose(waves.gradient(X, slopes), expected, rtol=1e-9)
    seen = []

    def told(band, phi):
        seen.append(type(phi))
        return slopes[band]

    np.testing.assert_allclose(waves.gradient(X, told), expected, rtol=1e-9)
    assert set(seen) == {np.ndarray}


LEARNERS = [FourierKernelRegressor, FourierKernelClassifier, FourierMKLRegressor, FourierMKLClassifier]


@pytest.mark.parametrize("estimator", LEARNERS)
def test_waves_are_made_on_the_device_that_is_told(gpu, data, estimator, monkeypatch):
    X, y = data[0], (data[1] > 1).astype(int)
    run, launched, made_here = launch._run, [], []
    monkeypatch.setattr(
        launch, "_run", lambda kernel, *rest: (launched.append(kernel.name), run(kernel, *rest))
    )
    for name in ("make_waves", "make_waves_and_slopes"):
        function = getattr(cpu_maps, name)
        monkeypatch.setattr(
            cpu_maps, name, lambda *given, function=function: (made_here.append(1), function(*given))
        )
    more = {"max_iter": 1} if hasattr(estimator(), "criterion") else {"learn_sigma": True, "sigma_iter": 1}
    model = estimator(n_components=10, **more).fit(X, y)
    model.predict(X)
    assert made_here
    assert not launched
    made_here.clear()
    model.set_params(device="cuda").fit(X, y)
    assert {"waves_f64", "waves_and_slopes_f64"} == set(launched)
    launched.clear()
    model.predict(X)
    assert launched
    assert not made_here


@pytest.mark.parametrize(
    "made", [KernelRidgeGD(max_iter=0), GMKLClassifier()], ids=lambda made: type(made).__name__
)
def test_what_has_no_device_refuses_arrays_on_one(gpu, data, made):
    X, y = data[0], data[1] > data[1].mean()
    said = f"{type(made).__name__} computes on the CPU; give NumPy arrays"
    with pytest.raises(UsageError, match=said):
        made.fit(gpu.put(X), y)
    made.fit(X, y)
    with pytest.raises(UsageError, match=said):
        made.predict(gpu.put(X))


@pytest.mark.parametrize("estimator", LEARNERS)
def test_devices_that_are_misspelt_or_missing_are_named(gpu, data, estimator, monkeypatch):
    X, y = data[0], (data[1] > 1).astype(int)
    with pytest.raises(UsageError, match=f"'device' parameter of {estimator.__name__} must be 'auto', 'cpu'"):
        estimator(device="gpu").fit(X, y)
    model = estimator(n_components=10, device="cuda:7").fit(X, y)
    monkeypatch.setattr(cuda, "problem", lambda number=0: "there is no GPU")
    for call in (lambda: model.fit(X, y), lambda: model.predict(X)):
        with pytest.raises(DeviceError, match=f"{estimator.__name__}: device 'cuda:7' cannot compute here"):
            call()
    assert estimator(n_components=10, device="auto").fit(X, y).predict(X).shape == (90,)
