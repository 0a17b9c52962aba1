"""Tell what pictures show: the command `classify`.

The story: list the pictures, load the model, decode every picture once so that a broken one is known before
the work starts, and then score, some pictures at a time, and print the best classes of each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from visionkl.core.errors import UsageError
from visionkl.run.console import Console, duration_text, run_command

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from visionkl.learning.classify import ImageClassifier


@dataclass(frozen=True)
class ClassifyOptions:
    """Tell what pictures show.

    Prints a line for each of the best classes of a picture: picture, class and score. Where a picture may
    show several classes, those with a score above 0 are in it.

    Parameters
    ----------
    model : Path
        Model file of an image classifier, as train_classifier writes it.
    inputs : list of str
        Pictures, folders of pictures, or patterns such as "photos/*.jpg".
    top : int
        How many classes to print of each picture, the best first.
    recursive : bool
        Search folders with their sub-folders.
    device : str
        Where to compute: auto (a GPU, if one computes), cpu, cuda, or cuda:1 for the second GPU.
    on_bad_data : {"stop", "skip"}
        What to do when a picture cannot be read: stop before anything is printed, or go on without it.
    """

    model: Path
    inputs: list[str]
    top: int = 3
    recursive: bool = False
    device: str = "auto"
    on_bad_data: Literal["stop", "skip"] = "stop"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(ClassifyOptions, classify, argv, name="classify", positional="inputs")


def classify(options: ClassifyOptions, console: Console) -> dict[str, Any]:
    """Tell what pictures show; what is returned is the document of `--json`."""
    from visionkl.backend.dispatch import choose_device
    from visionkl.run.pictures import find_pictures, readable

    device = choose_device(options.device, "classify")
    if options.top < 1:
        raise UsageError(f"--top must be a whole number ≥ 1, not {options.top}.")
    paths = find_pictures(options.inputs, recursive=options.recursive)
    classifier = _load(options.model)
    classifier.n_jobs, classifier.device = console.jobs, str(device)
    paths, skipped = readable(paths, options.on_bad_data, console)
    for path in paths:
        _warn_if_too_small(path, classifier, console)
    _warm_up(classifier, console)

    started = time.monotonic()
    table = _Table(paths, classifier.classes)
    records = []
    blocks = classifier.score_blocks(paths, block_size=max(4 * console.jobs, 8))
    scores = (row for block in blocks for row in block)
    for path in console.track(paths, "classifying"):
        best = _best(next(scores), classifier.classes, options.top)
        for line in table.lines(path, best):
            console.result(line)
        records.append(
            {"picture": str(path), "classes": [{"label": label, "score": score} for label, score in best]}
        )
    but = f", {len(skipped)} skipped" if skipped else ""
    console.note(f"{len(paths)} pictures{but} ({duration_text(time.monotonic() - started)})")
    return {
        "model": {
            "file": str(options.model),
            "classes": list(classifier.classes),
            "exclusive": classifier.exclusive,
        },
        "pictures": records,
        "skipped": skipped,
    }


def _load(path: Path) -> ImageClassifier:
    from visionkl.learning.classify import ImageClassifier
    from visionkl.store import load

    model = load(path)
    if not isinstance(model, ImageClassifier):
        raise UsageError(f"{path}: this model finds objects; search pictures with it by visionkl detect.")
    return model


def _warn_if_too_small(path: Path, classifier: ImageClassifier, console: Console) -> None:
    from visionkl.core.image import image_size

    width, height = image_size(path)
    smallest = classifier.settings.smallest_side
    if min(width, height) < smallest:
        console.warn(
            f"{path}: with {width} × {height} pixels it is too small to be described, so its scores mean "
            f"nothing; sides of {smallest} pixels or more are needed."
        )


def _warm_up(classifier: ImageClassifier, console: Console) -> None:
    """Let the hot loops compile on a small picture: the wait is explained, and the time left is right."""
    import numpy as np

    side = 2 * classifier.settings.smallest_side
    noise = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
    with console.compiling():
        classifier.scores([noise])


def _best(row: npt.NDArray[np.float64], classes: Sequence[str], top: int) -> list[tuple[str, float]]:
    order = (-row).argsort(kind="stable")[:top]
    return [(classes[number], round(float(row[number]), 6)) for number in order]


class _Table:
    """Aligned lines, one a class, with a heading before the first."""

    def __init__(self, paths: Sequence[Path], classes: Sequence[str]) -> None:
        self._width = max(len("picture"), *(len(str(path)) for path in paths))
        self._class_width = max(len("class"), *map(len, classes))
        self._headed = False

    def lines(self, path: Path, best: Sequence[tuple[str, float]]) -> Iterator[str]:
        if not self._headed:
            self._headed = True
            yield f"{'picture':<{self._width}}  {'class':<{self._class_width}}{'score':>9}"
        for label, score in best:
            yield f"{path!s:<{self._width}}  {label:<{self._class_width}}{score:9.3f}"
