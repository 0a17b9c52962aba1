"""Scores of whole pictures, against scikit-learn."""

import json

import numpy as np
import pytest
from sklearn import metrics

from visionkl.core.errors import DataError
from visionkl.evaluation.images import ImageResult

CLASSES = ("a", "b", "c")


def several(seed=0, n=60):
    random = np.random.default_rng(seed)
    signs = random.choice([-1, -1, 0, 1], (n, 3)).astype(np.int8)
    return ImageResult("pictures", CLASSES, False, signs, random.normal(size=(n, 3)) + 0.5 * signs)


def one_each(seed=0, n=60):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, n)
    signs = np.where(labels[:, None] == np.arange(3), 1, -1).astype(np.int8)
    return ImageResult("pictures", CLASSES, True, signs, random.normal(size=(n, 3)) + signs), labels


def test_the_curve_leaves_out_what_says_nothing():
    result = several()
    for number, (label, mine) in enumerate(result.by_class("10").items()):
        column, scores = result.signs[:, number], result.scores[:, number]
        counted = column != 0
        assert label == CLASSES[number]
        assert (mine.n_objects, mine.n_difficult) == ((column > 0).sum(), (column == 0).sum())
        precision, recall, _ = metrics.precision_recall_curve(column[counted] > 0, scores[counted])
        # The area under the curve made monotone from the right, as VOC defines it.
        best = np.maximum.accumulate(precision[:-1])
        expected = -np.diff(recall) @ best
        assert mine.ap == pytest.approx(expected)
    assert result.mean_ap("10") == pytest.approx(
        np.mean([mine.ap for mine in result.by_class("10").values()])
    )


def test_accuracies_and_confusion():
    result, labels = one_each()
    given = result.scores.argmax(axis=1)
    assert result.accuracy == pytest.approx(metrics.accuracy_score(labels, given))
    assert result.mean_class_accuracy == pytest.approx(metrics.balanced_accuracy_score(labels, given))
    np.testing.assert_array_equal(result.confusion, metrics.confusion_matrix(labels, given))


def test_a_class_that_no_picture_shows_has_no_number():
    signs = np.array([[1, -1], [1, -1]], np.int8)
    result = ImageResult("pictures", ("a", "b"), True, signs, np.eye(2))
    assert np.isnan(result.class_accuracies["b"])
    assert result.mean_class_accuracy == 0.5
    assert "none" in result.table()
    document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert document["classes"]["b"] == {"n_pictures": 0, "n_difficult": 0, "ap": {"07": None, "10": None},
                                        "accuracy": None}  # fmt: skip


@pytest.mark.parametrize("result", [several(), one_each()[0]])
def test_tables_have_a_number_for_each_heading(result):
    assert {len(row) for row in result.rows()} == {len(result.columns())}
    assert result.rows()[-1][0] == "mean"
    assert len(result.table().splitlines()) == 5
    json.dumps(result.to_dict(), allow_nan=False)


def test_shapes_must_fit():
    with pytest.raises(DataError, match=r"\(n_pictures, 2\)"):
        ImageResult("pictures", ("a", "b"), True, np.ones((3, 2), np.int8), np.ones((3, 1)))
