"""HOG against a slow, literal reference, and by its invariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from visionkl.core.errors import DataError, UsageError
from visionkl.features.hog import TRUNCATION, glyphs, hog, mirror

COSINES = [1.0, 0.9397, 0.7660, 0.5, 0.1736, -0.1736, -0.5, -0.7660, -0.9397]
SINES = [0.0, 0.3420, 0.6428, 0.8660, 0.9848, 0.9848, 0.8660, 0.6428, 0.3420]


def slow_hog(image: np.ndarray, cell_size: int) -> np.ndarray:
    """The definition, pixel by pixel."""
    rows, cols = image.shape[:2]
    channels = image.reshape(rows, cols, -1).astype(float)
    n_rows, n_cols = int(rows / cell_size + 0.5), int(cols / cell_size + 0.5)
    histogram = np.zeros((n_rows, n_cols, 18))
    for y in range(1, n_rows * cell_size - 1):
        for x in range(1, n_cols * cell_size - 1):
            sy, sx = min(y, rows - 2), min(x, cols - 2)
            dx = channels[sy, sx + 1] - channels[sy, sx - 1]
            dy = channels[sy + 1, sx] - channels[sy - 1, sx]
            c = int(np.argmax(dx**2 + dy**2))
            dots = [COSINES[o] * dx[c] + SINES[o] * dy[c] for o in range(9)]
            best, bin_ = 0.0, 0
            for o, dot in enumerate(dots):
                if abs(dot) > best:
                    best, bin_ = abs(dot), o if dot > 0 else o + 9
            strength = np.hypot(dx[c], dy[c])
            py, px = (y + 0.5) / cell_size - 0.5, (x + 0.5) / cell_size - 0.5
            for cy in (int(np.floor(py)), int(np.floor(py)) + 1):
                for cx in (int(np.floor(px)), int(np.floor(px)) + 1):
                    if 0 <= cy < n_rows and 0 <= cx < n_cols:
                        histogram[cy, cx, bin_] += (1 - abs(py - cy)) * (1 - abs(px - cx)) * strength
    unsigned = histogram[:, :, :9] + histogram[:, :, 9:]
    energy = (unsigned**2).sum(axis=2)
    cells = np.zeros((max(n_rows - 2, 0), max(n_cols - 2, 0), 32))
    for y in range(cells.shape[0]):
        for x in range(cells.shape[1]):
            for i, (by, bx) in enumerate([(y + 1, x + 1), (y, x + 1), (y + 1, x), (y, x)]):
                norm = np.sqrt(energy[by : by + 2, bx : bx + 2].sum() + 1e-4)
                signed = np.minimum(histogram[y + 1, x + 1] / norm, 0.2)
                cells[y, x, :18] += 0.5 * signed
                cells[y, x, 18:27] += 0.5 * np.minimum(unsigned[y + 1, x + 1] / norm, 0.2)
                cells[y, x, 27 + i] = 0.2357 * signed.sum()
    return cells


def picture(rows: int, cols: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    smooth = (
        rng.integers(0, 256, (rows // 4 + 2, cols // 4 + 2, channels)).repeat(4, axis=0).repeat(4, axis=1)
    )
    noise = rng.integers(-9, 10, (rows, cols, channels))
    return np.clip(smooth[:rows, :cols] + noise, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("cell_size", [2, 4, 8])
@pytest.mark.parametrize("shape", [(40, 48), (37, 51), (45, 43), (28, 61)])
def test_equals_the_definition(shape, cell_size):
    image = picture(*shape)
    np.testing.assert_allclose(hog(image, cell_size=cell_size), slow_hog(image, cell_size), atol=2e-5)


def test_grey_picture_equals_three_equal_channels():
    grey = picture(40, 48, channels=1)
    np.testing.assert_array_equal(hog(grey[:, :, 0]), hog(np.repeat(grey, 3, axis=2)))
    np.testing.assert_allclose(hog(grey), slow_hog(grey, 8), atol=2e-5)


@settings(max_examples=25, deadline=None)
@given(
    hnp.arrays(np.uint8, st.tuples(st.integers(1, 40), st.integers(1, 40), st.just(3))),
    st.sampled_from([2, 4, 8]),
)
def test_any_picture_gives_bounded_numbers(image, cell_size):
    cells = hog(image, cell_size=cell_size)
    assert np.isfinite(cells).all()
    assert cells.min(initial=0) >= 0
    assert cells[..., :27].max(initial=0) <= 0.4 + 1e-6
    assert not cells[..., TRUNCATION].any()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 7), st.integers(3, 7))
def test_mirror_of_cells_is_cells_of_mirror(seed, rows, cols):
    # Whole cells: otherwise the right border is treated unlike the left one. No exactly vertical gradients:
    # they all go to the bin on the left of two equally near ones.
    image = np.random.default_rng(seed).uniform(0, 255, (8 * rows, 8 * cols, 3))
    np.testing.assert_allclose(mirror(hog(image)), hog(image[:, ::-1]), atol=1e-5)


def test_mirroring_twice_changes_nothing():
    cells = np.random.default_rng(0).random((4, 5, 32), dtype=np.float32)
    np.testing.assert_array_equal(mirror(mirror(cells)), cells)
    np.testing.assert_array_equal(mirror(mirror(cells[..., :31])), cells[..., :31])


def test_brightness_does_not_matter_and_contrast_hardly():
    image = picture(64, 64).astype(np.float64) / 2
    np.testing.assert_allclose(hog(image + 40.25), hog(image), atol=1e-5)
    np.testing.assert_allclose(hog(image * 2), hog(image), atol=1e-4)


def test_glyph_of_a_vertical_edge_is_a_vertical_stroke():
    step = np.zeros((64, 64), np.uint8)
    step[:, 32:] = 200
    drawn = glyphs(hog(step), cell_pixels=15)
    assert drawn.shape == (6 * 15, 6 * 15)
    cell = drawn[30:45, 30:45].astype(float)  # a cell the edge runs through
    assert cell[:, 7].mean() > 5 * cell[7, :5].mean()
    assert drawn.max() == 255


def test_glyphs_of_nothing_are_black():
    assert not glyphs(np.zeros((2, 3, 32))).any()
    assert glyphs(-np.ones((2, 3, 31)), negative=True).any()


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((4, 4, 2)), "shape"),
        (np.zeros((0, 4)), "empty"),
        (np.full((9, 9), np.nan), "NaN"),
        (np.full((9, 9), 300), "0..255"),
        (np.array([["a"]]), "numbers"),
    ],
)
def test_refuses_what_is_no_picture(image, message):
    with pytest.raises(DataError, match=message):
        hog(image)


@pytest.mark.parametrize("cell_size", [0, 1, 3, 2.5, None])
def test_refuses_odd_cells(cell_size):
    with pytest.raises(UsageError, match="cell_size"):
        hog(np.zeros((40, 40)), cell_size=cell_size)


def test_refuses_what_are_no_cells():
    with pytest.raises(DataError, match="31 or 32"):
        mirror(np.zeros((3, 3, 5)))
    with pytest.raises(DataError, match="31 or 32"):
        glyphs(np.zeros((3, 3)))
