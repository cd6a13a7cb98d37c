"""KV cache of one engine on a device: keys and values of all layers, in blocks of 64 slots.

Leaves queued moves to `kv.kv_cache`, the owners of blocks to `kv.block_pool`, copying to
`outrider.kernels.gpu.cache`.
"""

import torch
from torch import Tensor

from outrider.worker.kv.block_pool import BLOCK, Int32
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.model.config import ModelConfig


class DeviceKVCache(KVCache):
    """Preallocated keys and values of `blocks` blocks, for sequences of up to `longest` slots."""

    def __init__(
        self,
        config: ModelConfig,
        blocks: int,
        longest: int,
        dtype: torch.dtype,
        device: str,
        *,
        prefix_cache: bool = True,
    ) -> None:
        super().__init__(blocks, longest, prefix_cache=prefix_cache)
        shape = (config.layers, config.kv_heads, blocks * BLOCK, config.head_dim)
        self.k: Tensor = torch.zeros(shape, dtype=dtype, device=device)
        self.v: Tensor = torch.zeros(shape, dtype=dtype, device=device)

    def move_many(self, sources: Int32, destinations: Int32) -> None:
        """Move any number of slots, through a temporary and without a launch of their own."""
        here, there = (torch.from_numpy(x).to(self.k.device) for x in (sources, destinations))
        for kept in (self.k, self.v):
            kept.index_copy_(2, there.long(), kept.index_select(2, here))
