"""Boxes in the array API, against the formulas written out; on strict arrays, within the standard."""

import numpy as np
import pytest

from visionkl.backend import boxes


def test_boxes_of_cells(library):
    places = np.array([[[2, 5], [-1, -1]], [[0, 3], [4, 4]]])
    sizes = np.array([[[3.0, 6.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 2.0]]])
    cell, padding = np.array([[4.0], [8.0]]), np.array([1.0, 3.0])
    found = library.get(boxes.boxes_of_places(*map(library.put, (places, sizes, cell, padding))))
    expected = [[[8, 4, 32, 16], [np.nan] * 4], [[0, -8, 16, 0], [8, 24, 24, 40]]]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_no_parts(library, n):
    places, sizes = np.zeros((n, 0, 2), np.int64), np.zeros((n, 0, 2))
    arrays = map(library.put, (places, sizes, np.ones((n, 1)), np.zeros(2)))
    assert library.get(boxes.boxes_of_places(*arrays)).shape == (n, 0, 4)


def some_boxes(random, *shape):
    corners = random.uniform(-10, 40, (*shape, 2))
    return np.concatenate([corners, corners + random.uniform(0, 30, (*shape, 2))], axis=-1)


def test_boxes_end_at_the_border(library, random):
    given, limits = some_boxes(random, 20), np.array([30.0, 20.0, 30.0, 20.0])
    found = library.get(boxes.cut_off(library.put(given), library.put(limits)))
    assert np.array_equal(found, np.clip(given, 0, limits))


@pytest.mark.parametrize("n", [0, 7])
def test_sides_move_as_the_regression_says(library, random, n):
    windows, filters = some_boxes(random, n), some_boxes(random, n, 3)
    windows[: n // 2, 2:] = windows[: n // 2, :2]  # slivers
    weights = random.normal(size=(4, 7)).astype(np.float32)
    found = library.get(boxes.move_sides(*map(library.put, (windows, filters, weights))))
    assert found.shape == (n, 4)
    for window, own, predicted in zip(windows, filters, found, strict=True):
        width, height = (max(side, 1.0) for side in window[2:] - window[:2] - 1)
        described = []
        for box in own:
            described += [(box[0] + box[2] - window[0] - window[2]) / 2 / width]
            described += [(box[1] + box[3] - window[1] - window[3]) / 2 / height]
        shifts = weights.astype(np.float64) @ [*described, 1.0]
        np.testing.assert_allclose(predicted, window + shifts * ([width, height] * 2), rtol=1e-9)


def test_boxes_inside_the_picture(library):
    given = [[-5, 2, 8, 9], [3, 3, 9, 1], [7, 2, 5, 9], [40, 0, 50, 10], [1, 1, 2, 2.5], [0, -9, 10, 0]]
    limits = np.array([30, 20, 30, 20], np.float32)
    found, rows = map(library.get, boxes.inside_picture(library.put(np.array(given)), library.put(limits)))
    assert found.dtype == np.float32
    assert rows.tolist() == [0, 4]
    assert found[rows].tolist() == [[0, 2, 8, 9], [1, 1, 2, 2.5]]
    assert (found[:, 2:] >= found[:, :2]).all()
