"""The KV pool of one engine: keys and values of all layers, in blocks of 64 slots.

Which blocks are whose is `blocks`' to say, what lies at which offset the sequence's.
"""

import numpy as np
from numpy.typing import NDArray

from outrider.kernels import cache
from outrider.kernels.linear import aligned
from outrider.worker.blocks import Int32
from outrider.worker.model.config import ModelConfig
from outrider.worker.moving_pool import MovingPool
from outrider.worker.region import BLOCK

PAD_SLOTS = 16
"""Unused slots: a pitch of keys that is a power of two would put a head in few cache sets."""


class KVPool(MovingPool):
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

    def move_slots(self, sources: Int32, destinations: Int32) -> None:
        """`move` by slots of the pool, which nobody checks."""
        cache.move(self.k_t, self.v, sources, destinations)
