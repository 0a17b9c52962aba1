"""Kinds of errors: worked by hand, against a slow reference, and in agreement with VOC's AP."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluation.test_voc_ap import dataset_of, random_scene, slow_overlap
from visionkl.core.boxes import to_voc
from visionkl.core.errors import DataError, UsageError
from visionkl.core.types import Annotation, Detections
from visionkl.evaluation.errors import FALSE_KINDS, KINDS, analyse_errors
from visionkl.evaluation.voc import evaluate_detections

CAR, SECOND, HARD, DOG = [0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10], [60, 0, 70, 10]
STREET = Annotation([CAR, SECOND, HARD, DOG], ["car", "car", "car", "dog"], [False, False, True, False])


def analyse(boxes, scores, objects=STREET, **options):
    found = {"street": Detections(boxes, scores, "car")}
    return analyse_errors(found, dataset_of({"street": objects}), "car", **options)


# -- worked by hand ------------------------------------------------------------------------------------------


def test_every_kind_worked_by_hand():
    beside = [0, 8, 10, 18]  # shares 20 of 180 with the car: 1/9
    boxes = [beside, CAR, [0, 1, 10, 10], HARD, DOG, [80, 80, 90, 90], [0, 9, 10, 19]]
    errors = analyse(boxes, [7, 6, 5, 4, 3, 2, 1])
    assert [found.kind for found in errors.detections] == [
        "localisation", "true", "duplicate", "ignored", "other class", "background", "background"
    ]  # fmt: skip
    assert [found.near for found in errors.detections] == ["car", "car", "car", "car", "dog", "", ""]
    np.testing.assert_allclose(
        [found.overlap for found in errors.detections], [1 / 9, 1, 0.9, 1, 1, 0, 10 / 190]
    )
    assert errors.counts == {
        "true": 1, "ignored": 1, "duplicate": 1, "localisation": 1, "other class": 1, "background": 2
    }  # fmt: skip
    assert errors.false_positives[0].box == tuple(beside)
    assert [found.score for found in errors.false_positives] == [7, 5, 3, 2, 1]


def test_objects_worked_by_hand():
    errors = analyse([[0, 8, 10, 18], [0, 0, 10, 8], [20, 0, 30, 4], HARD], [4, 3, 2, 1])
    first, second, hard = errors.objects
    assert (first.found, first.score, first.overlap) == (True, 3, pytest.approx(0.8))
    # Four tenths are too little to find it; the score is that of the box that came near.
    assert (second.found, second.score, second.overlap) == (False, 2, pytest.approx(0.4))
    assert (hard.found, hard.difficult, hard.score) == (True, True, 1)
    assert [missed.box for missed in errors.misses] == [tuple(SECOND)]
    assert errors.n_objects == 2


def test_an_object_that_nobody_came_near_has_no_score():
    errors = analyse([[80, 80, 90, 90]], [1])
    assert all(math.isnan(thing.score) and thing.overlap == 0 for thing in errors.objects)
    assert len(errors.misses) == 2  # the difficult one is not missed


def test_an_object_lost_to_a_duplicate_is_missed_with_its_overlap():
    objects = Annotation([[0, 0, 10, 10], [0, 4, 10, 14]], ["car", "car"])
    errors = analyse([[0, 0, 10, 10], [0, 1, 10, 11]], [2, 1], objects)
    assert [found.kind for found in errors.detections] == ["true", "duplicate"]
    (missed,) = errors.misses
    assert (missed.score, missed.overlap) == (2, pytest.approx(7 / 13))


def test_a_box_between_two_classes_is_a_bad_place_first():
    objects = Annotation([[0, 0, 10, 10], [0, 8, 10, 18]], ["car", "dog"])
    errors = analyse([[0, 7, 10, 17]], [1], objects)
    assert errors.detections[0].kind == "localisation"
    assert errors.detections[0].overlap == pytest.approx(3 / 17)


def test_shares_and_gains_worked_by_hand():
    # Two objects: false, true, false, false, true; of the two worst, one of each kind.
    boxes = [DOG, CAR, [0, 1, 10, 10], [80, 80, 90, 90], SECOND]
    errors = analyse(boxes, [5, 4, 3, 2, 1], metric="10")
    assert errors.shares == {"duplicate": 0.5, "localisation": 0, "other class": 0.5, "background": 0}
    assert errors.ap == pytest.approx(0.5 * 1 / 2 + 0.5 * 2 / 5)
    gains = {
        "duplicate": 0.5 * (1 / 2) + 0.5 * (2 / 4) - errors.ap,
        "localisation": 0,
        "other class": 0.5 * 1 + 0.5 * (2 / 4) - errors.ap,
        "background": 0.5 * (1 / 2) + 0.5 * (2 / 4) - errors.ap,
    }
    assert errors.gains == pytest.approx(gains)


def test_nothing_found_and_nothing_to_find():
    empty = analyse_errors({}, dataset_of({"street": STREET}), "car")
    assert (empty.ap, empty.counts["true"], len(empty.misses)) == (0.0, 0, 2)
    assert set(empty.shares.values()) == set(empty.gains.values()) == {0.0}
    pointless = analyse([CAR], [1], Annotation([CAR], ["dog"]))
    assert math.isnan(pointless.ap)
    assert pointless.to_dict()["gains"] == dict.fromkeys(FALSE_KINDS)
    assert "none" in pointless.table()


def test_table_and_json():
    errors = analyse([DOG, CAR, [0, 1, 10, 10], [80, 80, 90, 90]], [4, 3, 2, 1])
    lines = errors.table().splitlines()
    assert lines[0].startswith("car on made up: 1 of 2 objects found, AP 07 0.")
    assert [line.split("  ")[0] for line in lines[2:]] == list(KINDS)
    document = json.loads(json.dumps(errors.to_dict(n_worst=2), allow_nan=False))
    assert [found["kind"] for found in document["false_positives"]] == ["other class", "duplicate"]
    assert document["misses"] == [
        {"image_id": "street", "box": SECOND, "difficult": False, "found": False, "overlap": 0, "score": None}
    ]
    assert document["n_found"] == 1


def test_complaints():
    data = dataset_of({"street": STREET})
    with pytest.raises(UsageError, match="there is no class 'cat'"):
        analyse_errors({}, data, "cat")
    with pytest.raises(DataError, match="the picture 'b' is not one of the 1"):
        analyse_errors({"b": Detections()}, data, "car")
    with pytest.raises(UsageError, match="'metric' parameter"):
        analyse_errors({}, data, "car", metric="12")
    with pytest.raises(UsageError, match=r"'min_overlap' parameter .* between 0.1 and 1"):
        analyse_errors({}, data, "car", min_overlap=0.05)


# -- what must always hold -----------------------------------------------------------------------------------

scenes = {
    "seed": st.integers(0, 2**32 - 1),
    "integer": st.booleans(),
    "metric": st.sampled_from(["07", "10"]),
    "min_overlap": st.sampled_from([0.1, 0.3, 0.5, 0.8]),
}


@settings(max_examples=80, deadline=None)
@given(**scenes)
def test_agrees_with_the_average_precision(seed, integer, metric, min_overlap):
    annotations, detections = random_scene(np.random.default_rng(seed), integer=integer)
    data = dataset_of(annotations)
    options = {"metric": metric, "min_overlap": min_overlap}
    result = evaluate_detections(detections, data, **options)
    for label, expected in result.by_class.items():
        errors = analyse_errors(detections, data, label, **options)
        assert errors.n_objects == expected.n_objects
        assert len(errors.objects) == expected.n_objects + expected.n_difficult
        assert len(errors.detections) == sum(errors.counts.values()) == expected.n_detections
        kept = [found for found in errors.detections if found.kind != "ignored"]
        assert [found.score for found in kept] == expected.scores.tolist()
        if expected.n_objects:
            n_true = round(expected.recall[-1] * expected.n_objects) if len(expected.recall) else 0
            assert errors.counts["true"] == n_true == errors.n_objects - len(errors.misses)
            assert errors.ap == expected.ap  # to the last bit
            assert min(errors.gains.values()) >= 0
        else:
            assert math.isnan(errors.ap)


@settings(max_examples=80, deadline=None)
@given(**scenes)
def test_kinds_follow_from_overlaps(seed, integer, metric, min_overlap):
    annotations, detections = random_scene(np.random.default_rng(seed), integer=integer)
    errors = analyse_errors(detections, dataset_of(annotations), "car", metric, min_overlap)
    for found in errors.detections:
        corners = to_voc(found.box)
        own, foreign = [0.0], [0.0]
        annotation = annotations[found.image_id]
        for box, label in zip(annotation.boxes, annotation.labels, strict=True):
            (own if label == "car" else foreign).append(slow_overlap(corners, to_voc(box)))
        if max(own) >= min_overlap:
            expected = {"true", "ignored", "duplicate"}
        elif max(own) >= 0.1:
            expected = {"localisation"}
        else:
            expected = {"other class"} if max(foreign) >= 0.1 else {"background"}
        assert found.kind in expected
        assert found.overlap == pytest.approx(max(foreign if found.kind == "other class" else own))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_without_false_positives_precision_is_perfect(seed):
    annotations, detections = random_scene(np.random.default_rng(seed))
    data = dataset_of(annotations)
    errors = analyse_errors(detections, data, "car", metric="10")
    right = {}
    for found in errors.detections:
        if found.kind == "true":
            right.setdefault(found.image_id, []).append(found)
    kept = {
        image_id: Detections([f.box for f in some], [f.score for f in some], "car")
        for image_id, some in right.items()
    }
    if errors.n_objects:
        assert analyse_errors(kept, data, "car", metric="10").ap == pytest.approx(
            errors.counts["true"] / errors.n_objects
        )
