"""The YOLO reader: layouts, names, labels."""

import pickle

import numpy as np
import pytest

from tests.datasets.small_data import write_picture
from visionkl.core.errors import DataError, UsageError
from visionkl.datasets.yolo import YOLO

LABELS = "1 0.5 0.5 0.2 0.5\n\n0 0.05 0.1 0.1 0.2\n"
BOXES = [[40, 20, 60, 60], [0, 0, 10, 16]]


def add(root, picture, labels):
    write_picture(root / picture)
    (root / labels).parent.mkdir(parents=True, exist_ok=True)
    (root / labels).write_text(LABELS)


def check(data):
    objects = data[0].annotation
    assert objects.labels == ("bus", "bicycle")
    np.testing.assert_allclose(objects.boxes, BOXES, atol=1e-5)


class TestLayouts:
    @pytest.mark.parametrize(
        ("picture", "labels", "entry"),
        [
            ("images/val/a.png", "labels/val/a.txt", "images/val"),
            ("val/images/a.png", "val/labels/a.txt", "val/images"),
            ("val/images/a.png", "val/labels/a.txt", "../val/images"),
            ("images/sub/images/a.png", "images/sub/labels/a.txt", "images/sub/images"),
            ("plain/a.png", "plain/a.txt", "plain"),
            ("images/val/a.png", "labels/val/a.txt", ["images/val"]),
        ],
    )
    def test_described_by_yaml(self, tmp_path, picture, labels, entry):
        add(tmp_path, picture, labels)
        (tmp_path / "data.yaml").write_text(f"val: {entry}\nnames: [bicycle, bus]\nnc: 2\n")
        for root in (tmp_path, tmp_path / "data.yaml"):
            data = YOLO(root, "val")
            check(data)
            assert (data.classes, data[0].id) == (("bicycle", "bus"), "a")
            assert data.name == f"{tmp_path.name} val"

    def test_names_as_a_table_and_splits_seen_from_a_path(self, tmp_path):
        add(tmp_path, "elsewhere/images/val/a.png", "elsewhere/labels/val/a.txt")
        (tmp_path / "mine.yaml").write_text(
            "path: elsewhere\nval: images/val\nnames:\n  1: bus\n  0: bicycle\n"
        )
        check(YOLO(tmp_path / "mine.yaml", "val"))

    def test_a_split_as_a_list_of_files(self, tmp_path):
        add(tmp_path, "images/b.png", "labels/b.txt")
        write_picture(tmp_path / "images" / "unlisted.png")
        (tmp_path / "val.txt").write_text("./images/b.png\n\n")
        (tmp_path / "data.yaml").write_text("val: val.txt\nnames: [bicycle, bus]\n")
        data = YOLO(tmp_path, "val")
        check(data)
        assert (len(data), data[0].id) == (1, "images/b")

    @pytest.mark.parametrize(
        ("picture", "labels"),
        [
            ("images/val/a.png", "labels/val/a.txt"),
            ("val/images/a.png", "val/labels/a.txt"),
            ("val/a.png", "val/a.txt"),
            ("images/a.png", "labels/a.txt"),
        ],
    )
    def test_described_by_classes_txt(self, tmp_path, picture, labels):
        add(tmp_path, picture, labels)
        (tmp_path / "classes.txt").write_text("bicycle\nbus\n\n")
        check(YOLO(tmp_path, "val"))

    def test_examples_can_be_sent_to_another_process(self, tmp_path):
        add(tmp_path, "images/a.png", "labels/a.txt")
        (tmp_path / "classes.txt").write_text("bicycle\nbus\n")
        check(pickle.loads(pickle.dumps(YOLO(tmp_path))))


class TestLabels:
    @pytest.fixture
    def root(self, tmp_path):
        add(tmp_path, "images/a.png", "labels/a.txt")
        (tmp_path / "classes.txt").write_text("bicycle\nbus\n")
        return tmp_path

    @pytest.mark.parametrize("text", [None, "", "\n\n"])
    def test_a_picture_without_labels_has_no_objects(self, root, text):
        path = root / "labels" / "a.txt"
        path.unlink() if text is None else path.write_text(text)
        assert len(YOLO(root)[0].annotation) == 0

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ("1 0.5 0.5 0.2", "line 1 must be 'class x y width height', not '1 0.5 0.5 0.2'"),
            ("bus 0.5 0.5 0.2 0.2", "line 1 must be"),
            ("0.5 0.5 0.5 0.2 0.2", "line 1 must be"),
            ("2 0.5 0.5 0.2 0.2", r"line 1 has the class 2; there are 0 to 1 \(bicycle, bus\)"),
            ("-1 0.5 0.5 0.2 0.2", "line 1 has the class -1"),
            ("1 0.5 0.5 0 0.2", r"the box of line 1 \(1 0.5 0.5 0 0.2\) is empty"),
            ("1 nan 0.5 0.1 0.2", "is not made of finite numbers"),
            ("1 50 30 20 20", "lies outside of the picture, which has 100 × 80 pixels"),
        ],
    )
    def test_bad_lines(self, root, line, says):
        (root / "labels" / "a.txt").write_text(line)
        with pytest.raises(DataError, match=rf"labels/a\.txt: .*{says}"):
            _ = YOLO(root)[0].annotation


class TestBadDescriptions:
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("train: [", "this is not YAML"),
            ("just prose", "this does not describe a data set"),
            ("train: images", "'names' must list the classes, .* not None"),
            ("train: images\nnames: {1: bus}", "'names' must list the classes"),
            ("train: nowhere\nnames: [bus]", "there is no 'nowhere' as seen from"),
            ("train: .\nnames: [bus]", "there are no pictures in the split 'train'"),
            ("train: !!python/object/apply:os.system ['true']\nnames: [bus]", "this is not YAML"),
        ],
    )
    def test_yaml(self, tmp_path, text, says):
        (tmp_path / "data.yaml").write_text(text)
        with pytest.raises(DataError, match=rf"data\.yaml: .*{says}"):
            YOLO(tmp_path)

    def test_missing_things(self, tmp_path):
        with pytest.raises(DataError, match="there is no such file or folder"):
            YOLO(tmp_path / "none")
        (tmp_path / "other").mkdir()
        with pytest.raises(
            DataError, match=r"neither a data\.yaml nor a classes\.txt in this folder, but other"
        ):
            YOLO(tmp_path)
        (tmp_path / "data.yaml").write_text("train: other\nnames: [bus]")
        with pytest.raises(UsageError, match=r"there is no split 'val'; there is train\."):
            YOLO(tmp_path, "val")
        (tmp_path / "data.yaml").unlink()
        (tmp_path / "classes.txt").write_text("\n")
        with pytest.raises(DataError, match=r"classes\.txt: the file names no classes"):
            YOLO(tmp_path)
        (tmp_path / "classes.txt").write_text("bus")
        with pytest.raises(
            UsageError, match="there is no split 'val'; its pictures are looked for in images/val"
        ):
            YOLO(tmp_path, "val")
