"""Every kernel is compiled for real GPUs, by NVIDIA's compiler, to machine code."""

import io
import re

import pytest

from tests.backend.gpu.host_build import MODULES
from visionkl.backend.gpu import launch

FILES = sorted({kernel.file for kernel in launch.KERNELS})
ARCHITECTURES = ["75", "80", "86", "89", "90", "100", "120"]
NO_SPILLS = {"75", "80", "90"}


def compiled(file: str, architecture: str) -> str:
    """Compile a file to a cubin; returns what ptxas says of its kernels."""
    compiler = pytest.importorskip("cupy.cuda.compiler", reason="CuPy comes with the extra 'gpu-check'")
    try:
        compiler.nvrtc.getVersion()
    except Exception as error:  # whatever the missing library raises
        pytest.skip(f"NVRTC, of the extra 'gpu-check', does not load: {error}")
    log = io.StringIO()
    # CuPy's public classes ask for a device first; its program class compiles without one.
    program = compiler._NVRTCProgram(launch.source(file), f"{file}.cu", method="cubin")
    options = (*launch.OPTIONS, f"-arch=sm_{architecture}", "--ptxas-options=-v")
    machine_code = program.compile(options, log)[0]
    assert len(machine_code) > 1000
    return log.getvalue()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("file", FILES)
def test_kernels_compile(file, architecture):
    report = compiled(file, architecture)
    for kernel in launch.KERNELS:
        if kernel.file == file:
            assert f"Compiling entry function '{kernel.name}' for 'sm_{architecture}'" in report
    if architecture in NO_SPILLS:
        spills = [line for line in report.splitlines() if "spill" in line]
        assert spills
        for line in spills:
            assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in line, report


def declared_in(source: str) -> dict[str, tuple[str, int]]:
    """Parameters and block size of every kernel of a source, by name."""
    plain = re.sub(r"//[^\n]*", "", source)
    pattern = r'extern "C" __global__ void __launch_bounds__\((\d+)\)\s+(\w+)\(([^)]*)\)'
    return {
        name: (" ".join(parameters.split()), int(block))
        for block, name, parameters in re.findall(pattern, plain)
    }


@pytest.mark.parametrize("file", FILES)
def test_declarations_are_those_of_the_source(file):
    in_python = {k.name: (k.parameters, k.block) for k in launch.KERNELS if k.file == file}
    in_source = declared_in(launch.source(file))
    assert in_python == in_source
    assert launch.source(file).count("__global__") == len(in_source)


def test_every_source_is_used():
    folder = launch.files("visionkl.backend.gpu")
    assert {entry.name for entry in folder.iterdir() if entry.name.endswith(".cu")} == {
        f"{f}.cu" for f in FILES
    }
    assert set(FILES) <= set(MODULES)


def test_names_of_kernels_are_their_own():
    names = [kernel.name for kernel in launch.KERNELS]
    assert len(set(names)) == len(names)
