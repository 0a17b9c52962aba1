"""Figure–ground segments: parametric cuts against one maximum flow after the other, and a whole picture."""

from collections.abc import Iterator

import numpy as np
from harness import Contestant, Setting, row
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

from visionkl.features.cuts import Network, excesses, network, sweep_task, tasks_of
from visionkl.features.segments import FigureGround
from visionkl.features.superpixels import crossing_costs, region_graph

SUPERPIXELS, GRID, EVERY = 800, 5, 40
# What SciPy's 32-bit capacities take for what cannot be cut.
HARD = 1 << 30


@row("cuts", "cuts of one graph for growing biases", threads=(1,), rounds=7)
def cuts(setting: Setting) -> Iterator[Contestant]:
    graph = region_graph(setting.picture, SUPERPIXELS)
    net = network(graph.pairs, crossing_costs(graph.length, graph.probability), len(graph))
    tasks = tasks_of(graph, GRID)[::EVERY]
    for task, tones in tasks[:3]:
        ours, wanted = sweep_task(net, graph.area, tones, task), excesses(graph.area, tones, task)
        for inside, excess in zip(ours, wanted, strict=True):
            if cut_value(net, excess, inside) != flow(net, excess):
                raise AssertionError("the cuts disagree")
    n_cuts = sum(len(excesses(graph.area, tones, task)) for task, tones in tasks)
    setting.notes.append(f"{len(tasks)} sweeps, {n_cuts} cuts; the same cuts, by their values")

    def sweep_all() -> None:
        for task, tones in tasks:
            sweep_task(net, graph.area, tones, task)

    def flow_all() -> None:
        for task, tones in tasks:
            for excess in excesses(graph.area, tones, task):
                flow(net, excess)

    yield Contestant("visionkl", "ours", sweep_all)
    yield Contestant("SciPy maximum_flow", "peer", flow_all)


@row("segments", "a hundred segments of a picture", threads=(1, 2), rounds=5)
def segments(setting: Setting) -> Iterator[Contestant]:
    proposer = FigureGround(n_jobs=setting.threads)
    yield Contestant("visionkl", "ours", lambda: _discard(proposer.transform([setting.picture])))


def flow(net: Network, excess: np.ndarray) -> int:
    """Find the value of the maximum flow with SciPy."""
    n = len(excess)
    tails = np.repeat(np.arange(n), np.diff(net.starts))
    fed, drained = np.flatnonzero(excess > 0), np.flatnonzero(excess < 0)
    rows = np.concatenate([tails, np.full(len(fed), n), drained])
    columns = np.concatenate([net.heads, fed, np.full(len(drained), n + 1)])
    values = np.concatenate([net.capacity, excess[fed], -excess[drained]])
    graph = csr_matrix((np.minimum(values, HARD).astype(np.int32), (rows, columns)), (n + 2, n + 2))
    return int(maximum_flow(graph, n, n + 1).flow_value)


def cut_value(net: Network, excess: np.ndarray, inside: np.ndarray) -> int:
    tails = np.repeat(np.arange(len(excess)), np.diff(net.starts))
    cut = inside[tails] & ~inside[net.heads]
    outside = excess[(excess > 0) & ~inside].sum() - excess[(excess < 0) & inside].sum()
    return int(net.capacity[cut].sum() + outside)


def _discard(value: object) -> None:
    """Let a result go: a contestant's return value is its time."""
