"""Who does the work of a pass over data: this process, or several.

A pass is a function mapped over shards, followed by a small reduction. The results come back one by one in
the order of the shards, whoever computed them, so that the outcome does not depend on the number of workers.

Each worker receives the *context*, what all calls of a pass need (a model, a store), once a pass instead of
once a call. Another kind of executor, such as a cluster's, needs the same method and nothing else.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any, Protocol, TypeVar

from visionkl.backend.scratch import give_back
from visionkl.backend.threads import set_threads, usable_cores
from visionkl.core.errors import VisionklError

Context = TypeVar("Context")
Shard = TypeVar("Shard")
Result = TypeVar("Result")


class Executor(Protocol):
    """Whatever can map a function over shards."""

    n_jobs: int

    def map(
        self, function: Callable[[Context, Shard], Result], context: Context, shards: Sequence[Shard]
    ) -> Iterator[Result]:
        """Yield `function(context, shard)` for every shard, in order."""
        ...

    def close(self) -> None:
        """Let the workers go."""
        ...


class SerialExecutor:
    """Does everything in this process.

    Examples
    --------
    >>> list(SerialExecutor().map(lambda base, shard: base + shard, 10, [1, 2, 3]))
    [11, 12, 13]
    """

    n_jobs = 1

    def map(
        self, function: Callable[[Context, Shard], Result], context: Context, shards: Sequence[Shard]
    ) -> Iterator[Result]:
        """Yield `function(context, shard)` for every shard, in order."""
        return (function(context, shard) for shard in shards)

    def close(self) -> None:
        """Do nothing: there are no workers."""


class ProcessExecutor:
    """Spreads the work over processes of this machine, each of which uses one thread.

    Functions and contexts come from modules that can be imported, not from the script that is run: workers
    never look at that one, so it needs no `if __name__ == "__main__"`.

    Parameters
    ----------
    n_jobs : int
        Number of processes.
    """

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs = n_jobs
        self._pool = ProcessPoolExecutor(n_jobs, _Spawning(), initializer=_begin_work)

    def map(
        self, function: Callable[[Context, Shard], Result], context: Context, shards: Sequence[Shard]
    ) -> Iterator[Result]:
        """Yield `function(context, shard)` for every shard, in order.

        At most a few are under way at a time.
        """
        waiting: list[Future[Result]] = []
        try:
            with tempfile.NamedTemporaryFile(prefix="visionkl-", suffix=".context") as file:
                pickle.dump(context, file, protocol=pickle.HIGHEST_PROTOCOL)
                file.flush()
                for shard in shards:
                    waiting.append(self._pool.submit(_call, function, file.name, shard))
                    if len(waiting) > 2 * self.n_jobs:
                        yield waiting.pop(0).result()
                while waiting:
                    yield waiting.pop(0).result()
        except BrokenProcessPool:
            raise VisionklError(
                "a worker process was ended from outside, perhaps for want of memory; fewer --jobs need less."
            ) from None
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """Let the workers go."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class _Worker(SpawnProcess):
    """A process that starts without running the user's script once more."""

    def start(self) -> None:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main


class _Spawning(SpawnContext):
    """How workers are started: anew, because a fork may copy a lock that a thread at work holds for ever."""

    Process = _Worker


def make_executor(n_jobs: int | None = None) -> Executor:
    """Choose an executor: processes for more than one job (all usable cores by default)."""
    n_jobs = n_jobs or usable_cores()
    return SerialExecutor() if n_jobs == 1 else ProcessExecutor(n_jobs)


def _begin_work() -> None:
    """Run in a new worker: one thread; whoever started it decides what an interruption means."""
    set_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when the process that started it is gone, killed for want of memory, say.

    A worker waits for work at a pipe that its fellows hold open, too, and would wait there for ever.
    """
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


_context: tuple[str, Any] = ("", None)


def _call(function: Callable[[Any, Any], Any], context_file: str, shard: Any) -> Any:
    """Run in a worker: read the context when a new pass begins."""
    global _context
    if _context[0] != context_file:
        _context = ("", None)
        give_back()  # what the pass before has left
        with open(context_file, "rb") as file:
            _context = (context_file, pickle.load(file))
    return function(_context[1], shard)
