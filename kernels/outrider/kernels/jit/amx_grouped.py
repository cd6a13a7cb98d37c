"""Blocks of linear layers by AMX whose weights are quants with nested scales, for many rows.

A half-precision scale belongs to a span of 256 inputs. There each quant is multiplied by its
group's scale, a byte: by both parts of it where quants have four bits, else as a whole, and the
product is cut. AMX multiplies both bytes with the activations and adds them up: sums of a span are
the same integers as those of `grouped_tiles`, so results have the same bits.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from outrider.kernels.cpu.grouped_packing import Layout
from outrider.kernels.cpu.packing import BLOCK
from outrider.kernels.jit import amx, isa
from outrider.kernels.jit.amx import ACTIVATIONS, INPUTS, LINE, OUTPUTS, ROWS, SUMS, WEIGHTS
from outrider.kernels.jit.amx_tiles import LANES_OF_INT, PART, VECTORS
from outrider.kernels.jit.grouped_tiles import halves, layout_of
from outrider.kernels.jit.isa import Isa
from outrider.kernels.jit.simd import (
    BYTE,
    FLOAT,
    HALF,
    INT,
    LONG,
    broadcast,
    data,
    fused,
    integers,
    invoke,
    place,
    pointers,
    sizes,
    vector,
)
from outrider.kernels.jit.tiles import finish, prefetch

SPAN_INPUTS = 256
"""Inputs that share a half-precision scale."""
LINES = SPAN_INPUTS // 4
"""Lines of a plane: four inputs of 16 outputs each."""
PLANES = 2
"""Bytes that quant times scale takes."""
PRODUCTS = vector(HALF, LINE // 2)
FLOATS = vector(FLOAT, OUTPUTS)


class TiledRows(NamedTuple):
    """Activations in the order in which registers take them; rows that fill the last are zeros."""

    lines: NDArray[np.int8]  # [spans, tiles, SPAN_INPUTS / 64, rows of a tile, 64], 64-byte aligned
    sums: NDArray[np.int16]  # [spans, tiles * rows, groups] of values
    scales: NDArray[np.float32]  # [rows]
    totals: NDArray[np.float32]  # [tiles * rows, outputs of a block] to work with, aligned as well


class BlockAt(NamedTuple):
    """A block of a segment, and the rows that go over it."""

    of_all: int
    """Rows in all."""
    rows: int
    """Rows of a tile."""
    tiles: int
    spans: int
    block: int
    """Among all outputs."""
    offset: int
    """Byte of the segment."""
    own: int
    """Number of the block in the segment."""


@intrinsic
def grouped_block(typing: Any, x: Any, w: Any, mark: Any, out: Any, at: Any) -> Any:
    """Compute one block of outputs for all rows, in registers that were taken.

    x: `TiledRows`; w: `GroupedWeights`; out [rows, padded outputs]; at: `BlockAt`.
    """
    layout = layout_of(mark)

    def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
        lines, sums, of_row, cells = pointers(context, builder, sig.args[0], a[0])
        ws = data(context, builder, sig.args[1].types[0], builder.extract_value(a[1], 0))
        scales = data(context, builder, sig.args[1].types[1], builder.extract_value(a[1], 1))
        target = data(context, builder, sig.args[3], a[3])
        _, stride = sizes(context, builder, sig.args[3], a[3])
        count, rows, tiles, spans, block, offset, own = integers(
            context, builder, sig.args[4], a[4]
        )
        size = layout.span_bytes(SPAN_INPUTS // layout.group)
        before = builder.mul(builder.mul(own, spans), LONG(size))
        ws = builder.gep(ws, [builder.add(offset, before)])
        column = builder.mul(block, LONG(BLOCK))
        every = builder.mul(tiles, rows)
        totals = _Totals(builder, layout, cells, rows)
        totals.clear(every)
        with cgutils.for_range(builder, spans, intp=LONG) as loop:
            span = builder.gep(ws, [builder.mul(loop.index, LONG(size))])
            before = builder.mul(loop.index, every)
            source = _Rows(
                builder.gep(lines, [builder.mul(before, LONG(SPAN_INPUTS))]),
                builder.gep(sums, [builder.mul(before, LONG(SPAN_INPUTS // layout.group))]),
            )
            pairs = builder.udiv(tiles, LONG(2))
            for j in PART:
                totals.take_span(span, j)
                with cgutils.for_range(builder, pairs, intp=LONG) as pair:
                    first = builder.mul(pair.index, LONG(2))
                    totals.add([first, builder.add(first, LONG(1))], j, source)
                with builder.if_then(builder.trunc(tiles, ir.IntType(1))):
                    totals.add([builder.sub(tiles, LONG(1))], j, source)
        to = builder.gep(target, [column])
        totals.write(count, (of_row, builder.gep(scales, [column])), to, stride)
        return context.get_dummy_value()

    return types.void(x, w, mark, out, at), lower


class _Rows(NamedTuple):
    """Activations of a span."""

    lines: Any
    sums: Any


class _Totals:
    """Code that adds up a block's outputs, span by span."""

    def __init__(self, builder: Any, layout: Layout, cells: Any, rows: Any) -> None:
        self.builder, self.layout, self.cells, self.rows = builder, layout, cells, rows
        self.planes = amx.scratch(builder, PLANES * LINES * LINE)
        """[planes][lines] of weights times their groups' scales, of 16 outputs."""
        self.sums = amx.scratch(builder, 4 * ROWS * LINE)
        """Registers of sums."""
        self.shift = 3 if layout.bits == 4 else 7
        """Bits of the lower plane: of scales below 64, or of products of -4064 to 4096."""
        self.header: Any = None

    def clear(self, rows: Any) -> None:
        """Set the block's outputs to zeros."""
        builder = self.builder
        with cgutils.for_range(builder, rows, intp=LONG) as loop:
            for j in PART:
                builder.store(ir.Constant(FLOATS, None), self._cell(loop.index, j), align=LINE)

    def take_span(self, span: Any, j: int) -> None:
        """Fill the planes with a span's weights of 16 outputs."""
        builder, layout = self.builder, self.layout
        groups, self.header = SPAN_INPUTS // layout.group, span
        inner = builder.gep(span, [LONG(layout.header(0) + OUTPUTS * j)])
        quants = builder.gep(span, [LONG(layout.header(groups))])
        with cgutils.for_range(builder, LONG(groups), intp=LONG) as loop:
            number = builder.mul(loop.index, LONG(BLOCK))
            here = builder.gep(quants, [builder.mul(loop.index, LONG(layout.quant_bytes))])
            for at in range(j * LINE, layout.quant_bytes, VECTORS * LINE):
                prefetch(builder, builder.gep(here, [LONG(at)]), LINE)
            scale = self._bytes(inner, number)
            first = builder.mul(loop.index, LONG(layout.group // 4 * LINE))
            self._spread(here, j, scale, builder.gep(self.planes, [first]))

    def _bytes(self, first: Any, at: Any) -> Any:
        """Load bytes of 16 outputs as integers."""
        kind = vector(BYTE, OUTPUTS)
        found = self.builder.load(place(self.builder, first, at, kind), align=OUTPUTS)
        return self.builder.sext(found, LANES_OF_INT)

    def _spread(self, quants: Any, j: int, scale: Any, to: Any) -> None:
        """Write a group's products of 16 outputs into both planes."""
        builder, layout = self.builder, self.layout
        lines = layout.group // 4
        if layout.bits == 4:
            factors = [
                self._twice(builder.lshr(scale, self._ints(3))),
                self._twice(builder.and_(scale, self._ints(7))),
            ]
            for line in range(0, lines, 2):
                both = self._line(quants, line // 2, j)
                low, four = self._words(0x0F0F), self._words(4)
                cut = builder.and_(both, low), builder.and_(builder.lshr(both, four), low)
                for n, numbers in enumerate(cut):
                    products = [builder.mul(numbers, factor) for factor in factors]
                    self._write(products, to, line + n)
            return
        factor = self._twice(scale)
        for line in range(lines):
            both = self._line(quants, line, j)
            numbers = builder.and_(both, self._words(0xFF)), builder.lshr(both, self._words(8))
            if layout.zero:
                numbers = tuple(builder.sub(n, self._words(layout.zero)) for n in numbers)
            even, odd = (builder.mul(n, factor) for n in numbers)
            seven, eight, one = (self._words(n) for n in (7, 8, 1))
            low, high = self._words(0x00FF), self._words(0xFF00)
            upper = builder.or_(
                builder.and_(builder.ashr(even, seven), low),
                builder.and_(builder.shl(odd, one), high),
            )
            lower = builder.or_(
                builder.and_(even, self._words(0x7F)),
                builder.and_(builder.shl(odd, eight), self._words(0x7F00)),
            )
            self._write([upper, lower], to, line)

    def _line(self, quants: Any, number: int, j: int) -> Any:
        """Load a line of a group's quants as pairs of bytes."""
        where = place(self.builder, quants, LONG((VECTORS * number + j) * LINE), PRODUCTS)
        return self.builder.load(where, align=BLOCK)

    def _write(self, products: list[Any], to: Any, line: int) -> None:
        for plane, value in enumerate(products):
            where = place(self.builder, to, LONG((plane * LINES + line) * LINE), PRODUCTS)
            self.builder.store(value, where, align=LINE)

    def _twice(self, numbers: Any) -> Any:
        """Return integers as both 16-bit halves of themselves."""
        builder = self.builder
        low = builder.and_(numbers, self._ints(0xFFFF))
        both = builder.or_(low, builder.shl(numbers, self._ints(16)))
        return builder.bitcast(both, PRODUCTS)

    def _ints(self, value: int) -> Any:
        return ir.Constant(LANES_OF_INT, [value] * OUTPUTS)

    def _words(self, value: int) -> Any:
        return ir.Constant(PRODUCTS, [value] * (LINE // 2))

    def add(self, tiles: list[Any], j: int, source: _Rows) -> None:
        """Add a span's products of one tile of rows or two by 16 outputs."""
        builder = self.builder
        own = SUMS[: len(tiles)]
        registers = [register for both in own for register in both]
        for register in registers:
            amx.clear(builder, register)
        size = builder.mul(self.rows, LONG(LINE))
        firsts = [builder.mul(tile, LONG(SPAN_INPUTS // INPUTS)) for tile in tiles]
        for step in range(SPAN_INPUTS // INPUTS):
            for first, register in zip(firsts, ACTIVATIONS, strict=False):
                at = builder.mul(builder.add(first, LONG(step)), size)
                amx.load(builder, register, builder.gep(source.lines, [at]), LONG(LINE))
            for plane, weights in enumerate(WEIGHTS):
                at = LONG((plane * LINES + step * INPUTS // 4) * LINE)
                amx.load(builder, weights, builder.gep(self.planes, [at]), LONG(LINE))
                for both, register in zip(own, ACTIVATIONS, strict=False):
                    amx.add_products(builder, both[plane], register, weights, signed=True)
        for n, register in enumerate(registers):
            to = builder.gep(self.sums, [LONG(n * ROWS * LINE)])
            amx.store(builder, register, to, LONG(LINE))
        for n, tile in enumerate(tiles):
            memory = builder.gep(self.sums, [LONG(PLANES * n * ROWS * LINE)])
            self._add_rows(memory, j, builder.mul(tile, self.rows), source)

    def _add_rows(self, sums: Any, j: int, first: Any, source: _Rows) -> None:
        """Add sums of a tile's rows."""
        builder, layout = self.builder, self.layout
        (scale,) = halves(builder, self.header, 0, range(j, j + 1), OUTPUTS)
        least, outer = self._least(j) if layout.least else ([], None)
        with cgutils.for_range(builder, self.rows, intp=LONG) as loop:
            row = builder.add(first, loop.index)
            cell = self._cell(row, j)
            value = builder.load(cell, align=LINE)
            if layout.least:
                dot = self._least_dot(least, row, source)
                value = fused(builder, builder.sitofp(dot, FLOATS), outer, value)
            at = builder.mul(loop.index, LONG(LINE))
            upper, lower = (
                builder.load(
                    place(builder, sums, builder.add(at, LONG(n * ROWS * LINE)), LANES_OF_INT),
                    align=LINE,
                )
                for n in range(PLANES)
            )
            total = builder.add(builder.shl(upper, self._ints(self.shift)), lower)
            value = fused(builder, builder.sitofp(total, FLOATS), scale, value)
            builder.store(value, cell, align=LINE)

    def _least(self, j: int) -> tuple[list[Any], Any]:
        """Load least values of a span: pairs of groups' bytes in each output's lane, and halves."""
        builder, groups = self.builder, SPAN_INPUTS // self.layout.group
        first = self.layout.header(0) + groups * BLOCK + OUTPUTS * j
        bytes_ = [self._bytes(self.header, LONG(first + g * BLOCK)) for g in range(groups)]
        pairs = [
            builder.or_(builder.and_(one, self._ints(0xFFFF)), builder.shl(other, self._ints(16)))
            for one, other in zip(bytes_[::2], bytes_[1::2], strict=True)
        ]
        (outer,) = halves(builder, self.header, 2 * BLOCK, range(j, j + 1), OUTPUTS)
        return pairs, outer

    def _least_dot(self, least: list[Any], row: Any, source: _Rows) -> Any:
        """Return the sum over a span's groups of a row's sums times least values."""
        builder = self.builder
        own = builder.gep(source.sums, [builder.mul(row, LONG(2 * len(least)))])
        dot = self._ints(0)
        for n, pair in enumerate(least):
            both = builder.load(place(builder, own, LONG(2 * n), INT), align=2)
            dot = _add_pairs(builder, dot, pair, broadcast(builder, both, OUTPUTS))
        return dot

    def write(self, count: Any, scales: tuple[Any, Any], target: Any, stride: Any) -> None:
        """Write the block's outputs times scales of rows and of outputs."""
        builder = self.builder
        with cgutils.for_range(builder, count, intp=LONG) as loop:
            values = [builder.load(self._cell(loop.index, j), align=LINE) for j in PART]
            scale = builder.load(builder.gep(scales[0], [loop.index]))
            to = builder.gep(target, [builder.mul(loop.index, stride)])
            finish(builder, values, scale, scales[1], to)

    def _cell(self, row: Any, j: int) -> Any:
        at = self.builder.add(self.builder.mul(row, LONG(BLOCK)), LONG(OUTPUTS * j))
        return place(self.builder, self.cells, at, FLOATS)


def _add_pairs(builder: Any, total: Any, one: Any, other: Any) -> Any:
    """Return total + the products of both 16-bit halves of each lane.

    Other instruction sets than AMX's own come here in a test alone.
    """
    if isa.current() is Isa.AMX:
        return invoke(builder, "llvm.x86.avx512.vpdpwssd.512", total.type, total, one, other)
    sixteen = ir.Constant(total.type, [16] * OUTPUTS)
    for shift in (builder.shl, lambda x, by: x):
        both = (builder.ashr(shift(x, sixteen), sixteen) for x in (one, other))
        total = builder.add(total, builder.mul(*both))
    return total
