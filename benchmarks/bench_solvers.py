"""Training of linear models: passes over the data and time until the duality gap is 1e-3.

The data are 4000 × 4096 numbers, non-negative and correlated like HOG cells or Fisher vectors: 100 common
factors, some noise, negative values cut off. The labels follow a plane, with errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import numpy.typing as npt
from harness import Contestant, Setting, row

from visionkl.solvers.bundle import minimise
from visionkl.solvers.linear import dual_svm, dual_svm_gram
from visionkl.solvers.losses import Risk
from visionkl.solvers.metrics import DiagonalMetric
from visionkl.solvers.rows import CodedRows, DenseRows
from visionkl.solvers.state import Bundle

GAP = 1e-3
MOST_PASSES = 1000


@cache
def correlated(n: int = 4000, d: int = 4096) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Rows and labels."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((n, 100)) @ rng.standard_normal((100, d)) / 10
    X = np.maximum(factors + 0.3 * rng.standard_normal((n, d)), 0).astype(np.float32)
    X /= np.linalg.norm(X, axis=1).mean()
    score = X @ rng.standard_normal(d)
    score -= np.median(score)
    return X, np.sign(score + 0.3 * score.std() * rng.standard_normal(n)).astype(np.float32)


@row("svm", "linear SVM, 4000 × 4096, λ = 1e-4, to a gap of 1e-3", threads=(2,), rounds=5)
def moderate(setting: Setting) -> Iterator[Contestant]:
    return solvers(setting, 1e-4)


@row("svm-hard", "linear SVM, 4000 × 4096, λ = 1.5e-5, to a gap of 1e-3", threads=(2,), rounds=3)
def hard(setting: Setting) -> Iterator[Contestant]:
    return solvers(setting, 1.5e-5)


def solvers(setting: Setting, strength: float) -> Iterator[Contestant]:
    X, y = correlated()
    metric = DiagonalMetric(X.shape[1])
    jobs = setting.threads
    in_parts = Risk(X, y, bias=0.0, n_jobs=jobs)
    whole = Risk(X, y, bias=0.0, n_parts=1, n_jobs=jobs)
    optimum = dual_svm(X, y, regularisation=strength, bias=0.0, tol=1e-5, max_passes=100_000)

    def bundle(risk: Risk) -> int:
        return minimise(risk, metric, regularisation=strength, tol=GAP, n_jobs=jobs).n_passes

    def line_search_only() -> int:
        state = Bundle(metric, regularisation=strength, n_jobs=jobs)
        points = state.begin(whole, whole.scores(state.v))
        for number in range(1, MOST_PASSES + 1):
            state.add(*whole.planes(points))
            points = state.search(whole, whole.scores(state.answer()))
            if state.gap <= GAP:
                return number
        return MOST_PASSES

    def one_slack() -> int:
        state = Bundle(metric, regularisation=strength, n_jobs=jobs)
        v = state.v
        for number in range(1, MOST_PASSES + 1):
            loss, plane = whole(v)
            state.add(np.array([[loss - plane @ v]]), plane[None, None])
            state.offer(v, loss)  # with this metric, coordinates are the coefficients
            v = state.answer()
            if state.gap <= GAP:
                return number
        return MOST_PASSES

    def descent() -> int:
        return dual_svm(X, y, regularisation=strength, bias=0.0, tol=GAP).n_passes

    def on_gram() -> int:
        return dual_svm_gram(X @ X.T, y, regularisation=strength, bias=0.0, tol=GAP).n_passes

    entries: list[tuple[str, Callable[[], int]]] = [
        ("visionkl bundle", lambda: bundle(in_parts)),
        ("visionkl bundle, one part", lambda: bundle(whole)),
        ("line search only (like OCAS)", line_search_only),
        ("plain one-slack", one_slack),
        ("visionkl dual descent", descent),
        ("visionkl dual descent, Gram matrix", on_gram),
    ]
    liblinear = _liblinear(X, y, strength, optimum.dual)
    if liblinear is not None:
        entries.append(liblinear)
    setting.notes.append(
        "passes: "
        + ", ".join(f"{name} {work()}" for name, work in entries)
        + "; liblinear is given the loosest "
        "tolerance with which it comes within 1e-3 of the optimum, and does not know when it does"
    )
    for name, work in entries:
        role = "ours" if name == entries[0][0] else "peer"
        yield Contestant(name, role, lambda work=work: _discard(work()))  # type: ignore[misc]
    if liblinear is None:
        yield Contestant("scikit-learn LinearSVC", "peer", missing="scikit-learn is not installed")


def _liblinear(
    X: npt.NDArray[np.float32], y: npt.NDArray[np.float32], strength: float, optimum: float
) -> tuple[str, Callable[[], int]] | None:
    try:
        import sklearn
        from sklearn.svm import LinearSVC
    except ImportError:
        return None
    model = LinearSVC(C=1 / (strength * len(y)), loss="hinge", fit_intercept=False, max_iter=10_000)
    for tolerance in 0.1 * 0.6 ** np.arange(20):
        w = model.set_params(tol=tolerance).fit(X, y).coef_[0]
        primal = strength / 2 * w @ w + np.maximum(1 - y * (X @ w), 0).mean()
        if primal - optimum <= GAP * primal:
            break
    return f"scikit-learn {sklearn.__version__} LinearSVC", lambda: int(model.fit(X, y).n_iter_)


@row("codes-pass", "one pass over 5000 × 40960 as codes (blocks of 8, 256 codewords)", threads=(1, 2))
def codes_pass(setting: Setting) -> Iterator[Contestant]:
    rng = np.random.default_rng(0)
    n, n_blocks, n_codewords, size = 5000, 5120, 256, 8
    codes = rng.integers(0, n_codewords, (n_blocks, n), dtype=np.uint8)
    coded = CodedRows(codes, n_codewords, samples_last=True, n_jobs=setting.threads)
    dense = DenseRows(rng.standard_normal((n, n_blocks * size), np.float32), n_jobs=setting.threads)
    tables, w = rng.standard_normal(coded.dim), rng.standard_normal(dense.dim)
    shares = rng.standard_normal((1, n))
    setting.notes.append("scores of all rows, and a sum of all rows; dense is the decoded matrix, with BLAS")

    def both(rows: CodedRows | DenseRows, v: npt.NDArray[np.float64]) -> None:
        _discard((rows.scores(v), rows.combine(shares)))

    yield Contestant("visionkl, codes", "ours", lambda: both(coded, tables))
    yield Contestant("dense", "peer", lambda: both(dense, w))
    yield Contestant("reading the codes twice", "limit", lambda: _discard((codes.max(), codes.min())))


def _discard(value: object) -> None:
    """Let a result go: a contestant's return value is its time."""
