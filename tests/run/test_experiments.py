"""The command `bench`, and the pages that experiments write."""

import json
from pathlib import Path

import numpy as np
import pytest

from visionkl._version import __version__
from visionkl.report.curves import Curve, plot_curves
from visionkl.run import experiments
from visionkl.run.console import Console
from visionkl.run.experiments.findings import Findings, Table


def test_an_unknown_experiment_is_a_usage_error(capsys):
    assert experiments.main(["nonsense"]) == 2
    assert "there is no experiment 'nonsense'" in capsys.readouterr().err


def test_all_experiments_are_named_in_the_help(capsys):
    assert experiments.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in experiments.EXPERIMENTS)


def test_findings_become_a_page_with_its_figures(tmp_path):
    findings = Findings("Time", "We measured.")
    findings.tables.append(Table("Seconds", ["n", "ours"], [[1000, 0.12345], [10_000, None]], "Quick."))
    curve = Curve("ours", [1000, 10_000], [0.1, 1.0])
    findings.add_plot("time", "Time against n", plot_curves([curve], x_label="n", y_label="s"))
    folder = findings.save(tmp_path / "x")
    page = (folder / "results.md").read_text(encoding="utf-8")
    assert "| 1000 | 0.123 |" in page
    assert "| 10000 |  |" in page
    assert "![Time against n](time.png)" in page
    assert (folder / "time.png").read_bytes().startswith(b"\x89PNG")
    figures = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert figures["tables"][0]["rows"] == [[1000, 0.12345], [10000, None]]
    assert findings.save(tmp_path / "x").name == "x-2"


def test_published_findings_are_shown_and_returned(tmp_path, capsys):
    findings = Findings("Time", "We measured.", [Table("Time", ["n"], [[1]]), Table("Bytes", ["n"], [[2]])])
    document = findings.publish(tmp_path / "x", Console())
    page = str(tmp_path / "x" / "results.md")
    first, second = (table.markdown() for table in findings.tables)
    assert capsys.readouterr().out == f"{first}\n{second}\npage: {page}\n"
    assert document == {"visionkl": __version__, **findings.document(), "page": page}
    assert "## Bytes" in Path(page).read_text(encoding="utf-8")


def test_pages_do_not_tell_where_things_lie(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "sys.argv", ["bench.py", "x", "--data", "/home/me/data", "--seed", "3", "--out", "/home/me"]
    )
    folder = Findings("Time", "We measured.").save(tmp_path / "x")
    page = (folder / "results.md").read_text(encoding="utf-8")
    assert "python tools/bench.py x --data DATA --seed 3`" in page
    assert "/home/me" not in page + (folder / "results.json").read_text(encoding="utf-8")


def test_missing_data_are_named(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("VISIONKL_TEST_DATA", raising=False)
    assert experiments.main(["fisher"]) == 2
    assert "name the folder that holds flowers17" in capsys.readouterr().err
    assert experiments.main(["fisher", "--data", str(tmp_path)]) == 3
    assert "there is no flowers17 in it" in capsys.readouterr().err


@pytest.mark.realdata
def test_fisher_runs(tmp_path, realdata, capsys):
    out = tmp_path / "fisher"
    assert (
        experiments.main(["fisher", "--data", str(realdata), "--out", str(out), "--quick", "--splits", "1"])
        == 0
    )
    assert f"page: {out / 'results.md'}" in capsys.readouterr().out
    tables = json.loads((out / "results.json").read_text(encoding="utf-8"))["tables"]
    accuracies = [float(row[2].split()[0]) for row in tables[0]["rows"]]
    assert len(accuracies) == 2
    assert min(accuracies) > 60  # of two classes
    assert [row[3] for row in tables[1]["rows"]] == [4 * 8 * 16 * 8, 8 * 16]


def small_sets(folder):
    """Two small data sets in the layout of the real ones."""
    random = np.random.default_rng(0)
    (folder / "uci").mkdir()
    for name, n_features in (("sonar", 5), ("liver", 3)):
        y = np.arange(60) % 2
        X = random.normal(size=(60, n_features)) + 2 * y[:, None]
        lines = [",".join([*map(str, row), "MR"[label]]) for row, label in zip(X, y, strict=True)]
        header = ",".join(["V"] * n_features + ["Class"])
        (folder / "uci" / f"{name}.csv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")


def test_binary_maps_are_compared_with_baselines(tmp_path, capsys):
    small_sets(tmp_path)
    arguments = ["--data", str(tmp_path), "--sets", "sonar", "liver", "--repeats", "1", "--quick", "--quiet"]
    assert experiments.main(["mbkl", *arguments, "--out", str(tmp_path / "out"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [table["title"].split(":")[0] for table in document["tables"]] == ["Sonar", "Liver"]
    for table in document["tables"]:
        rows = {row[0]: row for row in table["rows"]}
        assert {"MBKL, stumps", "RBF SVM", "χ² SVM", "random forest", "AdaBoost, stumps"} <= set(rows)
        assert float(rows["MBKL, stumps"][2]) > 70
        assert rows["MBKL, stumps"][5] > 0
    page = (tmp_path / "out" / "results.md").read_text(encoding="utf-8")
    assert "minus the best hand-picked kernel" in page


def test_binary_maps_want_data(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("VISIONKL_TEST_DATA", raising=False)
    assert experiments.main(["mbkl"]) == 2
    assert "name the folder that holds uci/sonar.csv" in capsys.readouterr().err
    assert experiments.main(["mbkl", "--data", str(tmp_path), "--sets", "usps"]) == 3
    assert "there is no usps.npz in it" in capsys.readouterr().err
