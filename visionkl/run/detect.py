"""Find objects in pictures: the command `detect`.

The story: list the pictures, load the models, make sure that results can be written, decode every picture
once so that a broken one is known before the work starts, and then detect, print, and draw, picture by
picture. All models share one feature pyramid per picture. Boxes are printed as they are found; results files
appear, whole, at the end.

A picture that is smaller than a model's filters holds nothing that the model could find: it has no
detections, and a note says so.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from visionkl.core.errors import DataError, UsageError
from visionkl.run.console import Console, duration_text, run_command

if TYPE_CHECKING:
    from visionkl.backend.dispatch import Device
    from visionkl.core.types import Detections
    from visionkl.detection.detector import DPMDetector


@dataclass(frozen=True)
class DetectOptions:
    """Find objects in pictures.

    Prints one line a detection: picture, class, score and the box x1 y1 x2 y2 in pixels, counted from 0.
    With --out, pictures with the boxes drawn in are written, too.

    Parameters
    ----------
    model : list of Path
        Model files: .safetensors, or published .mat models. Several share the work on each picture.
    inputs : list of str
        Pictures, folders of pictures, or patterns such as "photos/*.jpg".
    threshold : float, optional
        Lowest score that counts as a detection; by default each model's own.
    max_detections : int, optional
        Keep at most N detections a picture, the best; by default all.
    format : {"text", "json", "voc", "coco"}
        text prints lines. json prints one document, or writes it to OUT/detections.json. voc writes
        OUT/comp3_det_test_<class>.txt, coco OUT/coco_results.json with OUT/coco_categories.json.
    out : Path, optional
        Folder for drawn pictures and results files; made if it is not there.
    draw : bool
        Draw the detections into copies of the pictures in OUT, as JPEG.
    parts : bool
        Draw the parts of the objects, too.
    recursive : bool
        Search folders with their sub-folders.
    on_bad_data : {"stop", "skip"}
        What to do when a picture cannot be read: stop before anything is written, or go on without it.
    device : str
        cpu, cuda, or cuda:1 for the second GPU; auto is a GPU if one can compute, and else the CPU.
    """

    model: list[Path]
    inputs: list[str]
    threshold: float | None = None
    max_detections: int | None = None
    format: Literal["text", "json", "voc", "coco"] = "text"
    out: Path | None = None
    draw: bool = True
    parts: bool = True
    recursive: bool = False
    on_bad_data: Literal["stop", "skip"] = "stop"
    device: str = "auto"


@dataclass(frozen=True)
class Picture:
    """A picture to search: its file and what results files call it."""

    path: Path
    id: str


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(
        DetectOptions, detect, argv, name="detect", positional="inputs", ends_list=_ends_list_of_models
    )


def detect(options: DetectOptions, console: Console) -> dict[str, Any]:
    """Find objects in pictures; what is returned is the document of `--json`."""
    from visionkl.backend.dispatch import choose_device
    from visionkl.core.files import writable_folder
    from visionkl.core.image import read_image
    from visionkl.detection.detector import detect_all
    from visionkl.run.pictures import find_pictures, picture_ids, readable

    _check_usage(options)
    device = choose_device(options.device, "detect")
    paths = find_pictures(options.inputs, recursive=options.recursive)
    pictures = [Picture(path, name) for path, name in zip(paths, picture_ids(paths), strict=True)]
    detectors = _load(options.model)
    classes = list(dict.fromkeys(detector.label for detector in detectors))
    _check_outputs(options, pictures)
    if options.out is not None:
        writable_folder(options.out)
    sound, skipped = readable(paths, options.on_bad_data, console)
    pictures = [picture for picture in pictures if picture.path in set(sound)]
    _warm_up(detectors, console, device)

    started = time.monotonic()
    found: dict[Picture, Detections] = {}
    records = []
    table = _Table(pictures, classes)
    for picture in console.track(pictures, "detecting"):
        image = read_image(picture.path)
        detections = detect_all(
            detectors, image, threshold=options.threshold, n_jobs=console.jobs, device=device
        ).sorted()
        detections = detections[: options.max_detections]
        found[picture] = detections
        records.append(_record(picture, image.shape, detections))
        if options.out is not None and options.draw:
            from visionkl.report.plots import save_detections  # loads matplotlib: only if something is drawn

            path = _drawing_path(options.out, picture)
            path.parent.mkdir(parents=True, exist_ok=True)
            save_detections(path, image, detections, parts=options.parts, classes=classes)
            records[-1]["drawn"] = str(path)
        if options.format == "text":
            for line in table.lines(picture, detections):
                console.result(line)
        if not len(detections):
            _note_if_too_small(picture, image, detectors, console)
    document = {
        "models": [
            {"file": str(file), "label": detector.label, "threshold": _threshold(detector, options)}
            for file, detector in zip(options.model, detectors, strict=True)
        ],
        "pictures": records,
        "skipped": skipped,
    }
    _write_results(options, document, found, classes, console)
    _sum_up(found, skipped, options, time.monotonic() - started, console)
    return document


# -- before the work -------------------------------------------------------------------------------------


def _check_usage(options: DetectOptions) -> None:
    if options.format in ("voc", "coco") and options.out is None:
        raise UsageError(f"--format {options.format} writes files: say where with --out FOLDER.")
    if options.max_detections is not None and options.max_detections < 1:
        raise UsageError(f"--max-detections must be a whole number ≥ 1, not {options.max_detections}.")
    if options.threshold is not None and not math.isfinite(options.threshold):
        raise UsageError(f"--threshold must be a finite number, not {options.threshold}.")


def _load(models: Sequence[Path]) -> list[DPMDetector]:
    from visionkl.store import load_detector

    return [load_detector(path) for path in models]


def _check_outputs(options: DetectOptions, pictures: Sequence[Picture]) -> None:
    """Refuse what would fail at the end, or would overwrite the pictures themselves."""
    if options.format == "voc":
        for picture in pictures:
            if len(picture.id.split()) != 1:
                raise DataError(
                    f"{picture.path}: VOC results files cannot hold a name with blanks; "
                    "rename the picture, or choose --format coco or json."
                )
    if options.out is not None and options.draw:
        sources = {picture.path.resolve() for picture in pictures}
        for picture in pictures:
            if _drawing_path(options.out, picture).resolve() in sources:
                raise UsageError(
                    f"--out {options.out} would overwrite the picture {_drawing_path(options.out, picture)}; "
                    "choose another folder."
                )


def _warm_up(detectors: Sequence[DPMDetector], console: Console, device: Device) -> None:
    """Let the hot loops compile on a blank picture: the wait is explained, and the time left is right."""
    import numpy as np

    from visionkl.detection.detector import detect_all

    with console.compiling():
        detect_all(detectors, np.zeros((160, 160, 3), np.uint8), n_jobs=console.jobs, device=device)


def _note_if_too_small(
    picture: Picture, image: Any, detectors: Sequence[DPMDetector], console: Console
) -> None:
    rows, cols = image.shape[:2]
    # With the extra octave, roots are sought at twice the resolution and are half as large.
    windows = [
        (component.root.shape[1] * cell, component.root.shape[0] * cell)
        for model in (detector.model for detector in detectors)
        for component in model.components
        for cell in (model.cell_size // 2 if model.extra_octave else model.cell_size,)
    ]
    if not any(width <= cols and height <= rows for width, height in windows):
        width, height = min(windows, key=lambda window: window[0] * window[1])
        console.note(
            f"{picture.path}: with {cols} × {rows} pixels it is smaller than what the models look for "
            f"({width} × {height} at least); enlarge it to find something."
        )


# -- results ---------------------------------------------------------------------------------------------


class _Table:
    """Aligned lines, one a detection, with a heading before the first."""

    def __init__(self, pictures: Sequence[Picture], classes: Sequence[str]) -> None:
        self._width = max(len("picture"), *(len(str(picture.path)) for picture in pictures))
        self._class_width = max(len("class"), *map(len, classes))
        self._headed = False

    def lines(self, picture: Picture, detections: Detections) -> Iterator[str]:
        if len(detections) and not self._headed:
            self._headed = True
            numbers = "".join(f"{name:>9}" for name in ("score", "x1", "y1", "x2", "y2"))
            yield f"{'picture':<{self._width}}  {'class':<{self._class_width}}{numbers}"
        for label, score, box in zip(detections.labels, detections.scores, detections.boxes, strict=True):
            numbers = "".join(f"{value:9.1f}" for value in box)
            yield f"{picture.path!s:<{self._width}}  {label:<{self._class_width}}{score:9.3f}{numbers}"


def _record(picture: Picture, shape: tuple[int, ...], detections: Detections) -> dict[str, Any]:
    """Describe what was found in a picture, with the parts of each object that its component has."""
    return {
        "picture": str(picture.path),
        "width": shape[1],
        "height": shape[0],
        "detections": [
            {
                "label": label,
                "score": round(float(score), 6),
                "box": [round(float(value), 3) for value in box],
                "component": int(component),
                "parts": [[round(float(v), 3) for v in part] for part in parts if math.isfinite(part[0])],
            }
            for label, score, box, component, parts in zip(
                detections.labels,
                detections.scores,
                detections.boxes,
                detections.components,
                detections.parts,
                strict=True,
            )
        ],
    }


def _drawing_path(out: Path, picture: Picture) -> Path:
    return out / f"{picture.id}.jpg"


def _write_results(
    options: DetectOptions,
    document: dict[str, Any],
    found: dict[Picture, Detections],
    classes: Sequence[str],
    console: Console,
) -> None:
    from visionkl.core.files import atomic_write
    from visionkl.evaluation.results import voc_results_writer, write_coco_results

    if options.format == "json" and options.out is None and not console.json:
        console.document(document)
    if options.out is None:
        return
    if options.format == "json":
        with atomic_write(options.out / "detections.json") as file:
            json.dump(document, file, ensure_ascii=False, indent=1)
    elif options.format == "voc":
        with voc_results_writer(options.out, "test", classes) as write:
            for picture, detections in found.items():
                write(picture.id, detections)
    elif options.format == "coco":
        numbers = {label: number for number, label in enumerate(classes, start=1)}
        by_id = {picture.id: detections for picture, detections in found.items()}
        with atomic_write(options.out / "coco_categories.json") as file:
            json.dump([{"id": number, "name": label} for label, number in numbers.items()], file)
        write_coco_results(options.out / "coco_results.json", by_id, numbers)


def _sum_up(
    found: dict[Picture, Detections],
    skipped: Sequence[object],
    options: DetectOptions,
    seconds: float,
    console: Console,
) -> None:
    n_detections = sum(map(len, found.values()))
    n_hits = sum(len(detections) > 0 for detections in found.values())
    if n_detections:
        what = f"{_counted(n_detections, 'detection')} in {n_hits} of {_counted(len(found), 'picture')}"
    else:
        what = f"nothing found in {_counted(len(found), 'picture')}; a lower --threshold finds more"
    but = f", {len(skipped)} skipped" if skipped else ""
    where = f"; see {options.out}" if options.out is not None else ""
    console.note(f"{what}{but} ({duration_text(seconds)}){where}")


def _threshold(detector: DPMDetector, options: DetectOptions) -> float:
    return float(detector.threshold if options.threshold is None else options.threshold)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _ends_list_of_models(argument: str) -> bool:
    from visionkl.run.pictures import looks_like_picture_argument

    return looks_like_picture_argument(argument)
