"""Posteriors of a mixture, and sums weighted by them: what BLAS cannot do, or not as fast.

It is done on blocks of rows that stay in the nearest caches. Of the posteriors of a row hardly any count
where there are many features: of 256 Gaussians on 80 components of SIFT six to two dozen, and the rest vanish
beside 1. Sums over those alone take less than half the time of a product of matrices.
"""

# Numba gives intrinsics a typing context that their callers do not see.
# mypy: disable-error-code="no-untyped-def, call-arg, var-annotated"

import numpy as np
from numba import types
from numba.extending import overload

from visionkl.backend.cpu.jit import LICENCES, compiled
from visionkl.backend.cpu.simd import piece

# Posteriors below float32's last digit of 1.
_NEGLIGIBLE = 1e-7

# Coefficients of 2**f for |f| ≤ 1/2; with them `_exp` is within 1e-6 of the exponential for -20 ≤ x ≤ 0.
_LOG2_E = np.float32(1.4426950408889634)
_POWERS = tuple(
    np.float32(c) for c in (1.540353e-4, 1.3333558e-3, 9.618129e-3, 5.5504109e-2, 0.24022651, 0.69314718, 1.0)
)
_LEAST = np.float32(-87.0)  # below, powers leave float32's range


@compiled
def posteriors_into(logarithms, log_likelihoods):
    """Turn logarithms of weighted densities into posteriors, in place.

    Parameters
    ----------
    logarithms : ndarray of float32 or float64, shape (n, n_components)
        Contiguous. Receives the posteriors: each row sums to 1.
    log_likelihoods : ndarray of the same dtype, shape (n,)
        Receives the logarithm of each row's density.

    Returns
    -------
    int
        How many posteriors are not negligible.
    """
    n, n_components = logarithms.shape
    one = log_likelihoods.dtype.type(1)
    zero = one - one
    least = log_likelihoods.dtype.type(_NEGLIGIBLE)
    n_relevant = 0
    for i in range(n):
        row = piece(logarithms, i * n_components, n_components)
        largest = _largest(row)
        total = zero
        for k in range(n_components):
            share = _exp(row[k] - largest)
            total += share
            row[k] = share
        log_likelihoods[i] = largest + np.log(total)
        factor = one / total
        relevant = zero  # a number of the same size as posteriors keeps the loop in step
        for k in range(n_components):
            row[k] *= factor
            relevant += one if row[k] > least else zero
        n_relevant += int(relevant)
    return n_relevant


@compiled
def add_relevant(posteriors, features, sums):
    """Add the features of rows to the sums of Gaussians, weighted by posteriors that are not negligible.

    Parameters
    ----------
    posteriors : ndarray of float32, shape (n, n_components)
    features : ndarray of float32, shape (n, n_features)
    sums : ndarray of float32, shape (n_components, n_features)
        All contiguous.
    """
    n, n_components = posteriors.shape
    n_features = features.shape[1]
    chosen = np.empty(n_components + 1, np.int64)
    least = np.float32(_NEGLIGIBLE)
    for i in range(n):
        weights = piece(posteriors, i * n_components, n_components)
        n_chosen = 0
        for k in range(n_components):  # without a branch that could be guessed wrong
            chosen[n_chosen] = k
            n_chosen += int(weights[k] > least)
        row = piece(features, i * n_features, n_features)
        for number in range(n_chosen):
            k = chosen[number]
            weight, own = weights[k], piece(sums, k * n_features, n_features)
            for j in range(n_features):
                own[j] += weight * row[j]


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
