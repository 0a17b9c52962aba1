"""Fisher vectors and codes on photographs (METHODS §4–6, §11): the experiment `fisher`.

Two questions. What do Fisher vectors of grey descriptors tell of 17 kinds of flowers, and what does colour
add? And what is lost on VOC's classes when the machines learn on codes of one byte for eight numbers instead
of the numbers?
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visionkl.core.observer import Observer, Stage
from visionkl.run.console import Console, run_command
from visionkl.run.experiments.findings import Cell, Findings, Table, data_folder

if TYPE_CHECKING:
    from visionkl.datasets.labels import LabelledPictures
    from visionkl.evaluation.images import ImageResult
    from visionkl.learning.classifier_settings import ClassifierSettings

_CHANNELS = {"grey": ["grey"], "grey + opponent colours": ["grey", "opponent"]}
# Pictures of a class to learn from, to choose by, and to test on.
_FLOWERS = (40, 20, 20)


@dataclass(frozen=True)
class FisherOptions:
    """Classify flowers and VOC's pictures by Fisher vectors, with and without codes.

    Parameters
    ----------
    data : Path, optional
        A folder with flowers17 and voc2012_subset/VOCdevkit in it; by default VISIONKL_TEST_DATA.
    out : Path
        The folder to write; a number is appended if there is one.
    splits : int
        Random splits of the flowers.
    quick : bool
        Two classes, few pictures and Gaussians: to see that it works.
    """

    data: Path | None = None
    out: Path = Path("runs/bench-fisher")
    splits: int = 3
    quick: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit code."""
    return run_command(FisherOptions, fisher, argv, name="bench fisher")


def fisher(options: FisherOptions, console: Console) -> dict[str, Any]:
    """Train all classifiers, and write what they are worth."""
    folder = data_folder(options.data, "flowers17", "voc2012_subset/VOCdevkit")
    findings = Findings(
        "Image classification by Fisher vectors",
        "All settings are the defaults of `train-classifier` (models/fisher_small.yaml) with the cost 10; "
        "nothing was chosen by the pictures that are scored.",
    )
    findings.tables.append(_flowers(folder / "flowers17", options, console))
    findings.tables.append(_voc(folder / "voc2012_subset" / "VOCdevkit", options, console))
    return findings.publish(options.out, console)


def _settings(quick: bool, **changes: Any) -> ClassifierSettings:
    from visionkl.learning.classifier_settings import ClassifierSettings

    small = {"n_gaussians": 8, "n_pca": 16, "step": 8, "n_codewords": 16} if quick else {}
    return ClassifierSettings(**{**small, **changes})


def _flowers(folder: Path, options: FisherOptions, console: Console) -> Table:
    """Score flowers by channel, learned from 40 pictures of a class, and with the 20 to choose by."""
    import numpy as np

    from visionkl.core.rng import stream
    from visionkl.datasets.folder import ImageFolder

    flowers = ImageFolder(folder)
    classes = flowers.classes[:2] if options.quick else flowers.classes
    rows: list[list[Cell]] = []
    for title, channels in _CHANNELS.items():
        by_training: dict[int, list[float]] = {}
        seconds = 0.0
        for split in range(options.splits):
            for n_train in (_FLOWERS[0], sum(_FLOWERS[:2])):
                train, test = _parts(flowers, classes, n_train, stream(split, "flowers"))
                start = time.perf_counter()
                result = _score(train, test, _settings(options.quick, channels=channels, seed=split), console)
                seconds += time.perf_counter() - start
                by_training.setdefault(n_train, []).append(100 * result.mean_class_accuracy)
                console.note(
                    f"{title}, split {split + 1}, {n_train} a class: {by_training[n_train][-1]:.1f} %"
                )
        figures = [f"{np.mean(some):.1f} ± {np.std(some):.1f}" for some in by_training.values()]
        rows.append([title, *figures, seconds / (2 * options.splits)])
    trained = f"{_FLOWERS[0]} a class", f"{sum(_FLOWERS[:2])} a class"
    return Table(
        f"Flowers17: mean accuracy over {options.splits} random splits, %",
        ["descriptors", *(f"learned from {number}" for number in trained), "seconds a run"],
        rows,
        f"{_FLOWERS[2]} pictures of each of {len(classes)} classes are scored; ± is the standard deviation "
        "over splits.",
    )


def _parts(
    flowers: Any, classes: Sequence[str], n_train: int, random: Any
) -> tuple[LabelledPictures, LabelledPictures]:
    from visionkl.datasets.labels import from_labels

    train, test = [], []
    for label in classes:
        of_class = [example for example in flowers if example.label == label]
        order = random.permutation(len(of_class))
        train += [of_class[i] for i in order[:n_train]]
        test += [of_class[i] for i in order[sum(_FLOWERS[:2]) : sum(_FLOWERS)]]
    first, second = (
        from_labels([example.label for example in part], part, "flowers", classes) for part in (train, test)
    )
    return first, second


def _voc(folder: Path, options: FisherOptions, console: Console) -> Table:
    """Score VOC's classes, learned from codes and from the numbers themselves."""
    import numpy as np

    from visionkl.datasets.labels import labelled
    from visionkl.datasets.voc import VOC

    train_set, test_set = (VOC(folder, split=split) for split in ("train", "val"))
    chosen = labelled(train_set)
    shown = [label for label, signs in zip(chosen.classes, chosen.signs.T, strict=True) if (signs > 0).any()]
    shown = ["bicycle", "bus"] if options.quick else shown
    train, test = labelled(train_set, shown), labelled(test_set, shown)
    if options.quick:
        train, test = (
            replace(data, pictures=data.pictures[:60], signs=data.signs[:60]) for data in (train, test)
        )
    rows: list[list[Cell]] = []
    for channels, coding in (
        ("grey", "none"),
        ("grey", "pq"),
        ("grey opponent", "none"),
        ("grey opponent", "pq"),
    ):
        if options.quick and channels != "grey":
            continue
        settings = _settings(options.quick, channels=channels.split(), coding=coding)
        start = time.perf_counter()
        result = _score(train, test, settings, console)
        title = f"{channels.replace(' ', ' + ')}, {'codes' if coding == 'pq' else 'numbers'}"
        figures = [100 * result.mean_ap(metric) for metric in ("07", "10")]
        console.note(f"VOC, {title}: mAP {figures[0]:.1f}")
        size = settings.n_features * (1 / settings.block_size if coding == "pq" else 4)
        rows.append([title, f"{figures[0]:.1f}", f"{figures[1]:.1f}", int(size), time.perf_counter() - start])
    absent = len(chosen.classes) - len(shown)
    return Table(
        f"VOC 2012 subset, train → val: mean average precision of {len(shown)} classes, %",
        ["learned from", "mAP 07", "mAP 10", "bytes a picture", "seconds"],
        rows,
        f"{len(train)} pictures to learn from, {len(test)} scored. Classes that no training picture shows "
        f"({absent}) are left out." + ("" if np.all(test.signs) else " Difficult pictures are ignored."),
    )


def _score(
    train: LabelledPictures, test: LabelledPictures, settings: ClassifierSettings, console: Console
) -> ImageResult:
    import numpy as np

    from visionkl.evaluation.images import ImageResult
    from visionkl.learning.classify import ImageClassifier
    from visionkl.learning.classify_training import train as train_classifier

    learned = train_classifier(train, settings, n_jobs=console.jobs, observer=_Progress(console))
    classifier = ImageClassifier.from_parts(settings, learned, n_jobs=console.jobs)
    with console.progress("scoring", len(test)) as progress:
        blocks = []
        for block in classifier.score_blocks(test.pictures):
            blocks.append(block)
            progress.advance(len(block))
    return ImageResult(test.name, test.classes, test.exclusive, test.signs, np.concatenate(blocks))


class _Progress(Observer):
    """Shows how far training is."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def stage(self, name: str, total: int | None = None) -> AbstractContextManager[Stage]:
        return self._console.progress(name, total)
