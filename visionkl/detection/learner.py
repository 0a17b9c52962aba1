"""Learning from the samples that training has so far: solve, score, and keep the hardest (METHODS §10).

`visionkl.detection.objective` is what is minimised. A `Learner` applies it to the state of training: it finds
a better model, tells what newly mined negatives are worth, and keeps the cache of negatives within bounds,
by number because more of them make a solution slow and hardly better, and by memory.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.backend.dispatch import Device
from visionkl.backend.scratch import give_back
from visionkl.coding.codebooks import Codebooks
from visionkl.detection.mining import MARGIN, root_order
from visionkl.detection.model import MixtureModel
from visionkl.detection.objective import PlacementRows, objective, solve
from visionkl.detection.parameters import Parameters, with_mirrors, without_mirrors
from visionkl.detection.plan import TrainingState
from visionkl.detection.samples import Samples
from visionkl.detection.settings import TrainingSettings

# Negatives to keep for each picture, and in all.
_KEPT_A_PICTURE, _FEWEST_KEPT, _MOST_KEPT = 250, 50_000, 150_000
_CACHE_SHARE = 0.1  # of the memory that training may use
# Of the cache, for what a pass finds. New negatives are hard, so they stay: if they filled the cache, the
# model would forget all that it had learned before, and go round in circles.
_NEW_SHARE = 0.4
_SCORED_TOGETHER = 1 << 14
# Relative gap of a solution, and of a rough one.
_TOLERANCE, _ROUGH_TOLERANCE = 0.005, 0.04
_MAX_PASSES = 300


@dataclass(frozen=True, eq=False)
class Learner:
    """Learns from samples.

    Parameters
    ----------
    settings : TrainingSettings
    n_pictures : int
        That negatives come from.
    codebooks : Codebooks or None
        Of the samples' codes; None for plain cells.
    max_memory : int
        Bytes that training may use.
    n_jobs : int or None
        Threads; None for all usable cores.
    device : Device
        Where samples are gone over.
    """

    settings: TrainingSettings
    n_pictures: int
    codebooks: Codebooks | None
    max_memory: int
    n_jobs: int | None
    device: Device

    @property
    def cache_bytes(self) -> int:
        """Memory that the cache of negatives may take."""
        return int(_CACHE_SHARE * self.max_memory)

    @property
    def new_bytes(self) -> int:
        """Memory that the negatives of a pass may take."""
        return int(_NEW_SHARE * self.cache_bytes)

    @property
    def _costs(self) -> tuple[float, float]:
        return self.settings.cost, self.settings.cost * self.settings.positive_weight

    def learn(self, state: TrainingState, *, rough: bool = False) -> tuple[TrainingState, dict[str, Any]]:
        """Learn from all samples; the new state, and figures of how it went."""
        learned = without_mirrors(state.model)
        parameters = Parameters(learned, state.shares)
        began = time.perf_counter()
        result = solve(
            parameters,
            parameters.vector(learned),
            state.positives,
            state.negatives,
            self.codebooks,
            costs=self._costs,
            tol=_ROUGH_TOLERANCE if rough else _TOLERANCE,
            max_passes=_MAX_PASSES,
            n_jobs=self.n_jobs,
            device=self.device,
        )
        model = replace(state.model, components=with_mirrors(parameters.learned(result.v)))
        n_negatives = sum(map(len, state.negatives))
        n_samples = n_negatives + sum(map(len, state.positives))
        figures: dict[str, Any] = {
            "positives": n_samples - n_negatives,
            "negatives": n_negatives,
            "cache_bytes": sum(samples.nbytes for samples in state.negatives),
            "gap": round(result.gap, 5),
            "passes": result.n_passes,
            "solving_seconds": round(time.perf_counter() - began, 2),
        }
        state = replace(state, model=model, shares=parameters.next_shares(result.v))
        del result  # its planes are large
        give_back()
        figures["shares"] = " ".join(f"{share:.3f}" for share in state.shares)
        return state, figures | {"objective": round(self._objective(state), 5)}

    def share_of(self, state: TrainingState, new: Sequence[Samples]) -> float:
        """Return what new negatives add to the objective, as a share of it; infinite for the first ones."""
        if not any(map(len, state.negatives)):
            return np.inf
        if not any(map(len, new)):
            return 0.0
        scores = np.concatenate(self._scores(state.model, new))
        worth = self.settings.cost * float(np.maximum(scores - MARGIN, 0).sum())
        return worth / self._objective(state)

    def extend_cache(self, state: TrainingState, new: Sequence[Samples]) -> TrainingState:
        """Add negatives to the cache; if they do not fit, the hardest of all stay."""
        pairs = list(zip(state.negatives, new, strict=True))
        orders = [root_order(np.concatenate([known.keys, some.keys])) for known, some in pairs]
        n = sum(map(len, orders))
        n_bytes = sum(known.nbytes + some.nbytes for known, some in pairs)
        most = int(np.clip(_KEPT_A_PICTURE * self.n_pictures, _FEWEST_KEPT, _MOST_KEPT))
        n_kept = min(most, int(n * self.cache_bytes / max(n_bytes, 1)))
        if n > n_kept:
            both = zip(
                self._scores(state.model, state.negatives), self._scores(state.model, new), strict=True
            )
            scores = np.concatenate(
                [np.concatenate(mine)[order] for mine, order in zip(both, orders, strict=True)]
            )
            kept = np.zeros(n, bool)
            kept[np.argsort(-scores, kind="stable")[:n_kept]] = True
            ends = np.cumsum(list(map(len, orders)))[:-1]
            orders = [order[own] for order, own in zip(orders, np.split(kept, ends), strict=True)]
        cache = tuple(Samples.pick(pair, order) for pair, order in zip(pairs, orders, strict=True))
        return replace(state, negatives=cache)

    def _objective(self, state: TrainingState) -> float:
        parameters = Parameters(without_mirrors(state.model), state.shares)
        return objective(
            parameters,
            parameters.vector(without_mirrors(state.model)),
            state.positives,
            state.negatives,
            self.codebooks,
            self._costs,
            self.n_jobs,
            self.device,
        )

    def _scores(self, model: MixtureModel, samples: Sequence[Samples]) -> list[npt.NDArray[np.float64]]:
        """Scores of samples, by component."""
        parameters = Parameters(without_mirrors(model))
        vector = parameters.vector(without_mirrors(model))
        scores = [np.zeros(len(some)) for some in samples]
        for number, some in enumerate(samples):
            # Some at a time: rows hold a copy of their samples.
            for first in range(0, len(some), _SCORED_TOGETHER):
                piece = np.s_[first : first + _SCORED_TOGETHER]
                alone = [other[piece if i == number else np.s_[:0]] for i, other in enumerate(samples)]
                rows = PlacementRows(
                    parameters, alone, self.codebooks, n_jobs=self.n_jobs, device=self.device
                )
                scores[number][piece] = rows.scores(vector)
        return scores
