"""The bundle solver: any convex loss, any quadratic regulariser, and a proof of how good the answer is.

It solves

    min_v  λ/2 vᵀK†v + loss(v),      v[j] ≥ lower[j]  for some coefficients, if wanted,

where K is a metric (`visionkl.solvers.metrics`) and the loss is known through an *oracle*: a function that
returns, at a point, the loss and a sub-gradient (METHODS §6). Every answer of the oracle is a plane below the
loss. The *master problem* minimises the regulariser plus the planes found so far, and its value is a lower
bound; the best point so far is an upper bound; the solver stops when the two are close:
`(primal − dual) / primal ≤ tol`.

**Passes.** The plain method asks the oracle at the master's answer, overshoots from one side to the other,
and needs hundreds of passes over the data. What is done about it, in the order of its effect:

1. If the oracle has linear scores (`LinearOracle`: any linear model over fixed data), the minimum along the
   line from the best point to the master's answer is found exactly, without another pass. That becomes the
   best point, and the next planes are taken near it, a fifth of the way on towards the answer. Other oracles
   are asked a part of the way from the best point to the answer.
2. One pass returns a plane for each of several parts of the loss.
3. Planes may be slack by a part of the current gap, less than that fifth, so that every plane still cuts off
   the answer it was made for.

The master problem itself is solved to a twentieth of the gap: more would be wasted while planes are coarse.

**Which solver?** This one for anything that is not a plain linear model on few samples: codes, non-diagonal
regularisers, bounds, groups, latent and distributed problems. For up to some thousand samples the dual
(`visionkl.solvers.linear`) is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.threads import run_tasks
from visionkl.core.errors import UsageError
from visionkl.core.validation import check_number
from visionkl.solvers.metrics import Metric
from visionkl.solvers.state import Bundle, LinearOracle, Planes

Vector = npt.NDArray[np.float64]

#: Takes coefficients `v (dim,)`; returns the loss and a sub-gradient `(dim,)`, or, for a loss that is a sum
#: of parts, the losses `(n_parts,)` and sub-gradients `(n_parts, dim)`.
Oracle = Callable[[Vector], tuple[Any, Vector]]

#: The solver gives up when the gap has not fallen for so many passes.
_PATIENCE = 50


@dataclass(frozen=True)
class Progress:
    """How things stand after a pass.

    Parameters
    ----------
    n_passes : int
        Passes over the data, each once forth (scores) and once back (planes).
    primal, dual : float
        The best value so far, and the lower bound.
    gap : float
        `(primal − dual) / primal`.
    n_planes : int
        Planes that are kept.
    seconds : float
        Since the start.
    """

    n_passes: int
    primal: float
    dual: float
    gap: float
    n_planes: int
    seconds: float


@dataclass(frozen=True, eq=False)
class BundleResult:
    """What the solver found.

    Parameters
    ----------
    v : ndarray of float64, shape (dim,)
        The coefficients.
    coordinates : ndarray of float64, shape (rank,)
        The same in the metric's coordinates: for product-quantiser codes, the weights of decoded vectors.
    primal, dual, gap : float
        Value of the objective, its lower bound, and their relative distance.
    converged : bool
        Whether the gap is as small as was asked for.
    n_passes : int
    history : list of Progress
        One for each pass.
    planes : Planes
        A warm start for another strength of regularisation on the same data.
    """

    v: Vector
    coordinates: Vector
    primal: float
    dual: float
    gap: float
    converged: bool
    n_passes: int
    history: list[Progress] = field(repr=False)
    planes: Planes = field(repr=False)


def minimise(
    oracle: Oracle | LinearOracle,
    metric: Metric,
    *,
    regularisation: float,
    lower: npt.ArrayLike | None = None,
    start: npt.ArrayLike | None = None,
    planes: Planes | None = None,
    tol: float = 1e-3,
    max_passes: int = 1000,
    max_planes: int | None = None,
    callback: Callable[[Progress], bool | None] | None = None,
    n_jobs: int | None = None,
) -> BundleResult:
    """Minimise `λ/2 vᵀK†v + loss(v)`.

    Parameters
    ----------
    oracle : callable or LinearOracle
        The loss: a function `oracle(v) -> (loss, plane)`, or, which needs fewer passes, an object like
        `visionkl.solvers.losses.Risk`.
    metric : Metric
        K; `DiagonalMetric(dim)` is the usual `λ/2 ‖v‖²`.
    regularisation : float
        λ, positive. Other packages' C is `1 / (λ n)` for an average over n samples.
    lower : array_like of float, shape (dim,), optional
        Lower bounds of the coefficients; -inf where there is none. Only for coefficients that the metric
        keeps apart.
    start : array_like of float, shape (dim,), optional
        Coefficients to start from: those of a similar problem.
    planes : Planes, optional
        From the result of an earlier call with the same oracle and metric, and another `regularisation`. If
        the data have changed, give `start` alone.
    tol : float
        Stop when `(primal − dual) / primal` is at most this. float32 data do not allow much less than 1e-5.
    max_passes : int
        Stop after so many passes in any case.
    max_planes : int, optional
        Planes to keep; by default what fits into 128 MB, at most 1000. With fewer, memory falls and passes
        rise.
    callback : callable, optional
        Called with `Progress` after each pass; the solver stops if it returns true.
    n_jobs : int, optional
        Threads; all usable cores by default. The result does not depend on it.

    Returns
    -------
    BundleResult

    Examples
    --------
    A support vector machine in two dimensions with a weakly regularised bias:

    >>> from visionkl.solvers.losses import Risk
    >>> from visionkl.solvers.metrics import DiagonalMetric
    >>> risk = Risk([[0.0, 1.0], [0.0, 3.0]], [-1, 1])
    >>> result = minimise(risk, DiagonalMetric([1, 1, 0.01]), regularisation=0.01, tol=1e-9)
    >>> result.v.round(3), result.converged
    (array([ 0.,  1., -2.]), True)
    """
    watch = Watch(tol, max_passes, callback)

    def solve(_: None) -> Bundle:
        bundle = Bundle(
            metric,
            regularisation=regularisation,
            lower=lower,
            start=start,
            max_planes=max_planes,
            n_jobs=n_jobs,
        )
        if planes is not None:
            bundle.add_known(planes)
        if hasattr(oracle, "scores") and hasattr(oracle, "planes"):
            _run_linear(oracle, bundle, watch.finished)  # type: ignore[arg-type]
        else:
            _run_plain(oracle, bundle, watch.finished)
        return bundle

    # BLAS with one thread throughout: its sums must not depend on the number of threads.
    bundle = run_tasks(solve, [None], 1)[0]
    return watch.result(bundle)


class Watch:
    """Writes down the passes of one problem, and tells which is the last.

    Parameters
    ----------
    tol, max_passes, callback
        As in `minimise`.
    """

    def __init__(
        self, tol: float, max_passes: int, callback: Callable[[Progress], bool | None] | None = None
    ) -> None:
        self.tol = check_number("minimise", "tol", tol, low=0)
        self.max_passes = check_number("minimise", "max_passes", max_passes, low=1, integer=True)
        self.callback = callback
        self.history: list[Progress] = []
        self._began = time.perf_counter()

    def finished(self, bundle: Bundle) -> bool:
        """Write down a pass; tell whether it was the last one."""
        history, seconds = self.history, time.perf_counter() - self._began
        progress = Progress(
            len(history) + 1, bundle.primal, bundle.dual, bundle.gap, len(bundle.master), seconds
        )
        history.append(progress)
        told_to = bool(self.callback(progress)) if self.callback is not None else False
        return told_to or progress.gap <= self.tol or len(history) >= self.max_passes or _stuck(history)

    def result(self, bundle: Bundle) -> BundleResult:
        """Return what was found."""
        return BundleResult(
            bundle.v,
            bundle.coordinates,
            bundle.primal,
            bundle.dual,
            bundle.gap,
            bundle.gap <= self.tol,
            len(self.history),
            self.history,
            bundle.known(),
        )


def _run_linear(oracle: LinearOracle, bundle: Bundle, finished: Callable[[Bundle], bool]) -> None:
    points = bundle.begin(oracle, oracle.scores(bundle.v))
    while True:
        bundle.add(*oracle.planes(points, bundle.slack))
        points = bundle.search(oracle, oracle.scores(bundle.answer()))
        if finished(bundle):
            return


def _run_plain(oracle: Oracle, bundle: Bundle, finished: Callable[[Bundle], bool]) -> None:
    point = bundle.coordinates
    while True:
        v = bundle.metric.expand(point)
        value, plane = oracle(v)
        losses, planes = np.atleast_1d(np.asarray(value, np.float64)), np.atleast_2d(plane)
        if planes.shape != (len(losses), bundle.metric.dim):
            raise UsageError(
                f"The oracle returned {len(losses)} losses and sub-gradients of the shape {planes.shape}; "
                f"they must have the shape ({len(losses)}, {bundle.metric.dim})."
            )
        bundle.add((losses - planes @ v)[None], planes[None])
        bundle.offer(point, float(losses.sum()))
        bundle.answer()
        if finished(bundle):
            return
        point = bundle.between()


def _stuck(history: list[Progress]) -> bool:
    """Tell whether the gap has stopped falling: rounding, or too few planes."""
    return len(history) > _PATIENCE and history[-1].gap > 0.999 * history[-1 - _PATIENCE].gap
