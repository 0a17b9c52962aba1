"""Fisher vectors: the formula, its meaning as gradient, scikit-image's numbers, and what must not matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.feature import fisher_vector
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from tests.features.local_patches import Patches, random_descriptors, random_pictures
from visionkl.core.errors import DataError, ModelFileError, UsageError
from visionkl.features import densities
from visionkl.features.densities import Mixture
from visionkl.features.fisher import FisherVector
from visionkl.features.local import LocalDescriptors

SMALL = {"n_components": 5, "n_pca": 4, "descriptors": Patches()}


@pytest.fixture(scope="module")
def training():
    return [random_descriptors(seed=seed) for seed in range(4)]


def fitted(training, **options):
    return FisherVector(**{**SMALL, **options}).fit(training)


def rows_of(model, descriptors):
    """What the mixture sees of descriptors, in double precision."""
    rows = (descriptors.values.astype(float) - model.mean_) @ model.components_.T
    if model.augment == "position":
        width, height = descriptors.image_size
        places = np.column_stack(
            [
                descriptors.positions / [width, height] - 0.5,
                np.log(descriptors.sizes / np.sqrt(width * height)),
            ]
        )
        rows = np.concatenate([rows, model.place_scale_ * places], axis=1)
    return rows


def log_densities(mixture, rows):
    """Logarithms of weighted densities, as the book has them: (n, n_components)."""
    scaled = (rows[:, None] - mixture.means) ** 2 / mixture.variances
    return np.log(mixture.weights) - 0.5 * (scaled + np.log(2 * np.pi * mixture.variances)).sum(axis=2)


def mean_log_likelihood(mixture, rows):
    logarithms = log_densities(mixture, rows)
    largest = logarithms.max(axis=1, keepdims=True)
    return float((largest[:, 0] + np.log(np.exp(logarithms - largest).sum(axis=1))).mean())


def slow_fisher(mixture, rows):
    """The two formulas, term by term: (2, n_components, d)."""
    logarithms = log_densities(mixture, rows)
    posteriors = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))
    posteriors /= posteriors.sum(axis=1, keepdims=True)
    n, result = len(rows), np.zeros((2, *mixture.means.shape))
    for k, (weight, mean, variance) in enumerate(
        zip(mixture.weights, mixture.means, mixture.variances, strict=True)
    ):
        for row, share in zip(rows, posteriors[:, k], strict=True):
            scaled = (row - mean) / np.sqrt(variance)
            result[0, k] += share * scaled / (n * np.sqrt(weight))
            result[1, k] += share * (scaled**2 - 1) / (n * np.sqrt(2 * weight))
    return result


@pytest.mark.parametrize("options", [{}, {"whiten": True}, {"augment": "position"}, {"n_pca": None}])
def test_the_formula(training, options):
    model = fitted(training, power=1, norm="none", **options)
    descriptors = random_descriptors(seed=9)
    expected = slow_fisher(model.mixture_, rows_of(model, descriptors)).ravel()
    np.testing.assert_allclose(model.encode(descriptors), expected, rtol=1e-3, atol=2e-5)


@pytest.mark.cpu_loops
def test_the_formula_where_few_gaussians_count(monkeypatch):
    random = np.random.default_rng(0)
    centres = 8 * random.normal(size=(24, 6))
    pictures = [random_descriptors(seed=seed) for seed in range(4)]
    for descriptors in pictures:
        descriptors.values[:] = centres[random.integers(24, size=300)] + random.normal(size=(300, 6))
    model = fitted(pictures, n_components=24, power=1, norm="none")
    expected = slow_fisher(model.mixture_, rows_of(model, pictures[0])).ravel()
    sparse = model.encode(pictures[0])
    np.testing.assert_allclose(sparse, expected, atol=1e-3)
    monkeypatch.setattr(densities, "_MANY", 0)  # by products of matrices alone
    dense = model.encode(pictures[0])
    assert not np.array_equal(sparse, dense)
    np.testing.assert_allclose(sparse, dense, atol=2e-4)


def test_plain_areas_do_not_spoil_the_numbers():
    pictures = [random_descriptors(seed=seed) for seed in range(4)]
    for descriptors in pictures:
        descriptors.values[:] += 20
        descriptors.values[::4] = 0  # what SIFT says where there is nothing to see
    model = fitted(pictures, power=1, norm="none")
    expected = slow_fisher(model.mixture_, rows_of(model, pictures[0])).ravel()
    np.testing.assert_allclose(model.encode(pictures[0]), expected, atol=1e-3)


def test_it_is_the_gradient_scaled_by_the_information(training):
    model = fitted(training, power=1, norm="none")
    descriptors = random_descriptors(seed=9)
    mixture, rows = model.mixture_, rows_of(model, descriptors)
    u, v = model.encode(descriptors).reshape(2, *mixture.means.shape)
    step = 1e-5

    def derivative(moved):
        return (mean_log_likelihood(moved(step), rows) - mean_log_likelihood(moved(-step), rows)) / (2 * step)

    for k in range(len(mixture.weights)):
        for j in range(mixture.means.shape[1]):
            at = np.zeros_like(mixture.means)
            at[k, j] = 1
            deviations = np.sqrt(mixture.variances)
            by_mean = derivative(
                lambda h, at=at: Mixture(mixture.weights, mixture.means + h * at, mixture.variances)
            )
            by_deviation = derivative(
                lambda h, at=at, deviations=deviations: Mixture(
                    mixture.weights, mixture.means, (deviations + h * at) ** 2
                )
            )
            scale = deviations[k, j] / np.sqrt(mixture.weights[k])
            assert u[k, j] == pytest.approx(scale * by_mean, abs=1e-4)
            assert v[k, j] == pytest.approx(scale * by_deviation / np.sqrt(2), abs=1e-4)


def test_scikit_image_has_the_deviations_with_the_other_sign(training):
    model = fitted(training, power=1, norm="none")
    mixture, descriptors = model.mixture_, random_descriptors(seed=9)
    n_components, size = mixture.means.shape
    peer = GaussianMixture(n_components, covariance_type="diag")
    peer.weights_, peer.means_, peer.covariances_ = mixture.weights, mixture.means, mixture.variances
    peer.precisions_cholesky_ = 1 / np.sqrt(mixture.variances)
    theirs = fisher_vector(rows_of(model, descriptors), peer)
    weights, means, deviations = np.split(theirs, [n_components, n_components * (1 + size)])
    assert len(weights) == n_components
    ours = model.encode(descriptors).reshape(2, -1)
    np.testing.assert_allclose(ours[0], means, rtol=1e-3, atol=2e-5)
    np.testing.assert_allclose(ours[1], -deviations, rtol=1e-3, atol=2e-5)


def test_the_mean_of_what_was_learned_from_is_nearly_zero(training):
    model = fitted(training, power=1, norm="none", n_samples=10**6)
    both = np.mean([model.encode(descriptors) for descriptors in training], axis=0)
    assert np.abs(both).max() < 0.05  # the gradient vanishes where the likelihood is largest
    elsewhere = random_descriptors(seed=9)
    elsewhere.values[:] += 1
    assert np.abs(model.encode(elsewhere)).max() > 0.3


def test_principal_components_are_scikit_learns(training):
    sample = np.concatenate([descriptors.values for descriptors in training])
    for whiten in (False, True):
        peer = PCA(4, whiten=whiten).fit(sample.astype(float))
        model = fitted(training, whiten=whiten, n_samples=10**6)
        ours, theirs = rows_of(model, training[0]), peer.transform(training[0].values)
        np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-4)


# -- cells ---------------------------------------------------------------------------------------------------


def test_cells_are_the_vectors_of_their_own_descriptors(training):
    plain = fitted(training, power=1, norm="none")
    model = fitted(training, power=1, norm="none", cells=(1, 3, (2, 2)))
    descriptors = random_descriptors(seed=9)
    cells = model.encode(descriptors).reshape(8, -1)
    x, y = (descriptors.positions / [100, 60]).T
    wanted = [np.ones(len(x), bool)]
    wanted += [(y >= i / 3) & (y < (i + 1) / 3) for i in range(3)]
    wanted += [
        (y >= i / 2) & (y < (i + 1) / 2) & (x >= j / 2) & (x < (j + 1) / 2) for i in (0, 1) for j in (0, 1)
    ]
    for cell, rows in zip(cells, wanted, strict=True):
        np.testing.assert_allclose(cell, plain.encode(descriptors[rows]), atol=5e-5)


def test_a_cell_without_descriptors_is_zero(training):
    model = fitted(training, cells=(1, 3))
    descriptors = random_descriptors(seed=9)
    upper = descriptors[descriptors.positions[:, 1] < 20]
    cells = model.encode(upper).reshape(4, -1)
    assert not cells[2:].any()
    np.testing.assert_allclose(np.linalg.norm(cells, axis=1), [0.5**0.5, 0.5**0.5, 0, 0], atol=1e-5)


def test_the_size_of_the_paper():
    model = FisherVector(cells=(3,))
    model.adopt(
        {
            "mean": np.zeros(128),
            "components": np.eye(80, 128),
            "place_scale": np.ones(1),
            "weights": np.full(256, 1 / 256),
            "means": np.random.default_rng(0).normal(size=(256, 80)),
            "variances": np.ones((256, 80)),
        }
    )
    assert model.encode(random_descriptors(length=128)).shape == (122_880,)


# -- normalisation -------------------------------------------------------------------------------------------


def test_power_and_norms(training):
    descriptors = random_descriptors(seed=9)
    plain = fitted(training, power=1, norm="none", cells=(1, 2)).encode(descriptors).reshape(3, 2, 5, 4)
    powered = np.sign(plain) * np.abs(plain) ** 0.3
    by_cell = powered / np.linalg.norm(powered.reshape(3, -1), axis=1)[:, None, None, None]
    by_gaussian = powered / np.linalg.norm(powered, axis=3, keepdims=True)
    for norm, expected in (("none", powered), ("l2", by_cell), ("intra", by_gaussian)):
        whole = expected if norm == "none" else expected / np.linalg.norm(expected)
        vector = fitted(training, power=0.3, norm=norm, cells=(1, 2)).encode(descriptors)
        assert vector.dtype == np.float32
        np.testing.assert_allclose(vector, whole.ravel(), rtol=1e-4, atol=1e-6)


@given(seed=st.integers(0, 1000), repeats=st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_order_and_repetition_of_descriptors_do_not_matter(training, seed, repeats):
    model = fitted_once(training)
    descriptors = random_descriptors(n=50, seed=9)
    order = np.random.default_rng(seed).permutation(np.tile(np.arange(50), repeats))
    # The power lifts what rounding does to numbers near zero.
    np.testing.assert_allclose(model.encode(descriptors[order]), model.encode(descriptors), atol=2e-3)


_models = {}


def fitted_once(training):
    if "cells" not in _models:
        _models["cells"] = fitted(training, cells=(1, 3))
    return _models["cells"]


# -- as a transformer ----------------------------------------------------------------------------------------


def test_threads_do_not_change_vectors():
    pictures = random_pictures(40)
    one, two = (FisherVector(**SMALL, cells=(1, 3), n_jobs=n_jobs).fit(pictures) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.transform(pictures), two.transform(pictures))
    np.testing.assert_array_equal(one.transform(pictures)[7], two.encode(Patches().extract(pictures[7])))


def test_blocks_are_the_whole_in_pieces():
    pictures = random_pictures(9)
    model = FisherVector(**SMALL).fit(pictures)
    blocks = list(model.transform_blocks(pictures, block_size=4))
    assert [len(block) for block in blocks] == [4, 4, 1]
    np.testing.assert_array_equal(np.concatenate(blocks), model.transform(pictures))


def test_it_goes_into_a_pipeline_and_is_cloned():
    pictures = random_pictures(10)
    labels = np.array(["plain", "bright"] * 5)
    for picture in pictures[1::2]:
        picture[:, ::2] = 255
    pipeline = clone(make_pipeline(FisherVector(**SMALL), SVC(kernel="linear", C=100)))
    pipeline.set_params(fishervector__n_components=1)  # more would each take a class of its own
    assert pipeline.fit(pictures, labels).score(pictures, labels) == 1
    assert len(pipeline[:-1].get_feature_names_out()) == 2 * 1 * 4


def test_another_seed_gives_another_mixture(training):
    means = [fitted(training, random_state=seed).mixture_.means for seed in (0, 0, 1)]
    np.testing.assert_array_equal(means[0], means[1])
    assert not np.array_equal(means[0], means[2])


def test_what_was_learned_can_be_taken_over(training):
    model = fitted(training, augment="position", cells=(1, 2))
    copy = clone(model).adopt(model.arrays())
    descriptors = random_descriptors(seed=9)
    np.testing.assert_array_equal(copy.encode(descriptors), model.encode(descriptors))
    with pytest.raises(ModelFileError, match="not what one learns"):
        clone(model).adopt({"mean": np.zeros(3)})


def test_bytes_are_encoded_as_numbers(training):
    values = np.random.default_rng(0).integers(0, 256, (200, 6), dtype=np.uint8)
    descriptors = random_descriptors(n=200)
    as_bytes, as_floats = (
        LocalDescriptors(v, descriptors.positions, descriptors.sizes, descriptors.image_size)
        for v in (values, values.astype(np.float32))
    )
    model = fitted([as_bytes])
    np.testing.assert_array_equal(model.encode(as_bytes), model.encode(as_floats))


# -- bad input -----------------------------------------------------------------------------------------------


def test_pictures_too_small_for_descriptors_are_zero():
    model = FisherVector(**SMALL).fit(random_pictures(3))
    vectors = model.transform([np.zeros((3, 50), np.uint8), random_pictures(1)[0]])
    assert not vectors[0].any()
    assert np.linalg.norm(vectors[1]) == pytest.approx(1, abs=1e-5)


def test_black_pictures_are_no_problem():
    black = [np.zeros((30, 30, 3), np.uint8)] * 3
    model = FisherVector(**SMALL).fit(black)
    assert np.isfinite(model.transform(black)).all()
    assert np.isfinite(model.transform(random_pictures(1))).all()
    learned = FisherVector(**SMALL).fit(random_pictures(3))
    assert np.isfinite(learned.transform(black)).all()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"n_components": 0}, "'n_components' parameter of FisherVector"),
        ({"n_pca": 17}, "'n_pca' parameter of FisherVector must be at most the length .*, 16. Got 17"),
        ({"cells": 3}, "'cells' parameter of FisherVector must be a sequence"),
        ({"cells": ()}, "'cells' parameter of FisherVector must be a sequence"),
        ({"cells": (0,)}, "'cells' parameter of FisherVector"),
        ({"cells": ((1, 2, 3),)}, "'cells' parameter of FisherVector"),
        ({"cells": ((64, 64), 1)}, "of at most 4096 cells"),
        ({"augment": "place"}, "'augment' parameter of FisherVector must be one of 'none', 'position'"),
        ({"norm": "l1"}, "'norm' parameter of FisherVector"),
        ({"power": 2}, "'power' parameter of FisherVector"),
        ({"descriptors": "sift"}, "'descriptors' parameter of FisherVector must be an object with a method"),
        ({"descriptors": Patches}, "'descriptors' parameter of FisherVector must be an object with a method"),
        ({"n_jobs": 0}, "'n_jobs' parameter of FisherVector"),
    ],
)
def test_parameters_that_are_not_accepted(options, complaint):
    with pytest.raises(UsageError, match=complaint):
        FisherVector(**{**SMALL, **options}).fit(random_pictures(3))


def test_too_few_descriptors():
    with pytest.raises(DataError, match="gave 4 descriptors to learn from, but at least 5 are needed"):
        FisherVector(**SMALL).fit([np.zeros((7, 7), np.uint8)])
    with pytest.raises(DataError, match="none of the 2 pictures has a descriptor"):
        FisherVector(**SMALL).fit([np.zeros((2, 2), np.uint8)] * 2)


def test_nan_and_wrong_lengths_are_named(training):
    spoilt = random_descriptors(seed=9)
    spoilt.values[3, 2] = np.nan
    model = fitted(training)
    for call in (lambda: model.transform([training[0], spoilt]), lambda: fitted([training[0], spoilt])):
        with pytest.raises(DataError, match="picture number 1: the descriptors hold NaN"):
            call()
    with pytest.raises(DataError, match=r"have 7 values, but FisherVector learned from .* of 6"):
        model.encode(random_descriptors(length=7))
    with pytest.raises(DataError, match=r"different lengths: \[6, 7\]"):
        fitted([training[0], random_descriptors(length=7)])
    infinite = random_descriptors(seed=9)
    infinite.values[3, 2] = np.inf
    with pytest.raises(DataError, match="hold NaN or infinite"):
        model.encode(infinite)


@pytest.mark.realdata
def test_real_pictures_with_dense_sift(realdata):
    pytest.importorskip("visionkl.features.sift")
    paths = sorted((realdata / "flowers17").rglob("*.jpg"))[::400]
    model = FisherVector(n_components=8, n_pca=16, cells=(1, 3), n_samples=4000).fit(paths)
    vectors = model.transform(paths)
    assert vectors.shape == (len(paths), 4 * 2 * 8 * 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-4)
