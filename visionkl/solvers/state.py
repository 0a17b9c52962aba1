"""The state of the bundle solver, one step at a time.

`visionkl.solvers.bundle` explains the method and has the loop for one problem. The steps are apart because
several problems over the same data, such as one class against the rest for every class, can then share each
pass: take every bundle's answer, make one pass for all of them, and give each its scores and planes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import DataError, UsageError
from visionkl.core.validation import check_number
from visionkl.solvers.master import Master
from visionkl.solvers.metrics import Metric, check_positive

Vector = npt.NDArray[np.float64]

#: How far from the best point towards the master's answer planes are taken: after a search along the line,
#: and without one.
STEP_AFTER_SEARCH = 0.2
STEP_WITHOUT_SEARCH = 0.4

#: Parts of the gap that planes may be slack by, and that the master problem is solved to.
SLACK = 0.15
MASTER_ACCURACY = 0.05

_MEMORY_OF_PLANES = 1 << 27
_MOST_PLANES = 1000


class LinearOracle(Protocol):
    """An oracle whose loss is a function of scores that are linear in the coefficients.

    `visionkl.solvers.losses.Risk` is one; its methods say what these must do.

    Attributes
    ----------
    n_parts : int
    """

    n_parts: int

    def scores(self, v: Vector) -> Vector:
        """Scores at `v`: an array, linear in `v`."""
        ...

    def loss(self, scores: Vector) -> float:
        """Return the loss at these scores."""
        ...

    def slope(self, scores: Vector, change: Vector) -> float:
        """Return a derivative of the loss at these scores as they go along a change."""
        ...

    def planes(self, points: Vector, slack: float = 0.0) -> tuple[Vector, Vector]:
        """Return offsets `(k, n_parts)` and planes `(k, n_parts, dim)` at the scores of k points."""
        ...


@dataclass(frozen=True, eq=False)
class Planes:
    """Planes below a loss, in a metric's coordinates: a warm start for the same loss.

    Parameters
    ----------
    offsets : ndarray of float64, shape (n,)
    planes : ndarray of float64, shape (n, rank)
    parts : ndarray of int, shape (n,)
    """

    offsets: Vector
    planes: Vector
    parts: npt.NDArray[np.intp]


class Bundle:
    """The state of the solver, for those who turn the crank themselves: several problems in one pass.

    `search` says where planes are wanted, `add` takes them in, and `answer` gives the coefficients that are
    best under them, to be compared with the best so far by the next `search`:

        points = bundle.begin(oracle, oracle.scores(bundle.v))
        while bundle.gap > tol:
            bundle.add(*oracle.planes(points, bundle.slack))
            points = bundle.search(oracle, oracle.scores(bundle.answer()))

    Parameters
    ----------
    metric : Metric
    regularisation : float
        λ, positive.
    lower : array_like of float, shape (dim,), optional
        Lower bounds of the coefficients; -inf where there is none.
    start : array_like of float, shape (dim,), optional
        Coefficients to start from; 0 by default.
    max_planes : int, optional
        Planes to keep; by default what fits into 128 MB, at most 1000.
    n_jobs : int, optional
        Threads; all usable cores by default.
    """

    def __init__(
        self,
        metric: Metric,
        *,
        regularisation: float,
        lower: npt.ArrayLike | None = None,
        start: npt.ArrayLike | None = None,
        max_planes: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        if max_planes is None:
            max_planes = min(_MEMORY_OF_PLANES // (8 * metric.rank), _MOST_PLANES)
        check_number("Bundle", "max_planes", max_planes, low=0, integer=True)
        self.metric = metric
        self.regularisation = check_positive("Bundle", "regularisation", regularisation)
        bounded, low = _bounds(metric, lower)
        self.master = Master(metric.rank, self.regularisation, bounded, low, max_planes, n_jobs)
        self.coordinates = _start(metric, start)
        self.coordinates[bounded] = np.maximum(self.coordinates[bounded], low)
        self.primal = np.inf
        self.dual = -np.inf
        self._answer = self.coordinates
        self._scores = np.empty(0)

    @property
    def v(self) -> Vector:
        """The best coefficients so far."""
        return self.metric.expand(self.coordinates)

    @property
    def gap(self) -> float:
        """`(primal − dual) / primal`; infinite before there is an answer."""
        if not np.isfinite(self.primal - self.dual):
            return np.inf
        return max(self.primal - self.dual, 0.0) / max(abs(self.primal), np.finfo(float).tiny)

    @property
    def slack(self) -> float:
        """How far planes may be below the loss."""
        distance = self.primal - self.dual
        return SLACK * max(distance, 0.0) if np.isfinite(distance) else 0.0

    def add(self, offsets: Vector, planes: Vector) -> None:
        """Take in planes `(k, n_parts, dim)` with their offsets `(k, n_parts)`."""
        if not (np.isfinite(offsets).all() and np.isfinite(planes).all()):
            raise DataError(
                "The loss or its sub-gradient is not finite; check the training data and weights."
            )
        k, n_parts, _ = planes.shape
        reduced = self.metric.reduce(planes).reshape(k * n_parts, -1)
        self.master.add(offsets.reshape(-1), reduced, np.tile(np.arange(n_parts), k))

    def add_known(self, planes: Planes) -> None:
        """Take in planes from an earlier result for the same loss."""
        if planes.planes.shape[1] != self.metric.rank:
            raise UsageError("The planes to start from belong to another problem; leave them out.")
        self.master.add(planes.offsets, planes.planes, planes.parts)

    def known(self) -> Planes:
        """Return the planes that are in use."""
        used = self.master.alpha > 0
        return Planes(self.master.offsets[used], self.master.planes[used], self.master.parts[used])

    def answer(self) -> Vector:
        """Solve the master problem; returns the coefficients that are best under the planes."""
        distance = self.primal - self.dual
        accuracy = MASTER_ACCURACY * max(distance, 0.0) if np.isfinite(distance) else 0.0
        self._answer, value = self.master.solve(accuracy)
        self.dual = max(self.dual, value)
        return self.metric.expand(self._answer)

    def begin(self, oracle: LinearOracle, scores: Vector) -> Vector:
        """Take the scores at the start, `v`; return where planes are wanted: there."""
        self.offer(self.coordinates, oracle.loss(scores))
        self._scores = scores
        return scores[None]

    def search(self, oracle: LinearOracle, scores: Vector) -> Vector:
        """Go to the minimum on the line from the best point to the answer; return where planes are wanted.

        Parameters
        ----------
        oracle : LinearOracle
            Asked for losses and slopes of scores only.
        scores : ndarray of float64
            At the answer.

        Returns
        -------
        ndarray of float64, shape (1, ...)
            Scores of the point at which to take planes.
        """
        best = self._scores
        way, change = self._answer - self.coordinates, scores - best
        step = self._exact_step(oracle, best, change, way)
        if self.offer(self.coordinates + step * way, oracle.loss(best + step * change)):
            best = best + step * change
        self._scores = best
        return (best + STEP_AFTER_SEARCH * (scores - best))[None]

    def between(self) -> Vector:
        """Return a point a part of the way from the best one to the answer: where to ask a plain oracle."""
        return self.coordinates + STEP_WITHOUT_SEARCH * (self._answer - self.coordinates)

    def offer(self, coordinates: Vector, loss: float) -> bool:
        """Compare a point with the best so far; keeps it and says so if it is better."""
        primal = self.regularisation / 2 * float(coordinates @ coordinates) + loss
        better = primal < self.primal
        if better:
            self.coordinates, self.primal = coordinates, primal
        return better

    def _exact_step(self, oracle: LinearOracle, scores: Vector, change: Vector, way: Vector) -> float:
        """Find the minimum along a line from below: the largest step known to go downhill all the way."""
        linear = self.regularisation * float(self.coordinates @ way)
        square = self.regularisation * float(way @ way)

        def slope(step: float) -> float:
            return linear + step * square + oracle.slope(scores + step * change, change)

        falling = way[self.master.bounded] < 0
        room = self.coordinates[self.master.bounded] - self.master.low
        furthest = float((room[falling] / -way[self.master.bounded][falling]).min(initial=1e6))
        low, high = 0.0, min(1.0, furthest)
        slope_low, slope_high = slope(0.0), slope(high)
        if not slope_low < 0:
            return 0.0
        while slope_high < 0:
            low, slope_low = high, slope_high
            if high >= furthest:
                return furthest
            high = min(2 * high, furthest)
            slope_high = slope(high)
        for number in range(100):
            if high - low <= 1e-9 * high:
                break
            # The slope is made of lines and jumps: its chord finds the former, halving the latter.
            middle = low - slope_low * (high - low) / (slope_high - slope_low)
            if number % 2 or not low < middle < high:
                middle = (low + high) / 2
            slope_middle = slope(middle)
            if slope_middle < 0:
                low, slope_low = middle, slope_middle
            else:
                high, slope_high = middle, slope_middle
        return low


def _start(metric: Metric, start: npt.ArrayLike | None) -> Vector:
    if start is None:
        return np.zeros(metric.rank)
    v = np.array(start, dtype=np.float64)
    if v.shape != (metric.dim,) or not np.isfinite(v).all():
        raise UsageError(
            f"The 'start' parameter of minimise must hold {metric.dim} finite numbers; "
            f"it has the shape {v.shape}."
        )
    return metric.coordinates(v)


def _bounds(metric: Metric, lower: npt.ArrayLike | None) -> tuple[npt.NDArray[np.intp], Vector]:
    """Lower bounds in the metric's coordinates."""
    if lower is None:
        return np.empty(0, np.intp), np.empty(0)
    bounds = np.asarray(lower, dtype=np.float64)
    if bounds.shape != (metric.dim,) or np.isnan(bounds).any() or (bounds == np.inf).any():
        raise UsageError(
            f"The 'lower' parameter of minimise must hold {metric.dim} numbers, -inf where there is no bound."
        )
    bounded = np.flatnonzero(bounds > -np.inf)
    if not len(bounded):
        return bounded, np.empty(0)
    positions, scales = metric.locate(bounded)
    return positions, bounds[bounded] / scales
