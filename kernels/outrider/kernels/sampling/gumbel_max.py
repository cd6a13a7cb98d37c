"""Samples the target's tokens by Gumbel-max, with noise that does not see the draft.

Rules: speculation.md, Sampling. Leaves the noise to `philox`, filters to `filters`, the limits of
the settings to whatever accepts requests, the tree and what travels between ranks to the worker.
`reference` states the same rules without the care for speed. Perturbed sums are fp64.
"""

from typing import Any, Protocol

import numpy as np
from numba import njit

from outrider.kernels.jit.by_address import ByAddress
from outrider.kernels.jit.handle import Handle, handle
from outrider.kernels.sampling.filters import SamplingTuple, filter_row, load, peak
from outrider.kernels.sampling.philox import MAX_GUMBEL, MIN_GUMBEL, gumbel, gumbel_bound, noise_run

NONE = -1  # no token: a row without a finite maximum, or fewer columns than children asked for

_RUN = 1024  # tokens whose noise is computed together
_KEPT_SETTINGS = 256  # of so many requests at most, as compiled code takes them
_NEGLIGIBLE = 1e-3  # more than the rounding of an fp32 bound on a perturbed logit


class Settings(Protocol):
    """Sampling params of a request; 0, 0, 1, 0 and any seed are greedy and unfiltered."""

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


def sampling_tuple(settings: Settings) -> SamplingTuple:
    """Convert settings to what compiled code takes."""
    return SamplingTuple(
        float(settings.temperature),
        settings.top_k,
        float(settings.top_p),
        float(settings.min_p),
        np.uint64(settings.seed),
        settings.choice,
    )


class Sampler:
    """Samples the target's tokens from whole rows of logits."""

    def __init__(self, vocab: int) -> None:
        """vocab: columns of the logits that are tokens; columns after them are padding."""
        self.vocab = vocab
        self._handles: dict[int, tuple[Settings, Handle[SamplingTuple]]] = {}

    def sample(self, logits: np.ndarray, positions: np.ndarray, settings: Settings) -> np.ndarray:
        """Return the token of each row, int32[rows]; `NONE` where no maximum is finite.

        logits float32[rows, >= vocab]; positions int64[rows]: where each row's token will stand.
        """
        out = np.empty(logits.shape[0], np.int32)
        sample(
            np.ascontiguousarray(logits[:, : self.vocab], dtype=np.float32),
            np.ascontiguousarray(positions, dtype=np.int64),
            sampling_tuple(settings),
            out,
        )
        return out

    def sample_after(
        self,
        logits: np.ndarray,
        positions: np.ndarray,
        outputs: np.ndarray,
        settings: Settings,
        out: np.ndarray,
    ) -> None:
        """out int32[outputs] = what `sample` returns for the tokens after rows of a pass.

        logits float32[outputs, vocab], C-contiguous; positions int32[rows] of all rows; outputs
        int32[outputs] those whose logits they are; settings: the same object for all of a request.
        """
        _sample_after(logits, positions, outputs, self.compiled(settings), out)

    def compiled(self, settings: Settings) -> Handle[SamplingTuple]:
        """Return settings as compiled code takes them; made once for each object."""
        known = self._handles.get(id(settings))
        if known is None:
            if len(self._handles) >= _KEPT_SETTINGS:
                self._handles.clear()
            known = self._handles[id(settings)] = settings, handle(sampling_tuple(settings))
        return known[1]


@njit(cache=True, nogil=True)
def sample(
    logits: np.ndarray, positions: np.ndarray, sampling: SamplingTuple, out: np.ndarray
) -> None:
    """Sample each row by Gumbel-max over its filtered distribution; temperature 0: argmax.

    logits float32[rows, vocab], C-contiguous; positions int64[rows]; out int32[rows]. Ties go to
    the lowest id; NaN never wins; a row whose maximum is not finite gets `NONE`.
    """
    greedy = sampling.temperature == 0.0
    scaled = np.empty(0 if greedy else logits.shape[1], np.float32)
    weights = np.empty(logits.shape[1] if sampling.top_p < 1.0 else 0, np.float32)
    no_mask = np.zeros(0, np.bool_)
    for row in range(logits.shape[0]):
        if greedy:
            out[row] = _argmax(logits[row])
        else:
            top = load(logits[row], no_mask, scaled)
            out[row] = _sample_row(scaled, top, sampling, positions[row], 0, weights)[0]


def sample_by_address() -> ByAddress:
    """Return `sample`, for compiled code to call by its address."""
    logits, positions = np.empty((0, 0), np.float32), np.empty(0, np.int64)
    greedy = SamplingTuple(0.0, 0, 1.0, 0.0, np.uint64(0), 0)
    return ByAddress(sample, logits, positions, greedy, np.empty(0, np.int32))


@njit(cache=True, nogil=True)
def _sample_after(
    logits: np.ndarray,
    positions: np.ndarray,
    outputs: np.ndarray,
    sampling: Handle[SamplingTuple],
    out: np.ndarray,
) -> None:
    following = np.empty(outputs.shape[0], np.int64)
    for i in range(outputs.shape[0]):
        following[i] = np.int64(positions[outputs[i]]) + 1
    sample(logits, following, sampling.value, out)


@njit(cache=True, nogil=True)
def _argmax(logits: np.ndarray) -> int:
    """Return the index of a row's largest number, the first of equals; `NONE` if it is not finite.

    Copies nothing unless the row has a NaN that would win.
    """
    values = logits
    top, first = _best_run(values)
    if np.isnan(top):
        values = np.empty(logits.shape[0], np.float32)
        load(logits, np.zeros(0, np.bool_), values)
        top, first = _best_run(values)
    return first + _index_of(values[first:], top) if np.isfinite(top) else NONE


@njit(cache=True, nogil=True)
def _best_run(values: np.ndarray) -> tuple[np.float32, int]:
    """Return a row's largest number and where the first run that has it begins; or a NaN."""
    top, first = np.float32(-np.inf), 0
    for begin in range(0, values.shape[0], _RUN):
        of_run = np.float32(peak(values[begin : begin + _RUN]))
        if np.isnan(of_run):
            return of_run, begin
        if of_run > top:
            top, first = of_run, begin
    return top, first


@njit(cache=True, nogil=True)
def tops(logits: np.ndarray, out: np.ndarray) -> None:
    """out float32[rows] = the largest number of each row; -inf where there is none."""
    scratch = np.empty(logits.shape[1], np.float32)
    no_mask = np.zeros(0, np.bool_)
    for row in range(logits.shape[0]):
        out[row] = load(logits[row], no_mask, scratch) if len(scratch) else np.float32(-np.inf)


@njit(cache=True, nogil=True)
def sample_part(
    logits: np.ndarray,
    top: np.ndarray,
    positions: np.ndarray,
    settings: np.ndarray,
    first: int,
    out_tokens: np.ndarray,
    out_scores: np.ndarray,
) -> None:
    """Apply `sample` to the tokens from `first` on, a multiple of 4, without filters.

    logits float32[rows, columns] of those tokens; top float32[rows] the largest of all tokens;
    positions as of `sample`; settings: [rows] records with seed, choice and temperature; out_tokens
    int32[rows] and out_scores float64[rows], `NONE` with -inf where none of these tokens can be
    sampled. Of all parts' tokens the one with the largest score is sampled, of equals the lowest:
    the same one, to the bit, that `sample` finds in the whole row.
    """
    scaled, weights = np.empty(logits.shape[1], np.float32), np.empty(0, np.float32)
    no_mask = np.zeros(0, np.bool_)
    for row in range(logits.shape[0]):
        load(logits[row], no_mask, scaled)
        out_tokens[row], out_scores[row] = _sample_row(
            scaled, top[row], unfiltered(settings[row]), positions[row], first, weights
        )


@njit(cache=True, nogil=True)
def unfiltered(settings: Any) -> SamplingTuple:
    """Return the sampling params of a record, without filters."""
    choice: Any = np.int64(settings.choice)
    return SamplingTuple(settings.temperature, 0, 1.0, 0.0, settings.seed, choice)


@njit(cache=True, nogil=True)
def _sample_row(
    scaled: np.ndarray,
    top: float,
    sampling: SamplingTuple,
    position: int,
    first: int,
    weights: np.ndarray,
) -> tuple[int, float]:
    """Return the best of some columns' tokens and its score, comparable between parts of a row.

    scaled: their logits, without NaN, replaced by scaled ones; top: the largest logit of the whole
    row; first: the token of scaled[0]; weights: scratch as of `filter_row`. `NONE` and -inf if
    there is none.
    """
    if not np.isfinite(top):
        return NONE, -np.inf
    if sampling.temperature == 0.0:
        index = _index_of(scaled, top)
        return (first + index, 0.0) if index != NONE else (NONE, -np.inf)
    filter_row(scaled, top, sampling, weights)
    winner: tuple[int, float] = _winner(scaled, sampling, position, first)
    return winner


@njit(cache=True, nogil=True)
def _index_of(values: np.ndarray, top: float) -> int:
    """Return the index of the first value that equals `top`, which none exceeds; else `NONE`.

    Negative NaNs may be among the values.
    """
    first = 0
    while first < values.shape[0] and peak(values[first : first + _RUN]) < top:
        first += _RUN
    if first >= values.shape[0]:
        return NONE
    while values[first] != top:  # a NaN is not less than it
        first += 1
    return first


@njit(cache=True, nogil=True)
def _winner(
    scaled: np.ndarray, sampling: SamplingTuple, position: int, token: int
) -> tuple[int, float]:
    """Return the token with the largest scaled logit + noise, and that sum; the top logit is 0.

    `token` is the id of scaled[0]. Three sieves before a logarithm is taken: what the largest noise
    could not lift (a run costs no noise then), what a bound of its own noise does not lift, what
    was beaten meanwhile.
    """
    counters = np.empty((4, _RUN // 4), np.uint32)
    bits = np.empty(_RUN, np.uint32)
    bounds = np.empty(_RUN, np.float32)
    best, winner = MIN_GUMBEL, NONE
    for first in range(0, scaled.shape[0], _RUN):
        run = scaled[first : first + _RUN]
        if peak(run) + MAX_GUMBEL + _NEGLIGIBLE < best:
            continue
        noise_run(sampling.seed, sampling.choice, position, token + first, counters, bits)
        length = run.shape[0]
        for i in range(length):
            bounds[i] = run[i] + gumbel_bound(bits[i])
        if peak(bounds[:length]) + _NEGLIGIBLE < best:
            continue
        for i in range(length):
            if bounds[i] + _NEGLIGIBLE >= best:
                score = np.float64(run[i]) + np.float64(gumbel(bits[i]))
                if score > best:
                    best, winner = score, token + first + i
    return winner, best if winner != NONE else -np.inf
