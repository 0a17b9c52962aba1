"""Score detectors on a data set in VOC's layout: the command `eval_voc`.

The story: open the data set, load the models, make sure that results can be written, decode every picture
once so that a broken one is known before the work starts, search all pictures, write what was found to VOC
results files, and score these files. `--from-results` begins at the last step, so both ways give the same
numbers. What scores below the threshold (-1.1, or `--threshold`) is not written and not scored. With
`--context`, what was written is scored anew by what else was found in the picture, first.

The output folder holds `comp3_det_<split>_<class>.txt`, `images_<split>.txt` (the pictures that were
searched) and `evaluation.json`; with `--context`, the results with their new scores in `context/`. An
interrupted search leaves the results of the pictures it came to.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from visionkl._version import __version__
from visionkl.core.errors import DataError, UsageError
from visionkl.run.console import Console, duration_text, run_command

if TYPE_CHECKING:
    from visionkl.backend.dispatch import Device
    from visionkl.datasets.base import Dataset, Example
    from visionkl.datasets.voc import VOC
    from visionkl.detection.detector import DPMDetector
    from visionkl.evaluation.voc import ClassResult, VOCResult
    from visionkl.run.rescoring import ContextFile


@dataclass(frozen=True)
class EvaluateOptions:
    """Score detectors on a data set in VOC's layout.

    Prints a table of the average precision (AP) of each class and the mean. What was found is written to VOC
    results files, which --from-results scores again without searching.

    Parameters
    ----------
    model : list of Path, optional
        Model files: .safetensors, or published .mat models. Each is scored on the class that it finds.
    data : Path, optional
        The VOCdevkit folder, or a folder such as VOC2012; by default VISIONKL_DATA, or datasets in this
        folder.
    year : str, optional
        Which VOC<year> folder, if there are several.
    split : str
        The list of pictures: test, val, trainval or another of ImageSets/Main.
    metric : {"07", "10"}
        07 is the eleven-point mean of VOC2007, 10 the area under the curve of VOC2010 and later. The JSON
        document has both.
    threshold : float, optional
        Lowest score that is kept, -1.1 by default. One that is too high cuts the curve off and lowers the AP.
    from_results : Path, optional
        Score the results files in this folder instead of searching with models.
    context : Path, optional
        File of train-context: scores detections anew by where they are and what else was found, before they
        are scored. It needs the results of all classes that it was learned with.
    out : Path, optional
        Folder for results files, made new; a number is appended if it is there. By default in runs.
    report : Path, optional
        Write an HTML page with the table and the precision-recall curves.
    device : str
        Where to search: auto (a GPU, if one computes), cpu, cuda, or cuda:1 for the second GPU.
    on_bad_data : {"stop", "skip"}
        What to do when a picture or an annotation cannot be read: stop before the search, or leave the
        picture out of the score.
    """

    model: list[Path] | None = None
    data: Path | None = None
    year: str | None = None
    split: str = "test"
    metric: Literal["07", "10"] = "07"
    threshold: float | None = None
    from_results: Path | None = None
    context: Path | None = None
    out: Path | None = None
    report: Path | None = None
    device: str = "auto"
    on_bad_data: Literal["stop", "skip"] = "stop"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(EvaluateOptions, evaluate, argv, name="eval_voc")


def evaluate(options: EvaluateOptions, console: Console) -> dict[str, Any]:
    """Score models, or results that are there; the document that it returns is that of `--json`."""
    from visionkl.backend.dispatch import choose_device
    from visionkl.core.files import fresh_folder, writable_folder
    from visionkl.datasets.voc import VOC

    device = choose_device(options.device, "eval_voc")
    check_source("eval_voc", options.model, options.from_results, options.threshold)
    dataset = VOC(
        options.data,
        options.year,
        options.split,
        on_bad_data="skip" if options.on_bad_data == "skip" else "raise",
    )
    if options.report is not None:
        if options.report.is_dir():
            raise UsageError(f"--report {options.report}: this is a folder; name a file in it.")
        writable_folder(options.report.parent)

    if options.from_results is not None:
        detectors, classes = {}, classes_with_results(options.from_results, dataset)
    else:
        detectors = load_detectors(options.model or [], dataset)
        classes = list(detectors)
    context = _context(options.context, classes)
    facts: dict[str, Any] = {"data": str(dataset.folder), "split": dataset.split}
    if options.from_results is not None:
        results = options.from_results
    else:
        results = fresh_results("eval", dataset, classes, options.out, console)
        facts |= {"models": list(map(str, options.model or []))}
        facts |= search_to_files(detectors, dataset, options.threshold, results, console, device)
    facts |= {"results": str(results)}
    if context is None:
        result = score_files(results, dataset, classes, options.metric, console)
    else:
        facts["context"] = str(context.path)
        with nullcontext(results / "context") if options.model else TemporaryDirectory() as rescored:
            context.rescore_files(results, dataset, Path(rescored), console)
            result = score_files(Path(rescored), dataset, classes, options.metric, console)
    document = {"visionkl": __version__, **facts, **result.to_dict()}
    console.result(f"{result.dataset}, {result.n_images} pictures\n{result.table()}")
    if options.out is not None or options.model:
        out = results if options.out is None or options.model else fresh_folder(options.out)
        write_json(out / "evaluation.json", document)
        console.note(f"results: {out}")
    if options.report is not None:
        _write_report(options.report, result, facts)
        console.note(f"report: {options.report}")
    return document


# -- searching -----------------------------------------------------------------------------------------------


def check_source(
    name: str, model: Sequence[Path] | None, from_results: Path | None, threshold: float | None
) -> None:
    """Make sure that either models to search with or results are given."""
    if bool(model) == bool(from_results):
        raise UsageError(
            f"give either --model to search with, or --from-results to score. Try {name} --help."
        )
    if from_results is not None and threshold is not None:
        raise UsageError("--threshold is for the search with --model; results files are scored as they are.")


def load_detectors(paths: Sequence[Path], dataset: Dataset) -> dict[str, DPMDetector]:
    """Load models by the class that they find; the classes must be there, and each once."""
    from visionkl.datasets.base import check_classes
    from visionkl.store import load_detector

    detectors: dict[str, DPMDetector] = {}
    for path in paths:
        detector = load_detector(path)
        label = detector.label
        if label in detectors:
            raise UsageError(
                f"{path}: another model finds {label!r}, too; score one model a class at a time."
            )
        check_classes(f"{path}: the model finds {label!r}, but in {dataset.name}", [label], dataset.classes)
        detectors[label] = detector
    return detectors


def check_data(dataset: Dataset, console: Console) -> None:
    """Decode all pictures and read all annotations before the long search, unless bad ones are left out."""
    from visionkl.datasets.base import usable

    if dataset.on_bad_data == "raise":
        for _ in console.track(usable(dataset), "checking", len(dataset)):
            pass


def search_to_files(
    detectors: dict[str, DPMDetector],
    dataset: VOC,
    threshold: float | None,
    folder: Path,
    console: Console,
    device: Device,
) -> dict[str, float]:
    """Search all pictures and write the results files; says down to which score, and how long it took."""
    from visionkl.evaluation.results import voc_results_writer
    from visionkl.evaluation.search import LOWEST_SCORE, search

    threshold = LOWEST_SCORE if threshold is None else threshold
    _warm_up(detectors, console, device)
    n_done, interrupted = 0, False
    started = time.monotonic()
    try:
        with (
            voc_results_writer(folder, dataset.split, list(detectors)) as write,
            console.progress("searching", len(dataset)) as progress,
        ):

            def leave_out(example: Example, error: DataError) -> None:
                console.warn(f"left out: {error}")
                progress.advance()

            try:
                for example, found in search(
                    detectors,
                    dataset,
                    threshold=threshold,
                    n_jobs=console.jobs,
                    device=device,
                    on_skip=leave_out,
                ):
                    write(example.id, found)
                    n_done += 1
                    progress.advance()
            except KeyboardInterrupt:
                if n_done == 0:
                    raise
                interrupted = True  # leaving the writer in peace keeps what was found
    except BaseException:
        with suppress(OSError):
            folder.rmdir()  # nothing was written: leave no empty folder behind
        raise
    if interrupted:
        console.warn(
            f"{n_done} of {len(dataset)} pictures were searched; --from-results {folder} scores them alone."
        )
        raise KeyboardInterrupt
    seconds = time.monotonic() - started
    console.note(
        f"searched {n_done} pictures in {duration_text(seconds)}: {seconds / n_done:.2f} s a picture"
    )
    return {"threshold": threshold, "seconds_per_image": round(seconds / n_done, 4)}


def _warm_up(detectors: dict[str, DPMDetector], console: Console, device: Device) -> None:
    """Compile before the clock starts, so that the times shown are those of the search."""
    import numpy as np

    from visionkl.detection.detector import detect_all

    with console.compiling():
        blank = np.zeros((120, 160, 3), np.uint8)
        detect_all(list(detectors.values()), blank, n_jobs=console.jobs, device=device)


def fresh_results(name: str, dataset: VOC, classes: list[str], out: Path | None, console: Console) -> Path:
    """Check the data set, and make a folder for what will be found in it: `out`, or one in runs."""
    from visionkl.core.files import fresh_folder

    check_data(dataset, console)
    what = "-".join(classes) if len(classes) <= 3 else f"{len(classes)}-classes"
    default = Path("runs") / f"{name}-{dataset.folder.resolve().name}-{dataset.split}-{what}"
    return fresh_folder(out or default)


# -- scoring -------------------------------------------------------------------------------------------------


def classes_with_results(folder: Path, dataset: VOC) -> list[str]:
    """Classes of the results files in a folder, in the data set's order."""
    from visionkl.datasets.base import check_classes
    from visionkl.evaluation.results import voc_results_classes, voc_results_path

    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder.")
    found = voc_results_classes(folder, dataset.split)
    if not found:
        wanted = voc_results_path("", dataset.split, "<class>")
        raise DataError(f"{folder}: there are no results files for this split; they are called {wanted}.")
    for label in found:
        check_classes(str(voc_results_path(folder, dataset.split, label)), [label], dataset.classes)
    return [label for label in dataset.classes if label in found]


def _context(path: Path | None, classes: list[str]) -> ContextFile | None:
    if path is None:
        return None
    from visionkl.run.rescoring import ContextFile  # loads a compiler, which scoring alone does not need

    return ContextFile(path, classes)


def score_files(
    folder: Path, dataset: VOC, classes: list[str], metric: Literal["07", "10"], console: Console
) -> VOCResult:
    """Score the results files in a folder, one class after the other, so that one alone is in memory."""
    from visionkl.evaluation.results import read_voc_results, voc_results_path
    from visionkl.evaluation.voc import check_image_ids, evaluate_detections

    part, left_out = scored_part(folder, dataset, console)
    by_class: dict[str, ClassResult] = {}
    for label in classes:
        found = read_voc_results(folder, dataset.split, label)
        check_image_ids(found, dataset, str(voc_results_path(folder, dataset.split, label)))
        scored = {example.id: found[example.id] for example in part if example.id in found}
        result = evaluate_detections(scored, part, [label], metric)
        by_class |= result.by_class
    return dataclasses.replace(result, by_class=by_class, skipped=tuple(left_out))


def scored_part(folder: Path, dataset: VOC, console: Console) -> tuple[Dataset, list[str]]:
    """Take the pictures that the results cover and whose annotations can be read; list the others."""
    from visionkl.datasets.base import Dataset
    from visionkl.evaluation.results import read_voc_image_ids
    from visionkl.evaluation.voc import check_image_ids

    covered = read_voc_image_ids(folder, dataset.split)
    if covered is not None:
        check_image_ids(covered, dataset, str(folder))
    wanted = {example.id for example in dataset} if covered is None else set(covered)
    examples, left_out = [], []
    for example in dataset:
        usable = example.id in wanted
        try:
            _ = usable and example.annotation
        except DataError as error:
            if dataset.on_bad_data == "raise":
                raise
            console.warn(f"left out: {error}")
            usable = False
        if usable:
            examples.append(example)
        else:
            left_out.append(example.id)
    if covered is not None and len(covered) < len(dataset):
        console.warn(
            f"the results cover {len(covered)} of the {len(dataset)} pictures of {dataset.name}; "
            "the others are left out of the score."
        )
    return Dataset(dataset.name, dataset.classes, examples), left_out


# -- writing -------------------------------------------------------------------------------------------------


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON document for people and programs; the file appears whole or not at all."""
    from visionkl.core.files import write_whole

    write_whole(path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _fact_text(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:.4g}" for name, number in value.items())
    return ", ".join(value) if isinstance(value, list) else value


def _write_report(path: Path, result: VOCResult, facts: dict[str, Any]) -> None:
    from visionkl.evaluation.voc import METRICS
    from visionkl.report.html import Report
    from visionkl.report.plots import new_figure, plot_precision_recall

    both = {metric: result.with_metric(metric) for metric in METRICS}
    rows: list[list[Any]] = [
        [
            mine.label,
            mine.n_objects,
            mine.n_difficult,
            mine.n_detections,
            *(other.by_class[mine.label].ap for other in both.values()),
        ]
        for mine in result.by_class.values()
    ]
    rows.append(["mean", "", "", "", *(other.mean_ap for other in both.values())])
    subtitle = f"{result.n_images} pictures, visionkl {__version__}"
    report = Report(f"Average precision on {result.dataset}", subtitle)
    report.section("Classes")
    report.table(["class", "objects", "difficult", "detections", "AP 07", "AP 10"], rows)
    report.text(
        "AP 07 is the eleven-point mean of VOC2007, AP 10 the area under the curve of VOC2010 and later. An "
        f"object is found at an overlap of {result.min_overlap:g}. Difficult objects are ignored. Classes "
        "without objects have no AP and are left out of the mean."
    )
    curves = {mine.label: (mine.recall, mine.precision, mine.ap) for mine in result.by_class.values()}
    figure = new_figure(7.5, 4.8, layout="constrained")
    plot_precision_recall(curves, figure.add_subplot())
    report.section("Precision and recall")
    report.picture(figure, f"Precision over recall; the legend has AP {result.metric}.")
    report.section("How it was made")
    report.facts({name: _fact_text(value) for name, value in facts.items()})
    if result.skipped:
        report.text(f"Left out: {', '.join(result.skipped)}.")
    report.save(path)
