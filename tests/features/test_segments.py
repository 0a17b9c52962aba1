"""Figure–ground segments: objects of drawn pictures are found, constraints hold, bad input is named."""

import numpy as np
import pytest
from sklearn.base import clone

from visionkl.core.errors import DataError, UsageError
from visionkl.datasets.sample import make_sample_set
from visionkl.datasets.voc import VOC, read_object_masks
from visionkl.features.cuts import network, propose, sweep_task, tasks_of
from visionkl.features.segment_ranking import (
    DEFAULT_RANKING,
    FEATURE_NAMES,
    choose_segments,
    describe_segments,
    fit_ranking,
)
from visionkl.features.segments import FigureGround, Segments
from visionkl.features.superpixels import crossing_costs, region_graph


def disc_picture(rows=90, cols=120, seed=0):
    """A disc and a bar on noisy ground, and their masks."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:rows, :cols]
    disc = (x - 0.35 * cols) ** 2 + (y - 0.5 * rows) ** 2 < (0.22 * rows) ** 2
    bar = (x > 0.7 * cols) & (x < 0.85 * cols) & (y > 0.2 * rows)
    picture = np.full((rows, cols, 3), (90, 120, 90))
    picture[disc], picture[bar] = (200, 60, 50), (60, 70, 180)
    return np.clip(picture + random.normal(0, 6, picture.shape), 0, 255).astype(np.uint8), np.stack(
        [disc, bar]
    )


@pytest.fixture(scope="module")
def graph():
    return region_graph(disc_picture()[0], 120)


@pytest.fixture(scope="module")
def pool(graph):
    return propose(graph, 3)


def test_the_objects_are_found():
    picture, masks = disc_picture()
    (found,) = FigureGround(20).transform([picture])
    assert 5 <= len(found) <= 20
    assert (found.overlaps(masks).max(axis=0) > 0.85).all()


def test_cuts_keep_to_seed_and_background_and_are_nested(graph):
    net = network(graph.pairs, crossing_costs(graph.length, graph.probability), len(graph))
    tasks = tasks_of(graph, 3)
    assert any(task.tone for task, _ in tasks)
    grown = 0
    for task, tones in tasks:
        cuts = sweep_task(net, graph.area, tones, task)
        assert cuts[:, task.seed].all()
        assert not cuts[:, task.background].any()
        assert not (cuts[:-1] & ~cuts[1:]).any()
        grown += (cuts[-1] != cuts[0]).any()
    assert grown > len(tasks) / 2


def test_proposals_differ_and_hang_together(graph, pool):
    assert len(np.unique(pool, axis=0)) == len(pool) > 200
    neighbours = np.zeros((len(graph), len(graph)), bool)
    neighbours[tuple(graph.pairs.T)] = neighbours[tuple(graph.pairs.T[::-1])] = True
    for segment in pool[::17]:
        reached = np.zeros(len(graph), bool)
        reached[np.flatnonzero(segment)[0]] = True
        while (wider := segment & (reached | (neighbours @ reached))).sum() > reached.sum():
            reached = wider
        np.testing.assert_array_equal(reached, segment)


def slow_overlap(one, other):
    return (one & other).sum() / (one | other).sum()


def test_duplicates_are_left_out(graph, pool):
    scores = np.random.default_rng(0).random(len(pool))
    chosen = choose_segments(pool, graph.area, scores, 40, 0.8)
    masks = pool[chosen][:, graph.labels]
    assert len(masks) == 40
    for i in range(len(masks)):
        for j in range(i):
            assert slow_overlap(masks[i], masks[j]) <= 0.8 + 1e-6


def test_the_choice_covers_most(graph, pool):
    few = pool[:: len(pool) // 40]
    masks = few[:, graph.labels]
    scores = np.random.default_rng(1).random(len(few))
    overlaps = np.array([[slow_overlap(one, other) for other in masks] for one in masks])
    expected, covered = [], np.zeros(len(few))
    while len(expected) < 15:
        gains = (np.maximum(overlaps - covered, 0) * scores).sum(axis=1)
        gains[expected] = -1
        expected.append(int(gains.argmax()))
        covered = np.maximum(covered, overlaps[expected[-1]])
    assert choose_segments(few, graph.area, scores, 15, 1.0).tolist() == expected
    assert len(choose_segments(few, graph.area, scores, 1000, 0.999)) == len(few)


def test_features_are_what_their_names_say(graph, pool):
    features = describe_segments(graph, pool)
    assert features.shape == (len(pool), len(FEATURE_NAMES))
    assert np.isfinite(features).all()
    column = {name: features[:, number] for number, name in enumerate(FEATURE_NAMES)}
    masks = pool[:, graph.labels]
    np.testing.assert_allclose(column["area"], masks.mean(axis=(1, 2)))
    np.testing.assert_allclose(column["edge bottom"], masks[:, -1].mean(axis=1))
    y = np.mgrid[:90, :120][0] + 0.5
    for number in range(0, len(pool), 50):
        rows, cols = (np.flatnonzero(masks[number].any(axis=axis)) for axis in (1, 0))
        box = (rows[-1] - rows[0] + 1) * (cols[-1] - cols[0] + 1)
        assert column["box filled"][number] == pytest.approx(masks[number].sum() / box)
        assert column["height"][number] == pytest.approx(y[masks[number]].mean() / 90 - 0.5)
    # Round things are rounder than others: an ellipse would have 0.
    disc = disc_picture()[1][0]
    found = Segments(graph.labels, pool, np.zeros(len(pool)))
    assert abs(column["roundness"][found.overlaps(disc[None]).argmax()]) < 0.1


def test_a_ranking_is_a_poisson_regression():
    random = np.random.default_rng(0)
    features = random.normal(2, 3, (20_000, len(FEATURE_NAMES)))
    expected = np.exp(-2 + 0.5 * (features[:, 1] - 2) / 3)
    ranking = fit_ranking(features, random.poisson(expected).astype(float), np.ones(20_000))
    assert np.corrcoef(np.log(ranking.score(features)), np.log(expected))[0, 1] > 0.9
    assert ranking.score(features).mean() == pytest.approx(expected.mean(), rel=0.1)
    assert len(DEFAULT_RANKING.centre) == len(DEFAULT_RANKING.scale) == len(FEATURE_NAMES)
    assert len(DEFAULT_RANKING.weights) == 1 + 3 * len(FEATURE_NAMES)


def test_threads_and_repetition_change_nothing():
    pictures = [disc_picture(seed=seed)[0] for seed in range(3)]
    one, two, again = (FigureGround(15, n_jobs=n_jobs).transform(pictures) for n_jobs in (1, 2, 2))
    for results in (two, again):
        for expected, found in zip(one, results, strict=True):
            np.testing.assert_array_equal(expected.masks, found.masks)
            np.testing.assert_array_equal(expected.scores, found.scores)
    (alone,) = FigureGround(15, n_jobs=2).transform(pictures[:1])
    np.testing.assert_array_equal(alone.members, one[0].members)


def test_a_ranking_is_learned_from_masks(tmp_path):
    pictures, masks = zip(*(disc_picture(seed=seed) for seed in range(4)), strict=True)
    proposer = FigureGround(10).fit(pictures, masks)
    assert proposer.ranking_ is not DEFAULT_RANKING
    (found,) = proposer.transform([disc_picture(seed=9)[0]])
    assert (found.overlaps(disc_picture(seed=9)[1]).max(axis=0) > 0.85).all()
    again = clone(proposer).fit(pictures, masks)
    np.testing.assert_array_equal(again.ranking_.weights, proposer.ranking_.weights)
    assert FigureGround().fit(pictures).ranking_ is DEFAULT_RANKING


def test_large_pictures_get_masks_of_their_own_size():
    picture, masks = disc_picture(180, 240)
    (found,) = FigureGround(20, max_side=120).transform([picture])
    assert found.masks.shape[1:] == (180, 240)
    assert (found.overlaps(masks).max(axis=0) > 0.8).all()


def test_boxes_are_those_of_the_masks():
    picture, _ = disc_picture()
    (found,) = FigureGround(8).transform([picture])
    for mask, box in zip(found.masks, found.boxes, strict=True):
        rows, cols = np.nonzero(mask)
        assert box.tolist() == [cols.min(), rows.min(), cols.max() + 1, rows.max() + 1]
    assert len(found[:3]) == 3
    np.testing.assert_array_equal(found[[2, 0]].masks, found.masks[[2, 0]])


def test_overlaps_leave_void_out():
    picture, masks = disc_picture()
    (found,) = FigureGround(8).transform([picture])
    void = np.zeros(picture.shape[:2], bool)
    void[:, 30:50] = True
    expected = [[slow_overlap(one & ~void, other & ~void) for other in masks] for one in found.masks]
    np.testing.assert_allclose(found.overlaps(masks, void), expected)
    assert found.overlaps([]).shape == (len(found), 0)


def test_objects_of_the_sample_set_are_found(tmp_path):
    folder = make_sample_set(tmp_path / "sample", n_train=2, n_val=2, n_test=2)
    data = VOC(folder, split="train", image_set="Segmentation")
    for example, found in zip(data, FigureGround(100).transform(data), strict=True):
        objects = read_object_masks(example, data.classes)
        assert found.overlaps(objects.masks, objects.void).max(axis=0).mean() > 0.4


@pytest.mark.parametrize("size", [(1, 1), (5, 5), (1, 40), (3, 200)])
@pytest.mark.parametrize("grey", [True, False])
def test_tiny_and_plain_pictures_have_segments_too(size, grey):
    picture = np.full(size if grey else (*size, 3), 100, np.uint8)
    (found,) = FigureGround(10).transform([picture])
    assert 1 <= len(found) <= 10
    assert found.masks.shape == (len(found), *size)
    assert found.masks.any(axis=(1, 2)).all()
    assert np.isfinite(found.scores).all()


def test_a_large_plain_picture_and_a_grey_one():
    plain, noise = np.zeros((80, 100, 3), np.uint8), np.random.default_rng(0).random((60, 70)) * 255
    for found in FigureGround(10).transform([plain, noise]):
        assert len(found)
        assert np.isfinite(found.scores).all()


class TestBadInput:
    def test_masks_of_another_size(self):
        picture, masks = disc_picture()
        with pytest.raises(DataError, match=r"picture number 0: masks must have the shape \(n, 90, 120\)"):
            FigureGround().fit([picture], [masks[:, :50]])
        (found,) = FigureGround(5).transform([picture])
        with pytest.raises(
            DataError, match=r"because the picture has 90 rows and 120 columns, not \(90, 120\)"
        ):
            found.overlaps(masks[0])
        with pytest.raises(DataError, match=r"'ignore' has the shape \(9, 9\)"):
            found.overlaps(masks, np.zeros((9, 9)))

    def test_empty_masks(self):
        picture, masks = disc_picture()
        with pytest.raises(DataError, match="all masks are empty"):
            FigureGround().fit([picture], [np.zeros_like(masks)])
        with pytest.raises(DataError, match="all masks are empty"):
            FigureGround().fit([picture], [[]])
        # Pictures without objects do not disturb those with.
        FigureGround().fit([picture, picture], [masks, []])

    def test_too_few_masks(self):
        picture, masks = disc_picture()
        with pytest.raises(DataError, match="there are 2 pictures and masks of 1"):
            FigureGround().fit([picture, picture], [masks])

    @pytest.mark.parametrize(
        ("parameter", "value"),
        [("n_segments", 0), ("n_superpixels", 1.5), ("min_area", 2), ("max_overlap", -1), ("n_jobs", 0)],
    )
    def test_parameters(self, parameter, value):
        with pytest.raises(UsageError, match=f"The '{parameter}' parameter of FigureGround must be"):
            FigureGround(**{parameter: value}).transform([disc_picture()[0]])

    def test_what_is_no_picture(self):
        with pytest.raises(DataError, match="put it into a list"):
            FigureGround().transform(disc_picture()[0])
        with pytest.raises(DataError, match="there is no such file"):
            FigureGround().transform(["no-such-picture.jpg"])
