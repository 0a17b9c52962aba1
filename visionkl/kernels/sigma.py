"""σ: how finely a kernel looks at each feature (METHODS §1).

In every kernel with frequencies, σ multiplies the frequencies: it is an inverse width. There may be one for
all features, one for each *block* of neighbouring features (a block is a channel: colours, gradients, ...),
or one for each feature.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from visionkl.core.validation import parameter_error

Sigma = float | Sequence[float] | npt.NDArray[np.floating]


def feature_groups(
    owner: str, sigma: Sigma, blocks: Sequence[int] | None, n_features: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]:
    """Tell the σ's apart, and to which of them each feature belongs.

    Parameters
    ----------
    owner : str
        Who complains.
    sigma : float, or array_like of float, shape (n_groups,)
    blocks : sequence of int, optional
        Lengths of the blocks, whose sum must be `n_features`. Without them there is one σ for all features,
        or one for each.
    n_features : int

    Returns
    -------
    sigmas : ndarray of float64, shape (n_groups,)
    groups : ndarray of int, shape (n_features,)

    Examples
    --------
    >>> feature_groups("FourierMap", [1.0, 0.5], [2, 1], 3)
    (array([1. , 0.5]), array([0, 0, 1]))
    >>> feature_groups("FourierMap", 1.0, None, 3)
    (array([1.]), array([0, 0, 0]))
    """
    try:
        sigmas = np.array(sigma, dtype=np.float64)
    except (TypeError, ValueError):
        raise parameter_error(owner, "sigma", "a number or a list of numbers", sigma) from None
    if sigmas.ndim > 1 or not np.isfinite(sigmas).all():
        raise parameter_error(owner, "sigma", "a finite number or a list of them", sigma)
    if blocks is None:
        groups = np.arange(n_features) if sigmas.ndim else np.zeros(n_features, np.intp)
        expected = f"a number, or a list of {n_features}, one for each feature"
    else:
        lengths = np.asarray(blocks)
        sound = lengths.ndim == 1 and lengths.dtype.kind in "iu" and len(lengths) and (lengths > 0).all()
        if not sound or lengths.sum() != n_features:
            accepted = f"a list of integers > 0 whose sum is the number of features, {n_features}"
            raise parameter_error(owner, "blocks", accepted, blocks)
        groups = np.repeat(np.arange(len(lengths)), lengths)
        expected = f"a number, or a list of {len(lengths)}, one for each block"
    n_groups = int(groups[-1]) + 1
    if sigmas.ndim and len(sigmas) != n_groups:
        raise parameter_error(owner, "sigma", expected, f"{len(sigmas)} numbers")
    return np.broadcast_to(sigmas, n_groups).copy(), groups
