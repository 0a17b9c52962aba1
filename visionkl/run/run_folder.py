"""The folder of a training run: everything that was asked for, was measured and came out, and how to go on.

    config.yaml             all options, as --config takes them
    environment.json        versions, cores, the command and its command line
    log.txt                 what was said, with the time
    metrics.csv             one row for each round of training
    checkpoint.safetensors  where the training of a detector stands after each step, until it is finished
    work/                   what the steps of training leave for later ones; removed in the end
    <category>.safetensors  the model; that of a classifier is classifier.safetensors
    comp3_det_*.txt         what a detector found; of a classifier, scores_<split>.csv
    evaluation.json, plots/, report.html

A folder is made new for each run and never overwritten. The report comes last: a run without one is
unfinished, and `--resume` goes on with it. A file is either whole or not there.
"""

from __future__ import annotations

import csv
import io
import json
import platform
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from visionkl._version import __version__
from visionkl.backend.threads import usable_cores
from visionkl.core.errors import DataError, UsageError
from visionkl.core.files import fresh_folder, write_whole
from visionkl.core.observer import Observer, Stage
from visionkl.detection import plan
from visionkl.run.console import Console, duration_text
from visionkl.run.memory import peak_memory
from visionkl.store import read_checkpoint, save_checkpoint

_LIBRARIES = ("numpy", "scipy", "numba", "opencv-python-headless", "pillow", "scikit-learn", "safetensors")

Row = dict[str, Any]


class RunFolder:
    """The folder of one run.

    Parameters
    ----------
    path : Path
        It exists already; `start` makes a new one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.environment = path / "environment.json"
        self.log = path / "log.txt"
        self.metrics = path / "metrics.csv"
        self.checkpoint = path / "checkpoint.safetensors"
        self.evaluation = path / "evaluation.json"
        self.report = path / "report.html"
        self.plots = path / "plots"
        self.work = path / "work"

    @classmethod
    def start(cls, path: Path, config: Mapping[str, Any], command: str) -> RunFolder:
        """Make a new folder, a number appended if the name is taken, and write down what is asked for."""
        run = cls(fresh_folder(path))
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        write_whole(run.config, f"# visionkl {__version__}; --config takes this file\n{text}")
        facts = {"run_by": command, **environment()}
        write_whole(run.environment, json.dumps(facts, indent=2) + "\n")
        return run

    @classmethod
    def reopen(cls, path: Path) -> RunFolder:
        """Open the folder of an unfinished run."""
        run = cls(path)
        if not run.path.is_dir():
            raise DataError(f"{path}: there is no such folder; --resume takes the folder of a run.")
        if not run.config.is_file():
            raise DataError(
                f"{path}: there is no config.yaml in it: this is not the folder of a training run."
            )
        if run.finished:
            raise UsageError(
                f"{path}: this run is finished, see {run.report}; leave --resume out to train again."
            )
        return run

    @classmethod
    def newest_unfinished(cls, parent: Path, command: str) -> RunFolder:
        """Find the run of a command in `parent` that was begun last and is not finished."""
        configs = sorted(parent.glob("*/config.yaml"), key=lambda path: path.stat().st_mtime)
        runs = [cls(path.parent) for path in configs]
        unfinished = [run for run in runs if not run.finished and run.command == command]
        if not unfinished:
            raise DataError(f"{parent}: there is no unfinished run in this folder; name one after --resume.")
        return unfinished[-1]

    @property
    def command(self) -> str | None:
        """The command whose run it is; None if the folder does not say."""
        try:
            return json.loads(self.environment.read_text(encoding="utf-8"))["run_by"]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def finished(self) -> bool:
        """Whether the report, which comes last, is there."""
        return self.report.is_file()

    def tidy(self) -> None:
        """Remove what a finished run has no use for: it would take many times the space of the model."""
        shutil.rmtree(self.work, ignore_errors=True)
        with suppress(OSError):
            self.checkpoint.unlink(missing_ok=True)

    def begin(self, console: Console, summary: str) -> None:
        """Write the log from now on, and say where the run is and what it has to learn from."""
        console.log = self.log
        console.keep(f"visionkl {__version__}: {shlex.join(sys.argv)}")
        console.note(f"run folder: {self.path}")
        console.note(summary)

    def places(self, model: Path) -> dict[str, Any]:
        """Say where everything is, as the documents of `--json` begin."""
        return {
            "visionkl": __version__,
            "run": str(self.path),
            "model": str(model),
            "model_bytes": model.stat().st_size,
            "report": str(self.report),
        }

    def model(self, label: str) -> Path:
        """Where the model goes."""
        return self.path / f"{label}.safetensors"

    def state(self) -> plan.TrainingState | None:
        """Where the training of a detector stood when it was left; None before the first step was done."""
        return read_checkpoint(self.checkpoint) if self.checkpoint.is_file() else None

    def rows(self) -> list[dict[str, str]]:
        """Read the metrics."""
        if not self.metrics.is_file():
            return []
        with self.metrics.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def write_rows(self, rows: list[Row]) -> None:
        """Write the metrics; a column appears with the first row that has it."""
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_whole(self.metrics, text.getvalue())


def environment() -> dict[str, Any]:
    """Tell versions, machine and command line."""
    versions: dict[str, str | None] = {}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "visionkl": __version__,
        "python": platform.python_version(),
        "libraries": versions,
        "system": platform.platform(),
        "cores": usable_cores(),
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }


class RunObserver(Observer):
    """Tells people how training goes, and keeps its figures and its state in the run's folder.

    Parameters
    ----------
    run : RunFolder
    console : Console
    steps : list of str
        Names of the steps of training's plan.
    n_done : int
        Steps that were done before. Metrics of later ones are dropped: these steps are done anew.
    """

    def __init__(self, run: RunFolder, console: Console, steps: list[str], n_done: int = 0) -> None:
        self.run = run
        self.console = console
        self.steps = steps
        self.n_done = n_done
        self.rows: list[Row] = [row for row in run.rows() if _step(row) <= n_done]
        self._seconds_before = float(self.rows[-1]["seconds"]) if self.rows else 0.0
        self._started = time.monotonic()
        self._n_before = n_done
        self._announce()

    @property
    def seconds(self) -> float:
        """Time that training has taken, in all runs of the program together."""
        return self._seconds_before + time.monotonic() - self._started

    @property
    def peak_bytes(self) -> int:
        """Memory that a process has held at most, in all runs of the program together; 0 if unknown."""
        before = max((int(row["memory_mb"]) for row in self.rows), default=0)
        return max(before * 2**20, peak_memory() or 0)

    def stage(self, name: str, total: int | None = None) -> AbstractContextManager[Stage]:
        """Show a stage, with the step that it belongs to."""
        return self.console.progress(f"{self._position()} {name}", total)

    def record(self, row: Row) -> None:
        """Append a row to the metrics, and say it."""
        step = self.n_done + 1
        memory = round((peak_memory() or 0) / 2**20)
        about = {"step": step, "name": self._name(), "seconds": round(self.seconds, 1), "memory_mb": memory}
        self.rows.append({**about, **row, **about})  # our own columns win
        self.run.write_rows(self.rows)
        if row:
            self.console.note("  " + ", ".join(f"{name} {_figure(value)}" for name, value in row.items()))

    def done(self, n_done: int) -> None:
        """Say how far training is."""
        self.n_done = n_done
        done_now = self.n_done - self._n_before
        left = len(self.steps) - self.n_done
        if left > 0 and done_now > 0:
            to_come = (time.monotonic() - self._started) / done_now * left
            self.console.note(f"  {duration_text(self.seconds)} so far, about {duration_text(to_come)} left")
        self._announce()

    def _announce(self) -> None:
        if self.n_done < len(self.steps):
            self.console.note(f"step {self.n_done + 1} of {len(self.steps)}: {self._name()}")

    def _name(self) -> str:
        return self.steps[self.n_done] if self.n_done < len(self.steps) else ""

    def _position(self) -> str:
        return f"{min(self.n_done + 1, len(self.steps))}/{len(self.steps)}"


class DetectorObserver(RunObserver, plan.Observer):
    """Keeps the state of a detector's training, too."""

    def checkpoint(self, state: plan.TrainingState) -> None:
        """Keep the state, and say how far training is."""
        save_checkpoint(state, self.run.checkpoint)
        self.done(state.n_done)


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _step(row: Mapping[str, str]) -> float:
    """Tell the step that a row belongs to; what is no row of ours belongs to none."""
    known = all((row.get(name) or "").isdigit() for name in ("step", "memory_mb"))
    return int(row["step"]) if known else float("inf")
