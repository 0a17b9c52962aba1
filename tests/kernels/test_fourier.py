"""Random Fourier maps: how the error falls, gradients, and scikit-learn's maps of the same kernels."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.kernel_approximation import RBFSampler, SkewedChi2Sampler

from visionkl.core.errors import DataError, UsageError
from visionkl.kernels.fourier import FourierMap

KERNELS = ("gaussian", "skewed_chi2", "skewed_intersection")


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).random((50, 6))


def rms_error(fitted, X, mapped=None, kernel=None):
    mapped = fitted.transform(X) if mapped is None else mapped
    K = fitted.kernel_(X) if kernel is None else kernel
    return np.sqrt(np.mean((mapped @ mapped.T - K) ** 2))


def mean_error(X, kernel, n_components, **settings):
    maps = [FourierMap(kernel, n_components=n_components, random_state=seed, **settings) for seed in range(6)]
    return np.mean([rms_error(map_.fit(X), X) for map_ in maps])


@pytest.mark.parametrize("kernel", KERNELS)
def test_error_falls_with_the_root_of_the_components(kernel, rows):
    sizes = np.array([128, 512, 2048, 8192])
    errors = [mean_error(rows, kernel, n, sigma=1.5) for n in sizes]
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert -0.6 < slope < -0.4


@pytest.mark.parametrize(
    ("kernel", "frequencies", "share"),
    [
        ("gaussian", "orthogonal", 0.97),
        ("gaussian", "quasi", 0.9),
        ("skewed_chi2", "quasi", 0.6),
        ("skewed_intersection", "quasi", 0.9),
    ],
)
def test_better_draws_have_smaller_errors(kernel, frequencies, share, rows):
    independent = mean_error(rows, kernel, 1024, sigma=0.7)
    assert mean_error(rows, kernel, 1024, sigma=0.7, frequencies=frequencies) < share * independent


def test_orthogonal_frequencies_are_orthogonal_and_as_long_as_gaussian_ones(rows):
    X = np.random.default_rng(1).random((5, 40))
    H = FourierMap(n_components=4000, frequencies="orthogonal").fit(X).basis_.frequencies
    np.testing.assert_array_equal(H[::2], H[1::2])
    H = H[::2]
    first = H[:40] / np.linalg.norm(H[:40], axis=1, keepdims=True)
    np.testing.assert_allclose(first @ first.T, np.eye(40), atol=1e-12)
    assert (H**2).sum(axis=1).mean() == pytest.approx(40, rel=0.02)
    assert (H**2).sum(axis=1).var() == pytest.approx(80, rel=0.2)


def test_scikit_learns_samplers_err_as_much(rows):
    """Same kernels, other draws: the errors of both stay within a fifth of each other."""

    def theirs(sampler, kernel):
        samplers = [clone(sampler).set_params(random_state=seed) for seed in range(6)]
        return np.mean([rms_error(None, rows, s.fit_transform(rows), kernel) for s in samplers])

    ours = FourierMap(sigma=2.0).fit(rows)
    error = theirs(RBFSampler(gamma=2.0, n_components=1024), ours.kernel_(rows))
    assert mean_error(rows, "gaussian", 1024, sigma=2.0) == pytest.approx(error, rel=0.2)
    # Their skewed χ² kernel is Π 2√(a b)/(a + b), which is σ = ½.
    skewed = FourierMap("skewed_chi2", c=0.05, sigma=0.5).fit(rows)
    error = theirs(SkewedChi2Sampler(skewedness=0.05, n_components=1024), skewed.kernel_(rows))
    assert mean_error(rows, "skewed_chi2", 1024, c=0.05, sigma=0.5) == pytest.approx(error, rel=0.2)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "settings",
    [{"sigma": 0.8}, {"sigma": [0.3, 0.8], "blocks": [2, 4]}, {"sigma": np.linspace(0.2, 1, 6)}],
    ids=["one", "blocks", "features"],
)
def test_gradient_by_differences(kernel, settings, rows):
    fourier = FourierMap(kernel, n_components=64, c=0.5, random_state=3, **settings).fit(rows)
    slopes = np.random.default_rng(0).normal(size=(len(rows), 64))

    def loss(sigma):
        return np.sum(slopes * fourier.transform_with(rows, sigma))

    step = 1e-7  # the skewed intersection's frequencies reach some hundreds
    units = np.eye(len(fourier.sigma_)) * step
    numeric = [(loss(fourier.sigma_ + u) - loss(fourier.sigma_ - u)) / (2 * step) for u in units]
    gradient = fourier.gradient(rows, slopes)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-5 * np.abs(gradient).max())


def test_gradient_in_blocks_of_rows_from_a_function(rows):
    """A loss of the outputs, ½‖Φ‖⁴ by rows, whose derivatives are made block by block."""
    X = np.tile(rows, (50, 1))[:2345]
    fourier = FourierMap(n_components=40, sigma=np.linspace(0.5, 1.5, 6)).fit(X)
    seen = []

    def slopes_of(band, phi):
        seen.append(band)
        np.testing.assert_allclose(phi, fourier.transform(X[band]), atol=1e-14)
        return 2 * (phi**2).sum(axis=1, keepdims=True) * phi

    whole = fourier.transform(X)
    expected = fourier.gradient(X, 2 * (whole**2).sum(axis=1, keepdims=True) * whole)
    np.testing.assert_allclose(fourier.gradient(X, slopes_of), expected)
    assert len(seen) == 3
    one, three = (fourier.set_params(n_jobs=n).gradient(X, slopes_of) for n in (1, 3))
    np.testing.assert_array_equal(one, three)
    single = fourier.gradient(X.astype(np.float32), whole.astype(np.float32))
    np.testing.assert_allclose(single, fourier.gradient(X, whole), rtol=1e-3, atol=1e-3)


def test_frequencies_stay_while_sigma_changes(rows):
    fourier = FourierMap(n_components=30, sigma=1.0).fit(rows)
    other = FourierMap(n_components=30, sigma=0.3).fit(rows)
    np.testing.assert_array_equal(fourier.transform_with(rows, 0.3), other.transform(rows))
    np.testing.assert_array_equal(fourier.transform_with(rows), fourier.transform(rows))


def test_default_sigma(rows):
    assert FourierMap().fit(rows).sigma_ == pytest.approx([np.sqrt(2 / (6 * rows.var()))])
    assert FourierMap().fit(np.ones((4, 2))).sigma_ == [1.0]
    assert FourierMap("skewed_chi2").fit(rows).sigma_ == [0.5]


def test_seeds(rows):
    def mapped(seed):
        return FourierMap(n_components=5, random_state=seed).fit_transform(rows)

    np.testing.assert_array_equal(mapped(1), mapped(1))
    assert (mapped(1) != mapped(2)).any()
    np.testing.assert_array_equal(mapped(np.random.RandomState(1)), mapped(np.random.RandomState(1)))


@pytest.mark.parametrize(
    ("settings", "error", "complaint"),
    [
        ({"kernel": "laplacian"}, UsageError, "'kernel' parameter of FourierMap"),
        ({"frequencies": "halton"}, UsageError, "'frequencies' parameter of FourierMap must be one of"),
        ({"frequencies": "orthogonal", "kernel": "skewed_chi2"}, UsageError, "gaussian kernel only"),
        ({"n_components": 0}, UsageError, "'n_components'"),
        ({"sigma": [1.0, 2.0]}, UsageError, "a list of 6"),
        ({"sigma": [1.0, 2.0, 3.0], "blocks": [3, 3]}, UsageError, "a list of 2, one for each block"),
        ({"blocks": [3, 4]}, UsageError, "whose sum is the number of features, 6"),
        ({"blocks": [6, 0]}, UsageError, "'blocks'"),
        ({"n_jobs": 0}, UsageError, "'n_jobs'"),
        ({"c": "much"}, UsageError, "'c'"),
        ({"kernel": "skewed_chi2", "c": -0.5}, DataError, r"column \d, but numbers must be > 0\.5"),
    ],
)
def test_bad_parameters_in_one_sentence(settings, error, complaint, rows):
    with pytest.raises(error, match=complaint):
        FourierMap(**settings).fit(rows)


def test_bad_calls_in_one_sentence(rows):
    fourier = FourierMap(n_components=7).fit(rows)
    with pytest.raises(DataError, match=r"shape \(50, 7\), one number for each output, not \(50, 6\)"):
        fourier.gradient(rows, np.zeros((50, 6)))
    with pytest.raises(UsageError, match="a number or a list of 1"):
        fourier.transform_with(rows, [1.0, 2.0])
    with pytest.raises(DataError, match="X has 5 features, but FourierMap is expecting 6"):
        fourier.transform(rows[:, :5])


def test_quasi_random_points_have_their_limit():
    with pytest.raises(UsageError, match="up to 21201 features"):
        FourierMap(n_components=2, frequencies="quasi").fit(np.ones((2, 21202)))
