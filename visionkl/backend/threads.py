"""Threads, settled in one place.

Work is cut into tasks that run side by side in Python threads: the compiled loops and BLAS release the GIL.
While they run, BLAS itself is held to one thread, so that `n_jobs` threads are all there are and no BLAS
worker spins beside a compiled loop.
"""

import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Task = TypeVar("Task")
Result = TypeVar("Result")


def usable_cores() -> int:
    """Count the cores that this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_default: int | None = None


def set_threads(n_threads: int) -> None:
    """Set how many threads this process uses where nothing else is said; worker processes use one each."""
    global _default
    _default = n_threads


def thread_count(n_jobs: int | None) -> int:
    """Tell how many threads `run_tasks` uses for many tasks."""
    return n_jobs or _default or usable_cores()


def run_tasks(
    function: Callable[[Task], Result], tasks: Iterable[Task], n_jobs: int | None = None
) -> list[Result]:
    """Call `function` on every task with at most `n_jobs` threads; results keep the order of the tasks.

    Parameters
    ----------
    function : callable
        Must release the GIL for most of its time to gain from threads.
    tasks : iterable
        Put the longest first: they are handed out in order as threads become free.
    n_jobs : int, optional
        Number of threads; all usable cores by default.

    Examples
    --------
    >>> run_tasks(abs, [-1, 2, -3], n_jobs=2)
    [1, 2, 3]
    """
    tasks = list(tasks)
    n_threads = min(thread_count(n_jobs), len(tasks))
    with _blas().limit(limits=1, user_api="blas"):
        if n_threads <= 1:
            return [function(task) for task in tasks]
        return _share(function, tasks, n_threads)


def _share(function: Callable[[Task], Result], tasks: list[Task], n_threads: int) -> list[Result]:
    """Let this thread and others draw tasks from one line: handing each over by itself takes longer."""
    results: dict[int, Result] = {}
    line = iter(enumerate(tasks))
    work = [function]

    def draw() -> None:
        try:
            for number, task in line:
                results[number] = work[0](task)
        except BaseException:
            for _ in line:  # nobody needs to go on
                pass
            raise

    helpers = [_pool(n_threads - 1).submit(draw) for _ in range(n_threads - 1)]
    try:
        draw()
    finally:
        # One that has not begun, because all are busy, has nothing left to do.
        busy = [helper for helper in helpers if not helper.cancel()]
        wait(busy)
        # The pool keeps it, though, until a thread is free, which may be long where tasks have tasks: it must
        # not keep what they worked on, nor, below, their results.
        work.clear()
    for helper in busy:
        helper.result()
    return [results.pop(number) for number in range(len(tasks))]


# Each brings a BLAS of its own, and may be imported at any time.
_BRING_BLAS = ("numpy", "scipy.linalg", "cv2")


def _blas() -> "ThreadpoolController":
    return _controller(tuple(name in sys.modules for name in _BRING_BLAS))


@cache
def _controller(imported: tuple[bool, ...]) -> "ThreadpoolController":
    from threadpoolctl import ThreadpoolController

    # Looking for the loaded libraries takes milliseconds, so it is done only when there may be new ones.
    return ThreadpoolController()


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="visionkl")
