"""Distance transforms against trying every placement."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visionkl.core.errors import DataError
from visionkl.detection.distance import distance_transform, transform_parts


def slow_transform(scores, deformation, radius, rows, cols):
    ax, bx, ay, by = np.asarray(deformation, dtype=float)
    best = np.full((rows, cols), -np.inf)
    for y in range(rows):
        for x in range(cols):
            for py in range(scores.shape[0]):
                for px in range(scores.shape[1]):
                    dx, dy = px - x, py - y
                    if radius is None or max(abs(dx), abs(dy)) <= radius:
                        best[y, x] = max(
                            best[y, x], scores[py, px] - ax * dx**2 - bx * dx - ay * dy**2 - by * dy
                        )
    return best


cases = st.tuples(
    st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**31), st.sampled_from([None, 0, 1, 4])
)


@settings(max_examples=150, deadline=None)
@given(cases, st.floats(1e-3, 5), st.floats(-2, 2), st.floats(1e-3, 5), st.floats(-2, 2))
def test_equals_trying_every_placement(case, ax, bx, ay, by):
    rows, cols, seed, radius = case
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(rows, cols)) * 3
    scores[rng.random((rows, cols)) < 0.2] = -np.inf
    transformed, placed = distance_transform(scores, [ax, bx, ay, by], radius=radius)
    expected = slow_transform(scores.astype(np.float32), np.float32([ax, bx, ay, by]), radius, rows, cols)
    np.testing.assert_allclose(transformed, expected, rtol=1e-4, atol=1e-4)
    # The placement explains the score.
    for y, x in np.argwhere(np.isfinite(expected)):
        py, px = placed[y, x]
        dx, dy = px - x, py - y
        score = scores[py, px] - ax * dx**2 - bx * dx - ay * dy**2 - by * dy
        assert score == pytest.approx(transformed[y, x], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("radius", [None, 2])
def test_anchors_may_lie_past_the_scores(radius):
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(5, 4, 3)).astype(np.float32)
    costs = np.column_stack(
        [rng.uniform(0.1, 1, 3), rng.normal(size=3), rng.uniform(0.1, 1, 3), rng.normal(size=3)]
    )
    transformed = transform_parts(scores, costs.astype(np.float32), radius, 7, 8)
    for part in range(3):
        expected = slow_transform(scores[:, :, part], costs[part], radius, 7, 8)
        np.testing.assert_allclose(transformed[:, :, part], expected, rtol=1e-4, atol=1e-4)


def test_nothing_allowed_gives_nothing():
    transformed, placed = distance_transform(np.full((3, 4), -np.inf), [1, 0, 1, 0])
    assert (transformed == -np.inf).all()
    assert (placed == -1).all()


@pytest.mark.parametrize("deformation", [[0, 0, 1, 0], [1, 0, -1, 0], [1, np.nan, 1, 0], [1, 0, 1]])
def test_refuses_costs_without_a_best_place(deformation):
    with pytest.raises(DataError, match="deformation"):
        distance_transform(np.zeros((3, 3)), deformation)


def test_refuses_scores_of_another_shape():
    with pytest.raises(DataError, match="two dimensions"):
        distance_transform(np.zeros((3, 3, 3)), [1, 0, 1, 0])
