"""What `FourierMKLClassifier` and `FourierMKLRegressor` have in common (METHODS §7)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from visionkl.backend.dispatch import choose_device, device_for
from visionkl.core.rng import seed_of, stream
from visionkl.core.validation import check_choice, check_number, parameter_error
from visionkl.kernels.base import check_above
from visionkl.kernels.fourier import FourierMap
from visionkl.learning.channel_features import ChannelFeatures
from visionkl.learning.channels import ChannelEstimator
from visionkl.learning.joint import Objective, Weights, fit_jointly
from visionkl.solvers.penalties import PENALTIES, Groups
from visionkl.solvers.proximal import Solution
from visionkl.solvers.scalar import SmoothLoss

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]

# Features kept in memory by losses that pass over them often; those beyond are made again in each pass.
_BYTES_OF_FEATURES = 1 << 30


class FourierMKL(ChannelEstimator):
    """Base of the two estimators: everything but what labels mean."""

    loss: str
    penalty: str
    regularisation: float | None
    share: float
    kernel: str | Sequence[str]
    n_components: int | Sequence[int]
    sigma: Any
    c: float
    frequencies: str
    learn_sigma: bool
    per_feature: bool
    sigma_penalty: str
    sigma_regularisation: float
    sigma_iter: int
    fit_intercept: bool
    tol: float
    max_iter: int
    random_state: Any
    n_jobs: int | None
    device: str

    _losses: tuple[str, ...]

    def fit(self, X: Any, y: npt.ArrayLike) -> Any:
        """Learn.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features), or list of such
            A list of matrices has one for each channel, with a row for each sample. They may lie on a GPU.
        y : array_like, shape (n_samples,)
            For the regressor also `(n_samples, n_outputs)`.

        Returns
        -------
        self
        """
        self._fit_together([self], X, y)
        return self

    def fit_path(self, X: Any, y: npt.ArrayLike, lambdas: Sequence[float] | None = None) -> list[Any]:
        """Learn with several values of λ on the same data, each starting from the stronger one before.

        Parameters
        ----------
        X, y
            As in `fit`.
        lambdas : sequence of float, optional
            In any order. By default 20 between λ_max, at which all weights are zero, and a thousandth of it.

        Returns
        -------
        list
            A fitted estimator like this one for each λ, in their order; from strong to weak by default.
        """
        if lambdas is not None and not len(lambdas):
            raise parameter_error(
                type(self).__name__ + ".fit_path", "lambdas", "a list of numbers > 0", lambdas
            )
        shares = np.geomspace(1, 1e-3, 20)
        models = (
            [clone(self).set_params(regularisation=None, share=float(share)) for share in shares]
            if lambdas is None
            else [clone(self).set_params(regularisation=value) for value in lambdas]
        )
        models[0]._fit_together(models, X, y)
        return models

    def _fit_together(self, models: Sequence[FourierMKL], X: Any, y: npt.ArrayLike) -> None:
        """Fit this estimator and copies of it that differ in λ."""
        self._check_parameters()
        parts, y = self._read_training(X, y)
        device = device_for(self, *parts)
        targets = self._targets(y)
        maps = self._fit_maps(parts)
        features = ChannelFeatures(
            parts,
            maps,
            keep=0 if self.loss == "squared" else _BYTES_OF_FEATURES,
            intercept=self.fit_intercept,
            n_jobs=self.n_jobs,
            device=device,
        )
        penalty = PENALTIES[self.penalty](features.groups)
        goal = Objective(self._make_loss(targets), penalty, self.tol, self.max_iter, targets.shape[1])
        weights = Weights(goal, features)
        strongest = weights.strongest()
        strengths = [model._strengths(strongest) for model in models]
        start = None
        for number in sorted(range(len(models)), key=lambda k: -strengths[k].max()):
            model, strength = models[number], strengths[number]
            if self.learn_sigma:
                found = fit_jointly(
                    weights,
                    strength,
                    eta=self.sigma_penalty,
                    mu=float(self.sigma_regularisation),
                    max_iter=self.sigma_iter,
                )
                solution, sigmas, model.objectives_ = (
                    found.solution,
                    found.features.sigmas(),
                    found.objectives,
                )
            else:
                solution = weights.solve(strength, start)
                start, sigmas, model.objectives_ = solution.weights, features.sigmas(), []
                model.objectives_.append(float(solution.objective.sum()))
            for name in ("n_features_in_", "feature_names_in_", "classes_", "_widths", "_flat"):
                if hasattr(self, name):
                    setattr(model, name, getattr(self, name))
            model.lambda_max_, model.lambda_ = strongest, strength
            model._adopt(maps, sigmas, solution, features.groups, weights.scale)

    def _adopt(
        self,
        maps: Sequence[FourierMap],
        sigmas: Sequence[Vector],
        solution: Solution,
        groups: Sequence[slice],
        scale: Vector,
    ) -> None:
        """Make the learned attributes."""
        self.maps_ = list(maps)
        self.sigma_ = [sigma.copy() for sigma in sigmas]
        dtype = maps[0].basis_.frequencies.dtype
        norms = Groups(groups).norms(solution.weights).T / np.sqrt(2)
        self.coef_ = solution.weights.T.astype(dtype)
        self.intercept_ = solution.intercept.astype(dtype)
        self.kernel_weights_ = norms[0] if self._single else norms
        self.gap_ = solution.gap / np.where(scale > 0, scale, 1)
        self.n_iter_ = max(1, solution.n_iter)
        if (self.gap_ > max(self.tol, 1e-9)).any():
            warnings.warn(
                f"{type(self).__name__} stopped after {self.n_iter_} rounds at a duality gap of "
                f"{np.max(self.gap_):.2g}, above 'tol' = {self.tol:g}; raise 'max_iter', 'tol' or λ.",
                ConvergenceWarning,
                stacklevel=4,
            )

    @property
    def _single(self) -> bool:
        """Whether there is one output only."""
        return len(self.coef_) == 1

    def _targets(self, y: Any) -> Vector:
        """Return the targets `(n_samples, n_outputs)`."""
        raise NotImplementedError

    def _make_loss(self, targets: Vector) -> SmoothLoss:
        raise NotImplementedError

    def _strengths(self, strongest: Vector) -> Vector:
        """λ of each output."""
        owner = type(self).__name__
        if self.regularisation is None:
            check_number(owner, "share", self.share, low=0)
            if self.share > 0:
                # A target that is constant has a λ_max of 0; any λ does.
                return self.share * np.where(strongest > 0, strongest, 1.0)
            raise parameter_error(owner, "share", "a number > 0", self.share)
        if check_number(owner, "regularisation", self.regularisation, low=0) == 0:
            raise parameter_error(owner, "regularisation", "None or a number > 0", self.regularisation)
        return np.full(len(strongest), float(self.regularisation))

    def _check_parameters(self) -> None:
        owner = type(self).__name__
        check_choice(owner, "loss", self.loss, self._losses)
        check_choice(owner, "penalty", self.penalty, tuple(PENALTIES))
        check_choice(owner, "sigma_penalty", self.sigma_penalty, ("l2", "l1"))
        check_number(owner, "sigma_regularisation", self.sigma_regularisation, low=0)
        check_number(owner, "sigma_iter", self.sigma_iter, low=1, integer=True)
        check_number(owner, "tol", self.tol, low=0)
        check_number(owner, "max_iter", self.max_iter, low=1, integer=True)
        if self.n_jobs is not None:
            check_number(owner, "n_jobs", self.n_jobs, low=1, integer=True)
        choose_device(self.device, owner)

    def _fit_maps(self, parts: Sequence[Matrix]) -> list[FourierMap]:
        """Draw the frequencies of each channel."""
        r = len(parts)
        kernels = self._one_each("kernel", self.kernel, r)
        counts = self._one_each("n_components", self.n_components, r)
        sigmas = self._one_each("sigma", self.sigma, r)
        seed = seed_of(self.random_state)
        maps = []
        for k, part in enumerate(parts):
            fourier = FourierMap(
                kernels[k],
                n_components=counts[k],
                sigma=sigmas[k],
                c=self.c,
                frequencies=self.frequencies,
                random_state=int(stream(seed, "channel", k).integers(2**31)),
                n_jobs=self.n_jobs,
            ).fit(part)
            if self.per_feature and len(fourier.sigma_) == 1:
                spread = np.full(part.shape[1], fourier.sigma_[0])
                fourier = fourier.set_params(sigma=spread).fit(part)
            maps.append(fourier)
        return maps

    def _scores(self, X: Any) -> Matrix:
        """Scores `(n_samples, n_outputs)` of new samples, in the precision of the data, as a NumPy array."""
        parts = self._read_new(X)
        for number, (part, fourier) in enumerate(zip(parts, self.maps_, strict=True)):
            if fourier.kernel != "gaussian":
                check_above(f"{type(self).__name__}, channel {number}", part, -fourier.c)
        features = ChannelFeatures(
            parts,
            self.maps_,
            sigma=np.concatenate(self.sigma_),
            n_jobs=self.n_jobs,
            device=device_for(self, *parts),
        )
        return (features.scores(self.coef_.T) + self.intercept_).astype(features.dtype)
