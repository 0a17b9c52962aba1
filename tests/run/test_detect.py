"""The command `detect`: what goes in, what comes out, and what it says when something is wrong."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from visionkl.core.boxes import to_voc
from visionkl.core.types import Detections
from visionkl.evaluation.results import read_coco_results, read_voc_results
from visionkl.run.detect import main


@pytest.fixture
def bench(workbench, tmp_path, monkeypatch):
    """A private copy of the workbench, as the current folder."""
    shutil.copytree(workbench, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(bench, capsys):
    def run(*arguments):
        code = main([*map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


class TestResults:
    def test_lines_for_people(self, run):
        code, out, err = run("album", "--model", "patch.safetensors")
        heading, *rows = (line.split() for line in out.splitlines())
        assert (code, heading) == (0, ["picture", "class", "score", "x1", "y1", "x2", "y2"])
        assert [row[:2] for row in rows] == [["album/first.png", "patch"], ["album/second.jpg", "patch"]]
        np.testing.assert_allclose(
            [list(map(float, row[3:])) for row in rows], [[48, 32, 112, 80]] * 2, atol=1
        )
        assert len({len(line) for line in out.splitlines()}) == 1  # aligned
        assert err.startswith("2 detections in 2 of 3 pictures (")

    def test_models_before_pictures(self, run):
        assert run("--model", "patch.safetensors", "album/first.png")[0] == 0
        assert run("--model", "patch.safetensors", "album/*.jpg")[0] == 0

    def test_nothing_found_is_said(self, run):
        code, out, err = run("album/nothing.png", "--model", "patch.safetensors")
        assert (code, out) == (0, "")
        assert err.startswith("nothing found in 1 picture; a lower --threshold finds more")

    def test_a_threshold_of_ones_own(self, run):
        assert run("album", "--model", "patch.safetensors", "--threshold", "1000", "--quiet") == (0, "", "")
        many = run("album/first.png", "--model", "patch.safetensors", "--threshold", "-100", "--quiet")[1]
        assert len(many.splitlines()) > 5

    def test_at_most_so_many(self, run):
        arguments = ["album/first.png", "--model", "patch.safetensors", "--threshold", "-100", "--quiet"]
        all_lines = run(*arguments)[1].splitlines()
        assert run(*arguments, "--max-detections", 3)[1].splitlines() == all_lines[:4]

    @pytest.mark.parametrize("how", [["--json"], ["--format", "json"], ["--format", "json", "--json"]])
    def test_one_json_document(self, run, how):
        code, out, _ = run("album", "--model", "patch.safetensors", *how)
        document = json.loads(out)
        assert code == 0
        assert out.count("\n") == 1
        assert document["models"][0] == {
            "file": "patch.safetensors",
            "label": "patch",
            "threshold": document["models"][0]["threshold"],
        }
        first, nothing, second = document["pictures"]
        assert (first["picture"], first["width"], first["height"]) == ("album/first.png", 160, 120)
        assert (nothing["detections"], document["skipped"]) == ([], [])
        (found,) = second["detections"]
        assert (found["label"], found["component"], len(found["parts"])) == ("patch", 0, 1)
        np.testing.assert_allclose(found["box"], [48, 32, 112, 80], atol=1)
        np.testing.assert_allclose(found["parts"][0], [52, 36, 76, 60], atol=1)

    def test_a_json_file(self, run, bench):
        code, out, _ = run(
            "album", "--model", "patch.safetensors", "--format", "json", "--out", "x", "--no-draw"
        )
        assert (code, out, files(bench / "x")) == (0, "", ["detections.json"])
        assert len(json.loads((bench / "x/detections.json").read_text())["pictures"]) == 3

    def test_voc_files(self, run, bench):
        code, *_ = run("album", "--model", "patch.safetensors", "--format", "voc", "--out", "x", "--no-draw")
        assert (code, files(bench / "x")) == (0, ["comp3_det_test_patch.txt", "images_test.txt"])
        found = read_voc_results(bench / "x", "test", "patch")
        assert sorted(found) == ["first", "second"]
        np.testing.assert_allclose(found["first"].boxes, [[48, 32, 112, 80]], atol=1)

    def test_coco_files(self, run, bench):
        code, *_ = run("album", "--model", "patch.safetensors", "--format", "coco", "--out", "x", "--no-draw")
        assert (code, files(bench / "x")) == (0, ["coco_categories.json", "coco_results.json"])
        categories = json.loads((bench / "x/coco_categories.json").read_text())
        assert categories == [{"id": 1, "name": "patch"}]
        found = read_coco_results(bench / "x/coco_results.json", {1: "patch"})
        np.testing.assert_allclose(found["second"].boxes, [[48, 32, 112, 80]], atol=1)


class TestDrawings:
    def test_every_picture_is_drawn_at_its_own_size(self, run, bench):
        code, _, err = run("album", "--model", "patch.safetensors", "--out", "x/y")
        assert (code, files(bench / "x/y")) == (0, ["first.jpg", "nothing.jpg", "second.jpg"])
        assert err.rstrip().endswith("see x/y")
        with Image.open(bench / "x/y/first.jpg") as drawn, Image.open(bench / "album/first.png") as source:
            assert drawn.size == source.size
            difference = np.abs(np.asarray(drawn, int) - np.asarray(source.convert("RGB"), int)).max(axis=2)
        assert difference[32, 60:100].min() > 60  # the upper edge of the frame
        assert np.median(difference) < 20  # the rest is the picture

    def test_parts_can_be_left_out(self, run, bench):
        run("album/first.png", "--model", "patch.safetensors", "--out", "with")
        run("album/first.png", "--model", "patch.safetensors", "--out", "without", "--no-parts")
        assert (bench / "with/first.jpg").read_bytes() != (bench / "without/first.jpg").read_bytes()

    def test_equal_names_do_not_meet(self, run, bench):
        shutil.copytree(bench / "album", bench / "other")
        code, *_ = run("album", "other", "--model", "patch.safetensors", "--out", "x", "--quiet")
        assert code == 0
        assert files(bench / "x") == sorted(
            f"{folder}/{name}.jpg" for folder in ("album", "other") for name in ("first", "nothing", "second")
        )

    def test_sources_are_never_overwritten(self, run, bench):
        before = (bench / "album/second.jpg").read_bytes()
        code, _, err = run("album", "--model", "patch.safetensors", "--out", "album")
        assert code == 2
        assert "would overwrite the picture album/second.jpg" in err
        assert (bench / "album/second.jpg").read_bytes() == before


class TestFailures:
    @pytest.fixture
    def broken(self, bench):
        whole = (bench / "album/second.jpg").read_bytes()
        (bench / "album/cut.jpg").write_bytes(whole[: len(whole) // 2])
        (bench / "album/text.png").write_text("no picture")
        return bench

    def test_broken_pictures_stop_it_before_it_starts(self, run, broken):
        code, out, err = run("album", "--model", "patch.safetensors", "--out", "x")
        assert (code, out, files(broken / "x")) == (3, "", [])
        assert "album/cut.jpg: the picture is damaged" in err
        assert "album/text.png: this is not a picture" in err
        assert "--on-bad-data skip" in err.splitlines()[-1]

    def test_broken_pictures_are_skipped_when_told_to(self, run, broken):
        code, out, err = run("album", "--model", "patch.safetensors", "--on-bad-data", "skip", "--json")
        document = json.loads(out)
        assert (code, len(document["pictures"])) == (0, 3)
        assert [bad["picture"] for bad in document["skipped"]] == ["album/cut.jpg", "album/text.png"]
        assert err.count("skipped.") == 2

    def test_nothing_readable_is_an_error_either_way(self, run, broken):
        code, _, err = run("album/cut.jpg", "--model", "patch.safetensors", "--on-bad-data", "skip")
        assert code == 3
        assert err.splitlines()[-1] == "detect: none of the 1 pictures can be read."

    @pytest.mark.parametrize(
        ("arguments", "code", "sentence"),
        [
            (["--model", "patch.safetensors", "empty"], 3, "empty: this folder holds no pictures"),
            (
                ["--model", "patch.safetensors", "none.jpg"],
                3,
                "none.jpg: there is no such picture or folder.",
            ),
            (["--model", "none.safetensors", "album"], 3, "none.safetensors: there is no such file."),
            (["--model", "cut.safetensors", "album"], 3, "cut.safetensors: "),
            (["--model", "text.mat", "album"], 3, "text.mat: "),
            (["--model", "album", "album"], 2, "--model needs a value."),
            (
                ["--model", "patch.safetensors", "album", "--out", "text.mat/x"],
                3,
                "text.mat/x: cannot write into",
            ),
            (["--model", "patch.safetensors", "album", "--format", "voc"], 2, "--format voc writes files"),
            (["--model", "patch.safetensors", "a b.png", "--format", "voc", "--out", "x"], 3, "a b.png: VOC"),
            (
                ["--model", "patch.safetensors", "album", "--max-detections", "0"],
                2,
                "--max-detections must be",
            ),
            (
                ["--model", "patch.safetensors", "album", "--threshold", ".nan"],
                2,
                "--threshold must be a finite",
            ),
        ],
    )
    def test_one_sentence_and_the_right_code(self, run, bench, arguments, code, sentence):
        (bench / "empty").mkdir()
        (bench / "text.mat").write_text("no model")
        whole = (bench / "patch.safetensors").read_bytes()
        (bench / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
        shutil.copy(bench / "album/first.png", bench / "a b.png")
        before = files(bench)
        got, out, err = run(*arguments)
        assert (got, out) == (code, "")
        assert err.startswith(f"detect: {sentence}")
        assert err.count("\n") == 1
        assert files(bench) == before

    @pytest.mark.parametrize("size", [(1, 1), (3, 200), (20, 20)])
    def test_a_picture_smaller_than_the_filters_holds_nothing(self, run, bench, size):
        Image.new("RGB", size, (200, 50, 90)).save(bench / "small.png")
        code, out, err = run("small.png", "--model", "patch.safetensors", "--out", "x")
        assert (code, out, files(bench / "x")) == (0, "", ["small.jpg"])
        assert "smaller than what the models look for (64 × 48 at least)" in err


@pytest.mark.realdata
def test_published_models_together_find_what_the_original_program_finds(realdata, tmp_path, capsys):
    """Four models share a pyramid, and the results files hold the original's boxes."""
    models = {
        "bicycle": "VOC2007_bicycle_final",
        "bus": "VOC2007_bus_final",
        "person": "VOC2007_person_final",
        "inriaperson": "INRIA_person_final",
    }
    folder = realdata / "voc_dpm_models"
    reference = json.loads((folder / "reference_detections.json").read_text())
    arguments = [*(str(folder / f"{picture}.png") for picture in reference), "--threshold", "-1", "--model"]
    arguments += [str(folder / f"{name}.mat") for name in models.values()]
    assert main([*arguments, "--format", "voc", "--out", str(tmp_path), "--quiet"]) == 0
    assert {f"{picture}.jpg" for picture in reference} < set(files(tmp_path))
    for label, name in models.items():
        found = read_voc_results(tmp_path, "test", label)
        for picture, by_model in reference.items():
            expected = np.reshape(by_model[name]["regressed_boxes_after_nms_0.5"], (-1, 5))
            here = found.get(picture, Detections())
            np.testing.assert_allclose(to_voc(here.boxes), expected[:, :4], atol=0.5)
            np.testing.assert_allclose(here.scores, expected[:, 4], atol=1e-3)
