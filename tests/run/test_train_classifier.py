"""The command `train_classifier`: a run's folder, going on after an interrupt, refusals in a sentence."""

import json
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.learning.textures import TEXTURES, TINY, TINY_OPTIONS, texture, write_folder
from visionkl import store
from visionkl.datasets import sample
from visionkl.evaluation.images import ImageResult
from visionkl.learning import classify_training
from visionkl.learning.classifier_settings import ClassifierSettings
from visionkl.learning.classify import ImageClassifier
from visionkl.run import classifier_report
from visionkl.run.options import parse
from visionkl.run.train_classifier import TrainClassifierOptions, main

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(
    path for path in (ROOT / "models").glob("*.yaml") if "visionkl train-classifier" in path.read_text()
)
ARGUMENTS = ["--data", "textures", *TINY_OPTIONS]


@pytest.fixture(scope="module")
def textures(tmp_path_factory):
    """A folder of classes."""
    return write_folder(tmp_path_factory.mktemp("data") / "textures", 60)


@pytest.fixture
def workplace(textures, tmp_path, monkeypatch):
    """The current folder, with a copy of the data to spoil."""
    shutil.copytree(textures, tmp_path / "textures")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def devkit(tmp_path_factory):
    """A small sample set."""
    return sample.make_sample_set(tmp_path_factory.mktemp("data") / "sample", n_train=30, n_val=4, n_test=9)


@pytest.fixture
def no_drawings(monkeypatch):
    """Drawing the report takes long: where it is not the point, its place is all that is filled."""
    monkeypatch.setattr(
        classifier_report, "write_classifier_report", lambda run, *rest: run.report.write_text("")
    )


def run(capsys, *arguments):
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


class TestFolderOfClasses:
    def test_the_folder_holds_everything(self, workplace, capsys):
        code, out, err = run(capsys, *ARGUMENTS, "--out", "runs/mine", "--max-memory", "500M")
        assert code == 0, err
        folder = Path("runs/mine")
        assert {path.name for path in folder.iterdir()} == {
            "config.yaml",
            "environment.json",
            "log.txt",
            "metrics.csv",
            "classifier.safetensors",
            "scores.csv",
            "evaluation.json",
            "plots",
            "report.html",
        }
        assert "textures test, 45 pictures: accuracy 1.0000, mean over classes 1.0000" in out
        assert "report: runs/mine/report.html" in out
        for number, name in enumerate(classify_training.plan(ClassifierSettings(**TINY)), start=1):
            assert f"step {number} of 4: {name}" in err
        page = (folder / "report.html").read_text()
        for heading in ("How good it is", "What it gets right and wrong", "How training went", "Settings"):
            assert f"<h2>{heading}</h2>" in page
        assert "http" not in page
        assert "gram: estimated for 135 samples" in page
        assert {path.name for path in (folder / "plots").iterdir()} == {
            "confusion.png",
            "precision_recall.png",
        }
        header, *rows = (folder / "scores.csv").read_text().splitlines()
        assert header == "picture,lying,squares,standing"
        assert len(rows) == 45

    @pytest.mark.usefixtures("no_drawings")
    def test_its_config_gives_the_same_run_again(self, workplace, capsys):
        assert run(capsys, *ARGUMENTS, "--seed", "7", "--json", "--quiet")[0] == 0
        code, out, _ = run(capsys, "--config", "runs/classify-textures/config.yaml", "--json", "--quiet")
        assert code == 0
        document = json.loads(out)
        assert document["run"] == "runs/classify-textures-2"
        assert document["training"]["settings"] == {**TINY, "seed": 7, "channels": ["grey"], "coding": "pq",
                                                    "cost": [10.0], "loss": "hinge",
                                                    "longest_side": 1024}  # fmt: skip
        assert document["evaluation"]["confusion"] == [[15, 0, 0], [0, 15, 0], [0, 0, 15]]
        first, again = (Path(f"runs/classify-textures{n}/classifier.safetensors") for n in ("", "-2"))
        assert first.read_bytes() == again.read_bytes()
        assert store.load(first).predict([texture("squares", 77)]).tolist() == ["squares"]

    @pytest.mark.usefixtures("no_drawings")
    def test_splits_in_folders_and_in_lists(self, workplace, capsys):
        write_folder(Path("split/train"), n=6)
        write_folder(Path("split/test"), n=2, first=20)
        code, out, err = run(capsys, "--data", "split", *TINY_OPTIONS)
        assert code == 0, err
        assert "test, 6 pictures" in out
        for name, numbers in (("few", (0, 1, 2, 3, 4)), ("rest", (7, 8))):
            lines = [f"{label}/{number:03}.png" for label in TEXTURES for number in numbers]
            Path(f"{name}.txt").write_text("\n".join(lines))
        code, out, err = run(capsys, *ARGUMENTS, "--train-split", "few.txt", "--val-split", "rest.txt")
        assert code == 0, err
        assert "textures few: 15 pictures" in err
        assert "textures rest, 6 pictures" in out
        code, out, err = run(capsys, *ARGUMENTS, "--train-split", "few.txt", "--val-split", "few.txt")
        assert "warning: 15 of the 15 pictures to score on are also learned from" in err

    def test_a_dry_run_counts_and_writes_nothing(self, workplace, capsys):
        before = sorted(workplace.rglob("*"))
        code, out, _ = run(capsys, *ARGUMENTS, "--dry-run", "--test-share", "0.5")
        assert code == 0
        assert "textures train: 90 pictures of 3 classes (lying 30, squares 30, standing 30)" in out
        assert "time: roughly" in out
        code, out, _ = run(capsys, *ARGUMENTS, "--dry-run", "--json")
        assert json.loads(out)["classes"] == {"lying": 45, "squares": 45, "standing": 45}
        assert sorted(workplace.rglob("*")) == before

    @pytest.mark.usefixtures("no_drawings")
    def test_chosen_classes_and_no_codes(self, workplace, capsys):
        arguments = ["--category", "lying", "standing", "--coding", "none", "--channels", "grey", "hue"]
        code, out, err = run(capsys, *ARGUMENTS, *arguments, "--json")
        assert code == 0, err
        assert "step 3 of 4: vectors" in err
        document = json.loads(out)
        assert list(document["evaluation"]["classes"]) == ["lying", "standing"]
        assert document["training"]["data_bytes"] == document["training"]["float_bytes"]
        assert document["run"] == "runs/classify-textures-lying-standing"


class TestVOC:
    def test_every_class_is_a_question(self, devkit, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        code, out, err = run(capsys, "--data", devkit, *TINY_OPTIONS, "--json", "--val-split", "test")
        assert code == 0, err
        result = json.loads(out)["evaluation"]
        assert list(result["classes"]) == ["digger", "robot", "tricycle"]
        assert 0 < result["mean_ap"]["07"] <= 1
        assert "accuracy" not in result
        page = Path("runs/classify-sample/report.html").read_text()
        assert "AP 07" in page
        assert not Path("runs/classify-sample/plots/confusion.png").exists()

    @pytest.mark.usefixtures("no_drawings")
    def test_without_arguments_it_learns_from_the_sample_set(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        few = partial(sample.make_sample_set, n_train=12, n_val=3, n_test=6)
        monkeypatch.setattr(sample, "make_sample_set", few)
        code, out, err = run(capsys, *TINY_OPTIONS)
        assert code == 0, err
        assert "VOC2007 test, 6 pictures: mAP 07 " in out


@pytest.mark.usefixtures("no_drawings")
class TestResume:
    @pytest.fixture
    def interrupted(self, workplace, capsys, monkeypatch):
        """A run that was interrupted while it coded pictures."""
        with monkeypatch.context() as patch:

            def interrupt(*rest):
                raise KeyboardInterrupt

            patch.setattr(classify_training._Trainer, "_codes", interrupt)
            code, _, err = run(capsys, *ARGUMENTS)
        assert code == 130
        assert "what was learned is kept, and --resume runs/classify-textures goes on with it" in err
        assert "Traceback" not in err
        return Path("runs/classify-textures")

    @pytest.mark.parametrize("resume", [["--resume"], ["--resume", "runs/classify-textures"]])
    def test_an_interrupted_run_ends_in_the_same_model(self, interrupted, capsys, resume):
        code, _, err = run(capsys, *resume, "--jobs", "1")
        assert code == 0, err
        assert "going on after step 2 of 4" in err
        assert run(capsys, *ARGUMENTS, "--out", "whole")[0] == 0
        models = [folder / "classifier.safetensors" for folder in (interrupted, Path("whole"))]
        assert models[0].read_bytes() == models[1].read_bytes()
        steps = [[row.split(",")[:2] for row in (folder / "metrics.csv").read_text().splitlines()]
                 for folder in (interrupted, Path("whole"))]  # fmt: skip
        assert steps[0] == steps[1]

    def test_interrupted_scoring_goes_on_too(self, workplace, capsys, monkeypatch):
        with monkeypatch.context() as patch:

            def interrupt(*rest, **more):
                raise KeyboardInterrupt

            patch.setattr(ImageClassifier, "score_blocks", interrupt)
            assert run(capsys, *ARGUMENTS)[0] == 130
        model = Path("runs/classify-textures/classifier.safetensors").read_bytes()
        code, out, err = run(capsys, "--resume")
        assert code == 0, err
        assert "accuracy 1.0000" in out
        assert Path("runs/classify-textures/classifier.safetensors").read_bytes() == model

    @pytest.mark.parametrize(
        ("arguments", "difference"),
        [
            (["--n-gaussians", "5"], "n_gaussians 4, not 5"),
            (["--channels", "grey", "hue"], "channels ['grey'], not ['grey', 'hue']"),
            (["--test-share", "0.5"], "test_share None, not 0.5"),
        ],
    )
    def test_other_settings_are_refused(self, interrupted, capsys, arguments, difference):
        code, _, err = run(capsys, "--resume", interrupted, *arguments)
        assert (code, err.count("\n")) == (2, 1)
        assert f"this run was begun with {difference}" in err

    def test_runs_of_other_commands_are_not_gone_on_with(self, interrupted, capsys):
        from visionkl.run.train_detector import main as train_detector

        assert train_detector(["--resume"]) == 3
        assert "no unfinished run" in capsys.readouterr().err
        assert train_detector(["--resume", str(interrupted)]) == 2
        assert "this is a run of train_classifier" in capsys.readouterr().err


class TestFailures:
    @pytest.mark.parametrize(
        ("arguments", "code", "sentence"),
        [
            (["--data", "nowhere"], 3, "nowhere: there is no such folder; --data takes a folder of classes"),
            (["--data", "textures/lying"], 3, "the pictures lie in this folder itself, without classes"),
            ([*ARGUMENTS, "--category", "lying"], 3, "of one class, lying; at least two classes are needed"),
            ([*ARGUMENTS, "--category", "wavy"], 2, "there is no class 'wavy'; there are lying, squares"),
            ([*ARGUMENTS, "--year", "2007"], 2, "--year is for VOC data"),
            (
                [*ARGUMENTS, "--test-share", "1"],
                2,
                "--test-share must be a number above 0 and below 1, not 1",
            ),
            ([*ARGUMENTS, "--train-split", "lists/a.txt"], 2, "give both --train-split and --val-split"),
            ([*ARGUMENTS, "--train-split", "x", "--val-split", "y"], 2, "there is no folder textures/x"),
            ([*ARGUMENTS, "--n-pca", "0"], 2, "The 'n_pca' parameter of ImageClassifier"),
            ([*ARGUMENTS, "--channels", "infrared"], 2, "The 'channels' parameter of ImageClassifier"),
            ([*ARGUMENTS, "--max-memory", "lots"], 2, "--max-memory must be an amount of memory"),
            ([*ARGUMENTS, "--bin-sizes", "20"], 3, "44 × 44 pixels the picture is too small to be described"),
        ],
    )
    def test_a_sentence_and_no_folder(self, workplace, capsys, arguments, code, sentence):
        ended, out, err = run(capsys, *arguments)
        assert (ended, out, err.count("\n")) == (code, "", 1)
        assert sentence in err
        assert not Path("runs").exists()

    @pytest.mark.usefixtures("no_drawings")
    def test_bad_pictures_stop_it_or_are_left_out(self, workplace, capsys):
        Path("textures/lying/000.png").write_bytes(b"no picture")
        Image.fromarray(texture("lying", 0)[:5]).save("textures/lying/001.png")
        code, _, err = run(capsys, *ARGUMENTS)
        assert (code, err.count("\n")) == (3, 1)
        assert re.search(r"textures/lying/00[01]\.png", err)
        assert not Path("runs").exists()
        code, _, err = run(capsys, *ARGUMENTS, "--on-bad-data", "skip")
        assert code == 0
        assert "left out: textures/lying/000.png" in err
        assert "left out: textures/lying/001.png: with 44 × 5 pixels the picture is too small" in err

    @pytest.mark.usefixtures("no_drawings")
    def test_a_class_that_no_picture_shows(self, devkit, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        shutil.copytree(devkit, "data")
        lists = Path("data/VOC2007/ImageSets/Main")
        ids = [line.split() for line in (lists / "robot_train.txt").read_text().splitlines()]
        without = [name for name, sign in ids if sign == "-1"]
        (lists / "few.txt").write_text("\n".join(without))
        arguments = ["--data", "data", "--train-split", "few", "--val-split", "test", *TINY_OPTIONS]
        code, _, err = run(capsys, *arguments, "--category", "digger", "robot")
        assert (code, err.count("\n")) == (3, 1)
        assert "shows the class 'robot', so it cannot be learned" in err
        code, out, err = run(capsys, *arguments, "--json")
        assert code == 0
        assert "no picture shows robot, which cannot be learned and is left out" in err
        assert list(json.loads(out)["evaluation"]["classes"]) == ["digger", "tricycle"]


def test_cases_are_the_most_telling():
    signs = np.array([[1, -1], [1, -1], [-1, 1], [-1, 1], [1, -1]], np.int8)
    scores = np.array([[2, 0], [3, 0], [1, 0], [-1, 2], [-2, 4.0]])
    cases = classifier_report.choose_cases(ImageResult("pets", ("cat", "dog"), True, signs, scores), "cat")
    assert (cases.right, cases.false, cases.missed) == ([1, 0], [2], [4])
    signs[0, 0] = 0
    cases = classifier_report.choose_cases(ImageResult("pets", ("cat", "dog"), False, signs, scores), "cat")
    assert (cases.right, cases.false, cases.missed) == ([1], [2, 3], [4])


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_every_recipe_is_accepted(recipe):
    options, _, given = parse(TrainClassifierOptions, ["--config", str(recipe)], name="train_classifier")
    assert isinstance(options.settings, ClassifierSettings)
    assert given > {"config"}
    assert f"--config models/{recipe.name}" in recipe.read_text()


def test_the_recipes_are_what_they_say():
    paper, small = (yaml.safe_load((ROOT / "models" / f"fisher_{name}.yaml").read_text())
                    for name in ("pq_voc", "small"))  # fmt: skip
    settings = {
        name: value for name, value in paper.items() if name in ClassifierSettings.__dataclass_fields__
    }
    assert ClassifierSettings(**settings).n_features == 122_880
    defaults = ClassifierSettings()
    assert all(getattr(defaults, name) == value for name, value in small.items() if name != "cost")


@pytest.mark.slow
def test_in_processes_of_their_own_interrupted_and_resumed(workplace):
    """Whole with one job; interrupted with two, and resumed."""
    tool = [sys.executable, ROOT / "tools/train_classifier.py"]
    command = [*tool, *ARGUMENTS]
    whole = subprocess.run([*command, "--out", "whole", "--jobs", "1"], capture_output=True, text=True)
    assert whole.returncode == 0, whole.stderr
    process = subprocess.Popen(
        [*command, "--out", "runs/part", "--jobs", "2"], stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        if line.startswith("step 2 of"):
            process.send_signal(signal.SIGINT)
            break
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert not Path("runs/part/report.html").exists()
    resumed = subprocess.run([*tool, "--resume", "--jobs", "2"], capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    models = [Path(folder) / "classifier.safetensors" for folder in ("whole", "runs/part")]
    assert models[0].read_bytes() == models[1].read_bytes()
    assert subprocess.run([*tool, "--data", "nowhere"], capture_output=True).returncode == 3
