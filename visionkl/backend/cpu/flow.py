"""Minimum cuts of one graph for a growing bias, by push–relabel with a warm start.

Nodes have an *excess*: positive where the source feeds them, negative where they drain into the sink. An arc
carries flow up to its capacity. All numbers are integers, so that cuts are exact and the same everywhere.

When the bias grows, excesses only grow. Then the flow so far is still a flow, distances to the sink only
grow, and the cuts are nested: the method of Gallo, Grigoriadis and Tarjan, which finds the cuts of a whole
sweep for little more than the price of one. Flow is never sent back to the source, because only the cut is
wanted: what cannot reach the sink any more is its source side.

The graph is that of a picture's regions: a few hundred nodes, and every arc has its reverse.
"""

import numpy as np

from visionkl.backend.cpu.jit import compiled_exactly


@compiled_exactly
def sweep_cuts(starts, heads, reverse, capacity, excess, steps, distance, queue, queued, inside):  # type: ignore[no-untyped-def]
    """Find the source side of the minimum cut after each growth of the excesses.

    Parameters
    ----------
    starts : ndarray of int32, shape (n + 1,)
        First arc of each node; arcs are sorted by node.
    heads : ndarray of int32, shape (n_arcs,)
        Node that an arc leads to.
    reverse : ndarray of int32, shape (n_arcs,)
        Number of the arc in the other direction.
    capacity : ndarray of int64, shape (n_arcs,)
        Residual capacities; changed.
    excess : ndarray of int64, shape (n,)
        Changed.
    steps : ndarray of int64, shape (n_steps, n)
        What excesses grow by before each cut; none may be negative, but in the first row.
    distance : ndarray of int32, shape (n,)
    queue : ndarray of int32, shape (n,)
    queued : ndarray of bool, shape (n,)
        Three arrays to work in.
    inside : ndarray of bool, shape (n_steps, n)
        Receives the largest source side of each cut.
    """
    n = len(excess)
    for step in range(len(steps)):
        for node in range(n):
            excess[node] += steps[step, node]
        if step == 0:  # later, distances of the step before are still right or too small, which will do
            _measure_distances(starts, heads, reverse, capacity, excess, distance, queue)
        _push_all(starts, heads, reverse, capacity, excess, distance, queue, queued)
        _measure_distances(starts, heads, reverse, capacity, excess, distance, queue)
        for node in range(n):
            inside[step, node] = distance[node] == n


@compiled_exactly
def _measure_distances(starts, heads, reverse, capacity, excess, distance, queue):  # type: ignore[no-untyped-def]
    """Measure how many arcs each node is from one that drains into the sink; n where none can be reached."""
    n = len(excess)
    first, last = 0, 0
    for node in range(n):
        if excess[node] < 0:
            distance[node] = 0
            queue[last] = node
            last += 1
        else:
            distance[node] = n
    while first < last:
        node = queue[first]
        first += 1
        for arc in range(starts[node], starts[node + 1]):
            tail = heads[arc]
            if distance[tail] == n and capacity[reverse[arc]] > 0:
                distance[tail] = distance[node] + 1
                queue[last] = tail
                last += 1


@compiled_exactly
def _push_all(starts, heads, reverse, capacity, excess, distance, queue, queued):  # type: ignore[no-untyped-def]
    """Push all excess towards the sink, first come, first served, until none can reach it."""
    n = len(excess)
    first, waiting = 0, 0
    for node in range(n):
        queued[node] = excess[node] > 0 and distance[node] < n
        if queued[node]:
            queue[waiting] = node
            waiting += 1
    work = 0
    while waiting > 0:
        node = queue[first]
        first = (first + 1) % n
        waiting -= 1
        queued[node] = False
        while excess[node] > 0 and distance[node] < n:
            nearest = n
            for arc in range(starts[node], starts[node + 1]):
                if capacity[arc] == 0:
                    continue
                head = heads[arc]
                if distance[head] + 1 == distance[node]:
                    amount = min(excess[node], capacity[arc])
                    capacity[arc] -= amount
                    capacity[reverse[arc]] += amount
                    excess[node] -= amount
                    excess[head] += amount
                    if excess[head] > 0 and not queued[head] and distance[head] < n:
                        queue[(first + waiting) % n] = head
                        waiting += 1
                        queued[head] = True
                    if excess[node] == 0:
                        break
                if capacity[arc] > 0:
                    nearest = min(nearest, distance[head])
            work += starts[node + 1] - starts[node]
            if excess[node] > 0:
                distance[node] = min(nearest + 1, n)
        if work > 6 * len(heads) + 4 * n:
            # Distances have grown stale: measuring them anew is cheaper than raising them one by one.
            work = 0
            _refresh(starts, heads, reverse, capacity, excess, distance)


@compiled_exactly
def _refresh(starts, heads, reverse, capacity, excess, distance):  # type: ignore[no-untyped-def]
    queue = np.empty(len(excess), np.int32)
    _measure_distances(starts, heads, reverse, capacity, excess, distance, queue)


@compiled_exactly
def keep_seeded(starts, heads, seeds, frame, inside, filled, queue, reached):  # type: ignore[no-untyped-def]
    """Reduce segments to what hangs together with their seeds; and fill their holes, in copies.

    Parameters
    ----------
    starts, heads : ndarray of int32
        The graph, as for `sweep_cuts`.
    seeds : ndarray of bool, shape (n,)
    frame : ndarray of bool, shape (n,)
        Nodes at the edge of the picture: what is outside and not connected with one of these is a hole.
    inside : ndarray of bool, shape (n_segments, n)
        Changed.
    filled : ndarray of bool, shape (n_segments, n)
        Receives the segments without holes.
    queue : ndarray of int32, shape (n,)
    reached : ndarray of bool, shape (n,)
        Two arrays to work in.
    """
    n = len(seeds)
    for segment in range(len(inside)):
        for node in range(n):
            reached[node] = inside[segment, node] and seeds[node]
        _spread(starts, heads, inside[segment], True, queue, reached)
        for node in range(n):
            inside[segment, node] = reached[node]
        for node in range(n):
            reached[node] = frame[node] and not inside[segment, node]
        _spread(starts, heads, inside[segment], False, queue, reached)
        for node in range(n):
            filled[segment, node] = not reached[node]


@compiled_exactly
def _spread(starts, heads, inside, side, queue, reached):  # type: ignore[no-untyped-def]
    """Reach all nodes of one side that are connected with those reached already."""
    first, last = 0, 0
    for node in range(len(inside)):
        if reached[node]:
            queue[last] = node
            last += 1
    while first < last:
        node = queue[first]
        first += 1
        for arc in range(starts[node], starts[node + 1]):
            near = heads[arc]
            if inside[near] == side and not reached[near]:
                reached[near] = True
                queue[last] = near
                last += 1
