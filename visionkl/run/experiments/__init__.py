"""The published experiments, one command each: `tools/bench.py NAME`, or `visionkl bench NAME`.

Each lies in a module of its own, with a `main(argv)`. All write a page with tables and plots into a folder
(`visionkl.run.experiments.findings`), and print the tables.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from visionkl.run.commands import Commands

#: Name, module with a `main(argv)`, and what it shows.
EXPERIMENTS: dict[str, tuple[str, str]] = {
    "skl": ("visionkl.run.experiments.skl", "single kernel learning: time and accuracy, ours and exact"),
    "mkl": ("visionkl.run.experiments.mkl", "multiple kernel learning: time and accuracy, ours and exact"),
    "mbkl": (
        "visionkl.run.experiments.mbkl",
        "kernels of random binary maps against hand-picked ones, forests and boosted stumps",
    ),
    "twin": (
        "visionkl.run.experiments.twin",
        "twin kernels and twin Gaussian processes (S-shape, USPS, pose)",
    ),
    "fisher": (
        "visionkl.run.experiments.fisher",
        "Fisher vectors on flowers and on VOC, with and without codes",
    ),
    "flowers": ("visionkl.run.experiments.flowers", "learned weights of many kernels on Flowers17"),
    "imagenet": (
        "visionkl.run.experiments.imagenet",
        "average and joint models of three channels on classes of ImageNet",
    ),
    "segments": (
        "visionkl.run.experiments.segments",
        "figure–ground segments: how well they fit objects, and their classes by learned kernels",
    ),
}


_ALL = Commands(
    "bench",
    "experiment",
    "Repeat a published experiment; writes a page with tables and plots.",
    "bench EXPERIMENT --help says more; all take --jobs, --json, --quiet and --quick.",
    EXPERIMENTS,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run an experiment and return the exit code.

    Examples
    --------
    >>> main(["--help"])
    usage: ...
    0
    """
    return _ALL.run(list(sys.argv[1:] if argv is None else argv))
