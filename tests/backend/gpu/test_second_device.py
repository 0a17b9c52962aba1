"""Work on a second device, while the first is the current one: arrays must be made where they are used."""

import numpy as np
import pytest

from tests.backend.gpu.test_estimators import mixed
from tests.backend.gpu.test_pipeline import books
from tests.detection.conftest import random_model
from visionkl.backend import dispatch
from visionkl.backend.gpu import device as cuda
from visionkl.coding.hog_codes import encode_pyramid
from visionkl.coding.pq import ProductQuantizer
from visionkl.core.errors import UsageError
from visionkl.detection.detector import DPMDetector
from visionkl.detection.suppress import suppress
from visionkl.features.fisher import FisherVector
from visionkl.features.gmm import DiagonalGMM
from visionkl.features.hog import hog
from visionkl.features.pyramid import feature_pyramid
from visionkl.features.sift import DenseSIFT
from visionkl.kernels.base import Polynomial
from visionkl.kernels.binary import BinaryProjectionMap, StumpMap
from visionkl.kernels.exact import Chi2, ExpChi2, Gaussian, JensenShannon, Linear, SkewedChi2
from visionkl.kernels.fourier import FourierMap
from visionkl.kernels.homogeneous import HomogeneousMap
from visionkl.learning.binary import MBKLClassifier
from visionkl.learning.multiple import FourierMKLClassifier
from visionkl.learning.single import FourierKernelClassifier
from visionkl.learning.svm import BundleSVC

WAYS = [("plain", "random"), pytest.param(("cuda", "device"), marks=pytest.mark.gpu)]
pytestmark = pytest.mark.parametrize("machine", WAYS, indirect=True, ids="-".join)


@pytest.fixture
def put(gpu):
    """Bring an array to the second device."""
    problem = cuda.problem(1)
    if problem is not None:
        pytest.skip(problem)
    return dispatch.Device(1).put


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(0, 256, (40, 48, 3)).astype(np.uint8)


def check(found, expected, bound=1e-4):
    if not isinstance(found, np.ndarray):
        assert found.device.id == 1
        found = found.get()
    np.testing.assert_allclose(found, expected, rtol=bound, atol=bound)


X = np.abs(mixed(60))
Y = np.arange(60) % 2


@pytest.mark.parametrize(
    "made",
    [
        FourierMap(n_components=20),
        FourierMap("skewed_chi2", n_components=20),
        HomogeneousMap(),
        ProductQuantizer(4, block_size=2),
        StumpMap(64),
        BinaryProjectionMap(64),
        BinaryProjectionMap(64, base=FourierMap(n_components=20)),
    ],
    ids=lambda made: type(made).__name__,
)
def test_maps(put, made):
    expected = made.set_params(device="cpu").fit(X).transform(X)
    check(made.set_params(device="cuda:1").transform(X), expected)
    check(made.transform(put(X)), expected)


@pytest.mark.parametrize(
    "kernel",
    [Linear(), Gaussian(), Chi2(), ExpChi2(), JensenShannon(), SkewedChi2(), Polynomial(Chi2(), (1.0, 2.0))],
    ids=lambda kernel: type(kernel).__name__,
)
def test_kernels(put, kernel):
    check(kernel(put(X)), kernel(X))
    check(kernel(put(X), put(X[:9])), kernel(X, X[:9]))
    check(kernel.diagonal(put(X)), kernel.diagonal(X))
    stumps = StumpMap(64).fit(X).kernel_
    check(stumps(put(X)), stumps(X))


def test_mixtures(put):
    here = DiagonalGMM(3).fit(X)
    check(DiagonalGMM(3, device="cuda:1").fit(X).means_, here.means_)
    check(here.predict_proba(put(X)), here.predict_proba(X))
    check(here.predict(put(X)), here.predict(X))


def test_pictures(put, image):
    check(hog(put(image)), hog(image))
    for level, expected in zip(
        feature_pyramid(put(image), interval=2).levels, feature_pyramid(image, interval=2).levels, strict=True
    ):
        check(level, expected)
    sift = DenseSIFT(step=6, bin_sizes=(3,))
    check(sift.extract(put(image)).values, sift.extract(image).values)
    fisher = FisherVector(2, n_pca=4, descriptors=sift).fit([image])
    expected = fisher.transform([image])
    check(fisher.set_params(device="cuda:1").transform([image]), expected, 1e-3)


@pytest.mark.parametrize("coded", [True, False])
def test_detection(put, image, coded):
    detector = DPMDetector.from_model(random_model(interval=2, codebooks=books() if coded else None))
    expected = detector.detect(image, threshold=-10)
    found = detector.detect(image, threshold=-10, device="cuda:1")
    assert len(found) == pytest.approx(len(expected), abs=2)
    # The search follows its pyramid, whichever device is the current one.
    model = detector.model
    pyramid = feature_pyramid(put(image), interval=2, padding=model.padding)
    pyramid = encode_pyramid(pyramid, model.codebooks) if coded else pyramid
    again = detector.detect_in(pyramid, threshold=-10, overlap=0.5, n_jobs=1)
    np.testing.assert_array_equal(again.boxes, found.boxes)


@pytest.mark.parametrize("interval", [1, 3])
def test_a_search_leaves_the_second_device_at_its_end(put, transfers, image, interval):
    detector = DPMDetector.from_model(random_model(interval=interval))
    pyramid = feature_pyramid(put(image), interval=interval, padding=detector.model.padding)
    transfers.clear()
    assert len(detector.detect_in(pyramid, threshold=-10, overlap=0.5, n_jobs=1))
    assert transfers == ["get"] * 4  # boxes, scores, components and parts


def test_boxes(put):
    boxes = np.array([[0, 0, 10, 10], [1, 0, 11, 10], [20, 0, 30, 10]])
    scores = np.array([0.5, 0.9, 0.1])
    check(suppress(put(boxes), put(scores)), suppress(boxes, scores))
    with pytest.raises(UsageError, match="different devices"):
        suppress(put(boxes), scores)


def test_machines(put):
    quantizer = ProductQuantizer(4, block_size=2).fit(X)
    codes = quantizer.transform(X)
    check(quantizer.inverse_transform(put(np.asarray(codes))), quantizer.inverse_transform(codes))
    books = quantizer.books_
    there = BundleSVC(codebooks=books).fit(put(np.asarray(codes)), Y)
    check(there.decision_function(put(np.asarray(codes))), there.decision_function(codes))
    for data in (X, codes):
        here = BundleSVC(route="bundle").fit(data, Y)
        there = BundleSVC(device="cuda:1").fit(data, Y)
        assert (here.predict(data) == there.predict(data)).mean() > 0.9
    here = BundleSVC().fit(X, Y)
    check(here.decision_function(put(X)), here.decision_function(X))
    binary = MBKLClassifier(64).fit(X, Y)
    check(binary.decision_function(put(X)), binary.decision_function(X))


@pytest.mark.parametrize(
    "made",
    [
        FourierKernelClassifier(n_components=10, max_iter=1),
        FourierKernelClassifier("skewed_chi2", n_components=10, max_iter=1, n_folds=1),
        FourierMKLClassifier([[0, 2], [1, 3]], n_components=10, share=0.1, tol=1e-6, learn_sigma=True),
        FourierMKLClassifier([1, 3], n_components=10, share=0.1, tol=1e-6, loss="logistic"),
    ],
    ids=lambda made: type(made).__name__,
)
def test_fourier_learners(put, made):
    made.set_params(device="cpu")
    expected = made.fit(X, Y).decision_function(X)
    check(made.decision_function(put(X)), expected)
    check(made.set_params(device="cuda:1").fit(X, Y).decision_function(X), expected, 1e-2)
    check(made.fit(put(X), put(Y)).decision_function(put(X)), expected, 1e-2)


def test_arrays_of_two_devices_do_not_mix(put, gpu):
    with pytest.raises(UsageError, match=r"different devices \(cuda:0, cuda:1\)"):
        Linear()(put(X), gpu.put(X))
