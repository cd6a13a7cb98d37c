"""Sampling noise inside Triton kernels: the bits and Gumbel noise of `kernels.sampling.philox`.

Leaves what the noise is added to to `sampling`. The integers are those of the CPU, bit for bit.
The noise follows the CPU's own fp64 steps and is rounded once, so it has the CPU's bits too where
products and sums are not fused; fused, it may differ by 1 ulp where the exact value lies within
1e-15 of a rounding boundary, about one token in 10^8. Ranks of one replica must agree on it, and
do: they run one program. A draft need not agree: its tokens are only proposals.
"""

import triton
import triton.language as tl

FRACTION: tl.constexpr = tl.constexpr((1 << 52) - 1)
ONE: tl.constexpr = tl.constexpr(1023 << 52)


@triton.jit
def noise_bits(seed, choice, position, first, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the 32 random bits of COUNT tokens from `first`, a multiple of 4; uint32 [COUNT]."""
    block = first // 4 + tl.arange(0, COUNT // 4)
    zero = block * 0
    w0, w1, w2, w3 = tl.philox(seed, block, zero + position, zero + choice, zero)
    return tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))


@triton.jit
def noise_bits_of(seed, choice, position, ids):  # type: ignore[no-untyped-def]
    """Return the 32 random bits of any tokens, at four times the price of a run's; uint32, ids'
    shape.
    """
    zero = ids * 0
    w0, w1, w2, w3 = tl.philox(seed, ids // 4, zero + position, zero + choice, zero)
    word = ids % 4
    return tl.where(word < 2, tl.where(word == 0, w0, w1), tl.where(word == 2, w2, w3))


@triton.jit
def logarithm(x):  # type: ignore[no-untyped-def]
    """Return ln of positive normal fp64 numbers, in the steps of `kernels.sampling.philox`."""
    pattern = x.to(tl.int64, bitcast=True)
    exponent = ((pattern >> 52) - 1023).to(tl.float64)
    mantissa = ((pattern & FRACTION) | ONE).to(tl.float64, bitcast=True)
    above = mantissa > 1.4142135623730951
    mantissa = tl.where(above, 0.5 * mantissa, mantissa)
    exponent = tl.where(above, exponent + 1.0, exponent)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    series = 1 / 15 + square * (1 / 17 + square * (1 / 19))
    series = 1 / 9 + square * (1 / 11 + square * (1 / 13 + square * series))
    series = 1.0 + square * (1 / 3 + square * (1 / 5 + square * (1 / 7 + square * series)))
    return exponent * 0.6931471805599453 + 2.0 * s * series


@triton.jit
def gumbel(bits):  # type: ignore[no-untyped-def]
    """Return g = -ln(-ln u), u = (bits + 1/2) / 2^32, as fp32; near u = 1/e by its series."""
    u = (bits.to(tl.float64) + 0.5) * 2.3283064365386963e-10
    near = ((u - 0.36787944117144233) - -1.2428753672788363e-17) * 2.718281828459045
    g = -logarithm(-logarithm(u))
    return tl.where(tl.abs(near) < 1e-6, near, g).to(tl.float32)


@triton.jit
def gumbel_bound(bits):  # type: ignore[no-untyped-def]
    """Return an upper bound of `gumbel` in fp32, without a logarithm: the CPU's."""
    complement = (bits ^ 0xFFFFFFFF).to(tl.float32) + 0.5
    log2 = complement.to(tl.int32, bitcast=True).to(tl.float32) * 1.1920928955078125e-07
    return 0.6931471805599453 * (159.0001 - log2)
