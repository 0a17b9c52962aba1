"""The generated sample set: the same bytes for the same seed, true annotations, and never half a set."""

import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from visionkl.core.errors import DataError, UsageError
from visionkl.datasets import sample
from visionkl.datasets.sample import make_sample_set
from visionkl.datasets.sample_objects import CLASSES
from visionkl.datasets.sample_scenes import SceneObject, _describe, _Placed, _random_warp, draw_scene
from visionkl.datasets.sample_shapes import Sprite, box, mix_paints, part, rasterise
from visionkl.datasets.voc import VOC

SMALL = {"n_train": 7, "n_val": 3, "n_test": 4}
SPLITS = {"train": 7, "val": 3, "trainval": 10, "test": 4}


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def devkit(tmp_path_factory):
    return make_sample_set(tmp_path_factory.mktemp("data") / "sample", **SMALL, n_jobs=1)


# -- the same seed, the same bytes ---------------------------------------------------------------------------


def test_the_number_of_threads_changes_no_byte(devkit, tmp_path):
    again = make_sample_set(tmp_path / "again", **SMALL, n_jobs=2)
    assert digests(again) == digests(devkit)


def test_another_seed_gives_other_pictures(devkit, tmp_path):
    other = digests(make_sample_set(tmp_path / "other", **SMALL, seed=1))
    same = [
        name for name, digest in digests(devkit).items() if name.endswith(".jpg") and other[name] == digest
    ]
    assert same == []


def test_more_training_pictures_leave_the_test_pictures_as_they_are(devkit, tmp_path):
    larger = make_sample_set(tmp_path / "larger", **{**SMALL, "n_train": 8})
    for few, many in zip(VOC(devkit, split="test"), VOC(larger, split="test"), strict=True):
        assert few.id != many.id
        assert few.path.read_bytes() == many.path.read_bytes()


# -- the layout, through the ordinary reader -----------------------------------------------------------------


@pytest.mark.parametrize(("split", "n"), SPLITS.items())
def test_the_voc_reader_reads_every_split(devkit, split, n):
    data = VOC(devkit, year="2007", split=split)
    assert data.classes == tuple(CLASSES)
    assert len(data) == n
    assert {label for example in data for label in example.annotation.labels} == set(CLASSES)
    for example in data:
        width, height = example.size()
        assert example.image().shape == (height, width, 3)
        assert 320 <= min(width, height) <= max(width, height) <= 500
        boxes = example.annotation.boxes
        assert (boxes[:, :2] >= 0).all()
        assert (boxes[:, 2:] <= [width, height]).all()
        assert (boxes[:, 2:] - boxes[:, :2] >= 5).all()
        assert set(example.annotation.poses) <= {"Left", "Right", "Frontal"}


@pytest.mark.parametrize("split", SPLITS)
def test_lists_by_class_tell_what_annotations_show(devkit, split):
    data = VOC(devkit, split=split)
    for label in CLASSES:
        path = devkit / "VOC2007" / "ImageSets" / "Main" / f"{label}_{split}.txt"
        rows = [line.split() for line in path.read_text().splitlines()]
        assert [row[0] for row in rows] == [example.id for example in data]
        for (_, listed), example in zip(rows, data, strict=True):
            objects = example.annotation.of(label)
            expected = -1 if not len(objects) else 0 if objects.difficult.all() else 1
            assert int(listed) == expected


def test_corners_in_the_xml_count_from_1_and_include_the_last_pixel(tmp_path):
    thing = SceneObject("robot", (0, 3, 10, 20), "Left", truncated=True, occluded=False, difficult=False)
    element = sample.ElementTree.Element("object")
    sample._add_object(element, thing)
    assert [element.findtext(f"bndbox/{name}") for name in ("xmin", "ymin", "xmax", "ymax")] == [
        "1",
        "4",
        "10",
        "20",
    ]
    flags = [element.findtext(name) for name in ("truncated", "occluded", "difficult")]
    assert flags == ["1", "0", "0"]


def test_masks_agree_with_each_other_and_with_the_boxes(devkit):
    data = VOC(devkit, split="trainval", image_set="Segmentation")
    assert len(data) == SPLITS["trainval"]
    names = list(CLASSES)
    for example in data:
        width, height = example.size()
        with Image.open(example.mask_paths["class"]) as mask:
            assert mask.mode == "P"
            assert mask.getpalette()[3:6] == [128, 0, 0]
            classes = np.array(mask)
        objects = np.array(Image.open(example.mask_paths["object"]))
        assert classes.shape == objects.shape == (height, width)
        assert set(np.unique(objects)) <= {0, 255, *range(1, len(example.annotation) + 1)}
        for number, label in enumerate(example.annotation.labels, start=1):
            ys, xs = np.nonzero(objects == number)
            if example.annotation.difficult[number - 1]:
                assert len(ys) == 0
                continue
            assert set(classes[ys, xs]) == {1 + names.index(label)}
            x1, y1, x2, y2 = example.annotation.boxes[number - 1]
            assert x1 <= xs.min() <= xs.max() < x2
            assert y1 <= ys.min() <= ys.max() < y2


def test_the_palette_is_vocs():
    colours = np.frombuffer(sample._voc_palette(), np.uint8).reshape(256, 3).tolist()
    assert colours[0] == [0, 0, 0]
    assert colours[1] == [128, 0, 0]
    assert colours[3] == [128, 128, 0]
    assert colours[15] == [192, 128, 128]
    assert colours[255] == [224, 224, 192]


# -- the truth of boxes and flags ----------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    labels=st.lists(st.sampled_from(list(CLASSES)), max_size=4).map(tuple),
)
def test_boxes_are_tight_around_the_pixels_that_show_an_object(seed, labels):
    scene = draw_scene(np.random.default_rng(seed), labels)
    shown = [thing.label for thing in scene.objects]
    assert set(shown) <= set(labels)
    assert (labels[0] in shown) if labels else not shown
    assert scene.image.shape[:2] == scene.owners.shape
    assert set(np.unique(scene.owners)) - {0} == set(range(1, len(shown) + 1))
    for number, thing in enumerate(scene.objects, start=1):
        x1, y1, x2, y2 = thing.box
        inside = scene.owners[y1:y2, x1:x2] == number
        assert inside.sum() == (scene.owners == number).sum()
        assert inside[0].any()
        assert inside[-1].any()
        assert inside[:, 0].any()
        assert inside[:, -1].any()


def brick(rows: int, cols: int, x: int, y: int) -> _Placed:
    sprite = Sprite(np.ones((rows, cols, 3), np.float32), np.ones((rows, cols), np.float32))
    return _Placed(sprite, x, y, "robot", "Left")


def describe(thing: _Placed, hide: tuple[slice, slice] = np.s_[:0, :0]) -> SceneObject:
    visible = thing.covers((200, 300))
    visible[hide] = False
    return _describe(thing, visible)


def flags(thing: SceneObject) -> tuple[bool, bool, bool]:
    return thing.truncated, thing.occluded, thing.difficult


def test_an_object_in_full_view_has_no_flags():
    seen = describe(brick(100, 60, x=20, y=30))
    assert seen.box == (20, 30, 80, 130)
    assert flags(seen) == (False, False, False)
    assert (seen.label, seen.pose) == ("robot", "Left")


def test_an_object_beyond_the_border_is_truncated_and_its_box_ends_there():
    seen = describe(brick(100, 60, x=-20, y=150))
    assert seen.box == (0, 150, 40, 200)
    assert flags(seen) == (True, False, True)  # 2/3 · 1/2 of it is visible


def test_an_object_behind_something_is_occluded():
    pole = describe(brick(100, 60, x=20, y=30), hide=np.s_[:, 40:50])
    assert pole.box == (20, 30, 80, 130)
    assert flags(pole) == (False, True, False)
    lower_part = describe(brick(100, 60, x=20, y=30), hide=np.s_[60:, :])
    assert lower_part.box == (20, 30, 80, 60)
    assert flags(lower_part) == (True, True, True)


def test_a_hair_does_not_occlude():
    assert flags(describe(brick(100, 60, x=20, y=30), hide=np.s_[:, 40:42])) == (False, False, False)


def test_a_tiny_object_is_difficult():
    assert flags(describe(brick(44, 60, x=20, y=30))) == (False, False, True)
    assert flags(describe(brick(45, 60, x=20, y=30))) == (False, False, False)


def test_what_covers_half_a_pixel_counts_as_visible():
    half = Sprite(np.full((2, 1, 3), 0.5, np.float32), np.array([[0.5], [0.4]], np.float32))
    assert _Placed(half, 1, 0).covers((2, 2)).tolist() == [[False, True], [False, False]]


def test_sprites_are_laid_over_the_picture_by_opacity():
    canvas = np.full((2, 3, 3), 0.8, np.float32)
    _Placed(Sprite(np.full((2, 2, 3), 0.1, np.float32), np.full((2, 2), 0.5, np.float32)), -1, 1).paste(
        canvas
    )
    assert canvas[1, 0] == pytest.approx(0.5)
    canvas[1, 0] = 0.8
    assert canvas == pytest.approx(0.8)


def test_all_kinds_of_objects_occur():
    rng = np.random.default_rng(0)
    things = [thing for _ in range(80) for thing in draw_scene(rng, ("digger", "robot", "tricycle")).objects]
    heights = [thing.box[3] - thing.box[1] for thing in things]
    assert {thing.pose for thing in things} == {"Left", "Right", "Frontal"}
    for flag in ("truncated", "occluded", "difficult"):
        share = np.mean([getattr(thing, flag) for thing in things])
        assert 0.01 < share < 0.4, flag
    assert min(heights) < 60
    assert max(heights) > 250


# -- objects -------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), label=st.sampled_from(list(CLASSES)), frontal=st.booleans())
def test_every_object_can_be_drawn_and_stands_on_the_ground(seed, label, frontal):
    rng = np.random.default_rng(seed)
    parts = CLASSES[label](rng, frontal)
    points = np.concatenate([shape.points for piece in parts for shape in piece.shapes])
    assert np.isfinite(points).all()
    assert len({piece.name for piece in parts}) >= 5
    assert -0.35 < points[:, 1].min() < 0.05
    assert 0.7 < points[:, 1].max() < 1.6
    rows, cols = rasterise(parts, mix_paints(rng), 80).size
    assert 45 < rows < 140
    assert 25 < cols < 200


def test_an_object_never_looks_the_same_twice():
    rng = np.random.default_rng(0)
    for draw in CLASSES.values():
        centres = np.array([[piece.centre() for piece in draw(rng, False)] for _ in range(50)])
        # Move with the first part: what is left is how parts move against each other, in object heights.
        assert (centres - centres[:, :1]).std(axis=0).max() > 0.1


def test_mirrored_objects_are_mirror_images():
    points = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    plain = _random_warp(np.random.default_rng(1), mirrored=False)(points)
    assert _random_warp(np.random.default_rng(1), mirrored=True)(points) == pytest.approx(plain * (-1, 1))


def test_shapes_land_on_their_pixels():
    square = part("square", box("red", 0, 0, 1, 0.5))
    sprite = rasterise([square], {"red": (1, 0, 0), "ink": (0, 0, 0)}, 40)
    assert sprite.size == (21, 41)
    assert sprite.solid()[1:-1, 1:-1].all()
    assert sprite.colour[10, 20].tolist() == [1, 0, 0]
    upright = rasterise([square.turned(90)], {"red": (1, 0, 0), "ink": (0, 0, 0)}, 40)
    assert upright.size == (41, 21)


# -- whole or not there --------------------------------------------------------------------------------------

TINY = {"n_train": 3, "n_val": 0, "n_test": 0, "n_jobs": 1}


def test_a_finished_set_is_used_again(tmp_path):
    folder = make_sample_set(str(tmp_path / "new" / "sample"), **TINY)
    assert folder == tmp_path / "new" / "sample"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert make_sample_set(folder, **{**TINY, "n_jobs": 2}) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert [path.name for path in folder.parent.iterdir()] == ["sample"]


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "sample").mkdir()
    assert len(VOC(make_sample_set(tmp_path / "sample", **TINY), split="train")) == 3


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(
        DataError, match=r"something other than a sample set; choose a new or empty folder\.$"
    ):
        make_sample_set(tmp_path, **TINY)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("stamp", ["", "[1, 2]", '{"what": "a cake"}', "\udcff"])
def test_a_folder_with_a_strange_stamp_is_left_alone(tmp_path, stamp):
    (tmp_path / "sample_set.json").write_bytes(stamp.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match="something other than a sample set"):
        make_sample_set(tmp_path, **TINY)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_set_with_other_settings_is_refused_and_both_settings_are_named(tmp_path):
    folder = make_sample_set(tmp_path / "sample", **TINY)
    before = digests(folder)
    with pytest.raises(DataError, match=r"\(n_train 3 instead of 4, seed 0 instead of 9\)"):
        make_sample_set(folder, **{**TINY, "n_train": 4, "seed": 9})
    assert digests(folder) == before


def test_a_set_of_an_older_version_is_refused(tmp_path):
    folder = make_sample_set(tmp_path / "sample", **TINY)
    stamp = json.loads((folder / "sample_set.json").read_text())
    (folder / "sample_set.json").write_text(json.dumps({**stamp, "version": 0}))
    with pytest.raises(DataError, match="version 0 instead of"):
        make_sample_set(folder, **TINY)


def test_a_set_that_lost_pictures_is_not_taken_for_complete(tmp_path):
    folder = make_sample_set(tmp_path / "sample", **TINY)
    (folder / "VOC2007" / "JPEGImages" / "000002.jpg").unlink()
    with pytest.raises(DataError, match="holds 2 pictures instead of 3; delete the folder"):
        make_sample_set(folder, **TINY)


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "sample").write_text("")
    with pytest.raises(DataError, match="this is a file"):
        make_sample_set(tmp_path / "sample", **TINY)
    with pytest.raises(DataError, match="deeper: cannot write the sample set here"):
        make_sample_set(tmp_path / "sample" / "deeper", **TINY)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interruption_leaves_nothing_behind(tmp_path, monkeypatch, error, n_jobs):
    write = sample._write_picture

    def write_some(root, seed, image_id, split, number):
        if number == 2:
            raise error
        return write(root, seed, image_id, split, number)

    monkeypatch.setattr(sample, "_write_picture", write_some)
    with pytest.raises((KeyboardInterrupt, DataError)) as caught:
        make_sample_set(tmp_path / "sample", n_train=20, n_val=0, n_test=0, n_jobs=n_jobs)
    assert "No space left" in str(caught.value) or caught.type is KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_killed_run_is_not_taken_for_a_complete_one(tmp_path):
    folder = tmp_path / "sample"
    program = "import sys; from visionkl.datasets.sample import *; make_sample_set(sys.argv[1], n_train=5000)"
    run = subprocess.Popen([sys.executable, "-c", program, str(folder)])
    try:
        give_up = time.monotonic() + 60
        while not list(tmp_path.rglob("*.jpg")) and run.poll() is None and time.monotonic() < give_up:
            time.sleep(0.05)
    finally:
        run.kill()
        run.wait()
    assert list(tmp_path.rglob("*.jpg"))
    assert not folder.exists()
    assert len(VOC(make_sample_set(folder, **TINY), split="train")) == 3


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        (
            {"n_train": -1},
            "The 'n_train' parameter of make_sample_set must be an integer ≥ 0. Got -1 instead.",
        ),
        ({"n_test": 2.5}, "'n_test'"),
        ({"n_val": None}, "'n_val'"),
        ({"seed": "0"}, "'seed'"),
        ({"n_jobs": 0}, "'n_jobs'"),
    ],
)
def test_bad_parameters_are_named_before_anything_is_written(tmp_path, parameters, sentence):
    with pytest.raises(UsageError, match=sentence):
        make_sample_set(tmp_path / "sample", **parameters)
    assert list(tmp_path.iterdir()) == []
