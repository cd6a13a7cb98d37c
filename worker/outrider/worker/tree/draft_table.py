"""The tables of a draft's tree, of nodes and of candidates, and their growth.

Leaves commits to `reroot`, rows to `draft_rows`; `draft.DraftTree` owns the tables.
"""

from typing import NamedTuple

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.kernels.jit.handle import Handle
from outrider.worker.tree.draft_ids import id_of, is_one, merged
from outrider.worker.tree.draft_rows import (
    NO_SLOT,
    OUTPUTS,
    ROWS,
    TREES,
    RowArrays,
    writable_slot,
)
from outrider.worker.tree.growth import Floats, Ids, Ints
from outrider.worker.tree.reading import Reading
from outrider.worker.tree.walk import ROOT, contains

UNEXPANDED = -1
"""Slot of a node whose row has not run."""
ROOT_POSITION, CACHED, LAST_ID, NODES, CANDIDATES, SHIFT = range(6)
"""Places of `DraftTables.state`: the last committed position, the number of those whose KV is in
place, the last id given, how many lines of each table are in use, and how far the draft's positions
are ahead of the target's, as some of its tokens are several of the draft's ids."""


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
    """Everything that compiled functions read and write of one draft tree."""

    nodes: DraftNodes
    candidates: ChildCandidates
    state: Ids
    end_tokens: Ints
    reading: Reading


@njit()
def prefill_rows(
    tree: Handle[DraftTables],
    rows: Handle[RowArrays],
    block_table: Ints,
    published: int,
    tokens: Ints,
    most: int,
) -> int:
    """Write rows of committed `tokens`, the draft's ids, without KV; return their number.

    The root's is the last; children are wanted of it alone.
    """
    state, out = tree.value.state, rows.value
    used, root = out.used, state[ROOT_POSITION]
    start = state[CACHED]
    end = min(start + most, root + 1)
    for position in range(start, end):
        row = used[ROWS] + position - start
        out.token[row] = tokens[position]
        out.position[row] = position
        out.slot[row] = writable_slot(block_table, published, position)
        out.tree[row] = used[TREES]
        out.prefix[row] = position + 1
        out.depth[row] = 0
        out.ancestors[row] = NO_SLOT
    used[ROWS] += end - start
    used[TREES] += end > start
    if start < end == root + 1:
        output = used[OUTPUTS]
        out.output[output] = used[ROWS] - 1
        out.leaf[output] = ROOT
        out.offset[output] = root
        out.sampled_at[output] = root + 1 - state[SHIFT]
        used[OUTPUTS] += 1
    return int(end - start)


@njit()
def leaf_rows(
    tree: Handle[DraftTables],
    rows: Handle[RowArrays],
    block_table: Ints,
    published: int,
    width: int,
    depth_limit: int,
    least: float,
) -> int:
    """Write rows of up to `width` best leaves, best first; return their number.

    After the best one, those with a score below `least` are left out. Their KV goes behind that of
    the root and of the nodes that have KV already.
    """
    nodes, _, state, _, reading = tree.value
    out = rows.value
    used, root, count = out.used, state[ROOT_POSITION], state[NODES]
    leaves = out.leaf[used[OUTPUTS] : used[OUTPUTS] + min(width, count)]
    depth_limit = min(depth_limit, out.ancestors.shape[1] + 1)
    free, found = root + 1, 0
    for node in range(count):
        if nodes.slot[node] != UNEXPANDED:
            free += 1
        elif nodes.depth[node] < depth_limit and _may_grow(tree, nodes.token[node]):
            found = _insert(leaves, found, node, nodes.score)
    while found > 1 and nodes.score[leaves[found - 1]] < least:
        found -= 1
    for i in range(found):
        leaf, row, output = leaves[i], used[ROWS] + i, used[OUTPUTS] + i
        depth = nodes.depth[leaf]
        out.token[row] = id_of(reading, nodes.token[leaf])
        out.position[row] = root + depth
        out.slot[row] = writable_slot(block_table, published, free + i)
        out.tree[row] = used[TREES]
        out.prefix[row] = root + 1
        out.depth[row] = depth
        out.output[output] = row
        out.offset[output] = free + i
        out.sampled_at[output] = root + depth + 1 - state[SHIFT]
        out.ancestors[row, depth:] = NO_SLOT
        out.ancestors[row, depth - 1] = free + i
        for level in range(depth - 2, -1, -1):
            leaf = nodes.parent[leaf]
            out.ancestors[row, level] = nodes.slot[leaf]
    used[ROWS] += found
    used[OUTPUTS] += found
    used[TREES] += found > 0
    return int(found)


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
def has_leaves(tree: Handle[DraftTables], depth_limit: int) -> bool:
    """True if there is a node that may be expanded."""
    nodes, _, state, _, _ = tree.value
    for node in range(state[NODES] - 1, -1, -1):  # the youngest are the likeliest
        if (
            nodes.slot[node] == UNEXPANDED
            and nodes.depth[node] < depth_limit
            and _may_grow(tree, nodes.token[node])
        ):
            return True
    return False


@njit()
def _may_grow(tree: Handle[DraftTables], token: int) -> bool:
    """True if a node's row may run: nothing follows an end, and a row is one id."""
    return not contains(tree.value.end_tokens, token) and is_one(tree.value.reading, token)


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
    tree: Handle[DraftTables],
    leaves: Ints,
    offsets: Ints,
    tokens: Ints,
    logprobs: Floats,
    depth_bonus: float,
) -> None:
    """Note that the rows of `leaves` have run, and add their children; a full table keeps the best.

    Where a leaf and its child are what a token of the target is read as, that token is a candidate
    beside the leaf.
    Raises `ValueError` for the root's children where its row has not run.
    """
    nodes, candidates, state, _, reading = tree.value
    count, worst, bonus = state[CANDIDATES], -1, np.float32(depth_bonus)
    for row in range(leaves.shape[0]):
        leaf = leaves[row]
        if leaf != ROOT:
            nodes.slot[leaf] = offsets[row]
        elif state[CACHED] <= state[ROOT_POSITION]:
            raise ValueError("the root's children came before its row had run")
        above = 0.0 if leaf == ROOT else float(nodes.score[leaf])
        for child in range(tokens.shape[1]):
            if not np.isfinite(logprobs[row, child]):
                continue
            logprob = min(float(logprobs[row, child]), 0.0)
            token = tokens[row, child]
            score = above + logprob
            count, worst = _note(candidates, count, worst, leaf, token, logprob, score + bonus)
            if leaf == ROOT or reading.pairs.shape[0] == 0:
                continue
            token = merged(reading, nodes.token[leaf], token)
            if token >= 0:
                both = float(nodes.logprob[leaf]) + logprob
                beside = nodes.parent[leaf]
                count, worst = _note(candidates, count, worst, beside, token, both, score)
    state[CANDIDATES] = count


@njit()
def _note(
    candidates: ChildCandidates,
    count: int,
    worst: int,
    parent: int,
    token: int,
    logprob: float,
    score: float,
) -> tuple[int, int]:
    """Add a candidate to `count` of them, in place of the worst where there is no room.

    Returns their number and the worst's place, -1: not known, as `worst`.
    """
    at = count
    if count == candidates.parent.shape[0]:
        at = worst if worst >= 0 else int(np.argmin(candidates.score))
        if candidates.score[at] >= score:
            return count, at
    candidates.parent[at] = parent
    candidates.token[at] = token
    candidates.logprob[at] = logprob
    candidates.score[at] = score
    return max(count, at + 1), -1


@njit()
def send(
    tree: Handle[DraftTables], nodes_ahead: int, max_new_nodes: int, depth_limit: int
) -> tuple[Ids, Ints, Floats]:
    """Make nodes of the best candidates, as `DraftTree.send`; return the fields of a `Growth`."""
    nodes, _, state, _, _ = tree.value
    first = state[NODES]
    most = min(nodes_ahead, nodes.parent.shape[0]) if max_new_nodes > 0 else first
    while state[NODES] < most and state[CANDIDATES] > 0:
        _promote(tree, min(state[NODES] + max_new_nodes, most))
        if has_leaves(tree, depth_limit):
            break
    new = state[NODES] - first
    parents = np.empty(new, np.int64)
    for i in range(new):
        above = nodes.parent[first + i]
        parents[i] = 0 if above == ROOT else nodes.id[above]
    end = first + new
    return parents, nodes.token[first:end].copy(), nodes.logprob[first:end].copy()


@njit()
def _promote(tree: Handle[DraftTables], most: int) -> None:
    """Make nodes of the best candidates until there are `most` nodes, or no candidates."""
    nodes, candidates, state, _, _ = tree.value
    while state[NODES] < most and state[CANDIDATES] > 0:
        node = state[NODES]
        best = int(np.argmax(candidates.score[: state[CANDIDATES]]))
        above = candidates.parent[best]
        nodes.parent[node] = above
        nodes.token[node] = candidates.token[best]
        nodes.depth[node] = 1 if above == ROOT else nodes.depth[above] + 1
        nodes.logprob[node] = candidates.logprob[best]
        nodes.score[node] = candidates.score[best]
        nodes.slot[node] = UNEXPANDED
        state[LAST_ID] += 1
        nodes.id[node] = state[LAST_ID]
        state[NODES] += 1
        state[CANDIDATES] -= 1
        copy_candidate(candidates, state[CANDIDATES], best)


@njit()
def copy_candidate(candidates: ChildCandidates, source: int, to: int) -> None:
    """Overwrite candidate `to` with candidate `source`."""
    candidates.parent[to] = candidates.parent[source]
    candidates.token[to] = candidates.token[source]
    candidates.logprob[to] = candidates.logprob[source]
    candidates.score[to] = candidates.score[source]
