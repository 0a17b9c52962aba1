"""What is drawn where: properties that every drawing has."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visionkl.core.types import Annotation, Detections
from visionkl.report.overlay import (
    PALETTE,
    RIM_COLOUR,
    TRUTH_COLOUR,
    Frame,
    class_colours,
    font_size_for,
    paint,
    plan_overlay,
    strokes,
)


@st.composite
def scenes(draw):
    width, height = draw(st.integers(1, 700)), draw(st.integers(1, 700))
    n = draw(st.integers(0, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    corners = np.sort(rng.uniform(-0.3, 1.3, (n, 2, 2)), axis=1) * [width, height]
    parts = np.sort(rng.uniform(-0.3, 1.3, (n, 3, 2, 2)), axis=2) * [width, height]
    parts[rng.random((n, 3)) < 0.3] = np.nan
    labels = rng.choice(["dog", "a rather long class name", "ß"], n)
    detections = Detections(corners.reshape(n, 4), rng.normal(size=n), labels, parts=parts.reshape(n, 3, 4))
    return width, height, detections


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_tags_never_leave_the_picture(scene):
    width, height, detections = scene
    for tag in plan_overlay(width, height, detections).tags:
        x1, y1, x2, y2 = tag.box
        assert 0 <= x1 < x2 <= width
        assert 0 <= y1 < y2 <= height


@settings(max_examples=30, deadline=None)
@given(scenes())
def test_anything_can_be_painted_and_the_source_stays(scene):
    width, height, detections = scene
    image = np.full((height, width, 3), 90, np.uint8)
    annotation = Annotation(detections.boxes, detections.labels)
    drawn = paint(image, plan_overlay(width, height, detections, annotation=annotation))
    assert (drawn.shape, drawn.dtype) == (image.shape, np.uint8)
    assert (image == 90).all()


def test_every_detection_in_the_picture_has_a_frame_and_a_tag_and_the_best_lies_on_top():
    found = Detections(
        [[10, 50, 90, 90], [20, 60, 80, 95], [200, 200, 300, 300]], [0.5, 1.5, 9.0], ["cat", "dog", "cat"]
    )
    overlay = plan_overlay(100, 100, found)
    assert [frame.box for frame in overlay.frames] == [(10, 50, 90, 90), (20, 60, 80, 95)]
    assert [tag.text for tag in overlay.tags] == ["cat 0.50", "dog 1.50"]


def test_tags_of_separate_objects_do_not_hide_each_other():
    boxes = [[x, 100, x + 150, 300] for x in (10, 170, 330)] + [[10, 100, 160, 310]]
    tags = plan_overlay(500, 375, Detections(boxes, [4, 3, 2, 1], "bicycle")).tags
    for first in range(4):
        for second in range(first):
            a, b = tags[first].box, tags[second].box
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_the_usual_place_of_a_tag_is_above_the_frame():
    (tag,) = plan_overlay(500, 375, Detections([[100, 100, 300, 300]], [1], "bus")).tags
    assert (tag.box[0], tag.box[3]) == (100, 100)
    (tag,) = plan_overlay(500, 375, Detections([[100, 2, 300, 300]], [1], "bus")).tags
    assert (tag.box[0], tag.box[1]) == (100, 2)  # no room above: inside


def test_choosing_what_is_drawn():
    parts = np.array([[[10, 10, 60, 60], [np.nan] * 4]] * 3)
    found = Detections([[5, 5, 400, 300]] * 3, [3, 2, 1], "cat", parts=parts)
    assert len(plan_overlay(500, 375, found).frames) == 3 + 3
    assert len(plan_overlay(500, 375, found, parts=False).frames) == 3
    assert len(plan_overlay(500, 375, found, parts=False, min_score=1.5).frames) == 2
    assert len(plan_overlay(500, 375, found, parts=False, max_count=1).frames) == 1


def test_parts_of_tiny_objects_are_left_out():
    parts = np.array([[[10, 10, 16, 16], [14, 14, 20, 20]]])
    assert len(plan_overlay(500, 375, Detections([[8, 8, 24, 24]], [1], "cat", parts=parts)).frames) == 1


def test_objects_that_were_labelled_are_dashed_and_white():
    overlay = plan_overlay(500, 375, Detections(), annotation=Annotation([[10, 20, 110, 120]], ["cat"]))
    assert [(frame.dashed, frame.colour) for frame in overlay.frames] == [(True, TRUTH_COLOUR)]
    drawn = paint(np.full((375, 500, 3), 90, np.uint8), overlay)
    upper_edge = {tuple(pixel) for pixel in drawn[20, 12:108].tolist()}
    assert TRUTH_COLOUR in upper_edge
    assert len(upper_edge) > 1


@pytest.mark.parametrize("ground", [0, 255])
@pytest.mark.parametrize("colour", PALETTE)
def test_a_frame_shows_on_black_and_on_white(ground, colour):
    """The line or its rim differs from the ground by at least a fifth of the whole range."""
    frame = Frame((2, 2, 30, 30), colour, 2, 1, 0.6)
    greys = [
        np.dot(line, [0.299, 0.587, 0.114]) for line in (colour, ground * 0.4 + 0.6 * np.array(RIM_COLOUR))
    ]
    assert max(abs(grey - ground) for grey in greys) > 51
    assert {stroke[1] for stroke in strokes(frame)} == {colour, RIM_COLOUR}


def test_strokes_cover_each_pixel_of_the_line_once():
    for box in [(3, 4, 20, 15), (3.4, 4.6, 20.2, 15.1), (5, 5, 6, 6), (5, 5, 8, 7), (5, 5, 5, 5)]:
        covered = np.zeros((40, 40), int)
        for (x1, y1, x2, y2), colour, _ in strokes(Frame(box, (255, 0, 0), 2, 1, 0.5)):
            if colour == (255, 0, 0):
                covered[int(y1) : int(y2), int(x1) : int(x2)] += 1
        assert covered.max() == 1
        rows, cols = np.nonzero(covered)
        assert (cols.min(), rows.min()) == (round(box[0]), round(box[1]))


def test_colours_follow_the_given_order_and_repeat_after_the_last():
    assert class_colours(["b", "a"], ordered=False) == {"a": PALETTE[0], "b": PALETTE[1]}
    assert class_colours(["b", "a"], ordered=True) == {"b": PALETTE[0], "a": PALETTE[1]}
    many = class_colours([f"{n:02}" for n in range(20)], ordered=True)
    assert many["07"] == many["00"]
    found = Detections([[10, 20, 90, 90]], [1], "b")
    assert plan_overlay(100, 100, found, classes=["a", "b"]).frames[0].colour == PALETTE[1]


def test_letters_grow_with_the_picture_but_more_slowly():
    sizes = [font_size_for(n, n) for n in (10, 200, 500, 1000, 4000)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 9
    assert sizes[-1] / 4000 < sizes[2] / 500
