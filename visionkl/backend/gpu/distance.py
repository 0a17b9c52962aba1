"""Distance transforms on a GPU: the functions of `visionkl.backend.cpu.distance` on CuPy arrays.

Costs, wirings and limits may be NumPy arrays: they are small, and uploaded when needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.gpu import device
from visionkl.backend.gpu.launch import declare, launch

_BEST_DOWN = declare(
    "distance",
    "best_down",
    "const float* scores, const float* costs, const long long* chosen, float* lines, int rows, int cols, "
    "int n, int n_chosen, int radius, int first, int step, int n_lines",
)
_TRANSFORM_ACROSS = declare(
    "distance",
    "transform_across",
    "const float* lines, const float* costs, float* best, int score_cols, int n, int radius, int rows, "
    "int cols",
)
_ADD_ACROSS = declare(
    "distance",
    "add_across",
    "const float* lines, const float* costs, const long long* chosen, const long long* wiring, "
    "const long long* limits, float* totals, int score_cols, int n_chosen, int radius, int first_line, "
    "int first_col, int n_totals, int root_rows, int root_cols",
)
_ADD_FROM_ALL = declare(
    "distance",
    "add_from_all",
    "const float* transformed, const long long* parts, const long long* wiring, const long long* limits, "
    "float* totals, int cols, int n, int n_chosen, int first_row, int first_col, int n_totals, "
    "int root_rows, int root_cols",
)
_PLACE_PARTS = declare(
    "distance",
    "place_parts",
    "const float* scores, const float* costs, const long long* anchors, const long long* parts, "
    "long long* placed, int rows, int cols, int n, int radius, int m",
    block=128,
)
_ENVELOPE_DOWN = declare(
    "distance",
    "envelope_down",
    "const float* scores, const float* costs, int* tops, double* starts, float* best, int n_scores, "
    "int n_lines, int n, int n_anchors, int axis",
    block=128,
)

# The largest displacement that 32-bit numbers hold beside any level.
_FARTHEST = 2**29


@dataclass(frozen=True)
class Windows:
    """Some of a group's parts on the device, and how far they may go."""

    costs: Any
    chosen: Any
    radius: int


def make_windows(costs: Any, radius: int, chosen: npt.NDArray[np.int64]) -> Windows:
    """Make parts ready; see the CPU's function."""
    return Windows(device.upload(costs, np.float32), device.upload(chosen, np.int64), min(radius, _FARTHEST))


def windowed(scores: Any, costs: Any, radius: int, rows: int, cols: int) -> Any:
    """Transform with displacements of at most `radius` in each direction; see the CPU's function."""
    best = device.namespace().empty((rows, cols, scores.shape[2]), np.float32)
    if not scores.size:
        best.fill(-np.inf)
    elif best.size:
        windows = make_windows(costs, radius, np.arange(len(costs)))
        lines = _down(scores, windows, 0, 1, rows)
        launch(
            _TRANSFORM_ACROSS, lines, windows.costs, best, scores.shape[1], scores.shape[2], windows.radius,
            rows, cols, threads=best.size,
        )  # fmt: skip
    return best


def add_windowed(
    scores: Any, windows: Windows, first: tuple[int, int], wiring: Any, limits: Any, totals: Any
) -> None:
    """Add what parts reach from every second anchor to the totals of their roots; see the CPU's function."""
    lines_of_parts = limits[wiring[:, 0]]
    wanted = (lines_of_parts[:, 0] < lines_of_parts[:, 1]) & (lines_of_parts[:, 2] < lines_of_parts[:, 3])
    if not wanted.any():
        return
    top = int((lines_of_parts[:, 0] + wiring[:, 1])[wanted].min())
    bottom = int((lines_of_parts[:, 1] + wiring[:, 1])[wanted].max())
    lines = _down(scores, windows, first[0] + 2 * top, 2, bottom - top)
    launch(
        _ADD_ACROSS, lines, windows.costs, windows.chosen, device.upload(wiring, np.int64),
        device.upload(limits, np.int64), totals, scores.shape[1], len(windows.chosen), windows.radius, top,
        first[1], *totals.shape, threads=totals.size,
    )  # fmt: skip


def _down(scores: Any, windows: Windows, first: int, step: int, n_lines: int) -> Any:
    """Best vertical displacements `(n_lines, n_chosen, cols)`."""
    rows, cols, n = scores.shape
    n_chosen = len(windows.chosen)
    lines = device.namespace().empty((n_lines, n_chosen, cols), np.float32)
    launch(
        _BEST_DOWN, scores, windows.costs, windows.chosen, lines, rows, cols, n, n_chosen, windows.radius,
        first, step, n_lines, threads=lines.size,
    )  # fmt: skip
    return lines


def envelope(scores: Any, costs: Any, rows: int, cols: int) -> Any:
    """Transform with displacements of any size; see the CPU's function."""
    xp = device.namespace()
    costs = device.upload(costs, np.float32)
    down = _envelope_down(scores, costs, rows, axis=2)
    turned = xp.ascontiguousarray(down.transpose(1, 0, 2))
    across = _envelope_down(turned, costs, cols, axis=0)
    return xp.ascontiguousarray(across.transpose(1, 0, 2))


def _envelope_down(scores: Any, costs: Any, n_anchors: int, *, axis: int) -> Any:
    xp = device.namespace()
    n_scores, n_lines, n = scores.shape
    best = xp.empty((n_anchors, n_lines, n), np.float32)
    tops, starts = xp.empty(scores.shape, np.int32), xp.empty(scores.shape, np.float64)
    launch(
        _ENVELOPE_DOWN, scores, costs, tops, starts, best, n_scores, n_lines, n, n_anchors, axis,
        threads=n_lines * n,
    )  # fmt: skip
    return best


def best_placements(scores: Any, costs: Any, radius: int, anchors: Any, parts: Any, placed: Any) -> None:
    """Find where parts were placed; see the CPU's function."""
    rows, cols, n = scores.shape
    launch(
        _PLACE_PARTS, scores, device.upload(costs, np.float32), device.upload(anchors, np.int64),
        device.upload(parts, np.int64), placed, rows, cols, n, min(radius, _FARTHEST), len(placed),
        threads=len(placed),
    )  # fmt: skip


def add_sampled(
    transformed: Any, parts: Any, first: tuple[int, int], wiring: Any, limits: Any, totals: Any
) -> None:
    """Add transformed scores at every second anchor; see `visionkl.backend.cpu.matching.add_sampled`."""
    _, cols, n = transformed.shape
    launch(
        _ADD_FROM_ALL, transformed, device.upload(parts, np.int64), device.upload(wiring, np.int64),
        device.upload(limits, np.int64), totals, cols, n, len(parts), *first, *totals.shape,
        threads=totals.size,
    )  # fmt: skip
