"""Randomness: one seed, many named streams.

Each use of randomness asks for its own stream by name. A stream depends on the seed and its name alone, never
on what was drawn elsewhere or on how many workers run, so the same seed gives the same result everywhere.
"""

import hashlib
from typing import Any

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the random generator that belongs to a seed and a name.

    Parameters
    ----------
    seed : int
        The one seed of a run.
    *names : str or int
        What the numbers are for, from the general to the particular.

    Returns
    -------
    numpy.random.Generator

    Examples
    --------
    >>> int(stream(0, "scene", 3).integers(1000)) == int(stream(0, "scene", 3).integers(1000))
    True
    >>> int(stream(0, "scene", 3).integers(2**60)) == int(stream(0, "scene", 4).integers(2**60))
    False
    """
    key = "\x1f".join([str(int(seed)), *map(str, names)]).encode()
    return np.random.default_rng(int.from_bytes(hashlib.sha256(key).digest()[:16], "little"))


def as_seed(random_state: Any) -> int:
    """Make one seed of what scikit-learn calls a random state: an int, a RandomState, or None."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31))
