"""Estimators that begin in ordinary memory, on a device, against the CPU."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from visionkl.backend import dispatch
from visionkl.backend.gpu import device as cuda
from visionkl.coding.pq import ProductQuantizer
from visionkl.core.errors import DataError, UsageError
from visionkl.features import densities, sift
from visionkl.features.fisher import FisherVector
from visionkl.features.gmm import DiagonalGMM
from visionkl.features.sift import DenseSIFT, dense_sift
from visionkl.kernels import questions
from visionkl.kernels.binary import BinaryKernel, BinaryProjectionMap, StumpMap
from visionkl.kernels.fourier import FourierMap
from visionkl.learning.binary import MBKLClassifier
from visionkl.learning.svm import BundleSVC, BundleSVR
from visionkl.solvers import coded, rows
from visionkl.solvers.coded import DecodingRows, TableRows
from visionkl.solvers.rows import CodedRows, DenseRows

# One way of running is enough: each kernel is tested in all ways elsewhere.
WAYS = [("plain", "random"), pytest.param(("cuda", "device"), marks=pytest.mark.gpu)]
pytestmark = pytest.mark.parametrize("machine", WAYS, indirect=True, ids="-".join)


@pytest.fixture
def image():
    random = np.random.default_rng(0)
    picture = random.integers(0, 256, (40, 44, 3)).astype(np.uint8)
    picture[:, :20] = 90  # where descriptors are zero
    return picture


def mixed(n=300, d=4, dtype=np.float64, seed=0):
    random = np.random.default_rng(seed)
    centres = random.normal(0, 4, (3, d))
    return (centres[random.integers(0, 3, n)] + random.normal(size=(n, d))).astype(dtype)


@pytest.mark.parametrize(("color", "dtype"), [("grey", "float32"), ("opponent", "float32"), ("rgb", "uint8")])
def test_descriptors_are_those_of_the_cpu(gpu, image, color, dtype, monkeypatch):
    settings = {"step": 5, "bin_sizes": (3, 4), "color": color, "dtype": dtype}
    expected = dense_sift(image, **settings)
    monkeypatch.setattr(sift, "_NUMBERS_ON_A_GPU", 4000)  # several blocks of places
    there = dense_sift(image, device="cuda", **settings)
    bounds = {"atol": 1} if dtype == "uint8" else {"rtol": 1e-4, "atol": 1e-5}
    assert isinstance(there.values, np.ndarray)
    np.testing.assert_allclose(there.values.astype(float), expected.values.astype(float), **bounds)
    assert np.array_equal(there.positions, expected.positions)
    stay = dense_sift(gpu.put(image), **settings)
    np.testing.assert_allclose(gpu.get(stay.values).astype(float), expected.values.astype(float), **bounds)
    some = np.array([5, 2, 9])
    assert np.array_equal(gpu.get(stay[some].values), gpu.get(stay.values)[some])


def test_shrunken_pictures_are_described_where_they_lie(gpu, image):
    extractor = DenseSIFT(step=4, bin_sizes=(3,), max_side=30)
    expected, found = extractor.extract(image), extractor.extract(gpu.put(image))
    np.testing.assert_allclose(gpu.get(found.values), expected.values, rtol=1e-4, atol=1e-5)
    assert dense_sift(gpu.put(image[:5, :5])).values.shape == (0, 128)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mixtures_are_those_of_the_cpu(gpu, dtype, monkeypatch):
    monkeypatch.setattr(densities, "_BLOCK_ROWS_ON_A_GPU", 64)
    X = mixed(dtype=dtype)
    bound = 1e-3 if dtype == np.float32 else 1e-9
    here, there = DiagonalGMM(3).fit(X), DiagonalGMM(3, device="cuda").fit(X)
    for name in ("weights_", "means_", "variances_"):
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=bound, atol=bound)
    expected = here.predict_proba(X), here.score_samples(X)
    there.weights_, there.means_, there.variances_ = here.weights_, here.means_, here.variances_
    for found, wanted in zip((there.predict_proba(X), there.score_samples(X)), expected, strict=True):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gpu.get(here.predict_proba(gpu.put(X))), expected[0], atol=1e-5)
    assert np.array_equal(gpu.get(here.predict(gpu.put(X))), here.predict(X))
    assert here.score(gpu.put(X)) == pytest.approx(here.score(X), rel=1e-5)
    with pytest.raises(ValueError, match="X has 3 features, but DiagonalGMM is expecting 4"):
        here.predict(gpu.put(X[:, :3]))
    with pytest.raises(DataError, match="X holds NaN"):
        here.predict(gpu.put(np.full((2, 4), np.nan)))


@pytest.mark.parametrize("augment", ["none", "position"])
def test_fisher_vectors_are_those_of_the_cpu(gpu, image, augment):
    random = np.random.default_rng(1)
    pictures = [random.integers(0, 256, (28, 30)).astype(np.uint8) for _ in range(3)]
    fisher = FisherVector(
        3, n_pca=8, cells=(1, 2), augment=augment, descriptors=DenseSIFT(step=4, bin_sizes=(3,))
    ).fit(pictures)
    expected = fisher.transform(pictures)
    there = fisher.set_params(device="cuda")
    np.testing.assert_allclose(there.transform(pictures), expected, rtol=1e-3, atol=1e-4)
    copy = pickle.loads(pickle.dumps(there))  # without what lies on the GPU
    np.testing.assert_allclose(copy.transform(pictures), expected, rtol=1e-3, atol=1e-4)
    descriptors = there.extractor_.extract(gpu.put(pictures[0]))
    assert not isinstance(descriptors.values, np.ndarray)
    there.set_params(device="cpu")  # and yet on the GPU, where the descriptors are
    np.testing.assert_allclose(there.encode(descriptors), expected[0], rtol=1e-3, atol=1e-4)
    with pytest.raises(DataError, match="NaN"):
        there.encode(
            type(descriptors)(
                gpu.put(np.full((3, 128), np.nan, np.float32)),
                descriptors.positions[:3],
                descriptors.sizes[:3],
                descriptors.image_size,
            )
        )
    learned = FisherVector(3, n_pca=8, descriptors=DenseSIFT(step=4, bin_sizes=(3,)), device="cuda").fit(
        pictures
    )
    assert learned.transform(pictures[:1]).shape == (1, 2 * 3 * 8)


def test_what_does_not_fit_is_brought_in_blocks(gpu, monkeypatch):
    class OutOfMemoryError(MemoryError):
        """Named as CuPy's."""

    X, whole = mixed(), dispatch.Device.put
    freed = []

    def put(self, array):
        if self.is_gpu and len(array) > 100:
            raise OutOfMemoryError("7 GB")
        return whole(self, array)

    monkeypatch.setattr(dispatch.Device, "put", put)
    monkeypatch.setattr(cuda, "free_memory", lambda: freed.append(1))
    expected = DiagonalGMM(3).fit(X)
    found = DiagonalGMM(3, device="cuda").fit(X)
    np.testing.assert_allclose(found.means_, expected.means_, rtol=1e-9)
    assert len(freed) > 1


@pytest.mark.parametrize(
    ("X", "said"),
    [
        (np.zeros(3), r"X must have the shape \(n_samples, n_features\), not \(3,\)"),
        (np.zeros((0, 4)), r"X must have the shape \(n_samples, n_features\), not \(0, 4\)"),
        (np.zeros((2, 4), complex), "X must hold real numbers, not complex128"),
    ],
)
def test_bad_rows_on_a_device_are_named(gpu, X, said):
    for taken in (StumpMap(64).fit(mixed()), DiagonalGMM(2).fit(mixed())):
        ask = getattr(taken, "predict", None) or taken.transform
        with pytest.raises(DataError, match=said):
            ask(gpu.put(X))


def test_integers_and_half_precision_become_doubles(gpu):
    X = (mixed() * 4).astype(np.int32)
    stumps = StumpMap(64).fit(X)
    assert np.array_equal(gpu.get(stumps.transform(gpu.put(X))), stumps.transform(X))
    half = X.astype(np.float16)
    assert np.array_equal(gpu.get(stumps.transform(gpu.put(half))), stumps.transform(half))


@pytest.mark.parametrize(
    "made",
    [
        DenseSIFT(device="cuda:x"),
        DiagonalGMM(2, device="cuda:x"),
        StumpMap(64, device="cuda:x"),
        BundleSVR(device="cuda:x"),
        MBKLClassifier(64, device="cuda:x"),
    ],
    ids=lambda made: type(made).__name__,
)
def test_misspelt_devices_are_named(gpu, made, image):
    with pytest.raises(UsageError, match="must be 'auto', 'cpu', 'cuda' or 'cuda:<number>'"):
        made.extract(image) if hasattr(made, "extract") else made.fit(mixed(), np.arange(300) % 2)


MAPS = [
    StumpMap(150),
    BinaryProjectionMap(70),
    BinaryProjectionMap(70, base=FourierMap(n_components=30)),
    BinaryProjectionMap(70, base=StandardScaler()),
]


@pytest.mark.parametrize("asked", MAPS, ids=["stumps", "projections", "Fourier", "scaled"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_are_those_of_the_cpu(gpu, asked, dtype, monkeypatch):
    monkeypatch.setattr(questions, "_NUMBERS_ON_A_GPU", 5000)  # several blocks
    X = mixed(100, dtype=dtype)
    here = asked.set_params(device="cpu").fit(X)
    expected = here.transform(X)
    at_a_threshold = 2  # projections are added in another order
    for found in (here.set_params(device="cuda").transform(X), gpu.get(here.transform(gpu.put(X)))):
        assert found.dtype == np.uint8
        assert np.unpackbits(found ^ expected).sum() <= at_a_threshold
    again = pickle.loads(pickle.dumps(here.fit(X)))
    assert np.array_equal(again.transform(X), here.transform(X))


def test_bits_of_sparse_rows_are_those_of_dense_ones(gpu):
    X = mixed(30)
    X[np.abs(X) < 1] = 0
    stumps = StumpMap(100, device="cuda").fit(sparse.csr_array(X))
    assert np.array_equal(stumps.transform(sparse.csr_array(X)), stumps.set_params(device="cpu").transform(X))


@pytest.mark.parametrize("weighted", [False, True])
def test_binary_kernels_are_those_of_the_cpu(gpu, weighted):
    X, Y = mixed(20), mixed(9, seed=1)
    asked = StumpMap(100).fit(X).questions_
    theta = np.random.default_rng(0).random(100) if weighted else None
    kernel = BinaryKernel(asked, theta)
    np.testing.assert_allclose(gpu.get(kernel(gpu.put(X), gpu.put(Y))), kernel(X, Y), rtol=1e-12)
    np.testing.assert_allclose(gpu.get(kernel(gpu.put(X))), kernel(X), rtol=1e-12)
    np.testing.assert_allclose(gpu.get(kernel.diagonal(gpu.put(X))), kernel.diagonal(X))
    with pytest.raises(UsageError, match="different devices"):
        kernel(gpu.put(X), Y)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("theta", ["learned", "l1"])
def test_binary_kernel_machines_are_those_of_the_cpu(gpu, theta, n_classes):
    X = mixed(90)
    y = np.searchsorted(
        np.quantile(X[:, 0] + X[:, 1], np.arange(1, n_classes) / n_classes), X[:, 0] + X[:, 1]
    )
    settings = {"n_maps": 100, "theta": theta, "tol": 1e-4 if theta == "learned" else 0.05}
    here = MBKLClassifier(**settings).fit(X, y)
    there = MBKLClassifier(device="cuda", **settings).fit(gpu.put(X), gpu.put(y))
    # Both are near the optimum, in their own ways.
    assert (there.predict(X) == here.predict(X)).mean() > 0.9
    expected = here.decision_function(X)
    np.testing.assert_allclose(gpu.get(here.decision_function(gpu.put(X))), expected, atol=1e-4)
    here.set_params(device="cuda")
    np.testing.assert_allclose(here.decision_function(X), expected, atol=1e-4)
    np.testing.assert_allclose(here.decision_function(sparse.csr_array(X)), expected, atol=1e-4)


@pytest.mark.parametrize("kind", [TableRows, DecodingRows])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("fits", [True, False])
def test_rows_of_codes_are_those_of_the_cpu(gpu, kind, k, fits, monkeypatch, tmp_path):
    monkeypatch.setattr(coded, "_CHUNK_ON_A_GPU", 40)
    monkeypatch.setattr(coded, "_TILE_ON_A_GPU", 2)
    if not fits:
        monkeypatch.setattr(coded, "turn_there", lambda codes, device: None)
    random = np.random.default_rng(0)
    codes = random.integers(0, 9, (90, 5)).astype(np.uint8)
    np.save(tmp_path / "codes.npy", codes)
    words = random.normal(size=(5, 9, 4)).astype(np.float32)
    v, shares = random.normal(size=(k, 20)), random.normal(size=(k, 70))
    here = kind(codes, words)
    mapped = np.load(tmp_path / "codes.npy", mmap_mode="r")
    for given in (codes, mapped) if not fits else (codes, mapped, gpu.put(codes)):
        there = kind(given, words, device=dispatch.Device(0))
        np.testing.assert_allclose(there.scores(v), here.scores(v), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(there.combine(shares, 10), here.combine(shares, 10), rtol=1e-5, atol=1e-5)
        assert np.array_equal(there.stored(), codes)
        part = slice(3, 50), slice(1, 4)
        assert np.array_equal(gpu.get(there.decode(*part)), here.decode(*part))


@pytest.mark.parametrize("samples_last", [True, False])
@pytest.mark.parametrize("fits", [True, False])
def test_rows_with_tables_as_coefficients_are_those_of_the_cpu(gpu, fits, samples_last, monkeypatch):
    monkeypatch.setattr(rows, "CODES_ON_A_GPU", 150)  # thirty rows at a time
    if not fits:
        monkeypatch.setattr(rows, "turn_there", lambda codes, device: None)
    random = np.random.default_rng(0)
    codes = random.integers(0, 300, (80, 5)).astype(np.uint16)
    given = codes.T if samples_last else codes
    here = CodedRows(given, 300, samples_last=samples_last)
    there = CodedRows(given, 300, samples_last=samples_last, device=dispatch.Device(0))
    for v in (random.normal(size=1500), random.normal(size=(2, 1500))):
        np.testing.assert_allclose(there.scores(v), here.scores(v), rtol=1e-6, atol=1e-6)
    shares = random.normal(size=(2, 60)) * (random.random(60) < 0.7)
    np.testing.assert_allclose(there.combine(shares, 15), here.combine(shares, 15), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_rows_are_those_of_the_cpu(gpu, dtype, monkeypatch):
    monkeypatch.setattr(rows, "_BAND_ON_A_GPU", 16)
    X, random = mixed(50, dtype=dtype), np.random.default_rng(0)
    here = DenseRows(X)
    for given in (X, gpu.put(X)):
        there = DenseRows(given, device=dispatch.Device(0))
        for v in (random.normal(size=4), random.normal(size=(3, 4))):
            np.testing.assert_allclose(there.scores(v), here.scores(v), rtol=1e-5)
        shares = random.normal(size=(2, 40))
        np.testing.assert_allclose(there.combine(shares, 5), here.combine(shares, 5), rtol=1e-4, atol=1e-4)
    bad = X.copy()
    bad[7, 1] = np.nan
    with pytest.raises(DataError, match="Row 7 of the training data"):
        DenseRows(gpu.put(bad))


def test_machines_on_codes_are_those_of_the_cpu(gpu):
    X = mixed(120, d=8)
    y = np.where(X[:, 0] + X[:, 1] > np.median(X[:, 0] + X[:, 1]), "yes", "no")
    quantizer = ProductQuantizer(8, block_size=2).fit(X)
    codes = quantizer.transform(X)
    here = BundleSVC(route="bundle", tol=1e-4).fit(codes, y)
    there = BundleSVC(device="cuda", tol=1e-4).fit(codes, y)
    assert there.route_reason_ == "bundle: no other route computes on cuda:0"
    np.testing.assert_allclose(there.decision_function(codes), here.decision_function(codes), atol=0.1)
    assert (there.predict(codes) == here.predict(codes)).mean() > 0.97
    on_device = BundleSVC(codebooks=quantizer.books_, tol=1e-4).fit(gpu.put(np.asarray(codes)), y)
    assert on_device.route_ == "bundle"
    scores = gpu.get(on_device.decision_function(gpu.put(np.asarray(codes))))
    np.testing.assert_allclose(scores, there.decision_function(codes), rtol=1e-6, atol=1e-6)
    assert isinstance(on_device.predict(gpu.put(np.asarray(codes))), np.ndarray)
    for route in ("gram", "rows"):
        with pytest.raises(
            UsageError, match="'route' parameter of BundleSVC must be 'bundle' or 'auto' on cuda"
        ):
            BundleSVC(device="cuda", route=route).fit(codes, y)
        assert BundleSVC(device="auto", route=route).fit(codes, y).route_ == route


def test_machines_on_dense_rows_are_those_of_the_cpu(gpu):
    X = mixed(80)
    target = X @ [1.0, -1.0, 0.5, 0.0]
    here = BundleSVR(route="bundle", tol=1e-4).fit(X, target)
    for given in (X, gpu.put(X)):
        there = BundleSVR(device="cuda", tol=1e-4).fit(given, target)
        np.testing.assert_allclose(there.coef_, here.coef_, atol=0.05)
    np.testing.assert_allclose(gpu.get(there.predict(gpu.put(X))), there.predict(X), rtol=1e-9)
    with pytest.raises(UsageError, match="Sparse rows are multiplied on the CPU, not on cuda:0"):
        there.fit(sparse.csr_array(X), target)
    BundleSVR(device="auto").fit(sparse.csr_array(X), target)
    with pytest.raises(DataError, match="there are 80 samples but 79 labels"):
        there.fit(gpu.put(X), target[1:])
    with pytest.raises(ValueError, match="expecting 4 features"):
        there.predict(gpu.put(X[:, 1:]))
    with pytest.raises(DataError, match="X holds uint8; if these are codes, give 'codebooks'"):
        there.fit(gpu.put(np.zeros((80, 3), np.uint8)), target)
