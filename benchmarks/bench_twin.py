"""Twin Gaussian processes: dependence of kernels' powers, and the search for outputs.

The peers are what one would write first with NumPy and SciPy: the products of matrices in the definition of
HSIC, and a loop over test points that calls L-BFGS for each, with the same criterion, slopes and start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import scipy
from harness import Contestant, Setting, row
from scipy import optimize
from threadpoolctl import threadpool_limits

from visionkl.core.rng import stream
from visionkl.kernels.exact import Gaussian
from visionkl.learning.hsic import hsic_matrix
from visionkl.learning.twin import TwinGaussianProcess
from visionkl.run.experiments.articulated import walking_figures

Array = npt.NDArray[np.float64]

DEGREES = (11, 11)
N_SAMPLES, N_NEW = 2000, 1000
#: Test points that a loop over them is timed with.
N_LOOPED = 10


@row("hsic-powers", "HSIC of 11 × 11 powers of two Gram matrices, 2000 samples", threads=(1, 2), rounds=5)
def hsic_powers(setting: Setting) -> Iterator[Contestant]:
    random = stream(0, "twin benchmark")
    X = random.standard_normal((N_SAMPLES, 10))
    K, G = (Gaussian.of(rows)(rows) for rows in (X, np.sin(X[:, :5])))
    wanted = _products(K[:200, :200], G[:200, :200])
    np.testing.assert_allclose(hsic_matrix(K[:200, :200], G[:200, :200], DEGREES)[1:, 1:], wanted, rtol=1e-8)
    # The products of all pairs take as many times longer as there are powers of K: one of them is enough.
    setting.notes.append(
        "HSIC: the products were timed for the 11 powers of G and one of K, and count 11 times"
    )
    yield Contestant("visionkl", "ours", lambda: _discard(hsic_matrix(K, G, DEGREES, n_jobs=setting.threads)))
    yield Contestant(
        "products of matrices", "peer", lambda: _times(11, setting.threads, lambda: _products(K, G, 1))
    )


@row("twin-search", "twin Gaussian process, 2000 samples, 12 outputs: 1000 answers", threads=(1, 2), rounds=3)
def twin_search(setting: Setting) -> Iterator[Contestant]:
    figures = walking_figures(N_SAMPLES + N_NEW, 0)
    X, Y = figures.descriptors, figures.angles / figures.angles.std(axis=0)
    yield from _search(setting, X, Y)


@row(
    "twin-search-flat",
    "twin Gaussian process, 2000 samples, 1 output: 1000 answers",
    threads=(1, 2),
    rounds=3,
)
def twin_search_flat(setting: Setting) -> Iterator[Contestant]:
    random = stream(0, "twin benchmark", "s-shape")
    r = random.uniform(size=(N_SAMPLES + N_NEW, 1))
    yield from _search(setting, r + 0.3 * np.sin(2 * np.pi * r) + 0.05 * random.standard_normal(r.shape), r)


def _search(setting: Setting, X: Array, Y: Array) -> Iterator[Contestant]:
    process = TwinGaussianProcess(n_jobs=setting.threads).fit(X[:N_SAMPLES], Y[:N_SAMPLES])
    new = X[N_SAMPLES:]
    loop = Loop(process)
    ours = process.predict(new[:N_LOOPED])
    values = [
        [loop.value(x, y) for x, y in zip(new, found, strict=False)]
        for found in (ours, loop.predict(new[:N_LOOPED]))
    ]
    apart = np.abs(np.subtract(*values)).max()
    setting.notes.append(
        f"twin search, {Y.shape[1]} output(s): the loop is timed for {N_LOOPED} of {N_NEW} answers, and "
        f"counts {N_NEW // N_LOOPED} times; the criterion at its answers and at ours differs by "
        f"{apart:.1g} at most"
    )
    yield Contestant("visionkl", "ours", lambda: _discard(process.predict(new)))
    yield Contestant(
        f"a loop over SciPy {scipy.__version__}'s L-BFGS-B",
        "peer",
        lambda: _times(N_NEW // N_LOOPED, setting.threads, lambda: loop.predict(new[:N_LOOPED])),
    )


class Loop:
    """The KL criterion for one test point after another; all that does not depend on them is at hand."""

    def __init__(self, process: TwinGaussianProcess) -> None:
        self.process = process
        self.phi, self.beta = process.transform_.input_kernel_, process.transform_.beta_
        self.slopes = self.beta[1:] * np.arange(1, len(self.beta))
        outputs, noise = process.outputs_, process.output_noise
        identity = np.eye(len(outputs))
        gram = np.polynomial.polynomial.polyval(Gaussian()(outputs), self.beta)
        self.noise = noise * self.beta.sum()
        self.G_inverse = np.linalg.inv(gram + self.noise * identity)
        gram = self.phi(process.X_fit_)
        self.input_noise = process.input_noise * gram[0, 0]
        self.K_inverse = np.linalg.inv(gram + self.input_noise * identity)

    def predict(self, X: Array) -> Array:
        """Answer one after another, in units of the process's outputs."""
        found = np.array([self._answer(x) for x in X])
        return found * self.process.output_width_ + self.process.output_mean_

    def value(self, x: Array, y: Array) -> float:
        """Return the criterion of an answer."""
        return float(
            self._criterion((y - self.process.output_mean_) / self.process.output_width_, *self._ask(x))[0]
        )

    def _ask(self, x: Array) -> tuple[Array, float]:
        k = self.phi(x[None], self.process.X_fit_, n_jobs=1)[0]
        u = self.K_inverse @ k
        return u, float(self.phi.diagonal(x[None])[0] + self.input_noise - k @ u)

    def _answer(self, x: Array) -> Array:
        u, eta = self._ask(x)
        start = u @ self.process.outputs_
        bounds = list(zip(self.process._low, self.process._high, strict=True))
        settings = {
            "method": "L-BFGS-B",
            "jac": True,
            "bounds": bounds,
            "options": {"maxiter": 100, "gtol": 1e-5},
        }
        return optimize.minimize(self._criterion, start, (u, eta), **settings).x

    def _criterion(self, z: Array, u: Array, eta: float) -> tuple[float, Array]:
        away = self.process.outputs_ - z
        g = np.exp(-0.5 * np.einsum("kd,kd->k", away, away))
        p = np.polynomial.polynomial.polyval(g, self.beta)
        q = self.G_inverse @ p
        left = self.beta.sum() + self.noise - p @ q
        weights = np.polynomial.polynomial.polyval(g, self.slopes) * g * 2 * (eta / left * q - u)
        return -2 * p @ u - eta * np.log(left), weights @ away


def _products(K: Array, G: Array, n_powers: int = DEGREES[0]) -> Array:
    """Compute tr(H K^(i) H G^(j)) as it is written, for the first powers of K and all of G."""
    m = len(K)
    H = np.eye(m) - 1 / m
    centred = [H @ K**i @ H for i in range(1, n_powers + 1)]
    powers = range(1, DEGREES[1] + 1)
    return np.array([[np.trace(matrix @ G**j) for j in powers] for matrix in centred]) / (m - 1) ** 2


def _times(count: int, threads: int, work: Callable[[], object]) -> float:
    """Time work that is done once in the place of so many times."""
    with threadpool_limits(threads, "blas"):
        start = time.perf_counter()
        work()
        return count * (time.perf_counter() - start)


def _discard(value: object) -> None:
    """Let a result go: a contestant's return value is its time."""
