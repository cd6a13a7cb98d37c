"""The mirror's table of nodes and the three things that happen to it: growth, guesses, commits.

Leaves names and positions between calls to `mirror.Mirror`, which owns a table.
"""

from typing import NamedTuple

import numpy as np

from outrider.kernels.compiled import njit
from outrider.worker.tree.node_ids import UNKNOWN, Names, committed_at, rename, state_of
from outrider.worker.tree.walk import DEAD, ROOT, Floats, Ids, Ints, child_of, descend, survivors

DRAFT = 0
"""Proposer of every node that a draft named."""
LOCAL = 1
"""Proposer of nodes that the target guessed by itself."""


class Nodes(NamedTuple):
    """Columns of the table; the owner knows how many of its rows are live."""

    parent: Ints
    token: Ints
    depth: Ints
    logprob: Floats
    proposer: Ints
    first_id: Ids

    @classmethod
    def empty(cls, size: int) -> "Nodes":
        """A table with room for `size` nodes."""
        parent, token, depth, proposer = (np.empty(size, np.int32) for _ in range(4))
        return cls(
            parent, token, depth, np.empty(size, np.float32), proposer, np.empty(size, np.int64)
        )


@njit()
def grow(
    nodes: Nodes,
    count: int,
    names: Names,
    names_count: int,
    history: Ints,
    acknowledged: int,
    position: int,
    room: int,
    first_id: int,
    parents: Ids,
    tokens: Ints,
    logprobs: Floats,
) -> tuple[int, int, int]:
    """Reads one `Grow` of a draft whose root is at `acknowledged`, ours being at `position`.

    `history[i]` is the token committed at `acknowledged + 1 + i`; `room` bounds named nodes.
    Returns the new counts of nodes and names, and how many arrivals were dead.
    """
    named = _count_named(nodes, count)
    dropped = 0
    for i in range(parents.shape[0]):
        above = committed_at(acknowledged)
        if parents[i] > 0:
            above = state_of(names, names_count, parents[i])
        state = UNKNOWN
        if above >= 0 or above == committed_at(position):
            above = max(above, ROOT)
            node = child_of(nodes.parent, nodes.token, count, above, tokens[i])
            if named < room and (node == DEAD or nodes.first_id[node] == 0):
                if node == DEAD:
                    node = count
                    count += 1
                    _place(nodes, node, above, tokens[i])
                _sign(nodes, node, DRAFT, first_id + i, logprobs[i])
                named += 1
            if node != DEAD:
                state = node
        elif above != UNKNOWN and tokens[i] == history[committed_at(above) - acknowledged]:
            state = committed_at(committed_at(above) + 1)
        if state == UNKNOWN or names_count == names.id.shape[0]:
            dropped += 1
        else:
            names.id[names_count] = first_id + i
            names.state[names_count] = state
            names_count += 1
    return count, names_count, dropped


@njit()
def add_local(
    nodes: Nodes, count: int, room: int, parents: Ints, tokens: Ints, logprobs: Floats
) -> int:
    """Adds unnamed guesses, at most `room` in the table; returns the new count of nodes."""
    start = count
    unnamed = count - _count_named(nodes, count)
    placed = np.full(parents.shape[0], DEAD, np.int32)
    for i in range(parents.shape[0]):
        above = parents[i] if parents[i] < start else placed[parents[i] - start]
        if above == DEAD:
            continue
        placed[i] = child_of(nodes.parent, nodes.token, count, above, tokens[i])
        if placed[i] == DEAD and unnamed < room:
            _place(nodes, count, above, tokens[i])
            _sign(nodes, count, LOCAL, 0, logprobs[i])
            placed[i] = count
            count += 1
            unnamed += 1
    return count


@njit()
def commit(
    nodes: Nodes, count: int, names: Names, names_count: int, position: int, tokens: Ints
) -> tuple[int, int, int]:
    """Moves the root from `position` along `tokens` and closes ranks, keeping the order.

    Returns the new counts of nodes and names, and how many tokens the tree held.
    """
    path = descend(nodes.parent, nodes.token, count, tokens)
    renumbered = survivors(nodes.parent, count, path, tokens.shape[0])
    names_count = rename(names, names_count, renumbered, path, position)
    kept = 0
    for node in range(count):
        if renumbered[node] >= 0:
            _move(nodes, node, kept, renumbered, tokens.shape[0])
            kept += 1
    return kept, names_count, path.shape[0]


@njit()
def _count_named(nodes: Nodes, count: int) -> int:
    named = 0
    for node in range(count):
        named += nodes.first_id[node] > 0
    return named


@njit()
def _place(nodes: Nodes, node: int, above: int, token: int) -> None:
    nodes.parent[node] = above
    nodes.token[node] = token
    nodes.depth[node] = 1 if above == ROOT else nodes.depth[above] + 1


@njit()
def _sign(nodes: Nodes, node: int, proposer: int, first_id: int, logprob: float) -> None:
    nodes.logprob[node] = min(float(logprob), 0.0)  # rounding may leave it just above 0
    nodes.proposer[node] = proposer
    nodes.first_id[node] = first_id


@njit()
def _move(nodes: Nodes, node: int, to: int, renumbered: Ints, risen: int) -> None:
    above = nodes.parent[node]
    nodes.parent[to] = ROOT if above == ROOT or renumbered[above] < 0 else renumbered[above]
    nodes.token[to] = nodes.token[node]
    nodes.depth[to] = nodes.depth[node] - risen
    nodes.logprob[to] = nodes.logprob[node]
    nodes.proposer[to] = nodes.proposer[node]
    nodes.first_id[to] = nodes.first_id[node]
