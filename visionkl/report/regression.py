"""What regressions answer: points of one number against another, and rows of small pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy.typing as npt
from matplotlib.figure import Figure

from visionkl.report.plots import PALETTE_ON_WHITE, new_figure


def plot_answers(
    samples: tuple[npt.ArrayLike, npt.ArrayLike],
    answers: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
    *,
    x_label: str,
    y_label: str,
) -> Figure:
    """Plot what several methods answer, each in axes of its own, over the samples in grey.

    Parameters
    ----------
    samples : tuple of two array_like of float, shape (n,)
        x and y.
    answers : mapping of str to tuple of two array_like of float, shape (m,)
        x and y, by the method's name.
    x_label, y_label : str

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> figure = plot_answers(([0, 1], [0, 1]), {"ridge": ([0.5], [0.4])}, x_label="x", y_label="r")
    >>> [axes.get_title() for axes in figure.axes]
    ['ridge']
    """
    figure = new_figure(2.6 * len(answers), 2.8, layout="constrained")
    first = None
    for number, (name, (x, y)) in enumerate(answers.items()):
        axes = figure.add_subplot(1, len(answers), number + 1, sharex=first, sharey=first)
        first = first or axes
        colour = tuple(value / 255 for value in PALETTE_ON_WHITE[number % len(PALETTE_ON_WHITE)])
        axes.plot(*samples, ".", color="0.82", markersize=4)
        axes.plot(x, y, ".", color=colour, markersize=4)
        axes.set_title(name, fontsize=9)
        axes.set_xlabel(x_label)
        axes.tick_params(labelsize=8, labelleft=number == 0)
    if first is not None:
        first.set_ylabel(y_label)
    return figure


def plot_picture_rows(rows: Mapping[str, Sequence[npt.ArrayLike]], *, low: float, high: float) -> Figure:
    """Plot grey pictures in rows, one picture of each row below those of the others.

    Parameters
    ----------
    rows : mapping of str to sequence of array_like of float, shape (rows, cols)
        Pictures by the name of their row; NaN stays empty.
    low, high : float
        The values of white and of black.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> figure = plot_picture_rows({"digit": [[[0.0, 1.0]]] * 3, "answer": [[[1.0, 0.0]]] * 3}, low=0, high=1)
    >>> len(figure.axes), figure.axes[3].get_ylabel()
    (6, 'answer')
    """
    n = max(map(len, rows.values()))
    figure = new_figure(1.6 + 0.62 * n, 0.66 * len(rows), layout="constrained")
    for row, (name, pictures) in enumerate(rows.items()):
        for column, picture in enumerate(pictures):
            axes = figure.add_subplot(len(rows), n, row * n + column + 1)
            axes.imshow(picture, cmap="Greys", vmin=low, vmax=high)
            axes.set_xticks([])
            axes.set_yticks([])
            if column == 0:
                axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    return figure
