"""Parts of attention that its programs share: cuts of a context, and one tile's softmax.

Leaves which tiles a program reads to `attention`.
"""

import triton
import triton.language as tl

from outrider.kernels.gpu.dot import product


@triton.jit
def spans(prefix, depth, rows, inside, window, SPLITS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return of rows: first position seen, first of the tail, and n of splits of 2^n positions."""
    length = tl.load(prefix + rows, inside, other=0) + tl.load(depth + rows, inside, other=0)
    start = tl.where(window > 0, tl.maximum(length - window, 0), 0)
    tail = tl.maximum(length - 64, 0) >> 6 << 6
    # The least 2^n of which SPLITS - 1 hold the context: a float's exponent counts bits.
    above = tl.maximum(length - start - 1, 0) // (64 * (SPLITS - 1))
    exponent = above.to(tl.float32).to(tl.int32, bitcast=True) >> 23
    size = tl.where(above > 0, exponent - 126, 0) + 6
    return start, tail, size


@triton.jit
def splits_seen(start, tail, size):  # type: ignore[no-untyped-def]
    """Return first and number of splits between the first position seen and the tail."""
    first = start >> size
    parts = ((tail - 1) >> size) + 1 - first
    return first, tl.where(start < tail, parts, 0)


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
