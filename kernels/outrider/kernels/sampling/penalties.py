"""Changes logits by what their text holds already: penalties and biases (speculation.md, Dice).

Leaves the draw to `sampling` and `draft_scores`, the limits of the settings to whoever accepts a
request, and the rows' places in a tree to the engine. `reference_sampling.adjust` states the same
rules without the care for speed.

In this order, each step in fp64 and rounded to fp32 once: repetition (prompt and answer), then
frequency and presence (the answer alone), as one; then the bias. A row costs as much as its text
has different tokens.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numba import njit

SAME = np.zeros(0, np.int32)  # columns of logits in which every token has its own id


class Adjustments(Protocol):
    """What a request wants changed; 0, 0, 1 and nothing change nothing."""

    @property
    def frequency_penalty(self) -> float: ...
    @property
    def presence_penalty(self) -> float: ...
    @property
    def repetition_penalty(self) -> float: ...
    @property
    def logit_bias(self) -> Sequence[tuple[int, float]]: ...


class Adjuster:
    """One text's penalties and biases: counts its tokens as they come."""

    def __init__(self, vocab: int, settings: Adjustments) -> None:
        """vocab: token ids are below it."""
        self._penalties = (
            float(settings.frequency_penalty),
            float(settings.presence_penalty),
            float(settings.repetition_penalty),
        )
        self._bias_ids = np.array([token for token, _ in settings.logit_bias], np.int32)
        self._biases = np.array([bias for _, bias in settings.logit_bias], np.float64)
        self.penalises = self._penalties != (0.0, 0.0, 1.0)
        size = vocab if self.penalises else 0
        self._counts = np.zeros(size, np.int32)  # of each token in the answer
        self._listed = np.zeros(size, np.bool_)  # whether the text holds it
        self._ids = np.empty(size, np.int32)  # the tokens that it holds
        self._known = 0  # of them

    def add_prompt(self, tokens: np.ndarray) -> None:
        """Takes tokens that were given, not drawn; int32[n]."""
        if self.penalises:
            self._known = _add(tokens, 0, self._counts, self._listed, self._ids, self._known)

    def add_answer(self, tokens: np.ndarray) -> None:
        """Takes tokens that were drawn; int32[n]."""
        if self.penalises:
            self._known = _add(tokens, 1, self._counts, self._listed, self._ids, self._known)

    def adjust(self, logits: np.ndarray, paths: np.ndarray, columns: np.ndarray = SAME) -> None:
        """Adjusts each row in place for the text so far and the row's own path.

        logits float32[rows, columns], C-contiguous; paths int32[rows, deepest]: tokens drawn after
        the text so far, those of a shorter path followed by -1; columns int32[some ids]: the
        column of each token, -1 for none, and none for tokens beyond.
        """
        if self.penalises:
            _penalise(
                logits,
                np.ascontiguousarray(paths, np.int32),
                columns,
                *self._penalties,
                self._counts,
                self._listed,
                self._ids,
                self._known,
            )
        if self._biases.size:
            _bias(logits, columns, self._bias_ids, self._biases)


@njit(cache=True, nogil=True)
def _add(
    tokens: np.ndarray,
    drawn: int,
    counts: np.ndarray,
    listed: np.ndarray,
    ids: np.ndarray,
    known: int,
) -> int:
    """Counts tokens up to the first -1; returns how many different ones the text then holds."""
    for token in tokens:
        if token < 0:
            break
        counts[token] += drawn
        if not listed[token]:
            listed[token] = True
            ids[known] = token
            known += 1
    return known


@njit(cache=True, nogil=True)
def _take_back(
    path: np.ndarray,
    counts: np.ndarray,
    listed: np.ndarray,
    ids: np.ndarray,
    known: int,
    before: int,
) -> None:
    """Undoes an `_add` of drawn tokens to a text that held `before` different ones."""
    for token in path:
        if token < 0:
            break
        counts[token] -= 1
    for i in range(before, known):
        listed[ids[i]] = False


@njit(cache=True, nogil=True)
def _column(token: int, columns: np.ndarray, width: int) -> int:
    """Where a token's logit is; -1 for nowhere."""
    if columns.shape[0] == 0:
        return token if token < width else -1
    return columns[token] if token < columns.shape[0] else -1


@njit(cache=True, nogil=True)
def _penalise(
    logits: np.ndarray,
    paths: np.ndarray,
    columns: np.ndarray,
    frequency: float,
    presence: float,
    repetition: float,
    counts: np.ndarray,
    listed: np.ndarray,
    ids: np.ndarray,
    before: int,
) -> None:
    for row in range(logits.shape[0]):
        known = _add(paths[row], 1, counts, listed, ids, before)
        for i in range(known):
            at = _column(ids[i], columns, logits.shape[1])
            if at < 0:
                continue
            value, count = np.float64(logits[row, at]), counts[ids[i]]
            value = value / repetition if value > 0.0 else value * repetition
            value -= frequency * count + (presence if count > 0 else 0.0)
            logits[row, at] = np.float32(value)
        _take_back(paths[row], counts, listed, ids, known, before)


@njit(cache=True, nogil=True)
def _bias(
    logits: np.ndarray, columns: np.ndarray, bias_ids: np.ndarray, biases: np.ndarray
) -> None:
    for i in range(bias_ids.shape[0]):
        at = _column(bias_ids[i], columns, logits.shape[1])
        if at >= 0:
            for row in range(logits.shape[0]):
                logits[row, at] = np.float32(np.float64(logits[row, at]) + biases[i])
