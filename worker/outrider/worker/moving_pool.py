"""A pool of blocks whose KV can be moved between offsets of a sequence.

Where keys and values lie, and when they are copied, is left to `kv_pool` (host memory, at once) and
`gpu.pool` (device memory, before the next pass).
"""

import abc
from collections.abc import Callable
from typing import Any

import numpy as np

from outrider.worker.blocks import BlockPool, Int32
from outrider.worker.region import BLOCK, Region


class MovingPool(BlockPool, abc.ABC):
    """`BlockPool` with keys and values behind it."""

    def __init__(self, blocks: int, longest: int, **options: Any) -> None:
        super().__init__(blocks, longest, **options)
        self.moved: Callable[[Int32, Int32], None] = lambda sources, destinations: None
        """Sees the slots of every move: other ranks have to repeat it."""

    def move(self, region: Region, sources: Int32, destinations: Int32) -> None:
        """Copies offsets over all layers, as if all were read before any is written.

        Raises `ValueError` for a destination that may not be written.
        """
        slots = region.slots(sources), region.writable(destinations)
        self.move_slots(*slots)
        self.moved(*slots)

    @abc.abstractmethod
    def move_slots(self, sources: Int32, destinations: Int32) -> None:
        """`move` by slots of the pool, which nobody checks."""

    def rehearse(self) -> None:
        """Compiles what moves KV, before a request waits for it; needs a free block."""
        region = self.admit(np.empty(0, np.int32), BLOCK)
        if region is None:
            raise RuntimeError("the pool has no free block to rehearse with")
        self.move(region, np.array([1], np.int32), np.array([0], np.int32))
        self.free(region)
