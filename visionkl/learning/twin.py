"""Twin Gaussian processes: structured regression with a kernel on outputs, too (METHODS §9).

Fundamentals
------------
Kernel ridge regression averages: where one input allows several outputs, such as a silhouette two poses, it
answers with something in between. A twin Gaussian process has a Gaussian process over inputs and one over
outputs, and answers with the output y for which the two agree best when (x, y) is added to the samples:

* `criterion="kl"`: the Kullback–Leibler divergence between the two is least. With u = φ(K)⁻¹ φ(k_x) and
  η = φ(k(x, x)) − φ(k_x)ᵀu, y minimises

      ψ(g(y, y)) − 2 ψ(g_y)ᵀu − η log[ψ(g(y, y)) − ψ(g_y)ᵀ ψ(G)⁻¹ ψ(g_y)];

* `criterion="hsic"`: the dependence of the two kernels (HSIC) is largest. It is cheaper, needs no inverse of
  G, and is much less accurate.

φ and ψ are the polynomials of `TwinKernelTransform` with the `degrees` given; (1, 1) leaves both kernels as
they are, which is the plain process. η says how far an input is from the samples: near 0 beside one, near
φ(k(x, x)) far from all.

The search starts at the answer of kernel regression, and is kept within the range of the samples' outputs
plus one width of the output kernel: beyond it both criteria are flat, and nothing holds an answer back.

Implementation
--------------
All test points are searched for together, in blocks (`visionkl.solvers.batched`, `learning.twin_search`).
Time grows with the cube of the number of samples for the fit, and with its square for a test point; memory
with the square. `n_neighbors` gives every test point a process of its own, over its nearest samples in the
input kernel's space: then the fit is linear, and there is no limit to the number of samples.

**Singular Gram matrices.** `input_noise` and `output_noise`, times the mean of the diagonal, are added to the
diagonals of φ(K) and ψ(G), and to φ(k(x, x)) and ψ(g(y, y)) of a new sample, which is the covariance of noise
in a Gaussian process. Nothing else is added unless a matrix cannot be factored all the same (no noise, and
repeated samples): then it is raised tenfold from rounding on until it can, and a warning says to what.

If unsure: scale features that are measured in different units (StandardScaler), keep `criterion="kl"` and
degrees (1, 11), and try `output_kernel=Gaussian(sigma)` with half, twice and four times the default's σ: the
narrower the kernel, the less an answer is an average, and the less the polynomials add.
Where outputs are a plain function of inputs, kernel ridge regression is as good, and needs no search.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from visionkl.backend.threads import run_tasks
from visionkl.core.validation import check_choice, check_number, parameter_error
from visionkl.kernels.base import Matrix
from visionkl.kernels.exact import AnyKernel, Gaussian
from visionkl.kernels.sigma import feature_groups
from visionkl.learning.exact import check_memory
from visionkl.learning.twin_kernels import ACCEPTED, TwinKernelTransform, twin_kernel
from visionkl.learning.twin_search import (
    OwnSamples,
    Samples,
    SharedSamples,
    TwinCriterion,
    add_noise,
    inverse_of,
    polynomial,
)
from visionkl.solvers.batched import minimise_all

Vector = npt.NDArray[np.float64]

#: Numbers of one array of a block of test points, and the most points of it.
_BLOCK_NUMBERS = 2**20
_BLOCK_POINTS = 256
#: How far beyond the samples' outputs answers may lie, in widths of the output kernel.
_MARGIN = 1.0


@dataclass(frozen=True, eq=False)
class _Problem:
    """What samples say about a block of test points.

    Parameters
    ----------
    kernels : ndarray of float64, shape (n, m)
        φ(k_x).
    weights : ndarray of float64, shape (n, m)
        u.
    row_sums : ndarray of float64, shape (m,) or (n, m)
        Of φ(K).
    input_noise : float
        λ of inputs.
    samples : Samples
        Their outputs.
    output_noise : float
        λ of outputs.
    """

    kernels: Vector
    weights: Vector
    row_sums: Vector
    input_noise: float
    samples: Samples
    output_noise: float

    def centred_column(self, diagonal: Vector) -> Vector:
        """Return the column of a test point in H φ(K) H, where K is that of the samples and the point."""
        n = self.kernels.shape[1] + 1
        own_sum = self.kernels.sum(axis=1) + diagonal
        total = self.row_sums.sum(axis=-1) + 2 * own_sum - diagonal
        return self.kernels - (self.row_sums + self.kernels) / n - (own_sum / n - total / n**2)[:, None]


class TwinGaussianProcess(RegressorMixin, BaseEstimator):
    """Regression to one output or several by Gaussian processes over inputs and outputs.

    Parameters
    ----------
    criterion : {"kl", "hsic"}
        What the answer makes least or largest; see the head of this module.
    degrees : tuple of two int
        Highest powers of the input and output kernels in the polynomials that are learned of them; (1, 1)
        leaves them as they are.
    kernel : str, Kernel or callable
        Of inputs: a name of `visionkl.kernels.exact`, a kernel object, or a function of two matrices of rows.
        By name, the gaussian is as wide as samples are apart (the root of their mean squared distance).
    output_kernel : "gaussian" or Gaussian
        Of outputs; by name, it is as wide as outputs are apart.
    input_noise, output_noise : float
        Variances of noise, in shares of the kernels' diagonals. Data without noise want less.
    n_neighbors : int, optional
        Samples that answer for a test point; all by default.
    approximation : {"auto", "exact", "fourier", "nystroem"}
        How `TwinKernelTransform` measures dependence.
    n_components : int
        Features of its approximations.
    max_steps : int
        Of a search; 0 gives the answer of kernel regression.
    tol : float
        A search ends when no slope of the criterion, in units of the output kernel's width, is larger.
    max_memory : int, optional
        Bytes that Gram matrices may take; by default half of the machine's memory.
    random_state : int, RandomState instance or None
        Seed of the approximations.
    n_jobs : int, optional
        Threads; all usable cores by default.

    Attributes
    ----------
    transform_ : TwinKernelTransform
        With the polynomials: `alpha_` and `beta_`.
    X_fit_ : ndarray of float64, shape (n_samples, n_features)
    outputs_ : ndarray of float64, shape (n_samples, n_outputs)
        Less their mean, in units of the output kernel's width.
    output_mean_, output_width_ : ndarray of float64, shape (n_outputs,)
    n_features_in_ : int

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> r = random.uniform(size=300)  # one x may have three r
    >>> x = r + 0.3 * np.sin(2 * np.pi * r) + 0.02 * random.normal(size=300)
    >>> process = TwinGaussianProcess().fit(x[:200, None], r[:200])
    >>> found, uncertainty = process.predict(x[200:, None], return_uncertainty=True)
    >>> found.shape, bool(uncertainty.max() < 0.1)
    ((100,), True)
    """

    def __init__(
        self,
        *,
        criterion: str = "kl",
        degrees: tuple[int, int] = (1, 11),
        kernel: AnyKernel = "gaussian",
        output_kernel: str | Gaussian = "gaussian",
        input_noise: float = 1e-2,
        output_noise: float = 1e-2,
        n_neighbors: int | None = None,
        approximation: str = "auto",
        n_components: int = 100,
        max_steps: int = 100,
        tol: float = 1e-5,
        max_memory: int | None = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.criterion = criterion
        self.degrees = degrees
        self.kernel = kernel
        self.output_kernel = output_kernel
        self.input_noise = input_noise
        self.output_noise = output_noise
        self.n_neighbors = n_neighbors
        self.approximation = approximation
        self.n_components = n_components
        self.max_steps = max_steps
        self.tol = tol
        self.max_memory = max_memory
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> TwinGaussianProcess:
        """Learn the polynomials, and factor the Gram matrices of all samples unless neighbours are asked.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)
        y : array_like of float, shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        self
        """
        self._check_parameters()
        rows, targets = validate_data(
            self, X, y, multi_output=True, y_numeric=True, ensure_min_samples=2, **ACCEPTED
        )
        self._flat = targets.ndim == 1
        targets = targets.reshape(len(targets), -1).astype(np.float64)
        self.X_fit_ = rows.astype(np.float64, copy=False)
        self._n_own = self._own_samples(len(rows))
        if self._n_own is None:
            self._check_memory(len(rows))
        output_kernel = self._measure_outputs(targets)
        self.transform_ = TwinKernelTransform(
            self.degrees,
            input_kernel=twin_kernel("TwinGaussianProcess", self.kernel, self.X_fit_),
            output_kernel=output_kernel,
            approximation=self.approximation,
            n_components=self.n_components,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        ).fit(self.X_fit_, targets)
        self._coefficients = tuple(self.transform_.beta_.tolist())
        if self._n_own is None:
            self._factor_all()
        else:
            self._diagonal = self.transform_.input_kernel_.diagonal(self.X_fit_)
        return self

    def predict(
        self, X: npt.ArrayLike, *, return_uncertainty: bool = False
    ) -> Matrix | tuple[Matrix, Matrix]:
        """Return outputs, shape (n_samples,) or (n_samples, n_outputs), as y was.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)
        return_uncertainty : bool
            Whether to return η as well, shape (n_samples,): what the samples leave unexplained of each input.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, **ACCEPTED)
        inputs = rows.astype(np.float64, copy=False)
        size = self._block_size()
        blocks = [inputs[first : first + size] for first in range(0, len(inputs), size)]
        answers = run_tasks(self._predict_block, blocks, self.n_jobs)
        found = np.concatenate([points for points, _ in answers]) * self.output_width_ + self.output_mean_
        found = found.astype(rows.dtype, copy=False)
        values = found[:, 0] if self._flat else found
        if not return_uncertainty:
            return values
        return values, np.concatenate([eta for _, eta in answers]).astype(rows.dtype, copy=False)

    def _predict_block(self, rows: Vector) -> tuple[Vector, Vector]:
        """Return outputs in units of their kernel's width, and η."""
        kernels = self.transform_.input_kernel_(rows, self.X_fit_, n_jobs=1)
        diagonal = self.transform_.input_kernel_.diagonal(rows)
        problem = self._ask_all(kernels) if self._n_own is None else self._ask_neighbours(kernels, diagonal)
        eta = diagonal + problem.input_noise - np.einsum("nm,nm->n", problem.kernels, problem.weights)
        eta = np.maximum(eta, problem.input_noise)  # it is, but for rounding
        start = problem.samples.pull(problem.weights, np.arange(len(rows)))
        criterion = TwinCriterion(
            problem.samples,
            self._coefficients,
            problem.weights if self.criterion == "kl" else problem.centred_column(diagonal),
            eta if self.criterion == "kl" else None,
            problem.output_noise,
        )
        answer = minimise_all(
            criterion, start, low=self._low, high=self._high, max_iter=self.max_steps, tol=self.tol
        )
        return answer.points, eta

    def _ask_all(self, kernels: Vector) -> _Problem:
        weights = np.ascontiguousarray(
            linalg.cho_solve((self._factor, True), kernels.T, check_finite=False).T
        )
        return _Problem(
            kernels, weights, self._row_sums, self._input_noise, self._samples, self._output_noise
        )

    def _ask_neighbours(self, kernels: Vector, diagonal: Vector) -> _Problem:
        """Choose the nearest samples of every row, and factor their Gram matrices."""
        assert self._n_own is not None
        distances = diagonal[:, None] + self._diagonal - 2 * kernels
        chosen = np.argpartition(distances, self._n_own - 1, axis=1)[:, : self._n_own]
        chosen.sort(axis=1)
        grams = np.stack([self.transform_.input_kernel_(self.X_fit_[own], n_jobs=1) for own in chosen])
        row_sums = grams.sum(axis=2)
        own_kernels = np.take_along_axis(kernels, chosen, axis=1)
        _, input_noise = add_noise("TwinGaussianProcess", "input_noise", grams, self.input_noise)
        weights = np.linalg.solve(grams, own_kernels[:, :, None])[:, :, 0]
        outputs = self.outputs_[chosen]
        inverse: Matrix | None = None
        output_noise = 0.0
        if self.criterion == "kl":
            halves = np.einsum("nkd,nkd->nk", outputs, outputs) / 2
            exponents = np.matmul(outputs, outputs.transpose(0, 2, 1)) - halves[:, None] - halves[:, :, None]
            grams = polynomial(np.exp(np.minimum(exponents, 0)), self._coefficients)
            _, output_noise = add_noise("TwinGaussianProcess", "output_noise", grams, self.output_noise)
            inverse = np.linalg.inv(grams)
        samples = OwnSamples(outputs, inverse)
        return _Problem(own_kernels, weights, row_sums, input_noise, samples, output_noise)

    def _factor_all(self) -> None:
        gram = self.transform_.input_kernel_(self.X_fit_, n_jobs=self.n_jobs)
        self._row_sums = gram.sum(axis=1)
        owner = "TwinGaussianProcess"
        self._factor, self._input_noise = add_noise(owner, "input_noise", gram, self.input_noise)
        del gram
        inverse, self._output_noise = None, 0.0
        if self.criterion == "kl":
            gram = polynomial(Gaussian()(self.outputs_, n_jobs=self.n_jobs), self._coefficients)
            factor, self._output_noise = add_noise(owner, "output_noise", gram, self.output_noise)
            inverse = inverse_of(gram, factor, self._output_noise)
        self._samples = SharedSamples(self.outputs_, inverse)

    def _measure_outputs(self, targets: Vector) -> Gaussian:
        """Return the output kernel, and bring the outputs into units of its width."""
        kernel = twin_kernel("TwinGaussianProcess", self.output_kernel, targets)
        assert isinstance(kernel, Gaussian)
        sigmas, groups = feature_groups("TwinGaussianProcess", kernel.sigma, kernel.blocks, targets.shape[1])
        if not (sigmas > 0).all():
            raise parameter_error(
                "TwinGaussianProcess", "output_kernel", "a Gaussian with σ above 0", self.output_kernel
            )
        self.output_mean_ = targets.mean(axis=0)
        self.output_width_ = 1 / sigmas[groups]
        self.outputs_ = (targets - self.output_mean_) / self.output_width_
        self._low = self.outputs_.min(axis=0) - _MARGIN
        self._high = self.outputs_.max(axis=0) + _MARGIN
        return kernel

    def _own_samples(self, n_samples: int) -> int | None:
        """Return how many samples answer for a test point, or None if all do."""
        if self.n_neighbors is None or self.n_neighbors == n_samples:
            return None
        if self.n_neighbors > n_samples:
            warnings.warn(
                f"TwinGaussianProcess: {self.n_neighbors} neighbours were asked for, but there are "
                f"{n_samples} samples; all of them answer.",
                stacklevel=3,
            )
            return None
        return self.n_neighbors

    def _block_size(self) -> int:
        numbers = len(self.X_fit_)
        if self._n_own is not None:
            numbers = max(numbers, self._n_own * (self._n_own + self.outputs_.shape[1]))
        return max(1, min(_BLOCK_POINTS, _BLOCK_NUMBERS // numbers))

    def _check_memory(self, n_samples: int) -> None:
        # The factor of inputs, and of outputs the Gram matrix, its factor and its inverse.
        check_memory(
            "TwinGaussianProcess",
            n_samples,
            4 * 8 * n_samples**2,
            self.max_memory,
            "'n_neighbors' (100, say)",
        )

    def _check_parameters(self) -> None:
        owner = type(self).__name__
        check_choice(owner, "criterion", self.criterion, ("kl", "hsic"))
        if self.output_kernel != "gaussian" and not isinstance(self.output_kernel, Gaussian):
            raise parameter_error(
                owner, "output_kernel", "'gaussian' or a Gaussian: its slopes are needed", self.output_kernel
            )
        check_number(owner, "input_noise", self.input_noise, low=0)
        check_number(owner, "output_noise", self.output_noise, low=0)
        if self.n_neighbors is not None:
            check_number(owner, "n_neighbors", self.n_neighbors, low=2, integer=True)
        check_number(owner, "max_steps", self.max_steps, low=0, integer=True)
        check_number(owner, "tol", self.tol, low=0)
        if self.max_memory is not None:
            check_number(owner, "max_memory", self.max_memory, low=1, integer=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = self.criterion == "hsic"
        tags.input_tags.positive_only = (
            TwinKernelTransform(input_kernel=self.kernel).__sklearn_tags__().input_tags.positive_only
        )
        return tags
