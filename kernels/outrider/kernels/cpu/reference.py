"""Reference of the compiled kernels in plain numpy and double precision, for their tests.

No tiles, packing or order of summation.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.grouped_packing import (
    GROUP,
    GroupedWeights,
    encode,
    layer_of,
    stack_grouped,
)
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath
from outrider.kernels.cpu.packing import Packed, pack, padded, to_bfloat

Doubles = NDArray[np.float64]
BLOCK = 64
"""Slots of one block of the block pool."""


def from_bfloat(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the values of bfloat16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def packed_layer(weight: NDArray[np.float32], kind: NumericKind) -> Packed | GroupedWeights:
    """Pack a float matrix [outputs, inputs] for a kind, as a pass has it."""
    if kind.path is not NumericPath.INT4:
        return pack(weight, kind)
    full = np.zeros((len(weight), padded(weight.shape[1], GROUP)), np.float32)
    full[:, : weight.shape[1]] = weight
    return layer_of(stack_grouped([[encode(full)]], 1), 0)


def activations(
    values: NDArray[np.float32], kind: NumericKind
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Convert rows [rows, width] to a kind's format; returns them and their scales [rows]."""
    ones = np.ones(len(values), np.float32)
    if kind.activation is np.uint16:
        return to_bfloat(values), ones
    if kind.activation is np.float32:
        return values, ones
    scales = np.abs(values).max(axis=1) / np.float32(127)
    safe = np.where(scales > 0, scales, 1)[:, None]
    zero = 128 if kind.activation is np.uint8 else 0
    return (np.rint(values / safe) + zero).astype(kind.activation), scales.astype(np.float32)


def products(
    values: NDArray[np.float32], weight: NDArray[np.float32], kind: NumericKind
) -> Doubles:
    """Return values @ weight.T, both rounded to the formats of `kind`; [rows, outputs]."""
    rounded, scales = activations(values, kind)
    x: Doubles = rounded.astype(np.float64)
    if kind.activation is np.uint16:
        x = from_bfloat(rounded).astype(np.float64)
    if kind.activation is np.uint8:
        x -= 128
    w: Doubles = weight.astype(np.float64)
    if kind.path is NumericPath.BF16:
        w = from_bfloat(to_bfloat(weight)).astype(np.float64)
    if kind.path is NumericPath.INT8:
        of_output = pack(weight, kind).scales[: len(weight), None].astype(np.float64)
        w = np.rint(weight / of_output) * of_output
    if kind.path is NumericPath.INT4:
        w = _on_grid(weight)
    result: Doubles = (x * scales[:, None]) @ w.T
    return result


def _on_grid(weight: NDArray[np.float32]) -> Doubles:
    """Round weights to 16 steps between the least and largest of 32 inputs of an output."""
    out = np.zeros((len(weight), -(-weight.shape[1] // GROUP) * GROUP))
    out[:, : weight.shape[1]] = weight
    groups = out.reshape(len(weight), -1, GROUP)
    least = groups.min(axis=2, keepdims=True)
    steps = (groups.max(axis=2, keepdims=True) - least) / 15
    least, steps = (_as_half(x) for x in (least, steps))
    groups[:] = least + steps * np.rint((groups - least) / np.where(steps > 0, steps, 1))
    return out[:, : weight.shape[1]]


def _as_half(values: Doubles) -> Doubles:
    """Round to 11 bits, of any size."""
    parts, exponents = np.frexp(values)
    return np.ldexp(np.rint(parts * 2048) / 2048, exponents)  # type: ignore[no-any-return]


def rms_norm(x: Doubles, weight: NDArray[np.float32], epsilon: float) -> Doubles:
    """Return RMSNorm over the last axis."""
    mean = np.square(x.astype(np.float64)).mean(axis=-1, keepdims=True)
    result: Doubles = x / np.sqrt(mean + epsilon) * weight
    return result


def gated(gates: NDArray[np.float32], activation: Callable[[Doubles], Doubles]) -> Doubles:
    """Return activation(first half) * second half of each row."""
    gate, up = np.split(gates.astype(np.float64), 2, axis=1)
    return activation(gate) * up


def silu(x: Doubles) -> Doubles:
    """Return SiLU."""
    result: Doubles = x / (1 + np.exp(-x))
    return result


def gelu_tanh(x: Doubles) -> Doubles:
    """Return GELU with a hyperbolic tangent."""
    result: Doubles = x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2
    return result


def rotated(x: NDArray[np.float32], table: NDArray[np.float32], position: int) -> Doubles:
    """Rotate heads [heads, head_dim] to a position; halves are pairs."""
    low, high = np.split(x.astype(np.float64), 2, axis=1)
    cos, sin = table[position].astype(np.float64)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=1)


def attention(
    q: NDArray[np.float32],  # [heads, head_dim], scaled
    k_t: NDArray[np.float32],  # [kv_heads, blocks, head_dim, 64]
    v: NDArray[np.float32],  # [kv_heads, slots, head_dim]
    table: NDArray[np.int32],  # the row's sequence: blocks of 64 slots, by offset // 64
    offsets: NDArray[np.int32],  # the row's logical context, in order
    window: int = 0,
) -> Doubles:
    """Return one row's attention over its logical context; [heads, head_dim]."""
    slots = table[offsets // BLOCK] * BLOCK + offsets % BLOCK
    seen = slots[-window:] if window else slots
    group = len(q) // len(k_t)
    out = np.empty(q.shape, np.float64)
    for head, query in enumerate(q.astype(np.float64)):
        keys = k_t[head // group][seen // BLOCK, :, seen % BLOCK]  # [seen, head_dim]
        scores = keys.astype(np.float64) @ query
        weights = np.exp(scores - scores.max())
        out[head] = weights / weights.sum() @ v[head // group][seen].astype(np.float64)
    return out
