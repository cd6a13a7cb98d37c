"""Weights of one linear layer in the order in which a pass reads them.

[blocks of 32 outputs][groups of inputs][32 outputs][inputs of a group]: one sequential stream.
Leaves quants in groups to `grouped_packing`, products to `linear`.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath

Floats = NDArray[np.float32]

BLOCK = 32
"""Outputs of a block; the multiple that inputs and outputs are padded to."""


class Packed(NamedTuple):
    """Weights of one layer, ready to stream; inputs and outputs are padded to multiples of 32."""

    weights: NDArray[Any]  # [padded outputs * padded inputs]; 64-byte aligned
    scales: Floats  # [padded outputs]; 1 unless int8
    offsets: NDArray[Any]  # [padded outputs] where sums start, in their type


def padded(size: int, multiple: int) -> int:
    """Return the next multiple."""
    return -(-size // multiple) * multiple


def aligned(shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    """Return zeros that start on a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def pack(weight: Floats, kind: NumericKind) -> Packed:
    """Pack a weight matrix [outputs, inputs] of any path but int4; int8 takes one scale per
    output."""
    rows, columns = padded(weight.shape[0], BLOCK), padded(weight.shape[1], BLOCK)
    full = np.zeros((rows, columns), np.float32)
    full[: weight.shape[0], : weight.shape[1]] = weight
    if kind.path is NumericPath.INT8:
        return _pack_int8(full, kind)
    coded = to_bfloat(full) if kind.path is NumericPath.BF16 else full
    return Packed(_stream(coded, kind), np.ones(rows, np.float32), np.zeros(rows, np.int32))


def _pack_int8(full: Floats, kind: NumericKind) -> Packed:
    """Round to bytes; `offsets` subtract what activations' zero of 128 adds."""
    peak = np.abs(full).max(axis=1)
    scales = np.where(peak > 0, peak / np.float32(127), np.float32(1)).astype(np.float32)
    coded = np.rint(full / scales[:, None]).astype(np.int8)
    offsets = np.zeros(len(full), np.int32)
    if kind.weight is np.uint8:
        coded = coded.view(np.uint8) ^ np.uint8(128)
    elif kind.activation is np.uint8 and kind is not NumericKind.INT8_DOTPROD:
        offsets = (-128 * coded.sum(axis=1, dtype=np.int32)).astype(np.int32)
    return Packed(_stream(coded, kind), scales, offsets)


def _stream(coded: NDArray[Any], kind: NumericKind) -> NDArray[Any]:
    rows, columns = coded.shape
    blocks = coded.reshape(rows // BLOCK, BLOCK, columns // kind.group, kind.group)
    weights = aligned((rows * columns,), kind.weight)
    weights[:] = blocks.transpose(0, 2, 1, 3).reshape(-1)
    return weights


def to_bfloat(values: Floats) -> NDArray[np.uint16]:
    """Return bfloat16 bits, nearest and ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
