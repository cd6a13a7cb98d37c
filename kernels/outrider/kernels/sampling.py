"""Draws the target's tokens and scores the draft's guesses with the same dice (PROTOCOL.md §4).

Leaves the noise to `dice`, the limits of the settings to whoever accepts a request, and the tree
to the engine. `reference_sampling` states the same rules without the care for speed.

Filters are those of `transformers`' logits warpers, in their order: temperature, top-k (equals of
the k-th stay), top-p, min-p. Where top-p cuts among equals, the lowest ids stay. Scaled logits
are fp32 and relative to the row's largest; perturbed sums and masses are fp64.
"""

from typing import Protocol

import numpy as np
from numba import njit

from outrider.kernels.dice import (
    MAX_GUMBEL,
    MIN_GUMBEL,
    NoiseCache,
    cached_row,
    gumbel,
    gumbel_bound,
    noise_run,
)

NONE = -1  # no token: a row without a finite maximum, or fewer columns than guesses asked for
TEMPERATURE_FLOOR = 1e-30  # fp32 still divides by it; colder is the same as this

_RUN = 1024  # tokens whose noise is drawn together
_STRIP = 64  # columns looked at together in search of the best
_SORTABLE = 512  # candidates that top-p sorts rather than bisects
_BISECTIONS = 32  # 7 for -1, -2, ..., -64, the rest halve
_NEGLIGIBLE = 1e-3  # more than the rounding of an fp32 bound on a perturbed logit


class Settings(Protocol):
    """How a request wants its tokens drawn; 0, 0, 1, 0 and any seed are greedy and unfiltered."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def choice(self) -> int: ...


class Sampler:
    """Draws the target's tokens."""

    def __init__(self, vocab: int) -> None:
        """vocab: columns of the logits that are tokens; columns after them are padding."""
        self.vocab = vocab

    def draw(self, logits: np.ndarray, positions: np.ndarray, settings: Settings) -> np.ndarray:
        """Token of each row, int32[rows]; `NONE` where the logits have no finite maximum.

        logits float32[rows, >= vocab]; positions int64[rows]: where each row's token will stand.
        """
        out = np.empty(logits.shape[0], np.int32)
        draw(
            np.ascontiguousarray(logits[:, : self.vocab], dtype=np.float32),
            np.ascontiguousarray(positions, dtype=np.int64),
            np.uint64(settings.seed),
            settings.choice,
            float(settings.temperature),
            settings.top_k,
            float(settings.top_p),
            float(settings.min_p),
            out,
        )
        return out


class DraftScorer:
    """Ranks the draft's columns as guesses of the token that the target will draw."""

    def __init__(self, token_ids: np.ndarray, vocab: int, positions: int = 64) -> None:
        """token_ids int32[columns]: the target id of each column of the draft's logits, all
        different and below `vocab`, the target's size; positions: noise rows to remember.
        """
        ids = np.ascontiguousarray(token_ids, dtype=np.int32)
        if ids.ndim != 1 or np.unique(ids).size != ids.size or ids.min() < 0 or ids.max() >= vocab:
            raise ValueError(f"token_ids must be different and in [0, {vocab})")
        self.noise = NoiseCache(ids, positions)

    def score(
        self,
        logits: np.ndarray,
        positions: np.ndarray,
        settings: Settings,
        error_scale: float,
        log_share: float,
        k: int,
        masked: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Best k guesses of each row: target ids int32[rows, k], log-probabilities float32.

        logits float32[rows, columns]; positions int64[rows]: where each guess would stand;
        error_scale in logits, above 0; log_share <= 0: ln of the share of tokens that the draft's
        vocabulary covers; masked bool[columns]: guesses that are not allowed. Missing guesses are
        `NONE` with -inf.
        """
        tokens = np.empty((logits.shape[0], k), np.int32)
        logprobs = np.empty((logits.shape[0], k), np.float32)
        draft_scores(
            logits,
            positions,
            self.noise,
            masked,
            settings.seed,
            settings.choice,
            settings.temperature,
            settings.top_k,
            settings.top_p,
            settings.min_p,
            error_scale,
            log_share,
            tokens,
            logprobs,
        )
        return tokens, logprobs


def draft_scores(
    logits: np.ndarray,
    positions: np.ndarray,
    noise: NoiseCache,
    masked: np.ndarray | None,
    seed: int,
    choice: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    error_scale: float,
    log_share: float,
    out_tokens: np.ndarray,
    out_logprobs: np.ndarray,
) -> None:
    """log softmax((logit + T g) / error_scale) + log_share over the filtered columns, best first.

    Shapes as in `DraftScorer.score`; k is the width of out_tokens int32[rows, k] and out_logprobs
    float32[rows, k]. Ties go to the lowest target id. At temperature 0 there is neither noise nor
    filter: the runners-up of a greedy row are worth guessing. Raises `ValueError` for a scale or
    share out of its limits.
    """
    if not error_scale > 0 or not log_share <= 0:
        raise ValueError(f"error_scale {error_scale} must be > 0, log_share {log_share} <= 0")
    _draft_scores(
        np.ascontiguousarray(logits, dtype=np.float32),
        np.ascontiguousarray(positions, dtype=np.int64),
        noise.rows,
        noise.keys,
        noise.oldest,
        noise.token_ids,
        np.zeros(0, np.bool_) if masked is None else np.ascontiguousarray(masked, dtype=np.bool_),
        np.uint64(seed),
        choice,
        float(temperature),
        top_k,
        float(top_p),
        float(min_p),
        float(error_scale),
        float(log_share),
        out_tokens,
        out_logprobs,
    )


@njit(cache=True, nogil=True)
def draw(
    logits: np.ndarray,
    positions: np.ndarray,
    seed: np.uint64,
    choice: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    out: np.ndarray,
) -> None:
    """Token of each row by Gumbel-max over its filtered distribution; temperature 0: argmax.

    logits float32[rows, vocab], C-contiguous; positions int64[rows]; out int32[rows]. Ties go to
    the lowest id; NaN never wins; a row whose maximum is not finite draws `NONE`.
    """
    vocab = logits.shape[1]
    scaled = np.empty(vocab, np.float32)
    weights = np.empty(vocab if top_p < 1.0 else 0, np.float32)
    none_masked = np.zeros(0, np.bool_)
    for row in range(logits.shape[0]):
        top = _load(logits[row], none_masked, scaled)
        if not np.isfinite(top):
            out[row] = NONE
        elif temperature == 0.0:
            out[row] = _first(scaled, top)
        else:
            filter_row(scaled, top, temperature, top_k, top_p, min_p, weights)
            out[row] = _winner(scaled, seed, choice, positions[row])


@njit(cache=True, nogil=True, error_model="numpy")
def _draft_scores(
    logits: np.ndarray,
    positions: np.ndarray,
    rows: np.ndarray,
    keys: np.ndarray,
    oldest: np.ndarray,
    token_ids: np.ndarray,
    masked: np.ndarray,
    seed: np.uint64,
    choice: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    error_scale: float,
    log_share: float,
    out_tokens: np.ndarray,
    out_logprobs: np.ndarray,
) -> None:
    columns = logits.shape[1]
    scores = np.empty(columns, np.float32)
    weights = np.empty(columns if top_p < 1.0 else 0, np.float32)
    for row in range(logits.shape[0]):
        out_tokens[row] = NONE
        out_logprobs[row] = -np.inf
        top = _load(logits[row], masked, scores)
        if not np.isfinite(top):
            continue
        if temperature == 0.0:
            _divide(scores, top, error_scale)
        else:
            filter_row(scores, top, temperature, top_k, top_p, min_p, weights)
            noise = rows[cached_row(rows, keys, oldest, token_ids, seed, choice, positions[row])]
            _perturb(scores, noise, max(temperature, TEMPERATURE_FLOOR) / error_scale)
        top = _peak(scores)
        shift = np.float64(top) + np.log(_total(scores, top)) - log_share
        _best(scores, token_ids, shift, out_tokens[row], out_logprobs[row])


@njit(cache=True, nogil=True)
def _load(logits: np.ndarray, masked: np.ndarray, out: np.ndarray) -> np.float32:
    """Copies a row, -inf for NaN and masked columns; returns its largest."""
    for i in range(logits.shape[0]):
        out[i] = logits[i] if logits[i] == logits[i] else -np.inf
    for i in range(masked.shape[0]):
        out[i] = -np.inf if masked[i] else out[i]
    return np.float32(_peak(out))


@njit(cache=True, nogil=True)
def _peak(values: np.ndarray) -> np.float32:
    """The largest of float32[n] without NaN, -inf for none.

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
    """Flips all but the sign of negative patterns; its own inverse."""
    return np.int32(pattern ^ ((pattern >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@njit(cache=True, nogil=True)
def _first(values: np.ndarray, top: float) -> int:
    """Index of the first of the values that equal their maximum, `top`."""
    first = 0
    while _peak(values[first : first + _RUN]) < top:
        first += _RUN
    while values[first] < top:
        first += 1
    return first


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
    _divide(scaled, top, max(temperature, TEMPERATURE_FLOOR))
    if 0 < top_k < scaled.shape[0]:
        _drop_below(scaled, _kth_largest(scaled, top_k))
    if top_p < 1.0:
        _keep_top_p(scaled, top_p, weights)
    if min_p > 0.0:
        _drop_below(scaled, np.float32(np.log(min_p)))


@njit(cache=True, nogil=True, error_model="numpy")
def _divide(values: np.ndarray, top: float, divisor: float) -> None:
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
            peaks[i] = _peak(values[i * _STRIP : (i + 1) * _STRIP])
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
        if _peak(strip) >= low:
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
        weights[i] = _exp(scaled[i])
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
        mass += np.float64(_exp(cut))
        if mass >= goal:
            break
    _drop_below(scaled, cut)
    for i in range(scaled.shape[0]):
        if scaled[i] == cut:
            equals -= 1
            if equals < 0:
                scaled[i] = -np.inf


@njit(cache=True, nogil=True)
def _winner(scaled: np.ndarray, seed: np.uint64, choice: int, position: int) -> int:
    """The token with the largest scaled logit + noise; the largest scaled logit is 0.

    Three sieves before a logarithm is taken: what the largest noise could not lift (a run costs
    no noise then), what a bound of its own noise does not lift, what was beaten meanwhile.
    """
    counters = np.empty((4, _RUN // 4), np.uint32)
    bits = np.empty(_RUN, np.uint32)
    bounds = np.empty(_RUN, np.float32)
    best, winner = MIN_GUMBEL, NONE
    for first in range(0, scaled.shape[0], _RUN):
        run = scaled[first : first + _RUN]
        if _peak(run) + MAX_GUMBEL + _NEGLIGIBLE < best:
            continue
        noise_run(seed, choice, position, first, counters, bits)
        length = run.shape[0]
        for i in range(length):
            bounds[i] = run[i] + gumbel_bound(bits[i])
        if _peak(bounds[:length]) + _NEGLIGIBLE < best:
            continue
        for i in range(length):
            if bounds[i] + _NEGLIGIBLE >= best:
                score = np.float64(run[i]) + np.float64(gumbel(bits[i]))
                if score > best:
                    best, winner = score, first + i
    return winner


@njit(cache=True, nogil=True)
def _perturb(scores: np.ndarray, noise: np.ndarray, factor: float) -> None:
    scale = np.float32(factor)
    for i in range(scores.shape[0]):
        scores[i] = (scores[i] + noise[i]) * scale


@njit(cache=True, nogil=True, fastmath={"nsz", "reassoc"})  # fp64 sum, in any order
def _total(scores: np.ndarray, top: np.float32) -> float:
    """Sum of exp(score - top)."""
    total = 0.0
    for i in range(scores.shape[0]):
        total += np.float64(_exp(scores[i] - top))
    return total


@njit(cache=True, nogil=True)
def _exp(x: np.float32) -> np.float32:
    """exp of x <= 0 in fp32 within 3e-7; 0 below -87. It vectorises, numba's own does not.

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


@njit(cache=True, nogil=True)
def _best(
    scores: np.ndarray,
    token_ids: np.ndarray,
    shift: float,
    out_tokens: np.ndarray,
    out_logprobs: np.ndarray,
) -> None:
    """Fills the best scores, less `shift`, and their tokens; equals by token id."""
    k = out_tokens.shape[0]
    found = np.full(k, -np.inf, np.float32)
    for first in range(0, scores.shape[0], _STRIP):
        strip = scores[first : first + _STRIP]
        if k == 0 or _peak(strip) < found[k - 1]:
            continue
        for i in range(strip.shape[0]):
            if strip[i] >= found[k - 1] and strip[i] > -np.inf:
                _insert(found, out_tokens, strip[i], token_ids[first + i])
    for i in range(k):
        out_logprobs[i] = min(np.float64(found[i]) - shift, 0.0)


@njit(cache=True, nogil=True)
def _insert(found: np.ndarray, tokens: np.ndarray, score: np.float32, token: int) -> None:
    """Puts a score into a descending list of fixed length; equals ascend by token."""
    at = found.shape[0]
    while at > 0 and (score > found[at - 1] or (score == found[at - 1] and token < tokens[at - 1])):
        if at < found.shape[0]:
            found[at], tokens[at] = found[at - 1], tokens[at - 1]
        at -= 1
    if at < found.shape[0]:
        found[at], tokens[at] = score, token
