"""What `BundleSVC` and `BundleSVR` have in common: reading data, solving, scoring (METHODS §5, §6)."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from visionkl.backend.dispatch import CPU, Device, choose_device, device_of, to_host, validated_rows
from visionkl.coding.codebooks import Codebooks
from visionkl.coding.codes import CodeArray
from visionkl.core.errors import DataError, UsageError
from visionkl.core.rng import seed_of
from visionkl.core.validation import check_choice, check_number, parameter_error
from visionkl.learning.routes import (
    EXPANSIONS,
    ROUTES,
    Problem,
    Settings,
    Solution,
    make_rows,
    solve,
)
from visionkl.solvers.metrics import as_metric, check_positive
from visionkl.solvers.rows import Rows

Vector = npt.NDArray[np.float64]

_log = logging.getLogger(__name__)

# What scikit-learn's check of data is told.
_ACCEPTED: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}


class BundleMachine(BaseEstimator):
    """Base of the estimators: everything but what labels mean.

    A subclass has the parameters that `_settings` reads, turns labels into problems (`_problems`), and makes
    its attributes of the solutions (`_adopt`).
    """

    C: float
    regularisation: float | None
    loss: str
    codebooks: Codebooks | None
    metric: Any
    expansion: str
    route: str
    fit_intercept: bool
    intercept_scaling: float
    tol: float
    max_iter: int
    random_state: Any
    n_jobs: int | None
    device: str

    _losses: tuple[str, ...]
    _numeric_labels = False

    def fit(self, X: Any, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> Any:
        """Learn.

        Parameters
        ----------
        X : array_like of float, sparse matrix, or codes; shape (n_samples, n_features)
            Codes are a `CodeArray`, as `ProductQuantizer` returns it, or any uint8 or uint16 array if
            `codebooks` are given. Anything may be memory-mapped, and what is dense may lie on a GPU.
        y : array_like, shape (n_samples,)
        sample_weight : array_like of float, shape (n_samples,), optional
            Not negative. A weight of 2 counts like the same sample twice.

        Returns
        -------
        self
        """
        self._fit_together([self], X, y, sample_weight)
        return self

    def fit_path(
        self, X: Any, y: npt.ArrayLike, Cs: Sequence[float], sample_weight: npt.ArrayLike | None = None
    ) -> list[Any]:
        """Learn with several values of C on the same data, each starting from the one before.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        Cs : sequence of float
            In any order.

        Returns
        -------
        list
            A fitted estimator like this one for each C, in the order of `Cs`.
        """
        if not len(Cs):
            raise parameter_error(type(self).__name__ + ".fit_path", "Cs", "a list of numbers > 0", Cs)
        models = [clone(self).set_params(C=C, regularisation=None) for C in Cs]
        models[0]._fit_together(models, X, y, sample_weight)
        return models

    def _fit_together(
        self, models: Sequence[BundleMachine], X: Any, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None
    ) -> None:
        """Fit this estimator and copies of it that differ in the strength of regularisation."""
        settings = self._settings()
        device = self._device(X)
        data, books, labels = self._read_training(X, y)
        weights = _check_sample_weight(sample_weight, labels, dtype=np.float64, ensure_non_negative=True)
        rows, expansion = make_rows(data, books, self.expansion, self.n_jobs, device)
        metric = None if self.metric is None else as_metric(self.metric, rows.dim)
        strengths = [model._strength(weights) for model in models]
        problems = self._problems(labels, weights, settings.seed)
        order = sorted(range(len(models)), key=lambda number: -strengths[number])
        answer = solve(
            self.route, rows, problems, [strengths[k] for k in order], metric, settings, type(self).__name__
        )
        _log.info("%s took the route %s.", type(self).__name__, answer.reason)
        for number, solutions in zip(order, answer.solutions, strict=True):
            model = models[number]
            model.route_, model.route_reason_, model.expansion_ = answer.route, answer.reason, expansion
            model.codebooks_ = books
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(self, name):
                    setattr(model, name, getattr(self, name))
            model._adopt(solutions, rows, labels, weights, settings.seed)
            model._warn_of_gap()

    def _problems(self, labels: npt.NDArray[Any], weights: Vector, seed: int) -> list[Problem]:
        """Turn labels into what is to be solved."""
        raise NotImplementedError

    def _adopt(
        self,
        solutions: Sequence[Solution],
        rows: Rows,
        labels: npt.NDArray[Any],
        weights: Vector,
        seed: int,
    ) -> None:
        """Make the learned attributes of the solutions of the problems."""
        raise NotImplementedError

    def _settings(self) -> Settings:
        """Check the parameters that all problems share."""
        owner = type(self).__name__
        check_choice(owner, "loss", self.loss, self._losses)
        check_choice(owner, "route", self.route, ROUTES)
        check_choice(owner, "expansion", self.expansion, EXPANSIONS)
        check_number(owner, "tol", self.tol, low=0)
        check_number(owner, "max_iter", self.max_iter, low=1, integer=True)
        if self.n_jobs is not None:
            check_number(owner, "n_jobs", self.n_jobs, low=1, integer=True)
        bias = check_positive(owner, "intercept_scaling", self.intercept_scaling)
        epsilon = check_number(owner, "epsilon", getattr(self, "epsilon", 0.0), low=0)
        return Settings(
            self.loss,
            float(epsilon),
            bias if self.fit_intercept else 0.0,
            float(self.tol),
            self.max_iter,
            seed_of(self.random_state),
            self.n_jobs,
        )

    def _strength(self, weights: Vector) -> float:
        """λ of `λ/2 ‖w‖² + (1/n) Σ weight · loss`."""
        owner = type(self).__name__
        if self.regularisation is None:
            return 1 / (check_positive(owner, "C", self.C) * len(weights))
        return check_positive(owner, "regularisation", self.regularisation) * float(weights.mean())

    def _read_training(self, X: Any, y: npt.ArrayLike) -> tuple[Any, Codebooks | None, npt.NDArray[Any]]:
        """Return checked data, their codebooks if they are codes, and labels."""
        owner = type(self).__name__
        books = self._known_codebooks(X)
        if books is None:
            on_gpu = device_of(X).is_gpu
            if (on_gpu or isinstance(X, np.ndarray)) and X.dtype in (np.uint8, np.uint16):
                raise DataError(
                    f"{owner}: X holds {X.dtype}; if these are codes, give 'codebooks', and if they are "
                    "numbers, X.astype('float32')."
                )
            if on_gpu:
                data = validated_rows(self, X, reset=True)
                return data, None, self._read_labels(y, len(data))
            data, labels = validate_data(self, X, y, y_numeric=self._numeric_labels, **_ACCEPTED)
            return data, None, labels
        if self.metric is not None:
            raise UsageError(f"{owner}: codes have the metric of their codebooks; leave out 'metric'.")
        codes = self._read_codes(X, books)
        if not len(codes):
            raise DataError(f"{owner}: there are 0 sample(s), while a minimum of 1 is required.")
        labels = self._read_labels(y, len(codes))
        self.n_features_in_ = books.n_blocks
        return codes, books, labels

    def _read_labels(self, y: npt.ArrayLike, n_samples: int) -> npt.NDArray[Any]:
        labels = validate_data(self, y=to_host(y))
        if len(labels) != n_samples:
            raise DataError(f"{type(self).__name__}: there are {n_samples} samples but {len(labels)} labels.")
        return labels

    def _device(self, X: Any) -> Device:
        # What a GPU cannot do is no reason for "auto" to complain.
        if self.device == "auto" and (sparse.issparse(X) or self.route in ("gram", "rows")):
            return CPU
        return choose_device(self.device, type(self).__name__)

    def _known_codebooks(self, X: Any) -> Codebooks | None:
        if self.codebooks is None:
            return X.books if isinstance(X, CodeArray) else None
        if not isinstance(self.codebooks, Codebooks):
            raise parameter_error(
                type(self).__name__,
                "codebooks",
                "None or Codebooks, the 'books_' of a fitted ProductQuantizer",
                type(self.codebooks).__name__,
            )
        return self.codebooks

    def _read_codes(self, X: Any, books: Codebooks) -> npt.NDArray[Any]:
        codes = books.check_codes(X)
        if codes.ndim != 2:
            raise DataError(
                f"{type(self).__name__}: codes have the shape (n_samples, n_blocks), not {codes.shape}."
            )
        with device_of(codes).use():
            return codes.astype(books.code_dtype, copy=False)

    def _warn_of_gap(self) -> None:
        if not self._converged:
            warnings.warn(
                f"{type(self).__name__} stopped after {self.n_iter_} passes at a duality gap of "
                f"{np.max(self.gap_):.2g}, above 'tol' = {self.tol:g}; raise 'max_iter' or 'tol', "
                "or scale the features.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _set_weights(self, solutions: Sequence[Solution]) -> None:
        """Make the attributes of the solutions."""
        weights = np.stack([solution.w for solution in solutions])
        books = self.codebooks_
        if books is not None:
            weights = books.join(weights.reshape(len(weights), books.n_blocks, books.block_size))
        self.coef_ = weights
        self.intercept_ = np.array([solution.bias for solution in solutions])
        self.gap_ = np.array([solution.gap for solution in solutions])
        self.n_iter_ = max(solution.n_passes for solution in solutions)
        self._converged = all(solution.converged for solution in solutions)

    def _scores(self, X: Any) -> Vector:
        """Scores `(n_samples, k)` of new samples, as a NumPy array."""
        check_is_fitted(self)
        books = self.codebooks_
        weights = np.atleast_2d(self.coef_)
        device, on_gpu = self._device(X), device_of(X).is_gpu
        if books is None:
            data = validated_rows(self, X, **_ACCEPTED)
            rows, _ = make_rows(data, None, "", self.n_jobs, device)
            return rows.scores(weights).T + self.intercept_
        if sparse.issparse(X) or (X if on_gpu else np.asarray(X)).dtype.kind not in "ui":
            raise DataError(f"{type(self).__name__} was trained on codes; give codes of that quantiser.")
        given = X.books if isinstance(X, CodeArray) else None
        if given is not None and given is not books and not np.array_equal(given.words, books.words):
            raise DataError(
                f"{type(self).__name__}: these codes were made with other codebooks than the training data's."
            )
        rows, _ = make_rows(self._read_codes(X, books), books, "auto", self.n_jobs, device)
        return rows.scores(books.split(weights).reshape(len(weights), -1)).T + self.intercept_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
