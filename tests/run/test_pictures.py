"""Files, folders and patterns become a list of pictures."""

from pathlib import Path

import pytest

from visionkl.core.errors import DataError
from visionkl.run.pictures import find_pictures, looks_like_picture_argument, picture_ids


@pytest.fixture
def album(tmp_path, monkeypatch):
    for name in (
        "b.jpg",
        "a.PNG",
        "notes.txt",
        "._a.PNG",
        "deep/c.jpeg",
        "deep/er/d.webp",
        "odd[1].jpg",
        "empty/x.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(*arguments, **options):
    return [path.as_posix() for path in find_pictures(arguments, **options)]


def test_a_folder_stands_for_its_pictures_by_name(album):
    assert names(".") == ["a.PNG", "b.jpg", "odd[1].jpg"]


def test_sub_folders_when_asked(album):
    assert names(".", recursive=True) == ["a.PNG", "b.jpg", "deep/c.jpeg", "deep/er/d.webp", "odd[1].jpg"]


def test_patterns(album):
    assert names("*.jpg") == ["b.jpg", "odd[1].jpg"]
    assert names("**/*.web?") == ["deep/er/d.webp"]


def test_a_name_with_brackets_is_a_file_if_it_is_there(album):
    assert names("odd[1].jpg") == ["odd[1].jpg"]


def test_a_named_file_is_taken_whatever_its_ending(album):
    assert names("notes.txt") == ["notes.txt"]


def test_a_picture_named_twice_is_taken_once(album):
    assert names("b.jpg", "./b.jpg", str(album / "b.jpg"), ".") == ["b.jpg", "a.PNG", "odd[1].jpg"]


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("none.jpg", r"none\.jpg: there is no such picture or folder\."),
        ("empty", r"empty: this folder holds no pictures .*--recursive"),
        ("*.gif", r"\*\.gif: no picture matches this pattern"),
    ],
)
def test_what_stands_for_nothing_is_named(album, argument, sentence):
    with pytest.raises(DataError, match=sentence):
        find_pictures([argument])


def test_ids_are_unique():
    paths = [Path("a/1.jpg"), Path("b/1.jpg"), Path("b/1.png"), Path("/c/2.jpg"), Path("../d/1.jpg")]
    ids = picture_ids(paths)
    assert ids == ["a/1", "b/1.jpg", "b/1.png", "2", "d/1"]
    assert picture_ids([Path("d/1.jpg"), Path("../d/1.jpg"), Path("/d/1.jpg")]) == [
        "d/1.jpg",
        "d/1.jpg-2",
        "d/1.jpg-3",
    ]


def test_models_and_pictures_are_told_apart(album):
    assert [looks_like_picture_argument(word) for word in ("x.JPG", "deep", "photos/*")] == [True] * 3
    assert [looks_like_picture_argument(word) for word in ("m.safetensors", "m.mat", "m")] == [False] * 3
