"""CuPy and the CUDA device behind it: what is there, what is missing, and what to do when memory is short.

CuPy is imported when it is first needed, and never where no GPU is asked for.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.core.errors import DeviceError

_WHEELS = (
    'pip install "visionkl[cuda12]" (or "visionkl[cuda13]"), whichever CUDA version the driver supports, '
    "as nvidia-smi shows it"
)


def namespace() -> Any:
    """Import CuPy, or say that it is missing."""
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(f"CUDA is not usable here: {_import_problem(error)}.") from None
    return cupy


@cache
def problem(number: int = 0) -> str | None:
    """Find out why a CUDA device cannot compute; None if it can.

    A device counts only if it has really computed something: CuPy can be imported, and even sees devices,
    where no kernel can be compiled.

    Parameters
    ----------
    number : int
        Which device.
    """
    try:
        import cupy
    except ImportError as error:
        return _import_problem(error)
    try:
        n_devices = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return _driver_problem(error)
    if number >= n_devices:
        return f"there is no device cuda:{number}; the driver sees {n_devices}"
    try:
        with cupy.cuda.Device(number):
            computed = cupy.asnumpy(cupy.arange(1000, dtype=np.float32) * 2 + 1)
    except Exception as error:
        return _computing_problem(error)
    if not np.array_equal(computed, np.arange(1000, dtype=np.float32) * 2 + 1):
        return f"device cuda:{number} computes wrong numbers; check the hardware with NVIDIA's tools"
    if find_spec("array_api_compat") is None:
        return f"array-api-compat is not installed; {_WHEELS}"
    return None


def _import_problem(error: ImportError) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
        return f"CuPy is not installed; {_WHEELS}"
    return f"CuPy cannot be imported ({_first_line(error)}); install it anew: {_WHEELS}"


def _driver_problem(error: Exception) -> str:
    text = str(error)
    if "InsufficientDriver" in text:
        versions = installed_cupy() or "CuPy"
        return (
            "there is no NVIDIA driver, or it is too old for the CUDA version of "
            f"{versions}: nvidia-smi must work and show at least that version; install the driver, or a CuPy "
            f"for the older CUDA: {_WHEELS}"
        )
    if "NoDevice" in text:
        return "the NVIDIA driver sees no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES"
    return f"CUDA does not start ({_first_line(error)}); check nvidia-smi"


def _computing_problem(error: Exception) -> str:
    text = _first_line(error)
    lowered = str(error).lower()
    if "headers" in lowered or "cuda_fp16.h" in lowered or "include" in lowered:
        return (
            f"CuPy finds no CUDA headers ({text}); install them: "
            "pip install nvidia-cuda-runtime-cu12 (or -cu13), or a CUDA toolkit"
        )
    if "nvrtc" in lowered or "invalid_ptx" in lowered or "no kernel image" in lowered:
        return (
            f"CuPy was built for another CUDA than this driver or GPU has ({text}); install one that fits: "
            f"{_WHEELS}"
        )
    return f"a small computation fails ({text}); nvidia-smi and `python -m cupyx.tools` may tell more"


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}".rstrip(".: ")


def installed_cupy() -> str | None:
    """Name and version of the CuPy wheel that is installed, if any."""
    for name in ("cupy-cuda12x", "cupy-cuda13x", "cupy-cuda11x", "cupy"):
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def is_device_array(array: Any) -> bool:
    """Tell whether an array lies on a GPU, without importing CuPy for others."""
    return type(array).__module__.partition(".")[0] == "cupy"


def upload(array: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Any:
    """Copy a NumPy array to the current device; an array that is there already stays."""
    xp = namespace()
    return xp.ascontiguousarray(
        array if isinstance(array, xp.ndarray) else xp.asarray(np.asarray(array, dtype))
    )


def in_blocks(work: Callable[[slice], None], n_rows: int, block: int) -> None:
    """Call `work` on slices of rows; while memory is short, on ever smaller ones.

    Parameters
    ----------
    work : callable
        Takes a slice, and may be called again on parts of one that did not fit into memory.
    n_rows, block : int
        How many rows there are, and how many to begin with.
    """
    first = 0
    while first < n_rows:
        rows = slice(first, min(first + block, n_rows))
        try:
            work(rows)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if rows.stop - rows.start == 1:
                raise DeviceError(
                    f"The GPU's memory is too small even for a single row ({_first_line(error)}); free some "
                    "of it, or compute with device='cpu'."
                ) from None
            block = (rows.stop - rows.start + 1) // 2
            free_memory()
        else:
            first = rows.stop


@contextlib.contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Say that something does not fit into a GPU's memory, for what cannot be done in smaller blocks."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        free_memory()
        raise DeviceError(
            f"The GPU's memory is too small for {what} ({_first_line(error)}); free some of it, give "
            "something smaller, or compute with device='cpu'."
        ) from None


def free_memory() -> None:
    """Give back what CuPy keeps for later."""
    namespace().get_default_memory_pool().free_all_blocks()


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether a GPU had too little memory for something."""
    return type(error).__name__ == "OutOfMemoryError" or "cudaErrorMemoryAllocation" in str(error)
