"""Draws the target's tokens with dice that do not see the draft (speculation.md, Dice).

Leaves the noise to `dice`, which tokens may be drawn to `filters`, the limits of the settings to
whoever accepts a request, the tree to the engine, and ranks that each draw of their own tokens
to the worker. `reference_sampling` states the same rules
without the care for speed.

Perturbed sums are fp64.
"""

from typing import Protocol

import numpy as np
from numba import njit

from outrider.kernels.sampling.filters import TEMPERATURE_FLOOR, divide, filter_row, load
from outrider.kernels.sampling.philox import MAX_GUMBEL, MIN_GUMBEL, gumbel, gumbel_bound, noise_run
from outrider.kernels.sampling.vectors import peak

NONE = -1  # no token: a row without a finite maximum, or fewer columns than guesses asked for

_RUN = 1024  # tokens whose noise is drawn together
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
        top = load(logits[row], none_masked, scaled)
        if not np.isfinite(top):
            out[row] = NONE
        elif temperature == 0.0:
            out[row] = _first(scaled, top)
        else:
            filter_row(scaled, top, temperature, top_k, top_p, min_p, weights)
            out[row] = _winner(scaled, seed, choice, positions[row], 0)[0]


@njit(cache=True, nogil=True)
def tops(logits: np.ndarray, out: np.ndarray) -> None:
    """out float32[rows] = the largest number of each row; -inf where there is none."""
    held = np.empty(logits.shape[1], np.float32)
    none_masked = np.zeros(0, np.bool_)
    for row in range(logits.shape[0]):
        out[row] = load(logits[row], none_masked, held) if len(held) else np.float32(-np.inf)


@njit(cache=True, nogil=True)
def draw_part(
    logits: np.ndarray,
    top: np.ndarray,
    positions: np.ndarray,
    seeds: np.ndarray,
    choices: np.ndarray,
    temperatures: np.ndarray,
    first: int,
    out_tokens: np.ndarray,
    out_scores: np.ndarray,
) -> None:
    """What `draw` would draw of the tokens from `first` on, a multiple of 4, without filters.

    logits float32[rows, columns] of those tokens; top float32[rows] the largest of all tokens; the
    rest by row: uint64 seeds, int64 choices, fp64 temperatures and scores, int32 tokens. `NONE`,
    with -inf, where none of these can be drawn. Of all parts' tokens the one with the largest score
    is drawn, of equals the lowest: the same one, to the bit, that `draw` draws of the whole row.
    """
    scaled = np.empty(logits.shape[1], np.float32)
    none_masked = np.zeros(0, np.bool_)
    for row in range(logits.shape[0]):
        out_tokens[row], out_scores[row] = NONE, -np.inf
        if len(scaled) == 0 or not np.isfinite(top[row]):
            continue
        own = load(logits[row], none_masked, scaled)
        if temperatures[row] > 0.0:
            divide(scaled, top[row], max(temperatures[row], TEMPERATURE_FLOOR))
            seed, choice, position = seeds[row], choices[row], positions[row]
            out_tokens[row], out_scores[row] = _winner(scaled, seed, choice, position, first)
        elif own == top[row]:
            out_tokens[row], out_scores[row] = first + _first(scaled, own), 0.0


@njit(cache=True, nogil=True)
def _first(values: np.ndarray, top: float) -> int:
    """Index of the first of the values that equal their maximum, `top`."""
    first = 0
    while peak(values[first : first + _RUN]) < top:
        first += _RUN
    while values[first] < top:
        first += 1
    return first


@njit(cache=True, nogil=True)
def _winner(
    scaled: np.ndarray, seed: np.uint64, choice: int, position: int, token: int
) -> tuple[int, float]:
    """The token with the largest scaled logit + noise, and that sum; of all, the largest is 0.

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
        noise_run(seed, choice, position, token + first, counters, bits)
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
