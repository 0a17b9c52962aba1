"""Single kernel learning with random Fourier features, RFF-SKL (METHODS §3).

Fundamentals
------------
`FourierKernelRegressor` and `FourierKernelClassifier` are ridge regressions on the features of a `FourierMap`
that learn the map's σ together with their weights: one σ for all features, one for each block, or one for
each feature, which may be thousands. A small σ means that a feature, or a block, matters little.

σ goes down one of two criteria, plus a penalty ρ ‖σ‖² or ρ ‖σ‖₁:

* `"validation"`: the squared error ‖Φ_U β − v‖² on samples that were held out. It does not reward
  overfitting, and learns the ridge's λ as well. Up to 20 000 samples, five parts are held out in turn and all
  samples judge (`visionkl.learning.cross_ridge`): hundreds of σ's come to suit a single part of few.
* `"training"`: ½ ‖Φβ − y‖² + λ ‖β‖² on all samples. It needs no held-out samples, but with many σ's it fits
  noise, and λ stays where it starts.

After the search the weights are fitted to all samples, held out or not, with the σ and λ found.

Classes are learned as ±1 against the rest, all with the same σ. The mean of the targets is taken off before
and is the intercept. Held-out scores beyond their target are right, and are forgiven: σ of a classifier is
judged by the squared hinge loss, while the weights are those of ridge regression.

Implementation
--------------
See `visionkl.learning.fourier_ridge` for the equations, which are streamed: time grows linearly with the
number of samples, and memory, beside the data, is that of `block_rows` × n_components, of up to half a
gigabyte of phases, and of an n_components² matrix for each part that is held out in turn.
`visionkl.learning.search` is how σ goes down.

If unsure: `learn="features"` for features that mean different things, some of which may mean nothing, and at
least ten samples for each; `learn="blocks"` for channels; `learn="all"` for few samples. As many components
as time allows: it grows with their square. The frequencies of the skewed intersection kernel have no mean:
some are so large that the criterion is rough, and its σ's are better few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import Device, device_for
from visionkl.core.validation import check_number
from visionkl.kernels.base import Kernel, Matrix, check_above
from visionkl.kernels.exact import Gaussian, SkewedChi2
from visionkl.kernels.fourier import FourierMap
from visionkl.kernels.sigma import Sigma
from visionkl.learning.cross_ridge import CrossValidation
from visionkl.learning.fourier_ridge import FourierRidge, Part
from visionkl.learning.search import Criterion
from visionkl.learning.widths import Classes, Values, WidthLearner

Vector = npt.NDArray[np.float64]

#: Powers of ten by which λ is raised to find its start.
_STRONGER = (0, 1, 2, 3, 4)


class _FourierKernel(WidthLearner):
    """What the regressor and the classifier share."""

    def __init__(
        self,
        kernel: str = "gaussian",
        *,
        n_components: int = 1000,
        sigma: Sigma | None = None,
        learn: str = "features",
        blocks: Sequence[int] | None = None,
        criterion: str = "validation",
        validation_fraction: float = 0.2,
        n_folds: int | str = "auto",
        regularisation: float | str = "auto",
        penalty: float = 0.0,
        penalty_norm: str = "l2",
        c: float = 1.0,
        frequencies: str = "iid",
        max_iter: int = 50,
        tol: float = 1e-4,
        callback: Callable[[int, float], object] | None = None,
        warm_start: bool = False,
        block_rows: int = 2048,
        random_state: Any = 0,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.sigma = sigma
        self.learn = learn
        self.blocks = blocks
        self.criterion = criterion
        self.validation_fraction = validation_fraction
        self.n_folds = n_folds
        self.regularisation = regularisation
        self.penalty = penalty
        self.penalty_norm = penalty_norm
        self.c = c
        self.frequencies = frequencies
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.warm_start = warm_start
        self.block_rows = block_rows
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    @property
    def kernel_(self) -> Kernel:
        """The kernel that was learned."""
        return self.map_.kernel_

    def _check_parameters(self, has_validation: bool) -> int:
        owner = type(self).__name__
        self._map(1.0, 0)._check_parameters()
        check_number(owner, "block_rows", self.block_rows, low=1, integer=True)
        return super()._check_parameters(has_validation)

    def _check_rows(self, rows: Matrix) -> None:
        if self.kernel != "gaussian":
            check_above(type(self).__name__, rows, -self.c)

    def _map(self, sigma: Sigma, seed: int) -> FourierMap:
        return FourierMap(
            self.kernel,
            n_components=self.n_components,
            sigma=sigma,
            c=self.c,
            blocks=self.blocks,
            frequencies=self.frequencies,
            random_state=seed,
            n_jobs=self.n_jobs,
        )

    def _default_sigma(self, rows: Matrix) -> Sigma:
        return Gaussian.of(rows).sigma if self.kernel == "gaussian" else SkewedChi2.sigma

    def _kernel_with(self, sigma: Vector, rows: Matrix) -> Kernel:
        few_waves = FourierMap(self.kernel, n_components=1, sigma=sigma, c=self.c)
        return few_waves.fit(rows[:1]).kernel_

    def _prepare(self, rows: Matrix, seed: int) -> None:
        # Frequencies depend on the seed and on the number of features; σ comes later.
        self.map_ = self._map(1.0, seed).fit(rows[:1])

    def _inputs(self, rows: Matrix) -> Matrix:
        return self.map_.basis_.inputs(rows)

    def _best_strength(self, parts: Sequence[Part], in_turn: bool, sigma: Vector, strength: float) -> float:
        # Few waves need a stronger ridge than the exact kernel.
        strengths = [strength * 10**power for power in _STRONGER]
        if in_turn:
            return CrossValidation(self._ridge(parts[0].device), parts).best_strength(sigma, strengths)
        train, held_out = parts
        return self._ridge(train.device).best_strength(train, held_out, sigma, strengths)

    def _criterion(self, parts: Sequence[Part], in_turn: bool) -> Criterion:
        ridge = self._ridge(parts[0].device)
        if in_turn:
            return CrossValidation(ridge, parts).criterion
        return partial(ridge.criterion, parts[0], parts[1] if len(parts) > 1 else None)

    def _fit_weights(self, rows: Matrix, parts: Sequence[Part]) -> None:
        sigma = float(self.sigma_[0]) if self.learn == "all" else self.sigma_
        self.map_.set_params(sigma=sigma).fit(rows[:1])
        ridge = self._ridge(parts[0].device)
        projection = ridge.projection(self._sigma_of_features(), rows.dtype)
        beta = ridge.solve(parts, projection, self.regularisation_)[1]
        self.coef_ = np.ascontiguousarray(beta[:, 0] if self._flat else beta.T, dtype=rows.dtype)

    def _predict_centred(self, rows: Matrix) -> Matrix:
        device, weights = device_for(self, rows), np.atleast_2d(self.coef_).T
        with device.use():
            inputs = self._inputs(rows)
        return self._ridge(device).predict(inputs, self._sigma_of_features(), weights)

    def _sigma_of_features(self) -> Vector:
        return self.map_.sigma_[self.map_.groups_]

    def _ridge(self, device: Device) -> FourierRidge:
        return FourierRidge(
            type(self).__name__, self.map_.basis_, self.block_rows, self.n_jobs, self._judge, device
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.kernel != "gaussian"
        return tags


class FourierKernelRegressor(Values, _FourierKernel):
    """Ridge regression on random Fourier features whose σ is learned, for one output or several.

    Parameters
    ----------
    kernel : {"gaussian", "skewed_chi2", "skewed_intersection"}
    n_components : int
        Random Fourier features.
    sigma : float or array_like of float, optional
        Where the search starts; by default at what generalised cross-validation finds best on 600 rows.
    learn : {"features", "blocks", "all"}
        Whether each feature has its σ, or each block, or all have the same.
    blocks : sequence of int, optional
        Lengths of the blocks.
    criterion : {"validation", "training"}
        What σ is to make small; see the head of this module.
    validation_fraction : float
        Share of the samples that is held out for the validation criterion.
    n_folds : int or "auto"
        Parts that are held out in turn instead, so that all samples judge; 1 for one part only. By default 5
        up to 20 000 samples, and 1 for more.
    regularisation : "auto" or float
        λ of the ridge. By default it starts at what generalised cross-validation finds best, and is learned
        as σ is, by the validation criterion.
    penalty : float
        ρ of the penalty of σ.
    penalty_norm : {"l2", "l1"}
        ρ Σ σ², or ρ Σ σ, with which σ's become exactly 0.
    c : float
        Of the skewed kernels: numbers must be above −c.
    frequencies : {"iid", "orthogonal", "quasi"}
        As in `FourierMap`.
    max_iter : int
        Steps of the search; 0 leaves σ where it starts.
    tol : float
        The search ends when a step gains less than this share of the criterion at the start.
    callback : callable, optional
        Called as `callback(iteration, value)` after each step; to raise StopIteration ends the search.
    warm_start : bool
        Whether another `fit` starts at the σ and λ that were learned before.
    block_rows : int
        Rows whose features are held at a time.
    random_state : int, RandomState instance or None
        Seed of the frequencies and of the held-out samples.
    n_jobs : int, optional
        Threads; all usable cores by default. The result does not depend on it.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "auto": where rows are mapped, summed up and predicted, and the
        slopes by σ made. The start, the solving of equations and the steps of the search are the CPU's. Rows
        that lie on a GPU are gone over there anyway.

    Attributes
    ----------
    sigma_ : ndarray of float64, shape (n_groups,)
        One for all, for each block, or for each feature.
    regularisation_ : float
        λ.
    coef_ : ndarray of float, shape (n_components,) or (n_outputs, n_components)
        Weights of the Fourier features, fitted to all samples; float32 if X was.
    intercept_ : ndarray of float64, shape (n_outputs,)
        Mean of the targets.
    criterion_path_ : ndarray of float64, shape (n_iter_ + 1,)
        The criterion with its penalty at the start and after each step; it never rises.
    n_iter_ : int
    map_ : FourierMap
        With the σ that was learned.
    kernel_ : Kernel
        What the map comes near.
    n_features_in_ : int

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(-2, 2, size=(400, 3))
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * random.normal(size=400)  # the other features are noise
    >>> model = FourierKernelRegressor(n_components=500).fit(X, y)
    >>> bool(model.sigma_[0] > 5 * model.sigma_[1:].max())
    True
    """

    coef_: Matrix


class FourierKernelClassifier(Classes, _FourierKernel):
    """Classification by ridge regression on random Fourier features whose σ is learned.

    Parameters
    ----------
    kernel, n_components, sigma, learn, blocks, criterion, validation_fraction, n_folds, regularisation, \
    penalty, penalty_norm, c, frequencies, max_iter, tol, callback, warm_start, block_rows, random_state, \
    n_jobs, device
        As in `FourierKernelRegressor`. Of each class with two samples or more, some are held out, and never
        all.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    coef_ : ndarray of float, shape (1 or n_classes, n_components)
        Weights of the Fourier features, one row for two classes.
    intercept_ : ndarray of float64, shape (1 or n_classes,)
    sigma_, regularisation_, criterion_path_, n_iter_, map_, kernel_, n_features_in_
        As in `FourierKernelRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = FourierKernelClassifier(n_components=300, max_iter=5).fit(X[:1000], y[:1000])
    >>> bool(model.score(X[1000:], y[1000:]) > 0.9)
    True
    """

    coef_: Matrix
