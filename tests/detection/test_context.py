"""Context rescoring: its features by hand, its scores against scikit-learn, and a problem where it helps."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from sklearn.svm import SVC

from visionkl.core.errors import DataError, UsageError
from visionkl.core.types import Annotation, Detections
from visionkl.datasets.base import Dataset, Example
from visionkl.detection.context import ContextRescorer, context_features
from visionkl.evaluation.voc import evaluate_detections

SIZE = (200, 100)


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    """Of the pictures only the size matters: one file stands for all."""
    path = tmp_path_factory.mktemp("context") / "blank.png"
    Image.new("L", SIZE).save(path)
    return path


def dataset_of(annotations, picture, classes=("car", "road")):
    examples = [Example(i, picture, lambda objects=objects: objects) for i, objects in annotations.items()]
    return Dataset("streets", classes, examples)


def streets(seed, picture, n_images=120):
    """Cars are right where there is a road, in the lower half; their own scores hardly tell."""
    rng = np.random.default_rng(seed)
    annotations, found = {}, {}
    for number in range(n_images):
        with_road = rng.random() < 0.5
        boxes, scores, labels, objects = [], [], [], []
        for _ in range(4):
            x, lower = rng.uniform(0, 150), rng.random() < 0.5
            box = [x, 60.0 * lower, x + 40, 60.0 * lower + 30]
            if with_road and lower:
                objects.append(box)
            boxes.append(box)
            scores.append(rng.normal(0.2 if with_road and lower else 0.0, 0.5))
            labels.append("car")
        boxes.append([0, 50, 200, 100])
        scores.append(rng.normal(1 if with_road else -1, 0.3))
        labels.append("road")
        image_id = f"{number:04d}"
        roads = [[0, 50, 200, 100]] * with_road
        annotations[image_id] = Annotation(objects + roads, ["car"] * len(objects) + ["road"] * len(roads))
        found[image_id] = Detections(boxes, scores, labels)
    return found, dataset_of(annotations, picture)


def rescored(rescorer, found):
    return {image_id: rescorer.rescore(some, SIZE) for image_id, some in found.items()}


# -- what it computes ----------------------------------------------------------------------------------------


def test_features_worked_by_hand():
    found = Detections(
        [[20, 10, 120, 60], [0, 0, 200, 100], [0, 0, 1, 1]], [1.0, -1.0, 0.5], ("car", "dog", "car")
    )
    features = context_features(found, SIZE, ("dog", "car", "cat"))
    squashed = 1 / (1 + np.exp(-2 * np.array([1.0, -1.0, 0.5])))
    around = [squashed[1], squashed[0], 0]
    expected = [
        [squashed[0], 0.1, 0.1, 0.6, 0.6, *around],
        [squashed[1], 0, 0, 1, 1, *around],
        [squashed[2], 0, 0, 1 / 200, 1 / 100, *around],
    ]
    np.testing.assert_allclose(features, expected, rtol=1e-12)
    assert features.dtype == np.float64
    extreme = context_features(Detections([[0, 0, 1, 1]] * 2, [1e30, -1e30], "car"), SIZE, ("car",))
    assert extreme[:, 0].tolist() == [1, 0]


def test_scores_are_those_of_the_support_vector_machine(picture):
    found, data = streets(0, picture)
    rescorer = ContextRescorer(cost=3.0).fit(found, data)
    for label in ("car", "road"):
        rows, right = [], []
        for example in data:
            some, objects = found[example.id], example.annotation.of(label)
            mine = [name == label for name in some.labels]
            rows.append(context_features(some, SIZE, data.classes)[mine])
            # Boxes of these streets are the objects' own or far from them all.
            right += [box in objects.boxes.tolist() for box in some.boxes[mine].tolist()]
        machine = SVC(C=3.0, kernel="poly", degree=2, gamma=1.0, coef0=1.0)
        machine.fit(np.concatenate(rows), right)
        for example, features in zip(data, rows, strict=True):
            ours = rescorer.rescore(found[example.id], SIZE).filter(labels=label).scores
            theirs = np.sort(machine.decision_function(features))[::-1]
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_only_scores_and_order_change(picture):
    found, data = streets(0, picture)
    some = Detections(
        found["0000"].boxes, found["0000"].scores, found["0000"].labels,
        components=np.arange(5), parts=np.arange(40).reshape(5, 2, 4),
    )  # fmt: skip
    again = ContextRescorer().fit(found, data).rescore(some, SIZE)
    assert (np.diff(again.scores) <= 0).all()
    order = again.components
    assert sorted(order.tolist()) == [0, 1, 2, 3, 4]
    assert again.labels == tuple(some.labels[i] for i in order)
    np.testing.assert_array_equal(again.boxes, some.boxes[order])
    np.testing.assert_array_equal(again.parts, some.parts[order])


def test_difficult_objects_teach_nothing(picture):
    here, there = [0, 0, 40, 30], [100, 60, 140, 90]
    objects = {"a": Annotation([here, there], ["car", "car"], difficult=[False, True])}
    found = {"a": Detections([here, [100, 0, 140, 30]], [1, 0], "car")}
    more = {"a": Detections([here, [100, 0, 140, 30], there], [1, 0, 0.5], "car")}
    data = dataset_of(objects, picture)
    plain, with_difficult = (ContextRescorer().fit(some, data).forms_ for some in (found, more))
    np.testing.assert_array_equal(plain, with_difficult)


def test_a_second_detection_of_an_object_is_wrong(picture):
    """The better of the two is the first, wherever it stands in the list."""
    here, near, elsewhere = [0, 0, 40, 30], [2, 0, 42, 30], [100, 60, 140, 90]
    data = dataset_of({"a": Annotation([here, elsewhere], ["car", "road"])}, picture)
    found = {"a": Detections([near, here, elsewhere, here], [0.5, 1.0, 2.0, 0.1], "car")}
    rescorer = ContextRescorer(cost=1000).fit(found, data)
    assert rescorer.counts_.tolist() == [[1, 3], [0, 0]]
    best = rescorer.rescore(found["a"], SIZE)
    assert best.boxes[0].tolist() == here
    assert best.scores[0] > 0 > best.scores[1]


# -- what it is good for -------------------------------------------------------------------------------------


def test_context_helps_where_it_must(picture):
    rescorer = ContextRescorer().fit(*streets(0, picture))
    found, data = streets(1, picture)
    before = evaluate_detections(found, data, ["car"], "10").mean_ap
    after = evaluate_detections(rescored(rescorer, found), data, ["car"], "10").mean_ap
    assert before < 0.5
    assert after > 0.95


def test_one_class_learns_places(picture):
    found, data = streets(0, picture)
    cars = {image_id: some.filter(labels="car") for image_id, some in found.items()}
    rescorer = ContextRescorer().fit(cars, data, ["car"])
    assert rescorer.forms_.shape == (1, 7, 7)
    before = evaluate_detections(cars, data, ["car"], "10").mean_ap
    after = evaluate_detections(rescored(rescorer, cars), data, ["car"], "10").mean_ap
    assert after > before + 0.1


def test_a_class_that_cannot_be_learned_keeps_its_order(picture):
    found, data = streets(0, picture)
    with_road = {example.id for example in data if len(example.annotation.of("road"))}
    only_right = {image_id: some for image_id, some in found.items() if image_id in with_road}
    rescorer = ContextRescorer().fit(only_right, data)
    roads = Detections([[0, 50, 200, 100]] * 3, [-0.5, 0.7, 0.1], "road")
    np.testing.assert_allclose(rescorer.rescore(roads, SIZE).scores, np.tanh([0.7, 0.1, -0.5]), rtol=1e-6)


def test_empty_pictures_stay_empty(picture):
    rescorer = ContextRescorer().fit(*streets(0, picture))
    assert len(rescorer.rescore(Detections(), SIZE)) == 0


# -- keeping it ----------------------------------------------------------------------------------------------


def test_arrays_give_it_back(picture):
    found, data = streets(0, picture)
    rescorer = ContextRescorer().fit(found, data)
    again = ContextRescorer.from_arrays(rescorer.classes_, rescorer.to_arrays())
    assert again.rescore(found["0000"], SIZE) == rescorer.rescore(found["0000"], SIZE)
    twin = ContextRescorer().fit(found, data)
    np.testing.assert_array_equal(twin.forms_, rescorer.forms_)


def test_scikit_learn_is_not_needed_to_apply_it():
    program = """
import sys
import numpy as np
from visionkl.core.types import Detections
from visionkl.detection.context import ContextRescorer
rescorer = ContextRescorer.from_arrays(["car"], {"forms": np.eye(7)[None]})
rescorer.rescore(Detections([[0, 0, 5, 5]], [1.0], "car"), (10, 10))
sys.exit("sklearn" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_complaints(picture):
    found, data = streets(0, picture, n_images=10)
    with pytest.raises(UsageError, match="has not been trained"):
        ContextRescorer().rescore(Detections(), SIZE)
    with pytest.raises(UsageError, match="has not been trained"):
        ContextRescorer().to_arrays()
    for cost in (0, -1, "much"):
        with pytest.raises(UsageError, match="'cost' parameter of ContextRescorer"):
            ContextRescorer(cost=cost).fit(found, data)
    with pytest.raises(UsageError, match="there is no class 'dog'"):
        ContextRescorer().fit(found, data, ["dog"])
    with pytest.raises(DataError, match="the picture 'elsewhere' is not one of the 10 of streets"):
        ContextRescorer().fit({"elsewhere": Detections()}, data)
    with pytest.raises(DataError, match="no class of streets has both right and wrong detections"):
        ContextRescorer().fit({}, data)
    rescorer = ContextRescorer().fit(found, data)
    with pytest.raises(UsageError, match=r"the class 'dog' is not one of those .*: car, road"):
        rescorer.rescore(Detections([[0, 0, 1, 1]], [1], "dog"), SIZE)
    for arrays in ({}, {"forms": np.zeros((2, 7, 7))}, {"forms": np.full((2, 8, 8), np.nan)}):
        with pytest.raises(DataError, match="'forms' must be finite numbers of the shape"):
            ContextRescorer.from_arrays(["car", "road"], arrays)
