"""Parts of attention that its programs share: cuts of a context, one tile's softmax, the sum.

Leaves which tiles a program reads to `attention`.
"""

import triton
import triton.language as tl

from outrider.kernels.gpu.dot import product

DOUBLINGS: tl.constexpr = tl.constexpr(14)
"""From 64 positions a split up to a million."""


@triton.jit
def spans(prefix, depth, rows, inside, window, SPLITS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return of rows: first position seen, first of the tail, size of a split."""
    length = tl.load(prefix + rows, inside, other=0) + tl.load(depth + rows, inside, other=0)
    start = tl.where(window > 0, tl.maximum(length - window, 0), 0)
    tail = tl.maximum(length - 64, 0) // 64 * 64
    size = length * 0 + 64
    for _ in tl.static_range(DOUBLINGS):
        size = tl.where(size * (SPLITS - 1) < length - start, size * 2, size)
    return start, tail, size


@triton.jit
def splits_seen(start, tail, size):  # type: ignore[no-untyped-def]
    """Return first and number of splits between the first position seen and the tail."""
    first = start // size
    return first, tl.maximum((tail + size - 1) // size - first, 0) * (start < tail).to(tl.int32)


@triton.jit
def fold(q, keys, values, seen, scale, peak, weight, sums):  # type: ignore[no-untyped-def]
    """Add a tile to a running softmax; lines that see none of it stay as they are, bit for bit.

    q, sums [lines, D]; keys, values [TILE, D]; seen [lines, TILE or 1]; peak, weight [lines].
    """
    scores = product(q, tl.trans(keys), tl.zeros((q.shape[0], keys.shape[0]), tl.float32)) * scale
    scores = tl.where(seen, scores, float("-inf"))
    higher = tl.maximum(peak, tl.max(scores, 1))
    base = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp2(scores - base[:, None])
    fade = tl.exp2(peak - base)
    weight = weight * fade + tl.sum(weights, 1)
    sums = product(weights.to(values.dtype), values, sums * fade[:, None])
    return higher, weight, sums


@triton.jit
def combine(  # type: ignore[no-untyped-def]
    out, sums, statistics, arrivals, row, head, parts,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, LINES: tl.constexpr,
    PARTS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Add a row's parts by index, for the heads of one key head."""
    lines, d = tl.arange(0, LINES), tl.arange(0, D)
    real = lines < GROUP
    line = row.to(tl.int64) * HEADS + head * GROUP + lines
    top = tl.full((LINES,), float("-inf"), tl.float32)
    for part in range(parts):
        at = statistics + (line * PARTS + part) * 2
        top = tl.maximum(top, tl.load(at, real, other=0.0, cache_modifier=".cg"))
    top = tl.where(top == float("-inf"), 0.0, top)
    weight = tl.zeros((LINES,), tl.float32)
    total = tl.zeros((LINES, D), tl.float32)
    for part in range(parts):
        at = statistics + (line * PARTS + part) * 2
        factor = tl.exp2(tl.load(at, real, other=0.0, cache_modifier=".cg") - top)
        weight += factor * tl.load(at + 1, real, other=0.0, cache_modifier=".cg")
        held = sums + (line * PARTS + part)[:, None] * D + d[None, :]
        total += factor[:, None] * tl.load(held, real[:, None], other=0.0, cache_modifier=".cg")
    total = total / tl.where(weight > 0, weight, 1.0)[:, None]
    tl.store(out + line[:, None] * D + d[None, :], total.to(out.dtype.element_ty), real[:, None])
    tl.store(arrivals + row * KV_HEADS + head, 0)
