"""The detector as a whole: published models give the published detections.

Mirror images give mirrored ones.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.detection.conftest import random_model
from visionkl.core.boxes import clip, to_voc
from visionkl.core.errors import UsageError
from visionkl.core.image import read_image
from visionkl.detection.boxes import filter_boxes, regress_boxes
from visionkl.detection.detector import DPMDetector, detect_all
from visionkl.detection.matching import Matcher
from visionkl.detection.model import Component, MixtureModel
from visionkl.detection.suppress import suppress
from visionkl.features.hog import hog, mirror
from visionkl.features.pyramid import feature_pyramid
from visionkl.interop.voc_dpm import read_voc_dpm

MODELS = ["VOC2007_bicycle_final", "VOC2007_bus_final", "VOC2007_person_final", "INRIA_person_final"]


@pytest.mark.realdata
@pytest.mark.parametrize("picture", ["000034", "000061"])
@pytest.mark.parametrize("name", MODELS)
def test_published_models_find_what_the_original_program_finds(realdata, name, picture):
    """Every window, component and score, and the best score of every level, as the original printed them."""
    folder = realdata / "voc_dpm_models"
    reference = json.loads((folder / "reference_detections.json").read_text())[picture][name]
    image = read_image(folder / f"{picture}.png")
    size = image.shape[1], image.shape[0]
    model = read_voc_dpm(folder / f"{name}.mat")
    matcher = Matcher(model)
    pyramid = feature_pyramid(image, padding=model.padding, extra_octave=model.extra_octave)

    best = reference["best_score_per_level"]
    assert len(pyramid) == len(best)
    assert [level for level, score in enumerate(best) if score is not None] == list(
        matcher.root_levels(pyramid)
    )
    for level in matcher.root_levels(pyramid):
        assert matcher.level_scores(pyramid, level).max() == pytest.approx(best[level], abs=1e-5)

    placements = matcher.match(pyramid, -1.0)
    assert len(placements) == reference["n_raw_above_minus_1"]
    roots, parts = filter_boxes(model, pyramid, placements)
    keep = suppress(roots, placements.scores)
    expected = np.reshape(reference["root_boxes_after_nms_0.5"], (-1, 6))
    np.testing.assert_allclose(to_voc(roots[keep]), expected[:, :4], atol=1e-3)
    np.testing.assert_array_equal(placements.components[keep] + 1, expected[:, 4])
    np.testing.assert_allclose(placements.scores[keep], expected[:, 5], atol=1e-4)

    regressed = clip(regress_boxes(model, placements.components, roots, parts, size), *size)
    keep = suppress(regressed, placements.scores)
    expected = np.reshape(reference["regressed_boxes_after_nms_0.5"], (-1, 5))
    np.testing.assert_allclose(to_voc(regressed[keep]), expected[:, :4], atol=1e-3)

    found = DPMDetector.from_model(model).detect(image, threshold=-1.0)
    np.testing.assert_allclose(to_voc(found.boxes), expected[:, :4], atol=1e-3)
    np.testing.assert_allclose(found.scores, expected[:, 4], atol=1e-4)
    assert found.labels == (model.label,) * len(expected)


@pytest.mark.realdata
def test_detectors_together_find_what_each_finds_alone(realdata):
    """Different paddings and octaves share one pyramid."""
    folder = realdata / "voc_dpm_models"
    detectors = [DPMDetector.from_model(read_voc_dpm(folder / f"{name}.mat")) for name in MODELS]
    image = read_image(folder / "000061.png")
    together = detect_all(detectors, image, threshold=-0.95)
    assert len(together) > 5
    for detector in detectors[:2]:
        alone = detector.detect(image, threshold=-0.95)
        assert together.filter(labels=detector.label).boxes.tolist() == alone.boxes.tolist()
    persons = sum(len(detector.detect(image, threshold=-0.95)) for detector in detectors[2:])
    assert len(together) == persons + sum(len(d.detect(image, threshold=-0.95)) for d in detectors[:2])


def planted_picture() -> tuple[np.ndarray, MixtureModel, tuple[int, int, int, int]]:
    """A picture with one patch, and a rigid model made of that patch's own cells."""
    rng = np.random.default_rng(3)
    image = np.full((160, 200, 3), 90.0)
    image += rng.normal(size=image.shape) * 2
    patch = np.kron(rng.integers(0, 2, (8, 10)), np.ones((8, 8)))[:, :, None] * 120
    image[48:112, 64:144] += patch - 30
    root = hog(image)[5:13, 7:17] - 0.1
    root[:, :, 31] = 0
    model = MixtureModel(
        "patch", (Component(root),), interval=4, threshold=float((root * hog(image)[5:13, 7:17]).sum() * 0.9)
    )
    return np.clip(image, 0, 255), model, (64, 48, 144, 112)


def test_finds_a_planted_object_where_it_is():
    image, model, box = planted_picture()
    found = DPMDetector.from_model(model).detect(image)
    assert len(found) == 1
    np.testing.assert_allclose(found.boxes[0], box, atol=1)
    assert found.parts.shape == (1, 0, 4)


@pytest.mark.parametrize("extra", [(False, False), (True, False), (False, True), (True, True)])
def test_rigid_models_beside_others_find_what_they_find_with_all_octaves(extra):
    """The finest octave is computed only if parts are sought on it; nothing depends on that."""
    image, planted, _ = planted_picture()
    rigid = replace(planted, threshold=planted.threshold / 5, extra_octave=extra[0])
    with_parts = random_model(2, extra_octave=extra[1])
    together = detect_all([DPMDetector.from_model(model) for model in (rigid, with_parts)], image)
    for model in (rigid, with_parts):
        pyramid = feature_pyramid(
            image, interval=4, padding=model.padding, extra_octave=model.extra_octave, n_jobs=1
        )
        detector = DPMDetector.from_model(model)
        expected = detector.detect_in(pyramid, threshold=model.threshold, overlap=0.5, n_jobs=1)
        assert len(expected) > 0
        for found in (detector.detect(image), together.filter(labels=model.label)):
            assert found.boxes.tolist() == expected.boxes.tolist()
            assert found.scores.tolist() == expected.scores.tolist()


def test_a_mirrored_picture_gives_mirrored_boxes():
    image, model, _ = planted_picture()
    both = MixtureModel(
        "patch",
        (model.components[0], Component(mirror(model.components[0].root))),
        interval=4,
        threshold=model.threshold,
    )
    found = DPMDetector.from_model(both).detect(image)
    mirrored = DPMDetector.from_model(both).detect(image[:, ::-1])
    assert found.components.tolist() == [0]
    assert mirrored.components.tolist() == [1]
    np.testing.assert_allclose(
        mirrored.boxes[:, [2, 1, 0, 3]] * [-1, 1, -1, 1] + [200, 0, 200, 0], found.boxes, atol=1e-3
    )


def test_boxes_stay_inside_and_come_best_first(model):
    image = np.random.default_rng(0).integers(0, 256, (70, 90, 3)).astype(np.uint8)
    found = DPMDetector.from_model(model).detect(image, threshold=-2.0)
    assert len(found) > 3
    assert (found.boxes >= 0).all()
    assert (found.boxes <= [90, 70, 90, 70]).all()
    assert (np.diff(found.scores) <= 0).all()
    # Components without a third part have NaN there.
    assert np.isnan(found.parts[found.components == 2, 1:]).all()
    assert np.isfinite(found.parts[found.components == 0]).all()


@pytest.mark.parametrize("shape", [(1, 1), (10, 300), (20, 20)])
def test_pictures_smaller_than_a_filter_are_no_problem(model, shape):
    found = DPMDetector.from_model(model).detect(np.zeros(shape, np.uint8), threshold=-5.0)
    assert (found.boxes[:, 2:] <= [shape[1], shape[0]]).all()
    assert len(DPMDetector.from_model(model).detect(np.zeros(shape, np.uint8), threshold=5.0)) == 0


def test_reads_a_picture_by_its_path(model, tmp_path):
    from PIL import Image

    image = np.random.default_rng(0).integers(0, 256, (70, 90, 3)).astype(np.uint8)
    Image.fromarray(image).save(tmp_path / "a.png")
    detector = DPMDetector.from_model(model)
    assert detector.detect(str(tmp_path / "a.png"), threshold=-2) == detector.detect(image, threshold=-2)


def test_no_detectors_is_a_mistake():
    with pytest.raises(UsageError, match="no detectors"):
        detect_all([], np.zeros((50, 50)))


def test_detectors_of_different_kinds_work_side_by_side():
    image = np.random.default_rng(0).integers(0, 256, (70, 90, 3)).astype(np.uint8)
    a, b = (
        DPMDetector.from_model(random_model(0)),
        DPMDetector.from_model(random_model(1, interval=5, extra_octave=True)),
    )
    together = detect_all([a, b], image, threshold=-2.0)
    assert len(together) == len(a.detect(image, threshold=-2.0)) + len(b.detect(image, threshold=-2.0))
