"""The one place that talks to the terminal: results and progress out, errors as one sentence, exit codes.

A command is a dataclass of options and a story, a function that is read top to bottom. `run_command` turns
the dataclass into command-line options (`visionkl.run.options` says how), calls the story with the options
and a `Console`, and returns the exit code::

    @dataclass(frozen=True)
    class CountOptions:
        folders: list[Path]                 # documented in the class docstring, which becomes the help

    def count(options: CountOptions, console: Console) -> dict[str, int]:
        for folder in console.track(options.folders, "counting"):
            ...
        console.result("12 pictures")       # for people, on stdout
        return {"pictures": 12}             # for programs, on stdout with --json

    sys.exit(run_command(CountOptions, count, name="count", positional="folders"))

What goes where: `Console.result` writes to stdout (to nowhere with `--json`, where stdout holds what the
story returns as one JSON document); notes, warnings, progress and errors go to stderr. `--quiet` drops notes
and progress, never warnings and errors. Every command has `--jobs`, `--json`, `--quiet`, `--debug` and
`--config`.

jsonargparse and rich are imported when they are needed: importing this module costs nothing, and `--help` is
quick.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from visionkl.backend.threads import usable_cores
from visionkl.core.errors import VisionklError
from visionkl.run.options import parse

if TYPE_CHECKING:
    import rich.progress

Options = TypeVar("Options")
Item = TypeVar("Item")

#: Set to anything but "" or "0", it shows tracebacks as `--debug` does.
DEBUG_VARIABLE = "VISIONKL_DEBUG"

_PLAIN_PROGRESS_EVERY = 10.0  # seconds between progress lines where there is no terminal
_COMPILING_NOTE_AFTER = 2.0  # seconds before a warm-up is explained


def run_command(
    options_class: type[Options],
    story: Callable[[Options, Console], Any],
    argv: Sequence[str] | None = None,
    *,
    name: str,
    positional: str | None = None,
    ends_list: Callable[[str], bool] | None = None,
) -> int:
    """Parse the command line, run the story, and return the exit code.

    Parameters
    ----------
    options_class : dataclass
        Its fields are the options; see the top of this module.
    story : callable
        Called with the options and a `Console`; what it returns is the JSON document of `--json`.
    argv : sequence of str, optional
        The arguments without the program's name; `sys.argv[1:]` by default.
    name : str
        What usage lines and errors call the command; where that was typed, it is `visionkl <command>`.
    positional : str, optional
        The list field that collects the arguments which belong to no option, wherever they stand.
    ends_list : callable, optional
        Says of an argument that it cannot belong to a list option and is positional, so that
        `--model bicycle.safetensors street.jpg` means what it says.

    Returns
    -------
    int
        0 ok, 1 failure, 2 usage, 3 bad data, 130 interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if Path(sys.argv[0]).stem == "visionkl" and len(sys.argv) > 1:
        name = f"visionkl {sys.argv[1]}"
    debug = "--debug" in arguments or os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")
    try:
        options, common, given = parse(
            options_class, arguments, name=name, positional=positional, ends_list=ends_list
        )
        debug = debug or common.debug
        console = Console(jobs=common.jobs, json=common.json, quiet=common.quiet, given=given)
        document = story(options, console)
        if common.json:
            console.document(document)
        sys.stdout.flush()
        return 0
    except SystemExit as end:  # --help and --print-config
        return end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        return _complain(name, "interrupted; the files that are there are whole.", 130, debug)
    except VisionklError as error:
        return _complain(name, str(error), error.exit_code, debug)
    except BrokenPipeError:
        # The reader of stdout (head, say) has gone; Python's flush at exit must not complain about it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(name, f"{where}{error.strerror or error}.", 1, debug)
    except MemoryError:
        return _complain(name, "the memory is used up; fewer --jobs or smaller pictures need less.", 1, debug)
    except Exception as error:
        what = " ".join(str(error).split())
        sentence = f"unexpected {type(error).__name__}{': ' + what if what else ''} (--debug shows where)."
        return _complain(name, sentence, 1, debug)


def _complain(name: str, sentence: str, code: int, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc(file=sys.stderr)
    with suppress(OSError):
        sys.stderr.write(f"{name}: {' '.join(sentence.split())}\n")
        sys.stderr.flush()
    return code


def _as_json(value: Any) -> Any:
    """Serialise what stories return beside plain values: NumPy arrays and numbers, paths, dataclasses."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


class Progress:
    """Counts the steps of a stage; made by `Console.progress`."""

    def __init__(self, show: Callable[[int], None]) -> None:
        self._show = show
        self._lock = threading.Lock()
        self.done = 0

    def advance(self, steps: int = 1) -> None:
        """Count `steps` more; may be called from any thread."""
        with self._lock:
            self.done += steps
            self._show(self.done)


class Console:
    """What a story uses to talk to people.

    Parameters
    ----------
    jobs : int, optional
        How much may run at a time; all usable cores by default. Stories pass it down.
    json : bool
        Whether stdout is kept for a JSON document.
    quiet : bool
        Whether notes and progress are dropped.
    given : collection of str
        Names of the options that were given, on the command line or in `--config`.

    Attributes
    ----------
    log : Path or None
        A file that gets all results, notes and warnings, too, with the time; None by default.

    Examples
    --------
    >>> console = Console(jobs=1, quiet=True)
    >>> console.result("12 pictures")
    12 pictures
    >>> [path for path in console.track(["a.jpg", "b.jpg"], "reading")]
    ['a.jpg', 'b.jpg']
    """

    def __init__(
        self,
        *,
        jobs: int | None = None,
        json: bool = False,
        quiet: bool = False,
        given: Collection[str] = (),
    ) -> None:
        self.jobs = usable_cores() if jobs is None else jobs
        self.json = json
        self.quiet = quiet
        self.given = frozenset(given)
        self.log: Path | None = None
        self._live: rich.progress.Progress | None = None

    def result(self, text: str) -> None:
        """Write a result for people to stdout; nothing with `--json`, whose document holds the results."""
        self.keep(text)
        if not self.json:
            if self._live is not None and sys.stdout.isatty():
                self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                sys.stdout.write(text + "\n")
                sys.stdout.flush()  # who reads through a pipe sees each result when it is there

    def document(self, value: Any) -> None:
        """Write a value to stdout as one JSON document; stories return it instead, and `--json` does this."""
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_as_json)
        sys.stdout.write(text + "\n")

    def note(self, text: str) -> None:
        """Say something useful on stderr; nothing with `--quiet`."""
        self.keep(text)
        if not self.quiet:
            self._to_stderr(text)

    def warn(self, text: str) -> None:
        """Say on stderr what the user must know, even with `--quiet`."""
        self.keep(f"warning: {text}")
        self._to_stderr(f"warning: {text}")

    def keep(self, text: str) -> None:
        """Write a text to the log alone, if there is one."""
        if self.log is not None:
            with suppress(OSError), self.log.open("a", encoding="utf-8") as file:  # it is only the log
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")

    def _to_stderr(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def track(self, items: Iterable[Item], stage: str, total: int | None = None) -> Iterator[Item]:
        """Pass items on and show how far they are."""
        if total is None and isinstance(items, Sized):
            total = len(items)
        with self.progress(stage, total) as progress:
            for item in items:
                yield item
                progress.advance()

    def progress(self, stage: str, total: int | None = None) -> AbstractContextManager[Progress]:
        """Show the progress of a stage on stderr: its name, the count and the time left.

        A bar on a terminal, a line every ten seconds elsewhere, nothing with `--quiet`.
        """
        if self.quiet:
            return _silent_progress()
        if sys.stderr.isatty() and self._live is None:
            return self._bar(stage, total)
        return self._lines(stage, total)

    @contextmanager
    def _bar(self, stage: str, total: int | None) -> Iterator[Progress]:
        import rich.console
        import rich.progress as bar

        columns = [
            bar.TextColumn("{task.description}"),
            bar.BarColumn(),
            bar.MofNCompleteColumn(),
            bar.TimeElapsedColumn(),
            bar.TextColumn("left"),
            bar.TimeRemainingColumn(),
        ]
        with bar.Progress(*columns, console=rich.console.Console(stderr=True)) as bars:
            task = bars.add_task(stage, total=total)
            self._live = bars
            try:
                yield Progress(lambda done: bars.update(task, completed=done))
            finally:
                self._live = None

    @contextmanager
    def _lines(self, stage: str, total: int | None) -> Iterator[Progress]:
        started = last = time.monotonic()

        def show(done: int) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _PLAIN_PROGRESS_EVERY and done != total:
                last = now
                self._to_stderr(f"{stage}: {progress_text(done, total, now - started)}")

        yield Progress(show)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Explain a slow first call: a note appears if the wrapped warm-up takes more than two seconds."""
        text = "compiling the hot loops; later runs start faster ..."
        timer = threading.Timer(_COMPILING_NOTE_AFTER, self.note, [text])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@contextmanager
def _silent_progress() -> Iterator[Progress]:
    yield Progress(lambda done: None)


def progress_text(done: int, total: int | None, seconds: float) -> str:
    """Say how far a stage is.

    Examples
    --------
    >>> progress_text(120, 600, 60.0)
    '120 of 600, about 4 min left'
    >>> progress_text(7, None, 3.0)
    '7'
    """
    if not total:
        return str(done)
    left = seconds / done * (total - done) if done else 0.0
    return f"{done} of {total}" + (f", about {duration_text(left)} left" if done else "")


def duration_text(seconds: float) -> str:
    """Write a duration for people.

    Examples
    --------
    >>> duration_text(4.2), duration_text(90), duration_text(7500)
    ('4 s', '2 min', '2 h 5 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
