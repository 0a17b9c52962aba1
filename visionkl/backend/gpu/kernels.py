"""Sums for all pairs of rows on a GPU: the functions of `visionkl.backend.cpu.kernels` on CuPy arrays."""

from typing import Any

from visionkl.backend import glue
from visionkl.backend.cpu.kernels import ABSOLUTE, CHI2, CHI2_DISTANCE, ENTROPY, INTERSECTION, SECH
from visionkl.backend.gpu.launch import FLOATS, declare_for, launch

__all__ = [
    "ABSOLUTE",
    "CHI2",
    "CHI2_DISTANCE",
    "ENTROPY",
    "INTERSECTION",
    "SECH",
    "add_pairs",
    "exponentiate",
    "mirror",
    "squared_lengths",
]

# Rows and columns of a block, as in the source.
_TILE = 64

_ADD_PAIRS = declare_for(
    FLOATS,
    "kernels",
    "add_pairs",
    "const TYPE* X, const TYPE* Y, TYPE* out, long long first, long long last, long long n_columns, "
    "long long pitch, int d, int kind, TYPE tiny",
)
_MIRROR = declare_for(
    FLOATS, "kernels", "mirror", "TYPE* matrix, long long n, long long first, long long last"
)


def add_pairs(
    kind: tuple[int, ...],
    X: Any,
    Y: Any,
    out: Any,
    first: int,
    last: int,
    n_columns: int,
    tiny: Any,
    coefficients: Any,
) -> None:
    """Fill a part of the matrix; see the CPU's function. `coefficients` are not used."""
    launch(
        _ADD_PAIRS[out.dtype.name], X, Y, out, first, last, n_columns, out.shape[1], X.shape[1], len(kind),
        tiny, blocks=-(-(last - first) // _TILE) * -(-n_columns // _TILE),
    )  # fmt: skip


def mirror(matrix: Any, first: int, last: int) -> None:
    """Copy what is left of the diagonal, in some rows, to the other side of it; see the CPU's function."""
    launch(_MIRROR[matrix.dtype.name], matrix, len(matrix), first, last, threads=(last - first) * last)


def squared_lengths(rows: Any) -> Any:
    """Return the inner product of each row with itself; see the CPU's function."""
    return glue.squared_lengths(rows)


def exponentiate(numbers: Any, factor: float) -> None:
    """Put exponentials in the place of numbers; see the CPU's function."""
    numbers[...] = glue.exponentials(numbers, factor)
