"""Compiled halves of a verify pass over one sequence's tree: what runs, and what it settles.

Each is one call without the interpreter lock, over arrays that are laid out once for a sequence.
Joins the trees of `tree` and the estimates of `speculation`; leaves budgets to the planner, KV and
clients to `target/commit`.
"""

from typing import Any, NamedTuple

import numpy as np

from outrider.kernels.compiled import njit
from outrider.kernels.handle import Handle
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.speculation.acceptance import (
    Curves,
    first_child_surplus,
    learn,
    outcomes,
    reach_of,
)
from outrider.worker.speculation.planner import sorted_candidates
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.mirror_table import COUNT, ROOT_POSITION, MirrorTables, commit
from outrider.worker.tree.walk import accept, row_paths


class TreeTables(NamedTuple):
    """All arrays of one sequence's tree."""

    mirror: MirrorTables
    own: Curves
    """The request's match rates."""
    average: Curves
    """Those of all requests."""
    ends: Ints
    """Tokens that end the answer."""


TreeHandle = Handle[TreeTables]


@njit()
def candidates(tree: TreeHandle, limit: int) -> Any:
    """Return the fields of `planner.Candidates`; `limit`: tokens that the request may still get."""
    tables = tree.value
    nodes = tables.mirror.nodes
    reach = reach_of(nodes, tables.mirror.numbers[COUNT], tables.own.rates)
    return sorted_candidates(reach, nodes, limit, tables.ends)


@njit()
def rows_of(
    tree: TreeHandle, selected: Ints, block_table: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
    """Return the rows of a verify pass: row 0 is the root, the `selected` nodes follow in order.

    They are the tokens, positions, slots, prefixes, ancestors and depths of `model.rows.Rows`.
    `block_table` int32[blocks]. Raises `ValueError` where a node is selected without its parent.
    """
    mirror = tree.value.mirror
    nodes, root = mirror.nodes, mirror.numbers[ROOT_POSITION]
    count = selected.shape[0] + 1
    _, paths, depths = row_paths(nodes.parent, nodes.depth, selected)
    tokens, positions = np.empty(count, np.int32), np.empty(count, np.int32)
    slots, depth = np.empty(count, np.int32), np.zeros(count, np.int32)
    ancestors = np.zeros((count, max(1, paths.shape[1])), np.int32)
    tokens[0] = mirror.tokens[root]
    for row in range(1, count):
        tokens[row], depth[row] = nodes.token[selected[row - 1]], depths[row - 1]
        for level in range(depth[row]):
            ancestors[row, level] = root + 1 + paths[row - 1, level]
    for row in range(count):
        positions[row], offset = root + depth[row], root + row
        slots[row] = block_table[offset // BLOCK] * BLOCK + offset % BLOCK
    return tokens, positions, slots, np.full(count, np.int32(root + 1)), ancestors, depth


@njit()
def settle(
    tree: TreeHandle, selected: Ints, sampled: Ints, limit: int
) -> tuple[Ints, Ints, bool, float]:
    """Walk the tree, learn from it, and move its root along what is committed.

    `selected` int32[rows] nodes; `sampled` int32[rows + 1] tokens after the root's row and each of
    theirs; `limit`: tokens that the request may still get. Returns the accepted rows, the
    committed tokens, True for a fall-in, and the `first_child_surplus`. Where the last token is
    negative, so none, nothing is learned and nothing moves.
    """
    tables = tree.value
    nodes, count = tables.mirror.nodes, tables.mirror.numbers[COUNT]
    parents, _, _ = row_paths(nodes.parent, nodes.depth, selected)
    accepted, tokens = accept(parents, nodes.token[selected], sampled, tables.ends, limit)
    if tokens[-1] < 0:
        return accepted, tokens, False, 0.0
    surplus = 0.0
    if count > 0:
        seen = outcomes(nodes, count, selected, sampled)
        learn(nodes, seen, sampled.shape[0], tables.own)
        learn(nodes, seen, sampled.shape[0], tables.average)
        surplus = first_child_surplus(nodes, count, selected, sampled)
    return accepted, tokens, commit(tables.mirror, tokens), surplus
