"""From a picture to boxes on a device, against the CPU: nothing leaves the device on the way."""

import pickle

import numpy as np
import pytest

from tests.detection.conftest import random_model
from visionkl import doctor
from visionkl.backend import dispatch
from visionkl.backend.gpu import maps
from visionkl.coding.codebooks import Codebooks
from visionkl.coding.hog_codes import coded_pyramids, frame_cell
from visionkl.coding.pq import ProductQuantizer
from visionkl.core.errors import DataError, UsageError
from visionkl.detection.detector import DPMDetector
from visionkl.detection.matching import Matcher
from visionkl.features.hog import hog
from visionkl.features.pyramid import feature_pyramid
from visionkl.kernels import base as kernels_base
from visionkl.kernels import exact, fourier, mapping
from visionkl.kernels.additive import SparseAdditiveMap
from visionkl.kernels.base import Additive, Polynomial, UserKernel
from visionkl.kernels.exact import (
    Chi2,
    ExpChi2,
    Gaussian,
    Hellinger,
    Intersection,
    JensenShannon,
    Linear,
    SkewedChi2,
    SkewedIntersection,
    kernel_matrix,
)
from visionkl.kernels.fourier import FourierMap
from visionkl.kernels.homogeneous import HomogeneousMap
from visionkl.kernels.projection import KernelProjection
from visionkl.kernels.rbf import ExpChi2Map

# One way of running is enough: each kernel is tested in all ways elsewhere.
WAYS = [("plain", "random"), pytest.param(("cuda", "device"), marks=pytest.mark.gpu)]
pytestmark = pytest.mark.parametrize("machine", WAYS, indirect=True, ids="-".join)


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(0, 256, (64, 72, 3)).astype(np.uint8)


def books():
    random = np.random.default_rng(1)
    cells = random.uniform(0, 0.3, (15, 32)).astype(np.float32)
    cells[:, 31] = 0
    words = np.vstack([cells, frame_cell()]).reshape(16, 2, 16).transpose(1, 0, 2)
    return Codebooks(words)


def test_pyramids_are_those_of_the_cpu(gpu, image):
    settings = {"interval": 2, "padding": (2, 3)}
    expected = feature_pyramid(image, **settings)
    found = feature_pyramid(image, device=dispatch.Device(0), **settings)
    assert np.array_equal(found.scales, expected.scales)
    assert len(feature_pyramid(gpu.put(image), **settings)) == len(
        feature_pyramid(image, device="cuda", **settings)
    )
    cells = hog(image)
    np.testing.assert_allclose(hog(image, device="cuda"), cells, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gpu.get(hog(gpu.put(image))), cells, rtol=1e-5, atol=1e-5)
    for level, wanted in zip(found.levels, expected.levels, strict=True):
        np.testing.assert_allclose(gpu.get(level), wanted, rtol=1e-5, atol=1e-5)


def test_pyramids_of_codes_are_those_of_the_cpu(gpu, image):
    settings = {"interval": 2, "padding": (2, 3)}
    (expected,) = coded_pyramids(image, [books()], **settings)
    (found,) = coded_pyramids(image, [books()], device=dispatch.Device(0), **settings)
    n_different = sum(
        int((gpu.get(level) != wanted).sum())
        for level, wanted in zip(found.levels, expected.levels, strict=True)
    )
    assert n_different <= 2  # cells that differ in the last digit may lie between two codewords


@pytest.mark.parametrize("max_displacement", [3, None])
@pytest.mark.parametrize("coded", [False, True])
def test_detections_are_those_of_the_cpu(gpu, image, coded, max_displacement):
    settings = {"interval": 2, "threshold": -2.0, "max_displacement": max_displacement}
    model = random_model(**settings, **({"codebooks": books()} if coded else {}))
    detector = DPMDetector.from_model(model)
    # Nothing is suppressed: of windows in the frame alone, which all score the same, chance would choose.
    expected, found = (detector.detect(image, overlap=1.0, device=device) for device in ("cpu", "cuda"))
    assert len(found) == len(expected) > 10
    np.testing.assert_allclose(found.scores, expected.scores, atol=2e-3)
    rows = [np.column_stack([few.boxes, few.scores, few.components]) for few in (expected, found)]
    farthest = np.abs(rows[0][:, None] - rows[1]).max(axis=2).min(axis=1).max()
    assert farthest < 1e-2, "a box of the CPU was not found"
    assert pickle.loads(pickle.dumps(detector))._matcher_on_gpu is None


@pytest.mark.parametrize("max_displacement", [3, None])
@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("interval", [1, 4])
def test_a_search_leaves_the_device_at_its_end(gpu, transfers, image, coded, max_displacement, interval):
    settings = {"interval": interval, "threshold": -2.0, "max_displacement": max_displacement}
    model = random_model(**settings, **({"codebooks": books()} if coded else {}))
    detector = DPMDetector.from_model(model)
    found = detector.detect(gpu.put(image), device="cuda")
    assert len(found) > 3
    # The picture is read in ordinary memory. Of codes, which could be too large, the extremes are looked at.
    checks = ["__int__", "__int__"] if coded else []
    assert transfers == ["get", *checks, "get", "get", "get", "get"]


def test_placements_stay_on_the_device(gpu, image):
    model = random_model(interval=2, threshold=-2.0)
    here, there = (
        Matcher(model, device).match(
            feature_pyramid(image, interval=2, padding=model.padding, device=device), -2.0
        )
        for device in (dispatch.CPU, dispatch.Device(0))
    )
    assert len(there) == len(here) > 10
    np.testing.assert_allclose(gpu.get(there.scores), here.scores, atol=2e-3)
    for name in ("components", "levels", "roots", "parts"):
        assert np.array_equal(gpu.get(getattr(there, name)), getattr(here, name))
    brought = there.on(dispatch.CPU)
    assert np.array_equal(brought.parts, here.parts)
    assert brought.on(dispatch.CPU).parts is brought.parts


def test_codes_that_are_none_are_found_before_a_search(gpu, image):
    model = random_model(interval=2, codebooks=books())
    (pyramid,) = coded_pyramids(image, [books()], interval=2, padding=model.padding, device="cuda")
    pyramid.levels[1][2, 2, 0] = 16
    with pytest.raises(DataError, match=r"codes lie in 0\.\.15; these span 0\.\.16"):
        DPMDetector.from_model(model).detect_in(pyramid, threshold=0.0, overlap=0.5, n_jobs=1)


def test_nothing_is_found_in_a_tiny_picture(gpu):
    detector = DPMDetector.from_model(random_model(interval=2))
    assert len(detector.detect(np.zeros((12, 12), np.uint8), threshold=10.0, device="cuda")) == 0


def rows(dtype=np.float32):
    return np.random.default_rng(2).random((40, 6)).astype(dtype)


@pytest.mark.parametrize("kernel", ["gaussian", "skewed_chi2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fourier_maps_are_those_of_the_cpu(gpu, kernel, dtype, monkeypatch):
    monkeypatch.setattr(mapping, "NUMBERS_ON_A_GPU", 900)  # several blocks
    expected = FourierMap(kernel, n_components=50).fit_transform(rows(dtype))
    there = FourierMap(kernel, n_components=50, device="cuda").fit(rows(dtype))
    np.testing.assert_allclose(there.transform(rows(dtype)), expected, atol=1e-5)
    plain = FourierMap(kernel, n_components=50).fit(gpu.put(rows(dtype)))
    np.testing.assert_allclose(gpu.get(plain.transform(gpu.put(rows(dtype)))), expected, atol=1e-5)


@pytest.mark.parametrize("kernel", ["gaussian", "skewed_chi2"])
def test_gradients_of_fourier_maps_are_those_of_the_cpu(gpu, kernel, monkeypatch):
    monkeypatch.setattr(fourier, "NUMBERS_ON_A_GPU", 500)  # ten rows at a time
    X = rows()
    here = FourierMap(kernel, n_components=50, sigma=[0.5] * 6).fit(X)
    slopes = np.random.default_rng(2).normal(size=(len(X), 50))
    expected = here.gradient(X, slopes)
    np.testing.assert_allclose(here.gradient(gpu.put(X), gpu.put(slopes)), expected, rtol=1e-5, atol=1e-5)
    of_values = here.gradient(X, lambda band, phi: 2 * phi)
    found = here.gradient(gpu.put(X), lambda band, phi: 2 * phi)
    np.testing.assert_allclose(found, of_values, rtol=1e-4, atol=1e-5)
    there = here.set_params(device="cuda")
    np.testing.assert_allclose(there.gradient(X, slopes), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(there.gradient(X, lambda band, phi: 2 * phi), of_values, rtol=1e-4, atol=1e-5)
    with pytest.raises(UsageError, match="different devices"):
        here.gradient(gpu.put(X), slopes)


@pytest.mark.parametrize("made", [SparseAdditiveMap(), KernelProjection(n_representatives=5), ExpChi2Map()])
def test_maps_of_the_cpu_say_so(gpu, made):
    with pytest.raises(UsageError, match=r"maps rows on the CPU; give NumPy arrays \(cupy.asnumpy\)"):
        made.fit(rows()).transform(gpu.put(rows()))


def test_homogeneous_maps_are_those_of_the_cpu(gpu):
    expected = HomogeneousMap(order=2).fit_transform(rows())
    there = HomogeneousMap(order=2, device="cuda").fit(rows())
    np.testing.assert_allclose(there.transform(rows()), expected, atol=1e-5)
    np.testing.assert_allclose(gpu.get(there.transform(gpu.put(rows()))), expected, atol=1e-5)
    with pytest.raises(DataError, match="Negative values in data: X holds -1 in row 0, column 0"):
        there.transform(gpu.put(-np.ones((3, 6))))
    with pytest.raises(DataError, match="X holds NaN"):
        there.transform(gpu.put(np.full((3, 6), np.nan)))


def test_codes_of_rows_are_those_of_the_cpu(gpu):
    quantizer = ProductQuantizer(8, block_size=3).fit(rows())
    expected = quantizer.transform(rows())
    there = quantizer.set_params(device="cuda")
    assert np.array_equal(there.transform(rows()), expected)
    codes = there.transform(gpu.put(rows()))
    assert np.array_equal(gpu.get(codes), expected)
    decoded = there.books_.decode(codes)
    assert np.array_equal(gpu.get(decoded), there.books_.decode(expected))


@pytest.mark.parametrize(
    "kernel",
    [
        Chi2(),
        Intersection(),
        JensenShannon(),
        ExpChi2(2.0),
        SkewedChi2(),
        SkewedIntersection(),
        Linear(),
        Hellinger(),
        Gaussian(0.7),
        Polynomial(Intersection(), (0.5, 0.0, 2.0)),
        Additive(lambda x, y: x * y),
        UserKernel(lambda X, Y: X @ Y.T),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
@pytest.mark.parametrize("size", [2**26, 70], ids=["whole", "bands"])
def test_kernel_matrices_are_those_of_the_cpu(gpu, kernel, size, monkeypatch):
    monkeypatch.setattr(kernels_base, "_NUMBERS_ON_A_GPU", size)
    monkeypatch.setattr(kernels_base, "_BAND", 4)
    X, Y = rows()[:15], rows()[15:]
    found = kernel(gpu.put(X), gpu.put(Y))
    np.testing.assert_allclose(gpu.get(found), kernel(X, Y), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gpu.get(kernel(gpu.put(X))), kernel(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gpu.get(kernel.diagonal(gpu.put(X))), kernel.diagonal(X), rtol=1e-5)
    with pytest.raises(UsageError, match="different devices"):
        kernel(gpu.put(X), Y)


def test_kernels_that_suit_rows_on_the_device_are_those_of_the_cpu(gpu, monkeypatch):
    monkeypatch.setattr(exact, "_ENOUGH_ROWS", 20)
    X = rows()
    assert Gaussian.of(gpu.put(X)).sigma == pytest.approx(Gaussian.of(X).sigma, rel=1e-6)
    assert ExpChi2.of(gpu.put(X)).width == pytest.approx(ExpChi2.of(X).width, rel=1e-5)
    np.testing.assert_allclose(gpu.get(kernel_matrix(gpu.put(X))), kernel_matrix(X), rtol=1e-5)


def test_wide_ranges_are_computed_in_double_precision(gpu):
    X = np.geomspace(1e-9, 1e9, 12).reshape(6, 2).astype(np.float32)
    kernel = SkewedChi2(sigma=4.0, c=1e-9)
    np.testing.assert_allclose(gpu.get(kernel(gpu.put(X))), kernel(X), rtol=1e-4, atol=1e-30)
    with pytest.raises(DataError, match=r"spans .* in column [01],"):
        SkewedChi2(sigma=40.0, c=1e-9)(gpu.put(X))


@pytest.mark.parametrize("name", doctor._CHECKS)
def test_the_doctors_self_tests_are_passed(gpu, name):
    assert doctor._compare(doctor._CHECKS[name]).endswith(": right")


def test_types_that_no_kernel_takes_are_named(gpu):
    phases = gpu.put(np.zeros((2, 3), np.float16))
    with pytest.raises(DataError, match=r"waves \(GPU\): arrays of float16 .* give float32 or float64"):
        maps.make_waves(phases, 0, 3, phases, 1.0, ())


def test_arrays_decide(gpu):
    here, there = np.zeros(3), gpu.put(np.zeros(3))
    assert dispatch.loops("hog", here).__name__ == "visionkl.backend.cpu.hog"
    assert dispatch.loops("hog", there).__name__ == "visionkl.backend.gpu.hog"
    assert dispatch.namespace_of(here) is np
    assert dispatch.to_host(here) is here
    assert isinstance(dispatch.to_host(there), np.ndarray)
    assert dispatch.Device(0).put(there) is there
    with pytest.raises(UsageError, match=r"different devices \(cpu, cuda:0\)"):
        dispatch.loops("hog", here, there)
