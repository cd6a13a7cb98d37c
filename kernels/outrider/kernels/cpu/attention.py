"""Attention of rows over their logical contexts: a committed prefix, then ancestors by depth.

Writing keys and values is left to `rows`. A row's numbers depend on its logical context alone,
bit for bit: a score is one sum over head_dim in order, weights are summed in lanes by logical
position mod 16, and values are added in logical order, wherever the blocks are and whatever rows
run beside it. A block of 64 slots is read once for all rows and heads that share it.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from outrider.kernels.cpu.simd import (
    BYTE,
    INT,
    LANES,
    LONG,
    broadcast,
    data,
    exp,
    fused,
    invoke,
    largest,
    load,
    maximum,
    place,
    splat,
    store,
    total,
    vector,
)

TILE = 64
"""Slots of one block of the pool, which is one tile of scores."""
VALUE_TILE = 128
"""Positions of one tile of values: 32 KB at head_dim 64. Two blocks that lie side by side are read
as one run (Zen 5, 16 rows at context 512: 4 % of attention)."""
NEVER = np.float32(-np.inf)
ZERO, ONE = np.float32(0), np.float32(1)


def _score_tile(heads: int) -> Any:
    """An intrinsic: scores of `heads` queries against one tile of keys, kept in registers."""

    @intrinsic
    def score(typing: Any, q: Any, at: Any, k: Any, key: Any, following: Any, pitch: Any,
              size: Any, out: Any, to: Any, out_pitch: Any) -> Any:  # fmt: skip
        intp = types.intp
        sig = types.void(q, intp, k, intp, intp, intp, intp, out, intp, intp)

        def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
            qs, ks, outs = (data(context, builder, sig.args[i], a[i]) for i in (0, 2, 7))
            cells = _cells(builder, heads, TILE // LANES, LANES)
            for cell in (c for row in cells for c in row):
                builder.store(ir.Constant(vector(), [0.0] * LANES), cell)
            with cgutils.for_range(builder, a[6], intp=LONG) as loop:
                ahead = builder.mul(loop.index, a[5])
                keys = builder.add(a[3], ahead)
                _hint(builder, ks, builder.add(a[4], ahead))
                tile = _line(builder, ks, keys, TILE // LANES, LANES)
                for head, row in enumerate(cells):
                    where = builder.add(
                        a[1], builder.add(builder.mul(a[6], LONG(head)), loop.index)
                    )
                    query = broadcast(builder, builder.load(builder.gep(qs, [where])))
                    _accumulate(builder, row, query, tile)
            for head, row in enumerate(cells):
                start = builder.add(a[8], builder.mul(a[9], LONG(head)))
                _put(builder, outs, start, row, LANES)
            return context.get_dummy_value()

        return sig, lower

    return score


def _value_tile(heads: int, vectors: int, lanes: int) -> Any:
    """An intrinsic: out += weights @ values over a run of slots, for a chunk of head_dim."""

    @intrinsic
    def add(typing: Any, p: Any, at: Any, p_pitch: Any, v: Any, value: Any, size: Any,
            count: Any, out: Any, to: Any) -> Any:  # fmt: skip
        intp = types.intp
        sig = types.void(p, intp, intp, v, intp, intp, intp, out, intp)

        def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
            ps, vs, outs = (data(context, builder, sig.args[i], a[i]) for i in (0, 3, 7))
            cells = _cells(builder, heads, vectors, lanes)
            starts = [builder.add(a[8], builder.mul(a[5], LONG(head))) for head in range(heads)]
            for start, row in zip(starts, cells, strict=True):
                for cell, x in zip(row, _line(builder, outs, start, vectors, lanes), strict=True):
                    builder.store(x, cell)
            with cgutils.for_range(builder, a[6], intp=LONG) as loop:
                values = builder.add(a[4], builder.mul(loop.index, a[5]))
                line = _line(builder, vs, values, vectors, lanes)
                for head, row in enumerate(cells):
                    where = builder.add(
                        a[1], builder.add(builder.mul(a[2], LONG(head)), loop.index)
                    )
                    weight = broadcast(builder, builder.load(builder.gep(ps, [where])), lanes)
                    _accumulate(builder, row, weight, line)
            for start, row in zip(starts, cells, strict=True):
                _put(builder, outs, start, row, lanes)
            return context.get_dummy_value()

        return sig, lower

    return add


def _cells(builder: Any, heads: int, vectors: int, lanes: int) -> list[list[Any]]:
    kind = vector(count=lanes)
    return [[cgutils.alloca_once(builder, kind) for _ in range(vectors)] for _ in range(heads)]


def _line(builder: Any, base: Any, start: Any, vectors: int, lanes: int) -> list[Any]:
    kind = vector(count=lanes)
    places = (builder.add(start, LONG(i * lanes)) for i in range(vectors))
    return [builder.load(place(builder, base, at, kind), align=4) for at in places]


def _hint(builder: Any, base: Any, start: Any) -> None:
    """Prefetches a line of the next tile: hardware does not see across rows of keys."""
    for i in range(0, TILE, LANES):
        where = place(builder, base, builder.add(start, LONG(i)), BYTE)
        invoke(builder, "llvm.prefetch.p0", ir.VoidType(), where, INT(0), INT(3), INT(1))


def _accumulate(builder: Any, row: list[Any], factor: Any, line: list[Any]) -> None:
    for cell, x in zip(row, line, strict=True):
        builder.store(fused(builder, factor, x, builder.load(cell)), cell)


def _put(builder: Any, base: Any, start: Any, row: list[Any], lanes: int) -> None:
    for i, cell in enumerate(row):
        where = place(builder, base, builder.add(start, LONG(i * lanes)), vector(count=lanes))
        builder.store(builder.load(cell), where, align=4)


_S1, _S2, _S3, _S4 = (_score_tile(heads) for heads in range(1, 5))
_V1, _V2, _V3, _V4 = (_value_tile(heads, 4, LANES) for heads in range(1, 5))
_VECTOR, _NUMBER = _value_tile(1, 1, LANES), _value_tile(1, 1, 1)


@njit(cache=True, nogil=True)
def _scores(q, at, k_t, key, following, out, to, group):  # type: ignore[no-untyped-def]
    """One tile's scores of the `group` query heads that share a key head.

    The tile starts at element `key` of k_t; the one read next, at `following`.
    """
    size, pitch, out_pitch = k_t.shape[1], k_t.shape[2], out.shape[2]
    head = 0
    while head < group:
        left = group - head
        q_at, out_at = at + head * size, to + head * out_pitch
        if left >= 4:
            _S4(q, q_at, k_t, key, following, pitch, size, out, out_at, out_pitch)
        elif left == 3:
            _S3(q, q_at, k_t, key, following, pitch, size, out, out_at, out_pitch)
        elif left == 2:
            _S2(q, q_at, k_t, key, following, pitch, size, out, out_at, out_pitch)
        else:
            _S1(q, q_at, k_t, key, following, pitch, size, out, out_at, out_pitch)
        head += 4


@njit(cache=True, nogil=True)
def _values(p, at, v, value, count, out, to, group):  # type: ignore[no-untyped-def]
    """out += weights @ values of `count` consecutive slots, for the heads that share them."""
    size, pitch = v.shape[2], p.shape[2]
    head = 0
    while head < group:
        left = group - head
        p_at, out_at = at + head * pitch, to + head * size
        d = 0
        while d + 64 <= size:
            if left >= 4:
                _V4(p, p_at, pitch, v, value + d, size, count, out, out_at + d)
            elif left == 3:
                _V3(p, p_at, pitch, v, value + d, size, count, out, out_at + d)
            elif left == 2:
                _V2(p, p_at, pitch, v, value + d, size, count, out, out_at + d)
            else:
                _V1(p, p_at, pitch, v, value + d, size, count, out, out_at + d)
            d += 64
        for one in range(min(left, 4) if d < size else 0):
            _rest(p, p_at + one * pitch, pitch, v, value, size, count, out, out_at + one * size, d)
        head += 4


@njit(cache=True, nogil=True)
def _rest(p, at, pitch, v, value, size, count, out, to, d):  # type: ignore[no-untyped-def]
    """Columns of head_dim past the last whole chunk of 64, for one head."""
    while d + 16 <= size:
        _VECTOR(p, at, pitch, v, value + d, size, count, out, to + d)
        d += 16
    while d < size:
        _NUMBER(p, at, pitch, v, value + d, size, count, out, to + d)
        d += 1


@njit(cache=True, nogil=True)
def _softmax(p, row, head, start, prefix, ancestors, depth, held):  # type: ignore[no-untyped-def]
    """Scores by offset become weights by logical position; returns their sum."""
    for i in range(depth):
        held[i] = p[row, head, ancestors[row, i]]
    for i in range(depth):
        p[row, head, prefix + i] = held[i]
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
def attend(  # type: ignore[no-untyped-def]
    q, k_t, v, sequence, tables, prefix, ancestors, depth, window, work, out, first, last, heads
):
    """Attention of rows first..last-1 in one layer.

    q [rows, >= heads * head_dim] float32, scaled; k_t [kv_heads, head_dim, slots];
    v [kv_heads, slots, head_dim]; sequence int32 [rows] line of `tables` int32 [sequences, most],
    which maps offset // 64 of a sequence to a block of 64 slots; prefix, depth int32 [rows];
    ancestors int32 [rows, most] offsets; window: latest positions seen, 0 for all; work float32
    [rows, heads / kv_heads, longest sequence + 64]; out [rows, >= heads * head_dim] is overwritten.
    """
    row = first
    while row < last:
        end = row + 1
        while end < last and sequence[end] == sequence[row]:
            end += 1
        for head in range(k_t.shape[0]):
            _attend_head(
                q, k_t, v, tables[sequence[row]], prefix, ancestors, depth, window, work, out,
                row, end, head, heads,
            )  # fmt: skip
        row = end


@njit(cache=True, nogil=True)
def _span(prefix, ancestors, depth, row):  # type: ignore[no-untyped-def]
    """Offsets that hold everything the row sees."""
    end = prefix[row]
    for i in range(depth[row]):
        end = max(end, ancestors[row, i] + 1)
    return end


@njit(cache=True, nogil=True)
def _slot(table, offset):  # type: ignore[no-untyped-def]
    """The physical slot of an offset."""
    return table[offset // TILE] * TILE + offset % TILE


@njit(cache=True, nogil=True)
def _attend_head(  # type: ignore[no-untyped-def]
    q, k_t, v, table, prefix, ancestors, depth, window, work, out, first, last, head, heads
):
    """Rows of one sequence against one key head."""
    size, slots, group = k_t.shape[1], k_t.shape[2], heads // k_t.shape[0]
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
                at = row * q.shape[1] + head * group * size
                to = row * work.shape[1] * work.shape[2] + tile
                _scores(q, at, k_t, key, following, work, to, group)
    sums = np.empty((last - first, group), np.float32)
    held = np.empty(ancestors.shape[1], np.float32)
    for row in range(first, last):
        for g in range(group):
            sums[row - first, g] = _softmax(
                work, row, g, starts[row - first], prefix[row], ancestors, depth[row], held
            )
        _fill(out, row, head * group * size, group * size, ZERO, ZERO)
    for tile in range(from_tile, longest, VALUE_TILE):
        step = _step(table, tile, longest)
        for row in range(first, last):
            begin = max(tile, starts[row - first])
            stop = min(tile + VALUE_TILE, prefix[row])
            while begin < stop:
                count = min(stop, (begin - tile) // step * step + tile + step) - begin
                at = row * work.shape[1] * work.shape[2] + begin
                to = row * out.shape[1] + head * group * size
                value = (head * slots + _slot(table, begin)) * size
                _values(work, at, v, value, count, out, to, group)
                begin += count
    for row in range(first, last):
        to = head * group * size
        at = row * work.shape[1] * work.shape[2] + prefix[row]
        i = max(0, starts[row - first] - prefix[row])
        while i < depth[row]:
            run = _run(ancestors, row, i, depth[row])
            value = (head * slots + _slot(table, ancestors[row, i])) * size
            _values(work, at + i, v, value, run, out, row * out.shape[1] + to, group)
            i += run
        for g in range(group):
            _fill(out, row, to + g * size, size, ONE / sums[row - first, g], ONE)


@njit(cache=True, nogil=True)
def _step(table, tile, longest):  # type: ignore[no-untyped-def]
    """Positions of a tile of values that are one run: all where its blocks lie side by side."""
    at = tile // TILE
    if tile + TILE < longest and table[at + 1] != table[at] + 1:
        return TILE
    return VALUE_TILE


@njit(cache=True, nogil=True)
def _run(ancestors, row, first, depth):  # type: ignore[no-untyped-def]
    """How many ancestors from `first` on lie side by side in one block."""
    offset = ancestors[row, first]
    most = min(depth - first, TILE - offset % TILE)
    run = 1
    while run < most and ancestors[row, first + run] == offset + run:
        run += 1
    return run
