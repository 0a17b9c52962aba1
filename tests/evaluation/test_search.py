"""Detectors over whole data sets: `search` and `evaluate_voc`."""

import numpy as np
import pytest
from PIL import Image

from visionkl.core.errors import DataError, UsageError
from visionkl.core.types import Annotation, Detections
from visionkl.datasets.base import Dataset, Example
from visionkl.evaluation.search import search
from visionkl.evaluation.voc import evaluate_detections, evaluate_voc


class BrightSpot:
    """A whole detector: the box around the bright pixels of a channel, scored by how many they are."""

    def __init__(self, channel, label):
        self.channel = channel
        self.label = label

    def detect(self, image, *, threshold=None, n_jobs=None):
        rows, cols = np.nonzero(image[:, :, self.channel] > 128)
        if len(rows) == 0 or (threshold is not None and len(rows) < threshold):
            return Detections()
        box = [cols.min(), rows.min(), cols.max() + 1, rows.max() + 1]
        return Detections([box], [len(rows)], self.label)


@pytest.fixture
def spots(tmp_path):
    """Pictures with a red, a green, or no square; every third picture has both."""
    rng = np.random.default_rng(0)
    examples = []
    for number in range(9):
        image = np.zeros((40, 60, 3), np.uint8)
        boxes, labels = [], []
        for channel, label in enumerate(("red", "green")):
            if number % 3 in (channel, 2):
                x, y = rng.integers(0, 20, 2)
                image[y : y + 10, x : x + 15, channel] = 255
                boxes.append([x, y, x + 15, y + 10])
                labels.append(label)
        path = tmp_path / f"{number}.png"
        Image.fromarray(image).save(path)
        objects = Annotation(np.reshape(boxes, (-1, 4)), labels)
        examples.append(Example(path.stem, path, lambda objects=objects: objects))
    return Dataset("spots", ("red", "green", "blue"), examples)


DETECTORS = {"red": BrightSpot(0, "red"), "green": BrightSpot(1, "green")}


def test_good_detectors_score_1(spots):
    seen = []
    result = evaluate_voc(
        DETECTORS, spots, metric="10", progress=lambda done, total: seen.append((done, total))
    )
    assert result.mean_ap == pytest.approx(1.0)
    assert list(result.by_class) == ["red", "green"]
    assert result.n_images == 9
    assert seen == [(number, 9) for number in range(1, 10)]


def test_a_threshold_keeps_low_scores_out(spots):
    # Each square has 150 bright pixels.
    assert evaluate_voc(DETECTORS, spots, threshold=150).mean_ap == pytest.approx(1.0)
    assert evaluate_voc(DETECTORS, spots, threshold=151).by_class["red"].n_detections == 0


def test_streaming_equals_collecting(spots):
    swapped = {"green": BrightSpot(0, "red"), "red": BrightSpot(1, "green")}
    found = {example.id: detections for example, detections in search(swapped, spots)}
    collected = evaluate_detections(found, spots, tuple(swapped))
    assert evaluate_voc(swapped, spots).to_dict() == collected.to_dict()


def test_the_key_names_the_class(spots):
    # A detector's own name for what it finds may be another one: here both say "thing".
    detectors = {"red": BrightSpot(0, "thing"), "green": BrightSpot(1, "thing")}
    assert evaluate_voc(detectors, spots).mean_ap == pytest.approx(1.0)


def test_a_broken_picture_stops_or_is_left_out(spots):
    spots[2].path.write_bytes(spots[2].path.read_bytes()[:60])
    with pytest.raises(DataError, match=r"2\.png"):
        evaluate_voc(DETECTORS, spots)
    result = evaluate_voc(DETECTORS, spots, on_bad_data="skip")
    assert result.skipped == ("2",)
    assert result.n_images == 8
    assert result.by_class["red"].n_objects == 5  # its objects do not count as missed
    assert result.mean_ap == pytest.approx(1.0)


def test_complaints_come_before_the_work(spots):
    class Untouchable:
        def detect(self, image, *, threshold=None, n_jobs=None):
            raise AssertionError("the search began")

    with pytest.raises(UsageError, match="there is no class 'purple'"):
        evaluate_voc({"purple": Untouchable()}, spots)
    with pytest.raises(UsageError, match="no class is asked for"):
        evaluate_voc({}, spots)
    with pytest.raises(UsageError, match="'metric' parameter"):
        evaluate_voc({"red": Untouchable()}, spots, metric="2007")
    with pytest.raises(UsageError, match="'min_overlap' parameter"):
        evaluate_voc({"red": Untouchable()}, spots, min_overlap=0)
