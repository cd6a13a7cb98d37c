"""KV cache of one engine on a device: keys and values of all layers, in blocks of 64 slots.

A move is queued: the next pass runs it before it reads or writes any KV. Leaves the owners of
blocks to `kv.block_pool`, copying to `outrider.kernels.gpu.cache`.
"""

import numpy as np
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
        self._origins: dict[int, int] = {}
        """By slot: the one that its KV is copied from."""

    def move_slots(self, sources: Int32, destinations: Int32) -> None:
        """Queue a move by slots of the cache, which are not checked.

        A move after a move is one move of the KV that was there first, so a pass has one launch.
        """
        origins = [self._origins.get(slot, slot) for slot in sources.tolist()]
        self._origins.update(zip(destinations.tolist(), origins, strict=True))

    def queued(self) -> tuple[Int32, Int32]:
        """Return sources and destinations of all moves since the last call; all are read first."""
        origins, self._origins = self._origins, {}
        pairs = [(source, slot) for slot, source in origins.items() if source != slot]
        sources, destinations = np.ascontiguousarray(np.array(pairs, np.int32).reshape(-1, 2).T)
        return sources, destinations

    def move_many(self, sources: Int32, destinations: Int32) -> None:
        """Move any number of slots, through a temporary and without a launch of their own."""
        here, there = (torch.from_numpy(x).to(self.k.device) for x in (sources, destinations))
        for kept in (self.k, self.v):
            kept.index_copy_(2, there.long(), kept.index_select(2, here))
