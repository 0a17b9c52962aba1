"""Multiple kernel learning: the group lasso on Fourier features of several channels.

Three of the channels matter, as in practice some do and some do not. Contestants get the same features, ready
in memory in double precision, and the same λ. Ours stops at a relative duality gap of 1e-4; the peer at a
violation of the conditions of optimality. How far both are above the least objective is in the notes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from harness import Contestant, Quoted, Setting, row

from visionkl.core.rng import stream
from visionkl.kernels.fourier import FourierMap
from visionkl.learning.channel_features import ChannelFeatures
from visionkl.learning.joint import Objective, Weights
from visionkl.solvers.penalties import Groups
from visionkl.solvers.scalar import Logistic, Signed, Squared
from visionkl.solvers.smooth import level

Vector = npt.NDArray[np.float64]

TOL = 1e-4


def channels(n: int, r: int) -> tuple[list[npt.NDArray[np.float64]], npt.NDArray[np.float64]]:
    """Make r channels of 20 features, and targets that depend on three of them."""
    random = stream(0, "channels")
    parts = [random.normal(size=(n, 20)) for _ in range(r)]
    y = np.sin(2 * parts[0][:, 0]) + parts[1][:, 0] * parts[1][:, 1] + np.tanh(parts[2][:, :3].sum(axis=1))
    return parts, y + 0.3 * random.normal(size=n)


@row("group-lasso", "group lasso of 8 channels × 500 features, 5000 samples", threads=(1, 2), rounds=5)
def group_lasso(setting: Setting) -> Iterator[Contestant | Quoted]:
    yield from contest(setting, 5000, 8, 500)


@row("group-logistic", "the same with the logistic loss", threads=(1, 2), rounds=3)
def group_logistic(setting: Setting) -> Iterator[Contestant | Quoted]:
    yield from contest(setting, 5000, 8, 500, logistic=True)


def contest(
    setting: Setting, n: int, r: int, size: int, logistic: bool = False
) -> Iterator[Contestant | Quoted]:
    """Group lasso at a tenth of λ_max."""
    parts, y = channels(n, r)
    y = np.sign(y) if logistic else y
    maps = [FourierMap(n_components=size, random_state=j).fit(part) for j, part in enumerate(parts)]
    features = ChannelFeatures(parts, maps, keep=1 << 30, n_jobs=setting.threads)
    loss = Signed(Logistic(), y[:, None]) if logistic else Squared(y[:, None])
    goal = Objective(loss, Groups(features.groups), TOL, 5000, 1)
    weights = Weights(goal, features)  # makes the features, which are kept
    strength = 0.1 * weights.strongest()

    def ours() -> None:
        Weights(goal, features).solve(strength)

    yield Contestant("visionkl", "ours", ours)
    if logistic:
        # skglm's proximal Newton method takes minutes here: one round of it longer than all other rows.
        yield Quoted("skglm", 17.0, "measured once on two cores, data of this size")
        return
    if setting.peers is None:
        return
    path = setting.peers.file("group-lasso.npy")
    whole = np.hstack([fourier.transform(part) for fourier, part in zip(maps, parts, strict=True)])
    options = {"size": size, "strength": float(strength[0]), "tol": TOL, "threads": setting.threads}
    arrays = {"features": np.asfortranarray(whole), "targets": y}
    peer = setting.peers.contestant("skglm", "skglm_group_lasso", arrays, save=str(path), **options)
    if path.is_file():
        best = Weights(replace(goal, tol=1e-8), features).solve(strength)
        lowest = best.objective - best.gap
        found = {"ours": weights.solve(strength).weights, "skglm's": np.load(path)[:, None]}
        above = {name: _objective(goal, features, w, strength) - lowest for name, w in found.items()}
        text = ", ".join(f"{name} {excess[0] / weights.scale[0]:.1e}" for name, excess in above.items())
        setting.notes.append(f"group lasso: how far above the least objective, relative: {text}")
    yield peer


def _objective(goal: Objective, features: ChannelFeatures, weights: Vector, strength: Vector) -> Vector:
    scores = features.scores(weights)
    mean = goal.loss.value(scores + level(goal.loss, scores)).mean(axis=0)
    return mean + strength * goal.penalty.value(weights)
