"""docs/detectors.md says what was measured."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "detectors.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks" / "results"


def measured(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]


def cells_of(line):
    return [cell.strip() for cell in line.strip("|\n").split("|")]


def line_of(coding, *, rigid=False):
    """The table's line of a coding as results name it."""
    title = "plain cells" if coding == "dense" else coding.replace("M = ", "").replace(", D = ", " × ")
    ends = (", no parts",) if rigid else ("", ", the default")
    (line,) = [
        line for line in PAGE.splitlines() if line.startswith(tuple(f"| {title}{end} |" for end in ends))
    ]
    return cells_of(line)


def cases():
    for label in ("bus", "bicycle"):
        for kind in ("table", "rigid"):
            for row in measured(f"training-{kind}-{label}"):
                yield pytest.param(label, kind, row, id=f"{kind}-{label}-{row['coding']}")


@pytest.mark.parametrize(("label", "kind", "row"), list(cases()))
def test_the_table_is_that_of_the_results(label, kind, row):
    _, n_bytes, smaller, bus, bicycle, negatives, computing = line_of(row["coding"], rigid=kind == "rigid")
    assert n_bytes == str(row["bytes_a_cell"])
    assert smaller == (f"{128 // row['bytes_a_cell']} times" if row["coding"] != "dense" else "")
    assert {"bus": bus, "bicycle": bicycle}[label] == f"{100 * row['ap_07']:.1f}"
    if label == "bicycle":
        size = row["cache_bytes"]
        assert negatives == (f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB")
        assert computing == f"{row['cpu_seconds']:.0f} s"


def test_what_begins_with_a_model_is_that_of_the_results():
    bicycles, buses = measured("training-begin-bicycle"), measured("training-begin-bus")
    for bicycle, bus in zip(bicycles, buses, strict=True):
        title = bicycle["coding"].replace("M = ", "").replace(", D = ", " × ")
        (line,) = [
            x for x in PAGE.splitlines() if x.startswith(f"| begun with the published model, {title} ")
        ]
        assert cells_of(line)[1:] == [
            str(bicycle["bytes_a_cell"]),
            *(f"{100 * row['ap_07']:.1f}" for row in (bicycle, bus)),
            f"{bicycle['seconds']:.0f} s, {bus['seconds']:.0f} s",
        ]


def test_other_trainers_are_those_of_the_results():
    page = " ".join(PAGE.split())
    for data, title in (("sample set", "sample set"), ("raccoon", "raccoons")):
        (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {title}: AP 07")]
        rows = {row["program"]: row for row in measured("training-dlib") if row["data"] == data}
        for cell, program in zip(
            cells_of(line)[1:], ("dlib, C = 5", "dlib, C = 100", "visionkl, rigid"), strict=True
        ):
            row = rows[program]
            said = f"{100 * row['ap_07']:.1f}, {row['seconds']:.0f} s, {row['peak_memory'] / 1e9:.1f} GB"
            assert cell == said
    (ours,) = [row for row in measured("training-ffld2") if row["program"] == "visionkl"]
    assert f"takes {ours['seconds']:.0f} s and {ours['peak_memory'] / 1e9:.2f} GB" in page
