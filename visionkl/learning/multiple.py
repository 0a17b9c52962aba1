"""Multiple kernel learning in the Fourier domain: RFF-MKL, and its joint models (METHODS §7).

Fundamentals
------------
Samples are described by r channels (colours, gradients, words, ...). Each has a kernel, and a random Fourier
map ψ_j that comes near it (`visionkl.kernels.fourier`). `FourierMKLClassifier` and `FourierMKLRegressor`
minimise

    (1/n) Σ_i loss(Σ_j ψ_j(x_i) · w_j + b, y_i)  +  λ ν(w),

for each class against the rest, or for each target, over w and b:

* **ν = "l21"**, Σ_j ‖w_j‖₂, is multiple kernel learning. It equals l1-regularised GMKL
  (`visionkl.learning.gmkl`), min over d ≥ 0 of ½ Σ_j ‖w_j‖² / d_j + C · loss + Σ_j d_j, with λ = √2 / C: the
  best d_j is ‖w_j‖ / √2, the **weight of the kernel**, and is put back into the objective. `kernel_weights_`
  holds d, which is zero for channels that do not help. Time and memory grow linearly with n, where matrices
  of kernels need n².
* **ν = "l2"**, ½ ‖w‖², is ridge regression with the sum of the kernels; all channels stay.
* **ν = "l1"** chooses single frequencies.

Each class has groups and kernel weights of its own: what tells one class from the rest need not tell another.

**λ.** For the norms, everything is zero from λ_max on, which is known beforehand; by default λ is a `share`
of it, for each class of its own. For l2 the share is of the loss's average curvature along a feature.
`fit_path` learns for many values of λ at little more than the cost of one.

**σ** may be learned together with w (`learn_sigma=True`): one for each channel, or for each of its features
(`per_feature=True`). See `visionkl.learning.joint`; λ is that of the σ to start from.

Named models
------------
The models of the published experiments are settings of these estimators, and `named_model` makes them:

========================= ============================================ =======================================
`"RFF-SQL-MKL"`           `loss="squared", penalty="l21"`              σ fixed, kernels chosen; if unsure
`"RFF-SQL-MKL-JOINT"`     the same with `learn_sigma=True`             σ learned as well: better, slower
`"RFF-SQL-SQR-MKL"`       `loss="squared", penalty="l2"`               all kernels summed, none chosen
`"RFF-SQL-SKL"`           the same with one channel, all columns       one kernel of everything: fastest
`"RFF-SQL-SKL-JOINT"`     that with `learn_sigma`, `per_feature`       its σ learned, one for each feature
========================= ============================================ =======================================

The paper compares the MKL models with single ones on 1000 classes of ILSVRC2011 with three channels: 18.5 %
for SQL-MKL, 12.3 % for SQL-SQR-MKL and 10 % for SQL-SKL.

Implementation
--------------
With the squared loss the data are passed over once, for the Gram matrix of the features, and all classes and
values of λ share it; other losses use the same matrix as the metric of their steps. So time is that of
n · d² multiplications for d features in all, and memory that of d² numbers: up to some ten thousand features.
See `visionkl.solvers.proximal` and `smooth` for the solvers, which stop at a relative duality gap of `tol`.

If unsure, take the defaults; scale columns alike within a channel, since its kernel looks at distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if

from visionkl.core.errors import UsageError
from visionkl.core.validation import check_choice, check_number, parameter_error
from visionkl.learning.channels import best_classes, class_signs, home_of, numeric_targets
from visionkl.learning.fourier_mkl import FourierMKL
from visionkl.solvers.scalar import GammaLogistic, Logistic, Signed, SmoothLoss, Squared, SquaredHinge

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]


class FourierMKLClassifier(ClassifierMixin, FourierMKL):
    """Multiple kernel learning of classes in the Fourier domain.

    Parameters
    ----------
    channels : sequence, optional
        Lengths of neighbouring blocks of columns, or the columns of each channel as slices or lists of
        numbers; columns that are in no channel are left out. By default all are one channel, or X is a list
        of matrices, one for each channel.
    loss : {"squared", "logistic", "squared_hinge"}
    penalty : {"l21", "l2", "l1"}
        Chooses channels, nothing, or single frequencies.
    regularisation : float, optional
        λ, the same for all classes.
    share : float
        λ as a share of λ_max, where `regularisation` is not given.
    kernel : str or sequence of str
        `"gaussian"`, `"skewed_chi2"` or `"skewed_intersection"`, for all channels or for each.
    n_components : int or sequence of int
        Frequencies of each channel.
    sigma : float or sequence, optional
        σ of all channels, or of each (a number, or one for each of its features); by default that of
        `FourierMap` for the data.
    c : float
        Of the skewed kernels: numbers must be above −c.
    frequencies : {"iid", "orthogonal", "quasi"}
        How they are drawn; see `FourierMap`.
    learn_sigma : bool
        Whether to learn σ together with the weights.
    per_feature : bool
        Whether each feature of a channel has a σ of its own.
    sigma_penalty : {"l2", "l1"}
    sigma_regularisation : float
        How much the penalty of σ counts.
    sigma_iter : int
        Steps along σ, at most.
    fit_intercept : bool
        The intercept is not regularised.
    tol : float
        Duality gap to reach, relative to the loss of the best constant.
    max_iter : int
        Rounds of the solver, at most.
    random_state : int, RandomState instance or None
        Seed of the frequencies.
    n_jobs : int, optional
        Threads; all usable cores by default. The result does not depend on it.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "auto": where features are made and multiplied, and samples
        scored. Solvers, which work on sums over the samples, are the CPU's. Samples that lie on a GPU are
        gone over there anyway.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    kernel_weights_ : ndarray of float64, shape (n_channels,), or (n_classes, n_channels) for more than two
        d_j = ‖w_j‖ / √2.
    coef_ : ndarray of float, shape (1 or n_classes, n_components of all channels)
    intercept_ : ndarray of float, shape (1 or n_classes,)
    sigma_ : list of ndarray of float64
        σ's of each channel.
    maps_ : list of FourierMap
        Of each channel, with the σ to start from; map with `maps_[j].transform_with(X_j, sigma_[j])`.
    lambda_, lambda_max_, gap_ : ndarray of float64, shape (1 or n_classes,)
        λ, the λ from which on all is zero, and the relative duality gap that was reached.
    objectives_ : list of float
        The objective, summed over the classes; with `learn_sigma` after each step.
    n_iter_ : int
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> X = np.hstack([X / 16, np.random.default_rng(0).random((len(X), 20))])    # and a useless channel
    >>> model = FourierMKLClassifier(channels=[64, 20], share=0.3).fit(X[:1000], y[:1000])
    >>> bool(model.score(X[1000:], y[1000:]) > 0.8), bool(model.kernel_weights_[:, 1].max() == 0)
    (True, True)
    """

    _losses = ("squared", "logistic", "squared_hinge")

    def __init__(
        self,
        channels: Any = None,
        *,
        loss: str = "squared",
        penalty: str = "l21",
        regularisation: float | None = None,
        share: float = 0.01,
        kernel: str | Sequence[str] = "gaussian",
        n_components: int | Sequence[int] = 500,
        sigma: Any = None,
        c: float = 1.0,
        frequencies: str = "iid",
        learn_sigma: bool = False,
        per_feature: bool = False,
        sigma_penalty: str = "l2",
        sigma_regularisation: float = 0.0,
        sigma_iter: int = 20,
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 5000,
        random_state: Any = 0,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.channels = channels
        self.loss = loss
        self.penalty = penalty
        self.regularisation = regularisation
        self.share = share
        self.kernel = kernel
        self.n_components = n_components
        self.sigma = sigma
        self.c = c
        self.frequencies = frequencies
        self.learn_sigma = learn_sigma
        self.per_feature = per_feature
        self.sigma_penalty = sigma_penalty
        self.sigma_regularisation = sigma_regularisation
        self.sigma_iter = sigma_iter
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def decision_function(self, X: Any) -> Matrix:
        """Return scores: `(n_samples,)` for two classes, `(n_samples, n_classes)` for more.

        Parameters
        ----------
        X : array_like of float, or list of such
            As in `fit`. If it lies on a GPU, the scores do, too.
        """
        scores = home_of(X).put(self._scores(X))
        return scores[:, 0] if self._single else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class with the highest score for each sample, as a NumPy array.

        Parameters
        ----------
        X : array_like of float, or list of such
            As in `fit`.
        """
        scores = self._scores(X)
        return best_classes(self.classes_, scores)

    @available_if(lambda self: self.loss == "logistic")
    def predict_proba(self, X: Any) -> Matrix:
        """Return the probability of each class, `(n_samples, n_classes)`; with the logistic loss only.

        Parameters
        ----------
        X : array_like of float, or list of such
            As in `fit`.
        """
        chances = expit(self._scores(X))
        if self._single:
            return np.hstack([1 - chances, chances])
        return chances / chances.sum(axis=1, keepdims=True)

    def _targets(self, y: npt.NDArray[Any]) -> Vector:
        self.classes_, signs = class_signs("FourierMKLClassifier", y)
        return signs

    def _make_loss(self, targets: Vector) -> SmoothLoss:
        if self.loss == "squared":
            return Squared(targets)
        return Signed(Logistic() if self.loss == "logistic" else SquaredHinge(), targets)


class FourierMKLRegressor(RegressorMixin, FourierMKL):
    """Multiple kernel learning of numbers in the Fourier domain.

    Parameters
    ----------
    loss : {"squared", "gamma_logistic"}
        The second is a smooth tube; see `visionkl.solvers.scalar`.
    epsilon : float
        Half the width of the tube.
    gamma : float
        How sharp its borders are.
    channels, penalty, regularisation, share, kernel, n_components, sigma, c, frequencies
        As in `FourierMKLClassifier`.
    learn_sigma, per_feature, sigma_penalty, sigma_regularisation, sigma_iter
        As in `FourierMKLClassifier`.
    fit_intercept, tol, max_iter, random_state, n_jobs, device
        As in `FourierMKLClassifier`.

    Attributes
    ----------
    kernel_weights_ : ndarray of float64, shape (n_channels,), or (n_outputs, n_channels) for several targets
        d_j = ‖w_j‖ / √2.
    coef_, intercept_, sigma_, maps_, lambda_, lambda_max_, gap_, objectives_, n_iter_, n_features_in_
        As in `FourierMKLClassifier`, with an output for each target.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 6))
    >>> model = FourierMKLRegressor(channels=[2, 2, 2], share=0.1).fit(X, np.sin(X[:, 2] + X[:, 3]))
    >>> (model.kernel_weights_ > 0).tolist()
    [False, True, False]
    """

    _losses = ("squared", "gamma_logistic")

    def __init__(
        self,
        channels: Any = None,
        *,
        loss: str = "squared",
        penalty: str = "l21",
        regularisation: float | None = None,
        share: float = 0.01,
        epsilon: float = 0.1,
        gamma: float = 10.0,
        kernel: str | Sequence[str] = "gaussian",
        n_components: int | Sequence[int] = 500,
        sigma: Any = None,
        c: float = 1.0,
        frequencies: str = "iid",
        learn_sigma: bool = False,
        per_feature: bool = False,
        sigma_penalty: str = "l2",
        sigma_regularisation: float = 0.0,
        sigma_iter: int = 20,
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 5000,
        random_state: Any = 0,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.channels = channels
        self.loss = loss
        self.penalty = penalty
        self.regularisation = regularisation
        self.share = share
        self.epsilon = epsilon
        self.gamma = gamma
        self.kernel = kernel
        self.n_components = n_components
        self.sigma = sigma
        self.c = c
        self.frequencies = frequencies
        self.learn_sigma = learn_sigma
        self.per_feature = per_feature
        self.sigma_penalty = sigma_penalty
        self.sigma_regularisation = sigma_regularisation
        self.sigma_iter = sigma_iter
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def predict(self, X: Any) -> Matrix:
        """Return the values, `(n_samples,)` or `(n_samples, n_outputs)` as y was.

        Parameters
        ----------
        X : array_like of float, or list of such
            As in `fit`. If it lies on a GPU, the values do, too.
        """
        scores = home_of(X).put(self._scores(X))
        return scores[:, 0] if self._flat else scores

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("FourierMKLRegressor", "epsilon", self.epsilon, low=0)
        check_number("FourierMKLRegressor", "gamma", self.gamma, low=1e-6)
        if self.gamma * self.epsilon > 300:
            raise UsageError(
                "FourierMKLRegressor: 'gamma' · 'epsilon' must be at most 300, where the tube is as good as "
                f"sharp. Got {self.gamma * self.epsilon:g} instead; take a smaller 'gamma'."
            )

    def _targets(self, y: npt.NDArray[Any]) -> Vector:
        targets = numeric_targets("FourierMKLRegressor", y)
        self._flat = targets.ndim == 1
        return targets[:, None] if self._flat else targets

    def _make_loss(self, targets: Vector) -> SmoothLoss:
        if self.loss == "squared":
            return Squared(targets)
        return GammaLogistic(targets, float(self.epsilon), float(self.gamma))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


#: What the named models set.
NAMED_MODELS: dict[str, dict[str, Any]] = {
    "RFF-SQL-MKL": {"penalty": "l21"},
    "RFF-SQL-MKL-JOINT": {"penalty": "l21", "learn_sigma": True},
    "RFF-SQL-SQR-MKL": {"penalty": "l2"},
    "RFF-SQL-SKL": {"penalty": "l2", "channels": None},
    "RFF-SQL-SKL-JOINT": {"penalty": "l2", "channels": None, "learn_sigma": True, "per_feature": True},
}


def named_model(
    name: str, channels: Any = None, *, regression: bool = False, **parameters: Any
) -> FourierMKLClassifier | FourierMKLRegressor:
    """Make a model of the published experiments, to be fitted; see the head of this module.

    Parameters
    ----------
    name : str
        One of `NAMED_MODELS`.
    channels : sequence, optional
        As in `FourierMKLClassifier`; the models of a single kernel take all columns as one channel.
    regression : bool
        Whether to make a `FourierMKLRegressor`.
    **parameters
        Others of the estimator, such as `share` or `n_components`.

    Examples
    --------
    >>> named_model("RFF-SQL-MKL", [64, 20], share=0.1)
    FourierMKLClassifier(channels=[64, 20], share=0.1)
    """
    check_choice("named_model", "name", name, tuple(NAMED_MODELS))
    settings = {"loss": "squared", "channels": channels, **NAMED_MODELS[name]}
    for key in parameters.keys() & settings.keys():
        raise parameter_error("named_model", key, f"left out, since {name} sets it", parameters[key])
    kind = FourierMKLRegressor if regression else FourierMKLClassifier
    return kind(**settings, **parameters)
