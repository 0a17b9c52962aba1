"""The repository itself: the checks that CI runs, and the promises that README and packaging make."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PATHS = [path for path in ("visionkl", "tests", "tools", "benchmarks", "examples") if (ROOT / path).is_dir()]


def run_tool(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} comes with the extra 'dev'")
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_ruff_is_content():
    done = run_tool("ruff", "check", "--no-cache", *PATHS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_mypy_is_content(tmp_path):
    done = run_tool("mypy", "--cache-dir", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


def setup_commands() -> list[str]:
    """The README's commands that make an environment: one runs the main job, one the tests."""
    return [line for line in README.splitlines() if line.startswith("python3 -m venv")]


def test_readme_has_two_commands_that_need_nothing_but_python():
    commands = setup_commands()
    assert len(commands) == 2
    for command in commands:
        # All goes into the environment: pip may refuse to install anywhere else.
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install ")
        for step in command.split(" && ")[1:]:
            assert step.startswith(".venv/bin/")
    assert [("pytest" in command) for command in commands] == [False, True]


def test_ci_calls_the_readmes_test_command():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert setup_commands()[1] in script.read_text(encoding="utf-8").splitlines()


def test_ci_script_is_sound_bash():
    subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")], check=True)


def test_the_changelog_knows_this_version():
    from visionkl import __version__

    assert f"## [{__version__.removesuffix('.dev0')}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_dependency_has_a_lower_bound():
    for requirement in PROJECT["dependencies"]:
        assert re.match(r"[\w-]+(\[\w+\])?>=\d", requirement), requirement


@pytest.mark.parametrize("extra", ["cuda12", "cuda13", "cluster", "test", "gpu-check", "dev"])
def test_the_promised_extras_are_there(extra):
    assert extra in PROJECT["optional-dependencies"]


def test_console_command_leads_to_a_function():
    module, _, name = PROJECT["scripts"]["visionkl"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize("path", sorted((ROOT / "tools").glob("*.py")), ids=lambda path: path.name)
def test_tools_are_thin(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 30, "a tool parses, calls visionkl.run and exits"


def test_data_folders_hold_no_code():
    for folder in ("datasets", "models"):
        assert not list((ROOT / folder).rglob("*.py"))
