"""Waves and spectra on a GPU: functions of `visionkl.backend.cpu.maps` on CuPy arrays.

Polynomials of cosines and logarithms are the CPU's way; CUDA has functions for them, so the parameters that
hold coefficients are not used here.
"""

from typing import Any

from visionkl.backend.gpu import device
from visionkl.backend.gpu.launch import FLOATS, declare_for, launch

_WAVES = declare_for(
    FLOATS,
    "maps",
    "waves",
    "TYPE* phases, const TYPE* offsets, TYPE scale, long long n_numbers, int d, int first, int width",
)
_WAVES_AND_SLOPES = declare_for(
    FLOATS,
    "maps",
    "waves_and_slopes",
    "TYPE* phases, const TYPE* offsets, TYPE scale, TYPE* slopes, long long n_numbers, int d",
)
_SPECTRUM = declare_for(
    FLOATS,
    "maps",
    "spectrum",
    "const TYPE* X, const TYPE* amplitudes, TYPE* out, TYPE frequency, TYPE tiny, long long n_numbers, "
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
