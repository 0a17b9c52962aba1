"""Dense SIFT against its definition, against OpenCV's SIFT, and against what pictures have in common."""

from itertools import pairwise

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.ndimage import gaussian_filter
from sklearn.base import clone

from visionkl.core.errors import DataError, UsageError
from visionkl.core.image import read_image
from visionkl.features.sift import DenseSIFT, dense_sift, mirror

# OpenCV's y axis points up, so its directions turn the other way.
FROM_OPENCV = np.arange(128).reshape(4, 4, 8)[:, :, -np.arange(8) % 8].ravel()


def slow_sift(grey, centre, bin_size, window, smoothing=1 / 6):
    """The definition, at one place: every pixel votes for every bin and direction."""
    sigma = np.sqrt(max((smoothing * bin_size) ** 2 - 0.25, 0))
    grey = np.asarray(grey, float)
    if sigma > 0:
        grey = gaussian_filter(grey, sigma, mode="nearest", radius=int(np.ceil(4 * sigma)))
    dy, dx = np.gradient(grey)
    length, angle = np.hypot(dx, dy), np.arctan2(dy, dx) / (np.pi / 4) % 8
    y, x = np.mgrid[: grey.shape[0], : grey.shape[1]] + 0.5
    x, y = (x - centre[0]) / bin_size, (y - centre[1]) / bin_size
    taps = np.arange(1 - bin_size, bin_size) / bin_size
    histogram = np.zeros((4, 4, 8))
    for row in range(4):
        for col in range(4):
            share = np.clip(1 - np.abs(x - (col - 1.5)), 0, None)
            share *= np.clip(1 - np.abs(y - (row - 1.5)), 0, None)
            if window == "gaussian":
                share *= np.exp(-(x**2 + y**2) / 8)
            else:  # the average of the same, over the bin
                triangle = 1 - np.abs(taps)
                for b in (row, col):
                    share *= (triangle * np.exp(-((taps + b - 1.5) ** 2) / 8)).sum() / triangle.sum()
            for o in range(8):
                away = np.abs(angle - o)
                near = np.clip(1 - np.minimum(away, 8 - away), 0, None)
                histogram[row, col, o] = (share * near * length).sum()
    clipped = np.minimum(histogram / np.linalg.norm(histogram), 0.2).ravel()
    return clipped / np.linalg.norm(clipped)


def picture(rows, cols, channels=3, seed=0):
    """Soft blobs and a little noise, so that no direction is seldom."""
    rng = np.random.default_rng(seed)
    blobs = gaussian_filter(rng.normal(size=(rows, cols, channels)), (3, 3, 0))
    noisy = 128 + 400 * blobs + rng.normal(0, 2, blobs.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def grey_picture(rows, cols, seed=0):
    return picture(rows, cols, 1, seed)[:, :, 0]


def correlations(a, b):
    a, b = (one - one.mean(axis=1, keepdims=True) for one in (a, b))
    return (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


@pytest.mark.parametrize("window", ["flat", "gaussian"])
@pytest.mark.parametrize(("bin_size", "step"), [(1, 2), (3, 1), (4, 3), (6, 3), (7, 2), (12, 5)])
def test_equals_the_definition(bin_size, step, window):
    grey = grey_picture(65, 90)
    found = dense_sift(grey, step=step, bin_sizes=(bin_size,), window=window, contrast_threshold=0)
    corners = [0, len(found) - 1]
    for i in [*corners, *np.random.default_rng(0).integers(len(found), size=6)]:
        expected = slow_sift(grey, found.positions[i], bin_size, window)
        np.testing.assert_allclose(found.values[i], expected, atol=2e-5)


@pytest.mark.parametrize("window", ["flat", "gaussian"])
def test_equals_the_definition_in_every_band_of_a_high_picture(window):
    grey = grey_picture(420, 40)
    found = dense_sift(grey, step=9, bin_sizes=(5,), window=window, contrast_threshold=0)
    for i in range(0, len(found), 11):
        expected = slow_sift(grey, found.positions[i], 5, window)
        np.testing.assert_allclose(found.values[i], expected, atol=2e-5)


@pytest.mark.parametrize("smoothing", [0, 1 / 3])
def test_smooths_as_told(smoothing):
    grey = grey_picture(50, 50)
    found = dense_sift(grey, step=7, bin_sizes=(8,), smoothing=smoothing, contrast_threshold=0)
    expected = slow_sift(grey, found.positions[4], 8, "flat", smoothing)
    np.testing.assert_allclose(found.values[4], expected, atol=2e-5)


@pytest.mark.parametrize(("window", "bound"), [("gaussian", 0.9999), ("flat", 0.99)])
@pytest.mark.parametrize("bin_size", [4, 6, 12])
def test_agrees_with_opencv(window, bound, bin_size):
    check_against_opencv(grey_picture(120, 160), bin_size, window, bound)


@pytest.mark.realdata
@pytest.mark.parametrize(("window", "bound"), [("gaussian", 0.9999), ("flat", 0.99)])
def test_agrees_with_opencv_on_photographs(window, bound, realdata):
    for path in sorted((realdata / "flowers17").rglob("*.jpg"))[::500]:
        grey = cv2.cvtColor(read_image(path), cv2.COLOR_RGB2GRAY)
        check_against_opencv(grey, 8, window, bound)


def check_against_opencv(grey, bin_size, window, bound):
    found = dense_sift(grey, step=5, bin_sizes=(bin_size,), window=window)
    keypoints = [cv2.KeyPoint(float(x - 0.5), float(y - 0.5), bin_size / 1.5, 0) for x, y in found.positions]
    for keypoint in keypoints:
        keypoint.octave = 0
    _, theirs = cv2.SIFT_create(sigma=bin_size / 6).compute(grey, keypoints)
    # OpenCV leaves out the outermost pixels, and smooths the border by mirroring: compare inside.
    edge, size = 3.5 * bin_size, np.array(found.image_size)
    inside = ((found.positions > edge) & (found.positions < size - edge)).all(axis=1)
    chosen = inside & found.values.any(axis=1)
    agreement = correlations(found.values[chosen], theirs[chosen][:, FROM_OPENCV])
    assert len(agreement) > 50
    assert np.median(agreement) > bound
    assert np.quantile(agreement, 0.02) > bound - 0.01


@pytest.mark.parametrize("direction", range(8))
def test_a_slope_counts_in_its_direction_alone(direction):
    y, x = np.mgrid[:40, :40] - 20
    across, down = np.cos(direction * np.pi / 4), np.sin(direction * np.pi / 4)
    values = dense_sift(128 + 3 * (across * x + down * y), bin_sizes=(6,), smoothing=0).values.reshape(
        -1, 16, 8
    )
    assert (values[:, :, direction] > 0.05).all()
    np.testing.assert_allclose(np.delete(values, direction, axis=2), 0, atol=1e-4)


def test_places_and_sizes():
    found = dense_sift(grey_picture(50, 70), step=4, bin_sizes=(4, 6))
    # 3 bins of 6 pixels between the first and the last bin's centre: places (70 - 1 - 18) // 4 + 1 by 8.
    large = found[found.sizes == 24]
    assert len(large) == 13 * 8
    np.testing.assert_array_equal(large.positions[0], [9.5, 9.5])
    np.testing.assert_array_equal(large.positions[1], [13.5, 9.5])
    np.testing.assert_array_equal(large.positions[13], [9.5, 13.5])
    assert found.image_size == (70, 50)
    assert found.positions.dtype == found.sizes.dtype == np.float32


@pytest.mark.parametrize("step", [1, 3, 4, 7])
def test_all_sizes_share_their_places(step):
    sizes = (12, 2, 4, 8)
    found = dense_sift(grey_picture(64, 81), step=step, bin_sizes=sizes)
    places = [{tuple(p) for p in found.positions[found.sizes == 4 * size]} for size in sorted(sizes)]
    for smaller, larger in pairwise(places):
        assert smaller >= larger
    # Whatever fits is there: another step to any side would leave the picture.
    small = found.positions[found.sizes == 8] - 0.5
    assert (small.min(axis=0) < 3 + step).all()
    assert (small.max(axis=0) > np.array([80, 63]) - 3 - step).all()


def test_each_size_is_described_as_if_alone():
    grey = grey_picture(60, 60)
    found = dense_sift(grey, step=3, bin_sizes=(4, 8))
    for size in (4, 8):
        alone = dense_sift(grey, step=3, bin_sizes=(size,))
        part = found[found.sizes == 4 * size]
        np.testing.assert_array_equal(part.values, alone.values)
        np.testing.assert_array_equal(part.positions, alone.positions)


@pytest.mark.parametrize("window", ["flat", "gaussian"])
@pytest.mark.parametrize("color", ["grey", "opponent"])
def test_mirrored_picture_has_mirrored_descriptors(window, color):
    image = picture(40, 1 + 3 * 6 + 3 * 5)  # the places lie symmetrically
    options = {"bin_sizes": (6,), "window": window, "color": color, "contrast_threshold": 0}
    here, there = dense_sift(image, **options), dense_sift(image[:, ::-1], **options)
    n_cols = 6
    turned = there.values.reshape(-1, n_cols, there.values.shape[1])[:, ::-1].reshape(there.values.shape)
    np.testing.assert_allclose(mirror(here.values), turned, atol=1e-5)
    assert not np.allclose(here.values, turned, atol=1e-2)


def test_mirroring_twice_changes_nothing():
    values = np.random.default_rng(0).integers(0, 256, (5, 384)).astype(np.uint8)
    np.testing.assert_array_equal(mirror(mirror(values)), values)
    assert mirror(values).dtype == np.uint8


def test_brightness_and_contrast_do_not_matter():
    grey = grey_picture(60, 60) / 4.0
    expected = dense_sift(grey, contrast_threshold=0).values
    np.testing.assert_allclose(dense_sift(grey + 100.5, contrast_threshold=0).values, expected, atol=2e-4)
    np.testing.assert_allclose(dense_sift(3.7 * grey, contrast_threshold=0).values, expected, atol=2e-5)


@pytest.mark.parametrize("window", ["flat", "gaussian"])
def test_moves_with_the_picture(window):
    grey = grey_picture(80, 80)
    options = {"step": 5, "bin_sizes": (4,), "window": window}
    here, there = dense_sift(grey, **options), dense_sift(grey[5:, 5:], **options)
    n_here, n_there = 14, 13
    kept = here.values.reshape(n_here, n_here, 128)[3:-3, 3:-3]
    moved = there.values.reshape(n_there, n_there, 128)[2:-3, 2:-3]
    np.testing.assert_allclose(kept, moved, atol=1e-5)
    assert not np.allclose(kept, here.values.reshape(n_here, n_here, 128)[2:-4, 2:-4], atol=1e-2)


@pytest.mark.parametrize("window", ["flat", "gaussian"])
def test_threads_do_not_matter(window):
    image = picture(300, 70)
    one, three = (dense_sift(image, window=window, color="rgb", n_jobs=n).values for n in (1, 3))
    np.testing.assert_array_equal(one, three)


def test_bytes_are_rounded_numbers():
    grey = grey_picture(60, 60)
    numbers, codes = (dense_sift(grey, dtype=dtype).values for dtype in ("float32", "uint8"))
    assert numbers.dtype == np.float32
    assert codes.dtype == np.uint8
    np.testing.assert_allclose(codes, np.minimum(512 * numbers, 255), atol=0.51)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_roots(dtype):
    grey = grey_picture(60, 60)
    plain = dense_sift(grey).values
    expected = np.sqrt(plain / plain.sum(axis=1, keepdims=True))
    roots = dense_sift(grey, normalisation="root", dtype=dtype).values
    if dtype == "uint8":
        np.testing.assert_allclose(roots, np.minimum(512 * expected, 255), atol=0.52)
    else:
        np.testing.assert_allclose(roots, expected, atol=1e-5)


def test_channels_are_described_one_by_one():
    image = picture(50, 60).astype(float)
    r, g, b = np.moveaxis(image, 2, 0)
    largest = image.max(axis=2)
    channels = {
        "grey": [0.299 * r + 0.587 * g + 0.114 * b],
        "rgb": [r, g, b],
        "opponent": [0.299 * r + 0.587 * g + 0.114 * b, (r - g) / 2**0.5, (r + g - 2 * b) / 6**0.5],
        "hue": [
            0.299 * r + 0.587 * g + 0.114 * b,
            255 * (r - (g + b) / 2) / largest,
            255 * 3**0.5 / 2 * (g - b) / largest,
        ],
    }
    for color, planes in channels.items():
        found = dense_sift(image, bin_sizes=(4,), color=color).values
        expected = np.hstack([dense_sift(plane, bin_sizes=(4,)).values for plane in planes])
        np.testing.assert_allclose(found, expected, atol=1e-3)


def test_hue_does_not_see_the_light():
    image = picture(50, 60).astype(float)
    bright, dark = (dense_sift(light * image, color="hue").values[:, 128:] for light in (1, 0.3))
    np.testing.assert_allclose(bright, dark, atol=1e-3)


@pytest.mark.parametrize("color", ["opponent", "hue"])
def test_grey_pictures_have_no_colour(color):
    grey = grey_picture(50, 60)
    found = dense_sift(grey, color=color).values
    np.testing.assert_allclose(found[:, :128], dense_sift(grey).values, atol=1e-5)
    assert not found[:, 128:].any()


def test_flat_parts_are_zero_and_others_have_length_one():
    grey = grey_picture(80, 80)
    grey[:, 40:] = 77
    found = dense_sift(grey, bin_sizes=(4,), contrast_threshold=0)
    lengths = np.linalg.norm(found.values, axis=1)
    far_right = found.positions[:, 0] > 40 + 2.5 * 4 + 3
    assert not lengths[far_right].any()
    np.testing.assert_allclose(lengths[found.positions[:, 0] < 40], 1, atol=1e-5)


def test_contrast_is_the_mean_length_of_gradients():
    slope = np.tile(np.arange(60) * 0.01 * 255, (60, 1))  # a hundredth of white a pixel
    inner = slice(70, 71)
    for window in ("flat", "gaussian"):
        options = {"step": 3, "bin_sizes": (4,), "window": window}
        assert dense_sift(slope, contrast_threshold=0.0099, **options).values[inner].any()
        assert not dense_sift(slope, contrast_threshold=0.0101, **options).values[inner].any()


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("level", [0, 255])
def test_one_colour_gives_zeros(level, dtype):
    image = np.full((60, 60, 3), level, np.uint8)
    found = dense_sift(image, color="hue", contrast_threshold=0, dtype=dtype)
    assert len(found) > 0
    assert not found.values.any()


def test_what_does_not_fit_is_left_out():
    grey = grey_picture(31, 25)
    assert set(dense_sift(grey, bin_sizes=(4, 8, 9)).sizes) == {16, 32}  # 3 * 8 + 1 pixels are enough
    only = dense_sift(grey, bin_sizes=(8,))
    assert len(only) == 3
    for image, n_channels in ((np.zeros((12, 300)), 1), (np.ones((1, 1, 3), np.uint8), 3)):
        color = "grey" if n_channels == 1 else "rgb"
        nothing = dense_sift(image, color=color, dtype="uint8")
        assert nothing.values.shape == (0, 128 * n_channels)
        assert nothing.values.dtype == np.uint8
        assert nothing.positions.shape == (0, 2)
        assert nothing.sizes.shape == (0,)
        assert nothing.image_size == (image.shape[1], image.shape[0])


@settings(max_examples=25, deadline=None)
@given(
    hnp.arrays(np.uint8, st.tuples(st.integers(1, 40), st.integers(1, 40))),
    st.integers(1, 9),
    st.sampled_from(["flat", "gaussian"]),
)
def test_any_picture_gives_vectors_of_length_one_or_zero(image, step, window):
    found = dense_sift(image, step=step, bin_sizes=(1, 2, 5, 12), window=window)
    lengths = np.linalg.norm(found.values, axis=1)
    assert (np.isclose(lengths, 1, atol=1e-5) | (lengths == 0)).all()
    assert found.values.min(initial=0) >= 0


def test_large_pictures_are_described_as_if_shrunk():
    image = np.random.default_rng(2).integers(0, 256, (60, 90, 3), np.uint8)
    large = image.repeat(4, axis=0).repeat(4, axis=1)
    extractor = DenseSIFT(bin_sizes=(4, 6), max_side=90)
    small, found = extractor.extract(image), extractor.extract(large)
    np.testing.assert_allclose(found.values, small.values, atol=1e-5)
    np.testing.assert_allclose(found.positions, 4 * small.positions)
    np.testing.assert_allclose(found.sizes, 4 * small.sizes)
    assert found.image_size == (360, 240)
    # A strip stays wide enough.
    assert len(extractor.extract(np.resize(image, (20, 2000, 3)))) > 0
    with pytest.raises(ValueError, match="max_side"):
        DenseSIFT(max_side=0).extract(image)


def test_extractor_keeps_its_parameters():
    extractor = DenseSIFT(step=5, bin_sizes=(4, 8), color="opponent", normalisation="root")
    copy = clone(extractor)
    assert copy.get_params() == extractor.get_params()
    image = picture(50, 60)
    expected = dense_sift(image, step=5, bin_sizes=(4, 8), color="opponent", normalisation="root")
    found = copy.extract(image)
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.positions, expected.positions)
    assert copy.set_params(step=9).extract(image).values.shape[0] < len(found)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((40, 40, 2)), "shape"),
        (np.zeros((0, 4)), "empty"),
        (np.full((40, 40), np.nan), "NaN"),
        (np.full((40, 40), 300), "0..255"),
        (np.array([["a"]]), "numbers"),
    ],
)
def test_refuses_what_is_no_picture(image, message):
    with pytest.raises(DataError, match=message):
        dense_sift(image)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", 0),
        ("step", 1.5),
        ("bin_sizes", ()),
        ("bin_sizes", 4),
        ("bin_sizes", "48"),
        ("bin_sizes", (4, 0)),
        ("bin_sizes", (4, 2.5)),
        ("window", "round"),
        ("smoothing", -1),
        ("smoothing", None),
        ("contrast_threshold", np.nan),
        ("color", "gray"),
        ("normalisation", None),
        ("dtype", "float64"),
        ("n_jobs", 0),
    ],
)
def test_refuses_wrong_parameters(name, value):
    with pytest.raises(UsageError, match=f"'{name}' parameter of dense_sift"):
        DenseSIFT(**{name: value}).extract(np.zeros((40, 40)))


def test_refuses_to_mirror_what_are_no_descriptors():
    with pytest.raises(DataError, match="128"):
        mirror(np.zeros((3, 100)))
