"""Random binary mappings against hand-picked kernels, forests and boosted stumps: `bench mbkl` (METHODS §8).

The story: load each data set; on every split tune every method by the training part alone, train it, and
write down its accuracy; after the last split, time how long each takes to score a sample on one core; write
the page with tables.

The text of the paper that is at hand has lost its figures, so tables hold what it says of each method
instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from visionkl.core.errors import UsageError
from visionkl.run.console import Console, run_command

if TYPE_CHECKING:
    from visionkl.run.experiments.findings import Cell, Table
    from visionkl.run.experiments.mbkl_data import Task
    from visionkl.run.experiments.mbkl_methods import Method, Outcome

Set = Literal["sonar", "liver", "flowers17", "usps"]

_ABOUT = (
    "Accuracies in per cent. Parameters of every method, ours included, were tuned on the training part of "
    "each split; on large sets our controls kept their defaults. Times are microseconds of one core for "
    "scoring a sample, in large batches, checks included; training is the seconds of the last fit, with all "
    "cores. The paper's own figures are lost in the text at hand; its column tells what it says."
)


@dataclass(frozen=True)
class MbklOptions:
    """Compare kernels learned from random binary maps with hand-picked kernels, forests and boosted stumps.

    Parameters
    ----------
    data : Path, optional
        Folder with uci/, usps.npz and flowers17/; by default VISIONKL_TEST_DATA.
    sets : list of str
        Which data sets.
    repeats : int
        How often the folds of Sonar and Liver are drawn.
    splits : int
        Random splits of Flowers17.
    cache : Path
        Folder that keeps the descriptors of flowers.
    out : Path
        Folder to write; a number is appended if it is there.
    quick : bool
        Few samples and maps: to see that it works.
    """

    data: Path | None = None
    sets: list[Set] | None = None
    repeats: int = 3
    splits: int = 3
    cache: Path = Path("runs/cache")
    out: Path = Path("runs/bench-mbkl")
    quick: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(MbklOptions, compare, argv, name="bench mbkl")


def compare(options: MbklOptions, console: Console) -> dict[str, Any]:
    """Run the experiment; the document that it returns is that of `--json`."""
    from visionkl.run.experiments.findings import Findings, data_folder
    from visionkl.run.experiments.mbkl_data import FILES, load_task

    for name, value in (("repeats", options.repeats), ("splits", options.splits)):
        if value < 1:
            raise UsageError(f"--{name} must be 1 or more, not {value}.")
    names: list[str] = list(options.sets or FILES)
    data = data_folder(options.data, *(FILES[name] for name in names))
    findings = Findings("Random binary mappings (MBKL)", _ABOUT)
    for name in names:
        task = load_task(
            name,
            data,
            repeats=options.repeats,
            n_splits=options.splits,
            quick=options.quick,
            cache=options.cache,
            console=console,
        )
        table = _table(task, _run(task, console))
        findings.tables.append(table)
        console.note(table.markdown())  # so much is known, should the rest be interrupted
    return findings.publish(options.out, console)


def _run(task: Task, console: Console) -> dict[Method, Outcome]:
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    from visionkl.run.experiments.mbkl_methods import Outcome, methods_for, run_split, time_scoring

    methods = methods_for(task)
    outcomes = {method.name: Outcome([], [], []) for method in methods}
    with console.progress(task.title, len(methods) * len(task.splits)) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for method in methods:
            for train, test in task.splits:
                model = run_split(method, task, train, test, outcomes[method.name])
                progress.advance()
            outcomes[method.name].microseconds = time_scoring(model, task.X[test])
    return {method: outcomes[method.name] for method in methods}


def _table(task: Task, outcomes: Mapping[Method, Outcome]) -> Table:
    from visionkl.run.experiments.findings import Table

    named = {method.name: outcome for method, outcome in outcomes.items()}
    tuned = _best_of([outcome for method, outcome in outcomes.items() if method.kind == "ours"])
    rows: list[list[Cell]] = [["MBKL, kind of map tuned", "", *_accuracy(tuned), None, None, None]]
    for method, outcome in outcomes.items():
        left = None if outcome.n_maps != outcome.n_maps else round(outcome.n_maps)
        cost = [left, outcome.microseconds, outcome.seconds[-1]]
        rows.append([method.name, method.claim, *_accuracy(outcome), *cost])
    columns = ["method", "the paper says", "accuracy, %", "± SE", "maps left", "µs a sample", "training, s"]
    rivals = {method.name: o for method, o in outcomes.items() if method.kind in ("kernel", "trees")}
    kernels = {method.name: o for method, o in outcomes.items() if method.kind == "kernel"}
    note = " ".join(
        [
            _against("the best baseline", tuned, rivals),
            _against("the best hand-picked kernel", tuned, kernels),
            _against("boosted stumps", tuned, {"AdaBoost, stumps": named["AdaBoost, stumps"]}),
            _speed(named),
        ]
    )
    return Table(task.title, columns, rows, note)


def _accuracy(outcome: Outcome) -> list[Cell]:
    import numpy as np

    values = 100 * np.asarray(outcome.accuracy)
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return [f"{values.mean():.1f}", None if error is None else f"{error:.1f}"]


def _best_of(outcomes: Sequence[Outcome]) -> Outcome:
    """Take on each split the method that did best when parameters were tuned."""
    import numpy as np

    from visionkl.run.experiments.mbkl_methods import Outcome

    chosen = np.argmax([outcome.inner for outcome in outcomes], axis=0)
    accuracy = [outcomes[which].accuracy[split] for split, which in enumerate(chosen)]
    return Outcome(accuracy, [], [])


def _against(what: str, ours: Outcome, rivals: Mapping[str, Outcome]) -> str:
    """Say how ours stands beside the best of some."""
    import numpy as np

    name = max(rivals, key=lambda name: np.mean(rivals[name].accuracy))
    theirs = 100 * np.asarray(rivals[name].accuracy)
    difference = 100 * np.asarray(ours.accuracy) - theirs
    sentence = f"MBKL (kind of map tuned) minus {what}, {name}: {difference.mean():+.1f} points"
    if len(difference) < 2:
        return sentence + "."
    error = theirs.std(ddof=1) / np.sqrt(len(theirs))
    paired = difference.std(ddof=1) / np.sqrt(len(difference))
    return f"{sentence} (its standard error {error:.1f}; that of the paired difference {paired:.1f})."


def _speed(named: Mapping[str, Outcome]) -> str:
    stumps = named["MBKL, stumps"].microseconds
    rbf, linear = (named[name].microseconds / stumps for name in ("RBF SVM", "linear SVM"))
    return (
        f"A sample costs the RBF SVM {rbf:.0f} times, and the linear SVM {linear:.2g} times, what it costs "
        "MBKL with stumps."
    )
