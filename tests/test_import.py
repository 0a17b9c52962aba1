"""`import visionkl` is light, and every public name is there, in the stub too."""

import ast
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import visionkl

PACKAGE = Path(visionkl.__file__).parent
HEAVY = {"numpy", "scipy", "numba", "cupy", "matplotlib", "PIL", "cv2", "rich", "jsonargparse", "pooch"}


def modules_after(code: str) -> set[str]:
    """Top-level packages that a fresh interpreter has imported after running `code`."""
    report = "import sys, json; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    command = [sys.executable, "-c", f"{code}; {report}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_import_loads_nothing_heavy():
    assert modules_after("import visionkl, visionkl.core.errors").isdisjoint(HEAVY)


def test_listing_the_names_loads_nothing_heavy():
    assert modules_after("import visionkl; dir(visionkl); visionkl.__all__").isdisjoint(HEAVY)


def test_annotations_need_neither_a_compiler_nor_a_plotting_library():
    loaded = modules_after("import visionkl; visionkl.Annotation, visionkl.Detections, visionkl.read_image")
    assert loaded.isdisjoint({"numba", "matplotlib", "scipy", "cv2", "rich", "jsonargparse"})


def test_workers_of_training_load_what_they_need():
    """Each worker pays for what it imports, so it had better not import what only the main process needs."""
    workers = "import visionkl.detection.pyramids, visionkl.detection.latent, visionkl.detection.mining"
    assert modules_after(workers).isdisjoint({"cv2", "sklearn", "matplotlib", "rich"})
    assert modules_after("import visionkl.detection.training").isdisjoint({"sklearn", "matplotlib", "rich"})


@pytest.mark.parametrize("name", visionkl.__all__)
def test_every_public_name_resolves(name):
    assert getattr(visionkl, name) is not None
    assert name in dir(visionkl)


@pytest.mark.parametrize(("name", "module"), visionkl._DEFINED_IN.items())
def test_a_public_name_is_what_its_module_defines(name, module):
    assert getattr(visionkl, name) is getattr(importlib.import_module(module), name)


def test_stub_and_table_agree():
    declared = {"__version__": "visionkl._version", **visionkl._DEFINED_IN}
    stub = {}
    for statement in ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                assert alias.asname == alias.name, f"{alias.name}: only 'import x as x' exports from a stub"
                stub[alias.name] = statement.module
    assert stub == declared


def test_no_public_name_hides_a_submodule():
    submodules = {module.name for module in pkgutil.iter_modules([str(PACKAGE)])}
    assert submodules.isdisjoint(visionkl._DEFINED_IN)


def test_a_misspelt_name_is_named():
    with pytest.raises(AttributeError, match="'visionkl' has no attribute 'Detektions'"):
        visionkl.Detektions  # noqa: B018


def test_star_import_gives_the_public_names():
    namespace: dict[str, object] = {}
    exec("from visionkl import *", namespace)
    assert set(visionkl.__all__) <= set(namespace)
