"""The command that generates the sample set."""

import json

from visionkl.run.make_sample import main

FEW = ["--n-train", "3", "--n-val", "1", "--n-test", "1"]


def test_generates_once_and_finds_it_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*FEW, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["pictures"] == {"train": 3, "val": 1, "test": 1}
    picture = tmp_path / document["folder"] / "VOC2007/JPEGImages/000001.jpg"
    made = picture.stat().st_mtime_ns
    assert main(FEW) == 0
    assert picture.stat().st_mtime_ns == made
    assert "3 pictures in train" in capsys.readouterr().out


def test_refuses_a_folder_with_something_else(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert main([*FEW, "--out", str(tmp_path)]) == 3
    assert "something other" in capsys.readouterr().err


def test_refuses_negative_numbers(tmp_path, capsys):
    assert main(["--n-train", "-1", "--out", str(tmp_path / "set")]) == 2
    assert "n_train" in capsys.readouterr().err
