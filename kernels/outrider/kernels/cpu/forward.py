"""One forward pass through all layers as one compiled call, on one thread or a team of them.

Which rows run, and where their KV lives, is the caller's. Ranks of one machine that share a model
add up what they bring within the call (`exchange`); for others the caller does. A pass holds no
interpreter lock and allocates next to nothing: between two linear layers there is only arithmetic.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray

from outrider.kernels.cpu.all_reduce import swap_parts
from outrider.kernels.cpu.attention import attend
from outrider.kernels.cpu.barrier import meet
from outrider.kernels.cpu.elementwise import add, norm, norms, place_rows, swiglu, write_activation
from outrider.kernels.cpu.linear import BLOCK, linear
from outrider.kernels.cpu.linear_int4 import linear_int4

Floats = NDArray[np.float32]
Int32 = NDArray[np.int32]


class Stack(NamedTuple):
    """Packed weights of one kind of layer over all layers (see `linear.Packed`)."""

    weights: NDArray[Any]  # [layers, elements of one]
    scales: Floats  # [layers, padded outputs]
    offsets: NDArray[Any]  # [layers, padded outputs]


class PassWeights(NamedTuple):
    """A whole model; widths are padded with zeros."""

    embedding: Floats  # [vocab, hidden]; of a rank, its ids
    qkv: Stack
    output: Stack
    gates: Stack
    down: Stack
    head: Stack
    attention_norm: Floats  # [layers, padded hidden]
    ffn_norm: Floats  # [layers, padded hidden]
    final_norm: Floats  # [1, padded hidden]
    qkv_bias: Floats  # [layers, (heads + 2 kv_heads) * head_dim], or no columns
    q_norm: Floats  # [layers, head_dim], or no columns
    k_norm: Floats  # [layers, head_dim], or no columns
    rotary: Floats  # [positions, 2, head_dim / 2]


class Buffers(NamedTuple):
    """Scratch of a pass, by padded widths; `act_*` are in the path's activation format."""

    residual: Floats  # [rows, padded hidden]
    work: Floats  # [rows, padded hidden]
    act: NDArray[Any]  # [rows, padded hidden]
    qkv: Floats  # [rows, padded qkv]
    context: Floats  # [rows, padded heads * head_dim]
    act_context: NDArray[Any]  # [rows, padded heads * head_dim]
    update: Floats  # [rows, outputs of `output` and `down`]
    gates: Floats  # [rows, 2 * padded ffn]
    wide: Floats  # [rows, padded ffn]
    act_wide: NDArray[Any]  # [rows, padded ffn]
    scales: Floats  # [rows]
    attention: Floats  # [rows, heads / kv_heads, longest sequence + 64]
    logits: Floats  # [rows, padded outputs]


class Batch(NamedTuple):
    """The rows of one pass, as in `outrider.worker.model.rows.Rows`."""

    tokens: Int32
    positions: Int32
    slots: Int32
    sequence: Int32
    prefix: Int32
    ancestors: Int32
    depth: Int32
    outputs: Int32
    tables: Int32


class Shared(NamedTuple):
    """Where ranks of one machine add up; see `exchange.swap_parts`."""

    slots: Floats  # [2, ranks, floats]
    marks: NDArray[np.int64]  # [16 * ranks]
    rank: int
    turn: int
    """Of the pass's first sum."""


ALONE = Shared(np.zeros((2, 1, 0), np.float32), np.zeros(16, np.int64), 0, 1)
"""Of a model that one process holds."""


def sums(layers: int) -> int:
    """How many a pass takes: after the embedding and after each half layer."""
    return 1 + 2 * layers


def _multiply(*arguments: Any) -> None:
    """`linear`, or `linear_int4` where that is how weights are held; compiled code only."""
    raise NotImplementedError("runs inside compiled kernels")


@overload(_multiply, inline="never")
def _multiply_as_held(x, count, w, scales, offsets, row_scales, out, first, last):  # type: ignore[no-untyped-def]
    layer = linear_int4 if w.dtype == types.uint8 else linear

    def multiply(x, count, w, scales, offsets, row_scales, out, first, last):  # type: ignore[no-untyped-def]
        layer(x, count, w, scales, offsets, row_scales, out, first, last)

    return multiply


@njit(cache=True, nogil=True)
def _apply(x, count, stack, layer, scales, out, thread, threads):  # type: ignore[no-untyped-def]
    """This thread's share of one linear layer's outputs."""
    blocks = out.shape[1] // BLOCK
    first, last = blocks * thread // threads, blocks * (thread + 1) // threads
    weights, of_output, offsets = stack.weights[layer], stack.scales[layer], stack.offsets[layer]
    _multiply(x, count, weights, of_output, offsets, scales, out, first, last)


@njit(cache=True, nogil=True)
def embed(w, out, tokens, sizes, gate, thread, threads):  # type: ignore[no-untyped-def]
    """out [rows, padded hidden] = the embeddings of `tokens`; zeros for those of other ranks."""
    count, hidden = len(tokens), sizes[2]
    for row in range(count * thread // threads, count * (thread + 1) // threads):
        line = tokens[row] - sizes[3]
        if 0 <= line < len(w.embedding):
            out[row, :hidden] = w.embedding[line]
        else:
            out[row, :hidden] = 0


@njit(cache=True, nogil=True)
def attention(layer, w, b, rows, k_t, v, sizes, epsilon, gate, thread, threads):  # type: ignore[no-untyped-def]
    """b.update = what attention adds to the residual, or this rank's part of it."""
    count = len(rows.tokens)
    heads, window, hidden = sizes[0], sizes[1], sizes[2]
    first, last = count * thread // threads, count * (thread + 1) // threads
    scale = w.attention_norm[layer]
    norms(b.residual, scale, hidden, epsilon, first, last, b.work, b.act, b.scales)
    meet(gate, threads)
    _apply(b.act, count, w.qkv, layer, b.scales, b.qkv, thread, threads)
    meet(gate, threads)
    place_rows(
        b.qkv, w.qkv_bias[layer], w.q_norm[layer], w.k_norm[layer], epsilon, w.rotary,
        rows.positions, rows.slots, k_t[layer], v[layer], heads, first, last,
    )  # fmt: skip
    meet(gate, threads)
    attend(
        b.qkv, k_t[layer], v[layer], rows.sequence, rows.tables, rows.prefix, rows.ancestors,
        rows.depth, window, b.attention, b.context, first, last, heads,
    )  # fmt: skip
    for row in range(first, last):
        b.scales[row] = write_activation(b.context, row, b.act_context)
    meet(gate, threads)
    _apply(b.act_context, count, w.output, layer, b.scales, b.update, thread, threads)
    meet(gate, threads)


@njit(cache=True, nogil=True)
def feed_forward(layer, w, b, count, sizes, epsilon, gate, thread, threads):  # type: ignore[no-untyped-def]
    """b.update = what the gated layer adds to the residual, or this rank's part of it."""
    first, last = count * thread // threads, count * (thread + 1) // threads
    scale = w.ffn_norm[layer]
    norms(b.residual, scale, sizes[2], epsilon, first, last, b.work, b.act, b.scales)
    meet(gate, threads)
    _apply(b.act, count, w.gates, layer, b.scales, b.gates, thread, threads)
    meet(gate, threads)
    swiglu(b.gates, first, last, b.wide, b.act_wide, b.scales)
    meet(gate, threads)
    _apply(b.act_wide, count, w.down, layer, b.scales, b.update, thread, threads)
    meet(gate, threads)


@njit(cache=True, nogil=True)
def head(w, b, wanted, sizes, epsilon, gate, thread, threads):  # type: ignore[no-untyped-def]
    """b.logits = those of rows wanted[0], wanted[1], …, or this rank's columns of them."""
    count = len(wanted)
    for i in range(count * thread // threads, count * (thread + 1) // threads):
        norm(b.residual, wanted[i], w.final_norm[0], sizes[2], epsilon, b.work, i)
        b.scales[i] = write_activation(b.work, i, b.act)
    meet(gate, threads)
    _apply(b.act, count, w.head, 0, b.scales, b.logits, thread, threads)
    meet(gate, threads)


@njit(cache=True, nogil=True)
def _settle(b, count, shared, turn, gate, thread, threads):  # type: ignore[no-untyped-def]
    """residual += b.update, or all ranks' sum of it; returns the next turn."""
    first, last = count * thread // threads, count * (thread + 1) // threads
    if shared.slots.shape[1] == 1:
        add(b.residual, b.update, first, last)
        return turn
    swap_parts(
        b.residual, b.update, first, last, shared.slots, shared.marks, turn, shared.rank,
        gate, thread, threads,
    )  # fmt: skip
    return turn + 1


@njit(cache=True, nogil=True)
def run(w, b, rows, k_t, v, sizes, epsilon, shared, gate, thread, threads):  # type: ignore[no-untyped-def]
    """Runs `rows` through the model; logits of rows.outputs land in b.logits, in that order.

    sizes is (heads, window or 0, hidden, id of the embedding's first row). All `threads` of a team
    call this with their number, and so do all ranks that share the model. Where ranks are on
    several machines, the caller runs the parts one by one instead.
    """
    count, turn = len(rows.tokens), shared.turn
    if shared.slots.shape[1] == 1:
        embed(w, b.residual, rows.tokens, sizes, gate, thread, threads)
    else:
        embed(w, b.update, rows.tokens, sizes, gate, thread, threads)
        b.residual[count * thread // threads : count * (thread + 1) // threads] = 0
        turn = _settle(b, count, shared, turn, gate, thread, threads)
    for layer in range(k_t.shape[0]):
        attention(layer, w, b, rows, k_t, v, sizes, epsilon, gate, thread, threads)
        turn = _settle(b, count, shared, turn, gate, thread, threads)
        feed_forward(layer, w, b, count, sizes, epsilon, gate, thread, threads)
        turn = _settle(b, count, shared, turn, gate, thread, threads)
    meet(gate, threads)
    head(w, b, rows.outputs, sizes, epsilon, gate, thread, threads)
