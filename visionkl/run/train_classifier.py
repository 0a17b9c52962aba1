"""Train an image classifier, score it, and write a report: the command `train_classifier`.

The story: open the pictures to learn from and those to score on, and decode all of them once, so that a
broken one is known before the work starts; count what there is (`--dry-run` stops here); make a folder for
the run; learn, keeping what each step leaves, so that an interrupted run can go on; score the test pictures;
write scores, plots and report, and say where everything is.

Without arguments it does all of this with the sample set, which it generates, and learns which machines a
picture shows. `visionkl.run.run_folder` says what a run's folder holds.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from visionkl._version import __version__
from visionkl.learning.classifier_settings import ClassifierSettings
from visionkl.run.console import Console, duration_text, run_command
from visionkl.run.make_sample import SAMPLE_FOLDER, generate_if_missing
from visionkl.run.memory import parse_bytes
from visionkl.run.resume import NEWEST, config_of, going_on_later, reopen

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from visionkl.datasets.labels import LabelledPictures
    from visionkl.evaluation.images import ImageResult
    from visionkl.learning.classify import ImageClassifier
    from visionkl.run.classifier_facts import ClassifierFacts
    from visionkl.run.run_folder import RunFolder

_COMMAND = "train_classifier"


@dataclass(frozen=True)
class TrainClassifierOptions:
    """Train an image classifier, score it on other pictures, and write a report.

    Without options it generates a small sample set and learns which machines a picture shows. Data are a
    folder of classes (a folder of pictures for each), or VOC's, where every class is a question of its own. A
    run has a folder of its own, with the settings, the log, the model and the report; what was interrupted
    goes on with --resume and ends in the same model.

    Parameters
    ----------
    data : Path, optional
        A folder with a folder of pictures for each class; one with two such folders, train and test (or val);
        or a VOCdevkit folder, or a folder such as VOC2012. By default the sample set, datasets/sample, which
        is generated if need be.
    year : str, optional
        Which VOC<year> folder, if there are several.
    train_split : str, optional
        The pictures to learn from. Of VOC data, a list in ImageSets/Main, by default train, or trainval where
        there is none. Of a folder of classes, a folder in it, or a text file with the path of a picture in
        each line.
    val_split : str, optional
        The pictures to score on, likewise; by default val, or test where there is none.
    test_share : float, optional
        Share of a folder's pictures of each class that is set aside at random to score on, where no splits
        are given; 0.25 by default.
    category : list of str, optional
        The classes to learn; all by default.
    out : Path, optional
        Folder of the run, made new; a number is appended if it is there. By default in runs.
    resume : str, optional
        Go on with the unfinished run in this folder, or, without a folder, with the newest one in runs. Its
        settings are taken from it.
    max_memory : str
        How much memory training may use, such as 8G or 500M.
    device : str
        Where pictures are described and encoded, and passes over them made: auto (a GPU, if one computes),
        cpu, cuda, or cuda:1 for the second GPU.
    dry_run : bool
        Count what there is to learn from, guess memory and time, and stop.
    on_bad_data : {"stop", "skip"}
        What to do when a picture cannot be read, or is too small: stop before training, or leave it out.
    settings : ClassifierSettings
        How to train.
    """

    data: Path | None = None
    year: str | None = None
    train_split: str | None = None
    val_split: str | None = None
    test_share: float | None = None
    category: list[str] | None = None
    out: Path | None = None
    resume: str | None = field(default=None, metadata={"bare": NEWEST})
    max_memory: str = "8G"
    device: str = "auto"
    dry_run: bool = False
    on_bad_data: Literal["stop", "skip"] = "stop"
    settings: ClassifierSettings = field(default_factory=ClassifierSettings)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(TrainClassifierOptions, train_classifier, argv, name=_COMMAND)


def train_classifier(options: TrainClassifierOptions, console: Console) -> dict[str, Any]:
    """Train, score and report; the document that it returns is that of `--json`."""
    from visionkl.backend.dispatch import choose_device
    from visionkl.run.classifier_data import open_splits, read_pictures
    from visionkl.run.classifier_facts import classifier_facts
    from visionkl.run.run_folder import RunFolder

    device = str(choose_device(options.device, _COMMAND))
    run: RunFolder | None = None
    if options.resume is not None:
        options, run = reopen(options, console, _COMMAND)
    if options.data is None:
        options = dataclasses.replace(options, data=SAMPLE_FOLDER, val_split=options.val_split or "test")
    generate_if_missing(options.data, console)
    max_memory = parse_bytes(options.max_memory)

    train_set, test_set = open_splits(options)
    train, test, pixels = read_pictures(train_set, test_set, options, console)
    facts = classifier_facts(train, test, pixels, options.settings, console.jobs)
    if options.dry_run:
        console.result(facts.text())
        return {"visionkl": __version__, **facts.to_dict()}

    if run is None:
        folder = options.out or Path("runs") / f"classify-{_name_of(options)}"
        run = RunFolder.start(folder, config_of(options), _COMMAND)
    run.begin(console, facts.summary())
    if device != "cpu":
        console.note(f"pictures are encoded on {device}")
    with going_on_later(run, console, lambda: any(run.work.glob("*")) or _model(run).is_file()):
        classifier, cost = _train(train, options.settings, max_memory, run, console, device)
        result = _score(classifier, test, run, console)
        document = _document(options, run, facts, classifier, result, cost)
        _write_report(run, document, result, test, console)
    run.tidy()
    console.result(_summary(run, result))
    return document


def _name_of(options: TrainClassifierOptions) -> str:
    what = (options.data or SAMPLE_FOLDER).resolve().name
    classes = options.category or []
    return "-".join([what, *classes] if len(classes) <= 3 else [what, f"{len(classes)}-classes"])


def _model(run: RunFolder) -> Path:
    return run.model("classifier")


def _train(
    data: LabelledPictures,
    settings: ClassifierSettings,
    max_memory: int,
    run: RunFolder,
    console: Console,
    device: str,
) -> tuple[ImageClassifier, dict[str, float]]:
    """Train from where the run stands; the classifier, and what time and memory it took."""
    from visionkl.learning.classify import ImageClassifier
    from visionkl.learning.classify_training import count_done, plan, train
    from visionkl.run.run_folder import RunObserver
    from visionkl.store import load

    run.work.mkdir(exist_ok=True)
    steps, is_trained = plan(settings), _model(run).is_file()
    n_done = len(steps) if is_trained else count_done(settings, run.work)
    if n_done:
        console.note(f"going on after step {n_done} of {len(steps)}")
    observer = RunObserver(run, console, steps, n_done)
    if is_trained:
        classifier = load(_model(run))
        classifier.n_jobs, classifier.device = console.jobs, device
    else:
        learned = train(
            data,
            settings,
            folder=run.work,
            n_jobs=console.jobs,
            max_memory=max_memory,
            observer=observer,
            device=device,
        )
        classifier = ImageClassifier.from_parts(settings, learned, n_jobs=console.jobs, device=device)
        classifier.save(_model(run))
        console.note(f"trained in {duration_text(observer.seconds)}: {classifier}")
        console.note(f"the machines took the route {classifier.notes['route']}")
    return classifier, {"seconds": round(observer.seconds, 1), "peak_bytes": observer.peak_bytes}


def _score(
    classifier: ImageClassifier, data: LabelledPictures, run: RunFolder, console: Console
) -> ImageResult:
    """Score the test pictures, going on where an interrupted run stopped, and write the scores down."""
    import numpy as np

    from visionkl.core.files import write_whole
    from visionkl.evaluation.images import ImageResult
    from visionkl.parallel.shards import write_rows

    def blocks_from(first: int) -> Iterator[npt.NDArray[np.float64]]:
        with console.progress("scoring", len(data)) as progress:
            progress.advance(first)
            rest = data.pictures[first:]
            for block in classifier.score_blocks(rest) if len(rest) else ():
                yield block
                progress.advance(len(block))

    shape = (len(data), len(data.classes))
    scores = np.array(write_rows(run.work / "scores.bin", shape, np.float64, blocks_from))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["picture", *data.classes])
    writer.writerows(
        [example.id, *map(float, row)] for example, row in zip(data.pictures, scores, strict=True)
    )
    write_whole(run.path / "scores.csv", text.getvalue())
    return ImageResult(data.name, data.classes, data.exclusive, data.signs, scores)


# -- what came out -------------------------------------------------------------------------------------------


def _document(
    options: TrainClassifierOptions,
    run: RunFolder,
    facts: ClassifierFacts,
    classifier: ImageClassifier,
    result: ImageResult,
    cost: dict[str, float],
) -> dict[str, Any]:
    return {
        **run.places(_model(run)),
        "training": {
            "data": str(options.data),
            **facts.to_dict(),
            **classifier.notes,
            **cost,
            "settings": dataclasses.asdict(options.settings),
        },
        "evaluation": result.to_dict(),
    }


def _write_report(
    run: RunFolder, document: dict[str, Any], result: ImageResult, data: LabelledPictures, console: Console
) -> None:
    from visionkl.run.classifier_report import write_classifier_report
    from visionkl.run.evaluate import write_json

    write_json(run.evaluation, document)
    console.note("drawing the report ...")
    write_classifier_report(run, document, result, data.pictures)


def _summary(run: RunFolder, result: ImageResult) -> str:
    return "\n".join(
        [
            result.table(),
            f"{result.dataset}, {len(result)} pictures: {result.summary()}",
            f"model:  {_model(run)}",
            f"report: {run.report}",
            f"try it: visionkl classify --model {_model(run)} PICTURE ...",
        ]
    )
