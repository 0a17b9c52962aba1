"""The command `train_detector`: what a run leaves behind."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.run.train_detector.small_trainer import ARGUMENTS, run
from visionkl import store
from visionkl.core.types import Detections
from visionkl.datasets import sample
from visionkl.detection.detector import DPMDetector
from visionkl.detection.settings import TrainingSettings

ROOT = Path(__file__).resolve().parents[3]


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
