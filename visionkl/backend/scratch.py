"""Memory that every thread keeps for itself, for large arrays that live for a moment.

Memory fresh from the system costs a page fault for every four kilobytes, and threads wait for each other
there. A thread that computes level after level is better served by the memory of the level before.

Arrays begin at a cache line: a vector of a whole line that straddles two costs twice as much, or more.
"""

import threading
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

_own = threading.local()

_CACHE_LINE = 64


def scratch(name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array of this thread's own memory, with anything in it.

    Parameters
    ----------
    name : str
        What it is for: the array is valid until this thread asks for the same name again.
    shape : tuple of int
    dtype : data type

    Examples
    --------
    >>> scratch("example", (2, 3), np.float32).shape
    (2, 3)
    """
    n_bytes = prod(shape) * np.dtype(dtype).itemsize
    memory = _own.__dict__.get(name)
    if memory is None or len(memory) < n_bytes:
        room = np.empty(n_bytes + _CACHE_LINE, np.uint8)
        start = -room.ctypes.data % _CACHE_LINE
        memory = _own.__dict__[name] = room[start : start + n_bytes]
    return memory[:n_bytes].view(dtype).reshape(shape)
