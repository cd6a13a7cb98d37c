"""Attention of rows over their logical contexts: a committed prefix, then ancestors by depth.

Leaves writing keys and values to `elementwise`. A row's numbers depend on its logical context
alone, bit for bit: a score is one sum over head_dim in order, weights are summed in lanes by
logical position mod 16, and values are added in logical order, wherever the blocks are and whatever
rows run beside it. A block of 64 slots is read once for all rows and heads that share it.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from outrider.kernels.cpu.simd import (
    BYTE,
    INT,
    LONG,
    broadcast,
    data,
    exp,
    fused,
    integers,
    invoke,
    largest,
    load,
    maximum,
    place,
    sizes,
    splat,
    store,
    total,
    vector,
)
from outrider.kernels.cpu.tiles import LANES, parts

Floats = NDArray[np.float32]
Int32 = NDArray[np.int32]

TILE = 64
"""Slots of one block of the block pool, which is one tile of scores."""
VALUE_TILE = 128
"""Positions of one tile of values: 32 KB at head_dim 64. Two blocks that lie side by side are read
as one run (Zen 5, 16 rows at context 512: 4 % of attention)."""
NEVER = np.float32(-np.inf)
ZERO, ONE = np.float32(0), np.float32(1)


class KVArrays(NamedTuple):
    """KV cache of all layers, or of one without the first axis."""

    k_t: Floats  # [layers, kv_heads, head_dim, slots]
    v: Floats  # [layers, kv_heads, slots, head_dim]


class Contexts(NamedTuple):
    """Contexts of n rows: a row sees its sequence's first `prefix` offsets, then its ancestors."""

    sequence: Int32  # [n] line of `tables`
    tables: Int32  # [sequences, most] block tables: block of 64 slots by offset // 64
    prefix: Int32  # [n]
    ancestors: Int32  # [n, most] offsets
    depth: Int32  # [n] ancestors in use
    window: int
    """Latest positions seen, 0 for all."""


class AttentionBuffers(NamedTuple):
    """Queries, scratch and result."""

    q: Floats  # [rows, >= heads * head_dim], scaled
    work: Floats  # [rows, heads / kv_heads, longest sequence + 64]
    out: Floats  # [rows, >= heads * head_dim], overwritten


class ScoreAt(NamedTuple):
    """Flat elements at which one tile of scores reads and writes."""

    query: int
    key: int
    following: int
    """The tile read next, to prefetch."""
    out: int


class ValuesAt(NamedTuple):
    """Flat elements at which one run of values is read and added."""

    weight: int
    value: int
    slots: int
    """Of the run, side by side."""
    out: int


def _score_tile(heads: int) -> Any:
    """Make an intrinsic: scores of `heads` queries against one tile of keys, in registers."""

    @intrinsic
    def score(typing: Any, q: Any, k_t: Any, out: Any, at: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
            qs, ks, outs = (data(context, builder, sig.args[i], a[i]) for i in range(3))
            _, size, pitch = sizes(context, builder, sig.args[1], a[1])
            _, _, out_pitch = sizes(context, builder, sig.args[2], a[2])
            query_at, key, following, out_at = integers(context, builder, sig.args[3], a[3])
            for part in parts(heads, TILE // LANES):
                first = LONG(part.start * LANES)
                cells = _cells(builder, heads, len(part), LANES)
                for cell in (c for row in cells for c in row):
                    builder.store(ir.Constant(vector(count=LANES), [0.0] * LANES), cell)
                with cgutils.for_range(builder, size, intp=LONG) as loop:
                    ahead = builder.mul(loop.index, pitch)
                    if part.start == 0:
                        _hint(builder, ks, builder.add(following, ahead))
                    keys = builder.add(builder.add(key, ahead), first)
                    first_query = builder.add(query_at, loop.index)
                    queries = _column(builder, qs, first_query, size, heads, LANES)
                    _accumulate(builder, cells, queries, builder.gep(ks, [keys]))
                for head, row in enumerate(cells):
                    start = builder.add(out_at, builder.mul(out_pitch, LONG(head)))
                    _put(builder, outs, builder.add(start, first), row, LANES)
            return context.get_dummy_value()

        return types.void(q, k_t, out, at), lower

    return score


def _value_tile(heads: int, columns: int, lanes: int) -> Any:
    """Make an intrinsic: out += weights @ values over a run of slots, for a chunk of head_dim."""

    @intrinsic
    def add(typing: Any, p: Any, v: Any, out: Any, at: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
            ps, vs, outs = (data(context, builder, sig.args[i], a[i]) for i in range(3))
            _, _, p_pitch = sizes(context, builder, sig.args[0], a[0])
            _, _, size = sizes(context, builder, sig.args[1], a[1])
            weight_at, value_at, count, out_at = integers(context, builder, sig.args[3], a[3])
            for part in parts(heads, columns // lanes):
                first = LONG(part.start * lanes)
                cells = _cells(builder, heads, len(part), lanes)
                starts = [
                    builder.add(builder.add(out_at, first), builder.mul(size, LONG(head)))
                    for head in range(heads)
                ]
                for start, row in zip(starts, cells, strict=True):
                    line = _line(builder, outs, start, len(part), lanes)
                    for cell, x in zip(row, line, strict=True):
                        builder.store(x, cell)
                with cgutils.for_range(builder, count, intp=LONG) as loop:
                    values = builder.add(value_at, builder.mul(loop.index, size))
                    first_weight = builder.add(weight_at, loop.index)
                    weights = _column(builder, ps, first_weight, p_pitch, heads, lanes)
                    line = builder.gep(vs, [builder.add(values, first)])
                    _accumulate(builder, cells, weights, line)
                for start, row in zip(starts, cells, strict=True):
                    _put(builder, outs, start, row, lanes)
            return context.get_dummy_value()

        return types.void(p, v, out, at), lower

    return add


def _cells(builder: Any, heads: int, vectors: int, lanes: int) -> list[list[Any]]:
    kind = vector(count=lanes)
    return [[cgutils.alloca_once(builder, kind) for _ in range(vectors)] for _ in range(heads)]


def _line(builder: Any, base: Any, start: Any, vectors: int, lanes: int) -> list[Any]:
    kind = vector(count=lanes)
    places = (builder.add(start, LONG(i * lanes)) for i in range(vectors))
    return [builder.load(place(builder, base, at, kind), align=4) for at in places]


def _hint(builder: Any, base: Any, start: Any) -> None:
    """Prefetch a line of the next tile: hardware does not see across rows of keys."""
    for i in range(0, TILE, 16):
        where = place(builder, base, builder.add(start, LONG(i)), BYTE)
        invoke(builder, "llvm.prefetch.p0", ir.VoidType(), where, INT(0), INT(3), INT(1))


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


_S1, _S2, _S3, _S4 = (_score_tile(heads) for heads in range(1, 5))
_V1, _V2, _V3, _V4 = (_value_tile(heads, 64, LANES) for heads in range(1, 5))
_VECTOR, _NUMBER = _value_tile(1, 16, LANES), _value_tile(1, 1, 1)


@njit(cache=True, nogil=True)
def _scores(q, k_t, out, at, group):  # type: ignore[no-untyped-def]
    """Score one tile with the `group` query heads that share a key head; at: of the first."""
    size, out_pitch = k_t.shape[1], out.shape[2]
    head = 0
    while head < group:
        left = group - head
        own = ScoreAt(at.query + head * size, at.key, at.following, at.out + head * out_pitch)
        if left >= 4:
            _S4(q, k_t, out, own)
        elif left == 3:
            _S3(q, k_t, out, own)
        elif left == 2:
            _S2(q, k_t, out, own)
        else:
            _S1(q, k_t, out, own)
        head += 4


@njit(cache=True, nogil=True)
def _values(p, v, out, at, group):  # type: ignore[no-untyped-def]
    """out += weights @ values of one run of slots, for the heads that share them."""
    size, pitch = v.shape[2], p.shape[2]
    head = 0
    while head < group:
        left = group - head
        p_at, out_at = at.weight + head * pitch, at.out + head * size
        d = 0
        while d + 64 <= size:
            own = ValuesAt(p_at, at.value + d, at.slots, out_at + d)
            if left >= 4:
                _V4(p, v, out, own)
            elif left == 3:
                _V3(p, v, out, own)
            elif left == 2:
                _V2(p, v, out, own)
            else:
                _V1(p, v, out, own)
            d += 64
        for one in range(min(left, 4) if d < size else 0):
            own = ValuesAt(p_at + one * pitch, at.value, at.slots, out_at + one * size)
            _rest(p, v, out, own, d)
        head += 4


@njit(cache=True, nogil=True)
def _rest(p, v, out, at, d):  # type: ignore[no-untyped-def]
    """Add columns of head_dim past the last whole chunk of 64, for one head."""
    size = v.shape[2]
    while d + 16 <= size:
        _VECTOR(p, v, out, ValuesAt(at.weight, at.value + d, at.slots, at.out + d))
        d += 16
    while d < size:
        _NUMBER(p, v, out, ValuesAt(at.weight, at.value + d, at.slots, at.out + d))
        d += 1


@njit(cache=True, nogil=True)
def _softmax(p, row, head, seen, ancestors, scratch):  # type: ignore[no-untyped-def]
    """Turn scores by offset into weights by logical position; returns their sum.

    seen: first position, prefix and depth of the row.
    """
    start, prefix, depth = seen
    for i in range(depth):
        scratch[i] = p[row, head, ancestors[row, i]]
    for i in range(depth):
        p[row, head, prefix + i] = scratch[i]
    length = prefix + depth
    stop = (length + 15) // 16 * 16
    begin = start // 16 * 16
    for i in range(begin, start):
        p[row, head, i] = NEVER
    for i in range(length, stop):
        p[row, head, i] = NEVER
    at = (row * p.shape[1] + head) * p.shape[2]
    peaks = splat(NEVER)
    for i in range(at + begin, at + stop, 16):
        peaks = maximum(load(p, i), peaks)
    peak = splat(largest(peaks))
    sums = splat(ZERO)
    for i in range(at + begin, at + stop, 16):
        weights = exp(load(p, i) - peak)
        store(p, i, weights)
        sums = sums + weights
    return total(sums)


@njit(cache=True, nogil=True)
def _fill(out, row, start, count, factor, kept):  # type: ignore[no-untyped-def]
    """out = factor * out if `kept` is 1; out = factor if it is 0, whatever was there."""
    at = row * out.shape[1] + start
    whole = count // 16 * 16
    value = splat(factor)
    for i in range(0, whole, 16):
        store(out, at + i, load(out, at + i) * value if kept > ZERO else value)
    for i in range(start + whole, start + count):
        out[row, i] = out[row, i] * factor if kept > ZERO else factor


@njit(cache=True, nogil=True)
def attend(buffers, kv, contexts, span):  # type: ignore[no-untyped-def]
    """Compute attention of a span of rows in one layer, from buffers.q to buffers.out.

    kv: the layer's `KVArrays`; contexts: `Contexts` of all rows, those of a sequence side by side.
    """
    row, sequence = span.first, contexts.sequence
    while row < span.last:
        end = row + 1
        while end < span.last and sequence[end] == sequence[row]:
            end += 1
        for head in range(kv.k_t.shape[0]):
            _attend_head(buffers, kv, contexts, row, end, head)
        row = end


@njit(cache=True, nogil=True)
def _span(prefix, ancestors, depth, row):  # type: ignore[no-untyped-def]
    """Count the offsets that hold everything a row sees."""
    end = prefix[row]
    for i in range(depth[row]):
        end = max(end, ancestors[row, i] + 1)
    return end


@njit(cache=True, nogil=True)
def _attend_head(buffers, kv, contexts, first, last, head):  # type: ignore[no-untyped-def]
    """Compute attention of one sequence's rows first … last - 1 with one key head.

    In one piece: each call that takes arrays of a tuple counts references to them.
    """
    q, work, out, k_t, v = buffers.q, buffers.work, buffers.out, kv.k_t, kv.v
    prefix, ancestors, depth = contexts.prefix, contexts.ancestors, contexts.depth
    table, window = contexts.tables[contexts.sequence[first]], contexts.window
    size, slots, group = k_t.shape[1], k_t.shape[2], work.shape[1]
    spans = np.empty(last - first, np.int64)
    starts = np.empty(last - first, np.int64)
    widest, longest, earliest = 0, 0, 1 << 40
    for row in range(first, last):
        i = row - first
        spans[i] = _span(prefix, ancestors, depth, row)
        length = prefix[row] + depth[row]
        starts[i] = max(0, length - window) if window > 0 else 0
        widest = max(widest, spans[i])
        longest = max(longest, prefix[row])
        earliest = min(earliest, starts[i])
    keys = head * size * slots
    from_tile = earliest // TILE * TILE
    for tile in range(from_tile, widest, TILE):
        key = keys + _slot(table, tile)
        following = keys + _slot(table, tile + TILE) if tile + TILE < widest else key
        for row in range(first, last):
            if tile < spans[row - first]:
                query = row * q.shape[1] + head * group * size
                to = row * work.shape[1] * work.shape[2] + tile
                _scores(q, k_t, work, ScoreAt(query, key, following, to), group)
    sums = np.empty((last - first, group), np.float32)
    scratch = np.empty(ancestors.shape[1], np.float32)
    for row in range(first, last):
        seen = starts[row - first], prefix[row], depth[row]
        for g in range(group):
            sums[row - first, g] = _softmax(work, row, g, seen, ancestors, scratch)
        _fill(out, row, head * group * size, group * size, ZERO, ZERO)
    for tile in range(from_tile, longest, VALUE_TILE):
        step = _step(table, tile, longest)
        for row in range(first, last):
            begin = max(tile, starts[row - first])
            stop = min(tile + VALUE_TILE, prefix[row])
            while begin < stop:
                count = min(stop, (begin - tile) // step * step + tile + step) - begin
                weight = row * work.shape[1] * work.shape[2] + begin
                value = (head * slots + _slot(table, begin)) * size
                to = row * out.shape[1] + head * group * size
                _values(work, v, out, ValuesAt(weight, value, count, to), group)
                begin += count
    for row in range(first, last):
        weight = row * work.shape[1] * work.shape[2] + prefix[row]
        to = head * group * size
        i = max(0, starts[row - first] - prefix[row])
        while i < depth[row]:
            count = _run(ancestors, row, i, depth[row])
            value = (head * slots + _slot(table, ancestors[row, i])) * size
            at = ValuesAt(weight + i, value, count, row * out.shape[1] + to)
            _values(work, v, out, at, group)
            i += count
        for g in range(group):
            _fill(out, row, to + g * size, size, ONE / sums[row - first, g], ONE)


@njit(cache=True, nogil=True)
def _slot(table, offset):  # type: ignore[no-untyped-def]
    """Return the physical slot of an offset."""
    return table[offset // TILE] * TILE + offset % TILE


@njit(cache=True, nogil=True)
def _step(table, tile, longest):  # type: ignore[no-untyped-def]
    """Count positions of a tile of values that are one run: all where its blocks are adjacent."""
    at = tile // TILE
    if tile + TILE < longest and table[at + 1] != table[at] + 1:
        return TILE
    return VALUE_TILE


@njit(cache=True, nogil=True)
def _run(ancestors, row, first, depth):  # type: ignore[no-untyped-def]
    """Count ancestors from `first` on that lie side by side in one block."""
    offset = ancestors[row, first]
    most = min(depth - first, TILE - offset % TILE)
    run = 1
    while run < most and ancestors[row, first + run] == offset + run:
        run += 1
    return run
