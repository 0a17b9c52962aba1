"""What training has to work with, counted before it starts; and the recipes."""

from pathlib import Path

import numpy as np
import pytest

from visionkl.core.errors import DataError
from visionkl.core.types import Annotation
from visionkl.datasets.base import Dataset, Example
from visionkl.datasets.voc import VOC
from visionkl.detection.objects import collect
from visionkl.detection.settings import TrainingSettings
from visionkl.run.options import parse
from visionkl.run.train_detector import TrainOptions
from visionkl.run.training_facts import training_facts

ROOT = Path(__file__).resolve().parents[3]
RECIPES = sorted(
    path for path in (ROOT / "models").glob("*.yaml") if "visionkl train-detector" in path.read_text()
)


class TestFacts:
    @pytest.fixture
    def train_set(self, pictures):
        return VOC(pictures, split="train")

    def facts(self, dataset, boxes, difficult=None, **settings):
        objects = Annotation(np.reshape(boxes, (-1, 4)), ["digger"] * len(boxes), difficult)
        example = Example("a", dataset[0].path, lambda: objects)
        one = Dataset("mine", ["digger"], [example])
        chosen = TrainingSettings(**settings)
        return training_facts(collect(one, "digger", chosen), chosen, 2)

    @pytest.mark.parametrize(
        ("boxes", "difficult", "sentence"),
        [
            ([], None, "there is no object of the class 'digger' to learn from; at least 2"),
            ([[0, 0, 90, 90]], None, "there is only 1 object"),
            ([[0, 0, 90, 90]] * 4, [True] * 4, "no object .*, beside 4 marked difficult"),
            (
                [[0, 0, 20, 22]] * 9,
                None,
                "all 9 objects .* the largest has 20 × 22 pixels, the smallest filter",
            ),
        ],
    )
    def test_too_little_to_learn_from(self, train_set, boxes, difficult, sentence):
        with pytest.raises(DataError, match=sentence):
            self.facts(train_set, boxes, difficult)

    def test_small_objects_are_counted(self, train_set):
        facts = self.facts(train_set, [[0, 0, 20, 22]] * 2 + [[0, 0, 120, 100]] * 8, n_components=1)
        assert (facts.n_objects, facts.n_small) == (10, 2)

    def test_plain_cells_take_more(self, train_set):
        boxes = [[0, 0, 120, 100]] * 5
        codes, plain, rigid = (
            self.facts(train_set, boxes, **settings)
            for settings in ({"n_blocks": 2}, {"n_blocks": 0}, {"n_parts": 0})
        )
        assert plain.n_bytes == pytest.approx(64 * codes.n_bytes, rel=0.01)
        assert plain.seconds > codes.seconds > rigid.seconds


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_every_recipe_is_accepted(recipe):
    options, _, given = parse(TrainOptions, ["--config", str(recipe)], name="train_detector")
    assert isinstance(options.settings, TrainingSettings)
    assert given > {"config"}
    assert f"--config models/{recipe.name}" in recipe.read_text()


def test_there_are_recipes():
    assert {"dpm.yaml", "rigid.yaml", "sample.yaml"} <= {path.name for path in RECIPES}
