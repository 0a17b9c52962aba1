"""The report of a training run: one page that tells what was learned, how well, and where it goes wrong.

Read from the top, it answers: how good is it, what does it look for, what does it find, which errors
does it make, what does it mistake for the object, what does it miss, how did training go, and what exactly
was run. The pictures of detections are made anew by the saved model, so that parts can be shown; all numbers
come from the results files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from visionkl._version import __version__
from visionkl.core.boxes import intersection, iou
from visionkl.core.types import Detections
from visionkl.datasets.base import Dataset, Example
from visionkl.datasets.voc import VOC
from visionkl.detection.detector import DPMDetector
from visionkl.detection.model import MixtureModel
from visionkl.evaluation.errors import (
    FALSE_KINDS,
    Box,
    ErrorAnalysis,
    JudgedDetection,
    JudgedObject,
    analyse_errors,
)
from visionkl.evaluation.results import read_voc_results
from visionkl.evaluation.search import LOWEST_SCORE
from visionkl.evaluation.voc import METRICS, ClassResult, VOCResult
from visionkl.report.html import Report
from visionkl.report.metrics import plot_metrics
from visionkl.report.plots import new_figure, plot_bars, plot_precision_recall, render_detections
from visionkl.report.templates import component_figure, views
from visionkl.run.console import duration_text
from visionkl.run.memory import bytes_text
from visionkl.run.run_folder import RunFolder

_SHOWN = 6  # pictures of each kind
_THUMB_HEIGHT, _THUMB_WIDTH = 210, 300
_MARGIN = 0.5  # of the box, around it

_MEANINGS = {
    "duplicate": "an object that was found before",
    "localisation": "badly placed on an object of the class",
    "other class": "an object of another class",
    "background": "none of these",
}


class Case(NamedTuple):
    """A box worth a look, and the box of the detection to show with it, if there is one."""

    example: Example
    box: Box
    detection: Box | None
    caption: str


def write_training_report(
    run: RunFolder,
    document: Mapping[str, Any],
    model: MixtureModel,
    result: VOCResult,
    dataset: VOC,
    *,
    n_jobs: int | None = None,
) -> None:
    """Write plots and report of a run; the report comes last, and with it the run is finished."""
    label = model.label
    mine = result.by_class[label]
    run.plots.mkdir(exist_ok=True)
    training = document["training"]
    report = Report(
        f"A detector of the class {label}",
        f"learned in {duration_text(training['seconds'])} from {training['n_objects']} objects of "
        f"{training['dataset']}; {bytes_text(document['model_bytes'])} large; visionkl {__version__}",
    )
    _add_score(report, run, document, mine, result)
    _add_components(report, run, model)

    examples = {example.id: example for example in dataset if example.id not in result.skipped}
    errors = _errors(run, dataset, list(examples.values()), result, label)
    detector = DPMDetector.from_model(model)

    def show(heading: str, text: str, cases: Sequence[Case]) -> None:
        report.section(heading)
        report.text(text if cases else f"{text} There are none.")
        for case in cases:
            report.picture(_thumbnail(case, detector, n_jobs), case.caption)

    show(
        "What it finds",
        "True detections, from the surest to the least sure above the threshold, with the parts that were "
        "seen. Dashed: the labelled object.",
        _true_cases(errors, examples, model.threshold),
    )
    _add_errors(report, run, errors)
    show(
        "What it mistakes for it",
        "The false detections of the highest scores.",
        _false_cases(errors, examples),
    )
    show(
        "What it misses",
        "Labelled objects that no detection above the threshold finds, the largest first.",
        _missed_cases(errors, examples, model.threshold),
    )
    _add_training(report, run, document)
    report.save(run.report)


# -- numbers -------------------------------------------------------------------------------------------------


def _add_score(
    report: Report, run: RunFolder, document: Mapping[str, Any], mine: ClassResult, result: VOCResult
) -> None:
    report.section("How good it is")
    both = [replace(mine, metric=metric).ap for metric in METRICS]
    report.table(
        ["scored on", "pictures", "objects", "difficult", "detections", "AP 07", "AP 10"],
        [[result.dataset, result.n_images, mine.n_objects, mine.n_difficult, mine.n_detections, *both]],
    )
    figure = new_figure(6.0, 3.6, layout="constrained")
    curves = {mine.label: (mine.recall, mine.precision, mine.ap)}
    axes = plot_precision_recall(curves, figure.add_subplot(), legend=False)
    caption = "Precision over recall."
    at = document["at_threshold"]
    if at is not None:
        axes.plot([at["recall"]], [at["precision"]], "o", color="black", markersize=6, clip_on=False)
        report.text(
            f"Detections are shown from a score of {document['threshold']:.3f} on, where precision and "
            f"recall are best balanced: {at['precision']:.0%} of what is shown there is right, and "
            f"{at['recall']:.0%} of the objects are found (F1 {at['f1']:.3f}). visionkl detect --threshold "
            "takes another."
        )
        caption = f"{caption} The dot is the threshold."
    report.picture(figure, caption)
    figure.savefig(run.plots / "precision_recall.png", dpi=130)
    report.text(
        "AP 07 is the eleven-point mean of VOC2007, AP 10 the area under the curve of VOC2010 and later. An "
        f"object is found at an overlap of {result.min_overlap:g}; difficult objects are ignored. The "
        "threshold was chosen on these same pictures, so expect a little less on others; the AP does not "
        "depend on it."
    )


def _add_components(report: Report, run: RunFolder, model: MixtureModel) -> None:
    report.section("What it looks for")
    about_parts = " Parts may move from here: dark is where they go for nothing, bright where that is dear."
    report.text(
        "Each component is one view of the object, drawn as strokes along the edges that speak for it."
        + (about_parts if model.n_parts else "")
    )
    for number, twin in views(model):
        rows, cols = model.components[number].root.shape[:2]
        figure = component_figure(model, number)
        mirrored = f" and, mirrored, component {twin}" if twin is not None else ""
        pixels = f"{cols * model.cell_size} × {rows * model.cell_size} pixels"
        report.picture(figure, f"Component {number}{mirrored}: objects of {pixels} and larger.")
        figure.savefig(run.plots / f"component_{number}.png", dpi=130)


def _add_errors(report: Report, run: RunFolder, errors: ErrorAnalysis) -> None:
    report.section("What goes wrong")
    counts, shares, gains = errors.counts, errors.shares, errors.gains
    report.text(
        f"{errors.n_objects - len(errors.misses)} of {errors.n_objects} objects are found at some score. The "
        f"false detections by kind: how many there are, which share they have of the {errors.n_objects} "
        "with the highest scores (as many as there are objects), and how much the AP would rise without them."
    )
    report.table(
        ["kind", "what it is", "all", "share", f"AP {errors.metric} gained"],
        [[kind, _MEANINGS[kind], counts[kind], f"{shares[kind]:.0%}", gains[kind]] for kind in FALSE_KINDS],
    )
    if errors.false_positives:
        figure = plot_bars({"share of the worst": shares, "AP gained without": gains})
        report.picture(figure, "Which kind matters.")
        figure.savefig(run.plots / "errors.png", dpi=130)


def _add_training(report: Report, run: RunFolder, document: Mapping[str, Any]) -> None:
    report.section("How training went")
    figure = plot_metrics(run.rows())
    if figure is not None:
        report.picture(figure, "Over the rounds of training; the bands are its steps.")
        figure.savefig(run.plots / "training.png", dpi=130)
    training = document["training"]
    difficult = (
        f" (and {training['n_difficult']} difficult ones, left out)" if training["n_difficult"] else ""
    )
    peak = training["peak_bytes"]
    report.facts(
        {
            "data": training["data"],
            "learned from": f"{training['dataset']}: {training['n_objects']} objects{difficult} in "
            f"{training['n_with']} pictures, {training['n_without']} pictures without",
            "too small": f"{training['n_small']} objects",
            "time of training": duration_text(training["seconds"]),
            "peak memory of a process": bytes_text(peak) if peak else "unknown",
            "model file": f"{run.model(training['label']).name}, {bytes_text(document['model_bytes'])}",
        }
    )
    report.section("Settings")
    report.facts({name: str(value) for name, value in training["settings"].items()})
    report.text("config.yaml beside this page holds all options; train_detector.py --config takes it.")


# -- cases ---------------------------------------------------------------------------------------------------


def _errors(
    run: RunFolder, dataset: VOC, examples: Sequence[Example], result: VOCResult, label: str
) -> ErrorAnalysis:
    """Judge what was found in the pictures that could be read."""
    found = read_voc_results(run.path, dataset.split, label)
    scored = Dataset(dataset.name, dataset.classes, examples)
    return analyse_errors(found, scored, label, metric=result.metric, min_overlap=result.min_overlap)


def _true_cases(errors: ErrorAnalysis, examples: Mapping[str, Example], threshold: float) -> list[Case]:
    """Choose true detections evenly spread over those above the threshold, best first."""
    true = [each for each in errors.detections if each.kind == "true" and each.score > threshold]
    chosen = np.linspace(0, len(true) - 1, min(_SHOWN, len(true))).round().astype(int)
    return [_case(true[i], examples, "") for i in chosen]


def _false_cases(errors: ErrorAnalysis, examples: Mapping[str, Example]) -> list[Case]:
    """Choose the false detections of the best scores, and say what each is."""
    return [_case(each, examples, f": {_what(each)}") for each in errors.false_positives[:_SHOWN]]


def _case(found: JudgedDetection, examples: Mapping[str, Example], more: str) -> Case:
    return Case(
        examples[found.image_id], found.box, found.box, f"{found.image_id}, score {found.score:.2f}{more}"
    )


def _what(found: JudgedDetection) -> str:
    if found.kind == "localisation":
        return f"badly placed, overlaps a {found.near} by {found.overlap:.0%}"
    return f"other class: {found.near}" if found.kind == "other class" else found.kind


def _missed_cases(errors: ErrorAnalysis, examples: Mapping[str, Example], threshold: float) -> list[Case]:
    """Choose objects that no detection above the threshold finds, the largest first."""
    boxes = {(each.image_id, each.score): each.box for each in reversed(errors.detections)}
    missed = []
    for thing in errors.objects:
        if thing.difficult or (thing.found and thing.score > threshold):
            continue
        x1, y1, x2, y2 = thing.box
        caption = f"{thing.image_id}, {x2 - x1:.0f} × {y2 - y1:.0f} pixels, {_why(thing)}"
        nearest = boxes.get((thing.image_id, thing.score))
        missed.append(((x2 - x1) * (y2 - y1), Case(examples[thing.image_id], thing.box, nearest, caption)))
    missed.sort(key=lambda entry: -entry[0])
    return [case for _, case in missed[:_SHOWN]]


def _why(missed: JudgedObject) -> str:
    if missed.found:
        return f"seen, but with a score of {missed.score:.2f}"
    return "not seen at all" if np.isnan(missed.score) else f"badly placed, at best {missed.overlap:.0%}"


def _thumbnail(case: Case, detector: DPMDetector, n_jobs: int | None) -> npt.NDArray[np.uint8]:
    """Cut the surroundings of a box out, with the labelled objects and the detection in question."""
    image = case.example.image()
    height, width = image.shape[:2]
    margin = _MARGIN * max(case.box[2] - case.box[0], case.box[3] - case.box[1])
    left, top = (max(int(value - margin), 0) for value in case.box[:2])
    right, bottom = min(int(case.box[2] + margin), width), min(int(case.box[3] + margin), height)
    scale = min(_THUMB_HEIGHT / (bottom - top), _THUMB_WIDTH / (right - left))
    size = max(round((right - left) * scale), 1), max(round((bottom - top) * scale), 1)
    crop = Image.fromarray(image[top:bottom, left:right]).resize(size, Image.Resampling.LANCZOS)

    def moved(boxes: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return ((boxes - np.array([left, top, left, top])) * scale).astype(np.float32)

    shown = Detections()
    if case.detection is not None:  # found anew, now with its parts
        found = detector.detect(image, threshold=LOWEST_SCORE, n_jobs=n_jobs)
        if len(found):
            shown = found[int(iou(found.boxes, [case.detection])[:, 0].argmax())]
    objects = case.example.annotation.of(detector.label)
    objects = objects[intersection(objects.boxes, [[left, top, right, bottom]])[:, 0] > 0]
    return render_detections(
        np.asarray(crop),
        replace(shown, boxes=moved(shown.boxes), parts=moved(shown.parts)),
        annotation=replace(objects, boxes=moved(objects.boxes), labels=("",) * len(objects)),
    )
