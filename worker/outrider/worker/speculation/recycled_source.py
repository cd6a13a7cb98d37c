"""Recycled source: draft tokens from the likeliest tokens of rows that were verified before.

After Token Recycling (Luo et al., 2024, arXiv 2408.08696): for each token the likeliest tokens
after its last row, whether that row's node was accepted or not. The table is one request's, so that
no text can be timed against another's, and its size is fixed: a newer token overwrites an older
one. Leaves finding the likeliest to the runner, how far to trust them to `acceptance`.
"""

import math
from typing import NamedTuple

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.worker.speculation.frontier import (
    MAX_FRONTIER,
    Frontier,
    Place,
    add,
    best_of,
    new_frontier,
    remove,
)
from outrider.worker.tree.growth import Floats, Ints
from outrider.worker.tree.walk import ROOT

LIKELIEST = 8
"""Tokens kept of each row."""
MAX_SLOTS = 4096
"""Tokens whose rows one table holds, at 68 bytes each."""
NO_TOKEN = -1
FACTOR = np.uint64(0x9E3779B97F4A7C15)


class RecycledTable(NamedTuple):
    """The likeliest tokens after the last row of each token."""

    token: Ints
    """[slots, a power of two] whose row it was, or `NO_TOKEN`."""
    following: Ints
    """[slots, LIKELIEST] likeliest first; `NO_TOKEN` where there are no more."""
    estimate: Floats
    """[slots, LIKELIEST] natural logarithm of each one's share among them."""

    @classmethod
    def empty(cls, tokens: int) -> "RecycledTable":
        """Return a table for an answer of so many tokens; 0: it holds none at all."""
        slots = 1 << min(MAX_SLOTS, 2 * tokens).bit_length() - 1 if tokens else 0
        shape = slots, LIKELIEST
        return cls(
            np.full(slots, NO_TOKEN, np.int32),
            np.empty(shape, np.int32),
            np.empty(shape, np.float32),
        )


@njit()
def note(table: RecycledTable, token: int, likeliest: Ints, logits: Floats) -> None:
    """Write down the likeliest tokens of a row of `token`, and their logits, likeliest first."""
    if table.token.shape[0] == 0:
        return
    slot, total = _slot(table, token), 0.0
    for i in range(LIKELIEST):
        if likeliest[i] != NO_TOKEN:
            total += math.exp(logits[i] - logits[0])
    table.token[slot] = token
    for i in range(LIKELIEST):
        table.following[slot, i] = likeliest[i]
        table.estimate[slot, i] = logits[i] - logits[0] - math.log(total) if total > 0 else 0.0


@njit()
def recycled(table: RecycledTable, root: int, most: int, deepest: int) -> tuple[Ints, Ints, Floats]:
    """Return up to `most` nodes to hang on the root, a token; as `suffix_source.proposals`."""
    parents, tokens = np.empty(most, np.int32), np.empty(most, np.int32)
    logprobs, count = np.empty(most, np.float32), 0
    if table.token.shape[0] == 0:
        return parents[:0], tokens[:0], logprobs[:0]
    frontier = new_frontier()
    waiting = _expand(table, frontier, 0, Place(root, ROOT, 0, 0.0))
    while count < most and waiting > 0:
        best = best_of(frontier, waiting)
        token, depth, score = frontier.name[best], frontier.depth[best], frontier.score[best]
        parents[count], tokens[count] = frontier.above[best], token
        logprobs[count] = frontier.estimate[best]
        waiting = remove(frontier, best, waiting)
        if depth < deepest:
            place = Place(int(token), count, int(depth), float(score))
            waiting = _expand(table, frontier, waiting, place)
        count += 1
    return parents[:count], tokens[:count], logprobs[:count]


@njit()
def _expand(table: RecycledTable, frontier: Frontier, waiting: int, place: Place) -> int:
    """Add what may follow a place, a token, to those that wait; return how many do then."""
    slot = _slot(table, place.name)
    if table.token[slot] != place.name:
        return waiting
    for i in range(LIKELIEST):
        token = table.following[slot, i]
        if token == NO_TOKEN or waiting == MAX_FRONTIER:
            break
        waiting = add(frontier, waiting, token, place, float(table.estimate[slot, i]))
    return waiting


@njit()
def _slot(table: RecycledTable, token: int) -> int:
    mixed = np.uint64(token) * FACTOR
    return int(np.int64(mixed >> np.uint64(40)) & (table.token.shape[0] - 1))
