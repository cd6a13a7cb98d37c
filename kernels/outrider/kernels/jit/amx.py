"""AMX: registers of 16 rows by 64 bytes, and the instruction that multiplies two of them.

Activations lie in one as [rows][64 inputs], weights in another as [16][16 outputs][4 inputs], as
they do in packed weights; their products are added to a third, [rows][16 outputs] int32. Registers
are called by their numbers.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from outrider.kernels.jit.simd import BYTE, HALF, LONG, invoke, place, vector

ROWS = 16
"""Rows of a register."""
LINE = 64
"""Bytes of a row: 64 inputs of activations, or four of 16 outputs' weights, or 16 sums."""
INPUTS, OUTPUTS = 64, 16
ACTIVATIONS, WEIGHTS, SUMS = (0, 1), (2, 3), ((4, 5), (6, 7))
"""Registers by what they hold; sums of each of both activations with each of both weights."""
_PALETTE = 1
"""Intel's number of these registers' layout."""


@intrinsic
def take_registers(typing: Any, rows: Any) -> Any:
    """Make registers hold `rows` rows of activations and sums, until `release_registers`."""

    def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        own = builder.trunc(context.cast(builder, arguments[0], rows, types.intp), BYTE)
        heights = dict.fromkeys((*ACTIVATIONS, *SUMS[0], *SUMS[1]), own)
        heights |= dict.fromkeys(WEIGHTS, BYTE(INPUTS // 4))
        first = scratch(builder, LINE)
        zeros = ir.Constant(vector(BYTE, LINE), [0] * LINE)
        builder.store(zeros, builder.bitcast(first, zeros.type.as_pointer()))
        builder.store(BYTE(_PALETTE), first)
        for number, height in heights.items():
            builder.store(HALF(LINE), place(builder, first, LONG(16 + 2 * number), HALF))
            builder.store(height, builder.gep(first, [LONG(48 + number)]))
        _call(builder, "ldtilecfg", first)
        return context.get_dummy_value()

    return types.void(rows), lower


@intrinsic
def release_registers(typing: Any) -> Any:
    """Give the registers back: a process that switches while they are held saves 8 KB."""

    def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        _call(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), lower


def scratch(builder: Any, size: int) -> Any:
    """Return a pointer to so many bytes of a function's own, from a cache line on.

    `cgutils.alloca_once` would fill them with zeros, by as many stores.
    """
    with builder.goto_entry_block():
        memory = builder.alloca(ir.ArrayType(BYTE, size))
    memory.align = LINE
    return builder.bitcast(memory, BYTE.as_pointer())


def load(builder: Any, register: int, first: Any, pitch: Any) -> None:
    """Read a register from a pointer on; pitch: bytes from row to row."""
    _call(builder, "tileloadd64", BYTE(register), builder.bitcast(first, BYTE.as_pointer()), pitch)


def store(builder: Any, register: int, first: Any, pitch: Any) -> None:
    """Write a register."""
    to = builder.bitcast(first, BYTE.as_pointer())
    _call(builder, "tilestored64", BYTE(register), to, pitch)


def add_products(
    builder: Any, sums: int, activations: int, weights: int, signed: bool = False
) -> None:
    """Add products of activations, unsigned or signed bytes, and of weights, signed ones."""
    name = "tdpbssd" if signed else "tdpbusd"
    _call(builder, name, *map(BYTE, (sums, activations, weights)))


def clear(builder: Any, register: int) -> None:
    """Set a register to zeros."""
    _call(builder, "tilezero", BYTE(register))


def _call(builder: Any, name: str, *arguments: Any) -> None:
    invoke(builder, f"llvm.x86.{name}", ir.VoidType(), *arguments)
