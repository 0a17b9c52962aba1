"""Memory that every thread keeps for itself, for large arrays that live for a moment.

Memory fresh from the system costs a page fault for every four kilobytes, and threads wait for each other
there. A thread that computes level after level is better served by the memory of the level before.

Arrays begin at a cache line: a vector of a whole line that straddles two costs twice as much, or more.
"""

import ctypes
import sys
import threading
from functools import cache
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
        memory = _own.__dict__[name] = aligned_empty((n_bytes,), np.uint8)
    return memory[:n_bytes].view(dtype).reshape(shape)


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return a new array that begins at a cache line, with anything in it.

    Examples
    --------
    >>> aligned_empty((3, 16), np.float32).ctypes.data % 64
    0
    """
    n_bytes = prod(shape) * np.dtype(dtype).itemsize
    room = np.empty(n_bytes + _CACHE_LINE, np.uint8)
    start = -room.ctypes.data % _CACHE_LINE
    return room[start : start + n_bytes].view(dtype).reshape(shape)


def give_back() -> None:
    """Give memory that was freed back to the system, after work on large arrays.

    glibc keeps what it may need again, and after a while that is as much as is in use. Elsewhere nothing is
    done.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
