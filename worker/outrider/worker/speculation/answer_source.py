"""Answer source: draft tokens from what followed the end of the text in finished answers.

For what is asked again and again by one caller: the same code, the same form. Leaves the answers to
`answer_index`, how far to trust what it says to `acceptance`.
"""

import math

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.worker.speculation.answer_index import (
    MAX_PLACES,
    SEPARATOR,
    AnswerIndex,
    TextPlaces,
    find,
    token_at,
)
from outrider.worker.speculation.frontier import (
    MAX_FRONTIER,
    Frontier,
    FrontierPlace,
    add,
    best_of,
    new_frontier,
    remove,
)
from outrider.worker.speculation.suffix_source import DOUBT
from outrider.worker.tree.growth import Floats, Ints
from outrider.worker.tree.walk import ROOT


@njit()
def answered(
    index: AnswerIndex, tokens: Ints, length: int, most: int, deepest: int
) -> tuple[Ints, Ints, Floats]:
    """Return up to `most` nodes to hang on the root, the last of `length` committed tokens; as
    `suffix_source.proposals`.

    A node's estimate is its share of what followed, each place by the tokens that match there, less
    where those are few.
    """
    parents, ids = np.empty(most, np.int32), np.empty(most, np.int32)
    logprobs, count = np.empty(most, np.float32), 0
    places = TextPlaces(np.empty(MAX_PLACES, np.int64), np.empty(MAX_PLACES, np.int32))
    known = find(index, tokens, length, places)
    if known == 0:
        return parents[:0], ids[:0], logprobs[:0]
    frontier = new_frontier()
    waiting = _expand(index, places, frontier, 0, FrontierPlace((1 << known) - 1, ROOT, 0, 0.0))
    while count < most and waiting > 0:
        best = best_of(frontier, waiting)
        name, depth, score = frontier.name[best], frontier.depth[best], frontier.score[best]
        parents[count], ids[count] = frontier.above[best], _token(index, places, name, depth)
        logprobs[count] = frontier.estimate[best]
        waiting = remove(frontier, best, waiting)
        if depth < deepest:
            place = FrontierPlace(int(name), count, int(depth), float(score))
            waiting = _expand(index, places, frontier, waiting, place)
        count += 1
    return parents[:count], ids[:count], logprobs[:count]


@njit()
def _expand(
    index: AnswerIndex, places: TextPlaces, frontier: Frontier, waiting: int, above: FrontierPlace
) -> int:
    """Add what followed a node to the continuations that wait; return how many do then.

    A node's name is the set of places at which its path follows, a bit each.
    """
    rest, total, longest = above.name, 0, 0
    for at in range(MAX_PLACES):
        if rest >> at & 1:
            total += places.matched[at]
            longest = max(longest, places.matched[at])
    trust = math.log((longest + above.depth) / (longest + above.depth + DOUBT))
    for at in range(MAX_PLACES):
        if not rest >> at & 1 or waiting == MAX_FRONTIER:
            continue
        token, same, weight = token_at(index, places.place[at] + above.depth + 1), 0, 0
        for other in range(at, MAX_PLACES):
            there = places.place[other] + above.depth + 1
            if rest >> other & 1 and token_at(index, there) == token:
                same |= 1 << other
                weight += places.matched[other]
        rest ^= same
        if token != SEPARATOR:
            estimate = trust + math.log(weight / total)
            waiting = add(frontier, waiting, same, above, estimate)
    return waiting


@njit()
def _token(index: AnswerIndex, places: TextPlaces, name: int, depth: int) -> int:
    """Return the last token of a path that follows at a set of places."""
    at = 0
    while not name >> at & 1:
        at += 1
    return int(token_at(index, places.place[at] + depth))
