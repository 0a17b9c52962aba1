"""Both backends have the same functions: names, parameters and constants."""

import importlib
import inspect
import pkgutil

import pytest

import visionkl.backend.cpu
from tests.backend.gpu.host_build import MODULES

SHARED = [name for name in MODULES if importlib.util.find_spec(f"visionkl.backend.cpu.{name}") is not None]

#: What has no counterpart on the GPU, and why.
ONLY_ON_THE_CPU = {
    "bits.fill_columns": "threads read rows as they are",
    "bits.rank_features": "bits are made by comparisons alone",
    "bits.score_stumps": "bytes of bits are looked up in tables, as other codes are",
    "bits.score_stumps_in_lines": "bytes of bits are looked up in tables, as other codes are",
    "bits.count_ones": "counted once, on the CPU",
    "bits.pack_responses": "of some thousand samples, once, on the CPU",
    "filters.FourierFilters": "matrix products do it all",
    "maps.pack_neighbours": "sparse matrices are made on the CPU",
    "maps.pursue": "a few numbers, one after the other",
    "solver.improve_pairs": "a few numbers, one after the other",
}

#: Modules that have no counterpart on the GPU, and why.
MODULES_OF_THE_CPU = {
    "cover": "segments: one choice after the other",
    "dual": "dual descent: one sample after the other",
    "elementary": "coefficients of polynomials; CUDA has its own functions",
    "flow": "minimum cuts: one push after the other",
    "gradients": "a piece of the CPU's loops over pixels",
    "jit": "how Numba compiles",
    "kmeans": "starts of mixtures and codewords, on some of the rows; not asked for",
    "lbp": "not asked for",
    "phog": "not asked for",
    "regions": "segments: one merge after the other",
    "simd": "how LLVM vectorises",
    "twin": "not asked for",
    "votes": "a piece of the CPU's loops over cells",
}


def public(module_name):
    """Functions and classes that a module defines, or passes on, by name."""
    module = importlib.import_module(module_name)
    found = {}
    for name, value in vars(module).items():
        function = getattr(value, "py_func", value)  # of a compiled loop
        if not name.startswith("_") and callable(function) and _is_own(function, module_name):
            found[name] = function
    return found


def _is_own(function, module_name):
    origin = getattr(function, "__module__", None) or ""
    return origin.startswith("visionkl.backend") and origin.rpartition(".")[2] in module_name.split(".")


@pytest.mark.parametrize("name", SHARED)
def test_functions_have_the_same_parameters(name):
    cpu, gpu = public(f"visionkl.backend.cpu.{name}"), public(f"visionkl.backend.gpu.{name}")
    gpu_module = importlib.import_module(f"visionkl.backend.gpu.{name}")
    for function_name, function in cpu.items():
        if f"{name}.{function_name}" in ONLY_ON_THE_CPU:
            continue
        other = gpu.get(function_name) or getattr(gpu_module, function_name, None)
        assert other is not None, f"backend/gpu/{name}.py has no {function_name}"
        if not inspect.isclass(function):
            assert parameters(other) == parameters(function), f"{name}.{function_name}"


def parameters(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_what_is_left_out_is_there():
    for full_name in ONLY_ON_THE_CPU:
        module, name = full_name.split(".")
        assert name in public(f"visionkl.backend.cpu.{module}")


def test_every_module_of_the_gpu_but_its_own_is_one_of_the_cpu():
    assert set(MODULES) - set(SHARED) == {"device", "launch"}


def test_every_module_of_the_cpu_has_a_counterpart_or_a_reason():
    found = {module.name for module in pkgutil.iter_modules(visionkl.backend.cpu.__path__)}
    assert found - set(SHARED) == set(MODULES_OF_THE_CPU)


@pytest.mark.parametrize("name", SHARED)
def test_the_gpu_has_nothing_that_the_cpu_has_not(name):
    more = set(public(f"visionkl.backend.gpu.{name}")) - set(public(f"visionkl.backend.cpu.{name}"))
    assert more <= {"add_sampled"}  # which is the CPU's in another module, `matching`
