"""L-BFGS for many small smooth problems at once, within bounds.

A search for one output vector takes a few dozen evaluations, each of which is a product of a matrix and a
vector: it waits for memory, and for the interpreter. A thousand such searches side by side are products of
matrices, and share every step of the interpreter. `minimise_all` runs them so. The searches do not wait for
each other: in each round every point that is still under way has a trial evaluated, and those whose trial is
good enough move there and choose a new direction, while the others shorten their step. A point that has
arrived leaves the batch.

What a search does depends on its own numbers alone, so that points may be searched for together or one by
one; results then differ by rounding only.

Bounds are kept by projection: a coordinate at a bound that its slope pushes against rests, and trials are
clipped. The step is accepted if the value falls by a share of what the slope promises (Armijo), and pairs of
steps and slopes that tell of negative curvature are not remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

#: Returns values `(n,)` and slopes `(n, d)` of points `(n, d)`, told which problems they belong to.
Evaluate = Callable[[Matrix, Indices], tuple[Matrix, Matrix]]

#: Share of the promised fall that a step must bring.
_SUFFICIENT = 1e-4
#: Steps and slopes that are remembered.
_MEMORY = 8
#: How often a step is shortened before the search gives up.
_PATIENCE = 20


@dataclass(frozen=True, eq=False)
class Descents:
    """Where searches ended.

    Parameters
    ----------
    points : ndarray of float64, shape (n, d)
    values : ndarray of float64, shape (n,)
    n_iter : ndarray of int, shape (n,)
        Steps that were taken.
    converged : ndarray of bool, shape (n,)
        False where `max_iter` ended the search.
    """

    points: Matrix
    values: Matrix
    n_iter: Indices
    converged: Flags


@dataclass
class _Batch:
    """The searches that are under way; the first axis of every array is theirs."""

    which: Indices
    points: Matrix
    values: Matrix
    slopes: Matrix  # of coordinates that may move
    directions: Matrix
    steps: Matrix
    shortened: Indices
    n_iter: Indices
    scale: Matrix  # of the inverse curvature where nothing better is known
    moves: Matrix  # (n, memory, d), the newest first
    changes: Matrix  # of slopes, likewise
    inverses: Matrix  # 1 / ⟨move, change⟩, 0 where there is none yet

    def keep(self, staying: Flags) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name)[staying])


def minimise_all(
    evaluate: Evaluate,
    start: npt.ArrayLike,
    *,
    low: npt.ArrayLike = -np.inf,
    high: npt.ArrayLike = np.inf,
    max_iter: int = 100,
    tol: float = 1e-5,
    longest: float = 1.0,
) -> Descents:
    """Minimise many functions of a few variables each, from a start each.

    Parameters
    ----------
    evaluate : callable
        `evaluate(points, which)` returns the values `(n,)` and slopes `(n, d)` at points `(n, d)`, the first
        of which belongs to the problem `which[0]`, and so on.
    start : array_like of float, shape (n_problems, d)
    low, high : array_like of float, that broadcast against (d,)
        Bounds of the variables.
    max_iter : int
        Most steps of a search.
    tol : float
        A search ends when no slope is larger, or when a step gains less than the square of `tol` times the
        value.
    longest : float
        Length of the longest first step; later ones are as long as the curvature says.

    Returns
    -------
    Descents

    Examples
    --------
    >>> centres = np.array([[1.0, 2.0], [-3.0, 0.5]])
    >>> def bowls(points, which):
    ...     away = points - centres[which]
    ...     return (away**2).sum(axis=1), 2 * away
    >>> minimise_all(bowls, np.zeros((2, 2)), low=-2.0).points
    array([[ 1. ,  2. ],
           [-2. ,  0.5]])
    """
    floor, ceiling = np.asarray(low, np.float64), np.asarray(high, np.float64)
    points = np.clip(np.array(start, np.float64), floor, ceiling)
    n, d = points.shape
    which = np.arange(n)
    values, slopes = evaluate(points, which)
    answer = Descents(points.copy(), values.copy(), np.zeros(n, np.intp), np.zeros(n, np.bool_))
    batch = _Batch(
        which,
        points,
        values,
        _free(points, slopes, floor, ceiling),
        np.zeros_like(points),
        np.ones(n),
        np.zeros(n, np.intp),
        np.zeros(n, np.intp),
        longest / np.maximum(np.linalg.norm(slopes, axis=1), longest),
        np.zeros((n, _MEMORY, d)),
        np.zeros((n, _MEMORY, d)),
        np.zeros((n, _MEMORY)),
    )
    arrived = np.abs(batch.slopes).max(axis=1, initial=0.0) <= tol
    _choose_directions(batch, np.ones(n, np.bool_))
    while True:
        finished = arrived | (batch.n_iter >= max_iter) | (batch.shortened > _PATIENCE)
        if finished.any():
            _note(answer, batch, finished, arrived | (batch.shortened > _PATIENCE))
            batch.keep(~finished)
        if not len(batch.which):
            return answer
        arrived = _advance(batch, evaluate, floor, ceiling, tol)


def _advance(batch: _Batch, evaluate: Evaluate, low: Matrix, high: Matrix, tol: float) -> Flags:
    """Try a step of every search, and tell which have arrived."""
    trials = np.clip(batch.points + batch.steps[:, None] * batch.directions, low, high)
    values, slopes = evaluate(trials, batch.which)
    moves = trials - batch.points
    promised = np.einsum("ij,ij->i", batch.slopes, moves)
    gained = batch.values - values
    good = gained >= -_SUFFICIENT * promised
    good &= promised < 0
    _shorten(batch, ~good, promised, gained)
    free = _free(trials, slopes, low, high)
    accepted = np.flatnonzero(good)
    _remember(batch, accepted, moves[good], free[good] - batch.slopes[good])
    batch.points[good], batch.values[good], batch.slopes[good] = trials[good], values[good], free[good]
    batch.n_iter[good] += 1
    batch.shortened[good] = 0
    _choose_directions(batch, good)
    arrived = good & (np.abs(batch.slopes).max(axis=1) <= tol)
    return arrived | (good & (gained <= tol**2 * np.abs(values)))


def _shorten(batch: _Batch, failed: Flags, promised: Matrix, gained: Matrix) -> None:
    """Shorten steps that did not bring enough, to where a parabola through what is known is lowest."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        lowest = promised / (2 * (promised + gained))
    factors = np.clip(np.where(np.isfinite(lowest), lowest, 0.1), 0.1, 0.5)
    batch.steps[failed] *= factors[failed]
    batch.shortened[failed] += 1


def _remember(batch: _Batch, accepted: Indices, moves: Matrix, changes: Matrix) -> None:
    """Put the newest step and change of slopes in front of the older ones, where they tell of a valley."""
    curvatures = np.einsum("ij,ij->i", moves, changes)
    squares = np.einsum("ij,ij->i", changes, changes)
    sound = curvatures > 1e-10 * squares
    batch.scale[accepted[~sound]] *= 2  # hill or plain: go further next time
    rows = accepted[sound]
    batch.scale[rows] = curvatures[sound] / squares[sound]
    for memory, newest in (
        (batch.moves, moves[sound]),
        (batch.changes, changes[sound]),
        (batch.inverses, 1 / curvatures[sound]),
    ):
        memory[rows, 1:] = memory[rows, :-1]
        memory[rows, 0] = newest


def _choose_directions(batch: _Batch, chosen: Flags) -> None:
    """Set the direction of some searches by the two loops of L-BFGS, downhill in any case."""
    moves, changes, inverses = batch.moves[chosen], batch.changes[chosen], batch.inverses[chosen]
    slopes = batch.slopes[chosen]
    direction = slopes.copy()
    shares = np.empty_like(inverses)
    for k in range(_MEMORY):
        shares[:, k] = inverses[:, k] * np.einsum("ij,ij->i", moves[:, k], direction)
        direction -= shares[:, k, None] * changes[:, k]
    direction *= batch.scale[chosen, None]
    for k in reversed(range(_MEMORY)):
        back = inverses[:, k] * np.einsum("ij,ij->i", changes[:, k], direction)
        direction += (shares[:, k] - back)[:, None] * moves[:, k]
    direction[slopes == 0] = 0  # coordinates that rest at a bound
    uphill = np.einsum("ij,ij->i", slopes, direction) <= 0
    direction[uphill] = slopes[uphill] * batch.scale[chosen][uphill, None]
    batch.directions[chosen] = -direction
    batch.steps[chosen] = 1


def _free(points: Matrix, slopes: Matrix, low: Matrix, high: Matrix) -> Matrix:
    """Set slopes to 0 that push a coordinate against its bound."""
    return np.where(((points <= low) & (slopes > 0)) | ((points >= high) & (slopes < 0)), 0.0, slopes)


def _note(answer: Descents, batch: _Batch, finished: Flags, converged: Flags) -> None:
    rows = batch.which[finished]
    answer.points[rows] = batch.points[finished]
    answer.values[rows] = batch.values[finished]
    answer.n_iter[rows] = batch.n_iter[finished]
    answer.converged[rows] = converged[finished]
