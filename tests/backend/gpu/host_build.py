"""Kernels compiled for the CPU: plain, with AddressSanitizer and UBSan, and with ThreadSanitizer.

Each flavour holds all kernels of some `.cu` files. The plain one is a library; the others are programs, since
a sanitiser must be there from a process's start. Builds are kept in a folder, by the hash of all they are
made of.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import importlib
import pkgutil
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import visionkl.backend.gpu
from visionkl.backend.gpu import launch
from visionkl.backend.gpu.launch import Kernel

#: Modules of the GPU's backend; importing them declares all kernels.
MODULES = [module.name for module in pkgutil.iter_modules(visionkl.backend.gpu.__path__)]
for _name in MODULES:
    importlib.import_module(f"visionkl.backend.gpu.{_name}")

HOST = Path(__file__).parent / "host"
ORDERS = {"forward": 0, "backward": 1, "random": 2}
# Like nvcc with --fmad=false, g++ must not fuse what the source does not.
_COMMON = [
    "-std=c++17",
    "-O1",
    "-g1",
    "-ffp-contract=off",
    "-fPIC",
    "-Wall",
    "-Wno-unknown-pragmas",
    "-Wno-unused-function",
    "-Werror",
]
_FLAVOURS = {
    "plain": ([], []),
    "asan": (
        ["-fsanitize=address,undefined", "-fsanitize-sections=shared_memory", "-fno-sanitize-recover=all"],
        ["-DHOST_SERVER", "-DHOST_ASAN"],
    ),
    "tsan": (["-fsanitize=thread"], ["-DHOST_SERVER", "-DHOST_TSAN"]),
}
_ENVIRONMENT = {
    # Shared memory and stacks are looked after; leaks of the server at its end are not of interest.
    "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66:report_bugs=1",
}
_NAMES = {
    "B": "unsigned char", "h": "short", "H": "unsigned short", "i": "int", "I": "unsigned int",
    "q": "long long", "l": "long long", "Q": "unsigned long long", "L": "unsigned long long",
    "f": "float", "d": "double", "?": "bool",
}  # fmt: skip


class KernelFailure(AssertionError):
    """A kernel misbehaved: a sanitiser or the scheduler complained."""


def missing_compiler() -> str | None:
    """Why kernels cannot be compiled for the CPU here, if so."""
    return None if shutil.which("g++") else "g++ is not installed: kernels cannot be compiled for the CPU"


def build(flavour: str, sources: dict[str, str], kernels: Sequence[Kernel], folder: Path) -> Path:
    """Build a flavour of kernels whose sources are given by file name; returns the library or program."""
    units = {
        file: _unit(text, [kernel for kernel in kernels if kernel.file == file])
        for file, text in sources.items()
    }
    sanitiser, defines = _FLAVOURS[flavour]
    parts = [
        *sorted(units.items()),
        sanitiser,
        defines,
        _COMMON,
        *(p.read_text() for p in sorted(HOST.iterdir())),
    ]
    place = folder / f"{flavour}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"
    place.mkdir(parents=True, exist_ok=True)
    built = place / ("kernels.so" if flavour == "plain" else "kernels")
    with _lock(place / "lock"):
        if not built.exists():
            objects = []
            for file, text in units.items():
                (place / f"{file}.cpp").write_text(text, encoding="utf-8")
                objects.append(place / f"{file}.o")
                _compile(
                    [
                        *_COMMON,
                        *sanitiser,
                        f"-I{HOST}",
                        "-c",
                        str(place / f"{file}.cpp"),
                        "-o",
                        str(objects[-1]),
                    ]
                )
            host = place / "host.o"
            _compile([*_COMMON, *defines, f"-I{HOST}", "-c", str(HOST / "host.cpp"), "-o", str(host)])
            shared = ["-shared"] if flavour == "plain" else []
            _compile([*shared, *sanitiser, *map(str, objects), str(host), "-o", f"{built}.new"])
            Path(f"{built}.new").rename(built)
    return built


def _unit(source: str, kernels: Sequence[Kernel]) -> str:
    """C++ with a source and, for each declared kernel, a call that unpacks its arguments."""
    lines = ['#include "cuda_on_host.h"', "#line 1", source]
    for kernel in kernels:
        types = []
        for parameter in kernel.signature:
            name = _NAMES[parameter.dtype.char]
            types.append(
                ("const " if parameter.is_const else "") + name + ("*" if parameter.is_array else "")
            )
        given = ", ".join(f"*({type_}*)a[{i}]" for i, type_ in enumerate(types))
        lines += [
            f"static_assert(std::is_same_v<decltype({kernel.name}), void({', '.join(types)})>);",
            f"static void call_{kernel.name}(void** a) {{ {kernel.name}({given}); }}",
            f'static host::Registration registered_{kernel.name}("{kernel.name}", call_{kernel.name});',
        ]
    return "\n".join(lines) + "\n"


def _compile(arguments: list[str]) -> None:
    done = subprocess.run(["g++", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise KernelFailure(f"g++ {' '.join(arguments)}\n{done.stderr}")


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class PlainMachine:
    """Runs kernels in this process."""

    def __init__(self, library: Path) -> None:
        self._run = ctypes.CDLL(str(library)).run_kernel
        self._run.restype = ctypes.c_char_p
        self._run.argtypes = [
            ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_int, ctypes.c_ulonglong, ctypes.c_void_p
        ]  # fmt: skip

    def run(self, kernel: Kernel, n_blocks: int, arguments: Sequence[Any], order: str, seed: int) -> None:
        """Run a kernel on NumPy arrays and scalars."""
        holders: list[Any] = []
        for argument, parameter in zip(arguments, kernel.signature, strict=True):
            if parameter.is_array:
                holders.append(ctypes.c_void_p(argument.ctypes.data))
            else:
                holders.append(ctypes.create_string_buffer(argument.tobytes(), argument.itemsize))
        pointers = (ctypes.c_void_p * len(holders))(*map(ctypes.addressof, holders))
        wrong = self._run(kernel.name.encode(), n_blocks, kernel.block, ORDERS[order], seed, pointers)
        if wrong:
            raise KernelFailure(f"{kernel.name}: {wrong.decode()}")

    def close(self) -> None:
        """Nothing to end."""


class SanitisedMachine:
    """Runs kernels in a process of their own, which ends when its sanitiser finds something."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program, self._log = program, folder / f"{program.parent.name}-{id(self):x}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, kernel: Kernel, n_blocks: int, arguments: Sequence[Any], order: str, seed: int) -> None:
        """Run a kernel on NumPy arrays and scalars."""
        if self._process is None:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [self._program],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=_ENVIRONMENT,
                )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        name = kernel.name.encode()
        job = [
            struct.pack("<I", len(name)),
            name,
            struct.pack("<IIIQ", n_blocks, kernel.block, ORDERS[order], seed),
        ]
        job.append(struct.pack("<I", len(arguments)))
        for argument, parameter in zip(arguments, kernel.signature, strict=True):
            content = argument.tobytes()
            job += [struct.pack("<IQ", parameter.is_array, len(content)), content]
        try:
            self._process.stdin.write(b"".join(job))
            self._process.stdin.flush()
            for argument, parameter in zip(arguments, kernel.signature, strict=True):
                if parameter.is_array:
                    content = self._process.stdout.read(argument.nbytes)
                    if len(content) < argument.nbytes:
                        raise BrokenPipeError
                    if not parameter.is_const:
                        argument[...] = np.frombuffer(content, argument.dtype).reshape(argument.shape)
        except BrokenPipeError:
            self.close()
            raise KernelFailure(f"{kernel.name}: {self._log.read_text(errors='replace')}") from None

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None


def make_machine(flavour: str, program: Path, folder: Path) -> PlainMachine | SanitisedMachine:
    """Make a machine of what `build` built."""
    return PlainMachine(program) if flavour == "plain" else SanitisedMachine(program, folder)


def machine_of_all_kernels(flavour: str, builds: Path, logs: Path) -> PlainMachine | SanitisedMachine:
    """Make a machine of all kernels of the package; they are built unless `builds` has them."""
    sources = {file: launch.source(file) for file in sorted({kernel.file for kernel in launch.KERNELS})}
    return make_machine(flavour, build(flavour, sources, launch.KERNELS, builds), logs)
