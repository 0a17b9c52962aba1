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


def seed_of(random_state: Any) -> int:
    """Return the seed that scikit-learn's `random_state` stands for.

    Parameters
    ----------
    random_state : int, numpy.random.RandomState or None
        A generator draws a seed, and None stands for a different one each time.

    Examples
    --------
    >>> seed_of(7)
    7
    """
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31))
