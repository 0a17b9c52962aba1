"""Kernel matrices and explicit kernel maps, in single precision, against scikit-learn's.

The rows are histograms of sum 1, which is what these kernels are for; a Fourier map takes any numbers. Peers
are called with the same float32 rows, and BLAS has as many threads as ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import sklearn
from harness import Contestant, Setting, row
from sklearn.kernel_approximation import AdditiveChi2Sampler, RBFSampler
from sklearn.metrics.pairwise import chi2_kernel
from threadpoolctl import threadpool_limits

from visionkl.core.rng import stream
from visionkl.kernels.exact import ExpChi2
from visionkl.kernels.fourier import FourierMap
from visionkl.kernels.homogeneous import HomogeneousMap

SCIKIT_LEARN = f"scikit-learn {sklearn.__version__}"


def histograms(name: str, n: int, d: int) -> npt.NDArray[np.float32]:
    """Rows of sum 1."""
    rows = stream(0, "histograms", name).gamma(0.5, size=(n, d))
    return (rows / rows.sum(axis=1, keepdims=True)).astype(np.float32)


@row("exp-chi2", "exponential χ² kernel, 5000 × 1000 rows of 500 features", threads=(1, 2), rounds=5)
def exp_chi2(setting: Setting) -> Iterator[Contestant]:
    X, Y = histograms("left", 5000, 500), histograms("right", 1000, 500)
    kernel = ExpChi2.of(Y)
    gamma = 1 / kernel.width
    np.testing.assert_allclose(kernel(X[:50], Y), chi2_kernel(X[:50], Y, gamma=gamma), atol=1e-5)
    yield Contestant("visionkl", "ours", lambda: _discard(kernel(X, Y, n_jobs=setting.threads)))
    yield Contestant(SCIKIT_LEARN, "peer", lambda: _discard(chi2_kernel(X, Y, gamma=gamma)))


@row("fourier-map", "random Fourier map, 20 000 × 500 → 3000", threads=(1, 2), rounds=7)
def fourier_map(setting: Setting) -> Iterator[Contestant]:
    X = stream(0, "rows").standard_normal((20_000, 500), np.float32)
    ours = FourierMap(n_components=3000, n_jobs=setting.threads).fit(X)
    theirs = RBFSampler(gamma=float(ours.sigma_[0] ** 2 / 2), n_components=3000).fit(X)
    projection = ours.basis_.projection(ours.sigma_, np.float32)
    yield Contestant("visionkl", "ours", lambda: _discard(ours.transform(X)))
    yield Contestant(SCIKIT_LEARN, "peer", _with_threads(setting.threads, lambda: theirs.transform(X)))
    yield Contestant("the product alone", "limit", _with_threads(setting.threads, lambda: X @ projection))


@row("homogeneous-map", "homogeneous χ² map, 5000 × 500 → 1500", threads=(1, 2))
def homogeneous_map(setting: Setting) -> Iterator[Contestant]:
    X = histograms("left", 5000, 500)
    ours = HomogeneousMap(order=1, n_jobs=setting.threads).fit(X)
    theirs = AdditiveChi2Sampler(sample_steps=2).fit(X)
    mapped = {"ours": ours.transform(X[:200]), "theirs": theirs.transform(X[:200])}
    exact = ours.kernel_(X[:200])
    errors = [f"{name} {np.abs(M @ M.T - exact).max():.4f}" for name, M in mapped.items()]
    setting.notes.append("homogeneous map: largest error of the inner products: " + ", ".join(errors))
    yield Contestant("visionkl", "ours", lambda: _discard(ours.transform(X)))
    yield Contestant(SCIKIT_LEARN, "peer", lambda: _discard(theirs.transform(X)))


def _with_threads(threads: int, work: Callable[[], object]) -> Callable[[], None]:
    def limited() -> None:
        with threadpool_limits(threads, "blas"):
            work()

    return limited


def _discard(value: object) -> None:
    """Let a result go: a contestant's return value is its time."""
