"""COCO's AP and AR against pycocotools on random data, and against cases worked by hand."""

import contextlib
import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visionkl.core.errors import DataError, UsageError
from visionkl.core.types import Annotation, Detections
from visionkl.datasets.base import Dataset, Example
from visionkl.evaluation.coco import SIZES, evaluate_coco, evaluate_coco_files
from visionkl.evaluation.results import write_coco_results

NAMES = {7: "car", 3: "dog", 18: "cat"}


def random_instances(rng, n_images=6, *, integer=False, span=150):
    """An instances file and results with crowds, ties, doubles, objects of all sizes and absent classes."""
    truth = {"images": [], "annotations": [], "categories": [{"id": i, "name": n} for i, n in NAMES.items()]}
    results = []
    for image_id in range(1, n_images + 1):
        truth["images"].append({"id": image_id, "file_name": f"{image_id}.jpg", "width": 640, "height": 640})
        boxes = []
        for _ in range(int(rng.integers(0, 6))):
            x, y, w, h = rng.uniform(2, span, 4) if not integer else rng.integers(2, span, 4)
            box = [float(x), float(y), float(w), float(h)]
            boxes.append(box)
            truth["annotations"].append(
                {
                    "id": len(truth["annotations"]) + 1,
                    "image_id": image_id,
                    "category_id": int(rng.choice([7, 3])),
                    "bbox": box,
                    "area": box[2] * box[3] * float(rng.choice([1.0, 0.6])),
                    "iscrowd": int(rng.random() < 0.2),
                }
            )
        for _ in range(int(rng.integers(0, 12))):
            near = np.array(boxes[rng.integers(len(boxes))] if boxes else [5.0, 5, 50, 50])
            near += rng.integers(-6, 7, 4) if integer else rng.normal(0, 5, 4)
            near[2:] = np.maximum(near[2:], 1)
            results.append(
                {
                    "image_id": image_id,
                    "category_id": int(rng.choice([7, 3, 18])),
                    "bbox": near.tolist(),
                    "score": float(rng.integers(0, 8) / 8 if integer else rng.random()),
                }
            )
    return truth, results


def peer_stats(truth, results):
    """What pycocotools says, with NaN for its -1."""
    pytest.importorskip("pycocotools")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        peer_truth = COCO()
        peer_truth.dataset = truth
        peer_truth.createIndex()
        peer = COCOeval(peer_truth, peer_truth.loadRes(results), "bbox")
        peer.evaluate()
        peer.accumulate()
        peer.summarize()
    return np.where(peer.stats == -1, np.nan, peer.stats), peer


def our_result(truth, results, folder):
    (folder / "instances.json").write_text(json.dumps(truth))
    (folder / "results.json").write_text(json.dumps(results))
    return evaluate_coco_files(folder / "results.json", folder / "instances.json")


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), integer=st.booleans(), span=st.sampled_from([20, 60, 200]))
def test_equals_pycocotools(tmp_path_factory, seed, integer, span):
    rng = np.random.default_rng(seed)
    truth, results = random_instances(rng, integer=integer, span=span)
    if not results:
        return  # pycocotools cannot load empty results
    expected, peer = peer_stats(truth, results)
    mine = our_result(truth, results, tmp_path_factory.mktemp("coco"))
    np.testing.assert_allclose(list(mine.stats().values()), expected, rtol=0, atol=1e-9)
    # Not the means alone: every curve of every class and size. pycocotools orders classes by their ids.
    order = [mine.classes.index(NAMES[i]) for i in sorted(NAMES)]
    theirs = np.where(peer.eval["precision"] == -1, np.nan, peer.eval["precision"])[..., 2]
    np.testing.assert_allclose(mine.precision[:, :, order], theirs, rtol=0, atol=1e-9)
    theirs = np.where(peer.eval["recall"] == -1, np.nan, peer.eval["recall"])
    np.testing.assert_allclose(mine.recall[:, order], theirs, rtol=0, atol=1e-9)


def test_equals_pycocotools_beyond_a_hundred_detections(tmp_path):
    rng = np.random.default_rng(0)
    truth, results = random_instances(rng, n_images=2)
    for _ in range(400):
        box = [float(v) for v in rng.uniform(2, 100, 4)]
        results.append({"image_id": 1, "category_id": 7, "bbox": box, "score": float(rng.random())})
    expected, _ = peer_stats(truth, results)
    mine = our_result(truth, results, tmp_path)
    np.testing.assert_allclose(list(mine.stats().values()), expected, rtol=0, atol=1e-9)


# -- worked by hand ------------------------------------------------------------------------------------------

SQUARE = [0.0, 0, 10, 10]


def scored(annotation, detections, classes=("car",)):
    data = Dataset("made up", tuple(classes), [Example("a", "a.jpg", lambda: annotation)])
    return evaluate_coco({"a": detections}, data)


def test_overlaps_count_at_their_threshold():
    # 0.75 overlaps at 0.5, 0.55, ..., 0.75: six of the ten.
    result = scored(Annotation([SQUARE], ["car"]), Detections([[0, 0, 10, 7.5]], [1.0], "car"))
    numbers = result.stats()
    assert numbers["AP50"] == pytest.approx(1.0)
    assert numbers["AP75"] == pytest.approx(1.0)
    assert numbers["AP"] == pytest.approx(0.6)
    assert numbers["APsmall"] == pytest.approx(0.6)
    assert np.isnan(numbers["APlarge"])
    assert numbers["AR1"] == pytest.approx(0.6)


def test_a_second_detection_turns_to_the_next_object():
    # VOC would call the second one a duplicate.
    objects = Annotation([[0, 0, 10, 10], [0, 4, 10, 14]], ["car", "car"])
    found = Detections([[0, 0, 10, 10], [0, 1, 10, 11]], [0.9, 0.8], "car")
    assert scored(objects, found).stats()["AP50"] == pytest.approx(1.0)


def test_many_detections_may_share_a_crowd():
    objects = Annotation([[0, 0, 100, 100], [200, 0, 210, 10]], ["car", "car"], difficult=[True, False])
    inside = [[10 * i, 0, 10 * i + 5, 5] for i in range(5)]
    found = Detections([*inside, [200, 0, 210, 10]], [0.9, 0.9, 0.9, 0.9, 0.9, 0.1], "car")
    assert scored(objects, found).ap == pytest.approx(1.0)


def test_text_and_json():
    result = scored(Annotation([SQUARE], ["car"]), Detections([SQUARE], [1.0], "car"), ["car", "dog"])
    document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert document["mean"]["AP"] == pytest.approx(1.0)
    assert document["classes"]["dog"]["AP"] is None
    lines = result.table().splitlines()
    assert lines[0].split()[:4] == ["class", "AP", "AP50", "AP75"]
    assert [line.split()[0] for line in lines if not line.startswith("-")] == ["class", "car", "dog", "mean"]
    assert result.stats("car")["AP"] == result.ap
    assert set(SIZES) == {"all", "small", "medium", "large"}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_both_doors_agree_where_the_areas_are_those_of_the_boxes(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("coco")
    truth, records = random_instances(np.random.default_rng(seed), integer=True)
    examples, found = [], {}
    for image in truth["images"]:
        mine = [a for a in truth["annotations"] if a["image_id"] == image["id"]]
        for a in mine:
            a["area"] = a["bbox"][2] * a["bbox"][3]
        boxes = np.array([a["bbox"] for a in mine]).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        crowd = [bool(a["iscrowd"]) for a in mine]
        objects = Annotation(boxes, [NAMES[a["category_id"]] for a in mine], crowd)
        examples.append(Example(str(image["id"]), "none.jpg", lambda objects=objects: objects))
        found[str(image["id"])] = Detections.from_coco(
            [r for r in records if r["image_id"] == image["id"]], NAMES
        )
    by_detections = evaluate_coco(found, Dataset("made up", tuple(NAMES.values()), examples))
    (folder / "instances.json").write_text(json.dumps(truth))
    write_coco_results(folder / "results.json", found, {name: number for number, name in NAMES.items()})
    by_files = evaluate_coco_files(folder / "results.json", folder / "instances.json")
    np.testing.assert_array_equal(by_detections.precision, by_files.precision)
    np.testing.assert_array_equal(by_detections.recall, by_files.recall)


# -- complaints ----------------------------------------------------------------------------------------------


def test_complaints_about_detections():
    data = Dataset("made up", ("car",), [])
    with pytest.raises(UsageError, match="made up: there is no class 'bus'; there are car"):
        evaluate_coco({}, data, ["bus"])
    with pytest.raises(DataError, match="the picture 'b' is not one of the 0"):
        evaluate_coco({"b": Detections()}, data)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda truth: truth.pop("categories"), "an object with images, annotations and categories"),
        (lambda truth: truth["annotations"][1].pop("area"), "annotation number 1 must have bbox, area"),
        (lambda truth: truth["annotations"][0].update(category_id=99), "annotation number 0 .*99"),
        (lambda truth: truth["annotations"][0].update(bbox=[1, 2, 3]), "annotation number 0"),
        (lambda truth: truth["categories"][0].update(name="dog"), "two categories have the same name"),
    ],
)
def test_complaints_about_an_instances_file(tmp_path, change, sentence):
    truth, results = random_instances(np.random.default_rng(3))
    change(truth)
    with pytest.raises(DataError, match=sentence):
        our_result(truth, results, tmp_path)


def test_complaints_about_files_that_are_no_json(tmp_path):
    truth, results = random_instances(np.random.default_rng(3))
    our_result(truth, results, tmp_path)
    whole = (tmp_path / "instances.json").read_text()
    (tmp_path / "instances.json").write_text(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"instances\.json: this is not a complete JSON file"):
        evaluate_coco_files(tmp_path / "results.json", tmp_path / "instances.json")
    with pytest.raises(DataError, match="there is no such"):
        evaluate_coco_files(tmp_path / "results.json", tmp_path / "nowhere.json")
