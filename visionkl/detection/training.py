"""Training a detector (METHODS §10), from labelled pictures to a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from visionkl.datasets.base import Dataset
from visionkl.detection.model import MixtureModel
from visionkl.detection.samples import Samples
from visionkl.detection.settings import TrainingSettings
from visionkl.parallel.executor import Executor


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
    """

    n_done: int
    model: MixtureModel
    positives: tuple[Samples, ...]
    negatives: tuple[Samples, ...]


class Stage(Protocol):
    """Counts the steps of a stage."""

    def advance(self, steps: int = 1) -> None:
        """Count `steps` more."""
        ...


class Observer:
    """Is told how training goes; this one does not care."""

    def stage(self, name: str, total: int | None = None) -> AbstractContextManager[Stage]:
        """Begin a stage of `total` steps."""
        return _nothing()

    def record(self, row: dict[str, Any]) -> None:
        """Take the figures of a round."""

    def checkpoint(self, state: TrainingState) -> None:
        """Take the state after a step of the plan."""


class _NoStage:
    def advance(self, steps: int = 1) -> None:
        """Count nothing."""


@contextmanager
def _nothing() -> Iterator[Stage]:
    yield _NoStage()


def train(
    dataset: Dataset,
    label: str,
    settings: TrainingSettings | None = None,
    *,
    n_jobs: int | None = None,
    executor: Executor | None = None,
    folder: str | Path | None = None,
    max_memory: int | None = None,
    observer: Observer | None = None,
    state: TrainingState | None = None,
) -> MixtureModel:
    """Train a model of a class."""
    raise NotImplementedError
