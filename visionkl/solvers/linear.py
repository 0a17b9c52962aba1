"""Support vector machines in the dual, one sample at a time.

The same problem that the bundle solver minimises with a `Risk`,

    min_w  λ/2 ‖w‖² + (1/n) Σ_i weight_i · loss(label_i · (row_i · w + bias)),

has a dual with one number for each sample, or two for regression, which *dual coordinate descent* improves in
turn (as in liblinear, with shrinking). It needs row after row, so it cannot use tables of scores, and it
knows only the hinge, the tube of regression, their squares, and the plain regulariser. But it needs few
passes, and on few samples it is the fastest there is:

* `dual_svm` works on the rows: dense, sparse, or codes, which it decodes as it goes;
* `dual_svm_gram` works on the matrix of the rows' inner products: take it when n is a few thousand and there
  are many features, or many classes to learn with one matrix (`gram_matrix` makes it).

It stops on the duality gap, as the bundle solver does, so that their results can be compared. Many problems
on the same data prepare them once, as `DualRows`, and may be solved in threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from visionkl.backend.cpu.dual import add_rows, descend, multiply_rows, squared_norms
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError, UsageError
from visionkl.core.rng import stream
from visionkl.core.validation import check_choice, check_number
from visionkl.solvers.coded import QuantisedRows
from visionkl.solvers.losses import checked_labels, checked_targets, checked_weights
from visionkl.solvers.metrics import check_positive
from visionkl.solvers.rows import CodedRows, DenseRows, SparseRows, cut

Vector = npt.NDArray[np.float64]

DUAL_LOSSES = ("hinge", "squared_hinge", "epsilon_insensitive", "squared_epsilon_insensitive")

#: Span of the projected gradients to start with, in parts of the largest target, and by how much it shrinks
#: until the gap is small enough.
_FIRST_TOLERANCE = 0.1
_NEXT_TOLERANCE = 0.3

# Rows of a block of the Gram matrix.
_BLOCK_OF_GRAM = 1024


@dataclass(frozen=True, eq=False)
class DualResult:
    """What dual coordinate descent found.

    Parameters
    ----------
    w : ndarray of float64, shape (n_features,)
        Weights; of decoded vectors, if the rows are codes; empty if only a Gram matrix is known.
    bias : float
    shares : ndarray of float64, shape (n,)
        `w` is the sum of the rows times their shares.
    alpha : ndarray of float64, shape (n,) or (2 n,)
        The dual numbers, a warm start for a similar problem on the same rows.
    primal, dual, gap : float
        Value of the objective, its lower bound, and their relative distance.
    converged : bool
        Whether the gap is as small as was asked for.
    n_passes : int
        Passes over the data.
    """

    w: Vector
    bias: float
    shares: Vector
    alpha: Vector
    primal: float
    dual: float
    gap: float
    converged: bool
    n_passes: int


class DualRows:
    """Rows as descent needs them: prepared once for any number of problems.

    Parameters
    ----------
    X : array_like, sparse matrix, DenseRows, SparseRows, CodedRows, TableRows or DecodingRows
        Codes are decoded as descent goes.
    codebooks : ndarray of float, shape (n_blocks, n_codewords, block_size), optional
        Needed for `CodedRows`.
    """

    def __init__(self, X: Any, codebooks: npt.NDArray[np.floating] | None = None) -> None:
        self.rows: tuple[npt.NDArray[Any], ...]
        if isinstance(X, CodedRows):
            if codebooks is None or codebooks.shape[:2] != (X.n_blocks, X.n_codewords):
                shape = None if codebooks is None else codebooks.shape
                raise UsageError(
                    "The 'codebooks' parameter of dual_svm must have the shape "
                    f"({X.n_blocks}, {X.n_codewords}, block_size) for these codes. Got {shape} instead."
                )
            self.rows = (np.ascontiguousarray(X.codes.T), np.ascontiguousarray(codebooks))
            self.n_features = X.n_blocks * codebooks.shape[2]
        elif isinstance(X, QuantisedRows):
            self.rows, self.n_features = (X.stored(), X.words), X.dim
        elif sparse.issparse(X) or isinstance(X, SparseRows):
            matrix = (X if isinstance(X, SparseRows) else SparseRows(X)).X
            self.rows, self.n_features = (matrix.data, matrix.indices, matrix.indptr), matrix.shape[1]
        else:
            plain = X if isinstance(X, DenseRows) else DenseRows(X)
            self.rows, self.n_features = (plain.X,), plain.dim
        self.n = len(self.rows[2]) - 1 if len(self.rows) == 3 else len(self.rows[0])
        self._norms = np.empty(self.n)
        squared_norms(self.rows, 0.0, np.zeros(self.n_features + 1), self._norms)

    def norms(self, bias: float) -> Vector:
        """Squared norms of the rows, with their bias."""
        return self._norms + bias * bias

    def state(self, w: Vector, shares: Vector, bias: float) -> tuple[Vector, float]:
        """Return all scores, and the squared norm of the weights."""
        scores = np.empty(self.n)
        multiply_rows(self.rows, bias, w, scores)
        return scores, float(w @ w)

    def weights(self, w: Vector) -> Vector:
        """Return the weights of features."""
        return w[:-1]


class DualGram(DualRows):
    """The same for a matrix of inner products: the weights are then the scores of all rows.

    Parameters
    ----------
    gram : array_like of float, shape (n, n)
    """

    def __init__(self, gram: npt.ArrayLike) -> None:
        matrix = np.ascontiguousarray(gram)
        matrix = matrix if matrix.dtype == np.float32 else matrix.astype(np.float64, copy=False)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise DataError(f"A Gram matrix must be square, not of the shape {matrix.shape}.")
        if not np.isfinite(matrix).all():
            raise DataError("The Gram matrix holds NaN or infinite values.")
        diagonal = matrix.diagonal().astype(np.float64)
        self.rows, self._norms = (matrix, diagonal), diagonal
        self.n = self.n_features = len(matrix)

    def state(self, w: Vector, shares: Vector, bias: float) -> tuple[Vector, float]:
        """Return all scores, and the squared norm of the weights."""
        return w[:-1] + bias * w[-1], float(w[:-1] @ shares + w[-1] ** 2)

    def weights(self, w: Vector) -> Vector:
        """Return nothing: the features are not known."""
        return np.empty(0)


def dual_svm(
    X: Any,
    y: npt.ArrayLike,
    *,
    regularisation: float,
    loss: str = "hinge",
    epsilon: float = 0.1,
    weights: npt.ArrayLike | None = None,
    bias: float = 1.0,
    codebooks: npt.NDArray[np.floating] | None = None,
    start: npt.NDArray[np.float64] | None = None,
    tol: float = 1e-3,
    max_passes: int = 1000,
    seed: int = 0,
) -> DualResult:
    """Train a linear support vector machine by dual coordinate descent over its rows.

    Parameters
    ----------
    X : array_like, sparse matrix, DenseRows, SparseRows, CodedRows, TableRows, DecodingRows or DualRows
    y : array_like, shape (n,)
        Labels, +1 and -1; targets, if the loss is one of regression.
    regularisation : float
        λ, positive; other packages' C is `1 / (λ n)`.
    loss : {"hinge", "squared_hinge", "epsilon_insensitive", "squared_epsilon_insensitive"}
    epsilon : float
        Half the width of the tube of the last two.
    weights : array_like of float, shape (n,), optional
        Multiply the losses; the sum is divided by n all the same.
    bias : float
        A constant feature, regularised like the others; 0: none.
    codebooks : ndarray of float, shape (n_blocks, n_codewords, block_size), optional
        Needed for `CodedRows`.
    start : ndarray of float64, optional
        The `alpha` of an earlier result, with the same rows and another `y`, λ or weights.
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
    data = X if isinstance(X, DualRows) else DualRows(X, codebooks)
    check_number("dual_svm", "bias", bias, low=0)
    problem = _Problem(y, regularisation, loss, epsilon, weights, data.n)
    return problem.solve(data, float(bias), start, tol, max_passes, seed)


def dual_svm_gram(gram: npt.ArrayLike, y: npt.ArrayLike, **options: Any) -> DualResult:
    """Train a support vector machine on inner products: a linear or any other kernel.

    Parameters
    ----------
    gram : array_like of float, shape (n, n)
        Inner products of the training samples.
    y, **options
        As in `dual_svm`; a pass is one over the matrix.

    Returns
    -------
    DualResult
        Scores of other samples are `K(other, training) @ shares + bias`.

    Examples
    --------
    >>> result = dual_svm_gram([[1.0, 3.0], [3.0, 9.0]], [-1, 1], regularisation=0.01, bias=10.0, tol=1e-9)
    >>> np.round(result.shares @ [1, 3], 3), round(result.bias, 2)
    (np.float64(1.0), -2.0)
    """
    return dual_svm(DualGram(gram), y, **options)


def gram_matrix(rows: Any, *, n_jobs: int | None = None) -> npt.NDArray[np.floating]:
    """Return the inner products `(n, n)` of all rows; float32 for codes and float32.

    Parameters
    ----------
    rows : DenseRows, SparseRows, TableRows or DecodingRows
        Codes are decoded a few columns at a time.
    n_jobs : int, optional
        Threads; all usable cores by default.

    Examples
    --------
    >>> gram_matrix(DenseRows([[1.0, 0.0], [2.0, 1.0]]))
    array([[1., 2.],
           [2., 5.]])
    """
    if isinstance(rows, SparseRows):
        return (rows.X @ rows.X.T).toarray()
    panels: Iterator[npt.NDArray[np.floating]]
    panels = rows.panels() if isinstance(rows, QuantisedRows) else iter([rows.X])
    bands = cut(0, rows.n_rows, _BLOCK_OF_GRAM)
    gram: npt.NDArray[np.floating] | None = None
    for panel in panels:
        if gram is None:
            gram = np.zeros((rows.n_rows, rows.n_rows), panel.dtype)

        def add(
            pair: tuple[slice, slice],
            panel: npt.NDArray[np.floating] = panel,
            gram: npt.NDArray[np.floating] = gram,
        ) -> None:
            gram[pair] += panel[pair[0]] @ panel[pair[1]].T

        run_tasks(add, combinations_with_replacement(bands, 2), n_jobs)
    assert gram is not None
    for above, below in combinations_with_replacement(bands, 2):
        gram[below, above] = gram[above, below].T
    return gram


class _Problem:
    """What is asked of the rows, the dual's bounds and numbers, and the loop that ends with the duality gap.

    Every number asks `label · score ≥ target` of its row; in regression two numbers ask that a score lies
    within the tube.
    """

    def __init__(
        self,
        y: npt.ArrayLike,
        regularisation: float,
        loss: str,
        epsilon: float,
        weights: npt.ArrayLike | None,
        n: int,
    ) -> None:
        check_choice("dual_svm", "loss", loss, DUAL_LOSSES)
        self.regularisation = check_positive("dual_svm", "regularisation", regularisation)
        self.squared = loss.startswith("squared")
        self.weights = checked_weights("dual_svm", weights, n) / n
        if "epsilon" in loss:
            check_number("dual_svm", "epsilon", epsilon, low=0)
            values = checked_targets(y)
            self.labels = np.repeat([1.0, -1.0], len(values))
            self.targets = np.concatenate([values, -values]) - epsilon
            self.weights = np.tile(self.weights, 2)
        else:
            values = self.labels = checked_labels(y)
            self.targets = np.ones(len(values))
        if len(values) != n:
            raise DataError(f"There are {n} rows of training data but {len(values)} labels.")
        cost = self.weights / regularisation
        some = cost > 0
        self.upper = np.where(some, np.inf, 0.0) if self.squared else cost
        self.diagonal = np.divide(0.5 * self.squared, cost, out=np.zeros(len(cost)), where=some)

    def solve(
        self,
        data: DualRows,
        bias: float,
        start: Vector | None,
        tol: float,
        max_passes: int,
        seed: int,
    ) -> DualResult:
        """Descend until the gap is small."""
        check_number("dual_svm", "tol", tol, low=0)
        check_number("dual_svm", "max_passes", max_passes, low=1, integer=True)
        alpha = self._first(start)
        w = np.zeros(data.n_features + 1)
        add_rows(data.rows, bias, self._shares(alpha, data.n), w)
        norms = data.norms(bias)
        draws = stream(seed, "dual_svm").random(len(alpha))
        tolerance, n_passes = _FIRST_TOLERANCE * float(np.abs(self.targets).max()), 0
        while True:
            n_passes += descend(
                data.rows,
                bias,
                self.labels,
                self.targets,
                self.upper,
                self.diagonal,
                norms,
                alpha,
                w,
                tolerance,
                max_passes - n_passes,
                draws,
            )
            shares = self._shares(alpha, data.n)
            scores, norm = data.state(w, shares, bias)
            primal = self.regularisation / 2 * norm + self._risk(scores)
            dual = self.regularisation * float(
                self.targets @ alpha - (self.diagonal * alpha) @ alpha / 2 - norm / 2
            )
            gap = max(primal - dual, 0.0) / max(primal, np.finfo(float).tiny)
            if gap <= tol or n_passes >= max_passes:
                return DualResult(
                    data.weights(w),
                    float(bias * w[-1]),
                    shares,
                    alpha,
                    primal,
                    dual,
                    gap,
                    gap <= tol,
                    n_passes,
                )
            tolerance *= _NEXT_TOLERANCE

    def _first(self, start: Vector | None) -> Vector:
        if start is None:
            return np.zeros(len(self.upper))
        if start.shape != self.upper.shape:
            raise UsageError("The dual numbers to start from belong to another problem; leave them out.")
        return np.clip(start, 0.0, self.upper)

    def _shares(self, alpha: Vector, n: int) -> Vector:
        return (self.labels * alpha).reshape(-1, n).sum(axis=0)

    def _risk(self, scores: Vector) -> float:
        missing = self.targets - self.labels * np.tile(scores, len(self.labels) // len(scores))
        losses = np.maximum(missing, 0)
        return float(self.weights @ (losses**2 if self.squared else losses))
