"""Posteriors and statistics of a mixture on a GPU: functions of `visionkl.backend.cpu.mixture`."""

from typing import Any

import numpy as np

from visionkl.backend.glue import weighted_sums
from visionkl.backend.gpu import device
from visionkl.backend.gpu.launch import FLOATS, declare_for, launch

_WARP = 32

_POSTERIORS = declare_for(
    FLOATS,
    "mixture",
    "posteriors",
    "TYPE* logarithms, TYPE* log_likelihoods, unsigned long long* n_relevant, long long n, int n_components",
)


def posteriors_into(logarithms: Any, log_likelihoods: Any) -> int:
    """Turn logarithms of weighted densities into posteriors, in place; see the CPU's function."""
    n, n_components = logarithms.shape
    n_relevant = device.namespace().zeros(1, np.uint64)
    launch(
        _POSTERIORS[logarithms.dtype.name], logarithms, log_likelihoods, n_relevant, n, n_components,
        threads=n * _WARP,
    )  # fmt: skip
    return int(n_relevant[0])


def add_relevant(posteriors: Any, features: Any, sums: Any) -> None:
    """Add features, weighted by posteriors, to sums; see the CPU's function.

    A product of matrices takes all posteriors: on a GPU that is the faster way, and exacter.
    """
    sums += weighted_sums(posteriors, features)
