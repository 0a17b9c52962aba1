"""Local binary patterns, against scikit-image and by hand."""

import numpy as np
import pytest
from skimage.feature import local_binary_pattern

from tests.features.local_patches import random_pictures
from visionkl.core.errors import UsageError
from visionkl.features.lbp import LBP, lbp, n_patterns

THEIRS = {"all": "default", "uniform": "nri_uniform", "rotation": "ror", "uniform rotation": "uniform"}


@pytest.fixture(scope="module")
def grey():
    return np.random.default_rng(0).integers(0, 256, (60, 80), dtype=np.uint8)


@pytest.mark.parametrize("patterns", THEIRS)
@pytest.mark.parametrize(("n_points", "radius"), [(8, 1), (8, 2.5), (12, 2), (5, 1), (16, 3)])
def test_patterns_are_those_of_scikit_image(grey, n_points, radius, patterns):
    margin = int(radius) + 1
    inner = np.s_[margin:-margin, margin:-margin]
    ours = lbp(grey, n_points=n_points, radius=radius, patterns=patterns)[inner].ravel()
    theirs = local_binary_pattern(grey, n_points, radius, THEIRS[patterns])[inner].ravel()
    if patterns in ("all", "uniform rotation"):
        same = ours == theirs
    else:  # other numbers for the same patterns: most that has one of our labels has one of theirs
        pairs, counts = np.unique(np.stack([ours, theirs], axis=1), axis=0, return_counts=True)
        best = {
            label: pairs[pairs[:, 0] == label][counts[pairs[:, 0] == label].argmax(), 1] for label in ours
        }
        same = np.array([best[label] for label in ours]) == theirs
    # Their interpolation is not exact: a few points that are as bright as the middle pass for darker.
    assert same.mean() > 0.99
    assert ours.max() < n_patterns(n_points, patterns)


def test_exact_neighbours_are_compared_exactly():
    grey = np.random.default_rng(1).integers(0, 4, (30, 30), dtype=np.uint8)  # many are equal
    ours = lbp(grey, n_points=4, radius=1, patterns="all")
    padded = np.pad(grey, 1, mode="edge")
    around = [padded[1:-1, 2:], padded[:-2, 1:-1], padded[1:-1, :-2], padded[2:, 1:-1]]
    expected = sum((neighbour >= grey).astype(int) << bit for bit, neighbour in enumerate(around))
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("value", [0, 1, 77, 255])
def test_flat_pictures_have_one_pattern(value):
    for radius in (1.0, 1.7, 3.3):
        labels = lbp(
            np.full((9, 9), value, np.uint8), n_points=11, radius=radius, patterns="uniform rotation"
        )
        assert set(labels.ravel()) == {11}


def test_uniform_labels_by_hand():
    # The middle is darker than the points to the right and above it: 1, 2 and 3 ones from the first on.
    bright = {0: (1, 2), 2: (0, 1), 4: (1, 0), 6: (2, 1)}
    for point, place in bright.items():
        grey = np.zeros((3, 3))
        grey[1, 1] = 100
        grey[place] = 200
        # Points between pixels are brighter only where both neighbours are; here none is.
        assert lbp(grey, patterns="uniform rotation")[1, 1] == 1
        assert lbp(grey, patterns="uniform")[1, 1] == 1 + point
        assert lbp(grey, patterns="all")[1, 1] == 1 << point
    mixed = np.array([[0, 200, 0], [200, 100, 200], [0, 200, 0]])
    assert lbp(mixed, patterns="uniform rotation")[1, 1] == 9
    assert lbp(mixed, patterns="uniform")[1, 1] == 58
    assert lbp(np.full((3, 3), 9), patterns="uniform")[1, 1] == 57


def test_turning_by_quarters_changes_no_invariant_histogram(grey):
    def count(picture, patterns):
        labels = lbp(picture, patterns=patterns)[2:-2, 2:-2]
        return np.bincount(labels.ravel(), minlength=n_patterns(8, patterns))

    for patterns in ("rotation", "uniform rotation"):
        difference = count(grey, patterns) - count(np.rot90(grey), patterns)
        assert np.abs(difference).sum() <= 0.01 * grey.size
    assert np.abs(count(grey, "all") - count(np.rot90(grey), "all")).sum() > 0.1 * grey.size


def test_histograms_of_cells():
    pictures = random_pictures(3, shape=(33, 47))
    vectors = LBP(cells=(1, (2, 3)), norm="none").fit_transform(pictures).reshape(3, 7, 59)
    for vector, picture in zip(vectors, pictures, strict=True):
        labels = lbp(picture)
        np.testing.assert_array_equal(vector[0], np.bincount(labels.ravel(), minlength=59))
        row, column = np.arange(33) * 2 // 33, np.arange(47) * 3 // 47
        for cell in range(6):
            own = labels[np.ix_(row == cell // 3, column == cell % 3)]
            np.testing.assert_array_equal(vector[1 + cell], np.bincount(own.ravel(), minlength=59))
    assert LBP().fit_transform(pictures).sum(axis=1) == pytest.approx(1)


def test_many_points_and_tiny_pictures():
    assert lbp(np.zeros((1, 1)), n_points=24, radius=3, patterns="uniform")[0, 0] == 24 * 23 + 1
    assert LBP(24, 3.0).fit().n_labels_ == 24 * 23 + 3
    assert lbp(np.arange(5)[None] * 9, radius=2).shape == (1, 5)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"n_points": 1}, "'n_points' parameter of LBP must be an integer between 2 and 24"),
        (
            {"n_points": 20, "patterns": "all"},
            "'n_points' parameter of LBP must be an integer between 2 and 16",
        ),
        ({"radius": 0}, "'radius' parameter of LBP must be a number between 0.5 and 256"),
        ({"patterns": "ror"}, "'patterns' parameter of LBP must be one of 'all', 'uniform', 'rotation'"),
        ({"cells": 3}, "'cells' parameter of LBP must be a sequence"),
    ],
)
def test_parameters_that_are_not_accepted(options, complaint):
    with pytest.raises(UsageError, match=complaint):
        LBP(**options).fit()
