"""What travels between the layers: a picture's objects (`Annotation`) and what was found (`Detections`).

Both are immutable, check themselves when they are made, and hold one array per property with one row per
object. Boxes follow the convention of `visionkl.core.boxes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from visionkl.core import boxes as box_arithmetic
from visionkl.core.errors import DataError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    import matplotlib.axes
    import supervision

Rows = int | slice | npt.ArrayLike


@dataclass(frozen=True, eq=False)
class Annotation:
    """The labelled objects of one picture.

    Parameters
    ----------
    boxes : array_like of float, shape (n, 4)
        `x1, y1, x2, y2`, 0-based and half-open.
    labels : sequence of str, length n
        Class names.
    difficult, truncated, occluded : array_like of bool, shape (n,), optional
        VOC's flags; all false by default. Difficult objects are ignored by the average precision.
    poses : sequence of str, length n, optional
        VOC's pose ("Left", "Frontal", ...); "" where unknown.

    Examples
    --------
    >>> objects = Annotation([[10, 10, 60, 50], [0, 0, 8, 8]], ["car", "dog"], difficult=[False, True])
    >>> len(objects), objects.of("car").boxes.tolist()
    (2, [[10.0, 10.0, 60.0, 50.0]])
    """

    boxes: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 4), np.float32))
    labels: tuple[str, ...] = ()
    difficult: npt.NDArray[np.bool_] = None  # type: ignore[assignment]
    truncated: npt.NDArray[np.bool_] = None  # type: ignore[assignment]
    occluded: npt.NDArray[np.bool_] = None  # type: ignore[assignment]
    poses: tuple[str, ...] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        boxes = _checked_boxes("Annotation", self.boxes)
        n = len(boxes)
        _store(self, "boxes", boxes)
        _store(self, "labels", _checked_names("Annotation", "labels", self.labels, n))
        for name in ("difficult", "truncated", "occluded"):
            flags = getattr(self, name)
            flags = np.zeros(n, bool) if flags is None else np.asarray(flags, dtype=bool)
            _store(self, name, _checked_shape("Annotation", name, flags, (n,)))
        _store(
            self,
            "poses",
            ("",) * n if self.poses is None else _checked_names("Annotation", "poses", self.poses, n),
        )

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, rows: Rows) -> Annotation:
        chosen = _row_numbers(rows, len(self))
        return Annotation(
            self.boxes[chosen],
            tuple(self.labels[i] for i in chosen),
            self.difficult[chosen],
            self.truncated[chosen],
            self.occluded[chosen],
            tuple(self.poses[i] for i in chosen),
        )

    def of(self, label: str) -> Annotation:
        """Objects of one class."""
        return self[np.array([name == label for name in self.labels], dtype=bool)]


@dataclass(frozen=True, eq=False)
class Detections:
    """What detectors found in one picture.

    Parameters
    ----------
    boxes : array_like of float, shape (n, 4)
        `x1, y1, x2, y2`, 0-based and half-open.
    scores : array_like of float, shape (n,)
        Higher is more certain; scores of different classes need not be comparable.
    labels : str or sequence of str, length n
        Class names; a single name stands for all.
    components : array_like of int, shape (n,), optional
        Which component of a mixture fired; -1 where there is none.
    parts : array_like of float, shape (n, p, 4), optional
        Boxes of the parts, NaN where a component has fewer than `p`; `(n, 0, 4)` by default.

    Examples
    --------
    >>> found = Detections([[10, 10, 60, 50], [0, 0, 8, 8]], [-0.5, 1.5], "car")
    >>> found.sorted().filter(min_score=0).boxes.tolist()
    [[0.0, 0.0, 8.0, 8.0]]
    >>> print(found[0])
    1 detection: car -0.500 at 10.0 10.0 60.0 50.0
    """

    boxes: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 4), np.float32))
    scores: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    labels: tuple[str, ...] = ()
    components: npt.NDArray[np.int32] = None  # type: ignore[assignment]
    parts: npt.NDArray[np.float32] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        boxes = _checked_boxes("Detections", self.boxes)
        n = len(boxes)
        scores = _checked_shape("Detections", "scores", np.asarray(self.scores, dtype=np.float32), (n,))
        if np.isnan(scores).any():
            raise DataError(f"Detections: score number {int(np.isnan(scores).argmax())} is NaN.")
        labels = (self.labels,) * n if isinstance(self.labels, str) else self.labels
        components = (
            np.full(n, -1, np.int32)
            if self.components is None
            else np.asarray(self.components, dtype=np.int32)
        )
        parts = (
            np.zeros((n, 0, 4), np.float32)
            if self.parts is None
            else np.asarray(self.parts, dtype=np.float32)
        )
        if parts.ndim != 3 or parts.shape[0] != n or parts.shape[2] != 4:
            raise DataError(f"Detections: parts must have the shape ({n}, parts, 4), not {parts.shape}.")
        _store(self, "boxes", boxes)
        _store(self, "scores", scores)
        _store(self, "labels", _checked_names("Detections", "labels", labels, n))
        _store(self, "components", _checked_shape("Detections", "components", components, (n,)))
        _store(self, "parts", parts)

    # -- a sequence of detections

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, rows: Rows) -> Detections:
        chosen = _row_numbers(rows, len(self))
        return Detections(
            self.boxes[chosen],
            self.scores[chosen],
            tuple(self.labels[i] for i in chosen),
            self.components[chosen],
            self.parts[chosen],
        )

    def __iter__(self) -> Iterator[Detections]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Detections):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name), equal_nan=f.name == "parts")
            for f in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        lines = [
            f"{label} {score:.3f} at {' '.join(f'{v:.1f}' for v in box)}"
            for label, score, box in zip(self.labels, self.scores, self.boxes, strict=True)
        ]
        count = f"{len(self)} detection{'' if len(self) == 1 else 's'}"
        return count if not lines else f"{count}: " + "; ".join(lines)

    @classmethod
    def concatenate(cls, many: Iterable[Detections]) -> Detections:
        """Put the detections of several detectors in one picture together."""
        some = [detections for detections in many if len(detections)]
        if not some:
            return cls()
        n_parts = max(detections.parts.shape[1] for detections in some)
        widened = [
            np.pad(d.parts, [(0, 0), (0, n_parts - d.parts.shape[1]), (0, 0)], constant_values=np.nan)
            for d in some
        ]
        return cls(
            np.concatenate([d.boxes for d in some]),
            np.concatenate([d.scores for d in some]),
            tuple(label for d in some for label in d.labels),
            np.concatenate([d.components for d in some]),
            np.concatenate(widened),
        )

    # -- choosing and changing

    def filter(
        self, *, min_score: float | None = None, labels: str | Sequence[str] | None = None
    ) -> Detections:
        """Keep detections that score at least `min_score` and have one of the `labels`."""
        keep = np.ones(len(self), dtype=bool)
        if min_score is not None:
            keep &= self.scores >= min_score
        if labels is not None:
            wanted = {labels} if isinstance(labels, str) else set(labels)
            keep &= np.array([label in wanted for label in self.labels], dtype=bool)
        return self[keep]

    def sorted(self) -> Detections:
        """Best first; equal scores keep their order."""
        return self[np.argsort(-self.scores, kind="stable")]

    def clip(self, width: float, height: float) -> Detections:
        """Cut boxes off at the border of the picture and drop those that lie outside altogether."""
        clipped = replace(self, boxes=box_arithmetic.clip(self.boxes, width, height))
        return clipped[box_arithmetic.area(clipped.boxes) > 0]

    # -- pictures and other formats

    def plot(self, image: npt.ArrayLike | str | Path, **options: Any) -> matplotlib.axes.Axes:
        """Draw the boxes and parts over the picture.

        Options as in `visionkl.report.plots.draw_detections`.
        """
        from visionkl.report.plots import draw_detections

        return draw_detections(image, self, **options)

    def to_coco(self, image_id: int | str, category_ids: Mapping[str, int]) -> list[dict[str, Any]]:
        """COCO results: a list of `{image_id, category_id, bbox: [x, y, width, height], score}`."""
        unknown = sorted(set(self.labels) - set(category_ids))
        if unknown:
            raise UsageError(f"to_coco: there is no category id for {', '.join(map(repr, unknown))}.")
        return [
            {
                "image_id": image_id,
                "category_id": category_ids[label],
                "bbox": [float(x1), float(y1), float(x2 - x1), float(y2 - y1)],
                "score": float(score),
            }
            for label, score, (x1, y1, x2, y2) in zip(
                self.labels, self.scores, self.boxes.astype(np.float64), strict=True
            )
        ]

    @classmethod
    def from_coco(cls, records: Iterable[Mapping[str, Any]], category_names: Mapping[int, str]) -> Detections:
        """Read COCO results of one picture; the inverse of `to_coco`."""
        boxes, scores, labels = [], [], []
        for number, record in enumerate(records):
            try:
                x, y, width, height = (float(v) for v in record["bbox"])
                score, label = float(record["score"]), category_names[record["category_id"]]
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(
                    f"COCO result number {number} is not usable ({error!r}): {dict(record)!r}."
                ) from None
            boxes.append((x, y, x + width, y + height))
            scores.append(score)
            labels.append(label)
        return cls(
            np.reshape(np.array(boxes, np.float32), (-1, 4)), np.array(scores, np.float32), tuple(labels)
        )

    def to_voc_lines(self, image_id: str) -> list[str]:
        """VOC results lines `image_id score x1 y1 x2 y2`, in the devkit's 1-based inclusive corners.

        One class a file is VOC's rule: filter by label first.
        """
        corners = box_arithmetic.to_voc(self.boxes)
        return [
            # Nine digits give the score back to the last bit, so that reading results makes no new ties.
            f"{image_id} {score:.9g} " + " ".join(f"{value:.6f}".rstrip("0").rstrip(".") for value in row)
            for score, row in zip(self.scores, corners, strict=True)
        ]

    @classmethod
    def from_voc_lines(cls, lines: Iterable[str], label: str) -> dict[str, Detections]:
        """Read VOC results lines of one class into detections by image id; the inverse of `to_voc_lines`."""
        by_image: dict[str, list[list[float]]] = {}
        for number, line in enumerate(lines, start=1):
            words = line.split()
            if not words:
                continue
            try:
                score, *corners = (float(word) for word in words[1:])
            except ValueError:
                score, corners = np.nan, []
            if len(corners) != 4 or not np.isfinite([score, *corners]).all():
                raise DataError(
                    f"results line {number} must be 'image_id score x1 y1 x2 y2', not {line.strip()!r}."
                )
            by_image.setdefault(words[0], []).append([score, *corners])
        found = {}
        for image_id, rows in by_image.items():
            table = np.array(rows, dtype=np.float64)
            found[image_id] = cls(box_arithmetic.from_voc(table[:, 1:]), table[:, 0], label)  # type: ignore[arg-type]
        return found

    def to_supervision(self) -> supervision.Detections:
        """Convert to `supervision.Detections` (needs the package `supervision`).

        Names go to `data["class_name"]`.
        """
        try:
            import supervision
        except ImportError:
            raise UsageError(
                "to_supervision needs the package supervision: pip install supervision."
            ) from None
        names = sorted(set(self.labels))
        return supervision.Detections(
            xyxy=self.boxes.copy(),
            confidence=self.scores.copy(),
            class_id=np.array([names.index(label) for label in self.labels], dtype=int),
            data={"class_name": np.array(self.labels, dtype=str)},
        )


def _checked_boxes(owner: str, values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    boxes = np.asarray(values, dtype=np.float32)
    if boxes.size == 0:
        boxes = boxes.reshape(0, 4)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise DataError(f"{owner}: boxes must have the shape (n, 4), not {boxes.shape}.")
    bad = ~np.isfinite(boxes).all(axis=1) | (boxes[:, 2] < boxes[:, 0]) | (boxes[:, 3] < boxes[:, 1])
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"{owner}: box number {row} is {boxes[row].tolist()}; "
            "boxes are finite x1, y1, x2, y2 with x1 ≤ x2 and y1 ≤ y2."
        )
    return boxes


def _checked_names(owner: str, name: str, values: Iterable[str], n: int) -> tuple[str, ...]:
    names = tuple(map(str, values))
    if len(names) != n:
        raise DataError(f"{owner}: there are {n} boxes but {len(names)} {name}.")
    return names


def _checked_shape(
    owner: str, name: str, values: npt.NDArray[Any], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    if values.shape != shape:
        raise DataError(f"{owner}: {name} must have the shape {shape}, not {values.shape}.")
    return values


def _row_numbers(rows: Rows, n: int) -> npt.NDArray[np.intp]:
    return np.atleast_1d(np.arange(n)[rows])  # type: ignore[index]


def _store(instance: Any, name: str, value: Any) -> None:
    if isinstance(value, np.ndarray):
        value = value.copy()  # the caller's own array stays writeable, and ours stays ours
        value.setflags(write=False)
    object.__setattr__(instance, name, value)
