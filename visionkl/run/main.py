"""The console command `visionkl`: one name for all commands; `visionkl detect …` is `tools/detect.py …`.

A command's module is imported when the command is called, so that `visionkl --help` is quick.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

from visionkl._version import __version__

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Examples
    --------
    >>> main(["--version"])
    visionkl ...
    0
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments[0] if arguments else "--help"
    if command in ("-h", "--help", "help"):
        sys.stdout.write(_help())
        return 0 if arguments else 2
    if command in ("-V", "--version"):
        sys.stdout.write(f"visionkl {__version__}\n")
        return 0
    if command not in COMMANDS:
        near = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}."
        sys.stderr.write(f"visionkl: there is no command {command!r}; {hint} Try visionkl --help.\n")
        return 2
    return import_module(COMMANDS[command][0]).main(arguments[1:])


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {purpose}" for name, (_, purpose) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: visionkl COMMAND ... [options]",
            "",
            "Object detection and image classification with classical features and learned kernels.",
            "",
            "commands:",
            *lines,
            "",
            "visionkl COMMAND --help says more; visionkl --version names the version.",
            "",
        ]
    )
