"""Training end to end on a few generated pictures: it learns, it is repeatable, and it says what is wrong."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from visionkl.coding.hog_codes import coded_pyramids
from visionkl.core.errors import DataError, UsageError
from visionkl.datasets.base import Dataset
from visionkl.datasets.sample import make_sample_set
from visionkl.datasets.voc import VOC
from visionkl.detection import learner, passes
from visionkl.detection.begin import data_for, first_state, settings_of
from visionkl.detection.detector import DPMDetector
from visionkl.detection.model import MixtureModel
from visionkl.detection.objects import collect
from visionkl.detection.plan import Observer, TrainingState, plan
from visionkl.detection.pyramids import PyramidSettings
from visionkl.detection.settings import TrainingSettings
from visionkl.detection.training import train
from visionkl.evaluation.voc import evaluate_voc
from visionkl.interop.voc_dpm import read_voc_dpm

QUICK = TrainingSettings(
    n_components=1,
    n_parts=2,
    interval=4,
    training_interval=3,
    n_blocks=2,
    n_codewords=64,
    root_rounds=1,
    part_rounds=2,
    mining_rounds=2,
)


class Notebook(Observer):
    """Keeps all it is told."""

    def __init__(self) -> None:
        self.states: list[TrainingState] = []
        self.rows: list[dict] = []

    def record(self, row):
        self.rows.append(row)

    def checkpoint(self, state):
        self.states.append(state)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> VOC:
    devkit = make_sample_set(tmp_path_factory.mktemp("sample"), n_train=36, n_test=8, n_jobs=1)
    return VOC(devkit, split="train")


@pytest.fixture(scope="module")
def notebook() -> Notebook:
    return Notebook()


@pytest.fixture(scope="module")
def model(pictures, notebook) -> MixtureModel:
    return train(pictures, "digger", QUICK, n_jobs=1, observer=notebook)


def assert_same(one: MixtureModel, other: MixtureModel) -> None:
    assert len(one.components) == len(other.components)
    np.testing.assert_array_equal(one.codebooks.words, other.codebooks.words)
    for mine, theirs in zip(one.components, other.components, strict=True):
        np.testing.assert_array_equal(mine.root, theirs.root)
        assert mine.bias == theirs.bias
        for a, b in zip(mine.parts, theirs.parts, strict=True):
            assert a.anchor == b.anchor
            np.testing.assert_array_equal(a.weights, b.weights)
            np.testing.assert_array_equal(a.deformation, b.deformation)


def test_it_finds_what_it_was_shown(pictures, model):
    assert evaluate_voc({"digger": DPMDetector.from_model(model)}, pictures).mean_ap > 0.6


def test_the_plan_is_followed(notebook, model):
    assert [state.n_done for state in notebook.states] == sorted({s.n_done for s in notebook.states})
    assert notebook.states[-1].n_done == len(plan(QUICK))
    assert len(notebook.rows) == len(notebook.states)
    assert plan(QUICK)[0] == "roots"
    assert plan(QUICK)[-1] == "boxes"
    assert model.interval == QUICK.interval
    assert model.n_parts == 2
    assert len(model.components) == 2


def test_two_processes_learn_the_same(pictures, model, monkeypatch):
    monkeypatch.setattr(learner, "_SCORED_TOGETHER", 1024)  # how many at a time is of no matter, either
    assert_same(train(pictures, "digger", QUICK, n_jobs=2), model)


@pytest.mark.parametrize("number", [0, 2, -2])
def test_going_on_from_a_state_ends_in_the_same_model(pictures, notebook, model, number):
    assert_same(train(pictures, "digger", QUICK, n_jobs=1, state=notebook.states[number]), model)


def test_the_components_are_mirror_images(model):
    one, other = model.components
    np.testing.assert_allclose(other.parts[0].mirrored(one.root.shape[1]).weights, one.parts[0].weights)
    assert one.box_weights is None or other.box_weights is not None


def test_a_rigid_detector_and_plain_cells(pictures):
    settings = replace(QUICK, n_parts=0, n_blocks=0, mining_rounds=1)
    rigid = train(pictures, "digger", settings, n_jobs=1)
    assert rigid.n_parts == 0
    assert rigid.codebooks is None
    assert evaluate_voc({"digger": DPMDetector.from_model(rigid)}, pictures).mean_ap > 0.4


def test_a_rigid_detector_needs_no_octave_for_parts(pictures, monkeypatch):
    """It learns the same, and finds the same, as with the octave."""
    settings = replace(QUICK, n_parts=0, mining_rounds=1)
    without = train(pictures, "digger", settings, n_jobs=1)
    with monkeypatch.context() as patch:
        patch.setattr(passes, "PyramidSettings", lambda *how: PyramidSettings(*how[:3]))
        assert_same(train(pictures, "digger", settings, n_jobs=1), without)
    detector = DPMDetector.from_model(without)
    image = pictures[0].image()
    (pyramid,) = coded_pyramids(
        image, [without.codebooks], interval=without.interval, padding=without.padding
    )
    found = detector.detect(image, threshold=-2.0)
    assert len(found) > 3
    assert found == detector.detect_in(pyramid, threshold=-2.0, overlap=0.5, n_jobs=1)


class TestBeginningWithAModel:
    def test_its_views_and_parts_are_kept_and_learned_anew(self, pictures, model):
        notebook = Notebook()
        settings = replace(QUICK, n_components=3, n_parts=0, n_codewords=32)
        begun = train(pictures, "digger", settings, start=model, n_jobs=1, observer=notebook)
        assert notebook.states[0].n_done > 1 + QUICK.mining_rounds  # no roots, no mixture
        assert begun.codebooks.words.shape[1] == 32
        assert begun.interval == settings.interval
        for mine, theirs in zip(begun.components, model.components, strict=True):
            assert mine.root.shape == theirs.root.shape
            assert [part.anchor for part in mine.parts] == [part.anchor for part in theirs.parts]
            assert not np.array_equal(mine.root, theirs.root)
        assert evaluate_voc({"digger": DPMDetector.from_model(begun)}, pictures).mean_ap > 0.6
        for number in (0, -1):
            again = train(pictures, "digger", settings, start=model, state=notebook.states[number], n_jobs=1)
            assert_same(begun, again)

    def test_a_model_of_plain_cells_may_be_of_another_class_and_rigid(self, pictures, model):
        components = tuple(replace(c, parts=(), box_weights=None) for c in model.components)
        rigid = replace(model, components=components, codebooks=None, label="machine", threshold=-3.0)
        begun = DPMDetector(**{**asdict(QUICK), "root_rounds": 1}).fit(
            pictures, "digger", start=DPMDetector.from_model(rigid)
        )
        assert begun.label == "digger"
        assert begun.threshold == model.threshold
        assert begun.model.n_parts == 0
        assert begun.model.codebooks is not None

    @pytest.mark.realdata
    @pytest.mark.parametrize("name", ["VOC2007_bicycle", "VOC2007_bus", "VOC2007_person", "INRIA_person"])
    def test_published_models_can_be_begun_with(self, realdata, pictures, name):
        published = read_voc_dpm(realdata / "voc_dpm_models" / f"{name}_final.mat")
        settings = settings_of(published, QUICK)
        assert (settings.n_components, settings.n_parts) == (len(published.components) // 2, 8)
        data = data_for(published, collect(pictures, "digger", settings), settings)
        rows = [component.root.shape[0] for component in published.components]
        assert data.padding[0] == max(rows)
        state = first_state(published, data, settings, None)
        for mine, theirs in zip(state.model.components, published.components, strict=True):
            np.testing.assert_allclose(mine.root, theirs.root, atol=1e-5)
            for part, original in zip(mine.parts, theirs.parts, strict=True):
                assert part.anchor == original.anchor
                np.testing.assert_allclose(part.weights, original.weights, atol=1e-5)
                np.testing.assert_allclose(part.deformation, original.deformation, atol=1e-5)

    def test_components_must_be_pairs(self, pictures, model):
        odd = replace(model, components=model.components[:1])
        with pytest.raises(DataError, match="do not come in pairs that are mirror images"):
            train(pictures, "digger", QUICK, start=odd, n_jobs=1)


def test_fit_is_training(pictures):
    detector = DPMDetector(**{**vars(QUICK), "part_rounds": 1, "mining_rounds": 1}, n_jobs=1)
    with pytest.raises(UsageError, match="has not been trained"):
        detector.detect(np.zeros((100, 100, 3), np.uint8))
    told = Notebook()
    assert detector.fit(pictures, "robot", observer=told) is detector
    assert detector.label == "robot"
    assert told.states[-1].model.label == "robot"


def test_surroundings_serve_where_no_picture_is_without_the_object(pictures):
    with_it = [example for example in pictures if "digger" in example.annotation.labels]
    only = Dataset("diggers", pictures.classes, with_it)
    settings = replace(QUICK, n_parts=0, mining_rounds=1)
    assert train(only, "digger", settings, n_jobs=1).n_parts == 0


class TestTooLittle:
    def test_no_such_class(self, pictures):
        with pytest.raises(UsageError, match=r"there is no class 'unicorn'; there are digger"):
            train(pictures, "unicorn", QUICK, n_jobs=1)

    def test_no_object(self, pictures):
        without = [example for example in pictures if "digger" not in example.annotation.labels]
        with pytest.raises(DataError, match="there is no object of the class 'digger' to learn from"):
            train(Dataset("none", pictures.classes, without), "digger", QUICK, n_jobs=1)

    def test_one_object(self, pictures):
        for example in pictures:
            diggers = example.annotation.of("digger")
            if len(diggers) == 1 and not diggers.difficult[0]:
                break
        with pytest.raises(DataError, match="there is only 1 object of the class 'digger'"):
            train(Dataset("one", pictures.classes, [example]), "digger", QUICK, n_jobs=1)

    def test_all_objects_too_small(self, pictures):
        coarse = replace(QUICK, cell_size=64)
        with pytest.raises(DataError, match=r"too small: the largest has \d+ × \d+ pixels"):
            collect(pictures, "digger", coarse)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"n_components": 0}, "'n_components' parameter of DPMDetector must be an integer between 1 and 100"),
        ({"cell_size": 6}, "'cell_size' parameter of DPMDetector must be a multiple of 4"),
        ({"cost": -1}, "'cost' parameter of DPMDetector must be"),
        ({"n_partz": 3}, "DPMDetector has no parameter 'n_partz'; there are coding, n_jobs, n_components"),
    ],
)
def test_settings_are_checked(settings, complaint):
    with pytest.raises(UsageError, match=complaint):
        DPMDetector(**settings)


def test_plain_cells_are_mined_within_the_memory_that_is_given(pictures):
    """A tenth of the memory is for the cache, and less than half of that for what a pass finds.

    A pass that fills the cache drives all out that was learned before, and the next pass brings it back.
    """
    notes = Notebook()
    memory = 60_000_000
    settings = replace(QUICK, n_parts=0, n_blocks=0, root_rounds=1, mining_rounds=1, box_regression=False)
    model = train(pictures, "digger", settings, n_jobs=1, max_memory=memory, observer=notes)
    rows, cols, _ = model.components[0].root.shape
    mined = [row["mined"] for row in notes.rows if "mined" in row]
    assert 0 < max(mined) * rows * cols * 32 * 4 <= 0.4 * memory / 10
