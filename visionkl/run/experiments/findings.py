"""What an experiment found: tables and plots with some words, written as one Markdown page with its figures.

results.md     the page: the command, the machine, tables, plots
results.json   the same figures for programs
*.png          the plots
"""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visionkl._version import __version__
from visionkl.core.errors import DataError, UsageError
from visionkl.core.files import fresh_folder, write_whole
from visionkl.datasets.base import listing
from visionkl.run.run_folder import environment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from visionkl.run.console import Console

#: Where real data lie, for tests and experiments.
DATA_VARIABLE = "VISIONKL_TEST_DATA"

Cell = str | float | int | None


@dataclass(frozen=True)
class Table:
    """A table of figures.

    Parameters
    ----------
    title : str
    columns : sequence of str
    rows : sequence of sequence of str, int, float or None
        Floats are shown with three digits; None is an empty cell: not measured.
    note : str
        What a reader must know to read it right; stands below the table.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    def markdown(self) -> str:
        """Write the table in Markdown.

        Examples
        --------
        >>> print(Table("Errors", ["method", "error, %"], [["ours", 1.23456], ["theirs", None]]).markdown())
        ## Errors
        <BLANKLINE>
        | method | error, % |
        |---|---|
        | ours | 1.23 |
        | theirs |  |
        <BLANKLINE>
        """
        lines = [f"## {self.title}", "", _row(self.columns), "|" + "---|" * len(self.columns)]
        lines += [_row([_shown(cell) for cell in row]) for row in self.rows]
        return "\n".join([*lines, "", *([self.note, ""] if self.note else [])])


@dataclass
class Findings:
    """The tables and plots of one experiment.

    Parameters
    ----------
    title : str
    about : str
        What was done, in some sentences.
    """

    title: str
    about: str
    tables: list[Table] = field(default_factory=list)
    plots: dict[str, tuple[str, Figure]] = field(default_factory=dict)

    def add_plot(self, name: str, title: str, figure: Figure) -> None:
        """Add a plot; `name` becomes the name of its file."""
        self.plots[name] = (title, figure)

    def publish(self, folder: str | Path, console: Console) -> dict[str, Any]:
        """Write everything into a new folder, and show the tables and where the page is.

        Every experiment ends so; what is returned is the document of `--json`.
        """
        page = self.save(folder) / "results.md"
        console.result("\n".join([*(table.markdown() for table in self.tables), f"page: {page}"]))
        return {"visionkl": __version__, **self.document(), "page": str(page)}

    def save(self, folder: str | Path) -> Path:
        """Write everything into a new folder, and return it; a number is appended if the name is taken."""
        folder = fresh_folder(folder)
        facts = environment() | {"command": _command()}
        for name, (_, figure) in self.plots.items():
            picture = io.BytesIO()
            figure.savefig(picture, format="png", dpi=110)
            write_whole(folder / f"{name}.png", picture.getvalue())
        write_whole(folder / "results.json", json.dumps(self.document() | {"made": facts}, indent=1) + "\n")
        write_whole(folder / "results.md", self._page(facts))
        return folder

    def document(self) -> dict[str, Any]:
        """Return the tables for programs."""
        tables = [
            {"title": table.title, "columns": list(table.columns), "rows": [list(row) for row in table.rows]}
            for table in self.tables
        ]
        return {"title": self.title, "tables": tables}

    def _page(self, facts: dict[str, Any]) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in facts["libraries"].items() if version)
        made = (
            f"Made by `{facts['command']}` on {time.strftime('%Y-%m-%d')} with visionkl {facts['visionkl']},"
            f" Python {facts['python']}, {versions}; {facts['cores']} cores."
        )
        parts = [f"# {self.title}", "", self.about, "", made, ""]
        parts += [table.markdown() for table in self.tables]
        for name, (title, _) in self.plots.items():
            parts += [f"## {title}", "", f"![{title}]({name}.png)", ""]
        return "\n".join(parts)


def named_folder(given: Path | None) -> Path | None:
    """Return the folder of real data: that given, or that of the environment, or None."""
    named = os.environ.get(DATA_VARIABLE)
    return given or (Path(named) if named else None)


def data_folder(given: Path | None, *needed: str) -> Path:
    """Return the folder of the data sets that an experiment needs, or say which is missing."""
    folder = named_folder(given)
    if folder is None:
        raise UsageError(
            f"this experiment needs real data: name the folder that holds {listing(needed)} with --data, or "
            f"in {DATA_VARIABLE}."
        )
    for name in needed:
        if not (folder / name).exists():
            raise DataError(f"{folder}: there is no {name} in it, which this experiment needs.")
    return folder


def data_if_named(given: Path | None, name: str) -> Path | None:
    """Return a data set that an experiment can do without; None if no folder of data is named."""
    return None if named_folder(given) is None else data_folder(given, name) / name


def _command() -> str:
    """Return the command line, without where data lie on this machine and where the page goes."""
    arguments = sys.argv[1:]
    for name, shown in (("--data", ["--data", "DATA"]), ("--out", []), ("--cache", [])):
        if name in arguments[:-1]:
            place = arguments.index(name)
            arguments[place : place + 2] = shown
    return shlex.join(["python", "tools/bench.py", *arguments])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.3g}" if abs(cell) < 1000 else f"{cell:.0f}"
    return str(cell)
