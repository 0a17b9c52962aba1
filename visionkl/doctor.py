"""What there is to compute with, and whether it computes right: `python -m visionkl.doctor`.

It prints the versions of what matters, what was found of CUDA or what is missing, and, where a GPU computes,
compares a few of its functions with the CPU's. It ends with 0 if all that was found works, and with 1 if a
GPU gives other numbers than the CPU.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from visionkl._version import __version__
from visionkl.backend.dispatch import CPU, Device, to_host
from visionkl.backend.gpu import device as cuda
from visionkl.backend.threads import usable_cores

_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "opencv-python-headless")

Check = Callable[[Device], Any]


def main() -> int:
    """Print what was found, and return the exit code."""
    code = 0
    for line in examine():
        sys.stdout.write(line + "\n")
        code |= line.endswith(_WRONG)
    return code


_WRONG = "DIFFERENT"


def examine() -> Iterator[str]:
    """Say what was found, line by line."""
    yield f"visionkl {__version__}, Python {platform.python_version()}, {platform.platform()}"
    yield ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    yield f"CPU: {usable_cores()} usable cores"
    yield f"CuPy: {cuda.installed_cupy() or 'not installed'}"
    problem = cuda.problem()
    if problem is not None:
        yield f"CUDA: not usable; {problem}"
        return
    yield from _describe_devices()
    for name, check in _CHECKS.items():
        yield f"self-test of {name}: {_compare(check)}"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _describe_devices() -> Iterator[str]:
    runtime = cuda.namespace().cuda.runtime
    driver, own = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    yield f"CUDA: driver for {driver // 1000}.{driver % 1000 // 10}, CuPy's {own // 1000}.{own % 1000 // 10}"
    for number in range(runtime.getDeviceCount()):
        properties = runtime.getDeviceProperties(number)
        name = properties["name"]
        yield (
            f"cuda:{number}: {name.decode() if isinstance(name, bytes) else name}, compute capability "
            f"{properties['major']}.{properties['minor']}, {properties['totalGlobalMem'] / 2**30:.1f} GB"
        )


def _compare(check: Check) -> str:
    try:
        found, expected = to_host(check(Device(0))), check(CPU)
    except Exception as error:
        return f"{type(error).__name__}: {error} {_WRONG}"
    largest = float(np.abs(found.astype(np.float64) - expected).max())
    bound = 1e-4 * max(float(np.abs(expected).max()), 1.0)
    return f"largest difference {largest:.1e}: {'right' if largest <= bound else _WRONG}"


# -- small pieces of work, done by a device's own functions -----------------------------------------------


def _random() -> np.random.Generator:
    return np.random.default_rng(0)


def _cells(device: Device) -> Any:
    hog, planes = device.loops("hog"), device.put(_random().uniform(0, 255, (3, 60, 80)))
    shrunk = device.loops("resample").shrink(planes, 52, 67)
    n_rows, n_cols = hog.cell_counts(shrunk.shape[1:], 8)
    level = device.namespace.zeros((n_rows - 2, n_cols - 2, hog.N_CHANNELS), np.float32)
    hog.cells_into(*hog.gradients(shrunk), 8, level, 0, 0)
    return level


def _codes(device: Device) -> Any:
    pq, random = device.loops("pq"), _random()
    cells = device.put(random.normal(size=(20, 30, 8)).astype(np.float32))
    book = pq.make_codebook(random.normal(size=(50, 8)).astype(np.float32))
    codes = device.namespace.zeros((20, 30), np.uint8)
    pq.encode(cells, np.arange(8), book, codes)
    return codes


def _responses(device: Device) -> Any:
    tables, random = device.loops("tables"), _random()
    made = tables.make_tables(random.normal(size=(3, 4, 2, 16, 5)).astype(np.float32), "int16")
    return tables.look_up(device.put(random.integers(0, 16, (20, 30, 2)).astype(np.uint8)), made)


def _distances(device: Device) -> Any:
    scores = device.put(_random().normal(size=(20, 30, 5)).astype(np.float32))
    return device.loops("distance").windowed(scores, np.full((5, 4), 0.05, np.float32), 4, 20, 30)


def _pairs(device: Device) -> Any:
    kernels, random = device.loops("kernels"), _random()
    X, Y = (device.put(random.random((n, 30)).astype(np.float32)) for n in (90, 70))
    out = device.namespace.empty((90, 70), np.float32)
    tiny, coefficients = np.finfo(np.float32).tiny, CPU.loops("elementary").logarithms(np.float32)
    kernels.add_pairs(kernels.CHI2, X, Y, out, 0, 90, 70, tiny, coefficients)
    return out


def _sums(device: Device) -> Any:
    random = _random()
    codes = device.put(random.integers(0, 16, (6, 500)).astype(np.uint8))
    shares, tables = device.put(random.normal(size=500)), device.namespace.zeros((6, 16))
    samples = device.put(np.arange(500, dtype=np.uint32))
    device.loops("solver").scatter(codes, 0, 6, samples, shares, tables)
    return tables


def _descriptors(device: Device) -> Any:
    random, values = _random(), device.namespace.zeros((6, 128), np.float32)
    device.loops("sift").describe(
        device.put(random.uniform(0, 255, (24, 30)).astype(np.float32)),
        smoother=np.array([0.25, 0.5, 0.25], np.float32),
        kernels=random.random((1, 5)).astype(np.float32),
        bin_weights=np.ones(4, np.float32),
        bin_size=3,
        step=4,
        first=(2, 3),
        counts=(3, 2),
        threshold=0.5,
        root=True,
        values=values,
        at=0,
        channel=0,
    )
    return values


def _posteriors(device: Device) -> Any:
    logarithms = device.put(_random().normal(0, 5, (200, 40)).astype(np.float32))
    device.loops("mixture").posteriors_into(logarithms, device.namespace.empty(200, np.float32))
    return logarithms


def _bits(device: Device) -> Any:
    random, words = _random(), device.namespace.zeros((50, 3), np.uint64)
    values, thresholds = random.normal(size=(50, 150)), random.normal(size=150)
    device.loops("bits").encode_above(device.put(values), device.put(thresholds), words)
    return words.view(np.uint8)


_CHECKS: dict[str, Check] = {
    "HOG cells": _cells,
    "product-quantiser codes": _codes,
    "filter responses on codes": _responses,
    "distance transforms": _distances,
    "χ² kernels": _pairs,
    "sums over codes": _sums,
    "dense SIFT": _descriptors,
    "posteriors of mixtures": _posteriors,
    "bits": _bits,
}


if __name__ == "__main__":
    raise SystemExit(main())
