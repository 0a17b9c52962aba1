"""Labels of whole pictures, and pictures that are set aside."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from visionkl.core.errors import DataError, UsageError
from visionkl.core.types import Annotation
from visionkl.datasets.base import Dataset, Example
from visionkl.datasets.labels import from_labels, labelled, pick_listed, split_by_class
from visionkl.datasets.sample import make_sample_set
from visionkl.datasets.voc import VOC

BOX = [0, 0, 5, 5]


def flowers(**counts):
    examples = [
        Example(f"{label}/{number}", Path(f"{label}/{number}.jpg"), label=label)
        for label, n in counts.items()
        for number in range(n)
    ]
    return Dataset("flowers", tuple(counts), examples)


def test_objects_make_signs_and_difficult_ones_alone_say_nothing():
    annotations = [
        Annotation([BOX, BOX], ["cat", "dog"]),
        Annotation([BOX], ["cat"], [True]),
        Annotation([BOX, BOX], ["cat", "cat"], [True, False]),
        Annotation(),
    ]
    examples = [Example(str(n), Path("x"), lambda a=a: a) for n, a in enumerate(annotations)]
    found = labelled(Dataset("pets", ("cat", "dog"), examples))
    assert found.signs.tolist() == [[1, 1], [0, -1], [1, -1], [-1, -1]]
    assert not found.exclusive
    assert labelled(Dataset("pets", ("cat", "dog"), examples), ["dog"]).signs.tolist() == [
        [1],
        [-1],
        [-1],
        [-1],
    ]


def test_vocs_lists_say_the_same_as_annotations(tmp_path):
    devkit = make_sample_set(tmp_path / "sample", n_train=24, n_val=1, n_test=1)
    train = VOC(devkit, split="train")
    by_lists = labelled(train)
    by_annotations = labelled(Dataset("sample", train.classes, list(train)))
    np.testing.assert_array_equal(by_lists.signs, by_annotations.signs)


def test_chosen_classes_of_a_folder_leave_other_pictures_out():
    found = labelled(flowers(daisy=2, rose=3, tulip=1), ["tulip", "daisy"])
    assert found.classes == ("tulip", "daisy")
    assert found.signs.tolist() == [[-1, 1], [-1, 1], [1, -1]]
    assert found.exclusive
    with pytest.raises(UsageError, match="no class 'lily'; there are daisy"):
        labelled(flowers(daisy=2), ["lily"])


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (["a", "a"], "all 2 pictures are of one class, a"),
        ([("a", "b"), ("b",)], "all 2 pictures show the class 'b'"),
    ],
)
def test_nothing_to_tell_apart(labels, sentence):
    with pytest.raises(DataError, match=sentence):
        from_labels(labels, ["x.jpg", "y.jpg"]).check_learnable()


def test_a_class_without_pictures():
    with pytest.raises(DataError, match="none of the 2 pictures shows the class 'b'"):
        from_labels(["a", "c"], ["x", "y"], classes=["a", "b", "c"]).check_learnable()
    with pytest.raises(DataError, match="3 pictures, but labels of 2"):
        from_labels(["a", "c"], ["x", "y", "z"])


def test_a_share_of_each_class_is_set_aside():
    data = flowers(daisy=8, rose=2, tulip=20)
    rest, aside = split_by_class(data, 0.25, seed=3)
    assert Counter(example.label for example in aside) == {"daisy": 2, "rose": 1, "tulip": 5}
    assert {example.id for example in rest} | {example.id for example in aside} == {e.id for e in data}
    assert len(rest) + len(aside) == len(data)
    again = split_by_class(data, 0.25, seed=3)[1]
    other = split_by_class(data, 0.25, seed=4)[1]
    assert [e.id for e in again] == [e.id for e in aside] != [e.id for e in other]
    with pytest.raises(DataError, match="'rose' has 1 picture"):
        split_by_class(flowers(daisy=3, rose=1), 0.5, 0)


def test_lists_of_pictures(tmp_path):
    path = tmp_path / "some.txt"
    path.write_text("rose/1\n\ndaisy/0.jpg\n")
    assert [e.id for e in pick_listed(flowers(daisy=2, rose=2), path)] == ["rose/1", "daisy/0"]
    path.write_text("rose/1\nrose/9\n")
    with pytest.raises(DataError, match=r"some\.txt: line 2 names 'rose/9'"):
        pick_listed(flowers(daisy=2, rose=2), path)
