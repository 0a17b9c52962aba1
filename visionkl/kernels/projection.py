"""Projection on representatives, for any kernel: dense (Nyström) or sparse (METHODS §4).

Fundamentals
------------
Choose D *representatives* Z, and put in the place of a sample its projection, in the kernel's space, on what
they span. The projection has coefficients Φ(x) = K_ZZ† K_Zx, and inner products Φ(x)ᵀ K_ZZ Φ(y) ≈ k(x, y),
which are exact for representatives.

* `coordinates="raw"` returns these coefficients; `gram_` is the K_ZZ that inner products need.
* `coordinates="orthonormal"` returns Λ V Φ, with K_ZZ = Vᵀ Λ² V, whose inner products are plain. With
  representatives drawn from the data this is **Nyström's map**, and it is the default. `n_components` keeps
  the directions with the largest eigenvalues (its principal components) and drops the rest.

Sparse projections use at most `n_nonzero` = P representatives for each sample, so Φ has few coefficients and
is a `scipy.sparse` matrix, in raw coordinates:

* `method="nearest"`: the P nearest in the kernel's space, where the squared distance is k(x,x) − 2 k(x,z) +
  k(z,z);
* `method="omp"`: orthogonal matching pursuit, which takes the representative most like what is not explained
  yet, one after the other. It takes longer and explains more.

If unsure: the default with a few hundred to a few thousand representatives. Random ones serve well, and
k-means gives better ones if they must be few.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from visionkl.backend.cpu import maps as loops
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError, UsageError
from visionkl.core.rng import seed_of, stream
from visionkl.core.validation import check_choice, check_number, check_rows
from visionkl.kernels.base import Matrix
from visionkl.kernels.exact import KERNELS, AnyKernel, make_kernel
from visionkl.kernels.mapping import KernelMap, bands

_METHODS = ("dense", "nearest", "omp")
_COORDINATES = ("orthonormal", "raw")
_SOURCES = ("random", "kmeans")
# Eigenvalues below this times the largest are rounding, and directions that stick out by less as well. It
# depends on the precision of the kernel between samples and representatives.
_RANK_TOLERANCE = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-10}


class KernelProjection(KernelMap):
    """Map of any kernel by projection on representatives; by default Nyström's map.

    Parameters
    ----------
    kernel : str, Kernel or callable
        A name of `visionkl.kernels.exact`, a kernel object, or a function of two matrices of rows. By name,
        the gaussian and exponential χ² kernels take a width that suits the data.
    n_representatives : int
        How many are drawn; all rows, if there are fewer.
    representatives : {"random", "kmeans"} or array_like of float, shape (D, n_features)
        Rows drawn at random, the centres of k-means, or your own.
    method : {"dense", "nearest", "omp"}
        Use all representatives for a sample, or the nearest, or those found by orthogonal matching pursuit.
    n_nonzero : int
        Representatives for a sample, of the two sparse methods.
    coordinates : {"orthonormal", "raw"}, optional
        Raw by default for the sparse methods, which have no others, and orthonormal for the dense one.
    n_components : int, optional
        Directions to keep, of the dense method; all by default.
    random_state : int, RandomState instance or None
        Seed; None is different each time.
    n_jobs : int, optional
        Threads; all usable cores by default.

    Attributes
    ----------
    kernel_ : Kernel
        What the map comes near.
    representatives_ : ndarray of float, shape (D, n_features)
    gram_ : ndarray of float64, shape (D, D)
        K_ZZ. Inner products of raw coordinates are taken through it.
    eigenvalues_ : ndarray of float64
        Of K_ZZ, the largest first: of the directions that are kept.
    n_features_in_ : int

    Examples
    --------
    >>> X = np.random.default_rng(0).random((200, 3))
    >>> nystrom = KernelProjection("skewed_chi2", n_representatives=50).fit(X)
    >>> mapped = nystrom.transform(X)
    >>> bool(np.abs(mapped @ mapped.T - nystrom.kernel_(X)).max() < 0.01)
    True
    >>> KernelProjection("chi2", n_representatives=50, method="omp", n_nonzero=4).fit_transform(X).nnz <= 800
    True
    """

    def __init__(
        self,
        kernel: AnyKernel = "gaussian",
        *,
        n_representatives: int = 100,
        representatives: str | npt.ArrayLike = "random",
        method: str = "dense",
        n_nonzero: int = 5,
        coordinates: str | None = None,
        n_components: int | None = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.n_representatives = n_representatives
        self.representatives = representatives
        self.method = method
        self.n_nonzero = n_nonzero
        self.coordinates = coordinates
        self.n_components = n_components
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: npt.ArrayLike, y: object = None) -> KernelProjection:
        """Choose the representatives and compute their kernel.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)
        y : None
            Not used.

        Returns
        -------
        self
        """
        self._check_parameters()
        rows = self._rows_to_fit(X)
        self.kernel_ = make_kernel("KernelProjection", self.kernel, rows)
        self.representatives_ = self._choose(rows)
        # In double precision, because it is inverted.
        gram = self.kernel_(self.representatives_.astype(np.float64), n_jobs=self.n_jobs)
        self.gram_ = (gram + gram.T) / 2
        values, vectors = np.linalg.eigh(self.gram_)
        values, vectors = values[::-1], vectors[:, ::-1]
        if values[0] <= 0:
            raise DataError(
                "KernelProjection: the kernel of the representatives with each other is 0, so nothing can be "
                "projected on them; choose others, or another kernel."
            )
        self._tolerance = _RANK_TOLERANCE[rows.dtype]
        rank = int((values > self._tolerance * values[0]).sum())
        kept = min(self.n_components or rank, rank)
        self.eigenvalues_ = values[:kept]
        whitened = vectors[:, :kept] / np.sqrt(self.eigenvalues_)
        self._projection = whitened @ whitened.T if self._is_raw() else whitened
        self._n_features_out = len(gram) if self._is_raw() else kept
        return self

    def transform(self, X: npt.ArrayLike) -> Matrix | sparse.csr_matrix:
        """Map rows.

        Parameters
        ----------
        X : array_like of float, shape (n_samples, n_features)

        Returns
        -------
        ndarray, or csr_matrix of a sparse method, of float32 if X is, and of float64 otherwise
            Shape (n_samples, D), or (n_samples, directions kept) in orthonormal coordinates.
        """
        rows = self._rows_to_map(X)
        parts = bands(len(rows), 4 * len(self.gram_))
        Z = self.representatives_.astype(rows.dtype, copy=False)
        if self.method != "dense":
            return self._sparse(rows, Z, parts)
        projection = self._projection.astype(rows.dtype)
        out = np.empty((len(rows), self._n_features_out), rows.dtype)

        def project(band: slice) -> None:
            np.matmul(self.kernel_(rows[band], Z, n_jobs=1), projection, out=out[band])

        run_tasks(project, parts, self.n_jobs)
        return out

    def _sparse(self, rows: Matrix, Z: Matrix, parts: list[slice]) -> sparse.csr_matrix:
        n_nonzero = min(self.n_nonzero, len(Z))
        chosen = np.full((len(rows), n_nonzero), -1, np.int64)
        coefficients = np.zeros((len(rows), n_nonzero))
        diagonal = self.gram_.diagonal()
        norms = np.sqrt(np.maximum(diagonal, 0))

        def project(band: slice) -> None:
            similarities = self.kernel_(rows[band], Z, n_jobs=1)
            if self.method == "nearest":
                order = np.argsort(diagonal - 2 * similarities, axis=1, kind="stable")
                chosen[band] = order[:, :n_nonzero]
            loops.pursue(
                similarities,
                self.gram_,
                norms,
                self._tolerance,
                chosen[band],
                coefficients[band],
                self.method == "omp",
            )

        run_tasks(project, parts, self.n_jobs)
        used = (coefficients != 0) & (chosen >= 0)
        starts = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        shape = (len(rows), len(Z))
        matrix = sparse.csr_matrix((coefficients[used].astype(rows.dtype), chosen[used], starts), shape=shape)
        matrix.sort_indices()
        return matrix

    def _choose(self, rows: Matrix) -> Matrix:
        if not isinstance(self.representatives, str):
            given = self.kernel_.check(check_rows("KernelProjection", self.representatives)).astype(
                rows.dtype
            )
            if given.shape[1] != rows.shape[1]:
                raise DataError(
                    f"KernelProjection: the representatives have {given.shape[1]} features but X has "
                    f"{rows.shape[1]}; give rows of the same length."
                )
            return given
        n = self.n_representatives
        if n > len(rows):
            warnings.warn(
                f"KernelProjection: {n} representatives were asked for, but there are {len(rows)} rows; "
                "all of them are taken.",
                stacklevel=3,
            )
            n = len(rows)
        seed = seed_of(self.random_state)
        if self.representatives == "random":
            drawn = stream(seed, "kernel projection").choice(len(rows), n, replace=False)
            return rows[np.sort(drawn)]
        from sklearn.cluster import KMeans

        centres = KMeans(n, n_init=1, random_state=seed).fit(rows).cluster_centers_
        return centres.astype(rows.dtype, copy=False)

    def _check_parameters(self) -> None:
        owner = "KernelProjection"
        check_choice(owner, "method", self.method, _METHODS)
        if self.coordinates is not None:
            check_choice(owner, "coordinates", self.coordinates, _COORDINATES)
        if isinstance(self.representatives, str):
            check_choice(owner, "representatives", self.representatives, _SOURCES)
        check_number(owner, "n_representatives", self.n_representatives, low=1, integer=True)
        check_number(owner, "n_nonzero", self.n_nonzero, low=1, integer=True)
        if self.n_components is not None:
            check_number(owner, "n_components", self.n_components, low=1, integer=True)
        if self.method != "dense" and self.coordinates == "orthonormal":
            raise UsageError(
                f"The 'coordinates' parameter of KernelProjection must be 'raw' with method={self.method!r}: "
                "orthonormal ones are dense. Got 'orthonormal' instead."
            )

    def _is_raw(self) -> bool:
        return self.method != "dense" or self.coordinates == "raw"

    def _is_for_histograms(self) -> bool:
        kernel = KERNELS.get(self.kernel) if isinstance(self.kernel, str) else self.kernel
        return getattr(kernel, "histogram", False)
