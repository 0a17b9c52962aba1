"""The training benchmarks: their data, their children, their files; the trainers themselves are stand-ins."""

import doctest
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from tests.evaluation.test_voc_ap import dataset_of
from visionkl.core.types import Annotation
from visionkl.datasets.base import Example
from visionkl.datasets.sample import make_sample_set
from visionkl.datasets.voc import VOC
from visionkl.detection.model import Component, MixtureModel
from visionkl.detection.samples import Samples
from visionkl.detection.settings import TrainingSettings

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def modules(monkeypatch):
    """The modules as the benchmark's own scripts import them, without real data."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import children
    import training
    import training_data
    import training_worker

    monkeypatch.setattr(training, "real_data", lambda: None)
    return SimpleNamespace(
        children=children, training=training, training_data=training_data, worker=training_worker
    )


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return make_sample_set(tmp_path_factory.mktemp("data") / "sample", n_train=6, n_val=3, n_test=3)


# -- data ----------------------------------------------------------------------------------------------------


def test_examples_in_the_module_hold(modules):
    outcome = doctest.testmod(modules.training_data)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_boxes_alike_and_large_are_learnable(modules):
    rng = np.random.default_rng(0)
    sizes = rng.uniform(90, 300, (50, 1)) * [1, 0.8]
    corners = rng.uniform(0, 100, (50, 2))
    assert modules.training_data.learnable(np.hstack([corners, corners + sizes])).all()
    assert not modules.training_data.learnable([[0, 0, 40, 40]] * 3).any()
    assert modules.training_data.learnable([]).tolist() == []


def test_voc_round_trip(modules, tmp_path):
    picture = np.full((40, 60, 3), 90, np.uint8)
    objects = Annotation([[0, 0, 10.5, 20], [5, 5, 60, 40]], ["car", "a & b"], difficult=[True, False])
    modules.training_data.write_voc(tmp_path, "train", [("one", picture, objects)])
    modules.training_data.write_voc(tmp_path, "val", [("two", picture, Annotation())])
    (example,) = VOC(tmp_path, split="train")
    assert example.annotation.labels == objects.labels
    np.testing.assert_allclose(example.annotation.boxes, objects.boxes, atol=1e-3)
    assert example.annotation.difficult.tolist() == [True, False]
    assert example.size() == (60, 40)
    assert abs(int(example.image()[20, 20, 0]) - 90) <= 2
    (other,) = VOC(tmp_path, split="val")
    assert len(other.annotation) == 0


def test_pictures_are_resized_with_their_boxes(modules, sample):
    example = VOC(sample, split="train")[0]
    image_id, picture, objects = modules.training_data.with_longest_side(100)(example)
    assert image_id == example.id
    assert max(picture.shape) == 100
    factor = picture.shape[1] / example.size()[0], picture.shape[0] / example.size()[1]
    np.testing.assert_allclose(objects.boxes, example.annotation.boxes * np.tile(factor, 2), rtol=1e-5)


def test_pictures_that_show_an_object(modules):
    objects = {
        "none": Annotation(),
        "other": Annotation([[0, 0, 9, 9]], ["dog"]),
        "hard": Annotation([[0, 0, 9, 9]], ["car"], difficult=[True]),
        "one": Annotation([[0, 0, 9, 9]], ["car"]),
        "two": Annotation([[0, 0, 9, 9]], ["car"]),
    }
    shown = modules.training_data.showing(dataset_of(objects), "car", 1)
    assert [example.id for example in shown] == ["one"]


def test_boxes_that_dlib_cannot_learn_are_ignored_by_all(modules, tmp_path, monkeypatch):
    monkeypatch.setattr(Example, "image", lambda self: np.zeros((400, 600, 3), np.uint8))
    objects = {
        "a": Annotation([[0, 0, 100, 100], [0, 0, 20, 20], [0, 0, 500, 90]], ["car", "car", "dog"]),
        "b": Annotation(),
        "c": Annotation([[0, 0, 600, 90], [9, 19, 209, 219]], ["car", "car"]),
        "d": Annotation([[0, 0, 90, 90]], ["car"], difficult=[True]),
    }
    marked = modules.training_data.for_dlib(dataset_of(objects), "car")
    assert [some.difficult.tolist() for _, _, some in marked] == [
        [False, True, False], [], [True, False], [True]
    ]  # fmt: skip
    data = dataset_of({image_id: some for image_id, _, some in marked})
    modules.training_data.write_dlib_list(tmp_path / "list.xml", data, "car")
    lines = (tmp_path / "list.xml").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("<image ")] == [
        f'<image file="{name}.jpg">' for name in "abcd"
    ]
    assert [line for line in lines if line.startswith("<box")] == [
        "<box top='0' left='0' width='100' height='100'/>",
        "<box top='0' left='0' width='20' height='20' ignore='1'/>",
        "<box top='0' left='0' width='600' height='90' ignore='1'/>",
        "<box top='19' left='9' width='200' height='200'/>",
        "<box top='0' left='0' width='90' height='90' ignore='1'/>",
    ]


# -- children ------------------------------------------------------------------------------------------------

CHILD = """
import json, sys
request = json.loads(sys.stdin.readline())
held = b"x" * request["bytes"]
for phase in ("training", "detection"):
    print(json.dumps({"phase": phase, "sum": request["a"] + 1}), flush=True)
    sys.stdin.readline()
sys.exit(request["code"])
"""


def child(tmp_path, **request):
    path = tmp_path / "child.py"
    path.write_text(CHILD, encoding="utf-8")
    return [sys.executable, str(path)], {"a": 1, "bytes": 0, "code": 0, **request}


def test_a_child_answers_phase_by_phase(modules, tmp_path):
    phases = modules.children.watch(*child(tmp_path, bytes=50_000_000))
    assert list(phases) == ["training", "detection"]
    assert phases["training"]["sum"] == 2
    if sys.platform == "linux":
        light = modules.children.watch(*child(tmp_path))
        assert phases["training"]["peak_memory"] > light["training"]["peak_memory"] + 40_000_000


def test_the_failure_of_a_child_is_told(modules, tmp_path):
    with pytest.raises(RuntimeError, match=r"child\.py ended with exit code 3"):
        modules.children.watch(*child(tmp_path, code=3))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is known on Linux only")
def test_memory_of_grandchildren_counts(modules, tmp_path):
    program = """
import json, subprocess, sys
sys.stdin.readline()
hold = "held = b'x' * 60_000_000; print(1, flush=True); input()"
inner = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
inner.stdout.readline()
print(json.dumps({"phase": "training"}), flush=True)
sys.stdin.readline()
inner.stdin.write(b"\\n"); inner.stdin.close(); inner.wait()
"""
    path = tmp_path / "family.py"
    path.write_text(program, encoding="utf-8")
    peak = modules.children.watch([sys.executable, str(path)], {})["training"]["peak_memory"]
    assert peak > 60_000_000


def test_our_worker_trains_searches_and_saves(modules, sample, tmp_path, monkeypatch, capsys):
    asked = {}

    def train(dataset, label, settings, *, n_jobs, max_memory, observer, start):
        assert start is None
        asked.update(n_pictures=len(dataset), label=label, settings=settings, n_jobs=n_jobs)
        samples = Samples(
            np.zeros((7, 5), np.uint8), np.zeros((5, 0, 2), np.int16), np.zeros(5, np.uint8),
            np.zeros((5, 4), np.int32),
        )  # fmt: skip
        for negatives in ((samples, samples), (samples,)):
            observer.checkpoint(SimpleNamespace(negatives=negatives))
        return MixtureModel(label, (Component(np.zeros((3, 3, 32), np.float32), bias=-1.0),))

    monkeypatch.setattr(modules.worker.training, "train", train)
    request = {
        "root": str(sample), "year": None, "train": "train", "test": "val", "label": "robot",
        "settings": {"n_parts": 0}, "max_memory": None, "threads": 1, "found": str(tmp_path / "found.json"),
    }  # fmt: skip
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request) + "\n"))
    modules.worker.main()
    trained, searched = map(json.loads, capsys.readouterr().out.splitlines())
    assert (asked["n_pictures"], asked["label"], asked["settings"].n_parts, asked["n_jobs"]) == (
        6,
        "robot",
        0,
        1,
    )
    assert trained["phase"] == "training"
    assert trained["cache_bytes"] == 2 * (35 + 5 + 80)
    assert searched["phase"] == "detection"
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert len(found) == 3
    assert all(len(row) == 5 for rows in found.values() for row in rows)


# -- the command ---------------------------------------------------------------------------------------------


@pytest.fixture
def stand_in(modules, monkeypatch, tmp_path):
    """Trainers: ours finds the first object of every picture, dlib's none; every request is kept."""
    requests = []

    def watch(command, request):
        requests.append((Path(command[-1]).name, request))
        phases = {"training": {"seconds": 10.0 * len(requests), "peak_memory": 2e8, "cache_bytes": 3e6}}
        if request.get("test") or "pictures" in request:
            found = {image_id: [] for image_id in request.get("pictures", ())}
            if "pictures" not in request:
                for example in VOC(request["root"], year=request["year"], split=request["test"]):
                    boxes = example.annotation.of(request["label"]).boxes[:1].tolist()
                    found[example.id] = [[*box, 1.0] for box in boxes]
            Path(request["found"]).write_text(json.dumps(found), encoding="utf-8")
            phases["detection"] = {"seconds_a_picture": 0.05}
        return phases

    def small(folder, **_):
        return make_sample_set(folder, n_train=6, n_val=3, n_test=3)

    monkeypatch.setattr(modules.children, "watch", watch)
    monkeypatch.setattr(modules.training, "make_sample_set", small)
    monkeypatch.setattr(modules.training.peers, "PYTHON", Path(sys.executable))
    return requests


def rows_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["rows"]


def test_dlib_and_ours_get_the_same_boxes(modules, stand_in, tmp_path, capsys):
    out = tmp_path / "dlib.json"
    assert modules.training.main(["dlib", "--out", str(out)]) == 0
    assert [program for program, _ in stand_in] == [
        "training_worker.py",
        "peer_trainer.py",
        "peer_trainer.py",
    ]
    assert [request.get("cost") for _, request in stand_in] == [None, 5, 100]
    assert stand_in[0][1]["settings"] == {"n_components": 1, "n_parts": 0, "min_overlap": 0.6}
    ours, five, _ = rows_of(out)
    assert ours["ap_07"] > 0
    assert five["ap_07"] == 0
    assert ours["n_objects"] == five["n_objects"]
    table = capsys.readouterr().out
    assert table == out.with_suffix(".md").read_text(encoding="utf-8")
    lines = [line for line in table.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    assert "| dlib, C = 5 | 20.0 s |  | 0.50 | 200 MB | 0.0 |" in table


def test_the_part_model_stands_beside_the_quoted_figure(modules, stand_in, tmp_path, capsys):
    out = tmp_path / "ffld2.json"
    assert modules.training.main(["ffld2", "--out", str(out)]) == 0
    ((_, request),) = stand_in
    assert request["test"] is None
    assert request["settings"] == {"n_components": 1, "n_parts": 8}
    table = capsys.readouterr().out
    assert "| visionkl | 10.0 s |  | 1.00 | 200 MB | robot," in table
    assert "| FFLD2 (quoted) | 197 s |  | 0.05 | 1.20 GB |" in table
    assert [row["name"] for row in rows_of(out)] == ["visionkl, robot"]  # what is quoted was not measured


def test_the_table_goes_on_where_it_was(modules, stand_in, sample, tmp_path, capsys, monkeypatch):
    out = tmp_path / "table.json"
    command = ["table", "--data", str(sample), "--category", "robot", "--out", str(out)]
    measure, n_calls = modules.children.watch, []

    def fail_at_the_third(*arguments):
        n_calls.append(1)
        if len(n_calls) == 3:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(modules.children, "watch", fail_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        modules.training.main(command)
    assert [row["coding"] for row in rows_of(out)] == ["M = 4, D = 256", "dense"]
    assert modules.training.main(command) == 0
    rows = rows_of(out)
    assert [row["bytes_a_cell"] for row in rows] == [4, 128, 2, 1, 8, 4, 2]
    assert [request["settings"] for _, request in stand_in][1:3] == [
        {"n_blocks": 0},
        {"n_blocks": 2, "n_codewords": 256},
    ]
    given = [request["max_memory"] for _, request in stand_in]
    assert [memory is not None for memory in given] == [row["coding"] == "dense" for row in rows]
    assert len(stand_in) == 7  # none was measured twice
    assert "is there already" in capsys.readouterr().err


def test_the_rigid_detector_is_that_of_the_recipe(modules, stand_in, sample, tmp_path):
    out = tmp_path / "rigid.json"
    command = ["rigid", "--data", str(sample), "--category", "robot", "--out", str(out)]
    assert modules.training.main(command) == 0
    (asked,) = [request["settings"] for _, request in stand_in]
    recipe = yaml.safe_load((BENCHMARKS.parent / "models" / "rigid.yaml").read_text(encoding="utf-8"))
    assert TrainingSettings(**asked) == TrainingSettings(**recipe)
    assert [row["coding"] for row in rows_of(out)] == ["M = 2, D = 256"]


def test_a_row_that_fails_is_told_and_the_others_go_on(modules, stand_in, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(modules.training.peers, "PYTHON", tmp_path / "no-python")
    out = tmp_path / "dlib.json"
    assert modules.training.main(["dlib", "--out", str(out)]) == 1
    assert [row["program"] for row in rows_of(out)] == ["visionkl, rigid"]
    assert "dlib, C = 5 was not measured: run 'python benchmarks/peers.py install'" in capsys.readouterr().err


def test_an_unknown_category_is_told(modules, stand_in, sample, tmp_path, capsys):
    out = tmp_path / "table.json"
    command = ["table", "--data", str(sample), "--category", "zebra", "--out", str(out)]
    assert modules.training.main(command) == 2
    assert "there is no class 'zebra'; there are digger, robot, tricycle." in capsys.readouterr().err
    assert not stand_in


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "required: what"),
        (["ffld2", "--out", "no/such/folder.json"], "does not exist"),
        (["table", "--data", "."], "--data needs a --category"),
    ],
)
def test_usage_errors_exit_with_2(arguments, complaint, tmp_path):
    command = [sys.executable, str(BENCHMARKS / "training.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert complaint in done.stderr
