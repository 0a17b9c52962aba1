"""Mixtures of Gaussians with diagonal covariances, learned by expectation–maximisation (METHODS §11).

Fundamentals
------------
A row `x` has the density `Σ_k π_k N(x; μ_k, diag(σ²_k))`. The posteriors `γ_k(x)`, the shares of the
Gaussians in it, come from logarithms of weighted densities, which are linear in `(x, x², 1)`:

    log π_k N(x; μ_k, σ²_k)  =  (μ_k / σ²_k)·x  -  (1 / 2σ²_k)·x²  +  c_k

So one product with a matrix of `2d + 1` rows gives them for all Gaussians, and one product of the posteriors
with `(x, x², 1)` all sums that new weights, means and variances are made of. Fisher vectors
(`visionkl.features.fisher`) are made of the same sums.

Implementation
--------------
- Features are first centred and scaled to unit variance: their squares then lose little to rounding, and
  scales do not matter.
- Rows go through in blocks that stay in the cache; nothing of the size of all rows is made. Products are in
  the rows' precision (float32 or float64), their sums over blocks in float64. Where few posteriors count, as
  with many features, float32 sums are made over those above 1e-7 alone. In float32 the mean
  log-likelihood is right to about 1e-5 of its size; where Gaussians are a thousand times narrower than the
  data, take float64.
- Learning starts from k-means on some of the rows: shares, means and variances of its clusters.
- No variance falls below `min_variance` times the feature's variance in all rows. A Gaussian that has lost
  its rows (it has less than a tenth of one) starts again, with the variance of all rows, at the row that is
  explained worst.
- Sums are made in one order: the result depends on `random_state` and not on `n_jobs`.

The sums are in `visionkl.features.densities`. On a GPU the passes over rows are computed there, in larger
blocks; k-means and the new Gaussians of each pass are the CPU's.

If unsure, take 256 Gaussians on 64 to 80 principal components for Fisher vectors, and a thousand rows for
each Gaussian.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from visionkl.backend.cpu.kmeans import find_words, learn_words
from visionkl.backend.dispatch import CPU, Device, choose_device, device_of, to_host, validated_rows
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError
from visionkl.core.rng import seed_of, stream
from visionkl.core.validation import check_number
from visionkl.features.densities import Densities, Doubles, Floats, Mixture, add_sums, blocks_of

# Rows of a task, and the most tasks: each returns sums of its own.
_TASK_ROWS = 8192
_MOST_TASKS = 64
# k-means for the start: rows for each Gaussian, and passes.
_START_ROWS_A_COMPONENT = 256
_START_PASSES = 20
_MOST_COMPONENTS = 65536
# A Gaussian with less than this share of one row has died.
_DEAD = 0.1

# Writes the posteriors of a block's rows, given their features and where they stand among all rows; returns
# how many of them are not negligible.
Assign = Callable[[Floats, slice, Floats], int]


class DiagonalGMM(DensityMixin, BaseEstimator):
    """A mixture of Gaussians with diagonal covariances, as a scikit-learn estimator.

    Parameters
    ----------
    n_components : int
        Gaussians.
    max_iter : int
        Passes of expectation–maximisation, at most.
    tol : float
        Learning ends when a pass changes the mean log-likelihood by less than this.
    min_variance : float
        Least variance, as a share of the feature's variance in all rows.
    random_state : int, RandomState instance or None
        Seed; None is different each time.
    n_jobs : int, optional
        Threads; all usable cores by default.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "auto": where passes over rows are made. Rows that lie on a GPU
        are told about there anyway, and the answers stay there.

    Attributes
    ----------
    weights_ : ndarray of float64, shape (n_components,)
    means_, variances_ : ndarray of float64, shape (n_components, n_features)
    log_likelihoods_ : ndarray of float64, shape (n_iter_,)
        Mean log-likelihood of the rows before each pass.
    converged_ : bool
        Whether `tol` was reached.
    n_iter_ : int
        Passes made.
    n_features_in_ : int

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> X = np.concatenate([random.normal(-3, 1, (500, 2)), random.normal(3, 0.5, (500, 2))])
    >>> mixture = DiagonalGMM(2).fit(X)
    >>> np.sort(mixture.means_[:, 0]).round(0), np.sort(mixture.variances_[:, 0]).round(1)
    (array([-3.,  3.]), array([0.3, 1. ]))
    >>> mixture.predict_proba([[3.0, 3.0]]).max() > 0.99
    np.True_
    """

    def __init__(
        self,
        n_components: int = 256,
        *,
        max_iter: int = 100,
        tol: float = 1e-3,
        min_variance: float = 1e-4,
        random_state: Any = 0,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.min_variance = min_variance
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def fit(self, X: npt.ArrayLike, y: object = None) -> DiagonalGMM:
        """Learn the mixture.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)
        y : None
            Not used.

        Returns
        -------
        self
        """
        owner = type(self).__name__
        check_number(owner, "n_components", self.n_components, low=1, high=_MOST_COMPONENTS, integer=True)
        check_number(owner, "max_iter", self.max_iter, low=1, integer=True)
        check_number(owner, "tol", self.tol, low=0)
        check_number(owner, "min_variance", self.min_variance, low=1e-12, high=1)
        if self.n_jobs is not None:
            check_number(owner, "n_jobs", self.n_jobs, low=1, integer=True)
        device = choose_device(self.device, owner)
        rows = validate_data(self, to_host(X), dtype=[np.float32, np.float64])
        if len(rows) < self.n_components:
            raise DataError(
                f"{owner}: n_samples = {len(rows)} rows are too few to learn {self.n_components} Gaussians; "
                "give more rows or a smaller 'n_components'."
            )
        learner = _Learner(rows, self.min_variance, self.n_jobs, device)
        mixture = learner.start(self.n_components, stream(seed_of(self.random_state), "mixture"))
        self._adopt(*learner.improve(mixture, self.max_iter, self.tol))
        return self

    def score_samples(self, X: npt.ArrayLike) -> Floats:
        """Compute the logarithm of each row's density.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)

        Returns
        -------
        ndarray of float32 or float64, shape (n_samples,)
        """
        return self._posteriors(X)[0]

    def score(self, X: npt.ArrayLike, y: object = None) -> float:
        """Compute the mean log-likelihood of rows."""
        return float(to_host(self.score_samples(X)).mean(dtype=np.float64))

    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """Compute the posteriors of all Gaussians.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)

        Returns
        -------
        ndarray of float32 or float64, shape (n_samples, n_components)
        """
        return self._posteriors(X)[1]

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Find the Gaussian with the largest posterior for each row."""
        with device_of(X).use():
            return self.predict_proba(X).argmax(axis=1)

    def _posteriors(self, X: npt.ArrayLike) -> tuple[Floats, Floats]:
        check_is_fitted(self)
        rows = validated_rows(self, X, dtype=[np.float32, np.float64])
        home = device_of(rows)
        device = home if home.is_gpu else choose_device(self.device, type(self).__name__)
        densities = Densities(self.mixture_, rows.dtype, device=device)
        with home.use():
            posteriors = home.namespace.empty((len(rows), len(self.weights_)), rows.dtype)
            log_likelihoods = home.namespace.empty(len(rows), rows.dtype)
        if device.is_gpu:
            bring = (lambda array: array) if home.is_gpu else to_host

            def compute_there(block: slice) -> None:
                features, own = densities.room(block.stop - block.start)
                found, _ = densities.posteriors(densities.features(device.put(rows[block]), features), own)
                log_likelihoods[block], posteriors[block] = bring(found), bring(own)

            densities.go_over(compute_there, len(rows))
            return log_likelihoods, posteriors

        def compute(part: slice) -> None:
            room, _ = densities.room()
            for block in blocks_of(part):
                features = densities.features(rows[block], room)
                log_likelihoods[block], _ = densities.posteriors(features, posteriors[block])

        run_tasks(compute, _parts(len(rows)), self.n_jobs)
        return log_likelihoods, posteriors

    @property
    def mixture_(self) -> Mixture:
        """The mixture without scikit-learn."""
        return Mixture(self.weights_, self.means_, self.variances_)

    def _adopt(self, mixture: Mixture, log_likelihoods: list[float], converged: bool) -> None:
        self.weights_, self.means_, self.variances_ = mixture.weights, mixture.means, mixture.variances
        self.log_likelihoods_ = np.array(log_likelihoods)
        self.n_iter_ = len(log_likelihoods)
        self.converged_ = converged


class _Learner:
    """Expectation–maximisation on some rows."""

    def __init__(self, rows: Floats, min_variance: float, n_jobs: int | None, device: Device = CPU) -> None:
        self.rows, self.min_variance, self.n_jobs, self.device = rows, min_variance, n_jobs, device
        self.scaling = _moments(rows)

    def start(self, n_components: int, random: np.random.Generator) -> Mixture:
        """Make the Gaussians of the clusters that k-means finds."""
        n, n_samples = len(self.rows), _START_ROWS_A_COMPONENT * n_components
        chosen = np.sort(random.choice(n, n_samples, replace=False)) if n > n_samples else slice(None)
        rows = self.rows[chosen]
        centre, scale = self.scaling
        # One factor for all features: which of them matter for distances is for the data to say.
        points = np.ascontiguousarray((rows - centre) / scale.max(), dtype=np.float32)
        words, _, _ = learn_words(
            points, n_components, random, max_iter=_START_PASSES, tol=1e-3, n_jobs=self.n_jobs
        )
        codes = np.empty(len(rows), np.uint16)
        find_words(points, words, codes, self.n_jobs)

        def assign(features: Floats, block: slice, posteriors: Floats) -> int:
            posteriors[:] = 0
            posteriors[np.arange(len(features)), codes[block]] = 1
            return len(features)

        whole = Mixture(np.ones(n_components) / n_components, np.tile(centre, (n_components, 1)),
                        np.tile(scale**2, (n_components, 1)))  # fmt: skip
        densities = Densities(whole, rows.dtype, self.scaling)
        sums = _sums(rows, densities, assign, self.n_jobs)
        return self._maximise(sums, rows, np.zeros(len(rows)))

    def improve(self, mixture: Mixture, max_iter: int, tol: float) -> tuple[Mixture, list[float], bool]:
        """Run expectation–maximisation; returns the mixture, the likelihoods before passes, and success."""
        log_likelihoods = np.empty(len(self.rows), self.rows.dtype)
        rows = self.device.hold(self.rows)
        history: list[float] = []
        while len(history) < max_iter:
            densities = Densities(mixture, self.rows.dtype, self.scaling, self.device)

            def assign(
                features: Floats, block: slice, posteriors: Floats, densities: Densities = densities
            ) -> int:
                found, n_relevant = densities.posteriors(features, posteriors)
                log_likelihoods[block] = to_host(found)
                return n_relevant

            sums = _sums(rows, densities, assign, self.n_jobs)
            history.append(float(log_likelihoods.mean(dtype=np.float64)))
            mixture = self._maximise(sums, self.rows, log_likelihoods)
            if len(history) > 1 and abs(history[-1] - history[-2]) < tol:
                return mixture, history, True
        return mixture, history, False

    def _maximise(self, sums: Doubles, rows: Floats, log_likelihoods: Floats) -> Mixture:
        """Make new Gaussians of the sums of features weighted by posteriors."""
        centre, scale = self.scaling
        size = len(centre)
        counts = sums[:, -1]
        dead = np.flatnonzero(counts < _DEAD)
        shares = np.maximum(counts, _DEAD)[:, None]
        means = sums[:, :size] / shares
        variances = np.maximum(sums[:, size:-1] / shares - means**2, self.min_variance)
        weights = np.maximum(counts, _DEAD)
        means, variances = centre + scale * means, scale**2 * variances
        if len(dead):
            worst = np.argpartition(log_likelihoods, len(dead) - 1)[: len(dead)]
            means[dead], variances[dead], weights[dead] = rows[worst], scale**2, 1
        return Mixture(weights / weights.sum(), means, variances)


def _moments(rows: Floats) -> tuple[Doubles, Doubles]:
    """Mean and standard deviation of each feature; constant ones count as the widest, or as 1."""
    blocks = list(blocks_of(slice(0, len(rows))))
    centre = sum(rows[block].sum(axis=0, dtype=np.float64) for block in blocks) / len(rows)
    squares = sum(((rows[block] - centre) ** 2).sum(axis=0) for block in blocks)
    scale = np.sqrt(squares / len(rows))
    # What rounding leaves of a constant feature is no variance.
    varies = scale > 1e-7 * np.abs(centre) if rows.dtype == np.float32 else scale > 1e-15 * np.abs(centre)
    return centre, np.where(varies, scale, scale.max(initial=0, where=varies) or 1.0)


def _sums(rows: Floats, densities: Densities, assign: Assign, n_jobs: int | None) -> Doubles:
    """Sum features over rows, weighted by posteriors: `(n_components, n_features)`."""
    if densities.device.is_gpu:
        return _sums_there(rows, densities, assign)

    def add_up(part: slice) -> Doubles:
        total = np.zeros((densities.n_components, densities.n_features))
        feature_room, posterior_room = densities.room()
        for block in blocks_of(part):
            features = densities.features(rows[block], feature_room)
            posteriors = posterior_room[: len(features)]
            add_sums(posteriors, features, assign(features, block, posteriors), total)
        return total

    return np.sum(run_tasks(add_up, _parts(len(rows)), n_jobs), axis=0)


def _sums_there(rows: Floats, densities: Densities, assign: Assign) -> Doubles:
    """Do as `_sums`, on a GPU."""
    device = densities.device
    with device.use():
        total = device.namespace.zeros((densities.n_components, densities.n_features))

    def add_up(block: slice) -> None:
        feature_room, posteriors = densities.room(block.stop - block.start)
        features = densities.features(device.put(rows[block]), feature_room)
        add_sums(posteriors, features, assign(features, block, posteriors), total)

    densities.go_over(add_up, len(rows))
    return to_host(total)


def _parts(n: int) -> list[slice]:
    """Cut rows into tasks, in the same way for any number of threads."""
    size = max(_TASK_ROWS, -(-n // _MOST_TASKS))
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
