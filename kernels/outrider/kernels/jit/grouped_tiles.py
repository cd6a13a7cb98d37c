"""Tiles of linear layers whose weights are quants in groups of inputs.

Products of a group are summed first (over bytes where the machine multiplies them, else over
floats), then multiplied by the group's scale and added up in float32, with the group's least value
times the sum of its activations. Where scales are nested and products are of bytes, the sums of
what shares a half-precision scale are integers: exact, in whatever order. Weights that are floats
are multiplied as floats. Each (row, output) is one sum in one fixed order.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from outrider.kernels.cpu.grouped_packing import LAYOUTS, Layout
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath, kind_of_types
from outrider.kernels.cpu.packing import BLOCK
from outrider.kernels.jit import isa, matrix_products
from outrider.kernels.jit.isa import Isa
from outrider.kernels.jit.maddubs import magnitudes, multiply_pairs, widen_pairs, with_signs
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
    place,
    pointers,
    sizes,
    vector,
)
from outrider.kernels.jit.tiles import (
    LANES,
    REGISTERS,
    SUMS,
    ahead,
    dot,
    finish,
    parts,
    prefetch_at,
    stream_blocks,
)

SIGN_AND_REST = ~0x70001FFF
"""Bits of a float that a half has."""
SIGNS = 0x80
"""What makes a byte with a zero of 128 a signed one."""


CELLS = SUMS if REGISTERS[isa.current()].number > 16 else SUMS // 2
"""Registers of sums over all groups. Where there are few, those of the group under way take as
many (AVX2 on a Sapphire Rapids, Q4_K, 64 rows: 1.13 -> 0.69 of int8's time)."""


class GroupedTile(NamedTuple):
    """One of the tiles that go over a block of a segment."""

    row: int
    """The first."""
    block: int
    """Among all outputs."""
    cut: int
    """Its number among the block's tiles."""
    cuts: int
    """Tiles of the block."""
    offset: int
    """Byte of the segment."""
    first: int
    """First block of the segment."""
    span: int
    """Groups that share a half-precision scale."""
    each: int
    """Blocks from one stream to the next."""
    last: int
    """Block that no stream goes beyond; a stream that is through repeats it."""


def layout_of(mark: Any) -> Layout:
    """Return the layout of the numba type of a mark."""
    (name,) = mark.dtype.fields
    return next(layout for layout in LAYOUTS if layout.name == name)


def streams_of(rows: int, layout: Layout) -> int:
    """Return how many blocks a tile reads in turns, each from its share of them, as `linear_avx2`
    does.

    Zen 3, one row, 1,536 by 8,960 from memory, two over one: Q4_K 0.77, Q6_K 0.72, Q5_K 0.87, Q4_0
    0.91, F16 0.77, but Q8_0, whose quants get signs, 1.13; three: Q4_K 0.94 of one.
    """
    return 2 if rows == 1 and isa.current() is Isa.AVX2 and layout.zero != SIGNS else 1


def grouped_tile(rows: int) -> Any:
    """Make an intrinsic: outputs of `rows` rows in one block, or one of each stream; the types of x
    and of the layout's mark choose the kind."""

    @intrinsic
    def tile(typing: Any, x: Any, w: Any, mark: Any, out: Any, at: Any) -> Any:
        """x: `GroupedActivations`; w: `GroupedWeights`; out [rows, padded outputs]; at:
        `GroupedTile`."""
        kind = kind_of_types("uint8", str(x.types[0].dtype), NumericPath.INT4)
        group = GroupProducts(kind, layout_of(mark))
        streams = streams_of(rows, group.layout)

        def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
            layout = group.layout
            xs, of_row, sums, starts = pointers(context, builder, sig.args[0], a[0])
            ws = data(context, builder, sig.args[1].types[0], builder.extract_value(a[1], 0))
            scales = data(context, builder, sig.args[1].types[1], builder.extract_value(a[1], 1))
            target = data(context, builder, sig.args[3], a[3])
            _, stride = sizes(
                context, builder, sig.args[0].types[0], builder.extract_value(a[0], 0)
            )
            _, out_stride = sizes(context, builder, sig.args[3], a[3])
            row, block, cut, cuts, offset, first, span, each, last = integers(
                context, builder, sig.args[4], a[4]
            )
            groups = builder.udiv(stride, LONG(layout.group))
            spans = builder.udiv(groups, span)
            header, span_size = _span_sizes(builder, layout, span)
            size = builder.mul(spans, span_size)
            blocks = stream_blocks(builder, block, (each, last), streams)
            offsets = [builder.mul(builder.sub(one, first), size) for one in blocks]
            ws = [builder.gep(ws, [builder.add(offset, own)]) for own in offsets]
            numbers = [builder.add(row, LONG(r)) for r in range(rows)]
            inputs = [builder.gep(xs, [builder.mul(n, stride)]) for n in numbers]
            before_row = [builder.mul(n, groups) for n in numbers]
            lines, passes = layout.span_bytes(1) & -64, parts(rows, sums=CELLS)
            for turn, part in enumerate(passes):
                hints = ahead(builder, (cut, cuts), (turn, len(passes)), size, lines)
                cells = [_zeros(builder, rows, part) for _ in ws]
                with cgutils.for_range(builder, spans, intp=LONG) as outer:
                    at = builder.mul(outer.index, span_size)
                    before = builder.mul(outer.index, span)
                    own_sums = [builder.gep(sums, [builder.add(n, before)]) for n in before_row]
                    spans_at = [SpanPlace(builder.gep(w, [at]), span, own_sums) for w in ws]
                    totals = [
                        group.begin(builder, own, span_at, part)
                        for own, span_at in zip(cells, spans_at, strict=True)
                    ]
                    with cgutils.for_range(builder, span, intp=LONG) as inner:
                        number = builder.add(before, inner.index)
                        if streams == 1:
                            prefetch_at(builder, ws[0], hints, number)
                        step = builder.mul(inner.index, LONG(layout.quant_bytes))
                        quants = builder.add(header, step)
                        at = builder.mul(number, LONG(layout.group))
                        own_inputs = [builder.gep(x, [at]) for x in inputs]
                        begins = [builder.gep(starts, [builder.add(n, number)]) for n in before_row]
                        for own, span_at in zip(totals, spans_at, strict=True):
                            line = builder.gep(span_at.header, [quants])
                            group_at = GroupPlace(span_at, inner.index, line, own_inputs, begins)
                            group.add(builder, own, group_at, part)
                    for sums_, own, span_at in zip(cells, totals, spans_at, strict=True):
                        group.end(builder, sums_, own, span_at, part)
                for one, own in zip(blocks, cells, strict=True):
                    column = builder.add(builder.mul(one, LONG(BLOCK)), LONG(part.start * LANES))
                    of_output = builder.gep(scales, [column])
                    for number, row_cells in zip(numbers, own, strict=True):
                        scale = builder.load(builder.gep(of_row, [number]))
                        at = builder.add(builder.mul(number, out_stride), column)
                        values = [builder.load(cell) for cell in row_cells]
                        finish(builder, values, scale, of_output, builder.gep(target, [at]))
            return context.get_dummy_value()

        return types.void(x, w, mark, out, at), lower

    return tile


class SpanPlace(NamedTuple):
    """Pointers and numbers of the groups of a block that share half-precision scales."""

    header: Any
    """Scales and least values."""
    groups: Any
    """How many there are."""
    sums: list[Any]
    """Sums of each group's activations, for each row."""


class GroupPlace(NamedTuple):
    """Pointers and numbers of one group of a block."""

    span: SpanPlace
    number: Any
    """Number of the group in the span."""
    quants: Any
    inputs: list[Any]
    """Activations of each row from the group's first input on."""
    starts: list[Any]
    """Sum of each row's activations, times the zero of quants, negative."""


def _span_sizes(builder: Any, layout: Layout, span: Any) -> tuple[Any, Any]:
    """Return the bytes of a span's header, and of all of it."""
    header: Any = LONG(layout.header(0))
    if layout.nested:
        inner = builder.mul(span, LONG(layout.header(1) - layout.header(0)))
        header = builder.add(header, inner)
    return header, builder.add(header, builder.mul(span, LONG(layout.quant_bytes)))


def _zeros(builder: Any, rows: int, part: range, element: Any = FLOAT) -> list[list[Any]]:
    """Make registers of sums."""
    lanes = vector(element, LANES)
    cells = [[cgutils.alloca_once(builder, lanes) for _ in part] for _ in range(rows)]
    for row in cells:
        for cell in row:
            builder.store(ir.Constant(lanes, [0] * LANES), cell)
    return cells


class GroupProducts:
    """Code that adds one group's products to the sums of a tile."""

    def __init__(self, kind: NumericKind, layout: Layout) -> None:
        self.kind, self.layout = kind, layout
        self._integers = kind.activation is np.int8 and not layout.floats
        self._pairs = kind is NumericKind.INT4_AVX2
        self._signed = layout.zero == SIGNS and (self._pairs or kind is NumericKind.INT4_DOTPROD)
        """True where quants are made signed bytes: their zero is 0 then."""
        self.exact = self._integers and layout.nested
        """True where what a span adds up is an integer."""
        self._dotted = self.exact and (layout.least or self._pairs)
        """True where least values of a span, or what its zeros subtract, are added at once."""
        self._shifted = (
            self._integers and layout.zero != 0 and not self._signed and not self._dotted
        )
        """True where sums of a group begin with what their zero subtracts."""

    def begin(self, builder: Any, cells: Any, at: SpanPlace, part: range) -> Any:
        """Return what groups of a span are added to."""
        if not self.exact:
            return cells
        totals = _zeros(builder, len(cells), part, INT)
        if not self._dotted:
            return totals
        dots = self._dots(builder, at, part)
        if self.layout.least:
            self._add_spans(builder, cells, dots, halves(builder, at.header, 2 * BLOCK, part))
            return totals
        zero = ir.Constant(vector(count=LANES), [-self.layout.zero] * LANES)
        for row_totals, row_dots in zip(totals, dots, strict=True):
            for total, dot_ in zip(row_totals, row_dots, strict=True):
                value = builder.fmul(builder.load(dot_), zero)
                builder.store(builder.fptosi(value, vector(INT, LANES)), total)
        return totals

    def _dots(self, builder: Any, at: SpanPlace, part: range) -> list[list[Any]]:
        """Return, over the groups of a span, sums of activations' sums times bytes of least values,
        or of scales: integers, which floats hold exactly in spans of up to 8,192 inputs."""
        dots = _zeros(builder, len(at.sums), part)
        with cgutils.for_range(builder, at.groups, intp=LONG) as loop:
            self.add_dots(builder, dots, at, loop.index, part)
        return dots

    def add_dots(self, builder: Any, dots: Any, at: SpanPlace, number: Any, part: range) -> None:
        """Add a group's sums of activations times its bytes of least values, or of scales."""
        inner = self._inner(builder, at, int(self.layout.least), number, part)
        for row_dots, sums in zip(dots, at.sums, strict=True):
            row_sum = broadcast(builder, builder.load(builder.gep(sums, [number])), LANES)
            for dot_, own in zip(row_dots, inner, strict=True):
                value = builder.sitofp(own, row_sum.type)
                builder.store(fused(builder, row_sum, value, builder.load(dot_)), dot_)

    def end(self, builder: Any, cells: Any, totals: Any, at: SpanPlace, part: range) -> None:
        """Add the sums of a span."""
        if self.exact:
            self._add_spans(builder, cells, totals, halves(builder, at.header, 0, part))

    def _add_spans(self, builder: Any, cells: Any, totals: Any, scales: list[Any]) -> None:
        for row_cells, row_totals in zip(cells, totals, strict=True):
            for cell, total, scale in zip(row_cells, row_totals, scales, strict=True):
                value = builder.load(total)
                if value.type.element == INT:
                    value = builder.sitofp(value, scale.type)
                builder.store(fused(builder, value, scale, builder.load(cell)), cell)

    def add(self, builder: Any, cells: Any, at: GroupPlace, part: range) -> None:
        """Add a group: its quants once, times the activations of each row."""
        if self.exact:
            self._add_integers(builder, cells, at, part)
            return
        products = self._paired if self._pairs else self._summed
        totals = (self._floated if self.layout.floats else products)(builder, at, part)
        scales = self._numbers(builder, at, 0, part)
        least = self._numbers(builder, at, 1, part) if self.layout.least else None
        lanes = vector(count=LANES)
        for row_cells, row_totals, sums in zip(cells, totals, at.span.sums, strict=True):
            row_sum = broadcast(builder, builder.load(builder.gep(sums, [at.number])), LANES)
            for j, cell in enumerate(row_cells):
                total = row_totals[j]
                if self._integers:
                    total = builder.sitofp(total, lanes)
                value = fused(builder, total, scales[j], builder.load(cell))
                if least is not None:
                    value = fused(builder, row_sum, least[j], value)
                builder.store(value, cell)

    def _add_integers(self, builder: Any, cells: Any, at: GroupPlace, part: range) -> None:
        scales = self._inner(builder, at.span, 0, at.number, part)
        totals = (
            self._paired(builder, at, part, scales)
            if self._pairs
            else self._summed(builder, at, part)
        )
        for row_cells, row_totals in zip(cells, totals, strict=True):
            for cell, total, scale in zip(row_cells, row_totals, scales, strict=True):
                value = total if self._pairs else builder.mul(total, scale)
                builder.store(builder.add(builder.load(cell), value), cell)

    def _summed(self, builder: Any, at: GroupPlace, part: range) -> list[list[Any]]:
        """Return sums of quant * activation over the group, [rows][vectors of outputs]."""
        totals = [[first] * len(part) for first in self._first(builder, at)]
        alone = self._sum_pairs(builder, at, part, totals)
        for first in range(0, self.layout.group, self.kind.group) if alone else ():
            quants = self._quants(builder, at.quants, first, part)
            for r in alone:
                value = self._activation(builder, builder.gep(at.inputs[r], [LONG(first)]))
                totals[r] = [
                    self._dot(builder, s, value, w) for s, w in zip(totals[r], quants, strict=True)
                ]
        return totals

    def _sum_pairs(
        self, builder: Any, at: GroupPlace, part: range, totals: list[list[Any]]
    ) -> range:
        """Add the products of the rows that are multiplied two at a time; return the others."""
        pairs = matrix_products.pairs(self.kind, len(totals))
        for j in range(len(part)) if pairs else ():
            sums = [
                matrix_products.paired(builder, self.kind, totals[r][j], totals[r + 1][j])
                for r in pairs
            ]
            for first in range(0, self.layout.group, matrix_products.INPUTS):
                fours = (first, first + self.kind.group)
                quants = [self._quants(builder, at.quants, i, part[j : j + 1])[0] for i in fours]
                one, other = matrix_products.outputs_of(builder, *quants)
                for n, r in enumerate(pairs):
                    rows = at.inputs[r], at.inputs[r + 1]
                    x = matrix_products.rows_of(builder, *rows, LONG(first))
                    sums[n] = (
                        matrix_products.multiply(builder, sums[n][0], one, x),
                        matrix_products.multiply(builder, sums[n][1], other, x),
                    )
            for r, own in zip(pairs, sums, strict=True):
                both = matrix_products.unpaired(builder, self.kind, *own)
                totals[r][j], totals[r + 1][j] = both
        return range(2 * len(pairs), len(totals))

    def _first(self, builder: Any, at: GroupPlace) -> list[Any]:
        """Return what the sums of each row begin with."""
        if self._shifted:
            return [broadcast(builder, builder.load(start), LANES) for start in at.starts]
        element = INT if self._integers else FLOAT
        return [ir.Constant(vector(element, LANES), [0] * LANES) for _ in at.starts]

    def _paired(
        self, builder: Any, at: GroupPlace, part: range, scales: list[Any] | None = None
    ) -> list[list[Any]]:
        """Return what `_summed` does, times `scales`: first in int16, a vector of outputs at a
        time, so that its quants stay in registers while the rows pass."""
        step = self.kind.group
        firsts = range(0, self.layout.group, step)
        together = self.layout.narrow
        firsts_of = self._first(builder, at)
        totals: list[list[Any]] = [[] for _ in at.inputs]
        for own, j in enumerate(part):
            quants = [
                self._quants(builder, at.quants, first, range(j, j + 1))[0] for first in firsts
            ]
            scale = scales[own] if scales else None
            for x, begin, row in zip(at.inputs, firsts_of, totals, strict=True):
                pairs = [
                    self._pair(builder, q, self._activation(builder, builder.gep(x, [LONG(first)])))
                    for q, first in zip(quants, firsts, strict=True)
                ]
                wide = [
                    widen_pairs(builder, _sum(builder, pairs[i : i + together]), scale)
                    for i in range(0, len(pairs), together)
                ]
                row.append(_sum(builder, [begin, *wide] if self._shifted else wide))
        return totals

    def _floated(self, builder: Any, at: GroupPlace, part: range) -> list[list[Any]]:
        """Return what `_summed` does, of weights that are floats, an input at a time."""
        totals = _zeros(builder, len(at.inputs), part)
        with cgutils.for_range(builder, LONG(self.layout.group), intp=LONG) as loop:
            line = builder.gep(at.quants, [builder.mul(loop.index, LONG(2 * BLOCK))])
            weights = (_bfloats if self.layout.bfloat else halves)(builder, line, 0, part)
            for x, row in zip(at.inputs, totals, strict=True):
                value = builder.load(builder.gep(x, [loop.index]))
                if self.kind.activation is np.int8:
                    value = builder.sitofp(value, FLOAT)
                lanes = broadcast(builder, value, LANES)
                for cell, weight in zip(row, weights, strict=True):
                    builder.store(fused(builder, lanes, weight, builder.load(cell)), cell)
        return [[builder.load(cell) for cell in row] for row in totals]

    def _pair(self, builder: Any, quants: Any, x: Any) -> Any:
        if self._signed:
            return multiply_pairs(
                builder, magnitudes(builder, quants), with_signs(builder, x, quants)
            )
        return multiply_pairs(builder, quants, x)

    def _quants(self, builder: Any, quants: Any, first: int, part: range) -> list[Any]:
        """Return quants of inputs from `first` on: four of each output as bytes, or one as floats.

        Eight inputs of an output in four bits are four bytes: input i of 0-3 in bits 8 i, of 4-7
        four higher.
        """
        layout, inputs = self.layout, 8 if self.layout.bits == 4 else 4
        line, number = divmod(first, inputs)
        element, count = (BYTE, 4 * LANES) if self.kind.group == 4 else (INT, LANES)
        mask, by = (
            ir.Constant(vector(element, count), [n] * count)
            for n in ((1 << layout.bits) - 1, 4 * (number // 4) + 8 * (number % 4))
        )
        found = []
        for j in part:
            where = place(
                builder, quants, LONG(4 * (BLOCK * line + LANES * j)), vector(BYTE, 4 * LANES)
            )
            value = builder.load(where, align=BLOCK)
            value = builder.bitcast(value, vector(element, count))
            if layout.bits == 4 or self.kind.group == 1:
                value = builder.and_(builder.lshr(value, by), mask)
            found.append(self._usable(builder, value))
        return found

    def _usable(self, builder: Any, quants: Any) -> Any:
        """Return quants as the products take them."""
        if self.kind.group == 1:
            zero = ir.Constant(quants.type, [self.layout.zero] * LANES)
            return builder.sitofp(builder.sub(quants, zero), vector(count=LANES))
        if self._signed:
            return builder.xor(quants, ir.Constant(quants.type, [SIGNS] * (4 * LANES)))
        return quants

    def _activation(self, builder: Any, x: Any) -> Any:
        """Load one row's next activations into every lane."""
        if self.kind.group == 1:
            return broadcast(builder, builder.load(x), LANES)
        four = builder.load(builder.bitcast(x, INT.as_pointer()), align=4)
        return builder.bitcast(broadcast(builder, four, LANES), vector(BYTE, 4 * LANES))

    def _dot(self, builder: Any, total: Any, x: Any, quants: Any) -> Any:
        """Return total + the products of x and quants."""
        if self.kind.group == 1:
            return fused(builder, x, quants, total)
        return dot(builder, self.kind, total, quants, x)

    def _numbers(self, builder: Any, at: GroupPlace, which: int, part: range) -> list[Any]:
        """Load the group's scales (0) or least values (1) as floats."""
        outer = halves(builder, at.span.header, 2 * BLOCK * which, part)
        if not self.layout.nested:
            return outer
        inner = self._inner(builder, at.span, which, at.number, part)
        pairs = zip(outer, inner, strict=True)
        return [builder.fmul(half, builder.sitofp(number, half.type)) for half, number in pairs]

    def _inner(self, builder: Any, at: SpanPlace, which: int, number: Any, part: range) -> Any:
        """Load a group's bytes of scales (0) or least values (1) as integers."""
        before = builder.add(builder.mul(at.groups, LONG(which)), number)
        first = builder.add(LONG(self.layout.header(0)), builder.mul(before, LONG(BLOCK)))
        found = []
        for j in part:
            where = builder.add(first, LONG(LANES * j))
            bytes_ = builder.load(
                place(builder, at.header, where, vector(BYTE, LANES)), align=LANES
            )
            found.append(builder.sext(bytes_, vector(INT, LANES)))
        return found


def _sum(builder: Any, values: list[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = builder.add(total, value)
    return total


def halves(builder: Any, line: Any, at: int, part: range, lanes: int = LANES) -> list[Any]:
    """Load half-precision values of a block's outputs as floats, finite ones, on any machine.

    Shifted to where a float has its exponent and fraction, they are 2^112 times too small.
    """
    thirteen, mask = (ir.Constant(vector(INT, lanes), [n] * lanes) for n in (13, SIGN_AND_REST))
    larger = ir.Constant(vector(count=lanes), [2.0**112] * lanes)
    found = []
    for bits in _words(builder, line, at, part, lanes):
        shifted = builder.and_(builder.shl(bits, thirteen), mask)
        found.append(builder.fmul(builder.bitcast(shifted, larger.type), larger))
    return found


def _bfloats(builder: Any, line: Any, at: int, part: range) -> list[Any]:
    """Load bfloat16 values of a block's outputs as floats."""
    sixteen = ir.Constant(vector(INT, LANES), [16] * LANES)
    floats = vector(count=LANES)
    words = _words(builder, line, at, part)
    return [builder.bitcast(builder.shl(bits, sixteen), floats) for bits in words]


def _words(builder: Any, line: Any, at: int, part: range, lanes: int = LANES) -> list[Any]:
    """Load 16 bits of each of a block's outputs, from byte `at` of a line on, as wider integers."""
    found = []
    for j in part:
        where = place(builder, line, LONG(at + 2 * lanes * j), vector(HALF, lanes))
        found.append(builder.sext(builder.load(where, align=2 * lanes), vector(INT, lanes)))
    return found
