"""Per-row work between linear layers: norms, rotation, SwiGLU, activation formats, KV writes.

Leaves the linear layers to `linear`, attention to `attention`, and which slots of the KV cache are
written or moved to the worker. Widths are padded to a multiple of 16 with zeros, so there are no
tails. Every function works on a span of rows, one row at a time.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray

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

Floats = NDArray[np.float32]

ZERO, ONE = np.float32(0), np.float32(1)


class Activations(NamedTuple):
    """Rows in a path's activation format (`write_activation`)."""

    values: NDArray[Any]  # [rows, padded width]
    scales: Floats  # [rows]


class NormSize(NamedTuple):
    """RMSNorm over `size` values, which are padded with zeros."""

    size: int
    epsilon: np.float32


class HeadSlice(NamedTuple):
    """One head of a row: columns start … start + size - 1."""

    row: int
    start: int
    size: int


class QKVWeights(NamedTuple):
    """Weights of one layer that turn fused QKV rows into queries, keys and values."""

    bias: Floats  # [(heads + 2 kv_heads) * head_dim], or empty
    q_norm: Floats  # [head_dim], or empty
    k_norm: Floats  # [head_dim], or empty
    epsilon: np.float32
    rotary: Floats  # [positions, 2, head_dim / 2] cosines, then sines
    heads: int


def write_activation(source: Any, row: int, target: Any) -> np.float32:
    """Write source[row] float32 as target[row] in target's own format; returns the row's scale.

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
def convert(source, span, target):  # type: ignore[no-untyped-def]
    """Write rows of source [rows, padded width] float32 as `Activations`."""
    values, scales = target.values, target.scales
    for row in range(span.first, span.last):
        scales[row] = write_activation(source, row, values)


@njit(cache=True, nogil=True)
def add(residual, update, span):  # type: ignore[no-untyped-def]
    """residual[row] += update[row]; both [rows, padded hidden] float32."""
    width = residual.shape[1]
    for i in range(span.first * width, span.last * width, 16):
        store(residual, i, load(residual, i) + load(update, i))


@njit(cache=True, nogil=True)
def norm(source, row, weight, over, target, to):  # type: ignore[no-untyped-def]
    """target[to] = RMSNorm(source[row]) * weight; over: `NormSize`."""
    width = source.shape[1]
    squares = splat(ZERO)
    for i in range(0, width, 16):
        x = load(source, row * width + i)
        squares = fma(x, x, squares)
    mean = total(squares) / np.float32(over.size)
    inverse = splat(ONE / np.sqrt(mean + np.float32(over.epsilon)))
    for i in range(0, width, 16):
        x = load(source, row * width + i) * inverse
        store(target, to * width + i, x * load(weight, i))


@njit(cache=True, nogil=True)
def norms(source, span, weight, over, work, target):  # type: ignore[no-untyped-def]
    """Apply `norm` to rows, through `work`, into `Activations`."""
    values, scales = target.values, target.scales
    for row in range(span.first, span.last):
        norm(source, row, weight, over, work, row)
        scales[row] = write_activation(work, row, values)


@njit(cache=True, nogil=True)
def swiglu(gates, span, work, target):  # type: ignore[no-untyped-def]
    """Write silu(gate) * up into `Activations`; gates [rows, 2 * width] holds gates, then ups."""
    width, values, scales = work.shape[1], target.values, target.scales
    one = splat(ONE)
    zero = splat(ZERO)
    for row in range(span.first, span.last):
        start = row * 2 * width
        for i in range(0, width, 16):
            gate = load(gates, start + i)
            gated = gate / (one + exp(zero - gate)) * load(gates, start + width + i)
            store(work, row * width + i, gated)
        scales[row] = write_activation(work, row, values)


@njit(cache=True, nogil=True)
def rotate(x, head, table, position, scale):  # type: ignore[no-untyped-def]
    """Rotate one head of x in place, times `scale`: halves are pairs, as Hugging Face's.

    table [positions, 2, size / 2] float32 holds cosines, then sines.
    """
    row, start, half = head.row, head.start, head.size // 2
    whole = half // 16 * 16
    low = row * x.shape[1] + start
    angle = position * head.size
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
def head_norm(x, head, weight, epsilon):  # type: ignore[no-untyped-def]
    """Apply RMSNorm to one head of x in place (Qwen3)."""
    row, start = head.row, head.start
    square = ZERO
    for i in range(start, start + head.size):
        square += x[row, i] * x[row, i]
    inverse = ONE / np.sqrt(square / np.float32(head.size) + np.float32(epsilon))
    for i in range(head.size):
        x[row, start + i] = x[row, start + i] * inverse * weight[i]


@njit(cache=True, nogil=True)
def place_rows(qkv, weights, positions, slots, kv, span):  # type: ignore[no-untyped-def]
    """Apply bias, head norms and rotation in place on qkv; write keys and values to their slots.

    qkv [rows, padded (heads + 2 kv_heads) * head_dim]; queries stay in its first columns, scaled by
    1 / sqrt(head_dim). positions, slots int32 [rows]; `kv` is one layer's `KVArrays`.
    """
    k_t, v, bias, rotary, heads = kv.k_t, kv.v, weights.bias, weights.rotary, weights.heads
    kv_heads, size = k_t.shape[0], k_t.shape[1]
    query_scale = ONE / np.sqrt(np.float32(size))
    for row in range(span.first, span.last):
        for i in range(bias.shape[0]):
            qkv[row, i] += bias[i]
        for number in range(heads + kv_heads):
            head = HeadSlice(row, number * size, size)
            weight = weights.q_norm if number < heads else weights.k_norm
            if weight.shape[0] > 0:
                head_norm(qkv, head, weight, weights.epsilon)
            scale = query_scale if number < heads else ONE
            rotate(qkv, head, rotary, positions[row], scale)
        slot = slots[row]
        for number in range(kv_heads):
            key, value = (heads + number) * size, (heads + kv_heads + number) * size
            for i in range(size):
                k_t[number, i, slot] = qkv[row, key + i]
                v[number, slot, i] = qkv[row, value + i]


@njit(cache=True, nogil=True)
def move_kv(k_t, v, sources, destinations):  # type: ignore[no-untyped-def]
    """Copy slot sources[i] to destinations[i] in all layers; all are read before any is written.

    k_t [layers, kv_heads, head_dim, slots], v [layers, kv_heads, slots, head_dim] float32;
    sources and destinations int32 [moves]. Keys keep their rotation: a move changes no position.
    """
    count = sources.shape[0]
    numbers = np.empty(count, np.float32)
    lines = np.empty((count, v.shape[3]), np.float32)
    for layer in range(k_t.shape[0]):
        for head in range(k_t.shape[1]):
            for d in range(k_t.shape[2]):
                line = k_t[layer, head, d]
                for i in range(count):
                    numbers[i] = line[sources[i]]
                for i in range(count):
                    line[destinations[i]] = numbers[i]
            values = v[layer, head]
            for i in range(count):
                lines[i] = values[sources[i]]
            for i in range(count):
                values[destinations[i]] = lines[i]
