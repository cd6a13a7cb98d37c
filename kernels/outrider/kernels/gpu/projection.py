"""Queries, keys and values of a few rows in one launch: products, bias, norms, rotation, KV write.

A program's two tiles are the halves of one head, which are what rotation pairs. Leaves what follows
the products to `heads`, reading the keys to `attention`, and which slot is whose to the engine.
"""

import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.dependent_launch import dependent, launch_next, wait_for_inputs
from outrider.kernels.gpu.heads import (
    HeadParts,
    RowPlaces,
    checked,
    write_head,
    write_heads_reference,
)
from outrider.kernels.gpu.linear_shapes import compilations
from outrider.kernels.gpu.tiles import TileScratch, gathered, launch, products
from outrider.kernels.gpu.tiling import LINES, Tiling, plan
from outrider.kernels.gpu.weights import Weights, dense


@triton.jit(do_not_specialize=["rows", "splits", "heads", "kv_heads"])
def projection_kernel(  # type: ignore[no-untyped-def]
    x, weights, scales, zeros, sums, arrivals,
    rows, inputs, outputs, splits, share,
    bias, q_norm, k_norm, epsilon, table, positions, slots,
    q, k, v, k_head, k_slot, v_head, v_slot, heads, kv_heads,
    FORMAT: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr,
    NATIVE: tl.constexpr, PARTS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A program: PARTS of 16 rows, one head, one split."""
    row = tl.program_id(0) * PARTS * LINES
    head = tl.program_id(1)
    split = tl.program_id(2)
    first = head.to(tl.int64) * (2 * COLUMNS) + tl.arange(0, COLUMNS)
    second = first + COLUMNS
    begin = split * share
    wait_for_inputs(PDL)
    ones, others = products(
        x, weights, scales, zeros, row, rows, inputs, outputs, first, second,
        first < outputs, second < outputs, begin, tl.minimum(begin + share, inputs),
        FORMAT, COLUMNS, BLOCK, EVEN, NATIVE, PARTS,
    )  # fmt: skip
    launch_next(PDL)
    place = (head * tl.num_programs(0) + tl.program_id(0)) * PARTS
    for part in tl.static_range(PARTS):
        begin_row = row + part * LINES
        one, other, last = gathered(
            ones[part], others[part], sums, arrivals, place + part, begin_row, rows, split, splits,
            COLUMNS,
        )  # fmt: skip
        if last:
            write_head(
                one, other, begin_row, rows, head, bias, q_norm, k_norm, epsilon, table,
                positions, slots, q, k, v, k_head, k_slot, v_head, v_slot, heads, kv_heads, COLUMNS,
            )  # fmt: skip


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
    heads, kv_heads = checked(x, weights.outputs, parts, table, places, q, k, v)
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
    checked(x, weights.outputs, parts, table, places, q, k, v)
    write_heads_reference(x.float() @ dense(weights).T, parts, table, places, q, k, v)


COMPILATIONS = compilations(
    projection_kernel,
    columns=64,
    constants={"bias": None, "q_norm": None, "k_norm": None},
    multiples=("k_head", "k_slot", "v_head", "v_slot"),
    name="head_dim 128 ",
)
