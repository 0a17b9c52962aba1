"""Support vector machines for vectors, sparse maps and product-quantiser codes (METHODS §5, §6).

Fundamentals
------------
`BundleSVC` and `BundleSVR` minimise

    ½ ‖w‖² + ½ (intercept / intercept_scaling)² + C Σ_i weight_i · loss(sample i)

to a relative duality gap of `tol`: the answer is proven to be that close to the best. One machine is learned
for each class, against the rest.

**Codes.** A product quantiser's codes stand for the vectors of their codewords, and learning on codes equals
learning on the decoded vectors, in 1/32 of the memory and much less time. A `ProductQuantizer` returns codes
that know their codebooks, so that a pipeline needs nothing else; codes from elsewhere, such as a
memory-mapped file larger than memory, need `codebooks`. `expansion` says how codes become scores: by tables
("delayed", the default), decoded on the way ("immediate"), or decoded all at once ("dense").

**Kernels.** An additive kernel is learned with a sparse map and its `metric`, or with a map of the data
(square roots for Hellinger's) before the quantiser, which then works in the metric of the kernel.

Implementation
--------------
There are three routes to the same machine (`visionkl.learning.routes`): by planes, for all classes in one
pass over the data; by one matrix of inner products; and by dual descent over the rows. The estimator
estimates their times and takes the shortest; `route_` and `route_reason_` say which and why, and so does the
log.

The intercept is a constant feature of the size `intercept_scaling`, and so is regularised, like that of
liblinear: hardly, beside the many weights of long vectors. Raise `intercept_scaling` if it should be free;
the dual routes then need more passes.

If unsure, take C from 1 to 10 for vectors of length 1, such as Fisher vectors; `fit_path` tries many.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import column_or_1d

from visionkl.backend.dispatch import device_of
from visionkl.coding.codebooks import Codebooks
from visionkl.core.errors import DataError
from visionkl.core.rng import stream
from visionkl.core.validation import check_number
from visionkl.learning.labels import numbered, positive_classes, winners
from visionkl.learning.machine import BundleMachine
from visionkl.learning.platt import fit_sigmoid, probabilities
from visionkl.learning.routes import Problem, Solution
from visionkl.solvers.rows import Rows
from visionkl.solvers.scalar import LOSSES, TUBES

Vector = npt.NDArray[np.float64]


class BundleSVC(ClassifierMixin, BundleMachine):
    """A linear support vector classifier for vectors, sparse maps and codes.

    Parameters
    ----------
    C : float
        How much losses count beside the regulariser.
    regularisation : float, optional
        λ of `λ/2 ‖w‖² + Σ weight · loss / Σ weight`, instead of C, which is `1 / (λ Σ weight)`.
    loss : {"hinge", "squared_hinge", "logistic"}
    class_weight : dict, "balanced" or None
        Multiplies the weights of the samples of each class, in all machines.
    codebooks : Codebooks, optional
        Of codes that do not know theirs: `books_` of a fitted `ProductQuantizer`.
    metric : Metric or array_like, optional
        The regulariser of a sparse map, `½ vᵀK†v` instead of `½ ‖v‖²`: an object of
        `visionkl.solvers.metrics`, or the matrix K of all features, of every block of features (m, m), or of
        each block (n_blocks, m, m).
    expansion : {"auto", "delayed", "immediate", "dense"}
        How codes become scores.
    route : {"auto", "bundle", "gram", "rows"}
        How to solve.
    fit_intercept : bool
    intercept_scaling : float
        Size of the constant feature that stands for the intercept.
    probability : bool
        Whether to learn `predict_proba`, with `cv` more machines for each class.
    cv : int
        Parts into which the samples are dealt for that; each gets scores of a machine that does not know it.
    tol : float
        Relative duality gap to reach.
    max_iter : int
        Passes over the data, at most.
    random_state : int, RandomState instance or None
        Seed of the order of descent and of the parts.
    n_jobs : int, optional
        Threads; all usable cores by default. The result does not depend on it.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "auto": where passes over dense rows and codes are made, by the
        bundle solver; its small problems stay on the CPU. Data that lie on a GPU are gone over there anyway.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    coef_ : ndarray of float64, shape (1 or n_classes, n_features)
        Weights, one row for two classes; for codes, of decoded vectors.
    intercept_ : ndarray of float64, shape (1 or n_classes,)
    gap_ : ndarray of float64, shape (1 or n_classes,)
        Relative duality gap that each machine has reached.
    n_iter_ : int
        The most passes that a machine took.
    route_, route_reason_ : str
        The route that was taken, and why.
    expansion_ : str or None
        How codes became scores; None if there were none.
    codebooks_ : Codebooks or None
    sigmoids_ : ndarray of float64, shape (1 or n_classes, 2)
        Of the probabilities, `1 / (1 + exp(a score + b))`; with `probability` only.
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from visionkl.coding.pq import ProductQuantizer
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_pipeline(ProductQuantizer(32, block_size=8), BundleSVC(C=0.01)).fit(X[:1000], y[:1000])
    >>> bool(model.score(X[1000:], y[1000:]) > 0.85), model[-1].coef_.shape
    (True, (10, 64))
    """

    _losses = tuple(LOSSES)

    def __init__(
        self,
        C: float = 1.0,
        *,
        regularisation: float | None = None,
        loss: str = "hinge",
        class_weight: Mapping[Any, float] | str | None = None,
        codebooks: Codebooks | None = None,
        metric: Any = None,
        expansion: str = "auto",
        route: str = "auto",
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        probability: bool = False,
        cv: int = 5,
        tol: float = 1e-3,
        max_iter: int = 1000,
        random_state: Any = 0,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.C = C
        self.regularisation = regularisation
        self.loss = loss
        self.class_weight = class_weight
        self.codebooks = codebooks
        self.metric = metric
        self.expansion = expansion
        self.route = route
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.probability = probability
        self.cv = cv
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def decision_function(self, X: Any) -> Vector:
        """Return scores: `(n_samples,)` for two classes, `(n_samples, n_classes)` for more.

        Parameters
        ----------
        X : array_like of float, sparse matrix, or codes
            If it lies on a GPU, the scores do, too.
        """
        scores = device_of(X).put(self._scores(X))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class with the highest score for each sample, as a NumPy array.

        Parameters
        ----------
        X : array_like of float, sparse matrix, or codes
        """
        best = winners(self._scores(X))
        return self.classes_[best]

    @available_if(lambda self: self.probability)
    def predict_proba(self, X: Any) -> Vector:
        """Return the probability of each class, `(n_samples, n_classes)`.

        Parameters
        ----------
        X : array_like of float, sparse matrix, or codes
        """
        return probabilities(self._scores(X), self.sigmoids_)

    def _problems(self, labels: npt.NDArray[Any], weights: Vector, seed: int) -> list[Problem]:
        """One class against the rest, on all samples, and then without each part of them."""
        classes, numbers = numbered("BundleSVC", labels)
        all_weights = weights * compute_sample_weight(self.class_weight, labels)
        if not all_weights.any():
            raise DataError("BundleSVC: the class weights leave no sample with a weight above 0.")
        signs = [np.where(numbers == k, 1.0, -1.0) for k in positive_classes(classes)]
        parts = [all_weights]
        if self.probability:
            dealt = self._deal(numbers, weights, seed)
            parts += [all_weights * (dealt != part) for part in range(dealt.max() + 1)]
        return [Problem(y, part) for part in parts for y in signs]

    def _adopt(
        self,
        solutions: Sequence[Solution],
        rows: Rows,
        labels: npt.NDArray[Any],
        weights: Vector,
        seed: int,
    ) -> None:
        self.classes_, numbers = numbered("BundleSVC", labels)
        k = len(positive_classes(self.classes_))
        self._set_weights(solutions[:k])
        if not self.probability:
            return
        scores = rows.scores(np.stack([solution.w for solution in solutions]))
        scores += np.array([solution.bias for solution in solutions])[:, None]
        dealt = self._deal(numbers, weights, seed)
        alone = np.setdiff1d(numbers[weights > 0], numbers[dealt >= 0])
        if len(alone):
            warnings.warn(
                f"BundleSVC: class {self.classes_[alone[0]]!r} has one sample, which cannot be held out; its "
                "probabilities are learned from the score of a machine that knows the sample, and are too "
                f"high ({len(alone)} class(es) are like this).",
                stacklevel=5,
            )
        # Of each sample, the scores by machines that do not know it; they follow those that know all.
        held_out = scores.reshape(-1, k, len(labels))[dealt + 1, :, np.arange(len(labels))]
        self.sigmoids_ = np.array(
            [
                fit_sigmoid(held_out[:, row], numbers == number, weights)
                for row, number in enumerate(positive_classes(self.classes_))
            ]
        )

    def _deal(self, numbers: npt.NDArray[np.intp], weights: Vector, seed: int) -> npt.NDArray[np.intp]:
        """Deal the samples of each class to parts; a class's only sample belongs to none, which is -1."""
        check_number("BundleSVC", "cv", self.cv, low=2, integer=True)
        random = stream(seed, "BundleSVC", "parts")
        dealt = np.full(len(numbers), -1)
        for number in range(numbers.max() + 1):
            members = np.flatnonzero((numbers == number) & (weights > 0))
            if len(members) > 1:
                dealt[random.permutation(members)] = np.arange(len(members)) % self.cv
        return dealt


class BundleSVR(RegressorMixin, BundleMachine):
    """A linear support vector regressor for vectors, sparse maps and codes.

    Parameters
    ----------
    C : float
        How much losses count beside the regulariser.
    epsilon : float
        Errors up to this cost nothing.
    regularisation : float, optional
        λ of `λ/2 ‖w‖² + Σ weight · loss / Σ weight`, instead of C, which is `1 / (λ Σ weight)`.
    loss : {"epsilon_insensitive", "squared_epsilon_insensitive"}
    codebooks, metric, expansion, route, fit_intercept, intercept_scaling, tol, max_iter, random_state
        As in `BundleSVC`.
    n_jobs, device
        As in `BundleSVC`.

    Attributes
    ----------
    coef_ : ndarray of float64, shape (n_features,)
        Weights; for codes, of decoded vectors.
    intercept_ : ndarray of float64, shape (1,)
    gap_, n_iter_, route_, route_reason_, expansion_, codebooks_, n_features_in_
        As in `BundleSVC`.

    Examples
    --------
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = BundleSVR(C=100.0, epsilon=0.01).fit(X, 2 * X[:, 0] + 1)
    >>> model.coef_.round(1), model.intercept_.round(1)
    (array([2.]), array([1.]))
    """

    _losses = tuple(TUBES)
    _numeric_labels = True

    def __init__(
        self,
        C: float = 1.0,
        *,
        epsilon: float = 0.1,
        regularisation: float | None = None,
        loss: str = "epsilon_insensitive",
        codebooks: Codebooks | None = None,
        metric: Any = None,
        expansion: str = "auto",
        route: str = "auto",
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        tol: float = 1e-3,
        max_iter: int = 1000,
        random_state: Any = 0,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.C = C
        self.epsilon = epsilon
        self.regularisation = regularisation
        self.loss = loss
        self.codebooks = codebooks
        self.metric = metric
        self.expansion = expansion
        self.route = route
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def predict(self, X: Any) -> Vector:
        """Return the values `(n_samples,)`.

        Parameters
        ----------
        X : array_like of float, sparse matrix, or codes
            If it lies on a GPU, the values do, too.
        """
        return device_of(X).put(self._scores(X)[:, 0])

    def _problems(self, labels: npt.NDArray[Any], weights: Vector, seed: int) -> list[Problem]:
        return [Problem(column_or_1d(labels, dtype=np.float64, warn=True), weights)]

    def _adopt(
        self,
        solutions: Sequence[Solution],
        rows: Rows,
        labels: npt.NDArray[Any],
        weights: Vector,
        seed: int,
    ) -> None:
        self._set_weights(solutions)
        self.coef_ = self.coef_[0]
