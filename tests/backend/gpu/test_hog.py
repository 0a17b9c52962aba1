"""HOG and resampling: kernels executed on the CPU, against the CPU's own loops."""

import numpy as np
import pytest

from visionkl.backend.cpu import hog as cpu_hog
from visionkl.backend.cpu import resample as cpu_resample
from visionkl.backend.gpu import hog, resample


def picture(channels=3, rows=21, cols=29, seed=0):
    random = np.random.default_rng(seed)
    planes = random.uniform(0, 255, (channels, rows, cols))
    planes[:, 5:12] = 40.0  # flat, with horizontal edges: orientations tie
    planes[:, :, 14:20] = planes[:1, :, 14:20]  # equal channels
    return planes


@pytest.mark.parametrize("channels", [1, 3])
def test_gradients_are_those_of_the_cpu(gpu, channels):
    planes = picture(channels)
    magnitude, orientation = hog.gradients(gpu.put(planes))
    expected = cpu_hog.gradients(planes)
    inner = np.s_[1:-1, 1:-1]
    assert np.array_equal(gpu.get(magnitude)[inner], expected[0][inner])
    assert np.array_equal(gpu.get(orientation)[inner], expected[1][inner])


@pytest.mark.parametrize("cell_size", [2, 4, 6])
def test_cells_are_those_of_the_cpu(gpu, cell_size):
    planes = picture()[:, : 5 * cell_size - 1, : 6 * cell_size + 1]
    magnitude, orientation = (array.copy() for array in cpu_hog.gradients(planes))
    n_rows, n_cols = cpu_hog.cell_counts(magnitude.shape, cell_size)
    level = np.full((n_rows + 1, n_cols + 2, 32), -1, np.float32)
    expected = level.copy()
    on_device = gpu.put(level)
    hog.cells_into(gpu.put(magnitude), gpu.put(orientation), cell_size, on_device, 2, 3)
    cpu_hog.cells_into(magnitude, orientation, cell_size, expected, 2, 3)
    np.testing.assert_allclose(gpu.get(on_device), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 2), (2, 9), (9, 9)])
def test_pictures_too_small_for_cells(gpu, shape):
    magnitude, orientation = hog.gradients(gpu.put(np.zeros((1, *shape))))
    level = gpu.put(np.zeros((0, 0, 32), np.float32))
    hog.cells_into(magnitude, orientation, 8, level, 0, 0)


@pytest.mark.parametrize(("channels", "rows", "cols"), [(3, 19, 21), (1, 13, 15), (3, 7, 5), (1, 1, 1)])
def test_shrinking_is_that_of_the_cpu_to_the_last_bit(gpu, channels, rows, cols):
    planes = picture(channels)
    shrunk = resample.shrink(gpu.put(planes), rows, cols)
    assert np.array_equal(gpu.get(shrunk), cpu_resample.shrink(planes, rows, cols))


def test_shrinking_to_the_same_size_is_nothing(gpu):
    planes = gpu.put(picture())
    assert resample.shrink(planes, 21, 29) is planes
