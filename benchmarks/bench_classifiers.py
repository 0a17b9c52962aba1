"""Classifiers on codes: time until a duality gap of 1 %, on data of the size of Fisher vectors.

The data are 5000 × 40 960 numbers with 100 common factors and noise, as codes of blocks of 8 features with
256 codewords each: rows of the data, since it does not matter here how good the codewords are. All solvers of
a row minimise the same objective over the same decoded vectors, C = 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from harness import Contestant, Quoted, Setting, row

from visionkl.coding.codebooks import Codebooks
from visionkl.coding.codes import CodeArray
from visionkl.learning.svm import BundleSVC

GAP = 1e-2
C = 10.0
N_CLASSES = 20
SIZE, N_CODEWORDS = 8, 256


@dataclass(frozen=True)
class Coded:
    """Codes, and the class of each sample."""

    codes: CodeArray
    labels: npt.NDArray[np.intp]

    @property
    def vectors(self) -> npt.NDArray[np.float32]:
        """The decoded vectors, made anew."""
        assert self.codes.books is not None
        return self.codes.books.decode(self.codes)


@cache
def coded(n: int = 5000, d: int = 40960) -> Coded:
    """Make codes of correlated vectors; the classes are the directions in which the factors point most."""
    random = np.random.default_rng(0)
    factors = random.standard_normal((n, 100), np.float32)
    mixing = random.standard_normal((100, d), np.float32) / 10
    scores = factors @ random.standard_normal((100, N_CLASSES))
    labels = (scores + 0.3 * scores.std() * random.standard_normal(scores.shape)).argmax(axis=1)
    books: Codebooks | None = None
    bands = []
    for first in range(0, n, 2000):
        band = factors[first : first + 2000] @ mixing
        band += 0.3 * random.standard_normal(band.shape, np.float32)
        band /= np.sqrt(1.09 * d)
        if books is None:
            chosen = band[:N_CODEWORDS].reshape(-1, d // SIZE, SIZE)
            books = Codebooks(np.ascontiguousarray(chosen.transpose(1, 0, 2)))
        bands.append(books.encode(band))
    assert books is not None
    return Coded(CodeArray(np.concatenate(bands), books), labels)


def machine(**settings: Any) -> BundleSVC:
    """Make the classifier of all rows."""
    return BundleSVC(C, tol=GAP, **settings)


@row("svm-codes", "SVM of one class, 5000 × 40960 as codes, to a gap of 1 %", threads=(2,), rounds=3)
def one_class(setting: Setting) -> Iterator[Contestant | Quoted]:
    return expansions(setting, coded())


def expansions(setting: Setting, data: Coded) -> Iterator[Contestant | Quoted]:
    """Compare ways to use codes, and other solvers on the decoded vectors, for one class."""
    y = data.labels == 0
    vectors = data.vectors
    jobs = setting.threads
    entries: list[tuple[str, dict[str, Any], Any]] = [
        ("visionkl, tables (delayed expansion)", {"expansion": "delayed"}, data.codes),
        ("visionkl, decoding (immediate expansion)", {"expansion": "immediate"}, data.codes),
        ("visionkl, dense matrix with BLAS", {}, vectors),
    ]
    models = [machine(route="bundle", n_jobs=jobs, **settings) for _, settings, _ in entries]
    passes = [model.fit(X, y).n_iter_ for model, (_, _, X) in zip(models, entries, strict=True)]
    setting.notes.append(
        "passes: "
        + ", ".join(f"{name} {count}" for (name, _, _), count in zip(entries, passes, strict=True))
        + f"; the floats take {vectors.nbytes / data.codes.nbytes:.0f} times the memory of the codes"
    )
    for model, (name, _, X) in zip(models, entries, strict=True):
        role = "ours" if model is models[0] else "peer"
        yield Contestant(name, role, lambda model=model, X=X: _discard(model.fit(X, y)))  # type: ignore[misc]
    yield _liblinear(setting, vectors, y, float(objective(models[0], vectors, y)))
    if setting.peers is not None:
        yield _vlfeat(setting, vectors, y, float(objective(models[0], vectors, y)))


def _liblinear(
    setting: Setting, vectors: npt.NDArray[np.float32], y: npt.NDArray[np.bool_], ours: float
) -> Contestant:
    """Give liblinear the loosest tolerance with which it is as good as we are."""
    try:
        from sklearn import __version__
        from sklearn.svm import LinearSVC
    except ImportError:
        return Contestant("scikit-learn LinearSVC", "peer", missing="scikit-learn is not installed")
    peer = LinearSVC(C=C, loss="hinge", max_iter=10_000)
    for tolerance in 0.3 ** np.arange(8):
        if objective(peer.set_params(tol=tolerance).fit(vectors, y), vectors, y) <= ours:
            break
    setting.notes.append(
        "liblinear is given the loosest tolerance with which its objective is not above ours, "
        f"{peer.tol:.2g}, and does not know when it is"
    )
    return Contestant(f"scikit-learn {__version__} LinearSVC", "peer", lambda: _discard(peer.fit(vectors, y)))


def _vlfeat(
    setting: Setting, vectors: npt.NDArray[np.float32], y: npt.NDArray[np.bool_], ours: float
) -> Contestant:
    """Ask VLFeat's dual coordinate ascent for the same gap."""
    path = setting.peers.file("vlfeat.npy")
    peer = setting.peers.contestant(
        "VLFeat, SDCA",
        "vlfeat_sdca",
        {"vectors": vectors, "y": np.where(y, 1.0, -1.0)},
        regularisation=1 / (C * len(y)),
        gap=GAP * ours / (C * len(y)),
        save=str(path),
    )
    if path.is_file():
        *w, bias = np.load(path)
        theirs = objective(SimpleNamespace(coef_=[np.array(w)], intercept_=[bias]), vectors, y)
        setting.notes.append(f"VLFeat has one thread; its objective ÷ ours: {theirs / ours:.3f}")
    return peer


@row("svm-classes", "SVMs of 20 classes, 5000 × 40960 as codes, to a gap of 1 %", threads=(2,), rounds=3)
def many_classes(setting: Setting) -> Iterator[Contestant | Quoted]:
    yield from routes(setting, coded(), ("bundle", "gram"))
    yield Quoted("scikit-learn LinearSVC", 100.0, "measured once on two cores, data of this size")


@row("svm-growth", "SVMs of 20 classes, 16000 × 10240 as codes, to a gap of 1 %", threads=(2,), rounds=3)
def many_samples(setting: Setting) -> Iterator[Contestant]:
    return routes(setting, coded(16_000, 10_240), ("bundle", "gram"))


@row("svm-large", "SVMs of 20 classes, 100000 × 10240 as codes, to a gap of 1 %", threads=(2,), rounds=1)
def very_many_samples(setting: Setting) -> Iterator[Contestant]:
    return routes(setting, coded(100_000, 10_240), ("bundle",))


def routes(setting: Setting, data: Coded, names: tuple[str, ...]) -> Iterator[Contestant]:
    """Compare the route that is chosen with others, for all classes."""
    chosen = machine(n_jobs=setting.threads).fit(data.codes, data.labels)
    setting.notes.append(f"chosen: {chosen.route_reason_}")
    yield Contestant("visionkl", "ours", lambda: _discard(chosen.fit(data.codes, data.labels)))
    for name in names:
        if name != chosen.route_:
            model = machine(route=name, n_jobs=setting.threads)
            run = lambda model=model: _discard(model.fit(data.codes, data.labels))  # noqa: E731
            yield Contestant(f"visionkl, {name}", "peer", run)  # type: ignore[arg-type]


def objective(model: Any, vectors: npt.NDArray[np.float32], y: npt.NDArray[np.bool_]) -> float:
    """Return `½ ‖w‖² + ½ intercept² + C Σ hinge`."""
    w, intercept = model.coef_[0], float(model.intercept_[0])
    scores = vectors @ w.astype(np.float32) + intercept
    losses = np.maximum(1 - np.where(y, 1, -1) * scores, 0).sum(dtype=np.float64)
    return float((w @ w + intercept**2) / 2 + C * losses)


def _discard(value: object) -> None:
    """Let a result go: a contestant's return value is its time."""
