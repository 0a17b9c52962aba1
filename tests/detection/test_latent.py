"""Placing models on objects and mining, against plain searches through all placements."""

from dataclasses import replace

import numpy as np
import pytest

from tests.detection.conftest import random_model
from visionkl.core.boxes import clip, iou
from visionkl.detection.boxes import filter_boxes, learn_box_weights, regress_boxes
from visionkl.detection.latent import PlacingPass, place_objects
from visionkl.detection.matching import Matcher
from visionkl.detection.mining import (
    MARGIN,
    DrawingPass,
    MiningPass,
    draw_negatives,
    mine_picture,
    sorted_by_root,
)
from visionkl.detection.model import MixtureModel
from visionkl.detection.objective import PlacementRows
from visionkl.detection.parameters import Parameters, with_mirrors, without_mirrors
from visionkl.detection.samples import Samples
from visionkl.features.pyramid import feature_pyramid

IMAGE = np.random.default_rng(5).integers(0, 256, (100, 130, 3)).astype(np.uint8)
OBJECTS = np.array([[20.0, 30, 62, 60], [100, 5, 130, 45], [0, 0, 6, 6]])


@pytest.fixture(scope="module")
def model() -> MixtureModel:
    components = with_mirrors(random_model().components[::2])
    return MixtureModel("thing", components, interval=4, max_displacement=3)


@pytest.fixture(scope="module")
def pyramid(model):
    return feature_pyramid(IMAGE, interval=4, padding=model.padding)


def everything(model, pyramid):
    """All placements of all components, not only the best at each place."""
    found = []
    for number in range(len(model.components)):

        def choose(level, scores, number=number):
            roots = np.argwhere(np.isfinite(scores[number]))
            return np.full(len(roots), number), roots

        placed = Matcher(model).place(pyramid, choose)
        found.append((placed, *filter_boxes(model, pyramid, placed)))
    return found


def test_each_object_gets_the_best_of_the_placements_that_fit(model, pyramid):
    placed = place_objects(PlacingPass(model, [pyramid], [OBJECTS], 0.6), 0)
    assert placed.rows.tolist() == [0, 1]  # the third is smaller than any window
    for row, component, score, root in zip(
        placed.rows, placed.components, placed.scores, placed.roots, strict=True
    ):
        best = -np.inf
        for placements, roots, _ in everything(model, pyramid):
            fits = iou(clip(roots, 130, 100), OBJECTS[row : row + 1])[:, 0] >= 0.6
            best = max(best, placements.scores[fits].max(initial=-np.inf))
        assert score == pytest.approx(best, abs=1e-5)
        assert iou(clip(root[None], 130, 100), OBJECTS[row : row + 1])[0, 0] >= 0.6
        assert len(placed.samples[component])
    assert sum(map(len, placed.samples)) == 2


def test_hard_negatives_score_above_the_margin_and_spare_objects(model, pyramid):
    eager = replace(model, components=tuple(replace(c, bias=c.bias + 1) for c in model.components))
    samples = mine_picture(MiningPass(eager, [pyramid], [OBJECTS], 50), 0)
    assert 0 < sum(map(len, samples)) <= 50
    parameters = Parameters(without_mirrors(eager))
    vector = parameters.vector(without_mirrors(eager))
    assert (PlacementRows(parameters, samples, None).scores(vector) > MARGIN).all()
    for number, some in enumerate(samples):
        rows, cols, _ = eager.components[number].root.shape
        for _, level, row, col in some.keys:
            cell = pyramid.cell_size / pyramid.scales[level]
            corner = np.array([col - pyramid.padding[1], row - pyramid.padding[0]]) * cell
            window = np.concatenate([corner, corner + np.array([cols, rows]) * cell])
            assert iou(clip(window[None], 130, 100), OBJECTS).max() < 0.3
    shy = replace(model, components=tuple(replace(c, bias=c.bias - 50) for c in model.components))
    assert not any(map(len, mine_picture(MiningPass(shy, [pyramid], [OBJECTS], 50), 0)))


def test_random_windows_lie_inside_and_repeat(model):
    rigid = replace(model, components=tuple(replace(c, parts=(), box_weights=None) for c in model.components))
    pyramids = [feature_pyramid(IMAGE, interval=4, padding=model.padding)]
    drawn = draw_negatives(DrawingPass(rigid, pyramids, [OBJECTS], 3, 20), 0)
    assert len(drawn[0]) > 5
    assert len(drawn[1]) == 0
    again = draw_negatives(DrawingPass(rigid, pyramids, [OBJECTS], 3, 20), 0)
    np.testing.assert_array_equal(drawn[0].keys, again[0].keys)
    # Truncation marks the frame; windows inside have none.
    assert not drawn[0].features.reshape(len(drawn[0]), -1, 32)[..., 31].any()


def test_sorting_puts_equal_roots_side_by_side(model, pyramid):
    samples = mine_picture(MiningPass(model, [pyramid], [OBJECTS[:0]], 50), 0)
    some = max(samples, key=len)
    shuffled = some[np.random.default_rng(0).permutation(len(some))]
    keys = sorted_by_root(Samples.join([shuffled, some])).keys
    np.testing.assert_array_equal(keys[::2], keys[1::2])


def test_box_regression_finds_a_known_law(model):
    """Boxes that are a linear function of where the parts lie are predicted exactly, mirrored ones too."""
    rng = np.random.default_rng(0)
    n = 400
    corners = rng.uniform(0, 200, (n, 2))
    roots = np.hstack([corners, corners + np.array([80, 60])])
    n_parts = len(model.components[0].parts)
    part_corners = corners[:, None] + rng.uniform(0, 50, (n, n_parts, 2))
    parts = np.concatenate([part_corners, part_corners + 20], axis=2)
    components = rng.integers(0, 2, n)
    # The law of the learned component; its mirror image sees the same with left and right exchanged.
    middle = (roots[:, :2] + roots[:, 2:]) / 2
    offset = (parts[:, 0, :2] + 10 - middle) * np.where(components == 1, -1, 1)[:, None] ** [1, 2]
    boxes = roots.copy()
    left, right = 4 + 0.1 * offset[:, 0], 7 - 0.2 * offset[:, 1]
    boxes[:, 0] += np.where(components == 1, -right, left)
    boxes[:, 2] += np.where(components == 1, -left, right)
    learned = learn_box_weights(model, components, roots, parts, np.full((n, 2), 1000), boxes)
    trained = replace(model, components=learned)
    predicted = regress_boxes(trained, components, roots, parts, (1000, 1000))
    np.testing.assert_allclose(predicted, boxes, atol=0.15)
    assert np.abs(boxes - roots).max() > 5
    assert learned[2].box_weights is None  # it has seen no object
