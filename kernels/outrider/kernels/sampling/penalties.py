"""Changes to logits before temperature and filters: penalties, logit bias, forbidden tokens.

Rules: speculation.md, Sampling. Leaves sampling to `gumbel_max` and `draft_scores`, the limits of
the settings to whatever accepts requests, the rows' places in a tree and the masks of a grammar to
the engine. `reference.adjust` states the same rules without the care for speed.

In this order, each step in fp64 and rounded to fp32 once: repetition (prompt and answer), then
frequency and presence (the answer alone), as one; then the bias. What is forbidden is -inf then. A
row costs as much as its text has different tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numba import njit

SAME = np.zeros(0, np.int32)  # columns of logits in which every token has its own id


class Adjustments(Protocol):
    """Penalties, logit bias and forbidden tokens of a request; 0, 0, 1 and nothing change
    nothing."""

    @property
    def frequency_penalty(self) -> float: ...
    @property
    def presence_penalty(self) -> float: ...
    @property
    def repetition_penalty(self) -> float: ...
    @property
    def logit_bias(self) -> Sequence[tuple[int, float]]: ...
    @property
    def min_tokens(self) -> int: ...
    @property
    def late(self) -> Sequence[int]: ...
    @property
    def forbidden(self) -> Sequence[Sequence[int]]: ...
    @property
    def forced(self) -> Sequence[int]: ...


class Penalties(NamedTuple):
    """As in `Adjustments`."""

    frequency: float
    presence: float
    repetition: float


class TokenCounts(NamedTuple):
    """Tokens of one text, prompt and answer."""

    counts: np.ndarray  # int32 [vocab] times that the answer holds each token
    listed: np.ndarray  # bool [vocab] True if the text holds it
    ids: np.ndarray  # int32 [vocab] the tokens that it holds, `known` of them


class Forbidden(NamedTuple):
    """Tokens that may not come, as in `Adjustments`."""

    least: int  # tokens of the answer, among which none of `late` may be
    late: np.ndarray  # int32 [n]
    tokens: np.ndarray  # int32 [all] those of all sequences that the answer may not hold
    ends: np.ndarray  # int32 [sequences] where each ends among them
    forced: np.ndarray  # int32 [n] the first tokens of the answer, beside which none may come


class Adjuster:
    """Penalties, logit bias and forbidden tokens of one text: takes its tokens as they come."""

    def __init__(self, vocab: int, settings: Adjustments) -> None:
        """vocab: token ids are below it."""
        self._penalties = Penalties(
            float(settings.frequency_penalty),
            float(settings.presence_penalty),
            float(settings.repetition_penalty),
        )
        self._bias_ids = np.array([token for token, _ in settings.logit_bias], np.int32)
        self._biases = np.array([bias for _, bias in settings.logit_bias], np.float64)
        self.penalises = self._penalties != (0.0, 0.0, 1.0)
        size = vocab if self.penalises else 0
        self._text = TokenCounts(
            np.zeros(size, np.int32), np.zeros(size, np.bool_), np.empty(size, np.int32)
        )
        self._known = 0
        sequences = [np.array(sequence, np.int32) for sequence in settings.forbidden]
        self._forbidden = Forbidden(
            settings.min_tokens,
            np.array(settings.late, np.int32),
            np.concatenate([np.zeros(0, np.int32), *sequences]),
            np.cumsum([len(sequence) for sequence in sequences], dtype=np.int32),
            np.array(settings.forced, np.int32),
        )
        self._forbids = bool(sequences or settings.forced) or settings.min_tokens > 0
        self._answered = 0
        self._tail = np.zeros(0, np.int32)
        """Last tokens of the answer, in which a forbidden sequence may have begun."""
        self._longest = max(map(len, sequences), default=1) - 1

    def add_prompt(self, tokens: np.ndarray) -> None:
        """Count tokens of the prompt; int32[n]."""
        if self.penalises:
            self._known = _add(tokens, 0, self._text, self._known)

    def add_answer(self, tokens: np.ndarray) -> None:
        """Count tokens of the answer; int32[n]."""
        if self.penalises:
            self._known = _add(tokens, 1, self._text, self._known)
        if self._forbids:
            self._answered += len(tokens)
            tail = np.concatenate([self._tail, tokens])
            self._tail = tail[max(0, len(tail) - self._longest) :]

    def adjust(self, logits: np.ndarray, paths: np.ndarray, columns: np.ndarray = SAME) -> None:
        """Adjust each row in place for the text so far and the row's own path.

        logits float32[rows, columns], C-contiguous; paths int32[rows, deepest]: tokens after the
        text so far, those of a shorter path followed by -1; columns int32[some ids]: the column of
        each token, -1 for none, and none for tokens beyond.
        """
        paths = np.ascontiguousarray(paths, np.int32)
        if self.penalises:
            _penalise(logits, paths, columns, self._penalties, self._text, self._known)
        if self._biases.size:
            _bias(logits, columns, self._bias_ids, self._biases)
        if self._forbids:
            _drop_forbidden(logits, paths, columns, self._forbidden, self._tail, self._answered)


@njit(cache=True, nogil=True)
def forbid(row: np.ndarray, bits: np.ndarray) -> None:
    """Write -inf for every token whose bit is 0, in place; tokens without a bit are forbidden.

    row float32[vocab]; bits uint8[bytes]: token t is bit t % 8, the lowest first, of byte t // 8.
    """
    for token in range(row.shape[0]):
        byte = token >> 3
        allowed = byte < bits.shape[0] and (bits[byte] >> (token & 7)) & 1
        row[token] = row[token] if allowed else -np.inf


@njit(cache=True, nogil=True)
def _add(tokens: np.ndarray, answered: int, text: TokenCounts, known: int) -> int:
    """Count tokens up to the first -1; returns how many different ones the text then holds."""
    counts, listed, ids = text.counts, text.listed, text.ids
    for token in tokens:
        if token < 0:
            break
        counts[token] += answered
        if not listed[token]:
            listed[token] = True
            ids[known] = token
            known += 1
    return known


@njit(cache=True, nogil=True)
def _take_back(path: np.ndarray, text: TokenCounts, known: int, before: int) -> None:
    """Undo an `_add` of an answer's tokens to a text that held `before` different ones."""
    counts, listed, ids = text.counts, text.listed, text.ids
    for token in path:
        if token < 0:
            break
        counts[token] -= 1
    for i in range(before, known):
        listed[ids[i]] = False


@njit(cache=True, nogil=True)
def _column(token: int, columns: np.ndarray, width: int) -> int:
    """Return the column of a token's logit, or -1."""
    if columns.shape[0] == 0:
        return token if token < width else -1
    return columns[token] if token < columns.shape[0] else -1


@njit(cache=True, nogil=True)
def _penalise(
    logits: np.ndarray,
    paths: np.ndarray,
    columns: np.ndarray,
    penalties: Penalties,
    text: TokenCounts,
    before: int,
) -> None:
    counts, ids = text.counts, text.ids
    for row in range(logits.shape[0]):
        known = _add(paths[row], 1, text, before)
        for i in range(known):
            at = _column(ids[i], columns, logits.shape[1])
            if at < 0:
                continue
            value, count = np.float64(logits[row, at]), counts[ids[i]]
            value = value / penalties.repetition if value > 0.0 else value * penalties.repetition
            value -= penalties.frequency * count + (penalties.presence if count > 0 else 0.0)
            logits[row, at] = np.float32(value)
        _take_back(paths[row], text, known, before)


@njit(cache=True, nogil=True)
def _bias(
    logits: np.ndarray, columns: np.ndarray, bias_ids: np.ndarray, biases: np.ndarray
) -> None:
    for i in range(bias_ids.shape[0]):
        at = _column(bias_ids[i], columns, logits.shape[1])
        if at >= 0:
            for row in range(logits.shape[0]):
                logits[row, at] = np.float32(np.float64(logits[row, at]) + biases[i])


@njit(cache=True, nogil=True)
def _drop_forbidden(
    logits: np.ndarray,
    paths: np.ndarray,
    columns: np.ndarray,
    forbidden: Forbidden,
    tail: np.ndarray,
    answered: int,
) -> None:
    """Write -inf for what may not follow the answer, which ends with `tail`, and each path."""
    text = np.empty(tail.shape[0] + paths.shape[1], np.int32)
    text[: tail.shape[0]] = tail
    for row in range(logits.shape[0]):
        length = tail.shape[0]
        for token in paths[row]:
            if token < 0:
                break
            text[length] = token
            length += 1
        place = answered + length - tail.shape[0]
        if place < forbidden.forced.shape[0]:
            logits[row] = -np.inf
            at = _column(forbidden.forced[place], columns, logits.shape[1])
            if at >= 0:
                logits[row, at] = 0.0
            continue
        if place < forbidden.least:
            for token in forbidden.late:
                _drop(logits, row, token, columns)
        begin = 0
        for end in forbidden.ends:
            if _ends_with(text[:length], forbidden.tokens[begin : end - 1]):
                _drop(logits, row, forbidden.tokens[end - 1], columns)
            begin = end


@njit(cache=True, nogil=True)
def _ends_with(text: np.ndarray, last: np.ndarray) -> bool:
    before = text.shape[0] - last.shape[0]
    return before >= 0 and np.array_equal(text[before:], last)


@njit(cache=True, nogil=True)
def _drop(logits: np.ndarray, row: int, token: int, columns: np.ndarray) -> None:
    at = _column(token, columns, logits.shape[1])
    if at >= 0:
        logits[row, at] = -np.inf
