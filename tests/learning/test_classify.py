"""The image classifier: what it learns, that it goes on where it was interrupted, and its file."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.svm import LinearSVC

from tests.learning.textures import TEXTURES, TINY, texture, write_folder
from visionkl.core.errors import DataError, ModelFileError, UsageError
from visionkl.core.observer import Observer
from visionkl.datasets.folder import ImageFolder
from visionkl.datasets.labels import from_labels, labelled
from visionkl.learning import classify_training
from visionkl.learning.classifier_settings import ClassifierSettings
from visionkl.learning.classify import ImageClassifier
from visionkl.store import load, read_model

N_OF_EACH = 44
PICTURES = [texture(name, number) for name in TEXTURES for number in range(N_OF_EACH)]
LABELS = [name for name in TEXTURES for _ in range(N_OF_EACH)]
NEW = [texture(name, 50 + number) for name in TEXTURES for number in range(4)]
NEW_LABELS = [name for name in TEXTURES for _ in range(4)]


@pytest.fixture(scope="module")
def classifier():
    return ImageClassifier(**TINY).fit(PICTURES, LABELS)


class TestClassifier:
    def test_it_tells_textures_apart(self, classifier):
        assert classifier.classes == TEXTURES
        assert classifier.predict(NEW).tolist() == NEW_LABELS
        scores = classifier.scores(NEW)
        assert scores.shape == (12, 3)
        np.testing.assert_array_equal(np.array(TEXTURES)[scores.argmax(axis=1)], NEW_LABELS)

    def test_several_classes_a_picture(self):
        striped = [{"striped", name} if name != "squares" else () for name in LABELS]
        classifier = ImageClassifier(**TINY).fit(PICTURES, striped)
        assert classifier.classes == ("lying", "standing", "striped")
        shown = classifier.predict(NEW)
        expected = [[name == "lying", name == "standing", name != "squares"] for name in NEW_LABELS]
        assert shown.tolist() == expected

    def test_without_codes_the_machines_are_those_of_liblinear(self):
        classifier = ImageClassifier(**{**TINY, "coding": "none", "cost": [2.0]}).fit(PICTURES, LABELS)
        X = np.concatenate(list(classifier.learned.vectors.blocks(PICTURES)))
        assert X.shape == (len(PICTURES), 2 * 4 * 8 * (1 + 2))
        other = LinearSVC(C=2.0, loss="hinge", tol=1e-6, max_iter=100_000).fit(X, LABELS)
        np.testing.assert_allclose(classifier.score_vectors(X), other.decision_function(X), atol=0.05)

    def test_codes_are_nearly_as_good_and_smaller(self, classifier):
        floats = ImageClassifier(**{**TINY, "coding": "none"}).fit(PICTURES, LABELS)
        assert classifier.notes["float_bytes"] == floats.notes["data_bytes"]
        assert classifier.notes["data_bytes"] * 4 * TINY["block_size"] == floats.notes["data_bytes"]
        np.testing.assert_allclose(classifier.scores(NEW), floats.scores(NEW), atol=0.6)

    def test_channels_stand_side_by_side(self):
        both = ImageClassifier(**{**TINY, "channels": ["grey", "hue"]}).fit(PICTURES, LABELS)
        vectors = next(both.learned.vectors.blocks(NEW[:2]))
        assert vectors.shape == (2, 2 * 192)
        grey = next(ImageClassifier(**TINY).fit(PICTURES, LABELS).learned.vectors.blocks(NEW[:2]))
        np.testing.assert_allclose(vectors[:, :192], grey / np.sqrt(2), atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)

    def test_the_best_of_several_costs_is_taken(self):
        tried = ImageClassifier(**{**TINY, "cost": [10.0, 1e-6]}).fit(PICTURES, LABELS)
        assert set(tried.notes["held_out"]) == {"1e-06", "10.0"}
        assert tried.notes["cost"] == max((1e-6, 10.0), key=lambda cost: tried.notes["held_out"][str(cost)])
        alone = ImageClassifier(**{**TINY, "cost": [tried.notes["cost"]]}).fit(PICTURES, LABELS)
        np.testing.assert_allclose(tried.scores(NEW), alone.scores(NEW), atol=0.05)

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_it_does_not_depend_on_threads(self, classifier, jobs):
        again = ImageClassifier(n_jobs=jobs, **TINY).fit(PICTURES, LABELS)
        np.testing.assert_array_equal(again.learned.weights, classifier.learned.weights)

    def test_data_sets_paths_and_arrays_are_the_same(self, classifier, tmp_path):
        data = ImageFolder(write_folder(tmp_path / "textures", N_OF_EACH))
        for one in (
            ImageClassifier(**TINY).fit(data),
            ImageClassifier(**TINY).fit([str(example.path) for example in data], LABELS),
        ):
            np.testing.assert_array_equal(one.learned.weights, classifier.learned.weights)

    def test_a_few_pictures_make_few_codewords(self, classifier):
        assert classifier.notes["n_codewords"] == 8
        few = ImageClassifier(**{**TINY, "n_codewords": 256}).fit(PICTURES, LABELS)
        assert few.notes["n_codewords"] == len(PICTURES) // 2

    def test_refusals(self):
        with pytest.raises(UsageError, match="has not been trained"):
            ImageClassifier().predict(NEW)
        with pytest.raises(UsageError, match="no parameter n_gausians; there are n_jobs, device, channels"):
            ImageClassifier(n_gausians=3)
        for name, value in [("channels", ["grey", "grey"]), ("channels", ["infrared"]), ("cost", []),
                            ("cost", [0.0]), ("step", 0), ("n_pca", 200), ("coding", "zip")]:  # fmt: skip
            with pytest.raises(UsageError, match=f"The '{name}' parameter of ImageClassifier"):
                ImageClassifier(**{name: value})
        with pytest.raises(DataError, match="of one class"):
            ImageClassifier(**TINY).fit(PICTURES, ["x"] * len(PICTURES))
        with pytest.raises(DataError, match="descriptors to learn from"):
            ImageClassifier(**{**TINY, "n_gaussians": 5000}).fit(PICTURES[:2], ["a", "b"])


class Interrupter(Observer):
    """Interrupts training in the middle of a stage, or after a step."""

    def __init__(self, stage=None, step=None):
        self.at_stage, self.at_step, self.steps, self.stages = stage, step, [], []

    def stage(self, name, total=None):
        self.stages.append(name)
        if name == self.at_stage:
            raise KeyboardInterrupt
        return super().stage(name, total)

    def done(self, n_done):
        self.steps.append(n_done)
        if n_done == self.at_step:
            raise KeyboardInterrupt


class TestGoingOn:
    DATA = from_labels(LABELS, PICTURES)
    SETTINGS = ClassifierSettings(**TINY, channels=["grey", "hue"])

    @pytest.mark.parametrize(
        ("interrupt", "n_done"),
        [
            ({"step": 1}, 1),
            ({"stage": "encoding a sample"}, 2),
            ({"stage": "learning codewords"}, 2),
            ({"stage": "coding"}, 3),
            ({"stage": "learning"}, 4),
        ],
    )
    def test_it_ends_in_the_same_classifier(self, tmp_path, interrupt, n_done):
        whole = classify_training.train(self.DATA, self.SETTINGS)
        with pytest.raises(KeyboardInterrupt):
            classify_training.train(
                self.DATA, self.SETTINGS, folder=tmp_path, observer=Interrupter(**interrupt)
            )
        assert classify_training.count_done(self.SETTINGS, tmp_path) == n_done
        observer = Interrupter()
        learned = classify_training.train(self.DATA, self.SETTINGS, folder=tmp_path, observer=observer)
        assert observer.steps == list(range(n_done + 1, 6))
        np.testing.assert_array_equal(learned.weights, whole.weights)
        np.testing.assert_array_equal(learned.bias, whole.bias)
        assert learned.notes == whole.notes

    def test_a_plan_has_a_name_for_each_step(self, tmp_path):
        for settings in (self.SETTINGS, ClassifierSettings(**{**TINY, "coding": "none"})):
            observer = Interrupter()
            classify_training.train(self.DATA, settings, observer=observer)
            assert observer.steps == list(range(1, len(classify_training.plan(settings)) + 1))

    def test_little_memory_makes_a_small_sample(self, tmp_path):
        room = 2 * 4 * self.SETTINGS.n_features * 10
        small = classify_training.train(self.DATA, self.SETTINGS, max_memory=room)
        assert small.notes["n_codewords"] == 5
        with pytest.raises(DataError, match="codewords cannot be learned from the vectors of 1 picture"):
            classify_training.train(self.DATA, self.SETTINGS, max_memory=10)

    def test_a_damaged_piece_is_named(self, tmp_path):
        with pytest.raises(KeyboardInterrupt):
            classify_training.train(self.DATA, self.SETTINGS, folder=tmp_path, observer=Interrupter(step=1))
        (tmp_path / "gaussians_grey.npz").write_bytes(b"PK no archive")
        with pytest.raises(DataError, match=r"gaussians_grey\.npz: damaged"):
            classify_training.train(self.DATA, self.SETTINGS, folder=tmp_path)


class TestFile:
    def test_there_and_back(self, classifier, tmp_path):
        path = tmp_path / "c.safetensors"
        classifier.save(path)
        again = load(path)
        assert isinstance(again, ImageClassifier)
        assert (again.classes, again.exclusive, again.notes) == (TEXTURES, True, classifier.notes)
        assert asdict(again.settings) == asdict(classifier.settings)
        np.testing.assert_array_equal(again.scores(NEW), classifier.scores(NEW))
        first = path.read_bytes()
        again.save(path)
        assert path.read_bytes() == first

    def test_detectors_and_classifiers_are_not_mistaken_for_each_other(self, classifier, tmp_path):
        classifier.save(tmp_path / "c.safetensors")
        with pytest.raises(ModelFileError, match="holds 'image classifier', not 'mixture"):
            read_model(tmp_path / "c.safetensors")

    @pytest.mark.parametrize(
        "change",
        [
            {"classes": ["a"]},
            {"classes": None},
            {"settings": {"n_gaussians": -1}},
            {"settings": {"colour": "red"}},
            {"settings": {**TINY, "channels": ["grey", "hue"]}},
        ],
    )
    def test_inconsistent_files_are_refused(self, classifier, tmp_path, change):
        path = tmp_path / "c.safetensors"
        classifier.save(path)
        with safe_open(path, framework="numpy") as file:
            description = json.loads(file.metadata()["visionkl"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        save_file(arrays, path, metadata={"visionkl": json.dumps({**description, **change})})
        with pytest.raises(ModelFileError, match=r"c\.safetensors"):
            load(path)
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(ModelFileError, match="damaged or no model file"):
            load(path)


def test_labels_of_a_folder_are_its_classes(tmp_path):
    data = labelled(ImageFolder(write_folder(tmp_path / "textures", n=2)))
    assert data.classes == TEXTURES
    assert data.signs.argmax(axis=1).tolist() == [0, 0, 1, 1, 2, 2]
