"""The KV pool of one engine: keys and values of all layers, in blocks of 64 slots.

Which blocks are whose is `blocks`' to say, what lies at which offset the sequence's.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from outrider.kernels import cache
from outrider.kernels.linear import aligned
from outrider.worker.blocks import BlockPool, Int32
from outrider.worker.model.config import ModelConfig
from outrider.worker.region import BLOCK, Region

PAD_SLOTS = 16
"""Unused slots: a pitch of keys that is a power of two would put a head in few cache sets."""


class KVPool(BlockPool):
    """Preallocated keys and values of `blocks` blocks, for sequences of up to `longest` slots."""

    def __init__(
        self,
        config: ModelConfig,
        blocks: int,
        longest: int,
        *,
        prefix_cache: bool = True,
        salt: bytes = b"",
    ) -> None:
        super().__init__(blocks, longest, prefix_cache=prefix_cache, salt=salt)
        slots = blocks * BLOCK + PAD_SLOTS
        layers, heads, size = config.layers, config.kv_heads, config.head_dim
        self.k_t: NDArray[np.float32] = aligned((layers, heads, size, slots), np.float32)
        self.v: NDArray[np.float32] = aligned((layers, heads, slots, size), np.float32)
        self.moved: Callable[[Int32, Int32], None] = lambda sources, destinations: None
        """Sees the slots of every move: other ranks have to repeat it."""

    def move(self, region: Region, sources: Int32, destinations: Int32) -> None:
        """Copies offsets over all layers, as if all were read before any is written.

        Raises `ValueError` for a destination that may not be written.
        """
        slots = region.slots(sources), region.writable(destinations)
        self.move_slots(*slots)
        self.moved(*slots)

    def move_slots(self, sources: Int32, destinations: Int32) -> None:
        """`move` by slots of the pool, which nobody checks."""
        cache.move(self.k_t, self.v, sources, destinations)

    def rehearse(self) -> None:
        """Compiles what moves KV, before a request waits for it; needs a free block."""
        region = self.admit(np.empty(0, np.int32), BLOCK)
        if region is None:
            raise RuntimeError("the pool has no free block to rehearse with")
        self.move(region, np.array([1], np.int32), np.array([0], np.int32))
        self.free(region)
