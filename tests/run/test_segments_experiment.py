"""The experiment `bench segments`, on generated pictures and on some of VOC."""

import json

import numpy as np
import pytest

from visionkl.core.errors import DataError
from visionkl.datasets.sample import make_sample_set
from visionkl.datasets.voc import VOC
from visionkl.run import experiments
from visionkl.run.console import Console
from visionkl.run.experiments import segment_classes, segment_proposals, segment_samples, segment_tables
from visionkl.run.experiments.findings import Findings
from visionkl.run.experiments.scaling import Score


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return make_sample_set(tmp_path_factory.mktemp("segments") / "sample", n_train=3, n_val=2, n_test=1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("segments") / "cache"


@pytest.fixture(scope="module")
def proposals(sample, cache):
    """Segments of the training and of the test pictures."""
    splits = [VOC(sample, split=name, image_set="Segmentation") for name in ("train", "val")]
    console = Console(quiet=True)
    return [segment_proposals.propose(one, 30, None, cache, console) for one in splits]


def bench(*arguments):
    return experiments.main(["segments", *map(str, arguments)])


# -- the pool ------------------------------------------------------------------------------------------------


def test_the_page_tells_overlap_classes_and_time(sample, cache, tmp_path, capsys):
    out = tmp_path / "page"
    places = ["--data", sample, "--cache", cache, "--out", out]
    assert bench("--part", "pool", *places, "--split", "train", "--quick", "--n-segments", 30) == 0
    page = (out / "results.md").read_text(encoding="utf-8")
    assert "| 25 |" in page
    assert "| 154, published (CPMC) |  |  | 0.78 |  |" in page
    assert "![The best of a pool against its size](pool.png)" in page
    assert (out / "best.png").is_file()
    overlap, classes, seconds = json.loads((out / "results.json").read_text(encoding="utf-8"))["tables"]
    sizes = [row[0] for row in overlap["rows"][:-1]]
    assert sizes == [10, 25]
    assert overlap["rows"][0][1] <= overlap["rows"][1][1] <= 1
    assert {row[0] for row in classes["rows"]} <= {"digger", "robot", "tricycle"}
    assert seconds["rows"][0][0] > 0
    assert "Best overlap in a pool" in capsys.readouterr().out


def test_segments_are_drawn_only_if_wanted(sample, cache, tmp_path):
    places = ["--data", sample, "--cache", cache, "--out", tmp_path / "page"]
    arguments = ["--part", "pool", "--split", "train", "--quick", "--n-segments", 30, "--drawings", 0]
    assert bench(*places, *arguments) == 0
    assert not (tmp_path / "page" / "best.png").exists()


def test_without_data_it_says_what_is_needed(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("VISIONKL_TEST_DATA", raising=False)
    assert bench("--out", tmp_path / "page") == 2
    assert "--data is needed" in capsys.readouterr().err


def test_segments_are_kept_with_the_time_they_took(sample, cache, proposals):
    split = VOC(sample, split="train", image_set="Segmentation")
    again = segment_proposals.propose(split, 30, None, cache, Console(quiet=True))
    for old, new in zip(proposals[0], again, strict=True):
        np.testing.assert_array_equal(old.segments.masks, new.segments.masks)
        np.testing.assert_array_equal(old.overlaps, new.overlaps)
        assert old.seconds == new.seconds  # no picture takes the same time twice


# -- samples -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def samples(proposals, cache):
    return segment_samples.make_samples(
        *proposals,
        min_overlap=0.3,
        max_proposals=5,
        n_words=10,
        cache=cache,
        seed=0,
        console=Console(quiet=True),
    )


def test_samples_are_masks_and_proposals_with_the_class_they_overlap(proposals, samples):
    train, test = proposals
    n_drawn = sum(len(made.objects) for made in train)
    assert samples.drawn[samples.train].sum() == n_drawn
    assert samples.drawn[samples.masks].all()
    assert not samples.drawn[samples.proposals].any()
    assert set(samples.pictures[samples.train]) <= set(range(len(train)))
    assert set(samples.pictures[samples.masks]) <= set(range(len(train), len(train) + len(test)))
    # By hand: the proposals of each training picture that overlap an object, the five best of them.
    for number, made in enumerate(train):
        best = made.overlaps.max(axis=1)
        rows = sorted(np.flatnonzero(best >= 0.3), key=lambda row: -best[row])[:5]
        expected = sorted(made.objects.labels[int(made.overlaps[row].argmax())] for row in rows)
        own = (samples.pictures[samples.train] == number) & ~samples.drawn[samples.train]
        assert sorted(samples.labels[samples.train][own]) == expected


def test_blocks_are_those_of_the_masks(proposals, samples, cache):
    assert samples.names[0] == "color_words_fg"
    assert {len(block) for block in samples.blocks} == {len(samples.labels)}
    # The masks of the first test picture alone, by the same channels.
    from visionkl.features.channels import Channels

    train, test = proposals
    channels = Channels(n_words=10, cache=cache).fit([made.example for made in train])
    first = channels.transform([test[0].example], [test[0].objects.masks])
    own = (samples.pictures == len(train)) & samples.drawn
    assert own.sum() == len(test[0].objects)
    for expected, block in zip(first, samples.blocks, strict=True):
        np.testing.assert_array_equal(block[own], expected)


def test_one_class_cannot_be_told_apart():
    labels, yes = np.array(["robot", "robot"]), np.array([True, True])
    with pytest.raises(DataError, match=r"two classes or more .* there is robot"):
        segment_samples._ordered(labels, yes, yes, 0)


def test_classes_that_were_not_learned_are_not_tested():
    labels = np.array(["bus", "car", "bus", "cat", "car"])
    learned = np.array([True, True, False, False, False])
    drawn = np.array([True, True, True, True, False])
    order, n_train, n_masks = segment_samples._ordered(labels, learned, drawn, 0)
    assert (sorted(order[:2]), order[2:].tolist(), n_train, n_masks) == ([0, 1], [2, 4], 2, 1)


# -- classes -------------------------------------------------------------------------------------------------


def test_classes_of_segments(sample, cache, tmp_path, capsys):
    out = tmp_path / "page"
    places = ["--data", sample, "--cache", cache, "--out", out]
    arguments = ["--part", "classes", "--quick", "--n-segments", 30, "--json"]
    assert bench(*places, *arguments) == 0
    tables = {table["title"]: table for table in json.loads(capsys.readouterr().out)["tables"]}
    final = {row[0]: row for row in tables["Classes of segments, %"]["rows"]}
    expected = ["RFF-MKL", "equal weights (RFF)", "best channel alone (RFF)", "GMKL, exact", "RFF-SKL"]
    assert list(final)[:-1] == [*expected, "KRR-GD, exact", "RFF-MKL-JOINT"]
    assert list(final)[-1].startswith("always ")
    assert all(0 <= row[3] <= 100 for row in final.values())
    ladder = next(table for title, table in tables.items() if title.startswith("Masks of objects"))
    assert ladder["rows"][0][0] == 10
    counts = tables["Segments of each class"]["rows"]
    assert counts[-1][1:] == [sum(row[k] for row in counts[:-1]) for k in range(1, 5)]
    assert ladder["rows"][-1][0] == counts[-1][2]
    for name in ("RFF-MKL", "GMKL, exact"):
        for row in tables[f"Weights of the kernels by class, {name}"]["rows"]:
            assert sum(row[2:]) == pytest.approx(1)
    page = (out / "results.md").read_text(encoding="utf-8")
    for picture in ("classes-accuracy", "classes-time", "weights-RFF-MKL", "weights-GMKL", "published-GMKL"):
        assert f"({picture}.png)" in page
        assert (out / f"{picture}.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--split", "train"], "learned from 'train', so they cannot be tested on it"),
        (["--min-overlap", "2"], "min_overlap"),
        (["--max-proposals", "0"], "max_proposals"),
        (["--sizes", "5"], "--sizes"),
        (["--part", "pools"], "--part"),
    ],
)
def test_it_says_what_is_wrong(sample, tmp_path, capsys, arguments, complaint):
    assert bench("--data", sample, "--out", tmp_path / "page", *arguments) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "page").exists()


def test_pictures_are_dealt_out_whole():
    pictures = np.repeat(np.arange(9), 4)[np.random.default_rng(0).permutation(36)]
    thirds = segment_classes.thirds_of_pictures(pictures, 0)
    of_third = [set(pictures[thirds == third]) for third in range(3)]
    assert [len(numbers) for numbers in of_third] == [3, 3, 3]
    assert set.union(*of_third) == set(range(9))


def test_a_single_kernel_is_judged_by_held_out_pictures_and_learns_from_all():
    class Recorder:
        def fit(self, X, y, validation):
            self.seen = X.shape, y.tolist(), validation[0][:, 0].tolist(), validation[1].tolist()

    held = np.array([False, True, False, True])
    channels = [np.arange(4.0)[:, None], np.ones((4, 2))]
    wrapped = segment_classes.ByPicture(Recorder(), held)
    wrapped.fit([block[:3] for block in channels], np.array(["a", "b", "c"]))
    assert wrapped.model.seen == ((2, 3), ["a", "c"], [1.0], ["b"])


def test_accuracy_counts_segments_or_classes_alike():
    labels = np.array(["bus", "bus", "bus", "cat"])
    assert segment_tables._accuracies(labels, np.full(4, "bus")) == [75, 50]
    assert segment_tables._accuracies(labels[:0], labels[:0]) == [None, None]


def test_weights_stand_beside_the_published_ones(samples):
    """The published weights have the order of our channels: PHOGs hold less than SIFT's words."""
    words = [k for k, name in enumerate(samples.names) if "words" in name]
    kinds = np.unique(samples.labels[samples.train])
    weights = np.ones((len(kinds), len(samples.names)))
    weights[0] = 0  # a class for which no kernel helps
    findings = Findings("", "")
    score = Score(samples.n_train, 1.0, 0.5, weights)
    segment_tables._add_weights(findings, samples, "RFF-MKL", [score])
    by_class, published = findings.tables
    assert by_class.rows[0][2:] == [0.0] * 8
    assert by_class.rows[1][2:] == [0.125] * 8
    paper = published.rows[0]
    assert paper[0] == "paper: RFF-MKL, aeroplane"
    assert sum(paper[1 + k] for k in words) == pytest.approx((1.7903 + 1.0495 + 1.1287 + 0.8505) / 6.4347)
    assert "SIFT words have 75% and PHOGs 16% of the weight" in published.note


@pytest.mark.realdata
def test_classes_of_some_voc_pictures(realdata, tmp_path, capsys):
    places = [
        "--data",
        realdata / "voc2012_subset",
        "--cache",
        tmp_path / "cache",
        "--out",
        tmp_path / "page",
    ]
    assert bench(*places, "--part", "classes", "--quick", "--json") == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert all(row[3] is not None for row in tables[0]["rows"])
