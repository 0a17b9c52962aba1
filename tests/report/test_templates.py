"""Pictures of components: each filter where it belongs, bright where it wants to see something."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.detection.conftest import random_model
from visionkl.detection.model import Component, MixtureModel, Part
from visionkl.features.hog import mirror
from visionkl.report.metrics import plot_metrics
from visionkl.report.templates import (
    component_figure,
    deformation_picture,
    draw_component,
    parts_picture,
    root_picture,
    views,
)

FREELY = [0.001, 0, 0.001, 0]


def one_cell(rows, cols, y, x, channel=0):
    weights = np.zeros((rows, cols, 32), np.float32)
    weights[y, x, channel] = 1
    return weights


def test_a_cell_is_drawn_where_it_is():
    drawn = root_picture(Component(one_cell(4, 6, 1, 5)), cell_pixels=20)
    assert drawn.shape == (80, 120)
    assert drawn[20:40, 100:120].max() == 255
    drawn[20:40, 100:120] = 0
    assert drawn.max() == 0


def test_a_part_is_drawn_at_its_anchor_at_twice_the_resolution():
    part = Part(one_cell(3, 3, 2, 0), (5, 1), FREELY)
    drawn = parts_picture(Component(one_cell(4, 6, 0, 0), (part,)), cell_pixels=20)
    assert drawn.shape == (80, 120, 3)
    grey = drawn.min(axis=2)
    inside = grey[11:39, 51:79].copy()  # within the frame of the part
    assert np.argwhere(inside > 200)[:, 0].min() >= 19
    assert np.argwhere(inside > 200)[:, 1].max() <= 9
    assert drawn[:10].max() == 0
    assert drawn[10, 60].max() == 255  # the frame
    behind = parts_picture(Component(one_cell(4, 6, 0, 0), (part,)), cell_pixels=20, dim_root=0.5)
    assert 100 < behind[:10, :20].max() < 150


def test_moving_costs_least_in_the_middle_or_where_the_part_is_drawn_to():
    size = 6
    still = Part(one_cell(size, size, 0, 0), (0, 0), [0.1, 0, 0.1, 0])
    drawn = deformation_picture(Component(one_cell(5, 5, 0, 0), (still,)), cell_pixels=20)
    place = np.unravel_index(drawn[2:58, 2:58, 0].argmin(), (56, 56))
    assert np.allclose(place, 27.5, atol=1)
    drawn_right = replace(still, deformation=[0.1, -0.4, 0.1, 0])  # best at dx = 2 of at most 4
    drawn = deformation_picture(
        Component(one_cell(5, 5, 0, 0), (drawn_right,)), cell_pixels=20, max_displacement=4
    )
    y, x = np.unravel_index(drawn[2:58, 2:58, 0].argmin(), (56, 56))
    assert (abs(y - 27.5) <= 1, abs(x - 43) <= 2) == (True, True)


def test_parts_may_reach_past_the_root():
    parts = tuple(Part(np.ones((6, 6, 32)), anchor, FREELY) for anchor in ((-3, -2), (5, 7), (30, 30)))
    component = Component(np.ones((4, 4, 32)), parts)
    assert draw_component(component, cell_pixels=11, gap=0).shape == (40, 120, 3)


def test_a_rigid_component_is_its_root():
    assert draw_component(Component(np.ones((3, 4, 32))), cell_pixels=10).shape == (30, 40, 3)


def test_a_filter_that_wants_nothing_is_black():
    part = Part(-np.ones((2, 2, 32)), (0, 0), FREELY)
    drawn = parts_picture(Component(-np.ones((3, 3, 32)), (part,)))
    assert drawn[30:].max() == 0


def test_mirror_images_are_recognised():
    model = random_model()
    first, twin, second = model.components
    assert views(model) == [(0, None), (1, None), (2, None)]  # its twin is not mirrored in the channels
    twin = replace(twin, root=mirror(first.root))
    assert views(replace(model, components=(second, first, twin))) == [(0, None), (1, 2)]
    alike = MixtureModel("x", (first, twin, first, twin))
    assert views(alike) == [(0, 1), (2, 3)]


@pytest.mark.parametrize("shape", [(3, 12), (12, 3), (8, 8)])
def test_figures_fit_on_a_page(shape):
    part = Part(np.ones((3, 3, 32)), (0, 0), FREELY)
    for parts, panels in (((), 1), ((part,), 3)):
        model = MixtureModel("x", (Component(np.ones((*shape, 32)), parts),))
        figure = component_figure(model, 0)
        assert len(figure.axes) == panels
        width, height = figure.get_size_inches()
        assert width <= 3.2 * panels
        assert height <= 3.4


class TestMetrics:
    def test_numbers_are_plotted_and_names_are_not(self):
        rows = [{"step": 1, "name": "roots", "seconds": 1, "objective": 3.0}]
        rows += [{"step": step, "name": "x", "seconds": 2, "objective": "2", "moved": ""} for step in (1, 2)]
        rows += [{"step": 2, "name": "x", "seconds": 2, "objective": "nan", "moved": step} for step in (1, 2)]
        figure = plot_metrics(rows)
        assert isinstance(figure, Figure)
        assert [axes.get_title() for axes in figure.axes] == ["objective", "moved"]
        assert [len(axes.lines[0].get_xdata()) for axes in figure.axes] == [3, 2]

    @pytest.mark.parametrize("rows", [[], [{"step": 1, "objective": 1}], [{"step": 1, "name": "x"}] * 3])
    def test_nothing_to_plot(self, rows):
        assert plot_metrics(rows) is None
