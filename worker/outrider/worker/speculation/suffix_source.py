"""Suffix source: draft tokens from what followed the end of the text where it occurred before.

It costs no pass of any model, and finds nothing where nothing repeats. Leaves the text to
`suffix_automaton`, how far to trust what it says to `acceptance`.
"""

import math
from typing import NamedTuple

import numpy as np

from outrider.kernels.compiled import njit
from outrider.worker.speculation.suffix_automaton import (
    NONE,
    START,
    SuffixTables,
    longest_match,
)
from outrider.worker.tree.growth import Floats, Ints
from outrider.worker.tree.walk import ROOT

MAX_BRANCHES = 8
"""Continuations of one suffix that are weighed, the newest."""
MAX_FRONTIER = 128
"""Continuations that are weighed against each other."""
DOUBT = 2.0
"""A match of so many tokens is trusted by half; calibration knows better once it has seen some."""


class Frontier(NamedTuple):
    """Continuations that are no nodes yet, in no order."""

    edge: Ints
    above: Ints
    """Its parent: an index into the nodes so far, or `ROOT`."""
    depth: Ints
    estimate: Floats
    """Natural logarithm of the estimate that it follows its parent."""
    score: Floats
    """Sum of the estimates of its path."""


class Place(NamedTuple):
    """A node, or the root, whose continuations are to be weighed."""

    state: int
    """Of its path, after the match."""
    matched: int
    """Tokens of the match and the path."""
    node: int
    """Its index, or `ROOT`."""
    depth: int
    score: float


@njit()
def proposals(tables: SuffixTables, most: int, deepest: int) -> tuple[Ints, Ints, Floats]:
    """Return up to `most` nodes to hang on the root, likeliest paths first, parents first.

    int32[n] parents, an index into the nodes returned or `ROOT`; int32[n] tokens; float32[n]
    natural logarithms of the estimates that each follows its parent: its share of what followed
    the longest suffix that has occurred before, less where that is short. No path is longer than
    `deepest`, which is 1 or more.
    """
    parents, tokens = np.empty(most, np.int32), np.empty(most, np.int32)
    logprobs, count, state = np.empty(most, np.float32), 0, longest_match(tables)
    if state == START:
        return parents[:0], tokens[:0], logprobs[:0]
    frontier, matched = _new_frontier(), int(tables.length[state])
    waiting = _expand(tables, frontier, 0, Place(state, matched, ROOT, 0, 0.0))
    while count < most and waiting > 0:
        best = _best(frontier, waiting)
        edge, depth, score = frontier.edge[best], frontier.depth[best], frontier.score[best]
        parents[count], tokens[count] = frontier.above[best], tables.token[edge]
        logprobs[count] = frontier.estimate[best]
        waiting = _remove(frontier, best, waiting)
        if depth < deepest:
            state = int(tables.target[edge])
            place = Place(state, matched + int(depth), count, int(depth), float(score))
            waiting = _expand(tables, frontier, waiting, place)
        count += 1
    return parents[:count], tokens[:count], logprobs[:count]


@njit()
def _new_frontier() -> Frontier:
    return Frontier(
        np.empty(MAX_FRONTIER, np.int32),
        np.empty(MAX_FRONTIER, np.int32),
        np.empty(MAX_FRONTIER, np.int32),
        np.empty(MAX_FRONTIER, np.float32),
        np.empty(MAX_FRONTIER, np.float32),
    )


@njit()
def _expand(tables: SuffixTables, frontier: Frontier, waiting: int, place: Place) -> int:
    """Add what has followed a place to those that wait; return how many do then."""
    total = _continued(tables, place.state)
    trust = math.log(place.matched / (place.matched + DOUBT))
    edge, branches = tables.newest[place.state], 0
    while edge != NONE and branches < MAX_BRANCHES and waiting < MAX_FRONTIER:
        estimate = trust + math.log(tables.occurrences[tables.target[edge]] / total)
        frontier.edge[waiting], frontier.above[waiting] = edge, place.node
        frontier.depth[waiting] = place.depth + 1
        frontier.estimate[waiting] = estimate
        frontier.score[waiting] = place.score + estimate
        waiting += 1
        branches += 1
        edge = tables.older[edge]
    return waiting


@njit()
def _continued(tables: SuffixTables, state: int) -> int:
    """Return how often a state's suffixes were continued, but for once, perhaps, by its count: the
    text may end with them."""
    newest, branches, edge = 0, 0, tables.newest[state]
    while edge != NONE and branches < MAX_BRANCHES:
        newest += tables.occurrences[tables.target[edge]]
        branches += 1
        edge = tables.older[edge]
    return int(max(newest, tables.occurrences[state] - 1))


@njit()
def _best(frontier: Frontier, waiting: int) -> int:
    best = 0
    for i in range(1, waiting):
        if frontier.score[i] > frontier.score[best]:
            best = i
    return best


@njit()
def _remove(frontier: Frontier, at: int, waiting: int) -> int:
    """Put the last in its place; return how many wait then."""
    last = waiting - 1
    frontier.edge[at], frontier.above[at] = frontier.edge[last], frontier.above[last]
    frontier.depth[at] = frontier.depth[last]
    frontier.estimate[at], frontier.score[at] = frontier.estimate[last], frontier.score[last]
    return last
