"""A small extractor for tests: raw patches of grey pixels on a grid."""

import numpy as np
from sklearn.base import BaseEstimator

from visionkl.features.local import LocalDescriptors


class Patches(BaseEstimator):
    """Square patches of `size` pixels every `step` pixels; counts how many pictures it was given."""

    def __init__(self, size=4, step=3, scale=1.0):
        self.size = size
        self.step = step
        self.scale = scale
        self.n_pictures = 0

    def extract(self, image):
        self.n_pictures += 1
        grey = np.asarray(image, np.float32)
        grey = grey.mean(axis=2) if grey.ndim == 3 else grey
        rows, cols = grey.shape
        corners = [
            (y, x)
            for y in range(0, rows - self.size + 1, self.step)
            for x in range(0, cols - self.size + 1, self.step)
        ]
        values = [grey[y : y + self.size, x : x + self.size].ravel() * self.scale for y, x in corners]
        positions = np.array([(x + self.size / 2, y + self.size / 2) for y, x in corners], np.float32)
        return LocalDescriptors(
            np.array(values, np.float32).reshape(-1, self.size**2),
            positions.reshape(-1, 2),
            np.full(len(corners), self.size, np.float32),
            (cols, rows),
        )


def random_pictures(n, seed=0, shape=(30, 40)):
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, (*shape, 3), dtype=np.uint8) for _ in range(n)]


def random_descriptors(n=300, length=6, seed=0, image_size=(100, 60)):
    random = np.random.default_rng(seed)
    values = random.normal(size=(n, length)) + 3 * random.integers(0, 3, (n, 1))
    positions = random.uniform(0, image_size, (n, 2)).astype(np.float32)
    return LocalDescriptors(
        values.astype(np.float32), positions, random.uniform(4, 16, n).astype(np.float32), image_size
    )
