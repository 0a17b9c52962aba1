"""The commands `bench skl` and `bench mkl`, in small; and what they share."""

import json

import numpy as np
import pytest

from tests.learning.textures import write_folder
from visionkl.core.errors import DataError
from visionkl.run import experiments
from visionkl.run.console import Console
from visionkl.run.experiments import flower_channels, mkl, skl
from visionkl.run.experiments.channel_blocks import gaussian_inputs
from visionkl.run.experiments.scaling import Contender, Problem, Score, climb, scaling_table, slopes_of


class Guess:
    """Learns nothing, and needs too much memory from some number of samples on."""

    def __init__(self, most=np.inf):
        self.most = most

    def fit(self, X, y):
        if len(y) > self.most:
            raise DataError("too much")
        return self

    def predict(self, X):
        return np.zeros(len(X))


PROBLEM = Problem(np.zeros((400, 1)), np.zeros(400), np.zeros((4, 1)), np.array([0, 0, 0, 1]))


def test_a_contender_climbs_until_memory_or_time_ends():
    console = Console(jobs=1, quiet=True)
    scores = climb(Contender("guess", lambda: Guess(150)), PROBLEM, [100, 200, 400], console)
    assert [one.accuracy for one in scores] == [0.75, None, None]
    assert {one.remark for one in scores[1:]} == {"not run: out of memory"}
    slow = Contender("slow", Guess, most_seconds=1e-9, power=3.0)
    scores = climb(slow, PROBLEM, [100, 200], console)
    assert scores[0].accuracy == 0.75
    assert scores[1].remark.startswith("not run: about")


def test_slopes_are_those_of_the_last_decade():
    scores = [Score(n, max(1.0, n / 1000), 0.5) for n in (10, 100, 1000, 10_000)]
    assert slopes_of({"a": scores})["a"] == pytest.approx(1.0)
    page = scaling_table("T", {"a": scores, "b": [Score(one.n, None, None, remark="no") for one in scores]})
    assert "a 1.00" in page.note
    assert "| 10000 | 10 | 50 | no |  |" in page.markdown()


@pytest.mark.parametrize("name", ["skl", "mkl"])
def test_in_small(name, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("VISIONKL_TEST_DATA", raising=False)
    out = tmp_path / "found"
    assert experiments.main([name, "--quick", "--jobs", "1", "--json", "--out", str(out)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["page"] == str(out / "results.md")
    ladder = document["tables"][0]
    assert [row[0] for row in ladder["rows"]] == [200, 400]
    assert all(0 <= cell <= 100 for row in ladder["rows"] for cell in row[2::2])
    assert {"time.png", "accuracy.png", "results.md", "results.json"} <= {path.name for path in out.iterdir()}


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "table"), [("skl", "USPS"), ("mkl", "Flowers17")])
def test_in_small_with_real_data(name, table, tmp_path, realdata):
    out = tmp_path / "found"
    assert experiments.main([name, "--quick", "--quiet", "--data", str(realdata), "--out", str(out)]) == 0
    assert table in (out / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["skl", "mkl"])
def test_bad_options_get_a_sentence(name, tmp_path, capsys):
    assert experiments.main([name, "--sizes", "10", "--out", str(tmp_path / "a")]) == 2
    assert "--sizes" in capsys.readouterr().err
    assert experiments.main([name, "--data", str(tmp_path), "--out", str(tmp_path / "a")]) == 3
    assert "there is no" in capsys.readouterr().err


def test_generated_problems_depend_on_few_features():
    problem = skl.generated(2000, 100, 0)
    assert np.bincount(problem.y, minlength=4).min() > 100
    assert problem.X.dtype == np.float32
    several = mkl.generated(1000, 100, 0)
    assert len(several.X) == 8
    assert 0.3 < several.y.mean() < 0.7


def test_flowers_are_split_by_class(tmp_path):
    folder = write_folder(tmp_path / "flowers17", 80)
    blocks, labels, splits = flower_channels.describe_flowers(folder, True, 0, Console(quiet=True))
    assert [len(block) for block in blocks] == [len(labels)] * 3
    ((learn, test),) = splits
    assert sorted([*learn, *test]) == list(range(48))
    kinds = np.unique(labels)
    assert all((labels[test] == kind).sum() == 4 for kind in kinds)
    assert all((labels[learn[24:]] == kind).sum() == 4 for kind in kinds)  # λ is chosen with the last third


def test_mapped_channels_have_the_exact_kernel():
    rows = np.random.default_rng(0).random((60, 10)).astype(np.float32)
    mapped = gaussian_inputs(rows, np.arange(50))
    from visionkl.kernels.exact import ExpChi2, Gaussian

    exact = ExpChi2.of(rows[:50])(rows[:50], rows[50:])
    np.testing.assert_allclose(Gaussian(1.0)(mapped[:50], mapped[50:]), exact, atol=0.05)
