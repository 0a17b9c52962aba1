"""Results of a benchmark as tables in Markdown, and the facts about the machine that belong to them."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("visionkl", "numpy", "scipy", "numba", "opencv-python-headless", "pillow")
_HEADER = ("row", "threads", "ours", "peer", "its time", "ours ÷ peer", "limit", "ours ÷ limit", "quoted")


def machine_facts() -> dict[str, Any]:
    """Collect what a reader must know to compare figures: processor, cores, system, versions."""
    from threadpoolctl import threadpool_info

    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": _processor(),
        "cores": usable,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "blas": sorted({f"{lib['internal_api']} {lib['version']}" for lib in libraries}),
    }


def machine_sentence(machine: dict[str, Any]) -> str:
    """Write the facts about the machine as a sentence."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"Measured {machine['date']} on {machine['processor']}, {machine['cores']} cores,"
        f" {machine['system']}, Python {machine['python']}; {versions};"
        f" BLAS: {', '.join(machine['blas']) or 'unknown'}."
    )


def cores_in_use() -> tuple[float, float, float] | None:
    """Read the clock, and the processor seconds used so far by all programs and by this one with its own."""
    try:
        words = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()
    except OSError:
        return None
    user, nice, system, _, _, interrupts, soft_interrupts = (int(word) for word in words[1:8])
    busy = (user + nice + system + interrupts + soft_interrupts) / os.sysconf("SC_CLK_TCK")
    return time.monotonic(), busy, sum(os.times()[:4])


def cores_used_by_others(
    before: tuple[float, float, float] | None, after: tuple[float, float, float] | None
) -> float | None:
    """Tell how many cores other programs kept busy meanwhile, on average; None where that is not known.

    Examples
    --------
    >>> cores_used_by_others((0.0, 100.0, 10.0), (10.0, 116.0, 21.0))
    0.5
    """
    if before is None or after is None:
        return None
    clock, busy, own = (later - earlier for later, earlier in zip(after, before, strict=True))
    return round(max(busy - own, 0.0) / clock, 2)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def duration(seconds: float) -> str:
    """Write a duration with three digits and a fitting unit.

    Examples
    --------
    >>> duration(0.04312), duration(1.5), duration(3.21e-5)
    ('43.1 ms', '1.50 s', '32.1 µs')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size or unit == "µs":
            value = seconds / size
            return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f} {unit}"
    raise AssertionError("unreachable")


def _with_spread(numbers: dict[str, float]) -> str:
    return f"{duration(numbers['median'])} ({duration(numbers['low'])} – {duration(numbers['high'])})"


def _ratio(numbers: dict[str, float]) -> str:
    return f"{numbers['median']:.2f} ({numbers['low']:.2f} – {numbers['high']:.2f})"


def markdown(report: dict[str, Any]) -> str:
    """Turn a report into Markdown: the machine, the ratios, where time goes, what was not run."""
    lines = [
        f"{machine_sentence(report['machine'])} Picture: {report['picture']}.",
        "",
        *_disturbance(report.get("cores_used_by_others")),
        "Times are medians with the middle half; ratios are paired, round by round: below 1 we are faster.",
        "",
        *_ratio_table(report["rows"]),
        *_breakdowns(report["rows"]),
        *_remarks(report["rows"]),
    ]
    return "\n".join(lines) + "\n"


def _disturbance(cores: float | None) -> list[str]:
    if cores is None or cores < 0.1:
        return []
    return [f"Other programs kept {cores:.1f} cores busy: trust the ratios more than the times.", ""]


def _ratio_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [table_line(_HEADER), "|---" * len(_HEADER) + "|"]
    for row in rows:
        if "not_measured" in row:
            lines.append(table_line([row["title"], str(row["threads"]), "not measured", *[""] * 6]))
            continue
        ours = [(row["title"], str(row["threads"]), _with_spread(row["ours"]["seconds"]))]
        peers = [(e["name"], _with_spread(e["seconds"]), _ratio(e["ours_by_this"])) for e in row["peers"]]
        limits = [
            (f"{e['name']}: {duration(e['seconds']['median'])}", _ratio(e["ours_by_this"]))
            for e in row["limits"]
        ]
        quoted = [
            (f"{e['name']}: {duration(e['seconds'])} → {e['ours_by_this']:.2f}",) for e in row["quoted"]
        ]
        columns = (ours, 3), (peers, 3), (limits, 2), (quoted, 1)
        for number in range(max(len(cells) for cells, _ in columns)):
            groups = (cells[number] if number < len(cells) else ("",) * width for cells, width in columns)
            lines.append(table_line([cell for group in groups for cell in group]))
    return lines


def table_line(cells: Iterable[str]) -> str:
    """Write a line of a table."""
    return "| " + " | ".join(cells) + " |"


def _breakdowns(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for row in rows:
        if row.get("breakdown"):
            total = sum(row["breakdown"].values())
            steps = row["breakdown"].items()
            parts = ", ".join(f"{name} {duration(took)} ({took / total:.0%})" for name, took in steps)
            lines.append(f"- {row['title']}, threads: {row['threads']}: {parts}")
    return ["", "Where the time goes:", "", *lines] if lines else []


def _remarks(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for row in rows:
        remarks = [f"not measured: {row['not_measured']}"] if "not_measured" in row else []
        remarks += [f"{entry['name']} was not run: {entry['reason']}" for entry in row.get("missing", [])]
        remarks += row.get("notes", [])
        remarks += [f"quoted figure of {entry['name']}: {entry['source']}" for entry in row.get("quoted", [])]
        lines += [f"- {row['title']}: {remark}" for remark in remarks]
    return ["", "Remarks:", "", *dict.fromkeys(lines)] if lines else []
