"""The KV cache of one engine: a block pool with keys and values behind it.

In host memory here; `gpu.kv_cache` has it in device memory. A move is queued: the next pass runs it
before it reads or writes any KV. Leaves owners of blocks and the prefix cache to `block_pool`, and
the meaning of offsets to the schedulers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.attention import KVArrays
from outrider.kernels.cpu.collectives import Span
from outrider.kernels.cpu.elementwise import move_kv
from outrider.kernels.cpu.packing import aligned
from outrider.worker.kv.block_pool import BLOCK, BlockPool, BlockTable, Int32

NO_SLOTS = np.zeros(0, np.int32)
PAD_SLOTS = 16
"""Unused slots: a pitch of keys that is a power of two would put a head in few cache sets."""


class KVCache(BlockPool):
    """Block pool whose keys and values can be moved between offsets of a sequence."""

    def __init__(self, blocks: int, longest: int, **options: Any) -> None:
        super().__init__(blocks, longest, **options)
        self.moved: Callable[[Int32, Int32], None] = lambda sources, destinations: None
        """Called with the slots of every move: other ranks have to repeat it."""
        self._origins: dict[int, int] = {}
        """By slot: the one that its KV is copied from."""

    def move(self, block_table: BlockTable, sources: Int32, destinations: Int32) -> None:
        """Queue a copy of offsets in all layers, as if all were read before any is written.

        Raises `ValueError` for a destination that may not be written.
        """
        slots = block_table.slots(sources), block_table.writable(destinations)
        self.move_slots(*slots)
        self.moved(*slots)

    def move_slots(self, sources: Int32, destinations: Int32) -> None:
        """Queue a move by slots of the pool, which are not checked.

        A move after a move is one move of the KV that was there first, so a pass has one at most.
        """
        origins = [self._origins.get(slot, slot) for slot in sources.tolist()]
        self._origins.update(zip(destinations.tolist(), origins, strict=True))

    @property
    def moves_wait(self) -> bool:
        """True if the next pass has moves to run."""
        return bool(self._origins)

    def queued(self) -> tuple[Int32, Int32]:
        """Return sources and destinations of all moves since the last call; all are read first."""
        if not self._origins:
            return NO_SLOTS, NO_SLOTS
        origins, self._origins = self._origins, {}
        pairs = [(source, slot) for slot, source in origins.items() if source != slot]
        sources, destinations = np.ascontiguousarray(np.array(pairs, np.int32).reshape(-1, 2).T)
        return sources, destinations

    def warm_up(self) -> None:
        """Compile what moves KV, before a request waits for it; needs a free block."""
        block_table = self.admit(np.empty(0, np.int32), BLOCK)
        if block_table is None:
            raise RuntimeError("the pool has no free block to warm up with")
        self.move(block_table, np.array([1], np.int32), np.array([0], np.int32))
        self.free(block_table)


class HostKVCache(KVCache):
    """KV cache in host memory: keys and values of `blocks` blocks, allocated at once.

    `longest`: slots of the longest sequence; `shape`: layers, key heads, and numbers of one head
    (`ModelConfig.kv_shape`).
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

    def run_moves(self) -> None:
        """Do the queued moves now, without a pass."""
        moves = self.queued()
        for k_t, v in zip(self.k_t, self.v, strict=True):
            move_kv(KVArrays(k_t, v), *moves, Span(0, len(k_t)))
