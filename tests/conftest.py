"""Fixtures that many tests share, and the option that runs them on other loops."""

import os
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
#: Folders whose tests are about numbers: with `--loops`, the hot loops under them are the GPU's.
NUMERICAL = ("features", "coding", "kernels", "solvers", "learning", "detection")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--loops",
        choices=("cpu", "host", "cuda"),
        default="cpu",
        help="hot loops under the numerical tests: the CPU's, the GPU's executed by the CPU, or by a GPU",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `-m gpu`, numerical tests are tests of the GPU."""
    if config.option.markexpr == "gpu":
        config.option.loops = "cuda"
        for item in items:
            if _is_numerical(item):
                item.add_marker(pytest.mark.gpu)


def _is_numerical(item: Any) -> bool:
    return item.path.is_relative_to(TESTS) and item.path.relative_to(TESTS).parts[0] in NUMERICAL


@pytest.fixture(scope="session")
def build_folder(request: pytest.FixtureRequest) -> Path:
    """Where CUDA kernels compiled for the CPU are kept; where they cannot be, the test is skipped."""
    from tests.backend.gpu import host_build

    missing = host_build.missing_compiler()
    if missing:
        pytest.skip(missing)
    return Path(request.config.cache.mkdir("gpu-host"))


@pytest.fixture(scope="session")
def kernels_on_host(build_folder: Path, tmp_path_factory: Any) -> Any:
    """All CUDA kernels, compiled for the CPU."""
    from tests.backend.gpu import host_build

    return host_build.machine_of_all_kernels("plain", build_folder, tmp_path_factory.mktemp("machine"))


@pytest.fixture(autouse=True)
def hot_loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the loops under a numerical test that `--loops` asks for."""
    wanted = request.config.option.loops
    if wanted == "cpu" or not _is_numerical(request.node):
        return
    if request.node.get_closest_marker("cpu_loops"):
        pytest.skip("about the CPU's own loops")
    from tests.backend.gpu import carried, fake_cupy
    from visionkl.backend.gpu import device

    if wanted == "host":
        fake_cupy.stand_in(monkeypatch, request.getfixturevalue("kernels_on_host"), "forward")
    elif device.problem() is not None:
        pytest.skip(device.problem())
    carried.carry_loops(monkeypatch)


@pytest.fixture(scope="session")
def realdata() -> Path:
    """Folder with real pictures and published models; tests that use it skip where it is absent."""
    beside_the_clone = TESTS.parents[1] / "shared" / "data"
    folder = Path(os.environ.get("VISIONKL_TEST_DATA", beside_the_clone))
    if not folder.is_dir():
        pytest.skip("no real data here: set VISIONKL_TEST_DATA to run this test")
    return folder
