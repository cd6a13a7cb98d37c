"""Re-rooting of a draft's tables by a commit, and the moves of KV that follow from it.

Leaves the moves themselves to the draft's sessions, and growing to `draft_table` (speculation.md).
"""

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.kernels.jit.handle import Handle
from outrider.worker.tree.draft_ids import id_count
from outrider.worker.tree.draft_table import (
    CACHED,
    CANDIDATES,
    NODES,
    ROOT_POSITION,
    SHIFT,
    UNEXPANDED,
    ChildCandidates,
    DraftNodes,
    DraftTables,
    copy_candidate,
)
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.walk import DEAD, ROOT, descend, survivors


@njit()
def commit(tree: Handle[DraftTables], tokens: Ints) -> tuple[int, Ints, Ints]:
    """Move the root along `tokens`; leave no gaps in the tables and in the KV.

    Returns the number of tokens that the tree held, and the slots to move from and to. KV of the
    path goes behind the old root, KV of the survivors behind the new one.
    """
    nodes, candidates, state, _, reading = tree.value
    count, position, committed = state[NODES], state[ROOT_POSITION], tokens.shape[0]
    path = descend(nodes.parent, nodes.token, count, tokens)
    renumbered = survivors(nodes.parent, count, path, committed)
    sources = np.empty(count, np.int32)
    destinations = np.empty(count, np.int32)
    cached = moves = 0
    for node in path:
        if nodes.slot[node] != UNEXPANDED:
            cached += 1
            moves = _note(sources, destinations, moves, nodes.slot[node], position + cached)
    base = 0.0
    candidates_kept = 0
    if path.shape[0] == committed:
        base = float(nodes.score[path[-1]])
        candidates_kept = _keep_candidates(
            candidates, state[CANDIDATES], renumbered, path[-1], base
        )
    kept = 0
    slot = position + committed
    for node in range(count):
        if renumbered[node] == DEAD:
            continue
        if nodes.slot[node] != UNEXPANDED:
            slot += 1
            moves = _note(sources, destinations, moves, nodes.slot[node], slot)
            nodes.slot[node] = slot
        _move(nodes, node, kept, renumbered, committed, base)
        kept += 1
    state[NODES], state[CANDIDATES] = kept, candidates_kept
    state[CACHED] += cached
    ids = id_count(reading, tokens)  # of a node one
    state[ROOT_POSITION] += ids
    state[SHIFT] += ids - committed
    return path.shape[0], sources[:moves], destinations[:moves]


@njit()
def _note(sources: Ints, destinations: Ints, moves: int, source: int, destination: int) -> int:
    if source == destination:
        return moves
    sources[moves] = source
    destinations[moves] = destination
    return moves + 1


@njit()
def _keep_candidates(
    candidates: ChildCandidates, count: int, renumbered: Ints, root: int, base: float
) -> int:
    """Keep the candidates below the new root; return the new count."""
    kept = 0
    for i in range(count):
        above = candidates.parent[i]
        if above != root and (above == ROOT or renumbered[above] == DEAD):
            continue
        copy_candidate(candidates, i, kept)
        candidates.parent[kept] = ROOT if above == root else renumbered[above]
        candidates.score[kept] -= base
        kept += 1
    return kept


@njit()
def _move(nodes: DraftNodes, node: int, to: int, renumbered: Ints, risen: int, base: float) -> None:
    above = nodes.parent[node]
    nodes.parent[to] = max(renumbered[above], ROOT)  # the new root itself is not renumbered
    nodes.token[to] = nodes.token[node]
    nodes.depth[to] = nodes.depth[node] - risen
    nodes.logprob[to] = nodes.logprob[node]
    nodes.score[to] = nodes.score[node] - base
    nodes.slot[to] = nodes.slot[node]
    nodes.id[to] = nodes.id[node]
