"""Waves and spectra on a GPU: functions of `visionkl.backend.cpu.maps` on CuPy arrays.

Polynomials of cosines and logarithms are the CPU's way; CUDA has functions for them, so the parameters that
hold coefficients are not used here.
"""

from typing import Any

from visionkl.backend.gpu import device
from visionkl.backend.gpu.launch import Kernel, declare, launch


def _declare_both(name: str, parameters: str) -> dict[str, Kernel]:
    """Declare a kernel for both precisions."""
    return {
        "float32": declare("maps", f"{name}_f32", parameters.replace("REAL", "float")),
        "float64": declare("maps", f"{name}_f64", parameters.replace("REAL", "double")),
    }


_WAVES = _declare_both(
    "waves",
    "REAL* phases, const REAL* offsets, REAL scale, long long n_numbers, int d, int first, int width",
)
_WAVES_AND_SLOPES = _declare_both(
    "waves_and_slopes",
    "REAL* phases, const REAL* offsets, REAL scale, REAL* slopes, long long n_numbers, int d",
)
_SPECTRUM = _declare_both(
    "spectrum",
    "const REAL* X, const REAL* amplitudes, REAL* out, REAL frequency, REAL tiny, long long n_numbers, "
    "int d, int order",
)


def make_waves(phases: Any, first: int, last: int, offsets: Any, scale: Any, coefficients: Any) -> None:
    """Put waves in the place of the phases of some columns; see the CPU's function."""
    n, d = phases.shape
    width = last - first
    launch(_WAVES[phases.dtype.name], phases, offsets, scale, n * width, d, first, width, threads=n * width)


def make_waves_and_slopes(phases: Any, offsets: Any, scale: Any, coefficients: Any, slopes: Any) -> None:
    """Do as `make_waves`, and write the derivatives by the angles into `slopes`; see the CPU's function."""
    n, d = phases.shape
    launch(_WAVES_AND_SLOPES[phases.dtype.name], phases, offsets, scale, slopes, n * d, d, threads=n * d)


def sample_spectrum(
    X: Any, frequency: Any, amplitudes: Any, tiny: Any, logarithms: Any, waves: Any, out: Any
) -> None:
    """Fill the homogeneous map; see the CPU's function."""
    n, d = X.shape
    amplitudes = device.upload(amplitudes, X.dtype)
    launch(
        _SPECTRUM[X.dtype.name], X, amplitudes, out, frequency, tiny, n * d, d, len(amplitudes) - 1,
        threads=n * d,
    )  # fmt: skip
