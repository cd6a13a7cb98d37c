"""Arithmetic that both copies of a tree share: children, walks, survivors, rows.

Leaves node ids and delivery to `mirror`, growing to `draft`, and the selection of rows to the
target.

A *node* is one draft token; it has an index, its parent's index (`ROOT` for a child of the root)
and a depth. Parents always have smaller indices than their children. The *root* is the last
committed token. The *mirror* is the target's copy of the tree. A verify
pass has the root's row, then one *node row* for each selected node; node rows count from 0, without
the root's. `sampled[0]` is the token that the target sampled at the root, `sampled[i + 1]` the one
at node row i.

    >>> import numpy as np
    >>> from outrider.worker.tree.growth import Growth
    >>> from outrider.worker.tree.mirror import Mirror
    >>> ints = lambda *values: np.array(values, np.int32)
    >>> mirror = Mirror(root_position=11)
    >>> logprobs = np.full(3, -0.7, np.float32)
    >>> growth = Growth(11, 1, np.array([0, 1, 0]), ints(7, 8, 9), logprobs)
    >>> mirror.receive(growth, granted=8, allowed=np.ones(10, np.bool_))
    0
    >>> selected = ints(0, 1)
    >>> rows = paths(mirror.parent, mirror.depth, selected)
    >>> rows.ancestors.tolist()
    [[0, -1], [0, 1]]
    >>> tokens = mirror.token[selected]
    >>> sampled = ints(7, 8, 5)
    >>> accepted = walk(rows.parent, tokens, sampled, end_tokens=ints(), limit=100)
    >>> committed = committed_tokens(accepted, tokens, sampled)
    >>> committed.tolist(), mirror.commit(committed)
    ([7, 8, 5], False)
"""

from typing import NamedTuple

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.worker.tree.growth import Ints

ROOT = -1
"""The root, where an index of a node or row is expected."""
DEAD = -2
"""No node: a token without a child, or a node that a commit removed."""


class Paths(NamedTuple):
    """Places of the selected rows in the tree; padding of `ancestors` is -1."""

    parent: Ints
    """[rows] row of the parent, `ROOT` for children of the root."""
    ancestors: Ints
    """[rows, deepest row] rows of the path in depth order, the row itself last."""
    depth: Ints
    """[rows] distance from the root; a row's position is the root's plus this."""


def paths(parent: Ints, depth: Ints, selected: Ints) -> Paths:
    """Turn selected nodes into rows; `parent` and `depth` [nodes], `selected` int32[rows].

    Raises `ValueError` where a selected node's parent is not selected before it.
    """
    return Paths(*row_paths(parent, depth, selected))


@njit()
def row_paths(parent: Ints, depth: Ints, selected: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the `paths` of selected nodes: parent, ancestors and depth."""
    rows = selected.shape[0]
    row_of = np.full(selected.max() + 1 if rows else 0, DEAD, np.int32)
    row_parent = np.empty(rows, np.int32)
    row_depth = np.empty(rows, np.int32)
    deepest = 0
    for row in range(rows):
        node = selected[row]
        above = parent[node]
        row_parent[row] = ROOT if above == ROOT else row_of[above]
        if row_parent[row] == DEAD:
            raise ValueError("a row was selected without, or before, its parent")
        row_of[node] = row
        row_depth[row] = depth[node]
        deepest = max(deepest, row_depth[row])
    ancestors = np.full((rows, deepest), -1, np.int32)
    for row in range(rows):
        for level in range(row_depth[row] - 1):
            ancestors[row, level] = ancestors[row_parent[row], level]
        ancestors[row, row_depth[row] - 1] = row
    return row_parent, ancestors, row_depth


@njit()
def walk(row_parent: Ints, row_token: Ints, sampled: Ints, end_tokens: Ints, limit: int) -> Ints:
    """Return the rows accepted in one pass, in order (speculation.md, Tree).

    Follows, from the root, the child row whose token the target sampled. Ends where there is none,
    at the first end token (sampled, so committed, but its row adds nothing) and where `limit` >= 1
    tokens are committed. `row_parent`, `row_token` int32[rows]; `sampled` int32[rows + 1].
    """
    rows = row_parent.shape[0]
    accepted = np.empty(rows, np.int32)
    count = 0
    row = ROOT
    while count + 1 < limit and not contains(end_tokens, sampled[row + 1]):
        row = child_of(row_parent, row_token, rows, row, sampled[row + 1])
        if row == DEAD:
            break
        accepted[count] = row
        count += 1
    return accepted[:count]


@njit()
def accept(
    row_parent: Ints, row_token: Ints, sampled: Ints, end_tokens: Ints, limit: int
) -> tuple[Ints, Ints]:
    """Return the rows that `walk` accepts, and the tokens that they commit."""
    accepted = walk(row_parent, row_token, sampled, end_tokens, limit)
    return accepted, committed_tokens(accepted, row_token, sampled)


@njit()
def committed_tokens(accepted: Ints, row_token: Ints, sampled: Ints) -> Ints:
    """Return the tokens of the accepted rows, then the target's own; int32[accepted + 1]."""
    count = accepted.shape[0]
    tokens = np.empty(count + 1, np.int32)
    last = ROOT
    for i in range(count):
        last = accepted[i]
        tokens[i] = row_token[last]
    tokens[count] = sampled[last + 1]
    return tokens


@njit()
def contains(tokens: Ints, token: int) -> bool:
    """True if `token` is among a few `tokens`."""
    for candidate in tokens:  # noqa: SIM110, numba compiles no generators into any()
        if candidate == token:
            return True
    return False


@njit()
def child_of(parent: Ints, token: Ints, count: int, node: int, wanted: int) -> int:
    """Return the index of the child of `node` with token `wanted`, or `DEAD`."""
    for child in range(node + 1, count):
        if parent[child] == node and token[child] == wanted:
            return child
    return DEAD


@njit()
def descend(parent: Ints, token: Ints, count: int, tokens: Ints) -> Ints:
    """Return the nodes that match `tokens` one after the other from the root, as far as they go."""
    path = np.empty(tokens.shape[0], np.int32)
    node = ROOT
    for step in range(tokens.shape[0]):
        node = child_of(parent, token, count, node, tokens[step])
        if node == DEAD:
            return path[:step]
        path[step] = node
    return path


@njit()
def survivors(parent: Ints, count: int, path: Ints, committed: int) -> Ints:
    """Return each node's new index after a commit of `committed` tokens, `DEAD` for most.

    `path` is what `descend` matched. If it matched everything the subtree of its last node lives
    on, in the same order; otherwise nothing does.
    """
    renumbered = np.full(count, DEAD, np.int32)
    if path.shape[0] < committed:
        return renumbered
    root = path[-1] if committed > 0 else ROOT
    kept = 0
    for node in range(root + 1, count):
        above = parent[node]
        if above == root or (above >= 0 and renumbered[above] >= 0):
            renumbered[node] = kept
            kept += 1
    return renumbered
