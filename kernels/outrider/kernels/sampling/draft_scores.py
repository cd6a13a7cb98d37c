"""Scores a draft's guesses with the dice that the target will throw (speculation.md, Dice).

Leaves the noise to `dice`, the filters to `filters`, and the tree to the engine.
`reference_sampling` states the same rules without the care for speed.
"""

import numpy as np
from numba import njit

from outrider.kernels.sampling.filters import TEMPERATURE_FLOOR, divide, filter_row, load
from outrider.kernels.sampling.gumbel_max import NONE, Settings
from outrider.kernels.sampling.philox import NoiseCache, cached_row
from outrider.kernels.sampling.vectors import exp, peak

_STRIP = 64  # columns looked at together in search of the best


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
        top = load(logits[row], masked, scores)
        if not np.isfinite(top):
            continue
        if temperature == 0.0:
            divide(scores, top, error_scale)
        else:
            filter_row(scores, top, temperature, top_k, top_p, min_p, weights)
            noise = rows[cached_row(rows, keys, oldest, token_ids, seed, choice, positions[row])]
            perturb(scores, noise, max(temperature, TEMPERATURE_FLOOR) / error_scale)
        top = peak(scores)
        shift = np.float64(top) + np.log(total(scores, top)) - log_share
        best(scores, token_ids, shift, out_tokens[row], out_logprobs[row])


@njit(cache=True, nogil=True)
def perturb(scores: np.ndarray, noise: np.ndarray, factor: float) -> None:
    """Turns scaled logits, in place, into scores: (logit + noise) * factor."""
    scale = np.float32(factor)
    for i in range(scores.shape[0]):
        scores[i] = (scores[i] + noise[i]) * scale


@njit(cache=True, nogil=True, fastmath={"nsz", "reassoc"})  # fp64 sum, in any order
def total(scores: np.ndarray, top: np.float32) -> float:
    """Sum of exp(score - top)."""
    total = 0.0
    for i in range(scores.shape[0]):
        total += np.float64(exp(scores[i] - top))
    return total


@njit(cache=True, nogil=True)
def best(
    scores: np.ndarray,
    token_ids: np.ndarray,
    shift: float,
    out_tokens: np.ndarray,
    out_logprobs: np.ndarray,
) -> None:
    """Fills the best scores, less `shift`, and their tokens; equals by token id."""
    found = np.full(out_tokens.shape[0], -np.inf, np.float32)
    largest(scores, token_ids, out_tokens, found)
    for i in range(found.shape[0]):
        out_logprobs[i] = min(np.float64(found[i]) - shift, 0.0)


@njit(cache=True, nogil=True)
def largest(
    scores: np.ndarray, token_ids: np.ndarray, out_tokens: np.ndarray, found: np.ndarray
) -> None:
    """Replaces `found`, all -inf, by the largest scores, and their tokens; equals by token id."""
    k = found.shape[0]
    for first in range(0, scores.shape[0], _STRIP):
        strip = scores[first : first + _STRIP]
        if k == 0 or peak(strip) < found[k - 1]:
            continue
        for i in range(strip.shape[0]):
            if strip[i] >= found[k - 1] and strip[i] > -np.inf:
                _insert(found, out_tokens, strip[i], token_ids[first + i])


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
