"""Twin kernels: polynomials of an input and an output kernel that depend on each other most (METHODS §9).

Fundamentals
------------
Where inputs x and outputs y both have kernels, k and g, the two should tell the same story. A polynomial of a
kernel whose coefficients are 0 or above is a kernel again, so the story may be sharpened: take

    φ(K) = Σ_i α_i K^(i),   ψ(G) = Σ_j β_j G^(j)        (powers element by element)

with the α and β of norm 1 for which HSIC(φ(K), ψ(G)) = Σ_ij α_i β_j C_ij is largest. These are the first left
and right singular vectors of C (`visionkl.learning.hsic`); they have no negative numbers, because C has none.

A power of a gaussian is a narrower gaussian. So φ and ψ mix widths, with most weight on those at which inputs
and outputs agree.

Implementation
--------------
Kernels are taken in units of the largest number on their diagonal, so that powers neither vanish nor grow
beyond measure; for the gaussian and others with k(x, x) = 1 that changes nothing. Constant powers have no
part in dependence, so α_0 = β_0 = 0. Where C is 0 throughout, as for constant outputs, kernels stay as
they are.

Up to some thousand samples C is exact. For more, `"auto"` takes random Fourier features, if both kernels are
gaussian (a power i only multiplies σ by √i, and the estimate has no bias), and Nyström's map of every power
otherwise. The time is then linear in the number of samples.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from visionkl.core.errors import DataError
from visionkl.core.rng import seed_of
from visionkl.core.validation import check_choice, check_number, parameter_error
from visionkl.kernels.base import Kernel, Matrix, Polynomial
from visionkl.kernels.exact import KERNELS, AnyKernel, Gaussian, make_kernel
from visionkl.kernels.fourier import FourierMap
from visionkl.kernels.mapping import KernelMap
from visionkl.kernels.projection import KernelProjection
from visionkl.learning.hsic import check_degrees, mapped_hsic_matrix, scaled_hsic_matrix

Vector = npt.NDArray[np.float64]

APPROXIMATIONS = ("auto", "exact", "fourier", "nystroem")
# What scikit-learn's check of data is told.
ACCEPTED: dict[str, Any] = {"dtype": [np.float64, np.float32], "order": "C"}
#: With more samples, "auto" does not make Gram matrices.
_MOST_EXACT = 4000


class TwinKernelTransform(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learn polynomials of an input and an output kernel that depend on each other most.

    As a transformer it turns rows into their learned kernel with the rows it was fitted to, which is what
    estimators with `kernel="precomputed"` take.

    Parameters
    ----------
    degrees : tuple of two int
        The highest powers of the input and of the output kernel; 1 leaves a kernel as it is.
    input_kernel, output_kernel : str, Kernel or callable
        Names of `visionkl.kernels.exact`, kernel objects, or functions of two matrices of rows. By name, the
        gaussian is as wide as rows are apart (the root of their mean squared distance), and the exponential
        χ² kernel takes the mean distance.
    approximation : {"auto", "exact", "fourier", "nystroem"}
        How dependence is measured: by Gram matrices, whose time and memory grow with the square of the number
        of samples, or by features, which grow linearly. `"auto"` is exact up to 4000 samples, and takes
        Fourier features of gaussian kernels, and Nyström's of others, for more.
    n_components : int
        Features of each power, if they are used.
    random_state : int, RandomState instance or None
        Seed of the features.
    n_jobs : int, optional
        Threads; all usable cores by default.

    Attributes
    ----------
    hsic_ : ndarray of float64, shape (degrees[0] + 1, degrees[1] + 1)
        C: dependence of all pairs of powers.
    alpha_, beta_ : ndarray of float64, shapes (degrees[0] + 1,) and (degrees[1] + 1,)
        Coefficients of the powers 0, 1, ... of the kernels in units of `input_scale_` and `output_scale_`.
    input_kernel_, output_kernel_ : Polynomial
        φ and ψ: the kernels that were learned.
    input_scale_, output_scale_ : float
        Largest numbers on the diagonals of the Gram matrices; 1 for the gaussian.
    X_fit_ : ndarray of float, shape (n_samples, n_features)
    n_features_in_ : int

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(-1, 1, size=(100, 2))
    >>> twins = TwinKernelTransform(degrees=(3, 3)).fit(X, np.sin(4 * X))
    >>> bool((twins.alpha_ >= 0).all()), round(float(np.linalg.norm(twins.alpha_)), 6)
    (True, 1.0)
    >>> twins.transform(X[:5]).shape
    (5, 100)
    """

    def __init__(
        self,
        degrees: tuple[int, int] = (11, 11),
        *,
        input_kernel: AnyKernel = "gaussian",
        output_kernel: AnyKernel = "gaussian",
        approximation: str = "auto",
        n_components: int = 100,
        random_state: Any = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.degrees = degrees
        self.input_kernel = input_kernel
        self.output_kernel = output_kernel
        self.approximation = approximation
        self.n_components = n_components
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> TwinKernelTransform:
        """Measure dependence, and choose the polynomials.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)
        y : array_like of float, shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        self
        """
        degrees = check_degrees("TwinKernelTransform", self.degrees)
        check_choice("TwinKernelTransform", "approximation", self.approximation, APPROXIMATIONS)
        check_number("TwinKernelTransform", "n_components", self.n_components, low=1, integer=True)
        rows, outputs = validate_data(
            self, X, y, multi_output=True, y_numeric=True, ensure_min_samples=2, **ACCEPTED
        )
        outputs = outputs.reshape(len(outputs), -1).astype(np.float64, copy=False)
        kernels = (
            twin_kernel("TwinKernelTransform", self.input_kernel, rows),
            twin_kernel("TwinKernelTransform", self.output_kernel, outputs),
        )
        scales = tuple(_scale(*pair) for pair in zip(kernels, (rows, outputs), degrees, strict=True))
        self.input_scale_, self.output_scale_ = scales
        self.hsic_ = self._dependence(kernels, rows, outputs, degrees)
        self.alpha_, self.beta_ = most_dependent(self.hsic_)
        self.input_kernel_, self.output_kernel_ = (
            Polynomial(kernel, tuple((coefficients / scale ** np.arange(len(coefficients))).tolist()))
            for kernel, coefficients, scale in zip(kernels, (self.alpha_, self.beta_), scales, strict=True)
        )
        self.X_fit_ = rows
        self._n_features_out = len(rows)
        return self

    def transform(self, X: npt.ArrayLike) -> Matrix:
        """Return φ(k(x, x')) between rows and those of the fit, shape (n_samples, n_fitted).

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)
        """
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, **ACCEPTED)
        return self.input_kernel_(rows, self.X_fit_, n_jobs=self.n_jobs).astype(rows.dtype, copy=False)

    def _dependence(
        self, kernels: tuple[Kernel, Kernel], X: Matrix, Y: Matrix, degrees: tuple[int, int]
    ) -> Vector:
        way = self.approximation
        gaussian = all(isinstance(kernel, Gaussian) for kernel in kernels)
        if way == "auto":
            way = "exact" if len(X) <= _MOST_EXACT else "fourier" if gaussian else "nystroem"
        if way == "exact":
            scales = 1 / self.input_scale_, 1 / self.output_scale_
            K, G = (
                kernel(rows.astype(np.float64), n_jobs=self.n_jobs)
                for kernel, rows in zip(kernels, (X, Y), strict=True)
            )
            return scaled_hsic_matrix(K, G, scales, degrees, self.n_jobs)
        if way == "fourier" and not gaussian:
            raise parameter_error(
                "TwinKernelTransform",
                "approximation",
                "'nystroem' or 'exact' unless both kernels are gaussian",
                way,
            )
        maps = [
            [self._map(way, side, kernel, scale, power, len(X)).fit(rows) for power in range(1, degree + 1)]
            for side, (kernel, rows, scale, degree) in enumerate(
                zip(kernels, (X, Y), (self.input_scale_, self.output_scale_), degrees, strict=True)
            )
        ]
        return mapped_hsic_matrix(maps[0], maps[1], X, Y)

    def _map(
        self, way: str, side: int, kernel: Kernel, scale: float, power: int, n_samples: int
    ) -> KernelMap:
        """Make an explicit map of a power of a kernel."""
        seed = seed_of(self.random_state)
        if way == "fourier":
            assert isinstance(kernel, Gaussian)
            return FourierMap(
                n_components=self.n_components,
                sigma=np.sqrt(power) * np.asarray(kernel.sigma),
                blocks=kernel.blocks,
                # Waves of inputs and outputs are drawn apart from each other: then their errors average out.
                random_state=2 * (seed + 1000 * power) + side,
                n_jobs=self.n_jobs,
            )
        return KernelProjection(
            Polynomial(kernel, (0.0,) * power + (scale**-power,)),
            n_representatives=min(self.n_components, n_samples),
            random_state=seed,
            n_jobs=self.n_jobs,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        kernel = KERNELS.get(self.input_kernel) if isinstance(self.input_kernel, str) else self.input_kernel
        tags.input_tags.positive_only = getattr(kernel, "histogram", False)
        return tags


def twin_kernel(owner: str, kernel: AnyKernel, rows: Matrix) -> Kernel:
    """Make a kernel by name, or pass one through; the gaussian is as wide as rows are apart on average.

    Half the σ of `Gaussian.of`: powers of the kernel are narrower, and reach down to a third of the width.
    """
    if isinstance(kernel, str) and kernel == "gaussian":
        return Gaussian(np.asarray(Gaussian.of(rows).sigma).item() / 2)
    return make_kernel(owner, kernel, rows)


def most_dependent(C: npt.ArrayLike) -> tuple[Vector, Vector]:
    """Return α and β, the coefficients of the polynomials that depend on each other most.

    They are the first singular vectors of C, without negative numbers.

    Where C is 0 throughout, kernels stay as they are.

    Examples
    --------
    >>> most_dependent([[0.0, 0.0, 0.0], [0.0, 3.0, 4.0]])
    (array([0., 1.]), array([0. , 0.6, 0.8]))
    """
    matrix = np.asarray(C, dtype=np.float64)
    alpha, beta = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[1])
    core = matrix[1:, 1:]
    if not core.any():
        if core.size > 1:
            warnings.warn(
                "TwinKernelTransform: outputs do not depend on inputs at all (one of them may be constant), "
                "so the kernels stay as they are.",
                stacklevel=3,
            )
        alpha[1] = beta[1] = 1
        return alpha, beta
    left, _, right = np.linalg.svd(core / core.max())
    for coefficients, vector in ((alpha, left[:, 0]), (beta, right[0])):
        # The vectors of a matrix without negative numbers have none, but for their common sign and rounding.
        positive = np.abs(vector)
        coefficients[1:] = positive / np.linalg.norm(positive)
    return alpha, beta


def _scale(kernel: Kernel, rows: Matrix, degree: int) -> float:
    """Return the largest number on the diagonal of the Gram matrix."""
    largest = float(kernel.diagonal(rows).max())
    if largest <= 0:
        raise DataError(
            f"TwinKernelTransform: {type(kernel).__name__} of every sample with itself is {largest:g}, so "
            "there is nothing to learn from; leave out empty samples, or take another kernel."
        )
    if abs(np.log10(largest)) * degree > 290:
        raise DataError(
            f"TwinKernelTransform: {type(kernel).__name__} has values up to {largest:g}, whose power "
            f"{degree} cannot be computed with; scale the data (StandardScaler), or take a lower degree."
        )
    return largest
