"""The GPU's loops really run under the CPU's tests, and their mistakes are seen there."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.backend.gpu import carried
from visionkl.backend.dispatch import CPU
from visionkl.backend.gpu import launch
from visionkl.detection.suppress import suppress
from visionkl.features.hog import hog
from visionkl.kernels.exact import Chi2
from visionkl.kernels.fourier import FourierMap

ROOT = Path(__file__).resolve().parents[3]

WAYS = [("plain", "forward"), pytest.param(("cuda", "device"), marks=pytest.mark.gpu)]
on_a_device = pytest.mark.parametrize("machine", WAYS, indirect=True, ids="-".join)


def compute(rng):
    """Some results of the package, on ordinary arrays."""
    rows, corners = rng.random((40, 6)), rng.random((30, 2)) * 50
    return (
        hog(rng.integers(0, 256, (40, 48, 3)).astype(np.uint8)),
        Chi2()(rows),
        FourierMap(n_components=20).fit(rows).transform(rows),
        suppress(np.concatenate([corners, corners + 20], axis=1), rng.random(30)),
    )


@on_a_device
def test_results_are_the_same_and_come_from_kernels(gpu, monkeypatch):
    expected = compute(np.random.default_rng(0))
    carried.carry_loops(monkeypatch)
    launched, run = [], launch._run
    monkeypatch.setattr(
        launch, "_run", lambda kernel, *rest: (launched.append(kernel.name), run(kernel, *rest))
    )
    found = compute(np.random.default_rng(0))
    assert {"hog_normalise", "add_pairs_f64", "mirror_f64", "waves_f64", "take_off"} <= set(launched)
    for a, b in zip(found, expected, strict=True):
        assert isinstance(a, np.ndarray)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@on_a_device
def test_kernels_that_write_zeros_are_noticed(gpu, monkeypatch):
    def clear(kernel, n_blocks, arguments):
        for argument, parameter in zip(arguments, kernel.signature, strict=True):
            if parameter.is_array and not parameter.is_const:
                argument.fill(0)

    expected = compute(np.random.default_rng(0))
    carried.carry_loops(monkeypatch)
    monkeypatch.setattr(launch, "_run", clear)
    for a, b in zip(compute(np.random.default_rng(0)), expected, strict=True):
        assert a.shape != b.shape or not np.allclose(a, b)


def test_threads_may_write_to_other_parts_of_an_array():
    """Only what a loop wrote is written, whatever happened to the rest meanwhile."""
    array = np.array([1.0, 2.0, np.nan, -0.0])
    before = array.copy()
    array[1] = 7  # another thread
    carried._write_changes(array, before, np.array([5.0, 2.0, np.nan, 0.0]))
    np.testing.assert_array_equal(array, [5, 7, np.nan, 0])
    assert not np.signbit(array[3])


def test_the_cpu_keeps_its_own_loops_afterwards():
    assert CPU.loops("hog").__name__ == "visionkl.backend.cpu.hog"


def pytest_output(*arguments):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout


def test_a_release_check_takes_all_numerical_tests():
    listed = pytest_output("-m", "gpu", "--collect-only", "tests/kernels", "tests/run", "tests/backend/gpu")
    assert "tests/kernels/test_exact.py::" in listed
    assert "tests/backend/gpu/test_hog.py::" in listed
    assert "tests/run" not in listed
