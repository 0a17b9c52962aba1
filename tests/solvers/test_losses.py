"""Losses and their planes: values by hand, planes below the loss, groups of rows, bad labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.solvers.problems import two_classes
from visionkl.core.errors import DataError, UsageError
from visionkl.solvers.losses import Risk
from visionkl.solvers.scalar import LOSSES


def test_losses_by_hand():
    z = np.array([-1.0, 0.0, 1.0, 2.0])
    assert LOSSES["hinge"].value(z).tolist() == [2, 1, 0, 0]
    assert LOSSES["squared_hinge"].value(z).tolist() == [4, 1, 0, 0]
    assert LOSSES["logistic"].value(z) == pytest.approx(np.log(1 + np.exp(-z)))
    assert LOSSES["logistic"].value(np.array([-800.0, 800.0])).tolist() == [800, 0]


@pytest.mark.parametrize("loss", LOSSES)
def test_derivatives_against_differences(loss):
    z = np.array([-3.0, -0.5, 0.3, 0.9, 1.2, 4.0])
    difference = (LOSSES[loss].value(z + 1e-6) - LOSSES[loss].value(z - 1e-6)) / 2e-6
    assert LOSSES[loss].derivative(z) == pytest.approx(difference, abs=1e-5)


def groups_for(y, rng):
    """Rows of the samples: one for positives, one to three for negatives, in a random order."""
    groups = np.concatenate([np.full(1 if label > 0 else rng.integers(1, 4), i) for i, label in enumerate(y)])
    return rng.permutation(groups) if rng.random() < 0.5 else groups


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**31), st.sampled_from(list(LOSSES)), st.integers(1, 4), st.booleans(), st.floats(0, 0.3)
)
def test_planes_lie_below_the_risk_and_touch_it(seed, loss, n_parts, grouped, slack):
    rng = np.random.default_rng(seed)
    y = np.array([1, -1] * 6)
    groups = groups_for(y, rng) if grouped else None
    X = rng.normal(size=(12 if groups is None else len(groups), 3))
    weights = rng.random(12) + 0.1
    risk = Risk(X, y, loss=loss, weights=weights, class_weights=(2.0, 0.5), groups=groups, n_parts=n_parts)
    here, there = rng.normal(size=(2, risk.dim))
    offsets, planes = risk.planes(risk.scores(here)[None], slack)
    assert planes.shape == (1, risk.n_parts, risk.dim)
    plane_at = lambda v: (offsets[0] + planes[0] @ v).sum()  # noqa: E731
    assert plane_at(there) <= risk.loss(risk.scores(there)) + 1e-9
    assert risk.loss(risk.scores(here)) - slack - 1e-9 <= plane_at(here)
    loss_here, gradient = risk(here)
    assert loss_here == pytest.approx(risk.loss(risk.scores(here)))
    assert loss_here + gradient @ (there - here) <= risk.loss(risk.scores(there)) + 1e-9
    # The slope along a line lies between the slopes of the secants to its two sides.
    scores, change = risk.scores(here), risk.scores(there - here)
    ahead = (risk.loss(scores + 1e-5 * change) - risk.loss(scores)) / 1e-5
    behind = (risk.loss(scores) - risk.loss(scores - 1e-5 * change)) / 1e-5
    assert behind - 1e-6 <= risk.slope(scores, change) <= ahead + 1e-6


def test_weights_and_bias_by_hand():
    risk = Risk([[2.0], [1.0]], [1, -1], weights=[1, 3], class_weights=(2, 5), bias=10.0)
    # Scores 0.2 + 1 and 0.1 + 1: the positive is beyond its margin, the negative loses 1 + 1.1.
    loss, plane = risk(np.array([0.1, 0.1]))
    assert loss == pytest.approx(3 * 2 * 2.1 / 2)
    assert plane == pytest.approx(3 * 2 / 2 * np.array([1.0, 10.0]))


def test_best_row_of_a_group_counts():
    risk = Risk([[1.0], [-2.0], [3.0]], [-1, 1], groups=[0, 0, 1], bias=0.0)
    assert risk(np.array([1.0]))[0] == pytest.approx((1 + 1) / 2)
    assert risk(np.array([-1.0]))[0] == pytest.approx((1 + 2 + 1 + 3) / 2)


def test_rows_of_scattered_groups_make_one_part():
    X, y = two_classes(40, 3)
    assert Risk(X, y, n_parts=4).n_parts == 4
    assert Risk(X, y, n_parts=4, groups=np.arange(40)[::-1]).n_parts == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"y": [1, 1, 1]}, "All 3 training samples are labelled \\+1"),
        ({"y": [1, 0, -1]}, "that of sample 1 is 0"),
        ({"y": [1, np.nan, -1]}, "that of sample 1 is nan"),
        ({"y": ["cat", "dog", "cat"]}, "list of \\+1 and -1"),
        ({"y": []}, "list of \\+1 and -1"),
        ({"y": [1, -1]}, "3 rows of training data but 2 labels"),
        ({"y": [1, -1, 1], "loss": "cubic"}, "'hinge', 'squared_hinge', 'logistic'"),
        ({"y": [1, -1, 1], "weights": [1, 2]}, "3 finite numbers"),
        ({"y": [1, -1, 1], "weights": [1, -2, 1]}, "finite numbers ≥ 0"),
        ({"y": [1, -1, 1], "weights": [0, 0, 0]}, "not only zeros"),
        ({"y": [1, -1, 1], "class_weights": (1, -1)}, "'class_weights'"),
        ({"y": [1, -1, 1], "bias": -1}, "'bias'"),
        ({"y": [1, -1, 1], "n_parts": -1}, "'n_parts'"),
        ({"y": [1, -1], "groups": [0, 0, 1]}, "Sample 0 is labelled \\+1 and has 2 rows"),
        ({"y": [-1, 1], "groups": [0, 0, 2]}, "the numbers of the 2 samples"),
        ({"y": [-1, 1], "groups": [0, 0, -1]}, "the numbers of the 2 samples"),
        ({"y": [-1, 1], "groups": [0, 0]}, "3 integers"),
    ],
)
def test_bad_labels_in_one_sentence(arguments, complaint):
    with pytest.raises((DataError, UsageError), match=complaint):
        Risk(np.eye(3), **arguments)
