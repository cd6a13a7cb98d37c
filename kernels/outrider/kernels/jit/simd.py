"""Vectors of 16 floats as values inside numba kernels, lowered to LLVM vectors of any machine.

Leaves loops and what to compute to the kernels. Nothing here reassociates: a lane's result depends
on that lane alone, and `total` adds lanes in one fixed order. LLVM splits the vectors where
registers are narrower.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 16
FLOAT = ir.FloatType()
FLOAT_BYTES = 4
VECTOR_BYTES = LANES * FLOAT_BYTES
BYTE, HALF, INT, LONG = (ir.IntType(bits) for bits in (8, 16, 32, 64))


class VectorType(types.Type):
    """Numba's type of a vector of `LANES` float32."""

    def __init__(self) -> None:
        super().__init__(name=f"float32x{LANES}")


@register_model(VectorType)
class VectorModel(models.PrimitiveModel):
    """One LLVM vector value."""

    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, vector())


floats = VectorType()


def vector(element: ir.Type = FLOAT, count: int = LANES) -> ir.VectorType:
    """Return the LLVM type of `count` elements."""
    return ir.VectorType(element, count)


def invoke(builder: Any, name: str, result: ir.Type, *arguments: Any) -> Any:
    """Call an LLVM intrinsic by name."""
    kind = ir.FunctionType(result, [a.type for a in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def broadcast(builder: Any, value: Any, count: int = LANES) -> Any:
    """Make a vector whose lanes are all `value`."""
    if count == 1:
        return builder.bitcast(value, vector(value.type, 1))
    empty = ir.Constant(vector(value.type, count), ir.Undefined)
    first = builder.insert_element(empty, value, INT(0))
    return builder.shuffle_vector(first, empty, ir.Constant(vector(INT, count), [0] * count))


def fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, in one rounding where the machine has it."""
    return invoke(builder, f"llvm.fmuladd.v{a.type.count}f32", a.type, a, b, c)


def place(builder: Any, pointer: Any, offset: Any, kind: ir.Type) -> Any:
    """Return `pointer`, moved by `offset` of its elements, as a pointer to `kind`."""
    return builder.bitcast(builder.gep(pointer, [offset]), kind.as_pointer())


def data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Return a pointer to the first element of a numba array."""
    return context.make_array(kind)(context, builder, array).data


def sizes(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Return the sizes of a numba array along its axes."""
    shape = context.make_array(kind)(context, builder, array).shape
    return cgutils.unpack_tuple(builder, shape, kind.ndim)


def members(builder: Any, kind: Any, value: Any) -> list[tuple[Any, Any]]:
    """Return numba type and value of each element of a tuple."""
    return [(own, builder.extract_value(value, i)) for i, own in enumerate(kind.types)]


def pointers(context: Any, builder: Any, kind: Any, value: Any) -> list[Any]:
    """Return `data` of each array of a tuple of arrays."""
    return [data(context, builder, *member) for member in members(builder, kind, value)]


def integers(context: Any, builder: Any, kind: Any, value: Any) -> list[Any]:
    """Return the 64-bit elements of a tuple of integers."""
    return [context.cast(builder, x, own, types.intp) for own, x in members(builder, kind, value)]


def _elementwise(count: int, emit: Callable[..., Any]) -> Any:
    """Make an intrinsic from `count` vectors to one."""

    def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return emit(builder, *arguments)

    result = (floats(*[floats] * count), lower)
    if count == 1:
        return intrinsic(lambda typing, a: result)
    if count == 2:
        return intrinsic(lambda typing, a, b: result)
    return intrinsic(lambda typing, a, b, c: result)


class _Binary(ConcreteTemplate):
    cases = (signature(floats, floats, floats),)


def _register(function: Any, emit: Callable[..., Any]) -> None:
    infer_global(function)(type(f"_{function.__name__}", (_Binary,), {}))
    lower_builtin(function, floats, floats)(
        lambda context, builder, sig, arguments: emit(builder, *arguments)
    )


_register(operator.add, lambda b, x, y: b.fadd(x, y))
_register(operator.sub, lambda b, x, y: b.fsub(x, y))
_register(operator.mul, lambda b, x, y: b.fmul(x, y))
_register(operator.truediv, lambda b, x, y: b.fdiv(x, y))

_V = f"v{LANES}f32"


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


fma = _elementwise(3, fused)
"""Fused multiply-add, a * b + c."""
maximum = _elementwise(2, _larger)
"""The larger of each pair; b where a is NaN."""
magnitude = _elementwise(1, lambda b, x: invoke(b, f"llvm.fabs.{_V}", vector(), x))
"""|x|."""


def _constant(value: float) -> Any:
    return ir.Constant(vector(), [value] * LANES)


# Minimax coefficients of exp on [-ln 2 / 2, ln 2 / 2], from Cephes' expf (about 1 ulp).
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4


def _exp(builder: Any, x: Any) -> Any:
    x = _larger(builder, x, _constant(-87.0))
    x = builder.select(builder.fcmp_ordered("<", x, _constant(88.0)), x, _constant(88.0))
    scaled = builder.fmul(x, _constant(1 / math.log(2)))
    power = invoke(builder, f"llvm.rint.{_V}", vector(), scaled)
    rest = fused(builder, power, _constant(-_LN2_HIGH), x)
    rest = fused(builder, power, _constant(-_LN2_LOW), rest)
    poly = _constant(_EXP[0])
    for coefficient in _EXP[1:]:
        poly = fused(builder, poly, rest, _constant(coefficient))
    value = fused(builder, poly, builder.fmul(rest, rest), rest)
    value = builder.fadd(value, _constant(1.0))
    integers = builder.fptosi(power, vector(INT))
    bits = builder.shl(
        builder.add(integers, ir.Constant(vector(INT), [127] * LANES)),
        ir.Constant(vector(INT), [23] * LANES),
    )
    return builder.fmul(value, builder.bitcast(bits, vector()))


exp = _elementwise(1, _exp)
"""Exponential e^x within about 1 ulp; x is clamped to [-87, 88]."""


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    """Make a vector of one repeated value."""

    def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return broadcast(builder, arguments[0])

    return floats(types.float32), lower


def _fold(builder: Any, x: Any, combine: Callable[..., Any]) -> Any:
    """Combine halves until one lane is left: the same order for every caller."""
    while x.type.count > 1:
        half = x.type.count // 2
        empty = ir.Constant(x.type, ir.Undefined)
        low = builder.shuffle_vector(x, empty, ir.Constant(vector(INT, half), list(range(half))))
        high = builder.shuffle_vector(
            x, empty, ir.Constant(vector(INT, half), list(range(half, 2 * half)))
        )
        x = combine(builder, low, high)
    return builder.extract_element(x, INT(0))


def _folding(combine: Callable[..., Any]) -> Any:
    """Make an intrinsic from a vector to what its lanes are combined to."""

    def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return _fold(builder, arguments[0], combine)

    return intrinsic(lambda typing, value: (types.float32(floats), lower))


total = _folding(lambda b, x, y: b.fadd(x, y))
"""Sum of the lanes, by halves."""
largest = _folding(_larger)
"""The largest of the 16 lanes."""


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """Read 16 floats from flat element `index` of a contiguous float32 array."""

    def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        pointer = data(context, builder, sig.args[0], arguments[0])
        return builder.load(place(builder, pointer, arguments[1], vector()), align=4)

    return floats(array, types.intp), lower


@intrinsic
def address(typing: Any, array: Any) -> Any:
    """Address of an array's first element; nothing keeps the array alive meanwhile.

    Compiled code counts references to arrays that pass through tuples and calls, atomically: inner
    loops take addresses instead.
    """

    def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return builder.ptrtoint(data(context, builder, sig.args[0], arguments[0]), LONG)

    return types.intp(array), lower


def floats_at(builder: Any, at: Any) -> Any:
    """Return an address as a pointer to float32."""
    return builder.inttoptr(at, FLOAT.as_pointer())


@intrinsic
def prefetch_at(typing: Any, at: Any) -> Any:
    """Ask for the cache line of an address."""

    def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        where = builder.inttoptr(arguments[0], BYTE.as_pointer())
        invoke(builder, "llvm.prefetch.p0", ir.VoidType(), where, INT(0), INT(3), INT(1))
        return context.get_dummy_value()

    return types.void(types.intp), lower


def _reading(kind: ir.Type, result: Any) -> Any:
    """Make an intrinsic that reads a value from an address."""

    def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], kind.as_pointer()), align=4)

    return intrinsic(lambda typing, at: (result(types.intp), lower))


def _writing(kind: ir.Type, given: Any) -> Any:
    """Make an intrinsic that writes a value at an address."""

    def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        where = builder.inttoptr(arguments[0], kind.as_pointer())
        builder.store(arguments[1], where, align=4)
        return context.get_dummy_value()

    return intrinsic(lambda typing, at, value: (types.void(types.intp, given), lower))


load_at, read_at = _reading(vector(), floats), _reading(FLOAT, types.float32)
"""Read 16 floats, or one, from an address."""
store_at, write_at = _writing(vector(), floats), _writing(FLOAT, types.float32)
"""Write 16 floats, or one, at an address."""


def _storing(convert: Callable[..., Any]) -> Any:
    """Make an intrinsic that stores `convert(vector)` at a flat element of an array."""

    def typed(typing: Any, array: Any, index: Any, value: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            pointer = data(context, builder, sig.args[0], arguments[0])
            stored = convert(builder, arguments[2])
            where = place(builder, pointer, arguments[1], stored.type)
            builder.store(stored, where, align=1)
            return context.get_dummy_value()

        return types.void(array, types.intp, floats), lower

    return intrinsic(typed)


def _to_bfloat(builder: Any, x: Any) -> Any:
    bits = builder.bitcast(x, vector(INT))
    sixteen, one, bias = (ir.Constant(vector(INT), [n] * LANES) for n in (16, 1, 0x7FFF))
    odd = builder.and_(builder.lshr(bits, sixteen), one)
    rounded = builder.lshr(builder.add(builder.add(bits, odd), bias), sixteen)
    return builder.trunc(rounded, vector(HALF))


def _to_byte(zero: int) -> Callable[..., Any]:
    def convert(builder: Any, x: Any) -> Any:
        whole = builder.fptosi(invoke(builder, f"llvm.rint.{_V}", vector(), x), vector(INT))
        shifted = builder.add(whole, ir.Constant(vector(INT), [zero] * LANES))
        return builder.trunc(shifted, vector(BYTE))

    return convert


store = _storing(lambda builder, x: x)
"""Writes 16 floats at a flat element of a float32 array."""
store_bfloat = _storing(_to_bfloat)
"""Writes 16 bfloat16 (nearest, ties to even) at a flat element of a uint16 array."""
store_byte, store_signed = _storing(_to_byte(128)), _storing(_to_byte(0))
"""Write round(x) + 128 at a flat element of a uint8 array, or round(x) of an int8 one; x within
[-128, 127]."""
