"""What a classifier has to learn from, and the guess of how long it takes."""

import json
import re

import pytest

from tests.learning.textures import TINY_OPTIONS, write_folder
from visionkl.learning.classifier_settings import ClassifierSettings
from visionkl.run import classifier_report
from visionkl.run.classifier_facts import Pixels, guess_stages
from visionkl.run.console import Console
from visionkl.run.train_classifier import main

BESIDE = {"start", "report"}  # of the guess: they have no progress of their own


@pytest.fixture(scope="module")
def textures(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("data") / "textures", 12)


def guess(n=400, n_test=100, n_classes=17, pixels=(4e5, 4e5), **settings):
    return guess_stages(n, n_test, n_classes, Pixels(*pixels), ClassifierSettings(**settings))


def grown(before, after):
    """Names of the stages that take longer."""
    assert before.keys() == after.keys()
    assert all(after[name] >= before[name] for name in before)
    return {name for name in before if after[name] > before[name]}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--coding", "none"],
        ["--channels", "grey", "hue", "--cost", "1", "10"],
    ],
)
def test_every_stage_that_runs_is_counted(textures, tmp_path, monkeypatch, capsys, arguments):
    shown = set()
    progress = Console.progress

    def noted(console, stage, total=None):
        shown.add(re.sub(r"^\d+/\d+ ", "", stage))  # without the number of the step
        return progress(console, stage, total)

    monkeypatch.setattr(Console, "progress", noted)
    monkeypatch.setattr(classifier_report, "write_classifier_report", lambda *rest: None)
    places = ["--data", str(textures), "--out", str(tmp_path / "run")]
    assert main([*places, *TINY_OPTIONS, *arguments, "--json", "--quiet"]) == 0
    counted = json.loads(capsys.readouterr().out)["training"]["stage_seconds"]
    assert set(counted) - BESIDE == shown
    assert min(counted.values()) > 0


def test_stages_grow_with_what_they_go_over():
    first = guess()
    everything = {
        "checking",
        "describing",
        "encoding a sample",
        "learning codewords",
        "coding",
        "learning",
        "scoring",
    }
    assert set(first) == everything
    assert grown(first, guess(n=800)) == everything - {"scoring"}
    assert grown(first, guess(n_test=200)) == {"checking", "scoring"}
    assert grown(first, guess(pixels=(8e5, 4e5))) == {
        "checking",
        "describing",
        "encoding a sample",
        "scoring",
    }
    assert grown(first, guess(pixels=(4e5, 8e5))) == {"describing", "encoding a sample", "scoring"}
    assert grown(first, guess(n_classes=34)) == {"learning"}
    assert grown(first, guess(cost=[1.0, 10.0])) == {"learning"}
    assert grown(first, guess(n_gaussians=128)) == everything - {"checking"}
    assert grown(first, guess(channels=["grey", "hue"])) == everything - {"checking"}


def test_of_many_pictures_a_sample_is_described_and_coded():
    many, more = guess(n=10_000), guess(n=20_000)
    assert grown(many, more) == {"checking", "coding", "learning"}
    assert guess(n=10_000, coding="none").keys() == {
        "checking",
        "describing",
        "vectors",
        "learning",
        "scoring",
    }


def test_without_the_matrix_of_inner_products_learning_takes_passes():
    few, many = (guess(n=n, loss="logistic")["learning"] for n in (1000, 2000))
    assert many == pytest.approx(2 * few, rel=0.01)
    assert few > guess(n=1000)["learning"]


def test_a_dry_run_names_what_the_guess_is_made_of(textures, capsys):
    arguments = ["--data", str(textures), *TINY_OPTIONS, "--dry-run"]
    assert main([*arguments, "--jobs", "2"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("time: roughly ")
    assert "start 3 s" in last
    assert last.endswith("the usual speed of 2 cores without other work")
    assert main([*arguments, "--json", "--jobs", "1"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert main([*arguments, "--json", "--jobs", "4"]) == 0
    four = json.loads(capsys.readouterr().out)
    assert one["seconds_guessed"] == pytest.approx(sum(one["stage_seconds"].values()))
    for name, seconds in four["stage_seconds"].items():
        assert one["stage_seconds"][name] == pytest.approx(seconds * (1 if name in BESIDE else 4))
