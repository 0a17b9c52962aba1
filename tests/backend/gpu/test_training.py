"""Learning from pictures on a device: detectors and classifiers, against the CPU."""

import numpy as np
import pytest
from PIL import Image

from visionkl.backend import dispatch
from visionkl.core.errors import DeviceError, UsageError
from visionkl.core.types import Annotation
from visionkl.datasets.base import Dataset, Example
from visionkl.detection import passes
from visionkl.detection.detector import DPMDetector
from visionkl.detection.objects import collect
from visionkl.detection.settings import TrainingSettings
from visionkl.detection.training import train_on
from visionkl.evaluation.search import search
from visionkl.evaluation.voc import evaluate_voc
from visionkl.learning.classify import ImageClassifier
from visionkl.parallel.executor import SerialExecutor

# One way of running is enough: each kernel is tested in all ways elsewhere.
WAYS = [("plain", "forward"), pytest.param(("cuda", "device"), marks=pytest.mark.gpu)]
pytestmark = pytest.mark.parametrize("machine", WAYS, indirect=True, ids="-".join)

SETTINGS = {
    "n_components": 1,
    "n_parts": 1,
    "interval": 2,
    "training_interval": 2,
    "cell_size": 8,
    "n_codewords": 16,
    "root_rounds": 1,
    "part_rounds": 1,
    "mining_rounds": 1,
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Small rectangles with stripes, and noise."""
    folder, random = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    examples = []
    for number in range(7):
        pixels = random.integers(90, 140, (80, 88, 3)).astype(np.uint8)
        x, y = (int(v) for v in random.integers(4, 20, 2))
        boxes = [[x, y, x + 64, y + 56]] if number < 5 else []
        stripes = np.arange(64) // 8 % 2 * 180 + 30
        if boxes:
            pixels[y : y + 56, x : x + 64] = stripes[None, :, None]
        path = folder / f"{number}.png"
        Image.fromarray(pixels).save(path)
        found = Annotation(np.reshape(boxes, (-1, 4)), ["stripes"] * len(boxes))
        examples.append(Example(str(number), path, lambda found=found: found))
    return Dataset("stripes", ("stripes",), examples)


@pytest.mark.parametrize("n_blocks", [2, 0], ids=["codes", "cells"])
def test_detectors_learn_and_are_scored_on_the_device(gpu, pictures, n_blocks, monkeypatch):
    monkeypatch.setattr(passes, "_RANDOM_NEGATIVES", 400)
    settings = TrainingSettings(n_blocks=n_blocks, **SETTINGS)
    data = collect(pictures, "stripes", settings)
    here = train_on(data, settings, n_jobs=1)
    there = train_on(data, settings, n_jobs=1, device="cuda")
    for own, other in zip(there.components, here.components, strict=True):
        # A cell that lies between two codewords may get the other one.
        assert np.corrcoef(own.root.ravel(), other.root.ravel())[0, 1] > 0.98
        assert own.root.shape == other.root.shape
    detector = DPMDetector.from_model(here)
    ap = evaluate_voc({"stripes": detector}, pictures, device="cuda").mean_ap
    assert ap == pytest.approx(evaluate_voc({"stripes": detector}, pictures).mean_ap, abs=0.05)
    with pytest.raises(UsageError, match="one process trains on cuda:0; leave out 'executor', or 'device'"):
        train_on(data, settings, executor=SerialExecutor(), device="cuda")


def test_detectors_of_other_kinds_choose_for_themselves(gpu, pictures):
    class Own:
        def detect(self, image, *, threshold=None, n_jobs=None):
            raise AssertionError

    with pytest.raises(
        UsageError, match="part-based detectors alone search on cuda:0, and that of 'stripes'"
    ):
        next(search({"stripes": Own()}, pictures, device="cuda"))


def test_a_picture_that_does_not_fit_is_named(gpu, pictures, monkeypatch):
    class OutOfMemoryError(MemoryError):
        """Named as CuPy's."""

    def put(self, array):
        raise OutOfMemoryError("7 GB")

    settings = TrainingSettings(n_blocks=2, **SETTINGS)
    monkeypatch.setattr(dispatch.Device, "put", put)
    monkeypatch.setattr("visionkl.backend.gpu.device.free_memory", lambda: None)
    with pytest.raises(DeviceError, match="memory is too small for a training picture"):
        train_on(collect(pictures, "stripes", settings), settings, n_jobs=1, device="cuda")


@pytest.mark.parametrize("coding", ["pq", "none"])
def test_classifiers_learn_and_score_on_the_device(gpu, coding):
    random = np.random.default_rng(0)
    # Stripes across and along.
    pictures = [
        (128 + 100 * np.sin(np.arange(32) * 0.8 + phase)[:: (-1) ** n, None] * np.ones((32, 32))).astype(
            np.uint8
        )
        for n, phase in enumerate(random.uniform(0, 6, 8))
    ]
    pictures = [picture.T if n % 2 else picture for n, picture in enumerate(pictures)]
    labels = ["along" if n % 2 else "across" for n in range(8)]
    settings = {
        "step": 4, "bin_sizes": [4], "n_pca": 8, "n_gaussians": 2, "cells": [1], "coding": coding,
        "block_size": 4,
    }  # fmt: skip
    here = ImageClassifier(n_jobs=1, **settings).fit(pictures, labels)
    there = ImageClassifier(n_jobs=2, device="cuda", **settings).fit(pictures, labels)
    assert there.notes["route"] == "bundle: no other route computes on cuda:0"
    assert np.array_equal(there.predict(pictures), here.predict(pictures))
    expected = here.scores(pictures)
    here.device = "cuda"
    np.testing.assert_allclose(here.scores(pictures), expected, rtol=1e-3, atol=1e-3)
