"""Suffix source: draft tokens from what followed the end of the text where it occurred before.

It costs no pass of any model, and finds nothing where nothing repeats. Leaves the text to
`suffix_automaton`, how far to trust what it says to `acceptance`.
"""

import math

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.worker.speculation.frontier import (
    MAX_FRONTIER,
    Frontier,
    FrontierPlace,
    add,
    best_of,
    new_frontier,
    remove,
)
from outrider.worker.speculation.suffix_automaton import (
    MOST_READ,
    NONE,
    START,
    SuffixTables,
    longest_match,
    read,
)
from outrider.worker.tree.growth import Floats, Ints
from outrider.worker.tree.mirror_table import ROOT_POSITION, SUFFIX, MirrorTables, add_proposals
from outrider.worker.tree.walk import ROOT

MAX_BRANCHES = 8
"""Continuations of one suffix that are weighed, the newest."""
DOUBT = 2.0
"""A match of so many tokens is trusted by half; calibration knows better once it has seen some."""


@njit()
def add_from_text(mirror: MirrorTables, tables: SuffixTables, most: int, deepest: int) -> int:
    """Read on, and add to the tree up to `most` nodes that followed the end of the text before;
    return how many are new. A text of which too much is unread waits for the next root."""
    if not read(tables, mirror.tokens, mirror.numbers[ROOT_POSITION] + 1, MOST_READ):
        return 0
    parents, tokens, logprobs = proposals(tables, most, deepest)
    return int(add_proposals(mirror, parents, tokens, logprobs, SUFFIX))


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
    frontier, matched = new_frontier(), int(tables.length[state])
    waiting = _expand(tables, frontier, 0, FrontierPlace(state, ROOT, 0, 0.0), matched)
    while count < most and waiting > 0:
        best = best_of(frontier, waiting)
        edge, depth, score = frontier.name[best], frontier.depth[best], frontier.score[best]
        parents[count], tokens[count] = frontier.above[best], tables.token[edge]
        logprobs[count] = frontier.estimate[best]
        waiting = remove(frontier, best, waiting)
        if depth < deepest:
            place = FrontierPlace(int(tables.target[edge]), count, int(depth), float(score))
            waiting = _expand(tables, frontier, waiting, place, matched)
        count += 1
    return parents[:count], tokens[:count], logprobs[:count]


@njit()
def _expand(
    tables: SuffixTables, frontier: Frontier, waiting: int, place: FrontierPlace, matched: int
) -> int:
    """Add what has followed a place, a state after a match of so many tokens, to those that wait;
    return how many do then."""
    total, length = _continued(tables, place.name), matched + place.depth
    trust = math.log(length / (length + DOUBT))
    edge, branches = tables.newest[place.name], 0
    while edge != NONE and branches < MAX_BRANCHES and waiting < MAX_FRONTIER:
        estimate = trust + math.log(tables.occurrences[tables.target[edge]] / total)
        waiting = add(frontier, waiting, edge, place, estimate)
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
