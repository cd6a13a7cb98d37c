"""Products of two rows at once by I8MM's matrix instruction: 2 by 8 bytes times 8 by 2.

It does twice the work of `usdot`, and its sums are the same integers. A pair of rows has its sums
in the registers of both: those of the first two outputs in one, of the other two in the other.
"""

from typing import Any

from llvmlite import ir

from outrider.kernels.cpu.numeric_kind import NumericKind
from outrider.kernels.jit.simd import BYTE, INT, LONG, invoke, place, vector

INPUTS = 8
"""Inputs that the instruction takes together."""
PAIRED = {
    NumericKind.INT8_I8MM: ((0, 1, 4, 5), (2, 3, 6, 7)),
    NumericKind.INT4_I8MM: ((0, 4, 1, 5), (2, 6, 3, 7)),
}
"""Lanes of two rows' sums of four outputs that each register takes. What is unsigned comes first:
int8's activations, but int4's weights."""
UNPAIRED = {
    NumericKind.INT8_I8MM: PAIRED[NumericKind.INT8_I8MM],
    NumericKind.INT4_I8MM: ((0, 2, 4, 6), (1, 3, 5, 7)),
}


def pairs(kind: NumericKind, rows: int) -> range:
    """Return the first of each two rows that are multiplied together; an odd last one is alone."""
    return range(0, rows - 1 if kind in PAIRED else 0, 2)


def paired(builder: Any, kind: NumericKind, one: Any, other: Any) -> tuple[Any, Any]:
    """Turn sums of two rows, of four outputs each, into those of a pair."""
    return _shuffled(builder, one, other, PAIRED[kind])


def unpaired(builder: Any, kind: NumericKind, one: Any, other: Any) -> tuple[Any, Any]:
    """Turn sums of a pair into those of its two rows."""
    return _shuffled(builder, one, other, UNPAIRED[kind])


def rows_of(builder: Any, one: Any, other: Any, at: Any) -> Any:
    """Load eight activations of each of two rows, from input `at` on."""
    eight = vector(LONG, 1)
    halves = (builder.load(place(builder, x, at, eight), align=4) for x in (one, other))
    both = builder.shuffle_vector(*halves, ir.Constant(vector(INT, 2), [0, 1]))
    return builder.bitcast(both, vector(BYTE, 16))


def outputs_of(builder: Any, low: Any, high: Any) -> tuple[Any, ...]:
    """Turn weights of four inputs and of the next four, by four outputs, into those of eight inputs
    by two outputs, twice."""
    one, other = (builder.bitcast(part, vector(INT, 4)) for part in (low, high))
    both = _shuffled(builder, one, other, ((0, 4, 1, 5), (2, 6, 3, 7)))
    return tuple(builder.bitcast(part, vector(BYTE, 16)) for part in both)


def multiply(builder: Any, total: Any, unsigned: Any, signed: Any) -> Any:
    """Return total + products of eight bytes, [two of what is unsigned][two of what is signed]."""
    name = "llvm.aarch64.neon.usmmla.v4i32.v16i8"
    return invoke(builder, name, total.type, total, unsigned, signed)


def _shuffled(builder: Any, one: Any, other: Any, lanes: Any) -> tuple[Any, Any]:
    first, second = (ir.Constant(vector(INT, 4), [*own]) for own in lanes)
    return builder.shuffle_vector(one, other, first), builder.shuffle_vector(one, other, second)
