"""Orders candidates by how likely a walk is to reach them, and finds how many are worth a row.

Leaves estimating reach to `calibration` and deciding on the pass to `planner` (speculation.md).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.compiled import njit
from outrider.worker.tree.walk import ROOT, Floats, Ints, contains

Seconds = NDArray[np.float64]
"""float64[k + 1] measured seconds of a pass with 0, 1, … k node rows beside its other rows."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """One sequence's candidates, best first; every prefix is a subtree that hangs on the root."""

    nodes: Ints
    """int32[candidates]."""
    reach: Floats
    """float32[candidates], never rising."""
    depth: Ints
    """int32[candidates]."""


NO_CHILDREN = Candidates(np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.int32))


def rank(
    reach: Floats, parent: Ints, token: Ints, depth: Ints, limit: int, end_tokens: Ints
) -> Candidates:
    """Orders one mirror's candidates by (reach down, depth up, index up).

    No candidates are nodes whose row could add no token: those at depth `limit` (tokens that the
    request may still get) or deeper, end tokens, and what hangs below them.
    """
    return Candidates(*_rank(reach, parent, token, depth, limit, end_tokens))


@njit()
def _rank(
    reach: Floats, parent: Ints, token: Ints, depth: Ints, limit: int, end_tokens: Ints
) -> tuple[Ints, Floats, Ints]:
    nodes = reach.shape[0]
    bits = reach.view(np.int32)  # of a float >= 0: as ordered as the float
    keys = np.empty(nodes, np.int64)
    barred = np.zeros(nodes, np.bool_)
    count = 0
    for node in range(nodes):
        barred[node] = (
            depth[node] >= limit
            or contains(end_tokens, token[node])
            or (parent[node] != ROOT and barred[parent[node]])
        )
        if not barred[node]:
            low = min(depth[node], 4095) << 20 | node
            keys[count] = (np.int64(0x7FFFFFFF - bits[node]) << 32) | low
            count += 1
    order = (np.sort(keys[:count]) & 0xFFFFF).astype(np.int32)
    return order, reach[order], depth[order]


@njit()
def merge(reach: Floats, depth: Ints, start: Ints, most: int, each: int) -> tuple[Floats, Ints]:
    """Merges ranked sequences; returns the best `most` reaches and the sequence of each.

    Sequence s owns the entries from start[s] to start[s + 1] and gets at most `each` rows.
    """
    head = start[:-1].copy()
    merged = np.empty(most, np.float32)
    owner = np.empty(most, np.int32)
    for count in range(most):
        best = -1
        for sequence in range(head.shape[0]):
            at = head[sequence]
            if at == start[sequence + 1] or at - start[sequence] == each:
                continue
            if best < 0 or _before(reach, depth, at, head[best]):
                best = sequence
        if best < 0:
            return merged[:count], owner[:count]
        merged[count] = reach[head[best]]
        owner[count] = best
        head[best] += 1
    return merged, owner


@njit()
def _before(reach: Floats, depth: Ints, one: int, other: int) -> bool:
    if reach[one] == reach[other]:
        return bool(depth[one] < depth[other])
    return bool(reach[one] > reach[other])


@njit()
def best_count(reach: Floats, costs: Seconds, rate: float) -> tuple[int, float]:
    """argmax over k of reach[0] + … + reach[k - 1] - rate * costs[k], and that maximum."""
    best, best_value, total = 0, -rate * costs[0], 0.0
    for k in range(1, min(reach.shape[0], costs.shape[0] - 1) + 1):
        total += reach[k - 1]
        value = total - rate * costs[k]
        if value > best_value:
            best, best_value = k, value
    return best, best_value
