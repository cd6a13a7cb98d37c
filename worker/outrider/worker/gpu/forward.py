"""The Llama family's pass over static buffers: launches alone, so that a graph can hold them.

Leaves what the buffers hold to `inputs`, weights to `weights`, graphs to `model`, and sums over
ranks to whoever gives `reduce`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from outrider.kernels.gpu import contexts
from outrider.kernels.gpu.attention import tree_attention
from outrider.kernels.gpu.cache import move
from outrider.kernels.gpu.gated import gated
from outrider.kernels.gpu.linear import linear
from outrider.kernels.gpu.norm import add_norm
from outrider.kernels.gpu.plans import Plan, plan
from outrider.kernels.gpu.projection import project
from outrider.kernels.gpu.tiles import make_scratch
from outrider.worker.gpu.inputs import Inputs
from outrider.worker.gpu.pool import DevicePool
from outrider.worker.gpu.weights import DeviceWeights
from outrider.worker.model.config import ModelConfig

Reduce = Callable[[Tensor, Tensor], None]
"""Adds a product [rows, hidden] of all ranks to the residual [rows, hidden]."""


class Forward:
    """One model, or one rank's share of it."""

    def __init__(
        self,
        config: ModelConfig,
        weights: DeviceWeights,
        pool: DevicePool,
        inputs: Inputs,
        max_rows: int,
        reduce: Reduce | None = None,
        splits: int | None = None,
    ) -> None:
        """`reduce`: None, the model is whole. `splits` of a context: None, what suits a GPU."""
        heads, size, like = config.heads, config.head_dim, weights.embedding
        self.config, self.weights, self.pool, self.inputs = config, weights, pool, inputs
        self.reduce = reduce
        self.residual = like.new_zeros((max_rows, config.hidden))
        self.part = torch.zeros_like(self.residual)
        self.normed = torch.zeros_like(self.residual)
        self.q = like.new_zeros((max_rows, heads, size))
        self.attended = torch.zeros_like(self.q)
        self.wide = like.new_zeros((max_rows, config.ffn))
        self.logits = like.new_zeros((max_rows, weights.head.outputs), dtype=torch.float32)
        device = str(like.device)
        self.scratch = make_scratch(max_rows, plans(weights, size), device)
        self.sums = contexts.make_scratch(max_rows, heads, config.kv_heads, size, device, splits)

    def body(self, n: int, groups: int) -> None:
        """Embedding and layers of n rows in `groups` groups; KV goes to the pool."""
        w, eps, scratch = self.weights, self.config.norm_eps, self.scratch
        residual, part, normed = self.residual[:n], self.part[:n], self.normed[:n]
        q, attended, wide = self.q[:n], self.attended[:n], self.wide[:n]
        places, context = self.inputs.places(n), self.inputs.context(n, groups)
        scale, window = self.config.head_dim**-0.5, self.config.sliding_window or 0
        self.embed(n)
        update = None
        for layer, own in enumerate(w.layers):
            k, v = self.pool.k[layer], self.pool.v[layer]
            add_norm(residual, update, own.attention_norm, eps, normed)
            project(normed, own.qkv, own.heads, w.rotary, places, q, k, v, scratch)
            tree_attention(q, k, v, context, scale, window, attended, self.sums)
            linear(attended.view(n, -1), own.output, part, scratch)
            update = self.summed(part, residual)
            add_norm(residual, update, own.ffn_norm, eps, normed)
            gated(normed, own.gates, wide, scratch)
            linear(wide, own.down, part, scratch)
            update = self.summed(part, residual)

    def embed(self, n: int) -> None:
        """The residual of n rows is their tokens' embedding."""
        tokens = self.inputs.device.tokens[:n]
        torch.index_select(self.weights.embedding, 0, tokens, out=self.residual[:n])

    def summed(self, part: Tensor, residual: Tensor) -> Tensor | None:
        """What the next norm has to add: the product, or nothing where ranks have summed it."""
        if self.reduce is None:
            return part
        self.reduce(part, residual)
        return None

    def head(self, m: int) -> None:
        """Logits of the first m outputs of the pass whose body ran last."""
        outputs, normed = self.inputs.device.outputs[:m], self.normed[:m]
        residual = self.residual.index_select(0, outputs)
        update = self.part.index_select(0, outputs) if self.reduce is None else None
        add_norm(residual, update, self.weights.final_norm, self.config.norm_eps, normed)
        linear(normed, self.weights.head, self.logits[:m], self.scratch)

    def move(self, moves: int) -> None:
        """The first `moves` moves of KV."""
        d = self.inputs.device
        move(self.pool.k, self.pool.v, d.sources[:moves], d.destinations[:moves])


def plans(weights: DeviceWeights, head_dim: int) -> list[Plan]:
    """How the linear layers are cut; all layers are alike."""
    layer = weights.layers[0]
    others = (layer.output, layer.gates, layer.down, weights.head)
    return [plan(layer.qkv, head_dim // 2), *map(plan, others)]
