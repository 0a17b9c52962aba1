"""Figure–ground segments of VOC pictures: how well the best of a pool overlap the objects; `bench segments`.

The first part of the segment experiments of *Learning random kernel approximations*, which classify the
segments of a pool of about a hundred a picture: the pool itself. Segments are proposed on pictures that
nothing was learned from, and compared with the masks of their objects, void pixels left out:

- *best overlap*: intersection over union of each object with the segment of the pool that fits it best,
  averaged over objects, each counting the same, whatever its size;
- *covering*: the same weighted by the objects' areas, as segmentations are often scored;
- *found*: the share of objects that some segment overlaps by more than one half.

The second part classifies the segments: masks become channels of features, and channels are combined by
learned kernels. It takes up `Proposals`, which this part makes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visionkl.core.errors import UsageError
from visionkl.run.console import Console, run_command

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from visionkl.datasets.base import Example
    from visionkl.datasets.voc import VOC, ObjectMasks
    from visionkl.features.segments import Segments
    from visionkl.run.experiments.findings import Findings, Table

#: What the table quotes: constrained parametric min-cuts as published, on VOC's validation pictures.
PUBLISHED = "0.75 to 0.80"
_SIZES = (10, 25, 50, 100, 150)
# Objects below this share of their picture are small.
_SMALL = 0.01
_QUICK_PICTURES = 4


@dataclass(frozen=True)
class SegmentsOptions:
    """Measure how well segments overlap the objects of VOC pictures, and how long they take.

    Parameters
    ----------
    data : Path, optional
        The VOCdevkit folder, or the folder above it, with masks; by default voc2012_subset in the folder that
        VISIONKL_TEST_DATA names.
    year : str, optional
        Which VOC<year> folder, if there are several.
    split : str
        The list of ImageSets/Segmentation to measure on.
    n_segments : int
        Segments a picture.
    n_pictures : int, optional
        Only so many pictures, spread evenly over the split; all by default.
    drawings : int
        Draw the best segments of so many objects.
    out : Path
        Folder for the page.
    quick : bool
        A few pictures only, to see that it works.
    """

    data: Path | None = None
    year: str | None = None
    split: str = "val"
    n_segments: int = 150
    n_pictures: int | None = None
    drawings: int = 12
    out: Path = Path("runs/bench-segments")
    quick: bool = False


@dataclass(frozen=True, eq=False)
class Proposals:
    """A picture, the segments proposed of it, and the objects that are there."""

    example: Example
    segments: Segments
    objects: ObjectMasks
    overlaps: npt.NDArray[np.float64]  # (segments, objects)
    seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment and return its exit code."""
    return run_command(SegmentsOptions, segments, argv, name="bench segments")


def segments(options: SegmentsOptions, console: Console) -> dict[str, Any]:
    """Propose segments, compare them with objects, and write the page."""
    from visionkl.core.validation import check_number
    from visionkl.datasets.voc import VOC
    from visionkl.run.experiments.findings import Findings

    check_number("bench segments", "n_segments", options.n_segments, low=1, integer=True)
    if options.n_pictures is not None:
        check_number("bench segments", "n_pictures", options.n_pictures, low=1, integer=True)
    dataset = VOC(_data(options), options.year, options.split, image_set="Segmentation")
    proposals = _propose(dataset, options, console)
    findings = Findings(
        "Figure–ground segments",
        f"Up to {options.n_segments} segments of each of {len(proposals)} of {len(dataset)} pictures of "
        f"{dataset.name}, from "
        "constrained parametric min-cuts on superpixels. The ranking was learned from other pictures.",
    )
    _measure_pool(findings, proposals, options)
    folder = findings.save(options.out)
    console.result("\n".join(table.markdown() for table in findings.tables))
    console.result(f"page: {folder / 'results.md'}")
    return findings.document() | {"folder": str(folder)}


def _data(options: SegmentsOptions) -> Path:
    if options.data is not None:
        return options.data
    from visionkl.run.experiments.findings import named_folder

    folder = named_folder(None)
    if folder is None:
        raise UsageError("bench segments: --data is needed: a VOCdevkit folder with segmentation masks.")
    return folder / "voc2012_subset"


def _propose(dataset: VOC, options: SegmentsOptions, console: Console) -> list[Proposals]:
    """Propose segments picture by picture; all cores work on one, so that the time is that of one picture."""
    import numpy as np

    from visionkl.datasets.voc import read_object_masks
    from visionkl.features.segments import FigureGround

    proposer = FigureGround(options.n_segments, n_jobs=console.jobs)
    with console.compiling():
        proposer.transform([np.zeros((60, 80, 3), np.uint8)])
    n_pictures = _QUICK_PICTURES if options.quick else options.n_pictures or len(dataset)
    places = np.unique(np.linspace(0, len(dataset) - 1, min(n_pictures, len(dataset))).astype(int))
    examples = [dataset[int(place)] for place in places]
    proposals = []
    for example in console.track(examples, "pictures"):
        objects = read_object_masks(example, dataset.classes)
        image = example.image()
        started = time.perf_counter()
        (found,) = proposer.transform([image])
        seconds = time.perf_counter() - started
        overlaps = found.overlaps(objects.masks, objects.void)
        proposals.append(Proposals(example, found, objects, overlaps, seconds))
    if not any(len(made.objects) for made in proposals):
        raise UsageError(f"bench segments: {dataset.name} has no objects in its masks; give another split.")
    return proposals


# -- the first part: the pool --------------------------------------------------------------------------------


def _measure_pool(findings: Findings, proposals: list[Proposals], options: SegmentsOptions) -> None:
    from visionkl.report.curves import Curve, plot_curves

    sizes = [size for size in _SIZES if size <= options.n_segments] or [options.n_segments]
    scores = {size: _scores(proposals, size) for size in sizes}
    findings.tables.append(_pool_table(scores))
    findings.tables.append(_class_table(proposals, options.n_segments))
    findings.tables.append(_time_table(proposals))
    curves = [
        Curve(name, sizes, [scores[size][name] for size in sizes])
        for name in ("best overlap", "best overlap, small left out", "covering", "found")
    ]
    plot = plot_curves(curves, x_label="segments a picture", y_label="overlap, or share of objects")
    findings.add_plot("pool", "The best of a pool against its size", plot)
    if options.drawings:
        _draw_best(findings, proposals, options.drawings)


def _objects(proposals: list[Proposals], size: int) -> tuple[Any, Any, Any]:
    """Return best overlap, area and share of the picture of all objects."""
    import numpy as np

    with_objects = [made for made in proposals if len(made.objects)]
    best = [made.overlaps[:size].max(axis=0, initial=0) for made in with_objects]
    areas = [made.objects.masks.sum(axis=(1, 2)) for made in with_objects]
    shares = [area / made.objects.void.size for area, made in zip(areas, with_objects, strict=True)]
    return np.concatenate(best), np.concatenate(areas), np.concatenate(shares)


def _scores(proposals: list[Proposals], size: int) -> dict[str, float]:
    import numpy as np

    best, areas, shares = _objects(proposals, size)
    large = shares >= _SMALL
    return {
        "best overlap": float(best.mean()),
        "best overlap, small left out": float(best[large].mean()) if large.any() else float("nan"),
        "covering": float(np.average(best, weights=areas)),
        "found": float((best > 0.5).mean()),
    }


def _pool_table(scores: dict[int, dict[str, float]]) -> Table:
    from visionkl.run.experiments.findings import Table

    names = list(next(iter(scores.values())))
    rows: list[list[Any]] = [[size, *(row[name] for name in names)] for size, row in scores.items()]
    return Table(
        "Best overlap in a pool",
        ["segments a picture", *names],
        [*rows, ["published, CPMC", None, None, PUBLISHED, None]],
        f"Small objects are those below {_SMALL:.0%} of their picture. The published figure is a covering, "
        "of larger pools and of other pictures of VOC.",
    )


def _class_table(proposals: list[Proposals], size: int) -> Table:
    import numpy as np

    from visionkl.run.experiments.findings import Table

    best, _, shares = _objects(proposals, size)
    labels = np.array([label for made in proposals for label in made.objects.labels])
    rows: list[list[Any]] = [
        [
            name,
            int((labels == name).sum()),
            float(best[labels == name].mean()),
            float(np.median(shares[labels == name])),
        ]
        for name in np.unique(labels).tolist()
    ]
    return Table(
        f"Classes, {size} segments a picture", ["class", "objects", "best overlap", "middle share"], rows
    )


def _time_table(proposals: list[Proposals]) -> Table:
    import numpy as np

    from visionkl.run.experiments.findings import Table

    seconds = np.array([made.seconds for made in proposals])
    counts = np.array([len(made.segments) for made in proposals])
    row = [float(np.median(seconds)), float(seconds.max()), float(counts.mean())]
    return Table("Time a picture", ["median, s", "longest, s", "segments"], [row], "One picture at a time.")


def _draw_best(findings: Findings, proposals: list[Proposals], n: int) -> None:
    """Draw the best segments of objects, evenly from the best overlap to the worst."""
    import numpy as np

    from visionkl.report.segments import plot_segments

    objects = [
        (made, number) for made in proposals for number in range(len(made.objects)) if len(made.segments)
    ]
    objects.sort(key=lambda pair: -float(pair[0].overlaps[:, pair[1]].max()))
    panels = []
    for place in np.unique(np.linspace(0, len(objects) - 1, n).astype(int)):
        made, number = objects[place]
        best = int(made.overlaps[:, number].argmax())
        title = f"{made.objects.labels[number]} {made.overlaps[best, number]:.2f}"
        panels.append((made.example.image(), made.segments[[best]].masks[0], title))
    findings.add_plot("best", "The best segments of some objects", plot_segments(panels))


# -- the second part: channels of the segments, classified by learned kernels, goes here ---------------------
