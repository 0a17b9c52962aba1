"""The way from codes to boxes: kernels executed on the CPU, against the CPU's own loops."""

import numpy as np
import pytest

from visionkl.backend.cpu import distance as cpu_distance
from visionkl.backend.cpu import filters as cpu_filters
from visionkl.backend.cpu import matching as cpu_matching
from visionkl.backend.cpu import pq as cpu_pq
from visionkl.backend.cpu import suppress as cpu_suppress
from visionkl.backend.cpu import tables as cpu_tables
from visionkl.backend.gpu import distance, filters, matching, pq, suppress, tables


@pytest.mark.parametrize("dtype", ["int16", "float32"])
@pytest.mark.parametrize(
    ("n", "size", "smallest", "n_blocks", "code_dtype"),
    [(3, (2, 3), None, 2, np.uint8), (50, (3, 2), (2, 2), 1, np.uint16), (1, (5, 5), None, 4, np.uint8)],
)
def test_look_up_is_that_of_the_cpu(gpu, dtype, n, size, smallest, n_blocks, code_dtype):
    random = np.random.default_rng(0)
    scores = random.normal(size=(*size, n_blocks, 12, n)).astype(np.float32)
    codes = random.integers(0, 12, (7, 8, n_blocks)).astype(code_dtype)
    made = tables.make_tables(scores, dtype, smallest)
    expected = cpu_tables.make_tables(scores, dtype, smallest)
    responses = gpu.get(tables.look_up(gpu.put(codes), made))
    wanted = cpu_tables.look_up(codes, expected)
    assert responses.shape == wanted.shape
    # Sums of 16-bit scores are exact; only the groups' float32 sums may be fused here and not there.
    np.testing.assert_allclose(responses, wanted, rtol=1e-5, atol=1e-6 if dtype == "int16" else 1e-5)
    assert np.array_equal(made.error_bound, expected.error_bound)


def test_look_up_where_nothing_fits(gpu):
    made = tables.make_tables(np.zeros((3, 3, 1, 4, 2), np.float32), "int16")
    assert tables.look_up(gpu.put(np.zeros((2, 9, 1), np.uint8)), made).shape == (0, 7, 2)


@pytest.mark.parametrize("sizes", [[(3, 2)] * 3, [(2, 4), (3, 3), (1, 2)]])
def test_dense_filters_are_those_of_the_cpu(gpu, sizes):
    random = np.random.default_rng(1)
    weights = [random.normal(size=(*size, 5)).astype(np.float32) for size in sizes]
    level = random.normal(size=(7, 9, 5)).astype(np.float32)
    responses = filters.dense_filters(weights).correlate(gpu.put(level))
    expected = cpu_filters.dense_filters(weights).correlate(level)
    np.testing.assert_allclose(gpu.get(responses), expected, rtol=1e-4, atol=1e-4)


def parts(rows=9, cols=11, n=3, seed=2):
    random = np.random.default_rng(seed)
    scores = random.normal(size=(rows, cols, n)).astype(np.float32)
    scores[2, 3:6] = -np.inf
    costs = random.uniform(0.02, 0.3, (n, 4)).astype(np.float32)
    costs[:, 1::2] -= 0.15
    return scores, costs


@pytest.mark.parametrize("radius", [0, 1, 4, 30])
def test_windowed_transform_is_that_of_the_cpu(gpu, radius):
    scores, costs = parts()
    best = distance.windowed(gpu.put(scores), costs, radius, 12, 10)
    expected = cpu_distance.windowed(scores, costs, radius, 12, 10)
    np.testing.assert_allclose(gpu.get(best), expected, rtol=1e-6, atol=1e-6)


def test_windowed_transform_of_nothing(gpu):
    best = distance.windowed(gpu.put(np.zeros((0, 4, 2), np.float32)), np.ones((2, 4), np.float32), 4, 3, 4)
    assert np.array_equal(gpu.get(best), np.full((3, 4, 2), -np.inf))


@pytest.mark.parametrize("shape", [(9, 11), (14, 9)])
def test_envelope_is_that_of_the_cpu(gpu, shape):
    scores, costs = parts()
    scores[:, 4] = -np.inf  # a line without any place
    best = distance.envelope(gpu.put(scores), costs, *shape)
    expected = cpu_distance.envelope(scores, costs, *shape)
    np.testing.assert_allclose(gpu.get(best), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("radius", [2, 30])
def test_placements_are_those_of_the_cpu(gpu, radius):
    scores, costs = parts()
    random = np.random.default_rng(3)
    anchors = random.integers(-3, 12, (20, 2))
    which = random.integers(0, 3, 20)
    placed, expected = np.full((20, 2), -1), np.full((20, 2), -1)
    on_device = gpu.put(placed)
    distance.best_placements(gpu.put(scores), costs, radius, anchors, which, on_device)
    cpu_distance.best_placements(scores, costs, radius, anchors, which, expected)
    assert np.array_equal(gpu.get(on_device), expected)


def wiring():
    """Two roots of five parts, at anchors inside."""
    belongs = np.array([[0, 1, 0], [1, 0, 2], [0, 0, 1], [1, 2, 0], [1, 1, 1]])
    limits = np.array([[0, 3, 0, 4], [1, 2, 1, 3]])
    return belongs, limits


@pytest.mark.parametrize("first", [(0, 0), (1, 0)])
def test_adding_windowed_parts_is_that_of_the_cpu(gpu, first):
    scores, costs = parts(n=7)
    belongs, limits = wiring()
    chosen = np.array([0, 2, 3, 5, 6])
    totals = np.random.default_rng(4).normal(size=(2, 4, 5)).astype(np.float32)
    expected = totals.copy()
    on_device = gpu.put(totals)
    windows = distance.make_windows(costs, 2, chosen)
    distance.add_windowed(gpu.put(scores), windows, first, belongs, limits, on_device)
    made = cpu_distance.make_windows(costs, 2, chosen)
    cpu_distance.add_windowed(scores, made, first, belongs, limits, expected)
    np.testing.assert_allclose(gpu.get(on_device), expected, rtol=1e-5, atol=1e-5)


def test_adding_windowed_parts_to_no_place(gpu):
    scores, costs = parts(n=7)
    belongs, limits = wiring()
    totals = gpu.put(np.zeros((2, 4, 5), np.float32))
    windows = distance.make_windows(costs, 2, np.arange(5))
    distance.add_windowed(gpu.put(scores), windows, (0, 0), belongs, np.zeros_like(limits), totals)
    assert not gpu.get(totals).any()


def test_adding_sampled_parts_is_that_of_the_cpu(gpu):
    transformed = np.random.default_rng(5).normal(size=(14, 16, 6)).astype(np.float32)
    belongs, limits = wiring()
    which = np.array([0, 1, 2, 4, 5])
    totals = np.zeros((2, 4, 5), np.float32)
    expected = totals.copy()
    on_device = gpu.put(totals)
    matching.add_sampled(gpu.put(transformed), which, (1, 0), belongs, limits, on_device)
    cpu_matching.add_sampled(transformed, which, (1, 0), belongs, limits, expected)
    np.testing.assert_allclose(gpu.get(on_device), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("of_union", [False, True])
@pytest.mark.parametrize("n", [0, 1, 64, 150])
def test_suppression_is_that_of_the_cpu(gpu, n, of_union, monkeypatch):
    monkeypatch.setattr(suppress, "_BAND", 64)  # several bands
    random = np.random.default_rng(n)
    corners = random.uniform(0, 60, (n, 2))
    boxes = np.concatenate([corners, corners + random.uniform(5, 40, (n, 2))], axis=1)
    boxes[n // 2 :: 3] = boxes[: len(boxes[n // 2 :: 3])]  # equal boxes
    keep, expected = gpu.put(np.zeros(n, bool)), np.zeros(n, bool)
    suppress.suppress(gpu.put(boxes), 0.4, of_union, keep)
    cpu_suppress.suppress(boxes, 0.4, of_union, expected)
    assert np.array_equal(gpu.get(keep), expected)


@pytest.mark.parametrize(("n_words", "size"), [(16, 4), (37, 9), (1, 3)])
def test_codes_are_those_of_the_cpu(gpu, n_words, size):
    random = np.random.default_rng(6)
    words = random.normal(size=(n_words, size)).astype(np.float32)
    words[n_words // 2 :: 5] = words[: len(words[n_words // 2 :: 5])]  # equal codewords: the first counts
    cells = random.normal(size=(6, 9, 11)).astype(np.float32)
    channels = random.permutation(11)[:size]
    cells[0, 0, channels] = (words[0] + words[-1]) / 2  # halfway
    cells[0, 1] = 1e6
    codes, expected = gpu.put(np.zeros((6, 9, 2), np.uint8)), np.zeros((6, 9, 2), np.uint8)
    pq.encode(gpu.put(cells)[1:], channels, pq.make_codebook(words), codes[1:, :, 1])
    cpu_pq.encode(cells[1:], channels, cpu_pq.make_codebook(words), expected[1:, :, 1])
    assert np.array_equal(gpu.get(codes), expected)
    pq.encode(gpu.put(cells), channels, pq.make_codebook(words), codes[:, :, 0])
    cpu_pq.encode(cells, channels, cpu_pq.make_codebook(words), expected[:, :, 0])
    assert np.array_equal(gpu.get(codes), expected)
