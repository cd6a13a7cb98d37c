"""One forward pass through all layers as one compiled call, on one thread or several.

Leaves which rows run, and where their KV lies, to the caller. Ranks of one machine that share a
model add up their parts within the call (`collectives.all_reduce`); for others the caller does. A
pass holds no interpreter lock and allocates next to nothing: between two linear layers there is
only arithmetic.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray

from outrider.kernels.cpu.attention import AttentionBuffers, Contexts, KVArrays, attend
from outrider.kernels.cpu.collectives import Span, all_reduce, barrier_wait, share
from outrider.kernels.cpu.elementwise import (
    Activations,
    GateCurve,
    NormSize,
    QKVWeights,
    add,
    gated,
    move_kv,
    norm,
    norms,
    place_rows,
    prefetch_kv,
    write_activation,
)
from outrider.kernels.cpu.grouped_packing import GroupedStack, GroupedWeights
from outrider.kernels.cpu.linear import linear
from outrider.kernels.cpu.packing import BLOCK, Packed
from outrider.kernels.cpu.quantised_rows import QuantisedRows, write_row

Floats = NDArray[np.float32]
Int32 = NDArray[np.int32]


class Stack(NamedTuple):
    """`Packed` weights of one kind of layer, over all layers."""

    weights: NDArray[Any]  # [layers, elements of one]
    scales: Floats  # [layers, padded outputs]
    offsets: NDArray[Any]  # [layers, padded outputs]


class PassWeights(NamedTuple):
    """Weights of a whole model, or of one rank; widths are padded with zeros."""

    embedding: Floats | QuantisedRows  # [vocab, hidden]; of a rank, its ids
    qkv: Stack | GroupedStack
    output: Stack | GroupedStack
    gates: Stack | GroupedStack
    down: Stack | GroupedStack
    head: Stack | GroupedStack
    attention_norm: Floats  # [layers, padded hidden]
    ffn_norm: Floats  # [layers, padded hidden]
    attention_update_norm: Floats  # [layers, padded hidden], or no columns
    ffn_update_norm: Floats  # [layers, padded hidden], or no columns
    final_norm: Floats  # [1, padded hidden]
    qkv_bias: Floats  # [layers, (heads + 2 kv_heads) * head_dim], or no columns
    q_norm: Floats  # [layers, head_dim], or no columns
    k_norm: Floats  # [layers, head_dim], or no columns
    rotary: Floats  # [tables, positions, 2, head_dim / 2]; layers with a window take the last table


class Buffers(NamedTuple):
    """KV cache, and scratch by padded widths; `act*` have the path's activation format."""

    k_t: Floats  # [layers, kv_heads, blocks, head_dim, 64]
    v: Floats  # [layers, kv_heads, slots, head_dim]
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


class ModelShape(NamedTuple):
    """Fields of a model's config that a pass needs."""

    heads: int
    windows: Int32  # [layers] latest positions that attention sees, 0 for all
    hidden: int
    epsilon: np.float32
    """Epsilon of RMSNorm."""
    embedding_scale: np.float32
    query_scale: np.float32
    gate: GateCurve
    first_token: int
    """Id of the embedding's first row."""
    embeds: bool
    """False for a stage behind the first: its caller has put hidden states into the residual."""
    has_head: bool
    """False for a stage before the last: its results are hidden states in the residual."""


class PassModel(NamedTuple):
    """What a model's passes have in common; `run` takes it as a `Handle`."""

    weights: PassWeights
    buffers: Buffers
    shape: ModelShape


class Batch(NamedTuple):
    """Rows of one pass, as in `outrider.worker.model.rows.Rows`."""

    tokens: Int32
    positions: Int32
    slots: Int32
    sequence: Int32
    prefix: Int32
    ancestors: Int32
    depth: Int32
    outputs: Int32
    tables: Int32
    sources: Int32  # [moves] slots whose KV moves before the pass reads or writes any
    destinations: Int32  # [moves]


def sums(layers: int) -> int:
    """Count the sums over ranks in a pass: after the embedding and after each half layer."""
    return 1 + 2 * layers


def _layer_of(stack: Any, layer: int) -> Any:
    """Return the weights of one layer; compiled code only."""
    raise NotImplementedError("runs inside compiled kernels")


@overload(_layer_of)
def _layer_of_type(stack, layer):  # type: ignore[no-untyped-def]
    if stack.instance_class is GroupedStack:
        return lambda stack, layer: GroupedWeights(
            stack.weights, stack.scales[layer], stack.segments[layer], stack.marks
        )
    return lambda stack, layer: Packed(
        stack.weights[layer], stack.scales[layer], stack.offsets[layer]
    )


@njit(cache=True, nogil=True)
def apply(x, count, stack, layer, out, thread):  # type: ignore[no-untyped-def]
    """Compute this thread's share of one linear layer's outputs."""
    linear(x, count, _layer_of(stack, layer), out, share(out.shape[1] // BLOCK, thread))


def _write_embedding(embedding: Any, token: int, out: Any) -> None:
    """Write the embedding of a token, zeros where it has none; compiled code only."""
    raise NotImplementedError("runs inside compiled kernels")


@overload(_write_embedding, inline="never")
def _write_embedding_of_type(embedding, token, out):  # type: ignore[no-untyped-def]
    if isinstance(embedding, types.Array):

        def write(embedding, token, out):  # type: ignore[no-untyped-def]
            if 0 <= token < len(embedding):
                out[:] = embedding[token]
            else:
                out[:] = 0

        return write

    def read(embedding, token, out):  # type: ignore[no-untyped-def]
        if 0 <= token < len(embedding.blocks):
            write_row(embedding, token, out)
        else:
            out[:] = 0

    return read


@njit(cache=True, nogil=True)
def embed(w, out, tokens, shape, thread):  # type: ignore[no-untyped-def]
    """out [rows, padded hidden] = the embeddings of `tokens`, scaled; zeros for those of other
    ranks."""
    span = share(len(tokens), thread)
    for row in range(span.first, span.last):
        token = tokens[row] - shape.first_token
        _write_embedding(w.embedding, token, out[row, : shape.hidden])
        for i in range(shape.hidden):
            out[row, i] *= shape.embedding_scale


@njit(cache=True, nogil=True)
def _splits_heads(b, count, thread):  # type: ignore[no-untyped-def]
    """Return True where threads share the key heads, and not the rows: each reads the KV of its own
    heads alone."""
    has_scratch = count * thread.threads <= b.attention.shape[0]
    is_even = b.k_t.shape[1] % thread.threads == 0
    return has_scratch and (is_even or count < thread.threads)


@njit(cache=True, nogil=True)
def attention(w, b, rows, layer, shape, thread):  # type: ignore[no-untyped-def]
    """b.update = what attention adds to the residual, or this rank's part of it, before its norm.

    Queued moves are done here, layer by layer: weights have driven their cache lines out of the
    caches since they were written, and while a linear layer runs they come back.
    """
    count = len(rows.tokens)
    span = share(count, thread)
    kv = KVArrays(b.k_t[layer], b.v[layer])
    heads = share(b.k_t.shape[1], thread)
    prefetch_kv(kv, rows.sources, heads)
    prefetch_kv(kv, rows.destinations, heads)
    hidden, over = Activations(b.act, b.scales), NormSize(shape.hidden, shape.epsilon)
    norms(b.residual, span, w.attention_norm[layer], over, b.work, hidden)
    barrier_wait(thread)
    apply(hidden, count, w.qkv, layer, b.qkv, thread)
    move_kv(kv, rows.sources, rows.destinations, heads)
    barrier_wait(thread)
    window = shape.windows[layer]
    rotary = w.rotary[len(w.rotary) - 1 if window > 0 else 0]
    qkv = QKVWeights(
        w.qkv_bias[layer],
        w.q_norm[layer],
        w.k_norm[layer],
        shape.epsilon,
        rotary,
        shape.heads,
        shape.query_scale,
    )
    place_rows(b.qkv, qkv, rows.positions, rows.slots, kv, span)
    barrier_wait(thread)
    contexts = Contexts(rows.sequence, rows.tables, rows.prefix, rows.ancestors, rows.depth, window)
    if _splits_heads(b, count, thread):
        work = b.attention[thread.number * count :]
        attend(AttentionBuffers(b.qkv, work, b.context), kv, contexts, Span(0, count), heads)
        barrier_wait(thread)
    else:
        every = Span(0, b.k_t.shape[1])
        attend(AttentionBuffers(b.qkv, b.attention, b.context), kv, contexts, span, every)
    for row in range(span.first, span.last):
        b.scales[row] = write_activation(b.context, row, b.act_context)
    barrier_wait(thread)
    apply(Activations(b.act_context, b.scales), count, w.output, layer, b.update, thread)
    barrier_wait(thread)


@njit(cache=True, nogil=True)
def feed_forward(w, b, count, layer, shape, thread):  # type: ignore[no-untyped-def]
    """b.update = what the gated MLP adds to the residual, or this rank's part of it, before its
    norm."""
    span = share(count, thread)
    hidden, over = Activations(b.act, b.scales), NormSize(shape.hidden, shape.epsilon)
    norms(b.residual, span, w.ffn_norm[layer], over, b.work, hidden)
    barrier_wait(thread)
    apply(hidden, count, w.gates, layer, b.gates, thread)
    barrier_wait(thread)
    wide = Activations(b.act_wide, b.scales)
    gated(b.gates, span, shape.gate, b.wide, wide)
    barrier_wait(thread)
    apply(wide, count, w.down, layer, b.update, thread)
    barrier_wait(thread)


@njit(cache=True, nogil=True)
def head(w, b, wanted, shape, thread):  # type: ignore[no-untyped-def]
    """b.logits = those of rows wanted[0], wanted[1], …, or this rank's columns of them."""
    count = len(wanted)
    span = share(count, thread)
    weight, over = w.final_norm[0], NormSize(shape.hidden, shape.epsilon)
    for i in range(span.first, span.last):
        norm(b.residual, wanted[i], weight, over, b.work, i)
        b.scales[i] = write_activation(b.work, i, b.act)
    barrier_wait(thread)
    apply(Activations(b.act, b.scales), count, w.head, 0, b.logits, thread)
    barrier_wait(thread)


@njit(cache=True, nogil=True)
def add_normed(b, count, weight, shape, thread):  # type: ignore[no-untyped-def]
    """residual += RMSNorm(b.work) * weight."""
    span, over = share(count, thread), NormSize(shape.hidden, shape.epsilon)
    for row in range(span.first, span.last):
        norm(b.work, row, weight, over, b.work, row)
    add(b.residual, b.work, span)


@njit(cache=True, nogil=True)
def _add_update(b, count, weight, shape, shared, turn, thread):  # type: ignore[no-untyped-def]
    """residual += b.update, or all ranks' sum of it, after its norm where `weight` is not empty;
    returns the next turn."""
    span, normed = share(count, thread), len(weight) > 0
    to = b.work if normed else b.residual
    if normed:
        b.work[span.first : span.last] = 0
    if shared.slots.shape[1] == 1:
        add(to, b.update, span)
    else:
        all_reduce(to, b.update, span, shared, turn, thread)
        turn += 1
    if normed:
        add_normed(b, count, weight, shape, thread)
    return turn


@njit(cache=True, nogil=True)
def run(model, rows, shared, thread):  # type: ignore[no-untyped-def]
    """Run a `Batch` through a `PassModel`; logits of rows.outputs land in its buffers, in order.

    A stage without embedding begins with the residual that it finds, one without head ends with it.
    All threads call this with their `Thread`, and so do all ranks that share the model. Where ranks
    are on several machines, the caller runs the parts one by one instead.
    """
    w, b, shape = model.value
    count, turn = len(rows.tokens), shared.turn
    if shape.embeds and shared.slots.shape[1] == 1:
        embed(w, b.residual, rows.tokens, shape, thread)
    elif shape.embeds:
        embed(w, b.update, rows.tokens, shape, thread)
        span = share(count, thread)
        b.residual[span.first : span.last] = 0
        all_reduce(b.residual, b.update, span, shared, turn, thread)
        turn += 1
    for layer in range(b.k_t.shape[0]):
        attention(w, b, rows, layer, shape, thread)
        weight = w.attention_update_norm[layer]
        turn = _add_update(b, count, weight, shape, shared, turn, thread)
        feed_forward(w, b, count, layer, shape, thread)
        weight = w.ffn_update_norm[layer]
        turn = _add_update(b, count, weight, shape, shared, turn, thread)
    barrier_wait(thread)
    if shape.has_head:
        head(w, b, rows.outputs, shape, thread)
