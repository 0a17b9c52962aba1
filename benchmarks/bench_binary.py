"""Random binary maps: how fast stumps become packed bits, against NumPy and against moving the bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from harness import Contestant, Setting, row

from visionkl.backend.threads import run_tasks
from visionkl.core.rng import stream
from visionkl.kernels.binary import StumpMap
from visionkl.kernels.questions import Stumps

_SAMPLES, _FEATURES, _STUMPS = 100_000, 500, 20_000
# NumPy takes half a minute for all samples: it gets a part, and its time is multiplied.
_PART = 20
_CHUNK = 500


@row("stumps", "20 000 stumps of 10⁵ × 500 numbers as packed bits", threads=(1, 2), rounds=5)
def stumps(setting: Setting) -> Iterator[Contestant]:
    X = stream(0, "stumps").random((_SAMPLES, _FEATURES), np.float32)
    ours = StumpMap(_STUMPS, n_jobs=setting.threads).fit(X)
    some = X[: _SAMPLES // _PART]
    packed = ours.transform(some)
    plain = _compare(some, ours.questions_)
    np.testing.assert_array_equal(packed[:, : plain.shape[1]], plain)
    moved = X.nbytes + _SAMPLES * packed.shape[1]
    source, target = np.ones(moved // 2, np.uint8), np.empty(moved // 2, np.uint8)
    pieces = np.array_split(np.arange(0, len(source), 1 << 20), 64)

    def move(starts: npt.NDArray[np.intp]) -> None:
        part = slice(starts[0], starts[-1] + (1 << 20))
        target[part] = source[part]

    def encode() -> float:
        start = time.perf_counter()
        bits = ours.transform(X)
        seconds = time.perf_counter() - start
        del bits
        return seconds

    def compare() -> float:
        start = time.perf_counter()
        _compare(some, ours.questions_)
        return _PART * (time.perf_counter() - start)

    encode()
    seconds = min(encode() for _ in range(3))
    setting.notes.append(
        f"stumps, threads: {setting.threads}: {moved / seconds / 1e9:.1f} GB/s read and written, "
        f"{_SAMPLES * _STUMPS / seconds / 1e9:.0f} · 10⁹ comparisons a second"
    )
    yield Contestant("visionkl", "ours", encode)
    name = f"NumPy {np.__version__}: comparison and packbits, a {_PART}th of the samples times {_PART}"
    yield Contestant(name, "peer", compare)
    yield Contestant(
        "copying as many bytes", "limit", lambda: _discard(run_tasks(move, pieces, setting.threads))
    )


def _compare(X: npt.NDArray[np.float32], stumps: Stumps) -> npt.NDArray[np.uint8]:
    """Encode with NumPy, some rows at a time, which suits its caches best."""
    chunks = [X[first : first + _CHUNK] for first in range(0, len(X), _CHUNK)]
    bits = [chunk[:, stumps.features] > stumps.thresholds for chunk in chunks]
    return np.concatenate([np.packbits(part, axis=1, bitorder="little") for part in bits])


def _discard(value: object) -> None:
    """Let a result go: a contestant's return value is its time."""
