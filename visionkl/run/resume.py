"""Options of a run that can go on: what is kept of them, and which may be given again.

A run keeps its options in `config.yaml`. `--resume` takes them from there; an option that is given again must
say the same, unless it has no influence on what comes out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from visionkl.core.errors import DataError, UsageError
from visionkl.run.console import Console

if TYPE_CHECKING:
    from visionkl.run.run_folder import RunFolder

Options = TypeVar("Options")

#: What `--resume` without a folder means.
NEWEST = "newest"

# Options that say nothing about the model: a run may go on with others.
_FREE = frozenset({"resume", "device", "config", "jobs", "json", "quiet", "debug"})
# Options that are not kept: they are about one call of the program.
_NOT_KEPT = frozenset({"out", "resume", "dry_run"})


def reopen(options: Options, console: Console, command: str) -> tuple[Options, RunFolder]:
    """Open the run to go on with, and take its options; others than these are refused."""
    from visionkl.run.options import parse
    from visionkl.run.run_folder import RunFolder

    for name in ("out", "dry_run"):
        if name in console.given:
            raise UsageError(f"--{name.replace('_', '-')} means nothing with --resume; leave it out.")
    asked = flat(options)
    run = (
        RunFolder.newest_unfinished(Path("runs"), command)
        if asked["resume"] == NEWEST
        else RunFolder.reopen(Path(asked["resume"] or ""))
    )
    if run.command not in (command, None):
        raise UsageError(
            f"{run.path}: this is a run of {run.command}, which goes on with it; not of {command}."
        )
    try:
        theirs, _, _ = parse(type(options), ["--config", str(run.config)], name=command)
    except UsageError as error:
        raise DataError(f"{run.config}: the settings of this run cannot be read ({error}).") from None
    there = flat(theirs)
    for name in sorted(console.given - _FREE):
        if asked[name] != there[name]:
            raise UsageError(
                f"{run.path}: this run was begun with {name} {there[name]}, not {asked[name]}; leave the "
                f"option out to go on with it, or leave --resume out to train anew."
            )
    return theirs, run


def flat(options: Any) -> dict[str, Any]:
    """List all options by name, those in `settings` among them."""
    values = dataclasses.asdict(options)
    settings = values.pop("settings")
    return {**values, **settings}


def config_of(options: Any) -> dict[str, Any]:
    """Write options down as `--config` takes them."""
    values = {name: value for name, value in flat(options).items() if name not in _NOT_KEPT}
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


@contextmanager
def going_on_later(run: RunFolder, console: Console, has_learned: Callable[[], bool]) -> Iterator[None]:
    """Say, whatever goes wrong, how the run goes on."""
    try:
        yield
    except BaseException as error:
        console.keep(f"stopped: {error!r}")
        kept = "what was learned is kept" if has_learned() else "nothing was learned yet"
        console.warn(f"the run is not finished; {kept}, and --resume {run.path} goes on with it.")
        raise
