"""The cases that the report of a training run shows, and what it says of them."""

import numpy as np
import pytest

from visionkl.core.types import Annotation, Detections
from visionkl.datasets.base import Dataset, Example
from visionkl.evaluation.errors import analyse_errors
from visionkl.run import training_report as report

CAR, SECOND, DOG, WALL = [0, 0, 10, 10], [20, 0, 40, 10], [60, 0, 70, 10], [80, 80, 90, 90]
BESIDE = [20, 0, 30, 8]  # two fifths of the second car


@pytest.fixture
def street():
    objects = Annotation([CAR, SECOND, DOG], ["car", "car", "dog"])
    return Example("street", "street.png", lambda: objects)


def analyse(street, boxes, scores):
    data = Dataset("streets", ("car", "dog"), [street])
    return analyse_errors({"street": Detections(boxes, scores, "car")}, data, "car")


def test_each_false_detection_says_what_it_is(street):
    errors = analyse(street, [CAR, [0, 0, 10, 9], BESIDE, DOG, WALL], [5, 4, 3, 2, 1])
    cases = report._false_cases(errors, {"street": street})
    assert [case.caption for case in cases] == [
        "street, score 4.00: duplicate",
        "street, score 3.00: badly placed, overlaps a car by 40%",
        "street, score 2.00: other class: dog",
        "street, score 1.00: background",
    ]
    assert [list(case.detection) for case in cases] == [[0, 0, 10, 9], BESIDE, DOG, WALL]


def test_true_detections_above_the_threshold_best_first(street):
    errors = analyse(street, [SECOND, CAR, WALL], [1, 2, 3])
    for threshold, captions in (
        (0, ["street, score 2.00", "street, score 1.00"]),
        (1, ["street, score 2.00"]),
        (2, []),
    ):
        cases = report._true_cases(errors, {"street": street}, threshold)
        assert [case.caption for case in cases] == captions


@pytest.mark.parametrize(
    ("boxes", "captions"),
    [
        ([SECOND, CAR], ["street, 10 × 10 pixels, seen, but with a score of 1.00"]),
        ([CAR, BESIDE], ["street, 20 × 10 pixels, badly placed, at best 40%"]),
        (
            [WALL, DOG],
            ["street, 20 × 10 pixels, not seen at all", "street, 10 × 10 pixels, not seen at all"],
        ),
    ],
)
def test_missed_objects_largest_first_with_what_came_nearest(street, boxes, captions):
    cases = report._missed_cases(analyse(street, boxes, [2, 1]), {"street": street}, threshold=1)
    assert [case.caption for case in cases] == captions
    for case in cases:
        assert case.detection is None if "not seen" in case.caption else list(case.detection) == boxes[1]


def test_the_table_of_errors_and_its_figure(street, tmp_path):
    class Run:
        plots = tmp_path

    page = report.Report("cars")
    report._add_errors(page, Run, analyse(street, [DOG, CAR], [2, 1]))
    assert "1 of 2 objects are found" in page.to_html()
    assert "100%" in page.to_html()
    assert (tmp_path / "errors.png").stat().st_size > 1000
    (tmp_path / "errors.png").unlink()
    nothing = report.Report("cars")
    report._add_errors(nothing, Run, analyse(street, np.zeros((0, 4)), []))
    assert "0 of 2 objects are found" in nothing.to_html()
    assert not (tmp_path / "errors.png").exists()
