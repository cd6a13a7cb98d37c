"""Heads of queries, keys and values behind their product: bias, norms, rotation, KV write.

`projection` does this as its products end; `write_heads` does it by a launch of its own, for a
product of the vendor's library.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.compilation import Compilation
from outrider.kernels.gpu.dependent_launch import dependent, launch_next, wait_for_inputs
from outrider.kernels.gpu.tensors import check
from outrider.kernels.gpu.tiling import LINES

WARPS = 4


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


@triton.jit
def write_head(  # type: ignore[no-untyped-def]
    one, other, row, rows, head, bias, q_norm, k_norm, epsilon, table, positions, slots,
    q, k, v, k_head, k_slot, v_head, v_slot, heads, kv_heads, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write both halves [LINES, COLUMNS] of one head's product, of rows from `row` on."""
    lines = row + tl.arange(0, LINES)
    seen = lines < rows
    columns = tl.arange(0, COLUMNS)
    if bias is not None:
        first = head.to(tl.int64) * (2 * COLUMNS) + columns
        one += tl.load(bias + first).to(tl.float32)[None, :]
        other += tl.load(bias + first + COLUMNS).to(tl.float32)[None, :]
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


@triton.jit(do_not_specialize=["rows", "heads", "kv_heads"])
def heads_kernel(  # type: ignore[no-untyped-def]
    x, rows, bias, q_norm, k_norm, epsilon, table, positions, slots,
    q, k, v, k_head, k_slot, v_head, v_slot, heads, kv_heads,
    COLUMNS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A program: 16 rows, one head."""
    row = tl.program_id(0) * LINES
    head = tl.program_id(1)
    lines = row + tl.arange(0, LINES)
    seen = (lines < rows)[:, None]
    first = (lines.to(tl.int64) * (heads + 2 * kv_heads) + head) * (2 * COLUMNS)
    at = x + first[:, None] + tl.arange(0, COLUMNS)[None, :]
    wait_for_inputs(PDL)
    one = tl.load(at, seen, other=0.0).to(tl.float32)
    other = tl.load(at + COLUMNS, seen, other=0.0).to(tl.float32)
    write_head(
        one, other, row, rows, head, bias, q_norm, k_norm, epsilon, table, positions, slots,
        q, k, v, k_head, k_slot, v_head, v_slot, heads, kv_heads, COLUMNS,
    )  # fmt: skip
    launch_next(PDL)


def write_heads(
    x: Tensor,
    parts: HeadParts,
    table: Tensor,
    places: RowPlaces,
    q: Tensor,
    k: Tensor,
    v: Tensor,
) -> None:
    """Write the queries of a product into q, its keys and values into the slots of its rows.

    x: [rows, outputs], contiguous: heads of queries, of keys, of values; all else as `project` has
    it. Traffic: 2 * rows * outputs * size of x + 4 * rows * head_dim bytes.
    """
    heads, kv_heads = checked(x, x.shape[1], parts, table, places, q, k, v)
    if not x.is_contiguous():
        raise ValueError(f"x: strides {x.stride()}, wanted contiguous rows")
    grid = (-(-len(x) // LINES.value), heads + 2 * kv_heads)
    heads_kernel[grid](
        x, len(x), parts.bias, parts.q_norm, parts.k_norm, parts.epsilon, table, places.positions,
        places.slots, q, k, v, k.stride(0), k.stride(1), v.stride(0), v.stride(1), heads, kv_heads,
        q.shape[2] // 2, num_warps=WARPS, **dependent(),
    )  # fmt: skip


def write_heads_reference(
    x: Tensor,
    parts: HeadParts,
    table: Tensor,
    places: RowPlaces,
    q: Tensor,
    k: Tensor,
    v: Tensor,
) -> None:
    """The same; x may be float32, whatever q, k and v are."""
    heads, kv_heads, y = q.shape[1], k.shape[0], x.float()
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


def checked(
    x: Tensor,
    outputs: int,
    parts: HeadParts,
    table: Tensor,
    places: RowPlaces,
    q: Tensor,
    k: Tensor,
    v: Tensor,
) -> tuple[int, int]:
    """Return heads of queries and of keys; `ValueError` names what does not fit.

    x: rows of q's dtype, of which a product has so many `outputs`.
    """
    heads, size, kv_heads = q.shape[1], q.shape[2], k.shape[0]
    if size < 32 or size & (size - 1):
        raise ValueError(f"head_dim: {size}, wanted a power of two, 32 or more")
    if outputs != (heads + 2 * kv_heads) * size:
        raise ValueError(f"outputs: {outputs}, wanted ({heads} + 2 * {kv_heads}) * {size}")
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


COMPILATIONS = (
    Compilation(
        kernel=heads_kernel,
        name="head_dim 128",
        constants={"bias": None, "q_norm": None, "k_norm": None, "COLUMNS": 64, "PDL": False},
        warps=WARPS,
        multiples=("k_head", "k_slot", "v_head", "v_slot"),
    ),
)
