"""Executors: the same results in the same order, whoever works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from visionkl.core.errors import DataError, VisionklError
from visionkl.parallel.executor import ProcessExecutor, SerialExecutor, make_executor

ROOT = Path(__file__).resolve().parents[2]


def scaled(context, shard):
    return context["factor"] * shard


def fails_on_three(context, shard):
    if shard == 3:
        raise DataError("three is not accepted.")
    return shard


def dies(context, shard):
    os._exit(1)


@pytest.fixture(scope="module")
def processes():
    executor = ProcessExecutor(2)
    yield executor
    executor.close()


def test_processes_give_what_one_gives(processes):
    shards = list(range(20))
    assert list(processes.map(scaled, {"factor": 3}, shards)) == list(
        SerialExecutor().map(scaled, {"factor": 3}, shards)
    )


def test_a_new_pass_has_a_new_context(processes):
    assert [sum(processes.map(scaled, {"factor": f}, [1, 2])) for f in (1, 10, 2)] == [3, 30, 6]


def test_errors_arrive_where_they_belong(processes):
    results = processes.map(fails_on_three, None, range(6))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DataError, match="three"):
        next(results)
    assert list(processes.map(scaled, {"factor": 1}, [5])) == [5]


def test_a_pass_may_be_left_early(processes):
    for result in processes.map(scaled, {"factor": 1}, range(100)):
        if result == 5:
            break
    assert list(processes.map(scaled, {"factor": 2}, [1])) == [2]


def test_a_dead_worker_is_reported():
    executor = ProcessExecutor(2)
    with pytest.raises(VisionklError, match="worker process"):
        list(executor.map(dies, None, [1, 2]))
    executor.close()


def test_one_job_needs_no_processes():
    assert isinstance(make_executor(1), SerialExecutor)


def test_a_plain_script_needs_no_main_guard(tmp_path):
    """Workers must not run the script once more: it would start workers of its own."""
    script = tmp_path / "plain.py"
    script.write_text(
        "import operator\n"
        "from visionkl.parallel.executor import ProcessExecutor\n"
        "print('the script runs')\n"
        "executor = ProcessExecutor(2)\n"
        "print(list(executor.map(operator.add, 10, [1, 2, 3])))\n"
        "executor.close()\n"
        "import __main__\n"
        "print(__main__.executor is executor)\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "the script runs\n[11, 12, 13]\nTrue\n"


def test_workers_end_with_a_parent_that_was_killed(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal\n"
        "from visionkl.parallel.executor import ProcessExecutor\n"
        "for _ in ProcessExecutor(2).map(divmod, 7, [1, 2, 3]):\n"
        "    pass\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # The workers hold the pipe: it ends when the last of them has.
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        timeout=60,
    )
    assert done.returncode == -9
