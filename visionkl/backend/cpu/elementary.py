"""Cosine and logarithm in a form that LLVM vectorises.

The mathematical library computes one number a call. Written out as range reduction and a polynomial, the same
function is a dozen operations on 16 numbers at once, and is compiled into the loop that uses it.

Polynomials are passed as tuples in the precision of the data (`waves` and `logarithms` hand them out),
because their length must be known when a loop is compiled: a short one for float32, a long one for float64.

==================== ===================================================== =================================
function             how                                                   absolute error
==================== ===================================================== =================================
`cosine_of_turns`    the argument is in turns, so that taking whole turns  3e-7 in float32, 2e-15 in float64
                     off is exact; then sin on a quarter turn either side
`binary_logarithm`   exponent from the bits; 2 atanh(z) of the mantissa    2e-7 · max(1, exponent), and 1e-15
                                                                           times the same
==================== ===================================================== =================================
"""

# Numba gives intrinsics a typing context that their callers do not see.
# mypy: disable-error-code="no-untyped-def, call-arg, var-annotated"

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from visionkl.backend.cpu.jit import compiled

_N_TERMS = {np.dtype(np.float32): 5, np.dtype(np.float64): 10}


@cache
def waves(dtype: npt.DTypeLike) -> tuple[Any, ...]:
    """Return the coefficients for `cosine_of_turns`: of sin(2πt) / t in t², best for |t| ≤ 1/4."""
    n = _N_TERMS[np.dtype(dtype)]
    squares = (np.cos(np.pi * (np.arange(8 * n) + 0.5) / (8 * n)) + 1) / 32
    t = np.sqrt(squares)
    fitted = np.polynomial.Chebyshev.fit(squares, np.sin(2 * np.pi * t) / t, n - 1, w=t)
    return _in_precision(fitted.convert(kind=np.polynomial.Polynomial).coef, dtype)


@cache
def logarithms(dtype: npt.DTypeLike) -> tuple[Any, ...]:
    """Return the coefficients for `binary_logarithm`: of 2 atanh(z) / (z log 2) in z²."""
    return _in_precision(2 / np.log(2) / (2 * np.arange(_N_TERMS[np.dtype(dtype)] + 1) + 1), dtype)


def _in_precision(coefficients: npt.NDArray[Any], dtype: npt.DTypeLike) -> tuple[Any, ...]:
    return tuple(np.dtype(dtype).type(coefficient) for coefficient in coefficients)


@compiled
def _polynomial(x, coefficients):
    total = coefficients[len(coefficients) - 1]
    for k in range(len(coefficients) - 2, -1, -1):
        total = total * x + coefficients[k]
    return total


@compiled
def cosine_of_turns(turns, coefficients):
    """Compute cos(2π turns); `coefficients` come from `waves`. The sine is that of a quarter turn less."""
    of_its_type = type(turns)
    t = of_its_type(0.25) - abs(turns - np.floor(turns + of_its_type(0.5)))
    return t * _polynomial(t * t, coefficients)


@compiled
def binary_logarithm(x, coefficients):
    """Compute log2(x) for normal positive numbers; `coefficients` come from `logarithms`."""
    of_its_type = type(x)
    exponent = _exponent(x)
    mantissa = _scaled(x, -exponent)  # within [√½, √2)
    z = (mantissa - of_its_type(1)) / (mantissa + of_its_type(1))
    return of_its_type(exponent) + z * _polynomial(z * z, coefficients)


@intrinsic
def _exponent(typing_context, x):
    """Whole number nearest to log2(x), so to speak: x times two to the minus it lies within [√½, √2)."""
    whole, n_bits = _layout(x)

    def generate(context, builder, signature, arguments):
        bits = builder.bitcast(arguments[0], whole)
        root = float(np.sqrt(np.array(0.5, np.float32 if n_bits == 23 else np.float64)))
        dtype = (np.float32, np.int32) if n_bits == 23 else (np.float64, np.int64)
        start = int(np.array(root, dtype[0]).view(dtype[1]))
        return builder.ashr(builder.sub(bits, ir.Constant(whole, start)), ir.Constant(whole, n_bits))

    return (types.int32 if n_bits == 23 else types.int64)(x), generate


@intrinsic
def _scaled(typing_context, x, exponent):
    """Multiply a number by a power of two: the result must be a normal number, too."""
    whole, n_bits = _layout(x)

    def generate(context, builder, signature, arguments):
        shift = builder.shl(arguments[1], ir.Constant(whole, n_bits))
        bits = builder.add(builder.bitcast(arguments[0], whole), shift)
        return builder.bitcast(bits, arguments[0].type)

    return x(x, types.int32 if n_bits == 23 else types.int64), generate


def _layout(x: Any) -> tuple[ir.IntType, int]:
    """Return the integer type of the same size, and the bits below the exponent."""
    return (ir.IntType(32), 23) if x == types.float32 else (ir.IntType(64), 52)
