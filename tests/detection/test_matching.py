"""Matching against adding up every placement by hand."""

import numpy as np
import pytest

from tests.detection.conftest import random_model
from visionkl.detection.matching import Matcher
from visionkl.features.pyramid import feature_pyramid

IMAGE = np.random.default_rng(5).integers(0, 256, (90, 110, 3)).astype(np.uint8)


def pyramid_of(model):
    return feature_pyramid(
        IMAGE, interval=model.interval, padding=model.padding, extra_octave=model.extra_octave, n_jobs=1
    )


def part_score(part, level, anchor, radius):
    """Best of all placements of one part, and where."""
    h, w = part.weights.shape[:2]
    ax, bx, ay, by = part.deformation.astype(float)
    best, place = -np.inf, None
    for y in range(level.shape[0] - h + 1):
        for x in range(level.shape[1] - w + 1):
            dy, dx = y - anchor[0], x - anchor[1]
            if radius is None or max(abs(dx), abs(dy)) <= radius:
                score = np.sum(level[y : y + h, x : x + w] * part.weights, dtype=float)
                score -= ax * dx**2 + bx * dx + ay * dy**2 + by * dy
                if score > best:
                    best, place = score, (y, x)
    return best, place


def slow_score(model, pyramid, number, level, row, col):
    component = model.components[number]
    smallest = np.min(model.filter_shapes, axis=0)
    cells = pyramid.levels[level]
    h, w = component.root.shape[:2]
    if row + h > cells.shape[0] or col + w > cells.shape[1]:
        return -np.inf, []
    score = np.sum(cells[row : row + h, col : col + w] * component.root, dtype=float)
    score += component.bias + component.scale_bias[min(level // pyramid.interval, 2)]
    places = []
    finer = pyramid.levels[level - pyramid.interval]
    for part in component.parts:
        anchor = 2 * row + part.anchor[1] - pyramid.padding[0], 2 * col + part.anchor[0] - pyramid.padding[1]
        if not all(0 <= anchor[i] <= finer.shape[i] - smallest[i] for i in range(2)):
            return -np.inf, []
        best, place = part_score(part, finer, anchor, model.max_displacement)
        score += best
        places.append(place)
    return score, places


@pytest.mark.parametrize(
    "settings", [{}, {"max_displacement": None}, {"max_displacement": 0}, {"extra_octave": True}]
)
def test_scores_are_sums_over_roots_and_best_parts(settings):
    model = random_model(**settings)
    pyramid = pyramid_of(model)
    matcher = Matcher(model)
    rng = np.random.default_rng(0)
    for level in (4, 7, len(pyramid) - 1):
        scores = matcher.level_scores(pyramid, level)
        for number in range(3):
            for _ in range(6):
                row, col = rng.integers(scores.shape[1]), rng.integers(scores.shape[2])
                expected, _ = slow_score(model, pyramid, number, level, row, col)
                assert scores[number, row, col] == pytest.approx(expected, abs=1e-4)


def test_placements_are_the_best_component_above_the_threshold(model):
    pyramid = pyramid_of(model)
    matcher = Matcher(model)
    all_scores = {level: matcher.level_scores(pyramid, level) for level in matcher.root_levels(pyramid)}
    threshold = float(np.quantile(np.concatenate([s.max(axis=0).ravel() for s in all_scores.values()]), 0.97))
    placements = matcher.match(pyramid, threshold, n_jobs=2)
    assert (
        len(placements) == sum((scores.max(axis=0) > threshold).sum() for scores in all_scores.values()) > 10
    )
    for i in range(0, len(placements), 5):
        level, (row, col) = placements.levels[i], placements.roots[i]
        at_place = all_scores[level][:, row, col]
        assert placements.scores[i] == pytest.approx(at_place.max(), abs=1e-5)
        assert placements.components[i] == at_place.argmax()
        _, places = slow_score(model, pyramid, placements.components[i], level, row, col)
        np.testing.assert_array_equal(placements.parts[i, : len(places)], places)
        assert (placements.parts[i, len(places) :] == -1).all()


def test_threads_do_not_change_anything(model):
    pyramid = pyramid_of(model)
    one, two = (Matcher(model).match(pyramid, -3.0, n_jobs=n) for n in (1, 2))
    for name in ("scores", "components", "levels", "roots", "parts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_nothing_above_the_threshold_is_no_placement(model):
    placements = Matcher(model).match(pyramid_of(model), 1e6)
    assert len(placements) == 0
    assert placements.parts.shape == (0, 3, 2)
