"""Attention of a few rows over paged keys: each row sees its prefix, then its ancestors by depth.

Leaves writing keys and values to the projections, and which rows run to the engine. Verify rows, a
draft's leaves (a rectangular mask: the ancestors of each leaf, itself the last) and plain decoding
are one launch with other arguments. Ancestors are lists of offsets, as the CPU path has them, and
not bit masks: the k-th entry is the position prefix + k, so a gather by *logical* position costs
one load, where a mask would have to be searched for its k-th bit.

A row's result is a function of its own logical context alone. Its length decides how that is cut:
the last 64 to 127 positions are the row's tail, read by the row's own program through its
ancestors; what is before them is committed, and is read in splits of whole blocks at absolute
positions, by one program for all rows of a group. A second kernel adds the splits' sums, by index.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.attention_inputs import (
    LINES,
    TILE,
    AttentionScratch,
    ContextRows,
    group_rows,
    splits_of,
)
from outrider.kernels.gpu.attention_parts import fold, spans, splits_seen
from outrider.kernels.gpu.compilation import Compilation
from outrider.kernels.gpu.dependent_launch import dependent, launch_next, wait_for_inputs

DEEPEST = 64
"""Most ancestors of a row: with it all of them are in the row's tail."""
WARPS = 4
STAGES = 2
COLUMNS = 64
"""Most columns of a head that a program adds up."""


@triton.jit
def attend_group(  # type: ignore[no-untyped-def]
    q, k, v, sequence, tables, prefix, depth, groups, sums, statistics,
    group, doubled, split, head, scale, window, q_row, head_size, slot_size, blocks,
    HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_LINES: tl.constexpr,
    ROWS: tl.constexpr, WINDOWED: tl.constexpr, SPLITS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """One split of the committed context of a group's rows that have one size of splits."""
    first = tl.load(groups + 2 * group)
    count = tl.load(groups + 2 * group + 1)
    i = tl.arange(0, ROWS)
    start, tail, size = spans(prefix, depth, first + i, i < count, window, SPLITS)
    common = tl.min(tl.where(i < count, size, 31), 0) + doubled
    mine = (i < count) & (size == common) & (start < tail)
    begin, parts = splits_seen(start, tail, size)
    index = tl.min(tl.where(mine, begin, 1 << 30), 0) + split
    mine &= (index >= begin) & (index < begin + parts)
    if tl.max(mine.to(tl.int32), 0) > 0:  # variables of lines have names of their own
        line = tl.arange(0, ROWS * GROUP_LINES)
        row, of_head = first + line // GROUP_LINES, line % GROUP_LINES
        inside = (line // GROUP_LINES < count) & (of_head < GROUP)
        low, high, step = spans(prefix, depth, row, inside, window, SPLITS)
        since, seen = splits_seen(low, high, step)
        nth = index - since
        inside &= (step == common) & (nth >= 0) & (nth < seen)
        d, slot = tl.arange(0, D), tl.arange(0, 64)
        at = q + row.to(tl.int64)[:, None] * q_row + (head * GROUP + of_head)[:, None] * D
        queries = tl.load(at + d[None, :], inside[:, None], other=0.0)
        cells = slot[:, None] * slot_size + d[None, :]
        table = tables + tl.load(sequence + first).to(tl.int64) * blocks
        peak = tl.full((ROWS * GROUP_LINES,), float("-inf"), tl.float32)
        weight = tl.zeros((ROWS * GROUP_LINES,), tl.float32)
        total = tl.zeros((ROWS * GROUP_LINES, D), tl.float32)
        lowest = tl.min(tl.where(inside, low, 1 << 30), 0)
        highest = tl.max(tl.where(inside, high, 0), 0)
        from_tile = tl.maximum(index << common, lowest) >> 6
        to_tile = tl.minimum((index + 1) << common, highest) >> 6
        for tile in range(from_tile, to_tile):
            block = tl.load(table + tile).to(tl.int64) * 64 * slot_size
            block += head.to(tl.int64) * head_size
            read = (inside & (tile * 64 < high))[:, None]
            if WINDOWED:
                read &= slot[None, :] >= (low - tile * 64)[:, None]
            peak, weight, total = fold(
                queries, tl.load(k + block + cells), tl.load(v + block + cells),
                read, scale, peak, weight, total,
            )  # fmt: skip
        part = (line // GROUP_LINES * HEADS + of_head) * (SPLITS + 1) + nth
        to = (first.to(tl.int64) * HEADS + head * GROUP) * (SPLITS + 1)
        tl.store(statistics + 2 * to + 2 * part, peak, inside)
        tl.store(statistics + 2 * to + 2 * part + 1, weight, inside)
        tl.store(sums + to * D + (part[:, None] * D + d[None, :]), total, inside[:, None])


@triton.jit
def attend_tail(  # type: ignore[no-untyped-def]
    q, k, v, sequence, tables, prefix, ancestors, depth, sums, statistics,
    row, head, scale, window, q_row, head_size, slot_size, blocks, deepest,
    HEADS: tl.constexpr, GROUP: tl.constexpr, LINES: tl.constexpr,
    SPLITS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """The last positions of one row, its ancestors among them."""
    start, tail, size = spans(prefix, depth, row, row >= 0, window, SPLITS)
    _, parts = splits_seen(start, tail, size)
    committed = tl.load(prefix + row)
    length = committed + tl.load(depth + row)
    line, d, nth = tl.arange(0, LINES), tl.arange(0, D), tl.arange(0, 64)
    real = line < GROUP
    at = q + row.to(tl.int64) * q_row + (head * GROUP + line)[:, None] * D + d[None, :]
    queries = tl.load(at, real[:, None], other=0.0)
    table = tables + tl.load(sequence + row).to(tl.int64) * blocks
    chain = ancestors + row.to(tl.int64) * deepest
    peak = tl.full((LINES,), float("-inf"), tl.float32)
    weight = tl.zeros((LINES,), tl.float32)
    total = tl.zeros((LINES, D), tl.float32)
    for tile in range(tail >> 6, (length + 63) >> 6):
        position = tile * 64 + nth
        seen = (position >= start) & (position < length)
        of_tree = seen & (position >= committed)
        found = tl.load(chain + position - committed, of_tree, other=0)
        offset = tl.where(of_tree, found, position)
        slot = tl.load(table + (offset >> 6), seen, other=0).to(tl.int64) * 64 + (offset & 63)
        cells = head.to(tl.int64) * head_size + slot[:, None] * slot_size + d[None, :]
        peak, weight, total = fold(
            queries, tl.load(k + cells, seen[:, None], other=0.0),
            tl.load(v + cells, seen[:, None], other=0.0),
            seen[None, :] & real[:, None], scale, peak, weight, total,
        )  # fmt: skip
    part = (row.to(tl.int64) * HEADS + head * GROUP + line) * (SPLITS + 1) + parts
    tl.store(statistics + 2 * part, peak, real)
    tl.store(statistics + 2 * part + 1, weight, real)
    tl.store(sums + part[:, None] * D + d[None, :], total, real[:, None])


@triton.jit(do_not_specialize=["rows_count", "groups_count", "window", "blocks", "deepest"])
def tree_attention_kernel(  # type: ignore[no-untyped-def]
    q, k, v, sequence, tables, prefix, ancestors, depth, groups, sums, statistics,
    scale, window, rows_count, groups_count, q_row, head_size, slot_size, blocks, deepest,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_LINES: tl.constexpr,
    ROWS: tl.constexpr, WINDOWED: tl.constexpr, SPLITS: tl.constexpr, D: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Run tails first, whose reads wait for each other, and last the splits of a second size,
    which few groups have."""
    wait_for_inputs(PDL)
    head, rest = tl.program_id(0) % KV_HEADS, tl.program_id(0) // KV_HEADS
    if rest < rows_count:
        tail_lines: tl.constexpr = GROUP_LINES if GROUP_LINES > 16 else 16
        attend_tail(
            q, k, v, sequence, tables, prefix, ancestors, depth, sums, statistics,
            rest, head, scale, window, q_row, head_size, slot_size, blocks, deepest,
            HEADS, GROUP, tail_lines, SPLITS, D,
        )  # fmt: skip
    else:
        rest -= rows_count
        attend_group(
            q, k, v, sequence, tables, prefix, depth, groups, sums, statistics,
            rest % groups_count, rest // groups_count // SPLITS, rest // groups_count % SPLITS,
            head, scale, window, q_row, head_size, slot_size, blocks,
            HEADS, GROUP, GROUP_LINES, ROWS, WINDOWED, SPLITS, D,
        )  # fmt: skip
    launch_next(PDL)


@triton.jit(do_not_specialize=["window"])
def combine_kernel(  # type: ignore[no-untyped-def]
    out, prefix, depth, sums, statistics, window,
    HEADS: tl.constexpr, SPLITS: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr,
    D: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Add the parts of one row and head, by index: its splits, then its tail."""
    launch_next(PDL)
    wait_for_inputs(PDL)
    line = tl.program_id(0).to(tl.int64)
    row = tl.program_id(0) // HEADS
    start, tail, size = spans(prefix, depth, row, row >= 0, window, SPLITS)
    _, parts = splits_seen(start, tail, size)
    part = tl.arange(0, PARTS)
    there = part <= parts
    at = line * (SPLITS + 1) + part
    peaks = tl.load(statistics + 2 * at, there, other=float("-inf"))
    top = tl.max(peaks, 0)
    factors = tl.exp2(peaks - tl.where(top == float("-inf"), 0.0, top))
    weight = tl.sum(factors * tl.load(statistics + 2 * at + 1, there, other=0.0), 0)
    d = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    held = tl.load(sums + at[:, None] * D + d[None, :], there[:, None], other=0.0)
    total = tl.sum(factors[:, None] * held, 0) / tl.where(weight > 0, weight, 1.0)
    tl.store(out + line * D + d, total.to(out.dtype.element_ty))


def tree_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: ContextRows,
    scale: float,
    window: int,
    out: Tensor,
    scratch: AttentionScratch,
) -> None:
    """Compute out = softmax(scale * q k^T) v of each row over its logical context.

    q: [rows, heads, head_dim], heads contiguous, rows at any stride (a slice of fused QKV serves);
    k, v: one layer's pool [kv_heads, slots, head_dim], head_dim contiguous, both of one layout; all
    bfloat16, float16 or float32 alike. out: [rows, heads, head_dim], contiguous, of q's dtype.
    `window`: latest positions seen, 0 for all. Every position seen must have been written.
    Scores and sums are float32; weights are rounded to v's dtype before they meet values.

    Source: SwiftSpec's fused masked attention (arXiv 2506.11309, M7); online softmax of
    FlashAttention-2 (2307.08691), split over keys and combined as in Flash-Decoding.
    Traffic, with b bytes an element: 2 b kv_heads head_dim positions for each group of rows of a
    sequence (again, from L2, for each row's tail of at most 127 positions), 2 b heads head_dim for
    each row, and 8 (head_dim + 2) heads (splits + 1) of scratch for each row, which stays in L2.
    """
    heads, kv_heads, head_dim = _checked(q, k, v, rows, out, scratch)
    group = heads // kv_heads
    splits, groups = scratch.splits, rows.groups.shape[0]
    count = q.shape[0]
    tree_attention_kernel[(kv_heads * (count + groups * 2 * splits),)](
        q, k, v, rows.sequence, rows.tables, rows.prefix, rows.ancestors, rows.depth,
        rows.groups, scratch.sums, scratch.statistics,
        scale * math.log2(math.e), window, count, groups,
        q.stride(0), k.stride(0), k.stride(1),
        rows.tables.shape[1], rows.ancestors.shape[1],
        heads, kv_heads, group, triton.next_power_of_2(group), group_rows(heads, kv_heads),
        window > 0, splits, head_dim, num_warps=WARPS, num_stages=STAGES, **dependent(),
    )  # fmt: skip
    columns = min(head_dim, COLUMNS)
    combine_kernel[(count * heads, head_dim // columns)](
        out, rows.prefix, rows.depth, scratch.sums, scratch.statistics, window,
        heads, splits, triton.next_power_of_2(splits + 1), columns, head_dim, num_warps=WARPS,
        **dependent(),
    )  # fmt: skip


def tree_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: ContextRows,
    scale: float,
    window: int,
    out: Tensor,
    scratch: AttentionScratch,
) -> None:
    """Compute `tree_attention` one row at a time in float64; no scratch is touched."""
    heads, kv_heads, _ = _checked(q, k, v, rows, out, scratch)
    for row in range(q.shape[0]):
        prefix, depth = int(rows.prefix[row]), int(rows.depth[row])
        offsets = torch.cat(
            [torch.arange(prefix, device=q.device), rows.ancestors[row, :depth].long()]
        )
        offsets = offsets[-window:] if window else offsets
        slots = rows.tables[rows.sequence[row].long(), offsets // TILE].long() * TILE
        slots += offsets % TILE
        keys, values = (
            x[:, slots].double().repeat_interleave(heads // kv_heads, 0) for x in (k, v)
        )
        scores = torch.einsum("hd,hsd->hs", q[row].double(), keys) * scale
        out[row] = torch.einsum("hs,hsd->hd", scores.softmax(1), values).to(out.dtype)


def _checked(
    q: Tensor, k: Tensor, v: Tensor, rows: ContextRows, out: Tensor, scratch: AttentionScratch
) -> tuple[int, int, int]:
    """Return heads, key heads and head_dim; `ValueError` names what does not fit."""
    count, heads, head_dim = q.shape
    kv_heads = k.shape[0]
    if head_dim not in (16, 32, 64, 128, 256):
        raise ValueError(f"head_dim: {head_dim}, wanted a power of two from 16 to 256")
    if heads % kv_heads or triton.next_power_of_2(heads // kv_heads) > LINES:
        raise ValueError(f"heads: {heads}, wanted a multiple of {kv_heads}, at most {LINES} each")
    for name, tensor in {"q": q, "k": k, "v": v}.items():
        if tensor.stride(-1) != 1 or tensor.dtype != q.dtype or tensor.shape[-1] != head_dim:
            raise ValueError(f"{name}: wanted {q.dtype} [.., {head_dim}], last axis contiguous")
    if q.stride(1) != head_dim or out.shape != q.shape or not out.is_contiguous():
        raise ValueError(f"q, out: heads of a row side by side, out contiguous {tuple(q.shape)}")
    if v.shape != k.shape or v.stride() != k.stride() or k.shape[1] % TILE:
        raise ValueError(f"v: {tuple(v.shape)}, wanted k's shape and strides, blocks of {TILE}")
    for name in ("sequence", "prefix", "ancestors", "depth", "tables", "groups"):
        tensor = getattr(rows, name)
        if tensor.dtype != torch.int32 or not tensor.is_contiguous():
            raise ValueError(f"{name}: {tensor.dtype}, wanted contiguous int32")
        if name in ("sequence", "prefix", "ancestors", "depth") and tensor.shape[0] != count:
            raise ValueError(f"{name}: {tensor.shape[0]} rows, wanted {count}")
    if rows.ancestors.shape[1] > DEEPEST:
        raise ValueError(f"ancestors: {rows.ancestors.shape[1]} deep, at most {DEEPEST}")
    if scratch.splits < 3 or scratch.sums.shape[0] < count:
        raise ValueError(f"scratch: {tuple(scratch.sums.shape)}, wanted {count} rows, 3 splits")
    if scratch.sums.shape[1] != heads or scratch.sums.shape[3] != head_dim:
        raise ValueError(f"scratch: {tuple(scratch.sums.shape)}, wanted {heads} x {head_dim}")
    return heads, kv_heads, head_dim


def _compilation(heads: int, kv_heads: int, head_dim: int, windowed: bool = False) -> Compilation:
    group = heads // kv_heads
    constants = {"HEADS": heads, "KV_HEADS": kv_heads, "GROUP": group, "D": head_dim}
    constants |= {"GROUP_LINES": triton.next_power_of_2(group), "SPLITS": splits_of(kv_heads)}
    constants |= {"ROWS": group_rows(heads, kv_heads), "WINDOWED": windowed, "PDL": False}
    return Compilation(
        kernel=tree_attention_kernel,
        name=f"{heads} heads of {kv_heads} x {head_dim} bf16" + " windowed" * windowed,
        types={"scale": "fp32"},
        constants=constants,
        warps=WARPS,
        stages=STAGES,
        multiples=("q_row", "head_size", "slot_size"),
    )


def _combination(heads: int, splits: int, head_dim: int) -> Compilation:
    constants = {"HEADS": heads, "SPLITS": splits, "PARTS": triton.next_power_of_2(splits + 1)}
    return Compilation(
        kernel=combine_kernel,
        name=f"sum of {splits} splits, {heads} heads x {head_dim} bf16",
        constants=constants | {"COLUMNS": min(head_dim, COLUMNS), "D": head_dim, "PDL": False},
        warps=WARPS,
    )


COMPILATIONS = (
    _compilation(32, 8, 128),  # Llama-3-8B
    _compilation(32, 8, 128, windowed=True),  # Mistral-7B
    _compilation(8, 2, 128),  # Llama-3-8B at degree 4
    _compilation(4, 1, 128),  # at degree 8
    _compilation(64, 8, 128),  # Llama-3-70B
    _compilation(8, 1, 128),  # at degree 8
    _compilation(32, 8, 64),  # Llama-3.2-1B, a draft
    _compilation(28, 4, 128),  # Qwen2.5-7B
    _compilation(40, 8, 128),  # Qwen3-14B
    _compilation(16, 8, 128),  # Qwen3-0.6B, a draft
    _compilation(16, 8, 256),
    _combination(32, 32, 128),
    _combination(8, 64, 128),
)
