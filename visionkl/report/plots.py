"""Pictures with detections drawn in, precision–recall curves, and bars.

Three ways to draw detections, with one look (`visionkl.report.overlay` decides what goes where):

- `draw_detections` draws into matplotlib axes, as vectors: for notebooks and figures; `Detections.plot` calls
  it;
- `render_detections` returns the drawn picture as an array;
- `save_detections` writes it to a PNG or JPEG file at the picture's own resolution.

The last two paint with Pillow, which is several times faster than matplotlib. matplotlib is used through
`Figure` objects alone, never through pyplot: nothing needs a display, and threads do not meet in global
state.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D
from PIL import Image

from visionkl.core.errors import UsageError
from visionkl.core.files import atomic_write
from visionkl.core.image import read_image
from visionkl.core.types import Annotation, Detections
from visionkl.core.validation import check_picture
from visionkl.report.overlay import (
    FONT_FILE,
    PALETTE,
    TAG_OPACITY,
    Box,
    Colour,
    Tag,
    paint,
    plan_overlay,
    strokes,
)

#: File endings that `save_detections` writes, and how.
_FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"format": "PNG", "compress_level": 1},
    ".jpg": {"format": "JPEG", "quality": 92, "subsampling": 0},
    ".jpeg": {"format": "JPEG", "quality": 92, "subsampling": 0},
}


def draw_detections(
    image: npt.ArrayLike | str | Path,
    detections: Detections,
    *,
    ax: Axes | None = None,
    parts: bool = True,
    min_score: float | None = None,
    max_count: int = 100,
    annotation: Annotation | None = None,
    classes: Sequence[str] | None = None,
) -> Axes:
    """Draw a picture with what was found in it into matplotlib axes.

    Parameters
    ----------
    image : array_like of shape (rows, cols) or (rows, cols, 3), or path
        The picture, with values 0..255, or its file.
    detections : Detections
    ax : matplotlib Axes, optional
        Where to draw; a new figure of the picture's shape by default (`ax.figure.savefig` writes it).
    parts : bool
        Whether to draw the boxes of the parts, too.
    min_score : float, optional
        Leave out detections below this score.
    max_count : int
        Draw only so many detections, the best.
    annotation : Annotation, optional
        Labelled objects, drawn as dashed white frames.
    classes : sequence of str, optional
        The order in which classes get their colours; by default the alphabetical order of those detected.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> found = Detections([[10, 30, 90, 80]], [1.25], "cat")
    >>> ax = draw_detections(np.zeros((100, 120, 3), np.uint8), found)
    >>> [float(end) for end in (*ax.get_xlim(), *ax.get_ylim())]
    [0.0, 120.0, 100.0, 0.0]
    """
    pixels = _pixels(image)
    height, width = pixels.shape[:2]
    overlay = plan_overlay(
        width,
        height,
        detections,
        parts=parts,
        min_score=min_score,
        max_count=max_count,
        annotation=annotation,
        classes=classes,
    )
    if ax is None:
        longer = 8.0 / max(width, height)
        figure = new_figure(max(width * longer, 1.0), max(height * longer, 1.0))
        ax = figure.add_axes((0, 0, 1, 1))
    ax.imshow(pixels, extent=(0, width, height, 0))
    rectangles = [stroke for frame in overlay.frames for stroke in strokes(frame)]
    if rectangles:
        ax.add_collection(
            PolyCollection(
                [_corners(box) for box, _, _ in rectangles],
                facecolors=[_rgba(colour, opacity) for _, colour, opacity in rectangles],
                linewidths=0,
                snap=False,  # or lines thinner than a pixel of the screen come and go
            ),
            autolim=False,
        )
    for tag in overlay.tags:
        _add_tag(ax, tag, overlay.font_size)
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)
    ax.set_axis_off()
    return ax


def render_detections(
    image: npt.ArrayLike | str | Path, detections: Detections, **options: Any
) -> npt.NDArray[np.uint8]:
    """Return the picture with detections drawn in, uint8 RGB `(rows, cols, 3)`.

    Parameters are those of `draw_detections`, without `ax`.

    Examples
    --------
    >>> found = Detections([[10, 30, 90, 80]], [1.25], "cat")
    >>> drawn = render_detections(np.zeros((100, 120, 3), np.uint8), found)
    >>> drawn.shape, drawn[30, 50].tolist()
    ((100, 120, 3), [230, 159, 0])
    """
    pixels = _pixels(image)
    return paint(pixels, plan_overlay(pixels.shape[1], pixels.shape[0], detections, **options))


def save_detections(
    path: str | Path, image: npt.ArrayLike | str | Path, detections: Detections, **options: Any
) -> Path:
    """Write the picture with detections drawn in to a PNG or JPEG file, at its own resolution.

    Parameters are those of `draw_detections`, without `ax`. The file appears whole or not at all.
    """
    path = Path(path)
    settings = _FORMATS.get(path.suffix.lower())
    if settings is None:
        raise UsageError(f"{path}: drawings are written as {', '.join(_FORMATS)}; choose one of these.")
    drawn = Image.fromarray(render_detections(image, detections, **options))
    with atomic_write(path, "wb") as file:
        drawn.save(file, **settings)
    return path


def plot_precision_recall(
    curves: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike, float]],
    ax: Axes | None = None,
    *,
    legend: bool = True,
) -> Axes:
    """Plot precision over recall for several classes.

    Parameters
    ----------
    curves : mapping of str to (recall, precision, ap)
        Arrays of equal length, and the average precision that the legend shows (NaN for "no objects").
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    legend : bool
        Whether to name the curves.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> ax = plot_precision_recall({"bus": ([0.0, 0.5, 1.0], [1.0, 1.0, 0.6], 0.87)})
    >>> ax.get_legend().get_texts()[0].get_text()
    'bus  AP 0.870'
    """
    if ax is None:
        ax = new_figure(6.4, 4.8, layout="constrained").add_subplot()
    dashes = ("-", "--", ":", "-.")
    for number, (name, (recall, precision, ap)) in enumerate(curves.items()):
        ax.step(
            np.asarray(recall, dtype=float),
            np.asarray(precision, dtype=float),
            where="post",
            color=_rgba(PALETTE_ON_WHITE[number % len(PALETTE_ON_WHITE)], 1.0),
            # More classes than colours: the dashes tell them apart.
            linestyle=dashes[number // len(PALETTE_ON_WHITE) % len(dashes)],
            linewidth=1.8,
            label=f"{name}  AP {ap:.3f}" if np.isfinite(ap) else f"{name}  no objects",
        )
    ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="recall", ylabel="precision")
    ax.grid(alpha=0.3)
    if curves and legend:
        ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize="small")
    return ax


def plot_bars(columns: Mapping[str, Mapping[Any, float]]) -> Figure:
    """Plot small bar charts side by side, with the same rows.

    Parameters
    ----------
    columns : mapping of str to mapping of str to float
        The charts by their titles; each gives the same names a number. NaN has no bar.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> figure = plot_bars({"share": {"cats": 0.7, "dogs": 0.3}, "gain": {"cats": 0.1, "dogs": 0.0}})
    >>> [axes.get_title() for axes in figure.axes], [label.get_text() for label in figure.axes[0].texts]
    (['share', 'gain'], ['0.7', '0.3'])
    """
    names = list(next(iter(columns.values())))
    figure = new_figure(1.0 + 2.5 * len(columns), 0.7 + 0.3 * len(names), layout="constrained")
    first: Axes | None = None
    for number, (title, values) in enumerate(columns.items()):
        axes = figure.add_subplot(1, len(columns), number + 1, sharey=first)
        colour = _rgba(PALETTE_ON_WHITE[number % len(PALETTE_ON_WHITE)], 1.0)
        bars = axes.barh(names, [values[name] for name in names], color=colour, height=0.7)
        axes.bar_label(bars, fmt="{:.2g}", padding=3, fontsize=8)
        axes.set_title(textwrap.fill(title, 32), fontsize=9)
        axes.margins(x=0.2)
        axes.tick_params(labelsize=8, labelleft=first is None, left=False)
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.xaxis.set_visible(False)
        if first is None:
            first = axes
            axes.invert_yaxis()  # the first row on top
    return figure


def plot_confusion(counts: npt.ArrayLike, classes: Sequence[str]) -> Figure:
    """Plot which classes are taken for which.

    Parameters
    ----------
    counts : array_like of int, shape (n, n)
        Pictures by their class (rows) and the class they were given to (columns).
    classes : sequence of str

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> figure = plot_confusion([[3, 1], [0, 4]], ["cat", "dog"])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['3', '1', '4']
    """
    matrix = np.asarray(counts, dtype=float)
    n = len(classes)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    side = min(max(0.3 * n, 1.5), 8.0)
    figure = new_figure(side + 1.6, side + 1.2, layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    font_size = 8 if n <= 40 else 5
    axes.set_xticks(range(n), list(classes), rotation=90, fontsize=font_size)
    axes.set_yticks(range(n), list(classes), fontsize=font_size)
    axes.set(xlabel="given to", ylabel="is")
    for row, column in zip(*np.nonzero(matrix), strict=True) if n <= 40 else ():
        ink = "white" if shares[row, column] > 0.6 else "black"
        text = f"{matrix[row, column]:.0f}"
        axes.text(column, row, text, ha="center", va="center", color=ink, fontsize=7)
    return figure


def plot_shares(shares: npt.ArrayLike, rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """Plot a table of shares as shades, with the numbers written in.

    Parameters
    ----------
    shares : array_like of float, shape (n_rows, n_columns)
        Between 0 and 1; the darkest is the largest that occurs.
    rows, columns : sequence of str

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> figure = plot_shares([[0.75, 0.25], [0.0, 1.0]], ["cat", "dog"], ["colour", "shape"])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['0.75', '0.25', '1.00']
    """
    matrix = np.asarray(shares, dtype=float)
    figure = new_figure(2.2 + 0.55 * len(columns), 1.4 + 0.28 * len(rows), layout="constrained")
    axes = figure.add_subplot()
    most = matrix.max(initial=0) or 1.0
    axes.imshow(matrix, cmap="Blues", vmin=0, vmax=most, aspect="auto")
    axes.set_xticks(range(len(columns)), list(columns), rotation=40, ha="right", fontsize=8)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=8)
    for row, column in zip(*np.nonzero(matrix), strict=True):
        ink = "white" if matrix[row, column] > 0.6 * most else "black"
        text = f"{matrix[row, column]:.2f}"
        axes.text(column, row, text, ha="center", va="center", color=ink, fontsize=7)
    return figure


def new_figure(width: float, height: float, **settings: Any) -> Figure:
    """Make a figure of so many inches that belongs to no window and to no global list."""
    figure = Figure(figsize=(width, height), dpi=100, **settings)
    FigureCanvasAgg(figure)
    return figure


#: Okabe–Ito in an order that reads well on paper: without the pale yellow.
PALETTE_ON_WHITE = tuple(PALETTE[number] for number in (6, 5, 4, 3, 0, 1))


def _pixels(image: npt.ArrayLike | str | Path) -> npt.NDArray[np.uint8]:
    if isinstance(image, str | Path):
        return read_image(image)
    return np.clip(np.rint(check_picture(image, "draw_detections")), 0, 255).astype(np.uint8)


def _add_tag(ax: Axes, tag: Tag, font_size: int) -> None:
    """Draw a tag as shapes in pixels of the picture, so that it keeps its place at any size of the figure."""
    ground = PolyCollection([_corners(tag.box)], facecolors=[_rgba(tag.ground, TAG_OPACITY)], linewidths=0)
    ax.add_collection(ground, autolim=False)
    letters = TextPath((0, 0), tag.text, size=font_size, prop=FontProperties(fname=str(FONT_FILE)))
    upright = Affine2D().scale(1, -1).translate(*tag.anchor)
    ax.add_patch(PathPatch(upright.transform_path(letters), facecolor=_rgba(tag.ink, 1.0), linewidth=0))


def _corners(box: Box) -> list[tuple[float, float]]:
    x1, y1, x2, y2 = box
    return [(x1, y1), (x2, y1), (x2, y2), (x1, y2)]


def _rgba(colour: Colour, opacity: float) -> tuple[float, float, float, float]:
    red, green, blue = colour
    return red / 255, green / 255, blue / 255, opacity
