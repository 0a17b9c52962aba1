"""How the hot loops are compiled: one decorator for all.

The loops release the GIL and are never `parallel`: threads are settled in one place
(`visionkl.backend.threads`), which runs several of them side by side. That lets the machine code be cached on
disk, so a command compiles once per installation.

Of the fast-math licences only the harmless ones are given: sums may be reordered (`reassoc`) and
multiply-adds fused (`contract`), but NaN and infinity keep their meaning, because -inf marks places where a
filter does not fit. Where even the last bit matters, `compiled_exactly` gives none.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

LICENCES = {"reassoc", "contract", "nsz", "arcp"}


def compiled(function: Function) -> Function:
    """Compile a loop with Numba on first use."""
    return _compile(function, {"nogil": True, "error_model": "numpy", "fastmath": LICENCES})


def compiled_exactly(function: Function) -> Function:
    """Compile a loop with Numba on first use; every operation is rounded by itself, in the order written."""
    return _compile(function, {"nogil": True, "error_model": "numpy"})


def _compile(function: Function, options: dict[str, Any]) -> Function:
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        # No folder to keep the machine code in (a read-only installation without a home): compile in every
        # process.
        return numba.njit(**options)(function)
