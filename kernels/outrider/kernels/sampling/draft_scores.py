"""Scores a draft's candidate children with the target's sampling noise (speculation.md, Sampling).

The columns of a row are one part, or several on as many ranks whose parts are merged; filters need
the whole row in one place. Leaves the noise to `philox`, the filters to `filters`, the tree and
what travels between ranks to the worker. `reference` states the same rules without the care for
speed.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from outrider.kernels.jit.handle import Handle, handle
from outrider.kernels.sampling.filters import (
    TEMPERATURE_FLOOR,
    SamplingTuple,
    divide,
    filter_row,
    load,
    peak,
)
from outrider.kernels.sampling.gumbel_max import (
    NONE,
    Settings,
    sampling_tuple,
    unfiltered,
)
from outrider.kernels.sampling.log_softmax import best, largest, total
from outrider.kernels.sampling.philox import NoiseCache, NoiseRows, cached_row

NOT_MASKED = -1
"""In `PartRows.mask`: all columns of the row may be children."""
_NO_MASK = np.zeros(0, np.bool_)


class ScoreTuple(NamedTuple):
    """Settings by which the children of a row are scored."""

    sampling: SamplingTuple
    error_scale: float
    """Error of the draft in logits, above 0."""
    log_share: float
    """At most 0: ln of the share of the target's tokens that the draft's vocabulary covers."""


class ScoreRules(NamedTuple):
    """Rules by which the children of one request's rows are scored."""

    query: ScoreTuple
    masked: np.ndarray  # bool [columns] children that are not allowed, or nothing


class PartRows(NamedTuple):
    """Settings by which one rank scores the children of each row among its columns."""

    positions: np.ndarray  # int64 [rows]: where each row's children would stand
    settings: np.ndarray  # [rows] records with seed, choice and temperature
    error_scales: np.ndarray  # float64 [rows]
    masks: np.ndarray  # bool [masks, columns]: children that are not allowed
    mask: np.ndarray  # int64 [rows] which of the masks applies, or `NOT_MASKED`


class ScoredPart(NamedTuple):
    """Contribution of some columns to the children of each row; equally shaped on all ranks."""

    tokens: np.ndarray  # int32 [rows, k]: of the largest scores, best first; `NONE`: no more
    scores: np.ndarray  # float32 [rows, k], -inf where there are no more
    peaks: np.ndarray  # float32 [rows]: the largest score
    totals: np.ndarray  # float64 [rows]: sum of exp(score - peak)


class DraftScorer:
    """Finds the likeliest tokens of the target among all columns of the draft's logits."""

    def __init__(
        self, token_ids: np.ndarray, vocab: int, log_share: float = 0.0, positions: int = 64
    ) -> None:
        """token_ids int32[columns]: the target id of each column of the draft's logits, all
        different and below `vocab`, the target's size; log_share as in `ScoreTuple`; positions:
        noise rows to remember. Raises `ValueError`.
        """
        ids = np.ascontiguousarray(token_ids, dtype=np.int32)
        if ids.ndim != 1 or np.unique(ids).size != ids.size or ids.min() < 0 or ids.max() >= vocab:
            raise ValueError(f"token_ids must be different and in [0, {vocab})")
        if not log_share <= 0:
            raise ValueError(f"log_share {log_share} must be <= 0")
        self.noise = NoiseCache(ids, positions)
        self.compiled_noise = handle(self.noise.arrays)
        """The noise, for compiled code."""
        self._log_share = float(log_share)

    def rules(
        self, settings: Settings, error_scale: float, masked: np.ndarray | None = None
    ) -> Handle[ScoreRules]:
        """Return the rules of one request, to be used for all of its rows.

        error_scale in logits, `ValueError` unless it is above 0; masked bool[columns]: children
        that are not allowed.
        """
        if not error_scale > 0:
            raise ValueError(f"error_scale {error_scale} must be > 0")
        query = ScoreTuple(sampling_tuple(settings), float(error_scale), self._log_share)
        mask = _NO_MASK if masked is None else np.ascontiguousarray(masked, dtype=np.bool_)
        return handle(ScoreRules(query, mask))

    def score(
        self,
        logits: np.ndarray,
        positions: np.ndarray,
        rules: Handle[ScoreRules],
        k: int,
        out: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the best k children of each row: target ids int32[rows, k], float32 logprobs.

        Log-probabilities are log softmax((logit + T g) / error_scale) + log_share over the filtered
        columns, best first; equals by target id. At temperature 0 there is neither noise nor
        filter: the runners-up of a greedy row are worth drafting. Missing children are `NONE` with
        -inf. logits float32[rows, columns]; positions int32[rows]: where each child would stand.
        out: the arrays to return, of `children_of`; None makes new ones, and takes numbers of any
        type.
        """
        if out is None:
            out = children_of(logits.shape[0], k)
            logits, positions = logits.astype(np.float32), positions.astype(np.int32)
        if not logits.flags.c_contiguous:
            logits = np.ascontiguousarray(logits)
        score_rows(logits, positions, rules, self.compiled_noise, *out)
        return out


def children_of(rows: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return arrays for k children of each row: target ids int32[rows, k], float32 logprobs."""
    return np.empty((rows, k), np.int32), np.empty((rows, k), np.float32)


class PartScorer:
    """Finds the likeliest tokens among one rank's columns, for distributions without filters."""

    def __init__(self, token_ids: np.ndarray, positions: int = 64) -> None:
        """token_ids int32 [columns]: the target id of each; positions: noise rows to remember."""
        self.noise = NoiseCache(token_ids, positions)

    def tops(self, logits: np.ndarray, rows: PartRows) -> np.ndarray:
        """Return each row's largest logit that is allowed, float32 [rows]; -inf for none.

        logits float32 [rows, columns].
        """
        out = np.empty(len(logits), np.float32)
        _tops(logits, rows.masks, rows.mask, out)
        return out

    def score(self, logits: np.ndarray, rows: PartRows, top: np.ndarray, k: int) -> ScoredPart:
        """Score this rank's columns; top float32 [rows]: the largest of `tops` of all ranks."""
        count = len(logits)
        part = ScoredPart(
            np.empty((count, k), np.int32),
            np.empty((count, k), np.float32),
            np.empty(count, np.float32),
            np.empty(count, np.float64),
        )
        _score_part(logits, rows, top, self.noise.arrays, part)
        return part


def merged(parts: list[ScoredPart], log_share: float) -> tuple[np.ndarray, np.ndarray]:
    """Merge all ranks' parts: target ids int32 [rows, k] and float32 logprobs, best first.

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
    best_scores = np.take_along_axis(scores, order, axis=1).astype(np.float64)
    found = best_scores > -np.inf
    logprobs = np.where(
        found, np.minimum(best_scores - np.where(found, shift[:, None], 0.0), 0.0), -np.inf
    )
    ids = np.where(found, np.take_along_axis(tokens, order, axis=1), NONE)
    return ids.astype(np.int32), logprobs.astype(np.float32)


@njit(cache=True, nogil=True, error_model="numpy")
def score_rows(
    logits: np.ndarray,
    positions: np.ndarray,
    rules: Handle[ScoreRules],
    noise: Handle[NoiseRows],
    tokens: np.ndarray,
    logprobs: np.ndarray,
) -> None:
    """Score whole rows of one request; tokens int32 and logprobs float32 [rows, k] are results."""
    query, masked = rules.value
    columns = logits.shape[1]
    scores = np.empty(columns, np.float32)
    weights = np.empty(columns if query.sampling.top_p < 1.0 else 0, np.float32)
    for row in range(logits.shape[0]):
        tokens[row], logprobs[row] = NONE, -np.inf
        top = load(logits[row], masked, scores)
        if np.isfinite(top):
            _perturb(scores, top, query, positions[row], noise.value, weights)
            top = peak(scores)
            shift = np.float64(top) + np.log(total(scores, top)) - query.log_share
            best(scores, noise.value.token_ids, shift, tokens[row], logprobs[row])


@njit(cache=True, nogil=True, error_model="numpy")
def _score_part(
    logits: np.ndarray, rows: PartRows, top: np.ndarray, noise: NoiseRows, part: ScoredPart
) -> None:
    """Score one part of the columns of rows of any requests."""
    scores, weights = np.empty(logits.shape[1], np.float32), np.empty(0, np.float32)
    for row in range(logits.shape[0]):
        part.tokens[row], part.scores[row] = NONE, -np.inf
        part.peaks[row], part.totals[row] = -np.inf, 0.0
        if len(scores) == 0 or not np.isfinite(top[row]):
            continue
        load(logits[row], _mask_of(rows.masks, rows.mask[row]), scores)
        query = ScoreTuple(unfiltered(rows.settings[row]), rows.error_scales[row], 0.0)
        _perturb(scores, top[row], query, rows.positions[row], noise, weights)
        own = peak(scores)
        if own > -np.inf:
            part.peaks[row], part.totals[row] = own, total(scores, own)
            largest(scores, noise.token_ids, part.tokens[row], part.scores[row])


@njit(cache=True, nogil=True, error_model="numpy")
def _perturb(
    scores: np.ndarray,
    top: float,
    query: ScoreTuple,
    position: int,
    noise: NoiseRows,
    weights: np.ndarray,
) -> None:
    """Turn logits, in place, into (logit - top + T g) / error_scale, -inf for those filtered out.

    top: the row's largest logit; weights: scratch as of `filter_row`.
    """
    sampling = query.sampling
    if sampling.temperature == 0.0:
        divide(scores, top, query.error_scale)
        return
    filter_row(scores, top, sampling, weights)
    gumbel = noise.rows[cached_row(noise, sampling.seed, sampling.choice, position)]
    factor = np.float32(max(sampling.temperature, TEMPERATURE_FLOOR) / query.error_scale)
    for i in range(scores.shape[0]):
        scores[i] = (scores[i] + gumbel[i]) * factor


@njit(cache=True, nogil=True)
def _tops(logits: np.ndarray, masks: np.ndarray, mask: np.ndarray, out: np.ndarray) -> None:
    scratch = np.empty(logits.shape[1], np.float32)
    for row in range(logits.shape[0]):
        out[row] = -np.inf
        if len(scratch):
            out[row] = load(logits[row], _mask_of(masks, mask[row]), scratch)


@njit(cache=True, nogil=True)
def _mask_of(masks: np.ndarray, number: int) -> np.ndarray:
    """Return a row's mask, empty for `NOT_MASKED`."""
    return masks[number] if number >= 0 else np.zeros(0, np.bool_)
