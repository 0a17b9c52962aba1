"""Dual coordinate descent for linear support vector machines, on rows of several kinds.

One loop serves all kinds. What differs is how a row is multiplied and added, which the compiler settles by
the tuple of arrays that stands for the rows:

* `(X,)`: a dense matrix;
* `(data, indices, indptr)`: a sparse one;
* `(codes, books)`: codes `(n, n_blocks)` and codebooks `(n_blocks, n_codewords, size)`, decoded on the way;
* `(gram, diagonal)`: inner products of all rows; the weights are then scores, `Σ alpha · label · gram row`.

The steps are those of Hsieh et al. (ICML 2008): one dual number at a time is set to its best value, and
numbers that stay at a bound are put aside until the others are settled (shrinking). Data may be float32; all
sums are float64.

Regression has two numbers for each row, one for either side of the tube: number i belongs to row i, or to row
`i - n`. What is asked of a number's row is `label · score ≥ target`.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np
from numba.extending import overload

from visionkl.backend.cpu.jit import LICENCES, compiled


def row_product(rows, i, w):
    """Return the inner product of row i with weights."""


def add_row(rows, i, share, w):
    """Add a share of row i to weights."""


@overload(row_product, jit_options={"fastmath": LICENCES})
def _row_product(rows, i, w):
    if len(rows) == 1:

        def dense(rows, i, w):
            row = rows[0][i]
            total = 0.0
            for j in range(len(row)):
                total += row[j] * w[j]
            return total

        return dense
    if len(rows) == 3:

        def sparse(rows, i, w):
            total = 0.0
            for p in range(rows[2][i], rows[2][i + 1]):
                total += rows[0][p] * w[rows[1][p]]
            return total

        return sparse
    if rows[1].ndim == 1:
        return lambda rows, i, w: w[i]

    def coded(rows, i, w):
        codes, books = rows
        size = books.shape[2]
        total = 0.0
        for block in range(codes.shape[1]):
            word = books[block, codes[i, block]]
            for j in range(size):
                total += word[j] * w[block * size + j]
        return total

    return coded


@overload(add_row, jit_options={"fastmath": LICENCES})
def _add_row(rows, i, share, w):
    if len(rows) == 3:

        def sparse(rows, i, share, w):
            for p in range(rows[2][i], rows[2][i + 1]):
                w[rows[1][p]] += share * rows[0][p]

        return sparse
    if len(rows) == 1 or rows[1].ndim == 1:

        def dense(rows, i, share, w):
            row = rows[0][i]
            for j in range(len(row)):
                w[j] += share * row[j]

        return dense

    def coded(rows, i, share, w):
        codes, books = rows
        size = books.shape[2]
        for block in range(codes.shape[1]):
            word = books[block, codes[i, block]]
            for j in range(size):
                w[block * size + j] += share * word[j]

    return coded


@compiled
def squared_norms(rows, bias, w, norms):
    """Squared norms of all rows, each with its bias; `w` is a vector of zeros to work in."""
    for i in range(len(norms)):
        add_row(rows, i, 1.0, w)
        norms[i] = row_product(rows, i, w) + bias * bias
        add_row(rows, i, -1.0, w)


@compiled
def multiply_rows(rows, bias, w, scores):
    """Inner products of all rows, each with its bias, with weights."""
    for i in range(len(scores)):
        scores[i] = row_product(rows, i, w) + bias * w[-1]


@compiled
def add_rows(rows, bias, shares, w):
    """Add all rows, each with its bias, times their shares to weights."""
    for i in range(len(shares)):
        if shares[i] != 0.0:
            add_row(rows, i, shares[i], w)
            w[-1] += shares[i] * bias


@compiled
def descend(rows, bias, labels, targets, upper, diagonal, norms, alpha, w, tolerance, n_epochs, draws):
    """Improve the dual numbers `alpha`, and with them `w = Σ alpha · label · row`, epoch by epoch.

    Parameters
    ----------
    rows : tuple of arrays
        See the head of this module.
    bias : float
        A constant at the end of every row; `w` is one longer than the rows.
    labels, targets : ndarray of float64, shape (m,)
        m = n for classification and 2 n for regression.
    upper : ndarray of float64, shape (m,)
        Largest value of each dual number.
    diagonal : ndarray of float64, shape (m,)
        Added to the diagonal of the dual's matrix.
    norms : ndarray of float64, shape (n,)
    alpha : ndarray of float64, shape (m,)
    w : ndarray of float64
    tolerance : float
        Stop when the projected gradients of an epoch span less than this.
    n_epochs : int
        Stop after so many.
    draws : ndarray of float64, shape (m,)
        Random numbers from 0 to 1.

    Returns
    -------
    int
        Number of epochs.
    """
    n, n_rows = len(alpha), len(norms)
    active = np.arange(n)
    n_active = n
    highest_before, lowest_before = np.inf, -np.inf
    for epoch in range(n_epochs):
        highest, lowest = -np.inf, np.inf
        _shuffle(active, n_active, draws, epoch)
        k = 0
        while k < n_active:
            i = active[k]
            row = i if i < n_rows else i - n_rows
            score = row_product(rows, row, w) + bias * w[-1]
            gradient = labels[i] * score - targets[i] + diagonal[i] * alpha[i]
            projected, aside = _project(gradient, alpha[i], upper[i], highest_before, lowest_before)
            if aside:
                n_active -= 1
                active[k], active[n_active] = active[n_active], active[k]
                continue
            k += 1
            highest, lowest = max(highest, projected), min(lowest, projected)
            if projected != 0.0:
                before, bend = alpha[i], norms[row] + diagonal[i]
                # An empty row pulls its number all the way; those of losses that are not squared are bounded.
                target = before - gradient / bend if bend > 0.0 else -gradient * np.inf
                alpha[i] = min(max(target, 0.0), upper[i])
                share = (alpha[i] - before) * labels[i]
                add_row(rows, row, share, w)
                w[-1] += share * bias
        if highest - lowest <= tolerance or n_active == 0:
            if n_active == n:
                return epoch + 1
            n_active = n
            highest_before, lowest_before = np.inf, -np.inf
        else:
            highest_before = highest if highest > 0.0 else np.inf
            lowest_before = lowest if lowest < 0.0 else -np.inf
    return n_epochs


@compiled
def _project(gradient, alpha, upper, highest_before, lowest_before):
    """Return the gradient as far as bounds let the number follow it, and whether to put the number aside."""
    if upper <= 0.0:  # a sample without weight stays where it is
        return 0.0, False
    if alpha <= 0.0:
        return min(gradient, 0.0), gradient > highest_before
    if alpha >= upper:
        return max(gradient, 0.0), gradient < lowest_before
    return gradient, False


@compiled
def _shuffle(active, n_active, draws, epoch):
    for k in range(n_active - 1):
        other = k + int(draws[(k + 7919 * epoch) % len(draws)] * (n_active - k))
        active[k], active[other] = active[other], active[k]
