"""The plan of training, the state after each of its steps, and who is told how it goes."""

from __future__ import annotations

from dataclasses import dataclass

from visionkl.core import observer
from visionkl.core.errors import DataError
from visionkl.core.observer import Stage
from visionkl.datasets.base import Example
from visionkl.detection.model import MixtureModel
from visionkl.detection.samples import Samples
from visionkl.detection.settings import TrainingSettings

__all__ = ["Observer", "Stage", "Step", "TrainingState", "plan", "steps_of"]


@dataclass(frozen=True, eq=False)
class TrainingState:
    """Where training stands after a step of its plan: all that is needed to go on.

    Parameters
    ----------
    n_done : int
        Steps of the plan that are done.
    model : MixtureModel
    positives, negatives : tuple of Samples
        One for each model component.
    shares : tuple of float
        Of the learned components in the regularisation; empty for equal ones.
    """

    n_done: int
    model: MixtureModel
    positives: tuple[Samples, ...]
    negatives: tuple[Samples, ...]
    shares: tuple[float, ...] = ()


class Observer(observer.Observer):
    """Is told how training goes; this one does not care."""

    def checkpoint(self, state: TrainingState) -> None:
        """Take the state after a step of the plan."""

    def skip(self, example: Example, error: DataError) -> None:
        """Take note of a picture that is left out, because it cannot be read."""


@dataclass(frozen=True)
class Step:
    """A step of the plan: the stage, the round of placing objects, and the pass of mining in it."""

    stage: str
    round: int = 0
    mining: int = 0

    def __str__(self) -> str:
        if self.stage in ("roots", "boxes"):
            return self.stage
        return f"{self.stage}, round {self.round + 1}, mining {self.mining + 1}"


def plan(settings: TrainingSettings) -> list[str]:
    """Name all steps; some may be left out when mining finds little."""
    return [str(step) for step in steps_of(settings)]


def steps_of(settings: TrainingSettings) -> list[Step]:
    """List all steps."""
    stages = [("mixture", settings.root_rounds)]
    if settings.n_parts:
        stages.append(("parts", settings.part_rounds))
    rounds = [
        Step(stage, number, mining)
        for stage, n_rounds in stages
        for number in range(n_rounds)
        for mining in range(settings.mining_rounds)
    ]
    return [Step("roots"), *rounds, *([Step("boxes")] if settings.box_regression else [])]
