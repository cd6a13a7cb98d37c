"""A model of any shape with random weights on a device, for measuring passes.

Leaves what is measured to the benchmarks; a random model's text means nothing.
"""

import torch

from bench.gpu.cases.kernel_case import Backing
from bench.gpu.cases.linear_cases import random_weights
from bench.roofline.work import Shape
from outrider.kernels.gpu.heads import HeadParts
from outrider.kernels.gpu.weights import Weights, plain
from outrider.worker.gpu.forward import PassLimits
from outrider.worker.gpu.kv_cache import DeviceKVCache
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.weights import DeviceLayer, DeviceWeights
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.model.config import Family, ModelConfig
from outrider.worker.model.rotary import rotary_table


def random_model(
    shape: Shape, weights: str, longest: int, rows: int, on: Backing, splits: int | None = None
) -> GpuModel:
    """With a pool for one sequence of `longest` slots, whose KV is random too.

    `weights`: of the matrices but for the head, as `roofline_work.WEIGHTS` has them. `splits` as
    `PassLimits` has them.
    """
    device, dtype = on
    blocks = -(-longest // BLOCK)
    config = config_of(shape, blocks * BLOCK)
    kv_cache = DeviceKVCache(config, blocks, blocks * BLOCK, dtype, device)
    for kept in (kv_cache.k, kv_cache.v):
        kept.normal_()
    held = weights_of(config, weights, blocks * BLOCK, device, dtype)
    return GpuModel(config, held, weights, kv_cache, PassLimits(rows, 1, splits))


def config_of(shape: Shape, context: int) -> ModelConfig:
    """Return shapes as the runner has them."""
    return ModelConfig(
        family=Family.LLAMA,
        hidden=shape.hidden,
        ffn=shape.ffn,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab=shape.vocabulary,
        context=context,
        norm_eps=1e-5,
        rope_theta=5e5,
    )


def weights_of(
    c: ModelConfig, kind: str, positions: int, device: str, dtype: torch.dtype
) -> DeviceWeights:
    """Return layers of about unit gain."""

    def matrix(outputs: int, inputs: int) -> Weights:
        return random_weights(kind, outputs, inputs, device, dtype)

    def ones() -> torch.Tensor:
        return torch.ones(c.hidden, dtype=dtype, device=device)

    queries = c.heads * c.head_dim
    layers = tuple(
        DeviceLayer(
            attention_norm=ones(),
            qkv=matrix(queries + 2 * c.kv_heads * c.head_dim, c.hidden),
            heads=HeadParts(epsilon=c.norm_eps),
            output=matrix(c.hidden, queries),
            ffn_norm=ones(),
            gates=matrix(2 * c.ffn, c.hidden),
            down=matrix(c.hidden, c.ffn),
        )
        for _ in range(c.layers)
    )
    embedding = torch.randn(c.vocab, c.hidden, dtype=dtype, device=device) / c.hidden**0.5
    rotary = torch.from_numpy(rotary_table(c, positions)).to(device)
    return DeviceWeights(embedding, layers, ones(), plain(embedding), rotary)
