"""The hand-written cosine and logarithm, within the bounds that their module states."""

import numpy as np
import pytest

from visionkl.backend.cpu.elementary import binary_logarithm, cosine_of_turns, logarithms, waves
from visionkl.backend.cpu.jit import compiled


@compiled
def cosines(turns, coefficients, out):
    for i in range(len(turns)):
        out[i] = cosine_of_turns(turns[i], coefficients)


@compiled
def binary_logarithms(x, coefficients, out):
    for i in range(len(x)):
        out[i] = binary_logarithm(x[i], coefficients)


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 3e-7), (np.float64, 2e-15)])
def test_cosine_of_any_number_of_turns(dtype, bound):
    random = np.random.default_rng(0)
    turns = np.concatenate(
        [random.uniform(-1, 1, 20_000), random.uniform(-500, 500, 20_000), [0, 0.25, 0.5, -1]]
    )
    turns = turns.astype(dtype)
    out = np.empty_like(turns)
    cosines(turns, waves(dtype), out)
    exact = turns.astype(np.float64)
    exact = np.cos(2 * np.pi * (exact - np.rint(exact)))
    assert np.abs(out - exact).max() < bound


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 2e-7), (np.float64, 1e-15)])
def test_logarithm_of_all_normal_numbers(dtype, bound):
    limits = np.finfo(dtype)
    exponents = np.random.default_rng(0).uniform(np.log2(limits.tiny) + 1, np.log2(limits.max) - 1, 20_000)
    x = np.concatenate([2**exponents, np.linspace(0.5, 2, 20_001), [limits.tiny, limits.max]]).astype(dtype)
    out = np.empty_like(x)
    binary_logarithms(x, logarithms(dtype), out)
    exact = np.log2(x.astype(np.longdouble))
    assert (np.abs(out - exact) / np.maximum(1, np.abs(exact))).max() < bound
