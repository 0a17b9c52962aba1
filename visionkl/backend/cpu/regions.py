"""Regions of a picture: flooding from markers, their borders, and merging of the most alike.

Labels are int32 and run from 0; pixels are neighbours across edges, not corners.
"""

import heapq

import numpy as np

from visionkl.backend.cpu.jit import compiled_exactly


@compiled_exactly
def place_markers(height, cell, labels):  # type: ignore[no-untyped-def]
    """Put one marker into each cell of a grid, at the lowest place of its middle.

    Parameters
    ----------
    height : ndarray of uint8, shape (rows, cols)
    cell : int
        Edge of the cells, in pixels; the last of a line may be smaller.
    labels : ndarray of int32, shape (rows, cols)
        Receives the number of each marker at its place, and -1 elsewhere.

    Returns
    -------
    int
        Number of markers.
    """
    rows, cols = height.shape
    labels[:] = -1
    n = 0
    margin = cell // 4  # markers of neighbouring cells keep apart
    for top in range(0, rows, cell):
        for left in range(0, cols, cell):
            bottom, right = min(top + cell, rows), min(left + cell, cols)
            up, side = min(margin, (bottom - top - 1) // 2), min(margin, (right - left - 1) // 2)
            best_row, best_col = top + up, left + side
            for row in range(top + up, bottom - up):
                for col in range(left + side, right - side):
                    if height[row, col] < height[best_row, best_col]:
                        best_row, best_col = row, col
            labels[best_row, best_col] = n
            n += 1
    return n


@compiled_exactly
def flood(height, labels, following):  # type: ignore[no-untyped-def]
    """Flood a landscape from its markers: a watershed without lines between the regions.

    Pixels are taken lowest first, and first come, first served among equals; each gets the label of the
    region that reached it first.

    Parameters
    ----------
    height : ndarray of uint8, shape (rows, cols)
    labels : ndarray of int32, shape (rows, cols)
        -1 where there is no marker; receives a label everywhere.
    following : ndarray of int32, shape (rows * cols,)
        To work in.
    """
    rows, cols = height.shape
    head = np.full(256, -1, np.int32)
    tail = np.full(256, -1, np.int32)
    for place in range(rows * cols):
        if labels[place // cols, place % cols] >= 0:
            _append(head, tail, following, height[place // cols, place % cols], place)
    level = 0
    while level < 256:
        place = head[level]
        if place < 0:
            level += 1
            continue
        head[level] = following[place]
        row, col = place // cols, place % cols
        for side in range(4):
            near_row = row + (side == 0) - (side == 1)
            near_col = col + (side == 2) - (side == 3)
            if 0 <= near_row < rows and 0 <= near_col < cols and labels[near_row, near_col] < 0:
                labels[near_row, near_col] = labels[row, col]
                # Water does not run back: what lies lower is taken at once.
                reached = max(level, np.int64(height[near_row, near_col]))
                _append(head, tail, following, reached, near_row * cols + near_col)


@compiled_exactly
def _append(head, tail, following, level, place):  # type: ignore[no-untyped-def]
    following[place] = -1
    if head[level] < 0:
        head[level] = place
    else:
        following[tail[level]] = place
    tail[level] = place


@compiled_exactly
def count_borders(labels, maps, keys, sums):  # type: ignore[no-untyped-def]
    """List the pairs of pixels on both sides of a border, with what maps hold there.

    Parameters
    ----------
    labels : ndarray of int32, shape (rows, cols)
    maps : ndarray of float32, shape (rows, cols, n_maps)
    keys : ndarray of int64, shape (at most 2 * rows * cols,)
        Receives `smaller label * 2**32 + larger label`.
    sums : ndarray of float32, shape (at most 2 * rows * cols, n_maps)
        Receives the larger value of both pixels.

    Returns
    -------
    int
        Number of pairs.
    """
    rows, cols = labels.shape
    n = 0
    for row in range(rows):
        for col in range(cols):
            for side in range(2):
                near_row, near_col = row + side, col + 1 - side
                if near_row >= rows or near_col >= cols:
                    continue
                one, other = labels[row, col], labels[near_row, near_col]
                if one == other:
                    continue
                keys[n] = np.int64(min(one, other)) << 32 | np.int64(max(one, other))
                for number in range(maps.shape[2]):
                    sums[n, number] = max(maps[row, col, number], maps[near_row, near_col, number])
                n += 1
    return n


@compiled_exactly
def merge_regions(pairs, length, strength, area, n_left, size_power, parent, order):  # type: ignore[no-untyped-def]
    """Merge the two regions whose border is weakest, again and again.

    The strength of a border is its mean; the smaller a region is, the sooner it is merged: the cost of a
    merger is `mean strength * (smaller area) ** size_power`.

    Parameters
    ----------
    pairs : ndarray of int32, shape (n_pairs, 2)
        Neighbours; each pair once.
    length, strength : ndarray of float64, shape (n_pairs,)
        Of their borders; the strength is a sum over the length.
    area : ndarray of float64, shape (n,)
    n_left : int
        Stop when so many regions are left.
    size_power : float
    parent : ndarray of int32, shape (2 * n - 1,)
        Receives the region that each was merged into: those made by mergers are `n, n + 1, ...`; -1 for
        those that are left.
    order : ndarray of float64, shape (2 * n - 1,)
        Receives the cost of each merger, at the number of the region made by it; the first n are 0.

    Returns
    -------
    int
        Number of regions, merged ones included.
    """
    n = len(area)
    n_pairs = len(pairs)
    sizes = np.zeros(2 * n - 1)
    sizes[:n] = area
    parent[:] = -1
    order[:] = 0
    # Borders lie in one list a region. A merger appends its borders as new ones; those of merged regions are
    # dead.
    one = np.empty(4 * n_pairs + 16, np.int32)
    other = np.empty(4 * n_pairs + 16, np.int32)
    lengths = np.empty(4 * n_pairs + 16)
    strengths = np.empty(4 * n_pairs + 16)
    following = np.empty((4 * n_pairs + 16, 2), np.int32)
    first = np.full(2 * n - 1, -1, np.int32)
    heap = [(0.0, np.int64(0)) for _ in range(0)]  # empty, but Numba knows what it will hold
    for pair in range(n_pairs):
        one[pair], other[pair] = pairs[pair, 0], pairs[pair, 1]
        lengths[pair], strengths[pair] = length[pair], strength[pair]
        _link(pair, one, other, following, first)
        smaller = min(sizes[one[pair]], sizes[other[pair]])
        heap.append((strengths[pair] / lengths[pair] * smaller**size_power, np.int64(pair)))
    heapq.heapify(heap)
    used = n_pairs
    made = n
    left = n
    found = np.full(2 * n - 1, -1, np.int32)
    while left > n_left and len(heap) > 0:
        cost, border = heapq.heappop(heap)
        u, v = one[border], other[border]
        if parent[u] >= 0 or parent[v] >= 0:
            continue
        parent[u] = parent[v] = made
        sizes[made] = sizes[u] + sizes[v]
        order[made] = max(cost, order[u], order[v])
        begin = used
        for region in (u, v):
            item = first[region]
            while item >= 0:
                side = 0 if one[item] == region else 1
                near = other[item] if side == 0 else one[item]
                if parent[near] < 0:
                    if found[near] < begin:
                        if used == len(one):
                            one, other = _grown(one), _grown(other)
                            lengths, strengths = _grown(lengths), _grown(strengths)
                            wider = np.empty((2 * len(following), 2), np.int32)
                            wider[: len(following)] = following
                            following = wider
                        found[near] = used
                        one[used], other[used] = near, made
                        lengths[used] = strengths[used] = 0.0
                        used += 1
                    lengths[found[near]] += lengths[item]
                    strengths[found[near]] += strengths[item]
                item = following[item, side]
        for item in range(begin, used):
            _link(item, one, other, following, first)
            smaller = min(sizes[one[item]], sizes[made])
            heapq.heappush(heap, (strengths[item] / lengths[item] * smaller**size_power, np.int64(item)))
        made += 1
        left -= 1
    return made


@compiled_exactly
def _link(item, one, other, following, first):  # type: ignore[no-untyped-def]
    following[item, 0] = first[one[item]]
    first[one[item]] = item
    following[item, 1] = first[other[item]]
    first[other[item]] = item


@compiled_exactly
def _grown(array):  # type: ignore[no-untyped-def]
    wider = np.empty(2 * len(array), array.dtype)
    wider[: len(array)] = array
    return wider
