"""The command `train_detector`: what goes wrong is said in a sentence, and loses nothing."""

import errno
from pathlib import Path

import pytest

from tests.run.train_detector.small_trainer import ARGUMENTS, last_line, run
from visionkl.core import files
from visionkl.core.errors import DataError, UsageError
from visionkl.datasets.voc import VOC
from visionkl.run.memory import parse_bytes


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
            ([*ARGUMENTS, "--start-from", "no.mat"], 3, "no.mat: there is no such file"),
            ([*ARGUMENTS, "--start-from", "bad.yaml"], 3, "bad.yaml"),
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


@pytest.mark.parametrize("text", ["8", "8X", "", "-1G", "0G", "G"])
def test_amounts_of_memory(text):
    if text == "8":
        assert parse_bytes(text) == 8
    else:
        with pytest.raises(UsageError, match="--max-memory must be an amount"):
            parse_bytes(text)
