"""Pyramids of codes: every cell its own code, the frame exact, views as views."""

import numpy as np
import pytest

from visionkl.coding.codebooks import Codebooks
from visionkl.coding.hog_codes import (
    coded_pyramids,
    encode_pyramid,
    fit_cells,
    frame_cell,
    learn_cell_codebooks,
)
from visionkl.coding.pq import ProductQuantizer
from visionkl.core.errors import DataError, UsageError
from visionkl.features.pyramid import feature_pyramid

PICTURE = np.kron(np.random.default_rng(0).uniform(0, 255, (16, 20, 3)), np.ones((6, 6, 1)))


@pytest.fixture(scope="module")
def pyramid():
    return feature_pyramid(PICTURE, interval=3, padding=(4, 5))


@pytest.fixture(scope="module")
def cells(pyramid):
    return np.concatenate([level[5:-5, 6:-6].reshape(-1, 32) for level in pyramid.levels])


@pytest.mark.parametrize(("n_blocks", "n_codewords"), [(1, 64), (2, 32), (4, 300)])
def test_every_cell_has_the_code_of_its_nearest_codeword(pyramid, cells, n_blocks, n_codewords):
    quantizer = fit_cells(ProductQuantizer(n_codewords, n_blocks=n_blocks), cells)
    coded = encode_pyramid(pyramid, quantizer)
    assert len(coded) == len(pyramid)
    assert coded.padding == pyramid.padding
    for codes, level in zip(coded.levels, pyramid.levels, strict=True):
        assert codes.shape == (*level.shape[:2], n_blocks)
        assert codes.dtype == (np.uint8 if n_codewords <= 256 else np.uint16)
        np.testing.assert_array_equal(codes, quantizer.books_.encode(level))


@pytest.mark.parametrize("n_blocks", [1, 2, 4])
def test_codewords_are_the_same_without_an_estimator(cells, n_blocks):
    expected = fit_cells(ProductQuantizer(16, n_blocks=n_blocks, random_state=3), cells).books_
    books = learn_cell_codebooks(cells, 16, n_blocks, seed=3)
    np.testing.assert_array_equal(books.words, expected.words)
    np.testing.assert_array_equal(books.order, expected.order)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_smaller_frames_are_views(pyramid, cells, n_jobs):
    quantizer = fit_cells(ProductQuantizer(16, n_blocks=2), cells)
    coded = encode_pyramid(pyramid, quantizer, n_jobs).framed((2, 1))
    first_framed = encode_pyramid(pyramid.framed((2, 1)), quantizer.books_, n_jobs)
    for a, b in zip(coded.levels, first_framed.levels, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not a.flags.owndata


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_cells_that_are_coded_at_once_have_the_same_codes(pyramid, cells, n_jobs):
    quantizers = [fit_cells(ProductQuantizer(n, n_blocks=2), cells) for n in (16, 300)]
    pyramids = coded_pyramids(PICTURE, quantizers, interval=3, padding=(4, 5), n_jobs=n_jobs)
    for quantizer, coded in zip(quantizers, pyramids, strict=True):
        expected = encode_pyramid(pyramid, quantizer)
        assert coded.padding == expected.padding
        np.testing.assert_array_equal(coded.scales, expected.scales)
        for a, b in zip(coded.levels, expected.levels, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("shape", [(1, 1), (10, 300), (20, 20)])
def test_so_have_those_of_small_pictures(shape):
    books = Codebooks([np.vstack([np.zeros(32), np.full(32, 0.1), frame_cell()])])
    picture = np.random.default_rng(0).integers(0, 256, shape)
    expected = encode_pyramid(feature_pyramid(picture, padding=(2, 3)), books)
    for a, b in zip(coded_pyramids(picture, [books], padding=(2, 3))[0].levels, expected.levels, strict=True):
        np.testing.assert_array_equal(a, b)


def test_levels_without_cells_are_all_frame():
    pyramid = feature_pyramid(np.zeros((16, 400)), interval=1, padding=(1, 1))
    books = Codebooks([np.vstack([np.zeros(32), frame_cell()])])
    coded = encode_pyramid(pyramid, books)
    assert any(level.shape[0] <= 4 for level in coded.levels)
    for codes, level in zip(coded.levels, pyramid.levels, strict=True):
        np.testing.assert_array_equal(codes, books.encode(level))


@pytest.mark.parametrize("n_blocks", [1, 4, 5])
def test_the_frame_is_coded_exactly(cells, n_blocks):
    settings = ProductQuantizer(20, n_blocks=n_blocks, random_state=7)
    quantizer = fit_cells(settings, cells)
    assert quantizer.codebooks_.shape[1] == 20
    assert quantizer.get_params() == settings.get_params()
    assert not hasattr(settings, "codebooks_")
    np.testing.assert_array_equal(
        quantizer.inverse_transform(quantizer.transform(frame_cell()[None])), frame_cell()[None]
    )


def test_codewords_of_other_things_are_refused(pyramid):
    with pytest.raises(DataError, match="HOG cells have 32 numbers, but these codewords are for 8"):
        encode_pyramid(pyramid, Codebooks(np.zeros((1, 2, 8))))
    with pytest.raises(DataError, match="coded_pyramids: HOG cells have 32 numbers"):
        coded_pyramids(PICTURE, [Codebooks(np.zeros((1, 2, 8)))])
    with pytest.raises(UsageError, match="call fit first"):
        encode_pyramid(pyramid, ProductQuantizer())
    with pytest.raises(DataError, match="at least 2"):
        fit_cells(ProductQuantizer(1), np.zeros((5, 32)))
    with pytest.raises(DataError, match="have the shape"):
        fit_cells(ProductQuantizer(4), np.random.default_rng(0).normal(size=(50, 31)))


def test_without_the_octave_for_parts_the_others_have_the_same_codes(cells):
    books = fit_cells(ProductQuantizer(16, n_blocks=2), cells).books_
    settings = {"interval": 3, "padding": (4, 5)}
    (coded,) = coded_pyramids(PICTURE, [books], part_octave=False, **settings)
    expected = encode_pyramid(feature_pyramid(PICTURE, part_octave=False, **settings), books)
    assert coded.levels[0].shape == (10, 12, 2)
    for mine, theirs in zip(coded.levels, expected.levels, strict=True):
        np.testing.assert_array_equal(mine, theirs)
