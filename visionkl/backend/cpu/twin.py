"""The loops of twin kernels and twin Gaussian processes (METHODS §9).

`add_power_sums` reads two Gram matrices once and sums the products of all their element-wise powers, from
which the whole matrix of HSIC values follows. A strip of a row is raised to all powers in the nearest cache,
and 121 dot products for the degrees (11, 11) are made of it there: the matrices themselves pass by once.

`apply_polynomial` and `weigh_kl`, `weigh_hsic` are what the search for outputs does with every kernel value
beside the matrix products: each is one pass in the place of a dozen temporary arrays.
"""

# Numba finds the types of loops by itself.
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from visionkl.backend.cpu.jit import compiled

# Strips of 11 + 11 powers stay within the nearest cache.
_STRIP = 128


@compiled
def add_power_sums(K, G, scale_k, scale_g, first, last, products, row_sums_k, row_sums_g):
    """Sum powers of K and G, and the products of powers, over the rows `first` to `last`.

    Parameters
    ----------
    K, G : ndarray of float64, shape (m, m)
    scale_k, scale_g : float
        What the matrices are multiplied by before they are raised to powers.
    first, last : int
    products : ndarray of float64, shape (d1, d2)
        Σ K^i G^j is added, for i and j from 1 on.
    row_sums_k, row_sums_g : ndarray of float64, shapes (m, d1) and (m, d2)
        The sums of the rows' powers are written.
    """
    d1, d2, m = products.shape[0], products.shape[1], K.shape[1]
    left, right = np.empty((d1, _STRIP)), np.empty((d2, _STRIP))
    for row in range(first, last):
        row_sums_k[row] = 0
        row_sums_g[row] = 0
        for start in range(0, m, _STRIP):
            length = min(_STRIP, m - start)
            _raise(K[row, start : start + length], scale_k, left, row_sums_k[row])
            _raise(G[row, start : start + length], scale_g, right, row_sums_g[row])
            for i in range(d1):
                a = left[i]
                for j in range(d2):
                    b = right[j]
                    total = 0.0
                    for n in range(length):
                        total += a[n] * b[n]
                    products[i, j] += total


@compiled
def _raise(values, scale, powers, sums):
    """Write all powers of some values, and add their sums."""
    n = len(values)
    total = 0.0
    for k in range(n):
        powers[0, k] = values[k] * scale
        total += powers[0, k]
    sums[0] += total
    for power in range(1, len(powers)):
        total = 0.0
        for k in range(n):
            powers[power, k] = powers[power - 1, k] * powers[0, k]
            total += powers[power, k]
        sums[power] += total


@compiled
def apply_polynomial(values, coefficients, slopes):
    """Replace values g by ψ(g), and write g ψ'(g), the slope of ψ by the logarithm of g.

    Parameters
    ----------
    values, slopes : ndarray of float64, shape (n,)
    coefficients : tuple of float
        Of the powers 0, 1, 2, ... Their number must be known when the loop is compiled.
    """
    for k in range(len(values)):
        g = values[k]
        value, slope = coefficients[len(coefficients) - 1], 0.0
        for power in range(len(coefficients) - 2, -1, -1):
            slope = slope * g + value
            value = value * g + coefficients[power]
        values[k] = value
        slopes[k] = slope * g


@compiled
def weigh_kl(psi, slopes, solved, which, weights, eta, top, least, values):
    """Evaluate the KL criterion, and turn `slopes` into the weights of the samples in its gradient.

    Parameters
    ----------
    psi : ndarray of float64, shape (n, m)
        ψ of the kernels between the outputs sought and those of the samples.
    slopes : ndarray of float64, shape (n, m)
        As `apply_polynomial` writes them; they become the criterion's slopes by the logarithms of kernels.
    solved : ndarray of float64, shape (n, m)
        ψ(G)⁻¹ times `psi`.
    which : ndarray of int, shape (n,)
        The rows of `weights` and `eta` that belong to the outputs.
    weights : ndarray of float64, shape (n_all, m)
        u.
    eta : ndarray of float64, shape (n_all,)
    top, least : float
        ψ of an output with itself, and the least that can be left of it.
    values : ndarray of float64, shape (n,)
        The criterion is written.
    """
    for row in range(len(psi)):
        p, t, q, u = psi[row], slopes[row], solved[row], weights[which[row]]
        fit, explained = 0.0, 0.0
        for k in range(len(p)):
            fit += p[k] * u[k]
            explained += p[k] * q[k]
        left = max(top - explained, least)
        share = eta[which[row]] / left
        values[row] = -2 * fit - eta[which[row]] * np.log(left)
        for k in range(len(p)):
            t[k] *= 2 * (share * q[k] - u[k])


@compiled
def weigh_hsic(psi, slopes, which, weights, values):
    """Evaluate the negative HSIC criterion, as `weigh_kl` does its own; `weights` are those of the column."""
    for row in range(len(psi)):
        p, t, u = psi[row], slopes[row], weights[which[row]]
        fit = 0.0
        for k in range(len(p)):
            fit += p[k] * u[k]
        values[row] = -2 * fit
        for k in range(len(p)):
            t[k] *= -2 * u[k]
