"""The command `eval_voc`: from models and pictures to a table, and from results files to the same table."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.run.conftest import make_model
from visionkl import store
from visionkl.detection.detector import DPMDetector
from visionkl.evaluation.voc import evaluate_voc
from visionkl.run.console import Console
from visionkl.run.evaluate import EvaluateOptions, evaluate, main

MODELS = ["--model", "cross.safetensors", "ring.safetensors"]
DATA = ["--data", ".", "--split", "val"]


def run(capsys, *arguments):
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# -- what it is for ------------------------------------------------------------------------------------------


def test_models_are_searched_with_scored_and_reported(devkit, capsys):
    code, out, err = run(capsys, *MODELS, *DATA, "--out", "scored", "--report", "pages/report.html")
    assert code == 0, err
    assert out.startswith("VOC2007 val, 10 pictures\n")
    assert re.search(r"^cross +6 +1 ", out, re.MULTILINE)  # the last picture's is difficult
    assert re.search(r"^ring +6 +0 ", out, re.MULTILINE)
    assert "s a picture" in err
    assert sorted(path.name for path in Path("scored").iterdir()) == [
        "comp3_det_val_cross.txt",
        "comp3_det_val_ring.txt",
        "evaluation.json",
        "images_val.txt",
    ]
    document = json.loads(Path("scored/evaluation.json").read_text())
    assert document["mean_ap"]["07"] > 0.9  # the shapes are easy
    assert document["seconds_per_image"] > 0
    page = Path("pages/report.html").read_text()
    assert page.count("data:image/png;base64,") == 1
    assert "http" not in page
    assert f"{document['mean_ap']['10']:.3f}" in page


def test_the_command_and_the_function_agree(devkit, capsys):
    from visionkl.datasets.voc import VOC

    code, out, _ = run(capsys, *MODELS, *DATA, "--json", "--quiet")
    assert code == 0
    detectors = {label: DPMDetector.from_model(make_model(label)) for label in ("cross", "ring")}
    result = evaluate_voc(detectors, VOC(".", split="val"))
    document = json.loads(out)
    for key, value in result.to_dict().items():
        assert document[key] == value


def test_results_are_scored_again_without_models(devkit, capsys):
    _, first, _ = run(capsys, *MODELS, *DATA, "--out", "scored", "--metric", "10")
    for path in devkit.glob("*.safetensors"):
        path.unlink()
    shutil.rmtree(devkit / "VOC2007" / "JPEGImages")
    code, again, err = run(capsys, *DATA, "--from-results", "scored", "--metric", "10")
    assert code == 0, err
    assert again == first
    code, other, _ = run(capsys, *DATA, "--from-results", "scored", "--json", "--out", "again")
    assert json.loads(other)["metric"] == "07"
    assert [path.name for path in Path("again").iterdir()] == ["evaluation.json"]


def test_a_lower_threshold_keeps_more(devkit, capsys):
    counts = []
    for threshold in ("1000", "0", "-2"):
        code, out, _ = run(capsys, *MODELS, *DATA, "--json", "--threshold", threshold)
        document = json.loads(out)
        assert (code, document["threshold"]) == (0, float(threshold))
        counts.append(sum(found["n_detections"] for found in document["classes"].values()))
    assert 0 == counts[0] < counts[1] < counts[2]


def test_no_folder_is_ever_overwritten(devkit, capsys):
    for expected in ("eval-VOC2007-val-ring", "eval-VOC2007-val-ring-2"):
        code, out, _ = run(capsys, "--model", "ring.safetensors", *DATA, "--json")
        assert code == 0
        assert json.loads(out)["results"] == str(Path("runs") / expected)


def test_stdout_holds_the_document_alone(devkit, capsys):
    code, out, err = run(capsys, "--model", "ring.safetensors", *DATA, "--json", "--quiet")
    assert code == 0
    assert set(json.loads(out)["classes"]) == {"ring"}
    assert err == ""


# -- bad data ------------------------------------------------------------------------------------------------


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_broken_picture_stops_before_anything_is_written(devkit, capsys):
    cut(devkit / "VOC2007" / "JPEGImages" / "000007.jpg")
    code, out, err = run(capsys, *MODELS, *DATA, "--out", "scored", "--quiet")
    assert code == 3
    assert out == ""
    assert err.count("\n") == 1
    assert "000007.jpg" in err
    assert not Path("scored").exists()


def test_a_broken_picture_is_left_out_if_told_so(devkit, capsys):
    cut(devkit / "VOC2007" / "JPEGImages" / "000007.jpg")
    cut(devkit / "VOC2007" / "Annotations" / "000002.xml")
    code, out, err = run(capsys, *MODELS, *DATA, "--out", "scored", "--on-bad-data", "skip", "--json")
    assert code == 0, err
    assert "000007.jpg" in err
    assert "000002.xml" in err
    document = json.loads(out)
    assert document["n_images"] == 8
    assert document["skipped"] == ["000002", "000007"]
    # The folder remembers it: scored again, the same pictures are left out, though nothing is said of them.
    code, again, err = run(capsys, *DATA, "--from-results", "scored", "--json")
    assert code == 0, err
    assert "cover 8 of the 10 pictures" in err
    assert json.loads(again)["mean_ap"] == document["mean_ap"]


def test_results_from_elsewhere_have_no_list_of_pictures(devkit, capsys):
    run(capsys, *MODELS, *DATA, "--out", "scored")
    Path("scored/images_val.txt").unlink()
    code, out, err = run(capsys, *DATA, "--from-results", "scored", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["n_images"] == 10
    cut(devkit / "VOC2007" / "Annotations" / "000002.xml")
    code, _, err = run(capsys, *DATA, "--from-results", "scored")
    assert code == 3
    assert "000002.xml" in err
    code, out, err = run(capsys, *DATA, "--from-results", "scored", "--on-bad-data", "skip", "--json")
    # Its detections are for a picture that is not scored; they are left out with it.
    assert code == 0, err
    assert json.loads(out)["skipped"] == ["000002"]


def test_a_results_file_cut_in_the_middle(devkit, capsys):
    run(capsys, *MODELS, *DATA, "--out", "scored")
    path = Path("scored/comp3_det_val_ring.txt")
    path.write_text(path.read_text()[:-5])
    code, out, err = run(capsys, *DATA, "--from-results", "scored", "--out", "again")
    assert code == 3
    assert out == ""
    assert re.fullmatch(r"eval_voc: scored/comp3_det_val_ring\.txt: the file ends in the middle .*\n", err)
    assert not Path("again").exists()


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("comp3_det_val_ring.txt", "999999 0.5 1 2 3 4\n", "the picture '999999' is not one of the 10"),
        ("comp3_det_val_dog.txt", "", "there is no class 'dog'; there are cross, ring"),
        ("comp3_det_val_ring.txt", "000001 much 1 2 3 4\n", "results line 1 must be"),
        ("comp3_det_test_ring.txt", "", "there are no results files for this split"),
    ],
)
def test_results_that_do_not_fit(devkit, capsys, name, text, sentence):
    Path("scored").mkdir()
    (Path("scored") / name).write_text(text)
    code, out, err = run(capsys, *DATA, "--from-results", "scored")
    assert code in (2, 3)
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (DATA, 2, "give either --model to search with, or --from-results"),
        ([*MODELS, *DATA, "--from-results", "."], 2, "give either --model"),
        (["--from-results", ".", *DATA, "--threshold", "0"], 2, "--threshold is for the search"),
        ([*MODELS, "ring.safetensors", *DATA], 2, "another model finds 'ring', too"),
        ([*MODELS, *DATA, "--metric", "12"], 2, "--metric must be one of 07, 10"),
        ([*MODELS, "--data", ".", "--split", "minival"], 2, "there is no split 'minival'"),
        ([*MODELS, "--data", "nowhere"], 3, "nowhere: there is no such folder"),
        ([*MODELS, *DATA, "--year", "2012"], 2, "there is no VOC2012"),
        (["--model", "none.safetensors", *DATA], 3, "none.safetensors: there is no such file"),
        (["--model", "VOC2007/ImageSets/Main/val.txt", *DATA], 3, "val.txt"),
        (["--from-results", "nowhere", *DATA], 3, "nowhere: there is no such folder"),
        ([*MODELS, *DATA, "--report", "VOC2007"], 2, "this is a folder; name a file"),
    ],
)
def test_usage(devkit, capsys, arguments, code, sentence):
    found, out, err = run(capsys, *arguments)
    assert found == code, err
    assert sentence in err
    assert out == ""
    assert err.count("\n") == 1
    assert not Path("runs").exists()


def test_a_model_of_a_class_that_is_not_there(devkit, capsys):
    store.save(replace(make_model("ring"), label="raccoon"), "raccoon.safetensors")
    code, _, err = run(capsys, "--model", "raccoon.safetensors", *DATA)
    assert code == 2
    assert "raccoon.safetensors: the model finds 'raccoon', but in VOC2007 val: there is no class" in err


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder(devkit, capsys):
    Path("closed").mkdir(mode=0o555)
    code, _, err = run(capsys, *MODELS, *DATA, "--out", "closed/scored")
    assert code == 3
    assert "closed/scored" in err


def test_a_folder_that_cannot_be_made(devkit, capsys):
    Path("file").write_text("in the way")
    code, _, err = run(capsys, *MODELS, *DATA, "--out", "file/scored", "--quiet")
    assert code == 3
    assert "file/scored" in err
    assert err.count("\n") == 1


# -- interruption --------------------------------------------------------------------------------------------


class ImpatientConsole(Console):
    """A console whose user presses Ctrl-C after some pictures."""

    def __init__(self, after):
        super().__init__(quiet=True)
        self.after = after

    @contextmanager
    def progress(self, stage, total=None):
        with super().progress(stage, total) as progress:
            advance = progress.advance

            def interrupted_advance(steps=1):
                advance(steps)
                if stage == "searching" and progress.done == self.after:
                    raise KeyboardInterrupt

            progress.advance = interrupted_advance
            yield progress


def test_an_interrupted_search_keeps_what_it_found(devkit, capsys):
    models = [Path("cross.safetensors"), Path("ring.safetensors")]
    options = EvaluateOptions(model=models, data=Path("."), split="val", out=Path("scored"))
    with pytest.raises(KeyboardInterrupt):
        evaluate(options, ImpatientConsole(after=4))
    assert (
        "4 of 10 pictures were searched; --from-results scored scores them alone" in capsys.readouterr().err
    )
    assert sorted(path.name for path in Path("scored").iterdir()) == [
        "comp3_det_val_cross.txt",
        "comp3_det_val_ring.txt",
        "images_val.txt",
    ]
    code, out, err = run(capsys, *DATA, "--from-results", "scored", "--json")
    assert code == 0
    assert "cover 4 of the 10 pictures" in err
    assert json.loads(out)["n_images"] == 4


# -- as a program --------------------------------------------------------------------------------------------


def test_the_tool_runs_from_a_clone(devkit):
    tool = Path(__file__).resolve().parents[2] / "tools" / "eval_voc.py"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, tool, *DATA, "--from-results", "nowhere"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "eval_voc: nowhere: there is no such folder.\n"


@pytest.mark.realdata
def test_published_models_on_real_pictures(realdata, tmp_path, capsys):
    real = realdata / "voc2012_subset" / "VOCdevkit" / "VOC2012"
    folder = tmp_path / "VOC2012"
    (folder / "ImageSets" / "Main").mkdir(parents=True)
    for name in ("JPEGImages", "Annotations"):
        (folder / name).symlink_to(real / name)
    ids = (real / "ImageSets" / "Main" / "val.txt").read_text().split()[::117]
    (folder / "ImageSets" / "Main" / "val.txt").write_text("\n".join(ids) + "\n")
    models = [realdata / "voc_dpm_models" / f"VOC2007_{label}_final.mat" for label in ("bicycle", "bus")]
    code, out, err = run(
        capsys, "--model", *models, "--data", tmp_path, "--split", "val", "--out", tmp_path / "x", "--json"
    )
    assert code == 0, err
    document = json.loads(out)
    assert list(document["classes"]) == ["bicycle", "bus"]
    assert document["n_images"] == 5
    assert sum(found["n_detections"] for found in document["classes"].values()) > 0
