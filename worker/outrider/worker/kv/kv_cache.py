"""The KV cache of one engine: a block pool with keys and values behind it.

In host memory here, where moves happen at once; `gpu.kv_cache` has it in device memory, where they
happen before the next pass. Leaves which blocks are whose to `block_pool`, what lies at which
offset to the sequence's `block_table`.
"""

import abc
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu import kv_move
from outrider.kernels.cpu.linear import aligned
from outrider.worker.kv.block_pool import BlockPool, Int32
from outrider.worker.kv.block_table import BLOCK, BlockTable

PAD_SLOTS = 16
"""Unused slots: a pitch of keys that is a power of two would put a head in few cache sets."""


class KVCache(BlockPool, abc.ABC):
    """`BlockPool` whose keys and values can be moved between offsets of a sequence."""

    def __init__(self, blocks: int, longest: int, **options: Any) -> None:
        super().__init__(blocks, longest, **options)
        self.moved: Callable[[Int32, Int32], None] = lambda sources, destinations: None
        """Sees the slots of every move: other ranks have to repeat it."""

    def move(self, block_table: BlockTable, sources: Int32, destinations: Int32) -> None:
        """Copies offsets over all layers, as if all were read before any is written.

        Raises `ValueError` for a destination that may not be written.
        """
        slots = block_table.slots(sources), block_table.writable(destinations)
        self.move_slots(*slots)
        self.moved(*slots)

    @abc.abstractmethod
    def move_slots(self, sources: Int32, destinations: Int32) -> None:
        """`move` by slots of the pool, which nobody checks."""

    def warm_up(self) -> None:
        """Compiles what moves KV, before a request waits for it; needs a free block."""
        block_table = self.admit(np.empty(0, np.int32), BLOCK)
        if block_table is None:
            raise RuntimeError("the pool has no free block to rehearse with")
        self.move(block_table, np.array([1], np.int32), np.array([0], np.int32))
        self.free(block_table)


class HostKVCache(KVCache):
    """Preallocated keys and values of `blocks` blocks, for sequences of up to `longest` slots.

    `shape`: layers, key heads, and numbers of one head (`ModelConfig.kv_shape`).
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        blocks: int,
        longest: int,
        *,
        prefix_cache: bool = True,
        salt: bytes = b"",
    ) -> None:
        super().__init__(blocks, longest, prefix_cache=prefix_cache, salt=salt)
        slots = blocks * BLOCK + PAD_SLOTS
        layers, heads, size = shape
        self.k_t: NDArray[np.float32] = aligned((layers, heads, size, slots), np.float32)
        self.v: NDArray[np.float32] = aligned((layers, heads, slots, size), np.float32)

    def move_slots(self, sources: Int32, destinations: Int32) -> None:
        """`move` by slots of the pool, which nobody checks."""
        kv_move.move(self.k_t, self.v, sources, destinations)
