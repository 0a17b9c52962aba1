"""The report of a classifier's run: one page that tells how well classes are told, and where it goes wrong.

Read from the top, it answers: how good is it, which classes are taken for which, which pictures is it surest
of, where is it wrong and how far, how did training go, and what exactly was run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from visionkl._version import __version__
from visionkl.datasets.base import Example
from visionkl.evaluation.images import ImageResult
from visionkl.report.html import Report
from visionkl.report.plots import new_figure, plot_confusion, plot_precision_recall
from visionkl.run.console import duration_text
from visionkl.run.memory import bytes_text
from visionkl.run.run_folder import RunFolder

_SHOWN = 3  # pictures of each kind, for each class
_MOST_CLASSES = 20
_THUMB_HEIGHT, _THUMB_WIDTH = 130, 200


@dataclass(frozen=True)
class Cases:
    """Pictures of a class that are worth a look, by number; the most telling first.

    Parameters
    ----------
    right : list of int
        Of the class, and told so, the surest first.
    false : list of int
        Not of the class, but told so, or nearly; the surest first.
    missed : list of int
        Of the class, but not told so; the least sure first.
    """

    right: list[int]
    false: list[int]
    missed: list[int]


def write_classifier_report(
    run: RunFolder, document: Mapping[str, Any], result: ImageResult, examples: Sequence[Example]
) -> None:
    """Write plots and report of a run; the report comes last, and with it the run is finished."""
    run.plots.mkdir(exist_ok=True)
    training = document["training"]
    names = ", ".join(result.classes) if len(result.classes) <= 5 else f"{len(result.classes)} classes"
    report = Report(
        f"An image classifier: {names}",
        f"learned in {duration_text(training['seconds'])} from {training['n_pictures']} pictures of "
        f"{training['dataset']}; {bytes_text(document['model_bytes'])} large; visionkl {__version__}",
    )
    _add_scores(report, run, result)
    _add_cases(report, result, examples)
    _add_training(report, run, document)
    report.save(run.report)


def _add_scores(report: Report, run: RunFolder, result: ImageResult) -> None:
    report.section("How good it is")
    report.text(f"{result.dataset}, {len(result)} pictures: {result.summary()}.")
    report.table(result.columns(), result.rows())
    if result.exclusive:
        report.text(
            "A picture is given to the class of the highest score; the accuracy is the share of pictures "
            "that are given to their own."
        )
        figure = plot_confusion(result.confusion, result.classes)
        report.picture(figure, "Which classes are taken for which; numbers are pictures.")
        figure.savefig(run.plots / "confusion.png", dpi=130)
    report.text(
        "For the average precision a class ranks all pictures by its score. AP 07 is the eleven-point mean "
        "of VOC2007, AP 10 the area under the curve of VOC2010 and later."
        + ("" if result.exclusive else " Pictures that show difficult objects alone are left out.")
    )
    by_class = result.by_class("10")
    curves = {mine.label: (mine.recall, mine.precision, mine.ap) for mine in by_class.values()}
    figure = new_figure(7.6, max(3.6, 0.24 * len(curves)), layout="constrained")
    plot_precision_recall(curves, figure.add_subplot())
    report.picture(figure, "Precision over recall, with AP 10.")
    figure.savefig(run.plots / "precision_recall.png", dpi=130)


# -- pictures ------------------------------------------------------------------------------------------------


def _add_cases(report: Report, result: ImageResult, examples: Sequence[Example]) -> None:
    report.section("What it gets right and wrong")
    by_class = result.by_class("10")
    worst_first = sorted(result.classes, key=lambda label: np.nan_to_num(by_class[label].ap, nan=2.0))
    left_out = len(worst_first) - _MOST_CLASSES
    of = f" The {_MOST_CLASSES} classes of the lowest AP." if left_out > 0 else ""
    report.text(
        "For each class, the pictures that it is surest of and right about, those that it takes for the "
        f"class and that are none, and those of the class that it misses; with the score of the class.{of}"
    )
    for label in worst_first[:_MOST_CLASSES]:
        cases = choose_cases(result, label)
        kinds = (("right", cases.right), ("wrong", cases.false), ("missed", cases.missed))
        report.section(label)
        if not any(numbers for _, numbers in kinds):
            report.text("There are no pictures of it.")
        for kind, numbers in kinds:
            for number in numbers:
                caption = f"{kind}, {_caption(result, label, examples[number], number)}"
                report.picture(_thumbnail(examples[number]), caption)


def choose_cases(result: ImageResult, label: str, most: int = _SHOWN) -> Cases:
    """Choose pictures of a class that are worth a look."""
    column = result.classes.index(label)
    signs, scores = result.signs[:, column], result.scores[:, column]
    told = result.given == column if result.exclusive else scores > 0
    down = np.argsort(-scores, kind="stable")

    def first(kind: npt.NDArray[np.bool_], order: npt.NDArray[np.intp]) -> list[int]:
        return [int(number) for number in order if kind[number]][:most]

    # Where classes do not exclude each other, ranks matter and the sign of a score does not: a picture that
    # scores below 0, but above others that show the class, is a mistake, too.
    lowest = scores[signs > 0].min(initial=np.inf)
    false = (signs < 0) & (told if result.exclusive else scores > lowest)
    return Cases(first((signs > 0) & told, down), first(false, down), first((signs > 0) & ~told, down[::-1]))


def _caption(result: ImageResult, label: str, example: Example, number: int) -> str:
    column = result.classes.index(label)
    text = f"{result.scores[number, column]:.2f}: {example.id}"
    shown = [name for name, sign in zip(result.classes, result.signs[number], strict=True) if sign > 0]
    given = int(result.given[number])
    if label not in shown:
        text += f", shows {', '.join(shown) or 'none of the classes'}"
    elif result.exclusive and given != column:
        text += f", taken for {result.classes[given]} ({result.scores[number, given]:.2f})"
    return text


def _thumbnail(example: Example) -> npt.NDArray[np.uint8]:
    image = Image.fromarray(example.image())
    image.thumbnail((_THUMB_WIDTH, _THUMB_HEIGHT), Image.Resampling.LANCZOS)
    return np.asarray(image)


# -- training ------------------------------------------------------------------------------------------------


def _add_training(report: Report, run: RunFolder, document: Mapping[str, Any]) -> None:
    training = document["training"]
    report.section("How training went")
    rows, before = [], 0.0
    for row in run.rows():
        seconds = float(row["seconds"])
        rows.append([int(row["step"]), row["name"], f"{seconds - before:.1f}"])
        before = seconds
    report.table(["step", "what", "seconds"], rows)
    coded = "n_codewords" in training
    floats, data = training["float_bytes"], training["data_bytes"]
    sizes = {"vectors": f"{training['n_features']} numbers; {bytes_text(floats)} for all pictures as floats"}
    if coded:
        sizes["codes"] = (
            f"{bytes_text(data)}, {floats / data:.0f} times smaller, and codebooks of "
            f"{bytes_text(training['codebook_bytes'])} ({training['n_codewords']} codewords)"
        )
    tried = ", ".join(f"{cost}: {score:.3f}" for cost, score in training["held_out"].items())
    peak = training["peak_bytes"]
    report.facts(
        {
            "data": training["data"],
            "learned from": f"{training['dataset']}: {training['n_pictures']} pictures",
            **sizes,
            "cost C": f"{training['cost']:g}" + (f" (scores of held-out pictures, {tried})" if tried else ""),
            "solver's route": training["route"],
            "relative duality gap": f"{training['gap']:.1e}",
            "time of training": duration_text(training["seconds"]),
            "peak memory of a process": bytes_text(peak) if peak else "unknown",
            "model file": f"{run.model('classifier').name}, {bytes_text(document['model_bytes'])}",
        }
    )
    report.section("Settings")
    settings = training["settings"].items()
    report.facts(
        {name: " ".join(map(str, value)) if isinstance(value, list) else value for name, value in settings}
    )
    report.text("config.yaml beside this page holds all options; train_classifier.py --config takes it.")
