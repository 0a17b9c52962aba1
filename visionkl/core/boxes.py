"""THE box convention, and the arithmetic of boxes.

A box is four floats `x1, y1, x2, y2` in pixels, 0-based and half-open: the top-left pixel alone is `0, 0, 1,
1`, width is `x2 - x1`, and a picture is the box `0, 0, width, height`. PASCAL VOC counts from 1 and includes
the last pixel; its corners are converted by `from_voc` and `to_voc`, which only the VOC reader, the published
models and the results files use.
"""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating]


def from_voc(corners: npt.ArrayLike) -> FloatArray:
    """Turn VOC corners (1-based, last pixel included) into boxes.

    Examples
    --------
    >>> from_voc([[1, 1, 500, 375]])
    array([[  0.,   0., 500., 375.]])
    """
    return np.asarray(corners, dtype=np.float64) - np.array([1.0, 1.0, 0.0, 0.0])


def to_voc(boxes: npt.ArrayLike) -> FloatArray:
    """Turn boxes into VOC corners (1-based, last pixel included)."""
    return np.asarray(boxes, dtype=np.float64) + np.array([1.0, 1.0, 0.0, 0.0])


def area(boxes: npt.ArrayLike) -> FloatArray:
    """Areas of boxes `(n, 4)`; a box turned inside out has area 0."""
    boxes = np.asarray(boxes, dtype=np.float64)
    return np.clip(boxes[..., 2] - boxes[..., 0], 0, None) * np.clip(boxes[..., 3] - boxes[..., 1], 0, None)


def intersection(a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
    """Areas `(n, m)` shared by each of the boxes `a (n, 4)` with each of `b (m, 4)`."""
    a = np.asarray(a, dtype=np.float64)[:, None]
    b = np.asarray(b, dtype=np.float64)[None]
    width = np.minimum(a[..., 2], b[..., 2]) - np.maximum(a[..., 0], b[..., 0])
    height = np.minimum(a[..., 3], b[..., 3]) - np.maximum(a[..., 1], b[..., 1])
    return np.clip(width, 0, None) * np.clip(height, 0, None)


def iou(a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
    """Intersection over union `(n, m)` of boxes `a (n, 4)` and `b (m, 4)`; 0 where both are empty.

    Examples
    --------
    >>> iou([[0, 0, 2, 2]], [[0, 0, 2, 1], [5, 5, 6, 6]])
    array([[0.5, 0. ]])
    """
    shared = intersection(a, b)
    union = area(a)[:, None] + area(b)[None] - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def clip(boxes: npt.ArrayLike, width: float, height: float) -> FloatArray:
    """Cut boxes off at the border of a picture."""
    boxes = np.asarray(boxes)
    return np.clip(boxes, 0, np.array([width, height, width, height], dtype=boxes.dtype))
