"""Curves of one figure against another: time or accuracy against the number of samples, say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from visionkl.report.plots import PALETTE_ON_WHITE, new_figure

# The legend of more would hide some of them.
_FEW_CURVES = 4


@dataclass(frozen=True)
class Curve:
    """One line of a plot.

    Parameters
    ----------
    name : str
        As the legend gives it.
    x, y : sequence of float
    error : sequence of float, optional
        Half the length of the error bars.
    quoted : bool
        Whether it was taken from a publication: such lines are dashed.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | None = None
    quoted: bool = False


def plot_curves(
    curves: Sequence[Curve], *, x_label: str, y_label: str, log_x: bool = False, log_y: bool = False
) -> Figure:
    """Plot curves into one pair of axes.

    Parameters
    ----------
    curves : sequence of Curve
    x_label, y_label : str
    log_x, log_y : bool
        Whether an axis is logarithmic.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> ours = Curve("ours", [1e3, 1e4], [0.1, 1.0])
    >>> figure = plot_curves([ours], x_label="samples", y_label="seconds", log_x=True, log_y=True)
    >>> figure.axes[0].get_xlabel(), [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ('samples', ['ours'])
    """
    many = len(curves) > _FEW_CURVES
    figure = new_figure(8.0 if many else 6.0, 4.0, layout="constrained")
    axes = figure.add_subplot()
    for number, curve in enumerate(curves):
        colour = tuple(value / 255 for value in PALETTE_ON_WHITE[number % len(PALETTE_ON_WHITE)])
        axes.errorbar(
            curve.x,
            curve.y,
            yerr=curve.error,
            label=curve.name,
            color=colour,
            linestyle="--" if curve.quoted else "-",
            marker="s" if curve.quoted else "o",
            markersize=4,
            linewidth=1.4,
            capsize=2,
        )
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.set_xscale("log" if log_x else "linear")
    axes.set_yscale("log" if log_y else "linear")
    axes.grid(alpha=0.3, which="both" if log_x or log_y else "major")
    legend = axes.legend(frameon=False, fontsize="small")
    if many:
        legend.set_loc("center left")
        legend.set_bbox_to_anchor((1.01, 0.5))
    return figure


def growth(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the slope of y against x on logarithmic axes: 1 for what grows linearly, 3 for cubic time.

    Examples
    --------
    >>> round(growth([10, 100, 1000], [2, 20, 200]), 6)
    1.0
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
