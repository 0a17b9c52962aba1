"""Bags of words: the nearest words, counted by cells, and split by masks."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from tests.features.local_patches import Patches, random_descriptors, random_pictures
from visionkl.core.errors import DataError, UsageError
from visionkl.features.words import BagOfWords


@pytest.fixture(scope="module")
def training():
    return [random_descriptors(seed=seed) for seed in range(4)]


def nearest_words(model, descriptors):
    return cdist(descriptors.values.astype(float), model.words_.astype(float)).argmin(axis=1)


def test_counts_of_nearest_words_in_cells(training):
    model = BagOfWords(20, cells=(1, (2, 2)), norm="none").fit(training)
    descriptors = random_descriptors(seed=9)
    counts = model.encode(descriptors).reshape(5, 20)
    words = nearest_words(model, descriptors)
    x, y = (descriptors.positions / [100, 60]).T
    expected = [np.bincount(words, minlength=20)]
    for i in (0, 1):
        for j in (0, 1):
            inside = ((y >= 0.5) == i) & ((x >= 0.5) == j)
            expected.append(np.bincount(words[inside], minlength=20))
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize(("norm", "order"), [("l1", 1), ("l2", 2)])
def test_norms(training, norm, order):
    descriptors = random_descriptors(seed=9)
    plain = BagOfWords(20, cells=(1, 2), norm="none").fit(training).encode(descriptors)
    vector = BagOfWords(20, cells=(1, 2), norm=norm).fit(training).encode(descriptors)
    np.testing.assert_allclose(vector, plain / np.linalg.norm(plain, order), rtol=1e-6)


def test_words_lie_as_near_as_scikit_learns(training):
    values = np.concatenate([descriptors.values for descriptors in training])
    model = BagOfWords(8, n_samples=10**6).fit(training)
    theirs = KMeans(8, n_init=3, random_state=0).fit(values).inertia_
    assert (cdist(values, model.words_).min(axis=1) ** 2).sum() < 1.05 * theirs


def test_a_mask_splits_the_words(training):
    model = BagOfWords(20, norm="none").fit(training)
    descriptors = random_descriptors(seed=9)
    mask = np.zeros((60, 100), bool)
    mask[10:40, 50:] = True
    foreground, background = model.encode_mask(descriptors, mask)
    x, y = descriptors.positions.T
    inside = (x >= 50) & (y >= 10) & (y < 40)
    np.testing.assert_array_equal(foreground, model.encode(descriptors[inside]))
    np.testing.assert_array_equal(foreground + background, model.encode(descriptors))
    empty, whole = model.encode_mask(descriptors, np.zeros((60, 100)))
    assert not empty.any()
    np.testing.assert_array_equal(whole, model.encode(descriptors))
    with pytest.raises(DataError, match=r"mask has the shape \(100, 60\), but the picture has 60 rows"):
        model.encode_mask(descriptors, mask.T)


def test_threads_do_not_change_histograms():
    pictures = random_pictures(40)
    one, two = (BagOfWords(16, descriptors=Patches(), n_jobs=n_jobs).fit(pictures) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.words_, two.words_)
    np.testing.assert_array_equal(one.transform(pictures), two.transform(pictures))


def test_it_goes_into_a_pipeline_and_is_cloned():
    pictures = random_pictures(10)
    for picture in pictures[1::2]:
        picture[:, ::2] = 255
    pipeline = clone(make_pipeline(BagOfWords(30, descriptors=Patches()), SVC(kernel="linear", C=100)))
    labels = [0, 1] * 5
    assert pipeline.fit(pictures, labels).score(pictures, labels) == 1


def test_what_was_learned_can_be_taken_over(training):
    model = BagOfWords(20).fit(training)
    copy = clone(model).adopt(model.arrays())
    np.testing.assert_array_equal(copy.transform(training), model.transform(training))


def test_bad_input_gets_one_sentence(training):
    model = BagOfWords(20).fit(training)
    spoilt = random_descriptors(seed=9)
    spoilt.values[3, 2] = np.nan
    with pytest.raises(DataError, match="picture number 0: the descriptors hold NaN"):
        model.transform([spoilt])
    with pytest.raises(DataError, match="gave 10 descriptors, which are too few to learn 20 words"):
        BagOfWords(20).fit([training[0][:10]])
    with pytest.raises(UsageError, match="'norm' parameter of BagOfWords must be one of 'l1', 'l2', 'none'"):
        BagOfWords(20, norm="max").fit(training)
    assert not model.encode(training[0][:0]).any()
