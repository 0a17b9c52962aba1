"""Non-maximum suppression against its definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visionkl.core.boxes import area, intersection, iou
from visionkl.core.errors import UsageError
from visionkl.detection.suppress import suppress


def slow_suppress(boxes, scores, overlap, measure):
    kept: list[int] = []
    for i in sorted(range(len(boxes)), key=lambda i: -scores[i]):
        mine = boxes[i : i + 1]
        shares = [
            iou(mine, boxes[j : j + 1])[0, 0]
            if measure == "iou"
            else intersection(mine, boxes[j : j + 1])[0, 0] / area(mine)[0]
            for j in kept
        ]
        if all(share <= overlap for share in shares):
            kept.append(i)
    return kept


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 40),
    st.integers(0, 10**6),
    st.sampled_from(["covered", "iou"]),
    st.sampled_from([0.0, 0.31, 0.5, 1.0]),
)
def test_equals_the_definition(n, seed, measure, overlap):
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 60, (n, 2))
    boxes = np.hstack([corner, corner + rng.uniform(5, 40, (n, 2))])
    scores = rng.normal(size=n)
    assert suppress(boxes, scores, overlap=overlap, measure=measure).tolist() == slow_suppress(
        boxes, scores, overlap, measure
    )


def test_exact_ties_stay():
    """Windows half an octave apart have areas of ratio 2, so that one covers exactly half of the other."""
    scale = 2**0.5
    inner, outer = [100.0, 100.0, 164.0, 196.0], [90.0, 90.0, 90 + 64 * scale, 90 + 96 * scale]
    assert suppress([inner, outer], [1.0, 0.5]).tolist() == [0, 1]


def test_equal_scores_keep_their_order():
    assert suppress([[0, 0, 4, 4], [9, 9, 12, 12], [0, 0, 4, 4]], [1, 1, 1]).tolist() == [0, 1]


def test_refuses_unknown_measures():
    with pytest.raises(UsageError, match="'measure'"):
        suppress([[0, 0, 1, 1]], [1], measure="area")
