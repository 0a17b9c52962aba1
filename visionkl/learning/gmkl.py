"""Multiple kernel learning with exact kernels: GMKL (Varma & Babu), the baseline of RFF-MKL (METHODS §7).

Fundamentals
------------
With a kernel k_j and its matrix K_j for each channel, the combined kernel is K_d = Σ_j d_j K_j, and d ≥ 0 is
learned together with the machine,

    min over d ≥ 0, f, b of   ½ ‖f‖²_{K_d}  +  C (1/n) Σ_i loss(f(x_i) + b, y_i)  +  Σ_j d_j.

With the squared loss ½ (z − y)² the machine for a given d is one linear system: α = (K_d + (n/C) I)⁻¹ (y − b)
with Σ_i α_i = 0, the objective is ½ y · α + Σ_j d_j, and its derivative by d_j is 1 − ½ αᵀ K_j α. It is
convex in d. Steps along d ≥ 0 are those of a projected quasi-Newton method (L-BFGS-B), which needs fewer
machines than the projected gradients of the original.

With K_j = Ψ_j Ψ_jᵀ this is the group lasso of `visionkl.learning.multiple` with λ = √2 / C: writing w_j for
√d_j times the weights, the objective is ½ Σ_j ‖w_j‖² / d_j + Σ_j d_j + C · loss, and its best d_j is
‖w_j‖ / √2, which leaves √2 Σ_j ‖w_j‖.

Time grows with n³ and memory with r n², so this is for up to some thousand samples, and to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg, optimize
from sklearn.base import ClassifierMixin, RegressorMixin

from visionkl.backend.dispatch import device_for
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError
from visionkl.core.validation import check_number, parameter_error
from visionkl.kernels.exact import make_kernel
from visionkl.learning.channels import (
    ChannelEstimator,
    best_classes,
    class_signs,
    is_list_of_channels,
    numeric_targets,
)
from visionkl.learning.exact import check_memory

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]


def learn_weights(
    matrices: Sequence[Matrix], y: Vector, C: float, *, tol: float = 1e-6, max_iter: int = 200
) -> tuple[Vector, Vector, float, float, int]:
    """Learn the weights of kernels and the machine of one output.

    Parameters
    ----------
    matrices : sequence of ndarray of float, shape (n, n)
        K_j, symmetric and positive semidefinite.
    y : ndarray of float64, shape (n,)
    C : float
    tol : float
        Relative change of the objective at which to stop.
    max_iter : int

    Returns
    -------
    d : ndarray of float64, shape (n_kernels,)
    alpha : ndarray of float64, shape (n,)
        The machine is f(x) = Σ_i alpha_i Σ_j d_j k_j(x_i, x) + b.
    b : float
    objective : float
    n_iter : int
    """
    n = len(y)
    both = np.stack([y, np.ones(n)], axis=1)

    def machine(d: Vector) -> tuple[Vector, float]:
        combined = np.zeros((n, n))
        for weight, K in zip(d, matrices, strict=True):
            if weight > 0:
                combined += weight * K
        combined.flat[:: n + 1] += n / C
        factor = linalg.cho_factor(combined, lower=True, overwrite_a=True, check_finite=False)
        of_y, of_ones = linalg.cho_solve(factor, both, check_finite=False).T
        b = float(of_y.sum() / of_ones.sum())
        return of_y - b * of_ones, b

    def evaluate(d: Vector) -> tuple[float, Vector]:
        alpha, _ = machine(d)
        squares = np.array([alpha @ (K @ alpha.astype(K.dtype)) for K in matrices])  # no copies of K
        return 0.5 * float(y @ alpha) + float(d.sum()), 1 - 0.5 * squares

    # In units in which a kernel's diagonal is about 1, d starts as equal weights of the sum of kernels.
    start = np.full(len(matrices), 1 / len(matrices))
    found = optimize.minimize(
        evaluate,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(start),
        options={"maxiter": max_iter, "ftol": tol, "gtol": 1e-3 * tol},
    )
    alpha, b = machine(found.x)
    return found.x, alpha, b, float(found.fun), int(found.nit)


class GMKL(ChannelEstimator):
    """Base of the two estimators: everything but what labels mean."""

    def __init__(
        self,
        channels: Any = None,
        *,
        C: float = 100.0,
        kernel: Any = "gaussian",
        tol: float = 1e-6,
        max_iter: int = 200,
        max_memory: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.channels = channels
        self.C = C
        self.kernel = kernel
        self.tol = tol
        self.max_iter = max_iter
        self.max_memory = max_memory
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: npt.ArrayLike) -> Any:
        """Learn.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features), or list of such
            A list of matrices has one for each channel; with `kernel="precomputed"` these are the kernels
            between all samples, `(n_samples, n_samples)`.
        y : array_like, shape (n_samples,)
            For the regressor also `(n_samples, n_outputs)`.

        Returns
        -------
        self
        """
        owner = type(self).__name__
        if check_number(owner, "C", self.C, low=0) == 0:
            raise parameter_error(owner, "C", "a number > 0", self.C)
        check_number(owner, "tol", self.tol, low=0)
        check_number(owner, "max_iter", self.max_iter, low=1, integer=True)
        if self.n_jobs is not None:
            check_number(owner, "n_jobs", self.n_jobs, low=1, integer=True)
        if self.max_memory is not None:
            check_number(owner, "max_memory", self.max_memory, low=1, integer=True)
        parts, y = self._read_training(X, y)
        device_for(self, *parts)  # or complain
        targets = self._targets(y)
        if self._given(X):
            shapes = [part.shape for part in parts]
            if any(shape != (len(y), len(y)) for shape in shapes):
                raise DataError(
                    f"{owner}: precomputed kernels must have the shape {(len(y), len(y))}, a row and a "
                    f"column for each sample; got {shapes}."
                )
            self.kernels_, self.rows_ = [], []
            matrices = parts
        else:
            names = self._one_each("kernel", self.kernel, len(parts))
            # All kernels in the data's precision, and their sum in double precision.
            needed = len(y) ** 2 * (len(parts) * parts[0].dtype.itemsize + 8)
            check_memory(owner, len(y), needed, self.max_memory, owner.replace("GMKL", "FourierMKL"))
            self.kernels_ = [make_kernel(owner, name, part) for name, part in zip(names, parts, strict=True)]
            self.rows_ = parts
            matrices = [k(part, n_jobs=self.n_jobs) for k, part in zip(self.kernels_, parts, strict=True)]
        learn = partial(learn_weights, matrices, C=self.C, tol=self.tol, max_iter=self.max_iter)
        found = run_tasks(learn, list(targets.T), self.n_jobs)
        weights = np.stack([d for d, *_ in found])
        self.kernel_weights_ = weights[0] if len(found) == 1 else weights
        self.dual_coef_ = np.stack([alpha for _, alpha, *_ in found])
        self.intercept_ = np.array([b for _, _, b, *_ in found])
        self.objective_ = np.array([value for *_, value, _ in found])
        self.n_iter_ = max([1, *(n_iter for *_, n_iter in found)])
        return self

    def _given(self, X: Any) -> bool:
        """Whether X holds kernels; they must then be a list."""
        if not isinstance(self.kernel, str) or self.kernel != "precomputed":
            return False
        if not is_list_of_channels(X):
            raise DataError(f"{type(self).__name__}: precomputed kernels must be a list of matrices.")
        return True

    def _targets(self, y: npt.NDArray[Any]) -> Vector:
        raise NotImplementedError

    def _scores(self, X: Any) -> Matrix:
        """Scores `(n_samples, n_outputs)` of new samples."""
        parts = self._read_new(X)
        device_for(self, *parts)  # or complain
        scores = np.zeros((len(parts[0]), len(self.dual_coef_)))
        weights = np.atleast_2d(self.kernel_weights_)
        for j, part in enumerate(parts):
            if weights[:, j].any():
                K = part if not self.kernels_ else self.kernels_[j](part, self.rows_[j], n_jobs=self.n_jobs)
                scores += (K @ self.dual_coef_.T) * weights[:, j]
        return (scores + self.intercept_).astype(parts[0].dtype)


class GMKLClassifier(ClassifierMixin, GMKL):
    """Multiple kernel learning of classes with exact kernels.

    Parameters
    ----------
    channels : sequence, optional
        Lengths of neighbouring blocks of columns, or the columns of each channel as slices or lists of
        numbers. By default all are one channel, or X is a list of matrices, one for each channel.
    C : float
        How much the average loss counts beside the regulariser; λ of `FourierMKLClassifier` is √2 / C.
    kernel : str, Kernel or callable, or list of them
        Kernels of all channels, or of each; see `kernel_matrix`. `"precomputed"`: X is a list of kernels
        between samples.
    tol : float
        Relative change of the objective at which to stop.
    max_iter : int
        Steps along the weights of the kernels, at most.
    max_memory : int, optional
        Bytes that the kernel matrices may take; by default half of the machine's memory.
    n_jobs : int, optional
        Threads that compute kernels and learn classes side by side; all usable cores by default.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    kernel_weights_ : ndarray of float64, shape (n_channels,), or (n_classes, n_channels) for more than two
    dual_coef_ : ndarray of float64, shape (1 or n_classes, n_samples)
    intercept_ : ndarray of float64, shape (1 or n_classes,)
    objective_ : ndarray of float64, shape (1 or n_classes,)
    n_iter_ : int
    n_features_in_ : int

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> model = GMKLClassifier(channels=[2, 2], C=30.0).fit(X, X[:, 0] * X[:, 1] > 0)
    >>> (model.kernel_weights_ > 0).tolist()
    [True, False]
    """

    def decision_function(self, X: Any) -> Matrix:
        """Return scores: `(n_samples,)` for two classes, `(n_samples, n_classes)` for more."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class with the highest score for each sample."""
        scores = self._scores(X)
        return best_classes(self.classes_, scores)

    def _targets(self, y: npt.NDArray[Any]) -> Vector:
        self.classes_, signs = class_signs("GMKLClassifier", y)
        return signs


class GMKLRegressor(RegressorMixin, GMKL):
    """Multiple kernel learning of numbers with exact kernels.

    Parameters
    ----------
    channels, C, kernel, tol, max_iter, max_memory, n_jobs
        As in `GMKLClassifier`.

    Attributes
    ----------
    kernel_weights_, dual_coef_, intercept_, objective_, n_iter_, n_features_in_
        As in `GMKLClassifier`, with an output for each target.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> model = GMKLRegressor(channels=[2, 2]).fit(X, np.sin(X[:, 0] + X[:, 1]))
    >>> bool(model.kernel_weights_[0] > 10 * model.kernel_weights_[1])
    True
    """

    def predict(self, X: Any) -> Matrix:
        """Return the values, `(n_samples,)` or `(n_samples, n_outputs)` as y was."""
        scores = self._scores(X)
        return scores[:, 0] if self._flat else scores

    def _targets(self, y: npt.NDArray[Any]) -> Vector:
        targets = numeric_targets("GMKLRegressor", y)
        self._flat = targets.ndim == 1
        return targets[:, None] if self._flat else targets

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
