"""The command inspect_data: what it prints, its exit codes, and how it tells formats apart."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasets.small_data import Devkit, voc_object, write_picture
from visionkl.run.inspect_data import main

TOOL = Path(__file__).resolve().parents[2] / "tools" / "inspect_data.py"


@pytest.fixture
def devkit(tmp_path):
    return Devkit(tmp_path / "VOCdevkit" / "VOC2012").add("a", voc_object("dog")).list("trainval", "a")


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_sound_data_set(capsys, devkit):
    code, out, err = run(capsys, devkit.folder.parent)
    assert (code, err) == (0, "")
    assert out.startswith("VOC2012 trainval: 1 picture, 1 object, 20 classes\n")
    assert ["dog", "1", "1", "0", "0", "0", "40", "×", "40", "1.00–1.00"] in map(str.split, out.splitlines())
    assert "nothing is wrong with it." in out


def test_everything_bad_is_listed_and_the_exit_code_is_3(capsys, devkit):
    devkit.add("b", voc_object(box=(9, 9, 9, 9))).add("c", picture=False).list("trainval", "a", "b", "c")
    code, out, err = run(capsys, devkit.folder)
    assert code == 3
    assert "2 things cannot be used (1 empty box, 0 boxes outside):" in out
    assert "b.xml: the box of object number 1 (dog; xmin 9, ymin 9, xmax 9, ymax 9) is empty." in out
    assert "c.jpg: there is no such file." in out
    assert err == "inspect_data: VOC2012 trainval: 2 things cannot be used; see the list.\n"


def test_json(capsys, devkit):
    code, out, _ = run(capsys, devkit.folder, "--json")
    assert (code, json.loads(out)["ok"], json.loads(out)["total"]["objects"]) == (0, True, 1)
    devkit.add("a", voc_object(), picture=False)
    (devkit.folder / "JPEGImages" / "a.jpg").unlink()
    code, out, _ = run(capsys, devkit.folder, "--json")
    assert (code, json.loads(out)["ok"]) == (3, False)
    assert json.loads(out)["problems"][0]["kind"] == "picture"


def test_boxes_that_stick_out_are_named_but_no_harm(capsys, devkit):
    devkit.add("a", voc_object(box=(50, 50, 130, 60)))
    code, out, _ = run(capsys, devkit.folder)
    assert code == 0
    assert "stick out of their picture, which is no harm: a" in out


def test_formats_are_told_apart(capsys, tmp_path):
    def heading(*arguments):
        code, out, err = run(capsys, *arguments)
        assert code == 0, err
        return out.splitlines()[0]

    write_picture(tmp_path / "plain" / "a.png")
    assert heading(tmp_path / "plain") == "plain: 1 picture, 0 objects, 0 classes, 1 picture without a label"

    write_picture(tmp_path / "flowers" / "daisy" / "a.png")
    assert heading(tmp_path / "flowers") == "flowers: 1 picture, 0 objects, 1 class"

    write_picture(tmp_path / "yolo" / "images" / "val" / "a.png")
    (tmp_path / "yolo" / "data.yaml").write_text("val: images/val\nnames: [bus]\n")
    for place in (tmp_path / "yolo", tmp_path / "yolo" / "data.yaml"):
        assert heading(place, "--split", "val").startswith("yolo val: 1 picture")

    write_picture(tmp_path / "net" / "train" / "n01440764" / "n01440764_1.png")
    assert heading(tmp_path / "net") == "ImageNet train: 1 picture, 0 objects, 1 class"

    content = {"images": [{"id": 1, "file_name": "a.png"}], "annotations": [], "categories": []}
    (tmp_path / "coco.json").write_text(json.dumps(content))
    assert heading(tmp_path / "coco.json", "--images", tmp_path / "plain").startswith("coco: 1 picture")

    Devkit(tmp_path / "mine").add("a", voc_object("yak")).list("train", "a")
    assert heading(tmp_path / "mine", "--split", "train") == "mine train: 1 picture, 1 object, 1 class"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nowhere"], 3, "nowhere: there is no such file or folder."),
        (["empty"], 3, "empty: there are no pictures in this folder"),
        (["a", "b"], 2, "one data set at a time, not 2."),
        (["empty", "--split", "val"], 2, "--split means nothing for a data set of the format folder."),
        (["notes.txt"], 2, "a folder, a COCO .json or a YOLO .yaml is wanted"),
        (["x.json"], 2, "say with --images where the pictures of this COCO file are."),
        (["VOCdevkit", "--split", "nix"], 2, "there is no split 'nix'; there is trainval."),
        (["VOCdevkit", "--year", "2007"], 2, "there is no VOC2007 in this folder; there is 2012."),
        (["VOCdevkit", "--format", "vok"], 2, "--format must be one of auto, voc"),
        (["--qick", "VOCdevkit"], 2, "did you mean --quick?"),
    ],
)
def test_what_is_refused(capsys, devkit, tmp_path, monkeypatch, arguments, code, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "x.json").touch()
    done, out, err = run(capsys, *arguments)
    assert (done, out) == (code, "")
    assert says in err
    assert err.count("\n") == 1


def test_as_a_program_on_the_default_folder(devkit, tmp_path):
    environment = {"PATH": "", "VISIONKL_DATA": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(TOOL)], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("VOC2012 trainval: 1 picture")
