"""The command `train_detector` with the real trainer, in processes of its own."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.run.train_detector.small_trainer import ARGUMENTS, last_line

ROOT = Path(__file__).resolve().parents[3]

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

    begun = train_real(tmp_path, *ARGUMENTS, "--start-from", models[0], "--out", "begun", *SMALL[2:])
    assert begun.returncode == 0, begun.stderr
    assert "step 3 of 4: parts" in begun.stderr
    assert "step 1 of" not in begun.stderr
    config = yaml.safe_load((tmp_path / "begun/config.yaml").read_text())
    assert config["start_from"] == str(models[0])
    assert config["n_components"] == 1  # the model's; the default is another
