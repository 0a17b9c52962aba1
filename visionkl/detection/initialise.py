"""Where training starts: how many cells, which way objects face, and where parts go (METHODS §10).

Objects are grouped by aspect ratio, one group for each learned component. A group's root has the group's
usual aspect ratio and is small enough for most of its objects. Each object is warped to the root's size, once
as it is and once mirrored, and the group is turned so that all its objects face the same way: that is what
the pair of a component and its mirror image stands for. Parts are placed, greedily, on the root's strongest 6
× 6 windows at twice its resolution.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from visionkl.detection.model import Part
from visionkl.features.hog import N_CHANNELS, TRUNCATION, hog, mirror

# A root covers at most this many pixels at scale 1, and at least that many: large ones cost time, small ones
# say too little. The published models' limits.
_LARGEST_AREA = 5000
_SMALLEST_AREA = 3000
_SMALL_OBJECT_QUANTILE = 0.2

#: Deformation of a part before anything is learned: a shift by two cells costs 0.08.
START_DEFORMATION = np.array([0.02, 0.0, 0.02, 0.0], np.float32)

_PART_START = 0.1  # norm of a part's filter before anything is learned

FloatArray = npt.NDArray[np.float32]


def group_by_aspect(sizes: npt.NDArray[np.floating], n_groups: int) -> list[npt.NDArray[np.intp]]:
    """Split objects of `(width, height)` into groups of equal number, from the lowest to the tallest."""
    order = np.argsort(sizes[:, 1] / sizes[:, 0], kind="stable")
    return [np.sort(group) for group in np.array_split(order, n_groups)]


def root_size(sizes: npt.NDArray[np.floating], cell_size: int) -> tuple[int, int]:
    """Choose a root's `(rows, cols)` for objects of `(width, height)` pixels."""
    aspect = float(np.exp(np.median(np.log(sizes[:, 1] / sizes[:, 0]))))
    area = float(np.quantile(sizes.prod(axis=1), _SMALL_OBJECT_QUANTILE))
    # The limits are for cells of 8 pixels.
    unit = (cell_size / 8) ** 2
    area = float(np.clip(area, _SMALLEST_AREA * unit, _LARGEST_AREA * unit))
    width = np.sqrt(area / aspect)
    return max(round(width * aspect / cell_size), 3), max(round(width / cell_size), 3)


def warped_cells(
    image: npt.NDArray[np.uint8], box: npt.ArrayLike, size: tuple[int, int], cell_size: int
) -> FloatArray:
    """HOG cells `(rows, cols, 32)` of an object that is warped to a root's size.

    Outside the picture, its edge goes on.
    """
    rows, cols = size
    x1, y1, x2, y2 = np.asarray(box, dtype=np.float64)
    # One cell more on every side: HOG drops the outermost ring.
    margin_x, margin_y = (x2 - x1) / cols, (y2 - y1) / rows
    width, height = (cols + 2) * cell_size, (rows + 2) * cell_size
    left, top = x1 - margin_x, y1 - margin_y
    right, bottom = x2 + margin_x, y2 + margin_y
    crop = _crop(image, left, top, right, bottom)
    shrinking = crop.shape[0] * crop.shape[1] > width * height
    warped = cv2.resize(
        crop, (width, height), interpolation=cv2.INTER_AREA if shrinking else cv2.INTER_LINEAR
    )
    return hog(warped, cell_size=cell_size)


def _crop(
    image: npt.NDArray[np.uint8], left: float, top: float, right: float, bottom: float
) -> npt.NDArray[np.uint8]:
    rows = np.clip(np.arange(round(top), max(round(bottom), round(top) + 1)), 0, image.shape[0] - 1)
    cols = np.clip(np.arange(round(left), max(round(right), round(left) + 1)), 0, image.shape[1] - 1)
    return image[np.ix_(rows, cols)]


def facing(features: FloatArray, rng: np.random.Generator, *, n_starts: int = 10) -> npt.NDArray[np.bool_]:
    """Tell which objects `(n, rows, cols, 32)` to mirror so that all face the same way.

    Starting from a random choice, each object in turn takes the side on which it resembles the sum of the
    others more; of several starts, the most coherent result counts.
    """
    n = len(features)
    as_is = features.reshape(n, -1)
    turned = mirror(features).reshape(n, -1)
    best, best_coherence = np.zeros(n, dtype=bool), -np.inf
    for _ in range(n_starts):
        flipped = rng.random(n) < 0.5
        total = np.where(flipped[:, None], turned, as_is).sum(axis=0, dtype=np.float64)
        for _ in range(20):
            changed = False
            for i in rng.permutation(n):
                now, other = (turned[i], as_is[i]) if flipped[i] else (as_is[i], turned[i])
                rest = total - now
                if other @ rest > now @ rest:
                    flipped[i] = not flipped[i]
                    total = rest + other
                    changed = True
            if not changed:
                break
        coherence = float(total @ total)
        if coherence > best_coherence * (1 + 1e-9):
            best, best_coherence = flipped.copy(), coherence
    return best


def place_parts(root: FloatArray, n_parts: int, part_size: int) -> tuple[Part, ...]:
    """Cover the strongest places of a root, seen at twice its resolution, with parts."""
    rows, cols = 2 * root.shape[0], 2 * root.shape[1]
    part_rows, part_cols = min(part_size, rows), min(part_size, cols)
    # Linear: a cubic would overshoot beside strong negative weights and attract parts to nothing.
    fine = cv2.resize(root[:, :, :TRUNCATION], (cols, rows), interpolation=cv2.INTER_LINEAR)
    energy = (np.maximum(fine, 0) ** 2).sum(axis=2)
    parts = []
    for _ in range(n_parts):
        sums = cv2.boxFilter(
            energy.astype(np.float64),
            -1,
            (part_cols, part_rows),
            anchor=(0, 0),
            normalize=False,
            borderType=cv2.BORDER_CONSTANT,
        )[: rows - part_rows + 1, : cols - part_cols + 1]
        y, x = np.unravel_index(int(sums.argmax()), sums.shape)
        weights = np.zeros((part_rows, part_cols, N_CHANNELS), np.float32)
        weights[:, :, :TRUNCATION] = fine[y : y + part_rows, x : x + part_cols]
        weights *= _PART_START / max(float(np.linalg.norm(weights)), 1e-12)
        parts.append(Part(weights, (int(x), int(y)), START_DEFORMATION))
        energy[y : y + part_rows, x : x + part_cols] = 0
    return tuple(parts)
