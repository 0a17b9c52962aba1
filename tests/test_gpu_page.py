"""docs/gpu.md says what the programs say."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from visionkl.backend.gpu import launch

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_roofline():
    command = [sys.executable, str(ROOT / "benchmarks" / "roofline.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.count("\n|") > 20
    for line in printed.splitlines():
        assert line.lstrip("#") in PAGE


def test_the_roofline_names_kernels_that_exist():
    spec = importlib.util.spec_from_file_location("roofline", ROOT / "benchmarks" / "roofline.py")
    roofline = importlib.util.module_from_spec(spec)
    sys.modules["roofline"] = roofline
    spec.loader.exec_module(roofline)
    sources = {
        path.stem: path.read_text(encoding="utf-8") for path in Path(launch.__file__).parent.glob("*.cu")
    }
    text = "\n".join(sources.values())
    for work in roofline.picture_work() + roofline.rows_work():
        name = work.kernel.replace("Fourier map: ", "").split()[0].rstrip(",:")
        if name not in ("dense", "product", "add_relevant", "choosing", "boxes"):  # what CuPy does
            assert name in text, work.kernel


def test_the_architectures_are_those_compiled_for():
    from tests.backend.gpu.test_compile import ARCHITECTURES, NO_SPILLS

    words = PAGE.replace("\n", " ")
    *others, last = ARCHITECTURES
    assert f"for sm_{', '.join(others)} and {last}" in " ".join(words.split())
    assert "on 75, 80 and 90" in " ".join(words.split())
    assert {"75", "80", "90"} == NO_SPILLS
