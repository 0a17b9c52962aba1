"""Kernel learning: what the slopes by σ cost beside the normal equations, in single precision.

PyTorch is asked for in this environment, not in the peers': it is larger than all of them together. Its
contestant writes the same criterion as a user would, with all features in memory, and differentiates it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Contestant, Setting, row

from visionkl.core.rng import stream
from visionkl.kernels.fourier import FourierMap
from visionkl.learning.fourier_ridge import FourierRidge, Part

N_ROWS, N_FEATURES, N_COMPONENTS, N_OUTPUTS = 20_000, 500, 2000, 10
STRENGTH = 0.1


@row(
    "skl-gradient",
    f"criterion and slopes by {N_FEATURES} σ's, {N_ROWS} × {N_FEATURES} → {N_COMPONENTS}",
    threads=(1, 2),
    rounds=3,
)
def gradient(setting: Setting) -> Iterator[Contestant]:
    random = stream(0, "kernel learning")
    X = random.standard_normal((N_ROWS, N_FEATURES), np.float32)
    Y = np.tanh(X @ random.standard_normal((N_FEATURES, N_OUTPUTS), np.float32))
    waves = FourierMap(n_components=N_COMPONENTS, n_jobs=setting.threads).fit(X)
    sigma = waves.sigma_[waves.groups_]
    held = N_ROWS // 5
    train, held_out = Part(X[held:], Y[held:]), Part(X[:held], Y[:held])
    ridge = FourierRidge("benchmark", waves.basis_, 2048, setting.threads)
    projection = waves.basis_.projection(sigma, np.float32)

    def equations_alone() -> None:
        ridge.solve([train], projection, STRENGTH)

    def ours() -> None:
        ridge.criterion(train, held_out, sigma, STRENGTH)

    yield Contestant("visionkl", "ours", ours)
    yield Contestant("our normal equations alone", "limit", equations_alone)
    yield _torch(train, held_out, waves, sigma, setting, ridge)


def _torch(
    train: Part,
    held_out: Part,
    waves: FourierMap,
    sigma: np.ndarray[Any, Any],
    setting: Setting,
    ridge: FourierRidge,
) -> Contestant:
    try:
        import torch
    except ImportError:
        return Contestant("PyTorch", "peer", missing="PyTorch is not installed beside visionkl")
    X, y, U, v = (
        torch.from_numpy(array) for array in (train.inputs, train.targets, held_out.inputs, held_out.targets)
    )
    H, b = torch.from_numpy(waves.basis_.frequencies), 2 * torch.pi * torch.from_numpy(waves.basis_.offsets)
    scale = (2 / N_COMPONENTS) ** 0.5

    def once(n_rows: int = N_ROWS) -> tuple[float, np.ndarray[Any, Any]]:
        widths = torch.tensor(sigma, dtype=torch.float32, requires_grad=True)
        phi, phi_held = (scale * torch.cos((part * widths) @ H.T + b) for part in (X[:n_rows], U[:n_rows]))
        Q = phi.T @ phi + STRENGTH * torch.eye(N_COMPONENTS)
        beta = torch.cholesky_solve(phi.T @ y[:n_rows], torch.linalg.cholesky(Q))
        value = ((phi_held @ beta - v[:n_rows]) ** 2).sum()
        value.backward()
        return value.item(), widths.grad.numpy()

    few = 3000  # the two must agree, before they are timed
    parts = (Part(part.inputs[:few], part.targets[:few]) for part in (train, held_out))
    expected = ridge.criterion(*parts, sigma, STRENGTH)
    value, slopes = once(few)
    np.testing.assert_allclose(value, expected.value, rtol=1e-2)
    np.testing.assert_allclose(slopes, expected.by_sigma, atol=0.05 * np.abs(expected.by_sigma).max())

    def timed() -> float:
        before = torch.get_num_threads()
        torch.set_num_threads(setting.threads)
        start = time.perf_counter()
        once()
        seconds = time.perf_counter() - start
        torch.set_num_threads(before)
        return seconds

    return Contestant(f"PyTorch {torch.__version__}", "peer", timed)
