"""What counts as pictures, and a cache that never gives a wrong vector."""

import os

import numpy as np
import pytest
from PIL import Image

from tests.features.local_patches import Patches, random_descriptors, random_pictures
from visionkl.core.errors import DataError, UsageError
from visionkl.datasets.folder import ImageFolder
from visionkl.features.fisher import FisherVector
from visionkl.features.pictures import PictureCache, as_pictures, digest
from visionkl.features.words import BagOfWords


def small_fisher(**options):
    return FisherVector(**{"n_components": 3, "n_pca": 4, "descriptors": Patches(), **options})


@pytest.fixture
def folder(tmp_path):
    """Five pictures in files, without loss."""
    place = tmp_path / "pictures"
    place.mkdir()
    for number, picture in enumerate(random_pictures(5)):
        Image.fromarray(picture).save(place / f"{number}.png")
    return place


def paths_in(folder):
    return sorted(folder.glob("*.png"))


# -- pictures in ---------------------------------------------------------------------------------------------


def test_arrays_paths_data_sets_and_descriptors_are_the_same_to_it(folder):
    arrays = random_pictures(5)
    expected = small_fisher().fit_transform(arrays)
    descriptors = [Patches().extract(picture) for picture in arrays]
    paths = paths_in(folder)
    texts, data = list(map(str, paths)), ImageFolder(folder)
    mixed = [arrays[0], paths[1], descriptors[2], texts[3], data[4]]
    for X in (np.stack(arrays), paths, texts, np.array(texts), descriptors, data, mixed):
        np.testing.assert_array_equal(small_fisher().fit_transform(X), expected)


def test_grey_pictures_stay_grey():
    seen = []

    class Watching(Patches):
        def extract(self, image):
            seen.append(image.shape)
            return super().extract(image)

    grey = [picture[:, :, 0] for picture in random_pictures(3)]
    small_fisher(descriptors=Watching()).fit([grey[0], grey[1][:, :, None], random_pictures(1)[0]])
    assert sorted(seen) == [(30, 40), (30, 40), (30, 40, 3)]


@pytest.mark.parametrize(
    "single", [np.zeros((30, 40)), np.zeros((30, 40, 3)), "picture.jpg", random_descriptors()]
)
def test_one_picture_is_no_list(single):
    with pytest.raises(DataError, match="not one picture; put it into a list"):
        small_fisher().fit(single)


@pytest.mark.parametrize(
    ("X", "complaint"),
    [
        ([], "there are no pictures"),
        (7, "not int"),
        ([np.zeros((9, 9)), None], "item number 1 is of type NoneType"),
        ([np.zeros((9, 9)), np.full((9, 9), np.nan)], "picture number 1: the picture holds NaN"),
        ([np.zeros((9, 9, 4))], "picture number 0: a picture must have the shape"),
        (["no-such-file.jpg"], "no-such-file.jpg: there is no such file"),
    ],
)
def test_what_is_no_picture_is_named(X, complaint):
    with pytest.raises(DataError, match=complaint):
        small_fisher().fit(X)


def test_a_sample_takes_its_share_of_each_picture():
    pictures = random_pictures(5)
    model = small_fisher(n_samples=203)
    model._settle()
    assert model.descriptors.n_pictures == 0
    sample = model._sample(as_pictures(pictures, "test"), 0)
    assert len(sample) == 2 * 102  # 100 of each or more: two pictures are enough
    assert model.descriptors.n_pictures == 2
    assert sample.positions.min() > 0
    assert sample.positions.max() < 1


# -- the cache -----------------------------------------------------------------------------------------------


def test_the_second_time_nothing_is_computed(folder, tmp_path):
    for X in (paths_in(folder), random_pictures(5), [Patches().extract(p) for p in random_pictures(5)]):
        model = small_fisher(cache=tmp_path / "cache").fit(X)
        first = model.transform(X)
        before = model.descriptors.n_pictures
        np.testing.assert_array_equal(model.transform(X), first)
        assert model.descriptors.n_pictures == before
        np.testing.assert_array_equal(small_fisher().fit_transform(X), first)
    again = small_fisher(cache=tmp_path / "cache", n_jobs=1).fit(paths_in(folder))
    before = again.descriptors.n_pictures
    again.transform(paths_in(folder))
    assert again.descriptors.n_pictures == before


def test_other_settings_share_a_folder_and_nothing_else(folder, tmp_path):
    paths, cache = paths_in(folder), tmp_path / "cache"
    makers = [
        lambda **place: small_fisher(**place),
        lambda **place: small_fisher(power=1, **place),
        lambda **place: small_fisher(norm="intra", **place),
        lambda **place: small_fisher(cells=(1, 2), **place),
        lambda **place: small_fisher(random_state=1, **place),
        lambda **place: small_fisher(descriptors=Patches(scale=2.0), **place),
        lambda **place: BagOfWords(24, descriptors=Patches(), **place),
    ]
    for make in makers:
        expected = make().fit_transform(paths)
        np.testing.assert_array_equal(make(cache=cache).fit_transform(paths), expected)
        np.testing.assert_array_equal(make(cache=cache).fit_transform(paths), expected)
    assert len(list(cache.glob("??/*.npy"))) == len(makers) * len(paths)


def test_other_training_data_give_other_vectors(folder, tmp_path):
    paths, cache = paths_in(folder), tmp_path / "cache"
    small_fisher(cache=cache).fit(paths).transform(paths[:1])
    other = small_fisher(cache=cache).fit(paths[:2]).transform(paths[:1])
    np.testing.assert_array_equal(other, small_fisher().fit(paths[:2]).transform(paths[:1]))


def test_a_changed_picture_is_computed_anew(folder, tmp_path):
    paths = paths_in(folder)
    model = small_fisher(cache=tmp_path / "cache").fit(paths)
    before = model.transform(paths)
    Image.fromarray(random_pictures(1, seed=99)[0]).save(paths[2])
    after = model.transform(paths)
    assert not np.array_equal(after[2], before[2])
    np.testing.assert_array_equal(np.delete(after, 2, 0), np.delete(before, 2, 0))
    with pytest.raises(DataError, match=r"gone\.png: the file cannot be read"):
        model.transform([folder / "gone.png"])


def test_damaged_files_are_replaced(folder, tmp_path):
    paths = paths_in(folder)
    model = small_fisher(cache=tmp_path / "cache").fit(paths)
    expected = model.transform(paths)
    files = sorted((tmp_path / "cache").glob("??/*.npy"))
    whole = files[0].read_bytes()
    files[0].write_bytes(whole[: len(whole) // 2])
    files[1].write_bytes(b"")
    files[2].write_bytes(b"no numbers at all")
    np.save(files[3], np.zeros(3, np.float32))
    for _ in range(2):
        np.testing.assert_array_equal(model.transform(paths), expected)
    assert files[0].read_bytes() == whole


def test_the_folder_stays_bounded_and_keeps_what_was_used_last(tmp_path):
    keys = [digest(f"picture {i}") for i in range(12)]
    vector = np.zeros(1000, np.float32)  # 4128 bytes in a file
    other = tmp_path / "ab" / "mine.npy"
    other.parent.mkdir()
    np.save(other, vector)
    cache = PictureCache(tmp_path, max_bytes=6 * 4128)
    for number, key in enumerate(keys):
        cache.put(key, vector)
        for path in tmp_path.glob("??/*.npy"):  # file systems count time coarsely
            if path != other and path.stat().st_mtime > 1e9:
                os.utime(path, (number, number))
        assert sum(1 for p in tmp_path.glob("??/*.npy")) - 1 <= 6
    assert cache.get(keys[-1], (1000,)) is not None
    assert cache.get(keys[-1], (10, 100)) is None
    assert cache.get(keys[0], (1000,)) is None
    assert other.is_file()


def test_a_cache_needs_to_know_the_settings(folder, tmp_path):
    class Anonymous:
        extract = staticmethod(Patches().extract)

    model = small_fisher(descriptors=Anonymous(), cache=tmp_path).fit(paths_in(folder))
    with pytest.raises(UsageError, match="a Anonymous does not tell its settings"):
        model.transform(paths_in(folder))


def test_a_cache_folder_that_cannot_be_written(folder, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    model = small_fisher(cache=tmp_path / "file").fit(paths_in(folder))
    with pytest.raises(DataError, match="cannot write into this folder"):
        model.transform(paths_in(folder))
