"""How time and accuracy grow with the number of samples: what the experiments `skl` and `mkl` share.

A contender is trained on more and more samples of a problem, and tested on others. Exact methods stop where
the next number of samples would take longer than they are given, or more memory than the machine has: the
table says so, and the curves end there.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import DataError, UsageError
from visionkl.report.curves import Curve, growth, plot_curves
from visionkl.run.console import Console, duration_text
from visionkl.run.experiments.findings import Cell, Findings, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Time that does not grow with the samples hides how the rest grows: slopes are those of the last decade.
_DECADE = 10.0


@dataclass(frozen=True)
class Problem:
    """Samples to learn from, and others to be tested on.

    Parameters
    ----------
    X, X_test : ndarray of float, shape (n_samples, n_features), or list of such
        A list has a matrix for each channel.
    y, y_test : ndarray, shape (n_samples,)
    """

    X: Any
    y: npt.NDArray[Any]
    X_test: Any
    y_test: npt.NDArray[Any]

    def first(self, n: int) -> Problem:
        """Return the problem with its first `n` samples to learn from."""
        X = [part[:n] for part in self.X] if isinstance(self.X, list) else self.X[:n]
        return Problem(X, self.y[:n], self.X_test, self.y_test)


@dataclass(frozen=True)
class Contender:
    """A method.

    Parameters
    ----------
    name : str
    make : callable
        Makes an estimator.
    most_seconds : float
        It is not trained where it is expected to take longer.
    power : float
        Of the number of samples, with which its time is expected to grow.
    """

    name: str
    make: Callable[[], Any]
    most_seconds: float = np.inf
    power: float = 1.0


@dataclass(frozen=True)
class Score:
    """What a contender took and reached with `n` samples; None and a remark where it did not run."""

    n: int
    seconds: float | None
    accuracy: float | None
    model: Any = None
    remark: str = ""


def score(contender: Contender, problem: Problem) -> Score:
    """Train a contender and test it, with the memory of those before it given back."""
    gc.collect()  # takes longer than a small problem
    return attempt(contender, problem)


def attempt(contender: Contender, problem: Problem) -> Score:
    """Train a contender and test it, as one of many."""
    model = contender.make()
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a last step that gained little: the accuracy shows what it costs
        model.fit(problem.X, problem.y)
    seconds = time.perf_counter() - started
    accuracy = float(np.mean(model.predict(problem.X_test) == problem.y_test))
    return Score(len(problem.y), seconds, accuracy, model)


def climb(contender: Contender, problem: Problem, sizes: Sequence[int], console: Console) -> list[Score]:
    """Train a contender on more and more samples, until that would take too long or too much memory."""
    scores: list[Score] = []
    for n in sizes:
        last = next((s for s in reversed(scores) if s.seconds is not None), None)
        expected = 0.0 if last is None else (last.seconds or 0.0) * (n / last.n) ** contender.power
        if scores and scores[-1].seconds is None and "memory" in scores[-1].remark:
            scores.append(Score(n, None, None, remark=scores[-1].remark))
        elif expected > contender.most_seconds:
            scores.append(Score(n, None, None, remark=f"not run: about {duration_text(expected)}"))
        else:
            console.note(f"{contender.name}, {n} samples ...")
            try:
                scores.append(score(contender, problem.first(n)))
            except (DataError, MemoryError):
                scores.append(Score(n, None, None, remark="not run: out of memory"))
    return scores


def scaling_table(title: str, ladders: Mapping[str, Sequence[Score]], note: str = "") -> Table:
    """Put time and accuracy of all contenders beside each other, with the slopes below."""
    columns = ["samples", *(f"{name}: {what}" for name in ladders for what in ("s", "accuracy, %"))]
    rows: list[list[Cell]] = []
    for scores in zip(*ladders.values(), strict=True):
        row: list[Cell] = [scores[0].n]
        for one in scores:
            row += [one.remark or one.seconds, None if one.accuracy is None else percent(one.accuracy)]
        rows.append(row)
    slopes = [f"{name} {slope:.2f}" for name, slope in slopes_of(ladders).items()]
    said = f"Time grows with this power of the samples, over their last decade: {', '.join(slopes)}."
    return Table(title, columns, rows, " ".join(filter(None, [said if slopes else "", note])))


def slopes_of(ladders: Mapping[str, Sequence[Score]]) -> dict[str, float]:
    """Return the slope of log time against log samples of each contender, over its last decade."""
    slopes = {}
    for name, scores in ladders.items():
        done = [(one.n, one.seconds) for one in scores if one.seconds is not None]
        last = [pair for pair in done if pair[0] * _DECADE >= done[-1][0]]
        if len(last) > 1:
            slopes[name] = growth(*zip(*last, strict=True))
    return slopes


def report_growth(findings: Findings, ladders: Mapping[str, Sequence[Score]], note: str) -> None:
    """Put how contenders grow on generated data into the findings: a table and two plots."""
    findings.tables.append(scaling_table("Against the number of samples, generated data", ladders, note))
    findings.add_plot("time", "Time against the number of samples, generated data", time_plot(ladders))
    findings.add_plot("accuracy", "Accuracy against the number of samples", accuracy_plot(ladders))


def time_plot(ladders: Mapping[str, Sequence[Score]]) -> Figure:
    """Draw the time of all contenders against the number of samples."""
    slopes = slopes_of(ladders)
    curves = [
        Curve(f"{name}, slope {slopes[name]:.2f}" if name in slopes else name, *_points(scores, "seconds"))
        for name, scores in ladders.items()
    ]
    return plot_curves(curves, x_label="training samples", y_label="seconds", log_x=True, log_y=True)


def accuracy_plot(
    ladders: Mapping[str, Sequence[Score]], *, x_label: str = "training samples", level: str | None = None
) -> Figure:
    """Draw the accuracy of all contenders; that named `level` was measured once, and is a level line."""
    longest = max(ladders.values(), key=len)
    ends = [float(longest[0].n), float(longest[-1].n)]
    curves = []
    for name, scores in ladders.items():
        x, y = _points(scores, "accuracy")
        if name == level:
            x, y = ends, 2 * y[-1:]
        curves.append(Curve(name, x, [percent(value) for value in y], quoted=name == level))
    return plot_curves(curves, x_label=x_label, y_label="accuracy, %", log_x=True)


def _points(scores: Sequence[Score], what: str) -> tuple[list[float], list[float]]:
    done = [one for one in scores if one.seconds is not None]
    return [float(one.n) for one in done], [float(getattr(one, what)) for one in done]


def percent(share: float) -> float:
    """Return hundred times a share, to two digits behind the point."""
    return round(100 * share, 2)


def check_sizes(sizes: Sequence[int]) -> list[int]:
    """Return the numbers of samples in ascending order, or complain of them."""
    if not sizes or min(sizes) < 100:
        raise UsageError(f"--sizes must be numbers of samples of 100 or more, not {list(sizes)}.")
    return sorted(set(sizes))
