"""Training, measured: minutes a row, so it has a command of its own.

    python benchmarks/training.py dlib      our rigid detector against dlib's: time, memory, AP
    python benchmarks/training.py rigid     a rigid detector of three views: time, memory, AP
    python benchmarks/training.py begin     a part model that begins with a published one: time, memory, AP
    python benchmarks/training.py ffld2     a part model on 240 pictures of persons, beside a quoted figure
    python benchmarks/training.py table     codes a cell and codewords: AP, size, time (hours on photographs)

Each saves benchmarks/results/training-<what>.json and .md (or what --out says) as soon as a row is done, and
leaves out rows that are there already: an interrupted run goes on where it was. To measure anew, delete the
files. Every detector is trained in a process of its own, whose memory is watched; see `children.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # our neighbours, and visionkl from this clone

import children  # noqa: E402
import numpy as np  # noqa: E402
import peers  # noqa: E402
from pictures import real_data  # noqa: E402
from tables import (  # noqa: E402
    cores_in_use,
    cores_used_by_others,
    duration,
    machine_facts,
    machine_sentence,
    table_line,
)
from training_data import (  # noqa: E402
    YEAR,
    as_it_is,
    for_dlib,
    showing,
    with_longest_side,
    write_dlib_list,
    write_voc,
)

from visionkl.backend.threads import usable_cores  # noqa: E402
from visionkl.core.errors import VisionklError  # noqa: E402
from visionkl.core.files import atomic_write  # noqa: E402
from visionkl.core.types import Detections  # noqa: E402
from visionkl.datasets.base import check_classes  # noqa: E402
from visionkl.datasets.sample import make_sample_set  # noqa: E402
from visionkl.datasets.voc import VOC  # noqa: E402
from visionkl.detection.settings import TrainingSettings  # noqa: E402
from visionkl.evaluation.voc import evaluate_detections  # noqa: E402

#: One component without parts, which is what dlib trains, and the overlap of our recipe for rigid detectors.
RIGID = {"n_components": 1, "n_parts": 0, "min_overlap": 0.6}
#: The recipe itself.
RIGID_VIEWS = {**RIGID, "n_components": 3}
#: dlib's default C, and a higher one: neither suits all data.
DLIB_COSTS = (5, 100)
#: dlib's score down to which its detections are scored: the whole curve.
DLIB_THRESHOLD = -1.5

#: The part model that FFLD2 was timed with, and what was measured.
PART_MODEL = {"n_components": 1, "n_parts": 8}
N_PERSONS, LONGEST_SIDE = 240, 480
QUOTED = {
    "program": "FFLD2 (quoted)",
    "seconds": 197.0,
    "peak_memory": 1.2e9,
    "note": "measured once on two threads of an x86-64 machine, on other 240 pictures; not part of this run",
}
WANTED = {"program": "wanted", "seconds": 120.0, "peak_memory": 0.6e9, "note": "at most"}

#: Codes a cell and codewords of part models that begin with another one.
CODINGS_BEGUN = [(2, 256), (1, 256)]
#: Codes a cell and codewords; 0 for plain cells, which take longest. Two bytes a code come last.
CODINGS = [(4, 256), (0, 0), (2, 256), (1, 256), (4, 512), (2, 512), (1, 512)]
#: Plain cells are given this much memory: in what codes need, a few thousand hard negatives would fit.
MEMORY_FOR_PLAIN_CELLS = 20 << 30

Columns = dict[str, Callable[[dict[str, Any]], str]]


@dataclass(frozen=True)
class Task:
    """A row to be measured: its name in the file, what it says besides the figures, and how to get them."""

    name: str
    facts: dict[str, Any]
    measure: Callable[[], dict[str, Any]]


# -- one detector, trained and applied -----------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """A data set in VOC's layout."""

    root: Path
    year: str | None
    train: str
    test: str | None
    label: str

    def split(self, name: str) -> VOC:
        """Open a split."""
        return VOC(self.root, year=self.year, split=name)


def train_ours(
    data: Data, settings: dict[str, Any], max_memory: int | None = None, start: Path | None = None
) -> dict[str, Any]:
    """Train and apply our detector in a process of its own."""
    request = {
        "root": str(data.root),
        "year": data.year,
        "train": data.train,
        "test": data.test,
        "label": data.label,
        "settings": settings,
        "max_memory": max_memory,
        "start": str(start) if start else None,
        "threads": usable_cores(),
    }
    return _figures([sys.executable, str(HERE / "training_worker.py")], request, data)


def train_dlib(data: Data, cost: float) -> dict[str, Any]:
    """Train and apply dlib's detector in a process of its own."""
    if not peers.PYTHON.is_file():
        raise RuntimeError(peers.NOT_INSTALLED)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.xml"
        write_dlib_list(path, data.split(data.train), data.label)
        request = {
            "list": str(path),
            "cost": cost,
            "threads": usable_cores(),
            "threshold": DLIB_THRESHOLD,
            "pictures": {example.id: str(example.path) for example in data.split(data.test or "")},
        }
        return _figures([str(peers.PYTHON), str(HERE / "peer_trainer.py")], request, data)


def _figures(command: list[str], request: dict[str, Any], data: Data) -> dict[str, Any]:
    """Run a trainer; what it found is scored here, for all trainers alike."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        phases = children.watch(command, {**request, "found": str(path)})
        figures = dict(phases["training"])
        if data.test is not None:
            figures["seconds_a_picture"] = phases["detection"]["seconds_a_picture"]
            found = json.loads(path.read_text(encoding="utf-8"))
            figures |= _average_precisions(found, data.split(data.test), data.label)
    return figures


def _average_precisions(found: dict[str, list[list[float]]], test: VOC, label: str) -> dict[str, Any]:
    detections = {}
    for image_id, rows in found.items():
        table = np.array(rows, dtype=np.float64).reshape(-1, 5)
        detections[image_id] = Detections(table[:, :4], table[:, 4], label)
    result = evaluate_detections(detections, test, [label])
    return {
        "n_detections": result.by_class[label].n_detections,
        "ap_07": result.with_metric("07").mean_ap,
        "ap_10": result.with_metric("10").mean_ap,
    }


# -- what is measured ----------------------------------------------------------------------------------------


def dlib_tasks(folder: Path) -> Iterator[Task]:
    """Train rigid detectors on the sample set's diggers and, where they are found, on raccoons."""
    sets = {"sample set": (make_sample_set(folder / "sample"), "test", "digger")}
    if real_data() is not None:
        sets["raccoon"] = (real_data() / "raccoon", "val", "raccoon")
    for name, (root, test, label) in sets.items():
        original = Data(root, YEAR, "train", test, label)
        data = Data(folder / name, YEAR, "train", test, label)
        write_voc(data.root, "train", for_dlib(original.split("train"), label))
        write_voc(data.root, test, map(as_it_is, original.split(test)))
        facts = {"data": name, **_census(data)}
        yield Task(
            f"{name}, visionkl",
            {**facts, "program": "visionkl, rigid"},
            lambda data=data: train_ours(data, RIGID),
        )
        for cost in DLIB_COSTS:
            yield Task(
                f"{name}, dlib, C = {cost}",
                {**facts, "program": f"dlib, C = {cost}"},
                lambda data=data, cost=cost: train_dlib(data, cost),
            )


def _census(data: Data) -> dict[str, int]:
    objects = [example.annotation.of(data.label) for example in data.split(data.train)]
    n_ignored = sum(int(some.difficult.sum()) for some in objects)
    return {
        "n_pictures": len(objects),
        "n_objects": sum(map(len, objects)) - n_ignored,
        "n_ignored": n_ignored,
    }


def ffld2_tasks(folder: Path) -> Iterator[Task]:
    """Train a part model of persons, or of the sample set's robots where there are no photographs."""
    if real_data() is not None:
        original = Data(real_data() / "voc2012_subset" / "VOCdevkit", "2012", "train", None, "person")
        chosen = showing(original.split("train"), "person", N_PERSONS)
    else:
        original = Data(make_sample_set(folder / "sample", n_train=N_PERSONS), YEAR, "train", None, "robot")
        chosen = list(original.split("train"))
    data = Data(folder / "resized", YEAR, "train", None, original.label)
    write_voc(data.root, "train", map(with_longest_side(LONGEST_SIDE), chosen))
    facts = {"program": "visionkl", **_census(data)}
    facts["note"] = f"{original.label}, {facts['n_objects']} objects in {facts['n_pictures']} pictures"
    yield Task(f"visionkl, {data.label}", facts, lambda: train_ours(data, PART_MODEL))


def rigid_tasks(data: Data) -> Iterator[Task]:
    """Train a detector of a category without parts, on the usual codes."""
    usual = TrainingSettings()
    yield _table_task(data, usual.n_blocks, usual.n_codewords, RIGID_VIEWS)


def begin_tasks(data: Data, start: Path) -> Iterator[Task]:
    """Train the detector of a category, beginning with a model."""
    for n_blocks, n_codewords in CODINGS_BEGUN:
        yield _table_task(data, n_blocks, n_codewords, {}, start)


def table_tasks(data: Data) -> Iterator[Task]:
    """Train the detector of a category with all kinds of codes, and without."""
    for n_blocks, n_codewords in CODINGS:
        yield _table_task(data, n_blocks, n_codewords, {})


def _table_task(
    data: Data, n_blocks: int, n_codewords: int, more: dict[str, Any], start: Path | None = None
) -> Task:
    where = f"{data.split(data.train).name}, {data.label}"
    coding = {"n_blocks": n_blocks, "n_codewords": n_codewords} if n_blocks else {"n_blocks": 0}
    bytes_a_cell = n_blocks * (1 if n_codewords <= 256 else 2) if n_blocks else 32 * 4
    title = f"M = {n_blocks}, D = {n_codewords}" if n_blocks else "dense"
    return Task(
        f"{where}, {title}",
        {"data": where, "coding": title, "bytes_a_cell": bytes_a_cell},
        lambda: train_ours(data, {**coding, **more}, None if n_blocks else MEMORY_FOR_PLAIN_CELLS, start),
    )


# -- the results file ----------------------------------------------------------------------------------------


class Results:
    """Rows in a JSON file, with a Markdown table beside it; both are written after each row."""

    def __init__(self, path: Path, title: str, columns: Columns, more: list[dict[str, Any]]) -> None:
        self.path = path.with_suffix(".json")
        self.title, self.columns, self.more = title, columns, more
        self.report: dict[str, Any] = {"format": 1, "title": title, "machine": machine_facts(), "rows": []}
        if self.path.is_file():
            self.report = json.loads(self.path.read_text(encoding="utf-8"))

    def __contains__(self, name: str) -> bool:
        return any(row["name"] == name for row in self.report["rows"])

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row."""
        self.report["rows"].append(row)
        with atomic_write(self.path) as file:
            json.dump(self.report, file, indent=1)
            file.write("\n")
        with atomic_write(self.path.with_suffix(".md")) as file:
            file.write(self.markdown())

    def markdown(self) -> str:
        """Write the rows as a table."""
        rows = self.report["rows"]
        busy = max((row.get("cores_used_by_others") or 0.0 for row in rows), default=0.0)
        lines = [self.title, "", machine_sentence(self.report["machine"]), ""]
        if busy >= 0.1:
            lines += [
                f"Other programs kept up to {busy:.1f} cores busy meanwhile: times are upper bounds.",
                "",
            ]
        lines += [table_line(self.columns), "|---" * len(self.columns) + "|"]
        for row in [*rows, *self.more]:
            ours = next((o for o in rows if o.get("data") == row.get("data") and "visionkl" in o["name"]), {})
            lines.append(table_line(show({**row, "ours": ours}) for show in self.columns.values()))
        return "\n".join(lines) + "\n"


def _text(key: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: str(row.get(key, ""))


def _seconds(key: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: duration(row[key]) if key in row else ""


def _memory(key: str) -> Callable[[dict[str, Any]], str]:
    def text(row: dict[str, Any]) -> str:
        size = row.get(key)
        if not size:
            return "not known"
        return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"

    return text


def _ap(key: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: f"{100 * row[key]:.1f}" if key in row else ""


def _ratio(row: dict[str, Any]) -> str:
    return f"{row['ours']['seconds'] / row['seconds']:.2f}" if row["ours"] else ""


DLIB_COLUMNS: Columns = {
    "data": _text("data"),
    "pictures": _text("n_pictures"),
    "objects (ignored)": lambda row: f"{row['n_objects']} ({row['n_ignored']})",
    "program": _text("program"),
    "training": _seconds("seconds"),
    "computing": _seconds("cpu_seconds"),
    "ours ÷ this": _ratio,
    "peak memory": _memory("peak_memory"),
    "AP 07": _ap("ap_07"),
    "AP 10": _ap("ap_10"),
    "detection, a picture": _seconds("seconds_a_picture"),
}
FFLD2_COLUMNS: Columns = {
    "program": _text("program"),
    "training": _seconds("seconds"),
    "computing": _seconds("cpu_seconds"),
    "ours ÷ this": _ratio,
    "peak memory": _memory("peak_memory"),
    "remark": _text("note"),
}
TABLE_COLUMNS: Columns = {
    "data": _text("data"),
    "coding": _text("coding"),
    "bytes a cell": _text("bytes_a_cell"),
    "AP 07": _ap("ap_07"),
    "AP 10": _ap("ap_10"),
    "hard negatives": _memory("cache_bytes"),
    "training": _seconds("seconds"),
    "computing": _seconds("cpu_seconds"),
    "peak memory": _memory("peak_memory"),
    "detection, a picture": _seconds("seconds_a_picture"),
}


# -- the command ---------------------------------------------------------------------------------------------

_OF_A_CATEGORY = ("rigid", "begin", "table")


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    chosen = _parsed(arguments)
    try:
        return _run(chosen)
    except VisionklError as error:
        print(error, file=sys.stderr)
        return 2


def _run(chosen: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        more: list[dict[str, Any]] = []
        if chosen.what == "dlib":
            tasks, columns = dlib_tasks(folder), DLIB_COLUMNS
            title = "Rigid detectors: visionkl and dlib, trained on the same boxes."
        elif chosen.what == "ffld2":
            tasks, columns, more = ffld2_tasks(folder), FFLD2_COLUMNS, [WANTED, QUOTED]
            title = f"A part model of 1 mirrored component and 8 parts; longest side {LONGEST_SIDE} pixels."
        else:
            data = _table_data(chosen, folder)
            if chosen.what == "rigid":
                tasks, about = rigid_tasks(data), "A rigid detector of three views"
            elif chosen.what == "begin":
                tasks, about = begin_tasks(data, chosen.start), f"A part model begun with {chosen.start.name}"
            else:
                tasks, about = table_tasks(data), "Codes a cell (M) and codewords (D)"
            columns, title = TABLE_COLUMNS, f"{about}: {data.label}, {data.train} → {data.test}."
        name = f"training-{chosen.what}" + (f"-{data.label}" if chosen.what in _OF_A_CATEGORY else "")
        path = chosen.out or HERE / "results" / f"{name}.json"
        results = Results(path, title, columns, more)
        failed = _measure_all(tasks, results)
    print(results.markdown(), end="")
    return 1 if failed else 0


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    commands = parser.add_subparsers(dest="what", required=True)
    for what, about in (
        ("dlib", "our rigid detector against dlib's"),
        ("rigid", "a rigid detector of three views"),
        ("begin", "a part model that begins with another one"),
        ("ffld2", "a part model on 240 pictures"),
        ("table", "codes a cell and codewords"),
    ):
        command = commands.add_parser(what, help=about)
        command.add_argument("--out", type=Path, help="save FILE.json, and FILE.md beside it")
        if what in _OF_A_CATEGORY:
            command.add_argument("--data", type=Path, help="VOC devkit (VOC2012's subset, or the sample set)")
            command.add_argument("--category", help="class to train (bicycle; digger of the sample set)")
            command.add_argument("--train", default="train", help="split to train on (%(default)s)")
            command.add_argument("--test", default="val", help="split to score on (%(default)s)")
        if what == "begin":
            command.add_argument("--start", type=Path, required=True, help="model to begin with")
    chosen = parser.parse_args(arguments)
    if chosen.out and not chosen.out.resolve().parent.is_dir():
        parser.error(f"{chosen.out}: its folder does not exist")
    if chosen.what in _OF_A_CATEGORY and chosen.data and not chosen.category:
        parser.error("--data needs a --category, too")
    return chosen


def _table_data(chosen: argparse.Namespace, folder: Path) -> Data:
    root, category = chosen.data, chosen.category
    if root is None and real_data() is not None:
        root, category = real_data() / "voc2012_subset" / "VOCdevkit", category or "bicycle"
    elif root is None:
        root, category = make_sample_set(folder / "sample"), category or "digger"
    data = Data(root, None, chosen.train, chosen.test, category)
    check_classes(str(root), [category], data.split(chosen.train).classes)
    return data


def _measure_all(tasks: Iterator[Task], results: Results) -> bool:
    """Measure what is not there yet; a row that fails is told, and the others go on."""
    failed = False
    for task in tasks:
        if task.name in results:
            print(f"{task.name}: is there already", file=sys.stderr)
            continue
        print(f"{task.name} ...", file=sys.stderr, flush=True)
        before = cores_in_use()
        try:
            figures = task.measure()
        except (RuntimeError, VisionklError) as reason:
            print(f"{task.name} was not measured: {reason}", file=sys.stderr)
            failed = True
            continue
        busy = cores_used_by_others(before, cores_in_use())
        results.add({"name": task.name, **task.facts, **figures, "cores_used_by_others": busy})
    return failed


if __name__ == "__main__":
    sys.exit(main())
