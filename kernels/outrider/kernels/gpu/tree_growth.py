"""Chooses, on a GPU, the rows that a draft's scheduler will ask for next of one session.

The device form of `worker.drafting`: ranked children become candidates, the best candidates nodes,
the best nodes without KV rows. One program does it all between two passes of a chain, so that the
host is not asked. Leaves whether the guess was right to whoever compares: a tree that grows
otherwise costs an answer that nobody asked for, never a wrong one.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
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
"""Rows of a pass that a chain anticipates."""
COLUMNS: tl.constexpr = tl.constexpr(5)
"""Numbers of a row in a record, its ancestors left out."""
UNEXPANDED: tl.constexpr = tl.constexpr(-1)
LAST: tl.constexpr = tl.constexpr(1 << 30)
WARPS = 4


class Header(NamedTuple):
    """A chain's numbers, in the order of `TreeGrowth.header`; kernels have them by place."""

    nodes: int
    candidates: int
    """Dead ones too."""
    rows: int
    """Of the pass that runs; 0 ends the chain."""
    root: int
    """The root's position."""
    width: int
    """Most rows of a pass."""
    depth: int
    """Of the children of a row, at most."""
    ahead: int
    """Nodes, at most."""
    fan: int
    """Nodes of one growth."""
    room: int
    """Offsets of the session's region: a pass that needs more ends the chain."""
    bonus: int
    """Bits of a float32: what a level adds to a score."""


@dataclass(frozen=True, slots=True)
class TreeGrowth:
    """One session's tree on the device; int32, contiguous. Nodes are numbered, -1 is the root."""

    header: Tensor  # [10] as `Header` has them
    chosen: Tensor  # [32] node of each row of the pass that runs
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
    """Where the rows of the next pass go; int32, on the device, at least n rows of each."""

    tokens: Tensor  # [n]
    positions: Tensor  # [n]
    slots: Tensor  # [n] of the pool; -1 in a padded row
    drawn_at: Tensor  # [n] where a row's children would stand
    outputs: Tensor  # [n] their own numbers
    context: ContextRows  # its groups are of `group_rows` rows; its first table is the session's


@triton.jit
def offer(  # type: ignore[no-untyped-def]
    header, chosen, score, of, word, worth, ranked, logprobs, offered, rows,
    LANES: tl.constexpr, K: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Children of a pass's rows become candidates: score of the row, log-probability, bonus."""
    bonus = tl.load(header + 9).to(tl.float32, bitcast=True).to(tl.float64)
    line, child = tl.arange(0, LANES), tl.arange(0, K)
    leaf = tl.load(chosen + line, line < rows, other=-1)
    above = tl.load(score + leaf, leaf >= 0, other=0.0).to(tl.float64)
    cell = line[:, None] * K + child[None, :]
    ran = (line < rows)[:, None] & (child >= 0)[None, :]
    logprob = tl.load(logprobs + cell, ran, other=float("-inf"))
    value = above[:, None] + tl.minimum(logprob, 0.0).to(tl.float64) + bonus
    value = tl.where(tl.abs(logprob) < float("inf"), value.to(tl.float32), float("-inf"))
    at = offered + cell
    ran &= at < CANDIDATES
    tl.store(of + at, tl.broadcast_to(leaf[:, None], (LANES, K)), ran)
    tl.store(word + at, tl.load(ranked + cell, ran, other=0), ran)
    tl.store(worth + at, value, ran)
    return tl.minimum(offered + rows * K, CANDIDATES)


@triton.jit
def promote(  # type: ignore[no-untyped-def]
    header, parent, token, depth, slot, score, of, word, worth, count, offered, rows, limit,
    NODES: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Makes nodes of the best candidates, a growth at a time, until one may be expanded."""
    node, lane = tl.arange(0, NODES), tl.arange(0, CANDIDATES)
    free = tl.load(slot + node, node < count, other=0) == UNEXPANDED
    free &= tl.load(depth + node, node < count, other=LAST) < limit
    waiting = tl.sum(free.to(tl.int32), 0)
    left = tl.where(rows > 0, tl.minimum(tl.load(header + 6), NODES) - count, 0)
    fan = tl.load(header + 7)
    values = tl.load(worth + lane, lane < offered, other=float("-inf"))
    highest = tl.max(values, 0)
    made = count * 0
    while (
        (highest > float("-inf")) & (left > 0) & ((made == 0) | (made % fan > 0) | (waiting == 0))
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
def choose(  # type: ignore[no-untyped-def]
    header, chosen, depth, slot, score, count, rows, limit, lines,
    LANES: tl.constexpr, NODES: tl.constexpr,
):  # fmt: skip
    """The best nodes without KV, best first, ties to the older; gives them the next offsets."""
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
    tl.store(chosen + line, picked)
    return picked, found, first


@triton.jit
def grow_kernel(  # type: ignore[no-untyped-def]
    header, chosen, parent, token, depth, slot, score, of, word, worth, ranked, logprobs,
    tokens, positions, slots, drawn_at, outputs, sequence, prefix, depths, ancestors, groups,
    tables, record, lines, group_count, group_rows,
    LANES: tl.constexpr, K: tl.constexpr, NODES: tl.constexpr, CANDIDATES: tl.constexpr,
    DEEPEST: tl.constexpr,
):  # fmt: skip
    """One program: a pass's children come in, the rows of the next pass go out."""
    count, rows = tl.load(header), tl.load(header + 2)
    limit = tl.minimum(tl.load(header + 5), DEEPEST + 1)
    offered = offer(
        header, chosen, score, of, word, worth, ranked, logprobs, tl.load(header + 1), rows,
        LANES, K, CANDIDATES,
    )  # fmt: skip
    tl.debug_barrier()
    count = promote(
        header, parent, token, depth, slot, score, of, word, worth, count, offered, rows, limit,
        NODES, CANDIDATES,
    )  # fmt: skip
    tl.debug_barrier()
    picked, found, first = choose(
        header, chosen, depth, slot, score, count, rows, limit, lines, LANES, NODES
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
    tl.store(drawn_at + line, place + 1, inside)
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
    ranked: Tensor,
    logprobs: Tensor,
    rows: NextRows,
    record: Tensor,
    group_rows: int,
) -> None:
    """Takes the children of a pass's rows into a tree, and writes the rows of the next pass.

    ranked int32, logprobs float32 [n, k]: of each row of the pass that ran, best first; -inf: none.
    As many rows are written as `record` has, padded with rows that see nothing: all of them where
    the chain ends, for want of leaves, of nodes ahead or of room in the region. record: int32
    [n, 5 + 64], flat: tokens, positions, slots, prefix and depth [n] each, then ancestors [n, 64],
    of which the first `depth` are written.

    Source: best-first growth as in `worker.drafting`, kept on the device as SwiftSpec's evolving
    tree is (arXiv 2506.11309). Traffic: some 50 KB, all from L2; one program.
    """
    count = _checked(growth, ranked, logprobs, rows, record)
    context, lanes = rows.context, max(2, int(triton.next_power_of_2(count)))
    grow_kernel[(1,)](
        growth.header, growth.chosen, growth.parent, growth.token, growth.depth, growth.slot,
        growth.score, growth.candidate_parent, growth.candidate_token, growth.candidate_score,
        ranked, logprobs, rows.tokens, rows.positions, rows.slots, rows.drawn_at, rows.outputs,
        context.sequence, context.prefix, context.depth, context.ancestors, context.groups,
        context.tables, record, count, context.groups.shape[0], group_rows,
        lanes, ranked.shape[1], NODES, CANDIDATES, DEEPEST, num_warps=WARPS,
    )  # fmt: skip


def grow_reference(
    growth: TreeGrowth,
    ranked: Tensor,
    logprobs: Tensor,
    rows: NextRows,
    record: Tensor,
    group_rows: int,
) -> None:
    """What `grow` computes, a step at a time; where it leaves memory unwritten, so does this."""
    count = _checked(growth, ranked, logprobs, rows, record)
    head = Header(*growth.header.tolist())
    offered = _offer(growth, head, ranked.tolist(), logprobs.tolist())
    nodes = _promote(growth, head, offered) if head.rows else head.nodes
    picked = _choose(growth, head, nodes, count) if head.rows and nodes < head.ahead else []
    first = head.root + 1 + int((growth.slot[:nodes] >= 0).sum())
    picked = picked if first + len(picked) <= head.room else []
    growth.header.copy_(
        torch.tensor(head._replace(nodes=nodes, candidates=offered, rows=len(picked)))
    )
    lines = torch.zeros((count, COLUMNS.value), dtype=torch.int32)
    lines[:, 2] = -1
    paths = record[COLUMNS.value * count :].view(count, DEEPEST)
    for line, node in enumerate(picked):
        offset, depth = first + line, int(growth.depth[node])
        growth.slot[node], growth.chosen[line] = offset, node
        slot = int(rows.context.tables[0, offset // 64]) * 64 + offset % 64
        lines[line] = torch.tensor(
            [int(growth.token[node]), head.root + depth, slot, head.root + 1, depth]
        )
        for step in range(depth - 1, -1, -1):
            rows.context.ancestors[line, step] = paths[line, step] = growth.slot[node]
            node = int(growth.parent[node])
    record[: COLUMNS.value * count] = lines.T.flatten()
    context = rows.context
    places = (rows.tokens, rows.positions, rows.slots, context.prefix, context.depth)
    for column, place in enumerate(places):
        place[:count] = lines[:, column]
    rows.drawn_at[:count] = lines[:, 1] + 1
    rows.outputs[:count] = torch.arange(count)
    context.sequence[:count] = 0
    for group in range(context.groups.shape[0]):
        size = min(max(len(picked) - group * group_rows, 0), group_rows)
        context.groups[group] = torch.tensor([group * group_rows if size else 0, size])


def _offer(
    growth: TreeGrowth, head: Header, ranked: list[list[int]], logprobs: list[list[float]]
) -> int:
    """Makes candidates; returns how many there are."""
    at, bonus = head.candidates, float(np.int32(head.bonus).view(np.float32))
    for line in range(head.rows):
        leaf = int(growth.chosen[line])
        above = float(growth.score[leaf]) if leaf >= 0 else 0.0
        for token, logprob in zip(ranked[line], logprobs[line], strict=True):
            if at < CANDIDATES:
                value = above + min(logprob, 0.0) + bonus if np.isfinite(logprob) else -np.inf
                growth.candidate_parent[at], growth.candidate_token[at] = leaf, token
                growth.candidate_score[at] = value
                at += 1
    return at


def _promote(growth: TreeGrowth, head: Header, offered: int) -> int:
    """Makes nodes; returns how many there are."""
    nodes, made = head.nodes, 0
    left = min(head.ahead, NODES) - nodes
    waiting = len(_free(growth, head, nodes))
    values = growth.candidate_score[:offered]
    while left > made and offered and (made == 0 or made % head.fan or not waiting):
        best = int(values.argmax())
        if values[best] == -torch.inf:
            break
        above = int(growth.candidate_parent[best])
        growth.parent[nodes], growth.token[nodes] = above, growth.candidate_token[best]
        growth.depth[nodes] = 1 + (int(growth.depth[above]) if above >= 0 else 0)
        growth.slot[nodes], growth.score[nodes] = -1, values[best]
        values[best] = -torch.inf
        nodes, made = nodes + 1, made + 1
        waiting = len(_free(growth, head, nodes))
    return nodes


def _free(growth: TreeGrowth, head: Header, nodes: int) -> list[int]:
    """Nodes that may be expanded."""
    limit = min(head.depth, DEEPEST + 1)
    return [n for n in range(nodes) if growth.slot[n] < 0 and growth.depth[n] < limit]


def _choose(growth: TreeGrowth, head: Header, nodes: int, count: int) -> list[int]:
    """The best of those."""
    free = sorted(_free(growth, head, nodes), key=lambda node: -float(growth.score[node]))
    return free[: min(head.width, count)]


def _checked(
    growth: TreeGrowth, ranked: Tensor, logprobs: Tensor, rows: NextRows, record: Tensor
) -> int:
    """Rows of the next pass; `ValueError` names what does not fit."""
    count = record.numel() // int(COLUMNS.value + DEEPEST)
    if record.numel() % (COLUMNS.value + DEEPEST) or not 0 < count <= MAX_GROWTH_ROWS:
        raise ValueError(f"record: {tuple(record.shape)}, wanted 1 to {MAX_GROWTH_ROWS} rows")
    if ranked.shape != logprobs.shape or ranked.shape[1] & (ranked.shape[1] - 1):
        raise ValueError(f"ranked: {tuple(ranked.shape)}, wanted a power of two of children")
    for name in ("tokens", "positions", "slots", "drawn_at", "outputs"):
        if getattr(rows, name).shape[0] < count:
            raise ValueError(f"{name}: {tuple(getattr(rows, name).shape)}, wanted [{count}]")
    return count


def _compilation(rows: int) -> Compilation:
    floats = ("score", "worth", "logprobs")
    sizes = ("lines", "group_count", "group_rows")
    constants: dict[str, Any] = {"LANES": rows, "K": 8, "NODES": NODES}
    constants |= {"CANDIDATES": CANDIDATES, "DEEPEST": DEEPEST}
    names = [name for name in grow_kernel.arg_names if name not in constants]
    kinds = dict.fromkeys(names, "*i32") | dict.fromkeys(floats, "*fp32")
    return Compilation(
        kernel=grow_kernel,
        name=f"{rows} rows",
        signature=kinds | dict.fromkeys(sizes, "i32"),
        constants=constants,
        warps=WARPS,
    )


COMPILATIONS = tuple(_compilation(rows) for rows in (4, 8, MAX_GROWTH_ROWS))
