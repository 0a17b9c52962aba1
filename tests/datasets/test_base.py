"""What all data sets share: a pass over one, checks of boxes and of classes."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets.small_data import voc_object, write_picture
from visionkl.core.errors import DataError, UsageError
from visionkl.datasets.base import BoxError, Dataset, Example, check_boxes, check_classes, data_folder, usable
from visionkl.datasets.voc import VOC


@pytest.fixture
def mixed(devkit):
    """Four pictures: a good one, one without a file, one with an empty box, another good one."""
    devkit.add("a", voc_object()).add("b", voc_object(), picture=False)
    devkit.add("c", voc_object(box=(9, 9, 9, 20))).add("d", voc_object())
    devkit.list("val", "a", "b", "c", "d")
    return devkit.folder


class TestUsable:
    def test_stops_at_the_first_bad_example(self, mixed):
        passing = usable(VOC(mixed, split="val"))
        example, image = next(passing)
        assert (example.id, image.shape) == ("a", (80, 100, 3))
        with pytest.raises(DataError, match=r"b\.jpg: there is no such file"):
            next(passing)

    @pytest.mark.parametrize("told", ["when it is opened", "when it is read"])
    def test_leaves_out_and_names_bad_examples(self, mixed, told):
        opened = told == "when it is opened"
        data = VOC(mixed, split="val", on_bad_data="skip" if opened else "raise")
        left_out = []
        kept = usable(data, None if opened else "skip", on_skip=lambda *pair: left_out.append(pair))
        assert [example.id for example, _ in kept] == ["a", "d"]
        assert [example.id for example, _ in left_out] == ["b", "c"]
        assert "b.jpg: there is no such file" in str(left_out[0][1])
        assert "c.xml: the box of object number 1" in str(left_out[1][1])

    def test_names_them_in_the_log_by_default(self, mixed, caplog):
        with caplog.at_level(logging.WARNING, logger="visionkl"):
            assert len(list(usable(VOC(mixed, split="val"), "skip"))) == 2
        assert [record.getMessage().split(":")[0] for record in caplog.records] == ["left out"] * 2

    def test_annotations_need_not_be_readable_where_only_pictures_are_wanted(self, mixed):
        kept = usable(VOC(mixed, split="val"), "skip", annotations=False, on_skip=lambda *_: None)
        assert [example.id for example, _ in kept] == ["a", "c", "d"]

    def test_nothing_usable_is_an_error_even_then(self, tmp_path):
        data = Dataset("mine", (), [Example("a", tmp_path / "a.jpg"), Example("b", tmp_path / "b.jpg")])
        with pytest.raises(DataError, match=r"mine: not one of its 2 pictures can be used; .*a\.jpg"):
            list(usable(data, "skip", on_skip=lambda *_: None))

    def test_policies(self, mixed):
        with pytest.raises(
            UsageError, match="The 'on_bad_data' parameter of VOC must be one of 'raise', 'skip'"
        ):
            VOC(mixed, split="val", on_bad_data="ignore")
        with pytest.raises(UsageError, match="The 'on_bad_data' parameter of usable"):
            next(usable(VOC(mixed, split="val"), "ignore"))


class TestCheckBoxes:
    def complaint(self, *boxes, size=(100, 50), **options):
        with pytest.raises(BoxError) as caught:
            check_boxes(np.array(boxes, dtype=float), size, "box {}".format, **options)
        return str(caught.value), caught.value.n_empty, caught.value.n_outside

    def test_good_boxes_pass(self):
        check_boxes(np.zeros((0, 4)), (100, 50), str)
        check_boxes(np.array([[0, 0, 100, 50], [-5, -5, 1, 1], [99, 49, 200, 200.0]]), (100, 50), str)

    @pytest.mark.parametrize(
        ("box", "says"),
        [
            ((5, 5, 5, 9), "is empty"),
            ((9, 5, 5, 9), "is inside out"),
            ((5, 9, 8, 2), "is inside out"),
            ((np.nan, 5, 5, 9), "is not made of finite numbers"),
            ((0, 5, np.inf, 9), "is not made of finite numbers"),
        ],
    )
    def test_empty_boxes(self, box, says):
        assert self.complaint((0, 0, 9, 9), box) == (f"box 1 {says}.", 1, 0)

    @pytest.mark.parametrize("box", [(100, 5, 120, 9), (5, 50, 9, 60), (-9, 0, 0, 9), (0, -9, 9, 0)])
    def test_boxes_outside(self, box):
        assert self.complaint(box) == ("box 0 lies outside of the picture, which has 100 × 50 pixels.", 0, 1)

    def test_all_bad_boxes_are_counted(self):
        message, n_empty, n_outside = self.complaint(
            (5, 5, 5, 5), (0, 0, 9, 9), (6, 6, 6, 9), (200, 0, 201, 9)
        )
        assert "box 0 is empty (2 more of this picture cannot be used, either)." in message
        assert (n_empty, n_outside) == (2, 1)

    def test_shortest_sides(self):
        check_boxes(np.array([[0, 0, 1.5, 9]]), (100, 50), str, sides_above=1.0)
        assert self.complaint((0, 0, 1, 9), sides_above=1.0)[1] == 1

    @given(st.lists(st.tuples(*[st.integers(-3, 8)] * 4), min_size=1, max_size=5))
    def test_as_by_counting_pixels(self, boxes):
        width, height = 5, 4

        def pixels(x1, y1, x2, y2):
            return [(x, y) for x in range(x1, x2) for y in range(y1, y2)]

        n_empty = sum(not pixels(*box) for box in boxes)
        n_outside = sum(
            bool(pixels(*box)) and not any(0 <= x < width and 0 <= y < height for x, y in pixels(*box))
            for box in boxes
        )
        if n_empty or n_outside:
            assert self.complaint(*boxes, size=(width, height))[1:] == (n_empty, n_outside)
        else:
            check_boxes(np.array(boxes, dtype=float), (width, height), str)


def test_check_classes():
    assert check_classes("mine", ["b", "a"], ("a", "b", "c")) == ("b", "a")
    with pytest.raises(UsageError, match=r"^mine: there is no class 'd'; there are a, b\.$"):
        check_classes("mine", ["a", "d"], ("a", "b"))
    with pytest.raises(UsageError, match=r"^mine: no class is asked for; there are a\.$"):
        check_classes("mine", [], ("a",))
    with pytest.raises(UsageError, match=r"must be a list of names\. Got 'a' instead"):
        check_classes("mine", "a", ("a",))


def test_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("VISIONKL_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.setenv("VISIONKL_DATA", "")
    assert str(data_folder()) == "datasets"


def test_an_example_reads_what_it_is_asked_for(tmp_path):
    example = Example("a", write_picture(tmp_path / "a.png", size=(30, 20)))
    assert (example.size(), example.image().shape, len(example.annotation)) == ((30, 20), (20, 30, 3), 0)
