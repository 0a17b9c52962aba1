"""Tables and plots of segments that were classified: accuracy, time, and the weights of kernels by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from visionkl.report.plots import plot_bars, plot_shares
from visionkl.run.experiments.findings import Cell, Findings, Table
from visionkl.run.experiments.scaling import Score, accuracy_plot, percent, scaling_table, time_plot

if TYPE_CHECKING:
    from visionkl.run.experiments.segment_samples import Samples

MKL, GMKL = "RFF-MKL", "GMKL, exact"

#: Accuracy on segments of VOC2011 against the number of training samples (paper A, Table 2, where the third
#: is printed as 7.5·10⁴, between 5·10³ and 10⁴).
_PUBLISHED_ACCURACY: list[list[Cell]] = [
    ["RFF-SKL", 0.21, 0.25, 0.28, 0.29, 0.31, 0.32],
    ["KRR-GD", 0.24, 0.29, 0.31, 0.32, None, None],
]
#: Weights of the aeroplane class (paper A, Table 3), in the order of our channels: ‖w_j‖ of the group lasso,
#: which is RFF-MKL, and d_j of GMKL.
_PUBLISHED_WEIGHTS = {
    "paper: RFF-MKL": (1.1287, 0.8505, 1.7903, 1.0495, 0.2398, 0.2260, 0.5652, 0.5847),
    "paper: GMKL": (0.4243, 0.3319, 1.5679, 0.5333, 0.3862, 0.1901, 0.6428, 0.1081),
}
_PUBLISHED_CLASS = "aeroplane"
# Weights of classes with fewer training segments say little.
_FEW = 50


def report_classes(
    findings: Findings,
    samples: Samples,
    ladders: Mapping[str, Sequence[Score]],
    chosen: Mapping[str, str],
    tested: Mapping[str, npt.NDArray[np.str_]],
) -> None:
    """Add tables and plots.

    Parameters
    ----------
    findings : Findings
    samples : Samples
    ladders : mapping of str to sequence of Score
        By method; the model of each score is its weights of kernels, or None. Methods that were not trained
        on all numbers of segments are left out of the curves.
    chosen : mapping of str to str
        What was chosen for each method.
    tested : mapping of str to ndarray of str
        The classes that each method, having learned from all it could, gives to the test samples.
    """
    longest = max(map(len, ladders.values()))
    climbed = {name: scores for name, scores in ladders.items() if len(scores) == longest}
    findings.tables.append(_final_table(samples, ladders, chosen, tested))
    findings.tables.append(
        scaling_table(
            "Masks of objects: time and accuracy against the number of training segments",
            climbed,
            "Seconds are those of all classes together. RFF-SKL's and KRR-GD's include learning σ and λ, "
            "GMKL's its kernel matrices; none include choosing λ or C. Fourier methods solve systems of as "
            "many equations as they have features, whose time does not grow with the segments, and hides how "
            "the rest grows until there are more segments than features.",
        )
    )
    findings.tables.append(_published_table())
    findings.tables.append(_counts_table(samples))
    findings.add_plot("classes-accuracy", "Masks of objects: accuracy", accuracy_plot(climbed))
    findings.add_plot("classes-time", "Time to learn all classes", time_plot(climbed))
    for name in (MKL, GMKL):
        _add_weights(findings, samples, name, ladders[name])


# -- accuracy ------------------------------------------------------------------------------------------------


def _final_table(
    samples: Samples,
    ladders: Mapping[str, Sequence[Score]],
    chosen: Mapping[str, str],
    tested: Mapping[str, npt.NDArray[np.str_]],
) -> Table:
    labels, n = samples.labels[samples.n_train :], samples.n_masks
    rows: list[list[Cell]] = []
    for name, found in tested.items():
        last = [one for one in ladders[name] if one.seconds is not None][-1]
        figures = [*_accuracies(labels[:n], found[:n]), *_accuracies(labels[n:], found[n:])]
        rows.append([name, last.n, last.seconds, *figures, chosen.get(name, "σ and λ learned")])
    kinds, counts = np.unique(samples.labels[samples.train], return_counts=True)
    constant = np.full(len(labels), kinds[counts.argmax()])
    figures = [*_accuracies(labels[:n], constant[:n]), *_accuracies(labels[n:], constant[n:])]
    rows.append([f"always {constant[0]}", None, None, *figures, None])
    return Table(
        "Classes of segments, %",
        ["method", "segments", "s", "masks", "mean of classes", "proposals", "mean of classes", "chosen"],
        rows,
        f"{n} masks of objects and {len(labels) - n} proposals to test on, of {len(np.unique(labels))} "
        f"classes; {len(kinds)} classes to choose among. The mean of classes counts all alike, however few "
        "segments they have.",
    )


def _accuracies(labels: npt.NDArray[np.str_], found: npt.NDArray[np.str_]) -> list[Cell]:
    """Return the accuracy, and its mean over the classes that are there, in %."""
    if not len(labels):
        return [None, None]
    right = labels == found
    by_class = [right[labels == kind].mean() for kind in np.unique(labels)]
    return [percent(float(right.mean())), percent(float(np.mean(by_class)))]


def _published_table() -> Table:
    return Table(
        "Published: accuracy of the single kernel on VOC2011",
        ["method", "2500", "5000", "7500", "10 000", "20 000", "60 000"],
        _PUBLISHED_ACCURACY,
        "By training segments, up to 10⁴ for each of 20 classes; the exact method ran out of memory from "
        "20 000 on. Of RFF-MKL and GMKL there are curves only: GMKL is slightly better for few segments, "
        "and takes quadratic time, where RFF-MKL takes linear time and catches up.",
    )


def _counts_table(samples: Samples) -> Table:
    parts = {
        "training masks": samples.labels[samples.train][samples.drawn[samples.train]],
        "training segments": samples.labels[samples.train],
        "test masks": samples.labels[samples.masks],
        "test proposals": samples.labels[samples.proposals],
    }
    kinds = np.unique(samples.labels)
    rows: list[list[Cell]] = [
        [str(kind), *(int((part == kind).sum()) for part in parts.values())] for kind in kinds
    ]
    total: list[Cell] = ["all", *(len(part) for part in parts.values())]
    return Table("Segments of each class", ["class", *parts], [*rows, total])


# -- weights of the kernels ----------------------------------------------------------------------------------


def _add_weights(findings: Findings, samples: Samples, name: str, scores: Sequence[Score]) -> None:
    """Add the weights of a method by class, and those of the published class beside the published ones."""
    done = [one for one in scores if one.model is not None]
    if not done:
        return
    last = done[-1]
    labels = samples.labels[: last.n]
    kinds, counts = np.unique(labels, return_counts=True)
    # Of two classes one machine tells the second from the first.
    weights = _shares(np.broadcast_to(last.model, (len(kinds), len(samples.names))))
    rows: list[list[Cell]] = [
        [str(kind), int(count), *map(float, row)]
        for kind, count, row in zip(kinds, counts, weights, strict=True)
    ]
    least = min(_FEW, int(counts.max()))
    mean = weights[counts >= least].mean(axis=0)
    total = int(counts[counts >= least].sum())
    rows.append([f"mean of classes with {least} or more", total, *map(float, mean)])
    file_name = name.split(",")[0]
    findings.tables.append(
        Table(
            f"Weights of the kernels by class, {name}",
            ["class", "segments", *samples.names],
            rows,
            f"Shares of their sum, learned from {last.n} segments. {_summary(samples.names, mean)}",
        )
    )
    figure = plot_shares(weights, [f"{k}, {n}" for k, n in zip(kinds, counts, strict=True)], samples.names)
    findings.add_plot(f"weights-{file_name}", f"Weights of the kernels by class, {name}", figure)
    _add_published(findings, samples.names, name, dict(zip(kinds.tolist(), weights, strict=True)), mean)


def _add_published(
    findings: Findings,
    names: Sequence[str],
    name: str,
    by_class: Mapping[str, npt.NDArray[np.float64]],
    mean: npt.NDArray[np.float64],
) -> None:
    paper = f"paper: {name.split(',')[0]}"
    columns = {f"{paper}, {_PUBLISHED_CLASS}": _shares(np.array([_PUBLISHED_WEIGHTS[paper]]))[0]}
    if _PUBLISHED_CLASS in by_class:
        columns[f"{name}, {_PUBLISHED_CLASS}"] = by_class[_PUBLISHED_CLASS]
    columns[f"{name}, mean of classes"] = mean
    rows: list[list[Cell]] = [[title, *map(float, row)] for title, row in columns.items()]
    title = f"Weights of {name} beside the published ones"
    note = " ".join(f"{title}: {_summary(names, row)}" for title, row in columns.items())
    findings.tables.append(Table(title, ["", *names], rows, f"Shares of their sum. {note}"))
    bars = {title: dict(zip(names, map(float, row), strict=True)) for title, row in columns.items()}
    findings.add_plot(f"published-{name.split(',')[0]}", title, plot_bars(bars))


def _shares(weights: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Divide the weights of each class by their sum; where all are zero they stay so."""
    rows = np.asarray(weights, dtype=np.float64)
    sums = rows.sum(axis=1, keepdims=True)
    return rows / np.where(sums > 0, sums, 1)


def _summary(names: Sequence[str], shares: npt.NDArray[Any]) -> str:
    """Say what SIFT's words and PHOGs have, together."""
    words, phogs = (
        sum(float(share) for name, share in zip(names, shares, strict=True) if kind in name)
        for kind in ("words", "phog")
    )
    return f"SIFT words have {words:.0%} and PHOGs {phogs:.0%} of the weight."
