"""Rows of an embedding that stay in a GGUF file, as its blocks lie there.

Layout of blocks: ggml's ggml-common.h.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K = 2, 3, 6, 7, 8, 12, 13, 14
"""GGUF's numbers of the kinds that can be read."""


class QuantisedRows(NamedTuple):
    """A matrix [rows, inputs] as it lies in its file."""

    blocks: NDArray[np.uint8]  # [rows, blocks of inputs, bytes]
    kind: int


@njit(cache=True, nogil=True)
def write_row(matrix, row, out):  # type: ignore[no-untyped-def]
    """out [inputs] float32 = one row of `QuantisedRows`."""
    inputs = 256 if matrix.kind in (Q4_K, Q5_K, Q6_K) else 32
    for number in range(matrix.blocks.shape[1]):
        block, values = matrix.blocks[row, number], out[number * inputs : (number + 1) * inputs]
        if matrix.kind == Q6_K:
            _write_q6_k(block, values)
        elif inputs == 256:
            _write_q4_or_q5_k(block, values, matrix.kind == Q5_K)
        elif matrix.kind == Q8_0:
            scale = _half(block, 0)
            for i in range(32):
                values[i] = scale * np.float32(np.int8(block[2 + i]))
        else:
            _write_32(block, values, matrix.kind)


@njit(cache=True, nogil=True)
def _write_32(block, out, kind):  # type: ignore[no-untyped-def]
    """Write a block of Q4_0, Q4_1, Q5_0 or Q5_1."""
    least, fifth = kind in (Q4_1, Q5_1), kind in (Q5_0, Q5_1)
    scale, start = _half(block, 0), _half(block, 2) if least else np.float32(0)
    zero = 0 if least else (16 if fifth else 8)
    bits = 4 if least else 2
    quants = bits + 4 * fifth
    for i in range(32):
        quant = (block[quants + i % 16] >> (4 * (i // 16))) & 15
        if fifth:
            quant |= ((block[bits + i // 8] >> (i % 8)) & 1) << 4
        out[i] = scale * np.float32(np.int64(quant) - zero) + start


@njit(cache=True, nogil=True)
def _write_q4_or_q5_k(block, out, fifth):  # type: ignore[no-untyped-def]
    scale, least = _half(block, 0), _half(block, 2)
    for group in range(8):
        if group < 4:
            own, start = block[4 + group] & 63, block[8 + group] & 63
        else:
            own = (block[8 + group] & 15) | (block[group] >> 6 << 4)
            start = (block[8 + group] >> 4) | (block[4 + group] >> 6 << 4)
        step, begin = scale * np.float32(own), least * np.float32(start)
        for i in range(32):
            at = 16 + 32 * fifth + 32 * (group // 2) + i
            quant = (block[at] >> (4 * (group % 2))) & 15
            if fifth:
                quant |= ((block[16 + i] >> group) & 1) << 4
            out[32 * group + i] = step * np.float32(quant) - begin


@njit(cache=True, nogil=True)
def _write_q6_k(block, out):  # type: ignore[no-untyped-def]
    scale = _half(block, 208)
    for i in range(256):
        half, within = divmod(i, 128)
        quarter, place = divmod(within, 32)
        low = block[64 * half + 32 * (quarter % 2) + place] >> (4 * (quarter // 2)) & 15
        high = (block[128 + 32 * half + place] >> (2 * quarter)) & 3
        step = scale * np.float32(np.int8(block[192 + i // 16]))
        out[i] = step * np.float32(np.int64(low | high << 4) - 32)


@njit(cache=True, nogil=True)
def _half(block, at):  # type: ignore[no-untyped-def]
    """Return the half-precision number at a byte, a finite one."""
    bits = np.int64(block[at]) + 256 * np.int64(block[at + 1])
    exponent, fraction = (bits >> 10) & 31, bits & 1023
    sign = np.float32(-1 if bits >> 15 else 1)
    if exponent == 0:
        return sign * np.float32(fraction) * np.float32(2.0**-24)
    return sign * np.float32(1024 + fraction) * np.float32(2.0) ** np.float32(exponent - 25)
