"""What is drawn over a picture, and where: frames, parts and tags, planned once for files and for matplotlib.

All sizes are in pixels of the picture and grow a little more slowly than the picture does, so that a drawing
of 200 px is not hidden under its tags and one of 4000 px can be read when it is shown on a screen. Each class
has a colour of the Okabe–Ito palette, which colour-blind people can tell apart; every line has a dark rim, so
that it shows on bright and on dark ground. Tags are placed best detection first: above the frame if there is
room, then inside, then below; never outside the picture, and not on another tag if that can be helped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from visionkl.core import boxes as box_arithmetic
from visionkl.core.types import Annotation, Detections

Colour = tuple[int, int, int]
Box = tuple[float, float, float, float]

#: Okabe–Ito without black, the colours that stand out in photographs first.
PALETTE: tuple[Colour, ...] = (
    (230, 159, 0),
    (86, 180, 233),
    (240, 228, 66),
    (204, 121, 167),
    (0, 158, 115),
    (213, 94, 0),
    (0, 114, 178),
)
TRUTH_COLOUR: Colour = (255, 255, 255)
RIM_COLOUR: Colour = (0, 0, 0)
TAG_OPACITY = 0.9

#: DejaVu Sans comes with matplotlib and knows Latin, Greek, Cyrillic and Arabic letters.
FONT_FILE = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"


@dataclass(frozen=True)
class Frame:
    """A rectangle to draw: `line` pixels wide inside its box, with a rim of `rim` pixels on both sides."""

    box: Box
    colour: Colour
    line: int
    rim: int
    rim_opacity: float
    dashed: bool = False


@dataclass(frozen=True)
class Tag:
    """A line of text on a coloured ground; `anchor` is the left end of the text's baseline."""

    text: str
    box: Box
    anchor: tuple[float, float]
    ground: Colour
    ink: Colour


@dataclass(frozen=True)
class Overlay:
    """What is drawn over a picture, in this order: the frames, then the tags."""

    frames: tuple[Frame, ...]
    tags: tuple[Tag, ...]
    font_size: int


def plan_overlay(
    width: int,
    height: int,
    detections: Detections,
    *,
    parts: bool = True,
    min_score: float | None = None,
    max_count: int = 100,
    annotation: Annotation | None = None,
    classes: Sequence[str] | None = None,
) -> Overlay:
    """Decide what is drawn over a picture, and where.

    Parameters
    ----------
    width, height : int
        Size of the picture.
    detections : Detections
    parts : bool
        Whether to draw the boxes of the parts, too; those of an object so small that they would fill it with
        lines are left out.
    min_score : float, optional
        Leave out detections below this score.
    max_count : int
        Draw only so many detections, the best.
    annotation : Annotation, optional
        Labelled objects, drawn as dashed white frames; one whose label is "" has no tag.
    classes : sequence of str, optional
        The order in which classes get their colours; by default the alphabetical order of those detected.
        Give it when several pictures are drawn, so that a class has the same colour in all.

    Returns
    -------
    Overlay

    Examples
    --------
    >>> found = Detections([[10, 30, 90, 80]], [1.25], "cat")
    >>> overlay = plan_overlay(100, 100, found)
    >>> overlay.tags[0].text, overlay.frames[0].box
    ('cat 1.25', (10.0, 30.0, 90.0, 80.0))
    """
    found = detections.filter(min_score=min_score).clip(width, height).sorted()[:max_count]
    colours = class_colours(found.labels if classes is None else classes, ordered=classes is not None)
    font_size = font_size_for(width, height)
    line = max(1, round(font_size / 6))
    thin, rim = max(1, round(line / 2)), max(1, round(line / 3))

    frames: list[Frame] = []
    boxes = _clipped(found.boxes, width, height)
    everybody = list(zip(found.labels, found.scores, boxes, found.parts, strict=True))
    # The best detection is drawn last and lies on top.
    for label, _, _, part_boxes in reversed(everybody if parts else []):
        for box in _legible_parts(part_boxes, width, height, font_size):
            frames.append(Frame(box, _lightened(_colour_of(label, colours)), thin, rim, 0.35))
    for label, _, box, _ in reversed(everybody):
        frames.append(Frame(box, _colour_of(label, colours), line, rim, 0.6))
    wanted_tags = [
        (label, f" {score:.2f}", box, _colour_of(label, colours)) for label, score, box, _ in everybody
    ]
    if annotation is not None:
        for label, box in zip(annotation.labels, _clipped(annotation.boxes, width, height), strict=True):
            frames.append(Frame(box, TRUTH_COLOUR, line, rim, 0.5, dashed=True))
            if label:
                wanted_tags.append((label, "", box, TRUTH_COLOUR))
    return Overlay(tuple(frames), _placed_tags(wanted_tags, width, height, font_size), font_size)


def class_colours(labels: Sequence[str], *, ordered: bool) -> dict[str, Colour]:
    """Give each class a colour, in the order of `labels` or in that of the alphabet."""
    names = dict.fromkeys(labels) if ordered else sorted(set(labels))
    return {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(names)}


def font_size_for(width: int, height: int) -> int:
    """Size of letters, in pixels: 12 on a picture of 500×375, 70 on one of 4000×3000, at least 9.

    Examples
    --------
    >>> font_size_for(500, 375), font_size_for(4000, 3000), font_size_for(64, 48)
    (12, 70, 9)
    """
    return max(9, round(12 * (np.sqrt(width * height) / np.sqrt(500 * 375)) ** 0.85))


def strokes(frame: Frame) -> Iterator[tuple[Box, Colour, float]]:
    """Take a frame apart into filled rectangles of whole pixels, with colour and opacity, in order."""
    x1, y1, x2, y2 = (float(round(value)) for value in frame.box)
    outer = (x1, y1, max(x2, x1 + 1), max(y2, y1 + 1))
    inner = _inset(outer, frame.line)
    for box in _ring(_inset(outer, -frame.rim), outer) + _ring(inner, _inset(inner, frame.rim)):
        yield box, RIM_COLOUR, frame.rim_opacity
    for box in _ring(outer, inner):
        if frame.dashed:
            yield box, RIM_COLOUR, frame.rim_opacity
            yield from ((dash, frame.colour, 1.0) for dash in _dashes(box, 4 * frame.line))
        else:
            yield box, frame.colour, 1.0


def paint(image: npt.NDArray[np.uint8], overlay: Overlay) -> npt.NDArray[np.uint8]:
    """Draw an overlay over a picture of uint8 RGB `(rows, cols, 3)`; returns a new one."""
    canvas = Image.fromarray(image)
    pen = ImageDraw.Draw(canvas, "RGBA")
    for frame in overlay.frames:
        for (x1, y1, x2, y2), colour, opacity in strokes(frame):
            pen.rectangle((x1, y1, x2 - 1, y2 - 1), fill=(*colour, round(255 * opacity)))
    font = _font(overlay.font_size)
    for tag in overlay.tags:
        x1, y1, x2, y2 = tag.box
        pen.rectangle((x1, y1, x2 - 1, y2 - 1), fill=(*tag.ground, round(255 * TAG_OPACITY)))
        pen.text(tag.anchor, tag.text, fill=tag.ink, font=font, anchor="ls")
    return np.asarray(canvas)


def _inset(box: Box, by: int) -> Box:
    """Shrink a box on all sides; what would vanish becomes the last corner, and the ring is the whole box."""
    x1, y1, x2, y2 = box
    if min(x2 - x1, y2 - y1) <= 2 * by:
        return x2, y2, x2, y2
    return x1 + by, y1 + by, x2 - by, y2 - by


def _ring(outer: Box, inner: Box) -> list[Box]:
    """Cover what lies between two boxes with rectangles that do not overlap: top, bottom, left, right."""
    around = [
        (outer[0], outer[1], outer[2], inner[1]),
        (outer[0], inner[3], outer[2], outer[3]),
        (outer[0], inner[1], inner[0], inner[3]),
        (inner[2], inner[1], outer[2], inner[3]),
    ]
    return [box for box in around if box[2] > box[0] and box[3] > box[1]]


def _dashes(box: Box, dash: int) -> Iterator[Box]:
    x1, y1, x2, y2 = box
    if x2 - x1 >= y2 - y1:
        for start in np.arange(x1, x2, 2 * dash):
            yield float(start), y1, float(min(start + dash, x2)), y2
    else:
        for start in np.arange(y1, y2, 2 * dash):
            yield x1, float(start), x2, float(min(start + dash, y2))


# -- tags ----------------------------------------------------------------------------------------


def _placed_tags(
    wanted: Sequence[tuple[str, str, Box, Colour]], width: int, height: int, font_size: int
) -> tuple[Tag, ...]:
    """Find a place for each tag, the most important first; the first one is drawn last, on top."""
    font = _font(font_size)
    ascent, descent = font_size, max(1, round(0.25 * font_size))
    margin = max(2, round(font_size / 5))
    placed: list[Box] = []
    tags: list[Tag] = []
    for label, score, box, colour in wanted:
        shown = _shortened(label, score, font, width - 2 * margin)
        tag_width = min(width, round(font.getlength(shown)) + 2 * margin)
        tag_height = min(height, ascent + descent)
        place = _best_place(box, tag_width, tag_height, width, height, placed)
        placed.append(place)
        baseline = (place[0] + margin, place[3] - descent)
        tags.append(Tag(shown, place, baseline, colour, _ink_on(colour)))
    return tuple(reversed(tags))


def _best_place(
    box: Box, tag_width: int, tag_height: int, width: int, height: int, placed: Sequence[Box]
) -> Box:
    """Choose where a tag goes: in the picture, clear of the others, near its box, in the usual order."""
    x1, y1, x2, y2 = box
    above, below, right = y1 - tag_height, y2, x2 - tag_width
    outside = [(x1, above), (x1, below), (right, above), (right, below), (x2, y1), (x1 - tag_width, y1)]
    inside = [(x1, y1), (x1, y2 - tag_height), (right, y1), (right, y2 - tag_height)]
    if tag_width * tag_height < 0.15 * (x2 - x1) * (y2 - y1):
        places = [outside[0], *inside[:1], *outside[1:], *inside[1:]]
    else:
        places = outside + inside  # a small object would be hidden by its own tag
    best, least = (0, 0), np.inf
    for x, y in places:
        left, top = (
            min(max(round(x), 0), width - tag_width),
            min(max(round(y), 0), height - tag_height),
        )
        place = (left, top, left + tag_width, top + tag_height)
        moved = abs(left - round(x)) * tag_height + abs(top - round(y)) * tag_width
        hidden = float(box_arithmetic.intersection([place], placed).sum()) if placed else 0.0
        # Being pushed back into the picture is a small fault beside hiding another tag.
        if 10 * hidden + moved < least:
            best, least = (left, top), 10 * hidden + moved
    return best[0], best[1], best[0] + tag_width, best[1] + tag_height


def _shortened(label: str, score: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """Join label and score; where they are wider than the picture the label is cut, and goes first."""
    candidates = [
        label + score,
        *(f"{label[:n]}…{score}" for n in range(len(label) - 1, 0, -1)),
        score.strip(),
    ]
    return next((text for text in candidates if font.getlength(text) <= width), "")


@lru_cache(maxsize=16)
def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(FONT_FILE), size)


# -- colours and boxes ----------------------------------------------------------------------------


def _colour_of(label: str, colours: dict[str, Colour]) -> Colour:
    return colours.get(label, PALETTE[len(colours) % len(PALETTE)])


def _lightened(colour: Colour) -> Colour:
    red, green, blue = (round(value + 0.35 * (255 - value)) for value in colour)
    return red, green, blue


def _ink_on(ground: Colour) -> Colour:
    """Black on bright ground, white on dark."""
    red, green, blue = ground
    return (0, 0, 0) if 0.299 * red + 0.587 * green + 0.114 * blue > 110 else (255, 255, 255)


def _legible_parts(parts: npt.NDArray[np.float32], width: int, height: int, font_size: int) -> list[Box]:
    """Parts that lie in the picture, or none if the middle one of them is hardly larger than a letter."""
    parts = parts[np.isfinite(parts).all(axis=1)]
    parts = parts[box_arithmetic.area(box_arithmetic.clip(parts, width, height)) > 0]
    if not len(parts) or np.median(np.minimum(*(parts[:, 2:] - parts[:, :2]).T)) < 1.25 * font_size:
        return []
    return [_as_box(part) for part in parts]


def _clipped(boxes: npt.NDArray[np.float32], width: int, height: int) -> list[Box]:
    return [_as_box(row) for row in box_arithmetic.clip(boxes, width, height)]


def _as_box(row: npt.NDArray[np.floating]) -> Box:
    x1, y1, x2, y2 = (float(value) for value in row)
    return x1, y1, x2, y2
