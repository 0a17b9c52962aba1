"""Posteriors of a Gaussian mixture and sums weighted by them: what EM and Fisher vectors spend their time on.

Both work on blocks of rows that stay in the nearest caches. The products around them are BLAS's; here is what
BLAS cannot do: softmax in place, and sums over the few Gaussians that a row belongs to.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np
from numba import types
from numba.extending import overload

from visionkl.backend.cpu.jit import LICENCES, compiled

# Coefficients of 2**f for |f| ≤ 1/2; with them `_exp` is within 1e-6 of the exponential for -20 ≤ x ≤ 0.
_LOG2_E = np.float32(1.4426950408889634)
_POWERS = tuple(
    np.float32(c) for c in (1.540353e-4, 1.3333558e-3, 9.618129e-3, 5.5504109e-2, 0.24022651, 0.69314718, 1.0)
)
_LEAST = np.float32(-87.0)  # below, powers leave float32's range


@compiled
def posteriors_into(logarithms, negligible, log_likelihoods):
    """Turn logarithms of weighted densities into posteriors, in place.

    Parameters
    ----------
    logarithms : ndarray of float32 or float64, shape (n, n_components)
        Contiguous. Receives the posteriors: each row sums to 1.
    negligible : float
        Posteriors below this share of their row's largest become zero. What is left still sums to 1.
    log_likelihoods : ndarray of the same dtype, shape (n,)
        Receives the logarithm of each row's density.

    Returns
    -------
    int
        How many posteriors are not zero.
    """
    n, n_components = logarithms.shape
    one = log_likelihoods.dtype.type(1)
    zero = one - one
    least = log_likelihoods.dtype.type(negligible)
    n_left = 0
    for i in range(n):
        row = logarithms[i]
        largest = _largest(row)
        total = zero
        left = 0
        for k in range(n_components):
            share = _exp(row[k] - largest)
            share = share if share >= least else zero
            left += int(share > zero)
            total += share
            row[k] = share
        log_likelihoods[i] = largest + np.log(total)
        factor = one / total
        for k in range(n_components):
            row[k] *= factor
        n_left += left
    return n_left


@compiled
def _largest(row):
    """Find the largest number; four at a time, since each comparison waits for the one before."""
    n = row.shape[0]
    a, b, c, d = row[0], row[0], row[0], row[0]
    for k in range(0, n - 3, 4):
        a, b = max(a, row[k]), max(b, row[k + 1])
        c, d = max(c, row[k + 2]), max(d, row[k + 3])
    for k in range(n // 4 * 4, n):
        a = max(a, row[k])
    return max(max(a, b), max(c, d))


@compiled
def add_weighted(posteriors, features, sums):
    """Add to each Gaussian's sums the features of its rows, weighted; zero posteriors cost nearly nothing.

    Parameters
    ----------
    posteriors : ndarray of float32, shape (n, n_components)
    features : ndarray of float32, shape (n, n_features)
    sums : ndarray of float32, shape (n_components, n_features)
        All contiguous.
    """
    n, n_components = posteriors.shape
    for i in range(n):
        row = features[i]
        for k in range(n_components):
            weight = posteriors[i, k]
            if weight != 0:
                own = sums[k]
                for j in range(row.shape[0]):
                    own[j] += weight * row[j]


def _exp(x):
    """Compute the exponential of a number that is not positive; in float32 in a way that is vectorised."""
    raise NotImplementedError("compiled code only")


@overload(_exp, jit_options={"fastmath": LICENCES, "error_model": "numpy"})
def _exp_of(x):
    def polynomial(x):
        power = max(x, _LEAST) * _LOG2_E
        whole = np.rint(power)
        rest = power - whole
        value = _POWERS[0]
        for coefficient in _POWERS[1:]:
            value = value * rest + coefficient
        return value * np.int32((np.int32(whole) + 127) << 23).view(np.float32)

    def standard(x):
        return np.exp(x)

    return polynomial if x == types.float32 else standard
