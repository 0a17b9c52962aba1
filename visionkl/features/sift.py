"""Dense SIFT: histograms of gradient directions on a grid of places and at several sizes (METHODS §11).

Fundamentals
------------
A descriptor divides a square into 4 × 4 bins of `bin_size` pixels and tells of each bin how much gradient it
holds in each of 8 directions: 128 numbers. A pixel votes with the length of its gradient, shared linearly
between the two nearest directions and bilinearly among the four nearest bins, and counts the less, the
farther it is from the centre: by a Gaussian with a sigma of 2 bins. The 128 numbers are scaled to length 1,
clipped at 0.2 so that no single edge rules, and scaled to length 1 again.

Number `(4 * row + column) * 8 + direction` belongs to the bin in that row (from the top) and column (from the
left). Direction `o` is that of gradients, from dark to bright, at `45 * o` degrees from the x axis, turning
towards the y axis, which points down.

Before gradients are taken, the picture is smoothed to fit the bins: to a sigma of `smoothing * bin_size`,
where half a pixel of blur is taken to be there already, so with `sqrt((smoothing * bin_size)² - 1/4)`. A
sixth is what PHOW takes, and keeps fine texture. A third is what SIFT's own detector of interest points
implies.

The grids of all sizes have their places in common: a larger descriptor has a smaller one at its centre, to
the pixel if the sizes are all even or all odd, and else half a pixel off. A size takes all places at which
the centres of its bins are in the picture. Pixels outside the picture do not vote.

=========== ==================================================================================================
`color`     channels, each described by itself; their descriptors stand side by side
=========== ==================================================================================================
"grey"      `0.299 R + 0.587 G + 0.114 B`
"rgb"       R, G, B
"opponent"  grey, `(R - G) / √2`, `(R + G - 2 B) / √6`
"hue"       grey, and the place on the circle of colours, saturation times cosine and sine of the hue:
            `255 (R - (G + B) / 2) / M` and `255 (√3 / 2) (G - B) / M`, where M is the largest of R, G and B.
            Brightness cancels out; the hue itself would have an edge where red passes from 360° to 0°.
=========== ==================================================================================================

A descriptor whose *contrast* is below `contrast_threshold` is a zero vector: noise would come out at length 1
otherwise. The contrast is the weighted mean of the gradients' lengths in the square, where black is 0 and
white is 1. Every channel has its own: in a grey picture, descriptors of colour are zero.

`normalisation="root"` divides by the sum instead of the length in the end and takes roots: vectors of length
1 again, whose products are Hellinger's kernel; the usual choice for Fisher vectors. As uint8 a number `v` is
kept as `min(512 v, 255)`, rounded.

Implementation
--------------
`window="gaussian"` is the definition, without approximation. `window="flat"` lets all pixels of a bin count
alike for the distance from the centre, by the bin's average; then bins of neighbouring places are the same
sums, and it is faster: 1.3 times at a step of 3 pixels, 1.6 times at a step of 1 or 2.

The numbers do not depend on `n_jobs`, and a picture is worked on in bands, so memory is that of the result
and some megabytes for each thread.

OpenCV's SIFT at the same places is that of `window="gaussian"`, with a correlation above 0.9999 (above 0.99
with `window="flat"`). It rounds to whole numbers, has less exact arc tangents, leaves out the outermost
pixels of the picture, and its y axis points up: direction `o` is its `(8 - o) % 8`. Keypoints need the size
`bin_size / 1.5`, the angle 0 and the octave 0, and `SIFT_create` the sigma `bin_size / 6`.

VLFeat's dense SIFT has this order of numbers, and the correlation with it is 0.9999 for either window. It
repeats the gradients of the border outside the picture, and its flat window weighs bins a little differently.
Its PHOW is `DenseSIFT(step=2, bin_sizes=(4, 6, 8, 10), dtype="uint8")`, but for a window of 1.5 bins, places
of small descriptors that it leaves out at the left and upper border, and a contrast that all channels share.

If unsure, take the defaults; for Fisher vectors, `normalisation="root"`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from visionkl.backend.cpu.sift import LENGTH as _LENGTH
from visionkl.backend.dispatch import choose_device, device_of, to_host
from visionkl.backend.gpu.device import in_blocks
from visionkl.backend.threads import run_tasks
from visionkl.core.errors import DataError
from visionkl.core.validation import check_choice, check_number, check_picture, parameter_error
from visionkl.features.local import LocalDescriptors

#: Numbers of a descriptor, for each channel.
LENGTH = _LENGTH

# Sigma of the Gaussian window, in bins.
_WINDOW = 2.0
# Blur of a picture as it comes, in pixels.
_BLUR = 0.5
# A band is so many pixels high, or so many bins: bands overlap by 5 bins.
_BAND_PIXELS = 192
_BAND_BINS = 8
# Numbers that come out of a block of places on a GPU.
_NUMBERS_ON_A_GPU = 2**26

# Mirroring swaps columns of bins, and sends direction o to 4 - o (modulo 8).
_MIRRORED = np.arange(LENGTH).reshape(4, 4, 8)[:, ::-1, (4 - np.arange(8)) % 8].ravel()

Floats = npt.NDArray[np.float32]


def dense_sift(
    image: npt.ArrayLike,
    *,
    step: int = 3,
    bin_sizes: Sequence[int] = (4, 6, 8, 10, 12),
    window: str = "flat",
    smoothing: float = 1 / 6,
    contrast_threshold: float = 0.005,
    color: str = "grey",
    normalisation: str = "l2",
    dtype: str = "float32",
    n_jobs: int | None = None,
    device: str = "cpu",
) -> LocalDescriptors:
    """Describe a picture by SIFT descriptors on a grid.

    Parameters
    ----------
    image : array_like, shape (rows, cols) or (rows, cols, 3)
        Grey or colour picture with values 0..255. It may lie on a GPU; then the values do, too.
    step : int
        Distance of neighbouring places in pixels.
    bin_sizes : sequence of int
        Edges of a bin in pixels; a descriptor has 4 × 4 of them.
    window : "flat" or "gaussian"
        How pixels count by their distance from the centre: bin by bin, or exactly.
    smoothing : float
        Sigma to which the picture is smoothed, in bins; 0 for none.
    contrast_threshold : float
        Descriptors of less contrast are zero.
    color : "grey", "rgb", "opponent" or "hue"
        Channels to describe; see the top of this module.
    normalisation : "l2" or "root"
        "root" for products that are Hellinger's kernel.
    dtype : "float32" or "uint8"
    n_jobs : int, optional
        Threads; all usable cores by default.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "auto": where to compute. A picture that lies on a GPU is
        described there anyway.

    Returns
    -------
    LocalDescriptors
        With values of the shape (n, 128) or (n, 384), `bin_sizes` one after the other, row by row from the
        top. Sizes that do not fit into the picture are left out; if none does, n = 0.

    Examples
    --------
    >>> stripes = np.tile(np.arange(64) % 16 * 16, (48, 1))
    >>> found = dense_sift(stripes, step=8, bin_sizes=(4, 8))
    >>> found.values.shape, found.positions[0], found.sizes[[0, -1]]
    ((39, 128), array([12.5, 12.5], dtype=float32), array([16., 32.], dtype=float32))
    """
    owner = "dense_sift"
    check_number(owner, "step", step, low=1, integer=True)
    _check_bin_sizes(owner, bin_sizes)
    check_choice(owner, "window", window, ("flat", "gaussian"))
    check_number(owner, "smoothing", smoothing, low=0)
    check_number(owner, "contrast_threshold", contrast_threshold, low=0)
    check_choice(owner, "color", color, tuple(_CHANNELS))
    check_choice(owner, "normalisation", normalisation, ("l2", "root"))
    check_choice(owner, "dtype", dtype, ("float32", "uint8"))
    if n_jobs is not None:
        check_number(owner, "n_jobs", n_jobs, low=1, integer=True)

    home = device_of(image)
    where = home if home.is_gpu else choose_device(device, owner)
    planes: list[Any] = _planes(check_picture(to_host(image), owner), color)
    height, width = planes[0].shape
    grids = _grids(width, height, bin_sizes, step)
    n, n_numbers = sum(grid.n_cols * grid.n_rows for grid in grids), len(planes) * LENGTH

    def describe(plane: Any, grid: _Grid, channel: int, row: int, n_rows: int, values: Any, at: int) -> None:
        kernels, bin_weights = _kernels(grid.bin_size, window)
        where.loops("sift").describe(
            plane,
            smoother=_smoother(smoothing * grid.bin_size),
            kernels=kernels,
            bin_weights=bin_weights,
            bin_size=grid.bin_size,
            step=step,
            first=(grid.first, grid.first + row * step),
            counts=(grid.n_cols, n_rows),
            threshold=255 * contrast_threshold,
            root=normalisation == "root",
            values=values,
            at=at,
            channel=channel,
        )

    def describe_band(task: tuple[_Grid, int, int, int]) -> None:
        grid, channel, row, n_rows = task
        describe(planes[channel], grid, channel, row, n_rows, values, grid.start + row * grid.n_cols)

    def describe_there(grid: _Grid, rows: slice) -> None:
        block = where.namespace.empty(((rows.stop - rows.start) * grid.n_cols, n_numbers), dtype)
        for channel, plane in enumerate(planes):
            describe(plane, grid, channel, rows.start, rows.stop - rows.start, block, 0)
        first = grid.start + rows.start * grid.n_cols
        values[first : first + len(block)] = block if home.is_gpu else to_host(block)

    with where.use():
        values = home.namespace.empty((n, n_numbers), dtype)
        if where.is_gpu:
            planes = [where.put(plane) for plane in planes]
            for grid in grids:
                most = max(_NUMBERS_ON_A_GPU // (n_numbers * grid.n_cols), 1)
                in_blocks(partial(describe_there, grid), grid.n_rows, most)
        else:
            bands = [(grid, *band) for grid in grids for band in _bands(grid, step, len(planes))]
            run_tasks(describe_band, bands, n_jobs)
    return LocalDescriptors(values, *_places(grids, step), (width, height))


class DenseSIFT(BaseEstimator):
    """Extracts SIFT descriptors on a grid; see `dense_sift`.

    Parameters
    ----------
    step, bin_sizes, window, smoothing, contrast_threshold, color, normalisation, dtype, n_jobs, device
        As in `dense_sift`.
    max_side : int, optional
        Pictures with a longer side are described as if they had been shrunk to this one; places and sizes are
        those of the picture that was given. A photograph of 12 megapixels would have a million descriptors.

    Examples
    --------
    >>> extractor = DenseSIFT(step=4, bin_sizes=(8,), color="opponent", dtype="uint8")
    >>> extractor.extract(np.zeros((64, 64, 3), np.uint8)).values.shape
    (100, 384)
    """

    def __init__(
        self,
        *,
        step: int = 3,
        bin_sizes: Sequence[int] = (4, 6, 8, 10, 12),
        window: str = "flat",
        smoothing: float = 1 / 6,
        contrast_threshold: float = 0.005,
        color: str = "grey",
        normalisation: str = "l2",
        dtype: str = "float32",
        max_side: int | None = None,
        n_jobs: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.step = step
        self.bin_sizes = bin_sizes
        self.window = window
        self.smoothing = smoothing
        self.contrast_threshold = contrast_threshold
        self.color = color
        self.normalisation = normalisation
        self.dtype = dtype
        self.max_side = max_side
        self.n_jobs = n_jobs
        self.device = device

    def extract(self, image: npt.ArrayLike) -> LocalDescriptors:
        """Describe a picture `(rows, cols)` or `(rows, cols, 3)` with values 0..255, where it lies."""
        settings = self.get_params(deep=False)
        max_side = settings.pop("max_side")
        if max_side is None:
            return dense_sift(image, **settings)
        check_number("DenseSIFT", "max_side", max_side, low=1, integer=True)
        picture = np.asarray(to_host(image))
        if picture.ndim not in (2, 3) or max(picture.shape[:2]) <= max_side:
            return dense_sift(image, **settings)
        # A long strip must stay wide enough to be described.
        height, width = picture.shape[:2]
        needed = min(3 * max(self.bin_sizes) + 1, height, width)
        factor = max(max_side / max(height, width), needed / min(height, width))
        size = (max(1, round(width * factor)), max(1, round(height * factor)))
        shrunk = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
        found = dense_sift(device_of(image).put(shrunk), **settings)
        scale = np.array([width / size[0], height / size[1]], np.float32)
        return LocalDescriptors(
            found.values, found.positions * scale, found.sizes / np.float32(factor), (width, height)
        )


def mirror(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Turn descriptors into those of the same places in the picture mirrored left to right.

    Parameters
    ----------
    values : array_like, shape (..., channels * 128)

    Returns
    -------
    ndarray, same shape and dtype

    Examples
    --------
    >>> image = np.random.default_rng(0).uniform(0, 255, (13, 13))
    >>> here, there = (dense_sift(one, bin_sizes=(4,)).values for one in (image, image[:, ::-1]))
    >>> bool(np.allclose(mirror(here), there, atol=1e-5))
    True
    """
    values = np.asarray(values)
    if values.ndim == 0 or values.shape[-1] % LENGTH:
        raise DataError(f"mirror: SIFT descriptors have the shape (..., channels * 128), not {values.shape}.")
    channels = values.reshape(*values.shape[:-1], -1, LENGTH)
    return np.ascontiguousarray(channels[..., _MIRRORED]).reshape(values.shape)


@dataclass(frozen=True)
class _Grid:
    """Where descriptors of one size are."""

    bin_size: int
    first: int  # column, and row, of the centre of the first bin of the first place
    n_cols: int
    n_rows: int
    start: int  # number of the first descriptor


def _grids(width: int, height: int, bin_sizes: Sequence[int], step: int) -> list[_Grid]:
    """Find the places of all sizes that fit."""
    fitting = [int(size) for size in bin_sizes if 3 * size < min(width, height)]
    grids, start = [], 0
    for size in fitting:
        # The places of the largest begin as far up and left as can be; others share them.
        first = 3 * (max(fitting) - size) // 2 % step
        n_cols, n_rows = ((edge - 1 - 3 * size - first) // step + 1 for edge in (width, height))
        grids.append(_Grid(size, first, n_cols, n_rows, start))
        start += n_cols * n_rows
    return grids


def _bands(grid: _Grid, step: int, n_channels: int) -> Iterator[tuple[int, int, int]]:
    """Cut the work on a grid into bands: channel, first row of places, number of rows."""
    height = -(-max(_BAND_PIXELS, _BAND_BINS * grid.bin_size) // step)
    for channel in range(n_channels):
        for row in range(0, grid.n_rows, height):
            yield channel, row, min(height, grid.n_rows - row)


def _places(grids: list[_Grid], step: int) -> tuple[Floats, Floats]:
    """Tell the centres and sizes of all descriptors."""
    positions, sizes = [np.empty((0, 2), np.float32)], [np.empty(0, np.float32)]
    for grid in grids:
        centre = grid.first + 1.5 * grid.bin_size + 0.5
        y, x = np.mgrid[: grid.n_rows, : grid.n_cols].astype(np.float32) * np.float32(step) + centre
        positions.append(np.stack([x.ravel(), y.ravel()], axis=1, dtype=np.float32, casting="same_kind"))
        sizes.append(np.full(x.size, 4 * grid.bin_size, np.float32))
    return np.concatenate(positions), np.concatenate(sizes)


def _kernels(bin_size: int, window: str) -> tuple[Floats, Floats]:
    """Tell what pixels about a bin's centre count for along an axis: (1 or 4, taps), and what bins do (4,).

    Over all bins and pixels they sum up to 1.
    """
    taps = np.arange(1 - bin_size, bin_size)
    triangle = 1 - np.abs(taps) / bin_size
    offsets = bin_size * (np.arange(4) - 1.5)
    exact = triangle * np.exp(-0.5 * ((taps + offsets[:, None]) / (_WINDOW * bin_size)) ** 2)
    exact /= exact.sum()
    if window == "gaussian":
        return exact.astype(np.float32), np.ones(4, np.float32)
    return (triangle / triangle.sum())[None].astype(np.float32), exact.sum(axis=1).astype(np.float32)


def _smoother(sigma: float) -> Floats:
    """Make the Gaussian that smooths a picture as it comes to `sigma`."""
    if sigma <= _BLUR:
        return np.ones(1, np.float32)
    missing = np.sqrt(sigma**2 - _BLUR**2)
    radius = int(np.ceil(4 * missing))
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / missing) ** 2)
    return (weights / weights.sum()).astype(np.float32)


def _grey(r: Floats, g: Floats, b: Floats) -> Floats:
    return np.float32(0.299) * r + np.float32(0.587) * g + np.float32(0.114) * b


def _opponent(r: Floats, g: Floats, b: Floats) -> list[Floats]:
    return [_grey(r, g, b), (r - g) / np.float32(2**0.5), (r + g - 2 * b) / np.float32(6**0.5)]


def _hue(r: Floats, g: Floats, b: Floats) -> list[Floats]:
    largest = np.maximum(np.maximum(r, g), b)
    scale: Floats = np.divide(255, largest, out=np.zeros_like(largest), where=largest > 0)
    return [_grey(r, g, b), scale * (r - np.float32(0.5) * (g + b)), scale * (g - b) * np.float32(0.75**0.5)]


#: What is described, of red, green and blue.
_CHANNELS = {
    "grey": lambda r, g, b: [_grey(r, g, b)],
    "rgb": lambda r, g, b: [r, g, b],
    "opponent": _opponent,
    "hue": _hue,
}


def _planes(picture: npt.NDArray[Any], color: str) -> list[Floats]:
    red, green, blue = np.ascontiguousarray(picture.transpose(2, 0, 1), dtype=np.float32)
    return _CHANNELS[color](red, green, blue)


def _check_bin_sizes(owner: str, bin_sizes: Any) -> None:
    if isinstance(bin_sizes, str) or not np.iterable(bin_sizes) or len(tuple(bin_sizes)) == 0:
        raise parameter_error(owner, "bin_sizes", "one or more integers ≥ 1, such as (4, 6, 8)", bin_sizes)
    for size in bin_sizes:
        check_number(owner, "bin_sizes", size, low=1, integer=True)
