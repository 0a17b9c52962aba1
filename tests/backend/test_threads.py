"""Threads: tasks in order, and memory of each thread's own."""

import os
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

from visionkl.backend.scratch import scratch
from visionkl.backend.threads import run_tasks, thread_count


def test_results_keep_the_order_of_the_tasks():
    assert run_tasks(lambda n: n * n, range(20), n_jobs=3) == [n * n for n in range(20)]
    assert run_tasks(abs, [], n_jobs=2) == []


def test_threads_inside_of_threads_come_to_an_end():
    def inner(n):
        return sum(run_tasks(abs, range(n), n_jobs=2))

    assert run_tasks(inner, [3, 4, 5, 6], n_jobs=2) == [3, 6, 10, 15]


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_an_error_ends_the_work(n_jobs):
    done = []

    def work(n):
        if n == 2:
            raise ValueError("no")
        done.append(n)
        time.sleep(0.001)

    with pytest.raises(ValueError, match="no"):
        run_tasks(work, range(1000), n_jobs)
    assert len(done) < 900


def test_tasks_may_run_tasks():
    assert run_tasks(lambda n: sum(run_tasks(abs, range(n), 1)), [3, 4, 5], n_jobs=2) == [3, 6, 10]


def test_tasks_of_tasks_let_their_results_go():
    both = threading.Barrier(2)
    kept = []

    def work(n):
        arrays = run_tasks(lambda m: np.full(m, n), [3, 4], n_jobs=2)
        kept.append(weakref.ref(arrays[0]))
        del arrays
        both.wait(timeout=10)  # all threads are busy: helpers of the tasks' tasks wait for one
        return sum(array() is not None for array in kept)

    assert run_tasks(work, [1, 2], n_jobs=2) == [0, 0]


def test_a_blas_that_is_loaded_later_is_held_to_one_thread():
    script = (
        "from visionkl.backend.threads import run_tasks\n"
        "run_tasks(abs, [1])\n"
        "import scipy.linalg\n"
        "from threadpoolctl import threadpool_info\n"
        "(inside,) = run_tasks(lambda _: threadpool_info(), [0])\n"
        "print(sorted({one['num_threads'] for one in inside if one['user_api'] == 'blas'}))\n"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[1]\n", "")


def test_the_number_of_threads_is_what_is_asked_for():
    assert thread_count(3) == 3
    assert thread_count(None) >= 1


def test_memory_of_one_name_is_used_again_and_grows():
    first = scratch("test", (3, 4), np.float32)
    assert first.shape == (3, 4)
    assert first.dtype == np.float32
    assert np.shares_memory(first, scratch("test", (2, 2), np.int64))
    assert not np.shares_memory(scratch("test", (2,), np.uint8), scratch("other", (2,), np.uint8))
    assert scratch("test", (100, 100), np.float64).shape == (100, 100)
    assert scratch("test", (0, 5), np.float64).size == 0


def test_every_thread_has_its_own():
    both = threading.Barrier(2)

    def take(value):
        mine = scratch("test", (1000,), np.int64)
        mine[:] = value
        both.wait(timeout=10)
        return mine.min() == mine.max() == value

    assert run_tasks(take, [1, 2], n_jobs=2) == [True, True]
