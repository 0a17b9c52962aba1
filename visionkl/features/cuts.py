"""Figure and ground by constrained parametric min-cuts on the graph of a picture's superpixels.

Fundamentals
------------
A segment that contains a *seed* and none of a *background* is found as the minimum of

    E(x; bias) = sum over borders  w_uv [x_u != x_v]  -  sum over superpixels  area_u (tone_u + bias) x_u

with `x = 1` for the figure. `w` is the length of a border, less where it is likely to separate two things
(`visionkl.features.superpixels`). `tone` is 0, or says how much more a superpixel looks like the seed than
like the background: the logarithm of the ratio of two densities of colour and texture. For a growing bias the
minima are nested: the segment grows from the seed, and stops for a while wherever its outline is good. A
whole sweep costs little more than one cut (`visionkl.backend.cpu.flow`).

*Seeds* are places on a grid, and the regions of a coarse merger of the superpixels, which are larger where a
picture is plain. *Backgrounds* are the picture's edge; the edge without its lower side, where things are
often cut off; nothing; and all that is far from the seed, for small things. Segments keep what hangs together
with their seed; those with holes are proposed without them, too.

The regions of whole mergers, from superpixels to the picture, join the proposals: they cost nothing more, and
are the better ones of small things.

Implementation
--------------
Five hundred sweeps a picture take less than a second. SciPy's `maximum_flow` finds the same cuts (tests
compare them), one by one and without a warm start, in seven times the time (`benchmarks/run.py cuts`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.flow import keep_seeded, sweep_cuts
from visionkl.backend.threads import run_tasks
from visionkl.features.superpixels import RegionGraph, crossing_costs, merged

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

# Capacities are integers: so many stand for a pixel of a border that surely separates nothing.
_UNITS = 1000
# What cannot be cut: more than all borders together, and small enough to be added up.
_HARD = 1 << 44
# Width of the densities of colour (Lab over 100) and of texture.
_COLOUR_WIDTH = 0.1
_TEXTURE_WEIGHT = 0.15
_LEAST_DENSITY = 1e-4
# How much a unit of tone weighs against a pixel of border.
_TONE_WEIGHTS = (0.1,)
#: Biases of the plain sweeps and of those with tones, per pixel of area.
_PLAIN_BIASES = np.geomspace(2e-4, 0.2, 14)
_TONE_BIASES = np.array([-3.0, -2.0, -1.2, -0.6, -0.2, 0.2, 0.6, 1.2, 2.0, 3.0])
_REGION_SEEDS = 100
# Sweeps that a thread makes at a time.
_SWEEPS_A_BLOCK = 32
# How much sooner small regions are merged than large ones, for the mergers that are proposed as they are.
_MERGER_POWERS = (0.2, 0.5)
# Half the size of the window around a seed outside of which all is background, as a share of the picture.
_WINDOWS = (0.12, 0.25)


@dataclass(frozen=True, eq=False)
class Network:
    """Arcs of a region graph, sorted by the node they start from, and their capacities."""

    starts: npt.NDArray[np.int32]
    heads: npt.NDArray[np.int32]
    reverse: npt.NDArray[np.int32]
    capacity: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Task:
    """One sweep: superpixels that are figure, those that are background, and how much tones count."""

    seed: BoolArray
    background: BoolArray
    tone: float


def network(pairs: npt.NDArray[np.int32], weight: FloatArray, n: int) -> Network:
    """Make two arcs of each pair of neighbours."""
    tails = np.concatenate([pairs[:, 0], pairs[:, 1]])
    heads = np.concatenate([pairs[:, 1], pairs[:, 0]])
    order = np.argsort(tails, kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    m = len(pairs)
    partner = np.concatenate([np.arange(m, 2 * m), np.arange(m)])
    starts = np.searchsorted(tails[order], np.arange(n + 1)).astype(np.int32)
    units = np.rint(np.concatenate([weight, weight]) * _UNITS).astype(np.int64)
    return Network(starts, heads[order].astype(np.int32), place[partner[order]], units[order])


def propose(graph: RegionGraph, grid: int, n_jobs: int | None = 1) -> BoolArray:
    """Propose segments.

    Parameters
    ----------
    graph : RegionGraph
    grid : int
        Seeds along each side of the picture.
    n_jobs : int, optional
        Threads; None takes all usable cores.

    Returns
    -------
    ndarray of bool, shape (n_segments, n_superpixels)
        Different from each other, in no order that means anything.
    """
    net = network(graph.pairs, crossing_costs(graph.length, graph.probability), len(graph))
    edge = graph.frame.sum(axis=1) > 0

    def sweep(tasks: list[tuple[Task, FloatArray | None]]) -> list[BoolArray]:
        return [
            _finish(net, task.seed, edge, sweep_task(net, graph.area, tones, task)) for task, tones in tasks
        ]

    tasks = tasks_of(graph, grid)
    blocks = [tasks[start : start + _SWEEPS_A_BLOCK] for start in range(0, len(tasks), _SWEEPS_A_BLOCK)]
    found = [_mergers(graph, power) for power in _MERGER_POWERS]
    for segments in run_tasks(sweep, blocks, n_jobs):
        found += segments
    return _different(np.concatenate(found))


def tasks_of(graph: RegionGraph, grid: int) -> list[tuple[Task, FloatArray | None]]:
    """List all sweeps of a picture, with the tones of those that use them."""
    edge = graph.frame.sum(axis=1) > 0
    tasks = [task for seed in _seeds(graph, grid) for task in _tasks(graph, seed, edge)]
    toned = [number for number, task in enumerate(tasks) if task.tone]
    tones = dict(zip(toned, _tones(graph, [tasks[number] for number in toned]), strict=True))
    return [(task, tones.get(number)) for number, task in enumerate(tasks)]


def _mergers(graph: RegionGraph, size_power: float) -> BoolArray:
    """Merge superpixels until one is left: all regions on the way, superpixels included."""
    n = len(graph)
    strength = graph.probability * graph.length
    _, parents = merged(graph.pairs, graph.length, strength, graph.area, 1, size_power)
    regions = np.eye(len(parents), n, dtype=bool)
    for region, parent in enumerate(parents):
        if parent >= 0:
            regions[parent] |= regions[region]
    return regions


def _seeds(graph: RegionGraph, grid: int) -> list[BoolArray]:
    """Choose seeds: superpixels under the points of a grid, and regions of a coarse merger."""
    rows, cols = graph.labels.shape
    ys = ((np.arange(grid) + 0.5) * rows / grid).astype(int)
    xs = ((np.arange(grid) + 0.5) * cols / grid).astype(int)
    near = max(min(rows, cols) // (5 * grid), 1)
    seeds = []
    for y in ys:
        for x in xs:
            patch = graph.labels[max(y - near, 0) : y + near, max(x - near, 0) : x + near]
            inside = np.bincount(patch.ravel(), minlength=len(graph)) > 0.5 * np.minimum(
                graph.area, patch.size
            )
            inside[graph.labels[y, x]] = True
            seeds.append(inside)
    strength = graph.probability * graph.length
    roots, _ = merged(graph.pairs, graph.length, strength, graph.area, _REGION_SEEDS, 0.3)
    seeds += [roots == root for root in range(roots.max() + 1)]
    return list(_different(np.array(seeds)))


def _tasks(graph: RegionGraph, seed: BoolArray, edge: BoolArray) -> list[Task]:
    """List what is background for a seed, with tones and without."""
    without_floor = graph.frame[:, :3].sum(axis=1) > 0
    share = graph.moments[:, :2] / graph.area[:, None]
    middle = graph.moments[seed, :2].sum(axis=0) / graph.area[seed].sum()
    away = np.abs(share - middle).max(axis=1)
    backgrounds = [edge, without_floor, *(away > window for window in _WINDOWS)]
    tasks = [Task(seed, ground & ~seed, tone) for ground in backgrounds for tone in (0.0, *_TONE_WEIGHTS)]
    # Without a background there is nothing to cut from, unless tones tell.
    return [*tasks, *(Task(seed, np.zeros(len(edge), bool), tone) for tone in _TONE_WEIGHTS)]


def _tones(graph: RegionGraph, tasks: list[Task]) -> FloatArray:
    """Say how much more superpixels look like the seed than like the background: `(n_tasks, n)`."""
    texture = graph.texture_histograms / graph.area[:, None]
    values = np.concatenate([graph.colour, _TEXTURE_WEIGHT * texture], axis=1) / _COLOUR_WIDTH
    squares = np.square(values).sum(axis=1)
    likeness = np.exp(-0.5 * np.maximum(squares[:, None] + squares - 2 * values @ values.T, 0))
    figure = np.array([task.seed for task in tasks]) * graph.area
    ground = (
        np.array([task.background if task.background.any() else ~task.seed for task in tasks]) * graph.area
    )
    return np.log(_density(likeness, figure) / _density(likeness, ground))


def _density(likeness: FloatArray, weight: FloatArray) -> FloatArray:
    total = np.maximum(weight.sum(axis=1, keepdims=True), 1e-12)
    return (weight / total) @ likeness + _LEAST_DENSITY


def excesses(area: FloatArray, tones: FloatArray | None, task: Task) -> npt.NDArray[np.int64]:
    """Return what superpixels gain as part of the figure, for each bias: `(n_biases, n_superpixels)`."""
    if tones is None:
        per_pixel = np.broadcast_to(_PLAIN_BIASES[:, None], (len(_PLAIN_BIASES), len(area)))
    else:
        per_pixel = task.tone * (tones + _TONE_BIASES[:, None])
    gains = np.rint(_UNITS * area * per_pixel).astype(np.int64)
    gains[:, task.seed] = _HARD
    gains[:, task.background] = -_HARD
    return gains


def sweep_task(net: Network, area: FloatArray, tones: FloatArray | None, task: Task) -> BoolArray:
    """Cut for all biases: the figures `(n_biases, n_superpixels)`, each part of the next."""
    n = len(area)
    steps = np.diff(excesses(area, tones, task), axis=0, prepend=0)
    inside = np.empty(steps.shape, bool)
    sweep_cuts(
        net.starts, net.heads, net.reverse, net.capacity.copy(), np.zeros(n, np.int64), steps,
        np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, bool), inside,
    )  # fmt: skip
    return inside


def _finish(net: Network, seed: BoolArray, edge: BoolArray, cuts: BoolArray) -> BoolArray:
    """Reduce segments to what hangs together with the seed, with their holes and without."""
    changed = np.ones(len(cuts), bool)
    changed[1:] = (cuts[1:] != cuts[:-1]).any(axis=1)
    segments = cuts[changed]
    filled = np.empty_like(segments)
    n = len(seed)
    keep_seeded(net.starts, net.heads, seed, edge, segments, filled, np.empty(n, np.int32), np.empty(n, bool))
    return np.concatenate([segments, filled])


def _different(segments: BoolArray) -> BoolArray:
    """Leave out repetitions, and keep the order of the first ones."""
    packed = np.packbits(segments, axis=1)
    rows = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
    return segments[np.sort(np.unique(rows, return_index=True)[1])]
