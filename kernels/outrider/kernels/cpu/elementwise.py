"""Per-row work between the linear layers: norms, rotation, gating, and activations' formats.

Leaves the linear layers to `linear` and attention to `attention`. Widths are padded to a multiple
of 16 with zeros, so there are no tails. Every function works on rows first..last-1, one at a time.
"""

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from outrider.kernels.cpu.simd import (
    exp,
    fma,
    largest,
    load,
    magnitude,
    maximum,
    splat,
    store,
    store_bfloat,
    store_byte,
    total,
)

ZERO, ONE = np.float32(0), np.float32(1)


def write_activation(source: Any, row: int, target: Any) -> np.float32:
    """Writes source[row] float32 as target[row] in target's own format; returns the row's scale.

    uint8: round(x / scale) + 128 with scale = largest magnitude / 127. uint16: bfloat16 bits,
    scale 1. float32: a copy, scale 1. Compiled code only.
    """
    raise NotImplementedError("runs inside compiled kernels")


@overload(write_activation, inline="never")
def _write_activation(source, row, target):  # type: ignore[no-untyped-def]
    if target.dtype == types.uint8:
        return _write_bytes
    return _write_bfloats if target.dtype == types.uint16 else _write_floats


def _write_bytes(source, row, target):  # type: ignore[no-untyped-def]
    width = source.shape[1]
    start = row * width
    peaks = splat(ZERO)
    for i in range(0, width, 16):
        peaks = maximum(magnitude(load(source, start + i)), peaks)
    peak = largest(peaks)
    inverse = splat(np.float32(127) / peak if peak > ZERO else ZERO)
    for i in range(0, width, 16):
        store_byte(target, start + i, load(source, start + i) * inverse)
    return peak / np.float32(127)


def _write_bfloats(source, row, target):  # type: ignore[no-untyped-def]
    start = row * source.shape[1]
    for i in range(0, source.shape[1], 16):
        store_bfloat(target, start + i, load(source, start + i))
    return ONE


def _write_floats(source, row, target):  # type: ignore[no-untyped-def]
    start = row * source.shape[1]
    for i in range(0, source.shape[1], 16):
        store(target, start + i, load(source, start + i))
    return ONE


@njit(cache=True, nogil=True)
def convert(source, first, last, target, scales):  # type: ignore[no-untyped-def]
    """Writes rows of source as activations."""
    for row in range(first, last):
        scales[row] = write_activation(source, row, target)


@njit(cache=True, nogil=True)
def add(residual, update, first, last):  # type: ignore[no-untyped-def]
    """residual[row] += update[row]; both [rows, padded hidden] float32."""
    width = residual.shape[1]
    for i in range(first * width, last * width, 16):
        store(residual, i, load(residual, i) + load(update, i))


@njit(cache=True, nogil=True)
def norm(source, row, weight, size, epsilon, target, to):  # type: ignore[no-untyped-def]
    """target[to] = RMSNorm(source[row]) * weight, over `size` values padded with zeros."""
    width = source.shape[1]
    squares = splat(ZERO)
    for i in range(0, width, 16):
        x = load(source, row * width + i)
        squares = fma(x, x, squares)
    mean = total(squares) / np.float32(size)
    inverse = splat(ONE / np.sqrt(mean + np.float32(epsilon)))
    for i in range(0, width, 16):
        x = load(source, row * width + i) * inverse
        store(target, to * width + i, x * load(weight, i))


@njit(cache=True, nogil=True)
def norms(source, weight, size, epsilon, first, last, work, target, scales):  # type: ignore[no-untyped-def]
    """RMSNorm of rows, through `work`, into activations."""
    for row in range(first, last):
        norm(source, row, weight, size, epsilon, work, row)
        scales[row] = write_activation(work, row, target)


@njit(cache=True, nogil=True)
def swiglu(gates, first, last, work, target, scales):  # type: ignore[no-untyped-def]
    """silu(gate) * up into activations; gates [rows, 2 * width] holds gates, then ups."""
    width = work.shape[1]
    one = splat(ONE)
    zero = splat(ZERO)
    for row in range(first, last):
        start = row * 2 * width
        for i in range(0, width, 16):
            gate = load(gates, start + i)
            gated = gate / (one + exp(zero - gate)) * load(gates, start + width + i)
            store(work, row * width + i, gated)
        scales[row] = write_activation(work, row, target)


@njit(cache=True, nogil=True)
def rotate(x, row, start, size, table, position, scale):  # type: ignore[no-untyped-def]
    """Rotates one head of x[row] in place, times `scale`: halves are pairs, as Hugging Face's.

    table [positions, 2, size / 2] float32 holds cosines, then sines.
    """
    half = size // 2
    whole = half // 16 * 16
    low = row * x.shape[1] + start
    angle = position * size
    by = splat(scale)
    for i in range(0, whole, 16):
        cos, sin = load(table, angle + i), load(table, angle + half + i)
        a, b = load(x, low + i), load(x, low + half + i)
        store(x, low + i, (a * cos - b * sin) * by)
        store(x, low + half + i, (b * cos + a * sin) * by)
    for i in range(whole, half):
        cos, sin = table[position, 0, i], table[position, 1, i]
        a, b = x[row, start + i], x[row, start + half + i]
        x[row, start + i] = (a * cos - b * sin) * scale
        x[row, start + half + i] = (b * cos + a * sin) * scale


@njit(cache=True, nogil=True)
def head_norm(x, row, start, size, weight, epsilon):  # type: ignore[no-untyped-def]
    """RMSNorm of one head of x[row] in place (Qwen3)."""
    square = ZERO
    for i in range(start, start + size):
        square += x[row, i] * x[row, i]
    inverse = ONE / np.sqrt(square / np.float32(size) + np.float32(epsilon))
    for i in range(size):
        x[row, start + i] = x[row, start + i] * inverse * weight[i]


@njit(cache=True, nogil=True)
def place_rows(  # type: ignore[no-untyped-def]
    qkv, bias, q_norm, k_norm, epsilon, table, positions, slots, k_t, v, heads, first, last
):
    """Bias, head norms and rotation in place on qkv; then keys and values go to their slots.

    qkv [rows, padded (heads + 2 kv_heads) * head_dim]; queries stay in its first columns, scaled by
    1 / sqrt(head_dim). bias, q_norm and k_norm are empty where the family has none.
    k_t [kv_heads, head_dim, slots] and v [kv_heads, slots, head_dim] are one layer's.
    """
    kv_heads, size = k_t.shape[0], k_t.shape[1]
    query_scale = ONE / np.sqrt(np.float32(size))
    for row in range(first, last):
        for i in range(bias.shape[0]):
            qkv[row, i] += bias[i]
        for head in range(heads + kv_heads):
            weight = q_norm if head < heads else k_norm
            if weight.shape[0] > 0:
                head_norm(qkv, row, head * size, size, weight, epsilon)
            scale = query_scale if head < heads else ONE
            rotate(qkv, row, head * size, size, table, positions[row], scale)
        slot = slots[row]
        for head in range(kv_heads):
            key, value = (heads + head) * size, (heads + kv_heads + head) * size
            for i in range(size):
                k_t[head, i, slot] = qkv[row, key + i]
                v[head, slot, i] = qkv[row, value + i]
