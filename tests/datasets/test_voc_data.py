"""The VOC reader: layouts, splits, classes, flags, boxes, masks, labels of pictures."""

import pickle
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.datasets.small_data import Devkit, voc_object, voc_xml, write_picture
from visionkl.core.boxes import to_voc
from visionkl.core.errors import DataError, UsageError
from visionkl.datasets.voc import VOC, VOC_CLASSES, read_object_masks
from visionkl.datasets.voc_xml import read_voc_xml


class TestLayouts:
    def test_root_may_be_the_year_the_devkit_or_the_folder_above(self, devkit):
        devkit.add("a", voc_object()).list("val", "a")
        for root in (devkit.folder, devkit.folder.parent, devkit.folder.parent.parent):
            data = VOC(root, year="2012", split="val")
            assert [example.id for example in data] == ["a"]
            assert data.name == "VOC2012 val"
            assert data[0].image().shape == (80, 100, 3)

    def test_the_archive_of_2011_has_one_more_folder(self, tmp_path):
        Devkit(tmp_path / "TrainVal" / "VOCdevkit" / "VOC2011").add("a", voc_object()).list("train", "a")
        assert len(VOC(tmp_path, year="2011", split="train")) == 1

    def test_root_defaults_to_the_environment(self, devkit, monkeypatch):
        devkit.add("a", voc_object()).list("val", "a")
        monkeypatch.setenv("VISIONKL_DATA", str(devkit.folder.parent.parent))
        assert len(VOC(split="val")) == 1

    def test_root_defaults_to_datasets_here(self, tmp_path, monkeypatch):
        Devkit(tmp_path / "datasets" / "VOCdevkit" / "VOC2007").add("a", voc_object()).list("val", "a")
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("VISIONKL_DATA", raising=False)
        assert VOC(split="val").name == "VOC2007 val"

    def test_the_year(self, tmp_path):
        for year in ("2007", "2012"):
            Devkit(tmp_path / f"VOC{year}").add("a", voc_object()).list("val", "a")
        assert VOC(tmp_path, split="val").name == "VOC2012 val"
        assert VOC(tmp_path, 2007, "val").name == "VOC2007 val"
        with pytest.raises(UsageError, match=r"there is no VOC2010 in this folder; there is 2007, 2012\."):
            VOC(tmp_path, "2010", "val")
        with pytest.raises(UsageError, match="this is VOC2007, not VOC2012"):
            VOC(tmp_path / "VOC2007", "2012", "val")

    def test_the_only_year_needs_no_naming(self, tmp_path):
        Devkit(tmp_path / "VOC2009").add("a", voc_object()).list("val", "a")
        assert VOC(tmp_path, split="val").name == "VOC2009 val"

    def test_a_folder_with_the_layout_may_have_any_name(self, tmp_path):
        Devkit(tmp_path / "mine").add("a", voc_object()).list("val", "a")
        assert VOC(tmp_path / "mine", split="val").name == "mine val"

    def test_wrong_roots(self, tmp_path):
        with pytest.raises(DataError, match="nowhere: there is no such folder"):
            VOC(tmp_path / "nowhere")
        (tmp_path / "pictures").mkdir()
        with pytest.raises(DataError, match=r"this one holds pictures\."):
            VOC(tmp_path)

    def test_pictures_need_not_be_jpegs(self, devkit):
        devkit.add("a", voc_object(), picture=False).list("val", "a")
        path = write_picture(devkit.folder / "JPEGImages" / "a.PNG")
        assert VOC(devkit.folder, split="val")[0].path == path


class TestSplits:
    def test_any_list_is_a_split(self, devkit):
        for id in "abc":
            devkit.add(id, voc_object())
        devkit.list("train", "a").list("val", "b").list("trainval", "a", "b").list("test", "c").list(
            "odd", "c", "a"
        )
        for split, ids in {"train": "a", "val": "b", "trainval": "ab", "test": "c", "odd": "ca"}.items():
            assert [example.id for example in VOC(devkit.folder, split=split)] == list(ids)

    def test_trainval_is_put_together_where_it_has_no_list(self, devkit):
        devkit.add("a", voc_object()).add("b", voc_object()).list("train", "b").list("val", "a")
        assert [example.id for example in VOC(devkit.folder)] == ["b", "a"]

    def test_a_split_that_does_not_exist(self, devkit):
        devkit.list("train", "a").list("val", "a").list("dog_train", "a 1")
        with pytest.raises(UsageError, match=r"there is no split 'tset'; there is train, val\."):
            VOC(devkit.folder, split="tset")

    def test_an_empty_list(self, devkit):
        devkit.list("val")
        with pytest.raises(DataError, match=r"val\.txt: the list of the split 'val' is empty"):
            VOC(devkit.folder, split="val")

    def test_blank_lines_and_a_byte_order_mark_do_not_matter(self, devkit):
        path = devkit.folder / "ImageSets" / "Main" / "val.txt"
        path.write_text("\ufeffa\n\n b \r\n")
        assert [example.id for example in VOC(devkit.folder, split="val")] == ["a", "b"]

    def test_other_image_sets(self, devkit):
        devkit.list("val", "a", "b").list("val", "b", image_set="Segmentation")
        data = VOC(devkit.folder, split="val", image_set="Segmentation")
        assert ([example.id for example in data], data.name) == (["b"], "VOC2012 Segmentation val")
        with pytest.raises(UsageError, match=r"no image set 'Layout'; there is Main, Segmentation\."):
            VOC(devkit.folder, split="val", image_set="Layout")

    def test_layout_lists_name_a_picture_once_for_each_person(self, devkit):
        devkit.list("val", "a 1", "a 2", "b 1", image_set="Layout")
        data = VOC(devkit.folder, split="val", image_set="Layout")
        assert [example.id for example in data] == ["a", "b"]


class TestLaziness:
    def test_opening_reads_no_annotation_where_there_are_lists_by_class(self, devkit):
        devkit.add("a", xml="this is no XML", picture=False)
        devkit.list("train", "a").list("dog_train", "a 1")
        data = VOC(devkit.folder, split="train")
        assert data.classes == VOC_CLASSES
        with pytest.raises(DataError, match=r"a\.xml: this is not well-formed XML"):
            _ = data[0].annotation

    def test_examples_can_be_sent_to_another_process(self, devkit):
        devkit.add("a", voc_object()).list("val", "a")
        data = pickle.loads(pickle.dumps(VOC(devkit.folder, split="val")))
        assert data[0].annotation.labels == ("dog",)

    def test_an_annotation_is_read_once(self, devkit):
        devkit.add("a", voc_object()).list("val", "a")
        example = VOC(devkit.folder, split="val")[0]
        assert example.annotation is example.annotation


class TestClasses:
    def test_the_twenty_where_no_other_occurs(self, devkit):
        devkit.add("a", voc_object("dog")).list("val", "a")
        assert VOC(devkit.folder, split="val").classes == VOC_CLASSES

    def test_others_from_annotations_in_alphabetical_order(self, devkit):
        devkit.add("a", voc_object("zebra"), voc_object("dog")).add("b", voc_object("ant"))
        devkit.list("val", "a").list("train", "b")
        assert VOC(devkit.folder, split="val").classes == ("ant", "dog", "zebra")

    def test_others_from_lists_by_class(self, devkit):
        devkit.add("a", xml="unread").list("val", "a").list("zebra_val", "a 1").list("guinea_pig_val", "a -1")
        assert VOC(devkit.folder, split="val").classes == ("guinea_pig", "zebra")

    def test_the_class_train_is_no_split(self, devkit):
        devkit.list("train", "a").list("val", "b").list("train_train", "a 1").list("train_val", "b -1")
        assert VOC(devkit.folder, split="val").classes == VOC_CLASSES
        # but a plain list of that name is one
        devkit.list("train_val", "a", "b")
        assert len(VOC(devkit.folder, split="train_val")) == 2

    def test_chosen_classes_leave_out_other_objects_but_no_picture(self, devkit):
        devkit.add("a", voc_object("dog"), voc_object("cat")).add("b", voc_object("cat")).list(
            "val", "a", "b"
        )
        data = VOC(devkit.folder, split="val", classes=["dog"])
        assert data.classes == ("dog",)
        assert [example.annotation.labels for example in data] == [("dog",), ()]

    def test_a_class_that_does_not_exist(self, devkit):
        devkit.add("a", voc_object("zebra"), voc_object("ant")).list("val", "a")
        with pytest.raises(UsageError, match=r"VOC2012: there is no class 'dog'; there are ant, zebra\."):
            VOC(devkit.folder, split="val", classes=["zebra", "dog"])
        for wrong in ([], "zebra"):
            with pytest.raises(UsageError):
                VOC(devkit.folder, split="val", classes=wrong)

    def test_an_object_of_a_class_that_the_lists_do_not_know(self, devkit):
        devkit.add("a", voc_object("dgo")).list("val", "a").list("dog_val", "a 1")
        with pytest.raises(
            DataError, match=r"a\.xml: .* class 'dgo', which the data set does not have; it has"
        ):
            _ = VOC(devkit.folder, split="val")[0].annotation


class TestObjects:
    def read(self, tmp_path, *objects, size=(100, 80), **options):
        path = tmp_path / "a.xml"
        path.write_text(voc_xml(*objects, size=size))
        return read_voc_xml(path, tmp_path / "a.jpg", **options)

    def test_corners_count_from_one_and_include_the_last_pixel(self, tmp_path):
        whole = self.read(tmp_path, voc_object(box=(1, 1, 100, 80)))
        np.testing.assert_array_equal(whole.boxes, [[0, 0, 100, 80]])

    def test_corners_may_have_decimals(self, tmp_path):
        boxes = self.read(tmp_path, voc_object(box=("45.70000076293945", "2.5", "60", "70.25"))).boxes
        np.testing.assert_allclose(boxes, [[44.7, 1.5, 60, 70.25]], rtol=1e-6)

    def test_flags_and_pose(self, tmp_path):
        objects = self.read(
            tmp_path,
            voc_object(difficult=1, truncated=0, occluded=1, pose="Left"),
            voc_object(difficult=0, truncated=1, pose="Unspecified"),
            voc_object(truncated="Unspecified", occluded=""),
        )
        assert objects.difficult.tolist() == [True, False, False]
        assert objects.truncated.tolist() == [False, True, False]
        assert objects.occluded.tolist() == [True, False, False]
        assert objects.poses == ("Left", "Unspecified", "")

    def test_parts_are_no_objects_and_their_boxes_not_the_objects_box(self, tmp_path):
        part = voc_object("head", (1, 2, 3, 4)).replace("object>", "part>")
        person = voc_object("person", (5, 6, 50, 60)).replace("<bndbox>", f"{part}<bndbox>", 1)
        objects = self.read(tmp_path, person, voc_object("dog"))
        assert objects.labels == ("person", "dog")
        np.testing.assert_array_equal(objects.boxes[0], [4, 5, 50, 60])

    def test_a_picture_without_objects(self, tmp_path):
        assert len(self.read(tmp_path)) == 0

    def test_boxes_that_stick_out_are_kept_as_they_are_unless_they_are_to_be_cut_off(self, tmp_path):
        sticking_out = voc_object(box=(-4, 10, 120, 70))
        np.testing.assert_array_equal(self.read(tmp_path, sticking_out).boxes, [[-5, 9, 120, 70]])
        np.testing.assert_array_equal(self.read(tmp_path, sticking_out, clip=True).boxes, [[0, 9, 100, 70]])

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(VOC_CLASSES),
                st.integers(1, 90),
                st.integers(1, 70),
                st.integers(2, 100),
                st.integers(2, 80),
                st.booleans(),
            ),
            max_size=6,
        )
    )
    def test_what_is_written_is_read(self, tmp_path_factory, rows):
        folder = tmp_path_factory.mktemp("xml")
        corners = [(x, y, x + w - 1, y + h - 1) for _, x, y, w, h, _ in rows]
        written = [
            voc_object(row[0], box, difficult=int(row[5])) for row, box in zip(rows, corners, strict=True)
        ]
        objects = self.read(folder, *written)
        assert objects.labels == tuple(row[0] for row in rows)
        assert objects.difficult.tolist() == [row[5] for row in rows]
        np.testing.assert_array_equal(to_voc(objects.boxes), np.reshape(corners, (-1, 4)))


class TestMasks:
    def test_masks_are_numbers(self, devkit):
        devkit.add("a", voc_object()).add("b").list("val", "a", "b")
        numbers = np.zeros((80, 100), dtype=np.uint8)
        numbers[10:20, 5:9], numbers[20, 5:9] = 12, 255
        for name in ("SegmentationClass", "SegmentationObject"):
            picture = Image.fromarray(numbers // (1 if name == "SegmentationClass" else 12)).convert("P")
            picture.putpalette([7] * 768)
            (devkit.folder / name).mkdir()
            picture.save(devkit.folder / name / "a.png")
        data = VOC(devkit.folder, split="val")
        np.testing.assert_array_equal(data[0].mask(), numbers)
        np.testing.assert_array_equal(data[0].mask("object"), numbers // 12)
        assert data[1].mask_paths == {}
        with pytest.raises(UsageError, match="picture b: there is no mask of the kind 'class'; it has none"):
            data[1].mask()

    def test_objects_have_masks_classes_and_void(self, devkit):
        objects = np.zeros((80, 100), np.uint8)
        objects[10:20, 5:9], objects[30:50, 40:60] = 1, 7
        kinds = np.zeros((80, 100), np.uint8)
        kinds[10:20, 5:9], kinds[30:50, 40:60] = 12, 1
        kinds[10:14, 5:9] = 255  # where only the class is unknown
        for values in (objects, kinds):
            values[50, 40:60] = 255
        found = read_object_masks(self.example(devkit, objects, kinds))
        assert found.labels == ("dog", "aeroplane")
        assert len(found) == 2
        np.testing.assert_array_equal(found.masks, [objects == 1, objects == 7])
        np.testing.assert_array_equal(found.void, objects == 255)

    def test_a_picture_without_objects_has_no_masks(self, devkit):
        nothing = np.zeros((80, 100), np.uint8)
        found = read_object_masks(self.example(devkit, nothing, nothing))
        assert found.masks.shape == (0, 80, 100)
        assert not found.void.any()

    def test_masks_that_disagree_are_named(self, devkit):
        objects, kinds = np.ones((80, 100), np.uint8), np.zeros((80, 100), np.uint8)
        example = self.example(devkit, objects, kinds)
        with pytest.raises(DataError, match=r"a\.png: object number 1 has no class in the mask of classes"):
            read_object_masks(example)
        self.write(devkit, "SegmentationClass", np.full((80, 100), 9, np.uint8))
        with pytest.raises(DataError, match="object number 1 has the class number 9, of 2"):
            read_object_masks(example, ["cat", "dog"])
        self.write(devkit, "SegmentationClass", np.zeros((8, 10), np.uint8))
        with pytest.raises(DataError, match=r"has the shape \(80, 100\), and that of classes \(8, 10\)"):
            read_object_masks(example)

    def example(self, devkit, objects, kinds):
        devkit.add("a", voc_object()).list("val", "a")
        self.write(devkit, "SegmentationObject", objects)
        self.write(devkit, "SegmentationClass", kinds)
        return VOC(devkit.folder, split="val")[0]

    def write(self, devkit, folder, values):
        (devkit.folder / folder).mkdir(exist_ok=True)
        Image.fromarray(values).save(devkit.folder / folder / "a.png")


class TestImageLabels:
    def test_from_the_list(self, devkit):
        devkit.list("val", "b", "a", "c").list("dog_val", "a  1", "b -1", "c  0")
        np.testing.assert_array_equal(VOC(devkit.folder, split="val").image_labels("dog"), [-1, 1, 0])

    def test_from_annotations_where_there_is_no_list(self, devkit):
        devkit.add("a", voc_object("dog", difficult=1), voc_object("dog"), voc_object("cat", difficult=1))
        devkit.add("b", voc_object("dog", difficult=1)).list("val", "a", "b")
        data = VOC(devkit.folder, split="val")
        assert [data.image_labels(name).tolist() for name in ("dog", "cat", "cow")] == [
            [1, 0],
            [0, -1],
            [-1, -1],
        ]

    def test_a_class_that_does_not_exist(self, devkit):
        devkit.add("a", voc_object()).list("val", "a")
        with pytest.raises(UsageError, match="VOC2012 val: there is no class 'yak'; there are aeroplane, "):
            VOC(devkit.folder, split="val").image_labels("yak")

    def test_a_list_that_is_none(self, devkit):
        devkit.list("val", "a").list("dog_val", "a 7")
        with pytest.raises(DataError, match=r"dog_val\.txt: line 1 must be an id and 1, 0 or -1, not 'a 7'"):
            VOC(devkit.folder, split="val").image_labels("dog")


@pytest.mark.realdata
class TestRealVOC:
    def test_counts(self, realdata):
        sizes = {
            split: len(VOC(realdata / "voc2012_subset", split=split))
            for split in ("train", "val", "trainval")
        }
        assert sizes == {"train": 579, "val": 585, "trainval": 1164}

    def test_every_object_of_every_file_against_a_plain_reading(self, realdata):
        data = VOC(realdata / "voc2012_subset" / "VOCdevkit")
        assert data.classes == VOC_CLASSES
        for example in data:
            root = ElementTree.parse(data.folder / "Annotations" / f"{example.id}.xml").getroot()
            plain = [
                (
                    element.findtext("name"),
                    [float(element.find("bndbox").findtext(tag)) for tag in ("xmin", "ymin", "xmax", "ymax")],
                    *(element.findtext(flag) == "1" for flag in ("difficult", "truncated", "occluded")),
                    element.findtext("pose"),
                )
                for element in root
                if element.tag == "object"
            ]
            objects = example.annotation
            assert len(objects) == len(plain)
            for row, (label, box, *flags, pose) in enumerate(plain):
                assert objects.labels[row] == label
                np.testing.assert_allclose(to_voc(objects.boxes)[row], box, rtol=1e-6)
                assert [objects.difficult[row], objects.truncated[row], objects.occluded[row]] == flags
                assert objects.poses[row] == (pose or "")

    def test_labels_of_pictures_are_the_same_from_lists_and_from_annotations(self, realdata, tmp_path):
        data = VOC(realdata / "voc2012_subset", split="val")
        unlisted = VOC(realdata / "voc2012_subset", split="val")
        unlisted.split = "not a list"
        for name in data.classes:
            np.testing.assert_array_equal(data.image_labels(name), unlisted.image_labels(name))

    def test_masks_agree_with_the_boxes(self, realdata):
        data = VOC(realdata / "voc2012_subset", split="val", image_set="Segmentation")
        assert len(data) == 133
        for example in list(data)[:12]:
            classes, objects = example.mask("class"), example.mask("object")
            assert classes.shape == objects.shape == example.image().shape[:2]
            for number in set(np.unique(objects)) - {0, 255}:
                rows, cols = np.nonzero(objects == number)
                x1, y1, x2, y2 = example.annotation.boxes[number - 1]
                assert example.annotation.labels[number - 1] == VOC_CLASSES[classes[rows[0], cols[0]] - 1]
                inside = (cols >= x1 - 3) & (cols < x2 + 3) & (rows >= y1 - 3) & (rows < y2 + 3)
                assert inside.mean() > 0.97
            found = read_object_masks(example)
            assert found.masks.sum() + found.void.sum() == np.count_nonzero(objects)
            assert set(found.labels) <= set(example.annotation.labels)

    def test_raccoons(self, realdata):
        train, val = (VOC(realdata / "raccoon", split=split) for split in ("train", "val"))
        assert (len(train), len(val), train.classes) == (120, 80, ("raccoon",))
        assert sum(len(example.annotation) for data in (train, val) for example in data) == 217
