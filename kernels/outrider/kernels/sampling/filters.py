"""Temperature, top-k, top-p and min-p of a row of logits, and the row arithmetic they share.

Leaves noise and sampling to `gumbel_max`, a draft's scores to `draft_scores`.

Filters are those of `transformers`' logits warpers, in their order: temperature, top-k (equals of
the k-th stay), top-p, min-p. Where top-p cuts among equals, the lowest ids stay. Scaled logits
are fp32 and relative to the row's largest; masses are fp64.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

TEMPERATURE_FLOOR = 1e-30  # fp32 still divides by it; a lower temperature is the same as this

_STRIP = 64  # columns looked at together in search of the largest
_SORTABLE = 512  # candidates that top-p sorts rather than bisects
_BISECTIONS = 32  # 7 for -1, -2, ..., -64, the rest halve


class SamplingTuple(NamedTuple):
    """Sampling params of a row as compiled code takes them; temperature 0 is greedy."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: np.uint64
    choice: int


@njit(cache=True, nogil=True)
def load(logits: np.ndarray, masked: np.ndarray, out: np.ndarray) -> np.float32:
    """Copy a row, -inf for NaN and masked columns; returns its largest."""
    for i in range(logits.shape[0]):
        out[i] = logits[i] if logits[i] == logits[i] else -np.inf
    for i in range(masked.shape[0]):
        out[i] = -np.inf if masked[i] else out[i]
    return np.float32(peak(out))


@njit(cache=True, nogil=True)
def filter_row(
    scaled: np.ndarray, top: float, sampling: SamplingTuple, weights: np.ndarray
) -> None:
    """Turn a row of logits, in place, into (logit - top) / T, -inf for those filtered out.

    scaled float32[n] without NaN, whose finite maximum is `top`; weights float32[n] is scratch of
    top-p and may be empty where top_p is 1.
    """
    divide(scaled, top, max(sampling.temperature, TEMPERATURE_FLOOR))
    if 0 < sampling.top_k < scaled.shape[0]:
        _drop_below(scaled, _kth_largest(scaled, sampling.top_k))
    if sampling.top_p < 1.0:
        _keep_top_p(scaled, sampling.top_p, weights)
    if sampling.min_p > 0.0:
        _drop_below(scaled, np.float32(np.log(sampling.min_p)))


@njit(cache=True, nogil=True, error_model="numpy")
def divide(values: np.ndarray, top: float, divisor: float) -> None:
    shift, scale = np.float32(top), np.float32(divisor)
    for i in range(values.shape[0]):
        values[i] = (values[i] - shift) / scale


@njit(cache=True, nogil=True)
def _drop_below(values: np.ndarray, cut: np.float32) -> None:
    for i in range(values.shape[0]):
        values[i] = values[i] if values[i] >= cut else -np.inf


@njit(cache=True, nogil=True)
def _kth_largest(values: np.ndarray, k: int) -> np.float32:
    """Return the k-th largest value. The k-th largest of the strips' maxima bounds it from below,
    so few values are left to count.
    """
    strips = (values.shape[0] + _STRIP - 1) // _STRIP
    floor = np.float32(-np.inf)
    if k <= strips:
        peaks = np.empty(strips, np.float32)
        for i in range(strips):
            peaks[i] = peak(values[i * _STRIP : (i + 1) * _STRIP])
        floor = _bisected(peaks, k)
    return np.float32(_bisected(_between(values, floor, np.float32(np.inf)), k))


@njit(cache=True, nogil=True)
def _bisected(values: np.ndarray, k: int) -> np.float32:
    """Return the k-th largest of float32[n] without NaN, by bisection of their bit patterns.

    They order as `peak` says, so 32 counts find it. `np.partition` compiles for 3 s (Zen 5).
    """
    patterns = values.view(np.int32)
    low = np.int64(_ordered(np.float32(-np.inf).view(np.int32)))
    high = np.int64(_ordered(np.float32(np.inf).view(np.int32)))
    while low < high:
        middle, reached = (low + high + 1) >> 1, 0
        for i in range(patterns.shape[0]):
            reached += _ordered(patterns[i]) >= middle
        if reached >= k:
            low = middle
        else:
            high = middle - 1
    return np.float32(np.int32(_ordered(np.int32(low))).view(np.float32))


@njit(cache=True, nogil=True)
def _between(values: np.ndarray, low: np.float32, high: np.float32) -> np.ndarray:
    """Return the values in [low, high), in their order."""
    found = np.empty(values.shape[0], np.float32)
    count = 0
    for first in range(0, values.shape[0], _STRIP):
        strip = values[first : first + _STRIP]
        if peak(strip) >= low:
            for i in range(strip.shape[0]):
                found[count] = strip[i]
                count += low <= strip[i] < high
    return found[:count]


@njit(cache=True, nogil=True)
def _keep_top_p(scaled: np.ndarray, top_p: float, weights: np.ndarray) -> None:
    """Keep the smallest set whose mass reaches the share `top_p`, and at least one token.

    Bisects for few values around the cut, [low, high), and sorts only those: the mass from `low`
    up reaches the goal, the mass from `high` up, `above`, does not.
    """
    for i in range(scaled.shape[0]):
        weights[i] = exp(scaled[i])
    total, count = _mass(scaled, weights, np.float32(-np.inf))
    goal = top_p * total
    low, high, above, fewer = np.float32(-np.inf), np.float32(1e-3), 0.0, 0
    middle = np.float32(-1.0)
    for _ in range(_BISECTIONS):  # equals never part
        if count - fewer <= _SORTABLE:
            break
        mass, at_least = _mass(scaled, weights, middle)
        if mass >= goal:
            low, count = middle, at_least
        else:
            high, above, fewer = middle, mass, at_least
        middle = np.float32(2.0) * middle if low == -np.inf else np.float32(0.5) * (low + high)
    _cut_sorted(scaled, np.sort(_between(scaled, low, high)), goal - above)


@njit(cache=True, nogil=True, fastmath={"nsz", "reassoc"})  # fp64 sums, in any order
def _mass(scaled: np.ndarray, weights: np.ndarray, cut: np.float32) -> tuple[float, int]:
    """Sum and count the weights whose scaled logit is at least `cut`."""
    total, count = 0.0, 0
    for i in range(scaled.shape[0]):
        total += np.float64(weights[i]) if scaled[i] >= cut else 0.0
        count += scaled[i] >= cut
    return total, count


@njit(cache=True, nogil=True)
def _cut_sorted(scaled: np.ndarray, ascending: np.ndarray, goal: float) -> None:
    """Drop all below the value at which the mass of `ascending`, from its end, reaches `goal`;
    of that value's equals the first ones stay, as many as it takes.
    """
    mass, cut, equals = 0.0, np.float32(np.inf), 0
    for i in range(ascending.shape[0] - 1, -1, -1):
        equals = equals + 1 if ascending[i] == cut else 1
        cut = ascending[i]
        mass += np.float64(exp(cut))
        if mass >= goal:
            break
    _drop_below(scaled, cut)
    for i in range(scaled.shape[0]):
        if scaled[i] == cut:
            equals -= 1
            if equals < 0:
                scaled[i] = -np.inf


@njit(cache=True, nogil=True)
def peak(values: np.ndarray) -> np.float32:
    """Return the largest of float32[n], -inf for none; NaN if one of its NaNs has no sign.

    Compares bit patterns, turned so that they order as the floats do: LLVM vectorises a maximum
    of integers, not numba's of floats (25 -> 1 us for 49,152 values on AVX-512).
    """
    patterns = values.view(np.int32)
    top = _ordered(np.float32(-np.inf).view(np.int32))
    for i in range(patterns.shape[0]):
        top = max(top, _ordered(patterns[i]))
    return np.float32(np.int32(_ordered(top)).view(np.float32))


@njit(cache=True, nogil=True)
def _ordered(pattern: np.int32) -> np.int32:
    """Flip all but the sign of negative patterns; its own inverse."""
    return np.int32(pattern ^ ((pattern >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@njit(cache=True, nogil=True)
def exp(x: np.float32) -> np.float32:
    """Return e^x for x <= 0 in fp32 within 3e-7; 0 below -87. It vectorises, numba's does not.

    Range reduction and polynomial as in Cephes' expf.
    """
    power = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - power * np.float32(0.693359375) + power * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4) * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1.0)
    two = np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)
    return np.float32(p * two if x > np.float32(-87.0) else np.float32(0.0))
