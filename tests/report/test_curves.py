"""Curves of one figure against another: where their axes are marked."""

import itertools

import numpy as np
import pytest

from visionkl.report.curves import Curve, plot_curves


def drawn(*curves, **settings):
    """Draw, and return the axes and the labels below them that can be seen, with where they are."""
    figure = plot_curves(curves, x_label="samples", y_label="seconds", log_x=True, **settings)
    figure.canvas.draw()
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    ticks = [*axes.xaxis.get_major_ticks(), *axes.xaxis.get_minor_ticks()]
    seen = {
        tick.label1.get_text(): tick
        for tick in ticks
        if low <= tick.get_loc() <= high and tick.label1.get_text()
    }
    return axes, seen


def overlaps(seen):
    boxes = sorted((tick.label1.get_window_extent() for tick in seen.values()), key=lambda box: box.x0)
    return any(left.x1 > right.x0 for left, right in itertools.pairwise(boxes))


@pytest.mark.parametrize(
    "measured",
    [[200, 400], [2500, 5000, 10_000, 20_000, 60_000], [0.5, 0.75, 1.5], [30, 100, 300, 1000], [500]],
)
def test_short_axes_are_marked_where_it_was_measured(measured):
    _, seen = drawn(Curve("a", measured, measured), Curve("b", measured[:1], measured[:1]))
    assert [float(label) for label in seen] == measured
    assert [tick.get_loc() for tick in seen.values()] == measured
    assert not overlaps(seen)


@pytest.mark.parametrize(
    "measured",
    [
        [2500, 5000, 7500, 10_000, 12_000, 13_000, 60_000],
        [300, 320, 350, 1200, 1250, 8800, 9000],
        np.geomspace(10_000, 900_000, 50),
        np.linspace(1000, 1010, 11),
    ],
)
def test_marks_that_would_overlap_are_left_out(measured):
    _, seen = drawn(Curve("a", measured, measured))
    places = [tick.get_loc() for tick in seen.values()]
    assert set(places) < set(map(float, measured))
    assert {measured[0], measured[-1]} <= set(places)
    assert len(places) > 2
    assert not overlaps(seen)


def test_many_curves_leave_room_for_the_marks():
    measured = np.geomspace(10_000, 900_000, 30)
    _, seen = drawn(*(Curve(f"method number {i}, of the paper", measured, measured) for i in range(6)))
    assert not overlaps(seen)


def test_long_axes_are_marked_at_powers_of_ten():
    axes, seen = drawn(Curve("a", [1000, 2500, 150_000], [1, 2, 3]))
    assert {1000, 10_000, 100_000} <= set(axes.get_xticks())
    assert 2500 not in [tick.get_loc() for tick in seen.values()]


def test_linear_axes_stay_as_they_are():
    figure = plot_curves([Curve("a", [13, 27], [1, 2])], x_label="x", y_label="y")
    assert not {13, 27} & set(figure.axes[0].get_xticks())
