"""Training on data that are not as they should be: boxes reach outside, pictures disappear midway."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.detection import test_training
from tests.detection.test_training import Notebook, assert_same
from visionkl.core.boxes import clip
from visionkl.core.errors import DataError
from visionkl.datasets.base import Dataset, Example
from visionkl.datasets.sample import make_sample_set
from visionkl.datasets.voc import VOC
from visionkl.detection.objects import collect
from visionkl.detection.training import train, train_on

QUICK = replace(
    test_training.QUICK, interval=3, training_interval=2, n_codewords=32, part_rounds=1, mining_rounds=1
)
PLAIN = replace(QUICK, n_parts=0, n_blocks=0)


@pytest.fixture(scope="module")
def devkit(tmp_path_factory):
    return make_sample_set(tmp_path_factory.mktemp("bad") / "sample", n_train=14, n_test=2, n_jobs=1)


@pytest.fixture(scope="module")
def pictures(devkit):
    return VOC(devkit, split="train")


# -- boxes that reach outside --------------------------------------------------------------------------------


def relabelled(pictures, change):
    """The same pictures with other objects; `change` is told the objects and the picture's size."""

    def example(old):
        return Example(old.id, old.path, lambda: change(old.annotation, old.size()))

    return Dataset(pictures.name, pictures.classes, list(map(example, pictures)))


def reaching_outside(objects, size, far=30.0):
    """Let boxes that lie within 40 pixels of the border reach beyond it."""
    width, height = size
    boxes = objects.boxes.copy()
    boxes[:, :2][boxes[:, :2] < 40] = -far
    boxes[:, 2][boxes[:, 2] > width - 40] = width + far
    boxes[:, 3][boxes[:, 3] > height - 40] = height + far
    return replace(objects, boxes=boxes)


def cut_off(objects, size):
    reaching = reaching_outside(objects, size)
    boxes = clip(reaching.boxes, *size)
    return replace(objects, boxes=boxes, truncated=objects.truncated | (boxes != reaching.boxes).any(axis=1))


def test_boxes_are_cut_off_at_the_border(pictures):
    outside = relabelled(pictures, reaching_outside)
    assert any((example.annotation.of("digger").boxes < 0).any() for example in outside)
    expected = train(relabelled(pictures, cut_off), "digger", QUICK, n_jobs=1)
    assert_same(train(outside, "digger", QUICK, n_jobs=1), expected)


def test_a_box_may_reach_very_far(pictures):
    far = collect(relabelled(pictures, lambda o, s: reaching_outside(o, s, 1e7)), "digger", QUICK)
    near = collect(relabelled(pictures, cut_off), "digger", QUICK)
    assert far.roots == near.roots
    for one, other in zip(far.pictures, near.pictures, strict=True):
        np.testing.assert_array_equal(one.boxes, other.boxes)
        np.testing.assert_array_equal(one.whole, other.whole)


def test_corners_off_by_one_leave_an_object_whole(pictures):
    def slipped(objects, size):
        return replace(objects, boxes=np.array([[-1, -1, *np.add(size, 1)]] * len(objects)))

    data = collect(relabelled(pictures, slipped), "digger", QUICK)
    assert all(picture.whole.all() for picture in data.pictures if len(picture.whole))


class TestAltogetherOutside:
    @pytest.fixture
    def one_outside(self, pictures):
        first = next(example for example in pictures if len(example.annotation.of("digger")))

        def moved(objects, size):
            return replace(objects, boxes=objects.boxes + (1000 if objects is first.annotation else 0))

        return first, relabelled(pictures, moved)

    def test_it_is_named(self, one_outside):
        first, dataset = one_outside
        sentence = f"{first.path}: the box of digger number 1 lies outside of the picture"
        with pytest.raises(DataError, match=re.escape(sentence)):
            collect(dataset, "digger", QUICK)

    def test_its_picture_can_be_left_out(self, one_outside):
        first, dataset = one_outside
        dataset.on_bad_data = "skip"
        left_out = []
        data = collect(dataset, "digger", QUICK, on_skip=lambda example, error: left_out.append(example.id))
        assert left_out == [first.id]
        assert len(data.pictures) == len(dataset) - 1


# -- pictures that disappear ---------------------------------------------------------------------------------


class Remover(Notebook):
    """Takes the pictures away after so many steps, or when a stage begins."""

    def __init__(self, folder, after=None, stage=None):
        super().__init__()
        self.folder, self.after, self.named = folder, after, stage
        self.away = folder.with_name("away")

    def checkpoint(self, state):
        super().checkpoint(state)
        if len(self.states) == self.after:
            self.folder.rename(self.away)

    def stage(self, name, total=None):
        if name == self.named:
            self.folder.rename(self.away)
        return super().stage(name, total)

    def bring_back(self):
        self.away.rename(self.folder)


def without_pictures(pictures, settings, n_jobs, **when):
    """Train until pictures are missed; the observer knows what was learned before."""
    data = collect(pictures, "digger", settings)
    observer = Remover(pictures[0].path.parent, **when)
    try:
        with pytest.raises(DataError, match=r"JPEGImages/\w+\.jpg: there is no such file"):
            train_on(data, settings, n_jobs=n_jobs, observer=observer)
    finally:
        observer.bring_back()
    return data, observer


def test_training_on_plain_cells_goes_on_when_pictures_are_back(pictures):
    data, observer = without_pictures(pictures, PLAIN, 2, after=1)
    (state,) = observer.states
    resumed = train_on(data, PLAIN, n_jobs=1, state=state)
    whole = train_on(data, PLAIN, n_jobs=1)
    np.testing.assert_array_equal(resumed.components[0].root, whole.components[0].root)


@pytest.mark.parametrize("stage", ["learning codewords", "coding pictures", "warping objects"])
def test_pictures_that_disappear_before_the_first_step(pictures, stage):
    _, observer = without_pictures(pictures, QUICK, 1, stage=stage)
    assert observer.states == []


def test_codes_need_no_pictures_once_they_are_made(pictures):
    data = collect(pictures, "digger", QUICK)
    observer = Remover(pictures[0].path.parent, after=1)
    try:
        model = train_on(data, QUICK, n_jobs=1, observer=observer)
    finally:
        observer.bring_back()
    assert_same(model, train_on(data, QUICK, n_jobs=1))
