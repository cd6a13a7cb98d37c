"""Tensors of a GGUF file in groups, exactly as its blocks say.

Layout of blocks: ggml's ggml-common.h. Leaves kinds without groups, and those below four bits that
have a least value in groups of 16, to the `gguf` package's floats.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray

from outrider.kernels.cpu.grouped_packing import (
    Q4_0,
    Q4_1,
    Q4_NESTED,
    Q8_0,
    Q8_16,
    Q8_LEAST,
    Q8_NESTED,
    Grouped,
)

Blocks = NDArray[np.uint8]
"""[outputs, blocks of inputs, bytes of a block]"""
SIGNED = 128
"""Zero of quants of eight bits whose groups are not nested."""


def _q4_0(blocks: Blocks) -> Grouped:
    return Grouped(Q4_0, _rows(_nibbles(blocks[..., 2:])), _half(blocks, 0))


def _q4_1(blocks: Blocks) -> Grouped:
    return Grouped(Q4_1, _rows(_nibbles(blocks[..., 4:])), _half(blocks, 0), _half(blocks, 2))


def _q5_0(blocks: Blocks) -> Grouped:
    quants = _nibbles(blocks[..., 6:]) | _fifth_bits(blocks[..., 2:6])
    return Grouped(Q8_0, _rows(quants + np.uint8(SIGNED - 16)), _half(blocks, 0))


def _q5_1(blocks: Blocks) -> Grouped:
    quants = _nibbles(blocks[..., 8:]) | _fifth_bits(blocks[..., 4:8])
    halves = _half(blocks, 0), _half(blocks, 2)
    return Grouped(Q8_LEAST, _rows(quants + np.uint8(SIGNED)), *halves)


def _q8_0(blocks: Blocks) -> Grouped:
    return Grouped(Q8_0, _rows(blocks[..., 2:] ^ np.uint8(SIGNED)), _half(blocks, 0))


def _q4_k(blocks: Blocks) -> Grouped:
    scales, least = _six_bits(blocks[..., 4:16])
    quants = _nibbles(blocks[..., 16:].reshape(*blocks.shape[:2], 4, 32))
    halves = _half(blocks, 0), -_half(blocks, 2)
    return Grouped(Q4_NESTED, _rows(quants), *halves, scales, least)


def _q5_k(blocks: Blocks) -> Grouped:
    scales, least = _six_bits(blocks[..., 4:16])
    low = _nibbles(blocks[..., 48:].reshape(*blocks.shape[:2], 4, 32))  # [..., 4, 64]
    bits = blocks[..., 16:48, None] >> np.arange(8, dtype=np.uint8) & 1  # [..., 32, 8]
    high = bits.swapaxes(-1, -2).reshape(low.shape)
    halves = _half(blocks, 0), -_half(blocks, 2)
    return Grouped(Q8_NESTED, _rows(low | high << 4), *halves, scales, least)


def _q6_k(blocks: Blocks) -> Grouped:
    before = blocks.shape[:2]
    packed = blocks[..., :128].reshape(*before, 2, 2, 32)  # [..., 128 inputs, 64 inputs, 32]
    low = np.stack([packed & 15, packed >> 4], axis=-3)  # [..., 2, 2 halves, 2, 32]
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = (blocks[..., 128:192].reshape(*before, 2, 1, 32) >> shifts & 3).reshape(low.shape)
    scales = blocks[..., 192:208].view(np.int8).reshape(len(blocks), -1)
    return Grouped(Q8_16, _rows(low | high << 4), _half(blocks, 208), inner_scales=scales)


READERS: Mapping[Kind, Callable[[Blocks], Grouped]] = MappingProxyType(
    {
        Kind.Q4_0: _q4_0,
        Kind.Q4_1: _q4_1,
        Kind.Q5_0: _q5_0,
        Kind.Q5_1: _q5_1,
        Kind.Q8_0: _q8_0,
        Kind.Q4_K: _q4_k,
        Kind.Q5_K: _q5_k,
        Kind.Q6_K: _q6_k,
    }
)
"""How the blocks of each kind become a matrix."""


def _rows(quants: NDArray[Any]) -> NDArray[np.uint8]:
    return quants.astype(np.uint8, copy=False).reshape(len(quants), -1)


def _half(blocks: Blocks, at: int) -> NDArray[np.float16]:
    """Return the half-precision number at a byte of each block [outputs, blocks]."""
    return np.ascontiguousarray(blocks[..., at : at + 2]).view(np.float16)[..., 0]


def _nibbles(packed: Blocks) -> NDArray[Any]:
    """Return the low halves of the last axis's bytes, then the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _fifth_bits(packed: Blocks) -> NDArray[Any]:
    """Return bit i of four bytes, shifted to 16, for input i."""
    return np.unpackbits(packed, axis=-1, bitorder="little") << 4


def _six_bits(packed: Blocks) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Return eight scales and eight least values of each block, [outputs, groups]."""
    first, second, mixed = (packed[..., at : at + 4] for at in (0, 4, 8))
    pairs = ((first, mixed & 15), (second, mixed >> 4))
    found = []
    for low, high in pairs:
        six = np.concatenate([low & 63, high | low >> 6 << 4], axis=-1)
        found.append(six.reshape(len(packed), -1).view(np.int8))
    return found[0], found[1]
