"""Passes over codes on a GPU: the functions of `visionkl.backend.cpu.solver` on CuPy arrays.

The bundle's small problem (`improve_pairs`) is a few numbers, one after the other, and stays on the CPU.
"""

from typing import Any

from visionkl.backend.gpu.launch import CODES, declare_for, launch

# Samples that a block of threads adds up: enough blocks for few tables, and few additions to the tables.
_CHUNK = 8192

_SCORES = declare_for(
    CODES,
    "solver",
    "code_scores",
    "const TYPE* codes, const float* tables, double* scores, long long n, long long first, "
    "long long n_samples, int n_blocks, int n_codewords",
)
_SCATTER = declare_for(
    CODES,
    "solver",
    "scatter",
    "const TYPE* codes, const unsigned int* samples, const double* shares, double* tables, long long n, "
    "long long n_samples, int first_block, int n_codewords, int n_chunks",
)


def look_up(codes: Any, first: int, last: int, tables: Any, scores: Any) -> None:
    """Add up the table entries that the codes of each sample point at; see the CPU's function."""
    n_blocks, n = codes.shape
    launch(
        _SCORES[codes.dtype.name], codes, tables, scores, n, first, last - first, n_blocks, tables.shape[1],
        threads=last - first,
    )  # fmt: skip


def scatter(codes: Any, first_block: int, last_block: int, samples: Any, shares: Any, tables: Any) -> None:
    """Add shares of samples to the table entries that their codes point at; see the CPU's function.

    The order of additions is not fixed: the last digits may differ from call to call.
    """
    n_samples = len(samples)
    n_chunks = -(-n_samples // _CHUNK)
    launch(
        _SCATTER[codes.dtype.name], codes, samples, shares, tables, codes.shape[1], n_samples, first_block,
        tables.shape[1], n_chunks, blocks=(last_block - first_block) * n_chunks,
    )  # fmt: skip
