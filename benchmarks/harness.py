"""How the benchmarks measure, and how they report it.

A *row* is one piece of work. Its *contestants* all do that work: ours, peers, and perhaps a *limit*, which is
the least that any program must do (move the same bytes, make the same multiplications). The contestants of a
row take turns, so that a busy moment of the machine hits all of them alike:

1. every contestant runs a few times unmeasured, which compiles, fills caches and wakes threads;
2. in every round each contestant runs once, in an order that turns round from one round to the next;
3. before each run there is a short rest, because the threads of a BLAS keep spinning for a while.

What is reported is the median and the middle half of a contestant's times, and the median and the middle half
of the *paired* ratios ours ÷ theirs, one for each round. Below 1 we are faster. Figures that somebody else
measured on another day stand in a column of their own, called quoted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from peers import Peers

#: Seconds of rest before a measured run.
REST = 0.05


@dataclass(frozen=True)
class Contestant:
    """Somebody who does the work of a row.

    Parameters
    ----------
    name : str
        With its version, if it is a peer.
    role : "ours", "peer" or "limit"
    run : callable
        Does the work once. Returns the seconds taken if it was timed elsewhere, and None to be timed here.
    missing : str
        Why it cannot run here; "" if it can.
    """

    name: str
    role: Literal["ours", "peer", "limit"]
    run: Callable[[], float | None] = lambda: None
    missing: str = ""


@dataclass(frozen=True)
class Quoted:
    """A figure that was not measured in this run."""

    name: str
    seconds: float
    source: str


@dataclass
class Setting:
    """What a row is given to work with.

    Parameters
    ----------
    picture : ndarray of uint8, shape (375, 500, 3)
    threads : int
    peers : Peers
        Makes contestants that run in the peers' environment.
    data : Path or None
        Folder with real pictures and published models, where there is one.
    breakdown : dict of str to float
        Left empty by the harness: a row may write down where its time goes, in seconds.
    notes : list of str
        A row may add a sentence about what was compared.
    """

    picture: npt.NDArray[np.uint8]
    threads: int
    peers: Peers
    data: Path | None
    breakdown: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """A registered piece of work; `contestants` is called once for each number of threads."""

    name: str
    title: str
    threads: tuple[int, ...]
    rounds: int
    contestants: Callable[[Setting], Iterable[Contestant | Quoted]]


ROWS: dict[str, Row] = {}


class NotHere(Exception):  # noqa: N818 - it is a fact about the machine, not a mistake
    """A row cannot be measured on this machine; the message says why."""


def row(name: str, title: str, *, threads: tuple[int, ...] = (1,), rounds: int = 15) -> Callable[[Any], Any]:
    """Register a function as a row of the benchmark."""

    def register(contestants: Callable[[Setting], Iterable[Contestant | Quoted]]) -> Any:
        if name in ROWS:
            raise ValueError(f"There are two rows called {name!r}.")
        ROWS[name] = Row(name, title, threads, rounds, contestants)
        return contestants

    return register


def take_turns(
    contestants: Sequence[Contestant], *, rounds: int, warm_ups: int = 2, rest: float = REST
) -> dict[str, list[float]]:
    """Run all contestants in turns and return the seconds of each, by name, one for each round."""
    for contestant in contestants:
        for _ in range(warm_ups):
            contestant.run()
    times: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for number in range(rounds):
        for contestant in contestants if number % 2 == 0 else reversed(contestants):
            time.sleep(rest)
            start = time.perf_counter()
            elsewhere = contestant.run()
            here = time.perf_counter() - start
            times[contestant.name].append(here if elsewhere is None else elsewhere)
    return times


def summary(values: Sequence[float]) -> dict[str, float]:
    """Median, quartiles and minimum of some numbers.

    Examples
    --------
    >>> summary([4, 1, 2, 3, 5])
    {'median': 3, 'low': 2.0, 'high': 4.0, 'minimum': 1}
    """
    alone = len(values) == 1
    low, _, high = [values[0]] * 3 if alone else statistics.quantiles(values, n=4, method="inclusive")
    return {"median": statistics.median(values), "low": low, "high": high, "minimum": min(values)}


def paired_ratios(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Summarise the ratios ours ÷ theirs, taken round by round.

    Examples
    --------
    >>> paired_ratios([2, 4, 6], [1, 2, 6])["median"]
    2.0
    """
    return summary([a / b for a, b in zip(ours, theirs, strict=True)])


def measure(row: Row, setting: Setting, *, quick: bool) -> dict[str, Any]:
    """Measure one row with one number of threads; the result is ready for JSON."""
    result: dict[str, Any] = {"name": row.name, "title": row.title, "threads": setting.threads}
    try:
        entries = list(row.contestants(setting))
    except NotHere as reason:
        return {**result, "not_measured": str(reason)}
    quoted = [entry for entry in entries if isinstance(entry, Quoted)]
    present = [entry for entry in entries if isinstance(entry, Contestant) and not entry.missing]
    ours = next(entry for entry in present if entry.role == "ours")
    times = take_turns(present, rounds=3 if quick else row.rounds, warm_ups=1 if quick else 2)
    result["ours"] = {"name": ours.name, "seconds": summary(times[ours.name]), "times": times[ours.name]}
    for role in ("peer", "limit"):
        result[role + "s"] = [
            {
                "name": entry.name,
                "seconds": summary(times[entry.name]),
                "ours_by_this": paired_ratios(times[ours.name], times[entry.name]),
                "times": times[entry.name],
            }
            for entry in present
            if entry.role == role
        ]
    result["quoted"] = [
        {
            "name": entry.name,
            "seconds": entry.seconds,
            "source": entry.source,
            "ours_by_this": statistics.median(times[ours.name]) / entry.seconds,
        }
        for entry in quoted
    ]
    absent = [entry for entry in entries if isinstance(entry, Contestant) and entry.missing]
    result["missing"] = [{"name": entry.name, "reason": entry.missing} for entry in absent]
    result["breakdown"] = dict(setting.breakdown)
    result["notes"] = list(setting.notes)
    return result
