"""The command `train_context`, and `eval_voc` with what it learned."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from visionkl import store
from visionkl.core.types import Detections
from visionkl.datasets.voc import VOC
from visionkl.detection.context import ContextRescorer
from visionkl.evaluation.results import read_all_voc_results, voc_results_writer
from visionkl.evaluation.voc import evaluate_detections
from visionkl.run import evaluate, train_context

ROOT = Path(__file__).resolve().parents[2]
CLASSES = ("cross", "ring")
MODELS = ["--model", "cross.safetensors", "ring.safetensors"]
DATA = ["--data", ".", "--split", "val"]


def run(main, capsys, *arguments):
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def learn(capsys, *arguments):
    return run(train_context.main, capsys, *arguments)


def score(capsys, *arguments):
    return run(evaluate.main, capsys, *arguments)


@pytest.fixture
def found(devkit):
    """Results in which crosses are right where they are on the left, whatever their scores say."""
    rng = np.random.default_rng(5)
    dataset, by_image = VOC(".", split="val"), {}
    for example in dataset:
        objects = example.annotation
        astray = rng.uniform([140, 5], [200, 65], (3, 2))
        boxes = np.concatenate([objects.boxes, np.hstack([astray, astray + 48])])
        labels = [*objects.labels, "cross", "cross", "cross"]
        scores = np.concatenate([rng.normal(0, 0.1, len(objects)), rng.normal(0.3, 0.3, 3)])
        by_image[example.id] = Detections(boxes, scores, labels)
    Path("found").mkdir()
    with voc_results_writer("found", "val", CLASSES) as write:
        for example in dataset:
            write(example.id, by_image[example.id])
    return read_all_voc_results("found", "val", CLASSES)


# -- what it is for ------------------------------------------------------------------------------------------


def test_what_is_learned_from_results_is_what_the_class_learns(found, capsys):
    code, out, err = learn(capsys, *DATA, "--from-results", "found", "--cost", "3", "--out", "c.safetensors")
    assert code == 0, err
    expected = ContextRescorer(cost=3).fit(found, VOC(".", split="val"), CLASSES)
    right, wrong = expected.counts_[0]
    assert out.splitlines()[1].split() == ["cross", str(right), str(wrong)]
    assert out.endswith("context: c.safetensors\n")
    rescorer = store.load("c.safetensors")
    assert rescorer.classes_ == CLASSES
    np.testing.assert_array_equal(rescorer.forms_, expected.forms_)
    assert "warning: ring: there are only right detections" in err


def test_context_changes_the_score(found, capsys):
    assert learn(capsys, *DATA, "--from-results", "found")[0] == 0
    arguments = [*DATA, "--from-results", "found", "--json", "--quiet"]
    before = json.loads(score(capsys, *arguments)[1])
    code, out, err = score(capsys, *arguments, "--context", "found/context.safetensors")
    assert code == 0, err
    after = json.loads(out)
    assert after["context"] == "found/context.safetensors"
    assert before["classes"]["cross"]["ap"]["10"] < 0.5
    assert after["classes"]["cross"]["ap"]["10"] > 0.8
    rescorer, dataset = store.read_context("found/context.safetensors"), VOC(".", split="val")
    rescored = {e.id: rescorer.rescore(found[e.id], e.size()) for e in dataset if e.id in found}
    result = evaluate_detections(rescored, dataset, CLASSES)
    assert after["mean_ap"] == result.to_dict()["mean_ap"]
    assert sorted(path.name for path in Path("found").iterdir()) == [
        "comp3_det_val_cross.txt",
        "comp3_det_val_ring.txt",
        "context.safetensors",
        "images_val.txt",
    ]


def test_models_are_searched_with(devkit, capsys):
    code, out, err = learn(capsys, *MODELS, *DATA, "--threshold", "-20", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["context"] == "runs/context-VOC2007-val-cross-ring/context.safetensors"
    assert document["threshold"] == -20
    assert document["classes"]["ring"]["right"] >= 6
    assert document["classes"]["ring"]["wrong"] > 0
    search = [*MODELS, *DATA, "--threshold", "-20", "--out", "scored", "--context", document["context"]]
    code, out, err = score(capsys, *search)
    assert code == 0, err
    assert Path("scored/context/comp3_det_val_ring.txt").is_file()
    assert json.loads(Path("scored/evaluation.json").read_text())["context"] == document["context"]
    again = score(capsys, *DATA, "--from-results", "scored", "--context", document["context"])
    assert again[1] == out
    assert score(capsys, *DATA, "--from-results", "scored/context")[1] == out


def test_as_a_script(found):
    command = [sys.executable, ROOT / "tools/train_context.py", *DATA, "--from-results", "found"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "context: found/context.safetensors" in done.stdout
    again = subprocess.run([*command, "--out", "found/context.safetensors"], capture_output=True, text=True)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)


# -- what goes wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (DATA, 2, "give either --model to search with, or --from-results"),
        ([*DATA, *MODELS, "--from-results", "found"], 2, "give either --model"),
        ([*DATA, "--from-results", "found", "--threshold", "0"], 2, "--threshold is for the search"),
        ([*DATA, "--from-results", "found", "--cost", "0"], 2, "--cost must be a number above 0, not 0"),
        ([*DATA, "--from-results", "found", "--out", "cross.safetensors"], 2, "it is there already"),
        ([*DATA, "--from-results", "nowhere"], 3, "nowhere: there is no such folder"),
        (
            ["--data", ".", "--split", "train", "--from-results", "found"],
            3,
            "no results files for this split",
        ),
        ([*DATA, "--model", "found/c.safetensors"], 3, "holds 'context rescorer', not 'mixture of"),
    ],
)
def test_a_sentence_and_no_file(found, capsys, arguments, code, sentence):
    store.save(ContextRescorer.from_arrays(["cross"], {"forms": np.zeros((1, 7, 7))}), "found/c.safetensors")
    ended, out, err = learn(capsys, *arguments)
    assert (ended, out, err.count("\n")) == (code, "", 1)
    assert sentence in err
    assert not list(Path().rglob("context*"))


def test_too_little_to_learn_from(devkit, capsys):
    Path("found").mkdir()
    with voc_results_writer("found", "val", CLASSES) as write:
        write("000001", Detections())
    code, _, err = learn(capsys, *DATA, "--from-results", "found", "--quiet")
    assert code == 3
    assert "no class of VOC2007 val has both right and wrong detections" in err


def test_a_context_of_other_classes_is_refused(found, capsys):
    forms = {"forms": np.zeros((1, 7, 7))}
    store.save(ContextRescorer.from_arrays(["cross"], forms), "one.safetensors")
    for source in (["--from-results", "found"], MODELS):
        code, _, err = score(capsys, *DATA, *source, "--context", "one.safetensors")
        assert (code, err.count("\n")) == (2, 1)
        assert "learned with the classes cross, but those that are scored here are cross, ring" in err
    assert not Path("runs").exists()
    code, _, err = score(capsys, *DATA, "--from-results", "found", "--context", "ring.safetensors")
    assert code == 3
    assert "not 'context rescorer'" in err


def test_pictures_that_are_gone_are_named_or_left_out(found, capsys):
    assert learn(capsys, *DATA, "--from-results", "found", "--out", "c.safetensors")[0] == 0
    VOC(".", split="val")[3].path.unlink()
    arguments = [*DATA, "--from-results", "found", "--context", "c.safetensors", "--quiet"]
    code, _, err = score(capsys, *arguments)
    assert (code, err.count("\n")) == (3, 1)
    assert "000004.jpg: there is no such file" in err
    code, out, err = score(capsys, *arguments, "--on-bad-data", "skip")
    assert code == 0
    assert "9 pictures" in out
    assert "left out" in err
