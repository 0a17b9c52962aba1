"""The two steps in which a part model spends its time: filter responses and distance transforms.

The work is that of a typical model, made up here so that no model file is needed: 48 parts of 6 × 6 cells (6
components of 8 parts) on all levels of the pyramid where parts are sought.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import scipy.ndimage
from harness import Contestant, Setting, row
from limits import matrix_product

from visionkl.backend.cpu.distance import envelope, windowed
from visionkl.backend.cpu.filters import ProductFilters
from visionkl.backend.threads import run_tasks
from visionkl.core.rng import stream
from visionkl.detection.filters import DenseFilters
from visionkl.features.pyramid import feature_pyramid

N_PARTS, PART_CELLS, RADIUS = 48, 6, 4
Level = npt.NDArray[np.float32]


def part_levels(setting: Setting) -> tuple[Level, ...]:
    """All levels that have coarser ones an octave above, padded as for roots of 6 × 11 cells."""
    pyramid = feature_pyramid(setting.picture, padding=(6, 11))
    return pyramid.levels[: len(pyramid) - pyramid.interval]


def part_filters() -> npt.NDArray[np.float32]:
    """48 filters `(48, 6, 6, 32)` of random weights."""
    return stream(0, "filters").normal(0, 0.1, (N_PARTS, PART_CELLS, PART_CELLS, 32)).astype(np.float32)


# -- filter responses ----------------------------------------------------------------------------------------


@row("filters", "48 part filters on all levels", threads=(1, 2), rounds=9)
def filters(setting: Setting) -> Iterator[Contestant]:
    levels, weights, threads = part_levels(setting), part_filters(), setting.threads
    chosen, by_products = DenseFilters(list(weights)), ProductFilters(weights)

    def ours(level: Level) -> Level:
        return chosen.responses(level, 0)

    _demand_equal(ours(levels[12]), by_products.correlate(levels[12]), 1e-4)
    lost = PART_CELLS - 1
    places = sum((level.shape[0] - lost) * (level.shape[1] - lost) for level in levels)
    billions = 2e-9 * places * weights.size
    setting.notes.append(f"{places} places, {billions:.1f} billion operations if done one by one")
    yield Contestant("visionkl", "ours", lambda: _discard(run_tasks(ours, levels, threads)))
    yield Contestant(
        "visionkl, matrix products only",
        "peer",
        lambda: _discard(run_tasks(by_products.correlate, levels, threads)),
    )
    yield Contestant("sgemm of as many operations", "limit", matrix_product(places * weights.size, threads))


# -- distance transforms -------------------------------------------------------------------------------------


@row("distance", "distance transforms of 48 parts on all levels", threads=(1, 2), rounds=9)
def distance(setting: Setting) -> Iterator[Contestant]:
    random = stream(0, "scores")
    lost = PART_CELLS - 1
    shapes = [(level.shape[0] - lost, level.shape[1] - lost, N_PARTS) for level in part_levels(setting)]
    scores = [random.normal(0, 1, shape).astype(np.float32) for shape in shapes]
    costs = random.uniform((0.01, -0.01, 0.01, -0.01), (0.1, 0.01, 0.1, 0.01), (N_PARTS, 4))
    costs = costs.astype(np.float32)
    threads = setting.threads

    def transform(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return windowed(values, costs, RADIUS, *values.shape[:2])

    _demand_equal(transform(scores[12]), dilated(scores[12], costs), 1e-4)
    setting.notes.append(f"displacements up to {RADIUS} cells, as in the published models")
    yield Contestant("visionkl", "ours", lambda: _discard(run_tasks(transform, scores, threads)))
    yield Contestant(
        "SciPy grey_dilation",
        "peer",
        lambda: _discard(run_tasks(lambda values: dilated(values, costs), scores, threads)),
    )
    yield Contestant(
        "visionkl, any displacement",
        "peer",
        lambda: _discard(run_tasks(lambda v: envelope(v, costs, *v.shape[:2]), scores, threads)),
    )
    yield Contestant(
        "copying the scores twice",
        "limit",
        lambda: _discard(run_tasks(lambda values: values.copy().copy(), scores, threads)),
    )


def dilated(scores: npt.NDArray[np.float32], costs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Do the same with SciPy: a dilation by a parabola along each axis, part by part."""
    shifts = np.arange(-RADIUS, RADIUS + 1)
    transformed = np.empty_like(scores)
    for part, (ax, bx, ay, by) in enumerate(costs):
        # The structure of a dilation is mirrored, and added.
        along_y = -(ay * shifts**2 - by * shifts)[:, None].astype(np.float32)
        along_x = -(ax * shifts**2 - bx * shifts)[None].astype(np.float32)
        options = {"mode": "constant", "cval": -np.inf}
        down = scipy.ndimage.grey_dilation(scores[..., part], structure=along_y, **options)
        transformed[..., part] = scipy.ndimage.grey_dilation(down, structure=along_x, **options)
    return transformed


def _demand_equal(ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32], tolerance: float) -> None:
    worst = float(np.abs(ours - theirs).max())
    if not worst <= tolerance:
        raise AssertionError(f"The contestants disagree by {worst:g}: their times cannot be compared.")


def _discard(value: object) -> None:
    """Let a result go: a contestant's return value is its time."""
