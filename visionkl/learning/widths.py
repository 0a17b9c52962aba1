"""What estimators that learn the σ of their kernel have in common: data, parts, the search, the last fit.

`WidthLearner` reads the data, holds a part of them out if the criterion is that of validation, searches for σ
(`visionkl.learning.search`), and then fits the weights to **all** data with the σ and λ found: the held-out
part has done its duty. `Values` and `Classes` say what targets are: numbers, or one column of ±1 for each
class. Their mean is taken off and becomes the intercept, so it is not regularised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from visionkl.backend.dispatch import Device, device_for, device_of, to_host, validated_rows
from visionkl.core.errors import DataError, UsageError
from visionkl.core.rng import seed_of, stream
from visionkl.core.validation import check_choice, check_number, parameter_error
from visionkl.kernels.base import Kernel, Matrix
from visionkl.kernels.sigma import Sigma, feature_groups
from visionkl.learning.fourier_ridge import Arrange, Part, take_off_exceeded_targets, take_off_targets
from visionkl.learning.labels import numbered, positive_classes, winners
from visionkl.learning.search import Criterion, Search, good_start
from visionkl.solvers.metrics import check_positive

Vector = npt.NDArray[np.float64]

#: Up to so many samples, one held-out part of them is too few to judge many σ's by.
_FEW_SAMPLES = 20_000

# What scikit-learn's check of data is told.
_ACCEPTED: dict[str, Any] = {"dtype": [np.float64, np.float32], "order": "C"}


class WidthLearner(BaseEstimator):
    """Base of the estimators: everything but the kernel's own equations and what targets mean."""

    sigma: Sigma | None
    learn: str
    blocks: Sequence[int] | None
    criterion: str
    validation_fraction: float
    n_folds: int | str
    regularisation: float | str
    penalty: float
    penalty_norm: str
    max_iter: int
    tol: float
    callback: Callable[[int, float], object] | None
    warm_start: bool
    random_state: Any
    n_jobs: int | None

    _targets: Callable[[npt.NDArray[Any]], tuple[Matrix, npt.NDArray[np.intp]]]
    _numeric_targets: bool
    _judge: Arrange

    def fit(
        self, X: npt.ArrayLike, y: npt.ArrayLike, *, validation: tuple[Any, Any] | None = None
    ) -> WidthLearner:
        """Learn σ and the weights.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)
        y : array_like, shape (n_samples,), or (n_samples, n_outputs) for a regressor
        validation : tuple of X and y, optional
            The part on which σ is judged, instead of `validation_fraction` of X; with the validation
            criterion only. The weights are fitted to X and to this part, in the end.

        Returns
        -------
        self
        """
        device = device_for(self, X)
        seed = self._check_parameters(validation is not None)
        rows, wanted, strata = self._read(X, y, validation)
        n_given = len(rows) if validation is None else len(validation[1])
        self._check_rows(rows)
        n_folds = 1 if validation is not None else self._count_folds(len(rows))
        in_turn = n_folds > 1
        if in_turn:
            chosen = _folds(strata, n_folds, seed)
        else:
            split = self._split(len(rows), n_given, validation is not None, strata, seed)
            chosen = [part for part in split if len(part)]
        learned = np.sort(np.concatenate(chosen)) if in_turn else chosen[0]
        sigma, groups, strength = self._start(rows[learned], wanted[learned], seed)
        self._prepare(rows, seed)
        inputs = [device.hold(self._inputs(rows[part])) for part in chosen]
        outputs = [wanted[part] for part in chosen]
        mean = wanted[learned].mean(axis=0, dtype=np.float64)
        parts = [_centred(*pair, mean, device) for pair in zip(inputs, outputs, strict=True)]
        auto = self.regularisation == "auto"
        search = Search(
            float(self.penalty),
            self.penalty_norm,
            auto and self.criterion == "validation",
            10 * len(rows) * float(np.finfo(rows.dtype).eps) if auto else 0.0,
            self.max_iter,
            float(self.tol),
            self.callback,
        )
        if search.learn_strength and not self._goes_on(sigma):
            strength = max(strength, search.least_strength)
            strength = self._best_strength(parts, in_turn, sigma[groups], strength)
        found = search.run(self._criterion(parts, in_turn), sigma, groups, strength)
        mean = wanted.mean(axis=0, dtype=np.float64)
        parts = [_centred(*pair, mean, device) for pair in zip(inputs, outputs, strict=True)]
        self.sigma_, self.regularisation_ = found.sigma, found.strength
        self.criterion_path_, self.n_iter_ = found.path, found.n_iter
        self.intercept_ = mean
        self._fit_weights(rows, parts)
        return self

    def _check_rows(self, rows: Matrix) -> None:
        """Refuse rows that the kernel cannot take."""

    def _default_sigma(self, rows: Matrix) -> Sigma:
        raise NotImplementedError

    def _kernel_with(self, sigma: Vector, rows: Matrix) -> Kernel:
        """Make the exact kernel with σ of each feature; of the rows, only the shape matters."""
        raise NotImplementedError

    def _prepare(self, rows: Matrix, seed: int) -> None:
        """Make what stays the same for all σ."""

    def _inputs(self, rows: Matrix) -> Matrix:
        """Return what the kernel sees of rows, where they lie."""
        return rows

    def _best_strength(self, parts: Sequence[Part], in_turn: bool, sigma: Vector, strength: float) -> float:
        """Return a better λ to start with than one that suits the exact kernel of some rows, if there is."""
        return strength

    def _criterion(self, parts: Sequence[Part], in_turn: bool) -> Criterion:
        """Make the criterion: of one part; of two, the second of which is held out; or of all in turn."""
        raise NotImplementedError

    def _fit_weights(self, rows: Matrix, parts: Sequence[Part]) -> None:
        """Fit the weights to all parts with `sigma_` and `regularisation_`; `parts` are made of the rows."""
        raise NotImplementedError

    def _predict_centred(self, rows: Matrix) -> Matrix:
        """Return predictions without the intercept, shape (n_samples, n_outputs)."""
        raise NotImplementedError

    def _check_parameters(self, has_validation: bool) -> int:
        """Check what all such estimators have, and return the seed."""
        owner = type(self).__name__
        check_choice(owner, "learn", self.learn, ("all", "blocks", "features"))
        if (self.blocks is not None) != (self.learn == "blocks"):
            accepted = "the lengths of the blocks" if self.learn == "blocks" else "None unless learn='blocks'"
            raise parameter_error(owner, "blocks", accepted, self.blocks)
        check_choice(owner, "criterion", self.criterion, ("validation", "training"))
        if has_validation and self.criterion == "training":
            raise UsageError(f"{owner}: 'validation' is given, but criterion='training' does not look at it.")
        check_number(owner, "validation_fraction", self.validation_fraction, low=0, high=1)
        if self.n_folds != "auto":
            check_number(owner, "n_folds", self.n_folds, low=1, integer=True)
        if self.regularisation != "auto":
            check_positive(owner, "regularisation", self.regularisation)
        check_number(owner, "penalty", self.penalty, low=0)
        check_choice(owner, "penalty_norm", self.penalty_norm, ("l2", "l1"))
        check_number(owner, "max_iter", self.max_iter, low=0, integer=True)
        check_number(owner, "tol", self.tol, low=0)
        if self.n_jobs is not None:
            check_number(owner, "n_jobs", self.n_jobs, low=1, integer=True)
        return seed_of(self.random_state)

    def _read(self, X: Any, y: Any, validation: Any) -> tuple[Matrix, Matrix, npt.NDArray[np.intp]]:
        """Return rows, targets, and the stratum of each row; those of validation come last."""
        options = {"multi_output": self._numeric_targets, "y_numeric": self._numeric_targets}
        rows, labels = validate_data(
            self, to_host(X), to_host(y), ensure_min_samples=2, **options, **_ACCEPTED
        )
        if validation is not None:
            try:
                X_held, y_held = validation
            except (TypeError, ValueError):
                raise parameter_error(
                    f"{type(self).__name__}.fit", "validation", "a pair of X and y", type(validation).__name__
                ) from None
            more, others = validate_data(
                self, to_host(X_held), to_host(y_held), reset=False, **options, **_ACCEPTED
            )
            if others.shape[1:] != labels.shape[1:]:
                raise DataError(
                    f"{type(self).__name__}: y has the shape {labels.shape}, but that of 'validation' has "
                    f"{others.shape}; give the same outputs."
                )
            rows = np.concatenate([rows, more.astype(rows.dtype, copy=False)])
            labels = np.concatenate([labels, others])
        targets, strata = self._targets(labels)
        return rows, targets, strata

    def _count_folds(self, n: int) -> int:
        """Return how many parts of n samples are held out in turn; 1 for one part, or none."""
        if self.criterion == "training":
            return 1
        wanted = (5 if n <= _FEW_SAMPLES else 1) if self.n_folds == "auto" else int(self.n_folds)
        return max(1, min(wanted, n // 2))

    def _split(
        self, n: int, n_held: int, given: bool, strata: npt.NDArray[np.intp], seed: int
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return the rows to learn from, and those held out: some of each class, but never all of one."""
        everything = np.arange(n)
        if self.criterion == "training":
            return everything, everything[:0]
        if given:
            return everything[: n - n_held], everything[n - n_held :]
        shuffled = stream(seed, "held-out samples").permutation(n)
        ordered = shuffled[np.argsort(strata[shuffled], kind="stable")]
        first_of_class = np.diff(strata[ordered], prepend=-1) > 0
        candidates = ordered[~first_of_class]
        n_held = min(max(1, round(self.validation_fraction * n)), len(candidates))
        if not n_held:
            raise DataError(
                f"{type(self).__name__}: no class has two samples, so that none can be held out; give more "
                "samples, or 'validation', or take criterion='training'."
            )
        held = candidates[np.linspace(0, len(candidates) - 1, n_held).astype(np.intp)]
        return np.setdiff1d(everything, held), np.sort(held)

    def _goes_on(self, start: Vector) -> bool:
        """Whether the search goes on where the last one ended."""
        return self.warm_start and hasattr(self, "sigma_") and self.sigma_.shape == start.shape

    def _start(self, rows: Matrix, targets: Matrix, seed: int) -> tuple[Vector, npt.NDArray[np.intp], float]:
        """Return σ of each group, the group of each feature, and λ, from which the search starts."""
        owner, n_features = type(self).__name__, rows.shape[1]
        sigma = self._default_sigma(rows) if self.sigma is None else self.sigma
        if self.learn == "all" and np.ndim(sigma):
            raise parameter_error(owner, "sigma", "a number if learn='all'", f"{np.size(sigma)} numbers")
        if self.learn == "features" and not np.ndim(sigma):
            sigma = np.full(n_features, sigma)
        start, groups = feature_groups(owner, sigma, self.blocks, n_features)
        if not (start >= 0).all() or not start.any():
            raise parameter_error(owner, "sigma", "0 or more, and not 0 throughout", self.sigma)
        if self._goes_on(start):
            number, strength, start = 1.0, self.regularisation_, self.sigma_.copy()
        elif self.regularisation != "auto" and self.sigma is not None:
            number, strength = 1.0, 1.0
        else:
            number, strength = good_start(
                lambda number: self._kernel_with(number * start[groups], rows),
                self.sigma is None,
                rows,
                targets,
                stream(seed, "rows of the start"),
                self.n_jobs,
            )
        return (
            number * start,
            groups,
            strength if self.regularisation == "auto" else float(self.regularisation),
        )

    def _outputs(self, X: npt.ArrayLike) -> Matrix:
        """Return the predictions, shape (n_samples, n_outputs), as a NumPy array."""
        check_is_fitted(self)
        rows = validated_rows(self, X, **_ACCEPTED)
        self._check_rows(rows)
        return (self._predict_centred(rows) + self.intercept_).astype(rows.dtype, copy=False)


class Values(RegressorMixin):
    """Targets that are numbers, of one output or of several."""

    _numeric_targets = True
    _judge = staticmethod(take_off_targets)

    def predict(self, X: npt.ArrayLike) -> Matrix:
        """Return values, shape (n_samples,) or (n_samples, n_outputs), as y was.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)
            If it lies on a GPU, the values do, too.
        """
        values = device_of(X).put(self._outputs(X))
        return values[:, 0] if self._flat else values

    def _targets(self, y: npt.NDArray[Any]) -> tuple[Matrix, npt.NDArray[np.intp]]:
        self._flat = y.ndim == 1
        return y.reshape(len(y), -1).astype(np.float64), np.zeros(len(y), np.intp)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class Classes(ClassifierMixin):
    """Targets that are classes: ±1 for the second of two, or for each of more against the rest."""

    _numeric_targets = False
    _judge = staticmethod(take_off_exceeded_targets)
    _flat = False

    def decision_function(self, X: npt.ArrayLike) -> Matrix:
        """Return scores: `(n_samples,)` for two classes, `(n_samples, n_classes)` for more.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)
            If it lies on a GPU, the scores do, too.
        """
        scores = device_of(X).put(self._outputs(X))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the class with the highest score for each sample, as a NumPy array.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)
        """
        scores = self._outputs(X)
        return self.classes_[winners(scores)]

    def _targets(self, y: npt.NDArray[Any]) -> tuple[Matrix, npt.NDArray[np.intp]]:
        self.classes_, numbers = numbered(type(self).__name__, y)
        positive = numbers[:, None] == np.array(positive_classes(self.classes_))
        return np.where(positive, np.int8(1), np.int8(-1)), numbers


def _folds(strata: npt.NDArray[np.intp], n_folds: int, seed: int) -> list[npt.NDArray[np.intp]]:
    """Deal samples out to parts, those of each class evenly."""
    shuffled = stream(seed, "held-out samples").permutation(len(strata))
    ordered = shuffled[np.argsort(strata[shuffled], kind="stable")]
    return [np.sort(ordered[first::n_folds]) for first in range(n_folds)]


def _centred(inputs: Matrix, targets: Matrix, mean: Matrix, device: Device) -> Part:
    """Take the mean off in float64, whatever the precision of what comes out."""
    centred = np.empty(targets.shape, inputs.dtype)
    np.subtract(targets, mean, out=centred, casting="same_kind")
    return Part(inputs, device.hold(centred), device)
