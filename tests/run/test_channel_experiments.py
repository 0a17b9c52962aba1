"""The experiments `flowers` and `imagenet`, on small trees of generated pictures and on real flowers."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.learning.textures import TEXTURES, texture, write_folder
from visionkl.run.experiments import flowers, imagenet

ROOT = Path(__file__).resolve().parents[2]
WNIDS = ("n00000001", "n00000002", "n00000003")


def run(main, capsys, *arguments):
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def rows_of(out, number=0):
    return {row[0]: row[1:] for row in json.loads(out)["tables"][number]["rows"]}


@pytest.fixture
def tree(tmp_path):
    """ImageNet's layout: textures in folders named by WordNet ids."""
    for wnid, name in zip(WNIDS, TEXTURES, strict=True):
        folder = tmp_path / "ILSVRC" / "train" / wnid
        folder.mkdir(parents=True)
        for number in range(18):
            Image.fromarray(texture(name, number, 64)).save(folder / f"{wnid}_{number}.png")
    return tmp_path / "ILSVRC"


def test_imagenet_on_a_small_tree(tree, tmp_path, capsys):
    places = ["--data", tree, "--out", tmp_path / "out", "--cache", tmp_path / "cache"]
    code, out, err = run(imagenet.main, capsys, *places, "--quick", "--json")
    assert code == 0, err
    rows = rows_of(out)
    assert list(rows) == [
        "RFF-SQL-MKL",
        "RFF-SQL-MKL-JOINT",
        "RFF-SQL-SQR-MKL",
        "RFF-SQL-SKL",
        "RFF-SQL-SKL-JOINT",
    ]
    assert all(row[0] > 80 for row in rows.values())  # %, of 12 pictures
    assert rows["RFF-SQL-MKL"][-2:] == [18.5, 196.0]
    weights = rows_of(out, 1)
    assert all(sum(row) == pytest.approx(1) for row in weights.values())
    page = (tmp_path / "out" / "results.md").read_text(encoding="utf-8")
    assert "n00000001, n00000002, n00000003" in page
    assert (tmp_path / "out" / "weights.png").is_file()
    assert len(list((tmp_path / "cache").glob("??/*.npy"))) == 3 * 3 * 16  # channels, classes, pictures


def test_imagenet_takes_folders_of_classes_and_some_of_them(tmp_path, capsys):
    data = write_folder(tmp_path / "textures", 16)
    places = ["--data", data, "--out", tmp_path / "out", "--cache", tmp_path / "cache"]
    arguments = [*places, "--quick", "--json", "--category", *TEXTURES[:2]]
    code, out, err = run(imagenet.main, capsys, *arguments)
    assert code == 0, err
    assert rows_of(out)["RFF-SQL-MKL"][0] > 80


@pytest.mark.parametrize(
    ("arguments", "expected", "complaint"),
    [
        (["--train-pictures", "30"], 3, "the class n00000001 has 18 pictures, but 30 to learn from and 300"),
        (["--test-pictures", "0"], 2, "--test-pictures must be an integer of 1 or more, not 0"),
        (["--category", "n00000009"], 2, "n00000009"),
        (["--data", "nowhere"], 3, "nowhere: there is no such folder"),
    ],
)
def test_imagenet_says_what_is_wrong(tree, tmp_path, capsys, arguments, expected, complaint):
    places = ["--data", tree, "--out", tmp_path / "out", "--cache", tmp_path / "cache"]
    code, _, err = run(imagenet.main, capsys, *places, *arguments)
    assert code == expected
    assert complaint in err
    assert len(err.splitlines()) == 1


def test_the_recipe_is_the_paper_setting():
    recipe = yaml.safe_load((ROOT / "models" / "imagenet_12.yaml").read_text(encoding="utf-8"))
    options = imagenet.ImageNetOptions(**recipe)
    assert len(set(options.category)) == 12
    assert (options.train_pictures, options.test_pictures) == (1000, 300)
    assert "imagenet_12.yaml" in (ROOT / "models" / "README.md").read_text(encoding="utf-8")


def test_flowers_on_textures(tmp_path, capsys):
    data = tmp_path / "data"
    data.mkdir()
    write_folder(data / "flowers17", 80)
    places = ["--data", data, "--out", tmp_path / "out", "--cache", tmp_path / "cache"]
    code, out, err = run(flowers.main, capsys, *places, "--quick", "--json")
    assert code == 0, err
    rows = rows_of(out)
    assert "phog_20 alone" in rows
    learned = rows["all channels, learned weights (GMKL)"]
    assert float(learned[0].split()[0]) > 80
    assert learned[-1] == "85 to 88"
    weights = rows_of(out, 1)
    assert len(weights) == 2
    assert all(sum(row) == pytest.approx(1) for row in weights.values())
    assert "![Weights of the kernels](weights.png)" in (tmp_path / "out" / "results.md").read_text()


def test_flowers_need_their_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("VISIONKL_TEST_DATA", raising=False)
    assert run(flowers.main, capsys)[0] == 2
    code, _, err = run(flowers.main, capsys, "--data", tmp_path)
    assert code == 3
    assert "there is no flowers17 in it" in err


def test_parts_of_a_split_are_apart():
    labels = np.repeat(["a", "b"], 80)
    parts = flowers.three_parts(labels, np.random.default_rng(0))
    assert [len(part) for part in parts] == [80, 40, 40]
    assert sorted(np.concatenate(parts)) == list(range(160))
    assert all((labels[part] == "a").mean() == 0.5 for part in parts)


@pytest.mark.realdata
def test_imagenet_on_flowers_as_a_stand_in(realdata, tmp_path, capsys):
    places = ["--data", realdata / "flowers17", "--out", tmp_path / "out", "--cache", tmp_path / "cache"]
    code, out, err = run(imagenet.main, capsys, *places, "--quick", "--json")
    assert code == 0, err
    assert max(row[0] for row in rows_of(out).values()) > 50  # a third by chance
