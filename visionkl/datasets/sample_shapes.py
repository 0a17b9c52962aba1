"""What the objects of the sample set are built from, and how they become pixels.

A part is a name and a few shapes; a shape is a filled polygon or a line, in a paint that each object mixes
anew. Lengths are in object heights (about 1), x points to where the object is heading (the right), y points
up, and the ground is at 0. `visionkl.datasets.sample_objects` puts parts together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from colorsys import hsv_to_rgb
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
Point = tuple[float, float]
Random = np.random.Generator
Pixels = npt.NDArray[np.float32]

#: Sub-pixels per pixel and axis while drawing; the average over them makes soft edges.
_OVERSAMPLING = 2
#: Bits of sub-pixel position in OpenCV's drawing functions.
_FRACTION_BITS = 4
#: Width of the outline of filled shapes, in object heights.
_OUTLINE = 0.012
#: The unit circle as a closed polygon.
_CIRCLE = np.stack([np.cos(np.linspace(0, 2 * np.pi, 33)), np.sin(np.linspace(0, 2 * np.pi, 33))], axis=1)


class Shape(NamedTuple):
    """A filled polygon (`width` 0) or a line of some width through points `(n, 2)`."""

    paint: str
    points: Points
    width: float = 0.0


class Part(NamedTuple):
    """A rigid piece of an object: a name and its shapes, from back to front."""

    name: str
    shapes: tuple[Shape, ...]

    def turned(self, degrees: float) -> Part:
        """Turn the part counter-clockwise about the origin."""
        matrix = rotation(degrees).T
        return Part(self.name, tuple(Shape(s.paint, s.points @ matrix, s.width) for s in self.shapes))

    def moved(self, by: Point | Points) -> Part:
        """Put the part at another place."""
        offset = np.asarray(by)
        return Part(self.name, tuple(Shape(s.paint, s.points + offset, s.width) for s in self.shapes))

    def centre(self) -> Points:
        """Find the middle of the part's extent."""
        points = np.concatenate([shape.points for shape in self.shapes])
        return (points.min(axis=0) + points.max(axis=0)) / 2


class Sprite(NamedTuple):
    """Something drawn, ready to be laid over a picture: RGB in 0..1 times opacity, and opacity in 0..1."""

    colour: Pixels
    opacity: Pixels

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.opacity.shape[0], self.opacity.shape[1]

    def solid(self) -> npt.NDArray[np.bool_]:
        """Tell which pixels hide what is behind them."""
        return self.opacity >= 0.5


# -- building blocks -----------------------------------------------------------------------------------------


def rotation(degrees: float) -> Points:
    """Make the matrix `(2, 2)` of a counter-clockwise turn, y pointing up."""
    angle = np.deg2rad(degrees)
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def along(start: Point, degrees: float, length: float) -> Point:
    """Go some distance from `start`; 0° is to the right, 90° is up."""
    angle = np.deg2rad(degrees)
    return start[0] + length * float(np.cos(angle)), start[1] + length * float(np.sin(angle))


def part(name: str, *shapes: Shape) -> Part:
    """Make a part of some shapes, from back to front."""
    return Part(name, shapes)


def polygon(paint: str, *points: Point) -> Shape:
    """Make a filled polygon."""
    return Shape(paint, np.array(points, dtype=np.float64))


def line(paint: str, width: float, *points: Point) -> Shape:
    """Make a line of some width."""
    return Shape(paint, np.array(points, dtype=np.float64), width)


def box(paint: str, x1: float, y1: float, x2: float, y2: float, corner: float = 0.0) -> Shape:
    """Make a filled rectangle with cut corners."""
    left, right, low, high = x1 + corner, x2 - corner, y1 + corner, y2 - corner
    return polygon(
        paint, (left, y1), (right, y1), (x2, low), (x2, high), (right, y2), (left, y2), (x1, high), (x1, low)
    )


def ellipse(paint: str, centre: Point, rx: float, ry: float | None = None, width: float = 0.0) -> Shape:
    """Make a filled ellipse, or a ring if `width` is given."""
    return Shape(paint, _CIRCLE * (rx, rx if ry is None else ry) + centre, width)


def tube(paint: str, width: float, *points: Point) -> tuple[Shape, ...]:
    """Make a bent tube: an outlined line with a highlight along its middle."""
    return (
        line("ink", width + 2 * _OUTLINE, *points),
        line(paint, width, *points),
        line("shine", width * 0.3, *points),
    )


def limb(
    name: str, paint: str, start: Point, degrees: float, length: float, width: float
) -> tuple[Part, Point]:
    """Make a bar with a joint at each end; returns it and its far end."""
    end = along(start, degrees, length)
    joints = (ellipse("metal", start, width * 0.42), ellipse("metal", end, width * 0.42))
    return part(name, *tube(paint, width, start, end), *joints), end


def wheel(name: str, rng: Random, centre: Point, radius: float, squash: float = 1.0) -> Part:
    """Make a spoked wheel to be seen through; `squash` below 1 turns it away from the viewer."""
    n_spokes = int(rng.integers(3, 6))
    first = rng.uniform(0, 180)
    tyre = radius * rng.uniform(0.18, 0.26)
    ends = [along((0, 0), first + k * 180 / n_spokes, radius * 0.9) for k in range(n_spokes)]
    spokes = (line("metal", 0.014, (-x * squash, -y), (x * squash, y)) for x, y in ends)
    middle = radius - tyre / 2
    return part(
        name,
        *spokes,
        ellipse("dark", (0, 0), middle * squash, middle, width=tyre * max(squash, 0.6)),
        ellipse("metal", (0, 0), (radius - tyre) * squash, radius - tyre, width=0.016),
        ellipse("trim", (0, 0), radius * 0.2 * squash, radius * 0.2),
    ).moved(centre)


# -- from shapes to pixels -----------------------------------------------------------------------------------


def mix_paints(rng: Random) -> dict[str, Points]:
    """Choose the colours of one object: RGB in 0..1 by paint name."""
    hue = rng.uniform()
    body = _colour(hue, rng.uniform(0.35, 0.95), rng.uniform(0.45, 0.95))
    return {
        "body": body,
        "trim": _colour(hue + rng.uniform(0.2, 0.8), rng.uniform(0.2, 0.9), rng.uniform(0.35, 0.95)),
        "shine": 1 - (1 - body) * 0.55,
        "metal": _colour(rng.uniform(), 0.08, rng.uniform(0.5, 0.85)),
        "dark": _colour(rng.uniform(), 0.2, rng.uniform(0.1, 0.3)),
        "glass": _colour(rng.uniform(0.45, 0.65), rng.uniform(0.1, 0.4), rng.uniform(0.65, 0.95)),
        "light": _colour(0.15, rng.uniform(0.0, 0.4), 0.97),
        "ink": _colour(hue, 0.4, rng.uniform(0.05, 0.2)),
    }


def _colour(hue: float, saturation: float, value: float) -> Points:
    return np.array(hsv_to_rgb(hue % 1, saturation, value))


def rasterise(
    parts: Sequence[Part],
    paints: Mapping[str, npt.ArrayLike],
    height: float,
    warp: Callable[[Points], Points] | None = None,
) -> Sprite:
    """Draw parts into a picture of their own, cropped to them.

    Parameters
    ----------
    parts : sequence of Part
        From back to front.
    paints : mapping of str to RGB in 0..1
        The colour of each paint that the shapes name, and of "ink" for outlines.
    height : float
        Pixels per object height, the unit of the shapes.
    warp : callable, optional
        Mirrors, turns or bends the whole: maps points `(n, 2)` to points `(n, 2)`.

    Returns
    -------
    Sprite
        Colour `(rows, cols, 3)` and opacity `(rows, cols)`, float32.

    Examples
    --------
    >>> square = part("square", box("red", 0, 0, 1, 1))
    >>> rasterise([square], {"red": (1, 0, 0), "ink": (0, 0, 0)}, 20).size
    (21, 21)
    """
    shapes = [shape for piece in parts for shape in piece.shapes]
    counts = [len(shape.points) for shape in shapes]
    points = np.concatenate([shape.points for shape in shapes])
    if warp is not None:
        points = warp(points)
    reach = np.repeat([max(shape.width, _OUTLINE) / 2 for shape in shapes], counts)[:, None]
    low, high = (points - reach).min(axis=0), (points + reach).max(axis=0)
    scale = height * _OVERSAMPLING
    # A margin of one pixel, because line widths are rounded; the crop below takes it away again.
    cols, rows = (int(n) for n in (np.ceil((high - low) * height) + 2) * _OVERSAMPLING)
    canvas = np.zeros((rows, cols, 4), np.uint8)
    placed = (points - (low[0], high[1])) * (scale, -scale) + _OVERSAMPLING
    corners = np.split(np.rint(placed * 2**_FRACTION_BITS).astype(np.int32), np.cumsum(counts)[:-1])
    colours = {name: _with_opacity(colour) for name, colour in paints.items()}
    outline = max(1, round(_OUTLINE * scale))
    for shape, corner in zip(shapes, corners, strict=True):
        colour = colours[shape.paint]
        if shape.width:
            thickness = max(1, round(shape.width * scale))
            cv2.polylines(canvas, [corner], False, colour, thickness, shift=_FRACTION_BITS)
        else:
            cv2.fillPoly(canvas, [corner], colour, shift=_FRACTION_BITS)
            cv2.polylines(canvas, [corner], True, colours["ink"], outline, shift=_FRACTION_BITS)
    size = cols // _OVERSAMPLING, rows // _OVERSAMPLING
    small = cv2.resize(canvas, size, interpolation=cv2.INTER_AREA)
    solid = small[:, :, 3] >= 128
    ys, xs = np.flatnonzero(solid.any(axis=1)), np.flatnonzero(solid.any(axis=0))
    cropped = np.ascontiguousarray(small[ys[0] : ys[-1] + 1, xs[0] : xs[-1] + 1])
    share = np.float32(1 / 255)
    return Sprite(cv2.cvtColor(cropped, cv2.COLOR_RGBA2RGB) * share, cropped[:, :, 3] * share)


def _with_opacity(colour: npt.ArrayLike) -> tuple[float, ...]:
    return (*(float(value) for value in np.rint(np.asarray(colour) * 255)), 255.0)
