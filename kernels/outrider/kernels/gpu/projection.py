"""Queries, keys and values of a few rows in one launch: products, bias, norms, rotation, KV write.

A program's two tiles are the halves of one head, which are what rotation pairs. Leaves reading the
keys to `attention`, and which slot is whose to the engine.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.dependent_launch import dependent, launch_next, wait_for_inputs
from outrider.kernels.gpu.linear_shapes import compilations
from outrider.kernels.gpu.tensors import check
from outrider.kernels.gpu.tiles import TileScratch, gathered, launch, products
from outrider.kernels.gpu.tiling import LINES, Tiling, plan
from outrider.kernels.gpu.weights import Weights, dense


@dataclass(frozen=True, slots=True)
class HeadParts:
    """Biases and norms of a layer's heads."""

    bias: Tensor | None = None  # [outputs]
    q_norm: Tensor | None = None  # [head_dim], Qwen3's
    k_norm: Tensor | None = None  # [head_dim]
    epsilon: float = 1e-6


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """Positions and slots of a pass's rows; int32 [rows]."""

    positions: Tensor
    slots: Tensor  # of the pool; -1 where nothing is to be written


@triton.jit
def rotated(one, other, table, positions, seen, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rotate both halves [LINES, COLUMNS] of a head to their rows' positions [LINES]."""
    at = table + positions.to(tl.int64)[:, None] * (2 * COLUMNS) + tl.arange(0, COLUMNS)[None, :]
    cos = tl.load(at, seen[:, None], other=0.0)
    sin = tl.load(at + COLUMNS, seen[:, None], other=0.0)
    return one * cos - other * sin, other * cos + one * sin


@triton.jit
def normed(one, other, weight, epsilon, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return both halves of a head after RMSNorm over the whole of it."""
    columns = tl.arange(0, COLUMNS)
    mean = (tl.sum(one * one, 1) + tl.sum(other * other, 1)) / (2 * COLUMNS)
    inverse = tl.rsqrt(mean + epsilon)[:, None]
    by_one = tl.load(weight + columns).to(tl.float32)[None, :]
    by_other = tl.load(weight + COLUMNS + columns).to(tl.float32)[None, :]
    return one * inverse * by_one, other * inverse * by_other


@triton.jit(do_not_specialize=["rows", "splits", "heads", "kv_heads"])
def projection_kernel(  # type: ignore[no-untyped-def]
    x, weights, scales, zeros, sums, arrivals,
    rows, inputs, outputs, splits, share,
    bias, q_norm, k_norm, epsilon, table, positions, slots,
    q, k, v, k_head, k_slot, v_head, v_slot, heads, kv_heads,
    FORMAT: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr,
    NATIVE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A program: 16 rows, one head, one split."""
    row = tl.program_id(0) * LINES
    head = tl.program_id(1)
    split = tl.program_id(2)
    columns = tl.arange(0, COLUMNS)
    first = head.to(tl.int64) * (2 * COLUMNS) + columns
    second = first + COLUMNS
    begin = split * share
    wait_for_inputs(PDL)
    one, other = products(
        x, weights, scales, zeros, row, rows, inputs, outputs, first, second,
        first < outputs, second < outputs, begin, tl.minimum(begin + share, inputs),
        FORMAT, COLUMNS, BLOCK, EVEN, NATIVE,
    )  # fmt: skip
    launch_next(PDL)
    place = head * tl.num_programs(0) + tl.program_id(0)
    one, other, last = gathered(
        one, other, sums, arrivals, place, row, rows, split, splits, COLUMNS
    )
    if last:
        lines = row + tl.arange(0, LINES)
        seen = lines < rows
        if bias is not None:
            one += tl.load(bias + first).to(tl.float32)[None, :]
            other += tl.load(bias + second).to(tl.float32)[None, :]
        if q_norm is not None:
            if head < heads:
                one, other = normed(one, other, q_norm, epsilon, COLUMNS)
            elif head < heads + kv_heads:
                one, other = normed(one, other, k_norm, epsilon, COLUMNS)
        if head < heads + kv_heads:
            at = tl.load(positions + lines, seen, other=0)
            one, other = rotated(one, other, table, at, seen, COLUMNS)
        slot = tl.load(slots + lines, seen, other=-1).to(tl.int64)
        written = slot >= 0
        target = k + (head - heads).to(tl.int64) * k_head + slot * k_slot
        if head < heads:
            written = seen
            target = q + (lines.to(tl.int64) * heads + head) * (2 * COLUMNS)
        elif head >= heads + kv_heads:
            target = v + (head - heads - kv_heads).to(tl.int64) * v_head + slot * v_slot
        at = target[:, None] + columns[None, :]
        tl.store(at, one.to(q.dtype.element_ty), written[:, None])
        tl.store(at + COLUMNS, other.to(q.dtype.element_ty), written[:, None])


def project(
    x: Tensor,
    weights: Weights,
    parts: HeadParts,
    table: Tensor,
    places: RowPlaces,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scratch: TileScratch,
    cut: Tiling | None = None,
) -> None:
    """Write queries of x into q, its keys and values into the slots of its rows.

    x: [rows, inputs], contiguous; weights: heads of queries, of keys, of values, by outputs;
    table: float32 [positions, 2, head_dim / 2], cosines, then sines; q: [rows, heads, head_dim],
    contiguous, unscaled; k, v: one layer's pool [kv_heads, slots, head_dim], head_dim contiguous,
    other strides free; q, k and v in x's dtype. head_dim is a power of two, at least 32. `cut` is
    what `plan` says, if not given. Source: RoPE, arXiv 2104.09864, halves paired as in Hugging
    Face's Llama; fused as in SwiftSpec (arXiv 2506.11309, M7). Traffic: weights.size + rows *
    (inputs + outputs) * size of x + 4 * rows * head_dim + 8 * splits * rows * outputs bytes, the
    last if splits > 1 and mostly in L2.
    """
    heads, kv_heads = _checked(x, weights, parts, table, places, q, k, v)
    if cut and 2 * cut.columns != q.shape[2]:
        raise ValueError(f"cut: {cut.columns} columns, wanted half of head_dim {q.shape[2]}")
    launch(
        projection_kernel, cut or plan(weights, q.shape[2] // 2), x, weights, scratch,
        parts.bias, parts.q_norm, parts.k_norm, parts.epsilon, table, places.positions,
        places.slots, q, k, v, k.stride(0), k.stride(1), v.stride(0), v.stride(1), heads, kv_heads,
        **dependent(),
    )  # fmt: skip


def project_reference(
    x: Tensor,
    weights: Weights,
    parts: HeadParts,
    table: Tensor,
    places: RowPlaces,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scratch: TileScratch,
    cut: Tiling | None = None,
) -> None:
    heads, kv_heads = _checked(x, weights, parts, table, places, q, k, v)
    y = x.float() @ dense(weights).T
    if parts.bias is not None:
        y = y + parts.bias.float()
    by_head = y.view(len(x), heads + 2 * kv_heads, q.shape[2])
    turned, values = by_head[:, : heads + kv_heads], by_head[:, heads + kv_heads :]
    if parts.q_norm is not None and parts.k_norm is not None:
        inverse = torch.rsqrt(turned.square().mean(2, keepdim=True) + parts.epsilon)
        norms = (parts.q_norm.expand(heads, -1), parts.k_norm.expand(kv_heads, -1))
        turned = turned * inverse * torch.cat(norms).float()
    cos, sin = table[places.positions.long()][:, :, None].unbind(1)  # [rows, 1, head_dim / 2]
    low, high = turned.chunk(2, 2)
    turned = torch.cat([low * cos - high * sin, high * cos + low * sin], 2)
    q.copy_(turned[:, :heads])
    written = places.slots >= 0
    slots = places.slots[written].long()
    k[:, slots] = turned[written, heads:].transpose(0, 1).to(k.dtype)
    v[:, slots] = values[written].transpose(0, 1).to(v.dtype)


def _checked(
    x: Tensor,
    weights: Weights,
    parts: HeadParts,
    table: Tensor,
    places: RowPlaces,
    q: Tensor,
    k: Tensor,
    v: Tensor,
) -> tuple[int, int]:
    """Return heads of queries and of keys; `ValueError` names what does not fit."""
    heads, size, kv_heads = q.shape[1], q.shape[2], k.shape[0]
    if size < 32 or size & (size - 1):
        raise ValueError(f"head_dim: {size}, wanted a power of two, 32 or more")
    if weights.outputs != (heads + 2 * kv_heads) * size:
        wanted = f"({heads} + 2 * {kv_heads}) * {size}"
        raise ValueError(f"weights: {weights.outputs} outputs, wanted {wanted}")
    for name, tensor in {"q": q, "k": k, "v": v}.items():
        if tensor.dtype != x.dtype or tensor.stride(2) != 1 or tensor.shape[2] != size:
            raise ValueError(f"{name}: {tensor.dtype} {tuple(tensor.shape)}, wanted {x.dtype}")
    if len(q) != len(x) or not q.is_contiguous() or k.shape != v.shape:
        raise ValueError(f"q: {tuple(q.shape)} for {len(x)} rows, k and v: {k.shape}, {v.shape}")
    if tuple(table.shape[1:]) != (2, size // 2) or table.dtype != torch.float32:
        raise ValueError(f"table: {table.dtype} {tuple(table.shape)}, wanted [n, 2, {size // 2}]")
    check(torch.int32, (len(x),), positions=places.positions, slots=places.slots)
    if (parts.q_norm is None) != (parts.k_norm is None):
        raise ValueError("q_norm and k_norm: wanted both or neither")
    return heads, kv_heads


COMPILATIONS = compilations(
    projection_kernel,
    columns=64,
    constants={"bias": None, "q_norm": None, "k_norm": None},
    multiples=("k_head", "k_slot", "v_head", "v_slot"),
    name="head_dim 128 ",
)
