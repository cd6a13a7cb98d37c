"""Shared sampling noise: Gumbel noise keyed by (seed, choice, position, target token id) alone.

Leaves the logits that it is added to to `gumbel_max` and `draft_scores`, filters to `filters`.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) keyed by the
seed, its low word first; the counter is (token >> 2, position, choice, 0) and the token takes word
token & 3 of the block. Integers are the same everywhere; gumbel noise is within 1 ulp of exact.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

MAX_GUMBEL = 22.88  # g of 2^32 - 1, rounded up
MIN_GUMBEL = -3.14  # g of 0, rounded down

_U32 = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLY_0, _MULTIPLY_2 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_ROUNDS = 10
_RUN = 1024  # tokens computed together: enough to vectorise, few enough for the L1 cache

_INVERSE_E_HIGH, _INVERSE_E_LOW = 0.36787944117144233, -1.2428753672788363e-17
_LN2 = 0.6931471805599453
_SQRT2 = 1.4142135623730951
_FRACTION = np.int64((1 << 52) - 1)
_ONE = np.int64(1023 << 52)


@njit(cache=True, nogil=True)
def _round(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]  # uint64 that hold 32 bits
    low, high = _MULTIPLY_0 * c0, _MULTIPLY_2 * c2
    return (high >> _HALF) ^ c1 ^ k0, high & _U32, (low >> _HALF) ^ c3 ^ k1, low & _U32


@njit(cache=True, nogil=True)
def philox(counters: np.ndarray, blocks: int, seed: np.uint64) -> None:
    """Replace counter blocks by their random words, in place.

    counters uint32[4, >= blocks], C-contiguous, one block a column.
    """
    c0, c1, c2, c3 = counters[0], counters[1], counters[2], counters[3]
    k0, k1 = np.uint64(seed) & _U32, np.uint64(seed) >> _HALF
    for _ in range(_ROUNDS):
        for i in range(blocks):
            c0[i], c1[i], c2[i], c3[i] = _round(
                np.uint64(c0[i]), np.uint64(c1[i]), np.uint64(c2[i]), np.uint64(c3[i]), k0, k1
            )
        k0, k1 = (k0 + _WEYL_0) & _U32, (k1 + _WEYL_1) & _U32


@njit(cache=True, nogil=True)
def noise_bits(seed: np.uint64, choice: int, position: int, token: int) -> np.uint32:
    """Return the 32 random bits of one token; the definition that the faster paths must equal."""
    c0, c1 = np.uint64(token >> 2), np.uint64(position)
    c2, c3 = np.uint64(choice), np.uint64(0)
    k0, k1 = np.uint64(seed) & _U32, np.uint64(seed) >> _HALF
    for _ in range(_ROUNDS):
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
        k0, k1 = (k0 + _WEYL_0) & _U32, (k1 + _WEYL_1) & _U32
    return np.uint32((c0, c1, c2, c3)[token & 3])


@njit(cache=True, nogil=True)
def _fill_blocks(
    seed: np.uint64, choice: int, position: int, counters: np.ndarray, blocks: int
) -> None:
    """Complete counters that hold token >> 2 in row 0, and turn them into random words."""
    for i in range(blocks):
        counters[1, i], counters[2, i], counters[3, i] = position, choice, 0
    philox(counters, blocks, seed)


@njit(cache=True, nogil=True)
def noise_run(
    seed: np.uint64, choice: int, position: int, first: int, counters: np.ndarray, out: np.ndarray
) -> None:
    """Fill in the bits of consecutive tokens from `first`, a multiple of 4.

    out uint32[4 n]; counters uint32[4, n] is scratch.
    """
    for i in range(counters.shape[1]):
        counters[0, i] = (first >> 2) + i
    _fill_blocks(seed, choice, position, counters, counters.shape[1])
    for i in range(counters.shape[1]):
        out[4 * i] = counters[0, i]
        out[4 * i + 1] = counters[1, i]
        out[4 * i + 2] = counters[2, i]
        out[4 * i + 3] = counters[3, i]


@njit(cache=True, nogil=True, error_model="numpy")  # a check for division by 0 costs the vectors
def _log(x: float) -> float:
    """Return ln of a positive normal fp64 number; relative error ~1e-15. It vectorises."""
    pattern = np.float64(x).view(np.int64)
    exponent = np.float64((pattern >> np.int64(52)) - np.int64(1023))
    mantissa = np.int64((pattern & _FRACTION) | _ONE).view(np.float64)
    above = mantissa > _SQRT2
    mantissa = 0.5 * mantissa if above else mantissa
    exponent = exponent + 1.0 if above else exponent
    s = (mantissa - 1.0) / (mantissa + 1.0)  # the subtraction is exact
    square = s * s
    series = 1 / 15 + square * (1 / 17 + square * (1 / 19))
    series = 1 / 9 + square * (1 / 11 + square * (1 / 13 + square * series))
    series = 1.0 + square * (1 / 3 + square * (1 / 5 + square * (1 / 7 + square * series)))
    return exponent * _LN2 + 2.0 * s * series


@njit(cache=True, nogil=True)
def gumbel(bits: np.uint32) -> np.float32:
    """Return g = -ln(-ln u), u = (bits + 1/2) / 2^32, rounded once to fp32, within 1 ulp of exact.

    u has 33 bits, so u - 1 is exact and `_log` near 1 is as good as log1p of the complement. At
    u = 1/e g crosses 0 and the outer logarithm would lose all its digits; there
    g = d + d^3/6 + ..., with d = e u - 1.
    """
    u = (np.float64(bits) + 0.5) * 2.0**-32
    difference = ((u - _INVERSE_E_HIGH) - _INVERSE_E_LOW) * math.e
    g = -_log(-_log(u))
    return np.float32(difference if abs(difference) < 1e-6 else g)


@njit(cache=True, nogil=True)
def gumbel_bound(bits: np.uint32) -> np.float32:
    """Return a cheap upper bound of `gumbel`, at most 0.07 above it where g > 5; no logarithm.

    g <= -ln(1 - u) as -ln u >= 1 - u; and the bit pattern of a float, read as an integer, is a
    piecewise linear log2 from below.
    """
    complement = np.float32(~bits & _U32) + np.float32(0.5)
    log2 = np.float32(np.float32(complement).view(np.int32)) * np.float32(2.0**-23)
    return np.float32(_LN2) * (np.float32(159.0001) - log2)


@njit(cache=True, nogil=True)
def gumbel_row(
    seed: np.uint64, choice: int, position: int, token_ids: np.ndarray, out: np.ndarray
) -> None:
    """Fill in the noise of listed target tokens: token_ids int32[k], out float32[k].

    Neighbours in the list share a Philox block where they share token >> 2; ascending lists are
    the cheap ones.
    """
    counters = np.empty((4, _RUN), np.uint32)
    at = np.empty(_RUN, np.int64)
    bits = np.empty(_RUN, np.uint32)
    for first in range(0, token_ids.shape[0], _RUN):
        ids = token_ids[first : first + _RUN]
        blocks = _gather_blocks(ids, counters, at)
        _fill_blocks(seed, choice, position, counters, blocks)
        for i in range(ids.shape[0]):
            bits[i] = counters[ids[i] & 3, at[i]]
        for i in range(ids.shape[0]):
            out[first + i] = gumbel(bits[i])


@njit(cache=True, nogil=True)
def _gather_blocks(ids: np.ndarray, counters: np.ndarray, at: np.ndarray) -> int:
    """List blocks of `ids` in counters[0], and each id's column in `at`; returns their count."""
    last = np.int64(-1)
    column = np.int64(-1)
    for i in range(ids.shape[0]):
        block = np.int64(ids[i]) >> 2
        column += block != last  # no branch: it could not be predicted
        counters[0, column] = block
        at[i] = column
        last = block
    return int(column + 1)


class NoiseRows(NamedTuple):
    """The arrays of a `NoiseCache`, as compiled code takes them."""

    rows: np.ndarray  # float32 [positions, columns]
    keys: np.ndarray  # int64 [positions, (seed, choice, position)] of each row
    oldest: np.ndarray  # int64 [1] the row to replace next
    token_ids: np.ndarray  # int32 [columns] target id of each


class NoiseCache:
    """Noise rows of a draft's columns for the last positions asked for, oldest replaced first."""

    def __init__(self, token_ids: np.ndarray, positions: int = 64) -> None:
        """token_ids int32[columns]: target ids of the draft's columns."""
        ids = np.ascontiguousarray(token_ids, dtype=np.int32)
        self.arrays = NoiseRows(
            np.empty((positions, ids.shape[0]), np.float32),
            np.full((positions, 3), -1, np.int64),
            np.zeros(1, np.int64),
            ids,
        )

    def row(self, seed: int, choice: int, position: int) -> np.ndarray:
        """Return noise float32[columns]; valid until `positions` other rows were asked for."""
        index = cached_row(self.arrays, np.uint64(seed), choice, position)
        return np.asarray(self.arrays.rows[index])


@njit(cache=True, nogil=True)
def cached_row(cache: NoiseRows, seed: np.uint64, choice: int, position: int) -> int:
    """Return the index of the row with this noise, computed now if it is missing."""
    keys, signed = cache.keys, np.int64(seed)
    for i in range(keys.shape[0]):
        if keys[i, 2] == position and keys[i, 1] == choice and keys[i, 0] == signed:
            return i
    index = cache.oldest[0]
    gumbel_row(seed, choice, position, cache.token_ids, cache.rows[index])
    keys[index, 0], keys[index, 1], keys[index, 2] = signed, choice, position
    cache.oldest[0] = (index + 1) % keys.shape[0]
    return int(index)
