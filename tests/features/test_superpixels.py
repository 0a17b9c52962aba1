"""Boundaries, superpixels and their neighbourhood, against slow references."""

import numpy as np
import pytest
from scipy import ndimage
from skimage.color import rgb2lab

from visionkl.backend.cpu.regions import flood, merge_regions, place_markers
from visionkl.features.boundaries import boundary_maps, lab_picture
from visionkl.features.superpixels import borders, chi2_distance, merged, reduced, region_graph, superpixels


def noisy_blocks(rows=60, cols=80, seed=0):
    """A picture of four plain blocks with some noise, and the numbers of the blocks."""
    numbers = 2 * (np.arange(rows)[:, None] >= rows // 3) + (np.arange(cols) >= cols // 2)
    colours = np.array([[200, 40, 40], [40, 180, 60], [50, 60, 190], [210, 200, 80]])
    noise = np.random.default_rng(seed).normal(0, 3, (rows, cols, 3))
    return np.clip(colours[numbers] + noise, 0, 255).astype(np.uint8), numbers


def test_lab_is_scikit_images():
    picture = np.random.default_rng(0).integers(0, 256, (10, 12, 3), dtype=np.uint8)
    np.testing.assert_allclose(lab_picture(picture), rgb2lab(picture) / 100, atol=5e-3)


def test_a_step_is_as_strong_at_every_scale_and_plain_ground_has_no_boundary():
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[:, 32:] = 255
    maps, _ = boundary_maps(lab_picture(picture))
    colour = maps[32, :, :3].max(axis=0)
    np.testing.assert_allclose(
        colour, 1 / np.sqrt(2 * np.pi), rtol=0.2
    )  # a Gaussian's slope, times its width
    assert (np.abs(maps[32, :, :3].argmax(axis=0) - 31.5) <= 1).all()
    plain, _ = boundary_maps(lab_picture(np.full((40, 40, 3), 77, np.uint8)))
    assert plain.max() < 1e-5


def test_texture_shows_where_stripes_turn():
    picture = np.zeros((64, 96, 3), np.uint8)
    picture[::4, :48] = picture[1::4, :48] = 200
    picture[:, 48::4] = picture[:, 49::4] = 200
    maps, _ = boundary_maps(lab_picture(picture))
    line = maps[20:44, :, 3].mean(axis=0)
    assert abs(int(line.argmax()) - 48) <= 3
    assert line.max() > 4 * line[20:34].max()


def reference_flood(height, labels):
    """A watershed by the book: always the pixel that was reached lowest, and among those the first."""
    import heapq

    rows, cols = height.shape
    labels = labels.copy()
    line = [(int(height[r, c]), n, r, c) for n, (r, c) in enumerate(np.argwhere(labels >= 0).tolist())]
    heapq.heapify(line)
    clock = len(line)
    while line:
        level, _, r, c = heapq.heappop(line)
        for near_r, near_c in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            if 0 <= near_r < rows and 0 <= near_c < cols and labels[near_r, near_c] < 0:
                labels[near_r, near_c] = labels[r, c]
                heapq.heappush(line, (max(level, int(height[near_r, near_c])), clock, near_r, near_c))
                clock += 1
    return labels


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (5, 5), (23, 37)])
def test_flooding_follows_the_reference(size):
    height = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)
    markers = np.empty(size, np.int32)
    n = place_markers(height, 8, markers)
    assert sorted(markers[markers >= 0].tolist()) == list(range(n))
    assert n == -(-size[0] // 8) * -(-size[1] // 8)
    labels = markers.copy()
    flood(height, labels, np.empty(height.size, np.int32))
    np.testing.assert_array_equal(labels, reference_flood(height, markers))


def test_borders_are_counted_once():
    labels = np.int32([[0, 0, 1], [0, 2, 1], [2, 2, 1]])
    maps = np.arange(9, dtype=np.float32).reshape(3, 3, 1)
    pairs, length, sums = borders(labels, maps)
    assert pairs.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert length.tolist() == [1, 3, 2]
    assert sums.ravel().tolist() == [2, 4 + 4 + 6, 5 + 8]


def reference_merger(pairs, length, strength, area, n_left, power):
    """Merge by looking at all borders each time."""
    edges = {tuple(pair): [le, st] for pair, le, st in zip(pairs.tolist(), length, strength, strict=True)}
    sizes = dict(enumerate(area))
    parents, made = {}, len(area)
    while len(sizes) > n_left and edges:
        costs = {
            pair: st / le * min(sizes[pair[0]], sizes[pair[1]]) ** power for pair, (le, st) in edges.items()
        }
        u, v = min(costs, key=costs.get)
        parents[u] = parents[v] = made
        sizes[made] = sizes.pop(u) + sizes.pop(v)
        gathered = {}
        for (one, other), values in edges.items():
            one, other = (made if region in (u, v) else region for region in (one, other))
            if one != other:
                total = gathered.setdefault((min(one, other), max(one, other)), [0.0, 0.0])
                total[0] += values[0]
                total[1] += values[1]
        edges = gathered
        made += 1
    return [parents.get(region, -1) for region in range(made)]


def test_merging_follows_the_reference():
    picture, _ = noisy_blocks(40, 48)
    maps, _ = boundary_maps(lab_picture(picture))
    labels = superpixels(maps, 10**6)
    pairs, length, sums = borders(labels, maps)
    area = np.bincount(labels.ravel()).astype(float)
    n = len(area)
    parents, costs = np.empty(2 * n - 1, np.int32), np.empty(2 * n - 1)
    made = merge_regions(pairs, length, sums[:, 0], area, 3, 0.4, parents, costs)
    assert made == 2 * n - 3
    assert parents[:made].tolist() == reference_merger(pairs, length, sums[:, 0], area, 3, 0.4)
    roots, tree = merged(pairs, length, sums[:, 0], area, 3, 0.4)
    assert sorted(set(roots.tolist())) == [0, 1, 2]
    assert tree.tolist() == parents[:made].tolist()


def test_superpixels_hang_together_and_keep_to_boundaries():
    picture, blocks = noisy_blocks()
    graph = region_graph(picture, 20)
    assert len(graph) == 20
    for number in range(len(graph)):
        assert ndimage.label(graph.labels == number)[1] == 1
    counts = np.zeros((20, 4))
    np.add.at(counts, (graph.labels.ravel(), blocks.ravel()), 1)
    assert counts.max(axis=1).sum() > 0.97 * blocks.size


def test_what_is_counted_is_the_pixels():
    picture, _ = noisy_blocks()
    graph = region_graph(picture, 15)
    lab = lab_picture(picture)
    y, x = np.mgrid[:60, :80]
    for number in range(len(graph)):
        inside = graph.labels == number
        assert graph.area[number] == inside.sum()
        np.testing.assert_allclose(graph.colour[number], lab[inside].mean(axis=0), atol=1e-5)
        places = (x[inside] + 0.5) / 80, (y[inside] + 0.5) / 80
        np.testing.assert_allclose(graph.moments[number, 4], (places[0] * places[1]).sum(), rtol=1e-9)
        corners = [x[inside].min(), y[inside].min(), x[inside].max() + 1, y[inside].max() + 1]
        assert graph.boxes[number].tolist() == corners
        edges = [inside[:, 0], inside[0], inside[:, -1], inside[-1]]
        assert graph.frame[number].tolist() == [edge.sum() for edge in edges]
        assert graph.colour_histograms[number].sum() == 3 * inside.sum()
    assert ((graph.probability > 0) & (graph.probability < 1)).all()


def test_borders_of_blocks_are_likelier_than_others():
    picture, blocks = noisy_blocks()
    graph = region_graph(picture, 30)
    of_block = np.array(
        [np.bincount(blocks[graph.labels == number]).argmax() for number in range(len(graph))]
    )
    apart = of_block[graph.pairs[:, 0]] != of_block[graph.pairs[:, 1]]
    assert graph.probability[apart].min() > 2 * np.median(graph.probability[~apart])


def test_distance_of_histograms():
    assert chi2_distance(np.array([[2.0, 2]]), np.array([[5.0, 5]])).tolist() == [0]
    assert chi2_distance(np.array([[3.0, 0]]), np.array([[0.0, 1]])).tolist() == [1]


def test_large_pictures_are_reduced():
    assert reduced(np.zeros((300, 1000, 3), np.uint8), 500).shape == (150, 500, 3)
    small = np.zeros((30, 40, 3), np.uint8)
    assert reduced(small, 500) is small
    assert reduced(np.zeros((1, 1000, 3), np.uint8), 100).shape == (1, 100, 3)
