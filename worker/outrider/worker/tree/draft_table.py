"""The tables of a draft's tree, of nodes and of candidates, and their growth.

Leaves commits to `reroot`, positions and ids to `draft.DraftTree`, which owns the tables.
"""

from typing import NamedTuple

import numpy as np

from outrider.kernels.compiled import njit
from outrider.worker.tree.growth import Floats, Ids, Ints
from outrider.worker.tree.walk import ROOT, contains

UNEXPANDED = -1
"""Slot of a node whose row has not run."""


class DraftNodes(NamedTuple):
    """Columns of the draft's nodes; parents precede children."""

    parent: Ints
    token: Ints
    depth: Ints
    logprob: Floats
    score: Floats
    slot: Ints
    id: Ids

    @classmethod
    def empty(cls, size: int) -> "DraftNodes":
        """Return a table with room for `size` nodes."""
        parent, token, depth, slot = (np.empty(size, np.int32) for _ in range(4))
        logprob, score = (np.empty(size, np.float32) for _ in range(2))
        return cls(parent, token, depth, logprob, score, slot, np.empty(size, np.int64))


class ChildCandidates(NamedTuple):
    """Columns of the children that were offered and not sent yet, in no particular order."""

    parent: Ints
    token: Ints
    logprob: Floats
    score: Floats

    @classmethod
    def empty(cls, size: int) -> "ChildCandidates":
        """Return a table with room for `size` candidates."""
        parent, token = (np.empty(size, np.int32) for _ in range(2))
        logprob, score = (np.empty(size, np.float32) for _ in range(2))
        return cls(parent, token, logprob, score)


class DraftTables(NamedTuple):
    """Both tables of one draft tree; the owner counts the live rows of each."""

    nodes: DraftNodes
    candidates: ChildCandidates


@njit()
def leaves(nodes: DraftNodes, count: int, width: int, depth_limit: int, end_tokens: Ints) -> Ints:
    """Return the best unexpanded nodes, best first, ties to the older one."""
    best = np.empty(min(width, count), np.int32)
    found = 0
    for node in range(count):
        if (
            nodes.slot[node] == UNEXPANDED
            and nodes.depth[node] < depth_limit
            and not contains(end_tokens, nodes.token[node])
        ):
            found = _insert(best, found, node, nodes.score)
    return best[:found]


@njit()
def _insert(best: Ints, found: int, node: int, score: Floats) -> int:
    """Insert a node into `best`, sorted by score, if it fits; return the new count."""
    at = found
    while at > 0 and score[best[at - 1]] < score[node]:
        at -= 1
    if at == best.shape[0]:
        return found
    found = min(found + 1, best.shape[0])
    for i in range(found - 1, at, -1):
        best[i] = best[i - 1]
    best[at] = node
    return found


@njit()
def expanded_count(nodes: DraftNodes, count: int) -> int:
    """Return the number of nodes that hold KV."""
    expanded = 0
    for node in range(count):
        expanded += nodes.slot[node] != UNEXPANDED
    return expanded


@njit()
def ancestor_slots(nodes: DraftNodes, leaves: Ints, slots: Ints) -> Ints:
    """Return the slots of each leaf's path by depth, its own (from `slots`) last, then -1."""
    deepest = 0
    for leaf in leaves:
        deepest = max(deepest, nodes.depth[leaf])
    path = np.full((leaves.shape[0], deepest), -1, np.int32)
    for row in range(leaves.shape[0]):
        node = leaves[row]
        level = nodes.depth[node] - 1
        path[row, level] = slots[row]
        while level > 0:
            node = nodes.parent[node]
            level -= 1
            path[row, level] = nodes.slot[node]
    return path


@njit()
def path_tokens(nodes: DraftNodes, leaves: Ints) -> Ints:
    """Return the tokens of each leaf's path by depth, its own last, then -1."""
    deepest = 0
    for leaf in leaves:
        deepest = max(deepest, nodes.depth[leaf])
    path = np.full((leaves.shape[0], deepest), -1, np.int32)
    for row in range(leaves.shape[0]):
        node = leaves[row]
        for level in range(nodes.depth[node] - 1, -1, -1):
            path[row, level] = nodes.token[node]
            node = nodes.parent[node]
    return path


@njit()
def offer(
    tables: DraftTables,
    count: int,
    leaves: Ints,
    tokens: Ints,
    logprobs: Floats,
    depth_bonus: np.float32,
) -> int:
    """Add children of the `leaves`; a full table keeps the best. Return the new count."""
    nodes, candidates = tables
    for row in range(leaves.shape[0]):
        leaf = leaves[row]
        above = 0.0 if leaf == ROOT else float(nodes.score[leaf])
        for child in range(tokens.shape[1]):
            if not np.isfinite(logprobs[row, child]):
                continue
            logprob = min(float(logprobs[row, child]), 0.0)
            score = above + logprob + depth_bonus
            at = count
            if count == candidates.parent.shape[0]:
                at = int(np.argmin(candidates.score))
                if candidates.score[at] >= score:
                    continue
            else:
                count += 1
            candidates.parent[at] = leaf
            candidates.token[at] = tokens[row, child]
            candidates.logprob[at] = logprob
            candidates.score[at] = score
    return count


@njit()
def promote(
    tables: DraftTables, count: int, candidate_count: int, most: int, first_id: int
) -> tuple[int, int]:
    """Make nodes of the best `most` candidates; return both new counts."""
    nodes, candidates = tables
    first = count
    while count - first < most and candidate_count > 0:
        best = int(np.argmax(candidates.score[:candidate_count]))
        above = candidates.parent[best]
        nodes.parent[count] = above
        nodes.token[count] = candidates.token[best]
        nodes.depth[count] = 1 if above == ROOT else nodes.depth[above] + 1
        nodes.logprob[count] = candidates.logprob[best]
        nodes.score[count] = candidates.score[best]
        nodes.slot[count] = UNEXPANDED
        nodes.id[count] = first_id + count - first
        count += 1
        candidate_count -= 1
        copy_candidate(candidates, candidate_count, best)
    return count, candidate_count


@njit()
def copy_candidate(candidates: ChildCandidates, source: int, to: int) -> None:
    """Overwrite candidate `to` with candidate `source`."""
    candidates.parent[to] = candidates.parent[source]
    candidates.token[to] = candidates.token[source]
    candidates.logprob[to] = candidates.logprob[source]
    candidates.score[to] = candidates.score[source]
