"""What a commit does to a draft's tables: one root gives way to the next, and KV moves along.

Leaves the moves themselves to the draft's engine, and growing to `drafting` (speculation.md).
"""

import numpy as np

from outrider.kernels.compiled import njit
from outrider.worker.tree.draft_table import UNEXPANDED, ChildCandidates, DraftNodes, copy_candidate
from outrider.worker.tree.walk import DEAD, ROOT, Ints, descend, survivors


@njit()
def commit(
    guesses: DraftNodes,
    count: int,
    candidates: ChildCandidates,
    candidate_count: int,
    position: int,
    tokens: Ints,
) -> tuple[int, int, int, int, Ints, Ints]:
    """Moves the root from `position` along `tokens`, closes ranks in both tables and in the KV.

    Returns the new counts of nodes and candidates, the tokens that the tree held, how many of those
    have KV, and the slots to move from and to. KV of the path goes behind the old root, KV of the
    survivors behind the new one.
    """
    committed = tokens.shape[0]
    path = descend(guesses.parent, guesses.token, count, tokens)
    renumbered = survivors(guesses.parent, count, path, committed)
    sources = np.empty(count, np.int32)
    destinations = np.empty(count, np.int32)
    cached = moves = 0
    for node in path:
        if guesses.slot[node] != UNEXPANDED:
            cached += 1
            moves = _note(sources, destinations, moves, guesses.slot[node], position + cached)
    base = 0.0
    if path.shape[0] == committed:
        base = float(guesses.score[path[-1]])
        candidate_count = _keep_candidates(candidates, candidate_count, renumbered, path[-1], base)
    else:
        candidate_count = 0
    kept = 0
    slot = position + committed
    for node in range(count):
        if renumbered[node] == DEAD:
            continue
        if guesses.slot[node] != UNEXPANDED:
            slot += 1
            moves = _note(sources, destinations, moves, guesses.slot[node], slot)
            guesses.slot[node] = slot
        _move(guesses, node, kept, renumbered, committed, base)
        kept += 1
    return kept, candidate_count, path.shape[0], cached, sources[:moves], destinations[:moves]


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
    """Keeps what hangs below the new root; returns the new count."""
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
def _move(
    guesses: DraftNodes, node: int, to: int, renumbered: Ints, risen: int, base: float
) -> None:
    above = guesses.parent[node]
    guesses.parent[to] = max(renumbered[above], ROOT)  # the new root itself is not renumbered
    guesses.token[to] = guesses.token[node]
    guesses.depth[to] = guesses.depth[node] - risen
    guesses.logprob[to] = guesses.logprob[node]
    guesses.score[to] = guesses.score[node] - base
    guesses.slot[to] = guesses.slot[node]
    guesses.id[to] = guesses.id[node]
