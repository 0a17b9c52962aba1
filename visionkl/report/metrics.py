"""Curves of training: whatever figures were recorded, one small plot each, over the rounds.

The rounds of one step of training stand on a band of their own, so that one sees where the task changed: a
jump of the objective at the border of a band is no failure, since new negatives or parts came in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from visionkl.report.plots import PALETTE_ON_WHITE, new_figure

_COLUMNS = 3
_MOST_PLOTS = 12


def plot_metrics(
    rows: Sequence[Mapping[str, Any]], *, step: str = "step", leave_out: Sequence[str] = ("seconds",)
) -> Figure | None:
    """Plot every figure that was recorded.

    Parameters
    ----------
    rows : sequence of mapping
        One for each round; values are numbers, or texts that may be numbers, as a CSV file gives them.
    step : str
        The column that tells the steps apart.
    leave_out : sequence of str
        Columns that are not plotted.

    Returns
    -------
    Figure or None
        None if there is nothing to plot: no column with two numbers.

    Examples
    --------
    >>> figure = plot_metrics([{"step": 1, "objective": 0.9}, {"step": 1, "objective": "0.5"}])
    >>> [axes.get_title() for axes in figure.axes]
    ['objective']
    """
    names = dict.fromkeys(name for row in rows for name in row if name not in (step, *leave_out))
    columns = {name: np.array([_number(row.get(name)) for row in rows]) for name in names}
    shown = {name: values for name, values in columns.items() if np.isfinite(values).sum() >= 2}
    shown = dict(list(shown.items())[:_MOST_PLOTS])
    if not shown:
        return None
    n_rows = -(-len(shown) // _COLUMNS)
    n_cols = min(len(shown), _COLUMNS)
    figure = new_figure(3.1 * n_cols, 2.1 * n_rows, layout="constrained")
    steps = np.array([_number(row.get(step)) for row in rows])
    for place, (name, values) in enumerate(shown.items(), start=1):
        axes = figure.add_subplot(n_rows, n_cols, place)
        _add_bands(axes, steps)
        there = np.isfinite(values)
        colour = tuple(value / 255 for value in PALETTE_ON_WHITE[0])
        rounds = np.arange(1, len(rows) + 1)
        axes.plot(rounds[there], values[there], "o-", color=colour, markersize=3, linewidth=1.2)
        axes.set_title(name.replace("_", " "), fontsize=9)
        axes.tick_params(labelsize=7)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.set_xlim(0.5, len(rows) + 0.5)
        axes.grid(alpha=0.3)
    return figure


def _add_bands(axes: Axes, steps: np.ndarray) -> None:
    starts = np.flatnonzero(np.diff(steps, prepend=np.nan) != 0)
    for number, (first, end) in enumerate(zip(starts, [*starts[1:], len(steps)], strict=True)):
        if number % 2:
            axes.axvspan(first + 0.5, end + 0.5, color="0.5", alpha=0.12, linewidth=0)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
