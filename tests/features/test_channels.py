"""Named channels: aligned blocks, of regions, in one pass, and a cache that never gives a wrong block."""

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from tests.features.local_patches import Patches, random_pictures
from visionkl.core.errors import DataError, UsageError
from visionkl.features.channels import PICTURE_CHANNELS, SEGMENT_CHANNELS, Channels
from visionkl.features.fisher import FisherVector
from visionkl.features.lbp import LBP
from visionkl.features.phog import PHOG, phog
from visionkl.features.regions import Region
from visionkl.features.words import BagOfWords
from visionkl.learning.multiple import FourierMKLClassifier

SHAPE = (64, 80)


def patches_words(n_words=12, **options):
    return BagOfWords(n_words, descriptors=Patches(), **options)


def few(**options):
    channels = {
        "words fg": (patches_words(), "foreground"),
        "words bg": (patches_words(), "background"),
        "shape": (PHOG(8), "contour"),
        "texture": (LBP(cells=(1,)), "box"),
        "context": LBP(patterns="uniform rotation"),
    }
    return Channels(channels, **options)


@pytest.fixture(scope="module")
def pictures():
    return random_pictures(4, shape=SHAPE)


@pytest.fixture(scope="module")
def masks():
    random = np.random.default_rng(7)
    found = []
    for n in (2, 0, 3, 1):
        own = np.zeros((n, *SHAPE), bool)
        for mask in own:
            top, left = random.integers(0, 30, 2)
            mask[top : top + 20, left : left + 33] = True
            mask[top + 3, left] = False
        found.append(own)
    return found


def test_blocks_are_what_each_encoder_says_of_each_segment(pictures, masks):
    channels = few().fit(pictures)
    blocks = channels.transform(pictures, masks)
    assert channels.names_ == ["words fg", "words bg", "shape", "texture", "context"]
    assert [block.shape for block in blocks] == [(6, width) for width in channels.widths_]
    assert all(block.dtype == np.float32 for block in blocks)
    words = patches_words().fit(pictures)
    row = 0
    for picture, own in zip(pictures, masks, strict=True):
        for mask in own:
            both = words.encode_mask(Patches().extract(picture), mask)
            np.testing.assert_array_equal(blocks[0][row], both[0])
            np.testing.assert_array_equal(blocks[1][row], both[1])
            expected = phog(picture, n_orientations=8, mask=mask, region="contour")
            np.testing.assert_array_equal(blocks[2][row], expected)
            whole = LBP(patterns="uniform rotation").fit_transform([picture])[0]
            np.testing.assert_array_equal(blocks[4][row], whole)
            row += 1


def test_the_published_eight_are_known_by_name(pictures, masks):
    channels = Channels(n_words=8).fit(pictures)
    blocks = channels.transform(pictures[:1], masks[:1])
    assert tuple(channels.names_) == SEGMENT_CHANNELS
    assert len(SEGMENT_CHANNELS) == 8
    assert channels.widths_ == [8, 8, 8, 8, 420, 420, 420, 1239]
    assert all(np.isfinite(block).all() and block.any() for block in blocks)
    # Words of foreground and background come from one vocabulary, and their PHOGs from one set of edges.
    assert channels.encoders_[0] is channels.encoders_[1]
    assert channels.encoders_[4] is channels.encoders_[5]
    assert len({id(encoder) for encoder in channels.encoders_}) == 5


def test_equal_encoders_learn_and_look_once(pictures, masks):
    looked = []

    class Watching(Patches):
        def extract(self, image):
            looked.append(image.shape)
            return super().extract(image)

    words = BagOfWords(12, descriptors=Watching())
    channels = Channels({"a": (words, "foreground"), "b": (clone(words), "background"), "c": words})
    channels.fit(pictures)
    assert len(looked) == len(pictures)
    channels.transform(pictures, masks)
    assert len(looked) == 2 * len(pictures) - 1  # one picture has no segments


def test_whole_pictures_go_into_kernel_learning_in_a_pipeline():
    pictures = random_pictures(20, shape=SHAPE)
    for picture in pictures[::2]:
        picture[::2] = 255
    labels = ["stripes", "noise"] * 10
    learner = FourierMKLClassifier(n_components=50, share=0.05)
    pipeline = make_pipeline(Channels(["phog_20", "lbp_whole"]), learner).fit(pictures, labels)
    assert pipeline.score(pictures, labels) == 1
    channels = Channels(PICTURE_CHANNELS, n_words=8).fit(pictures[:4])
    blocks = channels.transform(pictures)
    side_by_side = FourierMKLClassifier(channels.widths_, n_components=50).fit(np.hstack(blocks), labels)
    assert side_by_side.kernel_weights_.shape == (3,)


def test_fisher_vectors_of_regions(pictures, masks):
    fisher = FisherVector(3, n_pca=4, descriptors=Patches(), cells=(1, 2))
    block = Channels({"fisher": (fisher, "foreground")}).fit_transform(pictures, masks=masks)[0]
    model = clone(fisher).fit(pictures)
    found = Patches().extract(pictures[0])
    inside = Region.of(masks[0][0], "foreground").select(found)
    assert 0 < len(inside) < len(found)
    np.testing.assert_array_equal(block[0], model.encode(inside))
    whole = Channels({"fisher": fisher}).fit_transform(pictures)[0]
    np.testing.assert_array_equal(whole, model.transform(pictures))


def test_threads_do_not_change_blocks(pictures, masks):
    one, two = (few(n_jobs=n).fit_transform(pictures, masks=masks) for n in (1, 2))
    for first, second in zip(one, two, strict=True):
        np.testing.assert_array_equal(first, second)


# -- the cache -----------------------------------------------------------------------------------------------


@pytest.fixture
def paths(pictures, tmp_path):
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).save(tmp_path / f"{number}.png")
    return sorted(tmp_path.glob("*.png"))


def equal(one, two):
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_the_second_time_nothing_is_computed(paths, masks, tmp_path, monkeypatch):
    channels = few(cache=tmp_path / "cache").fit(paths)
    first = channels.transform(paths, masks)
    assert equal(first, few().fit(paths).transform(paths, masks))
    monkeypatch.setattr(Channels, "_blocks", None)
    assert equal(channels.transform(paths, masks), first)
    assert equal(few(cache=tmp_path / "cache", n_jobs=1).fit(paths).transform(paths, masks), first)


def test_what_was_learned_from_the_same_pictures_is_not_learned_again(paths, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    first = few(cache=cache).fit(paths)
    expected = first.encoders_[0].words_
    monkeypatch.setattr(BagOfWords, "_learn", None)
    np.testing.assert_array_equal(few(cache=cache).fit(paths).encoders_[0].words_, expected)
    monkeypatch.undo()
    fewer = few(cache=cache).fit(paths[:2]).encoders_[0].words_
    np.testing.assert_array_equal(fewer, few().fit(paths[:2]).encoders_[0].words_)
    learned = sorted(cache.glob("??/*.npz"))
    assert len(learned) == 2
    for damaged in learned:
        damaged.write_bytes(damaged.read_bytes()[:300])
    np.testing.assert_array_equal(few(cache=cache).fit(paths).encoders_[0].words_, expected)
    unsettled = Channels({"words": patches_words(random_state=None)}, cache=cache)
    unsettled.fit(paths)
    assert len(list(cache.glob("??/*.npz"))) == 2


def test_only_what_is_new_is_computed(paths, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    Channels(["phog_20"], cache=cache).fit(paths).transform(paths)
    monkeypatch.setattr(PHOG, "prepare", None)
    blocks = Channels(["lbp_whole", "phog_20"], cache=cache).fit(paths).transform(paths)
    monkeypatch.undo()
    assert equal(blocks, Channels(["lbp_whole", "phog_20"]).fit(paths).transform(paths))


def test_blocks_of_other_settings_words_masks_or_pictures_are_not_taken(paths, masks, tmp_path):
    cache = tmp_path / "cache"
    makers = [
        lambda place: Channels({"a": (PHOG(8), "foreground")}, cache=place),
        lambda place: Channels({"a": (PHOG(8), "box")}, cache=place),
        lambda place: Channels({"a": (PHOG(8, signed=True), "foreground")}, cache=place),
        lambda place: Channels({"a": (patches_words(), "foreground")}, cache=place),
        lambda place: Channels({"a": (patches_words(random_state=1), "foreground")}, cache=place),
        lambda place: Channels({"a": (patches_words(cells=(1, 2)), "foreground")}, cache=place),
    ]
    for make in makers:
        expected = make(None).fit(paths).transform(paths, masks)
        for _ in range(2):
            assert equal(make(cache).fit(paths).transform(paths, masks), expected)
    assert len(list(cache.glob("??/*.npy"))) == len(makers) * len(paths)
    fewer = makers[3](cache).fit(paths[:2]).transform(paths, masks)
    assert equal(fewer, makers[3](None).fit(paths[:2]).transform(paths, masks))
    turned = [own[:, ::-1] for own in masks]
    assert equal(
        makers[0](cache).fit(paths).transform(paths, turned),
        makers[0](None).fit(paths).transform(paths, turned),
    )
    Image.fromarray(random_pictures(1, seed=9, shape=SHAPE)[0]).save(paths[0])
    assert equal(makers[0](cache).fit(paths).transform(paths), makers[0](None).fit(paths).transform(paths))


def test_a_function_cannot_be_cached(paths, tmp_path):
    channels = Channels({"pb": (PHOG(edges=lambda image: np.ones(image.shape[:2])), "whole")}, cache=tmp_path)
    with pytest.raises(UsageError, match="<lambda> does not tell its settings"):
        channels.fit(paths).transform(paths)
    assert Channels(channels.channels).fit_transform(paths)[0].any()


# -- bad input -----------------------------------------------------------------------------------------------


def test_grey_pictures_have_no_colour_but_are_described(pictures):
    grey = [picture[:, :, 0] for picture in pictures]
    same = [np.repeat(picture[:, :, None], 3, axis=2) for picture in grey]
    names = ["color_words", "phow", "phog_40", "lbp_whole"]
    first, second = (Channels(names, n_words=6).fit_transform(X) for X in (grey, same))
    for one, other in zip(first, second, strict=True):
        assert one.any()
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_segments_of_one_pixel_and_of_everything(pictures):
    own = np.zeros((2, *SHAPE), bool)
    own[0, 30, 40] = True
    own[1] = True
    blocks = few().fit(pictures).transform(pictures[:1], [own])
    assert all(np.isfinite(block).all() for block in blocks)
    assert not blocks[1][1].any()  # without background
    assert not blocks[2][1].any()  # without contour
    assert blocks[1][0].any()
    assert blocks[3][0].sum() == pytest.approx(1)


def test_bad_masks_are_named(pictures, masks):
    channels = few().fit(pictures)
    empty = [np.zeros((1, *SHAPE), bool), *masks[1:]]
    with pytest.raises(DataError, match="picture number 0: mask number 0 is empty; leave it out"):
        channels.transform(pictures, empty)
    other = [*masks[:3], np.ones((1, 3, 3))]
    with pytest.raises(
        DataError, match=r"picture number 3: the masks have the shape \(1, 3, 3\), but the pic"
    ):
        channels.transform(pictures, other)
    with pytest.raises(DataError, match="picture number 2: the masks have the shape"):
        channels.transform(pictures, [*masks[:2], masks[2][0], masks[3]])
    with pytest.raises(DataError, match="there are 4 pictures, but masks of 2"):
        channels.transform(pictures, masks[:2])
    with pytest.raises(
        DataError, match="'words bg' describes the background of masks, and there are no masks"
    ):
        channels.transform(pictures)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["phog_20", "nonsense"], "different names out of color_words_fg, "),
        (["lbp", "lbp"], "different names out of"),
        ("lbp", "must be a list of names"),
        ([], "at least one channel"),
        ({"a": "lbp"}, "for 'a' an encoder such as BagOfWords"),
        ({"a": LBP}, "for 'a' an encoder such as BagOfWords"),
        ({"a": (LBP(), "middle")}, "for 'a' a region, one of 'foreground'"),
        ({"a": PHOG(0)}, "'n_orientations' parameter of PHOG"),
    ],
)
def test_channels_that_are_none(pictures, given, complaint):
    with pytest.raises(UsageError, match=complaint):
        Channels(given).fit(pictures)


def test_descriptors_are_no_pictures_here(pictures):
    with pytest.raises(DataError, match="picture number 0: descriptors alone do not do here"):
        Channels(["lbp_whole"]).fit(pictures).transform([Patches().extract(pictures[0])])
