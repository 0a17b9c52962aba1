"""The element-wise halves of explicit kernel maps: waves (METHODS §2), spectra and grids (METHODS §4).

A random Fourier map is a matrix product and a cosine. The product is BLAS's; the cosine passes over the
result of a block of rows while that is still in a cache, and takes a few per cent of the product's time.
"""

# Numba gives intrinsics a typing context that their callers do not see.
# mypy: disable-error-code="no-untyped-def, call-arg, var-annotated"

import numpy as np

from visionkl.backend.cpu.elementary import binary_logarithm, cosine_of_turns
from visionkl.backend.cpu.jit import compiled
from visionkl.backend.cpu.simd import piece


@compiled
def make_waves(phases, first, last, offsets, scale, coefficients):
    """Put `scale · cos(2π (phase + offset))` in the place of each phase of some columns.

    Parameters
    ----------
    phases : ndarray of float, shape (n, d)
        In turns; contiguous.
    first, last : int
        The columns from `first` to before `last`.
    offsets : ndarray of the same dtype, shape (d,)
        Contiguous.
    scale : float of the same dtype
    coefficients : tuple of float of the same dtype
        From `elementary.waves`.
    """
    n, d = phases.shape
    width = last - first
    ahead = piece(offsets, first, width)
    for i in range(n):
        row = piece(phases, i * d + first, width)
        for j in range(width):
            row[j] = scale * cosine_of_turns(row[j] + ahead[j], coefficients)


@compiled
def make_waves_and_slopes(phases, offsets, scale, coefficients, slopes):
    """Do as `make_waves` with all columns, and write `−scale · sin(2π (phase + offset))` into `slopes`."""
    n, d = phases.shape
    quarter = phases.dtype.type(0.25)
    for i in range(n):
        row, slope = piece(phases, i * d, d), piece(slopes, i * d, d)
        for j in range(d):
            turns = row[j] + offsets[j]
            row[j] = scale * cosine_of_turns(turns, coefficients)
            slope[j] = scale * cosine_of_turns(turns + quarter, coefficients)


@compiled
def sample_spectrum(X, frequency, amplitudes, tiny, logarithms, waves, out):
    """Fill the homogeneous map: for each feature √x times waves of log x.

    Parameters
    ----------
    X : ndarray of float, shape (n, d)
        Not negative; contiguous.
    frequency : float of the same dtype
        Turns of the first wave for a doubling of x.
    amplitudes : ndarray of the same dtype, shape (order + 1,)
    tiny : float of the same dtype
        The smallest normal number.
    logarithms, waves : tuple of float of the same dtype
        From `elementary`.
    out : ndarray of the same dtype, shape (n, (2 order + 1) d)
        Receives d constants, d cosines of the first wave, d sines of it, d cosines of the second, and so on.
    """
    n, d = X.shape
    width = (2 * amplitudes.shape[0] - 1) * d
    quarter = X.dtype.type(0.25)
    roots, turns = np.empty(d, X.dtype), np.empty(d, X.dtype)
    for i in range(n):
        x, constants = piece(X, i * d, d), piece(out, i * width, d)
        for j in range(d):
            roots[j] = np.sqrt(x[j])
            turns[j] = frequency * binary_logarithm(max(x[j], tiny), logarithms)
            constants[j] = amplitudes[0] * roots[j]
        for k in range(1, amplitudes.shape[0]):
            cosines = piece(out, i * width + (2 * k - 1) * d, d)
            sines = piece(out, i * width + 2 * k * d, d)
            times, amplitude = X.dtype.type(k), amplitudes[k]
            for j in range(d):
                cosines[j] = amplitude * roots[j] * cosine_of_turns(times * turns[j], waves)
                sines[j] = amplitude * roots[j] * cosine_of_turns(times * turns[j] - quarter, waves)


@compiled
def pack_neighbours(cells, lower, upper, n_points, counts, columns, values):
    """Write the coefficients of neighbouring grid points as rows of a sparse matrix; zeros are left out.

    Parameters
    ----------
    cells : ndarray of int64, shape (n, d)
        The grid point below each number.
    lower, upper : ndarray of float, shape (n, d)
        Coefficients of that point and of the next.
    n_points : int
        Grid points of a feature.
    counts : ndarray of int64, shape (n,)
        Receives how many coefficients each row has.
    columns : ndarray of int32 or int64, shape (2 n d,)
    values : ndarray of float, shape (2 n d,)
        Receive the columns and the coefficients, row after row.

    Returns
    -------
    int
        How many there are in all.
    """
    n, d = cells.shape
    total = 0
    for i in range(n):
        first = total
        for j in range(d):
            column = j * n_points + cells[i, j]
            if lower[i, j] != 0:
                columns[total], values[total] = column, lower[i, j]
                total += 1
            if upper[i, j] != 0:
                columns[total], values[total] = column + 1, upper[i, j]
                total += 1
        counts[i] = total - first
    return total


@compiled
def pursue(similarities, gram, norms, tolerance, chosen, coefficients, greedy):
    """Project samples on few representatives each, in the kernel's space.

    The representatives of a sample are taken one after the other: those given in `chosen`, or, if `greedy`,
    the one that is most like what is left of the sample (orthogonal matching pursuit). A factor L Lᵀ of the
    kernel between those taken grows by a row each time. One that depends on those before it is passed over.

    Parameters
    ----------
    similarities : ndarray of float, shape (n, D)
        Kernel between samples and representatives.
    gram : ndarray of float64, shape (D, D)
        Kernel between representatives.
    norms : ndarray of float64, shape (D,)
        Their lengths, the roots of the diagonal.
    tolerance : float
        Share of a squared length that must stick out of the span of those before.
    chosen : ndarray of int64, shape (n, P)
        Given, or filled if `greedy`; -1 where there is nothing left to take.
    coefficients : ndarray of float64, shape (n, P)
        Receives the coefficients; 0 for a representative that was passed over.
    greedy : bool
    """
    n, n_all = similarities.shape
    n_most = chosen.shape[1]
    factor, solved, weights = np.zeros((n_most, n_most)), np.zeros(n_most), np.zeros(n_most)
    taken, places = np.zeros(n_most, np.int64), np.zeros(n_most, np.int64)
    left, closed = np.zeros(n_all), np.zeros(n_all, np.bool_)
    for i in range(n):
        closed[:] = False
        left[:] = similarities[i]
        m = 0
        for p in range(n_most):
            candidate = _most_alike(left, norms, closed) if greedy else chosen[i, p]
            if greedy:
                chosen[i, p] = -1
            while candidate >= 0:
                closed[candidate] = True
                # A new row of the factor: solve L row = gram[taken, candidate].
                sticking_out = gram[candidate, candidate]
                for a in range(m):
                    entry = gram[taken[a], candidate]
                    for b in range(a):
                        entry -= factor[a, b] * factor[m, b]
                    factor[m, a] = entry / factor[a, a]
                    sticking_out -= factor[m, a] * factor[m, a]
                if sticking_out > tolerance * gram[candidate, candidate]:
                    break
                candidate = _most_alike(left, norms, closed) if greedy else -1
            coefficients[i, p] = 0
            if candidate < 0:
                continue
            factor[m, m] = np.sqrt(sticking_out)
            value = float(similarities[i, candidate])
            for b in range(m):
                value -= factor[m, b] * solved[b]
            solved[m] = value / factor[m, m]
            taken[m], places[m] = candidate, p
            chosen[i, p] = candidate
            m += 1
            if greedy and p + 1 < n_most:
                _solve_back(factor, solved, weights, m)
                left[:] = similarities[i]
                for a in range(m):
                    row = gram[taken[a]]
                    for z in range(n_all):
                        left[z] -= weights[a] * row[z]
        _solve_back(factor, solved, weights, m)
        for a in range(m):
            coefficients[i, places[a]] = weights[a]


@compiled
def _most_alike(left, norms, closed):
    """Find the representative with the largest cosine to what is left; -1 if nothing is left."""
    best, most = -1, 0.0
    for z in range(left.shape[0]):
        if not closed[z] and norms[z] > 0:
            share = abs(left[z]) / norms[z]
            if share > most:
                best, most = z, share
    return best


@compiled
def _solve_back(factor, solved, weights, m):
    """Solve Lᵀ weights = solved."""
    for a in range(m - 1, -1, -1):
        value = solved[a]
        for b in range(a + 1, m):
            value -= factor[b, a] * weights[b]
        weights[a] = value / factor[a, a]
