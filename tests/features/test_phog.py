"""PHOG against a plain reference, and what masks and edges change."""

import cv2
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from tests.features.local_patches import random_pictures
from visionkl.core.errors import DataError, UsageError
from visionkl.features.phog import PHOG, canny_strengths, phog


def reference(grey, strengths, n_orientations, levels, signed, inside=None, box=None):
    """Histograms pixel by pixel, level by level, in double precision."""
    grey = grey.astype(float)
    dy, dx = (
        np.gradient(grey, axis=axis) if grey.shape[axis] > 1 else np.zeros_like(grey) for axis in (0, 1)
    )
    lengths = np.hypot(dx, dy)
    weights = np.where(lengths > 0, lengths if strengths is None else strengths, 0)
    span = 2 * np.pi if signed else np.pi
    places = np.arctan2(dy, dx) % span / span * n_orientations
    top, left, bottom, right = box or (0, 0, *grey.shape)
    parts = []
    for level in range(levels):
        counts = np.zeros((2**level, 2**level, n_orientations))
        for y in range(top, bottom):
            for x in range(left, right):
                if inside is None or inside[y, x]:
                    cell = counts[
                        (y - top) * 2**level // (bottom - top), (x - left) * 2**level // (right - left)
                    ]
                    lower = int(places[y, x])
                    share = places[y, x] - lower
                    cell[lower % n_orientations] += weights[y, x] * (1 - share)
                    cell[(lower + 1) % n_orientations] += weights[y, x] * share
        parts.append(counts.ravel())
    return np.concatenate(parts)


@pytest.fixture(scope="module")
def picture():
    rough = np.random.default_rng(3).uniform(0, 255, (37, 53)).astype(np.float32)
    return cv2.GaussianBlur(rough, (0, 0), 1.5)


@pytest.mark.parametrize(
    ("n_orientations", "levels", "signed"), [(20, 3, False), (40, 3, True), (7, 2, True), (1, 1, False)]
)
def test_gradients_are_counted_as_by_hand(picture, n_orientations, levels, signed):
    options = {"n_orientations": n_orientations, "levels": levels, "signed": signed}
    found = phog(picture, edges="gradient", smoothing=0, norm="none", **options)
    expected = reference(picture, None, **options)
    np.testing.assert_allclose(found, expected, atol=1e-4 * expected.max())


def test_edges_may_be_given_as_a_map_or_by_a_function(picture):
    strengths = np.random.default_rng(0).random(picture.shape) * (picture > picture.mean())
    expected = reference(picture, strengths, 20, 3, False)
    for edges in (strengths, lambda image: strengths):
        found = phog(picture, edges=edges, smoothing=0, norm="none")
        np.testing.assert_allclose(found, expected, atol=1e-4 * expected.max())


def test_canny_edges_are_thin_and_strong(picture):
    strengths = canny_strengths(picture)
    lengths = np.hypot(*np.gradient(picture.astype(float)))
    assert 0.02 < (strengths > 0).mean() < 0.35
    assert lengths[strengths > 0].mean() > 1.3 * lengths.mean()
    inner = np.s_[2:-2, 2:-2]
    on = strengths[inner] > 0
    assert np.corrcoef(strengths[inner][on], lengths[inner][on])[0, 1] > 0.9
    expected = reference(picture, strengths, 20, 3, False)
    found = phog(picture, smoothing=0, norm="none")
    np.testing.assert_allclose(found, expected, atol=1e-4 * expected.max())


@pytest.mark.parametrize("region", ["foreground", "box", "background", "whole", "contour"])
def test_regions_of_a_mask(picture, region):
    mask = np.zeros(picture.shape, bool)
    mask[5:20, 10:33] = True
    mask[5:9, 10:20] = False
    near = cv2.dilate(mask.astype(np.uint8), np.ones((5, 5))) - cv2.erode(
        mask.astype(np.uint8), np.ones((5, 5))
    )
    inside, box = {
        "foreground": (mask, (5, 10, 20, 33)),
        "box": (None, (5, 10, 20, 33)),
        "background": (~mask, None),
        "whole": (None, None),
        "contour": (near, (3, 8, 22, 35)),
    }[region]
    found = phog(picture, edges="gradient", smoothing=0, norm="none", mask=mask, region=region)
    expected = reference(picture, None, 20, 3, False, inside, box)
    np.testing.assert_allclose(found, expected, atol=1e-4 * expected.max())


def test_levels_have_equal_shares_and_the_whole_sums_to_one(picture):
    vector = phog(picture).reshape(21, 20)
    for part in (vector[:1], vector[1:5], vector[5:]):
        assert part.sum() == pytest.approx(1 / 3, abs=1e-5)
    assert np.linalg.norm(phog(picture, norm="l2")) == pytest.approx(1, abs=1e-5)


def test_turning_the_picture_turns_the_directions(picture):
    first = phog(picture, levels=1, n_orientations=8, edges="gradient", signed=True)
    turned = phog(picture[::-1, ::-1], levels=1, n_orientations=8, edges="gradient", signed=True)
    np.testing.assert_allclose(turned, np.roll(first, 4), atol=1e-5)
    dark = phog(255 - picture, levels=1, n_orientations=8, edges="gradient")
    np.testing.assert_allclose(dark, phog(picture, levels=1, n_orientations=8, edges="gradient"), atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (2, 2), (3, 5)])
def test_tiny_and_flat_pictures(shape):
    grey = np.random.default_rng(0).uniform(0, 255, shape)
    found = phog(grey, edges="gradient", smoothing=0, norm="none")
    np.testing.assert_allclose(found, reference(grey, None, 20, 3, False), rtol=1e-4, atol=1e-2)
    assert np.isfinite(phog(grey)).all()
    assert not phog(np.full(shape, 7)).any()


def test_a_region_of_one_pixel(picture):
    mask = np.zeros(picture.shape, bool)
    mask[7, 9] = True
    assert phog(picture, edges="gradient", mask=mask).sum() == pytest.approx(1)
    assert phog(picture, edges="gradient", mask=mask, region="contour").sum() == pytest.approx(1)


def test_it_is_a_transformer_of_pictures():
    pictures = random_pictures(8)
    for picture in pictures[1::2]:
        picture[:, ::2] = 255
    pipeline = clone(make_pipeline(PHOG(8, levels=2, edges="gradient"), SVC(kernel="linear", C=100)))
    assert pipeline.fit(pictures, [0, 1] * 4).score(pictures, [0, 1] * 4) == 1
    vectors = PHOG(n_jobs=2).fit_transform(pictures)
    np.testing.assert_array_equal(vectors, [phog(picture) for picture in pictures])
    assert len(PHOG().fit().get_feature_names_out()) == vectors.shape[1] == 420
    grey = [picture.mean(axis=2).round().astype(np.uint8) for picture in pictures]
    same = [np.repeat(picture[:, :, None], 3, axis=2) for picture in grey]
    np.testing.assert_allclose(PHOG().fit_transform(grey), PHOG().fit_transform(same), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"n_orientations": 0}, "'n_orientations' parameter of PHOG must be an integer between 1 and"),
        ({"levels": 9}, "'levels' parameter of PHOG must be an integer between 1 and 6"),
        ({"edges": "sobel"}, "'edges' parameter of PHOG must be 'canny', 'gradient', or a function"),
        ({"norm": "max"}, "'norm' parameter of PHOG must be one of"),
        ({"region": "hole"}, "'region' parameter of phog must be one of"),
    ],
)
def test_parameters_that_are_not_accepted(picture, options, complaint):
    with pytest.raises(UsageError, match=complaint):
        phog(picture, **{"edges": "gradient", **options})


def test_bad_masks_and_edges_get_one_sentence(picture):
    with pytest.raises(
        DataError, match=r"the masks have the shape \(1, 53, 37\), but the picture has 37 rows"
    ):
        phog(picture, mask=np.ones((53, 37)))
    with pytest.raises(DataError, match="mask number 0 is empty"):
        phog(picture, mask=np.zeros((37, 53)))
    with pytest.raises(DataError, match=r"the edges have the shape \(3, 3\)"):
        phog(picture, edges=np.ones((3, 3)))
    with pytest.raises(DataError, match="the edges hold numbers below 0, NaN"):
        phog(picture, edges=np.full((37, 53), -1.0))
