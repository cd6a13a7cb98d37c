"""Tree slots of one sequence, which its node rows take."""

import heapq

import numpy as np

from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.pipeline.records import Ints


class TreeSlots:
    """Slots of a block table; the lowest free one first, so that masks stay narrow."""

    def __init__(self, block_table: BlockTable) -> None:
        self.block_table = block_table
        self._free = list(range(block_table.room))

    @property
    def free(self) -> int:
        """Slots that hold nothing."""
        return len(self._free)

    def take(self) -> int:
        """Take a tree slot; there must be a free one."""
        return heapq.heappop(self._free)

    def give_back(self, slot: int) -> None:
        """Free a tree slot, for records that are sent from now on."""
        heapq.heappush(self._free, slot)

    def in_pool(self, slots: list[int]) -> Ints:
        """Return the pool's numbers of tree slots."""
        return self.block_table.slots(np.array(slots, np.int32))
