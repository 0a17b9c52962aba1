"""Several problems over the same data in one go: one class against the rest, for every class.

Each problem has its own labels, weights, planes and master problem, but all need the same two things of the
data: scores at some coefficients, and sums of rows. So they go in step, and a pass over the data serves them
all: for codes, twenty problems that share their passes cost about three times as much as one, instead of
twenty times. A problem that has reached its gap drops out. What a problem is told does not depend on the
others, except for the rounding of sums, and nothing depends on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from visionkl.backend.threads import run_tasks
from visionkl.core.errors import UsageError
from visionkl.solvers.bundle import BundleResult, Watch
from visionkl.solvers.losses import Risk
from visionkl.solvers.metrics import Metric
from visionkl.solvers.state import Bundle

Vector = npt.NDArray[np.float64]
Result = TypeVar("Result")


def minimise_together(
    risks: Sequence[Risk],
    metric: Metric,
    *,
    regularisation: float,
    warm: Sequence[BundleResult] | None = None,
    tol: float = 1e-3,
    max_passes: int = 1000,
    max_planes: int | None = None,
    n_jobs: int | None = None,
) -> list[BundleResult]:
    """Minimise `λ/2 vᵀK†v + risk(v)` for several risks of the same rows.

    Parameters
    ----------
    risks : sequence of Risk
        All with the same `rows` object, bias and number of parts.
    metric : Metric
        K, the same for all.
    regularisation : float
        λ, positive.
    warm : sequence of BundleResult, optional
        Results for the same risks and another `regularisation`, to start from.
    tol, max_passes, max_planes
        As in `visionkl.solvers.bundle.minimise`, for each problem.
    n_jobs : int, optional
        Threads; all usable cores by default. The results do not depend on it.

    Returns
    -------
    list of BundleResult

    Examples
    --------
    >>> from visionkl.solvers.metrics import DiagonalMetric
    >>> from visionkl.solvers.rows import DenseRows
    >>> rows = DenseRows([[1.0], [2.0], [3.0]])
    >>> risks = [Risk(rows, y) for y in ([-1, -1, 1], [1, -1, -1])]
    >>> results = minimise_together(risks, DiagonalMetric([1, 0.01]), regularisation=0.01, tol=1e-6)
    >>> [bool(result.converged) for result in results]
    [True, True]
    """
    shared = risks[0]
    for risk in risks:
        if risk.rows is not shared.rows or (risk.bias, risk.n_parts) != (shared.bias, shared.n_parts):
            raise UsageError("Risks are minimised together if they have the same rows, bias and parts.")
    bundles = []
    for number in range(len(risks)):
        start = warm[number].v if warm is not None else None
        bundle = Bundle(
            metric, regularisation=regularisation, start=start, max_planes=max_planes, n_jobs=n_jobs
        )
        if warm is not None:
            bundle.add_known(warm[number].planes)
        bundles.append(bundle)
    watches = [Watch(tol, max_passes) for _ in risks]
    # BLAS with one thread throughout: its sums must not depend on the number of threads.
    run_tasks(lambda _: _run(risks, bundles, watches, n_jobs), [None], 1)
    return [watch.result(bundle) for watch, bundle in zip(watches, bundles, strict=True)]


def _run(
    risks: Sequence[Risk], bundles: Sequence[Bundle], watches: Sequence[Watch], n_jobs: int | None
) -> None:
    shared = risks[0]
    active = list(range(len(risks)))
    # Of each problem: the scores at its answer, where it wants planes, the planes' offsets, and the planes.
    scores: dict[int, Vector] = {}
    points: dict[int, Vector] = {}
    offsets: dict[int, Vector] = {}
    planes: dict[int, Vector] = {}

    def in_threads(function: Callable[[int], Result]) -> dict[int, Result]:
        return dict(zip(active, run_tasks(function, active, n_jobs), strict=True))

    def take_scores(v: dict[int, Vector]) -> None:
        scores.update(zip(v, shared.scores(np.stack(list(v.values()))), strict=True))

    def learn(k: int) -> Vector:
        bundles[k].add(offsets[k], planes[k][None])
        return bundles[k].answer()

    take_scores(in_threads(lambda k: bundles[k].v))
    points.update(in_threads(lambda k: bundles[k].begin(risks[k], scores[k])))
    while active:
        taken = in_threads(lambda k: risks[k].shares(points[k], bundles[k].slack))
        offsets.update((k, own) for k, (own, _) in taken.items())
        shares = np.concatenate([own for _, own in taken.values()])
        planes.update(zip(active, shared.planes_of(shares), strict=True))
        take_scores(in_threads(learn))
        points.update(in_threads(lambda k: bundles[k].search(risks[k], scores[k])))
        active = [k for k in active if not watches[k].finished(bundles[k])]
