"""Measure ours, peers and limits side by side; print a table and save it.

    python benchmarks/run.py                         all rows
    python benchmarks/run.py pyramid detection       some rows
    python benchmarks/run.py --out results/mine.json saves results/mine.json and results/mine.md
    python benchmarks/run.py --quick                 three rounds, to see that it works

The peers are installed by `python benchmarks/peers.py install`; without them their cells stay empty.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # the rows, and visionkl from this clone

from harness import ROWS, Setting, measure  # noqa: E402
from peers import Peers  # noqa: E402
from pictures import benchmark_picture, real_data  # noqa: E402
from tables import cores_in_use, cores_used_by_others, machine_facts, markdown  # noqa: E402

from visionkl.core.files import atomic_write  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    for path in sorted(HERE.glob("bench_*.py")):
        importlib.import_module(path.stem)
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("names", nargs="*", metavar="ROW", help="rows to measure (all): " + ", ".join(ROWS))
    parser.add_argument("--out", type=Path, help="save FILE.json, and FILE.md beside it")
    parser.add_argument("--quick", action="store_true", help="three rounds only; the figures are rough")
    chosen = parser.parse_args(arguments)
    unknown = sorted(set(chosen.names) - set(ROWS))
    if unknown:
        parser.error(f"there is no row called {', '.join(unknown)}; there are {', '.join(ROWS)}")
    if chosen.out and not chosen.out.resolve().parent.is_dir():
        parser.error(f"{chosen.out}: its folder does not exist")

    picture, kind = benchmark_picture()
    report = {"format": 1, "quick": chosen.quick, "picture": kind, "machine": machine_facts(), "rows": []}
    before = cores_in_use()
    with Peers() as peers:
        for row in (ROWS[name] for name in chosen.names or ROWS):
            for threads in row.threads:
                print(f"{row.title}, threads: {threads} ...", file=sys.stderr, flush=True)
                setting = Setting(picture, threads, peers, real_data())
                report["rows"].append(measure(row, setting, quick=chosen.quick))
    report["cores_used_by_others"] = cores_used_by_others(before, cores_in_use())
    table = markdown(report)
    print(table, end="")
    if chosen.out:
        with atomic_write(chosen.out.with_suffix(".json")) as file:
            json.dump(report, file, indent=1)
        with atomic_write(chosen.out.with_suffix(".md")) as file:
            file.write(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
