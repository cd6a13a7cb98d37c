"""KV moves between slots, all layers in one launch.

Which slots are moved, and why that is exact (rotary positions stay), is the caller's business.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.compilation import Compilation
from outrider.kernels.gpu.tensors import check

MAX_MOVES = 512
CELLS = 8192
"""Numbers that a program holds while it reads: 64 a thread."""
WARPS = 4


@triton.jit(do_not_specialize=["moves"])
def move_kernel(  # type: ignore[no-untyped-def]
    k, v, sources, destinations, moves, heads, layer_size, head_size, slot_size,
    MOVES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One program for some columns of a layer's key head, once for keys and once for values."""
    lane, column = tl.arange(0, MOVES), tl.arange(0, COLUMNS)
    source = tl.load(sources + lane, lane < moves, other=-1).to(tl.int64)
    destination = tl.load(destinations + lane, lane < moves, other=0).to(tl.int64)
    line = tl.program_id(0).to(tl.int64)
    start = line // heads * layer_size + line % heads * head_size + tl.program_id(1) * COLUMNS
    pool = (k if tl.program_id(2) == 0 else v) + start + column[None, :]
    real = (source >= 0)[:, None]
    held = tl.load(pool + source[:, None] * slot_size, real, other=0.0)
    tl.debug_barrier()  # all are read before any is written
    tl.store(pool + destination[:, None] * slot_size, held, real)


def move(k: Tensor, v: Tensor, sources: Tensor, destinations: Tensor) -> None:
    """Copy slot sources[i] to destinations[i]; as if all were read before any is written.

    k, v: [layers, kv_heads, slots, head_dim], one dtype and layout, head_dim contiguous and a
    multiple of 16; sources, destinations: int32 [moves], at most 512; moves from -1 are left out,
    so that a CUDA graph can hold a list of fixed length. Destinations must differ.

    Source: the evolving tree cache of SwiftSpec (arXiv 2506.11309, M3), which copies through a
    temporary; here the temporary is the registers of one program. Traffic: 4 layers * kv_heads *
    moves * head_dim * size of an element bytes, and 8 bytes a move for each program.
    """
    layers, kv_heads, _, head_dim, moves = _checked(k, v, sources, destinations)
    if moves == 0:
        return
    rows, columns = _tile(moves, head_dim)
    move_kernel[(layers * kv_heads, head_dim // columns, 2)](
        k, v, sources, destinations, moves, kv_heads, k.stride(0), k.stride(1), k.stride(2),
        rows, columns, num_warps=WARPS,
    )  # fmt: skip


def move_reference(k: Tensor, v: Tensor, sources: Tensor, destinations: Tensor) -> None:
    _checked(k, v, sources, destinations)
    real = sources >= 0
    for pool in (k, v):
        pool[:, :, destinations[real].long()] = pool[:, :, sources[real].long()]


def _tile(moves: int, head_dim: int) -> tuple[int, int]:
    """Return moves and columns of head_dim that one program holds."""
    rows = max(16, int(triton.next_power_of_2(moves)))
    columns = 16
    while head_dim % (2 * columns) == 0 and 2 * columns * rows <= CELLS:
        columns *= 2
    return rows, columns


def _checked(
    k: Tensor, v: Tensor, sources: Tensor, destinations: Tensor
) -> tuple[int, int, int, int, int]:
    """Return the KV cache's shape and the number of moves; `ValueError` names what does not fit."""
    layers, kv_heads, slots, head_dim = k.shape
    if v.shape != k.shape or v.stride() != k.stride() or v.dtype != k.dtype:
        raise ValueError(f"v: {v.dtype} {tuple(v.shape)}, wanted k's dtype, shape and strides")
    if head_dim % 16 or k.stride(3) != 1:
        raise ValueError(f"head_dim: {head_dim}, wanted a multiple of 16, contiguous")
    moves = sources.shape[0]
    check(torch.int32, (moves,), sources=sources, destinations=destinations)
    if moves > MAX_MOVES:
        raise ValueError(f"sources: {moves} moves, at most {MAX_MOVES} in one launch")
    return layers, kv_heads, slots, head_dim, moves


def _compilation(moves: int, head_dim: int) -> Compilation:
    rows, columns = _tile(moves, head_dim)
    return Compilation(
        kernel=move_kernel,
        name=f"{moves} moves x {head_dim} bf16",
        constants={"MOVES": rows, "COLUMNS": columns},
        warps=WARPS,
        multiples=("layer_size", "head_size", "slot_size"),
    )


COMPILATIONS = tuple(_compilation(moves, 128) for moves in (16, 64, MAX_MOVES))
