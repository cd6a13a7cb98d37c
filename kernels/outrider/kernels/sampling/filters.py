"""Turns a row of logits into scaled ones with what may not be drawn left out (speculation.md).

Leaves the noise and the draw to `sampling`, a draft's scores to `draft_scores`.

Filters are those of `transformers`' logits warpers, in their order: temperature, top-k (equals of
the k-th stay), top-p, min-p. Where top-p cuts among equals, the lowest ids stay. Scaled logits
are fp32 and relative to the row's largest; masses are fp64.
"""

import numpy as np
from numba import njit

from outrider.kernels.sampling.vectors import exp, peak

TEMPERATURE_FLOOR = 1e-30  # fp32 still divides by it; colder is the same as this

_STRIP = 64  # columns looked at together in search of the largest
_SORTABLE = 512  # candidates that top-p sorts rather than bisects
_BISECTIONS = 32  # 7 for -1, -2, ..., -64, the rest halve


@njit(cache=True, nogil=True)
def load(logits: np.ndarray, masked: np.ndarray, out: np.ndarray) -> np.float32:
    """Copies a row, -inf for NaN and masked columns; returns its largest."""
    for i in range(logits.shape[0]):
        out[i] = logits[i] if logits[i] == logits[i] else -np.inf
    for i in range(masked.shape[0]):
        out[i] = -np.inf if masked[i] else out[i]
    return np.float32(peak(out))


@njit(cache=True, nogil=True)
def filter_row(
    scaled: np.ndarray,
    top: float,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    weights: np.ndarray,
) -> None:
    """Turns a row of logits, in place, into (logit - top) / T, -inf for those filtered out.

    scaled float32[n] without NaN, whose finite maximum is `top`; weights float32[n] is scratch of
    top-p and may be empty where top_p is 1.
    """
    divide(scaled, top, max(temperature, TEMPERATURE_FLOOR))
    if 0 < top_k < scaled.shape[0]:
        _drop_below(scaled, _kth_largest(scaled, top_k))
    if top_p < 1.0:
        _keep_top_p(scaled, top_p, weights)
    if min_p > 0.0:
        _drop_below(scaled, np.float32(np.log(min_p)))


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
    """The k-th largest value. The k-th largest of the strips' maxima bounds it from below, so
    few values are left to sort.
    """
    strips = (values.shape[0] + _STRIP - 1) // _STRIP
    floor = np.float32(-np.inf)
    if k <= strips:
        peaks = np.empty(strips, np.float32)
        for i in range(strips):
            peaks[i] = peak(values[i * _STRIP : (i + 1) * _STRIP])
        floor = np.partition(peaks, strips - k)[strips - k]
    found = _between(values, floor, np.float32(np.inf))
    return np.float32(np.partition(found, found.shape[0] - k)[found.shape[0] - k])


@njit(cache=True, nogil=True)
def _between(values: np.ndarray, low: np.float32, high: np.float32) -> np.ndarray:
    """The values in [low, high), in their order."""
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
    """Keeps the smallest set whose mass reaches the share `top_p`, and at least one token.

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
    """Sum and number of the weights whose scaled logit is at least `cut`."""
    total, count = 0.0, 0
    for i in range(scaled.shape[0]):
        total += np.float64(weights[i]) if scaled[i] >= cut else 0.0
        count += scaled[i] >= cut
    return total, count


@njit(cache=True, nogil=True)
def _cut_sorted(scaled: np.ndarray, ascending: np.ndarray, goal: float) -> None:
    """Drops all below the value at which the mass of `ascending`, from its end, reaches `goal`;
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
