"""The two steps in which a part model spends its time: filter responses and distance transforms.

The work is that of a typical model, made up here so that no model file is needed: 48 parts of 6 × 6 cells (6
components of 8 parts) on all levels of the pyramid where parts are sought.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import scipy.fft
import scipy.ndimage
from harness import Contestant, Setting, row
from limits import matrix_product

from visionkl.backend.cpu.distance import envelope, windowed
from visionkl.backend.cpu.filters import correlate, stack_filters
from visionkl.backend.threads import run_tasks
from visionkl.core.rng import stream
from visionkl.features.pyramid import feature_pyramid

N_PARTS, PART_CELLS, RADIUS = 48, 6, 4
Levels = tuple[npt.NDArray[np.float32], ...]


def part_levels(setting: Setting) -> Levels:
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
    stacked = stack_filters(weights)
    by_fourier = FourierFilters(weights)
    size = (PART_CELLS, PART_CELLS)
    _demand_equal(correlate(levels[12], stacked, size), by_fourier.responses(levels, 1)[12], 1e-4)

    def ours() -> None:
        run_tasks(lambda level: correlate(level, stacked, size), levels, threads)

    places = sum((level.shape[0] - PART_CELLS + 1) * (level.shape[1] - PART_CELLS + 1) for level in levels)
    setting.notes.append(f"{places} places, {2e-9 * places * weights.size:.1f} billion operations")
    yield Contestant("visionkl, matrix products", "ours", ours)
    rival = partial(by_fourier.responses, levels, threads)
    yield Contestant("FFT on tiles, scipy.fft", "peer", lambda: _discard(rival()))
    yield Contestant("sgemm of as many operations", "limit", matrix_product(places * weights.size, threads))


class FourierFilters:
    """The same responses by FFT, made as fast as SciPy allows: the rival that matrix products have to beat.

    Levels are cut into overlapping square tiles, so that the filters are transformed only once, when a model
    is loaded. A batch of tiles is laid out with places first and channels last: the transform along places
    then leaves each frequency as a matrix of tiles × channels, which is multiplied by its channels × filters,
    and the way back leaves responses with filters last. Nothing is transposed. Tiles of 20 and batches of 8
    were the fastest of 16–32 and 8–64: all arrays of a batch stay in the cache.
    """

    def __init__(self, weights: npt.NDArray[np.float32], tile: int = 20, batch: int = 8) -> None:
        self.tile, self.batch, self.edge, self.n = tile, batch, weights.shape[1], len(weights)
        transformed = scipy.fft.rfft2(weights, (tile, tile), axes=(1, 2)).conj()
        n_frequencies, n_channels = tile * (tile // 2 + 1), weights.shape[3]
        self.transformed = np.ascontiguousarray(
            transformed.transpose(1, 2, 3, 0).reshape(n_frequencies, n_channels, self.n)
        )

    def responses(self, levels: Levels, threads: int) -> list[npt.NDArray[np.float32]]:
        """Correlate levels with all filters: `(rows - 5, cols - 5, filters)` each."""
        step = self.tile - self.edge + 1
        lost = self.edge - 1
        results = [np.empty((v.shape[0] - lost, v.shape[1] - lost, self.n), np.float32) for v in levels]
        corners = [
            (number, y, x)
            for number, result in enumerate(results)
            for y in range(0, result.shape[0], step)
            for x in range(0, result.shape[1], step)
        ]

        def compute(first: int) -> None:
            chosen = corners[first : first + self.batch]
            tiles = np.zeros((self.tile, self.tile, len(chosen), levels[0].shape[2]), np.float32)
            for i, (number, y, x) in enumerate(chosen):
                cells = levels[number][y : y + self.tile, x : x + self.tile]
                tiles[: cells.shape[0], : cells.shape[1], i] = cells
            spectrum = scipy.fft.rfft2(tiles, axes=(0, 1))
            product = np.matmul(spectrum.reshape(-1, *tiles.shape[2:]), self.transformed)
            product = product.reshape(*spectrum.shape[:3], self.n)
            answer = scipy.fft.irfft2(product, (self.tile, self.tile), axes=(0, 1), overwrite_x=True)
            for i, (number, y, x) in enumerate(chosen):
                place = results[number][y : y + step, x : x + step]
                place[...] = answer[: place.shape[0], : place.shape[1], i]

        run_tasks(compute, range(0, len(corners), self.batch), threads)
        return results


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
