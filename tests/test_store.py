"""Model files: there and back, and nothing but model files."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.detection.conftest import random_model
from visionkl.coding.codebooks import Codebooks
from visionkl.core.errors import ModelFileError, UsageError
from visionkl.detection.context import ContextRescorer
from visionkl.detection.detector import DPMDetector
from visionkl.detection.plan import TrainingState
from visionkl.detection.samples import Samples
from visionkl.store import (
    FORMAT,
    load,
    load_detector,
    read_checkpoint,
    read_context,
    read_model,
    save,
    save_checkpoint,
)

IMAGE = np.random.default_rng(0).integers(0, 256, (70, 90, 3)).astype(np.uint8)


def test_a_saved_model_comes_back_unchanged(tmp_path):
    model = random_model(notes={"origin": "test", "n": 3}, max_displacement=None)
    save(model, tmp_path / "m.safetensors")
    again = read_model(tmp_path / "m.safetensors")
    for name in ("label", "cell_size", "interval", "extra_octave", "threshold", "max_displacement", "notes"):
        assert getattr(again, name) == getattr(model, name)
    for mine, theirs in zip(model.components, again.components, strict=True):
        np.testing.assert_array_equal(mine.root, theirs.root)
        np.testing.assert_array_equal(mine.scale_bias, theirs.scale_bias)
        assert mine.bias == theirs.bias
        assert (mine.box_weights is None) == (theirs.box_weights is None)
        for a, b in zip(mine.parts, theirs.parts, strict=True):
            assert a.anchor == b.anchor
            np.testing.assert_array_equal(a.weights, b.weights)
            np.testing.assert_array_equal(a.deformation, b.deformation)


@pytest.mark.parametrize(("n_blocks", "n_codewords"), [(1, 256), (2, 64), (4, 512)])
def test_codebooks_are_saved_with_the_model(tmp_path, n_blocks, n_codewords):
    words = np.random.default_rng(0).uniform(0, 0.4, (n_blocks, n_codewords, 32 // n_blocks))
    model = random_model(codebooks=Codebooks(words))
    save(model, tmp_path / "m.safetensors")
    again = read_model(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.codebooks.words, model.codebooks.words)
    assert again.codebooks.n_features == 32
    assert again.codebooks.code_dtype == model.codebooks.code_dtype
    found = DPMDetector.from_model(model).detect(IMAGE, threshold=-2.0)
    assert len(found) > 3
    assert load(tmp_path / "m.safetensors").detect(IMAGE, threshold=-2.0) == found
    save(random_model(), tmp_path / "m.safetensors")
    assert read_model(tmp_path / "m.safetensors").codebooks is None


def test_a_saved_detector_detects_the_same(tmp_path):
    detector = DPMDetector.from_model(random_model())
    detector.save(tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").detect(IMAGE) == detector.detect(IMAGE)


@pytest.mark.realdata
def test_published_models_survive_the_change_of_format(realdata, tmp_path):
    published = load(realdata / "voc_dpm_models" / "INRIA_person_final.mat")
    published.save(tmp_path / "person.safetensors")
    again = load(tmp_path / "person.safetensors")
    assert again.detect(IMAGE, threshold=-1.5) == published.detect(IMAGE, threshold=-1.5)


def test_a_file_cut_short_is_refused(tmp_path):
    save(random_model(), tmp_path / "m.safetensors")
    whole = (tmp_path / "m.safetensors").read_bytes()
    for size in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "short.safetensors").write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match=r"short\.safetensors"):
            load(tmp_path / "short.safetensors")


def test_foreign_files_are_refused(tmp_path):
    (tmp_path / "text.safetensors").write_text("this is no model")
    save_file({"x": np.zeros(3)}, tmp_path / "foreign.safetensors")
    (tmp_path / "picture.jpg").write_bytes(b"\xff\xd8\xff")
    for name, message in [
        ("text.safetensors", "no model"),
        ("foreign.safetensors", "not written by"),
        ("picture.jpg", "no model"),
    ]:
        with pytest.raises(ModelFileError, match=message):
            load(tmp_path / name)
    with pytest.raises(ModelFileError, match="no such file"):
        load(tmp_path / "nowhere.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": FORMAT + 1}, "upgrade"),
        ({"kind": "sandwich"}, "sandwich"),
        ({"components": []}, "no components"),
        ({"interval": None}, "interval"),
        ({"components": [{"bias": 0, "anchors": [[0, 0]]}]}, "not consistent"),
    ],
)
def test_inconsistent_descriptions_are_refused(tmp_path, change, message):
    description = {
        "format": FORMAT,
        "kind": "mixture of deformable part models",
        "label": "x",
        "cell_size": 8,
        "interval": 4,
        "extra_octave": False,
        "threshold": 0.0,
        "max_displacement": 4,
        "notes": {},
        "components": [{"bias": 0.0, "anchors": []}],
    }
    arrays = {
        "components.0.root": np.zeros((3, 3, 32), np.float32),
        "components.0.scale_bias": np.zeros(3, np.float32),
    }
    path = tmp_path / "m.safetensors"
    save_file(arrays, path, metadata={"visionkl": json.dumps(description)})
    assert read_model(path).label == "x"
    save_file(arrays, path, metadata={"visionkl": json.dumps({**description, **change})})
    with pytest.raises(ModelFileError, match=message):
        read_model(path)


def test_nothing_is_left_behind_when_writing_fails(tmp_path):
    target = tmp_path / "m.safetensors"
    target.mkdir()  # a folder of that name cannot be replaced by a file
    with pytest.raises(Exception, match=r"m\.safetensors"):
        save(random_model(), target)
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]


# -- context -------------------------------------------------------------------------------------------------


def test_a_context_rescorer_comes_back_unchanged(tmp_path):
    forms = np.random.default_rng(0).normal(size=(2, 8, 8))
    ContextRescorer.from_arrays(["car", "road"], {"forms": forms}).save(tmp_path / "c.safetensors")
    for again in (load(tmp_path / "c.safetensors"), read_context(tmp_path / "c.safetensors")):
        assert isinstance(again, ContextRescorer)
        assert again.classes_ == ("car", "road")
        np.testing.assert_array_equal(again.forms_, forms)


def test_detectors_and_context_are_not_mistaken_for_each_other(tmp_path):
    save(random_model(), tmp_path / "m.safetensors")
    ContextRescorer.from_arrays(["car"], {"forms": np.eye(7)[None]}).save(tmp_path / "c.safetensors")
    assert isinstance(load_detector(tmp_path / "m.safetensors"), DPMDetector)
    with pytest.raises(ModelFileError, match=r"c\.safetensors: .* 'context rescorer', not 'mixture"):
        load_detector(tmp_path / "c.safetensors")
    with pytest.raises(ModelFileError, match=r"m\.safetensors: .* not 'context rescorer'"):
        read_context(tmp_path / "m.safetensors")


def test_a_damaged_context_rescorer_is_refused(tmp_path):
    path = tmp_path / "c.safetensors"
    description = {"format": FORMAT, "kind": "context rescorer", "classes": ["car", "road"]}
    for arrays in ({"x": np.zeros(1)}, {"forms": np.zeros((1, 7, 7))}):
        save_file(arrays, path, metadata={"visionkl": json.dumps(description)})
        with pytest.raises(ModelFileError, match=r"c\.safetensors: the description .* is not consistent"):
            load(path)
    with pytest.raises(UsageError, match="has not been trained"):
        ContextRescorer().save(path)


# -- checkpoints ---------------------------------------------------------------------------------------------


def random_samples(n, dtype, seed=0):
    rng = np.random.default_rng(seed)
    features = (rng.random((12, 2 * n)) * 200).astype(dtype)[:, ::2]  # not contiguous: a view must do
    shifts = rng.integers(-3, 4, (n, 3, 2)).astype(np.int16)
    return Samples(features, shifts, np.ones(n, np.uint8), rng.integers(0, 99, (n, 4)).astype(np.int32))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_a_checkpoint_comes_back_unchanged(tmp_path, dtype):
    words = np.random.default_rng(1).random((2, 7, 16), np.float32)
    model = random_model(codebooks=Codebooks(words, 32), notes={"origin": "test"})
    positives = tuple(random_samples(n, dtype, n) for n in (4, 0, 2))
    negatives = tuple(random_samples(n, dtype, 9 + n) for n in (5, 1, 0))
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(TrainingState(3, model, positives, negatives, (0.1, 0.9)), path)
    again = read_checkpoint(path)
    assert again.n_done == 3
    np.testing.assert_array_equal(again.model.codebooks.words, words)
    for mine, theirs in zip((*positives, *negatives), (*again.positives, *again.negatives), strict=True):
        for name in ("features", "shifts", "octaves", "keys"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
            assert getattr(mine, name).dtype == getattr(theirs, name).dtype
    # What was written from it is what was written first: training goes on as if it had never stopped.
    first = path.read_bytes()
    save_checkpoint(again, path)
    assert path.read_bytes() == first


def test_models_and_checkpoints_are_not_mistaken_for_each_other(tmp_path):
    save_checkpoint(TrainingState(1, random_model(), (), ()), tmp_path / "c.safetensors")
    save(random_model(), tmp_path / "m.safetensors")
    with pytest.raises(ModelFileError, match=r"c\.safetensors: the file holds 'checkpoint of training'"):
        load(tmp_path / "c.safetensors")
    with pytest.raises(ModelFileError, match="not 'checkpoint of training'"):
        read_checkpoint(tmp_path / "m.safetensors")


def test_damaged_checkpoints_are_refused(tmp_path):
    state = TrainingState(1, random_model(), (random_samples(3, np.uint8),), ())
    save_checkpoint(state, tmp_path / "whole.safetensors")
    whole = (tmp_path / "whole.safetensors").read_bytes()
    for size in (0, 7, len(whole) // 2, len(whole) - 1):
        (tmp_path / "short.safetensors").write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match=r"short\.safetensors: the file is damaged or no checkpoint"):
            read_checkpoint(tmp_path / "short.safetensors")
    with pytest.raises(ModelFileError, match="no such file"):
        read_checkpoint(tmp_path / "none.safetensors")
    description = {"format": FORMAT, "kind": "checkpoint of training", "n_done": 1}
    save_file({"x": np.zeros(1)}, tmp_path / "x.safetensors", metadata={"visionkl": json.dumps(description)})
    with pytest.raises(ModelFileError, match=r"x\.safetensors: the description .* is not consistent"):
        read_checkpoint(tmp_path / "x.safetensors")
