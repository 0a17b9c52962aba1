"""Dense SIFT: kernels executed on the CPU, against the CPU's own loops."""

import numpy as np
import pytest

from visionkl.backend.cpu import sift as cpu_sift
from visionkl.backend.gpu import sift


@pytest.mark.parametrize(
    ("root", "dtype", "n_kernels"),
    [(False, np.float32, 1), (True, np.float32, 4), (True, np.uint8, 1), (False, np.uint8, 4)],
)
def test_descriptors_are_those_of_the_cpu(gpu, root, dtype, n_kernels):
    random = np.random.default_rng(0)
    plane = random.uniform(0, 255, (12, 15)).astype(np.float32)
    plane[:, :9] = 80  # descriptors of nothing
    bin_size, step = 2, 4
    settings = {
        "smoother": np.array([0.25, 0.5, 0.25], np.float32),
        "kernels": random.random((n_kernels, 2 * bin_size - 1)).astype(np.float32),
        "bin_weights": np.array([0.7, 1, 1, 0.7], np.float32),
        "bin_size": bin_size,
        "step": step,
        "first": (1, 2),
        "counts": (3, 2),
        "threshold": 0.5,
        "root": root,
        "at": 3,
        "channel": 1,
    }
    expected = np.full((10, 256), 7, dtype)
    values = gpu.put(expected)
    cpu_sift.describe(plane, values=expected, **settings)
    sift.describe(gpu.put(plane), values=values, **settings)
    # Rounding to whole numbers may go either way.
    bounds = {"atol": 1} if dtype == np.uint8 else {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(gpu.get(values).astype(float), expected.astype(float), **bounds)
