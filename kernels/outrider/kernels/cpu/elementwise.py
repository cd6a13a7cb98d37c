"""Per-row work between linear layers: norms, rotation, gates, activation formats, KV writes.

Leaves the linear layers to `linear`, attention to `attention`, and which slots of the KV cache are
written or moved to the worker. Widths are padded to a multiple of 16 with zeros, so there are no
tails. Every function works on a span of rows, one row at a time.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray

from outrider.kernels.cpu.attention import TILE
from outrider.kernels.jit.simd import (
    FLOAT_BYTES,
    LANES,
    VECTOR_BYTES,
    address,
    exp,
    fma,
    largest,
    load,
    load_at,
    magnitude,
    maximum,
    prefetch_at,
    read_at,
    splat,
    store,
    store_at,
    store_bfloat,
    store_byte,
    store_signed,
    total,
    write_at,
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


class GateCurve(NamedTuple):
    """Activation of a gate x: x * sigmoid(slope * x + cubic * x³)."""

    slope: np.float32
    cubic: np.float32


SILU = GateCurve(ONE, ZERO)
GELU_TANH = GateCurve(np.float32(1.5957691216), np.float32(0.0713548163))
"""GELU with a hyperbolic tangent, (1 + tanh(y)) / 2 being sigmoid(2 y): slope is √(8 / π), cubic
0.044715 of it."""


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
    query_scale: np.float32


def write_activation(source: Any, row: int, target: Any) -> np.float32:
    """Write source[row] float32 as target[row] in target's own format; returns the row's scale.

    uint8: round(x / scale) + 128 with scale = largest magnitude / 127; int8: without the 128.
    uint16: bfloat16 bits, scale 1. float32: a copy, scale 1. Compiled code only.
    """
    raise NotImplementedError("runs inside compiled kernels")


@overload(write_activation, inline="never")
def _write_activation(source, row, target):  # type: ignore[no-untyped-def]
    if target.dtype in (types.uint8, types.int8):
        return _write_bytes
    return _write_bfloats if target.dtype == types.uint16 else _write_floats


def _store_byte(target: Any, at: int, values: Any) -> None:
    """Write bytes with a zero of 128, or signed ones; compiled code only."""
    raise NotImplementedError("runs inside compiled kernels")


@overload(_store_byte)
def _store_byte_of_type(target, at, values):  # type: ignore[no-untyped-def]
    write = store_byte if target.dtype == types.uint8 else store_signed
    return lambda target, at, values: write(target, at, values)


def _write_bytes(source, row, target):  # type: ignore[no-untyped-def]
    width = source.shape[1]
    start = row * width
    peaks = splat(ZERO)
    for i in range(0, width, 16):
        peaks = maximum(magnitude(load(source, start + i)), peaks)
    peak = largest(peaks)
    inverse = splat(np.float32(127) / peak if peak > ZERO else ZERO)
    for i in range(0, width, 16):
        _store_byte(target, start + i, load(source, start + i) * inverse)
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
def gated(gates, span, curve, work, target):  # type: ignore[no-untyped-def]
    """Write activation(gate) * up into `Activations`; gates [rows, 2 * width] holds gates, then
    ups; curve: `GateCurve`."""
    width, values, scales = work.shape[1], target.values, target.scales
    one = splat(ONE)
    slope, cubic = splat(ZERO - curve.slope), splat(ZERO - curve.cubic)
    for row in range(span.first, span.last):
        start = row * 2 * width
        for i in range(0, width, 16):
            gate = load(gates, start + i)
            curved = gate / (one + exp(gate * fma(cubic, gate * gate, slope)))
            store(work, row * width + i, curved * load(gates, start + width + i))
        scales[row] = write_activation(work, row, values)


@njit(cache=True, nogil=True)
def rotate(x, head, table, position, scale):  # type: ignore[no-untyped-def]
    """Rotate one head of x in place, times `scale`: halves are pairs, as Hugging Face's.

    table [positions, 2, size / 2] float32 holds cosines, then sines.
    """
    row, start, half = head.row, head.start, head.size // 2
    whole = half // 16 * 16
    low = address(x) + (row * x.shape[1] + start) * FLOAT_BYTES
    angles = address(table) + position * head.size * FLOAT_BYTES
    by, apart = splat(scale), half * FLOAT_BYTES
    for i in range(0, whole * FLOAT_BYTES, VECTOR_BYTES):
        cos, sin = load_at(angles + i), load_at(angles + apart + i)
        a, b = load_at(low + i), load_at(low + apart + i)
        store_at(low + i, (a * cos - b * sin) * by)
        store_at(low + apart + i, (b * cos + a * sin) * by)
    for i in range(whole, half):
        cos, sin = table[position, 0, i], table[position, 1, i]
        a, b = x[row, start + i], x[row, start + half + i]
        x[row, start + i] = (a * cos - b * sin) * scale
        x[row, start + half + i] = (b * cos + a * sin) * scale


@njit(cache=True, nogil=True)
def head_norm(x, head, weight, epsilon):  # type: ignore[no-untyped-def]
    """Apply RMSNorm to one head of x in place."""
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

    qkv [rows, padded (heads + 2 kv_heads) * head_dim]; queries stay in its first columns, scaled.
    positions, slots int32 [rows]; `kv` is one layer's `KVArrays`.
    """
    k_t, v, bias, rotary, heads = kv.k_t, kv.v, weights.bias, weights.rotary, weights.heads
    kv_heads, slots_of_all, size = v.shape
    normed = weights.q_norm.shape[0] > 0
    keys, values, width = address(k_t), address(v), size * FLOAT_BYTES
    for row in range(span.first, span.last):
        for i in range(bias.shape[0]):
            qkv[row, i] += bias[i]
        for number in range(heads + kv_heads):
            head = HeadSlice(row, number * size, size)
            if normed and number < heads:
                head_norm(qkv, head, weights.q_norm, weights.epsilon)
            elif normed:
                head_norm(qkv, head, weights.k_norm, weights.epsilon)
            scale = weights.query_scale if number < heads else ONE
            rotate(qkv, head, rotary, positions[row], scale)
        own = address(qkv) + (row * qkv.shape[1] + heads * size) * FLOAT_BYTES
        for number in range(kv_heads):
            key, value = own + number * width, own + (kv_heads + number) * width
            to_key = keys + number * slots_of_all * width + _key_at(slots[row], size)
            to_value = values + (number * slots_of_all + slots[row]) * width
            for i in range(0, width, FLOAT_BYTES):
                write_at(to_key + i * TILE, read_at(key + i))
            for i in range(0, width, FLOAT_BYTES):
                write_at(to_value + i, read_at(value + i))


@njit(cache=True, nogil=True)
def _key_at(slot, size):  # type: ignore[no-untyped-def]
    """Return the bytes from a head's keys to a slot's, whose numbers are a tile apart."""
    return ((slot // TILE) * size * TILE + slot % TILE) * FLOAT_BYTES


@njit(cache=True, nogil=True)
def prefetch_kv(kv, slots, heads):  # type: ignore[no-untyped-def]
    """Ask for the cache lines of slots that `move_kv` is about to read or write."""
    size, pool = kv.v.shape[2], kv.v.shape[1]
    keys, values = address(kv.k_t), address(kv.v)
    for i in range(slots.shape[0]):
        near = i > 0 and slots[i] // LANES == slots[i - 1] // LANES
        for head in range(heads.first, heads.last):
            key = keys + head * pool * size * FLOAT_BYTES + _key_at(slots[i], size)
            for d in range(0 if near else size):
                prefetch_at(key + d * TILE * FLOAT_BYTES)
            value = values + (head * pool + slots[i]) * size * FLOAT_BYTES
            for at in range(value, value + size * FLOAT_BYTES, VECTOR_BYTES):
                prefetch_at(at)


@njit(cache=True, nogil=True)
def move_kv(kv, sources, destinations, heads):  # type: ignore[no-untyped-def]
    """Copy slot sources[i] to destinations[i] in one layer; all are read before any is written.

    kv: the layer's `KVArrays`; sources and destinations int32 [moves]; heads: the `Span` of key
    heads to do. Keys keep their rotation: a move changes no position.
    """
    count, size, pool = sources.shape[0], kv.v.shape[2], kv.v.shape[1]
    if count == 0:
        return
    read = np.empty((count, 2, size), np.float32)
    for head in range(heads.first, heads.last):
        keys = address(kv.k_t) + head * size * pool * FLOAT_BYTES
        values = address(kv.v) + head * size * pool * FLOAT_BYTES
        for i in range(count):
            key, value = keys + _key_at(sources[i], size), values + sources[i] * size * FLOAT_BYTES
            for d in range(size):
                read[i, 0, d] = read_at(key + d * TILE * FLOAT_BYTES)
            for d in range(size):
                read[i, 1, d] = read_at(value + d * FLOAT_BYTES)
        for i in range(count):
            slot = destinations[i]
            key, value = keys + _key_at(slot, size), values + slot * size * FLOAT_BYTES
            for d in range(size):
                write_at(key + d * TILE * FLOAT_BYTES, read[i, 0, d])
            for d in range(size):
                write_at(value + d * FLOAT_BYTES, read[i, 1, d])
