"""Figure–ground segments of VOC pictures: how well they fit objects, and their classes; `bench segments`.

The segment experiments of *Learning random kernel approximations*, which classify the segments of a pool of
about a hundred a picture. The first part, `--part pool`, is the pool itself. Segments are proposed on
pictures that nothing was learned from, and compared with the masks of their objects, void pixels left out:

- *best overlap*: intersection over union of each object with the segment of the pool that fits it best,
  averaged over objects, each counting the same, whatever its size;
- *covering*: the same weighted by the objects' areas, as segmentations are often scored;
- *found*: the share of objects that some segment overlaps by more than one half.

The second part, `--part classes`, classifies segments: masks become channels of features, and channels are
combined by learned kernels. See `visionkl.run.experiments.segment_classes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from visionkl.core.errors import UsageError
from visionkl.run.console import Console, run_command

if TYPE_CHECKING:
    from visionkl.run.experiments.findings import Findings, Table
    from visionkl.run.experiments.segment_proposals import Proposals

#: What the table quotes: Carreira and Sminchisescu, *Constrained parametric min-cuts* (2010), on VOC2009.
PUBLISHED_COVERING, PUBLISHED_SEGMENTS = 0.78, 154
_SIZES = (10, 25, 50, 100, 150)
# Objects below this share of their picture are small.
_SMALL = 0.01
_QUICK_PICTURES = 4


@dataclass(frozen=True)
class SegmentsOptions:
    """Measure how well segments fit the objects of VOC pictures, and classify them by learned kernels.

    Parameters
    ----------
    data : Path, optional
        The VOCdevkit folder, or the folder above it, with masks; by default voc2012_subset in the folder that
        VISIONKL_TEST_DATA names.
    year : str, optional
        Which VOC<year> folder, if there are several.
    part : {"all", "pool", "classes"}
        Measure the pool of segments, or learn classes, or both.
    split : str
        The list of ImageSets/Segmentation to measure and to test on.
    train_split : str
        The list to learn classes from.
    n_segments : int
        Segments a picture.
    n_pictures : int, optional
        Only so many pictures, spread evenly over each split; all by default.
    drawings : int
        Draw the best segments of so many objects.
    min_overlap : float
        Least overlap with an object of a segment to learn its class from.
    max_proposals : int
        Proposed segments a picture to learn from, or to test on, beside the masks of its objects.
    words : int
        Words of each vocabulary.
    components : int
        Fourier features of each channel.
    sizes : list of int
        Numbers of segments to learn from; all that there are come last.
    exact_minutes : float
        Exact methods are not run where they would take longer than this.
    seed : int
        Of the order of segments, held-out pictures and frequencies.
    out : Path
        Folder for the page.
    cache : Path
        Folder that keeps segments and what was computed of them, so that an interrupted run goes on.
    quick : bool
        A few pictures, words and Fourier features only, to see that it works.
    """

    data: Path | None = None
    year: str | None = None
    part: Literal["all", "pool", "classes"] = "all"
    split: str = "val"
    train_split: str = "train"
    n_segments: int = 150
    n_pictures: int | None = None
    drawings: int = 12
    min_overlap: float = 0.2
    max_proposals: int = 60
    words: int = 500
    components: int = 500
    sizes: list[int] = field(default_factory=lambda: [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000])
    exact_minutes: float = 2.0
    seed: int = 0
    out: Path = Path("runs/bench-segments")
    cache: Path = Path("runs/cache-segments")
    quick: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment and return its exit code."""
    return run_command(SegmentsOptions, segments, argv, name="bench segments")


def segments(options: SegmentsOptions, console: Console) -> dict[str, Any]:
    """Propose segments, compare them with objects, learn their classes, and write the page."""
    from visionkl.datasets.voc import VOC
    from visionkl.run.experiments.findings import Findings
    from visionkl.run.experiments.segment_proposals import propose

    _check(options)
    names = [options.split] if options.part == "pool" else [options.split, options.train_split]
    splits = [VOC(_data(options), options.year, name, image_set="Segmentation") for name in names]
    n_pictures = _QUICK_PICTURES if options.quick else options.n_pictures
    made = [propose(one, options.n_segments, n_pictures, options.cache, console) for one in splits]
    proposals, dataset = made[0], splits[0]
    findings = Findings(
        "Figure–ground segments",
        f"Up to {options.n_segments} segments of each of {len(proposals)} of {len(dataset)} pictures of "
        f"{dataset.name}, from constrained parametric min-cuts on superpixels. The ranking was learned from "
        "other pictures.",
    )
    if options.part != "classes":
        _measure_pool(findings, proposals, options)
    if options.part != "pool":
        findings.about += f" {_learn(findings, made[1], proposals, splits[1].name, options, console)}"
    return findings.publish(options.out, console)


def _check(options: SegmentsOptions) -> None:
    from visionkl.core.validation import check_number
    from visionkl.run.experiments.scaling import check_sizes

    for name in ("n_segments", "n_pictures", "max_proposals", "words", "components"):
        value = getattr(options, name)
        if value is not None:
            check_number("bench segments", name, value, low=1, integer=True)
    check_number("bench segments", "min_overlap", options.min_overlap, low=0, high=1)
    check_number("bench segments", "exact_minutes", options.exact_minutes, low=0)
    check_sizes(options.sizes)
    if options.part != "pool" and options.split == options.train_split:
        raise UsageError(
            f"bench segments: classes are learned from {options.train_split!r}, so they cannot be tested on "
            "it; give another --split or --train-split, or --part pool."
        )


def _data(options: SegmentsOptions) -> Path:
    if options.data is not None:
        return options.data
    from visionkl.run.experiments.findings import named_folder

    folder = named_folder(None)
    if folder is None:
        raise UsageError("bench segments: --data is needed: a VOCdevkit folder with segmentation masks.")
    return folder / "voc2012_subset"


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
        [*rows, [f"{PUBLISHED_SEGMENTS}, published (CPMC)", None, None, PUBLISHED_COVERING, None]],
        f"Small objects are those below {_SMALL:.0%} of their picture. The published figure is of the "
        "pictures of VOC2009.",
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


# -- the second part: classes --------------------------------------------------------------------------------


def _learn(
    findings: Findings,
    train: list[Proposals],
    test: list[Proposals],
    trained_on: str,
    options: SegmentsOptions,
    console: Console,
) -> str:
    """Learn classes of segments, add tables and plots, and say what was learned from."""
    from visionkl.run.experiments.segment_classes import Settings, learn_classes
    from visionkl.run.experiments.segment_samples import make_samples

    samples = make_samples(
        train,
        test,
        min_overlap=options.min_overlap,
        max_proposals=options.max_proposals,
        n_words=20 if options.quick else options.words,
        cache=options.cache,
        seed=options.seed,
        console=console,
    )
    settings = Settings(
        sizes=[10] if options.quick else options.sizes,
        components=30 if options.quick else options.components,
        exact_minutes=options.exact_minutes,
        seed=options.seed,
    )
    learn_classes(findings, samples, settings, console)
    return (
        f"Classes are learned from {samples.n_train} segments of {len(train)} pictures of {trained_on}: the "
        f"masks of their objects, and of the proposals that overlap an object by {options.min_overlap:g} or "
        f"more the {options.max_proposals} best of each picture. Eight channels, {options.words} words, "
        f"{options.components} Fourier features a channel, exponential χ² kernels."
    )
