"""Pictures of a model: what each component looks for, where, and how far its parts may go.

A component is drawn as in the literature on part models, in three panels of one size. *Root*: the filter of
the whole object, a star of strokes in each cell along the edges it wants to see. *Parts*: the parts' filters
at twice the resolution, each at its anchor; where parts overlap, the stronger stroke shows, and each
part is framed. *Deformation*: in each part's frame, what it costs to move the part's centre there, from
nothing (dark) to the most that the part can lose (bright). A part that may move freely in one direction has a
dark band along it.

Positive weights alone are drawn: what speaks for the object. `draw_component` returns a picture;
`component_figure` adds titles and a frame for reports; `views` tells which components are mirror images of
others and need no picture of their own.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from visionkl.detection.model import Component, MixtureModel, Part
from visionkl.detection.parameters import are_mirrored
from visionkl.features.hog import glyphs
from visionkl.report.plots import new_figure

Picture = npt.NDArray[np.uint8]

_PARTS_FINER = 2  # parts are at twice the root's resolution
_COST_CELLS = 4  # how far parts move at most where the model does not say


def views(model: MixtureModel) -> list[tuple[int, int | None]]:
    """Tell components and their mirror images: pairs of numbers, the second None where there is none.

    Examples
    --------
    >>> from visionkl.features.hog import mirror
    >>> root = np.random.default_rng(0).random((3, 4, 32), np.float32)
    >>> views(MixtureModel("x", (Component(root), Component(mirror(root)), Component(root[:2]))))
    [(0, 1), (2, None)]
    """
    pairs: list[tuple[int, int | None]] = []
    rest = list(range(len(model.components)))
    while rest:
        first = rest.pop(0)
        twin = next((i for i in rest if are_mirrored(model.components[first], model.components[i])), None)
        if twin is not None:
            rest.remove(twin)
        pairs.append((first, twin))
    return pairs


def root_picture(component: Component, *, cell_pixels: int = 24) -> Picture:
    """Draw the root filter: grey `(rows * cell_pixels, cols * cell_pixels)`."""
    return _brightened(glyphs(component.root, cell_pixels=cell_pixels))


def parts_picture(component: Component, *, cell_pixels: int = 24, dim_root: float = 0.0) -> Picture:
    """Draw the parts at their anchors, as large as `root_picture` with the same `cell_pixels`: RGB.

    Parameters
    ----------
    component : Component
    cell_pixels : int
        Edge of a root cell, even; cells of parts have half of it.
    dim_root : float
        How bright the root shows behind the parts, 0 to 1.
    """
    fine = cell_pixels // _PARTS_FINER
    canvas = np.rint(dim_root * root_picture(component, cell_pixels=cell_pixels)).astype(np.uint8)
    for part in component.parts:
        drawn = _brightened(glyphs(part.weights, cell_pixels=fine))
        rows, cols = _window(part, fine, canvas.shape)
        place = canvas[rows, cols]
        np.maximum(place, drawn[: place.shape[0], : place.shape[1]], out=place)
    return _framed(np.repeat(canvas[:, :, None], 3, axis=2), component.parts, fine)


def deformation_picture(
    component: Component, *, cell_pixels: int = 24, max_displacement: int | None = None
) -> Picture:
    """Draw what it costs to move each part's centre, in the part's frame: RGB, as large as the others.

    Parameters
    ----------
    component : Component
    cell_pixels : int
        Edge of a root cell, even.
    max_displacement : int, optional
        The edges of a frame stand for moves by so many cells at most.
    """
    fine = cell_pixels // _PARTS_FINER
    height, width = (size * cell_pixels for size in component.root.shape[:2])
    canvas = np.zeros((height, width), np.float64)
    covered = np.zeros((height, width), bool)
    costs = [_costs(part, max_displacement, fine) for part in component.parts]
    # One scale for all parts of a component, so that stiff and loose ones can be told apart.
    most = max((float(np.quantile(cost, 0.9)) for cost in costs), default=1.0) or 1.0
    for part, cost in zip(component.parts, costs, strict=True):
        rows, cols = _window(part, fine, canvas.shape)
        place = canvas[rows, cols]
        shown = np.clip(cost / most, 0, 1)[: place.shape[0], : place.shape[1]]
        # Where frames overlap, the cheaper move shows: each part keeps its dark middle.
        place[...] = np.where(covered[rows, cols], np.minimum(place, shown), shown)
        covered[rows, cols] = True
    grey = np.rint(255 * np.sqrt(canvas)).astype(np.uint8)
    return _framed(np.repeat(grey[:, :, None], 3, axis=2), component.parts, fine)


def draw_component(
    component: Component, *, cell_pixels: int = 24, max_displacement: int | None = None, gap: int = 8
) -> Picture:
    """Draw a component as one RGB picture: root, parts and deformation side by side, a rigid one its root.

    Examples
    --------
    >>> part = Part(np.ones((2, 2, 32)), (1, 1), [0.1, 0, 0.1, 0])
    >>> draw_component(Component(np.ones((3, 4, 32)), (part,)), cell_pixels=10, gap=5).shape
    (30, 130, 3)
    """
    panels = _panels(component, cell_pixels, max_displacement)
    white = np.full((panels[0].shape[0], gap, 3), 255, np.uint8)
    row = [piece for panel in panels for piece in (white, panel)][1:]
    return np.concatenate(row, axis=1)


def component_figure(model: MixtureModel, number: int) -> Figure:
    """Draw a component for a report, with titles over the panels."""
    component = model.components[number]
    rows, cols = component.root.shape[:2]
    # As many pixels as the page shows on a screen with fine pixels, whatever the number of cells.
    cell_pixels = max(2 * round(320 / max(rows, cols) / 2), 12)
    panels = _panels(component, cell_pixels, model.max_displacement)
    names = ["root", f"{len(component.parts)} parts, twice as fine", "cost of moving them"]
    # One scale for all components, so that they can be compared.
    inches = 3.0 / max(max(other.root.shape[:2]) for other in model.components)
    figure = new_figure(
        (max(cols * inches, 1.5) + 0.1) * len(panels), rows * inches + 0.3, layout="constrained"
    )
    for place, (panel, name) in enumerate(zip(panels, names, strict=False), start=1):
        axes = figure.add_subplot(1, len(panels), place)
        axes.imshow(panel, interpolation="antialiased")
        axes.set_title(name, fontsize=9)
        axes.set_axis_off()
    return figure


def _panels(component: Component, cell_pixels: int, max_displacement: int | None) -> list[Picture]:
    cell_pixels -= cell_pixels % 2
    root = root_picture(component, cell_pixels=cell_pixels)
    panels = [np.repeat(root[:, :, None], 3, axis=2)]
    if component.parts:
        panels.append(parts_picture(component, cell_pixels=cell_pixels))
        panels.append(
            deformation_picture(component, cell_pixels=cell_pixels, max_displacement=max_displacement)
        )
    return panels


def _costs(part: Part, max_displacement: int | None, fine: int) -> npt.NDArray[np.float64]:
    """Deformation cost over a part's frame, whose edges stand for the farthest moves; the least is 0."""
    reach = max_displacement or _COST_CELLS
    rows, cols = (size * fine for size in part.weights.shape[:2])
    dy, dx = np.meshgrid(np.linspace(-reach, reach, rows), np.linspace(-reach, reach, cols), indexing="ij")
    ax, bx, ay, by = part.deformation.astype(np.float64)
    cost = ax * dx**2 + bx * dx + ay * dy**2 + by * dy
    return cost - cost.min()


def _window(part: Part, fine: int, shape: Sequence[int]) -> tuple[slice, slice]:
    """Rows and columns that a part at its anchor covers in a picture."""
    x, y = part.anchor
    rows, cols = part.weights.shape[:2]
    return (
        slice(max(y * fine, 0), min((y + rows) * fine, shape[0])),
        slice(max(x * fine, 0), min((x + cols) * fine, shape[1])),
    )


def _framed(picture: Picture, parts: Sequence[Part], fine: int) -> Picture:
    """Draw a thin frame around each part, each in a hue of its own, the same in all panels."""
    for number, part in enumerate(parts):
        rows, cols = _window(part, fine, picture.shape)
        hue = colorsys.hsv_to_rgb(number / max(len(parts), 1), 0.55, 1.0)
        colour = tuple(round(255 * value) for value in hue)
        cv2.rectangle(picture, (cols.start, rows.start), (cols.stop - 1, rows.stop - 1), colour, 1)
    return picture


def _brightened(drawn: Picture) -> Picture:
    """Lift the middle tones: a single strong cell must not leave all others in the dark."""
    peak = float(np.quantile(drawn, 0.998)) or 255.0
    return np.rint(255 * np.clip(drawn / peak, 0, 1) ** 0.75).astype(np.uint8)
