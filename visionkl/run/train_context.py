"""Learn to score detections anew by what else was found in their pictures: the command `train_context`.

The story: open the data set; search all its pictures with the models, as `eval_voc` does, or take results
files that are there already; tell right detections from wrong ones by the annotations, and learn from them
(`visionkl.detection.context`); write the file that `eval_voc --context` takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from visionkl._version import __version__
from visionkl.core.errors import UsageError
from visionkl.run.console import Console, run_command

if TYPE_CHECKING:
    from visionkl.datasets.voc import VOC
    from visionkl.detection.context import ContextRescorer


@dataclass(frozen=True)
class TrainContextOptions:
    """Learn to score detections anew by where they are and what else was found in the picture.

    Takes the models of all classes that are looked for together, and pictures that they were not trained on:
    on the others, detectors are surer than they will ever be again. evaluate --context takes the file that is
    written.

    Parameters
    ----------
    model : list of Path, optional
        Model files: .safetensors, or published .mat models; one a class.
    data : Path, optional
        The VOCdevkit folder, or a folder such as VOC2012; by default VISIONKL_DATA, or datasets in this
        folder.
    year : str, optional
        Which VOC<year> folder, if there are several.
    split : str
        The list of pictures to learn from: train, trainval or another of ImageSets/Main.
    threshold : float, optional
        Lowest score that is learned from, -1.1 by default; detections should be scored down to the same one.
    from_results : Path, optional
        Learn from the results files in this folder, which evaluate writes, instead of searching with models.
    cost : float
        The price of an error on a detection; a higher one fits them more closely.
    out : Path, optional
        The file to write, .safetensors; by default context.safetensors beside the results files.
    device : str
        Where to search: auto (a GPU, if one computes), cpu, cuda, or cuda:1 for the second GPU.
    on_bad_data : {"stop", "skip"}
        What to do when a picture or an annotation cannot be read: stop before the search, or leave it out.
    """

    model: list[Path] | None = None
    data: Path | None = None
    year: str | None = None
    split: str = "train"
    threshold: float | None = None
    from_results: Path | None = None
    cost: float = 1.0
    out: Path | None = None
    device: str = "auto"
    on_bad_data: Literal["stop", "skip"] = "stop"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(TrainContextOptions, train_context, argv, name="train_context")


def train_context(options: TrainContextOptions, console: Console) -> dict[str, Any]:
    """Learn from detections; the document that it returns is that of `--json`."""
    from visionkl.backend.dispatch import choose_device
    from visionkl.core.files import writable_folder
    from visionkl.datasets.voc import VOC
    from visionkl.run.evaluate import (
        check_source,
        classes_with_results,
        fresh_results,
        load_detectors,
        search_to_files,
    )

    device = choose_device(options.device, "train_context")
    check_source("train_context", options.model, options.from_results, options.threshold)
    if options.cost <= 0:
        raise UsageError(f"--cost must be a number above 0, not {options.cost:g}.")
    if options.out is not None:
        if options.out.exists():
            raise UsageError(f"--out {options.out}: it is there already; name a new file.")
        writable_folder(options.out.parent)
    dataset = VOC(
        options.data,
        options.year,
        options.split,
        on_bad_data="skip" if options.on_bad_data == "skip" else "raise",
    )
    facts: dict[str, Any] = {"data": str(dataset.folder), "split": dataset.split}
    if options.from_results is not None:
        results = options.from_results
        classes = classes_with_results(results, dataset)
    else:
        detectors = load_detectors(options.model or [], dataset)
        classes = list(detectors)
        results = fresh_results("context", dataset, classes, None, console)
        facts |= {"models": list(map(str, options.model or []))}
        facts |= search_to_files(detectors, dataset, options.threshold, results, console, device)
        console.note(f"results: {results} (--from-results learns from them again)")
    facts |= {"results": str(results)}
    rescorer = _learn(results, dataset, classes, options.cost, console)
    out = options.out or results / "context.safetensors"
    rescorer.save(out)
    console.result(f"{_table(rescorer)}\ncontext: {out}")
    counts = {
        label: {"right": int(right), "wrong": int(wrong)}
        for label, (right, wrong) in zip(rescorer.classes_, rescorer.counts_, strict=True)
    }
    return {"visionkl": __version__, **facts, "cost": options.cost, "classes": counts, "context": str(out)}


def _learn(results: Path, dataset: VOC, classes: list[str], cost: float, console: Console) -> ContextRescorer:
    from visionkl.detection.context import ContextRescorer
    from visionkl.evaluation.results import read_all_voc_results
    from visionkl.evaluation.voc import check_image_ids
    from visionkl.run.evaluate import scored_part

    part, _ = scored_part(results, dataset, console)
    found = read_all_voc_results(results, dataset.split, classes)
    check_image_ids(found, dataset, str(results))
    usable = {example.id: found[example.id] for example in part if example.id in found}
    with console.progress("learning"):
        rescorer = ContextRescorer(cost=cost).fit(usable, part, classes)
    for label, (right, wrong) in zip(classes, rescorer.counts_.tolist(), strict=True):
        if not right or not wrong:
            kind = "right" if right else "wrong"
            console.warn(f"{label}: there are only {kind} detections ({right + wrong}); their order stays.")
    return rescorer


def _table(rescorer: ContextRescorer) -> str:
    width = max(map(len, ("class", *rescorer.classes_)))
    rows = [
        f"{label:<{width}}  {right:>8}  {wrong:>8}"
        for label, (right, wrong) in zip(rescorer.classes_, rescorer.counts_.tolist(), strict=True)
    ]
    return "\n".join([f"{'class':<{width}}  {'right':>8}  {'wrong':>8}", *rows])
