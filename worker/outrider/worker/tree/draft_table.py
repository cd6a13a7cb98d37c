"""The tables behind a draft's tree and how they grow: leaves, candidates, nodes.

Leaves commits to `rerooting`, positions and ids to `draft_tree.DraftTree`, the tables' owner.
"""

from typing import NamedTuple

import numpy as np

from outrider.kernels.compiled import njit
from outrider.worker.tree.walk import ROOT, Floats, Ids, Ints, contains

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
        """A table with room for `size` nodes."""
        parent, token, depth, slot = (np.empty(size, np.int32) for _ in range(4))
        logprob, score = (np.empty(size, np.float32) for _ in range(2))
        return cls(parent, token, depth, logprob, score, slot, np.empty(size, np.int64))


class ChildCandidates(NamedTuple):
    """Columns of guesses that were not sent yet, in no particular order."""

    parent: Ints
    token: Ints
    logprob: Floats
    score: Floats

    @classmethod
    def empty(cls, size: int) -> "ChildCandidates":
        """A table with room for `size` candidates."""
        parent, token = (np.empty(size, np.int32) for _ in range(2))
        logprob, score = (np.empty(size, np.float32) for _ in range(2))
        return cls(parent, token, logprob, score)


@njit()
def leaves(guesses: DraftNodes, count: int, width: int, depth_limit: int, end_tokens: Ints) -> Ints:
    """The best unexpanded nodes, best first, ties to the older one."""
    best = np.empty(min(width, count), np.int32)
    found = 0
    for node in range(count):
        if (
            guesses.slot[node] == UNEXPANDED
            and guesses.depth[node] < depth_limit
            and not contains(end_tokens, guesses.token[node])
        ):
            found = _insert(best, found, node, guesses.score)
    return best[:found]


@njit()
def _insert(best: Ints, found: int, node: int, score: Floats) -> int:
    """Keeps `best` sorted by score, dropping what does not fit."""
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
def expanded_count(guesses: DraftNodes, count: int) -> int:
    """How many nodes hold KV."""
    expanded = 0
    for node in range(count):
        expanded += guesses.slot[node] != UNEXPANDED
    return expanded


@njit()
def ancestor_slots(guesses: DraftNodes, chosen: Ints, slots: Ints) -> Ints:
    """Slots of each leaf's path in depth order, its own (from `slots`) last; padded with -1."""
    deepest = 0
    for leaf in chosen:
        deepest = max(deepest, guesses.depth[leaf])
    path = np.full((chosen.shape[0], deepest), -1, np.int32)
    for row in range(chosen.shape[0]):
        node = chosen[row]
        level = guesses.depth[node] - 1
        path[row, level] = slots[row]
        while level > 0:
            node = guesses.parent[node]
            level -= 1
            path[row, level] = guesses.slot[node]
    return path


@njit()
def path_tokens(guesses: DraftNodes, chosen: Ints) -> Ints:
    """Tokens of each leaf's path in depth order, its own last; padded with -1."""
    deepest = 0
    for leaf in chosen:
        deepest = max(deepest, guesses.depth[leaf])
    path = np.full((chosen.shape[0], deepest), -1, np.int32)
    for row in range(chosen.shape[0]):
        node = chosen[row]
        for level in range(guesses.depth[node] - 1, -1, -1):
            path[row, level] = guesses.token[node]
            node = guesses.parent[node]
    return path


@njit()
def offer(
    guesses: DraftNodes,
    candidates: ChildCandidates,
    count: int,
    chosen: Ints,
    tokens: Ints,
    logprobs: Floats,
    depth_bonus: np.float32,
) -> int:
    """Adds children of the `chosen` leaves; a full table keeps the best. Returns the new count."""
    for row in range(chosen.shape[0]):
        leaf = chosen[row]
        above = 0.0 if leaf == ROOT else float(guesses.score[leaf])
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
    guesses: DraftNodes,
    count: int,
    candidates: ChildCandidates,
    candidate_count: int,
    most: int,
    first_id: int,
) -> tuple[int, int]:
    """Makes nodes of the best `most` candidates; returns both new counts."""
    first = count
    while count - first < most and candidate_count > 0:
        best = int(np.argmax(candidates.score[:candidate_count]))
        above = candidates.parent[best]
        guesses.parent[count] = above
        guesses.token[count] = candidates.token[best]
        guesses.depth[count] = 1 if above == ROOT else guesses.depth[above] + 1
        guesses.logprob[count] = candidates.logprob[best]
        guesses.score[count] = candidates.score[best]
        guesses.slot[count] = UNEXPANDED
        guesses.id[count] = first_id + count - first
        count += 1
        candidate_count -= 1
        copy_candidate(candidates, candidate_count, best)
    return count, candidate_count


@njit()
def copy_candidate(candidates: ChildCandidates, source: int, to: int) -> None:
    """Overwrites candidate `to` with candidate `source`."""
    candidates.parent[to] = candidates.parent[source]
    candidates.token[to] = candidates.token[source]
    candidates.logprob[to] = candidates.logprob[source]
    candidates.score[to] = candidates.score[source]
