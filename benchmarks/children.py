"""Programs in processes of their own, with their peak memory watched from outside.

A child is handed one JSON line, and answers with one JSON line for each phase of its work, such as training
and detection; after each it waits for an empty line, while its memory is looked at. What else it has to say
goes to the error stream.

Memory is that of the child together with all processes that it starts. Pages that several of them share are
counted once (PSS, the proportional share), up to ten times a second: a look at gigabytes takes the system
some time, which is not to slow the child down. A peak between two looks may be missed, so the child's own
peak, which the system keeps, counts as well. Both are Linux's; elsewhere the memory is not known.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: Seconds between two looks at a child's memory, at least; and how many times as long as a look they are.
PAUSE = 0.1
REST = 30


def watch(command: Sequence[str], request: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Run a program and return its answers by phase, each with the `peak_memory` so far in bytes (or None).

    Raises
    ------
    RuntimeError
        If the program ends with an error, which it has written to the error stream.
    """
    with subprocess.Popen(
        list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        phases = {}
        with _MemoryMeter(process.pid) as meter:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                phases[answer.pop("phase")] = {**answer, "peak_memory": meter.peak()}
                process.stdin.write("\n")
                process.stdin.flush()
    if process.returncode:
        raise RuntimeError(f"{Path(command[-1]).name} ended with exit code {process.returncode}")
    return phases


class _MemoryMeter:
    """Looks at the memory of a process and its descendants until told to stop."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._peak: int | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _MemoryMeter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        pause = PAUSE
        while not self._stop.wait(pause):
            began = time.perf_counter()
            self.peak()
            pause = max(PAUSE, REST * (time.perf_counter() - began))

    def peak(self) -> int | None:
        """Look once more, and return the peak so far."""
        together = [
            memory for number in _family(self._number) if (memory := _entry(number, "smaps_rollup", "Pss:"))
        ]
        own = _entry(self._number, "status", "VmHWM:")
        with self._lock:
            seen = [value for value in (self._peak, sum(together), own) if value]
            self._peak = max(seen, default=None)
            return self._peak


def _family(number: int) -> list[int]:
    """List the process and all its descendants."""
    members = [number]
    for member in members:  # grows while it is gone through
        try:
            text = Path(f"/proc/{member}/task/{member}/children").read_text(encoding="ascii")
        except OSError:
            continue
        members += map(int, text.split())
    return members


def _entry(number: int, file: str, name: str) -> int | None:
    """Bytes of a line such as `Pss: 1234 kB` about a process; None if it has ended, or without Linux."""
    try:
        lines = Path(f"/proc/{number}/{file}").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)
