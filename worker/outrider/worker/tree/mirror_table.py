"""The mirror's tables, of nodes and of node ids, and their updates: growth, local nodes, commits.

Leaves counts and positions to `mirror.Mirror`, which owns the tables. An id is unknown where it is
dead, so dead ids take no room (speculation.md, Mirror).
"""

from typing import NamedTuple

import numpy as np

from outrider.kernels.compiled import njit
from outrider.worker.tree.growth import Floats, Growth, Ids, Ints
from outrider.worker.tree.walk import DEAD, ROOT, child_of, descend, survivors

DRAFT = 0
"""Proposer of every node that has an id of the draft."""
LOCAL = 1
"""Proposer of nodes that the target added by itself."""
UNKNOWN = np.iinfo(np.int64).min
"""State of an id that is dead, or was never received."""


class MirrorNodes(NamedTuple):
    """Columns of the nodes."""

    parent: Ints
    token: Ints
    depth: Ints
    logprob: Floats
    proposer: Ints
    first_id: Ids

    @classmethod
    def empty(cls, size: int) -> "MirrorNodes":
        """Return a table with room for `size` nodes."""
        parent, token, depth, proposer = (np.empty(size, np.int32) for _ in range(4))
        return cls(
            parent, token, depth, np.empty(size, np.float32), proposer, np.empty(size, np.int64)
        )


class NodeIds(NamedTuple):
    """Ids of the draft that are not dead, ascending, each with its state.

    A state is the index of a live node, or `committed_at(q)` for an id committed at position q.
    """

    id: Ids
    state: Ids

    @classmethod
    def empty(cls, size: int) -> "NodeIds":
        """Return a table with room for `size` ids."""
        return cls(np.empty(size, np.int64), np.empty(size, np.int64))


class MirrorTables(NamedTuple):
    """Both tables of one mirror; the owner counts the live rows of each."""

    nodes: MirrorNodes
    ids: NodeIds


@njit()
def grow(
    tables: MirrorTables, count: int, id_count: int, room: int, committed: Ints, growth: Growth
) -> tuple[int, int, int]:
    """Add the nodes of a growth; `room` bounds the nodes that have an id.

    `committed` are the tokens committed after the draft's root, `growth.root_position`. Returns the
    new counts of nodes and ids, and the number of nodes that were dead on arrival.
    """
    nodes, ids = tables
    root = growth.root_position
    position = root + committed.shape[0]
    of_draft = _count_of_draft(nodes, count)
    dropped = 0
    for i in range(growth.parents.shape[0]):
        token = growth.tokens[i]
        above = committed_at(root)
        if growth.parents[i] > 0:
            above = _state_of(ids, id_count, growth.parents[i])
        state = UNKNOWN
        if above >= 0 or above == committed_at(position):
            above = max(above, ROOT)
            node = child_of(nodes.parent, nodes.token, count, above, token)
            if of_draft < room and (node == DEAD or nodes.first_id[node] == 0):
                if node == DEAD:
                    node = count
                    count += 1
                    _place(nodes, node, above, token)
                _set_proposer(nodes, node, DRAFT, growth.first_id + i, growth.logprobs[i])
                of_draft += 1
            if node != DEAD:
                state = node
        elif above != UNKNOWN and token == committed[committed_at(above) - root]:
            state = committed_at(committed_at(above) + 1)
        if state == UNKNOWN or id_count == ids.id.shape[0]:
            dropped += 1
        else:
            ids.id[id_count] = growth.first_id + i
            ids.state[id_count] = state
            id_count += 1
    return count, id_count, dropped


@njit()
def add_local(
    nodes: MirrorNodes, count: int, room: int, parents: Ints, tokens: Ints, logprobs: Floats
) -> int:
    """Add nodes without ids, at most `room` in the table; return the new count of nodes."""
    start = count
    local = count - _count_of_draft(nodes, count)
    placed = np.full(parents.shape[0], DEAD, np.int32)
    for i in range(parents.shape[0]):
        above = parents[i] if parents[i] < start else placed[parents[i] - start]
        if above == DEAD:
            continue
        placed[i] = child_of(nodes.parent, nodes.token, count, above, tokens[i])
        if placed[i] == DEAD and local < room:
            _place(nodes, count, above, tokens[i])
            _set_proposer(nodes, count, LOCAL, 0, logprobs[i])
            placed[i] = count
            count += 1
            local += 1
    return count


@njit()
def commit(
    tables: MirrorTables, count: int, id_count: int, position: int, tokens: Ints
) -> tuple[int, int, int]:
    """Move the root from `position` along `tokens`; the survivors keep their order.

    Returns the new counts of nodes and ids, and the number of tokens that the tree held.
    """
    nodes, ids = tables
    path = descend(nodes.parent, nodes.token, count, tokens)
    renumbered = survivors(nodes.parent, count, path, tokens.shape[0])
    id_count = _commit_ids(ids, id_count, renumbered, path, position)
    kept = 0
    for node in range(count):
        if renumbered[node] >= 0:
            _move(nodes, node, kept, renumbered, tokens.shape[0])
            kept += 1
    return kept, id_count, path.shape[0]


@njit()
def forget(ids: NodeIds, count: int, position: int) -> int:
    """Drop ids committed before `position`; return the new count of ids."""
    kept = 0
    for i in range(count):
        state = ids.state[i]
        if state >= 0 or committed_at(state) >= position:
            ids.id[kept] = ids.id[i]
            ids.state[kept] = state
            kept += 1
    return kept


@njit()
def committed_at(position: int) -> int:
    """Return the state of an id that is the committed token at `position`; its own inverse."""
    return -1 - position


@njit()
def _state_of(ids: NodeIds, count: int, wanted: int) -> int:
    """Return the state of the id `wanted`, by binary search."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if ids.id[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    if low < count and ids.id[low] == wanted:
        return int(ids.state[low])
    return UNKNOWN


@njit()
def _commit_ids(ids: NodeIds, count: int, renumbered: Ints, path: Ints, position: int) -> int:
    """Update states for a commit after `position`; return the new count of ids.

    `path` holds the nodes that became committed tokens, `renumbered` the survivors' new indices.
    """
    kept = 0
    for i in range(count):
        state = ids.state[i]
        if state >= 0:
            step = _index_in(path, state)
            if step >= 0:
                state = committed_at(position + 1 + step)
            elif renumbered[state] >= 0:
                state = renumbered[state]
            else:
                continue
        ids.id[kept] = ids.id[i]
        ids.state[kept] = state
        kept += 1
    return kept


@njit()
def _index_in(path: Ints, node: int) -> int:
    for step in range(path.shape[0]):
        if path[step] == node:
            return step
    return -1


@njit()
def _count_of_draft(nodes: MirrorNodes, count: int) -> int:
    """Return the number of nodes that have an id."""
    of_draft = 0
    for node in range(count):
        of_draft += nodes.first_id[node] > 0
    return of_draft


@njit()
def _place(nodes: MirrorNodes, node: int, above: int, token: int) -> None:
    nodes.parent[node] = above
    nodes.token[node] = token
    nodes.depth[node] = 1 if above == ROOT else nodes.depth[above] + 1


@njit()
def _set_proposer(
    nodes: MirrorNodes, node: int, proposer: int, first_id: int, logprob: float
) -> None:
    nodes.logprob[node] = min(float(logprob), 0.0)  # rounding may leave it just above 0
    nodes.proposer[node] = proposer
    nodes.first_id[node] = first_id


@njit()
def _move(nodes: MirrorNodes, node: int, to: int, renumbered: Ints, risen: int) -> None:
    above = nodes.parent[node]
    nodes.parent[to] = ROOT if above == ROOT or renumbered[above] < 0 else renumbered[above]
    nodes.token[to] = nodes.token[node]
    nodes.depth[to] = nodes.depth[node] - risen
    nodes.logprob[to] = nodes.logprob[node]
    nodes.proposer[to] = nodes.proposer[node]
    nodes.first_id[to] = nodes.first_id[node]
