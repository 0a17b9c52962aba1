"""The models that are shipped: each has a card, can be read, and finds what it says it finds."""

from pathlib import Path

import pytest

from visionkl.datasets.sample import make_sample_set
from visionkl.datasets.voc import VOC
from visionkl.evaluation.voc import evaluate_voc
from visionkl.store import load

MODELS = sorted((Path(__file__).resolve().parents[1] / "models").glob("*.safetensors"))


def test_there_are_models():
    assert "digger.safetensors" in {path.name for path in MODELS}


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_every_model_has_a_card_and_is_small(path):
    card = path.with_suffix(".md").read_text(encoding="utf-8")
    assert card.startswith(f"# {path.name}\n")
    assert path.name in (path.parent / "README.md").read_text(encoding="utf-8")
    assert path.stat().st_size < 1e6
    assert load(path).label == path.stem


def test_the_digger_finds_diggers_in_pictures_that_it_was_not_scored_on(tmp_path):
    devkit = make_sample_set(tmp_path / "sample", n_train=1, n_val=1, n_test=24, seed=5, n_jobs=1)
    detector = load(next(path for path in MODELS if path.stem == "digger"))
    assert evaluate_voc({"digger": detector}, VOC(devkit, split="test")).mean_ap > 0.7
