"""The experiment on twin Gaussian processes, and the figures that it draws for itself."""

import json

import numpy as np
import pytest

from visionkl.run import experiments
from visionkl.run.experiments.articulated import walking_figures
from visionkl.run.experiments.twin_problems import SShape


@pytest.fixture
def digits(tmp_path):
    """A file like that of USPS, with drawn bars for digits."""
    random = np.random.default_rng(0)
    pictures = np.zeros((120, 16, 16))
    for picture, column in zip(pictures, random.integers(2, 14, 120), strict=True):
        picture[:, column - 1 : column + 2] = 1000
    rows = (pictures.reshape(120, 256) * random.uniform(0.5, 1, (120, 256))).astype(int)
    np.savez(tmp_path / "usps.npz", x_train=rows[:100], x_test=rows[100:])
    return tmp_path


def test_all_problems_end_in_a_page(digits, tmp_path, capsys):
    out = tmp_path / "page"
    arguments = ["twin", "--quick", "--data", str(digits), "--out", str(out), "--json", "--quiet"]
    assert experiments.main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    gains, *errors = document["tables"]
    assert [table["title"] for table in errors] == ["S-shape", "USPS", "Pose"]
    assert len(gains["rows"]) == 3 * 4
    assert {path.name for path in out.iterdir()} == {
        "results.md",
        "results.json",
        "s_shape.png",
        "digits.png",
    }
    assert "0.2151" in (out / "results.md").read_text(encoding="utf-8")


def test_bad_options(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("VISIONKL_TEST_DATA", raising=False)
    assert experiments.main(["twin", "--quick", "--problems", "usps", "--out", str(tmp_path / "x")]) == 2
    assert "name the folder that holds usps.npz" in capsys.readouterr().err
    assert experiments.main(["twin", "--problems", "cats"]) == 2
    assert "there is no 'cats'" in capsys.readouterr().err
    assert experiments.main(["twin", "--seeds", "0"]) == 2
    (tmp_path / "usps.npz").write_bytes(b"no digits")
    assert experiments.main(["twin", "--quick", "--data", str(tmp_path), "--out", str(tmp_path / "x")]) == 3
    assert "cannot be read as USPS digits" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_figures_are_what_they_are_said_to_be():
    figures = walking_figures(40, seed=3)
    np.testing.assert_array_equal(walking_figures(40, seed=3).angles, figures.angles)
    assert (figures.silhouettes.mean(axis=(1, 2)) > 0.05).all()
    assert not figures.silhouettes[:, [0, -1]].any()  # nothing is cut off
    assert not figures.silhouettes[:, :, [0, -1]].any()
    assert figures.descriptors.min() >= 0
    assert figures.descriptors.max() <= 1
    # The same area in cells of a grid as in pixels.
    np.testing.assert_allclose(figures.descriptors.mean(axis=1), figures.silhouettes.mean(axis=(1, 2)))


def test_a_mirrored_walk_cannot_be_told_apart():
    """Left and right exchanged, and the heading turned: the silhouette is the same."""
    from visionkl.run.experiments import articulated

    angles = np.radians(walking_figures(5, seed=0).angles)
    twin = angles[:, [0, 1, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10]] * np.where(np.arange(12) == 0, -1, 1)
    build = np.ones(2)
    for one, other in zip(angles, twin, strict=True):
        np.testing.assert_array_equal(articulated._draw(one, build), articulated._draw(other, build))


def test_distance_to_the_nearest_answer():
    problem = SShape(10, 200)
    draw = problem.draw(0)
    assert problem.other_errors(draw, draw.Y_new)["to the nearest r"] < 0.05
    assert problem.other_errors(draw, np.full(200, 2.0))["to the nearest r"] > 1


@pytest.mark.realdata
def test_halves_of_real_digits(realdata):
    from visionkl.run.experiments.twin_methods import nearest, process
    from visionkl.run.experiments.twin_problems import Digits

    draw = Digits(realdata / "usps.npz", 200, 50).draw(0)
    assert draw.Y.min() == -1
    assert draw.Y.max() == 1
    plain, mapped = (
        np.abs(process(draw, criterion="KL", mapped=mapped) - draw.Y_new).mean() for mapped in (False, True)
    )
    assert mapped < plain
    assert mapped < np.abs(nearest(draw) - draw.Y_new).mean()
