"""Drawings of segments: the picture dimmed outside of them, and their outlines in colour."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from visionkl.core.validation import check_picture
from visionkl.report.overlay import PALETTE, Colour
from visionkl.report.plots import new_figure

Picture = npt.NDArray[np.uint8]

_DIMMED = 0.35
_COLUMNS = 4
_INCHES = 2.2  # width of a panel


def draw_segment(image: npt.ArrayLike, mask: npt.ArrayLike, colour: Colour = PALETTE[0]) -> Picture:
    """Draw one segment: all outside is dimmed, and the outline drawn.

    Parameters
    ----------
    image : array_like, shape (rows, cols) or (rows, cols, 3)
        With values 0..255.
    mask : array_like of bool, shape (rows, cols)
    colour : tuple of int
        Red, green and blue of the outline.

    Returns
    -------
    ndarray of uint8, shape (rows, cols, 3)

    Examples
    --------
    >>> mask = np.zeros((20, 30), bool)
    >>> mask[5:15, 5:20] = True
    >>> drawn = draw_segment(np.full((20, 30), 100), mask)
    >>> drawn[0, 0].tolist(), drawn[10, 10].tolist(), drawn[5, 10].tolist()
    ([35, 35, 35], [100, 100, 100], [230, 159, 0])
    """
    pixels = np.clip(np.rint(check_picture(image, "draw_segment")), 0, 255)
    inside = np.asarray(mask, bool)
    drawn = np.where(inside[:, :, None], pixels, _DIMMED * pixels).astype(np.uint8)
    width = max(round(max(inside.shape) / 250), 1)
    square = np.ones((2 * width + 1, 2 * width + 1), np.uint8)
    outline = inside & (cv2.erode(inside.astype(np.uint8), square, borderValue=0) == 0)
    drawn[outline] = colour
    return drawn


def plot_segments(panels: Sequence[tuple[npt.ArrayLike, npt.ArrayLike, str]]) -> Figure:
    """Plot segments in rows of four.

    Parameters
    ----------
    panels : sequence of (image, mask, title)

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> figure = plot_segments([(np.zeros((20, 30)), np.ones((20, 30), bool), "all")])
    >>> figure.axes[0].get_title()
    'all'
    """
    columns = min(_COLUMNS, max(len(panels), 1))
    rows = -(-len(panels) // columns)
    figure = new_figure(_INCHES * columns, _INCHES * 0.85 * max(rows, 1), layout="constrained")
    for number, (image, mask, title) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1)
        axes.imshow(draw_segment(image, mask))
        axes.set_title(title, fontsize=8)
        axes.set_axis_off()
    return figure
