"""The generalised distance transform: how well a part can do from each anchor, and where it goes to do so.

    transformed[anchor] = max over placed of  scores[placed] - cost(placed - anchor)

with the separable cost `ax dx² + bx dx + ay dy² + by dy`. Without a `radius` any displacement is tried, in
linear time by the envelope of parabolas; with one, displacements up to it in each direction. Both are exact.

Parts are sought at twice their root's resolution, so of their anchors only every second is a root's: the even
or the odd ones, in each direction. `PartAdder` sorts parts by that, and transforms no more than is needed.
"""

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device, device_of, loops
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
    kernel = loops("distance", scores)
    if radius is None:
        return kernel.envelope(scores, costs, rows, cols)
    return kernel.windowed(scores, costs, radius, rows, cols)


class PartAdder:
    """Parts of one size, ready to be added to the scores of their roots.

    Parameters
    ----------
    costs : ndarray of float32, shape (n, 4)
        Deformations.
    radius : int or None
        As for `distance_transform`.
    components : ndarray of int64, shape (n,)
        To which component each part belongs.
    anchors : ndarray of int64, shape (n, 2)
        `(row, col)` of each part relative to its root, at twice the root's resolution.
    device : visionkl.backend.dispatch.Device
        Where responses and scores lie.
    """

    def __init__(
        self,
        costs: npt.NDArray[np.float32],
        radius: int | None,
        components: npt.NDArray[np.int64],
        anchors: npt.NDArray[np.int64],
        device: Device = CPU,
    ) -> None:
        self._device = device
        make_windows = device.loops("distance").make_windows
        self._costs, self._radius = costs, radius
        self._components, self._anchors = components, anchors
        # Of each kind: which rows and columns are its anchors (even or odd), and its parts.
        self._kinds = [
            (odd, mine, None if radius is None else make_windows(costs, radius, mine))
            for odd in ((0, 0), (0, 1), (1, 0), (1, 1))
            if len(mine := np.nonzero((anchors % 2 == odd).all(axis=1))[0])
        ]

    def add(
        self,
        responses: npt.NDArray[np.float32],
        padding: tuple[int, int],
        limits: npt.NDArray[np.int64],
        scores: npt.NDArray[np.float32],
    ) -> None:
        """Add what each part reaches from its anchor.

        Parameters
        ----------
        responses : ndarray of float32, shape (part_rows, part_cols, n)
            One octave finer than the roots.
        padding : tuple of int
            Of the pyramid.
        limits : ndarray of int64, shape (n_components, 4)
            Places `top, bottom, left, right` (half-open) of each component's root to which to add: none with
            an anchor before the first row or column.
        scores : ndarray of float32, shape (n_components, rows, cols)
        """
        if not responses.size:  # too small a level for these parts, if not for others
            for component in self._components.tolist():
                scores[component] = -np.inf
            return
        kernel = self._device.loops("distance")
        transformed = None
        for odd, mine, windows in self._kinds:
            first = (odd[0] - padding[0]) % 2, (odd[1] - padding[1]) % 2
            shifts = (self._anchors[mine] - padding - first) // 2
            wiring = np.column_stack([self._components[mine], shifts])
            if windows is not None:
                kernel.add_windowed(responses, windows, first, wiring, limits, scores)
                continue
            if transformed is None:
                rows, cols = 2 * limits[:, 1::2].max(axis=0) + self._anchors.max(axis=0) - padding
                transformed = kernel.envelope(responses, self._costs, rows, cols)
            self._device.loops("matching").add_sampled(transformed, mine, first, wiring, limits, scores)


def place_parts(
    scores: npt.NDArray[np.float32],
    costs: npt.NDArray[np.float32],
    radius: int | None,
    anchors: npt.NDArray[np.int64],
    parts: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Placements `(m, 2)` of the given parts `(m,)` for anchors `(m, 2)`; -1 where there is none.

    Scores, anchors and parts lie on one device, and so do the placements.
    """
    device = device_of(scores, anchors, parts)
    xp = device.namespace
    placed: npt.NDArray[np.int64] = xp.full((len(anchors), 2), -1, np.int64)
    reach = max(scores.shape[:2]) if radius is None else radius
    find = device.loops("distance").best_placements
    find(scores, costs, reach, xp.ascontiguousarray(anchors), parts, placed)
    return placed
