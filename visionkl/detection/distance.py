"""The generalised distance transform: how well a part can do from each anchor, and where it goes to do so.

    transformed[anchor] = max over placed of  scores[placed] - cost(placed - anchor)

with the separable cost `ax dx² + bx dx + ay dy² + by dy`. Without a `radius` any displacement is tried, in
linear time by the envelope of parabolas; with one, displacements up to it in each direction. Both are exact.
"""

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu import distance as kernel
from visionkl.core.errors import DataError


def distance_transform(
    scores: npt.ArrayLike, deformation: npt.ArrayLike, *, radius: int | None = None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Transform the scores of one part and tell where it is placed.

    Parameters
    ----------
    scores : array_like of float, shape (rows, cols)
        -inf marks places that are not allowed.
    deformation : array_like of float, shape (4,)
        `ax, bx, ay, by` with `ax, ay > 0`.
    radius : int, optional
        Largest displacement in each direction; unbounded by default.

    Returns
    -------
    transformed : ndarray of float32, shape (rows, cols)
    placed : ndarray of int64, shape (rows, cols, 2)
        `(row, col)` of the best placement for each anchor; undefined where the result is -inf.

    Examples
    --------
    >>> scores = np.zeros((3, 5)); scores[1, 4] = 2
    >>> transformed, placed = distance_transform(scores, [0.1, 0, 1, 0])
    >>> print(transformed[1].round(3), placed[1, 0])
    [0.4 1.1 1.6 1.9 2. ] [1 4]
    """
    scores = np.ascontiguousarray(scores, dtype=np.float32)
    costs = np.asarray(deformation, dtype=np.float32)
    if scores.ndim != 2:
        raise DataError(f"distance_transform: scores must have two dimensions, not {scores.ndim}.")
    if costs.shape != (4,) or not np.isfinite(costs).all() or costs[0] <= 0 or costs[2] <= 0:
        raise DataError(
            f"distance_transform: the deformation must be ax > 0, bx, ay > 0, by; not {costs.tolist()}."
        )
    rows, cols = scores.shape
    transformed = transform_parts(scores[:, :, None], costs[None], radius, rows, cols)[:, :, 0]
    anchors = np.stack(np.divmod(np.arange(rows * cols), max(cols, 1)), axis=1)
    placed = place_parts(scores[:, :, None], costs[None], radius, anchors, np.zeros(len(anchors), np.int64))
    return transformed, placed.reshape(rows, cols, 2)


def transform_parts(
    scores: npt.NDArray[np.float32], costs: npt.NDArray[np.float32], radius: int | None, rows: int, cols: int
) -> npt.NDArray[np.float32]:
    """Transform the scores `(score_rows, score_cols, n)` of many parts to anchors over `rows × cols`.

    The costs are `(n, 4)`; a radius of None is without bound.
    """
    if radius is None:
        return kernel.envelope(scores, costs, rows, cols)
    return kernel.windowed(scores, costs, radius, rows, cols)


def place_parts(
    scores: npt.NDArray[np.float32],
    costs: npt.NDArray[np.float32],
    radius: int | None,
    anchors: npt.NDArray[np.int64],
    parts: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Placements `(m, 2)` of the given parts `(m,)` for anchors `(m, 2)`; -1 where there is none."""
    placed = np.full((len(anchors), 2), -1, np.int64)
    reach = max(scores.shape[:2]) if radius is None else radius
    kernel.best_placements(scores, costs, reach, np.ascontiguousarray(anchors), parts, placed)
    return placed
