"""Tiles of linear layers of int8 weights by AVX2's `vpmaddubsw`.

16 registers hold eight vectors of sums: two rows by 32 outputs, three or four by 16. Two products
are added in int16 before they are widened (`outrider.kernels.cpu.signed_rows` says why that is
exact), so 64 products take five instructions.
"""

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from outrider.kernels.cpu.packing import BLOCK
from outrider.kernels.jit.maddubs import GROUP, LANES, PAIRED, multiply_pairs, widen_pairs
from outrider.kernels.jit.simd import (
    BYTE,
    INT,
    LONG,
    broadcast,
    data,
    integers,
    invoke,
    place,
    pointers,
    sizes,
    vector,
)
from outrider.kernels.jit.tiles import finish, order, prefetch, stream_blocks

BYTES = 32
"""Bytes of a register: eight outputs, a group of inputs each."""
STEP = GROUP * PAIRED
"""Inputs that are added in int16."""


class StreamTile(NamedTuple):
    """Place of a tile."""

    row: int
    """In the span of rows."""
    first: int
    """Row of `out` that the span begins with."""
    block: int
    """Block of the first stream."""
    each: int
    """Blocks from one stream to the next."""
    last: int
    """Block that no stream goes beyond; a stream that is through repeats it."""
    cut: int
    """Place in the span's tiles of this block: the first two bring the next block's bytes near."""
    cuts: int


def avx2_tile(rows: int, streams: int = 1) -> Any:
    """Make an intrinsic: outputs of `rows` rows in one block of each of `streams`."""
    width = BLOCK // LANES if rows < 3 else BLOCK // LANES // 2

    @intrinsic
    def tile(typing: Any, x: Any, scales: Any, w: Any, out: Any, at: Any) -> Any:
        """x: `SignedRows`; scales [rows]; w: `Packed`; out [rows, outputs]; at: `StreamTile`."""

        def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
            values, starts, *moved = pointers(context, builder, sig.args[0], a[0])
            of_row, target = (data(context, builder, sig.args[i], a[i]) for i in (1, 3))
            ws, of_output, _ = pointers(context, builder, sig.args[2], a[2])
            (_, stride), (_, most) = (
                sizes(context, builder, sig.args[0].types[i], builder.extract_value(a[0], i))
                for i in (0, 3)
            )
            _, out_stride = sizes(context, builder, sig.args[3], a[3])
            row, span, block, each, last, cut, cuts = integers(context, builder, sig.args[4], a[4])
            numbers = [builder.add(row, LONG(r)) for r in range(rows)]
            inputs = [builder.gep(values, [builder.mul(n, stride)]) for n in numbers]
            blocks = stream_blocks(builder, block, (each, last), streams)
            columns = [builder.mul(one, LONG(BLOCK)) for one in blocks]
            begins = [builder.gep(ws, [builder.mul(column, stride)]) for column in columns]
            steps = builder.udiv(stride, LONG(STEP))
            places = [builder.mul(builder.add(span, n), out_stride) for n in numbers]
            targets = [
                [builder.gep(target, [builder.add(at, column)]) for at in places]
                for column in columns
            ]
            _prefetch_outputs(builder, [line for lines in targets for line in lines])
            for part in range(0, BLOCK // LANES, width):
                own = [builder.gep(begin, [LONG(part * BYTES)]) for begin in begins]
                of_one = [builder.gep(starts, [n]) for n in numbers]
                cells = [[_start(builder, start, width) for start in of_one] for _ in own]
                with cgutils.for_range(builder, steps, intp=LONG) as loop:
                    if streams == 1 and width * LANES == BLOCK:
                        line = builder.mul(loop.index, LONG(BLOCK * STEP))
                        prefetch(builder, builder.gep(own[0], [line]), BLOCK * STEP)
                    elif streams == 1:
                        _prefetch_next(builder, begins[0], (stride, part, cut, cuts), loop.index)
                    _step(builder, cells, inputs, own, loop.index)
                for column, begin, sums, to in zip(columns, own, cells, targets, strict=True):
                    first = builder.gep(of_output, [builder.add(column, LONG(part * LANES))])
                    for n, row_cells, line in zip(numbers, sums, to, strict=True):
                        _add_moved(builder, row_cells, n, most, moved, begin)
                        scale = builder.load(builder.gep(of_row, [builder.add(span, n)]))
                        line = builder.gep(line, [LONG(part * LANES)])
                        values = [builder.load(cell) for cell in row_cells]
                        finish(builder, values, scale, first, line)
            return context.get_dummy_value()

        return types.void(x, scales, w, out, at), lower

    return tile


def _prefetch_next(builder: Any, ws: Any, at: tuple[Any, int, Any, Any], step: Any) -> None:
    """Ask for two lines of the next block, so that all are on their way after one tile or two.

    at: inputs, first vector of this part, and the tile's number among how many. Without, memory
    rests while tiles go over a block that is near (Zen 5 without AVX-512: 4 rows 4.2 -> 3.3 ms, 8
    rows 6.7 -> 5.2).
    """
    stride, part, cut, cuts = at
    lines = builder.udiv(stride, LONG(STEP))  # in a quarter of the block
    alone = builder.icmp_signed("==", cuts, LONG(1))
    later = builder.icmp_signed(">", cut, LONG(0))
    first = builder.select(later, LONG(2), LONG(0))
    quarter = builder.add(first, LONG(0 if part == 0 else 1))
    further = builder.select(alone, LONG(2), LONG(0))
    following = builder.gep(ws, [builder.mul(stride, LONG(BLOCK))])
    for number in (quarter, builder.add(quarter, further)):
        line = builder.add(builder.mul(number, lines), step)
        hint = builder.gep(following, [builder.mul(line, LONG(64))])
        invoke(builder, "llvm.prefetch.p0", ir.VoidType(), hint, INT(0), INT(2), INT(1))


def _prefetch_outputs(builder: Any, lines: list[Any]) -> None:
    """Ask for the block's outputs of each row: they lie far apart, and stores that miss wait.

    Zen 5 without AVX-512, linear layers: 8 rows 7.3 -> 6.9 ms, 64 rows 57 -> 54, the head most.
    AVX-512's loops gain nothing by it.
    """
    for line in lines:
        for at in range(0, BLOCK, 16):
            hint = place(builder, line, LONG(at), BYTE)
            invoke(builder, "llvm.prefetch.p0", ir.VoidType(), hint, INT(1), INT(3), INT(1))


def _start(builder: Any, start: Any, width: int) -> list[Any]:
    """Make registers of one row's sums, at their first value."""
    value = broadcast(builder, builder.load(start), LANES)
    return [cgutils.alloca_once_value(builder, value) for _ in range(width)]


def _step(builder: Any, cells: Any, inputs: list[Any], streams: list[Any], step: Any) -> None:
    """Add two groups of inputs in each stream; cells: sums by stream, row and vector."""
    at = builder.mul(step, LONG(STEP))
    xs = [builder.gep(x, [at]) for x in inputs]
    for sums, stream in zip(cells, streams, strict=True):
        _multiply(builder, sums, xs, builder.gep(stream, [builder.mul(at, LONG(BLOCK))]))


def _multiply(builder: Any, cells: Any, xs: list[Any], line: Any) -> None:
    """Add two groups of inputs: their weights once, times the activations of each row."""
    weights: dict[int, list[Any]] = {}
    values: dict[int, list[Any]] = {}
    for r, j in order(len(cells), len(cells[0])):
        if j not in weights:
            weights[j] = [_weights(builder, line, group, j) for group in range(PAIRED)]
        if r not in values:
            values[r] = [_activations(builder, xs[r], group) for group in range(PAIRED)]
        first, second = map(multiply_pairs, [builder] * PAIRED, weights[j], values[r])
        _add(builder, cells[r][j], builder.add(first, second))


def _add_moved(
    builder: Any, cells: list[Any], row: Any, most: Any, moved: list[Any], w0: Any
) -> None:
    """Add the groups that were moved out of a row; moved: counts, places and extra groups."""
    counts, places, extra = moved
    begin = builder.mul(row, most)
    count = builder.zext(builder.load(builder.gep(counts, [row])), LONG)
    with cgutils.for_range(builder, count, intp=LONG) as loop:
        number = builder.add(begin, loop.index)
        group = builder.zext(builder.load(builder.gep(places, [number])), LONG)
        line = builder.gep(w0, [builder.mul(group, LONG(BLOCK * GROUP))])
        x = builder.gep(extra, [builder.mul(number, LONG(GROUP))])
        value = _activations(builder, x, 0)
        for j, cell in enumerate(cells):
            _add(builder, cell, multiply_pairs(builder, _weights(builder, line, 0, j), value))


def _weights(builder: Any, line: Any, group: int, j: int) -> Any:
    where = place(builder, line, LONG(group * BLOCK * GROUP + j * BYTES), vector(BYTE, BYTES))
    return builder.load(where, align=32)


def _activations(builder: Any, x: Any, group: int) -> Any:
    """Load a group of a row's activations into every lane."""
    four = builder.load(place(builder, x, LONG(group * GROUP), INT), align=4)
    return builder.bitcast(broadcast(builder, four, LANES), vector(BYTE, BYTES))


def _add(builder: Any, cell: Any, pairs: Any) -> None:
    builder.store(builder.add(builder.load(cell), widen_pairs(builder, pairs)), cell)
