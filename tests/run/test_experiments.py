"""The command `bench`, and the pages that experiments write."""

import json

from visionkl.report.curves import Curve, plot_curves
from visionkl.run import experiments
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
