"""Filter responses on codes, on a GPU: the functions of `visionkl.backend.cpu.tables` on CuPy arrays.

Tables are laid out, and rounded to 16 bits, by the CPU's function, once for a model; here they are uploaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.cpu import tables as cpu
from visionkl.backend.gpu import device
from visionkl.backend.gpu.launch import CODES, declare_for, launch

_SHAPES = (
    "const int* ends, const float* steps, const float* offset, float* responses, int rows, int cols, "
    "int n_blocks, int h, int w, int stride, int position_stride, int positions_a_row, int width, "
    "int n_groups, int out_rows, int out_cols, int n_filters, int first, int n"
)
# By the type of the tables, then by that of the codes.
_LOOK_UP = {
    "int16": declare_for(
        [(name, f"{ending}_i16", c_type) for name, ending, c_type in CODES],
        "tables",
        "look_up",
        f"const TYPE* codes, const short* table, {_SHAPES}",
    ),
    "float32": declare_for(
        [(name, f"{ending}_f32", c_type) for name, ending, c_type in CODES],
        "tables",
        "look_up",
        f"const TYPE* codes, const float* table, {_SHAPES}",
    ),
}


@dataclass(frozen=True)
class Strip:
    """Tables of some filters on the device: what is passed to the kernel before and after the shapes."""

    arrays: tuple[Any, ...]
    layout: tuple[int, ...]
    first: int
    n: int


@dataclass(frozen=True)
class Tables:
    """As `visionkl.backend.cpu.tables.Tables`, with strips that lie on the device."""

    size: tuple[int, int]
    smallest: tuple[int, int]
    n_filters: int
    strips: tuple[Strip, ...]
    error_bound: npt.NDArray[np.float32]


def make_tables(
    scores: npt.NDArray[np.float32], dtype: npt.DTypeLike, smallest: tuple[int, int] | None = None
) -> Tables:
    """Lay out tables of scores, which are a NumPy array; see the CPU's function."""
    made = cpu.make_tables(scores, dtype, smallest)
    length = scores.shape[1] * scores.shape[2]
    strips = []
    for strip in made.strips:
        ends = (strip.groups[1:] * strip.run).astype(np.int32)
        arrays = tuple(map(device.upload, (strip.rows, ends, strip.steps, strip.offset)))
        positions_a_row = -(-length // strip.run) * strip.run
        layout = (strip.stride, strip.position_stride, positions_a_row, len(strip.offset), len(ends))
        strips.append(Strip(arrays, layout, strip.first, strip.n))
    return Tables(made.size, made.smallest, made.n_filters, tuple(strips), made.error_bound)


def look_up(codes: Any, tables: Tables, memory: str | None = None) -> Any:
    """Responses of filters on a level of codes, uint8 or uint16; see the CPU's function.

    CuPy keeps memory itself, so `memory` is not used.
    """
    xp = device.namespace()
    rows, cols, n_blocks = codes.shape
    out_rows, out_cols = max(rows - tables.smallest[0] + 1, 0), max(cols - tables.smallest[1] + 1, 0)
    responses = xp.empty((out_rows, out_cols, tables.n_filters), np.float32)
    if codes.dtype not in (np.uint8, np.uint16):
        codes = codes.astype(np.uint16)
    codes = xp.ascontiguousarray(codes)
    for strip in tables.strips:
        launch(
            _LOOK_UP[strip.arrays[0].dtype.name][codes.dtype.name], codes, *strip.arrays, responses,
            rows, cols, n_blocks, *tables.size, *strip.layout, out_rows, out_cols, tables.n_filters,
            strip.first, strip.n, threads=out_rows * out_cols * strip.n,
        )  # fmt: skip
    return responses
