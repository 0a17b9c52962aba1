"""Support vector machines in the dual, one sample at a time.

The same problem that the bundle solver minimises with a `Risk`,

    min_w  λ/2 ‖w‖² + (1/n) Σ_i weight_i · loss(label_i · (row_i · w + bias)),

has a dual with one number for each sample, which *dual coordinate descent* improves in turn (as in liblinear,
with shrinking). It needs row after row, so it cannot use tables of scores, and it knows only the hinge, its
square, and the plain regulariser. But it needs few passes, and on few samples it is the fastest there is:

* `dual_svm` works on the rows: dense, sparse, or codes, which it decodes as it goes;
* `dual_svm_gram` works on the matrix of the rows' inner products: take it when n is a few thousand and there
  are many features, or many classes to learn with one matrix.

It stops on the duality gap, as the bundle solver does, so that their results can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from visionkl.backend.cpu.dual import descend, squared_norms
from visionkl.core.errors import DataError, UsageError
from visionkl.core.rng import stream
from visionkl.core.validation import check_choice, check_number
from visionkl.solvers.losses import LOSSES, Loss, checked_labels, checked_weights
from visionkl.solvers.metrics import check_positive
from visionkl.solvers.rows import CodedRows, DenseRows, SparseRows

Vector = npt.NDArray[np.float64]

_LOSSES = ("hinge", "squared_hinge")

#: Span of the projected gradients to start with, and by how much it shrinks until the gap is small enough.
_FIRST_TOLERANCE = 0.1
_NEXT_TOLERANCE = 0.3


@dataclass(frozen=True, eq=False)
class DualResult:
    """What dual coordinate descent found.

    Parameters
    ----------
    w : ndarray of float64, shape (n_features,)
        Weights; of decoded vectors, if the rows are codes; empty if only a Gram matrix is known.
    bias : float
    alpha : ndarray of float64, shape (n,)
        The dual numbers: `w = Σ alpha · label · row`.
    primal, dual, gap : float
        Value of the objective, its lower bound, and their relative distance.
    converged : bool
        Whether the gap is as small as was asked for.
    n_passes : int
        Passes over the data.
    """

    w: Vector
    bias: float
    alpha: Vector
    primal: float
    dual: float
    gap: float
    converged: bool
    n_passes: int


def dual_svm(
    X: Any,
    y: npt.ArrayLike,
    *,
    regularisation: float,
    loss: str = "hinge",
    weights: npt.ArrayLike | None = None,
    bias: float = 1.0,
    codebooks: npt.NDArray[np.floating] | None = None,
    tol: float = 1e-3,
    max_passes: int = 1000,
    seed: int = 0,
) -> DualResult:
    """Train a linear support vector machine by dual coordinate descent over its rows.

    Parameters
    ----------
    X : array_like, sparse matrix, DenseRows, SparseRows or CodedRows
    y : array_like, shape (n,)
        Labels, +1 and -1.
    regularisation : float
        λ, positive; other packages' C is `1 / (λ n)`.
    loss : {"hinge", "squared_hinge"}
    weights : array_like of float, shape (n,), optional
        Multiply the losses; the sum is divided by n all the same.
    bias : float
        A constant feature, regularised like the others; 0: none.
    codebooks : ndarray of float, shape (n_blocks, n_codewords, block_size), optional
        Needed for codes.
    tol : float
        Stop when `(primal − dual) / primal` is at most this.
    max_passes : int
    seed : int
        Of the order in which samples are visited.

    Returns
    -------
    DualResult

    Examples
    --------
    >>> result = dual_svm([[0.0, 1.0], [0.0, 3.0]], [-1, 1], regularisation=0.01, bias=10.0, tol=1e-9)
    >>> result.w.round(3), round(result.bias, 2)
    (array([0., 1.]), -2.0)
    """
    rows, n_features, scores_of = _rows_for_descent(X, codebooks)
    n = len(rows[2]) - 1 if len(rows) == 3 else len(rows[0])
    problem = _Problem(y, regularisation, loss, weights, n)
    check_number("dual_svm", "bias", bias, low=0)
    w, norms = np.zeros(n_features + 1), np.empty(n)
    squared_norms(rows, float(bias), w, norms)
    w[:] = 0.0
    ending = problem.solve(
        rows,
        float(bias),
        norms,
        w,
        lambda: (scores_of(w[:-1]) + bias * w[-1], float(w @ w)),
        tol,
        max_passes,
        seed,
    )
    return DualResult(w[:-1], float(bias * w[-1]), problem.alpha, *ending)


def dual_svm_gram(
    gram: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    regularisation: float,
    loss: str = "hinge",
    weights: npt.ArrayLike | None = None,
    bias: float = 1.0,
    tol: float = 1e-3,
    max_passes: int = 1000,
    seed: int = 0,
) -> DualResult:
    """Train a support vector machine on inner products: a linear or any other kernel.

    Parameters
    ----------
    gram : array_like of float, shape (n, n)
        Inner products of the training samples.
    y, regularisation, loss, weights, bias, tol, max_passes, seed
        As in `dual_svm`; a pass is one over the matrix.

    Returns
    -------
    DualResult
        Scores of other samples are `K(other, training) @ (alpha * y) + bias`.

    Examples
    --------
    >>> result = dual_svm_gram([[1.0, 3.0], [3.0, 9.0]], [-1, 1], regularisation=0.01, bias=10.0, tol=1e-9)
    >>> np.round(result.alpha @ [-1, 3], 3), round(result.bias, 2)
    (np.float64(1.0), -2.0)
    """
    matrix = np.ascontiguousarray(gram)
    matrix = matrix if matrix.dtype == np.float32 else matrix.astype(np.float64, copy=False)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise DataError(f"A Gram matrix must be square, not of the shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise DataError("The Gram matrix holds NaN or infinite values.")
    check_number("dual_svm_gram", "bias", bias, low=0)
    problem = _Problem(y, regularisation, loss, weights, len(matrix))
    if bias:
        matrix = matrix + matrix.dtype.type(bias * bias)
    diagonal = matrix.diagonal().copy()
    scores = np.zeros(len(matrix) + 1)
    ending = problem.solve(
        (matrix, diagonal),
        0.0,
        diagonal.astype(np.float64),
        scores,
        lambda: (scores[:-1], float(scores[:-1] @ (problem.alpha * problem.labels))),
        tol,
        max_passes,
        seed,
    )
    constant = float(bias * bias * (problem.alpha @ problem.labels))
    return DualResult(np.empty(0), constant, problem.alpha, *ending)


class _Problem:
    """Labels, the dual's bounds and numbers, and the loop that ends with the duality gap."""

    def __init__(
        self, y: npt.ArrayLike, regularisation: float, loss: str, weights: npt.ArrayLike | None, n: int
    ) -> None:
        check_choice("dual_svm", "loss", loss, _LOSSES)
        self.labels = checked_labels(y)
        if len(self.labels) != n:
            raise DataError(f"There are {n} rows of training data but {len(self.labels)} labels.")
        self.regularisation = check_positive("dual_svm", "regularisation", regularisation)
        self.loss: Loss = LOSSES[loss]
        self.weights = checked_weights("dual_svm", weights, n) / n
        cost = self.weights / regularisation
        squared = loss == "squared_hinge"
        self.upper = np.where(cost > 0, np.inf, 0.0) if squared else cost
        self.diagonal = np.divide(0.5, cost, out=np.zeros(n), where=cost > 0) if squared else np.zeros(n)
        self.alpha = np.zeros(n)

    def solve(
        self,
        rows: tuple[Any, ...],
        bias: float,
        norms: Vector,
        w: Vector,
        state: Callable[[], tuple[Vector, float]],
        tol: float,
        max_passes: int,
        seed: int,
    ) -> tuple[float, float, float, bool, int]:
        """Descend until the gap is small; `state` returns all scores and the squared norm of the weights."""
        check_number("dual_svm", "tol", tol, low=0)
        check_number("dual_svm", "max_passes", max_passes, low=1, integer=True)
        draws = stream(seed, "dual_svm").random(len(self.alpha))
        tolerance, n_passes = _FIRST_TOLERANCE, 0
        while True:
            n_passes += descend(
                rows,
                bias,
                self.labels,
                self.upper,
                self.diagonal,
                norms,
                self.alpha,
                w,
                tolerance,
                max_passes - n_passes,
                draws,
            )
            scores, norm = state()
            risk = float(self.weights @ self.loss.value(self.labels * scores))
            primal = float(self.regularisation / 2 * norm + risk)
            dual = self.regularisation * float(
                self.alpha.sum() - (self.diagonal * self.alpha) @ self.alpha / 2 - norm / 2
            )
            gap = max(primal - dual, 0.0) / max(primal, np.finfo(float).tiny)
            if gap <= tol or n_passes >= max_passes:
                return primal, dual, gap, gap <= tol, n_passes
            tolerance *= _NEXT_TOLERANCE


def _rows_for_descent(
    X: Any, codebooks: npt.NDArray[np.floating] | None
) -> tuple[tuple[Any, ...], int, Callable[[Vector], Vector]]:
    """Return the rows as the compiled loop takes them, the number of features, and a way to all scores."""
    if isinstance(X, CodedRows):
        if codebooks is None or codebooks.shape[:2] != (X.n_blocks, X.n_codewords):
            shape = None if codebooks is None else codebooks.shape
            raise UsageError(
                "The 'codebooks' parameter of dual_svm must have the shape "
                f"({X.n_blocks}, {X.n_codewords}, block_size) for these codes. Got {shape} instead."
            )
        books = np.ascontiguousarray(codebooks)
        n_blocks, _, size = books.shape
        rows = (np.ascontiguousarray(X.codes.T), books)
        tables_of = lambda w: (books @ w.reshape(n_blocks, size, 1)).reshape(-1)  # noqa: E731
        return rows, n_blocks * size, lambda w: X.scores(tables_of(w))
    if sparse.issparse(X) or isinstance(X, SparseRows):
        matrix = X if isinstance(X, SparseRows) else SparseRows(X)
        return (matrix.X.data, matrix.X.indices, matrix.X.indptr), matrix.dim, matrix.scores
    plain = X if isinstance(X, DenseRows) else DenseRows(X)
    return (plain.X,), plain.dim, plain.scores
