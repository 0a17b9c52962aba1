"""The command `classify`: lines for people, one document for programs, refusals in a sentence."""

import json
from pathlib import Path

import pytest
from PIL import Image

from tests.learning.textures import TEXTURES, TINY, texture, write_folder
from visionkl.learning.classify import ImageClassifier
from visionkl.run import detect
from visionkl.run.classify import main


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    """A folder with a model, and with pictures that it was not trained on."""
    folder = tmp_path_factory.mktemp("album")
    pictures = [texture(name, number) for name in TEXTURES for number in range(8)]
    labels = [name for name in TEXTURES for _ in range(8)]
    ImageClassifier(**TINY).fit(pictures, labels).save(folder / "textures.safetensors")
    write_folder(folder / "new", n=2, first=30)
    return folder


@pytest.fixture
def run(album, monkeypatch, capsys):
    monkeypatch.chdir(album)

    def call(*arguments):
        capsys.readouterr()
        code = main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_the_best_classes_are_printed(run):
    code, out, _ = run("--model", "textures.safetensors", "new/lying", "new/squares/030.png", "--top", "2")
    assert code == 0
    header, *lines = out.splitlines()
    assert header.split() == ["picture", "class", "score"]
    assert len(lines) == 6
    assert [line.split()[:2] for line in lines[::2]] == [
        ["new/lying/030.png", "lying"],
        ["new/lying/031.png", "lying"],
        ["new/squares/030.png", "squares"],
    ]


def test_one_document_for_programs(run):
    code, out, _ = run("new", "--recursive", "--model", "textures.safetensors", "--json", "--quiet")
    assert code == 0
    document = json.loads(out)
    assert document["model"]["classes"] == list(TEXTURES)
    for record in document["pictures"]:
        assert record["classes"][0]["label"] == Path(record["picture"]).parent.name
        scores = [entry["score"] for entry in record["classes"]]
        assert scores == sorted(scores, reverse=True)


def test_broken_pictures_stop_it_or_are_left_out(run, tmp_path):
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    arguments = ["--model", "textures.safetensors", "new/lying", str(bad)]
    code, out, err = run(*arguments, "--quiet")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "bad.png" in err
    code, out, err = run(*arguments, "--on-bad-data", "skip", "--json")
    assert code == 0
    assert [entry["picture"] for entry in json.loads(out)["skipped"]] == [str(bad)]


def test_small_pictures_are_warned_of(run, tmp_path):
    Image.fromarray(texture("lying", 3)[:6]).save(tmp_path / "small.png")
    code, _, err = run("--model", "textures.safetensors", str(tmp_path / "small.png"), "--quiet")
    assert code == 0
    assert "small.png: with 44 × 6 pixels it is too small to be described" in err


def test_refusals(run, workbench, capsys):
    code, _, err = run("--model", str(workbench / "patch.safetensors"), "new/lying")
    assert (code, err.count("\n")) == (2, 1)
    assert "this model finds objects" in err
    assert run("new/lying")[0] == 2
    assert run("--model", "none.safetensors", "new/lying")[0] == 3
    assert "--top must be a whole number" in run("--model", "textures.safetensors", "new", "--top", "0")[2]
    assert detect.main(["--model", "textures.safetensors", "new/lying"]) == 3
    assert "the file holds 'image classifier'" in capsys.readouterr().err
