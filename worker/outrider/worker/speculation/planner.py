"""Planner: how many node rows of each sequence the next pass runs, of candidates sorted by reach.

Leaves reach to `acceptance`, the price of time to `gain`, and waiting for growth to `wait`.
Pure: costs and times come from the caller (planner.md).
"""

from typing import NamedTuple

import numpy as np

from outrider.contract.counters import Choice
from outrider.kernels.jit.compiled import njit
from outrider.worker.costs.step_costs import Seconds
from outrider.worker.tree.growth import Floats, Ints
from outrider.worker.tree.mirror_table import MirrorNodes
from outrider.worker.tree.walk import ROOT, contains


class NodeCandidates(NamedTuple):
    """One sequence's candidates, best first; every prefix is a subtree that hangs on the root."""

    nodes: Ints
    """Node of each candidate, int32[candidates]."""
    reach: Floats
    """Chance of each candidate, never rising, float32[candidates]."""
    depth: Ints
    """Depth of each candidate, int32[candidates]."""


ROWS_PAY, NO_ROW_PAYS = Choice.ROWS_PAY, Choice.NO_ROW_PAYS  # an enum's lookup takes longer
MANY = 32
"""Sequences from which on sorting all candidates takes less time than merging them: 23 against 26
us of 32, 38 against 85 of 64 (16 rows each, Zen 5, a busy machine)."""
NO_CANDIDATES = NodeCandidates(
    np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.int32)
)


class RowPlan(NamedTuple):
    """Node rows of the next pass."""

    rows: list[int]
    """[sequences] how many of each sequence's best candidates to run."""
    choice: Choice
    """Why it is so many."""
    reach: Floats
    """Chances of all candidates that a pass could hold, never rising, float32[candidates]."""


def plan_rows(
    candidates: list[NodeCandidates], costs: Seconds, rate: float, max_rows: int
) -> RowPlan:
    """Plan rows where expected tokens outweigh their measured time: at most `max_rows` of each
    sequence, and len(costs) - 1 together.

    `costs` [k + 1] seconds of a pass with 0, 1, … k node rows beside its other rows; `rate`: tokens
    that a second is worth (docs/decisions/0006). Maximising the ratio of one step instead would
    overspend on poor steps.
    """
    if not any([len(one.reach) for one in candidates]):
        return RowPlan([0] * len(candidates), Choice.NO_NODES, NO_CANDIDATES.reach)
    if len(candidates) == 1:
        reach = candidates[0].reach[:max_rows]
        k = best_count(reach, costs, rate)
        return RowPlan([k], choice_of(len(reach), k), reach)
    best = merge_few if len(candidates) < MANY else merge_many
    reach, owner = best(candidates, len(costs) - 1, max_rows)
    k = best_count(reach, costs, rate)
    rows = np.bincount(owner[:k], minlength=len(candidates)).tolist()
    return RowPlan(rows, choice_of(len(reach), k), reach)


def choice_of(candidates: int, rows: int) -> Choice:
    """Return why a plan takes so many node rows of so many candidates."""
    if candidates == 0:
        return Choice.NO_NODES
    return ROWS_PAY if rows else NO_ROW_PAYS


def merge_few(candidates: list[NodeCandidates], most: int, each: int) -> tuple[Floats, Ints]:
    """Do `merge` of the candidates of some sequences."""
    start = np.zeros(len(candidates) + 1, np.int32)
    np.cumsum([len(one.reach) for one in candidates], out=start[1:])
    found: tuple[Floats, Ints] = merge(
        np.concatenate([one.reach for one in candidates]),
        np.concatenate([one.depth for one in candidates]),
        start,
        most,
        each,
    )
    return found


def merge_many(candidates: list[NodeCandidates], most: int, each: int) -> tuple[Floats, Ints]:
    """Do `merge` of the candidates of many sequences, by sorting them all."""
    counts = [min(each, len(one.reach)) for one in candidates]
    reach = np.concatenate([one.reach[:each] for one in candidates])
    depth = np.concatenate([one.depth[:each] for one in candidates])
    keys = (0x7FFFFFFF - reach.view(np.int32).astype(np.int64)) << 32  # rising as reach falls
    keys |= np.minimum(depth, 4095).astype(np.int64) << 20
    keys |= np.arange(len(reach))
    keys.sort()
    order = keys[:most] & 0xFFFFF
    return reach[order], np.repeat(np.arange(len(counts), dtype=np.int32), counts)[order]


@njit()
def sorted_candidates(
    reach: Floats, nodes: MirrorNodes, limit: int, end_tokens: Ints
) -> tuple[Ints, Floats, Ints]:
    """Sort one mirror's candidates by (reach down, depth up, index up); returns `NodeCandidates`.

    `reach` float32[nodes]. Left out are nodes whose row could add no token: those at depth `limit`
    (tokens that the request may still get) or deeper, those that are never reached, end tokens, and
    their descendants.
    """
    parent, depth, count_of_all = nodes.parent, nodes.depth, reach.shape[0]
    bits = reach.view(np.int32)  # of a float >= 0: as ordered as the float
    keys = np.empty(count_of_all, np.int64)
    barred = np.zeros(count_of_all, np.bool_)
    count = 0
    for node in range(count_of_all):
        barred[node] = (
            depth[node] >= limit
            or reach[node] <= 0
            or contains(end_tokens, nodes.token[node])
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
    """Merge sorted candidates; return the best `most` reaches and the sequence of each.

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
def best_count(reach: Floats, costs: Seconds, rate: float) -> int:
    """Return argmax over k of reach[0] + … + reach[k - 1] - rate * costs[k]."""
    best, best_value, total = 0, -rate * costs[0], 0.0
    for k in range(1, min(reach.shape[0], costs.shape[0] - 1) + 1):
        total += reach[k - 1]
        value = total - rate * costs[k]
        if value > best_value:
            best, best_value = k, value
    return best
