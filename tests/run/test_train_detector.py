"""The command `train_detector`: the folder of a run, going on after an interrupt, and refusals in a sentence.

Most tests put a small trainer in place of `visionkl.detection.training.train`, which does nothing clever but
keeps its promises to observers: so they are quick, and interrupts come when they are wanted. The tests marked
`with_real_training` take the real one.
"""

import errno
import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml

from visionkl import store
from visionkl.core import files
from visionkl.core.errors import DataError, UsageError
from visionkl.core.image import read_image
from visionkl.core.types import Annotation, Detections
from visionkl.datasets import sample
from visionkl.datasets.base import Dataset, Example
from visionkl.datasets.voc import VOC
from visionkl.detection import plan, training
from visionkl.detection.detector import DPMDetector
from visionkl.detection.initialise import warped_cells
from visionkl.detection.model import Component, MixtureModel, Part
from visionkl.detection.objects import collect
from visionkl.detection.samples import Samples
from visionkl.detection.settings import TrainingSettings
from visionkl.evaluation import search
from visionkl.features.hog import mirror
from visionkl.run import training_report
from visionkl.run.memory import parse_bytes
from visionkl.run.options import parse
from visionkl.run.run_folder import RunFolder
from visionkl.run.train_detector import TrainOptions, main
from visionkl.run.training_facts import training_facts

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(
    path for path in (ROOT / "models").glob("*.yaml") if "visionkl train-detector" in path.read_text()
)

# -- a trainer that keeps its promises -----------------------------------------------------------------------


class Trainer:
    """Four steps, each of which changes the model; may be told to fail before one of them."""

    def __init__(self):
        self.fails_before, self.error = None, None
        self.seen = {}

    def plan(self, settings):
        return ["codebooks", "roots", "parts", "boxes"]

    def train_on(self, data, settings, *, n_jobs=None, executor=None, folder=None,
                 max_memory=None, observer=None, state=None, device=None):  # fmt: skip
        n = len(data.pictures)
        self.seen = {"n_pictures": n, "max_memory": max_memory, "settings": settings}
        model = first_model(data, settings) if state is None else state.model
        for number in range(0 if state is None else state.n_done, 4):
            with observer.stage("mining", n) as stage:
                stage.advance(n)
            observer.record({"objective": 1 / (1 + number), **({"negatives": 5} if number else {})})
            if number == self.fails_before:
                raise self.error
            model = replace(model, components=tuple(shifted(c, number) for c in model.components))
            observer.checkpoint(plan.TrainingState(number + 1, model, (samples(2),), (samples(3),)))
        return model


def first_model(data, settings):
    cells = np.array(
        [
            warped_cells(read_image(picture.path), box, (6, 9), 8)
            for picture in data.pictures
            for box in picture.all_boxes
        ]
    )
    root = cells.mean(axis=0) - cells.mean(axis=(0, 1, 2))
    parts = (Part(root[:4, :4], (2, 3), [0.1, 0, 0.1, 0]),) if settings.n_parts else ()
    bias = -0.3 * float((root**2).sum())
    one = Component(root, parts, bias)
    other = Component(mirror(root), tuple(part.mirrored(9) for part in parts), bias)
    return MixtureModel(data.label, (one, other), interval=3)


def shifted(component, number):
    """Add something that must happen once in each step."""
    return replace(component, bias=component.bias - 0.01 * (number + 1))


def samples(n):
    rng = np.random.default_rng(n)
    features = rng.integers(0, 256, (8, n)).astype(np.uint8)
    return Samples(features, np.zeros((n, 1, 2), np.int16), np.ones(n, np.uint8), np.zeros((n, 4), np.int32))


@pytest.fixture
def trainer(monkeypatch):
    trainer = Trainer()
    monkeypatch.setattr(plan, "plan", trainer.plan)
    monkeypatch.setattr(training, "train_on", trainer.train_on)
    return trainer


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A small sample set."""
    return sample.make_sample_set(tmp_path_factory.mktemp("data") / "sample", n_train=12, n_val=4, n_test=6)


@pytest.fixture
def workplace(pictures, tmp_path, monkeypatch):
    """The current folder, with a copy of the data to spoil."""
    shutil.copytree(pictures, tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def no_drawings(monkeypatch):
    """Drawing the report takes two seconds: where it is not the point, its place is all that is filled."""
    monkeypatch.setattr(
        training_report, "write_training_report", lambda run, *rest, **more: run.report.write_text("")
    )


ARGUMENTS = ["--data", "data", "--category", "digger"]


def run(capsys, *arguments):
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def last_line(text):
    return text.splitlines()[-1]


# -- what it is for ------------------------------------------------------------------------------------------


class TestRun:
    def test_the_folder_holds_everything(self, trainer, workplace, capsys):
        code, out, err = run(capsys, *ARGUMENTS, "--out", "runs/mine", "--max-memory", "500M")
        assert code == 0, err
        assert trainer.seen["max_memory"] == 500 * 2**20
        folder = Path("runs/mine")
        assert {path.name for path in folder.iterdir()} == {
            "config.yaml",
            "environment.json",
            "log.txt",
            "metrics.csv",
            "digger.safetensors",
            "comp3_det_val_digger.txt",
            "images_val.txt",
            "evaluation.json",
            "plots",
            "report.html",
        }
        assert out.startswith("digger on VOC2007 val, 4 pictures: AP 07 ")
        assert "report: runs/mine/report.html" in out
        for number, name in enumerate(trainer.plan(None), start=1):
            assert f"step {number} of 4: {name}" in err
        assert "step 4 of 4: boxes" in (folder / "log.txt").read_text()
        header, *rows = (folder / "metrics.csv").read_text().splitlines()
        assert header == "step,name,seconds,memory_mb,objective,negatives"
        assert [row.split(",")[0] for row in rows] == ["1", "2", "3", "4"]
        environment = json.loads((folder / "environment.json").read_text())
        assert environment["libraries"]["numpy"] == np.__version__

    def test_the_report_is_one_page_with_all_pictures(self, trainer, workplace, capsys):
        assert run(capsys, *ARGUMENTS)[0] == 0
        folder = Path("runs/train-digger")
        page = (folder / "report.html").read_text()
        assert "http" not in page
        assert "<script" not in page
        assert "Component 0 and, mirrored, component 1" in page
        for heading in (
            "How good it is", "What it finds", "What goes wrong", "What it misses", "How training went"
        ):  # fmt: skip
            assert f"<h2>{heading}</h2>" in page
        plots = {path.name for path in (folder / "plots").iterdir()}
        assert plots == {"precision_recall.png", "component_0.png", "errors.png", "training.png"}

    def test_the_model_shows_what_scores_above_the_best_balance(self, trainer, workplace, capsys):
        code, out, _ = run(capsys, *ARGUMENTS, "--json", "--quiet")
        assert code == 0
        document = json.loads(out)
        model = store.read_model(document["model"])
        assert model.threshold == document["threshold"] != 0
        assert 0 < document["at_threshold"]["f1"] <= 1
        assert (
            document["evaluation"]
            == json.loads(Path("runs/train-digger/evaluation.json").read_text())["evaluation"]
        )

    @pytest.mark.usefixtures("no_drawings")
    def test_its_config_gives_the_same_run_again(self, trainer, workplace, capsys):
        assert run(capsys, *ARGUMENTS, "--n-parts", "0", "--seed", "7")[0] == 0
        config = yaml.safe_load(Path("runs/train-digger/config.yaml").read_text())
        assert (config["train_split"], config["val_split"]) == ("train", "val")
        assert (config["n_parts"], config["seed"]) == (0, 7)
        assert run(capsys, "--config", "runs/train-digger/config.yaml")[0] == 0
        assert trainer.seen["settings"] == TrainingSettings(n_parts=0, seed=7)
        first, again = (
            Path("runs") / name / "digger.safetensors" for name in ("train-digger", "train-digger-2")
        )
        assert first.read_bytes() == again.read_bytes()

    @pytest.mark.usefixtures("no_drawings")
    def test_without_arguments_it_trains_on_the_sample_set(self, trainer, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        few = partial(sample.make_sample_set, n_train=9, n_val=3, n_test=3)
        monkeypatch.setattr(sample, "make_sample_set", few)
        code, out, err = run(capsys)
        assert code == 0, err
        assert out.startswith("digger on VOC2007 test, 3 pictures")
        without = yaml.safe_load(Path("runs/train-digger/config.yaml").read_text())
        assert run(capsys, "--config", ROOT / "models/sample.yaml")[0] == 0
        assert yaml.safe_load(Path("runs/train-digger-2/config.yaml").read_text()) == without

    def test_a_model_that_finds_nothing_is_reported_too(self, trainer, workplace, capsys, monkeypatch):
        monkeypatch.setattr(DPMDetector, "detect_in", lambda self, *rest, **more: Detections())
        code, out, err = run(capsys, *ARGUMENTS)
        assert code == 0
        assert "AP 07 0.0000" in out
        assert "so the threshold stays at 0" in err
        assert "not seen at all" in Path("runs/train-digger/report.html").read_text()

    def test_a_dry_run_counts_and_writes_nothing(self, trainer, workplace, capsys):
        before = sorted(workplace.rglob("*"))
        code, out, _ = run(capsys, *ARGUMENTS, "--dry-run")
        assert code == 0
        assert "objects of the class digger" in out
        assert "time: roughly" in out
        code, out, _ = run(capsys, *ARGUMENTS, "--dry-run", "--json")
        assert json.loads(out)["n_pictures"] == 12
        assert sorted(workplace.rglob("*")) == before
        assert not trainer.seen

    @pytest.mark.usefixtures("no_drawings")
    def test_splits_are_chosen_by_what_is_there(self, trainer, workplace, capsys):
        lists = workplace / "data/VOC2007/ImageSets/Main"
        (lists / "val.txt").unlink()
        run(capsys, *ARGUMENTS)
        assert yaml.safe_load(Path("runs/train-digger/config.yaml").read_text())["val_split"] == "test"
        (lists / "train.txt").unlink()
        run(capsys, *ARGUMENTS)
        config = yaml.safe_load(Path("runs/train-digger-2/config.yaml").read_text())
        assert (config["train_split"], config["val_split"]) == ("trainval", "test")
        (lists / "test.txt").unlink()
        code, _, err = run(capsys, *ARGUMENTS)
        assert code == 2
        assert "no split to score on beside trainval; name one with --val-split" in err


# -- going on ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_drawings")
class TestResume:
    @pytest.fixture
    def interrupted(self, trainer, workplace, capsys):
        """A run that was interrupted in its third step."""
        trainer.fails_before, trainer.error = 2, KeyboardInterrupt()
        code, _, err = run(capsys, *ARGUMENTS)
        trainer.fails_before = None
        assert code == 130
        assert "what was learned is kept, and --resume runs/train-digger goes on with it" in err
        assert "Traceback" not in err
        return Path("runs/train-digger")

    @pytest.mark.parametrize(
        "resume", [["--resume"], ["--resume", "runs/train-digger"], ["--resume", "newest"]]
    )
    def test_an_interrupted_run_ends_in_the_same_model(self, interrupted, workplace, capsys, resume):
        assert store.read_checkpoint(interrupted / "checkpoint.safetensors").n_done == 2
        code, _, err = run(capsys, *resume)
        assert code == 0, err
        assert "going on after step 2 of 4" in err
        assert run(capsys, *ARGUMENTS, "--out", "whole")[0] == 0
        assert (interrupted / "digger.safetensors").read_bytes() == Path(
            "whole/digger.safetensors"
        ).read_bytes()
        rows, expected = (
            [{**row, "seconds": 0, "memory_mb": 0} for row in RunFolder(folder).rows()]
            for folder in (interrupted, Path("whole"))
        )
        assert rows == expected

    def test_a_run_that_had_not_begun_goes_on_too(self, trainer, workplace, capsys):
        trainer.fails_before, trainer.error = 0, KeyboardInterrupt()
        code, _, err = run(capsys, *ARGUMENTS)
        assert code == 130
        assert "nothing was learned yet" in err
        trainer.fails_before = None
        assert run(capsys, "--resume")[0] == 0

    def test_an_interrupted_search_goes_on_too(self, trainer, workplace, capsys, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(search, "search", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt()))
            assert run(capsys, *ARGUMENTS)[0] == 130
        assert store.read_model("runs/train-digger/digger.safetensors").threshold == 0
        checkpoint = Path("runs/train-digger/checkpoint.safetensors")
        assert store.read_checkpoint(checkpoint).n_done == 4
        assert run(capsys, "--resume")[0] == 0
        assert not checkpoint.exists()
        assert store.read_model("runs/train-digger/digger.safetensors").threshold != 0

    @pytest.mark.parametrize(
        ("arguments", "difference"),
        [
            (["--category", "robot"], "category digger, not robot"),
            (["--n-parts", "3"], "n_parts 8, not 3"),
            (["--val-split", "test"], "val_split val, not test"),
            (["--config", "other.yaml"], "n_components 3, not 1"),
        ],
    )
    def test_another_config_is_refused(self, interrupted, capsys, arguments, difference):
        Path("other.yaml").write_text("n_components: 1\nn_parts: 8\n")
        before = {path: path.read_bytes() for path in interrupted.iterdir() if path.is_file()}
        code, _, err = run(capsys, "--resume", interrupted, *arguments)
        assert (code, err.count("\n")) == (2, 1)
        assert f"this run was begun with {difference}" in err
        assert before == {path: path.read_bytes() for path in interrupted.iterdir() if path.is_file()}

    def test_a_config_of_defaults_counts_too(self, trainer, workplace, capsys):
        trainer.fails_before, trainer.error = 2, KeyboardInterrupt()
        run(capsys, *ARGUMENTS, "--n-parts", "0")
        code, _, err = run(capsys, "--resume", "--n-parts", "8")
        assert code == 2
        assert "n_parts 0, not 8" in err

    def test_the_same_config_and_other_jobs_are_accepted(self, interrupted, capsys):
        assert run(capsys, "--resume", *ARGUMENTS, "--n-parts", "8", "--jobs", "1")[0] == 0

    def test_refusals(self, trainer, workplace, capsys):
        code, _, err = run(capsys, "--resume")
        assert (code, err.count("\n")) == (3, 1)
        assert "no unfinished run" in err
        assert run(capsys, *ARGUMENTS, "--quiet")[0] == 0
        code, _, err = run(capsys, "--resume", "runs/train-digger")
        assert (code, err.count("\n")) == (2, 1)
        assert "this run is finished" in err
        assert "no such folder" in run(capsys, "--resume", "runs/none")[2]
        assert "not the folder of a training run" in run(capsys, "--resume", "data")[2]
        code, _, err = run(capsys, "--resume", "--out", "elsewhere")
        assert code == 2
        assert "--out means nothing with --resume" in err

    def test_a_damaged_checkpoint_is_named(self, interrupted, capsys):
        path = interrupted / "checkpoint.safetensors"
        path.write_bytes(path.read_bytes()[:1000])
        code, _, err = run(capsys, "--resume", "--quiet")
        assert code == 3
        assert "checkpoint.safetensors: the file is damaged or no checkpoint" in last_line(err)

    def test_a_damaged_config_is_named(self, interrupted, capsys):
        (interrupted / "config.yaml").write_text("n_parts: many\n")
        code, _, err = run(capsys, "--resume")
        assert (code, err.count("\n")) == (3, 1)
        assert "config.yaml: the settings of this run cannot be read" in err


# -- what goes wrong -----------------------------------------------------------------------------------------


class FullDisk:
    """A file on a disk without space."""

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.file.close()

    def write(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.usefixtures("no_drawings")
class TestFailures:
    def test_a_full_disk_leaves_the_previous_checkpoint(self, trainer, workplace, capsys, monkeypatch):
        trainer.fails_before, trainer.error = 3, KeyboardInterrupt()
        run(capsys, *ARGUMENTS)
        checkpoint = Path("runs/train-digger/checkpoint.safetensors")
        before = checkpoint.read_bytes()
        trainer.fails_before = None
        make_temporary, fdopen, names = files.tempfile.mkstemp, files.os.fdopen, {}

        def mkstemp(**settings):
            made = make_temporary(**settings)
            names[made[0]] = settings["prefix"]
            return made

        def full(number, *rest, **settings):
            file = fdopen(number, *rest, **settings)
            return FullDisk(file) if "checkpoint" in names.get(number, "") else file

        with monkeypatch.context() as patch:
            patch.setattr(files.tempfile, "mkstemp", mkstemp)
            patch.setattr(files.os, "fdopen", full)
            code, _, err = run(capsys, "--resume", "--quiet")
        assert code == 1
        assert last_line(err) == (
            f"train_detector: {checkpoint}: this checkpoint of training cannot be written "
            "(No space left on device); the older one is still there."
        )
        assert "--resume runs/train-digger goes on with it" in err
        assert checkpoint.read_bytes() == before
        assert not list(checkpoint.parent.glob(".*"))
        assert run(capsys, "--resume")[0] == 0

    def test_data_that_disappear_midway(self, trainer, workplace, capsys):
        trainer.fails_before, trainer.error = 2, DataError("data/VOC2007/JPEGImages/x.jpg: no such file.")
        code, _, err = run(capsys, *ARGUMENTS, "--quiet")
        assert code == 3
        assert "what was learned is kept" in err
        assert last_line(err) == "train_detector: data/VOC2007/JPEGImages/x.jpg: no such file."
        assert "x.jpg" in Path("runs/train-digger/log.txt").read_text()

    @pytest.mark.parametrize(
        ("arguments", "code", "sentence"),
        [
            (["--data", "nowhere", "--category", "digger"], 3, "nowhere: there is no such folder"),
            (
                ["--data", "data", "--category", "zebra"],
                2,
                "there is no class 'zebra'; there are digger, robot",
            ),
            (["--data", "data"], 2, "say with --category which class to find; VOC2007 train has digger"),
            ([*ARGUMENTS, "--train-split", "tran"], 2, "there is no split 'tran'"),
            ([*ARGUMENTS, "--device", "cuda:99"], 1, "device 'cuda:99' cannot compute here"),
            ([*ARGUMENTS, "--device", "gpu"], 2, "must be 'auto', 'cpu', 'cuda' or 'cuda:<number>'"),
            ([*ARGUMENTS, "--max-memory", "lots"], 2, "--max-memory must be an amount of memory such as 8G"),
            ([*ARGUMENTS, "--n-parts", "-1"], 2, "The 'n_parts' parameter"),
            ([*ARGUMENTS, "--n-parts", "few"], 2, "--n-parts must be a whole number, not 'few'"),
            ([*ARGUMENTS, "--cell-size", "6"], 2, "multiple of 4"),
            ([*ARGUMENTS, "--config", "bad.yaml"], 2, "'n_prats' is not accepted"),
            ([*ARGUMENTS, "--out", "bad.yaml/x"], 3, "cannot make this folder"),
        ],
    )
    def test_a_sentence_and_no_folder(self, trainer, workplace, capsys, arguments, code, sentence):
        Path("bad.yaml").write_text("n_prats: 8\n")
        ended, out, err = run(capsys, *arguments)
        assert (ended, out, err.count("\n")) == (code, "", 1)
        assert sentence in err
        assert not Path("runs").exists()

    def test_bad_pictures_stop_it_or_are_left_out(self, trainer, workplace, capsys):
        train = VOC("data", split="train")
        train[0].path.write_bytes(b"no picture")
        code, _, err = run(capsys, *ARGUMENTS)
        assert (code, err.count("\n")) == (3, 1)
        assert train[0].path.name in err
        assert not Path("runs").exists()
        code, _, err = run(capsys, *ARGUMENTS, "--on-bad-data", "skip")
        assert code == 0
        assert f"left out: {train[0].path}" in err
        assert trainer.seen["n_pictures"] == 11

    def test_pictures_that_were_learned_from_are_no_test(self, trainer, workplace, capsys):
        code, _, err = run(capsys, *ARGUMENTS, "--val-split", "train", "--quiet")
        assert code == 0
        assert "warning: 12 of the 12 pictures to score on are also learned from" in err

    def test_bad_validation_pictures_stop_it_before_training(self, trainer, workplace, capsys):
        VOC("data", split="val")[1].path.unlink()
        assert run(capsys, *ARGUMENTS)[0] == 3
        assert not trainer.seen

    def test_an_unexpected_error_says_how_to_go_on(self, trainer, workplace, capsys):
        trainer.fails_before, trainer.error = 1, ZeroDivisionError("oh")
        code, _, err = run(capsys, *ARGUMENTS, "--quiet")
        assert code == 1
        assert "--resume runs/train-digger" in err
        assert "unexpected ZeroDivisionError" in last_line(err)


class TestFacts:
    @pytest.fixture
    def train_set(self, pictures):
        return VOC(pictures, split="train")

    def facts(self, dataset, boxes, difficult=None, **settings):
        objects = Annotation(np.reshape(boxes, (-1, 4)), ["digger"] * len(boxes), difficult)
        example = Example("a", dataset[0].path, lambda: objects)
        one = Dataset("mine", ["digger"], [example])
        chosen = TrainingSettings(**settings)
        return training_facts(collect(one, "digger", chosen), chosen, 2)

    @pytest.mark.parametrize(
        ("boxes", "difficult", "sentence"),
        [
            ([], None, "there is no object of the class 'digger' to learn from; at least 2"),
            ([[0, 0, 90, 90]], None, "there is only 1 object"),
            ([[0, 0, 90, 90]] * 4, [True] * 4, "no object .*, beside 4 marked difficult"),
            (
                [[0, 0, 20, 22]] * 9,
                None,
                "all 9 objects .* the largest has 20 × 22 pixels, the smallest filter",
            ),
        ],
    )
    def test_too_little_to_learn_from(self, train_set, boxes, difficult, sentence):
        with pytest.raises(DataError, match=sentence):
            self.facts(train_set, boxes, difficult)

    def test_small_objects_are_counted(self, train_set):
        facts = self.facts(train_set, [[0, 0, 20, 22]] * 2 + [[0, 0, 120, 100]] * 8, n_components=1)
        assert (facts.n_objects, facts.n_small) == (10, 2)

    def test_plain_cells_take_more(self, train_set):
        boxes = [[0, 0, 120, 100]] * 5
        codes, plain, rigid = (
            self.facts(train_set, boxes, **settings)
            for settings in ({"n_blocks": 2}, {"n_blocks": 0}, {"n_parts": 0})
        )
        assert plain.n_bytes == pytest.approx(64 * codes.n_bytes, rel=0.01)
        assert plain.seconds > codes.seconds > rigid.seconds


@pytest.mark.parametrize("text", ["8", "8X", "", "-1G", "0G", "G"])
def test_amounts_of_memory(text):
    if text == "8":
        assert parse_bytes(text) == 8
    else:
        with pytest.raises(UsageError, match="--max-memory must be an amount"):
            parse_bytes(text)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_every_recipe_is_accepted(recipe):
    options, _, given = parse(TrainOptions, ["--config", str(recipe)], name="train_detector")
    assert isinstance(options.settings, TrainingSettings)
    assert given > {"config"}
    assert f"--config models/{recipe.name}" in recipe.read_text()


def test_there_are_recipes():
    assert {"dpm.yaml", "rigid.yaml", "sample.yaml"} <= {path.name for path in RECIPES}


# -- the real trainer ----------------------------------------------------------------------------------------


SMALL = ["--n-components", "1", "--n-codewords", "32", "--root-rounds", "1", "--part-rounds", "1"]
SMALL += ["--mining-rounds", "1", "--n-parts", "2", "--training-interval", "2", "--interval", "3"]


def train_real(folder, *arguments):
    """Train in a process of its own."""
    command = [sys.executable, ROOT / "tools/train_detector.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.slow
def test_pictures_that_disappear_midway_and_come_back(pictures, tmp_path):
    """Without codes, pictures are read in every pass."""
    data, away = tmp_path / "data", tmp_path / "away"
    shutil.copytree(pictures, data)
    command = [sys.executable, ROOT / "tools/train_detector.py", *ARGUMENTS, *SMALL, "--n-parts", "0"]
    command += ["--n-blocks", "0", "--jobs", "2"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("step 2 of"):
            data.rename(away)
            break
    _, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert "what was learned is kept, and --resume runs/train-digger goes on with it" in err
    assert "there is no such file" in last_line(err)
    assert "Traceback" not in err
    checkpoint = tmp_path / "runs/train-digger/checkpoint.safetensors"
    before = checkpoint.read_bytes()
    resumed = train_real(tmp_path, "--resume")
    assert (resumed.returncode, resumed.stderr.count("\n")) == (3, 1)
    assert "data: there is no such folder" in resumed.stderr
    assert checkpoint.read_bytes() == before

    away.rename(data)
    resumed = train_real(tmp_path, "--resume", "--jobs", "2")
    assert resumed.returncode == 0, resumed.stderr
    assert "going on after step 1 of" in resumed.stderr


@pytest.mark.slow
def test_boxes_that_reach_outside_their_pictures(pictures, tmp_path):
    shutil.copytree(pictures, tmp_path / "data")
    for path in (tmp_path / "data").glob("*/Annotations/*.xml"):
        text = path.read_text()
        text = re.sub(r"<xmin>.*?</xmin>", "<xmin>-50</xmin>", text)
        path.write_text(re.sub(r"<ymax>.*?</ymax>", "<ymax>9000</ymax>", text))
    done = train_real(tmp_path, *ARGUMENTS, *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["training"]["n_objects"] > 0


@pytest.mark.slow
def test_real_training_end_to_end_interrupted_and_resumed(pictures, tmp_path):
    """In processes of their own: whole with one job; interrupted with two, and resumed."""
    shutil.copytree(pictures, tmp_path / "data")
    whole = train_real(tmp_path, *ARGUMENTS, *SMALL, "--out", "whole", "--jobs", "1")
    assert whole.returncode == 0, whole.stderr
    assert (tmp_path / "whole/report.html").is_file()
    command = [sys.executable, ROOT / "tools/train_detector.py", *ARGUMENTS, *SMALL, "--out", "runs/part"]
    process = subprocess.Popen([*command, "--jobs", "2"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("step 3 of"):
            process.send_signal(signal.SIGINT)
            break
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    resumed = train_real(tmp_path, "--resume", "--jobs", "2")
    assert resumed.returncode == 0, resumed.stderr
    models = [tmp_path / folder / "digger.safetensors" for folder in ("whole", "runs/part")]
    assert models[0].read_bytes() == models[1].read_bytes()
