"""Index of finished answers: where the last tokens of a text stand in them.

A ring of tokens, and for each `GRAM` of them in a row a chain from the newest place to older ones.
To write an answer takes the same time whatever is there already, and a newer one overwrites the
oldest. Leaves whose answers they are to `target/finished_answers`, what is proposed from them to
`answer_source`.
"""

from typing import NamedTuple

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.worker.tree.growth import Ids, Ints

ROOM = 32768
"""Tokens of one index, at 28 bytes each; a power of two."""
GRAM = 4
"""Tokens that a text and an answer must have in common."""
MAX_PLACES = 8
"""Most places that are weighed against each other."""
MOST_LOOKED_AT = 32
"""Most places that are looked at: the newest ones."""
MOST_MATCHED = 32
"""Tokens that are compared at a place."""
NO_PLACE = -1
SEPARATOR = -1
"""Mark between two answers; no token."""
FACTOR = np.uint64(0x9E3779B97F4A7C15)


class AnswerIndex(NamedTuple):
    """All arrays of one index; none has an entry where it is not in use.

    A *place* counts the tokens before it that were ever written; in the arrays it is taken modulo
    the room.
    """

    tokens: Ints
    """[room] answers, each behind a `SEPARATOR`."""
    older: Ids
    """[room] the next older place at which the same `GRAM` tokens end, or `NO_PLACE`."""
    newest: Ids
    """[slots, twice the room] the newest place, by the hash of the tokens that end there."""
    written: Ids
    """[1] tokens so far: the next place."""

    @classmethod
    def empty(cls, room: int) -> "AnswerIndex":
        """Return an index of so many tokens, a power of two; 0: nothing is kept or found."""
        older, newest = np.full(room, NO_PLACE, np.int64), np.full(2 * room, NO_PLACE, np.int64)
        return cls(np.zeros(room, np.int32), older, newest, np.zeros(1, np.int64))


NO_ANSWERS = AnswerIndex.empty(0)
"""Index of a request that may not look anything up."""


class TextPlaces(NamedTuple):
    """Where the last tokens of a text stand, longest match first."""

    place: Ids
    """Place of the last token of each match, longest match first, [MAX_PLACES]."""
    matched: Ints
    """Tokens of each match, longest match first, [MAX_PLACES]."""


@njit()
def write(index: AnswerIndex, tokens: Ints, first: int, end: int) -> None:
    """Write an answer, `tokens[first:end]`; of a long one the end, half as long as the room."""
    room = index.tokens.shape[0]
    if room == 0:
        return
    first = max(first, end - room // 2)
    _append(index, SEPARATOR)
    for position in range(first, end):
        place = _append(index, tokens[position])
        if position - first + 1 >= GRAM:
            slot = _slot(index, tokens, position + 1)
            index.older[place & (room - 1)] = index.newest[slot]
            index.newest[slot] = place


@njit()
def token_at(index: AnswerIndex, place: int) -> int:
    """Return the token at a place; `SEPARATOR` where nothing is written yet."""
    if place >= index.written[0]:
        return SEPARATOR
    return int(index.tokens[place & (index.tokens.shape[0] - 1)])


@njit()
def find(index: AnswerIndex, tokens: Ints, length: int, places: TextPlaces) -> int:
    """Fill in where the last tokens of a text of so many stand; return the number of places."""
    room, count = index.tokens.shape[0], 0
    if room == 0 or length < GRAM:
        return 0
    oldest = max(0, index.written[0] - room)
    place = index.newest[_slot(index, tokens, length)]
    for _ in range(MOST_LOOKED_AT):
        if place < oldest + GRAM - 1:  # none, or overwritten
            break
        most = min(place - oldest + 1, MOST_MATCHED)
        matched = _matched(index, place, tokens[max(0, length - most) : length])
        if matched >= GRAM:  # other tokens may have the same hash
            count = _keep(places, count, place, matched)
        place = index.older[place & (room - 1)]
    return count


@njit()
def _append(index: AnswerIndex, token: int) -> int:
    """Write one token, which ends no known tokens yet; return its place."""
    place = index.written[0]
    at = place & (index.tokens.shape[0] - 1)
    index.tokens[at], index.older[at] = token, NO_PLACE
    index.written[0] = place + 1
    return int(place)


@njit()
def _matched(index: AnswerIndex, place: int, tokens: Ints) -> int:
    """Return how many of the last tokens are also those that end at a place."""
    count, mask = tokens.shape[0], index.tokens.shape[0] - 1
    for same in range(count):
        if index.tokens[(place - same) & mask] != tokens[count - 1 - same]:
            return same
    return int(count)


@njit()
def _keep(places: TextPlaces, count: int, place: int, matched: int) -> int:
    """Add a place to so many, if it is among the longest matches; return how many there are then.

    Of equals the first stays ahead.
    """
    at = count
    if count == MAX_PLACES:
        at -= 1
        if places.matched[at] >= matched:
            return count
    while at > 0 and places.matched[at - 1] < matched:
        places.place[at], places.matched[at] = places.place[at - 1], places.matched[at - 1]
        at -= 1
    places.place[at], places.matched[at] = place, matched
    return min(count + 1, MAX_PLACES)


@njit()
def _slot(index: AnswerIndex, tokens: Ints, end: int) -> int:
    """Return where the newest place of the `GRAM` tokens before `end` is kept."""
    mixed = np.uint64(0)
    for position in range(end - GRAM, end):
        mixed = (mixed ^ np.uint64(tokens[position])) * FACTOR
    return int(np.int64(mixed >> np.uint64(32)) & (index.newest.shape[0] - 1))
