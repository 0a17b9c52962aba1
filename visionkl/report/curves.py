"""Curves of one figure against another: time or accuracy against the number of samples, say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from visionkl.report.plots import PALETTE_ON_WHITE, new_figure

# The legend of more would hide some of them.
_FEW_CURVES = 4
# matplotlib marks powers of ten, of which a logarithmic axis of fewer decades shows one or none.
_FEW_DECADES = 2.0
# Share of an axis that a digit below it takes.
_DIGIT = 0.02


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
        Whether an axis is logarithmic. Such an x axis that spans less than two decades is marked where the
        curves have points.

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
    if log_x:
        _mark_points(axes, sorted({float(x) for curve in curves for x in curve.x if x > 0}))
    axes.set_yscale("log" if log_y else "linear")
    axes.grid(alpha=0.3, which="both" if log_x or log_y else "major")
    legend = axes.legend(frameon=False, fontsize="small")
    if many:
        legend.set_loc("center left")
        legend.set_bbox_to_anchor((1.01, 0.5))
    return figure


def _mark_points(axes: Axes, points: Sequence[float]) -> None:
    """Put the ticks of a short logarithmic axis at the points, but for those whose labels would overlap."""
    if not points or points[-1] >= points[0] * 10**_FEW_DECADES:
        return
    labels = {point: f"{point:.0f}" if point >= 1000 else f"{point:.3g}" for point in points}
    room = _DIGIT * (1 + max(map(len, labels.values()))) * np.log(points[-1] / points[0])
    first, *others = points
    shown = [first]
    for point in others:
        is_last = point == points[-1]
        if is_last or min(np.log(point / shown[-1]), np.log(points[-1] / point)) >= room:
            shown.append(point)
    axes.set_xticks(shown, [labels[point] for point in shown])
    axes.xaxis.set_minor_locator(NullLocator())


def growth(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the slope of y against x on logarithmic axes: 1 for what grows linearly, 3 for cubic time.

    Examples
    --------
    >>> round(growth([10, 100, 1000], [2, 20, 200]), 6)
    1.0
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
