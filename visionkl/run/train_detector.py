"""Train a detector, score it, and write a report: the command `train_detector`.

The story: open the training and the validation pictures, and read all of them once, so that a broken one is
known before the work starts; count what there is to learn from (`--dry-run` stops here); make a folder for
the run; train, keeping the state after each step, so that an interrupted run can go on; search the validation
pictures and score what was found; choose the score above which detections are shown, the one of the best F1;
write model, plots and report, and say where everything is.

Without arguments it does all of this with the sample set, which it generates. `visionkl.run.run_folder` says
what a run's folder holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from visionkl._version import __version__
from visionkl.core.errors import UsageError
from visionkl.detection.settings import TrainingSettings
from visionkl.run.console import Console, duration_text, run_command
from visionkl.run.make_sample import SAMPLE_FOLDER, generate_if_missing
from visionkl.run.memory import parse_bytes
from visionkl.run.resume import NEWEST, config_of, going_on_later, reopen

if TYPE_CHECKING:
    from visionkl.backend.dispatch import Device
    from visionkl.datasets.voc import VOC
    from visionkl.detection.model import MixtureModel
    from visionkl.detection.objects import TrainingData
    from visionkl.evaluation.voc import VOCResult
    from visionkl.run.run_folder import RunFolder
    from visionkl.run.training_facts import TrainingFacts

#: What is trained when nothing is asked for.
SAMPLE_CATEGORY = "digger"

_COMMAND = "train_detector"


@dataclass(frozen=True)
class TrainOptions:
    """Train a detector of one class, score it on other pictures, and write a report.

    Without options it generates a small sample set and trains on that. A run has a folder of its own, with
    the settings, the log, the state after each step, the model and the report; what was interrupted goes on
    with --resume and ends in the same model.

    Parameters
    ----------
    data : Path, optional
        The VOCdevkit folder, a folder such as VOC2012, or one of your own in the same layout; by default
        VISIONKL_DATA, or datasets in this folder. The sample set, datasets/sample, is generated if need be.
    year : str, optional
        Which VOC<year> folder, if there are several.
    train_split : str, optional
        The list of pictures to learn from; by default train, or trainval where there is none.
    val_split : str, optional
        The list of pictures to score on; by default val, or test where there is none.
    category : str, optional
        The class to find; may be left out where there is one only.
    start_from : Path, optional
        Begin with this model, a safetensors file or a published .mat: its views, parts and cell size are
        kept, and what they look for is learned anew.
    out : Path, optional
        Folder of the run, made new; a number is appended if it is there. By default in runs.
    resume : str, optional
        Go on with the unfinished run in this folder, or, without a folder, with the newest one in runs. Its
        settings are taken from it.
    max_memory : str
        How much memory training may use, such as 8G or 500M.
    device : str
        Where pictures are described and searched, and the solver's passes made: auto (a GPU, if one
        computes), cpu, cuda, or cuda:1 for the second GPU.
    dry_run : bool
        Count what there is to learn from, guess memory and time, and stop.
    on_bad_data : {"stop", "skip"}
        What to do when a picture or an annotation cannot be read: stop before training, or leave it out.
    settings : TrainingSettings
        How to train.
    """

    data: Path | None = None
    year: str | None = None
    train_split: str | None = None
    val_split: str | None = None
    category: str | None = None
    start_from: Path | None = None
    out: Path | None = None
    resume: str | None = field(default=None, metadata={"bare": NEWEST})
    max_memory: str = "8G"
    device: str = "auto"
    dry_run: bool = False
    on_bad_data: Literal["stop", "skip"] = "stop"
    settings: TrainingSettings = field(default_factory=TrainingSettings)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(TrainOptions, train_detector, argv, name=_COMMAND)


def train_detector(options: TrainOptions, console: Console) -> dict[str, Any]:
    """Train, score and report; the document that it returns is that of `--json`."""
    from visionkl.backend.dispatch import choose_device
    from visionkl.detection.begin import data_for, settings_of
    from visionkl.run.run_folder import RunFolder
    from visionkl.run.training_data import check_validation, open_splits, read_objects
    from visionkl.run.training_facts import training_facts

    device = choose_device(options.device, _COMMAND)
    run: RunFolder | None = None
    if options.resume is not None:
        options, run = reopen(options, console, _COMMAND)
    options = _completed(options)
    start = _model_to_begin_with(options)
    if start is not None:
        options = dataclasses.replace(options, settings=settings_of(start, options.settings))
    generate_if_missing(options.data, console)
    max_memory = parse_bytes(options.max_memory)

    train_set, val_set, label = open_splits(options)
    data = read_objects(train_set, label, options.settings, console)
    if start is not None:
        data = data_for(start, data, options.settings)
    check_validation(val_set, data, console)
    facts = training_facts(data, options.settings, console.jobs)
    if options.dry_run:
        console.result(f"{facts.text()}\nto score on: {val_set.name}, {len(val_set)} pictures")
        return {"visionkl": __version__, **facts.to_dict()}

    if run is None:
        chosen = dataclasses.replace(
            options, train_split=train_set.split, val_split=val_set.split, category=label
        )
        folder = options.out or Path("runs") / f"train-{label}"
        run = RunFolder.start(folder, config_of(chosen), _COMMAND)
    run.begin(console, facts.summary())
    if device.is_gpu:
        console.note(f"pictures are described and searched on {device}")
    with going_on_later(run, console, run.checkpoint.is_file):
        model, cost = _train(data, options.settings, start, max_memory, run, console, device)
        result, model = _evaluate(model, val_set, run, console, device)
        document = _document(options, run, train_set, facts, model, result, cost)
        _write_report(run, document, model, result, val_set, console)
    run.tidy()
    console.result(_summary(run, result, label))
    return document


# -- what is asked for ---------------------------------------------------------------------------------------


def _completed(options: TrainOptions) -> TrainOptions:
    """Take the sample set if nothing else is asked for."""
    if options.data is None and options.category is None:
        return dataclasses.replace(
            options,
            data=SAMPLE_FOLDER,
            category=SAMPLE_CATEGORY,
            val_split=options.val_split or "test",
        )
    return options


def _model_to_begin_with(options: TrainOptions) -> MixtureModel | None:
    """Read the model of --start-from."""
    from visionkl.detection.detector import DPMDetector
    from visionkl.store import load

    if options.start_from is None:
        return None
    detector = load(options.start_from)
    if not isinstance(detector, DPMDetector):
        raise UsageError(f"{options.start_from}: this is no detector, so training cannot begin with it.")
    return detector.model


# -- training ------------------------------------------------------------------------------------------------


def _train(
    data: TrainingData,
    settings: TrainingSettings,
    start: MixtureModel | None,
    max_memory: int,
    run: RunFolder,
    console: Console,
    device: Device,
) -> tuple[MixtureModel, dict[str, float]]:
    """Train from where the run stands; the model, and what time and memory it took."""
    from visionkl.detection import plan, training
    from visionkl.detection.begin import n_left_out
    from visionkl.run.run_folder import DetectorObserver

    state = run.state()
    steps = plan.plan(settings)
    if state is not None:
        console.note(f"going on after step {state.n_done} of {len(steps)}")
    run.work.mkdir(exist_ok=True)
    n_done = state.n_done if state is not None else n_left_out(settings) if start is not None else 0
    observer = DetectorObserver(run, console, steps, n_done)
    model = training.train_on(
        data,
        settings,
        n_jobs=console.jobs,
        folder=run.work,
        max_memory=max_memory,
        observer=observer,
        state=state,
        start=start,
        device=device,
    )
    console.note(f"trained in {duration_text(observer.seconds)}: {model}")
    return model, {"seconds": round(observer.seconds, 1), "peak_bytes": observer.peak_bytes}


def _evaluate(
    model: MixtureModel, dataset: VOC, run: RunFolder, console: Console, device: Device
) -> tuple[VOCResult, MixtureModel]:
    """Search and score the validation pictures; gives the model the threshold of the best F1 there."""
    from visionkl.detection.detector import DPMDetector
    from visionkl.evaluation.results import read_voc_image_ids
    from visionkl.run.evaluate import score_files, search_to_files
    from visionkl.store import save

    label = model.label
    save(model, run.model(label))  # it is of use already, should the search be interrupted
    covered = read_voc_image_ids(run.path, dataset.split)
    if covered is None or len(covered) < len(dataset):
        detectors = {label: DPMDetector.from_model(model)}
        search_to_files(detectors, dataset, None, run.path, console, device)
    result = score_files(run.path, dataset, [label], "07", console)
    mine = result.by_class[label]
    best = mine.best_f1()
    if best is None:
        console.warn(f"{dataset.name}: no {label} was found, so the threshold stays at {model.threshold:g}.")
    else:
        model = dataclasses.replace(model, threshold=round(mine.threshold_after(best[1]), 4))
    save(model, run.model(label))
    return result, model


# -- what came out -------------------------------------------------------------------------------------------


def _document(
    options: TrainOptions,
    run: RunFolder,
    train_set: VOC,
    facts: TrainingFacts,
    model: MixtureModel,
    result: VOCResult,
    cost: dict[str, float],
) -> dict[str, Any]:
    mine = result.by_class[model.label]
    best = mine.best_f1()
    at_threshold = None
    if best is not None:
        f1, point = best
        at_threshold = {
            "f1": f1,
            "precision": float(mine.precision[point]),
            "recall": float(mine.recall[point]),
        }
    return {
        **run.places(run.model(model.label)),
        "training": {
            "data": str(train_set.folder),
            **facts.to_dict(),
            **cost,
            "settings": dataclasses.asdict(options.settings),
        },
        "threshold": model.threshold,
        "at_threshold": at_threshold,
        "evaluation": result.to_dict(),
    }


def _write_report(
    run: RunFolder,
    document: dict[str, Any],
    model: MixtureModel,
    result: VOCResult,
    dataset: VOC,
    console: Console,
) -> None:
    from visionkl.run.evaluate import write_json
    from visionkl.run.training_report import write_training_report

    write_json(run.evaluation, document)
    console.note("drawing the report ...")
    write_training_report(run, document, model, result, dataset, n_jobs=console.jobs)


def _summary(run: RunFolder, result: VOCResult, label: str) -> str:
    both = {metric: result.with_metric(metric).by_class[label].ap for metric in ("07", "10")}
    aps = ", ".join(f"AP {metric} {ap:.4f}" for metric, ap in both.items())
    return "\n".join(
        [
            f"{label} on {result.dataset}, {result.n_images} pictures: {aps}",
            f"model:  {run.model(label)}",
            f"report: {run.report}",
            f"try it: visionkl detect --model {run.model(label)} PICTURE ...",
        ]
    )
