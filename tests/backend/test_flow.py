"""Parametric cuts, against SciPy's maximum flow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

from visionkl.backend.cpu.flow import keep_seeded, sweep_cuts
from visionkl.features.cuts import Network, network


def sweep(net, steps):
    n = steps.shape[1]
    inside = np.empty(steps.shape, bool)
    sweep_cuts(
        net.starts, net.heads, net.reverse, net.capacity.copy(), np.zeros(n, np.int64), steps,
        np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, bool), inside,
    )  # fmt: skip
    return inside


def tails(net):
    return np.repeat(np.arange(len(net.starts) - 1), np.diff(net.starts))


def cut_value(net, excess, inside):
    cut = inside[tails(net)] & ~inside[net.heads]
    return (
        net.capacity[cut].sum() + excess[(excess > 0) & ~inside].sum() - excess[(excess < 0) & inside].sum()
    )


def flow_value(net, excess):
    """The value of the maximum flow, by SciPy."""
    n = len(excess)
    fed, drained = np.flatnonzero(excess > 0), np.flatnonzero(excess < 0)
    rows = np.concatenate([tails(net), np.full(len(fed), n), drained])
    columns = np.concatenate([net.heads, fed, np.full(len(drained), n + 1)])
    values = np.concatenate([net.capacity, excess[fed], -excess[drained]]).astype(np.int32)
    graph = csr_matrix((values, (rows, columns)), (n + 2, n + 2))
    return maximum_flow(graph, n, n + 1).flow_value


@st.composite
def networks(draw):
    n = draw(st.integers(2, 12))
    possible = [(u, v) for u in range(n) for v in range(u + 1, n)]
    pairs = draw(st.lists(st.sampled_from(possible), unique=True, max_size=30))
    weights = draw(st.lists(st.integers(0, 20), min_size=len(pairs), max_size=len(pairs)))
    pairs = np.array(pairs, np.int32).reshape(-1, 2)
    net = network(pairs, np.array(weights, np.float64) / 1000, n)
    first = draw(st.lists(st.integers(-30, 30), min_size=n, max_size=n))
    more = draw(st.lists(st.lists(st.integers(0, 15), min_size=n, max_size=n), max_size=5))
    return net, np.array([first, *more], np.int64)


@settings(max_examples=300, deadline=None)
@given(networks())
def test_cuts_are_minimal_nested_and_the_largest(case):
    net, steps = case
    before = np.zeros(steps.shape[1], bool)
    for excess, inside in zip(np.cumsum(steps, axis=0), sweep(net, steps), strict=True):
        smallest = flow_value(net, excess)
        assert cut_value(net, excess, inside) == smallest
        assert not (before & ~inside).any()
        # The largest: no node can be added to it for nothing, alone or with any other.
        for node in np.flatnonzero(~inside):
            forced = excess.copy()
            forced[node] += 10_000
            assert flow_value(net, forced) + max(-excess[node], 0) > smallest
        before = inside


def test_a_warm_start_changes_nothing():
    random = np.random.default_rng(0)
    n = 200
    pairs = np.unique(np.sort(random.integers(0, n, (900, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]].astype(np.int32)
    net = network(pairs, random.random(len(pairs)), n)
    steps = random.integers(0, 400, (8, n))
    steps[0] = random.integers(-2500, 1500, n)
    warm = sweep(net, steps)
    assert warm[0].sum() < warm[-1].sum()
    for number, excess in enumerate(np.cumsum(steps, axis=0)):
        np.testing.assert_array_equal(warm[number], sweep(net, excess[None])[0])
        assert cut_value(net, excess, warm[number]) == flow_value(net, excess)


def test_every_arc_knows_its_reverse():
    net = network(np.int32([[0, 2], [1, 2], [0, 1]]), np.array([0.001, 0.002, 0.003]), 4)
    assert isinstance(net, Network)
    np.testing.assert_array_equal(tails(net)[net.reverse], net.heads)
    np.testing.assert_array_equal(net.reverse[net.reverse], np.arange(6))
    np.testing.assert_array_equal(net.capacity[net.reverse], net.capacity)
    assert sorted(net.capacity.tolist()) == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("ring", [True, False])
def test_what_hangs_together_with_the_seed_stays_and_holes_are_filled(ring):
    """On a 5 × 5 grid: a ring around the middle, or half of one; and a lone corner."""
    number = np.arange(25).reshape(5, 5)
    pairs = np.concatenate([
        np.stack([number[:, :-1], number[:, 1:]], axis=-1).reshape(-1, 2),
        np.stack([number[:-1], number[1:]], axis=-1).reshape(-1, 2),
    ]).astype(np.int32)  # fmt: skip
    net = network(pairs, np.ones(len(pairs)), 25)
    drawn = np.zeros((5, 5), bool)
    drawn[1:4, 1:4] = True
    drawn[2, 2] = False
    if not ring:
        drawn[2, 3] = False
    expected = drawn.copy()
    drawn[4, 4] = True
    seed, frame = np.zeros((5, 5), bool), np.ones((5, 5), bool)
    seed[1, 1], frame[1:4, 1:4] = True, False
    inside, filled = drawn.reshape(1, 25).copy(), np.empty((1, 25), bool)
    keep_seeded(
        net.starts,
        net.heads,
        seed.ravel(),
        frame.ravel(),
        inside,
        filled,
        np.empty(25, np.int32),
        np.empty(25, bool),
    )
    np.testing.assert_array_equal(inside.reshape(5, 5), expected)
    if ring:
        expected[2, 2] = True
    np.testing.assert_array_equal(filled.reshape(5, 5), expected)
