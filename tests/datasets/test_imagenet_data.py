"""The ImageNet reader: class folders, the flat validation set, names, boxes."""

import pickle

import numpy as np
import pytest
from scipy.io import savemat

from tests.datasets.small_data import voc_object, voc_xml, write_picture
from visionkl.core.errors import DataError, UsageError
from visionkl.datasets.imagenet import ImageNet

TENCH, GOLDFISH, FOX = "n01440764", "n01443537", "n02119789"


def add_train(folder):
    for wnid, numbers in {GOLDFISH: (7, 12), TENCH: (18,)}.items():
        for number in numbers:
            write_picture(folder / wnid / f"{wnid}_{number}.JPEG.jpg").rename(
                folder / wnid / f"{wnid}_{number}.JPEG"
            )


def add_flat(folder, numbers=(1, 2, 3)):
    folder.mkdir(parents=True)
    for number in numbers:
        path = write_picture(folder / "x.jpg")
        path.rename(folder / f"ILSVRC2012_val_{number:08d}.JPEG")


class TestClassFolders:
    @pytest.mark.parametrize("package", [".", "Data/CLS-LOC", "ILSVRC/Data/CLS-LOC"])
    def test_pictures_and_labels(self, tmp_path, package):
        add_train(tmp_path / package / "train")
        data = ImageNet(tmp_path, "train")
        assert data.classes == (TENCH, GOLDFISH)
        assert [(example.id, example.label) for example in data] == [
            (f"{TENCH}_18", TENCH),
            (f"{GOLDFISH}_12", GOLDFISH),
            (f"{GOLDFISH}_7", GOLDFISH),
        ]
        assert data[-1].image().shape == (80, 100, 3)
        assert len(data[0].annotation) == 0
        assert repr(data) == "<ImageNet 'ImageNet train': 3 pictures, 2 classes>"

    def test_validation_set_in_class_folders(self, tmp_path):
        add_train(tmp_path / "val")
        assert [example.label for example in ImageNet(tmp_path, "val")] == [TENCH, GOLDFISH, GOLDFISH]

    def test_chosen_classes(self, tmp_path):
        add_train(tmp_path / "train")
        data = ImageNet(tmp_path, "train", classes=[GOLDFISH])
        assert (data.classes, len(data)) == ((GOLDFISH,), 2)
        with pytest.raises(UsageError, match=rf"there is no class '{FOX}'; there are {TENCH}, {GOLDFISH}\."):
            ImageNet(tmp_path, "train", classes=[FOX])

    def test_root_defaults_to_the_environment(self, tmp_path, monkeypatch):
        add_train(tmp_path / "imagenet" / "train")
        monkeypatch.setenv("VISIONKL_DATA", str(tmp_path))
        assert len(ImageNet()) == 3

    def test_examples_can_be_sent_to_another_process(self, tmp_path):
        add_train(tmp_path / "train")
        data = pickle.loads(pickle.dumps(ImageNet(tmp_path)))
        assert pickle.loads(pickle.dumps(data[0])).label == TENCH


class TestNames:
    @pytest.mark.parametrize("file", ["LOC_synset_mapping.txt", "synset_words.txt", "words.txt"])
    def test_from_whichever_file_there_is(self, tmp_path, file):
        add_train(tmp_path / "train")
        gap = "\t" if file == "words.txt" else " "
        (tmp_path / file).write_text(f"{TENCH}{gap}tench, Tinca tinca\n{FOX}{gap}kit fox\n")
        assert ImageNet(tmp_path).synset_names == {TENCH: "tench, Tinca tinca", GOLDFISH: GOLDFISH}

    def test_beside_the_package(self, tmp_path):
        add_train(tmp_path / "ILSVRC" / "Data" / "CLS-LOC" / "train")
        (tmp_path / "LOC_synset_mapping.txt").write_text(f"{TENCH} tench, Tinca tinca\n")
        for root in (tmp_path, tmp_path / "ILSVRC", tmp_path / "ILSVRC" / "Data" / "CLS-LOC"):
            assert ImageNet(root).synset_names[TENCH] == "tench, Tinca tinca"


class TestFlatValidationSet:
    def write_truth(self, folder, *numbers):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "ILSVRC2012_validation_ground_truth.txt"
        path.write_text("".join(f"{number}\n" for number in numbers))

    def test_kaggles_solution(self, tmp_path):
        add_flat(tmp_path / "ILSVRC" / "Data" / "CLS-LOC" / "val")
        (tmp_path / "LOC_val_solution.csv").write_text(
            "ImageId,PredictionString\n"
            f"ILSVRC2012_val_00000003,{GOLDFISH} 85 1 499 272 \n"
            f"ILSVRC2012_val_00000001,{FOX} 1 2 3 4 {FOX} 5 6 7 8 \n"
            f"ILSVRC2012_val_00000002,{TENCH} 1 2 3 4\n"
        )
        data = ImageNet(tmp_path, "val")
        assert [example.label for example in data] == [FOX, TENCH, GOLDFISH]
        assert data.classes == (TENCH, GOLDFISH, FOX)
        assert [example.label for example in ImageNet(tmp_path, "val", classes=[FOX])] == [FOX]

    def test_ground_truth_with_the_text_table(self, tmp_path):
        add_flat(tmp_path / "val", numbers=(1, 3))
        self.write_truth(tmp_path / "devkit" / "data", 1, 2, 449)
        (tmp_path / "devkit" / "data" / "map_clsloc.txt").write_text(
            f"{FOX} 1 kit_fox\n{GOLDFISH} 2 x\n{TENCH} 449 tench\n"
        )
        assert [(example.id, example.label) for example in ImageNet(tmp_path, "val")] == [
            ("ILSVRC2012_val_00000001", FOX),
            ("ILSVRC2012_val_00000003", TENCH),
        ]

    def test_ground_truth_with_the_devkits_mat_file(self, tmp_path):
        add_flat(tmp_path / "val")
        data = tmp_path / "ILSVRC2012_devkit_t12" / "data"
        self.write_truth(data, 2, 1, 2)
        synsets = np.zeros((2, 1), dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")])
        synsets[0, 0] = (np.array([[1.0]]), FOX, "kit fox, Vulpes macrotis")
        synsets[1, 0] = (np.array([[2.0]]), TENCH, "tench, Tinca tinca")
        savemat(data / "meta.mat", {"synsets": synsets})
        assert [example.label for example in ImageNet(tmp_path, "val")] == [TENCH, FOX, TENCH]

    def test_labels_that_are_missing(self, tmp_path):
        add_flat(tmp_path / "val")
        with pytest.raises(
            DataError, match=r"neither LOC_val_solution\.csv nor ILSVRC2012_validation_ground"
        ):
            ImageNet(tmp_path, "val")
        self.write_truth(tmp_path, 1, 1)
        with pytest.raises(DataError, match=r"need the development kit's meta\.mat or map_clsloc\.txt"):
            ImageNet(tmp_path, "val")
        (tmp_path / "map_clsloc.txt").write_text(f"{FOX} 1 kit_fox\n")
        with pytest.raises(
            DataError, match=r"no label for the picture ILSVRC2012_val_00000003\.JPEG.* 1 to 2"
        ):
            ImageNet(tmp_path, "val")
        self.write_truth(tmp_path, 1, "fox", 1)
        with pytest.raises(DataError, match=r"line 2 must be an ILSVRC number .*, not 'fox'"):
            ImageNet(tmp_path, "val")

    @pytest.mark.parametrize("name", ["map_clsloc.txt", "meta.mat"])
    def test_a_table_that_is_none(self, tmp_path, name):
        add_flat(tmp_path / "val")
        self.write_truth(tmp_path, 1, 1, 1)
        (tmp_path / name).write_text("rubbish")
        with pytest.raises(DataError, match="this is not a table of synsets"):
            ImageNet(tmp_path, "val")

    def test_a_solution_that_is_none(self, tmp_path):
        add_flat(tmp_path / "val")
        path = tmp_path / "LOC_val_solution.csv"
        path.write_text(f"ILSVRC2012_val_00000001,{FOX} 1 2 3 4\nILSVRC2012_val_00000002,fox\n")
        with pytest.raises(DataError, match=r"solution\.csv: line 2 must be"):
            ImageNet(tmp_path, "val")
        path.write_text(f"ILSVRC2012_val_00000001,{FOX} 1 2 3 4\n")
        with pytest.raises(DataError, match=r"no label for the picture ILSVRC2012_val_00000002\.JPEG"):
            ImageNet(tmp_path, "val")

    def test_the_test_set_has_no_labels(self, tmp_path):
        add_flat(tmp_path / "test")
        data = ImageNet(tmp_path, "test")
        assert (len(data), data.classes, data[0].label) == (3, (), None)


class TestBoxes:
    @pytest.mark.parametrize("place", ["Annotations/CLS-LOC/train", "Annotations/train", "bbox/train"])
    def test_in_class_folders(self, tmp_path, place):
        add_train(tmp_path / "train")
        path = tmp_path / place / TENCH / f"{TENCH}_18.xml"
        path.parent.mkdir(parents=True)
        path.write_text(voc_xml(voc_object(TENCH, (0, 5, 100, 80)), voc_object(TENCH, (11, 21, 30, 40))))
        data = ImageNet(tmp_path)
        assert data[0].annotation.labels == (TENCH, TENCH)
        np.testing.assert_array_equal(data[0].annotation.boxes, [[0, 4, 100, 80], [10, 20, 30, 40]])
        assert len(data[1].annotation) == 0

    def test_of_kaggles_flat_validation_set(self, tmp_path):
        add_flat(tmp_path / "ILSVRC" / "Data" / "CLS-LOC" / "val", numbers=(1,))
        (tmp_path / "LOC_val_solution.csv").write_text(f"ILSVRC2012_val_00000001,{FOX} 1 2 3 4\n")
        path = tmp_path / "ILSVRC" / "Annotations" / "CLS-LOC" / "val" / "ILSVRC2012_val_00000001.xml"
        path.parent.mkdir(parents=True)
        path.write_text(voc_xml(voc_object(FOX)))
        assert ImageNet(tmp_path, "val")[0].annotation.labels == (FOX,)


class TestWrongPlaces:
    def test_no_such_folder_or_split(self, tmp_path):
        with pytest.raises(DataError, match="there is no such folder"):
            ImageNet(tmp_path / "nowhere")
        (tmp_path / "other").mkdir()
        with pytest.raises(DataError, match=r"there is no folder 'train' in it.*it holds other\."):
            ImageNet(tmp_path)
        add_train(tmp_path / "val")
        with pytest.raises(UsageError, match=r"there is no split 'train'; there is val\."):
            ImageNet(tmp_path)

    @pytest.mark.parametrize("below", ["", TENCH])
    def test_empty_folders(self, tmp_path, below):
        (tmp_path / "train" / below).mkdir(parents=True)
        with pytest.raises(DataError, match="there are no pictures"):
            ImageNet(tmp_path)
