"""The benchmark harness: its arithmetic, its turns, its tables, and one row from end to end."""

import doctest
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def modules(monkeypatch):
    """The harness, its tables and its peers, as the benchmark's own scripts import them."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import harness
    import peers
    import tables

    return harness, tables, peers


def result_of(modules, entries, **setting):
    harness, _, _ = modules
    row = harness.Row("name", "a title", (1,), 3, lambda _: entries)
    return harness.measure(row, harness.Setting(None, 1, None, None, **setting), quick=True)


def timed(seconds):
    """A piece of work that says how long it took: the given durations, one after the other."""
    durations = iter(seconds)
    return lambda: next(durations)


def test_examples_in_the_modules_hold(modules):
    for module in modules[:2]:
        outcome = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
        assert outcome.attempted > 0
        assert outcome.failed == 0


def test_summary_by_hand(modules):
    summary = modules[0].summary
    assert summary([5.0]) == {"median": 5.0, "low": 5.0, "high": 5.0, "minimum": 5.0}
    assert summary([1.0, 3.0]) == {"median": 2.0, "low": 1.5, "high": 2.5, "minimum": 1.0}


def test_ratios_are_paired_round_by_round(modules):
    # The machine is ten times slower in the second round: the ratio of each round is 2 all the same.
    ratios = modules[0].paired_ratios([2.0, 20.0, 2.0], [1.0, 10.0, 1.0])
    assert ratios == {"median": 2.0, "low": 2.0, "high": 2.0, "minimum": 2.0}


def test_ratios_need_as_many_rounds_on_both_sides(modules):
    with pytest.raises(ValueError, match="argument 2"):
        modules[0].paired_ratios([1.0, 2.0], [1.0])


def test_contestants_take_turns_and_warm_up_unmeasured(modules):
    harness, _, _ = modules
    order = []

    def work(name):
        return lambda: order.append(name)

    contestants = [harness.Contestant("a", "ours", work("a")), harness.Contestant("b", "peer", work("b"))]
    times = harness.take_turns(contestants, rounds=2, warm_ups=1, rest=0)
    assert order == ["a", "b", "a", "b", "b", "a"]  # the first two are the warm-up
    assert {name: len(values) for name, values in times.items()} == {"a": 2, "b": 2}
    assert min(times["a"]) >= 0


def test_time_taken_elsewhere_is_believed(modules):
    harness, _, _ = modules
    contestants = [harness.Contestant("a", "peer", timed([9.0, 1.5, 2.5]))]
    assert harness.take_turns(contestants, rounds=2, warm_ups=1, rest=0) == {"a": [1.5, 2.5]}


def test_a_row_in_numbers_and_in_words(modules):
    harness, tables, _ = modules
    entries = [
        harness.Contestant("visionkl", "ours", timed([9, 0.2, 0.4, 0.3])),
        harness.Contestant("peer 1.0", "peer", timed([9, 0.1, 0.2, 0.15])),
        harness.Contestant("sgemm", "limit", timed([9, 0.05, 0.1, 0.075])),
        harness.Contestant("absent", "peer", missing="not installed"),
        harness.Quoted("FFLD2", 0.6, "its paper"),
    ]
    result = result_of(modules, entries, breakdown={"filters": 0.3, "rest": 0.1}, notes=["a note"])
    assert result["ours"]["seconds"]["median"] == 0.3
    assert result["peers"][0]["ours_by_this"]["median"] == pytest.approx(2)
    assert result["limits"][0]["ours_by_this"]["median"] == pytest.approx(4)
    assert result["quoted"][0]["ours_by_this"] == pytest.approx(0.5)
    assert result["missing"] == [{"name": "absent", "reason": "not installed"}]

    report = {"machine": tables.machine_facts(), "picture": "drawn", "rows": [result]}
    text = tables.markdown(report)
    header, rule, line = (row for row in text.splitlines() if row.startswith("|"))
    assert header.count("|") == rule.count("|") == line.count("|") == 10
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[0] == "a title"
    assert cells[2].startswith("300 ms")
    assert cells[3:6] == ["peer 1.0", "150 ms (125 ms – 175 ms)", "2.00 (2.00 – 2.00)"]
    assert cells[6:8] == ["sgemm: 75.0 ms", "4.00 (4.00 – 4.00)"]
    assert cells[8] == "FFLD2: 600 ms → 0.50"
    assert "filters 300 ms (75%), rest 100 ms (25%)" in text
    assert "absent was not run: not installed" in text
    assert "a note" in text


def test_a_row_that_cannot_be_measured_says_why(modules):
    harness, tables, _ = modules

    def refuse(_):
        raise harness.NotHere("there is no model here")

    row = harness.Row("name", "a title", (1,), 3, refuse)
    result = harness.measure(row, harness.Setting(None, 1, None, None), quick=True)
    text = tables.markdown({"machine": tables.machine_facts(), "picture": "drawn", "rows": [result]})
    assert "| a title | 1 | not measured |" in text
    assert "there is no model here" in text


def test_two_rows_of_one_name_are_refused(modules, monkeypatch):
    harness, _, _ = modules
    monkeypatch.setattr(harness, "ROWS", {})
    harness.row("same", "title")(lambda _: [])
    with pytest.raises(ValueError, match="two rows called 'same'"):
        harness.row("same", "title")(lambda _: [])


def test_rows_of_classifiers_on_few_small_samples(modules):
    import bench_classifiers

    harness, tables, _ = modules
    data = bench_classifiers.coded(400, 64)
    for function, arguments in ((bench_classifiers.expansions, ()), (bench_classifiers.routes, (("gram",),))):
        row = harness.Row("name", "a title", (1,), 1, lambda s, f=function, a=arguments: f(s, data, *a))
        result = harness.measure(row, harness.Setting(None, 1, None, None), quick=True)
        text = tables.markdown({"machine": tables.machine_facts(), "picture": "drawn", "rows": [result]})
        assert "visionkl" in text
        assert result["ours"]["seconds"]["median"] > 0


def test_rows_of_twin_processes_on_few_samples(modules, monkeypatch):
    import bench_twin

    harness, _, _ = modules
    for name, value in (("N_SAMPLES", 240), ("N_NEW", 20), ("N_LOOPED", 5)):
        monkeypatch.setattr(bench_twin, name, value)
    for name in ("hsic-powers", "twin-search", "twin-search-flat"):
        setting = harness.Setting(None, 1, None, None)
        result = harness.measure(harness.ROWS[name], setting, quick=True)
        assert result["peers"][0]["ours_by_this"]["median"] > 0
        assert setting.notes


def test_without_peers_the_reason_is_given(modules, monkeypatch, tmp_path):
    _, _, peers = modules
    monkeypatch.setattr(peers, "PYTHON", tmp_path / "no-python")
    with peers.Peers() as group:
        contestant = group.contestant("dlib", "dlib_pyramid", {})
    assert "peers.py install" in contestant.missing


def test_one_row_from_end_to_end(tmp_path):
    out = tmp_path / "result.json"
    command = [sys.executable, str(BENCHMARKS / "run.py"), "import", "--quick", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["format"] == 1
    assert [row["name"] for row in report["rows"]] == ["import"]
    assert len(report["rows"][0]["ours"]["times"]) == 3
    assert out.with_suffix(".md").read_text(encoding="utf-8") == done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["no-such-row"], "there is no row called no-such-row"),
        (["--out", "no/such/folder.json"], "does not exist"),
    ],
)
def test_usage_errors_exit_with_2(arguments, complaint, tmp_path):
    command = [sys.executable, str(BENCHMARKS / "run.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert complaint in done.stderr
