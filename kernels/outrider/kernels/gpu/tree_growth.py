"""Tree growth on a GPU: the rows that a draft's scheduler will request next of one session.

The device form of `worker.tree.draft_table`, which is its reference in tests: children become
candidates, the best candidates nodes, the best nodes without KV rows. One program does it all
between two passes of a chain, without the host. Leaves comparing these rows with those that the
scheduler then requests to the runner: a tree that grows otherwise costs a pass, never a token.
"""

from dataclasses import dataclass
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.attention import DEEPEST
from outrider.kernels.gpu.attention_inputs import ContextRows
from outrider.kernels.gpu.compilation import Compilation

NODES = 512
"""Nodes of a tree, at most."""
CANDIDATES = 2048
"""Candidates of a chain: those it starts with, and all children that its passes rank."""
MAX_GROWTH_ROWS = 32
"""Rows of an anticipated pass, at most."""
COLUMNS: tl.constexpr = tl.constexpr(5)
"""Numbers of a row in a record, its ancestors left out."""
UNEXPANDED: tl.constexpr = tl.constexpr(-1)
LAST: tl.constexpr = tl.constexpr(1 << 30)
WARPS = 4


class Header(NamedTuple):
    """Numbers of a chain, in the order of `TreeGrowth.header`; kernels have them by index."""

    nodes: int
    candidates: int
    """Dead ones too."""
    rows: int
    """Rows of the pass that runs; 0 ends the chain."""
    root: int
    """The root's position."""
    width: int
    """Most rows of a pass."""
    depth: int
    """Greatest depth of the children of a row."""
    nodes_ahead: int
    """Nodes, at most."""
    max_new_nodes: int
    """Nodes of one growth."""
    room: int
    """Offsets of the session's block table: a pass that needs more ends the chain."""
    depth_bonus: int
    """Bits of a float32: what a level adds to a score."""


@dataclass(frozen=True, slots=True)
class TreeGrowth:
    """One session's tree on the device; int32, contiguous. Nodes are numbered, -1 is the root."""

    header: Tensor  # [10] as `Header` has them
    leaves: Tensor  # [32] node of each row of the pass that runs
    parent: Tensor  # [512] of each node
    token: Tensor  # [512]
    depth: Tensor  # [512]
    slot: Tensor  # [512] offset of its KV; -1: none yet
    score: Tensor  # float32 [512]
    candidate_parent: Tensor  # [2048] of each candidate
    candidate_token: Tensor  # [2048]
    candidate_score: Tensor  # float32 [2048] -inf: dead


@dataclass(frozen=True, slots=True)
class NextRows:
    """Buffers for the rows of the next pass; int32, on the device, at least n rows of each."""

    tokens: Tensor  # [n]
    positions: Tensor  # [n]
    slots: Tensor  # [n] of the pool; -1 in a padded row
    sampled_at: Tensor  # [n] where a row's children would stand
    outputs: Tensor  # [n] their own numbers
    context: ContextRows  # its groups are of `group_rows` rows; its first table is the session's


@triton.jit
def offer(  # type: ignore[no-untyped-def]
    header, leaves, score, of, word, worth, children, logprobs, offered, rows,
    LANES: tl.constexpr, K: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Make candidates of a pass's children, by score of the row, log-probability and bonus."""
    depth_bonus = tl.load(header + 9).to(tl.float32, bitcast=True).to(tl.float64)
    line, child = tl.arange(0, LANES), tl.arange(0, K)
    leaf = tl.load(leaves + line, line < rows, other=-1)
    above = tl.load(score + leaf, leaf >= 0, other=0.0).to(tl.float64)
    cell = line[:, None] * K + child[None, :]
    ran = (line < rows)[:, None] & (child >= 0)[None, :]
    logprob = tl.load(logprobs + cell, ran, other=float("-inf"))
    value = above[:, None] + tl.minimum(logprob, 0.0).to(tl.float64) + depth_bonus
    value = tl.where(tl.abs(logprob) < float("inf"), value.to(tl.float32), float("-inf"))
    at = offered + cell
    ran &= at < CANDIDATES
    tl.store(of + at, tl.broadcast_to(leaf[:, None], (LANES, K)), ran)
    tl.store(word + at, tl.load(children + cell, ran, other=0), ran)
    tl.store(worth + at, value, ran)
    return tl.minimum(offered + rows * K, CANDIDATES)


@triton.jit
def promote(  # type: ignore[no-untyped-def]
    header, parent, token, depth, slot, score, of, word, worth, count, offered, rows, limit,
    NODES: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Make nodes of the best candidates, a growth at a time, until one may be expanded."""
    node, lane = tl.arange(0, NODES), tl.arange(0, CANDIDATES)
    free = tl.load(slot + node, node < count, other=0) == UNEXPANDED
    free &= tl.load(depth + node, node < count, other=LAST) < limit
    waiting = tl.sum(free.to(tl.int32), 0)
    left = tl.where(rows > 0, tl.minimum(tl.load(header + 6), NODES) - count, 0)
    max_new_nodes = tl.load(header + 7)
    values = tl.load(worth + lane, lane < offered, other=float("-inf"))
    highest = tl.max(values, 0)
    made = count * 0
    while (
        (highest > float("-inf"))
        & (left > 0)
        & ((made == 0) | (made % max_new_nodes > 0) | (waiting == 0))
    ):
        best = tl.min(tl.where(values == highest, lane, CANDIDATES), 0)
        above = tl.load(of + best)
        level = tl.load(depth + above, above >= 0, other=0) + 1
        tl.store(parent + count, above)
        tl.store(token + count, tl.load(word + best))
        tl.store(depth + count, level)
        tl.store(slot + count, UNEXPANDED)
        tl.store(score + count, highest)
        tl.store(worth + best, float("-inf"))
        values = tl.where(lane == best, float("-inf"), values)
        highest = tl.max(values, 0)
        count += 1
        left -= 1
        made += 1
        waiting += (level < limit).to(tl.int32)
    return count


@triton.jit
def select_leaves(  # type: ignore[no-untyped-def]
    header, leaves, depth, slot, score, count, rows, limit, lines,
    LANES: tl.constexpr, NODES: tl.constexpr,
):  # fmt: skip
    """Select the best nodes without KV, ties to the older, and give them the next offsets."""
    node, line = tl.arange(0, NODES), tl.arange(0, LANES)
    held = tl.load(slot + node, node < count, other=0)
    free = (held == UNEXPANDED) & (tl.load(depth + node, node < count, other=LAST) < limit)
    values = tl.load(score + node, free, other=float("-inf"))
    expanded = tl.sum(((held != UNEXPANDED) & (node < count)).to(tl.int32), 0)
    needs_pass = (rows > 0) & (count < tl.load(header + 6))
    most = tl.where(needs_pass, tl.minimum(tl.load(header + 4), lines), 0)
    picked = tl.full((LANES,), -1, tl.int32)
    found = count * 0
    highest = tl.max(values, 0)
    while (found < most) & (highest > float("-inf")):
        best = tl.min(tl.where(values == highest, node, NODES), 0)
        picked = tl.where(line == found, best, picked)
        values = tl.where(node == best, float("-inf"), values)
        highest = tl.max(values, 0)
        found += 1
    first = tl.load(header + 3) + 1 + expanded
    found = tl.where(first + found <= tl.load(header + 8), found, 0)
    tl.store(slot + picked, first + line, line < found)
    tl.store(leaves + line, picked)
    return picked, found, first


@triton.jit
def grow_kernel(  # type: ignore[no-untyped-def]
    header, leaves, parent, token, depth, slot, score, of, word, worth, children, logprobs,
    tokens, positions, slots, sampled_at, outputs, sequence, prefix, depths, ancestors, groups,
    tables, record, lines, group_count, group_rows,
    LANES: tl.constexpr, K: tl.constexpr, NODES: tl.constexpr, CANDIDATES: tl.constexpr,
    DEEPEST: tl.constexpr,
):  # fmt: skip
    """One program: a pass's children come in, the rows of the next pass go out."""
    count, rows = tl.load(header), tl.load(header + 2)
    limit = tl.minimum(tl.load(header + 5), DEEPEST + 1)
    offered = offer(
        header, leaves, score, of, word, worth, children, logprobs, tl.load(header + 1), rows,
        LANES, K, CANDIDATES,
    )  # fmt: skip
    tl.debug_barrier()
    count = promote(
        header, parent, token, depth, slot, score, of, word, worth, count, offered, rows, limit,
        NODES, CANDIDATES,
    )  # fmt: skip
    tl.debug_barrier()
    picked, found, first = select_leaves(
        header, leaves, depth, slot, score, count, rows, limit, lines, LANES, NODES
    )
    tl.debug_barrier()
    tl.store(header, count)
    tl.store(header + 1, offered)
    tl.store(header + 2, found)
    root = tl.load(header + 3)
    line, group = tl.arange(0, LANES), tl.arange(0, LANES)
    real, inside = line < found, line < lines
    level = tl.load(depth + picked, real, other=0)
    own = tl.load(token + picked, real, other=0)
    offset = first + line
    block = tl.load(tables + offset // 64, real, other=0)
    at = tl.where(real, block * 64 + offset % 64, -1)
    place = tl.where(real, root + level, 0)
    seen = tl.where(real, root + 1, 0)
    tl.store(tokens + line, own, inside)
    tl.store(positions + line, place, inside)
    tl.store(slots + line, at, inside)
    tl.store(sampled_at + line, place + 1, inside)
    tl.store(outputs + line, line, inside)
    tl.store(sequence + line, line * 0, inside)
    tl.store(prefix + line, seen, inside)
    tl.store(depths + line, level, inside)
    begin = group * group_rows
    size = tl.minimum(tl.maximum(found - begin, 0), group_rows)
    tl.store(groups + 2 * group, tl.where(size > 0, begin, 0), group < group_count)
    tl.store(groups + 2 * group + 1, size, group < group_count)
    tl.store(record + line, own, inside)
    tl.store(record + lines + line, place, inside)
    tl.store(record + 2 * lines + line, at, inside)
    tl.store(record + 3 * lines + line, seen, inside)
    tl.store(record + 4 * lines + line, level, inside)
    paths = record + COLUMNS * lines + line * DEEPEST
    step = level - 1
    node = picked
    for _ in range(tl.max(level, 0)):
        on_path = real & (step >= 0)
        held = tl.load(slot + node, on_path, other=0)
        tl.store(ancestors + line * DEEPEST + step, held, on_path)
        tl.store(paths + step, held, on_path)
        node = tl.load(parent + node, on_path, other=-1)
        step -= 1


def grow(
    growth: TreeGrowth,
    children: Tensor,
    logprobs: Tensor,
    rows: NextRows,
    record: Tensor,
    group_rows: int,
) -> None:
    """Take the children of a pass's rows into a tree, and write the rows of the next pass.

    children int32, logprobs float32 [n, k]: of each row of the pass that ran, best first; -inf:
    none. As many rows are written as `record` has, padded with rows that see nothing: all of them
    where the chain ends, for want of leaves, of nodes ahead or of room in the block table. record:
    int32 [n, 5 + 64], flat: tokens, positions, slots, prefix and depth [n] each, then ancestors [n,
    64], of which the first `depth` are written.

    Source: best-first growth as in `worker.tree.draft_table`, kept on the device as SwiftSpec's
    evolving tree is (arXiv 2506.11309). Traffic: some 50 KB, all from L2; one program.
    """
    count = _checked(growth, children, logprobs, rows, record)
    context, lanes = rows.context, max(2, int(triton.next_power_of_2(count)))
    grow_kernel[(1,)](
        growth.header, growth.leaves, growth.parent, growth.token, growth.depth, growth.slot,
        growth.score, growth.candidate_parent, growth.candidate_token, growth.candidate_score,
        children, logprobs, rows.tokens, rows.positions, rows.slots, rows.sampled_at, rows.outputs,
        context.sequence, context.prefix, context.depth, context.ancestors, context.groups,
        context.tables, record, count, context.groups.shape[0], group_rows,
        lanes, children.shape[1], NODES, CANDIDATES, DEEPEST, num_warps=WARPS,
    )  # fmt: skip


def _checked(
    growth: TreeGrowth, children: Tensor, logprobs: Tensor, rows: NextRows, record: Tensor
) -> int:
    """Return the rows of the next pass; `ValueError` names what does not fit."""
    count = record.numel() // int(COLUMNS.value + DEEPEST)
    if record.numel() % (COLUMNS.value + DEEPEST) or not 0 < count <= MAX_GROWTH_ROWS:
        raise ValueError(f"record: {tuple(record.shape)}, wanted 1 to {MAX_GROWTH_ROWS} rows")
    if children.shape != logprobs.shape or children.shape[1] & (children.shape[1] - 1):
        raise ValueError(f"children: {tuple(children.shape)}, wanted a power of two of children")
    for name in ("tokens", "positions", "slots", "sampled_at", "outputs"):
        if getattr(rows, name).shape[0] < count:
            raise ValueError(f"{name}: {tuple(getattr(rows, name).shape)}, wanted [{count}]")
    return count


COMPILATIONS = tuple(
    Compilation(
        kernel=grow_kernel,
        name=f"{rows} rows",
        types={"children": "*i32", "outputs": "*i32"},
        constants={"LANES": rows, "K": 8, "NODES": NODES, "CANDIDATES": CANDIDATES}
        | {"DEEPEST": DEEPEST},
        warps=WARPS,
    )
    for rows in (4, 8, MAX_GROWTH_ROWS)
)
