"""Attention of rows over their logical contexts: a committed prefix, then ancestors by depth.

Leaves writing keys and values to `elementwise`. A row's numbers depend on its logical context
alone, bit for bit: a score is one sum over head_dim in order, weights are summed in lanes by
logical position mod 16, and values are added in logical order, wherever the blocks are and whatever
rows run beside it. A block of 64 slots is read once for all rows and heads that share it.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from outrider.kernels.jit.attention_tiles import ScoreAt, ValuesAt, score_tile, value_tile
from outrider.kernels.jit.simd import (
    FLOAT_BYTES,
    VECTOR_BYTES,
    address,
    exp,
    largest,
    load_at,
    maximum,
    read_at,
    splat,
    store_at,
    total,
    write_at,
)
from outrider.kernels.jit.tiles import LANES, NUMBER

Floats = NDArray[np.float32]
Int32 = NDArray[np.int32]

TILE = 64
"""Slots of one block of the block pool, which is one tile of scores."""
VALUE_TILE = 128
"""Positions of one tile of values: 32 KB at head_dim 64. Two blocks that lie side by side are read
as one run (Zen 5, 16 rows at context 512: 4 % of attention)."""
NOTHING = 0
"""Address of what is not prefetched: a row before, or other heads, have done it."""
NEVER = np.float32(-np.inf)
ZERO, ONE = np.float32(0), np.float32(1)


class KVArrays(NamedTuple):
    """KV cache of all layers, or of one without the first axis."""

    k_t: Floats  # [layers, kv_heads, blocks, head_dim, 64]: a block of one head lies in one piece
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


HEADS = 6 if NUMBER == 32 else 4
"""Query heads at most that share one read of a tile, by vector registers."""
_S1, _S2, _S3, _S4, _S5, _S6 = (score_tile(heads, TILE) for heads in range(1, 7))
_V1, _V2, _V3, _V4, _V5, _V6 = (value_tile(heads, 64, LANES) for heads in range(1, 7))
_VECTOR, _NUMBER = value_tile(1, 16, LANES), value_tile(1, 1, 1)


@njit(cache=True, nogil=True)
def _scores(at, group):  # type: ignore[no-untyped-def]
    """Score one tile with the `group` query heads that share a key head; at: of the first."""
    head, cuts = 0, (group + HEADS - 1) // HEADS
    for cut in range(cuts):
        here = (group - head) // (cuts - cut)
        query = at.query + head * at.size * FLOAT_BYTES
        out = at.out + head * at.out_pitch * FLOAT_BYTES
        own = ScoreAt(query, at.size, at.key, at.pitch, at.following, out, at.out_pitch)
        if here == 1:
            _S1(own)
        elif here == 2:
            _S2(own)
        elif here == 3:
            _S3(own)
        elif here == 4:
            _S4(own)
        elif here == 5:
            _S5(own)
        else:
            _S6(own)
        head += here


@njit(cache=True, nogil=True)
def _values(at, group):  # type: ignore[no-untyped-def]
    """out += weights @ values of one run of slots, for the heads that share them."""
    head, cuts = 0, (group + HEADS - 1) // HEADS
    for cut in range(cuts):
        here = (group - head) // (cuts - cut)
        first = _of_head(at, head)
        d = 0
        while d + 64 <= at.size:
            own = _of_chunk(first, d)
            if here == 1:
                _V1(own)
            elif here == 2:
                _V2(own)
            elif here == 3:
                _V3(own)
            elif here == 4:
                _V4(own)
            elif here == 5:
                _V5(own)
            else:
                _V6(own)
            d += 64
        for one in range(here if d < at.size else 0):
            _rest(_of_head(first, one), d)
        head += here


@njit(cache=True, nogil=True)
def _of_head(at, head):  # type: ignore[no-untyped-def]
    """Return `ValuesAt` of a later head."""
    weight = at.weight + head * at.weight_pitch * FLOAT_BYTES
    out = at.out + head * at.size * FLOAT_BYTES
    return ValuesAt(weight, at.weight_pitch, at.value, at.size, at.slots, at.following, out)


@njit(cache=True, nogil=True)
def _of_chunk(at, d):  # type: ignore[no-untyped-def]
    """Return `ValuesAt` from column d of head_dim on."""
    by = d * FLOAT_BYTES
    value, following, out = at.value + by, at.following + by, at.out + by
    return ValuesAt(at.weight, at.weight_pitch, value, at.size, at.slots, following, out)


@njit(cache=True, nogil=True)
def _rest(at, d):  # type: ignore[no-untyped-def]
    """Add columns of head_dim past the last whole chunk of 64, for one head."""
    while d + 16 <= at.size:
        _VECTOR(_of_chunk(at, d))
        d += 16
    while d < at.size:
        _NUMBER(_of_chunk(at, d))
        d += 1


@njit(cache=True, nogil=True)
def _softmax(scores, start, length):  # type: ignore[no-untyped-def]
    """Turn scores by logical position, at an address, into weights; returns their sum.

    start: the first position that the row sees; length: all that are before its end.
    """
    stop = (length + 15) // 16 * 16
    begin = start // 16 * 16
    for i in range(begin, start):
        write_at(scores + i * FLOAT_BYTES, NEVER)
    for i in range(length, stop):
        write_at(scores + i * FLOAT_BYTES, NEVER)
    peaks = splat(NEVER)
    for at in range(scores + begin * FLOAT_BYTES, scores + stop * FLOAT_BYTES, VECTOR_BYTES):
        peaks = maximum(load_at(at), peaks)
    peak = splat(largest(peaks))
    sums = splat(ZERO)
    for at in range(scores + begin * FLOAT_BYTES, scores + stop * FLOAT_BYTES, VECTOR_BYTES):
        weights = exp(load_at(at) - peak)
        store_at(at, weights)
        sums = sums + weights
    return total(sums)


@njit(cache=True, nogil=True)
def _fill(out, count, factor, kept):  # type: ignore[no-untyped-def]
    """Numbers at an address: factor * each if `kept` is 1; factor if 0, whatever was there."""
    whole = count // 16 * 16 * FLOAT_BYTES
    value = splat(factor)
    for at in range(out, out + whole, VECTOR_BYTES):
        store_at(at, load_at(at) * value if kept > ZERO else value)
    for at in range(out + whole, out + count * FLOAT_BYTES, FLOAT_BYTES):
        write_at(at, read_at(at) * factor if kept > ZERO else factor)


@njit(cache=True, nogil=True)
def attend(buffers, kv, contexts, span, heads):  # type: ignore[no-untyped-def]
    """Compute attention of a span of rows in one layer, from buffers.q to buffers.out.

    heads: span of key heads; kv: the layer's `KVArrays`; contexts: `Contexts` of all rows, those of
    a sequence side by side.
    """
    row, sequence = span.first, contexts.sequence
    while row < span.last:
        end = row + 1
        while end < span.last and sequence[end] == sequence[row]:
            end += 1
        for head in range(heads.first, heads.last):
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

    In one piece, and by addresses: each call that takes arrays of a tuple counts references to
    them (Zen 5, context 200, 16 rows: a quarter of attention).
    """
    work, k_t, v = buffers.work, kv.k_t, kv.v
    prefix, ancestors, depth = contexts.prefix, contexts.ancestors, contexts.depth
    table, window = contexts.tables[contexts.sequence[first]], contexts.window
    size, slots, group, pitch = v.shape[2], v.shape[1], work.shape[1], work.shape[2]
    own = head * group * size * FLOAT_BYTES
    q_row, out_row = buffers.q.shape[1] * FLOAT_BYTES, buffers.out.shape[1] * FLOAT_BYTES
    q, out, scores = address(buffers.q) + own, address(buffers.out) + own, address(work)
    keys = address(k_t) + head * size * slots * FLOAT_BYTES
    values = address(v) + head * size * slots * FLOAT_BYTES
    slot_bytes, work_row = size * FLOAT_BYTES, group * pitch * FLOAT_BYTES
    tile_bytes = TILE * slot_bytes
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
    from_tile = earliest // TILE * TILE
    for tile in range(from_tile, widest, TILE):
        key = keys + table[tile // TILE] * tile_bytes
        more = tile + TILE < widest
        following = keys + table[tile // TILE + 1] * tile_bytes if more else NOTHING
        for row in range(first, last):
            if tile < spans[row - first]:
                to = scores + row * work_row + tile * FLOAT_BYTES
                _scores(ScoreAt(q + row * q_row, size, key, TILE, following, to, pitch), group)
                following = NOTHING
    sums = np.empty((last - first, group), np.float32)
    scratch = np.empty(ancestors.shape[1], np.float32)
    for row in range(first, last):
        begin, end, count = starts[row - first], prefix[row], depth[row]
        for g in range(group):
            at = scores + row * work_row + g * pitch * FLOAT_BYTES
            for i in range(count):
                scratch[i] = read_at(at + ancestors[row, i] * FLOAT_BYTES)
            for i in range(count):
                write_at(at + (end + i) * FLOAT_BYTES, scratch[i])
            sums[row - first, g] = _softmax(at, begin, end + count)
        _fill(out + row * out_row, group * size, ZERO, ZERO)
    for tile in range(from_tile, longest, VALUE_TILE):
        step = _step(table, tile, longest)
        after = min(tile + VALUE_TILE, longest - 1)
        following = values + _slot(table, after) * slot_bytes
        for row in range(first, last):
            begin = max(tile, starts[row - first])
            stop = min(tile + VALUE_TILE, prefix[row])
            while begin < stop:
                count = min(stop, (begin - tile) // step * step + tile + step) - begin
                weight = scores + row * work_row + begin * FLOAT_BYTES
                value, to = values + _slot(table, begin) * slot_bytes, out + row * out_row
                _values(ValuesAt(weight, pitch, value, size, count, following, to), group)
                following = NOTHING
                begin += count
    for row in range(first, last):
        weight, to = scores + row * work_row + prefix[row] * FLOAT_BYTES, out + row * out_row
        i = max(0, starts[row - first] - prefix[row])
        while i < depth[row]:
            count = _run(ancestors, row, i, depth[row])
            value = values + _slot(table, ancestors[row, i]) * slot_bytes
            _values(
                ValuesAt(weight + i * FLOAT_BYTES, pitch, value, size, count, NOTHING, to), group
            )
            i += count
        for g in range(group):
            _fill(to + g * slot_bytes, size, ONE / sums[row - first, g], ONE)


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
