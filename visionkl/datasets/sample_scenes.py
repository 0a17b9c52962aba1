"""The pictures of the sample set: backgrounds, clutter, objects and occluders, painted from back to front.

1. A background (`visionkl.datasets.sample_light`).
2. Clutter: parts of the very objects to be found, in heaps or put together upside down, so that a part alone
   proves nothing.
3. The objects, small (far) ones first, each in its own size, view, pose, mirror image, colours and light.
4. Occluders (poles, planks, bushes, more loose parts) before one object in four.
5. Light over the whole picture, blur and noise (`sample_light` again).

While painting, a map of owners remembers which object each pixel shows. Boxes and flags come from that map
and so are true by construction:

- the *box* is the smallest one around the visible pixels;
- *occluded*: something in front hides more than 5 % of what lies inside the picture;
- *truncated*: the box covers less than 95 % of the object's whole extent, as at the border of the picture;
- *difficult*: less than 40 % of the object is visible, or the whole of it is less than 45 pixels high.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from visionkl.core import boxes as box_arithmetic
from visionkl.datasets.sample_light import draw_background, expose, light_up, on_all_channels
from visionkl.datasets.sample_objects import CLASSES
from visionkl.datasets.sample_shapes import (
    Part,
    Pixels,
    Points,
    Random,
    Sprite,
    box,
    ellipse,
    line,
    mix_paints,
    part,
    rasterise,
    rotation,
)

#: Width and height of pictures, as in VOC mostly with a side of 500; one in four is turned upright.
_PICTURE_SIZES = ((500, 375), (500, 333), (480, 360), (400, 320))
#: Objects' heights in pixels, spread evenly over octaves; one further object in twenty is tiny.
_OBJECT_HEIGHTS = (60.0, 300.0)
_TINY_HEIGHTS = (30.0, 50.0)
#: Below this height, or with less than this share of its pixels visible, an object is difficult.
_DIFFICULT_HEIGHT = 45
_DIFFICULT_VISIBLE = 0.4
#: No occluder hides more than the rest: what cannot be seen should not be in the picture at all.
_LEAST_VISIBLE = 0.25
#: A box that shows less of the whole extent is truncated; an object of which less is visible is occluded.
_NEARLY_ALL = 0.95


@dataclass(frozen=True)
class SceneObject:
    """One labelled object: class, box (0-based, half-open), VOC's pose and flags."""

    label: str
    box: tuple[int, int, int, int]
    pose: str
    truncated: bool
    occluded: bool
    difficult: bool


@dataclass(frozen=True)
class Scene:
    """A picture with its objects.

    Parameters
    ----------
    image : ndarray of uint8, shape (rows, cols, 3)
    objects : tuple of SceneObject
    owners : ndarray of uint8, shape (rows, cols)
        0 where no object is seen, else 1 + the number of the object.
    """

    image: npt.NDArray[np.uint8]
    objects: tuple[SceneObject, ...]
    owners: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class _Placed:
    """Something drawn, and where in the picture its top-left corner lies, which may be outside."""

    sprite: Sprite
    x: int
    y: int
    label: str = ""
    pose: str = ""

    def extent(self) -> tuple[int, int, int, int]:
        rows, cols = self.sprite.size
        return self.x, self.y, self.x + cols, self.y + rows

    def overlap(self, shape: tuple[int, ...]) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
        """Find what it shares with a picture of some shape: the part of the picture, and its own."""
        x1, y1, x2, y2 = self.extent()
        top, left = max(0, y1), max(0, x1)
        bottom, right = max(top, min(shape[0], y2)), max(left, min(shape[1], x2))
        own = slice(top - y1, bottom - y1), slice(left - x1, right - x1)
        return (slice(top, bottom), slice(left, right)), own

    def paste(self, canvas: Pixels) -> None:
        """Lay it over the canvas, in place."""
        there, own = self.overlap(canvas.shape)
        canvas[there] *= on_all_channels(1 - self.sprite.opacity)[own]
        canvas[there] += self.sprite.colour[own]

    def covers(self, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        """Tell which pixels of a picture of some shape it hides."""
        covered = np.zeros(shape[:2], bool)
        there, own = self.overlap(shape)
        covered[there] = self.sprite.solid()[own]
        return covered


def draw_scene(rng: Random, labels: tuple[str, ...]) -> Scene:
    """Paint one picture.

    Parameters
    ----------
    rng : numpy.random.Generator
        Decides everything that `labels` leaves open.
    labels : tuple of str
        Classes of the objects to show. The first is always there; others are left out where there is no room
        for them.

    Returns
    -------
    Scene

    Examples
    --------
    >>> scene = draw_scene(np.random.default_rng(0), ("robot",))
    >>> [thing.label for thing in scene.objects], scene.image.dtype.name
    (['robot'], 'uint8')
    """
    width, height = _PICTURE_SIZES[rng.integers(len(_PICTURE_SIZES))]
    if rng.uniform() < 0.25:
        width, height = height, width
    canvas = draw_background(rng, width, height)
    for _ in range(rng.integers(6, 11)):
        clutter = _loose_parts if rng.uniform() < 0.6 else _wrong_object
        _anywhere(rng, clutter(rng, rng.uniform(50, 180)), width, height).paste(canvas)
    objects: list[_Placed] = []
    for label in labels:
        objects += _find_room(rng, label, objects, width, height)
    objects.sort(key=lambda thing: thing.sprite.size)
    owners = np.zeros((height, width), np.uint8)
    for number, thing in enumerate(objects, start=1):
        _cast_shadow(canvas, thing)
        thing.paste(canvas)
        owners[thing.covers(owners.shape)] = number
    for number, thing in enumerate(objects, start=1):
        if rng.uniform() < 0.25:
            _occlude(rng, canvas, owners, number, thing)
    described = tuple(_describe(thing, owners == number) for number, thing in enumerate(objects, start=1))
    return Scene(expose(rng, canvas), described, owners)


# -- clutter -------------------------------------------------------------------------------------------------


def _loose_parts(rng: Random, height: float) -> Sprite:
    """Heap up some parts of an object, each nearly upright."""
    parts = _any_object(rng)
    loose = []
    for number in rng.permutation(len(parts))[: rng.integers(2, 5)]:
        at_origin = parts[number].moved(-parts[number].centre())
        loose.append(at_origin.turned(rng.normal(0, 10)).moved(rng.uniform(-0.4, 0.4, 2)))
    return _drawn(rng, loose, height, mirrored=bool(rng.uniform() < 0.5))


def _wrong_object(rng: Random, height: float) -> Sprite:
    """Put all parts of an object, each upright, together upside down: right pieces in wrong places."""
    wrong = [piece.moved((rng.normal(0, 0.12), -2 * piece.centre()[1])) for piece in _any_object(rng)]
    return _drawn(rng, wrong, height, mirrored=bool(rng.uniform() < 0.5))


def _any_object(rng: Random) -> list[Part]:
    names = list(CLASSES)
    return CLASSES[names[rng.integers(len(names))]](rng, bool(rng.uniform() < 0.4))


def _anywhere(rng: Random, sprite: Sprite, width: int, height: int) -> _Placed:
    rows, cols = sprite.size
    x, y = rng.integers(-cols // 3, width - cols // 2), rng.integers(-rows // 3, height - rows // 2)
    return _Placed(sprite, int(x), int(y))


# -- objects -------------------------------------------------------------------------------------------------


def _drawn(rng: Random, parts: list[Part], height: float, mirrored: bool) -> Sprite:
    sprite = rasterise(parts, mix_paints(rng), height, _random_warp(rng, mirrored))
    return light_up(rng, sprite)


def _random_warp(rng: Random, mirrored: bool) -> Callable[[Points], Points]:
    """Lean, bend, stretch and turn an object a little, which moves its parts against each other."""
    lean, bend = rng.uniform(-0.3, 0.3), rng.uniform(-0.18, 0.18)
    stretch, turn = rng.uniform(0.8, 1.25), rotation(rng.uniform(-6, 6))

    def warp(points: Points) -> Points:
        x, y = points[:, 0] - 0.25, points[:, 1]
        bent = np.stack([x * stretch + lean * y, y + bend * x**2], axis=1) @ turn.T
        return bent * (-1, 1) if mirrored else bent

    return warp


def _find_room(rng: Random, label: str, others: list[_Placed], width: int, height: int) -> list[_Placed]:
    """Draw an object and place it where it hides little of the others; the first always finds room."""
    frontal, mirrored = bool(rng.uniform() < 0.3), bool(rng.uniform() < 0.5)
    pose = "Frontal" if frontal else "Left" if mirrored else "Right"
    low, high = _TINY_HEIGHTS if others and rng.uniform() < 0.05 else _OBJECT_HEIGHTS
    size = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    sprite = _drawn(rng, CLASSES[label](rng, frontal), size, mirrored)
    sprite = _shrunk(sprite, min(0.94 * height / sprite.size[0], 0.94 * width / sprite.size[1]))
    rows, cols = sprite.size
    beyond = rng.uniform(0.08, 0.35, 2) * (cols, rows) if rng.uniform() < 0.12 else (0, 0)
    for _ in range(20):
        x, y = int(rng.integers(0, width - cols + 1)), int(rng.integers(0, height - rows + 1))
        if beyond[0]:  # pushed over the left or right border, and at times over the lower one, too
            x = -int(beyond[0]) if rng.uniform() < 0.5 else width - cols + int(beyond[0])
            y = height - rows + int(beyond[1]) if rng.uniform() < 0.3 else y
        thing = _Placed(sprite, x, y, label, pose)
        mine = np.array([thing.extent()])
        theirs = np.array([other.extent() for other in others]).reshape(-1, 4)
        smaller = np.minimum(box_arithmetic.area(mine), box_arithmetic.area(theirs))
        if (box_arithmetic.intersection(mine, theirs)[0] < 0.2 * smaller).all():
            return [thing]
    return []


def _shrunk(sprite: Sprite, factor: float) -> Sprite:
    if factor >= 1:
        return sprite
    rows, cols = (int(n * factor) for n in sprite.size)
    layers = (cv2.resize(layer, (cols, rows), interpolation=cv2.INTER_AREA) for layer in sprite)
    return Sprite(*(np.asarray(layer, dtype=np.float32) for layer in layers))


def _cast_shadow(canvas: Pixels, thing: _Placed) -> None:
    """Darken the ground below an object, so that it stands somewhere."""
    x1, _, x2, y2 = thing.extent()
    broad, high = 0.6 * (x2 - x1), 0.08 * (x2 - x1) + 2
    y = (np.arange(canvas.shape[0], dtype=np.float32)[:, None] - y2) / high
    x = (np.arange(canvas.shape[1], dtype=np.float32) - (x1 + x2) / 2) / broad
    rows, cols = np.flatnonzero(np.abs(y) < 2), np.flatnonzero(np.abs(x) < 2)
    if len(rows) and len(cols):
        there = slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1)
        dark = np.exp(-2 * y[there[0]] ** 2) * np.exp(-2 * x[there[1]] ** 2)
        canvas[there] *= on_all_channels(1 - np.float32(0.45) * dark)


# -- occlusion -----------------------------------------------------------------------------------------------


def _occlude(rng: Random, canvas: Pixels, owners: npt.NDArray[np.uint8], number: int, thing: _Placed) -> None:
    """Put something before an object, unless it would hide this one too much or another one at all."""
    rows, cols = thing.sprite.size
    kind = rng.choice(["pole", "plank", "bush", "parts"])
    if kind == "pole":
        sprite = _plank(rng, 2.2 * rows, breadth=rng.uniform(0.08, 0.22) * cols, degrees=rng.normal(90, 4))
    elif kind == "plank":
        sprite = _plank(rng, 1.2 * cols, breadth=rng.uniform(0.08, 0.2) * rows, degrees=rng.uniform(-40, 40))
    elif kind == "bush":
        sprite = _bush(rng, rng.uniform(0.3, 0.6) * min(rows, cols))
    else:
        sprite = _loose_parts(rng, rng.uniform(0.3, 0.6) * rows)
    x = thing.x + int(rng.uniform(0.05, 0.95) * cols) - sprite.size[1] // 2
    y = thing.y + int(rng.uniform(0.2, 0.95) * rows) - sprite.size[0] // 2
    occluder = _Placed(sprite, x, y)
    hidden = occluder.covers(owners.shape)
    still_seen = ((owners == number) & ~hidden).sum()
    hits_others = (hidden & (owners != number) & (owners != 0)).any()
    if not hits_others and still_seen >= _LEAST_VISIBLE * thing.sprite.solid().sum():
        occluder.paste(canvas)
        owners[hidden] = 0


def _plank(rng: Random, length: float, breadth: float, degrees: float) -> Sprite:
    half = max(breadth, 3.0) / length / 2
    grain = (line("shine", half * 0.16, (-0.49, y), (0.49, y)) for y in rng.uniform(-0.8, 0.8, 2) * half)
    plank = part("plank", box("body", -0.5, -half, 0.5, half), *grain)
    return light_up(rng, rasterise([plank.turned(degrees)], mix_paints(rng), length))


def _bush(rng: Random, size: float) -> Sprite:
    leaves = []
    for x, y in rng.normal(0, 0.22, size=(25, 2)):
        paint = str(rng.choice(["body", "shine", "dark"]))
        leaves.append(ellipse(paint, (x, y), *rng.uniform(0.06, 0.16, 2)))
    return light_up(rng, rasterise([part("bush", *leaves)], mix_paints(rng), max(size, 12.0)))


# -- truth ---------------------------------------------------------------------------------------------------


def _describe(thing: _Placed, visible: npt.NDArray[np.bool_]) -> SceneObject:
    """Read box and flags of an object off the pixels that show it."""
    ys, xs = np.flatnonzero(visible.any(axis=1)), np.flatnonzero(visible.any(axis=0))
    around = int(xs[0]), int(ys[0]), int(xs[-1]) + 1, int(ys[-1]) + 1
    n_visible, n_inside = int(visible.sum()), int(thing.covers(visible.shape).sum())
    n_solid = int(thing.sprite.solid().sum())
    shown = float(box_arithmetic.area(around) / box_arithmetic.area(thing.extent()))
    return SceneObject(
        thing.label,
        around,
        thing.pose,
        truncated=shown < _NEARLY_ALL,
        occluded=n_visible < _NEARLY_ALL * n_inside,
        difficult=n_visible < _DIFFICULT_VISIBLE * n_solid or thing.sprite.size[0] < _DIFFICULT_HEIGHT,
    )
