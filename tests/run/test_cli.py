"""Commands as people call them: in a process of their own, with exit codes and streams."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from visionkl.run.main import COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]
TOOLS = sorted(path for path in (ROOT / "tools").glob("*.py") if not path.name.startswith("_"))


def call(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
        check=False,
    )


def detect(*arguments, cwd=None):
    return call(ROOT / "tools" / "detect.py", *arguments, cwd=cwd)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda path: path.name)
def test_every_tool_has_help_and_refuses_nonsense(tool, tmp_path):
    shown = call(tool, "--help", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    for option in ("--json", "--quiet", "--jobs"):
        assert option in shown.stdout
    refused = call(tool, "--no-such-option", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1
    assert "--no-such-option" in refused.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_without_the_heavy_libraries(command):
    """Compilers and plotting libraries take a second to load: not for a help text."""
    heavy = {"numba", "matplotlib", "scipy", "cv2", "rich", "numpy"}
    code = (
        "import sys; from visionkl.run.main import main; code = main([sys.argv[1], '--help']);"
        f"sys.exit(code or ' '.join(sorted({heavy!r} & set(sys.modules))) or 0)"
    )
    shown = call("-c", code, command, cwd=ROOT)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("usage: ")


class TestVisionkl:
    def test_help_and_version(self, capsys):
        assert main(["--help"]) == 0
        text = capsys.readouterr().out
        assert all(f"  {command} " in text for command in COMMANDS)
        assert main(["--version"]) == 0
        assert capsys.readouterr().out.startswith("visionkl ")

    def test_without_a_command_it_shows_help_and_ends_with_2(self, capsys):
        assert main([]) == 2
        assert "commands:" in capsys.readouterr().out

    def test_a_command_that_is_not_there(self, capsys):
        assert main(["detct"]) == 2
        assert capsys.readouterr().err == (
            "visionkl: there is no command 'detct'; did you mean detect? Try visionkl --help.\n"
        )

    def test_a_command_is_called_with_what_follows(self, workbench, capsys):
        arguments = [str(workbench / "album/first.png"), "--model", str(workbench / "patch.safetensors")]
        assert main(["detect", *arguments, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["pictures"][0]["detections"]


class TestDetect:
    def test_json_is_one_document_on_stdout(self, workbench):
        done = detect("album", "--model", "patch.safetensors", "--json", cwd=workbench)
        assert done.returncode == 0
        assert len(json.loads(done.stdout)["pictures"]) == 3
        assert "2 detections in 2 of 3 pictures" in done.stderr

    def test_usage_ends_with_2_and_bad_data_with_3(self, workbench, tmp_path):
        assert detect("album", cwd=workbench).returncode == 2
        assert detect("none.jpg", "--model", "patch.safetensors", cwd=workbench).returncode == 3
        done = detect(tmp_path, "--model", workbench / "patch.safetensors")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)

    def test_an_unexpected_error_is_one_sentence_and_ends_with_1(self, workbench, tmp_path):
        broken = tmp_path / "broken.py"
        broken.write_text(
            "import sys, visionkl.store\n"
            "def load_detector(path): raise ZeroDivisionError('by design')\n"
            "visionkl.store.load_detector = load_detector\n"
            "from visionkl.run.detect import main\n"
            "sys.exit(main())\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        arguments = [sys.executable, broken, workbench / "album", "--model", "x"]
        plain = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)
        assert plain.returncode == 1
        assert plain.stderr == "detect: unexpected ZeroDivisionError: by design (--debug shows where).\n"
        traced = subprocess.run(
            [*arguments, "--debug"], capture_output=True, text=True, env=environment, check=False
        )
        assert traced.returncode == 1
        assert "Traceback" in traced.stderr

    @pytest.mark.skipif(os.name != "posix", reason="sends a signal")
    def test_an_interrupt_ends_with_130_and_leaves_whole_files(self, workbench, tmp_path):
        album = tmp_path / "album"
        album.mkdir()
        for number in range(400):
            shutil.copy(workbench / "album/first.png", album / f"{number:03}.png")
        arguments = [ROOT / "tools/detect.py", album, "--model", workbench / "patch.safetensors"]
        arguments += ["--out", tmp_path / "out", "--jobs", "1"]
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout.readline().startswith("picture")  # the work has begun
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 130
        assert err.splitlines()[-1] == "detect: interrupted; the files that are there are whole."
        assert "Traceback" not in err
        written = list((tmp_path / "out").iterdir())
        assert 0 < len(written) < 400
        assert all(path.suffix == ".jpg" and path.read_bytes().endswith(b"\xff\xd9") for path in written)

    @pytest.mark.skipif(os.name != "posix", reason="pipes")
    def test_a_reader_that_leaves_early_gets_no_traceback(self, workbench, tmp_path):
        album = tmp_path / "album"
        album.mkdir()
        for number in range(20):
            shutil.copy(workbench / "album/first.png", album / f"{number:03}.png")
        process = subprocess.Popen(
            [sys.executable, ROOT / "tools/detect.py", album, "--model", workbench / "patch.safetensors"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=120) == 1
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["detect", "--model", "m.safetensors", "picture.jpg"],
        ["evaluate", "--model", "m.safetensors"],
        ["train-detector"],
        ["train-context", "--model", "m.safetensors"],
        ["train-classifier"],
        ["classify", "--model", "m.safetensors", "picture.jpg"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_device_that_is_not_there_is_an_error_before_anything_else(
    arguments, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "--device", "cuda:99"]) == 1
    assert "device 'cuda:99' cannot compute here: " in capsys.readouterr().err
    assert main([*arguments, "--device", "gpu"]) == 2
    assert not list(tmp_path.iterdir())
