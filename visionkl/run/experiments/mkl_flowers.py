"""Multiple kernel learning of Flowers17: the named models of the paper beside the exact GMKL.

Channels (`visionkl.run.experiments.flower_channels`) are histograms, and their kernel is the exponential χ²
one with the mean distance as its width. For RFF-MKL a channel is mapped by the homogeneous χ² map first, and
divided so that the gaussian kernel with σ = 1 of what comes out is that kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.learning.gmkl import GMKLClassifier
from visionkl.learning.multiple import NAMED_MODELS, named_model
from visionkl.run.console import Console
from visionkl.run.experiments.channel_blocks import Block, Rows, gaussian_inputs
from visionkl.run.experiments.findings import Cell, Findings, Table
from visionkl.run.experiments.flower_channels import CHANNELS, describe_flowers
from visionkl.run.experiments.scaling import Contender, Problem, Score, accuracy_plot, percent, score

EXACT = "GMKL, exact"
_SHARES = (0.1, 0.03, 0.01, 0.003, 0.001)
_COSTS = (10.0, 100.0, 1000.0, 10_000.0)

#: Accuracy on 1000 classes of ILSVRC2011 with three channels, %, and seconds a class (paper A, Table 4).
_PUBLISHED = {
    "RFF-SQL-MKL": (18.5, 196.0),
    "RFF-SQL-SQR-MKL": (12.3, 101.0),
    "RFF-SQL-SKL": (10.0, 27.0),
}


def learn_flowers(
    findings: Findings,
    folder: Path,
    size: int,
    components: list[int],
    seed: int,
    quick: bool,
    console: Console,
) -> None:
    """Compare the models on all splits, and RFF-MKL with more and more Fourier features on the first."""
    channels, labels, splits = describe_flowers(folder, quick, seed, console)
    exact_data = [_problem(channels, labels, *split) for split in splits]
    data = [
        _problem([gaussian_inputs(block, train) for block in channels], labels, train, test)
        for train, test in splits
    ]
    named = partial(_named, random_state=seed, n_jobs=console.jobs)
    table = _Comparison(console)
    for name, settings in NAMED_MODELS.items():
        single = "channels" in settings
        own = [_side_by_side(problem) if single else problem for problem in data]
        table.add(name, named(name, size * len(CHANNELS) if single else size), _SHARES, own)
    gmkl = partial(GMKLClassifier, kernel="exp_chi2", tol=1e-4, n_jobs=console.jobs)
    table.add(EXACT, lambda cost: gmkl(C=cost), _COSTS, exact_data)
    for number, channel in enumerate(CHANNELS):
        alone = [Problem([p.X[number]], p.y, [p.X_test[number]], p.y_test) for p in data]
        table.add(f"{channel} alone", named("RFF-SQL-SQR-MKL", size), _SHARES, alone)
    note = (
        f"{len(data[0].y)} pictures to learn from, mean and deviation of {len(splits)} splits; λ is chosen "
        f"with a third of them. Exponential χ² kernels, {size} Fourier features a channel. The paper's "
        "figures are of 1000 classes of ILSVRC2011."
    )
    columns = ["model", "accuracy, %", "s", "paper: accuracy, %", "paper: s a class"]
    findings.tables.append(Table("Flowers17", columns, table.rows, note))
    findings.tables.append(_weights(table.first["RFF-SQL-MKL"], table.first[EXACT]))
    ladders: dict[str, list[Score]] = {"RFF-MKL": [], EXACT: [table.first[EXACT]]}
    for n_components in components:
        console.note(f"Flowers17: {n_components} Fourier features a channel ...")
        found = _chosen(named("RFF-SQL-MKL", n_components), _SHARES, data[0])
        ladders["RFF-MKL"].append(Score(n_components, found.seconds, found.accuracy))
    figure = accuracy_plot(ladders, x_label="Fourier features of a channel", level=EXACT)
    findings.add_plot("components", "Flowers17: accuracy against the number of Fourier features", figure)


class _Comparison:
    """Rows of a table of models, and what each of them found on the first split."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.rows: list[list[Cell]] = []
        self.first: dict[str, Score] = {}

    def add(
        self, name: str, model: Callable[[float], Any], settings: Sequence[float], data: Sequence[Problem]
    ) -> None:
        self.console.note(f"Flowers17: {name} ...")
        scores = [_chosen(model, settings, problem) for problem in data]
        accuracies = [percent(float(one.accuracy or 0)) for one in scores]
        seconds = float(np.mean([one.seconds for one in scores]))
        shown = f"{np.mean(accuracies):.1f} ± {np.std(accuracies):.1f}"
        self.rows.append([name, shown, seconds, *_PUBLISHED.get(name, (None, None))])
        self.first[name] = scores[0]


def _named(name: str, n_components: int, **settings: Any) -> Callable[[float], Any]:
    return lambda share: named_model(name, n_components=n_components, sigma=1.0, share=share, **settings)


def _chosen(model: Callable[[float], Any], settings: Sequence[float], problem: Problem) -> Score:
    """Choose the setting that is best for the last third of the training part, and train with it on all."""
    n = 2 * len(problem.y) // 3
    X = problem.X if isinstance(problem.X, list) else [problem.X]
    less, more = ([part[some] for part in X] for some in (slice(0, n), slice(n, None)))
    if not isinstance(problem.X, list):
        less, more = less[0], more[0]
    trial = Problem(less, problem.y[:n], more, problem.y[n:])
    accuracies = [score(Contender("", partial(model, one)), trial).accuracy or 0.0 for one in settings]
    best = settings[int(np.argmax(accuracies))]
    return score(Contender("", partial(model, best)), problem)


def _problem(blocks: Sequence[Block], labels: npt.NDArray[Any], train: Rows, test: Rows) -> Problem:
    return Problem(
        [block[train] for block in blocks], labels[train], [block[test] for block in blocks], labels[test]
    )


def _side_by_side(problem: Problem) -> Problem:
    """Put all channels into one matrix, each with the same share of the distances."""
    scale = np.float32(1 / np.sqrt(len(problem.X)))
    return Problem(scale * np.hstack(problem.X), problem.y, scale * np.hstack(problem.X_test), problem.y_test)


def _weights(ours: Score, exact: Score) -> Table:
    """Show the weights of the kernels, mean of all classes, in shares."""
    rows: list[list[Cell]] = []
    for name, found in (("RFF-SQL-MKL", ours), (EXACT, exact)):
        weights = np.atleast_2d(found.model.kernel_weights_).mean(axis=0)
        rows.append([name, *map(float, weights / weights.sum())])
    note = "Mean of all classes, as shares of their sum, on the first split."
    return Table("Flowers17: weights of the kernels", ["", *CHANNELS], rows, note)
