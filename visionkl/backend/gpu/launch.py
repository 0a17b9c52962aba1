"""Launching kernels: the only place that does.

A kernel is *declared* beside the function that uses it, with the parameters it has in its `.cu` file, which a
test compares. From the declaration follows what `launch` makes sure of:

* arrays are CuPy's, of the declared type, contiguous, and all on one device, which becomes the current one;
* numbers are cast to the declared types: a Python float that is passed where a kernel expects a `float` would
  otherwise be read as the lower half of a `double`, and nobody would notice;
* there are as many blocks of threads as are needed, on CuPy's current stream.

Sources are compiled when first used, and then kept on disk by CuPy. They are compiled without contracting
multiplications and additions (`--fmad=false`): where a fused one is wanted, for speed, the source says `fma`.
So a kernel rounds in the same way wherever it is executed, up to the last digits of transcendental functions.
Blocks have one axis and static shared memory only.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import numpy as np

from visionkl.backend.gpu import device
from visionkl.core.errors import DataError, DeviceError, UsageError

OPTIONS = ("--std=c++17", "--fmad=false")

_TYPES: dict[str, Any] = {
    "bool": np.bool_,
    "unsigned char": np.uint8,
    "short": np.int16,
    "unsigned short": np.uint16,
    "int": np.int32,
    "unsigned int": np.uint32,
    "long long": np.int64,
    "unsigned long long": np.uint64,
    "float": np.float32,
    "double": np.float64,
}
_MOST_BLOCKS = 2**31 - 1
_PARAMETER = re.compile(r"(const )?([a-z ]+?)(\*?) (\w+)")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: an array (`is_array`), perhaps only read (`is_const`), or a number."""

    name: str
    dtype: np.dtype[Any]
    is_array: bool
    is_const: bool


@dataclass(frozen=True)
class Kernel:
    """A kernel as declared.

    Parameters
    ----------
    file : str
        The `.cu` file, without its ending.
    name : str
    parameters : str
        As in the source: `"const float* scores, float* best, int rows"`.
    block : int
        Threads of a block, the kernel's launch bound.
    """

    file: str
    name: str
    parameters: str
    block: int

    @cached_property
    def signature(self) -> tuple[Parameter, ...]:
        """The parameters, taken apart."""
        parsed = []
        for text in self.parameters.split(", "):
            match = _PARAMETER.fullmatch(text)
            if match is None or match[2] not in _TYPES:
                raise ValueError(f"{self.file}.cu, {self.name}: cannot read the parameter {text!r}")
            parsed.append(Parameter(match[4], np.dtype(_TYPES[match[2]]), bool(match[3]), bool(match[1])))
        return tuple(parsed)


#: All kernels that were declared.
KERNELS: list[Kernel] = []


def declare(file: str, name: str, parameters: str, *, block: int = 256) -> Kernel:
    """Declare a kernel."""
    kernel = Kernel(file, name, parameters, block)
    KERNELS.append(kernel)
    return kernel


#: Types that a kernel is written for: NumPy's name, the end of the kernel's name, and C's name.
FLOATS = (("float32", "f32", "float"), ("float64", "f64", "double"))
CODES = (("uint8", "u8", "unsigned char"), ("uint16", "u16", "unsigned short"))


class Kernels(dict[str, Kernel]):
    """The same kernel for several types, by NumPy's names of them."""

    def __missing__(self, dtype: str) -> Kernel:
        """Complain that there is no kernel for a type."""
        name = next(iter(self.values())).name.rpartition("_")[0]
        raise DataError(f"{name} (GPU): arrays of {dtype} are not computed; give {' or '.join(self)}.")


def declare_for(types: Sequence[tuple[str, str, str]], file: str, name: str, parameters: str) -> Kernels:
    """Declare a kernel for several types, which TYPE stands for in the parameters."""
    return Kernels(
        (dtype, declare(file, f"{name}_{ending}", parameters.replace("TYPE", c_type)))
        for dtype, ending, c_type in types
    )


def source(file: str) -> str:
    """Read the text of a `.cu` file."""
    return (files("visionkl.backend.gpu") / f"{file}.cu").read_text(encoding="utf-8")


def launch(kernel: Kernel, *arguments: Any, threads: int | None = None, blocks: int | None = None) -> None:
    """Run a kernel.

    Parameters
    ----------
    kernel : Kernel
    *arguments
        In the declared order.
    threads, blocks : int
        How many threads are needed, or how many whole blocks; nothing is done for 0.
    """
    n_blocks = -(-threads // kernel.block) if threads is not None else blocks
    if not n_blocks:
        return
    if n_blocks > _MOST_BLOCKS:
        raise DataError(f"{kernel.name}: the arrays are too large for one pass on the GPU; give fewer rows.")
    signature = kernel.signature
    if len(arguments) != len(signature):
        raise TypeError(f"{kernel.name} takes {len(signature)} arguments, not {len(arguments)}")
    ready = [
        _checked_array(kernel, parameter, argument) if parameter.is_array else _cast(parameter, argument)
        for parameter, argument in zip(signature, arguments, strict=True)
    ]
    arrays = [array for array, parameter in zip(ready, signature, strict=True) if parameter.is_array]
    numbers = {array.device.id for array in arrays}
    if len(numbers) > 1:
        places = ", ".join(f"cuda:{number}" for number in sorted(numbers))
        raise UsageError(f"{kernel.name}: the arrays lie on different devices ({places}); move them to one.")
    with arrays[0].device:
        _run(kernel, n_blocks, ready)


def _checked_array(kernel: Kernel, parameter: Parameter, argument: Any) -> Any:
    where = f"{kernel.name} (GPU): '{parameter.name}'"
    if not isinstance(argument, device.namespace().ndarray):
        raise UsageError(
            f"{where} is a {type(argument).__module__}.{type(argument).__name__}, but other arrays lie on "
            "the GPU; give CuPy arrays throughout (cupy.asarray), or NumPy arrays throughout (cupy.asnumpy)."
        )
    if argument.dtype != parameter.dtype:
        raise DataError(f"{where} must be an array of {parameter.dtype}, not of {argument.dtype}.")
    if not argument.flags.c_contiguous:
        raise DataError(f"{where} must be contiguous; call cupy.ascontiguousarray.")
    return argument


def _cast(parameter: Parameter, argument: Any) -> Any:
    number = operator.index(argument) if parameter.dtype.kind in "iu" else argument
    return parameter.dtype.type(number)


def _run(kernel: Kernel, n_blocks: int, arguments: Sequence[Any]) -> None:
    """Execute a kernel on the current device."""
    cupy = device.namespace()
    function = _function(kernel, cupy.cuda.runtime.getDevice())
    function((n_blocks,), (kernel.block,), tuple(arguments))


@cache
def _function(kernel: Kernel, device_number: int) -> Any:
    return _module(kernel.file, device_number).get_function(kernel.name)


@cache
def _module(file: str, device_number: int) -> Any:
    cupy = device.namespace()
    module = cupy.RawModule(code=source(file), options=OPTIONS)
    try:
        module.compile()
    except cupy.cuda.compiler.CompileException as error:
        raise DeviceError(
            f"{file}.cu does not compile for this GPU ({next(iter(str(error).splitlines()), '')}); "
            "CuPy may be built for another CUDA: run python -m visionkl.doctor."
        ) from error
    return module
