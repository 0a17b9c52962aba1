"""Results files: written and read back; cut or foreign files get one sentence; nothing is half-written."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from visionkl.core.errors import DataError, UsageError
from visionkl.core.types import Annotation, Detections
from visionkl.datasets.base import Dataset, Example
from visionkl.evaluation.results import (
    read_coco_results,
    read_voc_image_ids,
    read_voc_results,
    voc_results_classes,
    voc_results_path,
    voc_results_writer,
    write_coco_results,
)
from visionkl.evaluation.voc import evaluate_detections

FOUND = {
    "2008_000012": Detections([[0, 0, 50, 40], [10, 10, 20.5, 30.25]], [1.5, -0.75], ("car", "dog")),
    "2008_000034": Detections(),
    "2008_000056": Detections([[3, 4, 90, 80]], [0.1], "car"),
}


def write(folder, found=FOUND, classes=("car", "dog"), split="val"):
    with voc_results_writer(folder, split, classes) as add:
        for image_id, detections in found.items():
            add(image_id, detections)


def test_voc_files_are_the_devkits(tmp_path):
    write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "comp3_det_val_car.txt",
        "comp3_det_val_dog.txt",
        "images_val.txt",
    ]
    assert voc_results_path(tmp_path, "val", "car").read_text().splitlines() == [
        "2008_000012 1.5 1 1 50 40",  # from 1, last pixel included
        "2008_000056 0.100000001 4 5 90 80",
    ]
    assert voc_results_path(tmp_path, "val", "dog").read_text() == "2008_000012 -0.75 11 11 20.5 30.25\n"
    assert voc_results_classes(tmp_path, "val") == ["car", "dog"]
    assert voc_results_classes(tmp_path, "test") == []
    assert read_voc_image_ids(tmp_path, "val") == list(FOUND)
    assert read_voc_image_ids(tmp_path, "test") is None


def test_a_class_without_detections_has_an_empty_file(tmp_path):
    write(tmp_path, classes=("bus",))
    assert read_voc_results(tmp_path, "val", "bus") == {}
    assert voc_results_classes(tmp_path, "val") == ["bus"]


@settings(max_examples=50, deadline=None)
@given(
    corners=hnp.arrays(np.float32, (5, 4), elements=st.floats(0, 2000, width=32)),
    scores=hnp.arrays(np.float32, 5, elements=st.floats(-1e6, 1e6, width=32)),
)
def test_what_is_written_is_read_back(tmp_path_factory, corners, scores):
    folder = tmp_path_factory.mktemp("results")
    boxes = np.hstack(
        [np.minimum(corners[:, :2], corners[:, 2:]), np.maximum(corners[:, :2], corners[:, 2:])]
    )
    found = Detections(boxes, scores, "car")
    write(folder, {"a": found})
    again = read_voc_results(folder, "val", "car")["a"]
    np.testing.assert_array_equal(again.scores, found.scores)  # to the last bit, so that no ties appear
    np.testing.assert_allclose(again.boxes, found.boxes, rtol=1e-7, atol=1e-6)
    write_coco_results(folder / "coco.json", {"a": found}, {"car": 1})
    again = read_coco_results(folder / "coco.json", {1: "car"})["a"]
    np.testing.assert_array_equal(again.scores, found.scores)
    np.testing.assert_allclose(again.boxes, found.boxes, rtol=1e-6)


def test_scoring_a_file_again_gives_the_same_numbers(tmp_path):
    rng = np.random.default_rng(0)
    examples, found = [], {}
    for number in range(40):
        corner = rng.integers(0, 50, (3, 2))
        objects = Annotation(np.hstack([corner, corner + rng.integers(5, 60, (3, 2))]), ["car", "dog", "car"])
        examples.append(Example(f"{number:06d}", "none.jpg", lambda objects=objects: objects))
        boxes = np.repeat(objects.boxes, 4, axis=0) + rng.normal(0, 4, (12, 4))
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2])
        labels = tuple(rng.choice(["car", "dog"], 12))
        found[f"{number:06d}"] = Detections(boxes, rng.normal(size=12).round(1), labels)  # with many ties
    data = Dataset("made up", ("car", "dog"), examples)
    write(tmp_path, found)
    first = evaluate_detections(found, data)
    for label in data.classes:
        again = evaluate_detections(read_voc_results(tmp_path, "val", label), data, [label])
        np.testing.assert_array_equal(again.by_class[label].precision, first.by_class[label].precision)
        assert again.by_class[label].ap == first.by_class[label].ap > 0


def test_nothing_is_left_of_a_run_that_failed(tmp_path):
    def fail_in_the_middle():
        with voc_results_writer(tmp_path, "val", ["car"]) as add:
            add("a", FOUND["2008_000012"])
            raise RuntimeError("the cable was pulled")

    with pytest.raises(RuntimeError):
        fail_in_the_middle()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("n_letters", [1, 4, 9, 20])
def test_a_voc_file_cut_in_the_middle_of_a_line(tmp_path, n_letters):
    write(tmp_path)
    path = voc_results_path(tmp_path, "val", "car")
    path.write_text(path.read_text()[:-n_letters])
    with pytest.raises(DataError, match=r"comp3_det_val_car\.txt: the file ends in the middle of line 2"):
        read_voc_results(tmp_path, "val", "car")


@pytest.mark.parametrize("line", ["a 0.5 1 2 3", "a high 1 2 3 4", "a nan 1 2 3 4", "a 0.5 1 2 3 4 5", "a"])
def test_a_voc_line_of_another_form(tmp_path, line):
    voc_results_path(tmp_path, "val", "car").write_text(f"a 0.5 1 2 3 4\n{line}\n")
    with pytest.raises(DataError, match=r"comp3_det_val_car\.txt: results line 2 must be 'image_id score x1"):
        read_voc_results(tmp_path, "val", "car")


def test_a_voc_box_turned_inside_out(tmp_path):
    voc_results_path(tmp_path, "val", "car").write_text("a 0.5 30 2 3 4\n")
    with pytest.raises(DataError, match=r"comp3_det_val_car\.txt: .*x1 ≤ x2"):
        read_voc_results(tmp_path, "val", "car")


def test_files_that_are_missing_or_no_text(tmp_path):
    with pytest.raises(DataError, match=r"comp3_det_val_car\.txt: there is no such results file"):
        read_voc_results(tmp_path, "val", "car")
    voc_results_path(tmp_path, "val", "car").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="this is not a text file"):
        read_voc_results(tmp_path, "val", "car")


def test_names_that_do_not_fit(tmp_path):
    with (
        pytest.raises(UsageError, match="'a/b' cannot be part of the name"),
        voc_results_writer(tmp_path, "val", ["a/b"]),
    ):
        pass
    with pytest.raises(DataError, match="has a blank in its name"):
        write(tmp_path, {"my street": Detections()})
    assert list(tmp_path.iterdir()) == []


def test_coco_ids_survive(tmp_path):
    found = {name: Detections([[0, 0, 5, 5]], [1.0], "car") for name in ("42", "000042", "2008_000042", "0")}
    write_coco_results(tmp_path / "r.json", found, {"car": 3})
    records = json.loads((tmp_path / "r.json").read_text())
    assert [record["image_id"] for record in records] == [42, "000042", "2008_000042", 0]
    assert read_coco_results(tmp_path / "r.json", {3: "car"}) == found
    write_coco_results(tmp_path / "empty.json", {}, {})
    assert read_coco_results(tmp_path / "empty.json", {}) == {}


GOOD = {"image_id": 1, "category_id": 3, "bbox": [0, 0, 5, 5], "score": 0.5}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[{"image_id": 1, "categ', "not a complete JSON file"),
        (json.dumps({"results": []}), "COCO results are a JSON list, not a dict"),
        (json.dumps([GOOD, {**GOOD, "category_id": 4}]), "result number 1 has category_id 4; there are 3"),
        (json.dumps([{**GOOD, "bbox": [1, 2, 3]}]), "result number 0 must have"),
        (json.dumps([{**GOOD, "bbox": [1, 2, -3, 4]}]), "result number 0 must have"),
        (json.dumps([{**GOOD, "score": None}]), "result number 0 must have"),
        (json.dumps([3]), "result number 0 must have"),
    ],
)
def test_coco_files_that_cannot_be_used(tmp_path, text, sentence):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(DataError, match=sentence):
        read_coco_results(tmp_path / "r.json", {3: "car"})
