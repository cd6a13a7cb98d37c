"""The KV cache of one engine: a block pool with keys and values behind it.

In host memory here; `gpu.kv_cache` has it in device memory. A move is queued: the next pass runs it
before it reads or writes any KV. Leaves owners of blocks and the prefix cache to `block_pool`, and
the meaning of offsets to the schedulers.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.attention import KVArrays
from outrider.kernels.cpu.collectives import Span
from outrider.kernels.cpu.elementwise import move_kv
from outrider.worker.host.memory_region import MemoryRegion, bytes_of
from outrider.worker.kv.block_pool import BLOCK, BlockMoves, BlockPool, BlockTable, Int32

NO_SLOTS = np.zeros(0, np.int32)


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
        self.move_slots(block_table.slots(sources), block_table.writable(destinations))

    def move_slots(self, sources: Int32, destinations: Int32) -> None:
        """Queue a move by slots of the pool, which are not checked.

        A move after a move is one move of the KV that was there first, so a pass has one at most.
        """
        self.moved(sources, destinations)
        origins = [self._origins.get(slot, slot) for slot in sources.tolist()]
        self._origins.update(zip(destinations.tolist(), origins, strict=True))

    @property
    def waiting_moves(self) -> int:
        """Slots that the next pass moves KV to."""
        return len(self._origins)

    def queued(self) -> tuple[Int32, Int32]:
        """Return sources and destinations of all moves since the last call; all are read first."""
        if not self._origins:
            return NO_SLOTS, NO_SLOTS
        origins, self._origins = self._origins, {}
        moves = {slot: source for slot, source in origins.items() if source != slot}
        return np.array(list(moves.values()), np.int32), np.array(list(moves), np.int32)

    def warm_up(self) -> None:
        """Compile what moves KV, before a request waits for it; needs a free block."""
        block_table = self.admit(np.empty(0, np.int32), BLOCK)
        if block_table is None:
            raise RuntimeError("the pool has no free block to warm up with")
        self.move(block_table, np.array([1], np.int32), np.array([0], np.int32))
        self.free(block_table)


class HostKVCache(KVCache):
    """KV cache in host memory: keys and values of `blocks` blocks, and addresses for `most`.

    Memory comes with the first write to a block. So a slab more takes no copy and moves nothing,
    and compiled code goes on with the addresses that it has; a slab that goes gives its pages back.
    `longest`: slots of the longest sequence; `shape`: layers, key heads, and numbers of one head
    (`ModelConfig.kv_shape`); `most`: None for no more than `blocks`.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        blocks: int,
        longest: int,
        *,
        most: int | None = None,
        prefix_cache: bool = True,
    ) -> None:
        super().__init__(blocks, longest, prefix_cache=prefix_cache)
        layers, heads, size = shape
        self.most = max(blocks, most or 0)
        """Blocks that it has addresses for."""
        keys = layers, heads, self.most, size, BLOCK
        values = layers, heads, self.most * BLOCK, size
        self._region = MemoryRegion(bytes_of(keys, np.float32) + bytes_of(values, np.float32))
        self.k_t: NDArray[np.float32] = self._region.array(keys, np.float32)
        self.v: NDArray[np.float32] = self._region.array(values, np.float32)
        self._use_huge_pages(blocks)

    def warm_up(self) -> None:
        """Also touch each block of one longest sequence: huge pages come now, and not in the middle
        of an answer (Zen 5, virtual: 23 of them, 115 ms, at the demo's second block)."""
        super().warm_up()
        first = min(self.longest // BLOCK, self.blocks)
        values = self.v.reshape(*self.v.shape[:2], self.most, -1)
        self.k_t[:, :, :first, 0, 0] = 0
        values[:, :, :first, 0] = 0

    def run_moves(self) -> None:
        """Do the queued moves now, without a pass."""
        moves = self.queued()
        for k_t, v in zip(self.k_t, self.v, strict=True):
            move_kv(KVArrays(k_t, v), *moves, Span(0, len(k_t)))

    def expand(self, count: int) -> None:
        """Add a slab; raises `ValueError` beyond `most` blocks."""
        if self.blocks + count > self.most:
            raise ValueError(f"{self.blocks + count} blocks: there are addresses for {self.most}")
        super().expand(count)

    def contract(self, count: int) -> BlockMoves | None:
        """Take away a slab and give back its memory; what lies in it is moved at once."""
        before = self.blocks
        moves = super().contract(count)
        if moves is None:
            return None
        self.run_moves()  # by slots as they were
        values = self.v.reshape(*self.v.shape[:2], self.most, -1)
        for source, destination in zip(moves.sources, moves.destinations, strict=True):
            self.k_t[:, :, destination] = self.k_t[:, :, source]
            values[:, :, destination] = values[:, :, source]
        for piece in self._pieces(self.blocks, before):
            self._region.release(piece)
        return moves

    def _use_huge_pages(self, blocks: int) -> None:
        """Ask for huge pages, but not under slabs: theirs come and go block by block."""
        if blocks == self.most:
            self._region.use_huge_pages()
            return
        for piece in self._pieces(0, blocks):
            self._region.use_huge_pages(piece)

    def _pieces(self, first: int, last: int) -> Iterator[NDArray[np.float32]]:
        """Yield keys and values of blocks `first` to `last` - 1, of each layer and head."""
        for k_t, v in zip(self.k_t, self.v, strict=True):
            for head in range(len(k_t)):
                yield k_t[head, first:last]
                yield v[head, first * BLOCK : last * BLOCK]
