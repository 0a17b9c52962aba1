"""Bad data, one clear sentence each: where it is, what is wrong, and nothing of Python's inside."""

import pytest

from tests.datasets.small_data import voc_object, voc_xml, write_picture
from visionkl.core.errors import DataError, UsageError
from visionkl.datasets.base import usable
from visionkl.datasets.folder import ImageFolder
from visionkl.datasets.voc import VOC
from visionkl.run.inspect_data import main

LEVELS = "".join(
    f'<!ENTITY {name} "{f"&{below};" * 8}">' for below, name in zip("abcdef", "bcdefg", strict=True)
)
BILLION_LAUGHS = (
    f'<?xml version="1.0"?><!DOCTYPE annotation [<!ENTITY a "ha">{LEVELS}]>'
    "<annotation><filename>&g;</filename></annotation>"
)
QUADRATIC_BLOWUP = (
    f'<!DOCTYPE annotation [<!ENTITY a "{"x" * 10_000}">]>'
    f"<annotation><filename>{'&a;' * 1000}</filename></annotation>"
)
OUTSIDE_FILE = (
    '<!DOCTYPE annotation [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    "<annotation><object><name>&a;</name></object></annotation>"
)


def sentence_of(devkit, error=DataError):
    """What is said when the only picture of a data set is used."""
    devkit.list("val", "a").list("dog_val", "a 1")
    with pytest.raises(error) as caught:
        list(usable(VOC(devkit.folder, split="val")))
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith((".", ".)"))
    assert str(devkit.folder) in sentence
    return sentence


class TestPictures:
    @pytest.mark.parametrize("kept", [0.05, 0.5, 0.95])
    def test_a_truncated_jpeg(self, devkit, kept):
        devkit.add("a", voc_object())
        path = devkit.folder / "JPEGImages" / "a.jpg"
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
        assert "a.jpg: the picture is damaged and cannot be decoded" in sentence_of(devkit)

    def test_a_text_file_by_the_name_of_a_picture(self, devkit):
        devkit.add("a", voc_object())
        (devkit.folder / "JPEGImages" / "a.jpg").write_text("not a picture")
        assert "a.jpg: this is not a picture" in sentence_of(devkit)

    def test_an_empty_file(self, devkit):
        devkit.add("a", voc_object())
        (devkit.folder / "JPEGImages" / "a.jpg").write_bytes(b"")
        assert "a.jpg: the file is empty." in sentence_of(devkit)

    def test_a_picture_that_is_missing(self, devkit):
        devkit.add("a", voc_object(), picture=False)
        assert "a.jpg: there is no such file." in sentence_of(devkit)

    def test_an_empty_folder(self, tmp_path):
        with pytest.raises(DataError, match="there are no pictures in this folder"):
            ImageFolder(tmp_path)
        with pytest.raises(DataError, match=r"and this one holds none\."):
            VOC(tmp_path)


class TestBoxes:
    @pytest.mark.parametrize(
        ("box", "says"),
        [
            ((50, 50, 50, 50), "(dog; xmin 50, ymin 50, xmax 50, ymax 50) is empty."),
            ((50, 20, 50, 60), "is empty."),
            ((60, 20, 50, 60), "is inside out."),
            ((10, 60, 50, 20), "is inside out."),
            ((101, 1, 140, 20), "lies outside of the picture, which has 100 × 80 pixels."),
            ((1, 300, 40, 380), "lies outside of the picture"),
            ((-40, 1, -5, 20), "lies outside of the picture"),
            (("nan", 1, 5, 20), "is not made of finite numbers."),
            (("wide", 1, 5, 20), "must have the numbers xmin, ymin, xmax, ymax in its <bndbox>, not 'wide'"),
            (("", 1, 5, 20), "must have the numbers"),
        ],
    )
    def test_boxes_that_cannot_be_used(self, devkit, box, says):
        devkit.add("a", voc_object(), voc_object(box=box))
        sentence = sentence_of(devkit)
        assert "a.xml: the box of object number 2" in sentence
        assert says in sentence

    def test_several_of_them(self, devkit):
        devkit.add("a", *[voc_object(box=(5, 5, 5, 5))] * 3)
        assert "is empty (2 more of this picture cannot be used, either)." in sentence_of(devkit)

    def test_no_box_at_all(self, devkit):
        devkit.add("a", xml=voc_xml("<object><name>dog</name></object>"))
        assert "must have the numbers xmin, ymin, xmax, ymax" in sentence_of(devkit)


class TestXML:
    @pytest.mark.parametrize("size", [None, (0, 0), ("", ""), ("wide", 80), ("inf", 80)])
    def test_without_a_size_the_picture_tells_it(self, devkit, size):
        devkit.add("a", voc_object(box=(1, 1, 100, 80)))
        devkit.add("a", xml=voc_xml(voc_object(box=(1, 1, 100, 80)), size=size), picture=False)
        devkit.list("val", "a")
        assert len(VOC(devkit.folder, split="val")[0].annotation) == 1
        devkit.add("a", xml=voc_xml(voc_object(box=(120, 1, 150, 80)), size=size), picture=False)
        assert "outside of the picture, which has 100 × 80 pixels" in sentence_of(devkit)

    def test_without_a_size_and_without_a_picture(self, devkit):
        devkit.add("a", xml=voc_xml(voc_object(), size=None), picture=False).list("val", "a")
        with pytest.raises(DataError) as caught:
            _ = VOC(devkit.folder, split="val")[0].annotation
        assert "a.xml: the XML does not tell the picture's size, and neither does the picture" in str(
            caught.value
        )
        assert "a.jpg: there is no such file" in str(caught.value)

    @pytest.mark.parametrize("bomb", [BILLION_LAUGHS, QUADRATIC_BLOWUP, OUTSIDE_FILE])
    def test_entity_bombs(self, devkit, bomb):
        devkit.add("a", xml=bomb)
        write_picture(devkit.folder / "JPEGImages" / "a.jpg")
        assert "a.xml: the XML declares entities, which can be an attack and are not read" in sentence_of(
            devkit
        )

    @pytest.mark.parametrize(
        ("xml", "says"),
        [
            ("", "this is not well-formed XML (no element found"),
            ("<annotation>", "this is not well-formed XML"),
            ("\x00\x01\x02", "this is not well-formed XML"),
            ('<?xml version="1.0" encoding="klingon"?><annotation/>', "this is not well-formed XML"),
            ("<html></html>", "whose outermost element is <annotation>, not <html>."),
            (voc_xml("<object><bndbox/></object>"), "object number 1 has no <name>."),
            (
                voc_xml(voc_object(difficult="maybe")),
                "<difficult> of object number 1 must be 0 or 1, not 'maybe'.",
            ),
            (
                voc_xml(voc_object("yak")),
                "there is an object of the class 'yak', which the data set does not have",
            ),
        ],
    )
    def test_files_that_are_no_annotations(self, devkit, xml, says):
        devkit.add("a", xml=xml)
        assert f"a.xml: {says}" in sentence_of(devkit) or says in sentence_of(devkit)

    def test_a_missing_annotation(self, devkit):
        devkit.add("a")
        (devkit.folder / "Annotations" / "a.xml").unlink()
        assert "a.xml: there is no such annotation file." in sentence_of(devkit)

    def test_a_folder_by_the_name_of_an_annotation(self, devkit):
        devkit.add("a")
        (devkit.folder / "Annotations" / "a.xml").unlink()
        (devkit.folder / "Annotations" / "a.xml").mkdir()
        assert "a.xml: the file cannot be read" in sentence_of(devkit)


class TestClasses:
    def test_a_class_that_does_not_exist(self, devkit):
        devkit.add("a", voc_object("yak")).list("val", "a")
        with pytest.raises(UsageError, match=r"^VOC2012: there is no class 'dog'; there are yak\.$"):
            VOC(devkit.folder, split="val", classes=["dog"])


@pytest.mark.parametrize("spoil", ["picture", "box", "size", "bomb"])
def test_the_command_ends_with_code_3_and_a_sentence(devkit, capsys, spoil):
    devkit.add("a", voc_object()).list("trainval", "a").list("dog_trainval", "a 1")
    path = devkit.folder / "JPEGImages" / "a.jpg"
    if spoil == "picture":
        path.write_bytes(path.read_bytes()[:2000])
    elif spoil == "box":
        devkit.add("a", voc_object(box=(5, 5, 5, 5)))
    elif spoil == "size":
        devkit.add("a", xml=voc_xml(voc_object(), size=None), picture=False)
        path.unlink()
    else:
        devkit.add("a", xml=BILLION_LAUGHS)
    assert main([str(devkit.folder), "--quiet"]) == 3
    printed = capsys.readouterr()
    assert f"  {devkit.folder}" in printed.out
    assert "Traceback" not in printed.out + printed.err
    assert printed.err.count("\n") == 1
