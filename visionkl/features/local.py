"""Local descriptors: many small vectors a picture, each with its place and size.

What computes them is an *extractor*: an object with `extract(image) -> LocalDescriptors`, such as
`visionkl.features.sift.DenseSIFT`. What sums them up into one vector a picture (`visionkl.features.fisher`,
`visionkl.features.words`) takes any extractor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import device_of


@dataclass(frozen=True, eq=False)
class LocalDescriptors:
    """The local descriptors of one picture.

    Parameters
    ----------
    values : ndarray of float32 or uint8, shape (n, d)
        May lie on a GPU.
    positions : ndarray of float32, shape (n, 2)
        Centres `(x, y)` in pixels, 0-based: the centre of the picture's first pixel is `(0.5, 0.5)`.
    sizes : ndarray of float32, shape (n,)
        Edge of the square that a descriptor describes, in pixels.
    image_size : tuple of int
        `(width, height)`.
    """

    values: npt.NDArray[np.generic]
    positions: npt.NDArray[np.float32]
    sizes: npt.NDArray[np.float32]
    image_size: tuple[int, int]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice | npt.NDArray[np.generic]) -> LocalDescriptors:
        there = rows if isinstance(rows, slice) else device_of(self.values).put(rows)
        return LocalDescriptors(self.values[there], self.positions[rows], self.sizes[rows], self.image_size)


class Extractor(Protocol):
    """Whatever computes local descriptors.

    One with an attribute `device` also takes pictures that lie on a GPU; its values are then there, too.
    """

    def extract(self, image: npt.NDArray[np.uint8]) -> LocalDescriptors:
        """Describe a picture `(rows, cols)` or `(rows, cols, 3)` with values 0..255."""
        ...
