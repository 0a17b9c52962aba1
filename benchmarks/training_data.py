"""Data for the training benchmarks, written to a folder in VOC's layout, so that all programs read one thing.

What dlib can learn
-------------------
dlib's detector slides one window over the picture, of about 80 × 80 pixels in the mean aspect ratio of the
training boxes, and refuses to be trained with a box that no window overlaps by a half. Where a box is small,
it enlarges all pictures first, twice the size and four times the work. `learnable` foresees that: it keeps
the boxes that a window of the mean aspect ratio, in the same place and as large as it likes but not smaller
than 80 × 80 pixels, overlaps by at least 0.65, which leaves room for the steps in which dlib moves and scales
its window. The others are marked difficult, for dlib (which ignores them) as for us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import numpy.typing as npt
from PIL import Image

from visionkl.core.boxes import to_voc
from visionkl.core.types import Annotation
from visionkl.datasets.base import Dataset, Example

#: Area of dlib's window in pixels.
WINDOW_AREA = 6400
#: How much of a box the best window must overlap.
LEAST_OVERLAP = 0.65

YEAR = "2007"
Labelled = tuple[str, npt.NDArray[np.uint8], Annotation]


def write_voc(folder: Path, split: str, examples: Iterable[Labelled]) -> None:
    """Write pictures (JPEG) with their objects as a split of a devkit; other splits there stay."""
    root = folder / f"VOC{YEAR}"
    for part in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / part).mkdir(parents=True, exist_ok=True)
    ids = []
    for image_id, picture, objects in examples:
        Image.fromarray(picture).save(root / "JPEGImages" / f"{image_id}.jpg", quality=95)
        height, width = picture.shape[:2]
        lines = ["<annotation>", f"<size><width>{width}</width><height>{height}</height></size>"]
        for label, corners, difficult in zip(
            objects.labels, to_voc(objects.boxes), objects.difficult, strict=True
        ):
            names = ("xmin", "ymin", "xmax", "ymax")
            box = "".join(f"<{n}>{v:.3f}</{n}>" for n, v in zip(names, corners, strict=True))
            flag = f"<difficult>{int(difficult)}</difficult>"
            lines.append(f"<object><name>{escape(label)}</name>{flag}<bndbox>{box}</bndbox></object>")
        text = "\n".join([*lines, "</annotation>", ""])
        (root / "Annotations" / f"{image_id}.xml").write_text(text, encoding="utf-8")
        ids.append(image_id)
    (root / "ImageSets/Main" / f"{split}.txt").write_text("\n".join([*ids, ""]), encoding="utf-8")


def as_it_is(example: Example) -> Labelled:
    """Take an example unchanged."""
    return example.id, example.image(), example.annotation


def with_longest_side(length: int) -> Callable[[Example], Labelled]:
    """Take examples with their pictures resized."""

    def resized(example: Example) -> Labelled:
        picture = Image.fromarray(example.image())
        factor = length / max(picture.size)
        size = tuple(max(1, round(side * factor)) for side in picture.size)
        objects = example.annotation
        scaled = objects.boxes * np.tile(np.divide(size, picture.size), 2)
        return example.id, np.asarray(picture.resize(size)), replace(objects, boxes=scaled)

    return resized


def showing(dataset: Dataset, label: str, n: int) -> list[Example]:
    """Choose the first `n` pictures in which there is an object of a class that is not difficult."""
    shown = [example for example in dataset if not example.annotation.of(label).difficult.all()]
    return shown[:n]


def learnable(boxes: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Which of the training boxes `(n, 4)` dlib can learn from, see above.

    Examples
    --------
    Of these, the third is too small and the last too wide:

    >>> learnable([[0, 0, 100, 100], [0, 0, 300, 250], [0, 0, 40, 40], [0, 0, 500, 100]]).tolist()
    [True, True, False, False]
    """
    corners = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    width, height = (corners[:, 2:] - corners[:, :2]).T
    scales = 2.0 ** np.arange(0, 8, 0.05)[:, None]

    def fits(ratio: float) -> npt.NDArray[np.bool_]:
        window_width = scales * np.sqrt(WINDOW_AREA * ratio)
        window_height = scales * np.sqrt(WINDOW_AREA / ratio)
        shared = np.minimum(width, window_width) * np.minimum(height, window_height)
        overlaps = shared / (width * height + window_width * window_height - shared)
        return overlaps.max(axis=0) >= LEAST_OVERLAP

    # The median shape tells the odd ones; then the mean of those that remain, for dlib sees no others.
    kept = fits(float(np.median(width / height))) if len(corners) else np.zeros(0, dtype=bool)
    while kept.any():
        still = kept & fits(width[kept].mean() / height[kept].mean())
        if still.sum() == kept.sum():
            break
        kept = still
    return kept


def for_dlib(dataset: Dataset, label: str) -> list[Labelled]:
    """Take all examples, with the boxes of the class that dlib cannot learn from marked difficult."""
    examples = [as_it_is(example) for example in dataset]
    mine = [
        np.array([name == label for name in objects.labels], dtype=bool) & ~objects.difficult
        for _, _, objects in examples
    ]
    kept = learnable(
        np.concatenate([objects.boxes[rows] for (_, _, objects), rows in zip(examples, mine, strict=True)])
    )
    marked = []
    for (image_id, picture, objects), rows in zip(examples, mine, strict=True):
        difficult = objects.difficult.copy()
        difficult[rows] = ~kept[: rows.sum()]
        kept = kept[rows.sum() :]
        marked.append((image_id, picture, replace(objects, difficult=difficult)))
    return marked


def write_dlib_list(path: Path, dataset: Dataset, label: str) -> None:
    """Write dlib's XML list of a data set's pictures and the boxes of a class; it ignores difficult ones."""
    lines = ["<?xml version='1.0' encoding='UTF-8'?>", "<dataset>", "<images>"]
    for example in dataset:
        lines.append(f"<image file={quoteattr(str(example.path))}>")
        objects = example.annotation.of(label)
        for box, difficult in zip(np.rint(objects.boxes).astype(int), objects.difficult, strict=True):
            x1, y1, x2, y2 = box.tolist()
            ignore = " ignore='1'" if difficult else ""
            lines.append(f"<box top='{y1}' left='{x1}' width='{x2 - x1}' height='{y2 - y1}'{ignore}/>")
        lines.append("</image>")
    path.write_text("\n".join([*lines, "</images>", "</dataset>", ""]), encoding="utf-8")
