"""Sums over product-quantiser codes, for many tables at once and without tables.

Many linear functions of the same codes, such as one for each class, have *tables side by side*: what all
functions give for a codeword stands in one line, `tables[block, codeword, :]`, so that a code is read once
and a line is added with one or two instructions. For 16 functions this is ten times as fast as one table
after the other (`visionkl.backend.cpu.solver`). Lines are a multiple of `LANES` long and should begin at a
cache line (`visionkl.backend.scratch`): lines that straddle two take three times as long.

The loops without tables decode each block as they go (*immediate expansion*). They are slower for any but
very few samples and are here to be compared with.
"""

# mypy: disable-error-code="no-untyped-def, call-arg"

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from visionkl.backend.cpu.jit import compiled
from visionkl.backend.cpu.simd import address, load, shifted, store, vector_type

#: Numbers of float32 in a cache line.
LANES = 16

# Samples whose sums stay in the cache while tables pass by.
_BAND = 1024


@intrinsic
def _add_lines(typing_context, sums, at, lines, places, count):
    """Add lines that begin at some places of an array to one that begins at `at` of another.

    `count` is a tuple: a line has `len(count) * LANES` numbers.
    """

    def generate(context, builder, signature, arguments):
        vector = vector_type(sums.dtype, LANES)
        starts = [builder.extract_value(arguments[3], k) for k in range(len(places))]
        for start in range(0, len(count) * LANES, LANES):
            parts = []
            for place in starts:
                source = address(context, builder, lines, arguments[2], shifted(builder, place, start))
                parts.append(load(builder, source, vector))
            while len(parts) > 1:
                parts = [builder.fadd(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
            target = address(context, builder, sums, arguments[0], shifted(builder, arguments[1], start))
            store(builder, builder.fadd(load(builder, target, vector), parts[0]), target)
        return context.get_dummy_value()

    return types.void(sums, types.int64, lines, places, count), generate


@compiled
def look_up_lines(codes, first_block, first, last, tables, sums, scores, count):
    """Add up the lines of the tables that the codes of each sample point at.

    Parameters
    ----------
    codes : ndarray of uint8 or uint16, shape (n_blocks, n)
    first_block : int
        The block that the first table is for.
    first, last : int
        The samples to go over.
    tables : ndarray of float32, shape (m, n_codewords, lanes)
    sums : ndarray of float32, shape (1024, lanes)
        To work in.
    scores : ndarray of float64, shape (last - first, lanes)
        Added to.
    count : tuple
        `lanes / LANES` of anything.
    """
    n_tables, n_codewords, lanes = tables.shape
    lines, flat = tables.reshape(-1), sums.reshape(-1)
    in_fours = n_tables - n_tables % 4
    for start in range(first, last, _BAND):
        n = min(_BAND, last - start)
        sums[:n] = np.float32(0)
        for m in range(0, in_fours, 4):
            block, begin = first_block + m, m * n_codewords
            code_0, code_1 = codes[block, start : start + n], codes[block + 1, start : start + n]
            code_2, code_3 = codes[block + 2, start : start + n], codes[block + 3, start : start + n]
            for i in range(n):
                place_0 = (begin + code_0[i]) * lanes
                place_1 = (begin + n_codewords + code_1[i]) * lanes
                place_2 = (begin + 2 * n_codewords + code_2[i]) * lanes
                place_3 = (begin + 3 * n_codewords + code_3[i]) * lanes
                _add_lines(flat, i * lanes, lines, (place_0, place_1, place_2, place_3), count)
        for m in range(in_fours, n_tables):
            code_0 = codes[first_block + m, start : start + n]
            for i in range(n):
                _add_lines(flat, i * lanes, lines, ((m * n_codewords + code_0[i]) * lanes,), count)
        own = scores[start - first : start - first + n]
        for i in range(n):
            for k in range(lanes):
                own[i, k] += sums[i, k]


@compiled
def scatter_lines(codes, first_block, first, shares, tables, count):
    """Add the line of shares of each sample to the lines of the tables that its codes point at.

    Parameters
    ----------
    codes : ndarray of uint8 or uint16, shape (n_blocks, n)
    first_block : int
        The block that the first table is for.
    first : int
        The sample to which the first line of shares belongs.
    shares : ndarray of float32, shape (m, lanes)
    tables : ndarray of float32, shape (n_tables, n_codewords, lanes)
        Added to.
    count : tuple
        `lanes / LANES` of anything.
    """
    n_tables, n_codewords, lanes = tables.shape
    lines, flat = tables.reshape(-1), shares.reshape(-1)
    for m in range(n_tables):
        code = codes[first_block + m, first : first + len(shares)]
        for i in range(len(shares)):
            _add_lines(lines, (m * n_codewords + code[i]) * lanes, flat, (i * lanes,), count)


@compiled
def multiply_decoded(codes, first, last, words, weights, scores):
    """Decode samples block by block, and multiply them with weights.

    Parameters
    ----------
    codes : ndarray of uint8 or uint16, shape (n_blocks, n)
    first, last : int
        The samples to go over.
    words : ndarray of float32, shape (n_blocks, n_codewords, size)
    weights : ndarray of float32, shape (n_blocks, size)
    scores : ndarray of float64, shape (last - first,)
        Added to.
    """
    n_blocks, _, size = words.shape
    for block in range(n_blocks):
        book, own, code = words[block], weights[block], codes[block]
        for i in range(first, last):
            word = book[code[i]]
            total = np.float32(0)
            for j in range(size):
                total += word[j] * own[j]
            scores[i - first] += total


@compiled
def add_decoded(codes, first, words, shares, total):
    """Decode samples block by block, and add them up, each times its share.

    Parameters
    ----------
    codes : ndarray of uint8 or uint16, shape (n_blocks, n)
    first : int
        The sample to which the first share belongs.
    words : ndarray of float32, shape (n_blocks, n_codewords, size)
    shares : ndarray of float64, shape (m,)
    total : ndarray of float64, shape (n_blocks, size)
        Added to.
    """
    n_blocks, _, size = words.shape
    for block in range(n_blocks):
        book, own, code = words[block], total[block], codes[block]
        for i in range(len(shares)):
            word = book[code[first + i]]
            for j in range(size):
                own[j] += shares[i] * word[j]
