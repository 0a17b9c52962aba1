"""Random binary maps: a sample as many yes-or-no answers, packed into bits (METHODS §8; Roig et al.).

Fundamentals
------------
A map asks `n_maps` questions, each drawn at random without looking at labels. The kernel of two samples is
the weight of the questions that they answer alike,

    K(x, z) = Σ_k θ_k [s_k(x) = s_k(z)],      θ_k ≥ 0,

with θ_k = 1 / n_maps here; `visionkl.learning.binary` learns θ. It is the inner product of the explicit maps
(√θ_k s_k, √θ_k (1 − s_k))_k, so it is a kernel whatever the questions are.

`StumpMap`
    Is the feature j above t? The feature is drawn from all alike, and the threshold evenly from the range
    that the feature had in training. With many stumps the kernel comes near 1 − mean_j abs(x_j − z_j) /
    range_j, which for histograms is an intersection kernel. A question costs one comparison.
`BinaryProjectionMap`
    Is r · ψ(x) above t? ψ is any map, such as `FourierMap` or `HomogeneousMap`, or x itself; r is a random
    direction, and t is drawn as above. A question then sees all features together, and costs a product with
    ψ(x).

If unsure, take stumps; they need no scaling of features. Projections are for data on which the kernel behind
ψ does much better than an additive one.

Implementation
--------------
Bits are packed, eight a byte, in whole words of 64 (`visionkl.kernels.questions` packs and unpacks them).
Stumps are kept in the order of their features and thresholds, for the sake of the loops
(`visionkl.backend.cpu.bits`): 10⁵ samples are asked 20 000 of them in about a tenth of a second. Kernels
count equal bits by words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.sparsefuncs import min_max_axis

from visionkl.backend.dispatch import choose_device, device_of
from visionkl.backend.gpu.device import in_blocks
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError
from visionkl.core.rng import seed_of, stream
from visionkl.core.validation import check_number, parameter_error
from visionkl.kernels.base import Kernel, Matrix
from visionkl.kernels.mapping import KernelMap
from visionkl.kernels.questions import Bytes, Projections, Questions, Stumps, check_any_rows, encode

Vector = npt.NDArray[np.float64]

# Rows that a thread compares with all others at a time.
_ROWS_OF_KERNEL = 32
# Pairs that a GPU compares at a time.
_PAIRS_ON_A_GPU = 2**28


@dataclass(frozen=True, eq=False)
class BinaryKernel(Kernel):
    """Σ_k θ_k [s_k(x) = s_k(y)]: the weight of the bits in which two samples agree.

    Parameters
    ----------
    questions : Stumps or Projections
        Of a fitted map: its `questions_`.
    theta : ndarray of float64, shape (n_maps,), optional
        θ, not negative; 1 / n_maps by default.

    Examples
    --------
    >>> X = np.random.default_rng(0).random((50, 4))
    >>> kernel = StumpMap(20_000).fit(X).kernel_
    >>> expected = 1 - np.abs((X[0] - X[1]) / np.ptp(X, axis=0)).mean()
    >>> bool(abs(kernel(X[:1], X[1:2])[0, 0] - expected) < 0.02)
    True
    """

    questions: Questions
    theta: Vector | None = None

    def __call__(self, X: Any, Y: Any = None, *, n_jobs: int | None = None) -> Matrix:
        """Compute the kernel between all rows of X and all rows of Y (X by default).

        They may be sparse, or lie on a GPU, where the result is then, too.
        """
        rows = self.check(X)
        others = rows if Y is None else self.check(Y)
        device_of(rows, others)
        left = encode(self.questions, rows, n_jobs)
        right = left if Y is None else encode(self.questions, others, n_jobs)
        return self.of_bits(left, right, np.result_type(rows.dtype, others.dtype), n_jobs=n_jobs)

    def of_bits(
        self, left: Bytes, right: Bytes, dtype: npt.DTypeLike = np.float64, *, n_jobs: int | None = None
    ) -> Matrix:
        """Compute the kernel between packed bits `(n, n_bytes)` and `(m, n_bytes)`."""
        width = 8 * -(-self.questions.n_maps // 64)
        device = device_of(left, right)
        xp, loops = device.namespace, device.loops("bits")
        with device.use():
            left, right = xp.ascontiguousarray(left, np.uint8), xp.ascontiguousarray(right, np.uint8)
        if left.ndim != 2 or right.ndim != 2 or left.shape[1] != width or right.shape[1] != width:
            raise DataError(
                f"BinaryKernel: bits of {self.questions.n_maps} maps have {width} bytes a sample; these "
                f"arrays have the shapes {left.shape} and {right.shape}."
            )
        with device.use():
            out = xp.empty((len(left), len(right)), dtype)
        scale = out.dtype.type(1 / self.questions.n_maps)
        tables = None if self.theta is None else device.put(_tables(self.theta, width))

        def fill(some: slice) -> None:
            if tables is None:
                words = left[some].view(np.uint64), right.view(np.uint64)
                loops.count_agreements(*words, self.questions.n_maps, scale, out[some])
            else:
                loops.weigh_agreements(left[some], right, tables, out[some])

        if device.is_gpu:
            with device.use():
                in_blocks(fill, len(left), max(_PAIRS_ON_A_GPU // max(len(right), 1), 1))
        else:
            bands = range(0, len(left), _ROWS_OF_KERNEL)
            run_tasks(lambda first: fill(slice(first, first + _ROWS_OF_KERNEL)), bands, n_jobs)
        return out

    def diagonal(self, X: Any) -> Matrix:
        """Compute the kernel of each row with itself, shape (n,)."""
        rows = self.check(X)
        one = 1.0 if self.theta is None else float(self.theta.sum())
        device = device_of(rows)
        with device.use():
            return device.namespace.full(rows.shape[0], one, rows.dtype)

    def check(self, X: Any) -> Any:
        """Return rows that this kernel takes, dense or sparse, or complain."""
        return check_any_rows("BinaryKernel", X)


class BinaryMap(KernelMap):
    """Base of the maps: what is common to all kinds of questions."""

    questions_: Questions
    n_maps: int
    random_state: Any

    def fit(self, X: Any, y: object = None) -> Any:
        """Draw the questions; of X only ranges are taken.

        Parameters
        ----------
        X : array_like or sparse matrix of float, shape (n_samples, n_features)
        y : None
            Not used.

        Returns
        -------
        self
        """
        check_number(type(self).__name__, "n_maps", self.n_maps, low=1, integer=True)
        rows = self._rows_to_fit(X)
        self.questions_ = self._draw(rows, stream(seed_of(self.random_state), type(self).__name__))
        self.kernel_ = BinaryKernel(self.questions_)
        self._n_features_out = 8 * -(-self.n_maps // 64)
        return self

    def transform(self, X: Any) -> Bytes:
        """Answer the questions for rows.

        Parameters
        ----------
        X : array_like or sparse matrix of float, shape (n_samples, n_features)
            May lie on a GPU; then the bits do, too.

        Returns
        -------
        ndarray of uint8, shape (n_samples, 8 ceil(n_maps / 64))
            Bits, from the lowest on; see `unpack`. `.view(numpy.uint64)` gives words.
        """
        rows = self._rows_to_map(X)
        return encode(self.questions_, rows, self.n_jobs, choose_device(self.device, type(self).__name__))

    def _draw(self, rows: Any, random: np.random.Generator) -> Questions:
        raise NotImplementedError

    def _checked(self, X: Any) -> Any:
        return check_any_rows(type(self).__name__, X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        tags.input_tags.sparse = True
        return tags


class StumpMap(BinaryMap):
    """Random decision stumps as bits: whether a feature is above a threshold.

    Parameters
    ----------
    n_maps : int
        Stumps.
    random_state : int, RandomState instance or None
        Seed; None is different each time.
    n_jobs : int, optional
        Threads; all usable cores by default.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "auto": where questions are answered. They are drawn on the CPU
        either way, and are the same. Rows that lie on a GPU are asked there anyway, and the bits stay there.

    Attributes
    ----------
    questions_ : Stumps
        Features and thresholds.
    kernel_ : BinaryKernel
        The share of bits in which two samples agree.
    n_features_in_ : int

    Examples
    --------
    >>> X = np.random.default_rng(0).random((100, 5))
    >>> bits = StumpMap(1000).fit_transform(X)
    >>> bits.shape, bits.dtype
    ((100, 128), dtype('uint8'))
    """

    def __init__(
        self,
        n_maps: int = 20_000,
        *,
        random_state: Any = 0,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.n_maps = n_maps
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def _draw(self, rows: Any, random: np.random.Generator) -> Questions:
        low, high = (
            min_max_axis(rows, axis=0) if sparse.issparse(rows) else (rows.min(axis=0), rows.max(axis=0))
        )
        return Stumps.draw(low, high, self.n_maps, random)


class BinaryProjectionMap(BinaryMap):
    """Thresholded random projections of any map as bits.

    Parameters
    ----------
    n_maps : int
        Projections.
    base : transformer, optional
        ψ, such as `FourierMap()`; a copy of it is fitted. None projects the features themselves, which should
        then be on the same scale.
    random_state : int, RandomState instance or None
        Seed of the projections; None is different each time.
    n_jobs : int, optional
        Threads; all usable cores by default.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "auto": where questions are answered. They are drawn on the CPU
        either way, and are the same. Rows that lie on a GPU are asked there anyway, and the bits stay there.

    Attributes
    ----------
    questions_ : Projections
        The fitted map, directions and thresholds.
    kernel_ : BinaryKernel
        The share of bits in which two samples agree.
    n_features_in_ : int

    Examples
    --------
    >>> from visionkl.kernels.fourier import FourierMap
    >>> X = np.random.default_rng(0).random((100, 5))
    >>> BinaryProjectionMap(1000, base=FourierMap(n_components=200)).fit_transform(X).shape
    (100, 128)
    """

    def __init__(
        self,
        n_maps: int = 20_000,
        *,
        base: Any = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.n_maps = n_maps
        self.base = base
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def _draw(self, rows: Any, random: np.random.Generator) -> Questions:
        base, width = None, rows.shape[1]
        if self.base is not None:
            if not hasattr(self.base, "fit") or not hasattr(self.base, "transform"):
                raise parameter_error(type(self).__name__, "base", "None or a transformer", self.base)
            base = clone(self.base).fit(rows)
            width = base.transform(rows[:1]).shape[1]
        directions = random.standard_normal((width, self.n_maps), np.float32).astype(rows.dtype, copy=False)
        asked = Projections(base, directions, np.zeros(self.n_maps, rows.dtype))
        size = asked.rows_a_task()

        def span(first: int) -> Matrix:
            values = asked.project(rows[first : first + size])
            return np.stack([values.min(axis=0), values.max(axis=0)])

        spans = np.stack(run_tasks(span, range(0, rows.shape[0], size), self.n_jobs))
        low, high = spans[:, 0].min(axis=0), spans[:, 1].max(axis=0)
        share = random.random(self.n_maps)
        return Projections(base, directions, ((1 - share) * low + share * high).astype(rows.dtype))


def _tables(theta: Vector, n_bytes: int) -> Vector:
    """Return, of each byte and of each number that two bytes differ by, the weight of the bits that agree."""
    weights = np.zeros((n_bytes, 8))
    weights.reshape(-1)[: len(theta)] = theta
    agree = 1 - np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return weights @ agree.T.astype(np.float64)
