"""Dense SIFT on a GPU: the function of `visionkl.backend.cpu.sift` on CuPy arrays.

Kernels, bin weights and the smoother are NumPy arrays; picture and descriptors lie on the device.
"""

from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu.sift import LENGTH, N_BINS, N_ORIENTATIONS
from visionkl.backend.gpu import device
from visionkl.backend.gpu.launch import CODES, FLOATS, declare, declare_for, launch

__all__ = ["LENGTH", "N_BINS", "N_ORIENTATIONS", "describe"]

# Sums of gradients that may come from rounding alone, as on the CPU.
_ROUNDING = 1e-3
_WARP = 32

_SMOOTH = declare(
    "sift",
    "sift_smooth",
    "const float* source, const float* taps, float* target, int rows, int cols, int n_taps, int down",
)
_VOTE = declare(
    "sift",
    "sift_vote",
    "const float* smoothed, float* votes, int rows, int cols, int top, int left, int height, int width",
)
_POOL_DOWN = declare(
    "sift",
    "sift_pool_down",
    "const float* votes, const float* taps, const int* starts, const int* kernels, float* sums, "
    "int n_lines, int row_length, int n_taps",
)
_POOL_ACROSS = declare(
    "sift",
    "sift_pool_across",
    "const float* lines, const float* taps, const int* starts, const int* kernels, float* sums, "
    "int n_lines, int n_columns, int row_length, int n_taps",
)
_FINISH = declare_for(
    (FLOATS[0], CODES[0]),
    "sift",
    "sift_finish",
    "const float* sums, const int* lines, const int* columns, const float* bin_weights, TYPE* values, "
    "int n_rows, int n_cols, int n_columns, float threshold, int root, float gain, float shift, "
    "float limit, long long first, int width",
)


def describe(
    plane: Any,
    *,
    smoother: npt.NDArray[np.float32],
    kernels: npt.NDArray[np.float32],
    bin_weights: npt.NDArray[np.float32],
    bin_size: int,
    step: int,
    first: tuple[int, int],
    counts: tuple[int, int],
    threshold: float,
    root: bool,
    values: Any,
    at: int,
    channel: int,
) -> None:
    """Describe a grid of places in one channel of a picture; see the CPU's function."""
    xp = device.namespace()
    n_cols, n_rows = counts
    if not n_cols * n_rows:
        return
    smoothed = _smoothed(plane, smoother)
    n_taps = 2 * bin_size - 1
    width, height = ((count - 1) * step + (N_BINS - 1) * bin_size + n_taps for count in counts)
    left, top = first[0] - bin_size + 1, first[1] - bin_size + 1
    votes = xp.empty((height, width, N_ORIENTATIONS), np.float32)
    launch(_VOTE, smoothed, votes, *plane.shape, top, left, height, width, threads=height * width)

    taps = device.upload(kernels, np.float32)
    row_starts, row_kernels, lines = _centres(n_rows, step, bin_size, shared=len(kernels) == 1)
    col_starts, col_kernels, columns = _centres(n_cols, step, bin_size, shared=len(kernels) == 1)
    n_lines, n_columns, row_length = len(row_starts), len(col_starts), width * N_ORIENTATIONS
    summed = xp.empty((n_lines, row_length), np.float32)
    launch(
        _POOL_DOWN, votes, taps, device.upload(row_starts), device.upload(row_kernels), summed, n_lines,
        row_length, n_taps, threads=summed.size,
    )  # fmt: skip
    sums = xp.empty((n_lines, n_columns, N_ORIENTATIONS), np.float32)
    launch(
        _POOL_ACROSS, summed, taps, device.upload(col_starts), device.upload(col_kernels), sums, n_lines,
        n_columns, row_length, n_taps, threads=sums.size,
    )  # fmt: skip
    finish = (512, 0.5, 255) if values.dtype == np.uint8 else (1, 0, np.inf)
    launch(
        _FINISH[values.dtype.name], sums, device.upload(lines), device.upload(columns),
        device.upload(bin_weights, np.float32), values, n_rows, n_cols, n_columns, max(threshold, _ROUNDING),
        int(root), *finish, at * values.shape[1] + channel * LENGTH, values.shape[1],
        threads=n_rows * n_cols * _WARP,
    )  # fmt: skip


def _smoothed(plane: Any, smoother: npt.NDArray[np.float32]) -> Any:
    xp = device.namespace()
    taps = device.upload(smoother, np.float32)
    down, both = xp.empty(plane.shape, np.float32), xp.empty(plane.shape, np.float32)
    launch(_SMOOTH, plane, taps, down, *plane.shape, len(smoother), 1, threads=plane.size)
    launch(_SMOOTH, down, taps, both, *plane.shape, len(smoother), 0, threads=plane.size)
    return both


def _centres(
    n: int, step: int, bin_size: int, *, shared: bool
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Where sums are made along an axis, with which kernel, and which of them each place's bins take."""
    places = np.arange(n)[:, None] * step + np.arange(N_BINS) * bin_size
    if shared:
        # One sum at every place that is a bin's centre for some descriptor.
        spacing = gcd(step, bin_size)
        starts = np.arange(0, places.max() + 1, spacing)
        kernels, taken = np.zeros_like(starts), places // spacing
    else:
        starts, kernels = places.ravel(), np.tile(np.arange(N_BINS), n)
        taken = np.arange(places.size).reshape(places.shape)
    return starts.astype(np.int32), kernels.astype(np.int32), taken.ravel().astype(np.int32)
