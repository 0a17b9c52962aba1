"""Whom binary kernels compete with: machines with hand-picked kernels, forests and boosted stumps."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import AdaBoostClassifier, RandomForestClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from visionkl.kernels.exact import Gaussian, make_kernel
from visionkl.kernels.fourier import FourierMap
from visionkl.learning.binary import MBKLClassifier
from visionkl.run.experiments.mbkl_data import Matrix, Task

#: Numbers that are timed.
_TIMED_NUMBERS = 2_000_000

COSTS = (1.0, 10.0, 100.0, 1000.0)
_OUR_COSTS = (1.0, 3.0, 10.0, 30.0, 100.0)
# A control that need not be exact.
_L1 = {"C": 1000.0, "tol": 0.02, "max_iter": 100}


class KernelSVC(ClassifierMixin, BaseEstimator):
    """scikit-learn's SVC with a kernel of ours."""

    def __init__(self, kernel: str = "chi2", C: float = 1.0, n_jobs: int | None = None) -> None:
        self.kernel = kernel
        self.C = C
        self.n_jobs = n_jobs

    def fit(self, X: Matrix, y: Matrix) -> KernelSVC:
        """Learn."""
        self.rows_, self.kernel_ = X, make_kernel("KernelSVC", self.kernel, X)
        K = self.kernel_(X)
        scale = K.diagonal().mean()
        self.machine_ = SVC(kernel="precomputed", C=self.C / scale).fit(K, y)
        self.classes_ = self.machine_.classes_
        return self

    def predict(self, X: Matrix) -> Matrix:
        """Return classes."""
        used = self.machine_.support_
        K = np.zeros((len(X), len(self.rows_)))
        K[:, used] = self.kernel_(X, self.rows_[used], n_jobs=self.n_jobs)
        return self.machine_.predict(K)


@dataclass(frozen=True, eq=False)
class Method:
    """A classifier and the parameters that are tried.

    Parameters
    ----------
    name : str
    kind : {"ours", "control", "kernel", "trees"}
        Controls are variants of ours; kernels are hand-picked.
    claim : str
        What the paper says of it.
    estimator : estimator
    grid : mapping
    """

    name: str
    kind: str
    claim: str
    estimator: Any
    grid: Mapping[str, Sequence[Any]]


def methods_for(task: Task) -> list[Method]:
    """Return those that run on a task, ours first."""
    scale = FunctionTransformer if task.histograms else StandardScaler
    scaled = scale().fit_transform(task.X).astype(np.float64)
    sigma = float(np.mean(Gaussian.of(scaled[:: max(1, len(scaled) // 2000)]).sigma))
    stumps = MBKLClassifier(task.n_maps)
    waves = FourierMap(n_components=1000 if task.n_maps > 5000 else 500)
    projections = MBKLClassifier(task.n_maps, maps="projections", base=waves)
    # Large sets are tuned on fewer values, and controls not at all.
    large = task.n_inner == 1
    # As wide as the RBF kernel is tried.
    widths = [factor * sigma for factor in ((0.5, 1.0) if large else (0.5, 1.0, 2.0))]
    our_costs = _OUR_COSTS[1:4] if large else _OUR_COSTS
    for_controls = {} if large else {"C": our_costs}
    ours = [
        Method("MBKL, stumps", "ours", "on a par with the best kernel", stumps, {"C": our_costs}),
        Method(
            "MBKL, projections",
            "ours",
            "like stumps, dearer to evaluate",
            make_pipeline(scale(), projections),
            {"mbklclassifier__C": (3.0, 30.0), "mbklclassifier__base__sigma": widths},
        ),
        Method("MBKL, θ = 1, all bits", "control", "close to MBKL", _with(stumps, "ones"), for_controls),
        Method("MBKL, θ = 1, selected bits", "control", "", _with(stumps, "selected"), for_controls),
        Method("l1 SVM on bits", "control", "degrades", _with(stumps, "l1").set_params(**_L1), {}),
    ]
    if task.histograms:  # short vectors want a large C, and descent then takes its time
        linear, costs = LinearSVC(max_iter=1000), [10.0, 100.0, 1000.0]
    else:
        linear, costs = LinearSVC(max_iter=20_000, intercept_scaling=10.0), [0.01, 0.1, 1.0, 10.0]
    gammas = [sigma**2 / 2 * factor for factor in (0.25, 1.0, 4.0)]
    hand_picked = [
        Method("linear SVM", "kernel", "", make_pipeline(scale(), linear), {"linearsvc__C": costs}),
        Method(
            "RBF SVM",
            "kernel",
            "",
            make_pipeline(scale(), SVC()),
            {"svc__C": COSTS[1:3] if large else COSTS, "svc__gamma": gammas},
        ),
    ]
    for kernel, name in (
        ("chi2", "χ² SVM"),
        ("exp_chi2", "exponential χ² SVM"),
        ("intersection", "intersection SVM"),
    ):
        positive = FunctionTransformer() if task.histograms else MinMaxScaler(clip=True)
        grid = {"kernelsvc__C": COSTS[:3] if large else COSTS}
        hand_picked.append(Method(name, "kernel", "", make_pipeline(positive, KernelSVC(kernel)), grid))
    forest = RandomForestClassifier(300, random_state=0)
    boosted = AdaBoostClassifier(DecisionTreeClassifier(max_depth=1), n_estimators=200, random_state=0)
    trees = [
        Method("random forest", "trees", "below MBKL", forest, {} if large else {"min_samples_leaf": (1, 3)}),
        Method(
            "AdaBoost, stumps",
            "trees",
            "below MBKL",
            boosted,
            {} if large else {"learning_rate": (0.5, 1.0)},
        ),
    ]
    return ours + hand_picked + trees


def _with(model: MBKLClassifier, theta: str) -> MBKLClassifier:
    return MBKLClassifier(model.n_maps, theta=theta)


@dataclass
class Outcome:
    """What a method reached.

    Parameters
    ----------
    accuracy : list of float
        Of each split.
    inner : list of float
        Accuracies with which the parameters were chosen.
    seconds : list of float
        Of training with the parameters chosen.
    microseconds : float
        Of scoring a sample, on one core, after the last split.
    n_maps : float
        Questions that are left on average, of ours.
    """

    accuracy: list[float]
    inner: list[float]
    seconds: list[float]
    microseconds: float = float("nan")
    n_maps: float = float("nan")


def run_split(method: Method, task: Task, train: Matrix, test: Matrix, outcome: Outcome) -> Any:
    """Tune and train a method on a split, write down what it reaches, and return it."""
    model, inner = _tuned(method, task, train)
    start = time.perf_counter()
    model.fit(task.X[train], task.y[train])
    outcome.seconds.append(time.perf_counter() - start)
    outcome.inner.append(inner)
    outcome.accuracy.append(float(np.mean(model.predict(task.X[test]) == task.y[test])))
    last = model[-1] if hasattr(model, "steps") else model
    if hasattr(last, "selected_"):
        outcome.n_maps = float(len(last.selected_))
    return model


def _tuned(method: Method, task: Task, train: Matrix) -> tuple[Any, float]:
    if task.n_inner == 1:
        some = train
        if len(train) > task.n_tuning:
            picked = StratifiedShuffleSplit(1, train_size=task.n_tuning, random_state=0)
            some = train[next(picked.split(train, task.y[train]))[0]]
        folds: Any = StratifiedShuffleSplit(1, test_size=1 / 3, random_state=0)
    else:
        some, folds = train, StratifiedKFold(task.n_inner, shuffle=True, random_state=0)
    if not method.grid:
        return method.estimator, float("nan")
    search = GridSearchCV(method.estimator, dict(method.grid), cv=folds, refit=False)
    search.fit(task.X[some], task.y[some])
    model = method.estimator.set_params(**search.best_params_)
    return model, float(search.best_score_)


def time_scoring(model: Any, X: Matrix) -> float:
    """Return the microseconds of one core for a sample, the best of some runs; scaling is left out."""
    n = min(20_000, _TIMED_NUMBERS // X.shape[1])
    rows = np.ascontiguousarray(np.tile(X, (-(-n // len(X)), 1))[:n])
    if hasattr(model, "steps"):
        rows, model = model[:-1].transform(rows), model[-1]
    for name in model.get_params():
        if name.split("__")[-1] == "n_jobs":
            model.set_params(**{name: 1})
    score = model.decision_function if hasattr(model, "decision_function") else model.predict
    times: list[float] = []
    with threadpool_limits(1):
        while len(times) < 2 or (sum(times) < 0.5 and len(times) < 20):
            start = time.perf_counter()
            score(rows)
            times.append(time.perf_counter() - start)
    return min(times) / len(rows) * 1e6
