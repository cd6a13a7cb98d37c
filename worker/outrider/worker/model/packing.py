"""A model's tensors, fused, padded and packed for the compiled pass.

Reads Hugging Face names; QKV and gate/up become one layer each. Leaves files to the loader and
arithmetic to `outrider.kernels`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.forward import Buffers, PassWeights, Stack
from outrider.kernels.cpu.numeric_kind import NumericKind
from outrider.kernels.cpu.packing import BLOCK, aligned, pack, padded
from outrider.worker.errors import ModelError
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.rotary import rotary_tables
from outrider.worker.model.tensor_names import EMBEDDING, HEAD, NORM, UPDATE_NORMS, ffn_norm

Floats = NDArray[np.float32]
Pack = Callable[[ModelConfig, Mapping[str, Floats], NumericKind, int, LayerRange], PassWeights]
"""`pack_model`, or what keeps its results."""


class Tensors:
    """Float32 arrays of a checkpoint by name."""

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        self._weights = weights

    def __call__(self, name: str) -> Floats:
        """Return the tensor called `name`; raises `ModelError` when it is missing."""
        if name not in self._weights:
            raise ModelError(f"the checkpoint lacks {name}")
        return np.require(self._weights[name], np.float32, ["C", "A", "W"])

    def layer(self, index: int, *names: str) -> Floats:
        """Pack the tensors of one layer, stacked along their outputs."""
        return np.concatenate([self(f"model.layers.{index}.{name}") for name in names])


def pack_model(
    config: ModelConfig,
    weights: Mapping[str, Floats],
    kind: NumericKind,
    positions: int,
    layers: LayerRange,
) -> PassWeights:
    """Pack the `layers` of a checkpoint, which `config` counts; the first ones with the embedding,
    the last ones with final norm and head.

    Raises `ModelError` for a missing tensor.
    """
    get, numbers = Tensors(weights), layers.numbers
    none = np.zeros((0, config.hidden), np.float32)
    norm = get(NORM) if layers.has_head else np.zeros(config.hidden, np.float32)

    def each(*names: str) -> Iterator[Floats]:
        return (get.layer(number, *names) for number in numbers)

    def optional(present: bool, *names: str) -> Floats:
        return np.stack([*each(*names)]) if present else np.zeros((config.layers, 0), np.float32)

    return PassWeights(
        qkv=_stack(each(*(f"self_attn.{x}_proj.weight" for x in "qkv")), kind),
        output=_stack(each("self_attn.o_proj.weight"), kind),
        gates=_stack((_gates(get, number, config) for number in numbers), kind),
        down=_stack(each("mlp.down_proj.weight"), kind),
        head=_stack([_head(get, config) if layers.has_head else none], kind.head),
        attention_norm=_rows(each("input_layernorm.weight")),
        ffn_norm=_rows(each(ffn_norm(config))),
        attention_update_norm=_rows(optional(config.update_norms, UPDATE_NORMS[0])),
        ffn_update_norm=_rows(optional(config.update_norms, UPDATE_NORMS[1])),
        final_norm=_rows([norm]),
        qkv_bias=optional(config.qkv_bias, *(f"self_attn.{x}_proj.bias" for x in "qkv")),
        q_norm=optional(config.qk_norm, "self_attn.q_norm.weight"),
        k_norm=optional(config.qk_norm, "self_attn.k_norm.weight"),
        rotary=rotary_tables(config, positions),
        embedding=embedding_of(config, weights, layers),  # last: a checkpoint is read once then
    )


def embedding_of(config: ModelConfig, weights: Mapping[str, Floats], layers: LayerRange) -> Floats:
    """Return the embedding [vocab, hidden], without rows for layers that do not embed; raises
    `ModelError` when it is missing."""
    if layers.embeds:
        return Tensors(weights)(EMBEDDING)
    return np.zeros((0, config.hidden), np.float32)


def _gates(get: Tensors, i: int, config: ModelConfig) -> Floats:
    """Stack gates, then ups, each padded so that a row of both is two whole halves."""
    width = padded(config.ffn, BLOCK)
    both = np.zeros((2 * width, config.hidden), np.float32)
    both[: config.ffn] = get.layer(i, "mlp.gate_proj.weight")
    both[width : width + config.ffn] = get.layer(i, "mlp.up_proj.weight")
    return both


def _head(get: Tensors, config: ModelConfig) -> Floats:
    head = get(EMBEDDING if config.tied else HEAD)
    if len(head) != config.outputs:
        raise ModelError(f"{HEAD} has {len(head)} rows, expected {config.outputs}")
    return head


def _stack(matrices: Iterable[Floats], kind: NumericKind) -> Stack:
    """Pack one matrix per layer, all of one shape."""
    layers = [pack(matrix, kind) for matrix in matrices]
    weights = aligned((len(layers), layers[0].weights.size), kind.weight)
    for i, layer in enumerate(layers):
        weights[i] = layer.weights
    return Stack(
        weights, np.stack([x.scales for x in layers]), np.stack([x.offsets for x in layers])
    )


def _rows(vectors: Iterable[Floats]) -> Floats:
    """Pad vectors with zeros to rows of padded width."""
    rows = np.stack(list(vectors))
    out = np.zeros((len(rows), padded(rows.shape[1], BLOCK)), np.float32)
    out[:, : rows.shape[1]] = rows
    return out


def make_buffers(
    config: ModelConfig,
    kind: NumericKind,
    kv_cache: HostKVCache,
    row_capacity: int,
    outputs: int,
) -> Buffers:
    """Allocate scratch of passes of up to `row_capacity` rows over sequences of a KV cache.

    `outputs`: columns of the logits, 0 for a stage without head.
    """

    def floats(width: int) -> Floats:
        return aligned((row_capacity, width), np.float32)

    def activations(width: int) -> NDArray[np.generic]:
        return aligned((row_capacity, width), kind.activation)

    hidden, ffn = padded(config.hidden, BLOCK), padded(config.ffn, BLOCK)
    context = padded(config.heads * config.head_dim, BLOCK)
    qkv = padded((config.heads + 2 * config.kv_heads) * config.head_dim, BLOCK)
    return Buffers(
        k_t=kv_cache.k_t,
        v=kv_cache.v,
        residual=floats(hidden),
        work=floats(hidden),
        act=activations(hidden),
        qkv=floats(qkv),
        context=floats(context),
        act_context=activations(context),
        update=floats(padded(config.hidden, BLOCK)),
        gates=floats(padded(2 * ffn, BLOCK)),
        wide=floats(ffn),
        act_wide=activations(ffn),
        scales=np.ones(row_capacity, np.float32),
        attention=aligned(
            (row_capacity, config.heads // config.kv_heads, kv_cache.longest + 64), np.float32
        ),
        logits=floats(padded(outputs, BLOCK)),
    )
