"""Filters on codes against the dense ones on decoded cells."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visionkl.coding.codebooks import Codebooks
from visionkl.core.errors import DataError, UsageError
from visionkl.detection.filters import DenseFilters, TableFilters


def random_case(seed, shape, sizes, n_blocks=1, n_codewords=20):
    """Codebooks, a level of codes and filters of these sizes."""
    random = np.random.default_rng(seed)
    books = Codebooks(random.uniform(0, 0.4, (n_blocks, n_codewords, 32 // n_blocks)))
    level = random.integers(n_codewords, size=(*shape, n_blocks)).astype(books.code_dtype)
    filters = [random.normal(0, 0.1, (*size, 32)).astype(np.float32) for size in sizes]
    return books, level, filters


def check_against_dense(books, level, filters, dtype):
    bank = TableFilters(filters, books, dtype=dtype)
    dense = DenseFilters(filters)
    assert bank.groups == dense.groups
    decoded = books.decode(level)
    for group in range(len(bank.groups)):
        expected = dense.responses(decoded, group)
        responses = bank.responses(level, group)
        assert responses.shape == expected.shape
        assert responses.dtype == np.float32
        assert responses.flags.c_contiguous
        if dtype == "float32":
            assert not bank.error_bounds[group].any()
        error = np.abs(responses - expected)
        assert (error <= bank.error_bounds[group] + 1e-4).all()


@given(
    st.tuples(st.integers(1, 14), st.integers(1, 17)),
    st.lists(st.tuples(st.integers(1, 7), st.integers(1, 12)), min_size=1, max_size=6),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 3, 256, 300]),
    st.sampled_from(["float32", "int16"]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_responses_are_those_of_dense_filters_on_decoded_cells(
    shape, sizes, n_blocks, n_codewords, dtype, seed
):
    check_against_dense(*random_case(seed, shape, sizes, n_blocks, n_codewords), dtype)


@pytest.mark.parametrize("dtype", ["float32", "int16"])
@pytest.mark.parametrize("n", [1, 2, 4, 5, 8, 9, 16, 17, 33, 48, 49, 100])
def test_any_number_of_filters(n, dtype):
    check_against_dense(*random_case(n, (8, 13), [(3, 4)] * n), dtype)


@pytest.mark.parametrize("dtype", ["float32", "int16"])
@pytest.mark.parametrize("size", [(6, 6), (11, 6), (6, 11), (5, 13), (15, 15)])
def test_filters_of_the_sizes_of_models(size, dtype):
    check_against_dense(*random_case(0, (16, 29), [size] * 3, n_blocks=4, n_codewords=256), dtype)


def test_the_bound_of_16_bits_is_tight_and_sums_do_not_overflow():
    # Codes that all choose the largest, or all the smallest score: the ends of what 16 bits must hold.
    books, level, filters = random_case(0, (6, 6), [(6, 6)] * 5, n_codewords=2)
    bank = TableFilters(filters, books, dtype="int16")
    scores = np.einsum("nyxc,wc->nyxw", np.stack(filters), books.words[0])
    for extreme in (scores.argmax(axis=3), scores.argmin(axis=3)):
        for n in range(5):
            level[..., 0] = extreme[n]
            expected = DenseFilters(filters).responses(books.decode(level), 0)[0, 0, n]
            assert abs(bank.responses(level, 0)[0, 0, n] - expected) <= bank.error_bounds[0][n] + 1e-5
    spread = np.abs(scores).sum(axis=(1, 2)).max()
    assert 0 < bank.error_bounds[0].max() < 1e-3 * spread


def test_filters_of_zeros():
    books, level, filters = random_case(0, (8, 8), [(2, 2)] * 3)
    check_against_dense(books, level, [0 * filter_ for filter_ in filters], "int16")


def test_a_view_into_a_larger_level_is_taken():
    books, level, filters = random_case(0, (12, 14), [(3, 3)] * 20)
    bank = TableFilters(filters, books)
    inner = level[2:-2, 3:-3]
    np.testing.assert_array_equal(bank.responses(inner, 0), bank.responses(inner.copy(), 0))


@pytest.mark.parametrize("n_blocks", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_filters_of_different_sizes_together(dtype, n_blocks):
    sizes = [(4, 5), (5, 4), (4, 5), (6, 5)]
    books, level, filters = random_case(0, (9, 11), sizes, n_blocks)
    bank = TableFilters(filters, books, dtype=dtype, together=True)
    assert bank.groups == [(0, 1, 2, 3)]
    responses = bank.responses(level, 0)
    assert responses.shape == (6, 8, 4)  # places of 4 x 4 cells
    decoded = books.decode(level)
    for i, filter_ in enumerate(filters):
        expected = DenseFilters([filter_]).responses(decoded, 0)[..., 0]
        rows, cols = expected.shape
        error = np.abs(responses[:rows, :cols, i] - expected)
        assert error.max() <= bank.error_bounds[0][i] + 1e-4


def test_sizes_that_have_little_in_common_stay_apart():
    books, _, filters = random_case(0, (9, 11), [(1, 9), (9, 1)])
    assert TableFilters(filters, books, together=True).groups == [(0,), (1,)]
    assert TableFilters(filters[:1], books, together=True).groups == [(0,)]


@pytest.mark.cpu_loops
def test_memory_is_used_again_if_that_is_wanted():
    books, level, filters = random_case(0, (9, 11), [(3, 3)] * 5 + [(2, 2)])
    bank, fresh = (TableFilters(filters, books, memory=memory) for memory in ("test", None))
    first, other = bank.responses(level, 0), bank.responses(level, 1)
    np.testing.assert_array_equal(first, fresh.responses(level, 0))
    np.testing.assert_array_equal(other, fresh.responses(level, 1))
    assert np.shares_memory(first, bank.responses(level[::-1], 0))
    assert not np.shares_memory(fresh.responses(level, 0), fresh.responses(level, 0))


@pytest.mark.parametrize("scale", [1e-30, 1e-38, 1e-44])
def test_filters_that_are_next_to_nothing(scale):
    books, level, filters = random_case(0, (8, 8), [(2, 2)] * 3)
    tiny = [filter_ * np.float32(scale) for filter_ in filters]
    responses = TableFilters(tiny, books, dtype="int16").responses(level, 0)
    np.testing.assert_allclose(responses, 0, atol=100 * scale)


def test_bad_input_is_named():
    books, _, filters = random_case(0, (8, 8), [(3, 3)])
    with pytest.raises(
        UsageError, match="'dtype' parameter of TableFilters must be one of 'float32', 'int16'"
    ):
        TableFilters(filters, books, dtype="float16")
    with pytest.raises(DataError, match="the filters have 31 channels, but the codewords 32"):
        TableFilters([filters[0][..., :31]], books)
    bank = TableFilters(filters, books)
    with pytest.raises(DataError, match=r"0\.\.19; these span"):
        bank.responses(np.full((8, 8, 1), 20, np.uint8), 0)
    with pytest.raises(DataError, match="have 1 blocks"):
        bank.responses(np.zeros((8, 8, 2), np.uint8), 0)
    with pytest.raises(DataError, match=r"\(rows, cols, n_blocks\)"):
        bank.responses(np.zeros((8, 1), np.uint8), 0)
