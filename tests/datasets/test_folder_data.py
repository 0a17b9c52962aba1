"""Folders of pictures, with and without classes."""

import pytest

from tests.datasets.small_data import write_picture
from visionkl.core.errors import DataError
from visionkl.datasets.folder import ImageFolder


def test_a_folder_of_pictures_has_no_labels(tmp_path):
    for name in ("b.JPG", "a.png", ".hidden.png"):
        write_picture(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not a picture")
    (tmp_path / "empty folder").mkdir()
    data = ImageFolder(tmp_path)
    assert (data.classes, data.name) == ((), tmp_path.name)
    assert [(example.id, example.label) for example in data] == [("a", None), ("b", None)]
    assert data[1].image().shape == (80, 100, 3)
    assert len(data[1].annotation) == 0


def test_class_folders_are_labels(tmp_path):
    for name in ("tulip/2.png", "tulip/10.png", "daisy/deep/er/1.png", ".git/x.png", "daisy/.cache/x.png"):
        write_picture(tmp_path / name)
    data = ImageFolder(tmp_path)
    assert data.classes == ("daisy", "tulip")
    assert [(example.id, example.label) for example in data] == [
        ("daisy/deep/er/1", "daisy"),
        ("tulip/10", "tulip"),
        ("tulip/2", "tulip"),
    ]


def test_names_that_differ_in_the_ending_alone_keep_it(tmp_path):
    for name in ("a.png", "a.jpg", "b.jpg"):
        write_picture(tmp_path / name)
    assert [example.id for example in ImageFolder(tmp_path)] == ["a.jpg", "a.png", "b"]


def test_folders_that_cannot_be_used(tmp_path):
    with pytest.raises(DataError, match="nowhere: there is no such folder"):
        ImageFolder(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"there are no pictures in this folder \(files that end in .bmp, "):
        ImageFolder(tmp_path)
    write_picture(tmp_path / "daisy" / "a.png")
    (tmp_path / "tulip").mkdir()
    with pytest.raises(DataError, match="tulip: this class folder holds no pictures"):
        ImageFolder(tmp_path)
    write_picture(tmp_path / "loose.png")
    with pytest.raises(DataError, match=r"pictures \(loose.png\) beside folders with pictures \(daisy\)"):
        ImageFolder(tmp_path)


@pytest.mark.realdata
def test_flowers(realdata):
    data = ImageFolder(realdata / "flowers17")
    assert (len(data), len(data.classes)) == (17 * 80, 17)
    assert all(sum(example.label == name for example in data) == 80 for name in data.classes)
    assert max(data[0].image().shape) == 256
