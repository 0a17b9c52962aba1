"""Multiple kernel learning against its exact form: the experiment `bench mkl` (METHODS §7).

The story: two classes of generated samples, described by eight channels of which three matter, are learned
from more and more samples by RFF-MKL (`FourierMKLClassifier`), and by the exact GMKL (`GMKLClassifier`) until
time or memory stop it, both at the same λ = √2 / C. Then Flowers17, if it is there: channels of its pictures
with the exponential χ² kernel, the named models of the paper beside GMKL and beside single channels, and
accuracy against the number of Fourier features. The published figures stand beside ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from visionkl.core.rng import stream
from visionkl.learning.gmkl import GMKLClassifier
from visionkl.learning.multiple import FourierMKLClassifier
from visionkl.run.console import Console, run_command
from visionkl.run.experiments.findings import Cell, Findings, Table, data_if_named
from visionkl.run.experiments.mkl_flowers import learn_flowers
from visionkl.run.experiments.scaling import (
    Contender,
    Problem,
    Score,
    check_sizes,
    climb,
    percent,
    report_growth,
    slopes_of,
)

OURS, EXACT = "RFF-MKL", "GMKL, exact"

_N_CHANNELS, _WIDTH = 8, 6


@dataclass(frozen=True)
class MKLOptions:
    """Time and accuracy of multiple kernel learning, against the number of samples and of Fourier features.

    RFF-MKL is the group lasso on random Fourier features of each channel; GMKL learns the same weights of the
    exact kernels, until that takes too long. On generated channels, and on those of Flowers17 if it is there.

    Parameters
    ----------
    data : Path, optional
        Folder with flowers17/; by default VISIONKL_TEST_DATA. Without it, flowers are left out.
    sizes : list of int
        Numbers of generated samples to learn from.
    features : int
        Fourier features of a channel, where it is not their number that changes.
    components : list of int
        Numbers of Fourier features of a channel, where it is.
    strength : float
        λ of the generated data; C of GMKL is √2 / λ.
    exact_minutes : float
        The exact method is not run where it would take longer than this.
    seed : int
        Of samples, splits and frequencies.
    quick : bool
        Small numbers, for a look at what comes out: some seconds.
    out : Path
        Folder to write; a number is appended if it is there.
    """

    data: Path | None = None
    sizes: list[int] = field(default_factory=lambda: [1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000])
    features: int = 300
    components: list[int] = field(default_factory=lambda: [30, 100, 300, 1000])
    strength: float = 0.01
    exact_minutes: float = 10.0
    seed: int = 0
    quick: bool = False
    out: Path = Path("runs/bench-mkl")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit code."""
    return run_command(MKLOptions, mkl, argv, name="bench mkl")


def mkl(options: MKLOptions, console: Console) -> dict[str, Any]:
    """Measure and write the page."""
    sizes = check_sizes([200, 400] if options.quick else options.sizes)
    components = sorted([10, 20] if options.quick else options.components)
    n_features = 20 if options.quick else options.features
    folder = data_if_named(options.data, "flowers17")
    findings = Findings(
        "Multiple kernel learning: time and accuracy",
        "RFF-MKL is the group lasso on random Fourier features of all channels; GMKL learns the weights of "
        "the exact kernels. Both minimise the same objective. Times are those of the whole training.",
    )
    problem = generated(sizes[-1], 500 if options.quick else 5000, options.seed)
    ladders = {
        one.name: climb(one, problem, sizes, console) for one in _contenders(n_features, options, console)
    }
    note = f"{_N_CHANNELS} channels of {_WIDTH} features, {n_features} Fourier features each. "
    note += _faster(ladders)
    report_growth(findings, ladders, note)
    findings.tables.append(_weights_table(ladders))
    if folder is not None:
        learn_flowers(findings, folder, n_features, components, options.seed, options.quick, console)
    else:
        console.note("Flowers17 is left out: --data, or VISIONKL_TEST_DATA, names the folder that holds it.")
    return findings.publish(options.out, console) | {"slopes": slopes_of(ladders)}


# -- generated data ------------------------------------------------------------------------------------------


def generated(n: int, n_test: int, seed: int) -> Problem:
    """Make samples of two classes with eight channels, of which three matter; a tenth is mislabelled."""
    random = stream(seed, "samples of multiple kernel learning")
    parts = [random.standard_normal((n + n_test, _WIDTH), np.float32) for _ in range(_N_CHANNELS)]
    first, second, third = parts[:3]
    value = np.sin(2 * first[:, 0]) + second[:, 0] * second[:, 1] + np.tanh(third[:, :3].sum(axis=1))
    y = np.where(random.random(n + n_test) < 0.1, value < 0, value > 0)
    return Problem([part[:n] for part in parts], y[:n], [part[n:] for part in parts], y[n:])


def _contenders(n_components: int, options: MKLOptions, console: Console) -> list[Contender]:
    ours = partial(
        FourierMKLClassifier,
        n_components=n_components,
        regularisation=options.strength,
        random_state=options.seed,
        n_jobs=console.jobs,
    )
    exact = partial(GMKLClassifier, C=np.sqrt(2) / options.strength, tol=1e-4, n_jobs=console.jobs)
    return [Contender(OURS, ours), Contender(EXACT, exact, 60 * options.exact_minutes, 2.5)]


def _faster(ladders: dict[str, list[Score]]) -> str:
    """Say how much faster ours is where the exact method ran last."""
    pairs = [(a, b) for a, b in zip(ladders[OURS], ladders[EXACT], strict=True) if b.seconds is not None]
    if not pairs:
        return ""
    ours, exact = pairs[-1]
    times = float(exact.seconds or 0) / float(ours.seconds or 1)
    points = percent(float(ours.accuracy or 0) - float(exact.accuracy or 0))
    return (
        f"With {ours.n} samples RFF-MKL is {times:.1f} times as fast; its accuracy is {points:+.2f} points."
    )


def _weights_table(ladders: dict[str, list[Score]]) -> Table:
    """Show the weights of the kernels where both ran last: they are to be alike."""
    last = max(one.n for one in ladders[EXACT] if one.model is not None)
    weights = {
        name: next(one.model.kernel_weights_ for one in scores if one.n == last)
        for name, scores in ladders.items()
    }
    rows: list[list[Cell]] = [[name, *map(float, weights[name])] for name in ladders]
    return Table(
        f"Weights of the kernels, {last} samples",
        ["", *(f"channel {k}" for k in range(_N_CHANNELS))],
        rows,
        "d_j = ‖w_j‖ / √2 of RFF-MKL, and d_j of GMKL; channels 0 to 2 matter, by construction.",
    )
