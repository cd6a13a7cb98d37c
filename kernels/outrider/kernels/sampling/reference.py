"""The rules of sampling and of draft scores in plain numpy, to be read and to be tested against.

Leaves speed to `philox`, `penalties`, `filters`, `gumbel_max` and `draft_scores`: every row is
sorted, and every logarithm is taken.
"""

from collections.abc import Sequence

import numpy as np

from outrider.kernels.sampling.draft_scores import ScoreTuple
from outrider.kernels.sampling.filters import SamplingTuple
from outrider.kernels.sampling.penalties import Adjustments

NONE = -1
TEMPERATURE_FLOOR = 1e-30


def philox(counters: np.ndarray, seed: int) -> np.ndarray:
    """Return Philox4x32-10 of counter blocks uint64[4, n] that hold 32 bits; the same shape."""
    word = np.uint64(0xFFFFFFFF)
    c0, c1, c2, c3 = counters
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        product0, product2 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (product2 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            product2 & word,
            (product0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            product0 & word,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3])


def noise_bits(seed: int, choice: int, position: int, token_ids: np.ndarray) -> np.ndarray:
    """Return the 32 random bits of each token, uint64[n]."""
    ids = np.asarray(token_ids).astype(np.uint64)
    counters = np.zeros((4, ids.size), np.uint64)
    counters[0], counters[1], counters[2] = ids >> np.uint64(2), position, choice
    return np.asarray(philox(counters, seed)[ids & np.uint64(3), np.arange(ids.size)])


def gumbel(bits: np.ndarray) -> np.ndarray:
    """Return -ln(-ln((bits + 1/2) / 2^32)) by the longest floats, rounded once to fp32."""
    x = np.asarray(bits).astype(np.longdouble)
    u = (x + 0.5) / 2.0**32
    complement = (2.0**32 - x - 0.5) / 2.0**32
    return np.asarray(-np.log(-np.where(u < 0.5, np.log(u), np.log1p(-complement))), np.float32)


def clean(logits: np.ndarray, masked: np.ndarray | None = None) -> np.ndarray:
    """Return the row with -inf for NaN and masked columns."""
    row = np.where(np.isnan(logits), np.float32(-np.inf), logits)
    return row if masked is None else np.where(masked, np.float32(-np.inf), row)


def adjust(
    row: np.ndarray, prompt: Sequence[int], answer: Sequence[int], settings: Adjustments
) -> np.ndarray:
    """Return the logits float32[n] of the token after prompt and answer, penalised and biased;
    -inf for what is forbidden."""
    adjusted = row.copy()
    for token in {*prompt, *answer}:
        logit, count = float(row[token]), answer.count(token)
        repetition = settings.repetition_penalty
        logit = logit / repetition if logit > 0 else logit * repetition
        logit -= settings.frequency_penalty * count + settings.presence_penalty * (count > 0)
        adjusted[token] = np.float32(logit)
    for token, bias in settings.logit_bias:
        adjusted[token] = np.float32(float(adjusted[token]) + bias)
    if len(answer) < len(settings.forced):
        adjusted[:] = -np.inf
        adjusted[settings.forced[len(answer)]] = 0.0
        return adjusted
    if len(answer) < settings.min_tokens:
        adjusted[[*settings.late]] = -np.inf
    for *before, last in settings.forbidden:
        if [*answer][len(answer) - len(before) :] == before:
            adjusted[last] = -np.inf
    return adjusted


def filter_row(row: np.ndarray, sampling: SamplingTuple) -> np.ndarray:
    """Return (logit - maximum) / T in fp32, -inf for those filtered out; row float32[n], no NaN."""
    temperature, top_k, top_p, min_p = sampling[:4]
    with np.errstate(over="ignore"):
        scaled = np.asarray((row - row.max()) / np.float32(max(temperature, TEMPERATURE_FLOOR)))
    if 0 < top_k < scaled.size:
        scaled[scaled < np.sort(scaled)[-top_k]] = -np.inf
    if top_p < 1:
        order = np.lexsort((np.arange(scaled.size), -scaled))
        weights = np.exp(scaled[order].astype(np.float64))
        mass_before = np.cumsum(weights) - weights
        scaled[order[mass_before >= top_p * weights.sum()]] = -np.inf
    if min_p > 0:
        scaled[scaled < np.float32(np.log(min_p))] = -np.inf
    return scaled


def sample(logits: np.ndarray, positions: np.ndarray, sampling: SamplingTuple) -> np.ndarray:
    """Return the token of each row, int32[rows]; shapes and rules of `gumbel_max.sample`."""
    out = np.full(logits.shape[0], NONE, np.int32)
    seed, choice = int(sampling.seed), sampling.choice
    for r in range(logits.shape[0]):
        row = clean(logits[r])
        if not np.isfinite(row.max()):
            continue
        if sampling.temperature == 0:
            out[r] = row.argmax()
        else:
            noise = gumbel(noise_bits(seed, choice, int(positions[r]), np.arange(row.size)))
            scaled = filter_row(row, sampling)
            out[r] = (scaled.astype(np.float64) + noise.astype(np.float64)).argmax()
    return out


def draft_scores(
    logits: np.ndarray,
    positions: np.ndarray,
    token_ids: np.ndarray,
    query: ScoreTuple,
    k: int,
    masked: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best children of each row; shapes and rules of `draft_scores.DraftScorer`."""
    tokens = np.full((logits.shape[0], k), NONE, np.int32)
    logprobs = np.full((logits.shape[0], k), -np.inf, np.float32)
    sampling, error_scale, log_share = query
    for r in range(logits.shape[0]):
        row = clean(logits[r], masked)
        if not np.isfinite(row.max()):
            continue
        if sampling.temperature == 0:
            scores = (row - row.max()) / np.float32(error_scale)
        else:
            bits = noise_bits(int(sampling.seed), sampling.choice, int(positions[r]), token_ids)
            factor = np.float32(max(sampling.temperature, TEMPERATURE_FLOOR) / error_scale)
            scores = (filter_row(row, sampling) + gumbel(bits)) * factor
        wide = scores.astype(np.float64) - scores.max()
        whole = wide - np.log(np.exp(wide).sum()) + log_share
        best = np.lexsort((token_ids, -scores))[:k]
        best = best[np.isfinite(scores[best])]
        tokens[r, : best.size] = token_ids[best]
        logprobs[r, : best.size] = np.minimum(whole[best], 0)
    return tokens, logprobs
