"""Tiles of linear layers by AMX: up to 16 rows by 32 outputs at once, for many rows.

The sums of bytes are the same integers as those of `dot_tiles`, so results have the same bits.
"""

from typing import Any, NamedTuple

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from outrider.kernels.cpu.packing import BLOCK
from outrider.kernels.jit import amx
from outrider.kernels.jit.amx import ACTIVATIONS, INPUTS, LINE, OUTPUTS, ROWS, SUMS, WEIGHTS
from outrider.kernels.jit.simd import (
    INT,
    LONG,
    data,
    integers,
    place,
    pointers,
    sizes,
    vector,
)
from outrider.kernels.jit.tiles import ahead, finish, prefetch_at

VECTORS = BLOCK // OUTPUTS
PART = range(VECTORS)
LANES_OF_INT = vector(INT, OUTPUTS)


class BytesAt(NamedTuple):
    """One of the tiles that go over a block of int8 weights."""

    of_all: int
    """Rows in all."""
    rows: int
    """Rows of a register; the last one's are the last of all, some twice."""
    block: int
    cut: int
    """Its number among the block's tiles, of two registers of rows each, the last of one or two."""
    cuts: int
    """Tiles of the block."""


def bytes_tile(registers: int) -> Any:
    """Make an intrinsic: outputs of `registers` registers of rows, one or two, in one block."""

    @intrinsic
    def tile(typing: Any, x: Any, w: Any, out: Any, at: Any) -> Any:
        """x: `Activations`; w: `Packed`; out [rows, padded outputs]; at: `BytesAt`."""

        def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
            xs, of_row = pointers(context, builder, sig.args[0], a[0])
            ws, of_output, starts = pointers(context, builder, sig.args[1], a[1])
            target = data(context, builder, sig.args[2], a[2])
            values = builder.extract_value(a[0], 0)
            _, stride = sizes(context, builder, sig.args[0].types[0], values)
            _, out_stride = sizes(context, builder, sig.args[2], a[2])
            count, rows, block, cut, cuts = integers(context, builder, sig.args[3], a[3])
            column = builder.mul(block, LONG(BLOCK))
            ws = builder.gep(ws, [builder.mul(column, stride)])
            first = builder.mul(cut, LONG(len(SUMS)))
            numbers = [builder.add(first, LONG(n)) for n in range(registers)]
            starts_of = [_first_row(builder, n, rows, count) for n in numbers]
            inputs_of = [builder.gep(xs, [builder.mul(row, stride)]) for row in starts_of]
            used = SUMS[:registers]
            for own in used:
                for j, register in enumerate(own):
                    first = builder.add(column, LONG(j * OUTPUTS))
                    amx.load(builder, register, builder.gep(starts, [first]), LONG(0))
            size = builder.mul(stride, LONG(BLOCK))
            hints = ahead(builder, (cut, cuts), (0, 1), size, INPUTS * BLOCK)
            steps = builder.udiv(stride, LONG(INPUTS))
            with cgutils.for_range(builder, steps, intp=LONG) as loop:
                prefetch_at(builder, ws, hints, loop.index)
                weights = builder.gep(ws, [builder.mul(loop.index, LONG(INPUTS * BLOCK))])
                at = builder.mul(loop.index, LONG(INPUTS))
                for number, (own, register) in enumerate(zip(used, ACTIVATIONS, strict=False)):
                    amx.load(builder, register, builder.gep(inputs_of[number], [at]), stride)
                    for j, (to, other) in enumerate(zip(own, WEIGHTS, strict=True)):
                        if number == 0:
                            where = builder.gep(weights, [LONG(j * LINE)])
                            amx.load(builder, other, where, LONG(VECTORS * LINE))
                        amx.add_products(builder, to, register, other)
            sums = amx.scratch(builder, ROWS * VECTORS * LINE)
            scales = builder.gep(of_output, [column])
            for row, own in zip(starts_of, used, strict=True):
                for j, register in enumerate(own):
                    to = builder.gep(sums, [LONG(j * LINE)])
                    amx.store(builder, register, to, LONG(VECTORS * LINE))
                with cgutils.for_range(builder, rows, intp=LONG) as loop:
                    here = builder.add(row, loop.index)
                    line = builder.gep(sums, [builder.mul(loop.index, LONG(VECTORS * LINE))])
                    found = [
                        builder.load(place(builder, line, LONG(j * LINE), LANES_OF_INT))
                        for j in PART
                    ]
                    scale = builder.load(builder.gep(of_row, [here]))
                    first = builder.add(builder.mul(here, out_stride), column)
                    finish(builder, found, scale, scales, builder.gep(target, [first]))
            return context.get_dummy_value()

        return types.void(x, w, out, at), lower

    return tile


def _first_row(builder: Any, tile: Any, rows: Any, count: Any) -> Any:
    """Return the first row of a tile: the last one ends with the last row."""
    row, last = builder.mul(tile, rows), builder.sub(count, rows)
    return builder.select(builder.icmp_signed("<", row, last), row, last)
