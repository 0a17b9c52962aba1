"""Who is told how long work goes: its stages, its figures, and which steps of its plan are done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol


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
        """Take the figures of a step."""

    def done(self, n_done: int) -> None:
        """Take note that so many steps of the plan are done, and will not be done again."""


class _NoStage:
    def advance(self, steps: int = 1) -> None:
        """Count nothing."""


@contextmanager
def _nothing() -> Iterator[Stage]:
    yield _NoStage()
