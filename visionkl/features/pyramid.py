"""The HOG pyramid: HOG cells at all scales, so that a filter finds objects of every size (METHODS §10).

Levels
------
An octave has `interval` levels, each `2 ** (1 / interval)` times smaller than the one before. The first
octave is computed on cells of half the edge, that is at twice the resolution: parts are sought there, one
octave finer than their root filter; where there are no parts, it need not be computed. With `extra_octave`
one more, at a quarter of the edge, comes before it, which lets roots be found at twice the resolution: for
small objects. The pyramid ends where the picture's shorter side falls below five cells.

`scales[i]` tells how many times finer than the plain picture's cells level `i` is: a cell of level `i` covers
`cell_size / scales[i]` pixels.

Resampling
----------
The first level of each octave chain is shrunk from the picture itself by area averaging, the further octaves
by halving the one before; see `visionkl.backend.cpu.resample`. These are the published models' rules, and the
result agrees with theirs to 2e-7.

Padding
-------
Each level is framed by `padding` cells of zeros (and one cell more for the ring that HOG drops), whose
truncation channel is 1, so that objects reaching outside the picture can be found. A smaller frame is a view
into a larger one: `FeaturePyramid.framed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.hog import cell_counts
from visionkl.backend.dispatch import CPU, Device, choose_device, device_of, loops, namespace_of, to_host
from visionkl.backend.scratch import scratch
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import UsageError
from visionkl.core.validation import check_number
from visionkl.features.hog import N_CHANNELS, TRUNCATION, as_planes, check_cell_size

# The pyramid goes on while the shorter side has this many cells.
_SMALLEST_CELLS = 5


@dataclass(frozen=True)
class FeaturePyramid:
    """HOG cells of one picture at all scales.

    Parameters
    ----------
    levels : tuple of ndarray of float32, each of shape (rows, cols, 32)
        Framed by `padding + 1` cells on every side.
    scales : ndarray of float64, shape (n_levels,)
        A cell of level `i` covers `cell_size / scales[i]` pixels.
    cell_size, interval : int
    padding : tuple of int
        `(rows, cols)` of cells around each level.
    image_size : tuple of int
        `(width, height)` of the picture.
    """

    levels: tuple[npt.NDArray[np.float32], ...]
    scales: npt.NDArray[np.float64]
    cell_size: int
    interval: int
    padding: tuple[int, int]
    image_size: tuple[int, int]

    def __len__(self) -> int:
        return len(self.levels)

    def framed(self, padding: tuple[int, int]) -> FeaturePyramid:
        """Return the same pyramid with a smaller frame: views, nothing is copied."""
        rows, cols = self.padding[0] - padding[0], self.padding[1] - padding[1]
        if rows < 0 or cols < 0:
            raise UsageError(
                f"framed: the pyramid was padded by {self.padding} cells only; {padding} is more."
            )
        levels = tuple(
            level[rows : level.shape[0] - rows, cols : level.shape[1] - cols] for level in self.levels
        )
        return replace(self, levels=levels, padding=padding)

    def on(self, device: Device) -> FeaturePyramid:
        """Return the pyramid with its levels on a device, or in ordinary memory; those that are stay."""
        move: Callable[[Any], Any] = device.put if device.is_gpu else to_host
        return replace(self, levels=tuple(map(move, self.levels)))

    def from_level(self, first: int) -> FeaturePyramid:
        """Return the pyramid without its first levels."""
        return replace(self, levels=self.levels[first:], scales=self.scales[first:])


def feature_pyramid(
    image: npt.ArrayLike,
    *,
    cell_size: int = 8,
    interval: int = 10,
    padding: tuple[int, int] = (0, 0),
    extra_octave: bool = False,
    part_octave: bool = True,
    n_jobs: int | None = None,
    keep: Callable[[npt.NDArray[np.float32]], Any] | None = None,
    device: str | Device = CPU,
) -> FeaturePyramid:
    """Compute the HOG pyramid of a picture.

    Parameters
    ----------
    image : array_like, shape (rows, cols) or (rows, cols, 3)
        Grey or colour picture with values 0..255.
    cell_size : int
        Edge of a cell in pixels at scale 1; a multiple of 4 (8 with `extra_octave` leaves cells of 2 pixels).
    interval : int
        Levels an octave.
    padding : tuple of int
        `(rows, cols)` of cells added around each level.
    extra_octave : bool
        Start one octave finer, to place roots at twice the resolution.
    part_octave : bool
        Whether to compute the first octave, which is for parts alone; without it, its levels are there, but
        have no cells inside their frames.
    n_jobs : int, optional
        Threads; all usable cores by default.
    keep : callable, optional
        What to make of the cells `(rows, cols, 32)` of each level, before they are framed: its results are
        the pyramid's levels. The cells themselves lie in memory that is used again.
    device : str
        Where it is computed, and where the levels lie: "cpu", "cuda", "cuda:1" and so on, or "auto". With a
        picture that lies on a GPU, it is that one.

    Returns
    -------
    FeaturePyramid

    Examples
    --------
    >>> pyramid = feature_pyramid(np.zeros((375, 500, 3), np.uint8), padding=(6, 11))
    >>> len(pyramid), pyramid.levels[0].shape, pyramid.levels[10].shape
    (43, (106, 147, 32), (59, 85, 32))
    """
    check_cell_size("feature_pyramid", cell_size)
    finest = cell_size // (4 if extra_octave else 2)
    if cell_size % 4 or finest < 2 or finest % 2:
        raise UsageError(
            f"The 'cell_size' parameter of feature_pyramid must be a multiple of {8 if extra_octave else 4}. "
            f"Got {cell_size} instead."
        )
    check_number("feature_pyramid", "interval", interval, low=1, integer=True)
    home = device_of(image)
    where = home if home.is_gpu else choose_device(device, "feature_pyramid")
    planes = where.put(as_planes(to_host(image), "feature_pyramid"))
    resample, kernel = loops("resample", planes), loops("hog", planes)
    rows, cols = planes.shape[1:]
    n_plain = max(
        interval, 1 + math.floor(interval * math.log2(min(rows, cols) / (_SMALLEST_CELLS * cell_size)))
    )
    finer_octaves = [4, 2] if extra_octave else [2]
    first_plain = interval * len(finer_octaves)
    scales = np.empty(first_plain + n_plain)
    levels: list[Any] = [None] * len(scales)

    def compute_level(number: int, gradients: _Gradients, cell_size: int, scale: float) -> None:
        scales[number] = scale
        if number < interval and not part_octave:
            nothing = _frame((0, 0), padding, where.namespace)
            levels[number] = nothing if keep is None else keep(nothing[:0, :0])
        elif keep is None:
            levels[number] = _framed_cells(gradients, cell_size, padding)
        else:
            levels[number] = keep(_bare_cells(gradients, cell_size))

    def compute_chain(start: int) -> None:
        """All levels whose scale is a power of two times that of plain level `start`."""
        scale = 2.0 ** (-start / interval)
        shrunk = resample.shrink(planes, _rounded(rows * scale), _rounded(cols * scale), "picture 0")
        gradients = kernel.gradients(shrunk)
        for octave, finer in enumerate(finer_octaves):
            compute_level(octave * interval + start, gradients, cell_size // finer, finer * scale)
        for halvings, plain in enumerate(range(start, n_plain, interval)):
            if halvings:
                half = _rounded(shrunk.shape[1] * 0.5), _rounded(shrunk.shape[2] * 0.5)
                shrunk = resample.shrink(shrunk, *half, f"picture {halvings % 2}")
                gradients = kernel.gradients(shrunk)
            compute_level(first_plain + plain, gradients, cell_size, 2.0 ** (-plain / interval))

    with where.use():
        run_tasks(compute_chain, range(interval), 1 if where.is_gpu else n_jobs)
    return FeaturePyramid(tuple(levels), scales, cell_size, interval, padding, (cols, rows))


_Gradients = tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]


def _bare_cells(gradients: _Gradients, cell_size: int) -> npt.NDArray[np.float32]:
    """Cells `(rows, cols, 32)` in this thread's own memory."""
    n_rows, n_cols = (max(n - 2, 0) for n in cell_counts(gradients[0].shape, cell_size))
    xp, shape = namespace_of(*gradients), (n_rows, n_cols, N_CHANNELS)
    cells: npt.NDArray[np.float32] = (
        scratch("cells", shape, np.float32) if xp is np else xp.empty(shape, np.float32)
    )
    loops("hog", *gradients).cells_into(*gradients, cell_size, cells, 0, 0)
    return cells


def _framed_cells(gradients: _Gradients, cell_size: int, padding: tuple[int, int]) -> npt.NDArray[np.float32]:
    n_rows, n_cols = (max(n - 2, 0) for n in cell_counts(gradients[0].shape, cell_size))
    level = _frame((n_rows, n_cols), padding, namespace_of(*gradients))
    loops("hog", *gradients).cells_into(*gradients, cell_size, level, padding[0] + 1, padding[1] + 1)
    return level


def _frame(inside: tuple[int, int], padding: tuple[int, int], xp: Any) -> npt.NDArray[np.float32]:
    """Zeros for so many rows and columns of cells, and the frame around them."""
    (n_rows, n_cols), (top, left) = inside, (padding[0] + 1, padding[1] + 1)
    level = xp.zeros((n_rows + 2 * top, n_cols + 2 * left, N_CHANNELS), np.float32)
    for outside in (np.s_[:top], np.s_[top + n_rows :], np.s_[:, :left], np.s_[:, left + n_cols :]):
        level[outside][..., TRUNCATION] = 1
    return level


def _rounded(value: float) -> int:
    # Halves go up; a picture never vanishes.
    return max(int(value + 0.5), 1)
