"""The console command `visionkl`: one name for all commands; `visionkl detect …` is `tools/detect.py …`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from visionkl._version import __version__
from visionkl.run.commands import Commands

#: Name, module with a `main(argv)`, and what it does.
COMMANDS: dict[str, tuple[str, str]] = {
    "detect": ("visionkl.run.detect", "find objects in pictures"),
    "evaluate": ("visionkl.run.evaluate", "score models, or saved results, on a data set"),
    "inspect-data": (
        "visionkl.run.inspect_data",
        "count what a data set holds, and name what is broken in it",
    ),
    "train-detector": ("visionkl.run.train_detector", "train a detector, score it, and write a report"),
    "train-context": (
        "visionkl.run.train_context",
        "learn to rescore detections by what else was found",
    ),
    "train-classifier": (
        "visionkl.run.train_classifier",
        "train an image classifier, score it, and write a report",
    ),
    "classify": ("visionkl.run.classify", "tell what pictures show"),
    "bench": ("visionkl.run.experiments", "repeat a published experiment"),
    "sample": ("visionkl.run.make_sample", "generate a small data set to try things out with"),
}


_ALL = Commands(
    "visionkl",
    "command",
    "Object detection and image classification with classical features and learned kernels.",
    "visionkl COMMAND --help says more; visionkl --version names the version.",
    COMMANDS,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Examples
    --------
    >>> main(["--version"])
    visionkl ...
    0
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] in (["-V"], ["--version"]):
        sys.stdout.write(f"visionkl {__version__}\n")
        return 0
    return _ALL.run(arguments)
