"""Three ways to the same support vector machine, and which to take.

=========== ================================ ====================================================
route       what it does                     takes
=========== ================================ ====================================================
`"bundle"`  planes, for all classes at once  any loss and metric; codes by table look-ups
`"gram"`    one matrix of inner products,    up to 16 000 samples or so; hinges and tubes, with
            then dual descent in it          the plain regulariser
`"rows"`    dual descent over the rows       hinges and tubes, with the plain regulariser
=========== ================================ ====================================================

All minimise `λ/2 ‖w‖² + (1/n) Σ weight · loss` to the same relative duality gap. Their times are estimated
from counts of operations: a matrix of inner products is dear to make (n² d / 2), but then each further class
costs next to nothing, so it is the one for few samples and many classes; rows win where there are few
features or few classes; and the bundle solver wins on codes, and on everything as n grows.

On a GPU it is the bundle solver, whose passes over dense rows and codes are computed there.

Descent does not get on where features are far from the same scale or from zero mean, which cannot be told
beforehand. So when the choice is ours, it has some passes to succeed in, and the bundle solver, which hardly
minds, does what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import CPU, Device
from visionkl.backend.threads import run_tasks
from visionkl.coding.codebooks import Codebooks
from visionkl.core.validation import parameter_error
from visionkl.solvers.coded import DecodingRows, QuantisedRows, TableRows, decoded_rows
from visionkl.solvers.linear import DUAL_LOSSES, DualGram, DualResult, DualRows, dual_svm, gram_matrix
from visionkl.solvers.losses import Risk
from visionkl.solvers.metrics import DiagonalMetric, Metric, StackedMetric
from visionkl.solvers.rows import Rows, SparseRows, as_rows
from visionkl.solvers.together import minimise_together

Vector = npt.NDArray[np.float64]

ROUTES = ("auto", "bundle", "gram", "rows")
EXPANSIONS = ("auto", "delayed", "immediate", "dense")

#: The largest matrix of inner products that is made unasked.
_MEMORY_OF_GRAM = 1 << 30
#: What all planes may take, and how many planes a problem should have room for.
_MEMORY_OF_PLANES = 1 << 31
_PLANES_A_PROBLEM = 100

# Seconds that one core takes for: a multiplication in a product of matrices; one that waits for memory;
# reading a number of a Gram matrix; a number of a sparse row; a table look-up and a histogram entry for one
# function and for up to 32; decoding a block twice.
_PRODUCT, _STREAM, _SCAN, _SPARSE = 2.5e-11, 3e-10, 1e-9, 3e-9
_LOOK_UP, _LOOK_UP_LINES, _DECODE = 9e-10, 4e-9, 1.2e-8
# Seconds of a master problem, apart from its planes.
_MASTER = 3e-3
# Passes until a gap of 1e-2, as measured on long correlated vectors; those over the Gram matrix are short.
_BUNDLE_PASSES, _DUAL_PASSES, _GRAM_PASSES = 55, 50, 6
# Passes that descent has to succeed in, when it was not asked for; more, if all take no longer than this.
_TRIAL_PASSES, _TRIAL_SECONDS = 300, 20.0


@dataclass(frozen=True, eq=False)
class Problem:
    """One machine to be learned.

    Parameters
    ----------
    y : ndarray of float64, shape (n,)
        Labels, +1 and -1, or targets.
    weights : ndarray of float64, shape (n,)
    """

    y: Vector
    weights: Vector


@dataclass(frozen=True, eq=False)
class Solution:
    """What was found for a problem.

    Parameters
    ----------
    w : ndarray of float64, shape (dim,)
    bias : float
    gap : float
    converged : bool
    n_passes : int
    """

    w: Vector
    bias: float
    gap: float
    converged: bool
    n_passes: int


@dataclass(frozen=True)
class Settings:
    """What all problems have in common.

    Parameters
    ----------
    loss : str
    epsilon : float
    bias : float
        The constant through which the intercept is seen; 0: none.
    tol : float
    max_passes : int
    seed : int
    n_jobs : int, optional
    """

    loss: str
    epsilon: float
    bias: float
    tol: float
    max_passes: int
    seed: int
    n_jobs: int | None


def make_rows(
    X: Any, books: Codebooks | None, expansion: str, n_jobs: int | None, device: Device = CPU
) -> tuple[Rows, str | None]:
    """Return data as rows of (decoded) vectors; of codes, also the expansion that is taken.

    Parameters
    ----------
    X : ndarray, sparse matrix, or codes (n, n_blocks)
    books : Codebooks, optional
        Of the codes.
    expansion : {"auto", "delayed", "immediate", "dense"}
    n_jobs : int, optional
    device : visionkl.backend.dispatch.Device
        Where passes are made; data that lie on a GPU are gone over there anyway.
    """
    if books is None:
        return as_rows(X, n_jobs=n_jobs, device=device), None
    if expansion == "auto":
        # Making tables takes as long as scoring n_codewords decoded samples.
        expansion = "delayed" if len(X) > books.n_codewords else "dense"
    if expansion == "immediate":
        return DecodingRows(X, books.words, n_jobs=n_jobs, device=device), expansion
    tables = TableRows(X, books.words, n_jobs=n_jobs, device=device)
    return (decoded_rows(tables) if expansion == "dense" else tables), expansion


def choose_route(
    route: str, rows: Rows, n_problems: int, loss: str, tol: float, metric: Metric | None, owner: str
) -> tuple[str, str]:
    """Return the route to take, and a sentence that says why.

    Parameters
    ----------
    route : {"auto", "bundle", "gram", "rows"}
    rows : Rows
    n_problems : int
    loss : str
    tol : float
    metric : Metric, optional
        None is the plain regulariser.
    owner : str
        For complaints.
    """
    if loss not in DUAL_LOSSES or metric is not None:
        cause = f"the loss {loss!r}" if metric is None else "a metric"
        if route not in ("auto", "bundle"):
            raise parameter_error(owner, "route", f"'bundle' or 'auto' with {cause}", route)
        return "bundle", f"bundle: no other route has {cause}"
    device = getattr(rows, "device", CPU)
    if device.is_gpu:
        if route not in ("auto", "bundle"):
            raise parameter_error(owner, "route", f"'bundle' or 'auto' on {device}", route)
        return "bundle", f"bundle: no other route computes on {device}"
    if route != "auto":
        return route, f"{route}: as told"
    seconds = _estimates(rows, n_problems, tol)
    best = min(seconds, key=lambda name: seconds[name])
    listed = ", ".join(f"{name} {value:.2g} s" for name, value in seconds.items())
    left_out = "" if "gram" in seconds else "; the matrix of inner products was left out"
    return best, (
        f"{best}: estimated for {rows.n_rows} samples and {n_problems} problems on one core: "
        f"{listed}{left_out}"
    )


def _estimates(rows: Rows, n_problems: int, tol: float) -> dict[str, float]:
    n, k = rows.n_rows, n_problems
    # Planes need a number of passes that grows like 1 / √tol; descent gains a digit with some more.
    bundle_passes = _BUNDLE_PASSES * np.sqrt(1e-2 / max(tol, 1e-5))
    digits = np.log10(1 / min(max(tol, 1e-12), 0.1)) / 2
    dual_passes, gram_passes = _DUAL_PASSES * digits, _GRAM_PASSES * digits
    planes = k * bundle_passes * (bundle_passes / 2 * rows.dim * _STREAM + _MASTER)
    if isinstance(rows, SparseRows):
        n_numbers = rows.X.nnz
        return {
            "rows": dual_passes * k * n_numbers * _SPARSE,
            "bundle": bundle_passes * 2 * k * n_numbers * _SPARSE + planes,
        }
    d = rows.dim
    if isinstance(rows, QuantisedRows):
        n_codes = n * rows.n_blocks
        one_by_one = dual_passes * k * n_codes * _DECODE
        if isinstance(rows, TableRows):
            made = 2 * k * d * rows.n_codewords * _PRODUCT
            a_pass = n_codes * (_LOOK_UP if k == 1 else _LOOK_UP_LINES * -(-k // 32)) + made
        else:
            a_pass = k * n_codes * _DECODE
    else:
        one_by_one = dual_passes * k * n * d * 2 * _STREAM
        a_pass = 2 * n * d * max(_STREAM, k * _PRODUCT)
    seconds = {"bundle": bundle_passes * a_pass + planes, "rows": one_by_one}
    item = 4 if isinstance(rows, QuantisedRows) else rows.X.itemsize  # type: ignore[attr-defined]
    if n * n * item <= _MEMORY_OF_GRAM:
        seconds["gram"] = n * n * (d / 2 * _PRODUCT * item / 4 + k * gram_passes * _SCAN)
    return seconds


@dataclass(frozen=True, eq=False)
class Answer:
    """What was found for all problems and strengths of regularisation, and how.

    Parameters
    ----------
    route, reason : str
    solutions : list of list of Solution
        One list for each strength.
    """

    route: str
    reason: str
    solutions: list[list[Solution]]


def solve(
    route: str,
    rows: Rows,
    problems: Sequence[Problem],
    strengths: Sequence[float],
    metric: Metric | None,
    settings: Settings,
    owner: str,
) -> Answer:
    """Solve all problems for one λ after the other, each time from what was found before.

    Parameters
    ----------
    route : {"auto", "bundle", "gram", "rows"}
    rows : Rows
    problems : sequence of Problem
    strengths : sequence of float
        The λ's; go from strong to weak.
    metric : Metric, optional
    settings : Settings
    owner : str
        For complaints.
    """
    taken, reason = choose_route(route, rows, len(problems), settings.loss, settings.tol, metric, owner)
    if taken == "bundle":
        return Answer(taken, reason, list(_by_planes(rows, problems, strengths, metric, settings)))
    if route != "auto":
        return Answer(taken, reason, list(_by_descent(rows, problems, strengths, taken, settings)))
    trial = replace(
        settings,
        max_passes=min(settings.max_passes, _trial_passes(taken, rows, len(problems) * len(strengths))),
    )
    found = list(_by_descent(rows, problems, strengths, taken, trial))
    left = [k for k in range(len(problems)) if not all(solutions[k].converged for solutions in found)]
    if left:
        some = [problems[k] for k in left]
        for solutions, more in zip(found, _by_planes(rows, some, strengths, metric, settings), strict=True):
            for k, solution in zip(left, more, strict=True):
                solutions[k] = solution
        number = "all" if len(left) == len(problems) else f"{len(left)} of {len(problems)}"
        reason = f"bundle: {taken} did not reach the gap of {number} problems in {trial.max_passes} passes"
    return Answer("bundle" if left else taken, reason, found)


def _trial_passes(route: str, rows: Rows, n_solutions: int) -> int:
    """Tell how many passes over a Gram matrix, which is small if the samples are few, or over rows to try."""
    if route == "rows":
        return _TRIAL_PASSES
    return max(_TRIAL_PASSES, int(_TRIAL_SECONDS / (n_solutions * rows.n_rows**2 * _SCAN)))


def _by_planes(
    rows: Rows,
    problems: Sequence[Problem],
    strengths: Sequence[float],
    metric: Metric | None,
    settings: Settings,
) -> Iterator[list[Solution]]:
    if metric is None:
        metric = DiagonalMetric(rows.dim)
    if settings.bias:
        metric = StackedMetric([metric, DiagonalMetric(1)])
    risks = [
        Risk(
            rows,
            problem.y,
            loss=settings.loss,
            epsilon=settings.epsilon,
            weights=problem.weights,
            bias=settings.bias,
            n_jobs=settings.n_jobs,
        )
        for problem in problems
    ]
    at_once = max(1, _MEMORY_OF_PLANES // (8 * metric.rank * _PLANES_A_PROBLEM))
    most = max(_MEMORY_OF_PLANES // (8 * metric.rank * min(at_once, len(risks))), _PLANES_A_PROBLEM)
    warm: list[Any] | None = None
    for strength in strengths:
        results: list[Any] = []
        for first in range(0, len(risks), at_once):
            some = slice(first, first + at_once)
            results += minimise_together(
                risks[some],
                metric,
                regularisation=strength,
                warm=None if warm is None else warm[some],
                tol=settings.tol,
                max_passes=settings.max_passes,
                max_planes=min(most, 1000),
                n_jobs=settings.n_jobs,
            )
        warm = results
        yield [
            Solution(
                result.v[: rows.dim],
                float(settings.bias * result.v[-1]) if settings.bias else 0.0,
                result.gap,
                result.converged,
                result.n_passes,
            )
            for result in results
        ]


def _by_descent(
    rows: Rows, problems: Sequence[Problem], strengths: Sequence[float], route: str, settings: Settings
) -> Iterator[list[Solution]]:
    data = DualGram(gram_matrix(rows, n_jobs=settings.n_jobs)) if route == "gram" else DualRows(rows)
    starts: list[Vector | None] = [None] * len(problems)
    for number, strength in enumerate(strengths):

        def solve_one(k: int, strength: float = strength) -> DualResult:
            return dual_svm(
                data,
                problems[k].y,
                regularisation=strength,
                loss=settings.loss,
                epsilon=settings.epsilon,
                weights=problems[k].weights,
                bias=settings.bias,
                start=starts[k],
                tol=settings.tol,
                max_passes=settings.max_passes,
                seed=settings.seed,
            )

        results = run_tasks(solve_one, range(len(problems)), settings.n_jobs)
        if route == "gram":
            weights = rows.combine(np.stack([result.shares for result in results]))
        else:
            weights = np.stack([result.w for result in results])
        yield [
            Solution(w, result.bias, result.gap, result.converged, result.n_passes)
            for w, result in zip(weights, results, strict=True)
        ]
        # Numbers at their bound, which grows with 1 / λ, stay there.
        growth = strength / strengths[min(number + 1, len(strengths) - 1)]
        starts[:] = [growth * result.alpha for result in results]
