"""The pyramid against the published one, and against HOG of the shrunk pictures."""

import numpy as np
import pytest

from visionkl.backend.cpu.resample import shrink
from visionkl.core.errors import UsageError
from visionkl.core.image import read_image
from visionkl.features.hog import TRUNCATION, hog
from visionkl.features.pyramid import feature_pyramid

RNG = np.random.default_rng(0)


@pytest.mark.realdata
def test_equals_the_published_pyramid(realdata):
    """Sizes and scales of all levels, and the values of three, as the original program computes them."""
    folder = realdata / "voc_dpm_models"
    reference = np.load(folder / "hog_levels_000034.npz")
    pyramid = feature_pyramid(read_image(folder / "000034.png"), padding=(6, 11))
    assert [level.shape for level in pyramid.levels] == [
        tuple(size) for size in reference["sizes"].astype(int)
    ]
    np.testing.assert_allclose(pyramid.scales, reference["scales"], rtol=1e-12)
    np.testing.assert_allclose(pyramid.levels[0][:40, :40], reference["level1_corner"], atol=1e-6)
    np.testing.assert_allclose(pyramid.levels[10], reference["level11"], atol=1e-6)
    np.testing.assert_allclose(pyramid.levels[29], reference["level30"], atol=1e-6)


def slow_weights(old: int, new: int) -> np.ndarray:
    """Share of every input pixel in every output pixel, by the area it covers."""
    weights = np.zeros((new, old))
    for i in range(new):
        begin, end = i * old / new, (i + 1) * old / new
        for j in range(old):
            share = min(end, j + 1) - max(begin, j)
            if share > 1e-3:
                weights[i, j] = share * new / old
    return weights


@pytest.mark.parametrize(
    ("old", "new"),
    [((40, 50), (40, 50)), ((40, 50), (37, 26)), ((41, 33), (20, 17)), ((30, 31), (7, 1)), ((9, 3), (5, 2))],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_shrinking_averages_areas(old, new, channels):
    planes = RNG.random((channels, *old))
    expected = np.einsum("ij,cjk,lk->cil", slow_weights(old[0], new[0]), planes, slow_weights(old[1], new[1]))
    np.testing.assert_allclose(shrink(planes, *new), expected, rtol=1e-12)


def test_levels_are_hog_of_shrunk_pictures_in_a_frame():
    image = RNG.integers(0, 256, (120, 90, 3)).astype(np.uint8)
    pyramid = feature_pyramid(image, interval=3, padding=(2, 4))
    planes = image.transpose(2, 0, 1).astype(float)
    shrunk = shrink(planes, round(120 * 2 ** (-1 / 3)), round(90 * 2 ** (-1 / 3))).transpose(1, 2, 0)
    for number, cell_size in ((1, 4), (4, 8)):
        level = pyramid.levels[number]
        inner = level[3:-3, 5:-5]
        np.testing.assert_array_equal(inner, hog(shrunk, cell_size=cell_size))
        frame = np.ones(level.shape[:2], bool)
        frame[3:-3, 5:-5] = False
        assert (level[frame][:, TRUNCATION] == 1).all()
        assert not level[frame][:, :TRUNCATION].any()


def test_a_smaller_frame_is_a_view():
    image = RNG.integers(0, 256, (100, 80, 3)).astype(np.uint8)
    large, small = feature_pyramid(image, padding=(9, 7)), feature_pyramid(image, padding=(3, 6))
    framed = large.framed((3, 6))
    assert framed.padding == small.padding
    for mine, theirs in zip(framed.levels, small.levels, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.base is not None
    with pytest.raises(UsageError, match="more"):
        small.framed((4, 6))


@pytest.mark.parametrize("extra_octave", [False, True])
def test_the_octave_for_parts_can_be_left_out(extra_octave):
    image = np.random.default_rng(1).uniform(0, 255, (90, 70, 3))
    settings = {"interval": 3, "padding": (2, 4), "extra_octave": extra_octave}
    whole, rest = feature_pyramid(image, **settings), feature_pyramid(image, part_octave=False, **settings)
    np.testing.assert_array_equal(rest.scales, whole.scales)
    for level in rest.levels[:3]:
        assert level.shape == (6, 10, 32)
        np.testing.assert_array_equal(level, whole.levels[0][:1, :1] + np.zeros((6, 10, 1)))
    for level, expected in zip(rest.levels[3:], whole.levels[3:], strict=True):
        np.testing.assert_array_equal(level, expected)


def test_an_extra_octave_comes_before_the_others():
    image = RNG.integers(0, 256, (100, 80, 3)).astype(np.uint8)
    plain, extra = feature_pyramid(image, interval=4), feature_pyramid(image, interval=4, extra_octave=True)
    assert len(extra) == len(plain) + 4
    np.testing.assert_allclose(extra.scales[:4], 2 * plain.scales[:4])
    np.testing.assert_array_equal(extra.levels[0][1:-1, 1:-1], hog(image, cell_size=2))
    for mine, theirs in zip(extra.from_level(4).levels, plain.levels, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_threads_do_not_change_anything():
    image = RNG.integers(0, 256, (150, 130, 3)).astype(np.uint8)
    one, two = feature_pyramid(image, n_jobs=1), feature_pyramid(image, n_jobs=2)
    for mine, theirs in zip(one.levels, two.levels, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("shape", [(1, 1, 3), (2, 200, 3), (7, 7), (39, 300, 3)])
def test_tiny_pictures_have_a_pyramid_too(shape):
    pyramid = feature_pyramid(np.full(shape, 7, np.uint8), padding=(2, 2))
    assert len(pyramid) == 20
    assert all(level.shape[0] >= 6 and level.shape[1] >= 6 for level in pyramid.levels)


@pytest.mark.parametrize(
    "settings", [{"cell_size": 6}, {"cell_size": 4, "extra_octave": True}, {"interval": 0}]
)
def test_refuses_settings_that_make_no_pyramid(settings):
    with pytest.raises(UsageError):
        feature_pyramid(np.zeros((50, 50)), **settings)
