"""Loops over bits: thresholds to bits, agreements between bits, and what a learner asks of them.

Bits lie in words of 64, bit k of a sample in word k // 64 at the place k % 64; seen as bytes they are what
NumPy's `packbits(..., bitorder="little")` gives. What is missing in the last word is 0.

**Stumps** ask whether a feature is above a threshold. They are sorted: those of a feature follow each other,
from the lowest threshold to the highest. A feature's bits are then as many ones as there are thresholds below
it, its *rank*, followed by zeros. So ranks are found first, and bits are made of them by shifts, for all
stumps of a feature at once. A linear function of the bits needs no bits at all: it is a sum of one table
entry for each feature, at its rank.

Few thresholds are counted for 64 samples at a time, with two instructions for 16 comparisons. Of many, every
16th is counted, and each sample is then compared with the 16 thresholds that it lies among.

For that, samples go through in blocks, turned so that a feature's numbers stand side by side (`columns`).
Only features that a stump asks for are turned, so sparse rows with a million features are no more work than
dense ones with some thousand. Rows come as a tuple, which the compiler tells apart: `(X,)` is dense and
contiguous, `(data, indices, indptr)` sparse.
"""

# mypy: disable-error-code="no-untyped-def, call-arg, var-annotated"

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, overload

from visionkl.backend.cpu.codes import look_up_lines
from visionkl.backend.cpu.jit import compiled
from visionkl.backend.cpu.simd import (
    INT64,
    Registers,
    address,
    load,
    piece,
    shifted,
    splat,
    vector_type,
    write,
)
from visionkl.backend.cpu.solver import look_up

#: Samples of a block.
BLOCK = 64

_LANES = 16
# Thresholds of a feature that are all counted.
_FEW = 40
_COUNTS = Registers(types.int32, _LANES, BLOCK // _LANES)


@intrinsic
def _no_counts(typing_context):
    """Begin to count for the samples of a block."""

    def generate(context, builder, signature, arguments):
        return ir.Constant(ir.ArrayType(_COUNTS.vector, _COUNTS.count), None)

    return _COUNTS(), generate


@intrinsic
def _count_above(typing_context, counts, columns, at, threshold):
    """Add 1 to the counts of the samples whose numbers, from `at` on, are above a threshold."""

    def generate(context, builder, signature, arguments):
        result, threshold_value = arguments[0], splat(builder, arguments[3], _LANES)
        for k in range(_COUNTS.count):
            pointer = address(
                context, builder, columns, arguments[1], shifted(builder, arguments[2], k * _LANES)
            )
            numbers = load(builder, pointer, vector_type(columns.dtype, _LANES))
            above = builder.zext(builder.fcmp_ordered(">", numbers, threshold_value), _COUNTS.vector)
            result = builder.insert_value(result, builder.add(builder.extract_value(result, k), above), k)
        return result

    return _COUNTS(counts, columns, types.int64, columns.dtype), generate


@intrinsic
def _count_rising(typing_context, thresholds, at, number):
    """Count how many of 16 thresholds, from `at` on, a number is above, up to the first that it is not."""

    def generate(context, builder, signature, arguments):
        pointer = address(context, builder, thresholds, arguments[0], arguments[1])
        some = load(builder, pointer, vector_type(thresholds.dtype, _LANES))
        above = builder.fcmp_ordered("<", some, splat(builder, arguments[2], _LANES))
        wide = builder.zext(builder.bitcast(above, ir.IntType(_LANES)), INT64)
        return builder.cttz(builder.not_(wide), ir.Constant(ir.IntType(1), 1))

    return types.int64(thresholds, types.int64, thresholds.dtype), generate


@intrinsic
def _count_bits(typing_context, word):
    """Count the ones of a word."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


def fill_columns(rows, first, n, used, places, columns):
    """Turn the rows `first, first + 1, ...` into `columns (n_used, BLOCK)`."""


@overload(fill_columns)
def _fill_columns(rows, first, n, used, places, columns):
    if len(rows) == 1:

        def dense(rows, first, n, used, places, columns):
            d = rows[0].shape[1]
            for start in range(0, len(used), _LANES):  # a cache line of each row
                stop = min(start + _LANES, len(used))
                for i in range(n):
                    row = piece(rows[0], (first + i) * d, d)
                    for u in range(start, stop):
                        columns[u, i] = row[used[u]]

        return dense

    def sparse(rows, first, n, used, places, columns):
        data, indices, indptr = rows
        columns[:] = 0
        for i in range(n):
            for p in range(indptr[first + i], indptr[first + i + 1]):
                place = places[indices[p]]
                if place >= 0:
                    columns[place, i] = data[p]

    return sparse


@compiled
def rank_features(rows, first, n, used, places, ends, thresholds, columns, ranks):
    """Count, for each feature of some samples, the thresholds that it is above.

    Parameters
    ----------
    rows : tuple of arrays
        See the head of this module.
    first, n : int
        The samples: n, at most BLOCK, from the first on.
    used : ndarray of uint32, shape (n_used,)
        Features that a stump asks for, rising.
    places : ndarray of int64, shape (n_features,)
        Where in `used` a feature is; -1 if it is not. Sparse rows need it.
    ends : ndarray of int64, shape (n_used + 1,)
        Where the thresholds of each used feature begin, and where the last ones end.
    thresholds : ndarray of the rows' dtype, shape (n_stumps + 16,)
        Rising, for each feature; the last 16 are there to be read, and may be anything.
    columns : ndarray of the rows' dtype, shape (n_used, BLOCK)
        To work in; contiguous.
    ranks : ndarray of int32, shape (n_used, BLOCK)
        Contiguous. Receives the counts; anything beyond n.
    """
    fill_columns(rows, first, n, used, places, columns)
    numbers, counted = columns.reshape(-1), ranks.reshape(-1)
    for u in range(len(used)):
        start, stop = ends[u], ends[u + 1]
        counts = _no_counts()
        if stop - start <= _FEW:
            for k in range(start, stop):
                counts = _count_above(counts, numbers, u * BLOCK, thresholds[k])
            write(counted, u * BLOCK, counts)
            continue
        for k in range(start + _LANES - 1, stop, _LANES):
            counts = _count_above(counts, numbers, u * BLOCK, thresholds[k])
        write(counted, u * BLOCK, counts)
        for i in range(u * BLOCK, (u + 1) * BLOCK):
            below = _LANES * np.int64(counted[i])
            # Past the last threshold of this feature come those of the next.
            counted[i] = min(below + _count_rising(thresholds, start + below, numbers[i]), stop - start)


@compiled
def encode_stumps(rows, first, used, places, ends, thresholds, columns, ranks, out):
    """Write the bits of samples.

    Parameters
    ----------
    rows, first, used, places, ends, thresholds, columns, ranks
        As in `rank_features`; `first` is the row that the first line of `out` is for.
    out : ndarray of uint64, shape (n, n_words)
    """
    n = len(out)
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        rank_features(rows, first + start, m, used, places, ends, thresholds, columns, ranks)
        _write_ranks(ranks, ends, out[start : start + m])


@compiled
def _write_ranks(ranks, ends, out):
    """Make bits of ranks: of each feature as many ones as it has thresholds below it, then zeros."""
    words = np.zeros(BLOCK, np.uint64)
    one, everything = np.uint64(1), ~np.uint64(0)
    for u in range(len(ends) - 1):
        k = ends[u]
        while k < ends[u + 1]:
            # The bits of a feature that lie in one word.
            place = k % 64
            width, past = min(64 - place, ends[u + 1] - k), k - ends[u]
            for i in range(BLOCK):
                ones = min(max(np.int64(ranks[u, i]) - past, 0), width)
                mask = (one << np.uint64(ones)) - one if ones < 64 else everything
                words[i] |= mask << np.uint64(place)
            k += width
            if k % 64 == 0 or k == ends[-1]:
                for i in range(len(out)):
                    out[i, (k - 1) // 64] = words[i]
                words[:] = 0


@compiled
def score_stumps(rows, first, used, places, ends, thresholds, columns, ranks, tables, scores):
    """Add up table entries at the ranks of features: one linear function of the bits.

    Parameters
    ----------
    rows, first, used, places, ends, thresholds, columns, ranks
        As in `rank_features`; `first` is the row that the first score is for.
    tables : ndarray of float32, shape (n_used, most stumps of a feature + 1)
    scores : ndarray of float64, shape (n,)
        Added to.
    """
    for start in range(0, len(scores), BLOCK):
        m = min(BLOCK, len(scores) - start)
        rank_features(rows, first + start, m, used, places, ends, thresholds, columns, ranks)
        look_up(ranks, 0, m, tables, scores[start : start + m])


@compiled
def score_stumps_in_lines(
    rows, first, used, places, ends, thresholds, columns, ranks, tables, sums, scores, count
):
    """Do as `score_stumps` for many functions, whose entries stand side by side.

    Parameters
    ----------
    rows, first, used, places, ends, thresholds, columns, ranks
        As in `rank_features`.
    tables : ndarray of float32, shape (n_used, most stumps of a feature + 1, lanes)
    sums, count
        As in `visionkl.backend.cpu.codes.look_up_lines`.
    scores : ndarray of float64, shape (n, lanes)
        Added to.
    """
    for start in range(0, len(scores), BLOCK):
        m = min(BLOCK, len(scores) - start)
        rank_features(rows, first + start, m, used, places, ends, thresholds, columns, ranks)
        look_up_lines(ranks, 0, 0, m, tables, sums, scores[start : start + m], count)


@compiled
def encode_above(values, thresholds, out):
    """Write the bits of numbers that are above their thresholds.

    Parameters
    ----------
    values : ndarray of float, shape (n, m)
    thresholds : ndarray of the same dtype, shape (m,)
    out : ndarray of uint64, shape (n, ceil(m / 64))
    """
    n, m = values.shape
    for i in range(n):
        for word in range(out.shape[1]):
            total = np.uint64(0)
            for k in range(64 * word, min(64 * word + 64, m)):
                total |= np.uint64(values[i, k] > thresholds[k]) << np.uint64(k - 64 * word)
            out[i, word] = total


@compiled
def count_agreements(left, right, n_bits, scale, out):
    """Write how many bits of two samples agree, times a scale, for all pairs.

    Parameters
    ----------
    left, right : ndarray of uint64, shapes (n, n_words) and (m, n_words)
    n_bits : int
        Bits that count; the others must be 0.
    scale : float of the dtype of `out`
    out : ndarray of float, shape (n, m)
    """
    for i in range(len(left)):
        for j in range(len(right)):
            differing = np.uint64(0)
            for word in range(left.shape[1]):
                differing += _count_bits(left[i, word] ^ right[j, word])
            out[i, j] = scale * (n_bits - np.int64(differing))


@compiled
def weigh_agreements(left, right, tables, out):
    """Write the weight of the bits of two samples that agree, for all pairs.

    Parameters
    ----------
    left, right : ndarray of uint8, shapes (n, n_bytes) and (m, n_bytes)
    tables : ndarray of float64, shape (n_bytes, 256)
        Of each byte, the weight of the bits that are 0 in a number.
    out : ndarray of float, shape (n, m)
    """
    for i in range(len(left)):
        for j in range(len(right)):
            total = 0.0
            for byte in range(left.shape[1]):
                total += tables[byte, left[i, byte] ^ right[j, byte]]
            out[i, j] = total


@compiled
def count_ones(bits, classes, first, last, counts):
    """Count the samples of each class that have a bit.

    Parameters
    ----------
    bits : ndarray of uint8, shape (n, n_bytes)
    classes : ndarray of int64, shape (n,)
    first, last : int
        The bytes to go over.
    counts : ndarray of int64, shape (n_classes, 8 n_bytes)
        Added to.
    """
    for i in range(len(bits)):
        own = counts[classes[i]]
        for byte in range(first, last):
            value = np.int64(bits[i, byte])
            for k in range(8):
                own[8 * byte + k] += (value >> k) & 1


@compiled
def pack_responses(bits, samples, classes, signs, first, out):
    """Write what samples answer to the guesses of classes, four answers a byte.

    An answer is 1 where bit and guess agree, 2 where they do not, and 0 where there is no guess.

    Parameters
    ----------
    bits : ndarray of uint8, shape (n, n_bytes)
    samples, classes : ndarray of int64, shape (m,)
        Which sample is asked, and whose guess.
    signs : ndarray of int8, shape (n_classes, 8 n_bytes)
        The guesses: 1, -1, or 0 for none.
    first : int
        The sample to which the first line of `out` belongs.
    out : ndarray of uint8, shape (m', 2 n_bytes)
    """
    for row in range(len(out)):
        own, guess = bits[samples[first + row]], signs[classes[first + row]]
        for place in range(out.shape[1]):
            value, total = np.int64(own[place >> 1]) >> (4 * (place & 1)), 0
            for k in range(4):
                answer = guess[4 * place + k] * (2 * ((value >> k) & 1) - 1)
                total |= (1 if answer > 0 else (2 if answer < 0 else 0)) << (2 * k)
            out[row, place] = total
