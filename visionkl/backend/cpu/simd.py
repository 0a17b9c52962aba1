"""Short vectors for compiled loops: the few SIMD operations that the compiler does not find by itself.

LLVM vectorises plain loops well. It does not keep a dozen running sums in registers while a loop inside walks
through tables or codebooks, and it does not see that neighbouring 16-bit products can be added in one step.
Loops that live on this (`pq`, `tables`) hold their sums in a `Registers` value instead: a fixed number of
vectors with a fixed number of lanes. The operations on them are Numba intrinsics, written in the modules that
use them with the helpers of this one.

Counts must be known when a loop is compiled. They are therefore passed as tuples, whose *length* counts: a
loop called with `(0, 0, 0)` is compiled for three.

The vectors are LLVM's own, so the loops compile for any processor; only `multiply_pairs` asks for an AVX2
instruction where there is one, and is written out elsewhere.
"""

# mypy: disable-error-code="no-untyped-def"

from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic, models, register_model

INT32 = ir.IntType(32)
INT64 = ir.IntType(64)


class Registers(types.Type):
    """The Numba type of `count` vectors with `lanes` numbers of a `dtype` each."""

    def __init__(self, dtype: types.Type, lanes: int, count: int) -> None:
        self.dtype, self.lanes, self.count = dtype, lanes, count
        super().__init__(name=f"Registers({dtype}, {lanes}, {count})")

    @property
    def key(self) -> tuple[types.Type, int, int]:
        """What makes two of these types the same."""
        return self.dtype, self.lanes, self.count

    @property
    def vector(self) -> ir.VectorType:
        """LLVM's type of one vector."""
        return vector_type(self.dtype, self.lanes)

    @property
    def undefined(self) -> ir.Constant:
        """A value to begin with when every vector is going to be set."""
        return ir.Constant(ir.ArrayType(self.vector, self.count), ir.Undefined)


@register_model(Registers)
class _RegistersModel(models.PrimitiveModel):
    # An LLVM array of vectors: its members are taken apart by the optimiser and end in machine registers.
    def __init__(self, manager, registers):
        super().__init__(manager, registers, ir.ArrayType(registers.vector, registers.count))


def vector_type(dtype: Any, lanes: int) -> ir.VectorType:
    """Return LLVM's type of a vector."""
    if isinstance(dtype, types.Float):
        return ir.VectorType(ir.FloatType() if dtype.bitwidth == 32 else ir.DoubleType(), lanes)
    return ir.VectorType(ir.IntType(dtype.bitwidth), lanes)


def address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Point at an element of a contiguous array; nothing is checked."""
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def shifted(builder: Any, index: Any, by: int) -> Any:
    """Add a constant to an index."""
    return builder.add(index, ir.Constant(INT64, by)) if by else index


def load(builder: Any, pointer: Any, vector: ir.VectorType) -> Any:
    """Read a vector from any address."""
    return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=_alignment(vector))


def store(builder: Any, value: Any, pointer: Any) -> None:
    """Write a vector to any address."""
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=_alignment(value.type))


def splat(builder: Any, scalar: Any, lanes: int) -> Any:
    """Make a vector whose lanes all hold one number."""
    vector = ir.VectorType(scalar.type, lanes)
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(INT32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(INT32, lanes), [0] * lanes))


def smaller(builder: Any, a: Any, b: Any) -> Any:
    """Lane by lane the smaller of two vectors of signed integers."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def larger(builder: Any, a: Any, b: Any) -> Any:
    """Lane by lane the larger of two vectors of signed integers."""
    return builder.select(builder.icmp_signed("<", a, b), b, a)


def multiply_pairs(builder: Any, a: Any, b: Any) -> Any:
    """Multiply two vectors of 16 16-bit numbers and add neighbouring products: 8 numbers of 32 bits."""
    if _has_avx2():
        signature = ir.FunctionType(ir.VectorType(INT32, 8), [a.type, b.type])
        name = "llvm.x86.avx2.pmadd.wd"
        return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), [a, b])
    product = None
    for parity in (0, 1):
        lanes = ir.Constant(ir.VectorType(INT32, 8), list(range(parity, 16, 2)))
        halves = [builder.shuffle_vector(v, ir.Constant(v.type, ir.Undefined), lanes) for v in (a, b)]
        share = builder.mul(*(builder.sext(half, ir.VectorType(INT32, 8)) for half in halves))
        product = share if product is None else builder.add(product, share)
    return product


@intrinsic
def filled(typing_context, value, count):
    """Fill `count` vectors of eight 32-bit integers with one value."""
    registers = Registers(types.int32, 8, len(count))

    def generate(context, builder, signature, arguments):
        vector = splat(builder, arguments[0], registers.lanes)
        result = registers.undefined
        for i in range(registers.count):
            result = builder.insert_value(result, vector, i)
        return result

    return registers(types.int32, count), generate


@intrinsic
def piece(typing_context, array, start, length):
    """See part of a contiguous array as an array with one axis.

    Unlike a slice it does not count as a reference to the array, which must outlive it: counting takes longer
    than a short loop.
    """
    result = types.Array(array.dtype, 1, "C", readonly=not array.mutable)

    def generate(context, builder, signature, arguments):
        item_size = context.get_abi_sizeof(context.get_data_type(array.dtype))
        view = context.make_array(result)(context, builder)
        context.populate_array(
            view,
            data=address(context, builder, array, arguments[0], arguments[1]),
            shape=cgutils.pack_array(builder, [arguments[2]]),
            strides=cgutils.pack_array(builder, [ir.Constant(INT64, item_size)]),
            itemsize=ir.Constant(INT64, item_size),
            meminfo=None,
        )
        return view._getvalue()

    return result(array, types.int64, types.int64), generate


@intrinsic
def write(typing_context, array, index, registers):
    """Write all vectors, one after the other, into a contiguous array of the same dtype."""

    def generate(context, builder, signature, arguments):
        for i in range(registers.count):
            at = shifted(builder, arguments[1], i * registers.lanes)
            pointer = address(context, builder, array, arguments[0], at)
            store(builder, builder.extract_value(arguments[2], i), pointer)
        return context.get_dummy_value()

    return types.void(array, types.int64, registers), generate


def _alignment(vector: ir.VectorType) -> int:
    floating = {ir.FloatType(): 4, ir.DoubleType(): 8}
    return floating.get(vector.element) or vector.element.width // 8


def _has_avx2() -> bool:
    # Numba's settings come first: they may ask for code that runs on other machines, too.
    features: str | None = config.CPU_FEATURES  # type: ignore[attr-defined]
    if features is not None:
        return "+avx2" in features
    return bool(llvmlite.binding.get_host_cpu_features().get("avx2", False))
