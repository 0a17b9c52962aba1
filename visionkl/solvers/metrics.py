"""Regularisers: what "a small vector" means.

The solvers minimise `λ/2 vᵀK†v + loss(v)`, where the positive semi-definite K says how the coordinates of `v`
belong together (METHODS §6). A metric is K in factors, `K = F Fᵀ`, and nothing else is ever asked of it:

* `expand(w) = F w` makes the coefficients `v` out of *coordinates* `w`, in which the regulariser is plain:
  `vᵀK†v = ‖w‖²` for the shortest `w` that expands to `v`;
* `reduce(a) = Fᵀ a` takes a plane over `v` to the same plane over `w`, since `a·v = a·F w`;
* `product(a) = K a` is the one after the other;
* `coordinates(v)` finds `w` again.

The solver lives in the coordinates. For product-quantiser codes that is worth a factor of `D / G` in memory:
`v` holds the tables, M·D numbers, but `w` is the decoded vector, M·G numbers, and so are all planes. One
product costs O(dD) there, and O(D) for the intersection kernel's grid, whose factor is a cumulative sum.

=================== ============================================== ================================
metric              K                                              v holds
=================== ============================================== ================================
`DiagonalMetric`    diagonal, `1 / weights`                        plain weights
`BlockMetric`       one block `Z Zᵀ` after the other               tables of scores, one a block
`dense_metric`      any                                            coefficients of any map
`GridMetric`        `min(z_i, z_j)` for each feature               values at the grid points
`additive_metric`   an additive kernel on a grid for each feature  values at the grid points
`StackedMetric`     metrics one after the other                    their coefficients, side by side
=================== ============================================== ================================

All functions take single vectors or several as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import UsageError
from visionkl.core.validation import check_choice, check_number, parameter_error

Vector = npt.NDArray[np.float64]


class Metric(Protocol):
    """What a solver asks of a regulariser; see the head of this module.

    Attributes
    ----------
    dim : int
        Length of the coefficients `v`.
    rank : int
        Length of the coordinates `w`.
    """

    dim: int
    rank: int

    def expand(self, w: Vector) -> Vector:
        """Return the coefficients `F w`."""
        ...

    def reduce(self, a: Vector) -> Vector:
        """Return `Fᵀ a`."""
        ...

    def coordinates(self, v: Vector) -> Vector:
        """Return the shortest `w` that expands to `v` (or comes nearest to it)."""
        ...

    def locate(self, indices: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.intp], Vector]:
        """Return, for coefficients with `v[i] = scale · w[j]`, each `j` and `scale`."""
        ...


def check_positive(owner: str, name: str, value: Any) -> float:
    """Return `value` if it is a finite number above 0, and complain otherwise."""
    if not isinstance(value, (int, float, np.number)) or not 0 < value < np.inf:
        raise parameter_error(owner, name, "a number > 0", value)
    return float(value)


def product(metric: Metric, a: Vector) -> Vector:
    """Return `K a`."""
    return metric.expand(metric.reduce(a))


class DiagonalMetric:
    """Every coefficient for itself: the regulariser is `λ/2 Σ weights · v²`.

    Parameters
    ----------
    weights : array_like of float, shape (dim,), or int
        Positive: 1 is the usual, 10 regularises ten times as strongly, 0.01 hardly. A number stands for so
        many ones.

    Examples
    --------
    >>> metric = DiagonalMetric([1.0, 4.0])
    >>> product(metric, np.array([1.0, 1.0]))
    array([1.  , 0.25])
    """

    def __init__(self, weights: npt.ArrayLike | int) -> None:
        values = np.ones(weights) if isinstance(weights, int) else np.array(weights, dtype=np.float64)
        if values.ndim != 1 or not len(values) or not (np.isfinite(values) & (values > 0)).all():
            raise UsageError(
                "The 'weights' parameter of DiagonalMetric must be a list of finite numbers > 0; "
                "give a coefficient that is hardly to be regularised a small one, such as 0.01."
            )
        self.weights = values
        self.dim = self.rank = len(values)
        self._scale = 1 / np.sqrt(values)

    def expand(self, w: Vector) -> Vector:
        """Return the coefficients `F w`."""
        return w * self._scale

    def reduce(self, a: Vector) -> Vector:
        """Return `Fᵀ a`."""
        return a * self._scale

    def coordinates(self, v: Vector) -> Vector:
        """Return the `w` that expands to `v`."""
        return v / self._scale

    def locate(self, indices: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.intp], Vector]:
        """Return, for coefficients with `v[i] = scale · w[j]`, each `j` and `scale`."""
        return indices, self._scale[indices]


class BlockMetric:
    """One block after the other, each with `K = Z Zᵀ`: product quantisation, or maps of single features.

    Parameters
    ----------
    factors : array_like of float, shape (n_blocks, n_entries, n_coordinates)
        Z of each block. For a product quantiser these are its codebooks: then the coefficients are the
        tables `(n_blocks, n_entries)` in one row, entry `c` of a table being the score of codeword `c`.
        Factors of float32 are multiplied in float32 and not copied.

    Examples
    --------
    Two codewords in the plane:

    >>> metric = BlockMetric([[[3.0, 4.0], [1.0, 0.0]]])
    >>> metric.expand(np.array([1.0, 2.0]))
    array([11.,  1.])
    """

    def __init__(self, factors: npt.ArrayLike) -> None:
        given = np.asarray(factors)
        self.factors = given if given.dtype == np.float32 else given.astype(np.float64)
        if self.factors.ndim != 3 or not self.factors.size:
            raise UsageError(
                "The 'factors' parameter of BlockMetric must have the shape "
                f"(n_blocks, n_entries, n_coordinates). Got {self.factors.shape} instead."
            )
        if not np.isfinite(self.factors).all():
            raise UsageError("The 'factors' parameter of BlockMetric holds NaN or infinite values.")
        n_blocks, n_entries, n_coordinates = self.factors.shape
        self.dim = n_blocks * n_entries
        self.rank = n_blocks * n_coordinates
        self._inverses: npt.NDArray[np.floating] | None = None

    def expand(self, w: Vector) -> Vector:
        """Return the coefficients `F w`."""
        return self._apply(self.factors.transpose(0, 2, 1), w)

    def reduce(self, a: Vector) -> Vector:
        """Return `Fᵀ a`."""
        return self._apply(self.factors, a)

    def coordinates(self, v: Vector) -> Vector:
        """Return the shortest `w` that expands to `v` (or comes nearest to it)."""
        if self._inverses is None:
            self._inverses = np.linalg.pinv(self.factors)
        return self._apply(self._inverses.transpose(0, 2, 1), v)

    def locate(self, indices: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.intp], Vector]:
        """Refuse: the coefficients of a block are not independent."""
        raise UsageError(
            f"Coefficient {int(indices[0])} cannot have a lower bound: the regulariser ties it to others; "
            "bounds are for coefficients of a DiagonalMetric."
        )

    def _apply(self, matrices: npt.NDArray[np.floating], vectors: Vector) -> Vector:
        """Multiply each block of (row) vectors with its matrix from the right."""
        n_blocks, n_in, n_out = matrices.shape
        many = vectors.astype(matrices.dtype, copy=False).reshape(-1, n_blocks, n_in).transpose(1, 0, 2)
        products = (many @ matrices).transpose(1, 0, 2).astype(np.float64)
        return products.reshape(*vectors.shape[:-1], n_blocks * n_out)


def dense_metric(K: npt.ArrayLike, *, rank_tolerance: float = 1e-10) -> BlockMetric:
    """Make a metric of any symmetric positive semi-definite matrix.

    Parameters
    ----------
    K : array_like of float, shape (dim, dim)
    rank_tolerance : float
        Eigenvalues below this times the largest one are taken as 0: the coefficients stay within the range
        of the others, as the pseudo-inverse in `vᵀK†v` demands.

    Examples
    --------
    >>> product(dense_metric([[2.0, 1.0], [1.0, 2.0]]), np.array([1.0, 0.0])).round(6)
    array([2., 1.])
    """
    check_number("dense_metric", "rank_tolerance", rank_tolerance, low=0)
    matrix = np.array(K, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise UsageError(f"The 'K' parameter of dense_metric must be a square matrix, not {matrix.shape}.")
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T, atol=1e-8 * np.abs(matrix).max()):
        raise UsageError("The 'K' parameter of dense_metric must be finite and symmetric.")
    return BlockMetric(_factors(matrix[None], rank_tolerance))


def _factors(matrices: Vector, rank_tolerance: float = 1e-10) -> Vector:
    """Return F with `K = F Fᵀ` for each of several matrices, with columns for the highest rank."""
    values, vectors = np.linalg.eigh(matrices)
    largest = values[:, -1:]
    if (largest <= 0).any() or (values[:, :1] < -1e-6 * largest).any():
        raise UsageError(
            "The matrix of a metric must be positive semi-definite and not 0; "
            f"its eigenvalues span {values.min():g} to {values.max():g}."
        )
    kept = values > rank_tolerance * largest
    factors = vectors * np.sqrt(np.where(kept, values, 0.0))[:, None, :]
    return factors[:, :, -int(kept.sum(axis=1).max()) :]


def as_metric(metric: Any, dim: int) -> Metric:
    """Return a metric of `dim` coefficients: a `Metric` as it is, or one made of a kernel's matrix.

    Parameters
    ----------
    metric : Metric, or array_like of float
        The matrix K of all coefficients `(dim, dim)`; or of one block of them `(m, m)`, if all blocks have
        the same, such as the grids of features in an additive kernel; or of each block `(n_blocks, m, m)`.
    dim : int

    Examples
    --------
    >>> as_metric([[1.0, 0.0], [0.0, 4.0]], 6).dim
    6
    """
    if hasattr(metric, "expand") and hasattr(metric, "reduce"):
        known: Metric = metric
        if known.dim != dim:
            raise UsageError(f"The metric is one of {known.dim} coefficients, but there are {dim} features.")
        return known
    matrices = np.asarray(metric, dtype=np.float64)
    blocks = matrices[None] if matrices.ndim == 2 else matrices
    n_blocks = dim // max(blocks.shape[-1], 1)
    fits = blocks.ndim == 3 and blocks.shape[1] == blocks.shape[2] and n_blocks * blocks.shape[2] == dim
    if not fits or len(blocks) not in (1, n_blocks):
        raise UsageError(
            f"The metric of {dim} features must be a matrix ({dim}, {dim}), the matrix (m, m) of every block "
            f"of m features, or matrices (n_blocks, m, m), not an array of the shape {matrices.shape}."
        )
    largest = np.abs(blocks).max()
    if not np.isfinite(largest) or not np.allclose(blocks, blocks.transpose(0, 2, 1), atol=1e-8 * largest):
        raise UsageError("The matrix of a metric must be finite and symmetric.")
    factors = _factors(blocks)
    return BlockMetric(np.broadcast_to(factors, (n_blocks, *factors.shape[1:])))


#: Additive kernels of two numbers ≥ 0.
_ADDITIVE: dict[str, Callable[[Vector, Vector], Vector]] = {
    "intersection": np.minimum,
    "hellinger": lambda x, y: np.sqrt(x * y),
    "chi2": lambda x, y: np.divide(2 * x * y, x + y, out=np.zeros(np.shape(x + y)), where=x + y > 0),
}


def additive_metric(kernel: str, points: npt.ArrayLike) -> Metric:
    """Make the metric of an additive kernel on a grid for each feature (METHODS §4).

    Parameters
    ----------
    kernel : {"intersection", "hellinger", "chi2"}
    points : array_like of float, shape (n_features, n_points)
        The grids, not negative and rising.

    Returns
    -------
    Metric
        `GridMetric` for the intersection on grids that begin at 0, whose products are cumulative sums; for
        Hellinger's kernel of rank 1 a feature; for χ² in small matrices.

    Examples
    --------
    >>> product(additive_metric("intersection", [[0.0, 1.0, 3.0]]), np.array([0.0, 0.0, 1.0]))
    array([0., 1., 3.])
    """
    check_choice("additive_metric", "kernel", kernel, _ADDITIVE)
    grid = np.array(points, dtype=np.float64)
    if grid.ndim != 2 or grid.shape[1] < 2 or not (grid[:, :1] >= 0).all() or not (np.diff(grid) > 0).all():
        raise UsageError(
            "The 'points' parameter of additive_metric must have the shape (n_features, n_points), with at "
            "least two points that rise from 0 or more."
        )
    if kernel == "intersection" and not grid[:, 0].any():
        return GridMetric(len(grid), grid.shape[1], np.diff(grid))
    if kernel == "hellinger":
        return BlockMetric(np.sqrt(grid)[:, :, None])
    return BlockMetric(_factors(_ADDITIVE[kernel](grid[:, :, None], grid[:, None, :])))


class GridMetric:
    """The intersection kernel on a grid: `K_ij = min(z_i, z_j)`, by default with `z = 0, 1, 2, ...`.

    The factor is a cumulative sum (B eq. 17): the coefficients are values at the grid points, the coordinates
    their steps, so that `vᵀK†v` is the sum of squared steps over the spacing. The value at 0 is 0.

    Parameters
    ----------
    n_features : int
        Each has its own grid.
    n_points : int
        Grid points of a feature, including 0.
    spacing : float, or array_like of float that fits the shape (n_features, n_points - 1)
        Distances of neighbouring points.

    Examples
    --------
    >>> product(GridMetric(1, 3), np.array([0.0, 1.0, 1.0]))
    array([0., 2., 3.])
    """

    def __init__(self, n_features: int, n_points: int, spacing: npt.ArrayLike = 1.0) -> None:
        self.n_features = check_number("GridMetric", "n_features", n_features, low=1, integer=True)
        self.n_points = check_number("GridMetric", "n_points", n_points, low=2, integer=True)
        steps = np.asarray(spacing, dtype=np.float64)
        if not (np.isfinite(steps) & (steps > 0)).all():
            raise parameter_error("GridMetric", "spacing", "a number > 0, or several", spacing)
        self._scale = np.sqrt(np.broadcast_to(steps, (n_features, n_points - 1)))
        self.dim = n_features * n_points
        self.rank = n_features * (n_points - 1)

    def expand(self, w: Vector) -> Vector:
        """Return the coefficients `F w`."""
        values = np.zeros((*w.shape[:-1], self.n_features, self.n_points))
        steps = w.reshape(*w.shape[:-1], self.n_features, self.n_points - 1)
        np.cumsum(steps * self._scale, axis=-1, out=values[..., 1:])
        return values.reshape(*w.shape[:-1], self.dim)

    def reduce(self, a: Vector) -> Vector:
        """Return `Fᵀ a`."""
        values = a.reshape(*a.shape[:-1], self.n_features, self.n_points)[..., :0:-1]
        sums = np.cumsum(values, axis=-1)[..., ::-1] * self._scale
        return sums.reshape(*a.shape[:-1], self.rank)

    def coordinates(self, v: Vector) -> Vector:
        """Return the `w` that expands to `v`, the values at 0 left out."""
        values = v.reshape(*v.shape[:-1], self.n_features, self.n_points).copy()
        values[..., 0] = 0.0
        return (np.diff(values, axis=-1) / self._scale).reshape(*v.shape[:-1], self.rank)

    def locate(self, indices: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.intp], Vector]:
        """Refuse: the coefficients of a feature are not independent."""
        raise UsageError(
            f"Coefficient {int(indices[0])} cannot have a lower bound: the regulariser ties it to others; "
            "bounds are for coefficients of a DiagonalMetric."
        )


class StackedMetric:
    """Metrics side by side: filters as tables, deformations and a bias as plain numbers, in one vector.

    Parameters
    ----------
    metrics : sequence of Metric

    Examples
    --------
    >>> metric = StackedMetric([GridMetric(1, 3), DiagonalMetric([0.01])])
    >>> metric.dim, metric.rank
    (4, 3)
    """

    def __init__(self, metrics: Sequence[Metric]) -> None:
        if not metrics:
            raise UsageError("The 'metrics' parameter of StackedMetric must hold at least one metric.")
        self.metrics = tuple(metrics)
        self._v_ends = np.cumsum([metric.dim for metric in metrics])
        self._w_ends = np.cumsum([metric.rank for metric in metrics])
        self.dim, self.rank = int(self._v_ends[-1]), int(self._w_ends[-1])

    def expand(self, w: Vector) -> Vector:
        """Return the coefficients `F w`."""
        blocks = np.split(w, self._w_ends[:-1], axis=-1)
        parts = [metric.expand(block) for metric, block in zip(self.metrics, blocks, strict=True)]
        return np.concatenate(parts, axis=-1)

    def reduce(self, a: Vector) -> Vector:
        """Return `Fᵀ a`."""
        blocks = np.split(a, self._v_ends[:-1], axis=-1)
        parts = [metric.reduce(block) for metric, block in zip(self.metrics, blocks, strict=True)]
        return np.concatenate(parts, axis=-1)

    def coordinates(self, v: Vector) -> Vector:
        """Return the shortest `w` that expands to `v` (or comes nearest to it)."""
        blocks = np.split(v, self._v_ends[:-1], axis=-1)
        parts = [metric.coordinates(block) for metric, block in zip(self.metrics, blocks, strict=True)]
        return np.concatenate(parts, axis=-1)

    def locate(self, indices: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.intp], Vector]:
        """Return, for coefficients with `v[i] = scale · w[j]`, each `j` and `scale`."""
        positions = np.empty(len(indices), np.intp)
        scales = np.empty(len(indices))
        owner = np.searchsorted(self._v_ends, indices, side="right")
        for number in np.unique(owner):
            metric = self.metrics[number]
            first_v = int(self._v_ends[number]) - metric.dim
            first_w = int(self._w_ends[number]) - metric.rank
            own = owner == number
            inside, scales[own] = metric.locate(indices[own] - first_v)
            positions[own] = inside + first_w
        return positions, scales
