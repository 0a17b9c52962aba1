"""Take stock of a data set before anything is trained on it: the command `inspect_data`.

The story: open the data set, whatever its format, read every picture and every annotation of it, print what
is in it, and then, one line each, what cannot be used. A data set with anything bad ends with exit code 3,
after all of it has been said.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from visionkl.core.errors import DataError, UsageError
from visionkl.run.console import Console, run_command

if TYPE_CHECKING:
    from visionkl.datasets.base import Dataset
    from visionkl.datasets.census import Census, ClassCensus, Spread

Format = Literal["voc", "imagenet", "coco", "yolo", "folder"]

_TABLE_WIDTH = 110


@dataclass(frozen=True)
class InspectOptions:
    """Take stock of a data set: what is in it, and what cannot be used.

    Reads every picture and every annotation. Prints pictures and objects by class, sizes, and one line for
    each picture, annotation or box that is bad; if there is one, the exit code is 3.

    Parameters
    ----------
    data : list of Path, optional
        The data set: a folder, a COCO annotation file (.json), or the data.yaml of a YOLO set; by default
        VISIONKL_DATA, or datasets in this folder.
    format : {"auto", "voc", "imagenet", "coco", "yolo", "folder"}
        What kind of data set it is; auto looks at what is there.
    year : str, optional
        Which VOC<year> folder, if there are several.
    split : str, optional
        Which part of it: train, val, test, trainval; by default trainval of VOC, and train of others.
    images : Path, optional
        Folder with the pictures of a COCO file.
    quick : bool
        Read only the headers of pictures: faster, but a truncated file is not noticed.
    """

    data: list[Path] | None = None
    format: Literal["auto", "voc", "imagenet", "coco", "yolo", "folder"] = "auto"
    year: str | None = None
    split: str | None = None
    images: Path | None = None
    quick: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(InspectOptions, inspect_data, argv, name="inspect_data", positional="data")


def inspect_data(options: InspectOptions, console: Console) -> dict[str, Any]:
    """Take stock of a data set; the document that it returns is that of `--json`."""
    from visionkl.datasets.base import data_folder
    from visionkl.datasets.census import census

    paths = options.data or [data_folder()]
    if len(paths) > 1:
        raise UsageError(f"one data set at a time, not {len(paths)}. Try inspect_data --help.")
    dataset = _open(paths[0], options)
    with console.progress("reading", len(dataset)) as progress:
        found = census(
            dataset,
            decode=not options.quick,
            n_jobs=console.jobs,
            progress=lambda done, total: progress.advance(done - progress.done),
        )
    document = {"data": str(paths[0]), **found.to_dict()}
    console.result(_text(found))
    if not found.ok:
        if console.json:
            console.document(document)
        raise DataError(f"{found.name}: {_count(len(found.problems), 'thing')} cannot be used; see the list.")
    return document


# -- opening -------------------------------------------------------------------------------------------------


def _open(path: Path, options: InspectOptions) -> Dataset:
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder.")
    kind = _format_of(path) if options.format == "auto" else options.format
    needless = [
        f"--{name}"
        for name, kinds in {
            "year": ("voc",),
            "split": ("voc", "imagenet", "yolo"),
            "images": ("coco",),
        }.items()
        if getattr(options, name) is not None and kind not in kinds
    ]
    if needless:
        raise UsageError(f"{path}: {needless[0]} means nothing for a data set of the format {kind}.")
    if kind == "voc":
        from visionkl.datasets.voc import VOC

        return VOC(path, options.year, options.split or "trainval")
    if kind == "imagenet":
        from visionkl.datasets.imagenet import ImageNet

        return ImageNet(path, options.split or "train")
    if kind == "coco":
        from visionkl.datasets.coco import COCO

        if options.images is None:
            raise UsageError(f"{path}: say with --images where the pictures of this COCO file are.")
        return COCO(path, options.images)
    if kind == "yolo":
        from visionkl.datasets.yolo import YOLO

        return YOLO(path, options.split or "train")
    from visionkl.datasets.folder import ImageFolder

    return ImageFolder(path)


def _format_of(path: Path) -> Format:
    """Tell the format of a data set by the files that only it has."""
    if path.is_file():
        kinds: dict[str, Format] = {".json": "coco", ".yaml": "yolo", ".yml": "yolo"}
        if path.suffix.lower() not in kinds:
            raise UsageError(f"{path}: a folder, a COCO .json or a YOLO .yaml is wanted; or say --format.")
        return kinds[path.suffix.lower()]
    signs: dict[str, Format] = {
        "ImageSets/": "voc",
        "VOC[0-9]*/ImageSets/": "voc",
        "VOCdevkit/VOC[0-9]*/ImageSets/": "voc",
        "TrainVal/VOCdevkit/VOC[0-9]*/ImageSets/": "voc",
        "data.y*ml": "yolo",
        "dataset.y*ml": "yolo",
        "classes.txt": "yolo",
        "ILSVRC/Data/CLS-LOC/": "imagenet",
        "Data/CLS-LOC/": "imagenet",
        "train/n[0-9]*/": "imagenet",
        "val/n[0-9]*/": "imagenet",
    }
    return next((kind for sign, kind in signs.items() if any(path.glob(sign))), "folder")


# -- for people ----------------------------------------------------------------------------------------------


def _text(found: Census) -> str:
    facts = [_count(found.pictures, "picture"), _count(found.total.objects, "object")]
    facts.append(_count(len(found.classes), "class", "classes"))
    if found.unlabelled:
        facts.append(f"{_count(found.unlabelled, 'picture')} without a label")
    lines = [f"{found.name}: {', '.join(facts)}"]
    if found.classes:
        lines += ["", _table(found)]
    lines += [
        "",
        " " * 21 + "".join(f"{heading:>8}" for heading in ("least", "10%", "median", "90%", "most")),
    ]
    for name, spread, form in (
        ("picture width (px)", found.picture_width, "8.0f"),
        ("picture height (px)", found.picture_height, "8.0f"),
        ("object width (px)", found.total.width, "8.0f"),
        ("object height (px)", found.total.height, "8.0f"),
        ("object width / height", found.total.aspect, "8.2f"),
    ):
        if spread is not None:
            lines.append(f"{name:<21}" + "".join(f"{value:{form}}" for value in _values(spread)))
    if found.sticking_out:
        lines += ["", f"boxes that stick out of their picture, which is no harm: {_some(found.sticking_out)}"]
    if found.problems:
        lines += ["", f"{_count(len(found.problems), 'thing')} cannot be used"]
        if found.empty_boxes or found.outside_boxes:
            lines[-1] += (
                f" ({_count(found.empty_boxes, 'empty box', 'empty boxes')}, "
                f"{_count(found.outside_boxes, 'box', 'boxes')} outside)"
            )
        lines[-1] += ":"
        lines += [f"  {problem.reason}" for problem in found.problems]
    else:
        lines += ["", "nothing is wrong with it."]
    return "\n".join(lines)


def _table(found: Census) -> str:
    """Write the counts by class; columns that would be empty are left out."""
    import rich.box
    import rich.console
    import rich.table

    with_objects = found.total.objects > 0
    headings = ["class", "pictures"]
    if with_objects:
        headings += ["objects", "difficult", "truncated", "occluded", "median size", "width / height 10–90%"]
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, show_edge=False, pad_edge=False, show_footer=True)
    footer = ["all", *_cells(found.total, with_objects)]
    for number, (heading, foot) in enumerate(zip(headings, footer, strict=True)):
        table.add_column(heading, foot, justify="left" if number == 0 else "right", no_wrap=True)
    for name, one in found.classes.items():
        table.add_row(name, *_cells(one, with_objects))
    # Into a text of our own, so that a pipe and a narrow terminal get the same columns.
    paper = rich.console.Console(
        file=io.StringIO(), width=_TABLE_WIDTH, color_system=None, markup=False, highlight=False, emoji=False
    )
    with paper.capture() as capture:
        paper.print(table)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())


def _cells(one: ClassCensus, with_objects: bool) -> list[str]:
    cells = [str(one.pictures)]
    if with_objects:
        cells += [str(number) for number in (one.objects, one.difficult, one.truncated, one.occluded)]
        if one.width and one.height and one.aspect:
            cells.append(f"{one.width.median:.0f} × {one.height.median:.0f}")
            cells.append(f"{one.aspect.low:.2f}–{one.aspect.high:.2f}")
        else:
            cells += ["", ""]
    return cells


def _values(spread: Spread) -> tuple[float, ...]:
    return spread.minimum, spread.low, spread.median, spread.high, spread.maximum


def _some(ids: Sequence[str], most: int = 10) -> str:
    shown = ", ".join(ids[:most])
    return f"{shown} and {len(ids) - most} more" if len(ids) > most else shown


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
