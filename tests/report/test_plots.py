"""Drawings in matplotlib, in arrays and in files."""

import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from visionkl.core.errors import DataError, UsageError
from visionkl.core.types import Annotation, Detections
from visionkl.report.overlay import PALETTE
from visionkl.report.plots import (
    draw_detections,
    plot_bars,
    plot_precision_recall,
    render_detections,
    save_detections,
)

FOUND = Detections([[20, 30, 120, 90]], [1.25], "cat", parts=[[[30, 40, 70, 80], [np.nan] * 4]])
GREY = np.full((100, 160, 3), 128, np.uint8)


def pixels(figure):
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[:, :, :3]


def test_axes_show_the_whole_picture_and_the_frame():
    ax = draw_detections(GREY, FOUND)
    drawn = pixels(ax.figure)
    assert drawn.shape[1] / drawn.shape[0] == pytest.approx(160 / 100, rel=0.01)
    scale = drawn.shape[1] / 160
    row, col = int(30.5 * scale), int(100 * scale)
    assert np.abs(drawn[row, col].astype(int) - PALETTE[0]).max() < 30
    assert np.abs(drawn[int(95 * scale), int(140 * scale)].astype(int) - 128).max() < 3


def test_axes_and_files_look_alike():
    """At one screen pixel per picture pixel, the two painters differ in the smoothing of edges only."""
    figure = Figure(figsize=(1.6, 1.0), dpi=100)
    draw_detections(
        GREY, FOUND, ax=figure.add_axes((0, 0, 1, 1)), annotation=Annotation([[5, 5, 90, 90]], ["x"])
    )
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    painted = render_detections(GREY, FOUND, annotation=Annotation([[5, 5, 90, 90]], ["x"]))
    assert (np.abs(pixels(figure).astype(int) - painted).max(axis=2) > 40).mean() < 0.02


def test_nothing_touches_pyplot():
    already = "matplotlib.pyplot" in sys.modules
    draw_detections(GREY, FOUND)
    assert ("matplotlib.pyplot" in sys.modules) == already


def test_detections_plot_themselves(tmp_path):
    Image.fromarray(GREY).save(tmp_path / "a.png")
    ax = FOUND.plot(tmp_path / "a.png", parts=False)
    assert len(ax.images) == 1


def test_given_axes_are_used_and_keep_their_size():
    figure = Figure()
    ax = figure.add_subplot()
    assert draw_detections(GREY, Detections(), ax=ax) is ax


@pytest.mark.parametrize("image", [GREY[:, :, 0], GREY.astype(float), np.full((100, 160), 300.0)])
def test_pictures_of_other_kinds(image):
    assert render_detections(image, FOUND).shape == (100, 160, 3)


@pytest.mark.parametrize("ending", ["png", "jpg", "JPEG"])
def test_files_have_the_size_of_the_picture(tmp_path, ending):
    path = save_detections(tmp_path / f"a.{ending}", GREY, FOUND)
    with Image.open(path) as drawn:
        assert (drawn.size, drawn.mode) == ((160, 100), "RGB")
    if ending == "png":
        np.testing.assert_array_equal(np.asarray(Image.open(path)), render_detections(GREY, FOUND))


def test_refusals(tmp_path):
    with pytest.raises(UsageError, match=r"a\.gif: drawings are written as \.png, \.jpg, \.jpeg"):
        save_detections(tmp_path / "a.gif", GREY, FOUND)
    with pytest.raises(DataError, match="no such file"):
        draw_detections(tmp_path / "none.png", FOUND)
    with pytest.raises(DataError, match="cannot write this file"):
        save_detections(tmp_path / "none" / "a.png", GREY, FOUND)
    assert list(tmp_path.iterdir()) == []


def test_precision_recall_curves_of_many_classes_can_be_told_apart():
    curves = {f"class {n}": (np.linspace(0, 1, 5), np.linspace(1, 0.5, 5), 0.75) for n in range(12)}
    ax = plot_precision_recall({**curves, "rare": ([], [], float("nan"))})
    looks = {(line.get_color(), line.get_linestyle()) for line in ax.lines}
    assert len(looks) == len(ax.lines) == 13
    assert ax.get_legend().get_texts()[-1].get_text() == "rare  no objects"
    assert pixels(ax.figure).std() > 0


def test_no_curves_at_all():
    assert plot_precision_recall({}).get_legend() is None


def test_bars_have_names_once_and_the_first_on_top():
    figure = plot_bars({"share": {"cats": 0.75, "dogs": 0.25}, "gain": {"cats": np.nan, "dogs": 0.5}})
    left, right = figure.axes
    assert [text.get_text() for text in left.texts] == ["0.75", "0.25"]
    assert left.get_ylim()[0] > left.get_ylim()[1]
    assert [patch.get_width() for patch in right.patches][1] == 0.5
    assert pixels(figure).std() > 0
