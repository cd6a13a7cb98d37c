"""The rules of drawing and of guessing in plain numpy, to be read and to be tested against.

Leaves speed to `dice`, `adjustments`, `filters`, `sampling` and `draft_scores`: every row is
sorted, and every logarithm is taken.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from outrider.kernels.sampling.philox import NoiseCache

NONE = -1
TEMPERATURE_FLOOR = 1e-30


def philox(counters: np.ndarray, seed: int) -> np.ndarray:
    """Philox4x32-10 of counter blocks uint64[4, n] that hold 32 bits; returns the same shape."""
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
    """The 32 random bits of each token, uint64[n]."""
    ids = np.asarray(token_ids).astype(np.uint64)
    counters = np.zeros((4, ids.size), np.uint64)
    counters[0], counters[1], counters[2] = ids >> np.uint64(2), position, choice
    return np.asarray(philox(counters, seed)[ids & np.uint64(3), np.arange(ids.size)])


def gumbel(bits: np.ndarray) -> np.ndarray:
    """-ln(-ln((bits + 1/2) / 2^32)) in the longest float of the machine, rounded once to fp32."""
    x = np.asarray(bits).astype(np.longdouble)
    u = (x + 0.5) / 2.0**32
    complement = (2.0**32 - x - 0.5) / 2.0**32
    return np.asarray(-np.log(-np.where(u < 0.5, np.log(u), np.log1p(-complement))), np.float32)


def clean(logits: np.ndarray, masked: np.ndarray | None = None) -> np.ndarray:
    """The row with -inf for NaN and masked columns."""
    row = np.where(np.isnan(logits), np.float32(-np.inf), logits)
    return row if masked is None else np.where(masked, np.float32(-np.inf), row)


def adjust(
    row: np.ndarray,
    prompt: Sequence[int],
    answer: Sequence[int],
    frequency_penalty: float,
    presence_penalty: float,
    repetition_penalty: float,
    logit_bias: Mapping[int, float],
) -> np.ndarray:
    """The logits float32[n] of the token after prompt and answer, penalised and biased."""
    adjusted = row.copy()
    for token in {*prompt, *answer}:
        logit, count = float(row[token]), answer.count(token)
        logit = logit / repetition_penalty if logit > 0 else logit * repetition_penalty
        logit -= frequency_penalty * count + presence_penalty * (count > 0)
        adjusted[token] = np.float32(logit)
    for token, bias in logit_bias.items():
        adjusted[token] = np.float32(float(adjusted[token]) + bias)
    return adjusted


def filter_row(
    row: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float
) -> np.ndarray:
    """(logit - maximum) / T in fp32, -inf for those filtered out; row float32[n] without NaN."""
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


def draw(
    logits: np.ndarray,
    positions: np.ndarray,
    seed: int,
    choice: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    out: np.ndarray,
) -> None:
    """Token of each row; shapes and rules of `sampling.draw`."""
    for r in range(logits.shape[0]):
        row = clean(logits[r])
        if not np.isfinite(row.max()):
            out[r] = NONE
        elif temperature == 0:
            out[r] = row.argmax()
        else:
            noise = gumbel(noise_bits(seed, choice, int(positions[r]), np.arange(row.size)))
            scaled = filter_row(row, temperature, top_k, top_p, min_p)
            out[r] = (scaled.astype(np.float64) + noise.astype(np.float64)).argmax()


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
    """Best guesses of each row; shapes and rules of `draft_scores.draft_scores`."""
    out_tokens[:], out_logprobs[:] = NONE, -np.inf
    for r in range(logits.shape[0]):
        row = clean(logits[r], masked)
        if not np.isfinite(row.max()):
            continue
        if temperature == 0:
            scores = (row - row.max()) / np.float32(error_scale)
        else:
            bits = noise_bits(seed, choice, int(positions[r]), noise.token_ids)
            scaled = filter_row(row, temperature, top_k, top_p, min_p)
            scores = (scaled + gumbel(bits)) * np.float32(
                max(temperature, TEMPERATURE_FLOOR) / error_scale
            )
        wide = scores.astype(np.float64) - scores.max()
        logprobs = wide - np.log(np.exp(wide).sum()) + log_share
        best = np.lexsort((noise.token_ids, -scores))[: out_tokens.shape[1]]
        best = best[np.isfinite(scores[best])]
        out_tokens[r, : best.size] = noise.token_ids[best]
        out_logprobs[r, : best.size] = np.minimum(logprobs[best], 0)
