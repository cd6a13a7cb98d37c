"""Forward pass of the Llama family over static buffers: launches alone, so that a graph can hold
them.

Leaves what the buffers hold to `input_buffers`, weights to `weights`, products to `linear_layers`,
graphs to `model`, and sums over ranks to `all_reduce`.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from outrider.kernels.gpu import attention_inputs
from outrider.kernels.gpu.attention import tree_attention
from outrider.kernels.gpu.cache import move
from outrider.kernels.gpu.linear import linear
from outrider.kernels.gpu.norm import add_norm
from outrider.kernels.gpu.tiles import make_scratch
from outrider.kernels.gpu.tiling import Tiling, plan
from outrider.worker.gpu.all_reduce import AllReduce, NoReduce
from outrider.worker.gpu.input_buffers import InputBuffers
from outrider.worker.gpu.kv_cache import DeviceKVCache
from outrider.worker.gpu.linear_layers import KernelLayers, LibraryLayers, LinearLayers
from outrider.worker.gpu.weights import DeviceWeights
from outrider.worker.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class PassLimits:
    """Sizes that the buffers of all passes are made for."""

    rows: int
    """Most of one pass: its row capacity."""
    sequences: int
    """Most of one pass, and never more than rows."""
    splits: int | None = None
    """Splits of a context in attention; None: what suits a GPU."""


@dataclass(frozen=True, slots=True)
class RankShare:
    """One rank's place in the model: how ranks add up, and which token ids it embeds."""

    all_reduce: AllReduce
    first_token: int
    """Its first token id."""


class Forward:
    """One model, or one rank's share of it."""

    def __init__(
        self,
        config: ModelConfig,
        weights: DeviceWeights,
        kv_cache: DeviceKVCache,
        inputs: InputBuffers,
        limits: PassLimits,
        share: RankShare | None = None,
    ) -> None:
        """`share`: None, the model is whole."""
        heads, size, like = config.heads, config.head_dim, weights.embedding
        row_capacity = limits.rows
        self.config, self.weights, self.kv_cache, self.inputs = config, weights, kv_cache, inputs
        self.all_reduce = share.all_reduce if share else NoReduce()
        self.first_token = share.first_token if share else None
        self.residual = like.new_zeros((row_capacity, config.hidden))
        self.part = torch.zeros_like(self.residual)
        self.normed = torch.zeros_like(self.residual)
        self.q = like.new_zeros((row_capacity, heads, size))
        self.attended = torch.zeros_like(self.q)
        self.wide = like.new_zeros((row_capacity, config.ffn))
        self.logits = like.new_zeros((row_capacity, weights.head.outputs), dtype=torch.float32)
        device = str(like.device)
        self.scratch = make_scratch(row_capacity, plans(weights, size), device)
        self.kernels: LinearLayers = KernelLayers(weights.rotary, self.all_reduce, self.scratch)
        self.sums = attention_inputs.make_scratch(
            row_capacity, heads, config.kv_heads, size, device, limits.splits
        )

    def body(self, n: int, groups: int, by_library: bool = False) -> None:
        """Run embedding and layers of n rows in `groups` groups; KV goes to the KV cache.

        `by_library`: by the vendor's library, which always gets `CHUNK` rows.
        """
        w, eps, linear_layers = self.weights, self.config.norm_eps, self.kernels
        if by_library:
            linear_layers = self.library_layers
        residual, part, normed = self.residual[:n], self.part[:n], self.normed[:n]
        q, attended, wide = self.q[:n], self.attended[:n], self.wide[:n]
        places, context = self.inputs.places(n), self.inputs.context(n, groups)
        scale, finish = self.config.head_dim**-0.5, linear_layers.finish
        self.embed(n)
        update = None
        for layer, own in enumerate(w.layers):
            k, v = self.kv_cache.k[layer], self.kv_cache.v[layer]
            add_norm(residual, update, own.attention_norm, eps, normed)
            linear_layers.project(normed, own, places, q, k, v)
            window = self.config.window_of(layer)
            tree_attention(q, k, v, context, scale, window, attended, self.sums)
            update = finish(attended.view(n, -1), own.output, part, residual)
            add_norm(residual, update, own.ffn_norm, eps, normed)
            linear_layers.gated(normed, own.gates, wide)
            update = finish(wide, own.down, part, residual)

    @cached_property
    def library_layers(self) -> LinearLayers:
        """Linear layers of prompts by the vendor's library; made for the first such pass."""
        return LibraryLayers(self.weights.rotary, self.all_reduce)

    def embed(self, n: int) -> None:
        """Write the embedding of n rows' tokens to the residual."""
        tokens, residual = self.inputs.device["tokens"][:n], self.residual[:n]
        if self.first_token is None:
            torch.index_select(self.weights.embedding, 0, tokens, out=residual)
            return
        own, count = tokens - self.first_token, self.config.vocab
        found = self.weights.embedding.index_select(0, own.clamp(0, count - 1))
        found.masked_fill_(((own < 0) | (own >= count))[:, None], 0.0)
        residual.zero_()
        self.all_reduce.add(found, residual)

    def head(self, m: int) -> None:
        """Compute logits of the first m outputs of the pass whose body ran last."""
        outputs, normed = self.inputs.device["outputs"][:m], self.normed[:m]
        residual = self.residual.index_select(0, outputs)
        alone = isinstance(self.all_reduce, NoReduce)
        update = self.part.index_select(0, outputs) if alone else None
        add_norm(residual, update, self.weights.final_norm, self.config.norm_eps, normed)
        linear(normed, self.weights.head, self.logits[:m], self.scratch)

    def move(self, moves: int) -> None:
        """Run the first `moves` moves of KV."""
        d = self.inputs.device
        move(self.kv_cache.k, self.kv_cache.v, d["sources"][:moves], d["destinations"][:moves])


def plans(weights: DeviceWeights, head_dim: int) -> set[Tiling]:
    """Return the tilings of the linear layers."""
    found = {plan(weights.head)}
    for layer in weights.layers:
        found |= {plan(layer.qkv, head_dim // 2)}
        found |= {plan(one) for one in (layer.output, layer.gates, layer.down)}
    return found
