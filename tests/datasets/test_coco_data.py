"""The COCO reader, with pycocotools as the judge of what a file says."""

import json
import pickle

import numpy as np
import pytest

from tests.datasets.small_data import write_picture
from visionkl.core.errors import DataError, UsageError
from visionkl.datasets.coco import COCO


def document():
    return {
        "images": [
            {"id": 397133, "file_name": "a.png", "width": 100, "height": 80},
            {"id": 12, "file_name": "b.png", "width": 100, "height": 80},
        ],
        "annotations": [
            {
                "id": 1,
                "image_id": 12,
                "category_id": 18,
                "bbox": [10, 20, 30.5, 40],
                "iscrowd": 0,
                "area": 1220,
            },
            {"id": 2, "image_id": 12, "category_id": 3, "bbox": [0, 0, 100, 80], "iscrowd": 1, "area": 8000},
            {"id": 3, "image_id": 397133, "category_id": 3, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0},
        ],
        "categories": [{"id": 18, "name": "dog"}, {"id": 3, "name": "car"}, {"id": 7, "name": "train"}],
    }


def saved(folder, content):
    for name in ("a.png", "b.png"):
        write_picture(folder / name)
    path = folder / "instances_val.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_pictures_and_objects(tmp_path):
    data = COCO(saved(tmp_path, document()), tmp_path)
    assert data.name == "instances_val"
    assert data.classes == ("car", "train", "dog")
    assert [example.id for example in data] == ["397133", "12"]
    assert data.image_ids == {"397133": 397133, "12": 12}
    assert data.category_ids == {"car": 3, "train": 7, "dog": 18}
    objects = data[1].annotation
    assert objects.labels == ("dog", "car")
    assert objects.difficult.tolist() == [False, True]
    np.testing.assert_array_equal(objects.boxes, [[10, 20, 40.5, 60], [0, 0, 100, 80]])
    assert data[0].image().shape == (80, 100, 3)


def test_as_pycocotools_reads_it(tmp_path, capsys):
    coco_tools = pytest.importorskip("pycocotools.coco")
    path = saved(tmp_path, document())
    data, judge = COCO(path, tmp_path), coco_tools.COCO(str(path))
    for example in data:
        records = judge.loadAnns(judge.getAnnIds(imgIds=data.image_ids[example.id]))
        objects = example.annotation
        assert [data.category_ids[label] for label in objects.labels] == [r["category_id"] for r in records]
        sides = np.hstack([objects.boxes[:, :2], objects.boxes[:, 2:] - objects.boxes[:, :2]])
        np.testing.assert_allclose(sides, [record["bbox"] for record in records])


def test_chosen_classes_leave_out_other_objects_but_no_picture(tmp_path):
    path = saved(tmp_path, document())
    data = COCO(path, tmp_path, classes=["dog"])
    assert (data.classes, data.category_ids, len(data)) == (("dog",), {"dog": 18}, 2)
    assert [example.annotation.labels for example in data] == [(), ("dog",)]
    with pytest.raises(UsageError, match="there is no class 'yak'; there are car, train, dog"):
        COCO(path, tmp_path, classes=["yak"])


def test_examples_can_be_sent_to_another_process(tmp_path):
    data = pickle.loads(pickle.dumps(COCO(saved(tmp_path, document()), tmp_path)))
    assert len(data[1].annotation) == 2


def test_a_size_that_is_not_told_comes_from_the_picture(tmp_path):
    content = document()
    del content["images"][0]["width"]
    content["annotations"][2]["bbox"] = [150, 2, 3, 4]
    with pytest.raises(DataError, match="outside of the picture, which has 100 × 80 pixels"):
        _ = COCO(saved(tmp_path, content), tmp_path)[0].annotation


@pytest.mark.parametrize(("box", "says"), [([5, 5, 0, 9], "is empty"), ([5, 5, -3, 9], "is inside out")])
def test_bad_boxes_are_named_when_their_picture_is_read(tmp_path, box, says):
    content = document()
    content["annotations"][2]["bbox"] = box
    data = COCO(saved(tmp_path, content), tmp_path)
    assert len(data[1].annotation) == 2
    with pytest.raises(
        DataError, match=rf"instances_val\.json: the box of annotation 3 \(car; x 5, .* {says}"
    ):
        _ = data[0].annotation


def changed(*keys, to):
    content = document()
    place = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    return content


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "this is not JSON"),
        ("[" * 100_000, "this is not JSON"),
        ("[1, 2]", "not an annotation file of COCO"),
        ({"images": [], "annotations": []}, "'categories' is missing"),
        (changed("images", to=[]), "lists no images"),
        (changed("images", 0, to=7), "'id' of image number 0 must be a number, not None"),
        (changed("images", 1, "id", to=[3]), r"'id' of image number 1 must be a number, not \[3\]"),
        (changed("images", 1, "file_name", to=None), "'file_name' of image number 1 must be a text"),
        (changed("annotations", 1, "bbox", to=[1, 2, 3]), r"the bbox of annotation 2 must be \[x, y, width"),
        (changed("annotations", 1, "bbox", to=None), "'bbox' of annotation number 1 must be"),
        (
            changed("annotations", 1, "category_id", to=99),
            "annotation 2 has the category 99, which is not listed",
        ),
        (changed("annotations", 1, "image_id", to=5), "belongs to the image 5, which is not listed"),
        (changed("categories", 1, "id", to=18), "must have a whole number and a name of its own"),
        (changed("categories", 1, "name", to="dog"), "must have a whole number and a name of its own"),
    ],
)
def test_files_that_are_none(tmp_path, content, says):
    with pytest.raises(DataError, match=rf"instances_val\.json: .*{says}"):
        COCO(saved(tmp_path, content), tmp_path)


def test_missing_files(tmp_path):
    with pytest.raises(DataError, match=r"none\.json: there is no such file"):
        COCO(tmp_path / "none.json", tmp_path)
    with pytest.raises(DataError, match="none: there is no such folder"):
        COCO(saved(tmp_path, document()), tmp_path / "none")
