"""The README is true: its Python runs, its commands exist, its links lead somewhere.

The Python is run on a smaller sample set than the README's first command leaves, and trains in fewer rounds.
"""

import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from visionkl.detection import detector

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOLDERS = (".", "benchmarks", "datasets", "docs", "models")
PAGES = sorted(page for folder in FOLDERS for page in (ROOT / folder).glob("*.md"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def few_rounds():
    """Training in a fraction of its time."""
    asked = detector.training_settings

    def fewer(*given):
        rounds = {"root_rounds": 1, "part_rounds": 1, "mining_rounds": 2}
        return replace(asked(*given), **rounds, training_interval=3, interval=5)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detector, "training_settings", fewer)
        yield


@pytest.fixture(scope="module")
def after_example(tmp_path_factory, few_rounds):
    """A folder in which the example has run; it holds the sample set, too."""
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        runpy.run_path(str(ROOT / "examples" / "first_detector.py"))["main"](n_train=45, n_test=12)
    return folder


@pytest.mark.slow
def test_the_example_makes_a_model_and_draws(after_example):
    made = {path.suffix for path in (after_example / "runs" / "first_detector").iterdir()}
    assert made == {".safetensors", ".jpg"}


@pytest.mark.slow
def test_the_python_in_the_readme_runs(after_example, monkeypatch, capsys):
    monkeypatch.chdir(after_example)
    monkeypatch.setenv("MPLBACKEND", "agg")
    namespace: dict[str, object] = {}
    for number, block in enumerate(blocks("python")):
        exec(compile(block, f"README.md, Python block {number}", "exec"), namespace)
    assert "digger" in capsys.readouterr().out
    # Forty-five pictures are few, and yet the model must have got the idea.
    assert namespace["result"].mean_ap > 0.5


def test_two_commands_set_up_and_run():
    lines = [line for line in "".join(blocks("sh")).splitlines() if line.startswith("python3 -m venv ")]
    assert len(lines) == 2
    for line in lines:
        assert all((ROOT / script).is_file() for script in re.findall(r"\S+\.py", line))


COMMAND_LINES = [line for line in "".join(blocks("sh")).splitlines() if line.startswith("visionkl ")]


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_commands_in_the_readme_exist(line):
    from visionkl.run.main import COMMANDS

    _, command, *words = shlex.split(line)
    assert command in COMMANDS
    call = f"import sys; from visionkl.run.main import main; sys.exit(main([{command!r}, '--help']))"
    shown = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True).stdout
    for word in words:
        if word.startswith("--"):
            option = rf"(?<![\w-]){re.escape(word)}(?![\w-])"
            assert re.search(option, shown), f"{command} has no option {word}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_folder_of_the_package_is_on_the_map():
    for folder in (path for path in (ROOT / "visionkl").iterdir() if (path / "__init__.py").is_file()):
        assert f"`visionkl/{folder.name}`" in README
    for name in re.findall(r"^\| `((?:visionkl|tools|examples|benchmarks)[\w/.]*)`", README, re.MULTILINE):
        assert (ROOT / name).exists()


def test_the_picture_is_our_own_and_small():
    assert 0 < (ROOT / "docs" / "first_detector.jpg").stat().st_size < 400_000
