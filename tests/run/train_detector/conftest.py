"""Pictures to train on, and a small trainer."""

import shutil

import pytest

from tests.run.train_detector.small_trainer import Trainer
from visionkl.datasets import sample
from visionkl.detection import plan, training
from visionkl.run import training_report


@pytest.fixture
def trainer(monkeypatch):
    trainer = Trainer()
    monkeypatch.setattr(plan, "plan", trainer.plan)
    monkeypatch.setattr(training, "train_on", trainer.train_on)
    return trainer


@pytest.fixture(scope="session")
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
