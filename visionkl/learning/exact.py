"""The exact baseline of kernel learning: kernel ridge regression that learns σ, KRR-GD (METHODS §3).

Fundamentals
------------
With the kernel matrix K of the training part, P = K + λI and α = P⁻¹y. The criteria are those of
`visionkl.learning.single`, without its approximation:

* validation: ‖K_U α − v‖² on a held-out part (U, v). With a = P⁻¹K_Uᵀ(K_U α − v), its slopes are
  2 (K_U α − v) αᵀ by K_U, −2 a αᵀ by K, and −2λ⟨a, α⟩ by log λ;
* training: ½ ‖Kα − y‖² + λ αᵀKα. With a = λ P⁻¹Kα = λ(α − λ P⁻¹α), its slope is −a αᵀ by K.

For the gaussian kernel ∂K/∂σ_j = −σ_j (x_j − x'_j)² K, so that with E = ∂J/∂K ⊙ K,

    ∂J/∂σ_j = −σ_j Σ_ik E_ik (x_ij − x_kj)²,

which is one matrix product for all j.

Implementation
--------------
In float64 throughout. K is held once and factored in its place; for the slopes it is computed again, in bands
of rows. Memory is 8 n² bytes, and time grows with the cube of n: this is what Fourier features avoid. Take
them from some thousand samples on, and this for fewer, or to see what the approximation costs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg

from visionkl.backend.dispatch import device_for
from visionkl.core.errors import DataError
from visionkl.core.validation import check_number
from visionkl.kernels.base import Kernel, Matrix
from visionkl.kernels.exact import Gaussian
from visionkl.kernels.sigma import Sigma
from visionkl.learning.fourier_ridge import Arrange, Part, take_off_targets
from visionkl.learning.search import Criterion, Slopes, factor
from visionkl.learning.widths import Classes, Values, WidthLearner

Vector = npt.NDArray[np.float64]

#: Numbers of a band of the kernel matrix.
_BAND_NUMBERS = 2**22


class _ExactKernel(WidthLearner):
    """What the regressor and the classifier share."""

    _instead: str

    def __init__(
        self,
        *,
        sigma: Sigma | None = None,
        learn: str = "features",
        blocks: Sequence[int] | None = None,
        criterion: str = "validation",
        validation_fraction: float = 0.2,
        n_folds: int | str = 1,
        regularisation: float | str = "auto",
        penalty: float = 0.0,
        penalty_norm: str = "l2",
        max_iter: int = 50,
        tol: float = 1e-4,
        callback: Callable[[int, float], object] | None = None,
        warm_start: bool = False,
        max_memory: int | None = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.sigma = sigma
        self.learn = learn
        self.blocks = blocks
        self.criterion = criterion
        self.validation_fraction = validation_fraction
        self.n_folds = n_folds
        self.regularisation = regularisation
        self.penalty = penalty
        self.penalty_norm = penalty_norm
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.warm_start = warm_start
        self.max_memory = max_memory
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _check_parameters(self, has_validation: bool) -> int:
        if self.max_memory is not None:
            check_number(type(self).__name__, "max_memory", self.max_memory, low=1, integer=True)
        return super()._check_parameters(has_validation)

    def _default_sigma(self, rows: Matrix) -> Sigma:
        return Gaussian.of(rows).sigma

    def _kernel_with(self, sigma: Vector, rows: Matrix) -> Kernel:
        return Gaussian(sigma)

    def _prepare(self, rows: Matrix, seed: int) -> None:
        check_memory(type(self).__name__, len(rows), 8 * len(rows) ** 2, self.max_memory, self._instead)
        # Differences are all that the kernel sees: near 0 their squares lose less.
        self._centre = rows.mean(axis=0, dtype=np.float64)

    def _inputs(self, rows: Matrix) -> Matrix:
        return rows - self._centre  # in float64

    def _criterion(self, parts: Sequence[Part], in_turn: bool) -> Criterion:
        judge = partial(gram_criterion, type(self).__name__, self.n_jobs, judge=self._judge)
        if not in_turn:
            return partial(judge, parts[0], parts[1] if len(parts) > 1 else None)

        def sum_up(sigma: Vector, strength: float) -> Slopes:
            shares = [judge(_all_but(parts, k), part, sigma, strength) for k, part in enumerate(parts)]
            return Slopes(
                sum(share.value for share in shares),
                np.sum([share.by_sigma for share in shares], axis=0),
                sum(share.by_log_strength for share in shares),
            )

        return sum_up

    def _fit_weights(self, rows: Matrix, parts: Sequence[Part]) -> None:
        self.kernel_ = Gaussian(float(self.sigma_[0]) if self.learn == "all" else self.sigma_, self.blocks)
        self.X_fit_ = np.concatenate([part.inputs for part in parts])
        targets = np.concatenate([part.targets for part in parts])
        P = self.kernel_(self.X_fit_, n_jobs=self.n_jobs)
        alpha = linalg.cho_solve(factor(type(self).__name__, P, self.regularisation_), targets)
        self.dual_coef_ = alpha[:, 0] if self._flat else alpha

    def _predict_centred(self, rows: Matrix) -> Matrix:
        device_for(self, rows)  # or complain
        alpha = self.dual_coef_.reshape(len(self.X_fit_), -1)
        out = np.empty((len(rows), alpha.shape[1]))
        for band in _bands(len(rows), len(alpha)):
            out[band] = self.kernel_(self._inputs(rows[band]), self.X_fit_, n_jobs=self.n_jobs) @ alpha
        return out


class KernelRidgeGD(Values, _ExactKernel):
    """Kernel ridge regression with a gaussian kernel whose σ is learned by its gradient.

    Parameters
    ----------
    sigma, learn, blocks, criterion, validation_fraction, regularisation, penalty, penalty_norm, max_iter, \
    tol, callback, warm_start, random_state, n_jobs
        As in `FourierKernelRegressor`.
    n_folds : int or "auto"
        As there; here each part takes as much time as one, so there is one by default.
    max_memory : int, optional
        Bytes that the kernel matrix may take; by default half of the machine's memory.

    Attributes
    ----------
    sigma_, regularisation_, intercept_, criterion_path_, n_iter_, n_features_in_
        As in `FourierKernelRegressor`.
    dual_coef_ : ndarray of float64, shape (n_samples,) or (n_samples, n_outputs)
        Weights of the samples.
    X_fit_ : ndarray of float64, shape (n_samples, n_features)
        The samples, less their mean.
    kernel_ : Gaussian
        With the σ that was learned.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(-2, 2, size=(200, 3))
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * random.normal(size=200)  # the other features are noise
    >>> model = KernelRidgeGD(penalty=0.1, penalty_norm="l1").fit(X, y)
    >>> bool(model.sigma_[0] > 5 * model.sigma_[1:].max())
    True
    """

    _instead = "FourierKernelRegressor"


class KernelRidgeGDClassifier(Classes, _ExactKernel):
    """Classification by kernel ridge regression with a gaussian kernel whose σ is learned by its gradient.

    Parameters
    ----------
    sigma, learn, blocks, criterion, validation_fraction, n_folds, regularisation, penalty, penalty_norm, \
    max_iter, tol, callback, warm_start, max_memory, random_state, n_jobs
        As in `KernelRidgeGD`.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    sigma_, regularisation_, dual_coef_, X_fit_, kernel_, intercept_, criterion_path_, n_iter_, n_features_in_
        As in `KernelRidgeGD`; `dual_coef_` has a column for each class, or one for two.

    Examples
    --------
    >>> X, y = [[0.0], [1.0], [5.0], [6.0]], ["few", "few", "many", "many"]
    >>> KernelRidgeGDClassifier(sigma=1.0, max_iter=0).fit(X, y).predict([[0.5], [5.5]])
    array(['few', 'many'], dtype='<U4')
    """

    _instead = "FourierKernelClassifier"


def gram_criterion(
    owner: str,
    n_jobs: int | None,
    train: Part,
    held_out: Part | None,
    sigma: Vector,
    strength: float,
    *,
    judge: Arrange = take_off_targets,
) -> Slopes:
    """Evaluate the validation criterion, or that of training if nothing is held out.

    Parameters
    ----------
    owner : str
        For complaints.
    n_jobs : int, optional
    train, held_out : Part
    sigma : ndarray of float64, shape (n_features,)
    strength : float
        λ.
    judge : callable
        Makes residuals of the scores of held-out rows.
    """
    kernel, X = Gaussian(sigma), train.inputs
    factored = factor(owner, kernel(X, n_jobs=n_jobs), strength)
    alpha = linalg.cho_solve(factored, train.targets, check_finite=False)
    value, moments, by_sigma = 0.0, np.zeros_like(alpha), np.zeros(X.shape[1])
    if held_out is None:
        adjoint = strength * (alpha - strength * linalg.cho_solve(factored, alpha, check_finite=False))
        value = strength * float((alpha * train.targets).sum()) - strength**2 / 2 * float((alpha**2).sum())
    else:
        for band in _bands(len(held_out.inputs), len(X)):
            K = kernel(held_out.inputs[band], X, n_jobs=n_jobs)
            errors = judge(K @ alpha, held_out.targets[band])
            value += float((errors**2).sum())
            moments += K.T @ errors
            by_sigma += _pull_back(K, 2 * errors, alpha, held_out.inputs[band], X)
        adjoint = 2 * linalg.cho_solve(factored, moments, check_finite=False)
    del factored  # as large as the kernel matrix
    for band in _bands(len(X), len(X)):
        by_sigma -= _pull_back(kernel(X[band], X, n_jobs=n_jobs), adjoint[band], alpha, X[band], X)
    by_log_strength = 0.0 if held_out is None else -strength * float((adjoint * alpha).sum())
    return Slopes(value, -sigma * by_sigma, by_log_strength)


def _all_but(parts: Sequence[Part], number: int) -> Part:
    others = [part for k, part in enumerate(parts) if k != number]
    return Part(
        np.concatenate([part.inputs for part in others]), np.concatenate([part.targets for part in others])
    )


def _pull_back(K: Matrix, left: Vector, right: Vector, X: Matrix, Y: Matrix) -> Vector:
    """Return Σ_ik E_ik (x_ij − y_kj)² for every j, where E = K ⊙ left rightᵀ; K is overwritten."""
    K *= left @ right.T
    squares = K.sum(axis=1) @ X**2 + K.sum(axis=0) @ Y**2
    return squares - 2 * np.einsum("ij,ij->j", X, K @ Y)


def _bands(n_rows: int, n_columns: int) -> list[slice]:
    size = max(1, _BAND_NUMBERS // n_columns)
    return [slice(first, min(first + size, n_rows)) for first in range(0, n_rows, size)]


def check_memory(owner: str, n_samples: int, needed: int, most: int | None, instead: str) -> None:
    """Refuse kernel matrices of more bytes than may be used: by default half of the machine's memory."""
    allowed = most or _half_of_memory()
    if needed > allowed:
        raise DataError(
            f"{owner}: kernel matrices of {n_samples} samples take {needed / 2**30:.3g} GB, where "
            f"{allowed / 2**30:.3g} GB may be used; give fewer samples, raise 'max_memory', or take "
            f"{instead}, whose memory does not grow so."
        )


def _half_of_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):  # not on every system
        return 4 << 30
