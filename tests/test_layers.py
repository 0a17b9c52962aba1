"""Arrows between the layers go one way: pyproject.toml holds the contracts, import-linter checks them."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_import_contracts_are_kept():
    pytest.importorskip("importlinter", reason="import-linter comes with the extra 'dev'")
    call = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    command = [sys.executable, "-c", call, "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_subpackage_has_a_layer():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in contracts["contracts"] if contract["type"] == "layers")
    placed = {name.strip(" ()").removeprefix("visionkl.") for layer in layers for name in layer.split("|")}
    package = ROOT / "visionkl"
    present = {entry.name for entry in package.iterdir() if (entry / "__init__.py").is_file()}
    present |= {entry.stem for entry in package.glob("*.py") if not entry.name.startswith("_")}
    assert present <= placed, f"pyproject.toml gives no layer to {sorted(present - placed)}"
