"""Scores a draft's guesses where each rank has some columns of the logits; parts are merged.

Leaves the rules to `draft_scores`, whose children these are, and what travels between ranks to the
worker. Only distributions without filters: a filter needs all columns in one place.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from outrider.kernels.sampling.draft_scores import largest, perturb, total
from outrider.kernels.sampling.filters import TEMPERATURE_FLOOR, divide, load
from outrider.kernels.sampling.gumbel_max import NONE
from outrider.kernels.sampling.philox import NoiseCache, cached_row
from outrider.kernels.sampling.vectors import peak

NOT_MASKED = -1
"""In a row's number of a mask: all its columns may be guessed."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What some columns contribute to the children of each row; equally shaped on all ranks."""

    tokens: np.ndarray  # int32 [rows, k]: of the largest scores, best first; `NONE`: no more
    scores: np.ndarray  # float32 [rows, k], -inf where there are no more
    peaks: np.ndarray  # float32 [rows]: the largest score
    totals: np.ndarray  # float64 [rows]: sum of exp(score - peak)


class PartScorer:
    """One rank's columns."""

    def __init__(self, token_ids: np.ndarray, positions: int = 64) -> None:
        """token_ids int32 [columns]: the target id of each; positions: noise rows to remember."""
        self.noise = NoiseCache(token_ids, positions)

    def tops(self, logits: np.ndarray, masks: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """float32 [rows]: the largest logit that may be guessed; -inf where there is none.

        logits float32 [rows, columns]; masks bool [masks, columns]: guesses that are not allowed;
        mask int64 [rows]: which of them applies, or `NOT_MASKED`.
        """
        out = np.empty(len(logits), np.float32)
        _tops(logits, masks, mask, out)
        return out

    def score(
        self,
        logits: np.ndarray,
        masks: np.ndarray,
        mask: np.ndarray,
        top: np.ndarray,
        positions: np.ndarray,
        seeds: np.ndarray,
        choices: np.ndarray,
        temperatures: np.ndarray,
        scales: np.ndarray,
        k: int,
    ) -> Parts:
        """Shapes as of `tops`; top float32 [rows] the largest of `tops` of all ranks; by row int64
        positions, uint64 seeds, int64 choices, float64 temperatures and error scales."""
        rows = len(logits)
        parts = Parts(
            np.empty((rows, k), np.int32),
            np.empty((rows, k), np.float32),
            np.empty(rows, np.float32),
            np.empty(rows, np.float64),
        )
        _score(
            *(logits, masks, mask, top, positions, seeds, choices, temperatures, scales),
            *(self.noise.rows, self.noise.keys, self.noise.oldest, self.noise.token_ids),
            *(parts.tokens, parts.scores, parts.peaks, parts.totals),
        )
        return parts


def merged(parts: list[Parts], log_share: float) -> tuple[np.ndarray, np.ndarray]:
    """Target ids int32 [rows, k] and log-probabilities float32 of the best of all ranks' guesses.

    As of `DraftScorer.score`: the ids are the same, log-probabilities but for the rounding of sums.
    """
    k = parts[0].tokens.shape[1]
    tokens = np.concatenate([part.tokens for part in parts], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    order = np.lexsort((tokens, -scores), axis=-1)[:, :k]  # equals by token id
    peaks = np.stack([part.peaks for part in parts]).astype(np.float64)
    top = peaks.max(axis=0)
    known = np.where(np.isfinite(top), top, 0.0)
    totals = sum(part.totals * np.exp(own - known) for part, own in zip(parts, peaks, strict=True))
    with np.errstate(divide="ignore"):
        shift = known + np.log(totals) - log_share
    best = np.take_along_axis(scores, order, axis=1).astype(np.float64)
    found = best > -np.inf
    logprobs = np.where(
        found, np.minimum(best - np.where(found, shift[:, None], 0.0), 0.0), -np.inf
    )
    ids = np.where(found, np.take_along_axis(tokens, order, axis=1), NONE)
    return ids.astype(np.int32), logprobs.astype(np.float32)


@njit(cache=True, nogil=True)
def _tops(logits: np.ndarray, masks: np.ndarray, mask: np.ndarray, out: np.ndarray) -> None:
    held = np.empty(logits.shape[1], np.float32)
    nothing = np.zeros(0, np.bool_)
    for row in range(logits.shape[0]):
        out[row] = -np.inf
        if len(held):
            masked = masks[mask[row]] if mask[row] >= 0 else nothing
            out[row] = load(logits[row], masked, held)


@njit(cache=True, nogil=True, error_model="numpy")
def _score(
    logits: np.ndarray,
    masks: np.ndarray,
    mask: np.ndarray,
    top: np.ndarray,
    positions: np.ndarray,
    seeds: np.ndarray,
    choices: np.ndarray,
    temperatures: np.ndarray,
    scales: np.ndarray,
    noise: np.ndarray,
    keys: np.ndarray,
    oldest: np.ndarray,
    token_ids: np.ndarray,
    out_tokens: np.ndarray,
    out_scores: np.ndarray,
    out_peaks: np.ndarray,
    out_totals: np.ndarray,
) -> None:
    held = np.empty(logits.shape[1], np.float32)
    nothing = np.zeros(0, np.bool_)
    for row in range(logits.shape[0]):
        out_tokens[row], out_scores[row] = NONE, -np.inf
        out_peaks[row], out_totals[row] = -np.inf, 0.0
        if len(held) == 0 or not np.isfinite(top[row]):
            continue
        load(logits[row], masks[mask[row]] if mask[row] >= 0 else nothing, held)
        if temperatures[row] == 0.0:
            divide(held, top[row], scales[row])
        else:
            floor = max(temperatures[row], TEMPERATURE_FLOOR)
            divide(held, top[row], floor)
            at = cached_row(
                noise, keys, oldest, token_ids, seeds[row], choices[row], positions[row]
            )
            perturb(held, noise[at], floor / scales[row])
        own = peak(held)
        if own == -np.inf:
            continue
        out_peaks[row], out_totals[row] = own, total(held, own)
        largest(held, token_ids, out_tokens[row], out_scores[row])
