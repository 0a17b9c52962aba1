"""Twin kernel learning and twin Gaussian processes (paper D, METHODS §9): `tools/bench.py twin`.

The story: three problems, ten draws of each; on every draw the baselines, and the processes with both
criteria, without and with the polynomials that are learned of the kernels. What the polynomials gain depends
on how wide the kernels were before, so all is done twice: with the widths that are taken by default, and with
those that are best without polynomials, and with them, each chosen on draws that are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visionkl.core.errors import UsageError
from visionkl.run.console import Console, run_command

if TYPE_CHECKING:
    from visionkl.run.experiments.findings import Table
    from visionkl.run.experiments.twin_methods import Outcome
    from visionkl.run.experiments.twin_problems import Problem

PROBLEMS = ("s-shape", "usps", "pose")

ABOUT = (
    "Regression to outputs that have a kernel of their own. S-shape: r from x = r + 0.3 sin(2πr) + noise of "
    "0.05, where one x may have three r. USPS: the lower half of a handwritten digit from the upper half, "
    "pixels from −1 to 1. Pose: 12 joint angles of a walking figure from its silhouette (generated; the "
    "paper's Poser set cannot be had). Errors are mean absolute errors on new samples. Without map: kernels "
    "as they are, degrees (1, 1). With map: polynomials of kernels, degrees (1, 11) for KL and (11, 11) for "
    "HSIC, as in the paper. Default widths: the root of the mean squared distance between samples, on both "
    "sides. Chosen widths: those that are best on other draws, for each method by itself. "
    "% gain = (1 − error with map / error without map) · 100."
)


@dataclass(frozen=True)
class TwinOptions:
    """Compare twin Gaussian processes, with and without learned kernels, with other regressions.

    Writes tables beside the published figures, and plots.

    Parameters
    ----------
    data : Path, optional
        The folder that holds usps.npz; by default VISIONKL_TEST_DATA.
    out : Path
        Folder for the results; a number is appended if it is there already.
    problems : list of str
        Which of s-shape, usps and pose.
    seeds : int
        Draws of each problem.
    quick : bool
        Few samples, two draws and few widths: to see that it works.
    """

    data: Path | None = None
    out: Path = Path("runs/bench-twin")
    problems: list[str] | None = None
    seeds: int = 10
    quick: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(TwinOptions, compare, argv, name="bench twin")


def compare(options: TwinOptions, console: Console) -> dict[str, Any]:
    """Run the experiment; the document that it returns is that of `--json`."""
    from visionkl.backend.threads import set_threads
    from visionkl.run.experiments.findings import Findings
    from visionkl.run.experiments.twin_methods import Comparison

    if options.seeds < 1:
        raise UsageError(f"--seeds must be an integer above 0, not {options.seeds}.")
    set_threads(console.jobs)
    problems = _problems(options, console)
    n_seeds = min(options.seeds, 2) if options.quick else options.seeds
    findings = Findings("Twin kernel learning and twin Gaussian processes", ABOUT)
    outcomes = []
    for problem in problems:
        comparison = Comparison(problem, quick=options.quick)
        with console.progress(problem.title, comparison.n_steps(n_seeds)) as progress:
            outcomes.append(comparison.run(n_seeds, progress.advance))
        console.note(f"{problem.title}: done")
    findings.tables.append(_gains(outcomes, n_seeds))
    findings.tables += [_errors(outcome, n_seeds) for outcome in outcomes]
    for outcome in outcomes:
        for name, title, figure in outcome.problem.plots(outcome.shown):
            findings.add_plot(name, title, figure)
    return findings.publish(options.out, console)


def _problems(options: TwinOptions, console: Console) -> list[Problem]:
    from visionkl.run.experiments import twin_problems as those
    from visionkl.run.experiments.findings import data_folder, named_folder

    names = options.problems or list(PROBLEMS)
    if options.problems is None and named_folder(options.data) is None:
        console.note("USPS digits are left out: --data, or VISIONKL_TEST_DATA, names the folder of usps.npz.")
        names.remove("usps")
    for name in names:
        if name not in PROBLEMS:
            raise UsageError(f"--problems: there is no {name!r}; there are {', '.join(PROBLEMS)}.")
    sizes = (60, 40) if options.quick else None
    found: list[Problem] = []
    for name in names:
        if name == "usps":
            folder = data_folder(options.data, "usps.npz")
            found.append(those.Digits(folder / "usps.npz", *(sizes or (1000, 300))))
        elif name == "s-shape":
            found.append(those.SShape(*(sizes or (250, 500))))
        else:
            found.append(those.Pose(*(sizes or (1000, 300))))
    return found


def _gains(outcomes: list[Outcome], n_seeds: int) -> Table:
    import numpy as np

    from visionkl.run.experiments.findings import Table

    rows: list[list[Any]] = []
    for outcome in outcomes:
        for (criterion, widths), (without, mapped) in outcome.pairs().items():
            gains = 100 * (1 - mapped / without)
            error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else 0.0
            rows.append(
                [
                    outcome.problem.title,
                    criterion,
                    widths,
                    float(without.mean()),
                    float(mapped.mean()),
                    f"{gains.mean():+.1f} ± {error:.1f}",
                    f"{int((gains >= 0).sum())} of {len(gains)}",
                    outcome.problem.paper.get(f"gain {criterion}"),
                ]
            )
    columns = ["problem", "criterion", "widths", "without map", "with map", "gain, %"]
    columns += ["draws with a gain", "paper: gain"]
    note = (
        f"Mean over {n_seeds} draws, and the standard error of the mean gain. The paper says neither how its "
        "widths were chosen nor how many samples it took; its gain on S-shape is shown in a plot only."
    )
    return Table("What the polynomials of kernels gain", columns, rows, note)


def _errors(outcome: Outcome, n_seeds: int) -> Table:
    from visionkl.run.experiments.findings import Table

    problem = outcome.problem
    rows: list[list[Any]] = []
    for name, errors in outcome.errors.items():
        shown = f"{errors.mean():.3g} ± {errors.std():.2g}" if len(errors) > 1 else f"{errors.mean():.3g}"
        others = [float(values[name].mean()) for values in outcome.others.values()]
        rows.append([name, shown, *others, problem.paper.get(name), outcome.chosen.get(name, "")])
    columns = ["method", problem.measure, *outcome.others, "paper", "chosen on other draws"]
    note = (
        f"{problem.n_train} samples, {problem.n_test} new ones; mean and standard deviation over {n_seeds} "
        f"draws ({outcome.n_slow} for SVR). {problem.note}"
    )
    return Table(problem.title, columns, rows, note)
