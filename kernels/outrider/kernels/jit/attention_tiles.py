"""Tiles of attention, as LLVM's instructions: scores against keys, and sums of values.

Leaves which rows and blocks there are to `outrider.kernels.cpu.attention`.
"""

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from outrider.kernels.jit.simd import (
    BYTE,
    INT,
    LONG,
    broadcast,
    floats_at,
    fused,
    integers,
    invoke,
    place,
    vector,
)
from outrider.kernels.jit.tiles import LANES, SECOND_CACHE, parts


class ScoreAt(NamedTuple):
    """Addresses at which one tile of scores reads and writes; pitches in floats."""

    query: int
    """Address of the first head's query; those of the other heads follow."""
    size: int
    """Size of a head."""
    key: int
    pitch: int
    """Pitch from one key element of a slot to the next."""
    following: int
    """The tile read next, to prefetch; 0: none."""
    out: int
    out_pitch: int
    """Pitch of the scores from head to head."""


class ValuesAt(NamedTuple):
    """Addresses at which one run of values is read and added; pitches in floats."""

    weight: int
    weight_pitch: int
    """Pitch of the weights from head to head."""
    value: int
    size: int
    """Size of a head."""
    slots: int
    """Slots of the run, side by side."""
    following: int
    """The run read next, to prefetch; 0: none."""
    out: int


def score_tile(heads: int, slots: int) -> Any:
    """Make an intrinsic: scores of `heads` queries against a tile of `slots` keys, in registers.

    It takes a `ScoreAt`.
    """

    @intrinsic
    def score(typing: Any, at: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
            numbers = integers(context, builder, sig.args[0], a[0])
            query, size, key, pitch, following, out, out_pitch = numbers
            qs, ks, outs = (floats_at(builder, x) for x in (query, key, out))
            for part in parts(heads, slots // LANES):
                first = LONG(part.start * LANES)
                cells = _cells(builder, heads, len(part), LANES)
                for cell in (c for row in cells for c in row):
                    builder.store(ir.Constant(vector(count=LANES), [0.0] * LANES), cell)
                with cgutils.for_range(builder, size, intp=LONG) as loop:
                    ahead = builder.mul(loop.index, pitch)
                    if part.start == 0:
                        _hint(builder, following, ahead, slots)
                    keys = builder.add(ahead, first)
                    queries = _column(builder, qs, loop.index, size, heads, LANES)
                    _accumulate(builder, cells, queries, builder.gep(ks, [keys]))
                for head, row in enumerate(cells):
                    start = builder.mul(out_pitch, LONG(head))
                    _put(builder, outs, builder.add(start, first), row, LANES)
            return context.get_dummy_value()

        return types.void(at), lower

    return score


def value_tile(heads: int, columns: int, lanes: int) -> Any:
    """Make an intrinsic: out += weights @ values over a run of slots, for a chunk of head_dim.

    It takes a `ValuesAt`.
    """

    @intrinsic
    def add(typing: Any, at: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
            numbers = integers(context, builder, sig.args[0], a[0])
            weight, pitch, value, size, count, following, out = numbers
            ps, vs, outs = (floats_at(builder, x) for x in (weight, value, out))
            for part in parts(heads, columns // lanes):
                first = LONG(part.start * lanes)
                cells = _cells(builder, heads, len(part), lanes)
                starts = [
                    builder.add(first, builder.mul(size, LONG(head))) for head in range(heads)
                ]
                for start, row in zip(starts, cells, strict=True):
                    line = _line(builder, outs, start, len(part), lanes)
                    for cell, x in zip(row, line, strict=True):
                        builder.store(x, cell)
                with cgutils.for_range(builder, count, intp=LONG) as loop:
                    weights = _column(builder, ps, loop.index, pitch, heads, lanes)
                    at = builder.add(builder.mul(loop.index, size), first)
                    _hint(builder, following, at, len(part) * lanes)
                    line = builder.gep(vs, [at])
                    _accumulate(builder, cells, weights, line)
                for start, row in zip(starts, cells, strict=True):
                    _put(builder, outs, start, row, lanes)
            return context.get_dummy_value()

        return types.void(at), lower

    return add


def _cells(builder: Any, heads: int, vectors: int, lanes: int) -> list[list[Any]]:
    kind = vector(count=lanes)
    return [[cgutils.alloca_once(builder, kind) for _ in range(vectors)] for _ in range(heads)]


def _line(builder: Any, base: Any, start: Any, vectors: int, lanes: int) -> list[Any]:
    kind = vector(count=lanes)
    places = (builder.add(start, LONG(i * lanes)) for i in range(vectors))
    return [builder.load(place(builder, base, at, kind), align=4) for at in places]


def _hint(builder: Any, first: Any, start: Any, slots: int) -> None:
    """Prefetch a line of the next tile, at an address that is not 0: hardware does not see across
    rows of keys. A tile and the next are more than a first cache holds."""
    with builder.if_then(builder.icmp_signed("!=", first, LONG(0)), likely=True):
        base = floats_at(builder, first)
        for i in range(0, slots, 16):
            where = place(builder, base, builder.add(start, LONG(i)), BYTE)
            ways = INT(0), INT(SECOND_CACHE), INT(1)
            invoke(builder, "llvm.prefetch.p0", ir.VoidType(), where, *ways)


def _column(builder: Any, base: Any, first: Any, pitch: Any, heads: int, lanes: int) -> list[Any]:
    """Load one number of each head, `pitch` apart, into every lane."""
    places = (builder.add(first, builder.mul(pitch, LONG(head))) for head in range(heads))
    return [broadcast(builder, builder.load(builder.gep(base, [at])), lanes) for at in places]


def _accumulate(builder: Any, cells: list[list[Any]], factors: list[Any], line: Any) -> None:
    """Add each head's factor times a line, of which one vector at a time is in a register."""
    for j, column in enumerate(zip(*cells, strict=True)):
        lanes = column[0].type.pointee
        x = builder.load(place(builder, line, LONG(j * lanes.count), lanes), align=4)
        for cell, factor in zip(column, factors, strict=True):
            builder.store(fused(builder, factor, x, builder.load(cell)), cell)


def _put(builder: Any, base: Any, start: Any, row: list[Any], lanes: int) -> None:
    for i, cell in enumerate(row):
        where = place(builder, base, builder.add(start, LONG(i * lanes)), vector(count=lanes))
        builder.store(builder.load(cell), where, align=4)
