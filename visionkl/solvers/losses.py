"""Losses of linear models, and how a solver asks for them.

A *risk* is the average loss of the training samples,

    risk(v) = (1/n) Σ_i weight_i · loss(label_i · score_i),      score_i = row_i · v  (+ bias),

with labels +1 and -1, or, for regression, `loss(score_i; target_i)`; for the losses see
`visionkl.solvers.scalar`. `C Σ loss + ½‖w‖²`, as other packages write it, is this with `λ = 1 / (C n)`.

**Groups.** Several rows may stand for one sample, whose score is the *best* of its rows: the placements of a
part model, or the windows of a picture. For a sample labelled -1 that is convex, since every placement must
score low; one labelled +1 must have exactly one row, its placement being settled beforehand (METHODS §10).

**Oracles.** To a bundle solver all this is an oracle: `oracle(v) -> (losses, planes)`, the value and a
sub-gradient. A `Risk` offers more, because its scores are linear in `v`: a search along a line is a matter of
the scores alone and needs no pass over the data, and a plane may be asked for at any point whose scores are
known. Two refinements make the solver need fewer passes:

* the risk is the sum of `n_parts` parts, ranges of rows, and yields a plane for each of them in one pass;
* the hinge's planes may be *slack*. A sample near its kink takes a share between 0 and 1 according to its
  margin, not all or nothing; the plane still lies below the risk, but up to a given slack below it at the
  point. Such planes stand for a neighbourhood, and about a third fewer of them are needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import DataError, UsageError
from visionkl.core.validation import check_choice, check_number
from visionkl.solvers.rows import Rows, as_rows
from visionkl.solvers.scalar import LOSSES, TUBES, Loss

Vector = npt.NDArray[np.float64]

# By default a part has so many rows at least, there are not more parts than this, and the planes of a point
# hold not more numbers than that.
_ROWS_PER_PART = 250
_MOST_PARTS = 16
_NUMBERS_OF_PLANES = 1 << 19


class Risk:
    """The average loss of a linear model over training samples: an oracle for the bundle solver.

    Parameters
    ----------
    X : array_like, sparse matrix or Rows
        The rows; see `visionkl.solvers.rows`. For codes pass `CodedRows`.
    y : array_like, shape (n_samples,)
        Labels, +1 and -1; both must be there. For a loss of regression, any numbers.
    loss : {"hinge", "squared_hinge", "logistic", "epsilon_insensitive", "squared_epsilon_insensitive"}
    epsilon : float
        Half the width of the tube of the last two.
    weights : array_like of float, shape (n_samples,), optional
        Multiply the losses; the sum is divided by the number of samples all the same.
    class_weights : tuple of float
        Multiply the losses of the negative and of the positive samples.
    bias : float
        With a positive number, `v` has one more coefficient at its end, seen through this constant: the
        bias of the model is `bias · v[-1]`. 0: no bias.
    groups : array_like of int, shape (n_rows,), optional
        Number of the sample, `0 .. n_samples - 1`, to which each row belongs; by default each row is a
        sample.
    n_parts : int, optional
        Into how many parts the risk is cut, each of which gets planes of its own; by default one for each
        250 rows, at most 16, and fewer if rows are long. More parts mean fewer passes over the data but more
        planes to keep. One, if the rows of a group do not stand together.
    n_jobs : int, optional
        Threads; all usable cores by default.

    Examples
    --------
    >>> risk = Risk([[1.0, 0.0], [0.0, 1.0]], [1, -1], bias=0.0)
    >>> loss, plane = risk(np.array([0.5, -1.0]))
    >>> float(loss), plane
    (0.25, array([-0.5,  0. ]))
    """

    def __init__(
        self,
        X: Any,
        y: npt.ArrayLike,
        *,
        loss: str = "hinge",
        epsilon: float = 0.1,
        weights: npt.ArrayLike | None = None,
        class_weights: tuple[float, float] = (1.0, 1.0),
        bias: float = 1.0,
        groups: npt.ArrayLike | None = None,
        n_parts: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        check_choice("Risk", "loss", loss, [*LOSSES, *TUBES])
        self.bias = float(check_number("Risk", "bias", bias, low=0))
        self.rows: Rows = as_rows(X, n_jobs=n_jobs)
        self.loss_of_margin: Loss
        if loss in LOSSES:
            self.labels, self.loss_of_margin = checked_labels(y), LOSSES[loss]
        else:
            check_number("Risk", "epsilon", epsilon, low=0)
            self.loss_of_margin = TUBES[loss](checked_targets(y), epsilon)
            self.labels = np.ones(len(self.loss_of_margin.targets))
        n = len(self.labels)
        self._set_groups(groups)
        sample_weights = checked_weights("Risk", weights, n)
        for value in class_weights:
            check_number("Risk", "class_weights", value, low=0)
        self.weights = sample_weights * np.where(self.labels > 0, class_weights[1], class_weights[0]) / n
        if n_parts is None:
            rows_per_part = getattr(self.rows, "rows_per_part", _ROWS_PER_PART)
            n_parts = min(self.rows.n_rows // rows_per_part, _MOST_PARTS, _NUMBERS_OF_PLANES // self.rows.dim)
        check_number("Risk", "n_parts", n_parts, low=0, integer=True)
        self.n_parts = max(1, min(n_parts, n)) if self._together else 1
        # Where parts begin and end: among the samples, and among the rows.
        self._sample_ends = np.linspace(0, n, self.n_parts + 1).astype(np.intp)
        self._row_ends = np.append(self._starts, self.rows.n_rows)[self._sample_ends]

    @property
    def dim(self) -> int:
        """Length of the coefficients, with the bias."""
        return self.rows.dim + (self.bias > 0)

    def __call__(self, v: Vector) -> tuple[float, Vector]:
        """Return the risk at `v`, and a sub-gradient there."""
        scores = self.scores(v)
        _, planes = self.planes(scores[None])
        return self.loss(scores), planes[0].sum(axis=0)

    def scores(self, v: Vector) -> Vector:
        """Scores of all rows: one pass over the data."""
        if self.bias:
            return self.rows.scores(v[..., :-1]) + self.bias * v[..., -1:]
        return self.rows.scores(v)

    def loss(self, scores: Vector) -> float:
        """Return the risk, given the scores of all rows."""
        margins = self.labels * scores[self._best_rows(scores)]
        return float(self.weights @ self.loss_of_margin.value(margins))

    def slope(self, scores: Vector, change: Vector) -> float:
        """Return a derivative of the risk at these scores as they go along a change."""
        best = self._best_rows(scores)
        derivatives = self.loss_of_margin.derivative(self.labels * scores[best])
        return float((self.weights * self.labels * change[best]) @ derivatives)

    def planes(self, points: Vector, slack: float = 0.0) -> tuple[Vector, Vector]:
        """Return planes below the risk, given the scores of all rows at some points: one pass over the data.

        Parameters
        ----------
        points : ndarray of float64, shape (k, n_rows)
        slack : float
            How far below the risk the sum of the planes of a point may be at this point.

        Returns
        -------
        offsets : ndarray of float64, shape (k, n_parts)
        planes : ndarray of float64, shape (k, n_parts, dim)
            `risk(v) ≥ Σ_parts offset + plane · v`.
        """
        offsets, shares = self.shares(points, slack)
        return offsets, self.planes_of(shares)

    def planes_of(self, shares: Vector) -> Vector:
        """Return planes `(k, n_parts, dim)`, given the shares `(k, n_rows)` of all rows in them.

        Risks of the same data share a pass by asking one of them for the planes of all.
        """
        planes = np.empty((len(shares), self.n_parts, self.dim))
        for part in range(self.n_parts):
            first, last = self._row_ends[part], self._row_ends[part + 1]
            planes[:, part, : self.rows.dim] = self.rows.combine(shares[:, first:last], int(first))
            if self.bias:
                planes[:, part, -1] = self.bias * shares[:, first:last].sum(axis=1)
        return planes

    def shares(self, points: Vector, slack: float = 0.0) -> tuple[Vector, Vector]:
        """Return the offsets of `planes`, and the share `(k, n_rows)` of each row in its part's plane."""
        offsets = np.empty((len(points), self.n_parts))
        shares = np.zeros(points.shape)
        for k, scores in enumerate(points):
            best = self._best_rows(scores)
            margins = self.labels * scores[best]
            slopes, constants = self.loss_of_margin.tangents(margins, self.weights, slack)
            shares[k, best] = self.weights * self.labels * slopes
            offsets[k] = np.add.reduceat(self.weights * constants, self._sample_ends[:-1])
        return offsets, shares

    def _set_groups(self, groups: npt.ArrayLike | None) -> None:
        """Arrange rows by samples: `_order[_starts[i] : _starts[i + 1]]` are the rows of sample i."""
        n, n_rows = len(self.labels), self.rows.n_rows
        self._together = True
        self._single = groups is None
        if groups is None:
            if n != n_rows:
                raise DataError(f"There are {n_rows} rows of training data but {n} labels.")
            self._starts = self._order = np.arange(n)
            return
        numbers = np.asarray(groups)
        if numbers.shape != (n_rows,) or numbers.dtype.kind not in "ui":
            raise UsageError(f"The 'groups' parameter of Risk must hold {n_rows} integers, one for each row.")
        sizes = np.bincount(numbers, minlength=n) if numbers.min(initial=0) >= 0 else np.empty(0, np.intp)
        if len(sizes) != n or not sizes.all():
            raise DataError(
                f"The groups of the rows must be the numbers of the {n} samples, from 0, with a row for each."
            )
        several = np.flatnonzero((sizes > 1) & (self.labels > 0))
        if len(several):
            raise DataError(
                f"Sample {several[0]} is labelled +1 and has {sizes[several[0]]} rows; a positive sample "
                "must have one, since the best of several would not be convex."
            )
        self._order = np.argsort(numbers, kind="stable")
        self._together = bool((self._order == np.arange(n_rows)).all())
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)
        self._sizes = sizes

    def _best_rows(self, scores: Vector) -> npt.NDArray[np.intp]:
        """Return the number of the best row of each sample; of equally good ones the first."""
        if self._single:
            return self._order
        ordered = scores[self._order]
        highest = np.repeat(np.maximum.reduceat(ordered, self._starts), self._sizes)
        places = np.flatnonzero(ordered == highest)
        owners = np.searchsorted(self._starts, places, side="right") - 1
        first = np.ones(len(places), bool)
        first[1:] = owners[1:] != owners[:-1]
        return self._order[places[first]]


def checked_weights(owner: str, weights: npt.ArrayLike | None, n: int) -> Vector:
    """Return the weights of n samples, ones by default; complain of anything odd."""
    values = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if values.shape != (n,) or not (np.isfinite(values) & (values >= 0)).all() or not values.any():
        raise UsageError(
            f"The 'weights' parameter of {owner} must hold {n} finite numbers ≥ 0, one for each sample, "
            "and not only zeros."
        )
    return values


def checked_labels(y: npt.ArrayLike) -> Vector:
    """Return labels +1 and -1 as floats; complain of anything else, and where one of them is missing."""
    labels = np.asarray(y)
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "uifb":
        raise DataError("The labels must be a list of +1 and -1, one for each training sample.")
    labels = labels.astype(np.float64)
    odd = np.flatnonzero(np.abs(labels) != 1)
    if len(odd):
        raise DataError(f"Labels must be +1 and -1; that of sample {odd[0]} is {labels[odd[0]]:g}.")
    if np.abs(labels.sum()) == len(labels):
        raise DataError(
            f"All {len(labels)} training samples are labelled {labels[0]:+.0f}; "
            "samples of both labels are needed."
        )
    return labels


def checked_targets(y: npt.ArrayLike) -> Vector:
    """Return the targets of a regression as floats; complain of anything that is no number."""
    targets = np.asarray(y)
    if targets.ndim != 1 or not len(targets) or targets.dtype.kind not in "uifb":
        raise DataError("The targets must be a list of numbers, one for each training sample.")
    targets = targets.astype(np.float64)
    odd = np.flatnonzero(~np.isfinite(targets))
    if len(odd):
        raise DataError(f"Targets must be finite; that of sample {odd[0]} is {targets[odd[0]]}.")
    return targets
