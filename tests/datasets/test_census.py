"""The census: counts by hand, and everything bad by name."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from tests.datasets.small_data import voc_object, write_picture
from visionkl.core.types import Annotation
from visionkl.datasets.base import Dataset, Example
from visionkl.datasets.census import Spread, census
from visionkl.datasets.folder import ImageFolder
from visionkl.datasets.voc import VOC


def test_counts_worked_by_hand(devkit):
    devkit.add(
        "a", voc_object("dog", (1, 1, 20, 40), difficult=1), voc_object("dog", (1, 1, 40, 20), truncated=1)
    )
    devkit.add("b", voc_object("dog", (1, 1, 10, 10)), voc_object("cat", (1, 1, 60, 30), occluded=1))
    devkit.add("c", size=(50, 60)).list("val", "a", "b", "c")
    told = []
    found = census(VOC(devkit.folder, split="val"), progress=lambda *numbers: told.append(numbers))
    assert found.ok
    assert (found.name, found.pictures, found.unlabelled) == ("VOC2012 val", 3, 1)
    dogs, cats, cows = (found.classes[name] for name in ("dog", "cat", "cow"))
    assert (dogs.pictures, dogs.objects, dogs.difficult, dogs.truncated, dogs.occluded) == (2, 3, 1, 1, 0)
    assert (cats.pictures, cats.objects, cats.difficult, cats.truncated, cats.occluded) == (1, 1, 0, 0, 1)
    assert (cows.pictures, cows.objects, cows.width, cows.aspect) == (0, 0, None, None)
    assert (found.total.pictures, found.total.objects) == (2, 4)
    assert dogs.aspect == Spread.of([0.5, 2.0, 1.0])
    assert (cats.width.median, cats.height.median) == (60, 30)
    assert found.picture_width == Spread.of([100, 100, 50])
    assert found.picture_height == Spread.of([80, 80, 60])
    assert list(found.classes) == list(VOC(devkit.folder, split="val").classes)
    assert told[-1] == (3, 3)


def test_everything_bad_is_named_and_the_count_goes_on(devkit):
    devkit.add("whole", voc_object())
    devkit.add("missing", voc_object(), picture=False)
    devkit.add("cut", voc_object())
    path = devkit.folder / "JPEGImages" / "cut.jpg"
    path.write_bytes(path.read_bytes()[:2000])
    devkit.add("boxes", voc_object(box=(5, 5, 5, 9)), voc_object(box=(150, 5, 190, 9)), voc_object())
    devkit.add("xml", xml="<annotation><object>")
    devkit.add("sticks", voc_object(box=(50, 50, 101, 80)))
    devkit.list("val", "whole", "missing", "cut", "boxes", "xml", "sticks", "whole").list(
        "dog_val", "whole 1"
    )
    found = census(VOC(devkit.folder, split="val"))
    assert not found.ok
    assert [(problem.kind, problem.id) for problem in found.problems] == [
        ("picture", "missing"),
        ("picture", "cut"),
        ("box", "boxes"),
        ("annotation", "xml"),
        ("id", "whole"),
    ]
    for problem, says in zip(
        found.problems,
        [
            "missing.jpg: there is no",
            "cut.jpg: the picture is damaged",
            "boxes.xml: the box of object number 1",
        ],
        strict=False,
    ):
        assert says in problem.reason
    assert (found.empty_boxes, found.outside_boxes) == (1, 1)
    assert found.sticking_out == ("sticks",)
    assert found.total.objects == 5  # not those of the picture with bad boxes
    assert found.pictures == 7


def test_headers_alone_do_not_show_a_cut_file(tmp_path):
    path = write_picture(tmp_path / "cut.jpg")
    path.write_bytes(path.read_bytes()[:2000])
    assert census(ImageFolder(tmp_path), decode=False).ok
    assert not census(ImageFolder(tmp_path)).ok


def test_labels_of_whole_pictures(tmp_path):
    for name in ("daisy/1.png", "daisy/2.png", "tulip/1.png"):
        write_picture(tmp_path / name)
    found = census(ImageFolder(tmp_path))
    assert {name: one.pictures for name, one in found.classes.items()} == {"daisy": 2, "tulip": 1}
    assert (found.unlabelled, found.total.objects, found.total.width) == (0, 0, None)


@pytest.mark.parametrize("n_jobs", [1, 2, None])
def test_threads_do_not_change_the_outcome(tmp_path, n_jobs):
    rng = np.random.default_rng(0)
    examples = []
    for number in range(150):
        path = write_picture(tmp_path / f"{number}.png", size=(20 + number, 30))
        box = np.sort(rng.uniform(0, 20, (1, 2, 2)), axis=1).reshape(1, 4)
        examples.append(Example(str(number), path, lambda box=box: Annotation(box, ["dog"])))
    found = census(Dataset("mine", ("dog",), examples), n_jobs=n_jobs)
    boxes = np.concatenate([example.annotation.boxes for example in examples])
    assert found.total.width == Spread.of(boxes[:, 2] - boxes[:, 0])
    assert found.picture_width == Spread.of(range(20, 170))


def test_it_can_be_written_as_json(devkit):
    devkit.add("a", voc_object()).add("b", picture=False).list("val", "a", "b")
    found = census(VOC(devkit.folder, split="val"))
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert read["ok"] is False
    assert read["classes"]["dog"] == asdict(found.classes["dog"])
    assert read["problems"][0]["id"] == "b"


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("place", "split", "pictures", "objects"),
    [
        ("voc2012_subset", "train", 579, 2020),
        ("voc2012_subset", "val", 585, 1906),
        ("raccoon", "trainval", 200, 217),
    ],
)
def test_real_sets_are_sound(realdata, place, split, pictures, objects):
    found = census(VOC(realdata / place, split=split))
    assert found.ok
    assert (found.pictures, found.total.objects, found.sticking_out) == (pictures, objects, ())
