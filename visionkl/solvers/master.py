"""The bundle's small problem: the planes found so far, and the best point under them, exactly.

A convex loss that is a sum of parts, `loss(w) = Σ_s loss_s(w)`, lies above every plane that touches one of
its parts: `loss_s(w) ≥ offset_t + plane_t · w`. The *master problem* replaces the loss by these planes,

    min_w  λ/2 ‖w‖² + Σ_s max_{t in s} (offset_t + plane_t · w)      with  w[j] ≥ low[j]  for a few j,

and is solved in its dual, which has one number α for each plane and one μ for each bounded coordinate,

    max  offset·α + low·μ − 1/(2λ) ‖E μ − A α‖²      α ≥ 0,  μ ≥ 0,  Σ_{t in s} α_t = 1  for each part s,

with `w = (E μ − A α) / λ`, where A has the planes as columns and E the unit vectors of the bounded
coordinates. The value of any such α, μ is a lower bound of the whole problem, which is where the duality gap
comes from. The Gram matrix of the planes is kept, so a plane costs one product with the others when it comes.

`solve_simplices` moves weight between pairs of planes first, in a compiled loop, until the answer is as good
as it was asked to be. Where that takes too long, or the answer is to be exact to rounding, an active set ends
it: on the planes that are in use, the optimum is a linear system.

Memory is bounded. A plane that has not been used for a while is dropped; when there is still no room, the
least used planes of a part are melted into one, their average with the weights α, which keeps both the
current answer and the lower bound.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from visionkl.backend.cpu.solver import improve_pairs
from visionkl.backend.threads import run_tasks

Vector = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.intp]

#: Planes that were of no use for so many answers may be dropped.
IDLE_ANSWERS = 20

#: Steps along pairs for each plane, before the active set takes over.
PAIR_STEPS = 10

_CHUNK = 128
_RIDGE = 1e-13


class Master:
    """Planes, their Gram matrix and the current answer.

    Parameters
    ----------
    dim : int
        Length of `w`.
    strength : float
        The λ of the regulariser `λ/2 ‖w‖²`.
    bounded : ndarray of int, shape (n_bounded,)
        Which coordinates have a lower bound.
    low : ndarray of float64, shape (n_bounded,)
    max_planes : int
        Planes to keep, but at least two for each part and the new ones.
    n_jobs : int, optional
        Threads; all usable cores by default.
    """

    def __init__(
        self,
        dim: int,
        strength: float,
        bounded: Numbers,
        low: Vector,
        max_planes: int,
        n_jobs: int | None = None,
    ) -> None:
        self.strength = strength
        self.bounded = bounded
        self.low = low
        self.max_planes = max_planes
        self.n_jobs = n_jobs
        self._n = 0
        # Room for planes, doubled when it is full.
        self._planes = np.empty((0, dim))
        self._gram = np.empty((0, 0))
        self.offsets = np.empty(0)
        self.parts = np.empty(0, np.intp)
        self.alpha = np.empty(0)
        self.mu = np.zeros(len(bounded))
        self._idle = np.empty(0, np.intp)

    def __len__(self) -> int:
        return self._n

    @property
    def planes(self) -> Vector:
        """The planes, one a row."""
        return self._planes[: self._n]

    @property
    def gram(self) -> Vector:
        """Inner products of the planes."""
        return self._gram[: self._n, : self._n]

    def add(self, offsets: Vector, planes: Vector, parts: Numbers) -> None:
        """Take in planes `(k, dim)` of the given parts, making room first where there is none."""
        self._make_room(len(planes))
        old, new = slice(0, self._n), slice(self._n, self._n + len(planes))
        self._n = new.stop
        self._planes[new] = planes
        chunks = [slice(first, min(first + _CHUNK, self._n)) for first in range(0, self._n, _CHUNK)]
        products = run_tasks(lambda chunk: planes @ self._planes[chunk].T, chunks, self.n_jobs)
        self._gram[new, : self._n] = np.concatenate(products, axis=1)
        self._gram[old, new] = self._gram[new, old].T
        missing = np.setdiff1d(parts, self.parts)
        self.offsets = np.concatenate([self.offsets, offsets])
        self.parts = np.concatenate([self.parts, parts])
        self._idle = np.concatenate([self._idle, np.zeros(len(planes), np.intp)])
        self.alpha = np.concatenate([self.alpha, np.zeros(len(planes))])
        for part in missing:
            self.alpha[np.flatnonzero(self.parts == part)[0]] = 1.0

    def solve(self, accuracy: float = 0.0) -> tuple[Vector, float]:
        """Return the best point under the planes, and the lower bound that it proves.

        Parameters
        ----------
        accuracy : float
            How far the lower bound may be below the best one; 0: exact to rounding.
        """
        n, n_bounded = self._n, len(self.bounded)
        quadratic = np.empty((n + n_bounded, n + n_bounded))
        quadratic[:n, :n] = self.gram
        if n_bounded:
            quadratic[:n, n:] = -self.planes[:, self.bounded]
            quadratic[n:, :n] = quadratic[:n, n:].T
            quadratic[n:, n:] = np.eye(n_bounded)
        quadratic /= self.strength
        linear = np.concatenate([self.offsets, self.low])
        # Bounds have no sum to keep; the solver knows them by the part -1.
        parts = np.concatenate([self.parts, np.full(n_bounded, -1, np.intp)])
        start = np.concatenate([self.alpha, self.mu])
        solution = solve_simplices(quadratic, linear, parts, start, accuracy)
        self.alpha, self.mu = solution[:n], solution[n:]
        self._idle = np.where(self.alpha > 0, 0, self._idle + 1)
        used = np.flatnonzero(self.alpha)
        answer = -(self.alpha[used] @ self._planes[used])
        answer[self.bounded] += self.mu
        answer /= self.strength
        # The value from the point itself: as exact as the sums, whatever the Gram matrix lost.
        value = float(linear @ solution - self.strength / 2 * (answer @ answer))
        answer[self.bounded] = np.maximum(answer[self.bounded], self.low)
        return answer, value

    def _make_room(self, n_new: int) -> None:
        most = max(self.max_planes, 2 * len(np.unique(self.parts)) + n_new)
        if self._n + n_new > most:
            keep = self._idle < IDLE_ANSWERS
            too_many = int(keep.sum()) + n_new - most
            if too_many > 0:
                # Planes of weight 0 can go without a loss, the longest unused first.
                unused = np.flatnonzero(keep & (self.alpha <= 0))
                keep[unused[np.argsort(-self._idle[unused], kind="stable")][:too_many]] = False
            self._keep(keep)
            too_many = self._n + n_new - most
            if too_many > 0:
                self._melt(too_many)
        room = len(self._planes)
        if self._n + n_new > room:
            room = min(max(2 * room, 4 * n_new), most)
            planes, gram = np.empty((room, self._planes.shape[1])), np.empty((room, room))
            planes[: self._n] = self.planes
            gram[: self._n, : self._n] = self.gram
            self._planes, self._gram = planes, gram

    def _melt(self, n_fewer: int) -> None:
        """Melt the least used planes of each part into one, until there are `n_fewer` less."""
        mixing = np.eye(self._n)
        keep = np.ones(self._n, bool)
        melted: dict[int, int] = {}
        for t in np.argsort(self.alpha, kind="stable"):
            if n_fewer == 0:
                break
            into = melted.setdefault(int(self.parts[t]), int(t))
            if into == t:
                continue
            # The average of two planes with their weights α; the sum of the weights stays.
            total = self.alpha[t] + self.alpha[into]
            mixing[into] = (self.alpha[into] * mixing[into] + self.alpha[t] * mixing[t]) / total
            self.alpha[into] = total
            keep[t] = False
            n_fewer -= 1
        changed = np.flatnonzero((mixing != np.eye(self._n)).any(axis=1))
        self._planes[changed] = mixing[changed] @ self.planes
        self._gram[: self._n, : self._n] = mixing @ self.gram @ mixing.T
        self.offsets = mixing @ self.offsets
        self._keep(keep)

    def _keep(self, which: npt.NDArray[np.bool_]) -> None:
        n = int(which.sum())
        self._planes[:n] = self.planes[which]
        self._gram[:n, :n] = self.gram[np.ix_(which, which)]
        self._n = n
        self.offsets = self.offsets[which]
        self.parts = self.parts[which]
        self.alpha = self.alpha[which]
        self._idle = self._idle[which]


def solve_simplices(
    quadratic: Vector, linear: Vector, parts: Numbers, start: Vector, accuracy: float = 0.0
) -> Vector:
    """Minimise `x Q x / 2 - c x` over `x ≥ 0` whose sum over each part stays what it is.

    Parameters
    ----------
    quadratic : ndarray of float64, shape (m, m)
        Q, positive semi-definite.
    linear : ndarray of float64, shape (m,)
        c.
    parts : ndarray of int, shape (m,)
        Part of each number, counted from 0; the numbers of part -1 have no sum to keep.
    start : ndarray of float64, shape (m,)
        A feasible point; the better, the faster.
    accuracy : float
        How far the value may be from the optimum; 0: exact to rounding.

    Returns
    -------
    ndarray of float64, shape (m,)

    Examples
    --------
    >>> solve_simplices(np.eye(2), np.array([0.0, 0.5]), np.zeros(2, np.intp), np.array([1.0, 0.0]))
    array([0.25, 0.75])
    """
    x = start.copy()
    n_parts = int(parts.max(initial=-1)) + 1
    sums = np.bincount(parts[parts >= 0], weights=x[parts >= 0], minlength=n_parts).astype(np.float64)
    order = np.argsort(np.where(parts < 0, n_parts, parts), kind="stable")
    ends = np.searchsorted(parts[order][: (parts >= 0).sum()], np.arange(n_parts + 1))
    if improve_pairs(quadratic, linear, order, ends, x, accuracy, PAIR_STEPS * len(x)):
        return x
    free = x > 0
    for _ in range(4 * len(x) + 20):
        support = np.flatnonzero(free)
        try:
            target, price = _on_support(quadratic, linear, parts, sums, support)
        except np.linalg.LinAlgError:
            break  # dependent to rounding: what there is is feasible, and its value a bound
        here = x[support]
        short = target < 0
        if short.any():
            # Go as far as the first number that becomes 0, and leave it there.
            reach = here[short] / (here[short] - target[short])
            x[support] = np.maximum(here + reach.min() * (target - here), 0.0)
            leaving = support[short][reach <= reach.min()]
            x[leaving] = 0.0
            free[leaving] = False
            continue
        x[support] = target
        gradient = quadratic @ x - linear
        slack = np.where(free, 0.0, gradient + np.where(parts >= 0, price[parts], 0.0))
        entering = int(slack.argmin())
        rounding = 1e-12 * (np.abs(linear).max() + np.abs(gradient).max())
        # The value can fall by at most the sum of a part, which is 1, times the largest violation in it.
        if -slack[entering] <= max(rounding, accuracy / max(n_parts, 1)):
            break
        free[entering] = True
    return x


def _on_support(
    quadratic: Vector, linear: Vector, parts: Numbers, sums: Vector, support: Numbers
) -> tuple[Vector, Vector]:
    """Minimise over the numbers of the support, whatever their sign; also return each part's multiplier."""
    matrix = quadratic[np.ix_(support, support)]
    member = (parts[support][:, None] == np.arange(len(sums))).astype(np.float64)
    # The sums being fixed, adding their squares changes nothing but makes the matrix regular where planes
    # of one part are dependent as vectors though not as planes.
    scale = max(float(np.trace(matrix)) / max(len(support), 1), np.finfo(float).tiny)
    matrix += scale * (member @ member.T)
    matrix[np.diag_indices_from(matrix)] += _RIDGE * scale
    factor = cho_factor(matrix, check_finite=False)
    solved = cho_solve(factor, np.column_stack([linear[support], member]), check_finite=False)
    multipliers = np.linalg.solve(member.T @ solved[:, 1:], member.T @ solved[:, 0] - sums)
    target = solved[:, 0] - solved[:, 1:] @ multipliers
    return target, multipliers + scale * sums
