"""Sums over codes on a GPU: the functions of `visionkl.backend.cpu.codes` on CuPy arrays."""

from typing import Any

import numpy as np

from visionkl.backend.cpu.codes import LANES
from visionkl.backend.glue import decoded_sums
from visionkl.backend.gpu import device
from visionkl.backend.gpu.launch import CODES, declare_for, launch
from visionkl.backend.gpu.solver import scatter

__all__ = ["LANES", "add_decoded", "look_up_lines", "multiply_decoded", "scatter_lines"]

# Samples that a block of threads adds up.
_CHUNK = 4096


_LINE_SCORES = declare_for(
    CODES,
    "codes",
    "line_scores",
    "const TYPE* codes, const float* tables, double* scores, long long n, long long first, "
    "long long n_samples, int first_block, int n_tables, int n_codewords, int lanes",
)
_SCATTER_LINES = declare_for(
    CODES,
    "codes",
    "scatter_lines",
    "const TYPE* codes, const float* shares, float* tables, long long n, long long first, "
    "long long n_samples, int first_block, int n_codewords, int lanes, int n_chunks",
)
_MULTIPLY_DECODED = declare_for(
    CODES,
    "codes",
    "multiply_decoded",
    "const TYPE* codes, const float* words, const float* weights, double* scores, long long n, "
    "long long first, long long n_samples, int n_blocks, int n_codewords, int size",
)


def look_up_lines(
    codes: Any, first_block: int, first: int, last: int, tables: Any, sums: Any, scores: Any, count: Any
) -> None:
    """Add up the lines of tables that codes point at; see the CPU's function.

    `sums` and `count` are not used.
    """
    n_tables, n_codewords, lanes = tables.shape
    launch(
        _LINE_SCORES[codes.dtype.name], codes, tables, scores, codes.shape[1], first, last - first,
        first_block, n_tables, n_codewords, lanes, threads=(last - first) * lanes,
    )  # fmt: skip


def scatter_lines(codes: Any, first_block: int, first: int, shares: Any, tables: Any, count: Any) -> None:
    """Add lines of shares to the lines of tables that codes point at; see the CPU's function.

    The order of additions is not fixed: the last digits may differ from call to call. `count` is not used.
    """
    n_tables, n_codewords, lanes = tables.shape
    n_chunks = -(-len(shares) // _CHUNK)
    launch(
        _SCATTER_LINES[codes.dtype.name], codes, shares, tables, codes.shape[1], first, len(shares),
        first_block, n_codewords, lanes, n_chunks, blocks=n_tables * (lanes // LANES) * n_chunks,
    )  # fmt: skip


def multiply_decoded(codes: Any, first: int, last: int, words: Any, weights: Any, scores: Any) -> None:
    """Decode samples block by block, and multiply them with weights; see the CPU's function."""
    n_blocks, n_codewords, size = words.shape
    launch(
        _MULTIPLY_DECODED[codes.dtype.name], codes, words, weights, scores, codes.shape[1], first,
        last - first, n_blocks, n_codewords, size, threads=last - first,
    )  # fmt: skip


def add_decoded(codes: Any, first: int, words: Any, shares: Any, total: Any) -> None:
    """Add up decoded samples, each times its share; see the CPU's function.

    Shares of equal codes are added first, and codewords multiplied once.
    """
    xp = device.namespace()
    n_blocks, n_codewords, _ = words.shape
    samples = xp.arange(first, first + len(shares), dtype=np.uint32)
    histograms = xp.zeros((n_blocks, n_codewords), np.float64)
    scatter(codes, 0, n_blocks, samples, shares, histograms)
    total += decoded_sums(histograms, words)
