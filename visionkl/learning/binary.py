"""Multiple binary kernel learning, MBKL: a kernel of thousands of random yes-or-no questions (METHODS §8).

Fundamentals
------------
Questions are drawn at random (`visionkl.kernels.binary`): stumps, or thresholded projections of any map.
Their kernel is K(x, z) = Σ_k θ_k [s_k(x) = s_k(z)]. Three steps learn θ and a classifier:

1. Each class guesses its answer to each question: what it says more often than the other classes do.
2. A support vector machine learns from the answers how much each question helps to tell samples under their
   own class's guesses from samples under others'. Its weights, where positive, are θ, the same for all
   classes; the other questions are dropped.
3. A linear support vector machine for each class learns on the explicit map of the questions that are left.

θ is scaled so that it adds up to 1. Then K(x, x) = 1, and C means the same whatever the number of questions.

`theta="learned"` is the method. The rest are its authors' controls: `"selected"` drops the same questions but
gives all others the same weight; `"ones"` drops none, which is a linear machine on the bits; `"l1"` is a
linear machine on the bits with an l1 penalty, which selects for each class by itself.

What it is good for: features of any kind and scale, since stumps ask for order only; and speed at test time,
where a class costs one table look-up for each feature. What it is not good for: with stumps, the kernel is a
sum over features, so that classes which differ in how features go together are out of its reach; projections
(`maps="projections"`) of a `FourierMap` are then worth their price.

Implementation
--------------
Bits stay packed: they take n_samples · n_maps / 8 bytes, and the second step some megabytes more, because its
samples are limited (`kernel_samples`). The steps are in `visionkl.learning.binary_kernel`, the solvers in
`visionkl.learning.routes`, and the tables of scores in `visionkl.learning.binary_scores`.

If unsure, keep the defaults, and try C from 1 to 1000.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from visionkl.backend.dispatch import Device, choose_device, device_of, to_host, validated_rows
from visionkl.core.errors import DataError
from visionkl.core.rng import seed_of, stream
from visionkl.core.validation import check_choice, check_number
from visionkl.kernels.binary import BinaryKernel, BinaryMap, BinaryProjectionMap, StumpMap
from visionkl.kernels.questions import Bytes, encode
from visionkl.learning.binary_kernel import draw_pairs, guess, learn_theta, signed_rows
from visionkl.learning.binary_scores import make_scorer, scores_there
from visionkl.learning.labels import numbered, positive_classes, winners
from visionkl.learning.routes import Problem, Settings, solve
from visionkl.solvers.accelerated import solve_rows
from visionkl.solvers.metrics import check_positive
from visionkl.solvers.penalties import Absolute
from visionkl.solvers.scalar import Signed, SquaredHinge

Vector = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.intp]

_ACCEPTED: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}


class MBKLClassifier(ClassifierMixin, BaseEstimator):
    """A support vector classifier with a kernel learned from random binary maps.

    Parameters
    ----------
    n_maps : int
        Questions to draw.
    maps : {"stumps", "projections"}
    base : transformer, optional
        Of projections: the map whose features are projected, such as `FourierMap()`; by default the features
        themselves.
    theta : {"learned", "selected", "ones", "l1"}
        How questions are weighted; see the head of this module.
    C : float
        Of the machines of the classes: how much losses count beside the regulariser.
    theta_C : float
        The same of the machine that learns θ.
    negatives : float
        Samples under guesses of other classes, for each sample under its own class's.
    kernel_samples : int
        Samples that θ is learned from, at most, as many of each class.
    tol : float
        Relative duality gap to reach.
    max_iter : int
        Passes over the data, at most.
    random_state : int, RandomState instance or None
        Seed; None is different each time.
    n_jobs : int, optional
        Threads; all usable cores by default. The result does not depend on it.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "auto": where questions are answered, passes of the solver over
        the answers made, and samples scored. Samples that lie on a GPU are scored there anyway.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    theta_ : ndarray of float64, shape (n_maps,)
        Weights of the questions, which add up to 1; 0 for those that were dropped.
    selected_ : ndarray of int, shape (n_selected,)
        The questions that are left.
    questions_ : Stumps or Projections
        These questions themselves.
    kernel_ : BinaryKernel
        The kernel that was learned.
    coef_ : ndarray of float64, shape (1 or n_classes, n_selected)
        Weights of the answers, ±1.
    intercept_ : ndarray of float64, shape (1 or n_classes,)
    n_iter_ : int
        The most passes that a machine took.
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = MBKLClassifier(2000).fit(X[:1000], y[:1000])
    >>> bool(model.score(X[1000:], y[1000:]) > 0.9), bool(len(model.selected_) < 2000)
    (True, True)
    """

    def __init__(
        self,
        n_maps: int = 20_000,
        *,
        maps: str = "stumps",
        base: Any = None,
        theta: str = "learned",
        C: float = 10.0,
        theta_C: float = 1.0,
        negatives: float = 1.0,
        kernel_samples: int = 2000,
        tol: float = 1e-3,
        max_iter: int = 1000,
        random_state: Any = 0,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.n_maps = n_maps
        self.maps = maps
        self.base = base
        self.theta = theta
        self.C = C
        self.theta_C = theta_C
        self.negatives = negatives
        self.kernel_samples = kernel_samples
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def fit(self, X: Any, y: npt.ArrayLike) -> MBKLClassifier:
        """Draw questions, and learn their weights and the classes' machines.

        Parameters
        ----------
        X : array_like or sparse matrix of float, shape (n_samples, n_features)
        y : array_like, shape (n_samples,)

        Returns
        -------
        self
        """
        self._check_parameters()
        device = self._device()
        rows, labels = validate_data(self, to_host(X), to_host(y), **_ACCEPTED)
        self.classes_, numbers = numbered("MBKLClassifier", labels)
        seed = seed_of(self.random_state)
        questions = self._map(seed).fit(rows).questions_
        signs = [np.where(numbers == k, 1.0, -1.0) for k in positive_classes(self.classes_)]
        self._gaps: list[float] = []
        self.n_iter_ = 1
        if self.theta == "l1":
            bits = encode(questions, rows, self.n_jobs, device)
            chosen, coef, self.intercept_ = self._learn_sparse(bits, signs, device)
        elif self.theta == "ones":
            chosen = np.ones(self.n_maps)
        else:
            bits = encode(questions, rows, self.n_jobs, device)
            chosen = self._learn_theta(bits, numbers, seed, device)
        if not chosen.any():
            raise DataError(
                f"MBKLClassifier: none of the {self.n_maps} questions tells the classes apart; are all "
                "features constant, or the labels independent of them? Try more 'n_maps' or a larger 'C'."
            )
        self.selected_ = np.flatnonzero(chosen)
        self.theta_ = chosen / chosen.sum()
        self.questions_ = questions.keep(self.selected_)
        self.kernel_ = BinaryKernel(self.questions_, self.theta_[self.selected_])
        if self.theta == "l1":
            self.coef_ = coef[:, self.selected_]
        else:
            self.coef_, self.intercept_ = self._learn_machines(rows, signs, seed, device)
        self._scorer = make_scorer(self.questions_, self.coef_)
        self._warn_of_gap()
        return self

    def decision_function(self, X: Any) -> Vector:
        """Return scores: `(n_samples,)` for two classes, `(n_samples, n_classes)` for more.

        Parameters
        ----------
        X : array_like or sparse matrix of float, shape (n_samples, n_features)
            If it lies on a GPU, the scores do, too.
        """
        scores = device_of(X).put(self._scores(X))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class with the highest score for each sample, as a NumPy array.

        Parameters
        ----------
        X : array_like or sparse matrix of float, shape (n_samples, n_features)
        """
        best = winners(self._scores(X))
        return self.classes_[best]

    def _scores(self, X: Any) -> Vector:
        check_is_fitted(self)
        rows = validated_rows(self, X, **_ACCEPTED)
        home = device_of(rows)
        device = home if home.is_gpu else self._device()
        if device.is_gpu:
            return scores_there(self.questions_, self.coef_, rows, device) + self.intercept_
        return self._scorer.scores(rows, self.n_jobs) + self.intercept_

    def _check_parameters(self) -> None:
        owner = "MBKLClassifier"
        check_choice(owner, "maps", self.maps, ("stumps", "projections"))
        check_choice(owner, "theta", self.theta, ("learned", "selected", "ones", "l1"))
        check_positive(owner, "C", self.C)
        check_positive(owner, "theta_C", self.theta_C)
        check_positive(owner, "negatives", self.negatives)
        check_number(owner, "n_maps", self.n_maps, low=1, integer=True)
        check_number(owner, "kernel_samples", self.kernel_samples, low=2, integer=True)
        check_number(owner, "tol", self.tol, low=0)
        check_number(owner, "max_iter", self.max_iter, low=1, integer=True)
        if self.n_jobs is not None:
            check_number(owner, "n_jobs", self.n_jobs, low=1, integer=True)

    def _device(self) -> Device:
        return choose_device(self.device, "MBKLClassifier")

    def _map(self, seed: int) -> BinaryMap:
        if self.maps == "stumps":
            return StumpMap(self.n_maps, random_state=seed, n_jobs=self.n_jobs)
        return BinaryProjectionMap(self.n_maps, base=self.base, random_state=seed, n_jobs=self.n_jobs)

    def _learn_theta(self, bits: Bytes, numbers: Numbers, seed: int, device: Device) -> Vector:
        """Take the first two steps."""
        signs = guess(bits, numbers, self.n_jobs)
        random = stream(seed, "MBKLClassifier", "pairs")
        pairs = draw_pairs(numbers, self.kernel_samples, self.negatives, random)
        settings = self._settings(seed, 1.0)
        theta, solution = learn_theta(
            bits, signs, pairs, self.n_maps, self.theta_C, settings, "MBKLClassifier", device
        )
        self._note(solution.gap, solution.n_passes)
        return (theta > 0).astype(np.float64) if self.theta == "selected" else theta

    def _learn_machines(
        self, rows: Any, signs: list[Vector], seed: int, device: Device
    ) -> tuple[Vector, Vector]:
        """Take the third step; return weights of answers ±1, and intercepts."""
        theta = self.theta_[self.selected_]
        bits = encode(self.questions_, rows, self.n_jobs, device)
        data = signed_rows(bits, theta, self.n_jobs, device)
        problems = [Problem(y, np.ones(len(y))) for y in signs]
        settings = self._settings(seed, np.sqrt(0.5))
        strength = 1 / (self.C * len(signs[0]))
        solutions = solve("auto", data, problems, [strength], None, settings, "MBKLClassifier").solutions[0]
        for solution in solutions:
            self._note(solution.gap, solution.n_passes)
        weights = np.stack([solution.w[: len(theta)] for solution in solutions])
        return weights * np.sqrt(theta / 2), np.array([solution.bias for solution in solutions])

    def _learn_sparse(
        self, bits: Bytes, signs: list[Vector], device: Device
    ) -> tuple[Vector, Vector, Vector]:
        """Return which questions an l1 penalty leaves, weights of answers ±1, and intercepts."""
        theta = np.full(self.n_maps, 1 / self.n_maps)
        loss = Signed(SquaredHinge(), np.stack(signs, axis=1))
        strength = np.full(len(signs), 1 / (self.C * len(bits)))
        data = signed_rows(bits, theta, self.n_jobs, device)
        found = solve_rows(data, loss, Absolute(), strength, tol=self.tol, max_iter=self.max_iter)
        self._note(float((found.gap / found.objective).max()), found.n_iter)
        coef = found.weights[: self.n_maps].T * np.sqrt(theta / 2)
        return (coef != 0).any(axis=0).astype(np.float64), coef, found.intercept

    def _settings(self, seed: int, bias: float) -> Settings:
        return Settings("hinge", 0.0, bias, float(self.tol), self.max_iter, seed, self.n_jobs)

    def _note(self, gap: float, n_passes: int) -> None:
        self._gaps.append(gap)
        self.n_iter_ = max(self.n_iter_, n_passes)

    def _warn_of_gap(self) -> None:
        worst = max(self._gaps)
        if worst > self.tol and self.n_iter_ >= self.max_iter:
            warnings.warn(
                f"MBKLClassifier stopped after {self.n_iter_} passes at a duality gap of {worst:.2g}, above "
                f"'tol' = {self.tol:g}; raise 'max_iter' or 'tol'.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
