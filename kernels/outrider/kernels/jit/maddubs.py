"""AVX2's products of unsigned by signed bytes, added by pairs in int16, and their widening.

Leaves to the callers that an int16 holds what they add: the instruction saturates.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from outrider.kernels.jit.simd import BYTE, HALF, INT, LONG, data, invoke, place, vector

LANES = 8
"""Number of int32 in a register."""
GROUP = 4
"""Inputs that one int32 of a sum takes together."""
PAIRED = 2
"""Groups that are added in int16."""
SPAN = 32
"""Inputs that are looked at together."""
MOST = 128
"""Largest sum of an int16's activations of one sign: 255 * 128 < 2^15."""


def multiply_pairs(builder: Any, unsigned: Any, signed: Any) -> Any:
    """Return 16 sums of two neighbours' products; 32 bytes each."""
    kind = vector(HALF, 2 * LANES)
    return invoke(builder, "llvm.x86.avx2.pmadd.ub.sw", kind, unsigned, signed)


def widen_pairs(builder: Any, pairs: Any, scales: Any = None) -> Any:
    """Return 8 int32, each the sum of two neighbouring int16, times `scales`, which int16 hold."""
    halves = vector(HALF, 2 * LANES)
    factors = ir.Constant(halves, [1] * (2 * LANES))
    if scales is not None:
        low = builder.and_(scales, ir.Constant(scales.type, [0xFFFF] * LANES))
        high = builder.shl(scales, ir.Constant(scales.type, [16] * LANES))
        factors = builder.bitcast(builder.or_(low, high), halves)
    return invoke(builder, "llvm.x86.avx2.pmadd.wd", vector(INT, LANES), pairs, factors)


def magnitudes(builder: Any, signed: Any) -> Any:
    """Return 32 bytes without their signs; that of -128 is 128."""
    kind, false = vector(BYTE, 4 * LANES), ir.Constant(ir.IntType(1), 0)
    return invoke(builder, "llvm.abs.v32i8", kind, signed, false)


def with_signs(builder: Any, values: Any, signed: Any) -> Any:
    """Return 32 bytes, those negated where `signed` is negative, and 0 where it is 0."""
    return invoke(builder, "llvm.x86.avx2.psign.b", vector(BYTE, 4 * LANES), values, signed)


@intrinsic
def sign(typing: Any, source: Any, at: Any, width: Any, target: Any, to: Any, marks: Any) -> Any:
    """target[to:] = source[at:] - 128, `width` bytes; returns their sum.

    marks[i] becomes other than 0 where something of the 32 bytes from 32 i on has to move.
    """

    def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
        sources, targets, flags = (data(context, builder, sig.args[i], a[i]) for i in (0, 3, 5))
        total = cgutils.alloca_once_value(builder, ir.Constant(vector(INT, SPAN // 2), None))
        with cgutils.for_range(builder, builder.udiv(a[2], LONG(SPAN)), intp=LONG) as loop:
            offset = builder.mul(loop.index, LONG(SPAN))
            where = place(builder, sources, builder.add(a[1], offset), vector(BYTE, SPAN))
            signed = builder.xor(builder.load(where, align=1), _constant(BYTE, SPAN, 128))
            where = place(builder, targets, builder.add(a[4], offset), vector(BYTE, SPAN))
            builder.store(signed, where, align=1)
            pairs = _halves(builder, signed)
            sums = builder.sext(builder.add(*pairs), vector(INT, SPAN // 2))
            builder.store(builder.add(builder.load(total), sums), total)
            positive = _sums_of_four(builder, pairs)
            negative = _sums_of_four(builder, [builder.neg(x) for x in pairs])
            larger = builder.select(
                builder.icmp_unsigned(">", positive, negative), positive, negative
            )
            over = builder.icmp_unsigned(">", larger, _constant(HALF, SPAN // 4, MOST))
            mark = builder.bitcast(over, BYTE)
            builder.store(mark, builder.gep(flags, [loop.index]))
        name = f"llvm.vector.reduce.add.v{SPAN // 2}i32"
        return invoke(builder, name, INT, builder.load(total))

    arrays = (source, types.intp, types.intp, target, types.intp, marks)
    return types.int32(*arrays), lower


def _constant(element: ir.Type, count: int, value: int) -> Any:
    return ir.Constant(vector(element, count), [value] * count)


def _halves(builder: Any, signed: Any) -> list[Any]:
    """Return even and odd bytes, each widened to 16 bits."""
    pairs, eight = builder.bitcast(signed, vector(HALF, SPAN // 2)), _constant(HALF, SPAN // 2, 8)
    return [builder.ashr(builder.shl(pairs, eight), eight), builder.ashr(pairs, eight)]


def _sums_of_four(builder: Any, pairs: list[Any]) -> Any:
    """Add what is positive of an int16's activations: of two neighbours in each of two groups."""
    zero = _constant(HALF, SPAN // 2, 0)
    above = [builder.select(builder.icmp_signed(">", x, zero), x, zero) for x in pairs]
    groups = builder.bitcast(builder.add(*above), vector(INT, SPAN // GROUP))
    empty, lanes = ir.Constant(groups.type, ir.Undefined), SPAN // GROUP
    both = [
        builder.shuffle_vector(
            groups, empty, ir.Constant(vector(INT, lanes // 2), list(range(first, lanes, 2)))
        )
        for first in range(2)
    ]
    return builder.bitcast(builder.add(*both), vector(HALF, SPAN // 4))
