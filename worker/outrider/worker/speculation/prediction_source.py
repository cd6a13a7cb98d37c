"""Prediction source: draft tokens from the answer that a client expects.

Indexed whole before the first step, for one request alone and apart from its prompt, so that no
match runs over its borders. Leaves how far to trust what it says to `acceptance`.
"""

import math
from typing import NamedTuple

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.worker.speculation.suffix_automaton import (
    NONE,
    START,
    SuffixTables,
    append,
    edge_of,
)
from outrider.worker.speculation.suffix_source import DOUBT
from outrider.worker.tree.growth import Floats, Ids, Ints
from outrider.worker.tree.mirror_table import PREDICTION, ROOT_POSITION, MirrorTables, add_proposals
from outrider.worker.tree.walk import ROOT

SURE = 4
"""Tokens of a match after which the answer is where the prediction has them, and nowhere else."""
NEAR = 256
"""Tokens after the last such place in which a match is looked for before it is anywhere else."""
MOST_COMPARED = 32
"""Tokens of a match that are compared there."""
BEGINNING = 8.0
"""Tokens that the beginning of both texts counts for, as a match."""
GUESS = 0.5
"""Tokens that the last sure place counts for, where nothing matches."""
STATE, MATCHED, PLACE, SURE_PLACE, BEGAN, FOLLOWED = range(6)
"""Places in `Prediction.numbers`: the automaton's state of the longest end of the answer that it
knows and how many tokens that is, the place after it, the place after the last `SURE` match; the
positions of the answer's first token and of the next one to follow."""


class Prediction(NamedTuple):
    """An expected answer, and how far the answer has come in it; a *place* is the number of tokens
    before it."""

    tokens: Ints
    automaton: SuffixTables
    numbers: Ids

    @classmethod
    def of(cls, tokens: Ints, began: int) -> "Prediction":
        """Lay out the arrays for a prediction of the tokens from position `began` on; nothing is
        indexed yet, so that one that waits takes no memory."""
        count = len(tokens)
        numbers = np.array([START, 0, 0, 0, began, began], np.int64)
        return cls(np.ascontiguousarray(tokens), SuffixTables.empty(count, count), numbers)


@njit()
def index_prediction(prediction: Prediction) -> None:
    """Index all of it."""
    for token in prediction.tokens:
        append(prediction.automaton, token)


@njit()
def add_predicted(mirror: MirrorTables, prediction: Prediction, most: int, deepest: int) -> int:
    """Follow the answer, and add to the tree up to `most` nodes that the prediction has after it,
    none deeper than `deepest`; return how many are new."""
    length = mirror.numbers[ROOT_POSITION] + 1
    for position in range(prediction.numbers[FOLLOWED], length):
        _follow(prediction, mirror.tokens[position])
    parents, tokens, logprobs = _predicted(prediction, min(most, deepest))
    return int(add_proposals(mirror, parents, tokens, logprobs, PREDICTION))


@njit()
def _predicted(prediction: Prediction, most: int) -> tuple[Ints, Ints, Floats]:
    """Return a path of up to `most` nodes, as `suffix_source.proposals`: what follows the longest
    end of the answer; where that has no end in the prediction, what follows the last sure place."""
    numbers = prediction.numbers
    place, matched = numbers[PLACE], numbers[MATCHED] + GUESS
    if place == numbers[FOLLOWED] - numbers[BEGAN]:  # the answer is the prediction so far
        matched += BEGINNING
    tokens = prediction.tokens[place : place + most]
    logprobs = np.empty(tokens.shape[0], np.float32)
    for i in range(tokens.shape[0]):
        logprobs[i] = math.log((matched + i) / (matched + i + DOUBT))
    parents = np.arange(ROOT, ROOT + tokens.shape[0]).astype(np.int32)
    return parents, tokens, logprobs


@njit()
def _follow(prediction: Prediction, token: int) -> None:
    """Move on by one token of the answer."""
    tokens, numbers = prediction.tokens, prediction.numbers
    place = numbers[PLACE]
    _match(prediction, token)
    if place < tokens.shape[0] and tokens[place] == token:
        numbers[PLACE] = place + 1  # the longest match goes on here, if it goes on anywhere
    else:
        numbers[PLACE] = _place_of_match(prediction)
    if numbers[MATCHED] >= SURE:
        numbers[SURE_PLACE] = numbers[PLACE]
    numbers[FOLLOWED] += 1


@njit()
def _match(prediction: Prediction, token: int) -> None:
    """Find the longest end of the answer in the prediction, now that it ends with `token`."""
    known, numbers = prediction.automaton, prediction.numbers
    state, matched = numbers[STATE], numbers[MATCHED]
    edge = edge_of(known, state, token)
    while edge == NONE and state != START:
        state = known.link[state]
        matched = known.length[state]
        edge = edge_of(known, state, token)
    if edge != NONE:
        state, matched = known.target[edge], matched + 1
    numbers[STATE], numbers[MATCHED] = state, matched


@njit()
def _place_of_match(prediction: Prediction) -> int:
    """Return the place after the longest match: of several the next after the last sure place, if
    it is near, else the first."""
    numbers, count = prediction.numbers, prediction.tokens.shape[0]
    sure, matched = numbers[SURE_PLACE], numbers[MATCHED]
    if matched == 0:
        return int(sure)
    first = prediction.automaton.first[numbers[STATE]]
    for place in range(max(sure + 1, matched), min(sure + NEAR, count) + 1):
        if _same(prediction.tokens, place, first, min(matched, MOST_COMPARED)):
            return int(place)
    return int(first)


@njit()
def _same(tokens: Ints, one: int, other: int, count: int) -> bool:
    """True if so many tokens before two places are the same."""
    for back in range(1, count + 1):  # noqa: SIM110, numba compiles no generators into all()
        if tokens[one - back] != tokens[other - back]:
            return False
    return True
