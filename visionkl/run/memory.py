"""Amounts of memory: how people write them, and how much of it this run has used."""

from __future__ import annotations

import re
import sys

from visionkl.core.errors import UsageError

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_bytes(text: str, option: str = "--max-memory") -> int:
    """Read an amount of memory such as 8G, 500M, 1.5GB or 2GiB.

    Examples
    --------
    >>> parse_bytes("8G"), parse_bytes("0.5 kB")
    (8589934592, 512)
    """
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([KMGT]?)(?:I?B)?\s*", text.upper())
    if not match or not float(match[1]):
        raise UsageError(f"{option} must be an amount of memory such as 8G or 500M, not {text!r}.")
    return int(float(match[1]) * _UNITS[match[2]])


def bytes_text(n_bytes: float) -> str:
    """Write an amount of memory for people.

    Examples
    --------
    >>> bytes_text(512), bytes_text(268_000), bytes_text(3.2e9)
    ('512 bytes', '262 kB', '3.0 GB')
    """
    if n_bytes < 1024:
        return f"{n_bytes:.0f} bytes"
    for unit, size in (("GB", 2**30), ("MB", 2**20), ("kB", 2**10)):
        if n_bytes >= size:
            amount = n_bytes / size
            return f"{amount:.1f} {unit}" if amount < 10 and unit == "GB" else f"{amount:.0f} {unit}"
    raise AssertionError(n_bytes)


def peak_memory() -> int | None:
    """Bytes that this process, or one of its workers, held at most; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * max(
        resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
