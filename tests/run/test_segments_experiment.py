"""The experiment `bench segments`, on generated pictures."""

import json

import pytest

from visionkl.datasets.sample import make_sample_set
from visionkl.run import experiments


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return make_sample_set(tmp_path_factory.mktemp("segments") / "sample", n_train=2, n_val=2, n_test=2)


def test_the_page_tells_overlap_classes_and_time(sample, tmp_path, capsys):
    out = tmp_path / "page"
    arguments = ["--data", str(sample), "--split", "train", "--quick", "--n-segments", "30"]
    assert experiments.main(["segments", *arguments, "--out", str(out)]) == 0
    page = (out / "results.md").read_text(encoding="utf-8")
    assert "| 25 |" in page
    assert "0.75 to 0.80" in page
    assert "![The best of a pool against its size](pool.png)" in page
    assert (out / "best.png").is_file()
    overlap, classes, seconds = json.loads((out / "results.json").read_text(encoding="utf-8"))["tables"]
    sizes = [row[0] for row in overlap["rows"][:-1]]
    assert sizes == [10, 25]
    assert overlap["rows"][0][1] <= overlap["rows"][1][1] <= 1
    assert {row[0] for row in classes["rows"]} <= {"digger", "robot", "tricycle"}
    assert seconds["rows"][0][0] > 0
    assert "Best overlap in a pool" in capsys.readouterr().out


def test_segments_are_drawn_only_if_wanted(sample, tmp_path):
    arguments = ["--data", str(sample), "--split", "train", "--quick", "--n-segments", "5", "--drawings", "0"]
    assert experiments.main(["segments", *arguments, "--out", str(tmp_path / "page")]) == 0
    assert not (tmp_path / "page" / "best.png").exists()


def test_without_data_it_says_what_is_needed(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("VISIONKL_TEST_DATA", raising=False)
    assert experiments.main(["segments", "--out", str(tmp_path / "page")]) == 2
    assert "--data is needed" in capsys.readouterr().err
