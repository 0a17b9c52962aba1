"""The command `train_detector`: going on after an interrupt."""

from pathlib import Path

import pytest

from tests.run.train_detector.small_trainer import ARGUMENTS, last_line, run
from visionkl import store
from visionkl.evaluation import search
from visionkl.run.run_folder import RunFolder


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
