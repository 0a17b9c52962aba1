"""VOC's AP against hand-worked cases, a slow independent implementation, and what must always hold."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visionkl.core.boxes import to_voc
from visionkl.core.errors import DataError, UsageError
from visionkl.core.types import Annotation, Detections
from visionkl.datasets.base import Dataset, Example
from visionkl.evaluation.voc import VOCScorer, average_precision, evaluate_detections, precision_recall


def dataset_of(annotations, classes=("car", "dog")):
    """A data set without pictures: scoring must not touch the pixels."""
    examples = [
        Example(image_id, f"{image_id}.jpg", lambda objects=objects: objects)
        for image_id, objects in annotations.items()
    ]
    return Dataset("made up", tuple(classes), examples)


# -- the slow reference, straight from the definition: devkit corners, one loop over the ranked list ---------


def slow_overlap(a, b):
    """Overlap of two boxes given as VOC corners (last pixel included)."""
    width = min(a[2], b[2]) - max(a[0], b[0]) + 1
    height = min(a[3], b[3]) - max(a[1], b[1]) + 1
    if width <= 0 or height <= 0:
        return 0.0
    area = (a[2] - a[0] + 1) * (a[3] - a[1] + 1) + (b[2] - b[0] + 1) * (b[3] - b[1] + 1)
    return width * height / (area - width * height)


def slow_curve(annotations, detections, label, min_overlap):
    """Points (true so far, counted so far) and the number of objects."""
    lines, objects, n_objects = [], {}, 0
    for image_id, annotation in annotations.items():
        objects[image_id] = []
        for box, name, difficult in zip(
            annotation.boxes, annotation.labels, annotation.difficult, strict=True
        ):
            if name == label:
                corners = [float(v) for v in to_voc(box)]
                objects[image_id].append({"corners": corners, "difficult": bool(difficult), "found": False})
                n_objects += not difficult
        found = detections.get(image_id, Detections())
        for box, score, name in zip(found.boxes, found.scores, found.labels, strict=True):
            if name == label:
                lines.append((float(score), image_id, [float(v) for v in to_voc(box)]))
    lines.sort(key=lambda line: -line[0])  # Python's sort keeps the order of equals
    points, n_true, n_counted = [], 0, 0
    for _, image_id, corners in lines:
        best, chosen = -1.0, None
        for candidate in objects[image_id]:
            overlap = slow_overlap(corners, candidate["corners"])
            if overlap > best:
                best, chosen = overlap, candidate
        if best >= min_overlap:
            if chosen["difficult"]:
                continue
            if not chosen["found"]:
                chosen["found"] = True
                n_true += 1
        n_counted += 1
        points.append((n_true, n_counted))
    return points, n_objects


def slow_ap(points, n_objects, metric):
    if n_objects == 0:
        return math.nan
    if metric == "07":
        total = 0.0
        for tenth in range(11):
            reached = [true / counted for true, counted in points if 10 * true >= tenth * n_objects]
            total += max(reached, default=0.0)
        return total / 11
    total = 0.0
    for found in range(1, n_objects + 1):  # the area is a sum over the objects: each widens the curve by 1/n
        total += max((true / counted for true, counted in points if true >= found), default=0.0)
    return total / n_objects


# -- random scenes -------------------------------------------------------------------------------------------


def random_scene(rng, n_images=8, integer=True):
    """Pictures with objects of two classes, and detections that hit, miss, double and tie."""
    annotations, detections = {}, {}
    for number in range(n_images):
        image_id = f"{number:06d}"
        n = int(rng.integers(0, 5))
        corner, side = rng.integers(0, 40, (n, 2)), rng.integers(4, 30, (n, 2))
        boxes = np.hstack([corner, corner + side]).astype(float)
        labels = rng.choice(["car", "dog"], n)
        annotations[image_id] = Annotation(boxes, labels, difficult=rng.random(n) < 0.25)
        m = int(rng.integers(0, 7))
        if n and m:
            near = boxes[rng.integers(0, n, m)] + rng.integers(-4, 5, (m, 4))
            near = near if integer else near + rng.random((m, 4))
            near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
            scores = rng.integers(0, 6, m) / 4 if integer else rng.normal(size=m)  # quarters tie often
            detections[image_id] = Detections(near, scores, tuple(rng.choice(["car", "dog"], m)))
    return annotations, detections


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=120, deadline=None)
@given(seed=seeds, integer=st.booleans(), min_overlap=st.sampled_from([0.3, 0.5, 0.7, 1.0]))
def test_equals_the_slow_reference(seed, integer, min_overlap):
    annotations, detections = random_scene(np.random.default_rng(seed), integer=integer)
    result = evaluate_detections(detections, dataset_of(annotations), min_overlap=min_overlap)
    for metric in ("07", "10"):
        for label, mine in result.with_metric(metric).by_class.items():
            points, n_objects = slow_curve(annotations, detections, label, min_overlap)
            assert mine.n_objects == n_objects
            if n_objects:
                assert mine.precision.tolist() == [true / counted for true, counted in points]
                assert mine.recall.tolist() == [true / n_objects for true, _ in points]
            assert mine.ap == pytest.approx(slow_ap(points, n_objects, metric), abs=1e-12, nan_ok=True)


# -- worked by hand ------------------------------------------------------------------------------------------

SQUARE = [0, 0, 10, 10]
AWAY = [50, 50, 60, 60]


def one_class(boxes, found, scores, *, metric="10", difficult=None, min_overlap=0.5):
    data = dataset_of({"a": Annotation(boxes, ["car"] * len(boxes), difficult=difficult)}, ["car"])
    return evaluate_detections(
        {"a": Detections(found, scores, "car")}, data, metric=metric, min_overlap=min_overlap
    )


def test_curve_worked_by_hand():
    # 3 objects; verdicts from the best score down: true, false, true, false. The third object is never found.
    objects = [SQUARE, [20, 0, 30, 10], [40, 0, 50, 10]]
    found = [SQUARE, [0, 50, 10, 60], [20, 0, 30, 10], [0, 70, 10, 80]]
    result = one_class(objects, found, [0.9, 0.8, 0.7, 0.6])
    car = result.by_class["car"]
    np.testing.assert_allclose(car.precision, [1, 1 / 2, 2 / 3, 1 / 2])
    np.testing.assert_allclose(car.recall, [1 / 3, 1 / 3, 2 / 3, 2 / 3])
    np.testing.assert_allclose(car.scores, np.float32([0.9, 0.8, 0.7, 0.6]))
    # Area: a third at precision 1, a third at 2/3, a third at 0.
    assert car.ap == pytest.approx((1 + 2 / 3) / 3)
    # Eleven points: recalls 0 to 0.3 see precision 1, 0.4 to 0.6 see 2/3, 0.7 to 1 see nothing.
    assert result.with_metric("07").by_class["car"].ap == pytest.approx((4 * 1 + 3 * 2 / 3) / 11)


def test_a_second_detection_of_the_same_object_is_false():
    result = one_class([SQUARE, AWAY], [SQUARE, SQUARE, AWAY], [0.9, 0.8, 0.7])
    assert result.mean_ap == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)


def test_a_duplicate_does_not_turn_to_another_object():
    # The second detection overlaps the first object best, which is taken; the other object, overlapped by
    # 0.6, stays unfound: the devkit looks at the best overlap alone.
    objects = [[0, 0, 10, 10], [0, 4, 10, 14]]
    result = one_class(objects, [[0, 0, 10, 10], [0, 1, 10, 11]], [0.9, 0.8])
    car = result.by_class["car"]
    assert car.recall.tolist() == [0.5, 0.5]
    assert car.precision.tolist() == [1, 0.5]


def test_difficult_objects_are_neither_counted_nor_punished():
    # Both detections of the difficult object are passed over, however many there are.
    result = one_class([SQUARE, AWAY], [SQUARE, SQUARE, AWAY], [0.9, 0.8, 0.7], difficult=[True, False])
    car = result.by_class["car"]
    assert (car.n_objects, car.n_difficult, car.n_detections) == (1, 1, 3)
    assert car.precision.tolist() == [1.0]
    assert car.ap == 1.0


def test_the_overlap_at_the_threshold_counts():
    half = [[0, 0, 10, 5]]  # overlaps the square by exactly a half
    assert one_class([SQUARE], half, [1.0], min_overlap=0.5).mean_ap == 1.0
    assert one_class([SQUARE], half, [1.0], min_overlap=0.5000001).mean_ap == 0.0


def test_of_equal_overlaps_the_first_object_counts():
    # The detection overlaps both by 2/3; the first is difficult, so the detection is ignored.
    objects = [[0, 0, 10, 8], [0, 4, 10, 12]]
    between = [[0, 2, 10, 10]]
    assert one_class(objects, between, [1.0], difficult=[True, False]).by_class["car"].precision.size == 0
    assert one_class(objects, between, [1.0], difficult=[False, True]).mean_ap == 1.0


def test_equal_scores_follow_the_order_of_the_pictures():
    car = Annotation([SQUARE], ["car"])
    hit, miss = Detections([SQUARE], [0.5], "car"), Detections([AWAY], [0.5], "car")
    right_first = dataset_of({"a": car, "b": Annotation()}, ["car"])
    wrong_first = dataset_of({"b": Annotation(), "a": car}, ["car"])
    for found in ({"a": hit, "b": miss}, {"b": miss, "a": hit}):  # the order of the mapping means nothing
        assert evaluate_detections(found, right_first).mean_ap == 1.0
        assert evaluate_detections(found, wrong_first).mean_ap == 0.5


def test_three_objects_of_ten_reach_the_recall_of_three_tenths():
    # 0.1 * 3 is more than 0.3 in floating point; the definition has no such accident.
    boxes = [[20 * i, 0, 20 * i + 10, 10] for i in range(10)]
    for n_found in range(11):
        result = one_class(boxes, boxes[:n_found], np.linspace(1, 0.5, n_found), metric="07")
        assert result.mean_ap == pytest.approx((n_found + 1) / 11 if n_found else 0)


def test_classes_without_objects_or_detections():
    annotations = {"a": Annotation([SQUARE, AWAY], ["car", "bus"], difficult=[False, True])}
    data = dataset_of(annotations, ["car", "bus", "dog", "cat"])
    found = {"a": Detections([SQUARE, SQUARE], [1, 1], ("dog", "bus"))}
    result = evaluate_detections(found, data)
    assert result.by_class["car"].ap == 0.0  # there, and never found
    assert math.isnan(result.by_class["bus"].ap)  # the only one is difficult
    assert math.isnan(result.by_class["dog"].ap)  # found, and not there
    assert math.isnan(result.by_class["cat"].ap)
    assert result.mean_ap == 0.0  # of car alone
    assert "left out of the mean" in result.table()
    assert math.isnan(evaluate_detections(found, data, ["dog"]).mean_ap)
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["classes"]["dog"]["ap"] == {
        "07": None,
        "10": None,
    }


def test_average_precision_of_simple_curves():
    for metric in ("07", "10"):
        assert average_precision([], [], metric) == 0.0
        assert average_precision([1.0], [1.0], metric) == pytest.approx(1.0)
        assert math.isnan(average_precision([np.nan], [0.0], metric))
    assert average_precision([0.05], [1.0], "07") == pytest.approx(1 / 11)
    assert average_precision([0.05], [1.0], "10") == pytest.approx(0.05)


# -- what must always hold -----------------------------------------------------------------------------------


def aps(detections, data, **options):
    result = evaluate_detections(detections, data, **options)
    return np.array([[r.ap for r in result.with_metric(m).by_class.values()] for m in ("07", "10")])


@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_perfect_detections_have_ap_1(seed):
    annotations, _ = random_scene(np.random.default_rng(seed))
    perfect = {
        image_id: Detections(a.boxes, np.ones(len(a)), a.labels) for image_id, a in annotations.items()
    }
    # Of two equal boxes, only the first could be found: leave such scenes out.
    for a in annotations.values():
        rows = {(*box, label) for box, label in zip(a.boxes.tolist(), a.labels, strict=True)}
        if len(rows) < len(a):
            return
    values = aps(perfect, dataset_of(annotations))
    np.testing.assert_allclose(values[~np.isnan(values)], 1.0, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_a_false_positive_below_all_others_never_helps(seed):
    annotations, detections = random_scene(np.random.default_rng(seed))
    data = dataset_of(annotations)
    outside = Detections([[500, 500, 510, 510]] * 2, [-100.0, -100.0], ("car", "dog"))
    more = dict(detections)
    more["000003"] = Detections.concatenate([more.get("000003", Detections()), outside])
    before, after = aps(detections, data), aps(more, data)
    assert np.all(np.isnan(before) | (after <= before + 1e-12))
    # The area does not even notice.
    np.testing.assert_allclose(after[1], before[1], atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_the_order_of_detections_means_nothing_without_ties(seed):
    rng = np.random.default_rng(seed)
    annotations, detections = random_scene(rng, integer=False)
    data = dataset_of(annotations)
    shuffled = {image_id: found[rng.permutation(len(found))] for image_id, found in detections.items()}
    turned = dict(reversed(shuffled.items()))
    np.testing.assert_array_equal(aps(detections, data), aps(turned, data))
    other_order = dataset_of(dict(reversed(annotations.items())))
    np.testing.assert_allclose(aps(detections, data), aps(turned, other_order), atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(seed=seeds, low=st.floats(0.05, 1), high=st.floats(0.05, 1))
def test_a_stricter_overlap_never_helps(seed, low, high):
    low, high = sorted([low, high])
    annotations, detections = random_scene(np.random.default_rng(seed))
    data = dataset_of(annotations)
    lenient, strict = aps(detections, data, min_overlap=low), aps(detections, data, min_overlap=high)
    assert np.all(np.isnan(lenient) | (strict <= lenient + 1e-12))


@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_only_the_order_of_scores_matters(seed):
    annotations, detections = random_scene(np.random.default_rng(seed))
    data = dataset_of(annotations)
    cubed = {
        image_id: Detections(found.boxes, (found.scores * 4) ** 3 - 10, found.labels)
        for image_id, found in detections.items()
    }
    np.testing.assert_array_equal(aps(detections, data), aps(cubed, data))
    stretched = {
        image_id: Detections(found.boxes * np.float32(2), found.scores, found.labels)
        for image_id, found in detections.items()
    }
    twice = {
        image_id: Annotation(a.boxes * np.float32(2), a.labels, a.difficult)
        for image_id, a in annotations.items()
    }
    np.testing.assert_array_equal(aps(detections, data), aps(stretched, dataset_of(twice)))


def test_streaming_equals_scoring_at_once():
    annotations, detections = random_scene(np.random.default_rng(5), n_images=30)
    scorer = VOCScorer(["car", "dog"])
    for image_id, objects in annotations.items():
        scorer.add(objects, detections.get(image_id, Detections()))
    once = evaluate_detections(detections, dataset_of(annotations))
    assert scorer.result("made up").to_dict() == once.to_dict()


# -- text, JSON, complaints ----------------------------------------------------------------------------------


def test_the_table_has_a_line_for_each_class_and_the_mean():
    annotations, detections = random_scene(np.random.default_rng(1), n_images=20)
    result = evaluate_detections(detections, dataset_of(annotations), metric="10")
    lines = result.table().splitlines()
    assert [line.split()[0] for line in lines if not line.startswith("-")] == ["class", "car", "dog", "mean"]
    assert "AP 10" in lines[0]
    assert lines[-1].endswith(f"{result.mean_ap:.4f}")
    assert len({len(line) for line in lines}) == 1


def test_json_has_both_metrics():
    annotations, detections = random_scene(np.random.default_rng(1), n_images=20)
    result = evaluate_detections(detections, dataset_of(annotations), metric="10")
    document = result.to_dict()
    assert document["metric"] == "10"
    assert document["mean_ap"]["10"] == result.mean_ap
    assert document["mean_ap"]["07"] == result.with_metric("07").mean_ap
    assert document["n_images"] == 20


def test_complaints():
    data = dataset_of({"a": Annotation([SQUARE], ["car"])}, ["car", "dog"])
    with pytest.raises(UsageError, match=r"made up: there is no class 'bicycle'; there are car, dog\."):
        evaluate_detections({}, data, ["bicycle"])
    with pytest.raises(UsageError, match="each class is named once"):
        evaluate_detections({}, data, ["car", "car"])
    with pytest.raises(DataError, match="the picture 'b' is not one of the 1 of made up"):
        evaluate_detections({"b": Detections()}, data)
    with pytest.raises(UsageError, match="'metric' parameter"):
        evaluate_detections({}, data, metric="12")
    for bad in (0, -0.5, 1.5, np.nan, "half"):
        with pytest.raises(UsageError, match="'min_overlap' parameter"):
            evaluate_detections({}, data, min_overlap=bad)
    with pytest.raises(UsageError, match="same length"):
        average_precision([0.5], [1.0, 1.0])
    with pytest.raises(UsageError, match="must not fall"):
        average_precision([0.5, 0.2], [1.0, 1.0])
    with pytest.raises(UsageError, match="same length"):
        precision_recall([0.5], [True, False], 1)
    with pytest.raises(UsageError, match="'n_objects' parameter"):
        precision_recall([0.5], [True], -1)


# -- the threshold of the best F1 ----------------------------------------------------------------------------


class TestBestF1:
    def result(self, found, objects=((0, 0, 10, 10), (20, 0, 30, 10))):
        scorer = VOCScorer(["car"])
        annotation = Annotation(np.reshape(objects, (-1, 4)), ["car"] * len(objects))
        boxes = [box for box, _ in found]
        scorer.add(annotation, Detections(np.reshape(boxes, (-1, 4)), [score for _, score in found], "car"))
        return scorer.result("one").by_class["car"]

    def test_it_lies_between_what_is_kept_and_what_is_not(self):
        mine = self.result([([0, 0, 10, 10], 3), ([20, 0, 30, 10], 2), ([50, 0, 60, 10], 1)])
        f1, point = mine.best_f1()
        assert (f1, point) == (1.0, 1)
        assert mine.threshold_after(point) == 1.5

    def test_after_the_last_detection_it_lies_just_below(self):
        mine = self.result([([0, 0, 10, 10], 3), ([20, 0, 30, 10], 2)])
        assert 1.9 < mine.threshold_after(mine.best_f1()[1]) < 2

    def test_equal_scores_stay_together(self):
        mine = self.result([([0, 0, 10, 10], 2), ([50, 0, 60, 10], 2), ([70, 0, 80, 10], 1)])
        assert mine.threshold_after(mine.best_f1()[1]) == 1.5

    @pytest.mark.parametrize(
        ("found", "objects"),
        [([], [(0, 0, 10, 10)]), ([([50, 0, 60, 10], 1)], [(0, 0, 10, 10)]), ([([0, 0, 5, 5], 1)], [])],
    )
    def test_where_nothing_was_found_there_is_none(self, found, objects):
        assert self.result(found, objects).best_f1() is None
